"""What holds for each of the three chat clients, over the real SDKs and a strict server."""

import gc
import json
import logging
import sys
import time
from contextlib import asynccontextmanager
from copy import deepcopy

import anthropic
import anyio
import httpx2
import openai
import pytest

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
    ChatClientError,
    ClientClosedError,
    ConfigurationError,
    UnsupportedOptionError,
)
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, Principal, RoutingHints, Tool
from chatrouting.responses import FinishReason
from chatrouting.testing.contract import check_chat_client
from chatrouting.testing.provider_server import Gate, ProviderServer, Reply, ToolCall
from chatrouting.usage import Usage

WEATHER = ToolCall(id="call_7", name="weather", arguments=['{"city"', ': "Oslo"}'])
COUNTS = Usage(
    input_tokens=100,
    output_tokens=20,
    cache_read_input_tokens=60,
    cache_write_input_tokens=10,
    reasoning_output_tokens=5,
)
RICH = Reply("Grüße, 世界", reasoning="Hm.", tool_calls=[WEATHER], usage=COUNTS, id="answer_7")


# -- answers ---------------------------------------------------------------------------------------


async def test_a_rich_answer_reads_the_same_in_both_modes(anyio_backend, api, serve, decode):
    """[BR-77] Text, reasoning with its origin, a call, usage with its parts, ids and time."""
    async with serve(RICH, RICH, decode=decode) as (_, client):
        first = await client.get_response("hi")
        second = await client.get_streaming_response("hi").get_final_response()

    for response in (first, second):
        reasoning, text, call = (part for said in response.messages for part in said.contents)
        assert reasoning.text == "Hm."
        assert reasoning.origin.startswith(api.provider)
        assert text == TextContent("Grüße, 世界")
        assert call == ToolCallContent("call_7", "weather", {"city": "Oslo"}, '{"city": "Oslo"}')
        assert response.finish_reason is FinishReason.TOOL_CALLS
        assert response.usage == COUNTS
        assert (response.response_id, response.model) == ("answer_7", api.model)
        # The Messages API does not say when.
        assert (response.created_at is None) is (api.name == "anthropic")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("max_messages", "max_messages"),
    ],
)
async def test_finish_reasons_are_ours_or_pass_through(anyio_backend, serve, ask, word, reason):
    """A word that is unknown stays as it is."""
    async with serve(Reply("cut", finish_reason=word)) as (_, client):
        assert (await ask(client)).finish_reason == reason


async def test_an_honestly_empty_answer_is_an_answer(anyio_backend, serve, ask):
    """[BR-08] The end was proven; there is no output, and no error."""
    async with serve(Reply("")) as (_, client):
        response = await ask(client)

    assert (response.text, response.finish_reason) == ("", FinishReason.STOP)


async def test_usage_that_never_came_is_unknown_not_zero(anyio_backend, serve, ask):
    async with serve(Reply(usage=None)) as (_, client):
        assert (await ask(client)).usage is None


async def test_rate_limit_headers_come_with_the_answer(anyio_backend, serve, decode):
    """On a whole answer, and on the first update only; nothing but the rate-limit families."""
    limits = {
        "x-ratelimit-remaining-tokens": "7",
        "anthropic-ratelimit-requests-remaining": "8",
        "retry-after": "9",
    }
    reply = Reply(headers={**limits, "x-other": "no", "set-cookie": "a=b"})
    async with serve(reply, reply, decode=decode) as (_, client):
        response = await client.get_response("hi")
        updates = [update async for update in client.get_streaming_response("hi")]

    assert response.rate_limit_headers == limits
    assert updates[0].rate_limit_headers == limits
    assert not any(update.rate_limit_headers for update in updates[1:])


@pytest.mark.parametrize(
    "shape",
    [
        {"pings": True},
        {"line_end": "\r\n"},
        {"line_end": "\r"},
        {"write_size": 1},
        {"write_size": 7, "line_end": "\r\n", "pings": True},
        {"event_names": False},
        {"insert": {"content": "event: something_new\ndata: {}\n\n", "end": "data: [DONE]\n\n"}},
        {"insert": {"content": 'data: {"type": "something_new"}\n\n'}},
    ],
    ids=str,
)
async def test_a_stream_is_read_in_every_shape(anyio_backend, serve, shape):
    """Also cut inside a UTF-8 character, and without the event names that an SDK insists on."""
    async with serve(Reply("Grüße, 世界 🙂", **shape)) as (_, client):
        response = await client.get_streaming_response("hi").get_final_response()

    assert response.text == "Grüße, 世界 🙂"
    assert response.finish_reason is FinishReason.STOP


async def test_updates_that_are_ready_need_no_wait(anyio_backend, serve):
    """One read of the socket can hold many events."""
    async with serve(Reply(["a"] * 50)) as (server, client):
        stream = client.get_streaming_response("hi")
        await anext(stream)
        await server.requests[0].done.wait()

        assert (await stream.get_final_response()).text == "a" * 50


async def test_a_slow_first_chunk_holds_nobody_up(anyio_backend, serve):
    """While one stream waits for its first byte, others are read to their ends."""
    gate = Gate()
    slow = Reply("slow", gates={0: gate})
    async with (
        serve(slow, http={"connections": 2}) as (_, client),
        client.get_streaming_response("hi") as waiting,
        anyio.create_task_group() as group,
    ):
        group.start_soon(anext, waiting)
        await gate.reached()
        with anyio.fail_after(3):
            for _ in range(3):
                assert (await client.get_streaming_response("hi").get_final_response()).text
        gate.open()


async def test_one_client_serves_many_tasks(anyio_backend, serve, ask):
    async with serve(http={"connections": 5}) as (server, client):
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(ask, client)

        assert len(server.requests) == 10


# -- requests --------------------------------------------------------------------------------------


async def test_bodies_differ_in_the_mode_alone(anyio_backend, serve):
    """[BR-77] One preparation path."""
    options = ChatOptions(
        temperature=0.3, tools=[Tool("weather")], tool_choice="auto", instructions="be kind"
    )
    async with serve() as (server, client):
        await client.get_response("hi", options)
        await client.get_streaming_response("hi", options).get_final_response()

    first, second = (request.body for request in server.requests)
    assert second.pop("stream") is True
    second.pop("stream_options", None)
    assert first == second


def foreign_history():
    """A conversation with all that the APIs refuse."""
    long = "toolu 1.0:" + "x" * 80
    return [
        ChatMessage("system", "be kind"),
        ChatMessage("tool", ToolResultContent("gone", "of a call that was cut off")),
        ChatMessage("assistant", ["  ", ToolCallContent(long + "a", "look", {})]),
        ChatMessage("assistant", ToolCallContent(long + "b", "look", {}, "[1]")),
        ChatMessage("user", ""),
        ChatMessage("system", "be brief"),
        ChatMessage("tool", ToolResultContent(long + "b", "")),
        ChatMessage("assistant", ReasoningContent("private thought", "sealed", "elsewhere")),
        ChatMessage("assistant", ReasoningContent("private thought", "sig")),
        ChatMessage("assistant", [ToolCallContent("", "look", {}), ToolCallContent("", "go", {})]),
        ChatMessage("user", [ToolResultContent("", "1"), "and", DataContent(b"png", "image/png")]),
        ChatMessage("user", " \n"),
    ]


async def test_an_illegal_history_is_put_right_on_the_way_out(anyio_backend, serve, ask):
    """[BR-76] [BR-81] [BR-84] [BR-86] The server takes the copy, the caller's stays as it is.

    Reasoning of others and of nobody is left out, never turned into text.
    """
    messages = foreign_history()
    before = deepcopy(messages)
    async with serve() as (server, client):
        assert (await ask(client, messages)).text

    assert server.requests[0].refused is None
    assert messages == before
    assert "private thought" not in server.requests[0].raw_body.decode()


async def test_the_callers_request_stays_as_it_is(anyio_backend, serve, ask):
    """[BR-76] Also where it is made of plain dictionaries."""
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    options = ChatOptions(tools=[Tool("f", parameters={"type": "object"})], metadata={"a": "b"})
    before = deepcopy((messages, options))
    async with serve() as (_, client):
        await ask(client, messages, options)

    assert (messages, options) == before


async def test_what_cannot_be_sent_is_refused_before_sending(anyio_backend, api, serve, ask):
    """[BR-86] A history of blanks, and what the API cannot carry; the error says whose it is."""
    blank = [ChatMessage("user", " "), ChatMessage("assistant", "")]
    video = [ChatMessage("user", DataContent(b"v", "video/mp4"))]
    async with serve() as (server, client):
        with pytest.raises(BadRequestError, match="no message holds anything") as first:
            await ask(client, blank)
        with pytest.raises(UnsupportedOptionError, match="video/mp4") as second:
            await ask(client, video)

        assert server.requests == []
    for caught in (first, second):
        assert (caught.value.provider, caught.value.model) == (api.provider, api.model)


async def test_routing_hints_are_never_sent(anyio_backend, serve, ask):
    hints = RoutingHints(
        session_id="hint-1", principal=Principal(tenant="hint-2"), tags={"hint-3": "hint-4"}
    )
    async with serve() as (server, client):
        await ask(client, "hi", ChatOptions(routing=hints))

    assert b"hint-" not in server.requests[0].raw_body
    assert "hint-" not in json.dumps(dict(server.requests[0].headers))


async def test_log_lines_hold_names_only(anyio_backend, serve, ask, caplog):
    """What is dropped is logged once, by name."""
    options = ChatOptions(top_k=3, allow_multiple_tool_calls=True, metadata={"user_id": "secret"})
    with caplog.at_level(logging.INFO):
        async with serve() as (_, client):
            await ask(client, "my secret prompt", options)

    (record,) = [record for record in caplog.records if record.name == "chatrouting.adapters"]
    assert record.getMessage().startswith("adapters.options_dropped provider=")
    assert "allow_multiple_tool_calls" in record.getMessage()
    assert "secret" not in record.getMessage()


async def test_the_model_of_the_options_counts_more(anyio_backend, serve, ask):
    async with serve() as (server, client):
        response = await ask(client, "hi", ChatOptions(model="claude-opus-4-5"))

    assert server.requests[0].model == response.model == "claude-opus-4-5"


async def test_without_a_model_there_is_nothing_to_ask(anyio_backend, api, serve, ask):
    async with serve(client={"model": None}) as (server, client):
        name = type(client).__name__
        with pytest.raises(ConfigurationError, match=rf"{name}\(client, model\)"):
            await ask(client)

        assert server.requests == []
    assert client.get_service(ClientMetadata) == ClientMetadata(api.provider, None)


async def test_a_partial_answer_is_continued_with_one_space(anyio_backend, api, serve, ask):
    """[BR-87] Trimmed on the copy where the API wants it, and joined with exactly one."""
    async with serve(Reply([" upon" if api.name == "anthropic" else "upon", " a time"])) as (
        server,
        client,
    ):
        response = await ask(client, ["Tell.", ChatMessage("assistant", "Once ")])

    assert "Once " + response.text == "Once upon a time"
    assert server.requests[0].refused is None


# -- the client ------------------------------------------------------------------------------------


async def test_the_contract_of_chat_clients_is_kept(anyio_backend, api, decode, make_http_client):
    async with (
        ProviderServer(default=Reply("Hello.", id="1")) as server,
        ProviderServer(default=Reply(gates={"content": Gate()})) as slow,
        make_http_client(connections=20) as http,
    ):
        asked = {}

        def make(place):
            client = api.client_class(api.sdk(place, http), api.model, decode=decode)
            asked[client] = place, len(place.requests)
            return client

        def count(client):
            place, before = asked[client]
            return len(place.requests) - before

        checked = await check_chat_client(
            lambda: make(server), make_waiting_client=lambda: make(slow), count_requests=count
        )

    assert len(checked) > 5


async def test_services_are_found_by_their_class(anyio_backend, api, serve):
    async with serve() as (_, client):
        assert client.get_service(api.client_class) is client
        assert client.get_service(ChatClient) is client
        assert client.get_service(ClientMetadata) == ClientMetadata(api.provider, api.model)
        assert isinstance(client.get_service(api.sdk_class), api.sdk_class)
        assert client.get_service(httpx2.AsyncClient) is None
        assert client.get_service(ClientMetadata, "key") is None
        assert client.get_service(api.client_class, "key") is None
        with pytest.raises(TypeError, match="service_type"):
            client.get_service(None)


async def test_closing_leaves_a_given_client_open(anyio_backend, api, serve, ask):
    async with serve() as (server, client):
        sdk = client.get_service(api.sdk_class)
        stream = client.get_streaming_response("hi")
        async with client:
            pass
        await client.aclose()

        with pytest.raises(ClientClosedError):
            await client.get_response("hi")
        with pytest.raises(ClientClosedError):
            client.get_streaming_response("hi")
        with pytest.raises(ClientClosedError):
            await anext(stream)
        assert server.requests == []
        assert not sdk.is_closed()
        async with api.client_class(sdk, api.model) as second:
            assert (await ask(second)).text


async def test_nothing_is_sent_before_the_first_read(anyio_backend, serve):
    async with serve() as (server, client):
        stream = client.get_streaming_response("hi")
        await anyio.wait_all_tasks_blocked()
        await client.get_streaming_response("hi").aclose()
        async with client.get_streaming_response("hi"):
            pass
        assert server.requests == []

        assert (await stream.get_final_response()).text


async def test_missing_messages_are_refused_at_the_call(anyio_backend, api):
    client = api.client_class(model=api.model)
    with pytest.raises(TypeError, match="NoneType"):
        client.get_streaming_response(None)
    with pytest.raises(TypeError, match="NoneType"):
        await client.get_response(None)


@pytest.mark.parametrize(
    "wrong", [openai.OpenAI(api_key="k"), anthropic.Anthropic(api_key="k"), "a key", object()],
    ids=["openai", "anthropic", "text", "object"],
)  # fmt: skip
def test_a_client_of_another_kind_is_refused_when_it_is_built(api, wrong):
    with pytest.raises(TypeError, match=f"expected (an )?{api.sdk_class.__name__}"):
        api.client_class(wrong, api.model)


def test_an_unknown_decoder_is_refused_when_it_is_built(api):
    with pytest.raises(ConfigurationError, match="'fast'; expected 'own' or 'sdk'"):
        api.client_class(decode="fast")


async def test_a_key_that_the_caller_replaces_is_used(anyio_backend, api, serve, ask):
    async with serve(api_key="new") as (_, client):
        client.get_service(api.sdk_class).api_key = "new"
        assert (await ask(client)).text


def test_a_client_of_its_own_is_made_for_each_event_loop(api, monkeypatch):
    """[BR-71] Three event loops, one adapter: connections belong to a loop. It is closed here."""
    url, key = api.variables
    monkeypatch.setenv(key, "from-the-environment")
    client = api.client_class(model=api.model)
    made = []

    async def once(is_last):
        async with ProviderServer(api_key="from-the-environment") as server:
            monkeypatch.setenv(url, api.base_url(server))
            assert (await client.get_response("hi")).text
            assert (await client.get_streaming_response("hi").get_final_response()).text
            made.append(client.get_service(api.sdk_class))
            if is_last:
                await client.aclose()
            else:
                await made[-1].close()

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(once, len(made) == 2, backend=backend)
    assert len({id(one) for one in made}) == 3
    assert made[-1].is_closed()


async def test_without_a_credential_the_error_says_what_to_set(
    anyio_backend, api, ask, monkeypatch, tmp_path
):
    for name in (api.variables[1], "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    async with api.client_class(model=api.model) as client:
        assert client.get_service(api.sdk_class) is None
        with pytest.raises(ConfigurationError, match=f"set {api.variables[1]}"):
            await ask(client)


# -- cost ------------------------------------------------------------------------------------------

untraced = pytest.mark.skipif(
    sys.gettrace() is not None, reason="a tracer costs more than the code"
)


class Replay(httpx2.AsyncBaseTransport):
    """Asks the server once, and gives the same bytes at once ever after.

    So only the client's own time counts.
    """

    def __init__(self):
        self.inner = httpx2.AsyncHTTPTransport(verify=False)
        self.answer = None

    async def handle_async_request(self, request):
        if self.answer is None:
            response = await self.inner.handle_async_request(request)
            content = b"".join([piece async for piece in response.stream])
            self.answer = {"content-type": response.headers["content-type"]}, content
            await self.inner.aclose()
        headers, content = self.answer
        return httpx2.Response(200, headers=headers, content=content)


@asynccontextmanager
async def replaying(api, reply):
    http = httpx2.AsyncClient(transport=Replay())
    async with ProviderServer(reply) as server, api.sdk(server, http) as sdk:
        yield sdk


async def cost(action):
    """Seconds of processor time that an action takes. What shares the machine only adds to it."""
    started = time.thread_time()
    await action()
    return time.thread_time() - started


async def least_cost(action, repetitions):
    return min([await cost(action) for _ in range(repetitions)])


async def costs_less(action, limit):
    """Say whether an action takes less than `limit`: one run of many proves it."""
    for _ in range(100):
        if await cost(action) < limit:
            return True
    return False


@untraced
@pytest.mark.parametrize("form", ["mappings", "contents"])
async def test_a_long_conversation_does_not_hold_up_the_event_loop(anyio_backend, api, form):
    """200 messages and their answer cost 2 to 5 ms on a quiet machine.

    The OpenAI SDK's own methods walk them against its type unions, for 50 to 180 ms; the bound
    lies between, so that a busy machine does not decide.
    """
    words = [f"message {number} " + "word " * 40 for number in range(199)]
    roles = ["user", "assistant"] * 100
    if form == "mappings":
        messages = [{"role": r, "content": w} for r, w in zip(roles, words, strict=False)]
    else:
        messages = [ChatMessage(r, [w]) for r, w in zip(roles, words, strict=False)]
    async with replaying(api, Reply("Hello.")) as sdk:
        client = api.client_class(sdk, api.model)
        await client.get_response(messages)

        assert await costs_less(lambda: client.get_response(messages), 0.02)


#: How many times less than the SDK's own iteration an update costs at least. The Anthropic SDK
#: builds no unions for its events.
CHEAPER = {"chat": 5, "responses": 5, "anthropic": 1.5}


@untraced
async def test_an_update_costs_a_fraction_of_the_sdks_own_iteration(anyio_backend, api):
    """Relative, so that the machine does not matter; with the stream object around it."""
    messages = [{"role": "user", "content": "hi"}]

    async def ours():
        assert len([update async for update in client.get_streaming_response("hi")]) > 300

    async def theirs():
        if api.name == "chat":
            made = sdk.chat.completions.create(model="m", messages=messages, stream=True)
        elif api.name == "responses":
            made = sdk.responses.create(model="m", input="hi", stream=True)
        else:
            made = sdk.messages.create(model="m", max_tokens=9, messages=messages, stream=True)
        stream = await made
        assert len([event async for event in stream]) > 300
        await stream.close()

    async with replaying(api, Reply(["word "] * 300)) as sdk:
        client = api.client_class(sdk, api.model)
        await ours()
        limit = await least_cost(theirs, 3) / CHEAPER[api.name]
        assert await costs_less(ours, limit)


@pytest.mark.filterwarnings("error:Async generator:ResourceWarning")
async def test_no_generator_of_the_http_library_is_left_to_the_collector(
    anyio_backend, serve, cancel_at
):
    """Not after a whole stream, an early close, a cancellation, an error, or a cut."""

    async def read():
        await client.get_streaming_response("hi").get_final_response()

    gate = Gate()
    waits = [Reply("a b c", gates={"after_content": each}) for each in (Gate(), gate)]
    replies = [Reply(), *waits, Reply.stream_error(), Reply("a b", drop_at="after_content")]
    async with serve(*replies) as (_, client):
        await read()
        async with client.get_streaming_response("hi") as stream:
            await anext(stream)
        await cancel_at(gate, read)
        for _ in range(2):
            with pytest.raises(ChatClientError):
                await read()
        gc.collect()
