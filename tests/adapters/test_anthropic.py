"""What only the Messages API has, over the real SDK and a strict provider server."""

import json
import sys
import time
from dataclasses import fields

import anthropic
import httpx2
import pytest

from chatrouting.adapters._json import loads
from chatrouting.adapters._sse import SSEDecoder
from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.contents import DataContent, ToolResultContent
from chatrouting.errors import (
    APIStatusError,
    AuthenticationError,
    BadRequestError,
    ConfigurationError,
    ContextLengthExceededError,
    InsufficientQuotaError,
    InternalServerError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    RateLimitError,
    RequestTooLargeError,
    StreamInterruptedError,
    UnsupportedOptionError,
)
from chatrouting.failure import FailureKind
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, JsonSchemaFormat, RoutingHints, Tool
from chatrouting.policies.classify import classify
from chatrouting.responses import FinishReason
from chatrouting.testing.provider_server import Reply, ToolCall
from chatrouting.usage import Usage


@pytest.fixture
def api(apis):
    return apis["anthropic"]


# -- answers and conversations ---------------------------------------------------------------------


async def test_whole_tool_round_is_accepted_by_a_strict_server(anyio_backend, serve, ask):
    """[BR-81] [BR-85] Signed reasoning goes back, parallel results in one turn."""
    calls = [ToolCall(id="toolu_7"), ToolCall(id="toolu_8")]
    thinks = Reply(None, reasoning="hm", redacted_reasoning="opaque", tool_calls=calls)
    async with serve(thinks, Reply("Cold.")) as (server, client):
        question = ChatMessage("user", ["Oslo?", DataContent(b"png", "image/png")])
        first = await ask(client, [question])
        results = [
            ChatMessage("tool", ToolResultContent("toolu_7", "-3")),
            ChatMessage("tool", ToolResultContent("toolu_8", "no city", is_error=True)),
        ]
        second = await ask(client, [question, *first.messages, *results, "So?"])

    assert second.text == "Cold."
    assert first.messages[0].contents[0].origin == f"anthropic {server.url} claude-haiku-4-5"
    kinds = [
        [block["type"] for block in message["content"]]
        for message in server.requests[1].body["messages"]
    ]
    assert kinds == [
        ["text", "image"],
        ["thinking", "redacted_thinking", "tool_use", "tool_use"],
        ["tool_result", "tool_result", "text"],
    ]


async def test_reasoning_survives_a_visit_to_another_issuer(anyio_backend, serve, ask):
    """[BR-81] A conversation from A to B to A: both accept it, and A gets its own blocks back."""
    thinks = Reply("a", reasoning="hm")
    async with serve(thinks, Reply("c")) as (a, at_a), serve(Reply("b")) as (b, at_b):
        conversation = [ChatMessage("user", "q")]
        for client in (at_a, at_b, at_a):
            response = await ask(client, conversation)
            conversation = [*conversation, *response.messages, ChatMessage("user", "and?")]

    assert conversation[1].contents[0].text == "hm"
    assert "thinking" not in json.dumps(b.requests[0].body)
    assert a.requests[1].body["messages"][1]["content"][0]["type"] == "thinking"


async def test_each_request_is_written_for_its_own_model(anyio_backend, serve):
    """What the client keeps of one request's model says nothing about the next one's."""
    models = ["claude-haiku-4-5", "claude-opus-4-7", "claude-haiku-4-5"]
    async with serve(*map(Reply, "abc")) as (server, client):
        for model in models:
            await client.get_response("hi", ChatOptions(model=model, temperature=0.5))
    assert [request.body["model"] for request in server.requests] == models
    assert ["temperature" in request.body for request in server.requests] == [True, False, True]


async def test_reasoning_belongs_to_the_endpoint_that_the_client_has_now(anyio_backend, serve, api):
    async with serve(Reply("a", reasoning="r"), Reply("b", reasoning="r")) as (server, client):
        origins = []
        for host in ("127.0.0.1", "localhost"):
            base = server.anthropic_base_url.replace("127.0.0.1", host)
            client.get_service(api.sdk_class).base_url = base
            response = await client.get_response("hi")
            origins.append(response.messages[0].contents[0].origin)
    assert origins[0] != origins[1]


async def test_middleware_of_the_sdk_is_told_the_path(anyio_backend, serve, api, ask):
    """The SDK's own middleware compares it."""
    urls = []

    async def note(request, call_next):
        urls.append(request.url)
        return await call_next(request)

    def make(server, http):
        url = api.base_url(server)
        return api.sdk_class(base_url=url, api_key="k", http_client=http, middleware=[note])

    async with serve(Reply("a"), make_sdk=make) as (_, client):
        assert (await ask(client)).text == "a"
    assert urls == ["/v1/messages"]


async def test_refusal_is_an_answer(anyio_backend, serve, ask):
    async with serve(Reply(None, refusal="I cannot.")) as (_, client):
        response = await ask(client)

    assert response.finish_reason is FinishReason.CONTENT_FILTER
    assert response.messages[0].contents[-1].text == "I cannot."
    assert response.additional_properties["stop_details"]["type"] == "refusal"


async def test_pause_is_an_answer(anyio_backend, serve, ask):
    async with serve(Reply("so far", finish_reason="pause")) as (_, client):
        assert (await ask(client)).finish_reason is FinishReason.PAUSE


# -- options ---------------------------------------------------------------------------------------


async def test_every_option_is_mapped_refused_or_logged(anyio_backend, serve, caplog):
    """No field is forgotten, also one that is added later; routing hints are never sent."""
    treated = {
        "model": ("claude-opus-4-5", lambda body: body["model"]),
        "instructions": ("be kind", lambda body: body["system"][0]["text"]),
        "temperature": (0.5, lambda body: body["temperature"]),
        "top_p": (0.5, lambda body: body["top_p"]),
        "top_k": (5, lambda body: body["top_k"]),
        "max_output_tokens": (77, lambda body: body["max_tokens"]),
        "stop_sequences": (("END",), lambda body: tuple(body["stop_sequences"])),
        "seed": (1, "logged"),
        "frequency_penalty": (0.5, "logged"),
        "presence_penalty": (0.5, "logged"),
        "reasoning_effort": ("none", lambda body: body["thinking"] and "none"),
        "response_format": ("json", lambda body: body["system"] and "json"),
        "tools": ((Tool("go"),), lambda body: (Tool(body["tools"][0]["name"]),)),
        "tool_choice": ("required", "refused"),
        "allow_multiple_tool_calls": (False, "logged"),
        "conversation_id": ("conv_1", "refused"),
        "metadata": ({"user_id": "u"}, lambda body: body["metadata"]),
        "additional_properties": ({"service_tier": "auto"}, lambda body: {
            "service_tier": body["service_tier"]
        }),
        "routing": (RoutingHints(session_id="secret"), "hidden"),
    }  # fmt: skip
    assert treated.keys() == {field.name for field in fields(ChatOptions)}
    async with serve() as (server, client):
        for name, (value, treatment) in treated.items():
            caplog.clear()
            options = ChatOptions(**{name: value})
            if treatment == "refused":
                with pytest.raises(UnsupportedOptionError):
                    await client.get_response("hi", options)
                continue
            await client.get_response("hi", options)
            body = server.requests[-1].body
            logged = [r.message for r in caplog.records if r.name == "chatrouting.adapters"]
            assert bool(logged) is (treatment == "logged"), name
            if callable(treatment):
                assert treatment(body) == value, name
            else:
                assert body.keys() == {"model", "max_tokens", "messages"}, name


async def test_sampling_goes_under_the_api_version_that_knows_it(anyio_backend, serve, ask):
    async with serve() as (server, client):
        await ask(client, "hi", ChatOptions(temperature=0.3))

    assert server.requests[0].headers["anthropic-version"] == "2023-06-01"


async def test_long_whole_answer_is_asked_for(anyio_backend, serve):
    """The SDK's own guard against long answers without a stream does not stand in the way."""
    async with serve() as (server, client):
        await client.get_response("hi", ChatOptions(max_output_tokens=64_000))

    assert server.requests[0].body["max_tokens"] == 64_000


async def test_schema_arrives_as_output_format(anyio_backend, serve, ask):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    async with serve(Reply('{"a": "b"}')) as (server, client):
        options = ChatOptions(response_format=JsonSchemaFormat("answer", schema))

        assert json.loads((await ask(client, "hi", options)).text) == {"a": "b"}
        assert server.requests[0].body["output_config"]["format"]["type"] == "json_schema"


def test_limit_below_one_is_a_configuration_error_at_once():
    with pytest.raises(ConfigurationError, match="max_output_tokens is 0"):
        AnthropicChatClient(max_output_tokens=0)


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "error", "kind"),
    [
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
        (Reply.error(402, type="billing_error"), InsufficientQuotaError, "quota_exhausted"),
        (
            Reply.error(429, code="enforced_spend_limit_reached"),
            InsufficientQuotaError,
            "quota_exhausted",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_types_codes_and_words_are_understood(
    anyio_backend, serve, modes, reply, error, kind
):
    async with serve(default=reply) as (_, client):
        for ask in modes:
            with pytest.raises(error) as caught:
                await ask(client)

            assert type(caught.value) is error
            assert caught.value.kind == classify(caught.value).kind == kind


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
async def test_error_event_is_classified_by_its_type(
    anyio_backend, serve, decode, broken, type_, error, kind
):
    """[BR-13] The status says 200; the type in the body says what happened."""
    async with serve(Reply.stream_error(type=type_), decode=decode) as (_, client):
        caught, updates, _ = await broken(client)

    assert type(caught) is error
    assert caught.kind == classify(caught).kind == kind
    assert (caught.status_code, caught.code) == (200, type_)
    assert not any(update.has_output for update in updates)


@pytest.mark.parametrize(
    "event",
    [
        'event: error\ndata: {"error": {"type": "overloaded_error"}}\n\n',
        'data: {"type": "error", "error": {"type": "overloaded_error"}}\n\n',
        'data: {"error": {"type": "overloaded_error", "message": "busy"}}\n\n',
    ],
    ids=["without a type", "without a name", "bare"],
)
async def test_error_event_is_recognised_in_every_shape(anyio_backend, serve, broken, event):
    """[BR-02] The SDK skips those without a name in silence."""
    async with serve(Reply("a b", insert={"content": event})) as (_, client):
        caught, *_ = await broken(client)

    assert type(caught) is OverloadedError


# -- where a stream ends ---------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["after_content", "terminal"])
async def test_stream_without_its_reason_is_interrupted(anyio_backend, serve, decode, broken, end):
    """[BR-10] Neither a reason of the end nor `message_stop`."""
    reply = Reply("a b c", end_at=end, omit=["finish"])
    async with serve(reply, decode=decode) as (_, client):
        caught, _, stream = await broken(client)

    assert type(caught) is StreamInterruptedError
    assert caught.kind is FailureKind.CONNECTION
    assert stream.partial_response.text == "a b c"
    assert stream.partial_response.finish_reason is None


async def test_reason_and_a_clean_end_prove_the_end(anyio_backend, serve, decode):
    """`message_stop` may be missing where the reason of the end was given."""
    async with serve(Reply("done", omit=["terminal"]), decode=decode) as (_, client):
        response = await client.get_streaming_response("hi").get_final_response()

    assert (response.text, response.finish_reason) == ("done", FinishReason.STOP)


async def test_usage_of_a_broken_stream_is_kept(anyio_backend, serve, broken):
    """[BR-17] What was read is in the updates, also if the rest never came."""
    usage = Usage(input_tokens=30, output_tokens=9, cache_read_input_tokens=20)
    async with serve(Reply("a b c", usage=usage, drop_at="after_content")) as (_, client):
        *_, stream = await broken(client)

    assert stream.usage == Usage(input_tokens=30, output_tokens=1, cache_read_input_tokens=20)
    assert stream.partial_response.usage == stream.usage


# -- the SDK's own iteration -----------------------------------------------------------------------


async def test_events_without_names_are_no_answer_to_the_sdk(anyio_backend, serve, broken):
    """It leaves them out in silence; that the end is not proven shows it."""
    async with serve(Reply(event_names=False), decode="sdk") as (_, client):
        caught, *_ = await broken(client)

    assert type(caught) is StreamInterruptedError


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer costs more than the code")
async def test_decoding_costs_a_fraction_of_the_sdks_iteration(anyio_backend):
    """At least five times less for each event, before updates are made of them."""
    delta = {"type": "text_delta", "text": "word "}
    events = [{"type": "content_block_delta", "index": 0, "delta": delta}] * 2000
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    body = "".join(lines).encode()
    headers = {"content-type": "text/event-stream"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=body))
    decoding, iteration = [], []
    http = httpx2.AsyncClient(transport=transport)
    async with anthropic.AsyncAnthropic(api_key="k", http_client=http) as sdk:
        for _ in range(5):
            started = time.thread_time()
            assert len([loads(data) for _, data in SSEDecoder().feed(body)]) == 2000
            decoding.append(time.thread_time() - started)
            stream = await sdk.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "q"}], stream=True
            )
            started = time.thread_time()
            assert len([event async for event in stream]) == 2000
            iteration.append(time.thread_time() - started)

    assert min(iteration) > 5 * min(decoding)
