"""A provider on a loopback port: the real protocols, scripted answers, misbehaviour on demand.

It speaks OpenAI Chat Completions, Responses, Embeddings and Images (also under Azure's paths) and
Anthropic Messages, whole and as SSE, so that an application is tested with the SDK clients and the
HTTP stack that it runs on. It is a test double: it knows no model, keeps everything in memory and
listens on 127.0.0.1 only.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, final
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream

from chatrouting.testing import _http
from chatrouting.testing._apis import Api, Dialect, api_key, find_api, find_dialect
from chatrouting.testing._changes import Changes
from chatrouting.testing._errors import stream_error
from chatrouting.testing._json import as_object, dumps, is_object, loads
from chatrouting.testing._multipart import read_form
from chatrouting.testing._plan import Step, stream_steps, whole_steps
from chatrouting.testing._reply import (
    MALFORMED_EVENT,
    At,
    ErrorBody,
    ErrorShape,
    Gate,
    Reply,
    ToolCall,
)
from chatrouting.testing._requests import RecordedRequest
from chatrouting.testing._rules import JSON_BODY, Subject, first_complaint
from chatrouting.testing._turn import Event, Turn

__all__ = [
    "MALFORMED_EVENT",
    "At",
    "ErrorBody",
    "ErrorShape",
    "Gate",
    "ProviderServer",
    "RecordedRequest",
    "Reply",
    "ReplyFunction",
    "ToolCall",
]

#: Gives the reply to a request; for schedules that depend on what is asked.
ReplyFunction = Callable[[RecordedRequest], Reply]


@final
class ProviderServer:
    """A scripted provider. An async context manager; it listens while the context is open.

        async with ProviderServer(Reply.error(429, retry_after=2), Reply("Hello")) as server:
            client = AsyncOpenAI(base_url=server.openai_base_url, api_key="any")
            ...
        assert server.requests[1].body["messages"] == [...]

    A request that the server refuses by itself (unknown path, wrong key, broken rule) uses up no
    reply.

    Args:
        replies: One for each request, in order. A function answers all requests from its turn on.
        default: The answer when `replies` are used up.
        strict: Answer 400, as the provider would, where a body breaks a rule of its API.
        api_key: The only key that is accepted; None for any.
    """

    def __init__(
        self,
        *replies: Reply | ReplyFunction,
        default: Reply = Reply(),  # noqa: B008 - frozen
        strict: bool = True,
        api_key: str | None = None,
    ) -> None:
        self._replies = deque(replies)
        self._default = default
        self._strict = strict
        self._api_key = api_key
        self._changes = Changes()
        self._stack = AsyncExitStack()
        self._issued: dict[str, str] = {}
        self._port = 0
        self.requests: list[RecordedRequest] = []  #: In order of arrival.
        self.errors: list[Exception] = []  #: The server's own; raised when the context exits.
        self.connection_count = 0  #: Connections accepted so far.
        self.open_connections = 0

    @property
    def url(self) -> str:
        """Root of the server, such as `http://127.0.0.1:49152`."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_base_url(self) -> str:
        """The `base_url` of an `AsyncOpenAI` client. Azure clients take `url` as their endpoint."""
        return f"{self.url}/v1"

    @property
    def anthropic_base_url(self) -> str:
        """The `base_url` of an `AsyncAnthropic` client."""
        return self.url

    def script(self, *replies: Reply | ReplyFunction) -> None:
        """Append replies."""
        self._replies.extend(replies)

    async def wait_for_requests(self, count: int) -> None:
        """Wait until `count` requests have arrived since the server began."""
        await self._changes.until(lambda: len(self.requests) >= count)

    async def wait_disconnected(self) -> None:
        """Wait until no connection is open."""
        await self._changes.until(lambda: self.open_connections == 0)

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        self._port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
        self._stack.push_async_callback(listener.aclose)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(listener.serve, self._serve, self._group)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._group.cancel_scope.cancel()
        try:
            # Without the body's exception: the group would wrap it.
            await self._group.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                await self._stack.aclose()
        if exc is not None:
            for error in self.errors:
                exc.add_note(f"The provider server failed too: {error!r}")
        elif len(self.errors) == 1:
            raise self.errors[0]
        elif self.errors:
            raise ExceptionGroup("The provider server failed.", self.errors)

    async def _serve(self, stream: SocketStream) -> None:
        self.connection_count += 1
        self.open_connections += 1
        number = self.connection_count
        connection = _http.Connection(stream)
        try:
            while (raw := await connection.read_request()) is not None:
                if not await self._exchange(connection, self._record(raw, number)):
                    break
        except Exception as error:  # noqa: BLE001 - kept and raised when the context exits
            self.errors.append(error)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)
            self.open_connections -= 1
            self._changes.notify()

    def _record(self, raw: _http.RawRequest, connection: int) -> RecordedRequest:
        url = urlsplit(raw.target)
        form = read_form(raw.headers.get("content-type", ""), raw.body)
        request = RecordedRequest(
            number=len(self.requests) + 1,
            connection=connection,
            method=raw.method,
            path=unquote(url.path),
            query=dict(parse_qsl(url.query, keep_blank_values=True)),
            headers=raw.headers,
            raw_body=raw.body,
            body=loads(raw.body) if form is None else form,
        )
        self.requests.append(request)
        self._changes.notify()
        return request

    async def _exchange(self, connection: _http.Connection, request: RecordedRequest) -> bool:
        """Answer one request; tell whether the connection can take another."""
        try:
            steps = self._steps(request)
        except Exception as error:  # noqa: BLE001 - kept and raised when the context exits
            self.errors.append(error)
            failure = Reply.error(500, message="The provider server failed.")
            steps = self._whole(request, find_dialect(request), failure, None)
        try:
            alive = await connection.answer(steps, request)
        finally:
            request.done.set()
        return alive and request.headers.get("connection", "").lower() != "close"

    def _steps(self, request: RecordedRequest) -> Sequence[Step]:
        dialect = find_dialect(request)
        api = find_api(request)
        refusal = self._refusal(request, api)
        if api is None or refusal is not None:
            return self._whole(request, dialect, refusal or Reply.error(404), None)
        reply = self._next_reply(request)
        turn = Turn(reply, as_object(request.body), request.number, self._sign)
        streams = reply.error_body is None or reply.error_at is not None
        if reply.body is None and streams and (reply.sse is not None or request.stream):
            return self._stream(request, dialect, api, turn)
        return self._whole(request, dialect, reply, api.whole(turn))

    def _refusal(self, request: RecordedRequest, api: Api | None) -> Reply | None:
        """Give the answer to a request that does not get as far as a scripted reply."""
        if api is None:
            message = f"Invalid URL ({request.method} {request.path})"
            return Reply.error(404, message=message, code="unknown_url")
        if self._api_key is not None and api_key(request.headers) != self._api_key:
            return Reply.error(401, message="Incorrect API key provided.")
        if self._strict:
            return self._check(request, api)
        return None

    def _check(self, request: RecordedRequest, api: Api) -> Reply | None:
        found = JSON_BODY
        if is_object(request.body):
            found = first_complaint(api.rules, Subject(request.body, self._issued))
        if found is None:
            return None
        request.refused, complaint = found
        return Reply.error(400, message=f"{complaint} (rule: {request.refused})")

    def _next_reply(self, request: RecordedRequest) -> Reply:
        if not self._replies:
            return self._default
        reply = self._replies[0]
        if isinstance(reply, Reply):
            self._replies.popleft()
            return reply
        return reply(request)

    def _whole(
        self, request: RecordedRequest, dialect: Dialect, reply: Reply, answer: object
    ) -> Sequence[Step]:
        if reply.body is not None:
            answer = reply.body
        elif reply.error_body is not None and reply.error_at is None:
            answer = dialect.error(reply.status, reply.error_body)
            if answer.get("type") == "error":
                answer["request_id"] = _request_id(request)
        body = _encode(answer)
        content_type = "text/html" if body.startswith(b"<") else "application/json"
        headers = _headers(request, dialect, reply, content_type)
        headers.append(("content-length", str(len(body))))
        return whole_steps(reply, _http.head(reply.status, headers), body)

    def _stream(
        self, request: RecordedRequest, dialect: Dialect, api: Api, turn: Turn
    ) -> Sequence[Step]:
        reply = turn.reply
        if reply.error_at is not None and reply.error_shape is None:
            turn = replace(turn, reply=replace(reply, error_shape=api.stream_error))
            reply = turn.reply
        shape = reply.error_shape
        error = None if shape is None else stream_error(turn, dialect.error, shape)
        headers = _headers(request, dialect, reply, "text/event-stream; charset=utf-8")
        headers.append(("transfer-encoding", "chunked"))
        head = _http.head(reply.status, headers)
        return stream_steps(reply, head, _events(api, turn), ping=dialect.ping, error=error)

    def _sign(self, reasoning: str) -> str:
        """Issue a signature: the same for the same text, another on each server."""
        signature = hashlib.sha256(f"{self._port} {reasoning}".encode()).hexdigest()
        self._issued[signature] = reasoning
        return signature


def _events(api: Api, turn: Turn) -> list[Event]:
    if turn.reply.sse is not None:
        return [
            Event(None, "", raw=raw.encode() if isinstance(raw, str) else raw)
            for raw in turn.reply.sse
        ]
    return [] if api.events is None else api.events(turn)


def _request_id(request: RecordedRequest) -> str:
    return f"req_{request.number}"


def _headers(
    request: RecordedRequest, dialect: Dialect, reply: Reply, content_type: str
) -> list[tuple[str, str]]:
    own = {
        "content-type": reply.content_type or content_type,
        dialect.request_id: _request_id(request),
    }
    given = _pairs(reply.headers)
    names = {name.lower() for name, _ in given}
    return [(name, value) for name, value in own.items() if name not in names] + given


def _pairs(headers: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)


def _encode(answer: Any) -> bytes:
    if isinstance(answer, bytes):
        return answer
    return (answer if isinstance(answer, str) else dumps(answer)).encode()
