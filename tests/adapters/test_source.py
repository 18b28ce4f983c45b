"""Reading one answer as a source of updates."""

import gzip
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, ClassVar

import anyio
import httpx2
import openai
import pytest

from chatrouting.adapters._errors import Errors
from chatrouting.adapters._source import SDKSource, SSESource
from chatrouting.errors import (
    APIConnectionError,
    OverloadedError,
    RateLimitError,
    StreamInterruptedError,
)
from chatrouting.failure import FailureKind
from chatrouting.responses import ChatResponseUpdate

pytestmark = pytest.mark.virtual_time

ERRORS = Errors("openai", "gpt-x")
SSE = {"content-type": "text/event-stream; charset=utf-8", "x-request-id": "r", "retry-after": "1"}


class Parser:
    """Data is text; "end" completes, "stop" is terminal, and so is an error."""

    def __init__(self) -> None:
        self.is_complete = False
        self.is_terminal = False

    def feed(self, event: str, data: str) -> Sequence[ChatResponseUpdate]:
        if event == "error":
            self.is_terminal = True
            raise OverloadedError(data)
        if data == "junk":
            raise ValueError(data)
        self.is_terminal = data == "stop"
        self.is_complete = self.is_complete or data in ("end", "stop")
        return [ChatResponseUpdate(data)]

    def feed_object(self, data: Mapping[str, Any]) -> Sequence[ChatResponseUpdate]:
        return self.feed(data.get("event", ""), data["data"])


class Answer:
    """An HTTP answer out of pieces: bytes, an exception, or None for a body kept open."""

    def __init__(
        self,
        *pieces: bytes | Exception | None,
        headers: dict[str, str] = SSE,
        http_version: str = "HTTP/1.1",
    ) -> None:
        self.headers = headers
        self.http_version = http_version
        self.pieces = list(pieces)
        self.closed = 0
        self.connection = Connection()
        self.reading = self.connection.read(self.pieces)

    is_closed = is_stream_consumed = False

    @property
    def stream(self) -> AsyncGenerator[bytes, None]:
        return self._stream()

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        async for piece in self.reading:
            yield piece

    async def aiter_bytes(self) -> AsyncGenerator[bytes, None]:
        raise AssertionError("a body that is not encoded was decoded")
        yield b""

    async def aclose(self) -> None:
        self.closed += 1
        self.connection.is_closed = True


class Connection:
    """Where pieces come from: the innermost generator, which nobody closes but its own end."""

    def __init__(self) -> None:
        self.is_closed = False
        self.is_left = False

    async def read(self, pieces: list[Any]) -> AsyncGenerator[Any, None]:
        try:
            while pieces:
                if self.is_closed:
                    raise httpx2.ReadError("closed")
                piece = pieces.pop(0)
                if piece is None:
                    await anyio.sleep_forever()
                elif isinstance(piece, Exception):
                    raise piece
                else:
                    yield piece
        finally:
            self.is_left = True


def source(answer: Answer) -> SSESource:
    async def send() -> tuple[Answer, Parser]:
        return answer, Parser()

    return SSESource(send, ERRORS)


async def texts(stream: SSESource | SDKSource) -> list[str]:
    return [update.text async for update in stream]


async def test_updates_of_one_read_are_ready_without_waiting(anyio_backend):
    stream = source(Answer(b"data: a\n\ndata: b\n\nda", b"ta: stop\n\n"))
    assert stream.take_ready() is None
    first = await anext(stream)
    second = stream.take_ready()
    assert (first.text, second and second.text) == ("a", "b")
    assert stream.take_ready() is None
    assert await texts(stream) == ["stop"]
    await stream.aclose()


@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "read before"])
@pytest.mark.parametrize("is_encoded", [False, True], ids=["plain", "gzip"])
async def test_a_body_is_decoded_where_it_is_encoded(is_read, is_encoded, anyio_backend):
    """Also one that somebody, such as an event hook, has read before."""
    body = b"data: a\n\ndata: stop\n\n"
    headers = SSE | ({"content-encoding": "gzip"} if is_encoded else {})
    sent = httpx2.ByteStream(gzip.compress(body) if is_encoded else body)
    answer = httpx2.Response(200, headers=headers, stream=sent)
    if is_read:
        await answer.aread()

    async def send() -> tuple[httpx2.Response, Parser]:
        return answer, Parser()

    stream = SSESource(send, ERRORS)
    assert await texts(stream) == ["a", "stop"]
    await stream.aclose()


@pytest.mark.parametrize("is_begun", [False, True], ids=["closed", "begun"])
async def test_a_body_that_somebody_spoilt_is_not_read(is_begun, anyio_backend):
    """Such as an event hook: what the HTTP library says of it goes through."""
    answer = httpx2.Response(200, headers=SSE, stream=httpx2.ByteStream(b"data: stop\n\n"))
    reader = answer.aiter_raw()
    if is_begun:
        await anext(reader)
    else:
        await answer.aclose()

    async def send() -> tuple[httpx2.Response, Parser]:
        return answer, Parser()

    stream = SSESource(send, ERRORS)
    with pytest.raises(httpx2.StreamConsumed if is_begun else httpx2.StreamClosed):
        await anext(stream)
    await stream.aclose()
    await reader.aclose()


async def test_a_server_that_names_no_type_is_read(anyio_backend):
    stream = source(Answer(b"data: stop\n\n", headers={}))
    assert await texts(stream) == ["stop"]
    await stream.aclose()


async def test_the_first_update_carries_the_rate_limit_headers(anyio_backend):
    stream = source(Answer(b"data: a\n\ndata: stop\n\n"))
    updates = [update async for update in stream]
    assert [update.rate_limit_headers for update in updates] == [{"retry-after": "1"}, None]
    await stream.aclose()


async def test_reading_stops_at_the_terminal_event_and_the_rest_is_drained(anyio_backend):
    answer = Answer(b"data: stop\n\ndata: more\n\n", b": rest\n\n")
    stream = source(answer)
    assert await texts(stream) == ["stop"]
    assert answer.pieces == [b": rest\n\n"]
    await stream.aclose()
    assert answer.pieces == []
    await stream.aclose()
    assert answer.closed == 1


async def test_a_body_kept_open_after_the_terminal_event_costs_a_tenth_of_a_second(anyio_backend):
    answer = Answer(b"data: stop\n\n", None)
    stream = source(answer)
    assert await texts(stream) == ["stop"]
    with anyio.fail_after(1):
        await stream.aclose()
    assert answer.closed == 1


async def test_a_failing_drain_is_no_failure(anyio_backend):
    stream = source(Answer(b"data: stop\n\n", httpx2.ReadError("x")))
    assert await texts(stream) == ["stop"]
    await stream.aclose()


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param([], id="end of the body"),
        pytest.param([httpx2.RemoteProtocolError("x")], id="cut"),
        pytest.param([b"data: junk\n\n"], id="junk"),
        pytest.param([None], id="kept open"),
    ],
)
async def test_after_a_complete_answer_nothing_is_a_failure(anyio_backend, rest):
    """Complete is what has its finish; a missing terminal event is accepted."""
    stream = source(Answer(b"data: a\n\ndata: end\n\n", *rest))
    assert await texts(stream) == ["a", "end"]
    await stream.aclose()


@pytest.mark.parametrize(
    ("rest", "kind"),
    [
        pytest.param([], FailureKind.CONNECTION, id="clean end"),
        pytest.param([b"data: stop"], FailureKind.CONNECTION, id="half an event"),
        pytest.param([httpx2.RemoteProtocolError("x")], FailureKind.CONNECTION, id="cut"),
        pytest.param([httpx2.ReadTimeout("x")], FailureKind.TIMEOUT, id="stall"),
        pytest.param([b"data: junk\n\n"], FailureKind.CONNECTION, id="malformed event"),
        pytest.param([b"data: \xff\n\n"], FailureKind.CONNECTION, id="not UTF-8"),
    ],
)
async def test_a_stream_without_its_end_is_interrupted(anyio_backend, rest, kind):
    """[BR-01] What came before is handed out; then the error, and again if asked again."""
    stream = source(Answer(b"data: a\n\n", *rest))
    assert (await anext(stream)).text == "a"
    with pytest.raises(StreamInterruptedError) as caught:
        await anext(stream)
    assert caught.value.kind is kind
    assert (caught.value.request_id, caught.value.model) == ("r", "gpt-x")
    with pytest.raises(StreamInterruptedError):
        await anext(stream)
    await stream.aclose()


async def test_an_error_event_comes_after_what_was_read_with_it(anyio_backend):
    """[BR-02] [BR-13] The error has the request's id although its event has none."""
    answer = Answer(b"data: a\n\nevent: error\ndata: busy\n\ndata: b\n\n", b"data: more\n\n")
    stream = source(answer)
    assert (await anext(stream)).text == "a"
    with pytest.raises(OverloadedError, match="busy") as caught:
        await anext(stream)
    assert caught.value.request_id == "r"
    assert caught.value.rate_limit_headers == {"retry-after": "1"}
    await stream.aclose()
    assert answer.pieces == [], "read to its end, the connection can be used again"


@pytest.mark.parametrize(
    ("headers", "pieces", "error_class", "words"),
    [
        pytest.param(
            {"content-type": "text/html; charset=utf-8"},
            [b"<html>"],
            StreamInterruptedError,
            "came as text/html instead of an event stream",
            id="HTML",
        ),
        pytest.param(
            {"content-type": "application/json"},
            [b'{"error": {"code": "rate_limit', b'_exceeded"}}'],
            RateLimitError,
            "rate_limit_exceeded",
            id="error object",
        ),
        pytest.param(
            {"content-type": "application/json"},
            [b"[]"],
            StreamInterruptedError,
            "came as application/json",
            id="empty list",
        ),
        pytest.param(
            {"content-type": "text/html"},
            [b"x" * 20_000, b"y"],
            StreamInterruptedError,
            "came as text/html",
            id="endless",
        ),
        pytest.param(
            {"content-type": "text/html"},
            [httpx2.ReadError("x")],
            StreamInterruptedError,
            "broke off",
            id="cut",
        ),
        pytest.param({}, [b"<html>"], StreamInterruptedError, "ended before", id="no type at all"),
    ],
)
async def test_what_is_no_event_stream_is_an_error(
    anyio_backend, headers, pieces, error_class, words
):
    stream = source(Answer(*pieces, headers=headers))
    with pytest.raises(error_class, match=words):
        await anext(stream)
    await stream.aclose()


async def test_a_failing_request_is_translated(anyio_backend):
    async def send() -> tuple[Answer, Parser]:
        raise httpx2.ConnectError("refused")

    stream = SSESource(send, ERRORS)
    with pytest.raises(APIConnectionError):
        await anext(stream)
    await stream.aclose()


@pytest.mark.parametrize(
    ("pieces", "headers"),
    [
        pytest.param([b"data: a\n\n"], SSE, id="between updates"),
        pytest.param([b"data: end\n\n"], SSE, id="after the end"),
        pytest.param([b"<html>"], {"content-type": "text/html"}, id="in what is no stream"),
    ],
)
async def test_a_bug_of_somebody_else_goes_through(pieces, headers, anyio_backend):
    stream = source(Answer(*pieces, KeyError("x"), headers=headers))
    with pytest.raises(KeyError):
        await texts(stream)
    await stream.aclose()


async def test_closed_before_it_is_read_it_sends_nothing(anyio_backend):
    opened: list[bool] = []

    async def send() -> tuple[Answer, Parser]:
        opened.append(True)
        return Answer(), Parser()

    stream = SSESource(send, ERRORS)
    await stream.aclose()
    assert await texts(stream) == []
    assert opened == []


@pytest.mark.parametrize("rest", [[], [None], [b"data: b\n\n"] * 3], ids=str)
async def test_an_early_close_leaves_no_generator_behind(anyio_backend, rest):
    """Those of HTTP libraries are nested; what is left of them, trio reports."""
    answer = Answer(b"data: a\n\n", *rest)
    stream = source(answer)
    assert (await anext(stream)).text == "a"
    await stream.aclose()
    assert answer.closed == 1
    assert answer.connection.is_left


@pytest.mark.parametrize("first", ["a", "stop"])
async def test_what_shares_its_connection_is_not_read_on(anyio_backend, first):
    """With HTTP/2 a stream is left, and others go on reading the connection."""
    rest = b"data: b\n\n"
    answer = Answer(f"data: {first}\n\n".encode(), rest, http_version="HTTP/2")
    stream = source(answer)
    assert (await anext(stream)).text == first
    await stream.aclose()
    assert answer.pieces == [rest]
    assert answer.closed == 1
    await answer.reading.aclose()


class SDKStream:
    """An SDK's stream of objects, as far as the source uses it."""

    def __init__(self, *items: Any, response: Answer | None = None) -> None:
        self.items = list(items)
        self.response = response
        self.connection = Connection()
        self.closed = 0

    async def __aiter__(self) -> AsyncGenerator[Any, None]:
        async for item in self.connection.read(self.items):
            yield item

    async def close(self) -> None:
        self.closed += 1
        self.connection.is_closed = True


class Item:
    """An object of an SDK that turns into a mapping."""

    def __init__(self, data: str) -> None:
        self.data = data

    def to_dict(self) -> dict[str, Any]:
        return {"data": self.data}


def sdk_source(stream: SDKStream) -> SDKSource:
    async def send() -> tuple[SDKStream, Parser]:
        return stream, Parser()

    return SDKSource(send, ERRORS)


class KeptOpen(Answer):
    """A body that is no generator: a wait that is given up does not end it."""

    @property
    def stream(self) -> Any:
        return self

    def __aiter__(self) -> "KeptOpen":
        return self

    async def __anext__(self) -> Any:
        if not self.pieces:
            await anyio.sleep_forever()
        return self.pieces.pop()


async def test_what_may_follow_the_end_is_waited_for_once(anyio_backend):
    stream = source(KeptOpen(b"data: end\n\n"))
    with anyio.fail_after(1.5):
        assert await texts(stream) == ["end"]
    await stream.aclose()


async def test_objects_of_an_sdk_are_updates_too(anyio_backend):
    inner = SDKStream(Item("a"), {"data": "stop"}, Item("never"))
    stream = sdk_source(inner)
    assert await texts(stream) == ["a", "stop"]
    await stream.aclose()
    await stream.aclose()
    assert inner.closed == 1
    assert inner.items == [], "read to its end, the connection can be used again"


@pytest.mark.parametrize("items", [["stop", None], ["a", None], ["a", "b"]], ids=str)
async def test_an_sdk_leaves_no_generator_behind(anyio_backend, items):
    """Neither where its stream is kept open after the end nor where it is left early."""
    inner = SDKStream(*(item and Item(item) for item in items))
    stream = sdk_source(inner)
    assert (await anext(stream)).text == items[0]
    with anyio.fail_after(1):
        await stream.aclose()
    assert inner.closed == 1
    assert inner.connection.is_left


async def test_an_error_that_an_sdk_raises_knows_its_request(anyio_backend):
    """It is raised without headers; the stream's own answer has them."""
    request = httpx2.Request("POST", "http://x")
    error = openai.APIError("busy", request, body={"code": "server_overloaded"})
    stream = sdk_source(SDKStream(Item("a"), error, response=Answer()))
    assert (await anext(stream)).text == "a"
    with pytest.raises(OverloadedError) as caught:
        await anext(stream)
    assert caught.value.__cause__ is error
    assert caught.value.request_id == "r"
    assert caught.value.rate_limit_headers == {"retry-after": "1"}
    await stream.aclose()


@pytest.mark.parametrize(
    ("items", "error_class"),
    [
        pytest.param([], StreamInterruptedError, id="clean end"),
        pytest.param([httpx2.ReadError("x")], StreamInterruptedError, id="cut"),
        pytest.param([ValueError("x")], StreamInterruptedError, id="malformed"),
        pytest.param([{"event": "error", "data": "busy"}], OverloadedError, id="error event"),
        pytest.param([OverloadedError("x", status_code=200)], OverloadedError, id="ours"),
    ],
)
async def test_an_sdk_that_ends_early_is_judged_alike(anyio_backend, items, error_class):
    stream = sdk_source(SDKStream(Item("a"), *items))
    assert (await anext(stream)).text == "a"
    with pytest.raises(error_class):
        await anext(stream)
    await stream.aclose()


async def test_an_sdk_stream_never_opened_is_not_closed(anyio_backend):
    stream = sdk_source(SDKStream())
    await stream.aclose()


async def test_an_sdk_stream_need_not_be_a_generator(anyio_backend):
    """A double in a test is often a plain iterator."""

    class Plain:
        items: ClassVar = [{"data": "a"}, {"data": "stop"}]
        closed = 0

        def __aiter__(self):
            return self

        async def __anext__(self):
            if not self.items:
                raise StopAsyncIteration
            return self.items.pop(0)

        async def close(self):
            self.closed += 1

    inner = Plain()
    stream = sdk_source(inner)
    assert await texts(stream) == ["a", "stop"]
    await stream.aclose()
    assert inner.closed == 1
