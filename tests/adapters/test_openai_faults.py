"""What servers do wrong, as the Chat Completions adapter reports it; and that no connection leaks.

The HTTP client has one connection: whoever keeps it makes the next call wait for ever.
"""

import inspect
import pickle
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import anyio
import httpx2
import openai
import pytest

from chatrouting.adapters import dialects
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.contents import TextContent, ToolCallContent
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
from chatrouting.policies.classify import classify
from chatrouting.responses import FinishReason
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


def http_client(**timeouts):
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    timeout = httpx2.Timeout(5.0, **timeouts)
    return httpx2.AsyncClient(verify=False, limits=limits, timeout=timeout)


@asynccontextmanager
async def serving(*replies, decode="own", dialect=None, timeouts=None, **settings):
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProviderServer(*replies, **settings))
        sdk = openai.AsyncOpenAI(
            base_url=server.openai_base_url,
            api_key=KEY,
            http_client=http_client(**(timeouts or {})),
        )
        await stack.enter_async_context(sdk)
        yield server, OpenAIChatClient(sdk, MODEL, dialect=dialect, decode=decode)


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
    """Read a stream that breaks; give the error, the text before it, and the stream."""
    stream = client.get_streaming_response(PROMPT)
    text = ""
    with pytest.raises(ChatClientError) as caught:
        async for update in stream:
            text += update.text
    return caught.value, text, stream


# -- statuses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "error_class", "kind"),
    [
        (Reply.error(400), BadRequestError, "invalid_request"),
        (Reply.error(422), BadRequestError, "invalid_request"),
        (
            Reply.error(400, code="context_length_exceeded"),
            ContextLengthExceededError,
            "context_length_exceeded",
        ),
        (
            Reply.error(400, message="This model's maximum context length is 8192 tokens."),
            ContextLengthExceededError,
            "context_length_exceeded",
        ),
        (Reply.error(400, code="unsupported_parameter"), UnsupportedOptionError, "unsupported"),
        (
            Reply.error(400, code="content_policy_violation"),
            ContentFilteredError,
            "content_filtered",
        ),
        (Reply.azure_content_filter(), ContentFilteredError, "content_filtered"),
        (Reply.error(401), AuthenticationError, "authentication"),
        (Reply.error(402), InsufficientQuotaError, "quota_exhausted"),
        (Reply.error(403), PermissionDeniedError, "permission"),
        (Reply.error(404), NotFoundError, "not_found"),
        (Reply.error(404, code="DeploymentNotFound"), NotFoundError, "not_found"),
        (Reply.error(408), APIStatusError, "timeout"),
        (Reply.error(409), ConflictError, "conflict"),
        (Reply.error(413), RequestTooLargeError, "payload_too_large"),
        (Reply.error(418), APIStatusError, "invalid_request"),
        (Reply.error(429), RateLimitError, "rate_limited"),
        (Reply.error(429, code="insufficient_quota"), InsufficientQuotaError, "quota_exhausted"),
        (Reply.error(500), InternalServerError, "server_error"),
        (Reply.error(502), InternalServerError, "server_error"),
        (Reply.error(503), OverloadedError, "overloaded"),
        (Reply.error(504), InternalServerError, "timeout"),
        (Reply.error(529), OverloadedError, "overloaded"),
        (Reply(status=502, body="<html>Bad gateway"), InternalServerError, "server_error"),
        (Reply(status=429, body="<html>Slow down"), RateLimitError, "rate_limited"),
        (Reply(status=400, body=[{"error": {"code": 400}}]), BadRequestError, "invalid_request"),
        (Reply(status=404, body={"error": "model not found"}), NotFoundError, "not_found"),
        (Reply(status=422, body={"detail": [{"msg": "m"}]}), BadRequestError, "invalid_request"),
        (Reply(status=401, body={"statusCode": 401}), AuthenticationError, "authentication"),
        (Reply(status=500, body=""), InternalServerError, "server_error"),
        (Reply(status=503, body='"words"'), OverloadedError, "overloaded"),
    ],
)
async def test_an_error_status_is_the_error_of_its_kind(
    anyio_backend, ask, reply, error_class, kind
):
    """[BR-13] By code, type, status and words, in the bodies of every server; asked once."""
    async with serving(reply) as (server, client):
        with pytest.raises(error_class) as caught:
            await ask(client)
        assert (await ask(client)).text

    error = caught.value
    assert type(error) is error_class
    assert error.kind == classify(error).kind == kind
    assert (error.provider, error.model) == ("openai", MODEL)
    assert error.status_code == reply.status
    assert error.request_id == "req_1"
    assert isinstance(error.__cause__, openai.APIStatusError)
    assert len(server.requests) == 2


def date_in(seconds):
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry-after": "2"}, 2, 2),
        ({"retry-after": "1.5"}, 1.5, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25, 0.25),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360, 360),
        ([("retry-after", "3"), ("retry-after", "9")], 3, 3),
        ({"retry-after": date_in(3600)}, 3400, 3600),
        ({"retry-after": date_in(-3600)}, 0, 0),
    ],
)
async def test_a_hint_comes_along(anyio_backend, ask, headers, least, most):
    """[BR-26] Seconds, milliseconds, dates, resets of what is used up, two lines."""
    async with serving(replace(Reply.error(429), headers=headers)) as (_, client):
        with pytest.raises(RateLimitError) as caught:
            await ask(client)

    assert least <= caught.value.retry_after <= most
    assert caught.value.rate_limit_headers


@pytest.mark.parametrize("value", ["-5", "nan", "soon", ""])
async def test_a_hint_that_cannot_be_read_is_none(anyio_backend, ask, value):
    """[BR-26]"""
    async with serving(Reply.error(429, retry_after=value)) as (_, client):
        with pytest.raises(RateLimitError) as caught:
            await ask(client)

    assert caught.value.retry_after is None


async def test_the_sdks_retries_are_off_here_and_as_they_were_for_the_caller(anyio_backend, ask):
    """[BR-30] One request for one call, also where the answer asks for a retry."""
    refusal = Reply.error(429, retry_after=200, headers={"x-should-retry": "true"})
    async with serving(default=refusal) as (server, client):
        sdk = client.get_service(openai.AsyncOpenAI)
        with anyio.fail_after(5), pytest.raises(RateLimitError) as caught:
            await ask(client)
        assert sdk.max_retries == openai.DEFAULT_MAX_RETRIES

    assert len(server.requests) == 1
    assert caught.value.retry_after == 200


# -- no answer -------------------------------------------------------------------------------------


async def test_a_closed_port_is_a_connection_error(anyio_backend, ask):
    """[BR-40] By type, not by text."""
    async with ProviderServer() as server:
        url = server.openai_base_url
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, http_client=http_client()) as sdk:
        with pytest.raises(APIConnectionError) as caught:
            await ask(OpenAIChatClient(sdk, MODEL))

    assert caught.value.kind is FailureKind.CONNECTION


@pytest.mark.parametrize("drop", ["close", "reset"])
async def test_a_connection_dropped_before_the_answer_is_a_connection_error(
    anyio_backend, ask, drop
):
    """[BR-01] Headers never came: nothing says that a stream had begun."""
    async with serving(Reply(drop_at="headers", drop=drop)) as (_, client):
        with pytest.raises(APIConnectionError) as caught:
            await ask(client)
        assert (await ask(client)).text

    assert caught.value.kind is FailureKind.CONNECTION


async def test_an_answer_cut_amid_its_body_is_a_connection_error(anyio_backend):
    async with serving(Reply(drop_at="content")) as (_, client):
        with pytest.raises(APIConnectionError):
            await whole(client)
        assert (await whole(client)).text


async def test_the_http_clients_own_timeout_is_a_timeout(anyio_backend, ask):
    reply = Reply(gates={"headers": Gate()})
    async with serving(reply, timeouts={"read": 0.05}) as (_, client):
        with pytest.raises(APITimeoutError) as caught:
            await ask(client)

    assert caught.value.kind is FailureKind.TIMEOUT


async def test_a_full_pool_is_nobodys_fault_but_ours(anyio_backend, ask):
    """PoolTimeout: local saturation, never the provider's failure."""
    reply = Reply(gates={"content": Gate()})
    async with (
        serving(reply, timeouts={"pool": 0.05}) as (_, client),
        client.get_streaming_response(PROMPT) as stream,
    ):
        await anext(stream)
        with pytest.raises(LocalSaturationError, match="more connections"):
            await ask(client)


# -- a success that is none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<html>Welcome", r"no JSON \(text/html\)"),
        ("[]", "no chat completion"),
        ("{}", "no chat completion"),
        ('{"choices": []}', "no chat completion"),
        ("", "0 bytes that are no JSON"),
        ("words", "no JSON"),
    ],
)
async def test_a_whole_answer_that_is_none_is_unreadable(anyio_backend, body, words):
    """A 200 is unproven: HTML, an empty list, an empty body."""
    async with serving(Reply(body=body)) as (_, client):
        with pytest.raises(ResponseValidationError, match=words) as caught:
            await whole(client)
        assert (await whole(client)).text

    assert caught.value.kind is FailureKind.SERVER_ERROR
    assert caught.value.request_id == "req_1"


@pytest.mark.parametrize(
    ("body", "error_class"),
    [
        ({"error": {"message": "m", "code": "rate_limit_exceeded"}}, RateLimitError),
        ({"error": {"message": "m", "code": 502}}, InternalServerError),
        ([{"error": {"code": 429, "message": "m"}}], RateLimitError),
        ({"object": "error", "message": "overloaded", "code": 503}, OverloadedError),
    ],
)
async def test_an_error_dressed_as_success_is_that_error(anyio_backend, ask, body, error_class):
    """[BR-14] Also where a stream was asked for."""
    async with serving(Reply(body=body)) as (_, client):
        with pytest.raises(error_class) as caught:
            await ask(client)

    assert caught.value.status_code == 200
    assert caught.value.request_id == "req_1"


@pytest.mark.parametrize("body", ["<html>Welcome", "[]", "", "words"])
async def test_anything_else_than_a_stream_is_an_interrupted_stream(anyio_backend, body):
    async with serving(Reply(body=body)) as (_, client):
        with pytest.raises(StreamInterruptedError, match="instead of an event stream"):
            await streamed(client)
        assert (await streamed(client)).text


# -- streams that break ----------------------------------------------------------------------------

WORDS = ["one ", "two ", "three"]
CUT = {
    "clean end before any event": Reply(WORDS, end_at=0),
    "clean end after the role": Reply(WORDS, end_at=1),
    "clean end amid the answer": Reply(WORDS, end_at=3),
    "clean end without finish and marker": Reply(WORDS, omit=["finish", "usage", "terminal"]),
    "dropped after the role": Reply(WORDS, drop_at=1),
    "dropped amid the answer": Reply(WORDS, drop_at=3),
    "reset amid the answer": Reply(WORDS, drop_at=3, drop="reset"),
    "malformed event before any text": Reply(WORDS, insert={1: MALFORMED_EVENT}),
    "malformed event amid the answer": Reply(WORDS, insert={3: MALFORMED_EVENT}),
    "a chunk that is no object": Reply(WORDS, insert={3: "data: 7\n\n"}),
    "the marker alone": Reply(sse=["data: [DONE]\n\n"]),
    "an event without its blank line": Reply(
        sse=[
            'data: {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}'
        ]
    ),
    "no event at all": Reply(sse=[": nothing\n\n"]),
    "not UTF-8": Reply(WORDS, insert={2: b"data: \xff\n\n"}),
}


@pytest.mark.parametrize("reply", CUT.values(), ids=CUT)
async def test_a_stream_without_its_end_is_interrupted(anyio_backend, reply, decode):
    """[BR-01] [BR-10] A cut, malformed or unterminated stream; neither SDK reports a clean end."""
    async with serving(reply, decode=decode) as (_, client):
        error, text, stream = await broken(client)
        with pytest.raises(type(error)):
            await anext(stream)
        assert (await streamed(client)).text

    assert isinstance(error, StreamInterruptedError)
    assert error.kind is FailureKind.CONNECTION
    assert error.request_id == "req_1"
    assert "".join(WORDS).startswith(text)
    assert stream.partial_response.text == text
    assert stream.partial_response.finish_reason is None


async def test_what_came_before_the_cut_is_handed_out(anyio_backend, decode):
    """[BR-01] After output the error holds nothing back: the partial response has it."""
    async with serving(Reply(WORDS, drop_at=4), decode=decode) as (_, client):
        _, text, stream = await broken(client)

    assert text == "one two three"[: len(text)]
    assert stream.partial_response.usage is None


async def test_a_stall_longer_than_the_read_timeout_is_an_interrupted_stream(anyio_backend, decode):
    reply = Reply(WORDS, gates={3: Gate()})
    async with serving(reply, decode=decode, timeouts={"read": 0.1}) as (_, client):
        error, text, _ = await broken(client)

    assert isinstance(error, StreamInterruptedError)
    assert error.kind is FailureKind.TIMEOUT
    assert text == "one two "


async def test_half_a_tool_call_is_never_executable(anyio_backend, decode):
    """[BR-12] The partial response keeps the text of the arguments, and no arguments."""
    call = ToolCall(id="call_1", name="f", arguments=['{"city": "Os', 'lo"}'])
    async with serving(Reply(tool_calls=[call], end_at=3), decode=decode) as (_, client):
        error, _, stream = await broken(client)

    assert isinstance(error, StreamInterruptedError)
    (found,) = stream.partial_response.messages[0].contents
    assert found == ToolCallContent("call_1", "f", {}, '{"city": "Os')


@pytest.mark.parametrize("shape", ["event", "data", "chunk", "finish"])
@pytest.mark.parametrize("at", ["content", "after_content"])
async def test_an_error_inside_the_stream_is_that_error(anyio_backend, decode, shape, at):
    """[BR-02] [BR-13] [BR-14] Read from its body although the status is 200."""
    reply = Reply.stream_error(
        "some text", at=at, shape=shape, code="rate_limit_exceeded", message="Slow down"
    )
    async with serving(reply, decode=decode) as (server, client):
        error, text, _ = await broken(client)
        assert (await streamed(client)).text
        # What the SDK itself takes for an error costs the connection.
        assert server.connection_count == 1 or decode == "sdk"

    assert type(error) is RateLimitError
    assert (error.status_code, error.code) == (200, "rate_limit_exceeded")
    assert error.request_id == "req_1"
    assert text == ("" if at == "content" else "some text")


async def test_an_error_event_without_an_error_object_is_an_error(anyio_backend):
    reply = Reply.stream_error("some text", shape="bare", at="after_content")
    async with serving(reply) as (_, client):
        error, text, _ = await broken(client)

    assert isinstance(error, ChatClientError)
    assert text == "some text"


@pytest.mark.parametrize(
    ("error", "error_class", "kind"),
    [
        ({"code": "server_overloaded"}, OverloadedError, "overloaded"),
        ({"type": "overloaded_error"}, OverloadedError, "overloaded"),
        ({"code": 529}, OverloadedError, "overloaded"),
        ({"code": "rate_limit_exceeded"}, RateLimitError, "rate_limited"),
        ({"code": "insufficient_quota"}, InsufficientQuotaError, "quota_exhausted"),
        ({"type": "invalid_request_error"}, BadRequestError, "invalid_request"),
        ({"code": 502}, InternalServerError, "server_error"),
        ({"type": "server_error"}, InternalServerError, "server_error"),
        ({"message": "who knows"}, InternalServerError, "server_error"),
    ],
)
async def test_errors_inside_a_stream_are_classified_by_their_body(
    anyio_backend, decode, error, error_class, kind
):
    """[BR-13] One variant for each type; the status says 200 for all of them."""
    event = Reply(sse=[f"data: {json_of({'error': error})}\n\n", "data: [DONE]\n\n"])
    async with serving(event, decode=decode) as (_, client):
        found, _, _ = await broken(client)

    assert type(found) is error_class
    assert found.kind == kind


def json_of(value):
    return httpx2.Request("POST", "http://x", json=value).content.decode()


# -- streams that end well all the same ------------------------------------------------------------


ENDED = {
    "finish without marker": Reply("Hi", omit=["terminal"]),
    "finish without usage and marker": Reply("Hi", omit=["usage", "terminal"]),
    "malformed event after the finish": Reply("Hi", insert={"terminal": MALFORMED_EVENT}),
    "dropped after the finish": Reply("Hi", drop_at="terminal"),
    "dropped after the marker": Reply("Hi", drop_at="end"),
    "kept open after the marker": Reply("Hi", keep_open=True),
    "more after the marker": Reply("Hi", insert={"end": "data: {}\n\n"}),
}


@pytest.mark.parametrize("reply", ENDED.values(), ids=ENDED)
async def test_a_finished_answer_is_complete_whatever_follows(anyio_backend, reply, decode):
    """Complete is what has its finish reason; reading stops at the terminal marker."""
    async with serving(reply, decode=decode) as (_, client):
        with anyio.fail_after(3):
            response = await streamed(client)
        assert (await streamed(client)).text

    assert (response.text, response.finish_reason) == ("Hi", FinishReason.STOP)


@pytest.mark.virtual_time(autojump_threshold=0.1)
async def test_a_finish_that_is_kept_open_without_its_marker_ends_soon(anyio_backend):
    """Usage and the marker may follow the finish, but nobody waits for ever."""
    reply = Reply("Hi", omit=["usage", "terminal"], keep_open=True)
    async with serving(reply) as (_, client):
        with anyio.fail_after(3):
            response = await streamed(client)
        assert (await streamed(client)).text

    assert response.finish_reason is FinishReason.STOP


async def test_a_null_finish_reason_with_the_marker_is_an_end(anyio_backend):
    """[BR-11] Some servers never send a reason; with the marker that is no cut. None is made up."""
    async with serving(Reply("Hi", omit=["finish"])) as (_, client):
        response = await streamed(client)

    assert (response.text, response.finish_reason) == ("Hi", None)
    assert response.usage is not None


async def test_an_honestly_empty_stream_is_an_answer(anyio_backend, decode):
    """[BR-08] Role, finish, marker."""
    async with serving(Reply(""), decode=decode) as (_, client):
        response = await streamed(client)

    assert (response.text, response.finish_reason) == ("", FinishReason.STOP)


# -- closing, with one connection ------------------------------------------------------------------


async def test_read_to_the_end_the_connection_is_used_again(anyio_backend, ask):
    async with serving() as (server, client):
        for _ in range(3):
            await ask(client)

        assert server.connection_count == 1


async def test_closed_early_the_next_call_goes_through(anyio_backend, decode):
    """[BR-68] Broken off: the connection is given up, and the server sees it."""
    async with serving(Reply(WORDS, gates={3: Gate()}), decode=decode) as (server, client):
        async with client.get_streaming_response(PROMPT) as stream:
            async for update in stream:
                if update.text:
                    break
        with anyio.fail_after(3):
            await server.requests[0].hung_up.wait()
            assert (await streamed(client)).text

        assert server.connection_count == 2


async def test_cancelled_while_reading_the_next_call_goes_through(anyio_backend, decode):
    async with serving(Reply(WORDS, gates={3: Gate()}), decode=decode) as (server, client):
        with anyio.move_on_after(0.1) as scope:
            await streamed(client)
        assert scope.cancelled_caught
        with anyio.fail_after(3):
            await server.requests[0].hung_up.wait()
            assert (await streamed(client)).text


async def test_cancelled_before_the_answer_the_next_call_goes_through(anyio_backend, ask):
    async with serving(Reply(gates={"headers": Gate()})) as (server, client):
        with anyio.move_on_after(0.1) as scope:
            await ask(client)
        assert scope.cancelled_caught
        with anyio.fail_after(3):
            await server.requests[0].hung_up.wait()
            assert (await ask(client)).text


async def test_a_stream_never_read_sends_nothing(anyio_backend):
    async with serving() as (server, client):
        stream = client.get_streaming_response(PROMPT)
        await stream.aclose()
        async with client.get_streaming_response(PROMPT):
            pass

        assert server.requests == []


# -- what errors hold ------------------------------------------------------------------------------


def reachable(error):
    """Everything that an exception and its chain lead to, tracebacks apart, as one text."""
    seen, texts, left = set(), [], [error]
    while left:
        item = left.pop()
        if id(item) in seen or inspect.ismodule(item) or inspect.isclass(item):
            continue
        seen.add(id(item))
        if isinstance(item, str | bytes):
            texts.append(str(item))
        elif isinstance(item, dict):
            left += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            left += item
        elif isinstance(item, BaseException):
            left += [item.__cause__, item.__context__, item.args, vars(item)]
        elif not inspect.isroutine(item):
            left += [
                getattr(item, name)
                for slots in (getattr(each, "__slots__", ()) for each in type(item).__mro__)
                for name in ((slots,) if isinstance(slots, str) else slots)
                if hasattr(item, name) and name != "__weakref__"
            ]
            left.append(getattr(item, "__dict__", None))
    return "\n".join(texts)


FAILURES = {
    "status": (Reply.error(400), {}),
    "status with HTML": (Reply(status=502, body="<html>"), {}),
    "redirect to nowhere": (Reply(status=302, headers={"location": "/v1/chat/completions"}), {}),
    "dropped": (Reply(drop_at="headers"), {}),
    "timeout": (Reply(gates={"headers": Gate()}), {"read": 0.05}),
    "error object": (Reply(body={"error": {"code": 429}}), {}),
    "not JSON": (Reply(body="<html>"), {}),
}
BROKEN_STREAMS = {
    "cut": Reply(WORDS, drop_at=3),
    "unterminated": Reply(WORDS, end_at=3),
    "malformed": Reply(WORDS, insert={3: MALFORMED_EVENT}),
    "error event": Reply.stream_error("x", at="after_content"),
}


@pytest.mark.parametrize(("reply", "timeouts"), FAILURES.values(), ids=FAILURES)
async def test_no_error_holds_prompt_or_key(anyio_backend, ask, reply, timeouts):
    """Nothing that the chain leads to holds them; errors pickle without their cause."""
    async with serving(default=reply, timeouts=timeouts) as (_, client):
        with pytest.raises(ChatClientError) as caught:
            await ask(client)

    told = reachable(caught.value)
    assert PROMPT not in told
    assert KEY not in told
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own
    assert (type(copy), vars(copy)) == (type(caught.value), vars(caught.value))


@pytest.mark.parametrize("reply", BROKEN_STREAMS.values(), ids=BROKEN_STREAMS)
async def test_no_error_of_a_broken_stream_holds_prompt_or_key(anyio_backend, reply, decode):
    async with serving(reply, decode=decode) as (_, client):
        error, _, _ = await broken(client)

    told = reachable(error)
    assert PROMPT not in told
    assert KEY not in told
    pickle.dumps(error)


async def test_a_key_that_the_server_repeats_is_masked(anyio_backend, ask):
    reply = Reply.error(401, message=f"Incorrect API key provided: {KEY}.")
    async with serving(reply) as (_, client):
        with pytest.raises(AuthenticationError) as caught:
            await ask(client)

    assert KEY not in str(caught.value)
    assert "Incorrect API key provided: [key]" in str(caught.value)


async def test_the_errors_cause_still_says_where_it_came_from(anyio_backend, ask):
    async with serving(Reply.error(400)) as (server, client):
        with pytest.raises(BadRequestError) as caught:
            await ask(client)

        cause = caught.value.__cause__
        assert str(cause.request.url) == f"{server.openai_base_url}/chat/completions"
        assert cause.request.method == "POST"
        assert not cause.request.headers
        assert cause.response.status_code == 400


async def test_partial_output_is_kept_apart_from_the_error(anyio_backend):
    async with serving(Reply(WORDS, end_at=3)) as (_, client):
        _, _, stream = await broken(client)

    assert stream.partial_response.messages[0].contents == (TextContent("one two "),)


async def test_a_dialect_names_itself_in_errors(anyio_backend, ask):
    async with serving(Reply.error(500), dialect=dialects.VLLM) as (_, client):
        with pytest.raises(InternalServerError, match=r"^vllm model 'gpt-x' answered 500"):
            await ask(client)
