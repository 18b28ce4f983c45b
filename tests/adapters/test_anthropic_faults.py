"""What providers do wrong, as the Anthropic adapter reports it; and that no connection leaks.

The HTTP client has one connection: whoever keeps it makes the next call time out.
"""

import gc
import inspect
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import anthropic
import anyio
import httpx2
import pytest

from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.contents import TextContent, ToolCallContent
from chatrouting.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    ChatClientError,
    ContextLengthExceededError,
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
from chatrouting.testing.provider_server import (
    MALFORMED_EVENT,
    Gate,
    ProviderServer,
    Reply,
    ToolCall,
)
from chatrouting.usage import Usage

MODEL = "claude-haiku-4-5"
KEY = "sk-ant-api03-a-very-secret-key"
PROMPT = "a very secret prompt"


@asynccontextmanager
async def serving(*replies, read_timeout=5.0, pool_timeout=5.0):
    timeout = httpx2.Timeout(5.0, read=read_timeout, pool=pool_timeout)
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    http = httpx2.AsyncClient(verify=False, limits=limits, timeout=timeout)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProviderServer(*replies))
        sdk = anthropic.AsyncAnthropic(
            base_url=server.anthropic_base_url, api_key=KEY, http_client=http
        )
        await stack.enter_async_context(sdk)
        yield server, AnthropicChatClient(sdk, MODEL)


async def whole(client):
    return await client.get_response(PROMPT)


async def streamed(client):
    return await client.get_streaming_response(PROMPT).get_final_response()


@pytest.fixture(params=[whole, streamed], ids=["whole", "streaming"])
def ask(request):
    return request.param


async def broken(client):
    """Read a stream that breaks; give the error, what was handed out before, and the stream."""
    updates = []
    stream = client.get_streaming_response(PROMPT)
    with pytest.raises(ChatClientError) as caught:
        async for update in stream:
            updates.append(update)
    return caught.value, updates, stream


# -- statuses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "error", "kind"),
    [
        (Reply.error(400), BadRequestError, "invalid_request"),
        (
            Reply.error(400, message="prompt is too long: 300000 tokens > 200000 maximum"),
            ContextLengthExceededError,
            "context_length_exceeded",
        ),
        (
            Reply.error(400, message="Your credit balance is too low"),
            InsufficientQuotaError,
            "quota_exhausted",
        ),
        (
            Reply.error(400, message="messages.1: Invalid signature in thinking block"),
            BadRequestError,
            "reasoning_invalid",
        ),
        (Reply.error(401), AuthenticationError, "authentication"),
        (Reply.error(402, type="billing_error"), InsufficientQuotaError, "quota_exhausted"),
        (Reply.error(403), PermissionDeniedError, "permission"),
        (Reply.error(404), NotFoundError, "not_found"),
        (Reply.error(408), APIStatusError, "timeout"),
        (Reply.error(409), APIStatusError, "conflict"),
        (Reply.error(413), RequestTooLargeError, "payload_too_large"),
        (Reply.error(429), RateLimitError, "rate_limited"),
        (
            Reply.error(429, code="enforced_spend_limit_reached"),
            InsufficientQuotaError,
            "quota_exhausted",
        ),
        (Reply.error(500), InternalServerError, "server_error"),
        (Reply.error(503), OverloadedError, "overloaded"),
        (Reply.error(504), InternalServerError, "timeout"),
        (Reply.error(529), OverloadedError, "overloaded"),
        (Reply(status=502, body="<html>Bad gateway</html>"), InternalServerError, "server_error"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_status_becomes_an_error_of_ours(anyio_backend, ask, reply, error, kind):
    """The same in both modes, once, with everything that a router decides by."""
    async with serving(reply) as (server, client):
        with pytest.raises(error) as caught:
            await ask(client)

        assert caught.value.kind == kind
        assert classify(caught.value).kind == kind
        assert caught.value.status_code == reply.status
        assert caught.value.provider == "anthropic"
        assert caught.value.model == MODEL
        assert caught.value.request_id
        assert len(server.requests) == 1
        assert (await ask(client)).text, "the connection is free again"


async def test_hints_of_a_refusal_are_kept(anyio_backend, ask):
    """[BR-28] Also one that the SDK would have slept for."""
    headers = {
        "anthropic-ratelimit-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-reset": "2001-01-01T00:00:00Z",
        "x-other": "no",
    }
    async with serving(Reply.error(429, retry_after=200, headers=headers)) as (server, client):
        with pytest.raises(RateLimitError) as caught:
            await ask(client)

        assert caught.value.retry_after == 200.0
        assert caught.value.rate_limit_headers == {
            "retry-after": "200",
            "anthropic-ratelimit-tokens-remaining": "0",
            "anthropic-ratelimit-tokens-reset": "2001-01-01T00:00:00Z",
        }
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 529])
async def test_sdk_does_not_retry_beneath_us(anyio_backend, ask, status):
    """[BR-30] One attempt is one request, also where the server says to try again."""
    reply = Reply.error(status, headers={"x-should-retry": "true"})
    async with serving(reply) as (server, client):
        with pytest.raises(ChatClientError):
            await ask(client)

        assert len(server.requests) == 1


# -- a 200 that proves nothing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "content_type", "error"),
    [
        ("<html>Sign in</html>", "text/html", ResponseValidationError),
        ("", "application/json", ResponseValidationError),
        ("[]", "application/json", ResponseValidationError),
        ("null", "application/json", ResponseValidationError),
        ("{}", "application/json", ResponseValidationError),
        ('{"content": "text"}', "application/json", ResponseValidationError),
        (
            '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}',
            "application/json",
            OverloadedError,
        ),
        ('{"error": "model is loading"}', "application/json", ChatClientError),
    ],
    ids=["html", "empty", "list", "null", "object", "text", "error", "ollama's error"],
)
async def test_success_without_an_answer_is_an_error(anyio_backend, body, content_type, error):
    """An error object is classified, anything else cannot be read."""
    reply = Reply(body=body.encode(), content_type=content_type)
    async with serving(reply, reply) as (_, client):
        with pytest.raises(error) as caught:
            await whole(client)
        in_stream, *_ = await broken(client)

        assert caught.value.status_code == in_stream.status_code == 200
        if error is ResponseValidationError:
            assert type(in_stream) is StreamInterruptedError
        else:
            assert type(in_stream) is type(caught.value)
        assert (await streamed(client)).text


# -- errors inside a stream ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "error", "kind"),
    [
        ("overloaded_error", OverloadedError, "overloaded"),
        ("rate_limit_error", RateLimitError, "rate_limited"),
        ("api_error", InternalServerError, "server_error"),
        ("timeout_error", APIStatusError, "timeout"),
        ("invalid_request_error", BadRequestError, "invalid_request"),
        ("authentication_error", AuthenticationError, "authentication"),
        ("permission_error", PermissionDeniedError, "permission"),
        ("not_found_error", NotFoundError, "not_found"),
        ("request_too_large", RequestTooLargeError, "payload_too_large"),
        ("billing_error", InsufficientQuotaError, "quota_exhausted"),
        ("ThrottlingException", OverloadedError, "overloaded"),
    ],
)
async def test_error_event_is_classified_by_its_type(anyio_backend, type_, error, kind):
    """[BR-13] The status says 200; the type in the body says what happened."""
    async with serving(Reply.stream_error(type=type_)) as (server, client):
        caught, updates, _ = await broken(client)

        assert type(caught) is error
        assert caught.kind == classify(caught).kind == kind
        assert caught.status_code == 200
        assert caught.code == type_
        assert caught.request_id
        assert not any(update.has_output for update in updates)
        assert (await streamed(client)).text
        assert server.connection_count == 1


@pytest.mark.parametrize(
    "event",
    [
        'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n',
        'event: error\ndata: {"error": {"type": "overloaded_error"}}\n\n',
        'data: {"type": "error", "error": {"type": "overloaded_error"}}\n\n',
        'data: {"error": {"type": "overloaded_error", "message": "busy"}}\n\n',
    ],
    ids=["as documented", "without a type", "without a name", "bare"],
)
async def test_error_event_is_recognised_in_every_shape(anyio_backend, event):
    """[BR-02] The SDK skips those without a name in silence."""
    async with serving(Reply("a b", insert={"content": event})) as (_, client):
        caught, *_ = await broken(client)

        assert type(caught) is OverloadedError


async def test_error_event_without_an_error_object_is_an_error(anyio_backend):
    event = 'event: error\ndata: {"type": "error"}\n\n'
    async with serving(Reply("a b", insert={"content": event})) as (_, client):
        caught, *_ = await broken(client)

        assert caught.status_code == 200
        assert caught.kind is not FailureKind.INVALID_REQUEST


async def test_error_after_output_keeps_what_came(anyio_backend):
    """[BR-01] A typed error, and the partial answer."""
    reply = Reply.stream_error(["Hel", "lo"], at="after_content")
    async with serving(reply) as (_, client):
        caught, _, stream = await broken(client)

        assert type(caught) is OverloadedError
        assert stream.partial_response.text == "Hello"
        assert stream.partial_response.finish_reason is None


# -- streams that break off ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply("a b c", end_at="content"), ""),
        (Reply("a b c", end_at="after_content"), "a b c"),
        (Reply("a b c", end_at="after_content", omit=["finish"]), "a b c"),
        (Reply("a b c", end_at="terminal", omit=["finish"]), "a b c"),
        (Reply("a b c", drop_at="content"), ""),
        (Reply("a b c", drop_at="after_content"), "a b c"),
        (Reply("a b c", drop_at="after_content", drop="reset"), None),
        (Reply("a b c", insert={"content": MALFORMED_EVENT}), ""),
        (Reply("a b c", insert={"after_content": MALFORMED_EVENT}), "a b c"),
        (Reply("a b c", insert={"content": b"data: \xff\n\n"}), ""),
        (Reply(sse=[]), ""),
        (Reply(body="{", content_type="application/json"), ""),
    ],
    ids=[
        "ends before output",
        "ends in the answer",
        "ends without finish",
        "ends without finish and terminal",
        "dropped before output",
        "dropped in the answer",
        "reset in the answer",
        "malformed before output",
        "malformed after output",
        "not UTF-8",
        "empty",
        "no event stream",
    ],
)
async def test_stream_without_proof_of_its_end_is_interrupted(anyio_backend, reply, said):
    """[BR-01] [BR-10] Clean ends, cuts and malformed events alike; no finish reason is invented."""
    async with serving(reply) as (_, client):
        caught, _, stream = await broken(client)

        assert type(caught) is StreamInterruptedError
        assert caught.kind is FailureKind.CONNECTION
        assert said is None or stream.partial_response.text == said
        assert stream.partial_response.finish_reason is None
        assert (await streamed(client)).text, "the connection is free again"


async def test_finish_and_a_clean_end_prove_the_end(anyio_backend):
    """`message_stop` may be missing where the reason of the end was given."""
    async with serving(Reply("done", omit=["terminal"])) as (_, client):
        response = await streamed(client)

        assert response.text == "done"
        assert response.finish_reason is FinishReason.STOP


async def test_usage_of_a_broken_stream_is_kept(anyio_backend):
    """[BR-17] What was read is in the updates, also if the rest never came."""
    usage = Usage(input_tokens=30, output_tokens=9, cache_read_input_tokens=20)
    async with serving(Reply("a b c", usage=usage, drop_at="after_content")) as (_, client):
        *_, stream = await broken(client)

        assert stream.usage == Usage(input_tokens=30, output_tokens=1, cache_read_input_tokens=20)
        assert stream.partial_response.usage == stream.usage


async def test_cut_tool_call_is_never_executable(anyio_backend):
    """[BR-12] Half of the arguments, then the end."""
    call = ToolCall(id="toolu_1", name="rm", arguments=['{"path": "/tm', 'p/x"}'])
    async with serving(Reply(tool_calls=[call], drop_at=3)) as (_, client):
        *_, stream = await broken(client)

        (message,) = stream.partial_response.messages
        assert message.contents == (ToolCallContent("toolu_1", "rm", {}, '{"path": "/tm'),)


async def test_commit_waits_for_output(anyio_backend):
    """[BR-05] Start, tool use, an empty fragment, then overload: no update has output."""
    call = ToolCall(id="toolu_1", name="rm", arguments=["", "{}"])
    reply = replace(Reply.stream_error(at=3), tool_calls=[call])
    async with serving(reply) as (_, client):
        caught, updates, _ = await broken(client)

        assert type(caught) is OverloadedError
        assert len(updates) == 2
        assert not any(update.has_output for update in updates)


# -- time ------------------------------------------------------------------------------------------


async def test_stall_beyond_the_read_timeout_is_a_timeout_of_the_stream(anyio_backend):
    reply = Reply("a b c", gates={"after_content": Gate()})
    async with serving(reply, read_timeout=0.05) as (_, client):
        caught, _, stream = await broken(client)

        assert type(caught) is StreamInterruptedError
        assert caught.kind is FailureKind.TIMEOUT
        assert stream.partial_response.text == "a b c"
        assert (await streamed(client)).text


async def test_silence_before_the_headers_is_a_timeout(anyio_backend, ask):
    async with serving(Reply(gates={"headers": Gate()}), read_timeout=0.05) as (_, client):
        with pytest.raises(APITimeoutError) as caught:
            await ask(client)

        assert caught.value.kind is FailureKind.TIMEOUT


async def test_full_pool_is_not_the_providers_fault(anyio_backend, ask):
    """PoolTimeout is local saturation."""
    gate = Gate()
    reply = Reply("a b c", gates={"after_content": gate})
    async with serving(reply, pool_timeout=0.05) as (_, client):
        async with client.get_streaming_response(PROMPT) as held:
            await anext(held)
            with pytest.raises(LocalSaturationError) as caught:
                await ask(client)

        assert classify(caught.value).kind is FailureKind.LOCAL_SATURATION


async def test_unreachable_server_is_a_connection_error(anyio_backend, ask):
    async with ProviderServer() as server:
        gone = server.anthropic_base_url
    http = httpx2.AsyncClient(verify=False)
    async with anthropic.AsyncAnthropic(base_url=gone, api_key=KEY, http_client=http) as sdk:
        with pytest.raises(APIConnectionError) as caught:
            await ask(AnthropicChatClient(sdk, MODEL))

    assert caught.value.status_code is None


@pytest.mark.parametrize("drop", ["close", "reset"])
async def test_connection_dropped_before_the_headers(anyio_backend, ask, drop):
    async with serving(Reply(drop_at="headers", drop=drop)) as (_, client):
        with pytest.raises(APIConnectionError) as caught:
            await ask(client)

        assert caught.value.kind is FailureKind.CONNECTION


async def test_body_of_a_whole_answer_that_breaks_off(anyio_backend):
    async with serving(Reply("a b c", drop_at="content")) as (_, client):
        with pytest.raises(APIConnectionError):
            await whole(client)

        assert (await whole(client)).text


# -- shapes of a stream ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        {"pings": True},
        {"line_end": "\r\n"},
        {"line_end": "\r"},
        {"write_size": 1},
        {"write_size": 7, "line_end": "\r\n", "pings": True},
        {"event_names": False},
        {"insert": {0: ": comment\n\n", "content": "event: something_new\ndata: {}\n\n"}},
        {"insert": {"content": 'data: {"type": "something_new", "index": 0}\n\n'}},
        {"insert": {"content": "data: [DONE]\n\n", "end": "data: [DONE]\n\n"}},
        {"insert": {"content": "data: []\n\n"}},
        {"content_type": "text/event-stream; charset=utf-8"},
    ],
    ids=str,
)
async def test_stream_is_read_in_every_shape(anyio_backend, shape):
    """Also cut inside a UTF-8 character, and without the event names that the SDK insists on."""
    async with serving(Reply("Grüße, 世界 🙂", **shape)) as (_, client):
        response = await streamed(client)

        assert response.messages[0].contents == (TextContent("Grüße, 世界 🙂"),)
        assert response.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("reply", [Reply("a b c", write_size=10**6)], ids=["one read"])
async def test_updates_that_are_ready_need_no_wait(anyio_backend, reply):
    async with serving(reply) as (server, client):
        stream = client.get_streaming_response(PROMPT)
        await anext(stream)
        await server.requests[0].done.wait()
        with anyio.fail_after(1):
            rest = [update.text async for update in stream]

        assert "".join(rest) == "a b c"


# -- closing ---------------------------------------------------------------------------------------


async def test_connection_is_used_again_after_a_clean_end(anyio_backend):
    async with serving() as (server, client):
        for _ in range(3):
            await streamed(client)
            await whole(client)

        assert server.connection_count == 1


async def test_body_that_is_kept_open_does_not_hold_up_the_end(anyio_backend):
    """Reading stops at the terminal event; the SDK alone waits for the read timeout and raises."""
    async with serving(Reply("done", keep_open=True)) as (server, client):
        started = time.perf_counter()
        response = await streamed(client)

        assert response.text == "done"
        assert time.perf_counter() - started < 1
        await server.requests[0].hung_up.wait()
        assert (await streamed(client)).text


@pytest.mark.parametrize("how", ["close", "context", "cancel", "error"])
async def test_stream_that_is_left_gives_its_connection_back(anyio_backend, how):
    """[BR-68] Closed, left by its context, cancelled while reading, left by an exception."""
    reply = Reply("a b c", gates={"after_content": Gate()})
    async with serving(reply) as (server, client):
        await _leave(client.get_streaming_response(PROMPT), how)

        await server.requests[0].hung_up.wait()
        assert (await whole(client)).text


async def _leave(stream, how):
    if how == "close":
        await anext(stream)
        await stream.aclose()
        await stream.aclose()
    elif how == "context":
        async with stream:
            await anext(stream)
    elif how == "cancel":
        with anyio.move_on_after(0.1):
            await stream.get_final_response()
    else:
        with pytest.raises(KeyError):
            async with stream:
                await anext(stream)
                raise KeyError


async def test_cancelled_before_the_headers_gives_the_connection_back(anyio_backend, ask):
    async with serving(Reply(gates={"headers": Gate()})) as (server, client):
        with anyio.move_on_after(0.1) as scope:
            await ask(client)

        assert scope.cancelled_caught
        await server.requests[0].hung_up.wait()
        assert (await ask(client)).text


# -- what errors tell ------------------------------------------------------------------------------

FAULTS = {
    "refused": Reply.error(401),
    "limited": Reply.error(429),
    "html": Reply(body="<html>", content_type="text/html"),
    "dropped": Reply(drop_at="headers"),
    "cut": Reply("a b c", drop_at="content"),
    "silent": Reply("a", gates={"headers": Gate()}),
    "stalled": Reply("a", gates={"content": Gate()}),
}


@pytest.mark.parametrize("reply", FAULTS.values(), ids=FAULTS)
async def test_error_holds_neither_prompt_nor_key(anyio_backend, ask, reply):
    """Nor does anything that can be reached from it, the SDK's own exceptions included."""
    async with serving(reply, read_timeout=0.1) as (_, client):
        with pytest.raises(ChatClientError) as caught:
            await ask(client)

        found = _reachable(caught.value)
        # What an exception of the SDK tells of the request is its method and its URL.
        assert ("127.0.0.1" in found) is (caught.value.__cause__ is not None)
        assert KEY not in found
        assert PROMPT not in found


@pytest.mark.parametrize("make", [Reply.error, Reply.stream_error])
async def test_key_that_a_provider_quotes_is_masked(anyio_backend, make):
    message = f"Incorrect API key provided: {KEY}"
    reply = make(401, message=message) if make == Reply.error else make(message=message)
    async with serving(reply) as (_, client):
        caught, *_ = await broken(client)

        assert "Incorrect API key" in str(caught)
        assert KEY not in str(caught)


def _reachable(error) -> str:
    """Write out an exception and all that hangs on it and its causes, without frames."""
    written = []
    seen = set()
    left = [error]
    while left:
        value = left.pop()
        if id(value) in seen or inspect.isroutine(value) or inspect.isclass(value):
            continue
        seen.add(id(value))
        if isinstance(value, str | bytes):
            written.append(str(value))
        elif isinstance(value, BaseException):
            left += [str(value), value.__cause__, value.__context__, value.args, vars(value)]
        elif isinstance(value, dict | list | tuple | set | httpx2.Headers | httpx2.URL) or (
            type(value).__module__.partition(".")[0] in ("anthropic", "httpx2", "httpcore2")
        ):
            left += gc.get_referents(value)
    return "\n".join(written)
