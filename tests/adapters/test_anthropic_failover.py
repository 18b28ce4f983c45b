"""Two Anthropic servers behind an ordered failover: what one does wrong, the other makes good."""

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import anthropic
import httpx2
import pytest

from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.errors import ChatClientError, StreamInterruptedError
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, Tool
from chatrouting.policies.classify import failover_by_kind
from chatrouting.responses import FinishReason
from chatrouting.routing.ordered import OrderedFailoverChatClient
from chatrouting.testing.provider_server import MALFORMED_EVENT, ProviderServer, Reply, ToolCall
from chatrouting.usage import Usage


@asynccontextmanager
async def two_servers(reply, **settings):
    """A answers `reply`, then well; B answers "B". Models of different generations."""
    async with AsyncExitStack() as stack:
        servers, clients = [], {}
        for name, model, script in (
            ("a", "claude-haiku-4-5", [reply]),
            ("b", "claude-sonnet-5", [Reply("B", usage=Usage(input_tokens=5, output_tokens=2))]),
        ):
            server = await stack.enter_async_context(ProviderServer(*script))
            http = httpx2.AsyncClient(
                verify=False, limits=httpx2.Limits(max_connections=1), timeout=5
            )
            sdk = anthropic.AsyncAnthropic(
                base_url=server.anthropic_base_url, api_key="key", http_client=http
            )
            await stack.enter_async_context(sdk)
            servers.append(server)
            clients[name] = AnthropicChatClient(sdk, model)
        yield servers, OrderedFailoverChatClient(clients, **settings)


async def read(router, messages="hi", options=None):
    updates = []
    stream = router.get_streaming_response(messages, options)
    async for update in stream:
        updates.append(update)
    return updates, stream


CALL = ToolCall(id="toolu_1", arguments=["", "{}"])


@pytest.mark.parametrize(
    "reply",
    [
        Reply(drop_at=0),
        Reply(end_at="content"),
        Reply(insert={"content": MALFORMED_EVENT}),
        Reply.stream_error(at=1),
        replace(Reply.stream_error(at=3), tool_calls=[CALL]),
        Reply.error(529),
    ],
    ids=[
        "closed after the headers",
        "closed before output",
        "malformed before output",
        "overloaded inside",
        "overloaded inside an empty call",
        "overloaded",
    ],
)
async def test_fault_before_output_fails_over(anyio_backend, reply):
    """[BR-01] [BR-02] [BR-05] B's text, no update of A, one record each, A's connection free."""
    async with two_servers(reply) as ((a, b), router):
        updates, stream = await read(router)

        assert "".join(update.text for update in updates) == "B"
        assert {update.model for update in updates} == {"claude-sonnet-5"}
        assert [attempt.route for attempt in stream.attempts] == ["a", "b"]
        assert [attempt.outcome for attempt in stream.attempts] == ["failed", "completed"]
        assert [len(a.requests), len(b.requests)] == [1, 1]
        assert (await read(router))[1].partial_response.model == "claude-haiku-4-5"


async def test_cut_after_output_is_the_callers(anyio_backend):
    """[BR-01] Three chunks, then the end: a typed error with what came, and B is not asked."""
    async with two_servers(Reply(["a ", "b ", "c"], drop_at="after_content")) as ((_, b), router):
        stream = router.get_streaming_response("hi")
        with pytest.raises(StreamInterruptedError):
            await stream.get_final_response()

        assert stream.partial_response.text == "a b c"
        assert stream.attempts[0].failure.kind == "connection"
        assert b.requests == []


async def test_honestly_empty_stream_does_not_fail_over(anyio_backend):
    """[BR-08] B is not asked, the finish reason is A's."""
    async with two_servers(Reply("", finish_reason="stop")) as ((_, b), router):
        _, stream = await read(router)

        assert stream.partial_response.text == ""
        assert stream.finish_reason is FinishReason.STOP
        assert b.requests == []


@pytest.mark.parametrize(
    ("type_", "moves_on"),
    [
        ("overloaded_error", True),
        ("rate_limit_error", True),
        ("api_error", True),
        ("timeout_error", True),
        ("authentication_error", True),
        ("permission_error", True),
        ("not_found_error", True),
        ("request_too_large", True),
        ("billing_error", True),
        ("invalid_request_error", False),
    ],
)
async def test_type_of_an_error_event_decides_on_failover(anyio_backend, type_, moves_on):
    """[BR-13] The status of all of them is 200."""
    reply = Reply.stream_error(type=type_)
    async with two_servers(reply, should_failover=failover_by_kind) as ((_, b), router):
        stream = router.get_streaming_response("hi")
        if moves_on:
            assert (await stream.get_final_response()).text == "B"
        else:
            with pytest.raises(ChatClientError):
                await stream.get_final_response()

        assert len(b.requests) == int(moves_on)


async def test_usage_of_the_broken_stream_is_in_its_record(anyio_backend):
    """[BR-17] Both records, and a total that can be made of them."""
    used = Usage(input_tokens=30, output_tokens=9, cache_read_input_tokens=20)
    reply = replace(Reply.stream_error(at="content"), usage=used)
    async with two_servers(reply) as (_, router):
        _, stream = await read(router)

        first, second = (attempt.usage for attempt in stream.attempts)
        assert first == Usage(input_tokens=30, output_tokens=1, cache_read_input_tokens=20)
        assert second == Usage(input_tokens=5, output_tokens=2)
        assert (first + second).total_tokens == 38


async def test_each_target_gets_what_it_can_take_in_both_modes(anyio_backend):
    """[BR-77] The streamed fallback is prepared like the whole one; only the flag differs."""
    options = ChatOptions(temperature=0.3, reasoning_effort="none", tools=[Tool("go")])
    bodies = []
    for mode in ("whole", "streaming"):
        async with two_servers(Reply.error(500)) as ((a, b), router):
            if mode == "whole":
                await router.get_response("hi", options)
            else:
                await read(router, "hi", options)
            bodies.append([server.requests[0].body for server in (a, b)])

    assert [body.pop("stream") for body in bodies[1]] == [True, True]
    assert bodies[0] == bodies[1]
    assert [body.get("temperature") for body in bodies[0]] == [0.3, None]


async def test_prefill_goes_to_the_target_that_takes_it(anyio_backend):
    """[BR-87] A model without prefill is not eligible: nothing is sent to it."""
    messages = [ChatMessage("user", "Tell."), ChatMessage("assistant", "Once ")]
    async with two_servers(Reply([" upon"])) as ((a, b), router):
        turned = OrderedFailoverChatClient(dict(reversed(router.routes.items())))
        response = await turned.get_response(messages)

        assert response.text == "upon"
        assert [attempt.route for attempt in response.attempts] == ["b", "a"]
        assert [len(a.requests), len(b.requests)] == [1, 0]
