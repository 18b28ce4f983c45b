"""Two Anthropic servers behind an ordered failover: what one does wrong, the other makes good."""

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from chatrouting.errors import ChatClientError
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, Tool
from chatrouting.policies.classify import failover_by_kind
from chatrouting.routing.ordered import OrderedFailoverChatClient
from chatrouting.testing.provider_server import Reply
from chatrouting.usage import Usage


@pytest.fixture
def api(apis):
    return apis["anthropic"]


@asynccontextmanager
async def two_servers(serve, reply, **settings):
    """A answers `reply`, then well; B answers "B". Models of different generations."""
    other = Reply("B", usage=Usage(input_tokens=5, output_tokens=2))
    async with (
        serve(reply) as (a, at_a),
        serve(other, client={"model": "claude-sonnet-5"}) as (b, at_b),
    ):
        yield (a, b), OrderedFailoverChatClient({"a": at_a, "b": at_b}, **settings)


async def read(router, messages="hi", options=None):
    stream = router.get_streaming_response(messages, options)
    await stream.get_final_response()
    return stream


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
async def test_type_of_an_error_event_decides_on_failover(anyio_backend, serve, type_, moves_on):
    """[BR-13] The status of all of them is 200."""
    reply = Reply.stream_error(type=type_)
    async with two_servers(serve, reply, should_failover=failover_by_kind) as ((_, b), router):
        stream = router.get_streaming_response("hi")
        if moves_on:
            assert (await stream.get_final_response()).text == "B"
        else:
            with pytest.raises(ChatClientError):
                await stream.get_final_response()

        assert len(b.requests) == int(moves_on)


async def test_usage_of_the_broken_stream_is_in_its_record(anyio_backend, serve):
    """[BR-17] Both records, and a total that can be made of them."""
    used = Usage(input_tokens=30, output_tokens=9, cache_read_input_tokens=20)
    reply = replace(Reply.stream_error(at="content"), usage=used)
    async with two_servers(serve, reply) as (_, router):
        stream = await read(router)

        first, second = (attempt.usage for attempt in stream.attempts)
        assert first == Usage(input_tokens=30, output_tokens=1, cache_read_input_tokens=20)
        assert second == Usage(input_tokens=5, output_tokens=2)
        assert (first + second).total_tokens == 38


async def test_each_target_gets_what_it_can_take_in_both_modes(anyio_backend, serve):
    """[BR-77] The streamed fallback is prepared like the whole one; only the flag differs."""
    options = ChatOptions(temperature=0.3, reasoning_effort="none", tools=[Tool("go")])
    bodies = []
    for mode in ("whole", "streaming"):
        async with two_servers(serve, Reply.error(500)) as ((a, b), router):
            if mode == "whole":
                await router.get_response("hi", options)
            else:
                await read(router, "hi", options)
            bodies.append([server.requests[0].body for server in (a, b)])

    assert [body.pop("stream") for body in bodies[1]] == [True, True]
    assert bodies[0] == bodies[1]
    assert [body.get("temperature") for body in bodies[0]] == [0.3, None]


async def test_prefill_goes_to_the_target_that_takes_it(anyio_backend, serve):
    """[BR-87] A model without prefill is not eligible: nothing is sent to it."""
    messages = [ChatMessage("user", "Tell."), ChatMessage("assistant", "Once ")]
    async with two_servers(serve, Reply([" upon"])) as ((a, b), router):
        turned = OrderedFailoverChatClient(dict(reversed(router.routes.items())))
        response = await turned.get_response(messages)

        assert response.text == "upon"
        assert [attempt.route for attempt in response.attempts] == ["b", "a"]
        assert [len(a.requests), len(b.requests)] == [1, 0]
