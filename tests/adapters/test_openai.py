"""The Chat Completions adapter over the real SDK, against a strict provider server."""

import json
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import replace

import anyio
import httpx2
import openai
import pytest

from chatrouting.adapters import dialects
from chatrouting.adapters.openai import OpenAIChatClient
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


def http_client(transport=None):
    # Without certificates to load, and with one connection, so that leaks show.
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    return httpx2.AsyncClient(verify=False, limits=limits, timeout=5, transport=transport)


def plain(server):
    return openai.AsyncOpenAI(
        base_url=server.openai_base_url, api_key="secret-key", http_client=http_client()
    )


def azure(server):
    return openai.AsyncAzureOpenAI(
        azure_endpoint=server.url,
        api_key="secret-key",
        api_version="2025-04-01-preview",
        http_client=http_client(),
    )


@asynccontextmanager
async def serving(*replies, sdk=plain, dialect=None, decode="own", **settings):
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProviderServer(*replies, **settings))
        client = await stack.enter_async_context(sdk(server))
        yield server, OpenAIChatClient(client, MODEL, dialect=dialect, decode=decode)


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
        "Grüße, 世界", reasoning="Let me think.", tool_calls=[WEATHER], usage=COUNTS, id="chat_7"
    )
    async with serving(reply, reply, sdk=sdk, decode=decode) as (_, client):
        first, second = await whole(client), await streamed(client)

    assert first == second
    (message,) = first.messages
    assert message.contents == (
        ReasoningContent("Let me think.", origin="openai" if sdk is plain else "azure"),
        TextContent("Grüße, 世界"),
        ToolCallContent("call_7", "weather", {"city": "Oslo"}, '{"city": "Oslo"}'),
    )
    assert first.finish_reason is FinishReason.TOOL_CALLS
    assert first.usage == COUNTS
    assert (first.response_id, first.model) == ("chat_7", MODEL)
    assert first.created_at is not None


async def test_refusals_are_refusals(anyio_backend, ask):
    async with serving(Reply(refusal="I will not.")) as (_, client):
        response = await ask(client)

    assert response.messages[0].contents == (RefusalContent("I will not."),)


async def test_rate_limit_headers_come_with_the_answer(anyio_backend, ask):
    headers = {"x-ratelimit-remaining-tokens": "7", "x-other": "8"}
    async with serving(Reply(headers=headers)) as (_, client):
        response = await ask(client)

    assert response.rate_limit_headers == {"x-ratelimit-remaining-tokens": "7"}


async def test_an_honestly_empty_answer_is_an_answer(anyio_backend, ask):
    """[BR-08] A finish reason without output is a success."""
    async with serving(Reply("")) as (_, client):
        response = await ask(client)

    assert (response.text, response.finish_reason) == ("", FinishReason.STOP)


async def test_usage_that_never_came_is_unknown_not_zero(anyio_backend, ask):
    async with serving(Reply(usage=None)) as (_, client):
        response = await ask(client)

    assert response.usage is None


@pytest.mark.parametrize("style", ["end", "null", "every_chunk"])
async def test_usage_in_every_style(anyio_backend, style, decode):
    async with serving(Reply(usage=COUNTS, usage_style=style), decode=decode) as (_, client):
        response = await streamed(client)

    assert response.usage == (None if style == "null" else COUNTS)


async def test_the_first_chunk_of_azure_is_no_output(anyio_backend, decode):
    """[BR-21] Without choices, id and model."""
    reply = Reply("Hi", prompt_filter=True)
    async with serving(reply, sdk=azure, decode=decode) as (_, client):
        updates = [update async for update in client.get_streaming_response("hi")]

    assert [update.has_output for update in updates[:2]] == [False, False]
    assert "prompt_filter_results" in updates[0].additional_properties
    assert "".join(update.text for update in updates) == "Hi"


@pytest.mark.parametrize("index", ["each", "zero", "missing"])
@pytest.mark.parametrize("pieces", ["fragments", "whole", "together"])
async def test_calls_are_told_apart_however_they_come(anyio_backend, index, pieces, decode):
    """[BR-23] [BR-24]"""
    calls = [WEATHER, replace(WEATHER, id="call_8", name="time", arguments=["{", '"a": 1}'])]
    reply = Reply(tool_calls=calls, tool_index=index, tool_chunks=pieces)
    async with serving(reply, decode=decode) as (_, client):
        response = await streamed(client)

    assert [
        (call.call_id, call.name, call.arguments) for call in response.messages[0].contents
    ] == [
        ("call_7", "weather", {"city": "Oslo"}),
        ("call_8", "time", {"a": 1}),
    ]


@pytest.mark.parametrize("write_size", [1, 7, None])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
async def test_events_are_whole_however_they_are_cut(anyio_backend, write_size, line_end):
    """Also inside a UTF-8 character, between comments, and with any line end."""
    reply = Reply("Grüße, 世界 🎈", write_size=write_size, line_end=line_end, pings=True)
    async with serving(reply) as (_, client):
        response = await streamed(client)

    assert response.text == "Grüße, 世界 🎈"


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
    "model": MODEL,
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
        "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
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


async def test_what_is_sent_is_what_the_sdk_would_send(anyio_backend, sdk):
    """The same path, query and body as named arguments give, for OpenAI and for Azure."""
    async with ProviderServer() as server, sdk(server) as by_hand:
        client = OpenAIChatClient(by_hand, MODEL)
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
        assert "secret-session" not in ours.raw_body.decode()
    assert all(request.refused is None for request in server.requests)
    if sdk is azure:
        assert first.path == f"/openai/deployments/{MODEL}/chat/completions"


async def test_whole_and_streamed_bodies_differ_in_the_stream_alone(anyio_backend, sdk):
    """[BR-77] One preparation path."""
    async with serving(sdk=sdk) as (server, client):
        await whole(client, CONVERSATION, OPTIONS)
        await streamed(client, CONVERSATION, OPTIONS)

    first, second = (request.body for request in server.requests)
    assert second.pop("stream") is True
    assert second.pop("stream_options") == {"include_usage": True}
    assert first == second


async def test_the_callers_request_stays_as_it_is(anyio_backend, ask):
    """[BR-76]"""
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    options = ChatOptions(tools=[Tool("f", parameters={"type": "object"})], metadata={"a": "b"})
    before = deepcopy((messages, options))
    async with serving() as (_, client):
        await ask(client, messages, options)

    assert (messages, options) == before


async def test_the_options_model_overrides_and_one_must_be_named(anyio_backend, ask):
    async with serving() as (server, client):
        response = await ask(client, "hi", ChatOptions(model="other"))
        sdk = client.get_service(openai.AsyncOpenAI)
        with pytest.raises(ConfigurationError, match=r"OpenAIChatClient\(client, model\)"):
            await ask(OpenAIChatClient(sdk))

    assert server.requests[0].model == response.model == "other"
    assert len(server.requests) == 1


async def test_a_strict_server_takes_what_others_would_refuse(anyio_backend, ask):
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
    async with serving() as (server, client):
        await ask(client, messages)

    assert server.requests[0].refused is None
    sent = server.requests[0].body["messages"]
    assert [item["role"] for item in sent] == [
        *("user", "user", "assistant", "tool", "tool", "user", "assistant", "tool"),
    ]


async def test_nothing_to_send_is_refused_before_sending(anyio_backend, ask):
    """[BR-86]"""
    async with serving() as (server, client):
        with pytest.raises(BadRequestError):
            await ask(client, "  ")
        with pytest.raises(UnsupportedOptionError):
            await ask(client, "hi", ChatOptions(conversation_id="c"))

    assert server.requests == []


OTHER_WORD = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


@pytest.mark.parametrize("wanted", ["max_tokens", "max_completion_tokens"])
async def test_one_option_two_words(anyio_backend, ask, wanted):
    """[BR-79] Two servers with opposite demands get each its own word for the same option."""

    def strict(request):
        unknown = OTHER_WORD[wanted]
        if unknown in request.body:
            return Reply.error(400, code="unsupported_parameter", message=f"Use {wanted!r}.")
        return Reply(str(request.body[wanted]))

    right = dialects.OPENAI if wanted == "max_completion_tokens" else dialects.VLLM
    wrong = dialects.VLLM if wanted == "max_completion_tokens" else dialects.OPENAI
    options = ChatOptions(max_output_tokens=7)
    async with serving(strict, dialect=right) as (_, client):
        assert (await ask(client, "hi", options)).text == "7"
        other = OpenAIChatClient(client.get_service(openai.AsyncOpenAI), MODEL, dialect=wrong)
        with pytest.raises(UnsupportedOptionError, match="unsupported_parameter"):
            await ask(other, "hi", options)


async def test_reasoning_goes_home_and_nowhere_else(anyio_backend, ask):
    """[BR-81] A conversation from one server to another and back; the caller's own stays whole."""
    details = [{"type": "reasoning.encrypted", "data": "xyz", "index": 0}]
    message = {"role": "assistant", "content": "a", "reasoning_details": details}
    answer = {"id": "1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    async with (
        serving(Reply(body=answer), Reply(), dialect=dialects.OPENROUTER) as (home, first),
        serving() as (away, second),
    ):
        history = [ChatMessage("user", "hi"), *(await whole(first)).messages]
        before = deepcopy(history)
        await ask(second, [*history, ChatMessage("user", "more")])
        await ask(first, [*history, ChatMessage("user", "more")])

    assert history == before
    assert "reasoning" not in json.dumps(away.requests[0].body)
    assert home.requests[1].body["messages"][1]["reasoning_details"] == details


async def test_a_partial_answer_is_continued_with_one_space(anyio_backend, ask):
    """[BR-87] The text goes out as it is, so the join has exactly one."""
    partial = "Hello "
    async with serving(Reply("world")) as (server, client):
        continued = await ask(client, [ChatMessage("user", "?"), ChatMessage("assistant", partial)])

    assert server.requests[0].body["messages"][-1]["content"] == partial
    assert partial + continued.text == "Hello world"


async def test_dropped_sampling_is_logged_without_content(anyio_backend, ask, caplog):
    with caplog.at_level(logging.WARNING, "chatrouting"):
        async with serving() as (server, client):
            await ask(client, "a secret", ChatOptions(top_k=3))

    assert "top_k" not in server.requests[0].body
    assert "adapters.options_dropped provider=openai model=gpt-x options=top_k" in caplog.text
    assert "a secret" not in caplog.text


# -- the client ------------------------------------------------------------------------------------


async def test_the_contract_of_chat_clients_holds(anyio_backend):
    gate = Gate()
    async with (
        ProviderServer(default=Reply("Hello.", id="1")) as server,
        ProviderServer(default=Reply(gates={"content": gate, "headers": gate})) as waiting,
        openai.AsyncOpenAI(base_url=server.openai_base_url, api_key="k") as sdk,
        openai.AsyncOpenAI(base_url=waiting.openai_base_url, api_key="k") as slow,
    ):
        rules = await check_chat_client(
            lambda: OpenAIChatClient(sdk, MODEL),
            make_waiting_client=lambda: OpenAIChatClient(slow, MODEL),
        )

    assert rules


async def test_services_are_found_by_class(anyio_backend, sdk):
    async with ProviderServer() as server, sdk(server) as given:
        client = OpenAIChatClient(given, MODEL)

        assert client.get_service(OpenAIChatClient) is client
        assert client.get_service(ChatClient) is client
        assert client.get_service(type(given)) is given
        assert client.get_service(openai.AsyncOpenAI) is given
        provider = "openai" if sdk is plain else "azure"
        assert client.get_service(ClientMetadata) == ClientMetadata(provider, MODEL)
        assert client.get_service(ClientMetadata, "key") is None
        assert client.get_service(dict) is None
        assert OpenAIChatClient(given, dialect=dialects.VLLM).get_service(
            ClientMetadata
        ) == ClientMetadata("vllm", None)
        with pytest.raises(TypeError, match="service_type"):
            client.get_service(None)


async def test_closing_leaves_a_given_client_open(anyio_backend, ask):
    async with serving() as (_, client):
        sdk = client.get_service(openai.AsyncOpenAI)
        stream = client.get_streaming_response("hi")
        await client.aclose()
        await client.aclose()

        with pytest.raises(ClientClosedError):
            await ask(client)
        with pytest.raises(ClientClosedError):
            await stream.get_final_response()
        assert not sdk.is_closed()
        async with OpenAIChatClient(sdk, MODEL) as second:
            assert (await ask(second)).text


@pytest.mark.parametrize("wrong", [openai.OpenAI(api_key="k"), "sk-key", object()])
def test_a_wrong_client_is_refused_at_once(wrong):
    with pytest.raises(TypeError, match="expected an AsyncOpenAI"):
        OpenAIChatClient(wrong, MODEL)


def test_a_wrong_decode_is_refused_at_once():
    with pytest.raises(ValueError, match="'own' or 'sdk'"):
        OpenAIChatClient(decode="fast")


async def test_messages_of_none_are_refused_at_the_call(anyio_backend):
    client = OpenAIChatClient(model=MODEL)
    with pytest.raises(TypeError, match="NoneType"):
        client.get_streaming_response(None)
    with pytest.raises(TypeError, match="NoneType"):
        await client.get_response(None)


async def test_a_client_is_made_from_the_environment(anyio_backend, ask, monkeypatch):
    async with ProviderServer(api_key="from-the-environment") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
        async with OpenAIChatClient(model=MODEL) as client:
            assert client.get_service(openai.AsyncOpenAI) is None
            assert (await ask(client)).text
            sdk = client.get_service(openai.AsyncOpenAI)
            assert (await ask(client)).text
            assert client.get_service(openai.AsyncOpenAI) is sdk

        assert sdk.is_closed()


async def test_without_a_key_the_message_says_what_to_set(anyio_backend, ask, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        await ask(OpenAIChatClient(model=MODEL))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_client_of_our_own_lives_through_several_event_loops(backend, monkeypatch):
    """[BR-71] One adapter, three runs: connections belong to a loop, so each has its client."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    client = OpenAIChatClient(model=MODEL)

    async def run():
        async with ProviderServer() as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
            first = await whole(client)
            second = await streamed(client)
            await client.get_service(openai.AsyncOpenAI).close()
        return first.text, second.text

    for _ in range(3):
        first, second = anyio.run(run, backend=backend)
        assert first == second


async def test_a_key_that_the_caller_replaces_is_used(anyio_backend, ask):
    async with serving(api_key="new") as (_, client):
        client.get_service(openai.AsyncOpenAI).api_key = "new"
        assert (await ask(client)).text


# -- cost ------------------------------------------------------------------------------------------


def canned(content, content_type):
    async def answer(request):
        return httpx2.Response(200, headers={"content-type": content_type}, content=content)

    return http_client(httpx2.MockTransport(answer))


async def least(repetitions, action):
    """Give the least processor time that an action took; others share this machine."""
    times = []
    for _ in range(repetitions):
        started = time.thread_time()
        await action()
        times.append(time.thread_time() - started)
    return min(times)


async def test_a_long_conversation_does_not_hold_up_the_event_loop(anyio_backend):
    """200 messages: the SDK walks them against its type unions for tens of milliseconds."""
    answer = b'{"id": "1", "choices": [{"index": 0, "message": {"content": "a"}}]}'
    messages = [{"role": "user", "content": f"message {number}"} for number in range(200)]
    async with openai.AsyncOpenAI(
        api_key="k", http_client=canned(answer, "application/json")
    ) as sdk:
        client = OpenAIChatClient(sdk, MODEL)

        async def ours():
            await client.get_response(messages)

        async def theirs():
            await sdk.chat.completions.create(model=MODEL, messages=messages)

        await least(2, ours)
        await least(1, theirs)
        assert await least(10, ours) * 5 < await least(3, theirs)


async def test_a_chunk_costs_a_fraction_of_the_sdks_own_iteration(anyio_backend):
    """At least five times less, with the stream object around it."""
    chunk = (
        '{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        '[{"index":0,"delta":{"content":"word "},"logprobs":null,"finish_reason":null}]}'
    )
    end = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    events = [*[chunk] * 1000, end, "[DONE]"]
    content = "".join(f"data: {event}\n\n" for event in events).encode()
    async with openai.AsyncOpenAI(
        api_key="k", http_client=canned(content, "text/event-stream")
    ) as sdk:
        client = OpenAIChatClient(sdk, MODEL)

        async def ours():
            async for _ in client.get_streaming_response("hi"):
                pass

        async def theirs():
            stream = await sdk.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
            )
            async for _ in stream:
                pass
            await stream.close()

        await least(1, ours)
        assert await least(5, ours) * 5 < await least(3, theirs)
