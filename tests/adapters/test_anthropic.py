"""The Anthropic adapter over the real SDK, against a strict provider server."""

import json
import logging
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import fields

import anthropic
import anyio
import httpx2
import pytest

from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.client import ChatClient, ClientMetadata
from chatrouting.contents import (
    DataContent,
    ReasoningContent,
    TextContent,
    ToolCallContent,
    ToolResultContent,
)
from chatrouting.errors import (
    BadRequestError,
    ClientClosedError,
    ConfigurationError,
    RateLimitError,
    UnsupportedOptionError,
)
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, JsonSchemaFormat, RoutingHints, Tool
from chatrouting.responses import FinishReason
from chatrouting.testing.contract import check_chat_client
from chatrouting.testing.provider_server import Gate, ProviderServer, Reply, ToolCall
from chatrouting.usage import Usage

MODEL = "claude-haiku-4-5"
WEATHER = ToolCall(id="toolu_7", name="weather", arguments=['{"city"', ': "Oslo"}'])
COUNTS = Usage(
    input_tokens=100,
    output_tokens=20,
    cache_read_input_tokens=60,
    cache_write_input_tokens=10,
    reasoning_output_tokens=5,
)
RICH = Reply("Grüße, 世界", reasoning="Let me think.", tool_calls=[WEATHER], usage=COUNTS)


def sdk_client(server, *, max_retries=2):
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    # Without certificates to load, and with one connection, so that leaks show.
    http = httpx2.AsyncClient(verify=False, limits=limits, timeout=5)
    return anthropic.AsyncAnthropic(
        base_url=server.anthropic_base_url,
        api_key="secret-key",
        http_client=http,
        max_retries=max_retries,
    )


@asynccontextmanager
async def serving(*replies, model=MODEL, **settings):
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProviderServer(*replies, **settings))
        client = await stack.enter_async_context(sdk_client(server))
        yield server, AnthropicChatClient(client, model)


async def whole(client, messages="hi", options=None):
    return await client.get_response(messages, options)


async def streamed(client, messages="hi", options=None):
    return await client.get_streaming_response(messages, options).get_final_response()


@pytest.fixture(params=[whole, streamed], ids=["whole", "streaming"])
def ask(request):
    return request.param


# -- answers ---------------------------------------------------------------------------------------


async def test_rich_answer_reads_the_same_in_both_modes(anyio_backend):
    """[BR-77] Text, reasoning with its origin, tool calls, usage, ids."""
    async with serving(RICH, RICH) as (server, client):
        first, second = await whole(client), await streamed(client)

        assert first.messages[0].contents == second.messages[0].contents
        reasoning, text, call = second.messages[0].contents
        assert reasoning.text == "Let me think."
        assert reasoning.signature is not None
        assert reasoning.origin == f"anthropic {server.url} {MODEL}"
        assert text == TextContent("Grüße, 世界")
        assert call == ToolCallContent("toolu_7", "weather", {"city": "Oslo"}, '{"city": "Oslo"}')
        for response in (first, second):
            assert response.finish_reason is FinishReason.TOOL_CALLS
            assert response.usage == COUNTS
            assert response.model == MODEL
            assert response.response_id == response.messages[0].message_id is not None


async def test_bodies_are_the_same_in_both_modes(anyio_backend):
    """[BR-77] One preparation path: only the stream flag differs."""
    options = ChatOptions(temperature=0.3, tools=[Tool("weather")], instructions="be kind")
    async with serving() as (server, client):
        await whole(client, "hi", options)
        await streamed(client, "hi", options)

        first, second = (request.body for request in server.requests)
        assert second.pop("stream") is True
        assert first == second
        versions = [request.headers["anthropic-version"] for request in server.requests]
        assert versions == ["2023-06-01", "2023-06-01"]


async def test_whole_tool_round_is_accepted_by_a_strict_server(anyio_backend, ask):
    """[BR-81] [BR-85] Signed reasoning goes back, parallel results in one turn."""
    calls = [WEATHER, ToolCall(id="toolu_8", name="weather", arguments="{}")]
    thinks = Reply(None, reasoning="hm", redacted_reasoning="opaque", tool_calls=calls)
    async with serving(thinks, Reply("Cold.")) as (server, client):
        question = ChatMessage("user", ["Oslo?", DataContent(b"png", "image/png")])
        first = await ask(client, [question])
        results = [
            ChatMessage("tool", ToolResultContent("toolu_7", "-3")),
            ChatMessage("tool", ToolResultContent("toolu_8", "no city", is_error=True)),
        ]

        second = await ask(client, [question, *first.messages, *results, "So?"])

        assert second.text == "Cold."
        kinds = [
            [block["type"] for block in message["content"]]
            for message in server.requests[1].body["messages"]
        ]
        assert kinds == [
            ["text", "image"],
            ["thinking", "redacted_thinking", "tool_use", "tool_use"],
            ["tool_result", "tool_result", "text"],
        ]


async def test_reasoning_survives_a_visit_to_another_issuer(anyio_backend, ask):
    """[BR-81] A conversation from A to B to A: both accept it, and A gets its own blocks back."""
    thinks = Reply("a", reasoning="hm")
    async with serving(thinks, Reply("c")) as (a, at_a), serving(Reply("b")) as (b, at_b):
        conversation = [ChatMessage("user", "q")]
        for client in (at_a, at_b, at_a):
            response = await ask(client, conversation)
            conversation = [*conversation, *response.messages, ChatMessage("user", "and?")]

        assert conversation[1].contents[0].text == "hm"
        assert "thinking" not in json.dumps(b.requests[0].body)
        assert a.requests[1].body["messages"][1]["content"][0]["type"] == "thinking"


async def test_illegal_history_is_put_right_on_the_way_out(anyio_backend, ask):
    """[BR-84] [BR-86] A foreign conversation with all that the API refuses."""
    messages = [
        ChatMessage("system", "be kind"),
        ChatMessage("assistant", ["  ", ToolCallContent("call 1.0000:a", "look", {})]),
        ChatMessage("assistant", ToolCallContent("call 1.0000:b", "look", {}, "[1]")),
        ChatMessage("user", ""),
        ChatMessage("system", "be brief"),
        ChatMessage("tool", ToolResultContent("call 1.0000:b", "")),
        ChatMessage("user", " \n"),
    ]
    before = deepcopy(messages)
    async with serving() as (server, client):
        assert (await ask(client, messages)).text

        assert server.requests[0].refused is None
        assert messages == before


async def test_history_of_blanks_is_a_local_error(anyio_backend, ask):
    """[BR-86] Nothing is sent."""
    async with serving() as (server, client):
        with pytest.raises(BadRequestError, match="no message holds anything") as caught:
            await ask(client, [ChatMessage("user", " "), ChatMessage("assistant", "")])
        assert (caught.value.provider, caught.value.model) == ("anthropic", MODEL)

        assert server.requests == []


async def test_continued_text_has_its_space_once(anyio_backend, ask):
    """[BR-87] Continuation after partial text that ends in a space."""
    async with serving(Reply([" upon", " a time"])) as (server, client):
        response = await ask(client, ["Tell.", ChatMessage("assistant", "Once ")])

        assert "Once " + response.text == "Once upon a time"
        assert server.requests[0].body["messages"][-1]["content"][-1]["text"] == "Once"


async def test_refusal_is_an_answer(anyio_backend, ask):
    async with serving(Reply(None, refusal="I cannot.")) as (_, client):
        response = await ask(client)

        assert response.finish_reason is FinishReason.CONTENT_FILTER
        assert response.messages[0].contents[-1].text == "I cannot."
        assert response.additional_properties["stop_details"]["type"] == "refusal"


async def test_pause_is_an_answer(anyio_backend, ask):
    async with serving(Reply("so far", finish_reason="pause")) as (_, client):
        assert (await ask(client)).finish_reason is FinishReason.PAUSE


async def test_honestly_empty_answer_is_no_failure(anyio_backend, ask):
    """[BR-08] The end was proven; there is no output, and no error."""
    async with serving(Reply("", finish_reason="stop")) as (_, client):
        response = await ask(client)

        assert response.text == ""
        assert response.finish_reason is FinishReason.STOP


async def test_usage_that_never_came_is_unknown_not_zero(anyio_backend, ask):
    async with serving(Reply(usage=None)) as (_, client):
        assert (await ask(client)).usage is None


async def test_rate_limit_headers_of_a_success_are_kept(anyio_backend):
    headers = {"anthropic-ratelimit-requests-remaining": "7", "x-other": "no"}
    kept = {"anthropic-ratelimit-requests-remaining": "7"}
    async with serving(Reply(headers=headers), Reply(headers=headers)) as (_, client):
        assert (await whole(client)).rate_limit_headers == kept

        updates = [update async for update in client.get_streaming_response("hi")]
        assert [update.rate_limit_headers for update in updates] == [
            kept,
            *[None] * (len(updates) - 1),
        ]


# -- options ---------------------------------------------------------------------------------------


async def test_every_option_is_mapped_refused_or_logged(anyio_backend, caplog):
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
    async with serving() as (server, client):
        for name, (value, treatment) in treated.items():
            caplog.clear()
            options = ChatOptions(**{name: value})
            if treatment == "refused":
                with pytest.raises(UnsupportedOptionError):
                    await whole(client, "hi", options)
                continue
            await whole(client, "hi", options)
            body = server.requests[-1].body
            logged = [r.message for r in caplog.records if r.name == "chatrouting.adapters"]
            assert bool(logged) is (treatment == "logged"), name
            if callable(treatment):
                assert treatment(body) == value, name
            else:
                assert body.keys() == {"model", "max_tokens", "messages"}, name


async def test_long_whole_answer_is_asked_for(anyio_backend):
    """The SDK's own guard against long answers without a stream does not stand in the way."""
    async with serving() as (server, client):
        await whole(client, "hi", ChatOptions(max_output_tokens=64_000))

        assert server.requests[0].body["max_tokens"] == 64_000


async def test_model_of_the_options_overrides_that_of_the_adapter(anyio_backend, ask):
    async with serving() as (server, client):
        await ask(client, "hi", ChatOptions(model="claude-opus-4-5"))

        assert server.requests[0].model == "claude-opus-4-5"


async def test_no_model_at_all_is_a_configuration_error(anyio_backend, ask):
    async with serving(model=None) as (server, client):
        with pytest.raises(ConfigurationError, match="no model is named for anthropic"):
            await ask(client)

        assert server.requests == []


async def test_schema_arrives_as_output_format(anyio_backend, ask):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    async with serving(Reply('{"a": "b"}')) as (server, client):
        options = ChatOptions(response_format=JsonSchemaFormat("answer", schema))

        assert json.loads((await ask(client, "hi", options)).text) == {"a": "b"}
        assert server.requests[0].body["output_config"]["format"]["type"] == "json_schema"


# -- the client ------------------------------------------------------------------------------------


async def test_callers_client_is_neither_changed_nor_closed(anyio_backend, ask):
    """[BR-30] Our retries are off for our requests; the caller's setting stays."""
    async with (
        ProviderServer(default=Reply.error(429)) as server,
        sdk_client(server, max_retries=2) as mine,
    ):
        client = AnthropicChatClient(mine, MODEL)
        with pytest.raises(RateLimitError):
            await ask(client)
        await client.aclose()

        assert len(server.requests) == 1
        assert mine.max_retries == 2
        assert not mine.is_closed()


async def test_key_that_the_caller_replaces_is_used(anyio_backend, ask):
    async with ProviderServer(api_key="new-key") as server, sdk_client(server) as mine:
        client = AnthropicChatClient(mine, MODEL)
        mine.api_key = "new-key"

        assert (await ask(client)).text


async def test_closed_client_refuses(anyio_backend):
    async with serving() as (server, client):
        stream = client.get_streaming_response("hi")
        await client.aclose()
        await client.aclose()

        with pytest.raises(ClientClosedError):
            await client.get_response("hi")
        with pytest.raises(ClientClosedError):
            client.get_streaming_response("hi")
        with pytest.raises(ClientClosedError):
            await anext(stream)
        assert server.requests == []


async def test_missing_messages_are_a_type_error_at_the_call(anyio_backend):
    async with serving() as (_, client):
        with pytest.raises(TypeError):
            await client.get_response(None)
        with pytest.raises(TypeError):
            client.get_streaming_response(None)


async def test_stream_that_is_never_read_sends_nothing(anyio_backend):
    async with serving() as (server, client):
        await client.get_streaming_response("hi").aclose()

        assert server.requests == []


async def test_services(anyio_backend):
    async with serving() as (_, client):
        assert client.get_service(AnthropicChatClient) is client
        assert client.get_service(ChatClient) is client
        assert client.get_service(ClientMetadata) == ClientMetadata("anthropic", MODEL)
        assert isinstance(client.get_service(anthropic.AsyncAnthropic), anthropic.AsyncAnthropic)
        assert client.get_service(int) is None
        assert client.get_service(ClientMetadata, "key") is None
        with pytest.raises(TypeError):
            client.get_service(None)


@pytest.mark.parametrize("wrong", [object(), anthropic.Anthropic(api_key="k")], ids=type)
def test_wrong_client_is_a_type_error_at_once(wrong):
    with pytest.raises(TypeError, match="expected AsyncAnthropic"):
        AnthropicChatClient(wrong)


@pytest.mark.parametrize("settings", [{"max_output_tokens": 0}, {"decode": "fast"}], ids=str)
def test_wrong_setting_is_a_configuration_error_at_once(settings):
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        AnthropicChatClient(**settings)


def test_client_is_made_from_the_environment_for_each_event_loop(monkeypatch):
    """[BR-71] Three event loops, one adapter; a client made here is closed here."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "env-key")
    client = AnthropicChatClient(model=MODEL)
    made = []

    async def once(last):
        async with ProviderServer(api_key="env-key") as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_base_url)
            assert (await streamed(client)).text
            assert (await whole(client)).text
            made.append(client.get_service(anthropic.AsyncAnthropic))
            if last:
                await client.aclose()
            else:
                await made[-1].close()

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(once, len(made) == 2, backend=backend)
    assert len({id(one) for one in made}) == 3
    assert made[-1].is_closed()


async def test_environment_without_a_credential_is_a_configuration_error(
    anyio_backend, ask, monkeypatch, tmp_path
):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    async with AnthropicChatClient(model=MODEL) as client:
        with pytest.raises(ConfigurationError, match="set ANTHROPIC_API_KEY"):
            await ask(client)


# -- cost ------------------------------------------------------------------------------------------


async def test_large_conversation_does_not_hold_up_the_event_loop(anyio_backend):
    """200 messages take well under 5 ms of the event loop at a time."""
    messages = [
        ChatMessage("assistant" if n % 2 else "user", [f"message {n} " + "word " * 40, "and more"])
        for n in range(199)
    ]
    if sys.gettrace() is not None:
        pytest.skip("times mean nothing while every line is traced")
    async with serving() as (_, client):
        await whole(client)
        await whole(client, messages)
        longest = []
        for _ in range(5):
            started = time.thread_time()
            call, _ = client._written(*client._begin(messages, None), is_streaming=False)
            longest.append(time.thread_time() - started)

        assert call.body["messages"]
        assert min(longest) < 0.005


async def test_log_lines_hold_no_content(anyio_backend, ask, caplog):
    with caplog.at_level(logging.INFO):
        async with serving() as (_, client):
            await ask(client, "my secret prompt", ChatOptions(seed=1, metadata={"a": "secret"}))

    ours = [record for record in caplog.records if record.name.startswith("chatrouting")]
    assert ours
    assert not any("secret" in record.getMessage() for record in ours)


async def test_reasoning_of_nobody_is_dropped_not_said(anyio_backend, ask):
    """Reasoning without an origin, as from a mapping, is neither sent nor turned into text."""
    thought = ReasoningContent("private thought", "sig")
    async with serving() as (server, client):
        await ask(client, ["q", ChatMessage("assistant", [thought, "a"]), "and?"])

        assert "private thought" not in json.dumps(server.requests[0].body)


# -- the contract ----------------------------------------------------------------------------------


async def test_contract_of_a_chat_client_is_kept(anyio_backend):
    waits = Reply("a b c", gates={"content": Gate()})
    async with (
        ProviderServer() as server,
        ProviderServer(default=waits) as slow,
        anthropic.AsyncAnthropic(
            base_url=server.anthropic_base_url,
            api_key="key",
            http_client=httpx2.AsyncClient(verify=False),
        ) as sdk,
    ):
        counted = {}

        def make(client, place):
            made = AnthropicChatClient(client, MODEL)
            counted[made] = place, len(place.requests)
            return made

        def count(client):
            place, before = counted[client]
            return len(place.requests) - before

        slow_sdk = sdk.with_options(base_url=slow.anthropic_base_url)
        checked = await check_chat_client(
            lambda: make(sdk, server),
            make_waiting_client=lambda: make(slow_sdk, slow),
            count_requests=count,
        )

    assert len(checked) > 5
