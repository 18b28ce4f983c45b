"""Where an adapter's updates come from: one HTTP answer, read and decoded as it comes.

`SSESource` reads bytes and decodes `text/event-stream` itself, at a fraction of what the SDKs' own
iteration costs; `SDKSource` takes the SDK's objects, for bodies that are no such text and on
request. What an event means is the parser's to say, one pure object for each API and stream. Here
it is judged whether a stream came to its end: neither SDK does.
"""

import contextlib
import functools
import json
import logging
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import AsyncGeneratorType
from typing import Any, Final, Protocol, Self, cast, final

import anyio

from chatrouting.adapters._errors import Errors
from chatrouting.adapters._redaction import name_request, redact
from chatrouting.adapters._sse import SSEDecoder
from chatrouting.errors import ChatClientError
from chatrouting.failure import FailureKind
from chatrouting.policies.classify import classify
from chatrouting.policies.error_body import holds_error
from chatrouting.policies.retry_after import rate_limit_headers
from chatrouting.responses import ChatResponseUpdate

_log = logging.getLogger("chatrouting.adapters")

#: Reading on to the end of a body after its terminal event lets the connection be used again.
_DRAIN_SECONDS: Final = 0.1
#: What may follow the finish, usage above all, comes at once or not at all.
_TRAILING_SECONDS: Final = 1.0
#: Enough of a body that is no event stream to find an error object in it.
_REFUSAL_BYTES: Final = 16_384
_UNREADABLE: Final = "holds an event that cannot be read"
#: What reading foreign JSON raises: the second where it is nested too deeply.
_NO_EVENT: Final = (ValueError, RecursionError)


class StreamParser(Protocol):
    """What one API's events mean. Pure; one for each stream."""

    is_complete: bool  #: The end is proven: the body may end now.
    is_terminal: bool  #: Nothing more can come, also after an error: reading stops.

    def feed(self, event: str, data: str) -> Sequence[ChatResponseUpdate]:
        """Take one server-sent event.

        Raises:
            ChatClientError: If the event is an error.
            ValueError: If the event cannot be read.
        """
        ...

    def feed_object(self, data: Mapping[str, Any]) -> Sequence[ChatResponseUpdate]:
        """Take one event that somebody else has decoded; raises as `feed` does."""
        ...


class HTTPAnswer(Protocol):
    """What is used of an HTTP library's streamed response."""

    is_closed: bool
    is_stream_consumed: bool

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def http_version(self) -> str: ...

    @property
    def stream(self) -> Any:
        """The body as it was sent, an async iterable; not after it was closed or read."""
        ...

    def aiter_bytes(self) -> AsyncGenerator[bytes, None]:
        """Read the decoded body."""
        ...

    async def aclose(self) -> None:
        """Give the connection back, or give it up."""
        ...


class SDKStream(Protocol):
    """What is used of an SDK's own stream of objects."""

    def __aiter__(self) -> AsyncIterator[Any]: ...

    async def close(self) -> None:
        """Give the connection back, or give it up."""
        ...


class UpdateSource(ABC):
    """A source of updates as `ResponseStream` wants it. Nothing is sent before the first read."""

    def __init__(self, errors: Errors) -> None:
        self._parser: StreamParser  #: Comes with the answer.
        self._errors = errors
        self._ready: deque[ChatResponseUpdate] = deque()
        self._failure: Exception | None = None  #: To be raised after the updates that are ready.
        self._response: Any = None  #: Of the HTTP library; None where there is none.
        self._headers: Mapping[str, str] = {}
        #: What is read until the source is closed: bytes, or objects of an SDK.
        self._body: AsyncIterator[Any] | None = None
        self._read_next: Callable[[], Awaitable[Any]]  #: Waits for what the body gives next.
        self._can_run_out = True
        self._is_opened = False
        self._has_begun = False
        self._has_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatResponseUpdate:
        if not (self._is_opened or self._has_ended):
            self._is_opened = True
            await self._open_answer()
        while not self._ready:
            if self._has_ended:
                raise self._failure or StopAsyncIteration
            if self._parser.is_complete:
                await self._read_trailing()
                continue
            # Not in a method of its own: a coroutine more for each piece is 2 % of a stream.
            stop = sys.exception()
            try:
                item = await self._read_next()
            except Exception as error:
                if not self._ends_by(error, stop):
                    raise
            else:
                self._take_item(item)
        return self._ready.popleft()

    def take_ready(self) -> ChatResponseUpdate | None:
        """Return an update that is decoded already, None if there is none. Never waits."""
        return self._ready.popleft() if self._ready else None

    async def aclose(self) -> None:
        """Give the connection back or up. May be called more than once."""
        self._has_ended = True
        body, self._body = self._body, None
        if body is None:
            return
        with self._errors.translating():
            try:
                # Read to its end, the connection can be used again.
                if self._parser.is_terminal and self._can_run_out:
                    await _run_out(body)
            finally:
                await self._close(body)

    async def _close(self, body: AsyncIterator[Any]) -> None:
        try:
            await self._close_answer()
        finally:
            # The generators of SDKs and HTTP libraries are nested, and leave each other to the
            # garbage collector; on a closed connection the innermost fails, and all of them end.
            if self._can_run_out:
                await _run_out(body)
            if isinstance(body, AsyncGenerator):
                await body.aclose()

    def _begin(
        self, body: AsyncIterator[Any], response: Any, read_next: Callable[[], Awaitable[Any]]
    ) -> None:
        """Note what came, before any of it is read."""
        self._body, self._response = body, response
        self._read_next = read_next
        # A double in a test, or a transport of one's own, may have no response.
        self._headers = getattr(response, "headers", None) or {}
        # With HTTP/2 others read the same connection: a stream is left, not run out.
        self._can_run_out = getattr(response, "http_version", "HTTP/1.1") == "HTTP/1.1"

    @abstractmethod
    async def _open_answer(self) -> None: ...

    @abstractmethod
    def _take_item(self, item: Any) -> None:
        """Make updates of it."""

    @abstractmethod
    async def _close_answer(self) -> None: ...

    def _take(self, feed: Callable[..., Sequence[ChatResponseUpdate]], *event: Any) -> None:
        """Let the parser make updates of an event; keep what it raises for after the others."""
        try:
            updates = feed(*event)
        except ChatClientError as error:
            self._fail_with(error)
        except _NO_EVENT as error:
            self._fail(_UNREADABLE, error)
        else:
            if updates and not self._has_begun:
                self._has_begun = True
                updates[0].rate_limit_headers = rate_limit_headers(self._headers)
            self._ready += updates
            if self._parser.is_terminal and not self._has_ended:
                self._end()

    def _end(self) -> None:
        """Take the end of the body for the end of the stream, if it is."""
        self._has_ended = True
        if not self._parser.is_complete:
            self._fail("ended before the answer did", None)

    def _fail(self, reason: str, cause: Exception | None) -> None:
        """End the stream as interrupted, unless the answer is complete already."""
        self._has_ended = True
        if self._parser.is_complete:
            _log.debug("adapters.trailing_failure %s", type(cause).__name__)
            return
        has_timed_out = cause is not None and classify(cause).kind is FailureKind.TIMEOUT
        kind = FailureKind.TIMEOUT if has_timed_out else FailureKind.CONNECTION
        failure = self._errors.interrupted(reason, kind=kind)
        failure.__cause__ = cause
        self._fail_with(failure)

    def _fail_with(self, failure: ChatClientError) -> None:
        """Keep an error for after the updates that are ready; it knows its request by headers."""
        self._errors.complete(failure, self._headers)
        self._has_ended, self._failure = True, failure

    async def _read_trailing(self) -> None:
        """Wait for what may follow the proven end, but not for long."""
        stop = sys.exception()
        item: Any = None
        try:
            with anyio.move_on_after(_TRAILING_SECONDS):
                item = await self._read_next()
        except Exception as error:
            if not self._ends_by(error, stop):
                raise
        else:
            if item is None:
                self._end()
            else:
                self._take_item(item)

    def _ends_by(self, error: Exception, stop: BaseException | None) -> bool:
        """End the stream by what reading raised; False if that is not a provider's doing.

        Args:
            error: What was raised.
            stop: What was being handled when reading began.
        """
        if isinstance(error, StopAsyncIteration):
            self._end()
            return True
        if isinstance(error, _NO_EVENT):
            self._fail(_UNREADABLE, error)
            return True
        name_request(error, self._response)
        redact(error, stop)
        ours = self._errors.of_exception(error)
        if ours is None:
            return False
        if isinstance(ours, ChatClientError) and ours.status_code is not None:
            ours.__cause__ = error
            self._fail_with(ours)
        else:
            self._fail("broke off", error)
        return True


async def _run_out(body: AsyncIterator[Any]) -> None:
    """Read what is left, for a tenth of a second at most; nobody asks what becomes of it."""
    if isinstance(body, AsyncGeneratorType) and body.ag_frame is None:
        return  # it has ended
    try:
        with anyio.move_on_after(_DRAIN_SECONDS):
            async for _ in body:
                # Also a body that is all there already must not outlast the limit.
                await anyio.lowlevel.checkpoint()
    except Exception as error:  # noqa: BLE001  # the answer was judged before
        _log.debug("adapters.drain_failed %s", type(error).__name__)


@final
class SSESource(UpdateSource):
    """Updates out of a `text/event-stream`."""

    def __init__(
        self, open: Callable[[], Awaitable[tuple[HTTPAnswer, StreamParser]]], errors: Errors
    ) -> None:
        """Make a source.

        Args:
            open: Sends the request; awaited once, at the first read. Returns the answer, its body
                unread, and who reads its events.
            errors: Makes the errors of this request.
        """
        super().__init__(errors)
        self._open = open
        self._answer: HTTPAnswer
        self._decoder = SSEDecoder()

    async def _open_answer(self) -> None:
        with self._errors.translating():
            self._answer, self._parser = await self._open()
        body = _pieces(self._answer)
        # The iterator's own awaitable: a coroutine of ours would be one more for each piece.
        self._begin(body, self._answer, body.__anext__)
        # Some servers name no type at all; whether it is a stream then shows at its end.
        content_type = self._headers.get("content-type") or "text/event-stream"
        if not content_type.lower().startswith("text/event-stream"):
            await self._refuse(content_type)

    async def _refuse(self, content_type: str) -> None:
        """Find out what came instead of an event stream."""
        body = bytearray()
        stop = sys.exception()
        try:
            with anyio.move_on_after(_TRAILING_SECONDS), contextlib.suppress(StopAsyncIteration):
                while len(body) < _REFUSAL_BYTES:
                    body += await self._read_next()
        except Exception as error:
            if not self._ends_by(error, stop):
                raise
        self._has_ended = True
        try:
            decoded = json.loads(body)
        except _NO_EVENT:
            decoded = None
        if holds_error(decoded):
            self._failure = self._errors.of_answer(status=200, headers=self._headers, body=decoded)
        elif self._failure is None:
            self._fail(f"came as {content_type.partition(';')[0]} instead of an event stream", None)

    def _take_item(self, item: bytes) -> None:
        try:
            events = self._decoder.feed(item)
        except UnicodeDecodeError as error:
            self._fail("is not UTF-8", error)
            return
        for event, data in events:
            self._take(self._parser.feed, event, data)
            if self._has_ended:
                break

    async def _close_answer(self) -> None:
        await self._answer.aclose()


def _pieces(answer: HTTPAnswer) -> AsyncIterator[bytes]:
    """Read a body as it comes, past the HTTP library's own readers where nothing is encoded.

    Two generators and their loops less for each piece: 7 % of a stream.
    """
    if answer.is_closed or answer.is_stream_consumed or "content-encoding" in answer.headers:
        return answer.aiter_bytes()
    return aiter(answer.stream)


@final
class SDKSource(UpdateSource):
    """Updates out of an SDK's own iteration. Sees no terminal marker that the SDK swallows."""

    def __init__(
        self, open: Callable[[], Awaitable[tuple[SDKStream, StreamParser]]], errors: Errors
    ) -> None:
        """Make a source.

        Args:
            open: Sends the request; awaited once, at the first read. Returns the SDK's stream, and
                who reads its objects.
            errors: Makes the errors of this request.
        """
        super().__init__(errors)
        self._open = open
        self._stream: SDKStream

    async def _open_answer(self) -> None:
        with self._errors.translating():
            self._stream, self._parser = await self._open()
        body = aiter(self._stream)
        response = getattr(self._stream, "response", None)
        self._begin(body, response, functools.partial(_next_object, body))

    def _take_item(self, item: Mapping[str, Any]) -> None:
        self._take(self._parser.feed_object, item)

    async def _close_answer(self) -> None:
        await self._stream.close()


async def _next_object(body: AsyncIterator[Any]) -> Mapping[str, Any]:
    item = await anext(body)
    found = item.to_dict() if hasattr(item, "to_dict") else item
    if not isinstance(found, Mapping):
        raise ValueError("an event is no object")  # noqa: TRY004  # what was sent, not a bug
    return cast("Mapping[str, Any]", found)
