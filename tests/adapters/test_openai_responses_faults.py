"""What providers do wrong, as the Responses adapter reports it; and that no connection leaks.

The HTTP client has one connection: whoever keeps it makes the next call time out.
"""

import gc
import inspect
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import anyio
import httpx2
import openai
import pytest

from chatrouting.adapters.openai_responses import OpenAIResponsesChatClient
from chatrouting.contents import ReasoningContent, TextContent, ToolCallContent
from chatrouting.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    ChatClientError,
    ConflictError,
    ContentFilteredError,
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
    UnsupportedOptionError,
)
from chatrouting.failure import FailureKind
from chatrouting.messages import ChatMessage
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

MODEL = "gpt-x"
KEY = "sk-proj-a-very-secret-key"
PROMPT = "a very secret prompt"


def plain(server, http):
    return openai.AsyncOpenAI(base_url=server.openai_base_url, api_key=KEY, http_client=http)


def azure(server, http):
    return openai.AsyncAzureOpenAI(
        azure_endpoint=server.url, api_key=KEY, api_version="2025-04-01-preview", http_client=http
    )


@asynccontextmanager
async def serving(*replies, sdk=plain, decode="own", read_timeout=5.0, pool_timeout=5.0):
    timeout = httpx2.Timeout(5.0, read=read_timeout, pool=pool_timeout)
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    http = httpx2.AsyncClient(verify=False, limits=limits, timeout=timeout)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProviderServer(*replies))
        client = await stack.enter_async_context(sdk(server, http))
        yield server, OpenAIResponsesChatClient(client, MODEL, decode=decode)


async def whole(client):
    return await client.get_response(PROMPT)


async def streamed(client):
    return await client.get_streaming_response(PROMPT).get_final_response()


@pytest.fixture(params=[whole, streamed], ids=["whole", "streaming"])
def ask(request):
    return request.param


@pytest.fixture(params=["own", "sdk"])
def decode(request):
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
            Reply.error(400, code="context_length_exceeded"),
            ContextLengthExceededError,
            "context_length_exceeded",
        ),
        (Reply.error(400, code="unsupported_parameter"), UnsupportedOptionError, "unsupported"),
        (Reply.error(400, code="invalid_prompt"), ContentFilteredError, "content_filtered"),
        (Reply.azure_content_filter(), ContentFilteredError, "content_filtered"),
        (Reply.error(400, code="previous_response_not_found"), BadRequestError, "state_lost"),
        (Reply.error(401), AuthenticationError, "authentication"),
        (Reply.error(403), PermissionDeniedError, "permission"),
        (Reply.error(404), NotFoundError, "not_found"),
        (Reply.error(408), APIStatusError, "timeout"),
        (Reply.error(409), ConflictError, "conflict"),
        (Reply.error(413), RequestTooLargeError, "payload_too_large"),
        (Reply.error(429), RateLimitError, "rate_limited"),
        (
            Reply.error(429, type="insufficient_quota", code="insufficient_quota"),
            InsufficientQuotaError,
            "quota_exhausted",
        ),
        (Reply.error(500), InternalServerError, "server_error"),
        (Reply(status=502, body="<html>Bad gateway</html>"), InternalServerError, "server_error"),
        (Reply.error(503), OverloadedError, "overloaded"),
        (Reply.error(504), InternalServerError, "timeout"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_status_becomes_an_error_of_ours(anyio_backend, ask, reply, error, kind):
    """The same in both modes, once, with everything that a router decides by."""
    async with serving(reply) as (server, client):
        with pytest.raises(error) as caught:
            await ask(client)

        assert caught.value.kind == kind
        assert classify(caught.value).kind == kind
        assert caught.value.status_code == reply.status
        assert caught.value.provider == "openai"
        assert caught.value.model == MODEL
        assert caught.value.request_id
        assert isinstance(caught.value.__cause__, openai.APIStatusError)
        assert len(server.requests) == 1
        assert (await ask(client)).text, "the connection is free again"


@pytest.mark.parametrize("status", [401, 429])
async def test_azure_is_understood_alike(anyio_backend, ask, status):
    """Its gateway writes errors in a form of its own."""
    headers = {"retry-after-ms": "1500"}
    async with serving(Reply.error(status, headers=headers), sdk=azure) as (_, client):
        with pytest.raises(APIStatusError) as caught:
            await ask(client)

        assert caught.value.status_code == status
        assert caught.value.provider == "azure"
        assert caught.value.retry_after == 1.5
        assert caught.value.request_id


async def test_hints_of_a_refusal_are_kept(anyio_backend, ask):
    """[BR-28] Also one that is too long for the SDK."""
    headers = {
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
        "x-other": "no",
    }
    async with serving(Reply.error(429, retry_after=200, headers=headers)) as (server, client):
        with pytest.raises(RateLimitError) as caught:
            await ask(client)

        assert caught.value.retry_after == 200.0
        assert caught.value.rate_limit_headers == {
            "retry-after": "200",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-tokens": "6m0s",
        }
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 408, 409, 429, 500])
async def test_the_sdk_does_not_retry_beneath_us(anyio_backend, ask, status):
    """[BR-30] One attempt is one request; the caller's client keeps its own setting."""
    reply = Reply.error(status, headers={"x-should-retry": "true"})
    async with serving(reply) as (server, client):
        with pytest.raises(ChatClientError):
            await ask(client)

        assert len(server.requests) == 1
        assert client.get_service(openai.AsyncOpenAI).max_retries == 2


async def test_reasoning_that_is_not_accepted_says_so(anyio_backend, ask):
    """A seal that this endpoint did not make, under its name."""
    async with serving() as (server, client):
        forged = ReasoningContent("", "forged", f"openai {server.openai_base_url} {MODEL}")
        messages = ["hi", ChatMessage("assistant", [forged, TextContent("Hello.")]), "and?"]
        with pytest.raises(BadRequestError) as caught:
            await client.get_response(messages)

        assert caught.value.kind is FailureKind.REASONING_INVALID


# -- a 200 that proves nothing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "content_type", "error"),
    [
        ("<html>Sign in</html>", "text/html", ResponseValidationError),
        ("", "application/json", ResponseValidationError),
        ("[]", "application/json", ResponseValidationError),
        ("null", "application/json", ResponseValidationError),
        ("{}", "application/json", ResponseValidationError),
        ('{"choices": []}', "application/json", ResponseValidationError),
        ('{"status": "queued", "output": []}', "application/json", ResponseValidationError),
        (
            '{"error": {"code": "server_overloaded", "message": "Busy"}}',
            "application/json",
            OverloadedError,
        ),
        ('{"error": "model is loading"}', "application/json", ChatClientError),
    ],
    ids=["html", "empty", "list", "null", "object", "chat", "unfinished", "error", "text error"],
)
async def test_success_without_an_answer_is_an_error(anyio_backend, body, content_type, error):
    """[BR-14] An error object is classified, anything else cannot be read."""
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


async def test_a_whole_response_that_failed_is_an_error(anyio_backend):
    """The SDK hands it out as a response like any other."""
    failed = {
        "id": "resp_1",
        "status": "failed",
        "output": [],
        "error": {"code": "rate_limit_exceeded", "message": "Slow down."},
    }
    async with serving(Reply(body=failed)) as (_, client):
        with pytest.raises(RateLimitError, match=r"Slow down\."):
            await whole(client)


# -- errors inside a stream ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["flat", "failed", "event", "data"])
@pytest.mark.parametrize("at", ["content", "after_content"])
async def test_an_error_in_the_stream_is_an_error(anyio_backend, decode, shape, at):
    """[BR-01] [BR-02] In every shape, by either decoder; the SDK alone hands out the first two."""
    reply = Reply.stream_error(["Hel", "lo"], at=at, shape=shape, code="server_overloaded")
    async with serving(reply, decode=decode) as (server, client):
        caught, updates, stream = await broken(client)

        assert type(caught) is OverloadedError
        assert caught.status_code == 200
        assert caught.code == "server_overloaded"
        assert caught.request_id == "req_1"
        said = "Hello" if at == "after_content" else ""
        assert stream.partial_response.text == said
        assert stream.partial_response.finish_reason is None
        assert any(update.has_output for update in updates) is bool(said)
        assert (await streamed(client)).text, "the connection is free again"
        # What the SDK itself takes for an error costs the connection.
        assert server.connection_count == 1 or decode == "sdk"


@pytest.mark.parametrize(
    ("code", "error", "kind"),
    [
        ("server_error", InternalServerError, "server_error"),
        ("rate_limit_exceeded", RateLimitError, "rate_limited"),
        ("insufficient_quota", InsufficientQuotaError, "quota_exhausted"),
        ("context_length_exceeded", ContextLengthExceededError, "context_length_exceeded"),
        ("invalid_prompt", ContentFilteredError, "content_filtered"),
        ("bio_policy", ContentFilteredError, "content_filtered"),
        ("image_file_too_large", RequestTooLargeError, "payload_too_large"),
        ("something_new", InternalServerError, "server_error"),
    ],
)
@pytest.mark.parametrize("shape", ["flat", "failed"])
async def test_an_error_is_classified_by_its_code(anyio_backend, shape, code, error, kind):
    """[BR-13] The status says 200; the code in the body says what happened."""
    async with serving(Reply.stream_error(shape=shape, code=code)) as (_, client):
        caught, *_ = await broken(client)

        assert type(caught) is error
        assert caught.kind == classify(caught).kind == kind
        assert caught.status_code == 200
        assert caught.retry_after is None


async def test_an_error_event_without_an_error_object_is_an_error(anyio_backend):
    async with serving(Reply.stream_error(shape="bare", message="Boom.")) as (_, client):
        caught, *_ = await broken(client)

        assert type(caught) is InternalServerError
        assert "Boom." in str(caught)


async def test_an_error_beside_headers_keeps_them(anyio_backend):
    """The SDK's own error of a stream has none."""
    reply = replace(
        Reply.stream_error(code="rate_limit_exceeded"),
        headers={"x-ratelimit-remaining-tokens": "0"},
    )
    async with serving(reply) as (_, client):
        caught, *_ = await broken(client)

        assert caught.rate_limit_headers == {"x-ratelimit-remaining-tokens": "0"}


# -- streams that break off ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply("a b c", end_at="content"), ""),
        (Reply("a b c", end_at="after_content"), "a b c"),
        (Reply("a b c", end_at="terminal"), "a b c"),
        (Reply("a b c", omit=["terminal"]), "a b c"),
        (Reply("a b c", omit=["terminal"], insert={"end": "data: [DONE]\n\n"}), "a b c"),
        (Reply("a b c", drop_at="content"), ""),
        (Reply("a b c", drop_at="after_content"), "a b c"),
        (Reply("a b c", drop_at="after_content", drop="reset"), None),
        (Reply("a b c", insert={"content": MALFORMED_EVENT}), ""),
        (Reply("a b c", insert={"after_content": MALFORMED_EVENT}), "a b c"),
        (Reply("a b c", insert={"content": b"data: \xff\n\n"}), ""),
        (Reply(sse=[]), ""),
        (Reply(sse=['data: {"type": "response.completed", "response": {}}\n']), ""),
        (Reply(body="{", content_type="application/json"), ""),
    ],
    ids=[
        "ends before output",
        "ends in the answer",
        "ends before its last event",
        "last event missing",
        "done is no proof",
        "dropped before output",
        "dropped in the answer",
        "reset in the answer",
        "malformed before output",
        "malformed after output",
        "not UTF-8",
        "empty",
        "last event cut",
        "no event stream",
    ],
)
async def test_a_stream_without_proof_of_its_end_is_interrupted(anyio_backend, decode, reply, said):
    """[BR-01] [BR-10] Clean ends, cuts and malformed events alike; no finish reason is invented."""
    async with serving(reply, decode=decode) as (_, client):
        caught, _, stream = await broken(client)

        assert type(caught) is StreamInterruptedError
        assert caught.kind is FailureKind.CONNECTION
        assert said is None or stream.partial_response.text == said
        assert stream.partial_response.finish_reason is None
        assert stream.partial_response.usage is None
        assert (await streamed(client)).text, "the connection is free again"


async def test_a_cut_tool_call_is_never_executable(anyio_backend, decode):
    """[BR-12] Half of the arguments, then the end."""
    call = ToolCall(id="call_1", name="rm", arguments=['{"path": "/tm', 'p/x"}'])
    async with serving(Reply(tool_calls=[call], drop_at=4), decode=decode) as (_, client):
        *_, stream = await broken(client)

        (message,) = stream.partial_response.messages
        assert message.contents == (ToolCallContent("call_1", "rm", {}, '{"path": "/tm'),)


async def test_commit_waits_for_output(anyio_backend):
    """[BR-05] Start, a tool's name, an empty fragment, then overload: no update has output."""
    call = ToolCall(id="call_1", name="rm", arguments=["", "{}"])
    reply = replace(Reply.stream_error(at=4, code="server_overloaded"), tool_calls=[call])
    async with serving(reply) as (_, client):
        caught, updates, _ = await broken(client)

        assert type(caught) is OverloadedError
        assert any(update.contents for update in updates)
        assert not any(update.has_output for update in updates)


@pytest.mark.parametrize(
    ("reply", "kind", "asked", "text"),
    [
        (Reply(sse=[]), "connection", 1, "b"),
        (Reply("a a", end_at="content"), "connection", 1, "b"),
        (Reply("a a a", end_at="after_content"), "connection", 0, None),
        (Reply("a", insert={"content": MALFORMED_EVENT}), "connection", 1, "b"),
        (Reply.stream_error(code="server_overloaded"), "overloaded", 1, "b"),
        (Reply.stream_error(shape="failed", code="server_error"), "server_error", 1, "b"),
        (Reply(""), None, 0, ""),
    ],
    ids=["headers", "preamble", "output", "malformed", "overloaded", "failed", "honestly empty"],
)
async def test_another_client_answers_while_nothing_was_said(
    anyio_backend, reply, kind, asked, text
):
    """[BR-01] [BR-02] [BR-08] Before output the next is asked, after it the error comes."""
    async with serving(reply) as (_, at_a), serving(Reply("b")) as (b, at_b):
        router = OrderedFailoverChatClient({"a": at_a, "b": at_b}, leave_open=True)
        stream = router.get_streaming_response(PROMPT)
        if text is None:
            with pytest.raises(StreamInterruptedError):
                await stream.get_final_response()
            assert stream.partial_response.text == "a a a"
        else:
            response = await stream.get_final_response()
            assert response.text == text
            assert response.finish_reason is FinishReason.STOP

        assert len(b.requests) == asked
        failure = stream.attempts[0].failure
        assert (failure and failure.kind) == kind


# -- time ------------------------------------------------------------------------------------------


async def test_a_stall_beyond_the_read_timeout_is_a_timeout_of_the_stream(anyio_backend, decode):
    reply = Reply("a b c", gates={"after_content": Gate()})
    async with serving(reply, read_timeout=0.1, decode=decode) as (_, client):
        caught, _, stream = await broken(client)

        assert type(caught) is StreamInterruptedError
        assert caught.kind is FailureKind.TIMEOUT
        assert stream.partial_response.text == "a b c"
        assert (await streamed(client)).text


async def test_silence_before_the_headers_is_a_timeout(anyio_backend, ask):
    async with serving(Reply(gates={"headers": Gate()}), read_timeout=0.1) as (_, client):
        with pytest.raises(APITimeoutError) as caught:
            await ask(client)

        assert caught.value.kind is FailureKind.TIMEOUT


async def test_a_full_pool_is_not_the_providers_fault(anyio_backend, ask):
    """PoolTimeout is local saturation."""
    reply = Reply("a b c", gates={"after_content": Gate()})
    async with serving(reply, pool_timeout=0.1) as (_, client):
        async with client.get_streaming_response(PROMPT) as held:
            await anext(held)
            with pytest.raises(LocalSaturationError) as caught:
                await ask(client)

        assert classify(caught.value).kind is FailureKind.LOCAL_SATURATION


async def test_an_unreachable_server_is_a_connection_error(anyio_backend, ask):
    async with serving() as (server, _):
        gone = server.openai_base_url
    http = httpx2.AsyncClient(verify=False)
    async with openai.AsyncOpenAI(base_url=gone, api_key=KEY, http_client=http) as sdk:
        with pytest.raises(APIConnectionError) as caught:
            await ask(OpenAIResponsesChatClient(sdk, MODEL))

    assert caught.value.status_code is None


@pytest.mark.parametrize("drop", ["close", "reset"])
async def test_a_connection_dropped_before_the_headers(anyio_backend, ask, drop):
    async with serving(Reply(drop_at="headers", drop=drop)) as (_, client):
        with pytest.raises(APIConnectionError) as caught:
            await ask(client)

        assert caught.value.kind is FailureKind.CONNECTION


async def test_the_body_of_a_whole_answer_that_breaks_off(anyio_backend):
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
        {"insert": {"content": "event: response.something_new\ndata: {}\n\n"}},
        {"insert": {"content": 'data: {"type": "response.something_new"}\n\n'}},
        {"insert": {"end": "data: [DONE]\n\n"}},
    ],
    ids=str,
)
async def test_a_stream_is_read_in_every_shape(anyio_backend, shape):
    """Also cut inside a UTF-8 character, and followed by a word of other APIs."""
    async with serving(Reply("Grüße, 世界 🙂", **shape)) as (_, client):
        response = await streamed(client)

        assert response.text == "Grüße, 世界 🙂"
        assert response.finish_reason is FinishReason.STOP


async def test_updates_that_are_ready_need_no_wait(anyio_backend):
    """One read of the socket can hold many events."""
    async with serving(Reply(["a"] * 50)) as (server, client):
        stream = client.get_streaming_response(PROMPT)
        await anext(stream)
        await server.requests[0].done.wait()

        assert (await stream.get_final_response()).text == "a" * 50


# -- closing ---------------------------------------------------------------------------------------


async def test_the_connection_is_used_again_after_a_clean_end(anyio_backend):
    async with serving() as (server, client):
        for _ in range(3):
            await streamed(client)
            await whole(client)

        assert server.connection_count == 1


async def test_a_body_that_is_kept_open_does_not_hold_up_the_end(anyio_backend, decode):
    """Reading stops at the terminal event; the SDK alone waits for the read timeout and raises."""
    async with serving(Reply("done", keep_open=True), decode=decode) as (server, client):
        started = time.perf_counter()
        response = await streamed(client)

        assert response.text == "done"
        assert time.perf_counter() - started < 2
        await server.requests[0].hung_up.wait()
        assert (await streamed(client)).text


@pytest.mark.parametrize("how", ["close", "context", "cancel", "error"])
async def test_a_stream_that_is_left_gives_its_connection_back(anyio_backend, decode, how):
    """Closed, left by its context, cancelled while reading, left by an exception."""
    reply = Reply("a b c", gates={"after_content": Gate()})
    async with serving(reply, decode=decode) as (server, client):
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


async def test_cancelled_before_the_headers_the_connection_is_given_back(anyio_backend, ask):
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
async def test_an_error_holds_neither_prompt_nor_key(anyio_backend, ask, reply):
    """Nor does anything that can be reached from it, the SDK's own exceptions included."""
    async with serving(reply, read_timeout=0.1) as (_, client):
        with pytest.raises(ChatClientError) as caught:
            await ask(client)

        found = reachable(caught.value)
        assert MODEL in found
        assert KEY not in found
        assert PROMPT not in found


@pytest.mark.parametrize("make", [Reply.error, Reply.stream_error], ids=["status", "stream"])
async def test_a_key_that_a_provider_quotes_is_masked(anyio_backend, make):
    message = f"Incorrect API key provided: {KEY}"
    reply = make(401, message=message) if make == Reply.error else make(message=message)
    async with serving(reply) as (_, client):
        caught, *_ = await broken(client)

        assert "Incorrect API key" in str(caught)
        assert KEY not in str(caught)


def reachable(error):
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
        elif isinstance(value, dict | list | tuple | set) or (
            type(value).__module__.partition(".")[0] in ("openai", "httpx2", "httpcore2")
        ):
            left += gc.get_referents(value)
    return "\n".join(written)
