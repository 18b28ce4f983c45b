"""What a request carries with it, and what it lets go at its end."""

import gc
import weakref

import anyio.lowlevel
import pytest

from chatrouting import (
    ChatOptions,
    FailoverChatClient,
    OrderedFailoverChatClient,
    RetryChatClient,
    RoutingChatClient,
    RoutingHints,
)
from chatrouting.errors import OverloadedError
from chatrouting.scope import CLOSING_LIMIT, current_scope
from chatrouting.testing import ScriptedChatClient, fails, runs


def selecting(client):
    return RoutingChatClient(lambda context: context.next_route(), routes=[client])


@pytest.mark.parametrize(
    "nest",
    [
        pytest.param(lambda leaf: OrderedFailoverChatClient([leaf]), id="one"),
        pytest.param(lambda leaf: RetryChatClient(selecting(leaf)), id="two"),
        pytest.param(
            lambda leaf: FailoverChatClient(
                lambda context: context.next_route(),
                routes=[RetryChatClient(selecting(leaf), attempt_timeout=600.0)],
                first_output_timeout=600.0,
            ),
            id="three, with timers",
        ),
    ],
)
@pytest.mark.parametrize("script", [("a", "b"), (fails(OverloadedError),), ("a", fails(KeyError))])
@pytest.mark.parametrize("is_left", [False, True], ids=["read", "left"])
async def test_a_router_that_is_dropped_dies_whatever_timers_it_had(nest, script, is_left):
    """[BR-72] Nobody waits for a timer to go off.

    asyncio keeps a cancelled timer, with the context variables it was set in, until it
    would have gone off. What hangs on a scope by then must not be the clients.
    """
    leaf = ScriptedChatClient(*script)
    client = nest(leaf)
    options = ChatOptions(routing=RoutingHints(timeout=600.0))
    parts = [weakref.ref(leaf), weakref.ref(client)]

    for given in (None, options):
        async with client.get_streaming_response("Hi", given) as stream:
            try:
                async for _ in stream:
                    if is_left:
                        break
            except (OverloadedError, KeyError):
                pass
        parts.append(weakref.ref(stream))
    del leaf, client, stream, nest
    # On Python 3.12 trio keeps the last exception of a task until the task's next turn.
    await anyio.lowlevel.checkpoint()
    gc.collect()

    assert [part() for part in parts if part() is not None] == []


@pytest.mark.virtual_time
async def test_a_scope_that_is_over_knows_nothing_of_its_request(anyio_backend):
    """What was left behind may still hold it; the time that its parent had for closing is over."""
    scopes = []
    router = OrderedFailoverChatClient(
        [selecting(ScriptedChatClient(runs(lambda _: scopes.append(current_scope())), "a"))]
    )
    await router.get_response("Hi")
    [scope] = scopes
    scope.parent.closing_deadline()
    await anyio.sleep(10)

    assert (scope.request_id, scope.deadline, scope.tickets) == ("", None, {})
    assert not scope.waits_together
    assert scope.closing_deadline() == anyio.current_time() + CLOSING_LIMIT
