"""What providers do wrong, as each of the three chat clients reports it; that no connection leaks.

The HTTP client has one connection: whoever keeps it makes the next call time out.
"""

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from itertools import product

import anyio
import httpx2
import pytest

from chatrouting.contents import ToolCallContent
from chatrouting.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    ChatClientError,
    ConflictError,
    InsufficientQuotaError,
    InternalServerError,
    LocalSaturationError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    RateLimitError,
    RequestTooLargeError,
    ResponseValidationError,
    StreamInterruptedError,
)
from chatrouting.failure import FailureKind
from chatrouting.policies.classify import classify
from chatrouting.responses import FinishReason
from chatrouting.routing.ordered import OrderedFailoverChatClient
from chatrouting.testing.provider_server import (
    MALFORMED_EVENT,
    Gate,
    ProviderServer,
    Reply,
    ToolCall,
)

WORDS = ["one ", "two ", "three"]


def waits(gate=None):
    """Make an answer that waits after all text, for a client that is expected to leave."""
    return Reply(WORDS, gates={"after_content": gate or Gate()})


async def answer(client):
    return await client.get_streaming_response("hi").get_final_response()


# -- statuses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "error", "kind"),
    [
        (Reply.error(400), BadRequestError, "invalid_request"),
        (Reply.error(401), AuthenticationError, "authentication"),
        (Reply.error(402), InsufficientQuotaError, "quota_exhausted"),
        (Reply.error(403), PermissionDeniedError, "permission"),
        (Reply.error(404), NotFoundError, "not_found"),
        (Reply.error(408), APIStatusError, "timeout"),
        (Reply.error(409), ConflictError, "conflict"),
        (Reply.error(413), RequestTooLargeError, "payload_too_large"),
        (Reply.error(418), APIStatusError, "invalid_request"),
        (Reply.error(422), BadRequestError, "invalid_request"),
        (Reply.error(429), RateLimitError, "rate_limited"),
        (Reply.error(429, code="insufficient_quota"), InsufficientQuotaError, "quota_exhausted"),
        (Reply.error(500), InternalServerError, "server_error"),
        (Reply.error(503), OverloadedError, "overloaded"),
        (Reply.error(504), InternalServerError, "timeout"),
        (Reply.error(529), OverloadedError, "overloaded"),
        (Reply(status=502, body="<html>Bad gateway"), InternalServerError, "server_error"),
        (Reply(status=429, body="<html>Slow down"), RateLimitError, "rate_limited"),
        (Reply(status=422, body={"detail": [{"msg": "m"}]}), BadRequestError, "invalid_request"),
        (Reply(status=503, body='"words"'), OverloadedError, "overloaded"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_status_becomes_an_error_of_ours(
    anyio_backend, api, serve, modes, reply, error, kind
):
    """The same in both modes, once, with all that a router decides by."""
    async with serve(reply, reply) as (server, client):
        for number, ask in enumerate(modes, start=1):
            with pytest.raises(error) as caught:
                await ask(client)

            assert type(caught.value) is error
            assert caught.value.kind == classify(caught.value).kind == kind
            assert (caught.value.provider, caught.value.model) == (api.provider, api.model)
            assert caught.value.status_code == reply.status
            assert caught.value.request_id == f"req_{number}"
            assert isinstance(caught.value.__cause__, api.status_error)
            assert len(server.requests) == number
        assert (await client.get_response("hi")).text, "the connection is free again"


def date_in(seconds):
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry-after": "1.5"}, 1.5, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25, 0.25),
        ([("retry-after", "3"), ("retry-after", "9")], 3, 3),
        ({"retry-after": date_in(3600)}, 3400, 3600),
        ({"retry-after": date_in(-3600)}, 0, 0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360, 360),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2001-01-01T00:00:00Z",
            },
            0,
            0,
        ),
    ],
)
async def test_a_hint_comes_along(anyio_backend, serve, modes, headers, least, most):
    """[BR-26] Seconds, milliseconds, two lines, dates, resets of what is used up; and as sent."""
    async with serve(default=replace(Reply.error(429), headers=headers)) as (_, client):
        for ask in modes:
            with pytest.raises(RateLimitError) as caught:
                await ask(client)

            assert least <= caught.value.retry_after <= most
            assert caught.value.rate_limit_headers.keys() == dict(headers).keys()


async def test_a_hint_that_cannot_be_read_is_none(anyio_backend, serve, ask):
    """[BR-26]"""
    values = ["-5", "nan", "soon", ""]
    async with serve(*(Reply.error(429, retry_after=value) for value in values)) as (_, client):
        for _ in values:
            with pytest.raises(RateLimitError) as caught:
                await ask(client)
            assert caught.value.retry_after is None


async def test_the_sdk_does_not_retry_beneath_us(anyio_backend, api, serve, ask):
    """[BR-28] [BR-30] One call is one request, whatever the answer asks for.

    Also where the hint is one that an SDK would sleep for; the caller's client keeps its setting.
    """
    statuses = [400, 408, 409, 429, 500, 529]
    refusals = [
        Reply.error(status, retry_after=200, headers={"x-should-retry": "true"})
        for status in statuses
    ]
    async with serve(*refusals) as (server, client):
        with anyio.fail_after(10):
            for number in range(1, len(statuses) + 1):
                with pytest.raises(ChatClientError) as caught:
                    await ask(client)
                assert caught.value.retry_after == 200
                assert len(server.requests) == number

        assert client.get_service(api.sdk_class).max_retries == 2


async def test_everything_else_is_asked_as_the_sdk_itself_asks(anyio_backend, api, serve):
    """The options that are given to the SDK change nothing that its client decides."""

    def make(server, http):
        return api.sdk_class(
            base_url=api.base_url(server),
            api_key="k" * 9,
            http_client=http,
            timeout=7,
            default_headers={"x-mine": "1"},
            default_query={"tier": "2"},
        )

    async with serve(Reply("a"), Reply("b"), make_sdk=make) as (server, client):
        await client.get_response("hi")
        (ours,) = server.requests
        path = ours.path.removeprefix("/v1") if api.provider == "openai" else ours.path
        sdk = client.get_service(api.sdk_class)
        await sdk.post(path, cast_to=httpx2.Response, body=ours.body)
    theirs = server.requests[1]
    assert ours.path == theirs.path
    assert ours.headers == theirs.headers
    assert ours.query == theirs.query == {"tier": "2"}


async def test_a_request_goes_to_the_url_that_the_client_has_now(anyio_backend, api, serve, ask):
    """Whoever replaces it means the next request too; with a query the SDK itself joins the two."""
    async with serve(Reply("a"), Reply("b"), Reply("c")) as (server, client):
        sdk = client.get_service(api.sdk_class)
        await ask(client)
        base = str(sdk.base_url).rstrip("/")
        for added in ("elsewhere", "elsewhere?x=1&rest="):
            sdk.base_url = f"{base}/{added}"
            with pytest.raises(NotFoundError):
                await ask(client)
    path = server.requests[0].path
    prefix = "/v1" if api.provider == "openai" else ""
    assert server.requests[1].path == f"{prefix}/elsewhere{path.removeprefix(prefix)}"
    assert "x" in server.requests[2].query


@pytest.mark.parametrize(
    "base",
    [
        "http://h",
        "http://h/v1//",
        "http://h/v1/?",
        "http://h/v1?x=1&rest=",
        "http://h/v1/#part",
        "http://h/v1/#",
        "http://name:p%40ss@h:8080/v1",
        "http://h/%2F/ü/a b",
        "/v1",
    ],
)
async def test_whatever_the_base_url_a_request_goes_where_the_sdk_sends_it(
    anyio_backend, api, make_http_client, base
):
    """A path and the base URL are joined without the SDK only where the outcome is the same."""
    sent = []

    def answer(request):
        sent.append((request.url, request.headers.get("authorization")))
        return httpx2.Response(200, json={"error": "seen"})

    http = make_http_client(transport=httpx2.MockTransport(answer))
    http.base_url = "http://relative"
    async with api.sdk_class(base_url=base, api_key="k" * 9, http_client=http) as sdk:
        with pytest.raises(InternalServerError):
            await api.client_class(sdk, api.model).get_response("hi")
        path = {"chat": "/chat/completions", "responses": "/responses"}.get(api.name)
        await sdk.post(path or "/v1/messages", cast_to=httpx2.Response, body={})
    assert sent[0] == sent[1]


async def test_a_client_of_ones_own_class_is_told_the_path(anyio_backend, api, serve):
    """Clients that rewrite paths know them without the base URL."""

    class Rewriting(api.sdk_class):
        async def post(self, path, **arguments):
            paths.append(path)
            return await super().post(path, **arguments)

    paths = []

    def make(server, http):
        return Rewriting(base_url=api.base_url(server), api_key="k" * 9, http_client=http)

    async with serve(Reply("a"), make_sdk=make) as (_, client):
        await client.get_response("hi")
    assert paths[0].startswith("/")


@pytest.mark.parametrize("media_type", ["text/event-stream", "text/html"])
async def test_a_key_in_the_error_of_a_broken_body_is_masked(
    anyio_backend, api, broken, reachable, make_http_client, media_type
):
    """Rule 9: bodies are read past the readers that name the request, by which the key is known."""

    class Echo(httpx2.AsyncByteStream):
        async def __aiter__(self):
            yield b": begun\n\n"
            raise httpx2.ReadError("reset after opaque-credential-9")

    class Transport(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request):
            return httpx2.Response(200, headers={"content-type": media_type}, stream=Echo())

    http = make_http_client(transport=Transport())
    sdk = api.sdk_class(base_url="http://h", api_key="opaque-credential-9", http_client=http)
    async with sdk:
        error, *_ = await broken(api.client_class(sdk, api.model))
    assert type(error) is StreamInterruptedError
    assert str(error.__cause__) == "reset after [key]"
    assert error.__cause__.request.method == "POST"
    assert "opaque-credential-9" not in reachable(error)


# -- no answer -------------------------------------------------------------------------------------


async def test_an_unreachable_server_is_a_connection_error(
    anyio_backend, api, ask, make_http_client
):
    """[BR-40] By type, not by text."""
    async with ProviderServer() as gone:
        pass
    async with api.sdk(gone, make_http_client()) as sdk:
        with pytest.raises(APIConnectionError) as caught:
            await ask(api.client_class(sdk, api.model))

    assert caught.value.kind is FailureKind.CONNECTION
    assert caught.value.status_code is None


@pytest.mark.parametrize("drop", ["close", "reset"])
async def test_a_connection_dropped_before_the_headers(anyio_backend, serve, ask, drop):
    """[BR-01] Nothing says that a stream had begun."""
    async with serve(Reply(drop_at="headers", drop=drop)) as (_, client):
        with pytest.raises(APIConnectionError) as caught:
            await ask(client)
        assert (await ask(client)).text

    assert caught.value.kind is FailureKind.CONNECTION


async def test_the_body_of_a_whole_answer_that_breaks_off(anyio_backend, serve):
    async with serve(Reply(drop_at="content")) as (_, client):
        with pytest.raises(APIConnectionError):
            await client.get_response("hi")
        assert (await client.get_response("hi")).text


async def test_silence_before_the_headers_is_a_timeout(anyio_backend, serve, ask):
    async with serve(Reply(gates={"headers": Gate()}), http={"read": 0.05}) as (_, client):
        with pytest.raises(APITimeoutError) as caught:
            await ask(client)

    assert caught.value.kind is FailureKind.TIMEOUT


async def test_a_full_pool_is_not_the_providers_fault(anyio_backend, serve, ask):
    """PoolTimeout is local saturation."""
    async with (
        serve(waits(), http={"pool": 0.05}) as (_, client),
        client.get_streaming_response("hi") as held,
    ):
        await anext(held)
        with pytest.raises(LocalSaturationError, match="more connections") as caught:
            await ask(client)

    assert classify(caught.value).kind is FailureKind.LOCAL_SATURATION


# -- a success that is none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    ["<html>Sign in</html>", "", "[]", "null", "{}", '"words"', "words", '{"choices": []}'],
    ids=["html", "empty", "list", "null", "object", "string", "words", "nothing chosen"],
)
async def test_success_without_an_answer_is_an_error(anyio_backend, serve, broken, body):
    """A 200 is unproven: what cannot be read is said to be so, in either mode."""
    reply = Reply(body=body.encode())
    async with serve(reply, reply) as (_, client):
        with pytest.raises(ResponseValidationError) as caught:
            await client.get_response("hi")
        in_stream, *_ = await broken(client)
        assert (await client.get_response("hi")).text, "the connection is free again"

    assert caught.value.kind is FailureKind.SERVER_ERROR
    assert type(in_stream) is StreamInterruptedError
    assert "instead of an event stream" in str(in_stream)
    assert [caught.value.request_id, in_stream.request_id] == ["req_1", "req_2"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"error": {"message": "m", "code": "rate_limit_exceeded"}}, RateLimitError),
        ({"error": {"message": "m", "code": 502}}, InternalServerError),
        ({"type": "error", "error": {"type": "overloaded_error"}}, OverloadedError),
        ({"object": "error", "message": "overloaded", "code": 503}, OverloadedError),
        ({"error": "model is loading"}, InternalServerError),
        ([{"error": {"code": 429, "message": "m"}}], RateLimitError),
    ],
    ids=["code", "number", "type", "flat", "text", "list"],
)
async def test_an_error_dressed_as_success_is_that_error(anyio_backend, serve, modes, body, error):
    """[BR-14] Also where a stream was asked for."""
    limits = {"x-ratelimit-remaining-tokens": "0"}
    async with serve(default=Reply(body=body, headers=limits)) as (_, client):
        for number, ask in enumerate(modes, start=1):
            with pytest.raises(error) as caught:
                await ask(client)

            assert type(caught.value) is error
            assert (caught.value.status_code, caught.value.request_id) == (200, f"req_{number}")
            assert caught.value.rate_limit_headers == limits


# -- errors inside a stream ------------------------------------------------------------------------

SHAPES = {
    "chat": ["data", "event", "chunk", "finish"],
    "responses": ["failed", "flat", "data", "event"],
    "anthropic": ["event", "data"],
}
#: The Anthropic SDK leaves out events without a name, so to it the stream has no end.
UNSEEN = [("anthropic", "data", "sdk")]


@pytest.mark.parametrize(
    ("api", "shape", "decode"),
    [
        row
        for api, shapes in SHAPES.items()
        for row in product([api], shapes, ["own", "sdk"])
        if row not in UNSEEN
    ],
    indirect=["api", "decode"],
)
@pytest.mark.parametrize("at", ["content", "after_content"])
async def test_an_error_inside_a_stream_is_that_error(
    anyio_backend, api, serve, decode, broken, shape, at
):
    """[BR-01] [BR-02] [BR-13] [BR-14] Read from its body in every shape; the status is 200."""
    limits = {"x-ratelimit-remaining-tokens": "0"}
    reply = replace(Reply.stream_error(WORDS, at=at, shape=shape), headers=limits)
    async with serve(reply, decode=decode) as (server, client):
        caught, updates, stream = await broken(client)
        with pytest.raises(OverloadedError) as again:
            await anext(stream)
        assert (await answer(client)).text
        # Read to its end, the connection is used again; what an SDK itself raises for costs it.
        assert server.connection_count == 1 or decode == "sdk"

    assert type(caught) is OverloadedError
    assert again.value is caught
    assert (caught.provider, caught.model) == (api.provider, api.model)
    assert (caught.status_code, caught.request_id) == (200, "req_1")
    assert caught.rate_limit_headers == limits
    assert caught.retry_after is None
    said = "one two three" if at == "after_content" else ""
    assert stream.partial_response.text == "".join(update.text for update in updates) == said
    assert stream.partial_response.finish_reason is None


async def test_an_error_event_without_an_error_object_is_an_error(anyio_backend, serve, broken):
    reply = Reply.stream_error(WORDS, shape="bare", at="after_content", message="Boom.")
    async with serve(reply) as (_, client):
        caught, _, stream = await broken(client)

    assert type(caught) is InternalServerError
    assert "Boom." in str(caught)
    assert stream.partial_response.text == "one two three"


# -- streams that break off ------------------------------------------------------------------------

CALL = ToolCall(id="call_1", name="rm", arguments=['{"path": "/tm', 'p/x"}'])
CUTS = {
    "ends at once": (Reply(sse=[]), ""),
    "comments only": (Reply(sse=[": nothing\n\n"]), ""),
    "ends before output": (Reply(WORDS, end_at="content"), ""),
    "ends in the answer": (Reply(WORDS, end_at="after_content"), "one two three"),
    "dropped before output": (Reply(WORDS, drop_at="content"), ""),
    "dropped in the answer": (Reply(WORDS, drop_at="after_content"), "one two three"),
    "reset in the answer": (Reply(WORDS, drop_at="after_content", drop="reset"), None),
    "malformed before output": (Reply(WORDS, insert={"content": MALFORMED_EVENT}), ""),
    "malformed after output": (
        Reply(WORDS, insert={"after_content": MALFORMED_EVENT}),
        "one two three",
    ),
    "not UTF-8": (Reply(WORDS, insert={"content": b"event: message\ndata: \xff\n\n"}), ""),
}


@pytest.mark.parametrize(("reply", "said"), CUTS.values(), ids=CUTS)
async def test_a_stream_without_proof_of_its_end_is_interrupted(
    anyio_backend, api, serve, decode, broken, reply, said
):
    """[BR-01] [BR-10] Clean ends, cuts and malformed events alike; nothing is invented."""
    async with serve(seen(reply, api, decode), decode=decode) as (_, client):
        caught, updates, stream = await broken(client)
        with pytest.raises(StreamInterruptedError):
            await anext(stream)
        assert (await answer(client)).text, "the connection is free again"

    assert type(caught) is StreamInterruptedError
    assert caught.kind is FailureKind.CONNECTION
    assert caught.request_id == "req_1"
    text = "".join(update.text for update in updates)
    assert "one two three".startswith(text)
    assert said is None or text == said
    assert stream.partial_response.text == text
    assert stream.partial_response.finish_reason is None
    if api.name != "anthropic":  # it tells of usage at the beginning
        assert stream.partial_response.usage is None


def seen(reply, api, decode):
    """Give inserted events a name, without which the Anthropic SDK leaves them out."""
    if (api.name, decode) != ("anthropic", "sdk"):
        return reply
    name = "event: content_block_delta\n"
    inserted = {
        at: event if isinstance(event, bytes) else name + event
        for at, event in reply.insert.items()
    }
    return replace(reply, insert=inserted)


async def test_a_stall_longer_than_the_read_timeout_is_a_timeout_of_the_stream(
    anyio_backend, serve, decode, broken
):
    async with serve(waits(), decode=decode, http={"read": 0.05}) as (_, client):
        caught, _, stream = await broken(client)
        assert (await answer(client)).text

    assert type(caught) is StreamInterruptedError
    assert caught.kind is FailureKind.TIMEOUT
    assert stream.partial_response.text == "one two three"


async def test_a_cut_tool_call_is_never_executable(anyio_backend, api, serve, decode, broken):
    """[BR-12] Half of the arguments, then the end: text, and no arguments."""
    # Behind the events that begin the answer and the call, and the first fragment.
    at = {"chat": 3, "responses": 4, "anthropic": 3}[api.name]
    async with serve(Reply(tool_calls=[CALL], drop_at=at), decode=decode) as (_, client):
        *_, stream = await broken(client)

    (message,) = stream.partial_response.messages
    assert message.contents == (ToolCallContent("call_1", "rm", {}, '{"path": "/tm'),)


async def test_commit_waits_for_output(anyio_backend, api, serve, broken):
    """[BR-05] Start, a tool's name, an empty fragment, then overload: no update has output."""
    call = replace(CALL, arguments=["", "{}"])
    at = {"chat": 2, "responses": 4, "anthropic": 3}[api.name]
    async with serve(replace(Reply.stream_error(at=at), tool_calls=[call])) as (_, client):
        caught, updates, _ = await broken(client)

    assert type(caught) is OverloadedError
    assert any(update.contents for update in updates)
    assert not any(update.has_output for update in updates)


FAILOVERS = {
    "nothing": (Reply(sse=[]), "connection", "b"),
    "closed after the headers": (Reply(drop_at=0), "connection", "b"),
    "closed before output": (Reply(end_at="content"), "connection", "b"),
    "malformed before output": (Reply(insert={"content": MALFORMED_EVENT}), "connection", "b"),
    "overloaded before output": (Reply.stream_error(), "overloaded", "b"),
    "overloaded": (Reply.error(529), "overloaded", "b"),
    "honestly empty": (Reply(""), None, ""),
    "closed after output": (Reply(WORDS, drop_at="after_content"), "connection", None),
}


@pytest.mark.parametrize(("reply", "kind", "text"), FAILOVERS.values(), ids=FAILOVERS)
async def test_another_client_answers_while_nothing_was_said(
    anyio_backend, serve, reply, kind, text
):
    """[BR-01] [BR-02] [BR-08] Before output the next is asked, after it the error comes."""
    async with serve(reply) as (a, at_a), serve(Reply("b")) as (b, at_b):
        router = OrderedFailoverChatClient({"a": at_a, "b": at_b}, leave_open=True)
        stream = router.get_streaming_response("hi")
        if text is None:
            with pytest.raises(StreamInterruptedError):
                await stream.get_final_response()
            assert stream.partial_response.text == "one two three"
        else:
            response = await stream.get_final_response()
            assert (response.text, response.finish_reason) == (text, FinishReason.STOP)

        assert [len(a.requests), len(b.requests)] == [1, int(text == "b")]
        assert (await answer(at_a)).text, "its connection is free"
    failure = stream.attempts[0].failure
    assert (failure and failure.kind) == kind


# -- streams that end well all the same ------------------------------------------------------------

ENDED = {
    "dropped after the end": Reply("Hi", drop_at="end"),
    "kept open after the end": Reply("Hi", keep_open=True),
    "more after the end": Reply("Hi", insert={"end": "data: {}\n\n"}),
    "junk after the end": Reply("Hi", insert={"end": MALFORMED_EVENT}),
}


@pytest.mark.parametrize("reply", ENDED.values(), ids=ENDED)
async def test_a_finished_answer_is_complete_whatever_follows(anyio_backend, serve, decode, reply):
    """Reading stops at the terminal event; SDKs alone wait for the read timeout, and raise."""
    async with serve(reply, decode=decode) as (server, client):
        with anyio.fail_after(3):
            response = await answer(client)
            assert (await answer(client)).text
        if reply.keep_open:
            await server.requests[0].hung_up.wait()

    assert (response.text, response.finish_reason) == ("Hi", FinishReason.STOP)


# -- closing, with one connection ------------------------------------------------------------------


async def test_read_to_the_end_the_connection_is_used_again(anyio_backend, serve, decode):
    async with serve(decode=decode) as (server, client):
        for _ in range(2):
            assert (await answer(client)).text
            assert (await client.get_response("hi")).text

        assert server.connection_count == 1


@pytest.mark.parametrize("how", ["close", "context", "break", "error"])
async def test_a_stream_that_is_left_gives_its_connection_back(anyio_backend, serve, decode, how):
    """[BR-68] Closed, left by its context, broken off, left by an error."""
    async with serve(waits(), decode=decode) as (server, client):
        await _leave(client.get_streaming_response("hi"), how)

        with anyio.fail_after(3):
            await server.requests[0].hung_up.wait()
            assert (await client.get_response("hi")).text
            assert (await answer(client)).text


async def _leave(stream, how):
    if how == "close":
        await anext(stream)
        await stream.aclose()
        await stream.aclose()
    elif how == "context":
        async with stream:
            await anext(stream)
    elif how == "break":
        async for update in stream:
            if update.text:
                break
        await stream.aclose()
    else:
        with pytest.raises(KeyError):
            async with stream:
                await anext(stream)
                raise KeyError


async def test_a_cancelled_stream_gives_its_connection_back(
    anyio_backend, serve, decode, cancel_at
):
    """[BR-68] Cancelled while it is read."""
    gate = Gate()
    async with serve(waits(gate), decode=decode) as (server, client):
        await cancel_at(gate, answer, client)

        with anyio.fail_after(3):
            await server.requests[0].hung_up.wait()
            assert (await client.get_response("hi")).text
            assert (await answer(client)).text


@pytest.mark.parametrize("at", ["headers", "content"])
async def test_a_cancelled_call_gives_its_connection_back(anyio_backend, serve, ask, cancel_at, at):
    """Whole and streamed, before the headers and amid the answer."""
    gate = Gate()
    async with serve(Reply(gates={at: gate})) as (server, client):
        await cancel_at(gate, ask, client)

        with anyio.fail_after(3):
            await server.requests[0].hung_up.wait()
            assert (await ask(client)).text


# -- what errors tell ------------------------------------------------------------------------------

FAULTS = {
    "refused": Reply.error(401),
    "limited": Reply.error(429),
    "bad gateway": Reply(status=502, body="<html>"),
    "redirect to nowhere": Reply(status=302, headers={"location": "/nowhere"}),
    "html": Reply(body="<html>"),
    "error object": Reply(body={"error": {"code": 429}}),
    "dropped": Reply(drop_at="headers"),
    "cut": Reply(WORDS, drop_at="content"),
    "silent": Reply(gates={"headers": Gate()}),
    "stalled": Reply(gates={"content": Gate()}),
}


@pytest.mark.parametrize("reply", FAULTS.values(), ids=FAULTS)
async def test_an_error_holds_neither_prompt_nor_key(
    anyio_backend, api, serve, modes, reachable, reply
):
    """Nor does anything that hangs on it, the SDK's own exceptions included; it pickles."""
    async with serve(default=reply, http={"read": 0.05}) as (_, client):
        sdk = client.get_service(api.sdk_class)
        for ask in modes:
            with pytest.raises(ChatClientError) as caught:
                await ask(client)

            _check_silence(reachable(caught.value), api, sdk)
            copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own
            assert (type(copy), vars(copy)) == (type(caught.value), vars(caught.value))


BROKEN = {
    "unterminated": Reply(WORDS, end_at="after_content"),
    "cut": Reply(WORDS, drop_at="after_content"),
    "malformed": Reply(WORDS, insert={"after_content": MALFORMED_EVENT}),
    "error event": Reply.stream_error(WORDS, at="after_content"),
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
async def test_an_error_of_a_broken_stream_holds_neither_prompt_nor_key(
    anyio_backend, api, serve, decode, broken, reachable, reply
):
    async with serve(seen(reply, api, decode), decode=decode) as (_, client):
        sdk = client.get_service(api.sdk_class)
        caught, *_ = await broken(client)

    _check_silence(reachable(caught), api, sdk)
    pickle.dumps(caught)


def _check_silence(told, api, sdk):
    assert api.model in told, "what hangs on an error is looked at"
    assert sdk.api_key not in told
    assert "a very secret prompt" not in told


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (partial(Reply.error, 401), "sk-proj-another-very-secret-key"),
        (partial(Reply.error, 401), "0123456789abcdef"),
        # An event inside a stream has no request to know the key by: its form has to tell.
        (Reply.stream_error, "sk-proj-another-very-secret-key"),
    ],
    ids=["status", "status, a key of any form", "stream"],
)
async def test_a_key_that_a_provider_quotes_is_masked(
    anyio_backend, api, serve, broken, reachable, make, key
):
    """In the message, and in all that the SDK's exception holds."""
    async with serve(make(message=f"Incorrect API key provided: {key}.")) as (_, client):
        client.get_service(api.sdk_class).api_key = key
        caught, *_ = await broken(client)

    assert "Incorrect API key provided: [key]" in str(caught)
    assert key not in reachable(caught)


async def test_the_cause_still_says_where_it_came_from(anyio_backend, serve, ask):
    async with serve(Reply.error(400)) as (server, client):
        with pytest.raises(BadRequestError) as caught:
            await ask(client)

        cause = caught.value.__cause__
        assert str(cause.request.url).startswith(server.url)
        assert cause.request.method == "POST"
        assert not cause.request.headers
        assert cause.response.status_code == 400
