"""What only Chat Completions has, over the real SDK and a strict provider server."""

import json
from copy import deepcopy
from dataclasses import replace

import anyio
import openai
import pytest

from chatrouting.adapters import dialects
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.client import ClientMetadata
from chatrouting.contents import (
    DataContent,
    ReasoningContent,
    RefusalContent,
    ToolCallContent,
    ToolResultContent,
)
from chatrouting.errors import (
    AuthenticationError,
    BadRequestError,
    ContentFilteredError,
    ContextLengthExceededError,
    InsufficientQuotaError,
    InternalServerError,
    NotFoundError,
    OverloadedError,
    RateLimitError,
    StreamInterruptedError,
    UnsupportedOptionError,
)
from chatrouting.failure import FailureKind
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, JsonSchemaFormat, Principal, RoutingHints, Tool
from chatrouting.policies.classify import classify
from chatrouting.responses import FinishReason
from chatrouting.testing.provider_server import (
    MALFORMED_EVENT,
    ProviderServer,
    Reply,
    ToolCall,
)
from chatrouting.usage import Usage

WEATHER = ToolCall(id="call_7", name="weather", arguments=['{"city"', ': "Oslo"}'])
COUNTS = Usage(input_tokens=100, output_tokens=20, cache_read_input_tokens=60)


@pytest.fixture
def api(apis):
    return apis["chat"]


async def answer(client):
    return await client.get_streaming_response("hi").get_final_response()


# -- answers ---------------------------------------------------------------------------------------


async def test_the_dialect_is_provider_and_origin(anyio_backend, serve, make_sdk):
    """Azure's for a client for Azure, OpenAI's for others; or the given one."""
    provider = "openai" if make_sdk is None else "azure"
    async with serve(Reply("a", reasoning="Hm."), make_sdk=make_sdk) as (_, client):
        response = await client.get_response("hi")
        sdk = client.get_service(openai.AsyncOpenAI)

    assert response.messages[0].contents[0] == ReasoningContent("Hm.", origin=provider)
    assert client.get_service(ClientMetadata) == ClientMetadata(provider, "gpt-x")
    other = OpenAIChatClient(sdk, dialect=dialects.VLLM)
    assert other.get_service(ClientMetadata) == ClientMetadata("vllm", None)


async def test_refusals_are_refusals(anyio_backend, serve, ask):
    async with serve(Reply(refusal="I will not.")) as (_, client):
        response = await ask(client)

    assert response.messages[0].contents == (RefusalContent("I will not."),)


@pytest.mark.parametrize("style", ["end", "null", "every_chunk"])
async def test_usage_in_every_style(anyio_backend, serve, style, decode):
    async with serve(Reply(usage=COUNTS, usage_style=style), decode=decode) as (_, client):
        response = await answer(client)

    assert response.usage == (None if style == "null" else COUNTS)


async def test_the_first_chunk_of_azure_is_no_output(anyio_backend, serve, decode, make_azure):
    """[BR-21] Without choices, id and model."""
    reply = Reply("Hi", prompt_filter=True)
    async with serve(reply, make_sdk=make_azure, decode=decode) as (_, client):
        updates = [update async for update in client.get_streaming_response("hi")]

    assert [update.has_output for update in updates[:2]] == [False, False]
    assert "prompt_filter_results" in updates[0].additional_properties
    assert "".join(update.text for update in updates) == "Hi"


@pytest.mark.parametrize("index", ["each", "zero", "missing"])
@pytest.mark.parametrize("pieces", ["fragments", "whole", "together"])
async def test_calls_are_told_apart_however_they_come(anyio_backend, serve, index, pieces, decode):
    """[BR-23] [BR-24]"""
    calls = [WEATHER, replace(WEATHER, id="call_8", name="time", arguments=["{", '"a": 1}'])]
    reply = Reply(tool_calls=calls, tool_index=index, tool_chunks=pieces)
    async with serve(reply, decode=decode) as (_, client):
        response = await answer(client)

    assert [
        (call.call_id, call.name, call.arguments) for call in response.messages[0].contents
    ] == [
        ("call_7", "weather", {"city": "Oslo"}),
        ("call_8", "time", {"a": 1}),
    ]


# -- requests --------------------------------------------------------------------------------------

CONVERSATION = (
    ChatMessage("system", "Be brief."),
    ChatMessage("user", ["Look", DataContent(b"abc", "image/png")], author_name="ann"),
    ChatMessage("assistant", ["Calling.", ToolCallContent("call_1", "f", {"x": 1})]),
    ChatMessage("tool", ToolResultContent("call_1", "42")),
    ChatMessage("user", "And?"),
)
OPTIONS = ChatOptions(
    temperature=0.3,
    max_output_tokens=50,
    stop_sequences=("END",),
    seed=3,
    response_format=JsonSchemaFormat("answer", {"type": "object"}, strict=True),
    tools=(Tool("f", "does f", {"type": "object", "properties": {"x": {"type": "integer"}}}),),
    tool_choice="f",
    allow_multiple_tool_calls=False,
    reasoning_effort="low",
    metadata={"a": "b"},
    additional_properties={"verbosity": "low"},
    routing=RoutingHints(session_id="secret-session", principal=Principal(tenant="acme")),
)
#: The same request in the words of the SDK.
ARGUMENTS = {
    "model": "gpt-x",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "name": "ann",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}},
            ],
        },
        {
            "role": "assistant",
            "content": "Calling.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"x": 1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
        {"role": "user", "content": "And?"},
    ],
    "temperature": 0.3,
    "max_completion_tokens": 50,
    "stop": ["END"],
    "seed": 3,
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "answer",
            "schema": {"type": "object", "additionalProperties": False, "required": []},
            "strict": True,
        },
    },
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "does f",
                "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}},
            },
        }
    ],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "parallel_tool_calls": False,
    "reasoning_effort": "low",
    "metadata": {"a": "b"},
    "verbosity": "low",
}


async def test_what_is_sent_is_what_the_sdk_would_send(
    anyio_backend, api, make_sdk, make_http_client
):
    """The same path, query and body as named arguments give, for OpenAI and for Azure."""
    async with (
        ProviderServer() as server,
        (make_sdk or api.sdk)(server, make_http_client()) as by_hand,
    ):
        client = OpenAIChatClient(by_hand, "gpt-x")
        await by_hand.chat.completions.create(**ARGUMENTS)
        await client.get_response(CONVERSATION, OPTIONS)
        streams = {"stream": True, "stream_options": {"include_usage": True}}
        async with await by_hand.chat.completions.create(**ARGUMENTS, **streams) as theirs:
            async for _ in theirs:
                continue
        await client.get_streaming_response(CONVERSATION, OPTIONS).get_final_response()

    first, second, third, fourth = server.requests
    for theirs, ours in ((first, second), (third, fourth)):
        assert ours.body == theirs.body
        assert (ours.path, ours.query) == (theirs.path, theirs.query)
        for name in ("authorization", "api-key", "content-type", "accept"):
            assert ours.headers.get(name) == theirs.headers.get(name)
    assert all(request.refused is None for request in server.requests)
    if make_sdk is not None:
        assert first.path == "/openai/deployments/gpt-x/chat/completions"


async def test_results_stand_behind_their_calls(anyio_backend, serve, ask):
    """[BR-84] [BR-86] Foreign ids, blanks, unanswered calls, results that nobody asked for."""
    long_ids = [f"toolu_{'x' * 60}_{number}" for number in (1, 2)]
    messages = [
        ChatMessage("tool", ToolResultContent("lost", "x")),
        ChatMessage("user", ["  ", "Go"]),
        ChatMessage("assistant", ["", *(ToolCallContent(one, "f", {}) for one in long_ids)]),
        ChatMessage("user", [ToolResultContent(long_ids[1], "two"), "and"]),
        ChatMessage("assistant", "  "),
        ChatMessage("assistant", ToolCallContent("", "g", {}, "not json")),
    ]
    async with serve() as (server, client):
        await ask(client, messages)

    assert server.requests[0].refused is None
    sent = server.requests[0].body["messages"]
    assert [item["role"] for item in sent] == [
        *("user", "user", "assistant", "tool", "tool", "user", "assistant", "tool"),
    ]


OTHER_WORD = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


@pytest.mark.parametrize("wanted", ["max_tokens", "max_completion_tokens"])
async def test_one_option_two_words(anyio_backend, serve, ask, wanted):
    """[BR-79] Two servers with opposite demands get each its own word for the same option."""

    def strict(request):
        unknown = OTHER_WORD[wanted]
        if unknown in request.body:
            return Reply.error(400, code="unsupported_parameter", message=f"Use {wanted!r}.")
        return Reply(str(request.body[wanted]))

    right = dialects.OPENAI if wanted == "max_completion_tokens" else dialects.VLLM
    wrong = dialects.VLLM if wanted == "max_completion_tokens" else dialects.OPENAI
    options = ChatOptions(max_output_tokens=7)
    async with serve(strict, client={"dialect": right}) as (_, client):
        assert (await ask(client, "hi", options)).text == "7"
        other = OpenAIChatClient(client.get_service(openai.AsyncOpenAI), "gpt-x", dialect=wrong)
        with pytest.raises(UnsupportedOptionError, match="unsupported_parameter"):
            await ask(other, "hi", options)


async def test_reasoning_goes_home_and_nowhere_else(anyio_backend, serve, ask):
    """[BR-81] A conversation from one server to another and back; the caller's own stays whole."""
    details = [{"type": "reasoning.encrypted", "data": "xyz", "index": 0}]
    message = {"role": "assistant", "content": "a", "reasoning_details": details}
    body = {"id": "1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    at_home = {"dialect": dialects.OPENROUTER}
    async with (
        serve(Reply(body=body), Reply(), client=at_home) as (home, first),
        serve() as (away, second),
    ):
        history = [ChatMessage("user", "hi"), *(await first.get_response("hi")).messages]
        before = deepcopy(history)
        await ask(second, [*history, ChatMessage("user", "more")])
        await ask(first, [*history, ChatMessage("user", "more")])

    assert history == before
    assert "reasoning" not in json.dumps(away.requests[0].body)
    assert home.requests[1].body["messages"][1]["reasoning_details"] == details


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "error", "kind"),
    [
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
        (Reply.error(404, code="DeploymentNotFound"), NotFoundError, "not_found"),
        (Reply(status=400, body=[{"error": {"code": 400}}]), BadRequestError, "invalid_request"),
        (Reply(status=404, body={"error": "model not found"}), NotFoundError, "not_found"),
        (Reply(status=401, body={"statusCode": 401}), AuthenticationError, "authentication"),
        (Reply(status=500, body=""), InternalServerError, "server_error"),
    ],
)
async def test_bodies_of_every_server_are_understood(
    anyio_backend, serve, modes, reply, error, kind
):
    """[BR-13] By code, type, status and words."""
    async with serve(default=reply) as (_, client):
        for ask in modes:
            with pytest.raises(error) as caught:
                await ask(client)

            assert type(caught.value) is error
            assert caught.value.kind == classify(caught.value).kind == kind
            assert caught.value.status_code == reply.status


@pytest.mark.parametrize(
    ("body", "error", "kind"),
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
    anyio_backend, serve, decode, broken, body, error, kind
):
    """[BR-13] One variant for each type; the status says 200 for all of them."""
    event = Reply(sse=[f"data: {json.dumps({'error': body})}\n\n", "data: [DONE]\n\n"])
    async with serve(event, decode=decode) as (_, client):
        found, *_ = await broken(client)

    assert type(found) is error
    assert found.kind == kind


async def test_a_dialect_names_itself_in_errors(anyio_backend, serve, ask):
    async with serve(Reply.error(500), client={"dialect": dialects.VLLM}) as (_, client):
        with pytest.raises(InternalServerError, match=r"^vllm model 'gpt-x' answered 500"):
            await ask(client)


# -- where a stream ends ---------------------------------------------------------------------------

WORDS = ["one ", "two ", "three"]
HALF = 'data: {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}'
CUTS = {
    "after the role": Reply(WORDS, end_at=1),
    "without finish and marker": Reply(WORDS, omit=["finish", "usage", "terminal"]),
    "a chunk that is no object": Reply(WORDS, insert={3: "data: 7\n\n"}),
    "the marker alone": Reply(sse=["data: [DONE]\n\n"]),
    "an event without its blank line": Reply(sse=[HALF]),
}


@pytest.mark.parametrize("reply", CUTS.values(), ids=CUTS)
async def test_a_stream_without_its_end_is_interrupted(anyio_backend, serve, decode, broken, reply):
    """[BR-10] Neither a finish reason nor the marker behind an answer."""
    async with serve(reply, decode=decode) as (_, client):
        caught, _, stream = await broken(client)

    assert type(caught) is StreamInterruptedError
    assert caught.kind is FailureKind.CONNECTION
    assert stream.partial_response.finish_reason is None


FINISHED = {
    "no marker": Reply("Hi", omit=["terminal"]),
    "no usage and marker": Reply("Hi", omit=["usage", "terminal"]),
    "malformed event after the finish": Reply("Hi", insert={"terminal": MALFORMED_EVENT}),
    "dropped after the finish": Reply("Hi", drop_at="terminal"),
}


@pytest.mark.parametrize("reply", FINISHED.values(), ids=FINISHED)
async def test_a_finish_reason_proves_the_end(anyio_backend, serve, decode, reply):
    """A missing marker is accepted, whatever follows."""
    async with serve(reply, decode=decode) as (_, client):
        with anyio.fail_after(3):
            response = await answer(client)
        assert (await answer(client)).text

    assert (response.text, response.finish_reason) == ("Hi", FinishReason.STOP)


@pytest.mark.virtual_time(autojump_threshold=0.1)
async def test_a_finish_that_is_kept_open_without_its_marker_ends_soon(anyio_backend, serve):
    """Usage and the marker may follow the finish, but nobody waits for ever."""
    async with serve(Reply("Hi", omit=["usage", "terminal"], keep_open=True)) as (_, client):
        with anyio.fail_after(3):
            response = await answer(client)
        assert (await answer(client)).text

    assert response.finish_reason is FinishReason.STOP


async def test_a_null_finish_reason_with_the_marker_is_an_end(anyio_backend, serve):
    """[BR-11] Some servers never send a reason; with the marker that is no cut. None is made up."""
    async with serve(Reply("Hi", omit=["finish"])) as (_, client):
        response = await answer(client)

    assert (response.text, response.finish_reason) == ("Hi", None)
    assert response.usage is not None
