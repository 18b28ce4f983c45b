"""The Responses adapter over the real SDK, against a strict provider server."""

import json
import logging
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy

import anyio
import httpx2
import openai
import pytest

from chatrouting.adapters.openai_responses import OpenAIResponsesChatClient
from chatrouting.client import ChatClient, ClientMetadata
from chatrouting.contents import (
    DataContent,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCallContent,
    ToolResultContent,
)
from chatrouting.errors import (
    BadRequestError,
    ClientClosedError,
    ConfigurationError,
    UnsupportedOptionError,
)
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, JsonSchemaFormat, Principal, RoutingHints, Tool
from chatrouting.responses import FinishReason
from chatrouting.testing.contract import check_chat_client
from chatrouting.testing.provider_server import Gate, ProviderServer, Reply, ToolCall
from chatrouting.usage import Usage

MODEL = "gpt-x"
WEATHER = ToolCall(id="call_7", name="weather", arguments=['{"city"', ': "Oslo"}'])
COUNTS = Usage(
    input_tokens=100,
    output_tokens=20,
    cache_read_input_tokens=60,
    cache_write_input_tokens=10,
    reasoning_output_tokens=5,
)
RICH = Reply("Grüße, 世界", reasoning="Let me think.", tool_calls=[WEATHER], usage=COUNTS)


def http_client():
    # Without certificates to load, and with one connection, so that leaks show.
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    return httpx2.AsyncClient(verify=False, limits=limits, timeout=5)


def plain(server: ProviderServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=server.openai_base_url, api_key="secret-key", http_client=http_client()
    )


def azure(server: ProviderServer) -> openai.AsyncAzureOpenAI:
    return openai.AsyncAzureOpenAI(
        azure_endpoint=server.url,
        api_key="secret-key",
        api_version="2025-04-01-preview",
        http_client=http_client(),
    )


@asynccontextmanager
async def serving(*replies, sdk=plain, model=MODEL, decode="own", **settings):
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProviderServer(*replies, **settings))
        client = await stack.enter_async_context(sdk(server))
        yield server, OpenAIResponsesChatClient(client, model, decode=decode)


async def whole(client, messages="hi", options=None):
    return await client.get_response(messages, options)


async def streamed(client, messages="hi", options=None):
    return await client.get_streaming_response(messages, options).get_final_response()


@pytest.fixture(params=[whole, streamed], ids=["whole", "streaming"])
def ask(request):
    return request.param


@pytest.fixture(params=[plain, azure], ids=["openai", "azure"])
def sdk(request):
    return request.param


@pytest.fixture(params=["own", "sdk"])
def decode(request):
    return request.param


# -- answers ---------------------------------------------------------------------------------------


async def test_a_rich_answer_reads_the_same_in_both_modes(anyio_backend, sdk, decode):
    """[BR-77] Text, reasoning with its origin, tool calls, usage, ids."""
    reply = Reply(
        "Grüße, 世界", reasoning="Let me think.", tool_calls=[WEATHER], usage=COUNTS, id="resp_7"
    )
    async with serving(reply, reply, sdk=sdk, decode=decode) as (server, client):
        first, second = await whole(client), await streamed(client)

        for response in (first, second):
            reasoning, text, call = (
                item for message in response.messages for item in message.contents
            )
            assert reasoning.text == "Let me think."
            assert reasoning.signature is not None
            assert reasoning.origin.startswith(
                ("openai " if sdk is plain else "azure ") + server.url
            )
            assert text == TextContent("Grüße, 世界")
            assert call == ToolCallContent(
                "call_7", "weather", {"city": "Oslo"}, '{"city": "Oslo"}'
            )
            assert response.finish_reason is FinishReason.TOOL_CALLS
            assert response.usage == COUNTS
            assert response.model == MODEL
            assert response.response_id == "resp_7"
            assert response.conversation_id is None
            assert response.created_at is not None


async def test_bodies_are_the_same_in_both_modes(anyio_backend, sdk):
    """[BR-77] One preparation path: only the stream flag differs. The model stands in the body."""
    options = ChatOptions(temperature=0.3, tools=[Tool("weather")], instructions="be kind")
    async with serving(sdk=sdk) as (server, client):
        await whole(client, "hi", options)
        await streamed(client, "hi", options)

        first, second = (request.body for request in server.requests)
        assert second.pop("stream") is True
        assert first == second
        assert first["model"] == MODEL
        paths = {request.path for request in server.requests}
        assert paths == {"/v1/responses" if sdk is plain else "/openai/responses"}


async def test_bodies_on_the_wire_are_those_of_the_sdks_own_method(anyio_backend, sdk):
    """The cheap way sends what named arguments would have sent."""
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
    async with serving(sdk=sdk) as (server, client):
        await whole(client, ["hi"], options)
        body = dict(server.requests[0].body)
        await client.get_service(openai.AsyncOpenAI).responses.create(**body)

        ours, theirs = server.requests
        assert ours.body == theirs.body
        assert (ours.path, ours.query) == (theirs.path, theirs.query)
        names = ("authorization", "api-key", "content-type", "accept")
        for name in names:
            assert ours.headers.get(name) == theirs.headers.get(name)


async def test_a_refusal_is_an_answer(anyio_backend, ask):
    async with serving(Reply(None, refusal="I cannot.")) as (_, client):
        response = await ask(client)

        assert response.messages[0].contents == (RefusalContent("I cannot."),)
        assert response.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply("cut", finish_reason="length"), FinishReason.LENGTH),
        (Reply("cut", finish_reason="content_filter"), FinishReason.CONTENT_FILTER),
        (Reply("cut", finish_reason="max_messages"), "max_messages"),
        (Reply(""), FinishReason.STOP),
    ],
    ids=["length", "filter", "unknown", "empty"],
)
async def test_an_incomplete_or_empty_answer_is_an_answer(anyio_backend, ask, reply, reason):
    """[BR-08] Also `response.incomplete`, which the SDK's own helper takes for a failure."""
    async with serving(reply) as (_, client):
        assert (await ask(client)).finish_reason == reason


async def test_usage_that_never_came_is_unknown(anyio_backend, ask):
    async with serving(Reply(usage=None)) as (_, client):
        assert (await ask(client)).usage is None


async def test_rate_limit_headers_come_with_the_answer(anyio_backend, ask):
    headers = {"x-ratelimit-remaining-tokens": "7", "x-other": "8"}
    async with serving(Reply(headers=headers)) as (_, client):
        assert (await ask(client)).rate_limit_headers == {"x-ratelimit-remaining-tokens": "7"}


async def test_rate_limit_headers_are_on_the_first_update_only(anyio_backend):
    headers = {"x-ratelimit-remaining-tokens": "7"}
    async with serving(Reply(headers=headers)) as (_, client):
        updates = [update async for update in client.get_streaming_response("hi")]

        assert updates[0].rate_limit_headers == headers
        assert not any(update.rate_limit_headers for update in updates[1:])


async def test_a_background_answer_names_what_it_is_fetched_by(anyio_backend):
    queued = {"id": "resp_7", "status": "queued", "background": True, "output": []}
    async with serving(Reply(body=queued)) as (_, client):
        options = ChatOptions(additional_properties={"background": True, "store": True})
        response = await client.get_response("hi", options)

        assert response.conversation_id == "resp_7"
        assert response.continuation_token == response.response_id
        assert response.finish_reason is None


async def test_text_split_anywhere_arrives_whole(anyio_backend):
    """Reads end inside UTF-8 characters; lines end as the server likes; comments are skipped."""
    odd = Reply("Grüße, 世界 🎉", write_size=1, line_end="\r\n", pings=True, event_names=False)
    async with serving(odd) as (_, client):
        assert (await streamed(client)).text == "Grüße, 世界 🎉"


# -- conversations ---------------------------------------------------------------------------------


async def test_a_whole_tool_round_is_accepted_by_a_strict_server(anyio_backend, ask):
    """[BR-81] Sealed reasoning goes back before its calls, results follow them."""
    calls = [WEATHER, ToolCall(id="call_8", name="weather", arguments="{}")]
    thinks = Reply(None, reasoning="hm", tool_calls=calls)
    async with serving(thinks, Reply("Cold.")) as (server, client):
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
            "function_call",
            "function_call",
            "function_call_output",
            "function_call_output",
            "message",
        ]
        assert not any("id" in item for item in items)


async def test_reasoning_survives_a_visit_to_another_issuer(anyio_backend, ask):
    """[BR-81] A conversation from A to B to A: both accept it, and A gets its own items back."""
    thinks = Reply("a", reasoning="hm")
    async with serving(thinks, Reply("c")) as (a, at_a), serving(Reply("b")) as (b, at_b):
        conversation = [ChatMessage("user", "q")]
        for client in (at_a, at_b, at_a):
            response = await ask(client, conversation)
            conversation = [*conversation, *response.messages, ChatMessage("user", "and?")]

        assert conversation[1].contents[0].text == "hm"
        assert "reasoning" not in [item["type"] for item in b.requests[0].body["input"]]
        sent = a.requests[1].body["input"][1]
        assert (sent["type"], sent["encrypted_content"]) == (
            "reasoning",
            conversation[1].contents[0].signature,
        )


@pytest.mark.parametrize(
    ("model", "is_kept"),
    [("gpt-x-2025-08-07", True), ("gpt-x-mini", False)],
    ids=["snapshot", "other-family"],
)
async def test_reasoning_stays_in_its_model_family(anyio_backend, model, is_kept):
    """[BR-81]."""
    async with serving(Reply("a", reasoning="hm")) as (server, client):
        first = await whole(client)
        await whole(client, ["hi", *first.messages, "and?"], ChatOptions(model=model))

        kinds = [item["type"] for item in server.requests[1].body["input"]]
        assert ("reasoning" in kinds) is is_kept


async def test_an_illegal_history_is_put_right_on_the_way_out(anyio_backend, ask):
    """[BR-84] [BR-86] A foreign conversation with all that the API refuses."""
    long = "toolu_" + "x" * 80
    messages = [
        ChatMessage("system", "be kind"),
        ChatMessage("tool", ToolResultContent("gone", "of a call that was cut off")),
        ChatMessage("assistant", ["  ", ToolCallContent(long + "a", "look", {})]),
        ChatMessage("assistant", ToolCallContent(long + "b", "look", {}, "[1]")),
        ChatMessage("user", ""),
        ChatMessage("system", "be brief"),
        ChatMessage("tool", ToolResultContent(long + "b", "")),
        ChatMessage("assistant", ReasoningContent("hm", "sealed", "anthropic elsewhere claude")),
        ChatMessage("assistant", ToolCallContent("", "look", {})),
        ChatMessage("user", " \n"),
    ]
    before = deepcopy(messages)
    async with serving() as (server, client):
        assert (await ask(client, messages)).text

        assert server.requests[0].refused is None
        assert messages == before


async def test_a_history_of_blanks_is_a_local_error(anyio_backend, ask):
    """[BR-86] Nothing is sent."""
    async with serving() as (server, client):
        with pytest.raises(BadRequestError, match="no message holds anything"):
            await ask(client, [ChatMessage("user", " "), ChatMessage("assistant", "")])

        assert server.requests == []


async def test_requests_are_stateless_by_default(anyio_backend, ask):
    async with serving() as (server, client):
        response = await ask(client)

        assert server.requests[0].body["store"] is False
        assert server.requests[0].body["include"] == ["reasoning.encrypted_content"]
        assert response.conversation_id is None


async def test_a_stored_response_is_gone_on_from(anyio_backend, ask):
    async with serving() as (server, client):
        first = await ask(client, "hi", ChatOptions(additional_properties={"store": True}))
        assert first.conversation_id == first.response_id == "resp_1"

        second = await ask(client, "and?", ChatOptions(conversation_id=first.conversation_id))
        assert second.conversation_id == "resp_2"
        body = server.requests[1].body
        assert body["previous_response_id"] == "resp_1"
        assert "store" not in body
        assert len(body["input"]) == 1


async def test_a_conversation_object_stays_the_conversation(anyio_backend, ask):
    reply = Reply(extra_fields={"conversation": {"id": "conv_1"}})
    async with serving(reply) as (server, client):
        response = await ask(client, "hi", ChatOptions(conversation_id="conv_1"))

        assert server.requests[0].body["conversation"] == "conv_1"
        assert response.conversation_id == "conv_1"


# -- options ---------------------------------------------------------------------------------------


async def test_routing_hints_are_never_sent(anyio_backend, ask):
    hints = RoutingHints(
        session_id="hint-1", principal=Principal(tenant="hint-2"), tags={"hint-3": "hint-4"}
    )
    async with serving() as (server, client):
        await ask(client, "hi", ChatOptions(routing=hints))

        assert b"hint-" not in server.requests[0].raw_body
        assert "hint-" not in json.dumps(dict(server.requests[0].headers))


async def test_stop_sequences_are_refused_before_anything_is_sent(anyio_backend, ask):
    async with serving() as (server, client):
        with pytest.raises(UnsupportedOptionError, match="stop_sequences"):
            await ask(client, "hi", ChatOptions(stop_sequences=["END"]))

        assert server.requests == []


async def test_sampling_options_that_the_api_lacks_are_dropped_with_a_log_line(
    anyio_backend, ask, caplog
):
    caplog.set_level(logging.WARNING, "chatrouting.adapters")
    options = ChatOptions(
        top_k=3, seed=1, frequency_penalty=0.5, presence_penalty=0.5, temperature=0.5
    )
    async with serving() as (server, client):
        await ask(client, "hi", options)

        assert server.requests[0].body["temperature"] == 0.5
        for name in ("top_k", "seed", "frequency_penalty", "presence_penalty"):
            assert name not in server.requests[0].body
            assert name in caplog.text


async def test_the_model_of_the_options_counts_more(anyio_backend, ask):
    async with serving() as (server, client):
        await ask(client, "hi", ChatOptions(model="gpt-y"))

        assert server.requests[0].model == "gpt-y"


async def test_without_a_model_there_is_nothing_to_ask(anyio_backend, ask):
    async with serving(model=None) as (server, client):
        with pytest.raises(ConfigurationError, match="no model is named for openai"):
            await ask(client)

        assert server.requests == []


# -- the client ------------------------------------------------------------------------------------


def test_a_client_of_another_kind_is_refused_when_it_is_built():
    for wrong in ("a key", openai.OpenAI(api_key="k")):
        with pytest.raises(TypeError, match="AsyncOpenAI"):
            OpenAIResponsesChatClient(wrong, MODEL)


def test_an_unknown_decoder_is_refused():
    with pytest.raises(ConfigurationError, match="'fast'"):
        OpenAIResponsesChatClient(None, MODEL, decode="fast")


async def test_messages_are_checked_at_the_call(anyio_backend):
    async with serving() as (_, client):
        with pytest.raises(TypeError):
            await client.get_response(None)
        with pytest.raises(TypeError):
            client.get_streaming_response(None)


async def test_nothing_is_sent_before_the_first_read(anyio_backend):
    async with serving() as (server, client):
        stream = client.get_streaming_response("hi")
        await anyio.wait_all_tasks_blocked()
        assert server.requests == []

        assert (await stream.get_final_response()).text


async def test_services_are_found_by_their_class(anyio_backend, sdk):
    async with serving(sdk=sdk) as (_, client):
        assert client.get_service(OpenAIResponsesChatClient) is client
        assert client.get_service(ChatClient) is client
        provider = "openai" if sdk is plain else "azure"
        assert client.get_service(ClientMetadata) == ClientMetadata(provider, MODEL)
        assert isinstance(client.get_service(openai.AsyncOpenAI), openai.AsyncOpenAI)
        assert client.get_service(httpx2.AsyncClient) is None
        assert client.get_service(ClientMetadata, "key") is None
        assert client.get_service(OpenAIResponsesChatClient, "key") is None
        with pytest.raises(TypeError):
            client.get_service(None)


async def test_closing_leaves_a_given_client_open(anyio_backend):
    async with serving() as (_, client):
        async with client:
            pass
        await client.aclose()

        sdk_client = client.get_service(openai.AsyncOpenAI)
        assert not sdk_client.is_closed()
        with pytest.raises(ClientClosedError):
            await client.get_response("hi")
        with pytest.raises(ClientClosedError):
            client.get_streaming_response("hi")


async def test_a_client_of_its_own_is_made_from_the_environment_and_closed(
    anyio_backend, ask, monkeypatch
):
    async with ProviderServer(api_key="from-environment") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        async with OpenAIResponsesChatClient(model=MODEL) as client:
            assert (await ask(client)).text
            made = client.get_service(openai.AsyncOpenAI)

        assert made.is_closed()


async def test_without_an_environment_the_error_says_what_to_set(anyio_backend, ask, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with OpenAIResponsesChatClient(model=MODEL) as client:
        with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
            await ask(client)


async def test_one_client_serves_many_tasks(anyio_backend):
    async with serving() as (server, client), anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(whole, client)
            group.start_soon(streamed, client)
    assert len(server.requests) == 10


async def test_the_contract_of_chat_clients_is_kept(anyio_backend, decode):
    same = Reply(id="resp_1")
    waiting = Reply(gates={"content": Gate()})
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProviderServer(default=same))
        slow = await stack.enter_async_context(ProviderServer(default=waiting))
        http = await stack.enter_async_context(httpx2.AsyncClient(verify=False))

        def client(of):
            sdk_client = openai.AsyncOpenAI(
                base_url=of.openai_base_url, api_key="k", http_client=http
            )
            return OpenAIResponsesChatClient(sdk_client, MODEL, decode=decode)

        await check_chat_client(lambda: client(server), make_waiting_client=lambda: client(slow))


# -- cost ------------------------------------------------------------------------------------------


class Canned(httpx2.AsyncBaseTransport):
    """Answers at once with the same bytes, so that only the client's own time counts."""

    def __init__(self, content_type, pieces):
        self._content_type = content_type
        self._pieces = pieces

    async def handle_async_request(self, request):
        headers = {"content-type": self._content_type}
        return httpx2.Response(200, headers=headers, stream=Pieces(self._pieces))


class Pieces(httpx2.AsyncByteStream):
    """A body that is there already."""

    def __init__(self, pieces):
        self._pieces = pieces

    async def __aiter__(self):
        for piece in self._pieces:
            yield piece


def canned(content_type, pieces, decode="own"):
    http = httpx2.AsyncClient(transport=Canned(content_type, pieces))
    sdk_client = openai.AsyncOpenAI(base_url="http://canned/v1", api_key="k", http_client=http)
    return OpenAIResponsesChatClient(sdk_client, MODEL, decode=decode)


async def least_cost(function, *arguments):
    """Seconds of CPU, the least of some runs, against noise."""
    costs = []
    for _ in range(7):
        started = time.thread_time()
        await function(*arguments)
        costs.append(time.thread_time() - started)
    return min(costs)


untraced = pytest.mark.skipif(
    sys.gettrace() is not None, reason="a tracer costs more than the code"
)


@untraced
async def test_a_long_conversation_does_not_hold_up_the_loop(anyio_backend):
    """200 messages cost well under 5 ms; by the SDK's own method it is a fifth of a second."""
    body = {"id": "resp_1", "status": "completed", "output": []}
    client = canned("application/json", [json.dumps(body).encode()])
    roles = ("user", "assistant")
    messages = [ChatMessage(roles[n % 2], f"{n} some words " * 10) for n in range(200)]

    assert await least_cost(whole, client, messages) < 0.005


def events(count):
    delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0}
    item = {"id": "msg_1", "type": "message", "content": [], "role": "assistant"}
    yield {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    for number in range(count):
        yield delta | {"item_id": "msg_1", "delta": "word ", "sequence_number": number}
    yield {"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}}


@untraced
async def test_own_decoding_costs_at_most_a_fifth_of_the_sdks(anyio_backend):
    """Relative, so that the machine does not matter."""
    pieces = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events(500)]
    own, by_sdk = (canned("text/event-stream", pieces, decode) for decode in ("own", "sdk"))

    assert (await streamed(own)).text == (await streamed(by_sdk)).text == "word " * 500
    assert await least_cost(streamed, own) * 5 <= await least_cost(streamed, by_sdk)
