"""What only the Responses API has, over the real SDK and a strict provider server."""

import openai
import pytest

from chatrouting.client import ClientMetadata
from chatrouting.contents import (
    DataContent,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolResultContent,
)
from chatrouting.errors import (
    APIStatusError,
    BadRequestError,
    ContentFilteredError,
    ContextLengthExceededError,
    InsufficientQuotaError,
    InternalServerError,
    RateLimitError,
    RequestTooLargeError,
    ResponseValidationError,
    StreamInterruptedError,
    UnsupportedOptionError,
)
from chatrouting.failure import FailureKind
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, JsonSchemaFormat, Tool
from chatrouting.policies.classify import classify
from chatrouting.responses import FinishReason
from chatrouting.testing.provider_server import Reply, ToolCall


@pytest.fixture
def api(apis):
    return apis["responses"]


# -- requests and answers --------------------------------------------------------------------------


async def test_what_is_sent_is_what_the_sdk_would_send(anyio_backend, serve, make_sdk):
    """The same path, query, body and credentials; with Azure the model stands in the body."""
    options = ChatOptions(
        instructions="be kind",
        temperature=0.3,
        max_output_tokens=50,
        tools=[Tool("look", "Look up.", {"type": "object", "properties": {}}, strict=True)],
        tool_choice="look",
        response_format=JsonSchemaFormat("answer", {"type": "object"}),
        reasoning_effort="low",
        metadata={"a": "b"},
    )
    async with serve(make_sdk=make_sdk) as (server, client):
        sdk = client.get_service(openai.AsyncOpenAI)
        await client.get_response(["hi"], options)
        await sdk.responses.create(**server.requests[0].body)
        await client.get_streaming_response(["hi"], options).get_final_response()
        async with await sdk.responses.create(**server.requests[2].body) as theirs:
            async for _ in theirs:
                continue

    first, second, third, fourth = server.requests
    for ours, theirs in ((first, second), (third, fourth)):
        assert ours.body == theirs.body
        assert (ours.path, ours.query) == (theirs.path, theirs.query)
        for name in ("authorization", "api-key", "content-type", "accept"):
            assert ours.headers.get(name) == theirs.headers.get(name)
    assert first.body["model"] == "gpt-x"
    assert first.path == ("/v1/responses" if make_sdk is None else "/openai/responses")


async def test_reasoning_is_stamped_with_provider_endpoint_and_family(
    anyio_backend, serve, make_sdk, ask
):
    """[BR-81]"""
    provider = "openai" if make_sdk is None else "azure"
    async with serve(Reply("a", reasoning="Hm."), make_sdk=make_sdk) as (server, client):
        response = await ask(client)

    assert client.get_service(ClientMetadata) == ClientMetadata(provider, "gpt-x")
    thought = response.messages[0].contents[0]
    assert thought.signature is not None
    path = "/v1" if make_sdk is None else "/openai"
    assert thought.origin == f"{provider} {server.url}{path} gpt-x"


async def test_a_refusal_is_an_answer(anyio_backend, serve, ask):
    async with serve(Reply(None, refusal="I cannot.")) as (_, client):
        response = await ask(client)

    assert response.messages[0].contents == (RefusalContent("I cannot."),)
    assert response.finish_reason is FinishReason.STOP


async def test_a_background_answer_names_what_it_is_fetched_by(anyio_backend, serve):
    queued = {"id": "resp_7", "status": "queued", "background": True, "output": []}
    options = ChatOptions(additional_properties={"background": True, "store": True})
    async with serve(Reply(body=queued)) as (_, client):
        response = await client.get_response("hi", options)

    assert response.conversation_id == "resp_7"
    assert response.continuation_token == response.response_id
    assert response.finish_reason is None


async def test_an_answer_that_is_still_being_made_is_none(anyio_backend, serve):
    async with serve(Reply(body={"status": "queued", "output": []})) as (_, client):
        with pytest.raises(ResponseValidationError, match="a response that is 'queued'"):
            await client.get_response("hi")


async def test_stop_sequences_are_refused_before_anything_is_sent(anyio_backend, serve, ask):
    async with serve() as (server, client):
        with pytest.raises(UnsupportedOptionError, match="stop_sequences"):
            await ask(client, "hi", ChatOptions(stop_sequences=["END"]))

        assert server.requests == []


# -- conversations ---------------------------------------------------------------------------------


async def test_a_whole_tool_round_is_accepted_by_a_strict_server(anyio_backend, serve, ask):
    """[BR-81] Sealed reasoning goes back before its calls, results follow them."""
    calls = [ToolCall(id="call_7"), ToolCall(id="call_8")]
    thinks = Reply(None, reasoning="hm", tool_calls=calls)
    async with serve(thinks, Reply("Cold.")) as (server, client):
        question = ChatMessage("user", ["Oslo?", DataContent(b"png", "image/png")])
        first = await ask(client, [question])
        results = [
            ChatMessage("tool", ToolResultContent("call_7", "-3")),
            ChatMessage("tool", ToolResultContent("call_8", "no city", is_error=True)),
        ]
        second = await ask(client, [question, *first.messages, *results, "So?"])

    assert second.text == "Cold."
    items = server.requests[1].body["input"]
    assert [item["type"] for item in items] == [
        "message",
        "reasoning",
        *["function_call"] * 2,
        *["function_call_output"] * 2,
        "message",
    ]
    assert not any("id" in item for item in items)


async def test_reasoning_survives_a_visit_to_another_issuer(anyio_backend, serve, ask):
    """[BR-81] A conversation from A to B to A: both accept it, and A gets its own items back."""
    thinks = Reply("a", reasoning="hm")
    async with serve(thinks, Reply("c")) as (a, at_a), serve(Reply("b")) as (b, at_b):
        conversation = [ChatMessage("user", "q")]
        for client in (at_a, at_b, at_a):
            response = await ask(client, conversation)
            conversation = [*conversation, *response.messages, ChatMessage("user", "and?")]

    thought = conversation[1].contents[0]
    assert thought.text == "hm"
    assert "reasoning" not in [item["type"] for item in b.requests[0].body["input"]]
    sent = a.requests[1].body["input"][1]
    assert (sent["type"], sent["encrypted_content"]) == ("reasoning", thought.signature)


@pytest.mark.parametrize(
    ("model", "is_kept"),
    [("gpt-x-2025-08-07", True), ("gpt-x-mini", False)],
    ids=["snapshot", "other family"],
)
async def test_reasoning_stays_in_its_model_family(anyio_backend, serve, model, is_kept):
    """[BR-81]"""
    async with serve(Reply("a", reasoning="hm")) as (server, client):
        first = await client.get_response("hi")
        await client.get_response(["hi", *first.messages, "and?"], ChatOptions(model=model))

    kinds = [item["type"] for item in server.requests[1].body["input"]]
    assert ("reasoning" in kinds) is is_kept


async def test_reasoning_that_is_not_accepted_says_so(anyio_backend, serve):
    """A seal that this endpoint did not make, under its name."""
    async with serve() as (server, client):
        forged = ReasoningContent("", "forged", f"openai {server.openai_base_url} gpt-x")
        messages = ["hi", ChatMessage("assistant", [forged, TextContent("Hello.")]), "and?"]
        with pytest.raises(BadRequestError) as caught:
            await client.get_response(messages)

    assert caught.value.kind is FailureKind.REASONING_INVALID


async def test_requests_are_stateless_by_default(anyio_backend, serve, ask):
    async with serve() as (server, client):
        response = await ask(client)

    assert server.requests[0].body["store"] is False
    assert server.requests[0].body["include"] == ["reasoning.encrypted_content"]
    assert response.conversation_id is None


async def test_a_stored_response_is_gone_on_from(anyio_backend, serve, ask):
    async with serve() as (server, client):
        first = await ask(client, "hi", ChatOptions(additional_properties={"store": True}))
        assert first.conversation_id == first.response_id == "resp_1"

        second = await ask(client, "and?", ChatOptions(conversation_id=first.conversation_id))

    assert second.conversation_id == "resp_2"
    body = server.requests[1].body
    assert body["previous_response_id"] == "resp_1"
    assert "store" not in body
    assert len(body["input"]) == 1


async def test_a_conversation_object_stays_the_conversation(anyio_backend, serve, ask):
    reply = Reply(extra_fields={"conversation": {"id": "conv_1"}})
    async with serve(reply) as (server, client):
        response = await ask(client, "hi", ChatOptions(conversation_id="conv_1"))

    assert server.requests[0].body["conversation"] == "conv_1"
    assert response.conversation_id == "conv_1"


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "error", "kind"),
    [
        (
            Reply.error(400, code="context_length_exceeded"),
            ContextLengthExceededError,
            "context_length_exceeded",
        ),
        (Reply.error(400, code="unsupported_parameter"), UnsupportedOptionError, "unsupported"),
        (Reply.error(400, code="invalid_prompt"), ContentFilteredError, "content_filtered"),
        (Reply.azure_content_filter(), ContentFilteredError, "content_filtered"),
        (Reply.error(400, code="previous_response_not_found"), BadRequestError, "state_lost"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_the_codes_of_the_api_are_understood(anyio_backend, serve, modes, reply, error, kind):
    async with serve(default=reply) as (_, client):
        for ask in modes:
            with pytest.raises(error) as caught:
                await ask(client)

            assert type(caught.value) is error
            assert caught.value.kind == classify(caught.value).kind == kind


@pytest.mark.parametrize("status", [401, 429])
async def test_azure_is_understood_alike(anyio_backend, serve, ask, make_azure, status):
    """Its gateway writes errors in a form of its own."""
    reply = Reply.error(status, headers={"retry-after-ms": "1500"})
    async with serve(reply, make_sdk=make_azure) as (_, client):
        with pytest.raises(APIStatusError) as caught:
            await ask(client)

    assert (caught.value.status_code, caught.value.provider) == (status, "azure")
    assert caught.value.retry_after == 1.5
    assert caught.value.request_id


async def test_a_whole_response_that_failed_is_an_error(anyio_backend, serve):
    """The SDK hands it out as a response like any other."""
    error = {"code": "rate_limit_exceeded", "message": "Slow down."}
    failed = {"id": "resp_1", "status": "failed", "output": [], "error": error}
    async with serve(Reply(body=failed)) as (_, client):
        with pytest.raises(RateLimitError, match=r"Slow down\.") as caught:
            await client.get_response("hi")

    assert caught.value.request_id == "req_1"


async def test_a_response_that_failed_without_a_word_is_an_error(anyio_backend, serve):
    async with serve(Reply(body={"status": "failed", "error": None})) as (_, client):
        with pytest.raises(InternalServerError) as caught:
            await client.get_response("hi")

    assert caught.value.request_id == "req_1"


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
        ("invalid_image", BadRequestError, "invalid_request"),
        ("something_new", InternalServerError, "server_error"),
    ],
)
@pytest.mark.parametrize("shape", ["flat", "failed"])
async def test_an_error_inside_a_stream_is_classified_by_its_code(
    anyio_backend, serve, broken, shape, code, error, kind
):
    """[BR-13] The status says 200; the code in the body says what happened."""
    async with serve(Reply.stream_error(shape=shape, code=code)) as (_, client):
        caught, *_ = await broken(client)

    assert type(caught) is error
    assert caught.kind == classify(caught).kind == kind
    assert caught.status_code == 200
    assert caught.retry_after is None


COMPLETED = 'data: {"type": "response.completed", "response": {}}\n'
CUTS = {
    "ends before its last event": Reply("a b c", end_at="terminal"),
    "last event missing": Reply("a b c", omit=["terminal"]),
    "a marker is no proof": Reply("a", omit=["terminal"], insert={"end": "data: [DONE]\n\n"}),
    "last event without its blank line": Reply(sse=[COMPLETED]),
}


@pytest.mark.parametrize("reply", CUTS.values(), ids=CUTS)
async def test_only_the_last_event_proves_the_end(anyio_backend, serve, decode, broken, reply):
    """[BR-10] Whatever text came before."""
    async with serve(reply, decode=decode) as (_, client):
        caught, _, stream = await broken(client)

    assert type(caught) is StreamInterruptedError
    assert caught.kind is FailureKind.CONNECTION
    assert stream.partial_response.finish_reason is None
