"""The ordered walk."""

import gc
import weakref

import anyio
import pytest

from chatrouting import (
    ChatOptions,
    ChatResponse,
    ConfigureOptionsChatClient,
    DelegatingChatClient,
    OrderedFailoverChatClient,
)
from chatrouting.errors import ConfigurationError, OverloadedError
from chatrouting.testing import ScriptedChatClient, fails, runs, waits_for


def failing(error=OverloadedError):
    return ScriptedChatClient(fails(error))


class Equal(DelegatingChatClient):
    """Equal to every other client of its class, as careless value types are."""

    def __eq__(self, other):
        return isinstance(other, Equal)

    __hash__ = None  # type: ignore[assignment]  # unhashable too


def test_clients_of_none_are_a_type_error():
    """[routing 75]"""
    with pytest.raises(TypeError, match="clients"):
        OrderedFailoverChatClient(None)


@pytest.mark.parametrize("clients", [[], {}, [ScriptedChatClient(), None]])
def test_no_client_or_one_of_none_is_a_value_error(clients):
    """[routing 75]"""
    with pytest.raises(ValueError, match="clients") as raised:
        OrderedFailoverChatClient(clients)

    assert isinstance(raised.value, ConfigurationError)


async def test_the_second_client_answers_where_the_first_fails(answer):
    """[routing 76, 85] The response equals the client's own, and tells of both attempts."""
    first, second = failing(), ScriptedChatClient("ok", ChatResponse(response_id="r"))

    response = await answer(OrderedFailoverChatClient({"first": first, "second": second}))

    assert (response.text, response.response_id) == ("ok", "r")
    assert [attempt.route for attempt in response.attempts] == ["first", "second"]
    assert (len(first.calls), len(second.calls)) == (1, 1)


async def test_the_second_clients_response_object_stays_as_it_was():
    """[routing 76]"""
    given = ChatResponse("ok")
    router = OrderedFailoverChatClient([failing(), ScriptedChatClient(given)])

    response = await router.get_response("Hi")

    assert response == given
    assert len(response.attempts) == 2
    assert given.attempts == ()


async def test_a_client_listed_twice_is_asked_at_both_positions(answer):
    """[routing 77]"""
    first = ScriptedChatClient.per_call(fails(OverloadedError), "ok")
    second = failing()

    response = await answer(OrderedFailoverChatClient([first, second, first]))

    assert response.text == "ok"
    assert [attempt.client for attempt in response.attempts] == [first, second, first]


async def test_a_client_listed_twice_that_always_fails_is_asked_twice(answer):
    """[routing 78]"""
    last = OverloadedError("second")
    client = ScriptedChatClient.per_call(fails(OverloadedError("first")), fails(last))

    with pytest.raises(OverloadedError) as raised:
        await answer(OrderedFailoverChatClient([client, client]))

    assert raised.value is last
    assert len(client.calls) == 2


async def test_where_all_fail_the_last_error_is_raised_as_itself(answer):
    """[routing 79]"""
    last = ValueError("last")

    with pytest.raises(ValueError, match="last") as raised:
        await answer(OrderedFailoverChatClient([failing(), failing(KeyError), failing(last)]))

    assert raised.value is last


async def test_every_request_starts_at_the_first_client(answer):
    """[routing 80]"""
    first, second = failing(), ScriptedChatClient("ok")
    router = OrderedFailoverChatClient([first, second])

    await answer(router)
    await answer(router)

    assert (len(first.calls), len(second.calls)) == (2, 2)


async def test_concurrent_requests_each_walk_the_whole_list(answer):
    """[routing 81]"""
    released = anyio.Event()
    first = ScriptedChatClient(waits_for(released), fails(OverloadedError))
    second = ScriptedChatClient("ok")
    router = OrderedFailoverChatClient([first, second])
    texts = []

    async def ask():
        texts.append((await answer(router)).text)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert first.pending == 10
        released.set()

    assert texts == ["ok"] * 10
    assert (len(first.calls), len(second.calls)) == (10, 10)


@pytest.mark.parametrize("is_read_to_the_end", [False, True], ids=["closed early", "read"])
async def test_nothing_of_a_request_is_kept_after_its_stream(is_read_to_the_end):
    """[routing 82]"""

    class Mine:
        pass

    class Router(OrderedFailoverChatClient):
        async def select_client(self, context):
            reference.append(weakref.ref(context.state.setdefault("mine", Mine())))
            return await super().select_client(context)

    reference = []
    router = Router([failing(), ScriptedChatClient("a", "b")])
    stream = router.get_streaming_response("Hi")
    await anext(stream)
    if is_read_to_the_end:
        await stream.get_final_response()
    await stream.aclose()
    del stream
    gc.collect()

    assert [each() for each in reference] == [None, None]


async def test_a_list_that_is_changed_later_changes_nothing(answer):
    """[routing 83]"""
    clients = [failing(), ScriptedChatClient("ok")]
    router = OrderedFailoverChatClient(clients)
    clients.clear()

    assert (await answer(router)).text == "ok"


async def test_each_clients_own_options_apply(answer):
    """[routing 84]"""
    first, second = failing(), ScriptedChatClient("ok")
    routes = [
        ConfigureOptionsChatClient(first, lambda options: options.replace(model="first")),
        ConfigureOptionsChatClient(second, lambda options: options.replace(model="second")),
    ]

    await answer(OrderedFailoverChatClient(routes), "Hi", ChatOptions(instructions="Be kind"))

    assert first.calls[0].options == ChatOptions(model="first", instructions="Be kind")
    assert second.calls[0].options == ChatOptions(model="second", instructions="Be kind")


async def test_a_cancelled_caller_gets_its_cancellation_and_no_second_client(answer):
    """[routing 86] Also where the first client raises an ordinary error."""
    scope, second = anyio.CancelScope(), ScriptedChatClient("never")

    def cancel(_):
        scope.cancel()

    first = ScriptedChatClient(runs(cancel), fails(OverloadedError))
    with scope:
        await answer(OrderedFailoverChatClient([first, second]))

    assert scope.cancelled_caught
    assert second.calls == []


async def test_a_nested_walk_hands_the_leafs_response_object_through():
    """[routing 90] Only the outermost router makes a copy, for the attempts."""
    given, passed = ChatResponse("ok"), []

    class Watching(DelegatingChatClient):
        async def get_response(self, messages, options=None):
            passed.append(await self.inner.get_response(messages, options))
            return passed[-1]

    inner = OrderedFailoverChatClient([failing(), ScriptedChatClient(given)])
    response = await OrderedFailoverChatClient([Watching(inner)]).get_response("Hi")

    assert passed[0] is given
    assert given.attempts == ()
    assert response == given


async def test_the_limit_stops_the_walk_before_the_list_ends(answer, log):
    """[routing 91]"""
    error, third = OverloadedError("second"), ScriptedChatClient("never")
    router = OrderedFailoverChatClient(
        [failing(), failing(error), third], maximum_attempts_per_request=2, on_routing_update=log
    )

    with pytest.raises(OverloadedError) as raised:
        await answer(router)

    assert raised.value is error
    assert third.calls == []
    assert log.terminals == [False, True]


async def test_the_last_position_is_reported_as_terminal(answer, log):
    """[routing 92] The walk knows that nobody is left."""
    router = OrderedFailoverChatClient([failing(), failing()], on_routing_update=log)

    with pytest.raises(OverloadedError):
        await answer(router)

    assert log.terminals == [False, True]


async def test_should_failover_is_not_asked_where_nobody_is_left(answer):
    asked = []
    router = OrderedFailoverChatClient(
        [failing()], should_failover=lambda *_: asked.append(1) or True
    )

    with pytest.raises(OverloadedError):
        await answer(router)

    assert asked == []


async def test_two_clients_that_are_equal_are_both_tried(answer):
    """[routing 93]"""
    first, second = failing(), ScriptedChatClient("ok")

    response = await answer(OrderedFailoverChatClient([Equal(first), Equal(second)]))

    assert response.text == "ok"
    assert len(first.calls) == 1
