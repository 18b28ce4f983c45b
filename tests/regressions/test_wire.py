"""Reports about what goes over the wire, with the real SDKs against a provider server.

The HTTP client of each target has one connection: whoever keeps it makes the next call time out.
"""

from contextlib import AsyncExitStack, asynccontextmanager

import anthropic
import anyio
import httpx2
import openai
import pytest

from chatrouting import ChatOptions, OrderedFailoverChatClient, ReasoningContent
from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.adapters.openai_responses import OpenAIResponsesChatClient
from chatrouting.errors import BadRequestError, ContextLengthExceededError, UnsupportedOptionError
from chatrouting.policies.classify import failover_by_kind
from chatrouting.testing import Gate, ProviderServer, Reply

APIS = {
    "chat": (OpenAIChatClient, openai.AsyncOpenAI, "openai_base_url", "gpt-x"),
    "responses": (OpenAIResponsesChatClient, openai.AsyncOpenAI, "openai_base_url", "gpt-x"),
    "anthropic": (
        AnthropicChatClient,
        anthropic.AsyncAnthropic,
        "anthropic_base_url",
        "claude-haiku-4-5",
    ),
}


@pytest.fixture(params=list(APIS))
def api(request):
    return request.param


@asynccontextmanager
async def targets(api, **scripts):
    """Give a server and a client for each name; a script is a list of replies."""
    make_client, make_sdk, base_url, model = APIS[api]
    servers, clients = {}, {}
    async with AsyncExitStack() as stack:
        for name, script in scripts.items():
            server = await stack.enter_async_context(ProviderServer(*script, default=Reply(name)))
            limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
            http = httpx2.AsyncClient(verify=False, limits=limits, timeout=3)
            sdk = make_sdk(base_url=getattr(server, base_url), api_key="key", http_client=http)
            servers[name] = server
            clients[name] = make_client(await stack.enter_async_context(sdk), model)
        yield servers, clients


def counts(servers):
    return [len(server.requests) for server in servers.values()]


TOO_LONG = Reply.error(
    400, code="context_length_exceeded", message="prompt is too long: 9 tokens > 8 maximum"
)


async def test_a_prompt_too_long_for_one_goes_to_another_once(api, answer):
    """[BR-32] A 1, B 1: whoever refused it is not asked again."""
    async with targets(api, A=[TOO_LONG], B=[]) as (servers, clients):
        router = OrderedFailoverChatClient(clients, should_failover=failover_by_kind)
        response = await answer(router)

    assert response.text == "B"
    assert isinstance(response.attempts[0].exception, ContextLengthExceededError)
    assert counts(servers) == [1, 1]


async def test_a_request_that_is_wrong_everywhere_is_sent_once(api, answer):
    """[BR-32] A 1, B 0."""
    async with targets(api, A=[Reply.error(400)], B=[]) as (servers, clients):
        router = OrderedFailoverChatClient(clients, should_failover=failover_by_kind)
        with pytest.raises(BadRequestError):
            await answer(router)

    assert counts(servers) == [1, 0]


async def test_an_oversized_request_leaves_the_next_one_its_target(answer):
    """[BR-34] What is wrong with one request says nothing about the target."""
    async with targets("chat", A=[TOO_LONG], B=[]) as (_, clients):
        router = OrderedFailoverChatClient(clients, should_failover=failover_by_kind)
        texts = [(await answer(router)).text for _ in range(2)]

    assert texts == ["B", "A"]


async def test_the_first_real_error_is_not_buried(answer):
    """[BR-78] A cannot take an option, B refuses an extra: both stand on the error, in order."""
    unsupported = Reply.error(
        400, code="unsupported_parameter", message="Unsupported parameter: 'x'.", param="x"
    )
    unknown = Reply.error(400, message="extra: Extra inputs are not permitted.")
    async with targets("chat", A=[unsupported], B=[unknown]) as (_, clients):
        with pytest.raises(BadRequestError, match="Extra inputs") as caught:
            await answer(OrderedFailoverChatClient(clients))

    [note] = caught.value.__notes__
    assert "route 'A'" in note
    assert "status 400" in note
    assert "Unsupported parameter" not in note  # never the text of another error


async def test_an_option_that_a_target_cannot_carry_is_refused_before_it_is_sent():
    """[BR-78] A typed error and no crash about unknown arguments; the next target takes it."""
    async with (
        targets("responses", A=[]) as (servers, clients),
        targets("chat", B=[]) as (others, more),
    ):
        router = OrderedFailoverChatClient(clients | more)
        response = await router.get_response("Hi", ChatOptions(stop_sequences=["END"]))

    assert response.text == "B"
    assert isinstance(response.attempts[0].exception, UnsupportedOptionError)
    assert counts(servers) == [0]
    assert others["B"].requests[0].body["stop"] == ["END"]


#: An event that stands between the first reasoning and the last.
AMID_REASONING = {"chat": 2, "responses": 5, "anthropic": 3}


async def test_closed_amid_reasoning_the_connection_is_given_up(api):
    """[BR-67] [BR-68] Broken off by the consumer: the server sees it, and the next call works."""
    reply = Reply("text", reasoning=["a ", "b ", "c "], gates={AMID_REASONING[api]: Gate()})
    async with targets(api, A=[reply]) as (servers, clients):
        router = OrderedFailoverChatClient(clients)
        async with router.get_streaming_response("Hi") as stream:
            async for update in stream:
                if update.has_output:
                    break
        assert isinstance(update.contents[0], ReasoningContent)

        with anyio.fail_after(3):
            await servers["A"].requests[0].hung_up.wait()
            assert (await router.get_response("Hi")).text == "A"


async def test_closed_between_preamble_and_output_the_connection_is_given_up(api):
    """[BR-67] What was held back is dropped with the stream."""
    gate = Gate()
    async with targets(api, A=[Reply(gates={"content": gate})]) as (servers, clients):
        router = OrderedFailoverChatClient(clients)
        with anyio.CancelScope() as scope:
            async with (
                anyio.create_task_group() as tasks,
                router.get_streaming_response("Hi") as stream,
            ):
                tasks.start_soon(cancel_at, gate, scope)
                await anext(stream)

        assert scope.cancelled_caught
        with anyio.fail_after(3):
            await servers["A"].requests[0].hung_up.wait()
            assert (await router.get_response("Hi")).text == "A"


async def cancel_at(gate, scope):
    await gate.reached()
    scope.cancel()


@pytest.mark.parametrize(
    ("reply", "settings"),
    [
        pytest.param(Reply.stream_error(), {}, id="error inside"),
        pytest.param(Reply(drop_at="content"), {}, id="cut"),
        pytest.param(
            Reply(gates={"content": Gate()}), {"first_output_timeout": 0.1}, id="no output"
        ),
        pytest.param(Reply(gates={"headers": Gate()}), {"attempt_timeout": 0.1}, id="no answer"),
    ],
)
async def test_failed_over_the_connection_is_given_back(api, reply, settings):
    """[BR-68] Each way to leave a stream for another target closes it."""
    async with targets(api, A=[reply], B=[]) as (_, clients):
        router = OrderedFailoverChatClient(clients, **settings)
        async with router.get_streaming_response("Hi") as stream:
            assert (await stream.get_final_response()).text == "B"

        with anyio.fail_after(3):
            assert (await clients["A"].get_response("Hi")).text == "A"
