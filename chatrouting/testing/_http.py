"""The least of HTTP/1.1 that a provider server needs: requests in, bytes out, and who hung up.

TCP_NODELAY is on for every connection (anyio sets it), so that each write is a segment of its own
where possible.
"""

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import final

import anyio
from anyio.abc import SocketAttribute, SocketStream

from chatrouting.testing._plan import Drop, Pause, Step, Write
from chatrouting.testing._requests import RecordedRequest

#: What a send or a receive raises when the other side is gone.
DISCONNECTED = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)

_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class BadRequestError(Exception):
    """The bytes on the connection are no HTTP/1.1 request that this server understands."""


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request, read completely."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


def head(status: int, headers: Sequence[tuple[str, str]]) -> bytes:
    """Write status line and headers."""
    phrase = _PHRASES.get(status, "")
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@final
class Connection:
    """One accepted connection: reads requests in turn and carries out the steps of each answer."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def read_request(self) -> RawRequest | None:
        """Read the next request; None if the client closed the connection instead.

        Raises:
            BadRequestError: If the bytes are no request.
        """
        try:
            lines = (await self._read_until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = _headers(lines[1:])
            body = await self._read_body(headers)
        except DISCONNECTED:
            return None
        try:
            method, target, _ = lines[0].split(" ")
        except ValueError as error:
            raise BadRequestError(f"Not a request line: {lines[0]!r}.") from error
        return RawRequest(method, target, headers, body)

    async def answer(self, steps: Sequence[Step], request: RecordedRequest) -> bool:
        """Carry out the steps while watching for the client to leave.

        Returns:
            Whether the connection can take another request.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, request, group.cancel_scope)
            try:
                request.replied = await self._carry_out(steps, request)
            except DISCONNECTED:
                request.hung_up.set()
            group.cancel_scope.cancel()
        return request.replied

    async def _carry_out(self, steps: Sequence[Step], request: RecordedRequest) -> bool:
        for step in steps:
            match step:
                case Write():
                    await self._stream.send(step.data)
                    request.events_sent += step.events
                case Pause():
                    await self._pause(step)
                case Drop():
                    if step.reset:
                        self._reset()
                    return False
        return True

    async def _pause(self, pause: Pause) -> None:
        if pause.gate is not None:
            pause.gate.arrive()
        until = anyio.current_time() + pause.seconds
        while True:
            with anyio.move_on_after(pause.ping_period):
                if pause.gate is not None:
                    await pause.gate.opened()
                await anyio.sleep_until(until)
                return
            await self._stream.send(pause.ping)

    async def _watch(self, request: RecordedRequest, scope: anyio.CancelScope) -> None:
        """Notice that the client leaves; keep what it sends early for the next request."""
        try:
            while True:
                self._buffer += await self._stream.receive()
        except DISCONNECTED:
            if not request.replied:
                request.hung_up.set()
            scope.cancel()

    def _reset(self) -> None:
        """Close the socket by RST instead of FIN.

        Before anyio 4.16 closing the stream sends FIN first, on asyncio. So the socket goes here,
        and its descriptor gets a new one that was never connected, for the stream to close.
        """
        raw = self._stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django's
        # The socket is closed already if the client has left a moment ago.
        with suppress(OSError), socket.socket() as unconnected:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.dup2(unconnected.fileno(), raw.fileno(), inheritable=False)

    async def _read_until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            self._buffer += await self._stream.receive()
        return self._take(self._buffer.index(end) + len(end)).removesuffix(end)

    async def _read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += await self._stream.receive()
        return self._take(size)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def _read_body(self, headers: Mapping[str, str]) -> bytes:
        try:
            if headers.get("transfer-encoding", "").lower() != "chunked":
                return await self._read_exactly(int(headers.get("content-length", "0")))
            body = bytearray()
            while size := int((await self._read_until(b"\r\n")).split(b";")[0], 16):
                body += await self._read_exactly(size)
                await self._read_until(b"\r\n")
            await self._read_until(b"\r\n")
        except ValueError as error:
            raise BadRequestError("The length of the body cannot be read.") from error
        return bytes(body)


def _headers(lines: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequestError(f"Not a header line: {line!r}.")
        key = name.lower()
        found[key] = f"{found[key]}, {value.strip()}" if key in found else value.strip()
    return found
