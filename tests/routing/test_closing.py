"""Who closes what, and what a closed router does."""

import asyncio

import anyio
import pytest

from chatrouting import DelegatingChatClient, OrderedFailoverChatClient, RoutingChatClient
from chatrouting.errors import ClientClosedError
from chatrouting.testing import ScriptedChatClient


class Equal(DelegatingChatClient):
    """Equal to every other client of its class, as careless value types are."""

    def __eq__(self, other):
        return isinstance(other, Equal)

    __hash__ = None  # type: ignore[assignment]  # unhashable too


async def test_a_selected_client_that_was_not_given_stays_the_callers(answer):
    """[routing 15]"""
    client = ScriptedChatClient("ok")
    router = RoutingChatClient(lambda _: client)
    await answer(router)

    await router.aclose()

    assert client.close_count == 0


async def test_closing_twice_closes_each_client_once():
    """[routing 87]"""
    clients = [ScriptedChatClient(), ScriptedChatClient()]
    router = OrderedFailoverChatClient(clients)

    await router.aclose()
    await router.aclose()

    assert [client.close_count for client in clients] == [1, 1]


async def test_clients_that_are_equal_are_closed_each():
    """[routing 87] Identity counts, not equality."""
    clients = [ScriptedChatClient(), ScriptedChatClient()]

    await OrderedFailoverChatClient([Equal(client) for client in clients]).aclose()

    assert [client.close_count for client in clients] == [1, 1]


async def test_a_client_at_two_positions_is_closed_once():
    """[routing 88]"""
    client = ScriptedChatClient()

    await OrderedFailoverChatClient([client, client]).aclose()

    assert client.close_count == 1


async def test_leave_open_leaves_the_clients_open():
    """[routing 89]"""
    client = ScriptedChatClient()

    await OrderedFailoverChatClient([client], leave_open=True).aclose()

    assert client.close_count == 0


async def test_routes_of_a_plain_router_are_closed():
    client = ScriptedChatClient()

    await RoutingChatClient(lambda _: None, routes={"a": client}).aclose()

    assert client.close_count == 1


async def test_a_router_closes_itself_at_the_end_of_its_block(answer):
    client = ScriptedChatClient("ok")

    async with OrderedFailoverChatClient([client]) as router:
        await answer(router)
        assert client.close_count == 0

    assert client.close_count == 1


async def test_closing_reaches_nested_clients():
    client = ScriptedChatClient()

    await OrderedFailoverChatClient([OrderedFailoverChatClient([client])]).aclose()

    assert client.close_count == 1


async def test_one_failing_close_is_raised_as_itself_after_all_are_closed():
    error, last = OSError("close"), ScriptedChatClient()
    router = OrderedFailoverChatClient([ScriptedChatClient(close_error=error), last])

    with pytest.raises(OSError, match="close") as raised:
        await router.aclose()

    assert raised.value is error
    assert last.close_count == 1


async def test_several_failing_closes_are_raised_as_a_group():
    errors, last = [OSError("a"), KeyError("b")], ScriptedChatClient()
    clients = [ScriptedChatClient(close_error=error) for error in errors]

    with pytest.raises(ExceptionGroup) as raised:
        await OrderedFailoverChatClient([*clients, last]).aclose()

    assert list(raised.value.exceptions) == errors
    assert last.close_count == 1


async def test_a_close_that_failed_is_not_tried_again():
    client = ScriptedChatClient(close_error=OSError("close"))
    router = OrderedFailoverChatClient([client])
    with pytest.raises(OSError, match="close"):
        await router.aclose()

    await router.aclose()

    assert client.close_count == 1


async def test_a_cancelled_close_closes_the_rest_all_the_same():
    scope = anyio.CancelScope()

    class Slow(DelegatingChatClient):
        async def aclose(self):
            scope.cancel()
            await anyio.lowlevel.checkpoint()

    class Waiting(DelegatingChatClient):
        async def aclose(self):
            await anyio.lowlevel.checkpoint()
            await self.inner.aclose()

    last = ScriptedChatClient()
    with scope:
        await OrderedFailoverChatClient([Slow(ScriptedChatClient()), Waiting(last)]).aclose()

    assert scope.cancelled_caught
    assert last.close_count == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_close_that_cancels_itself_is_an_error_like_any_other(anyio_backend):
    """Nobody cancels the caller, so that the rest is closed and the caller goes on."""
    last = ScriptedChatClient()
    first = ScriptedChatClient(close_error=asyncio.CancelledError())

    with pytest.raises(RuntimeError, match="cancelled from inside"):
        await OrderedFailoverChatClient([first, last]).aclose()

    assert last.close_count == 1


@pytest.mark.parametrize("leave_open", [False, True])
async def test_a_closed_router_refuses_requests(answer, leave_open):
    client = ScriptedChatClient("never")
    router = OrderedFailoverChatClient([client], leave_open=leave_open, name="front")
    await router.aclose()

    with pytest.raises(ClientClosedError, match="front"):
        await answer(router)

    assert client.calls == []


async def test_a_closed_router_refuses_a_stream_where_it_is_asked_for():
    router = OrderedFailoverChatClient([ScriptedChatClient()])
    await router.aclose()

    with pytest.raises(ClientClosedError, match="OrderedFailoverChatClient"):
        router.get_streaming_response("Hi")


async def test_a_stream_that_was_never_read_can_be_closed_after_its_router():
    router = OrderedFailoverChatClient([ScriptedChatClient()])
    stream = router.get_streaming_response("Hi")
    await router.aclose()

    await stream.aclose()

    assert [each async for each in stream] == []
