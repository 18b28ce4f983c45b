"""Edges of the loop: what is thrown away, and policies that are cut off."""

import asyncio

import anyio
import pytest

from chatrouting import FailoverChatClient, OrderedFailoverChatClient
from chatrouting.errors import OverloadedError
from chatrouting.scope import current_scope
from chatrouting.testing import ScriptedChatClient, fails, runs


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_selectors_own_cancellation_tells_of_the_attempt_before_it(anyio_backend, answer):
    class Router(FailoverChatClient):
        async def select_client(self, context):
            if context.previous_attempt is not None:
                raise asyncio.CancelledError
            return ScriptedChatClient(fails(OverloadedError))

    with pytest.raises(RuntimeError, match="policy raised a cancellation") as raised:
        await answer(Router())

    assert isinstance(raised.value.__cause__.__cause__, OverloadedError)


async def test_a_request_that_is_thrown_away_is_over_for_what_it_left_behind(mode):
    """A task that a client left behind begins a request of its own."""
    scopes = []

    async def keep(_):
        scopes.append(current_scope())
        await anyio.sleep_forever()

    router = OrderedFailoverChatClient([ScriptedChatClient(runs(keep))])
    request = (
        router.get_response("hi")
        if mode == "whole"
        else router.get_streaming_response("hi").__anext__()
    )
    request.send(None)
    request.close()

    assert [scope.is_ended for scope in scopes] == [True]


async def test_a_hook_that_is_thrown_away_takes_its_listener_along():
    heard = []

    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            await anyio.sleep_forever()

    async def listen(context, attempt, is_terminal):
        await anyio.lowlevel.checkpoint()
        heard.append(attempt)

    request = Router([ScriptedChatClient("a")], on_routing_update=listen).get_response("hi")
    request.send(None)
    request.close()

    assert heard == []
