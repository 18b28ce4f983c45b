"""Cancellation is never a failure; what only looks like it is."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from chatrouting import (
    AttemptOutcome,
    FailoverChatClient,
    OrderedFailoverChatClient,
    RoutingChatClient,
)
from chatrouting.errors import APIConnectionError, OverloadedError
from chatrouting.testing import (
    ScriptedChatClient,
    cancels_itself,
    fails,
    raises_on_close,
    runs,
    waits_forever,
)

MODES = pytest.mark.parametrize("mode", ["whole", "streaming"])


async def answer(client, mode):
    if mode == "whole":
        return await client.get_response("hi")
    async with client.get_streaming_response("hi") as stream:
        return await stream.get_final_response()


class Log:
    """What hooks were told."""

    def __init__(self):
        self.attempts = []
        self.ends = []

    def router(self, *clients, cls=OrderedFailoverChatClient, **settings):
        log = self

        class Logged(cls):
            async def on_routing_update(self, context, attempt, is_terminal):
                await anyio.lowlevel.checkpoint()  # a hook may wait, also on a cancelled request
                log.attempts.append((attempt.outcome, attempt.exception, is_terminal))

            async def on_request_ended(self, context, exception):
                await anyio.lowlevel.checkpoint()
                log.ends.append(exception)

        return Logged(list(clients), **settings)


async def cancel_when_blocked(client, mode):
    """Cancel a request once it waits; return whether it was cancelled."""
    scope = anyio.CancelScope()

    async def run():
        with scope:
            await answer(client, mode)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
    return scope.cancelled_caught


@MODES
async def test_a_cancelled_caller_is_told_by_cancellation_and_no_one_else_is_asked(mode):
    """[routing 50] [BR-65] The predicate that always says yes is not asked."""
    first, second, log = ScriptedChatClient(waits_forever()), ScriptedChatClient("never"), Log()
    router = log.router(first, second, should_failover=lambda *_: True)

    assert await cancel_when_blocked(router, mode)

    assert second.calls == []
    [(outcome, exception, is_terminal)] = log.attempts
    assert (outcome, is_terminal) == (AttemptOutcome.CANCELLED, True)
    assert isinstance(exception, anyio.get_cancelled_exc_class())
    assert log.ends == [exception]
    assert first.pending == 0


@MODES
async def test_an_ordinary_error_of_a_cancelled_request_is_recorded_and_cancellation_raised(mode):
    """[routing 45, 86] A provider that turns cancellation into an error hides nothing."""

    async def translate(_):
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            raise OverloadedError("translated") from None

    second, log = ScriptedChatClient("never"), Log()

    assert await cancel_when_blocked(log.router(ScriptedChatClient(runs(translate)), second), mode)

    assert second.calls == []
    [(outcome, exception, is_terminal)] = log.attempts
    assert (outcome, is_terminal) == (AttemptOutcome.CANCELLED, True)
    assert isinstance(exception, OverloadedError)


@MODES
async def test_a_cancellation_inside_a_nonterminal_hook_stops_before_the_next_selection(mode):
    """[routing 46, 49]"""
    second, scope = ScriptedChatClient("never"), anyio.CancelScope()

    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            scope.cancel()

    with scope:
        await answer(Router([ScriptedChatClient(fails(OverloadedError)), second]), mode)

    assert scope.cancelled_caught
    assert second.calls == []


@MODES
async def test_a_selector_error_on_a_cancelled_request_gives_way_to_the_cancellation(mode):
    """[routing 29]"""
    scope, log = anyio.CancelScope(), []

    def select(_):
        scope.cancel()
        raise KeyError("selector")

    router = RoutingChatClient(select, on_routing_update=lambda *update: log.append(update))
    with scope:
        await answer(router, mode)

    assert scope.cancelled_caught
    assert log == []


@MODES
async def test_an_already_cancelled_caller_of_a_plain_router_is_cancelled(mode):
    """[routing 20] [routing 11] The selector runs in the caller's own scope."""
    client = ScriptedChatClient(waits_forever())
    router = RoutingChatClient(lambda _: client)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await answer(router, mode)

    assert scope.cancelled_caught
    assert len(client.calls) <= 1


async def test_a_waiting_selector_is_interrupted():
    """[routing 11]"""

    async def select(_):
        await anyio.sleep_forever()

    assert await cancel_when_blocked(RoutingChatClient(select), "whole")


@MODES
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_that_nobody_asked_for_is_a_failure(mode, anyio_backend):
    """[routing 47] [BR-66] The client's own task was cancelled, not the caller's."""
    log = Log()
    router = log.router(ScriptedChatClient(cancels_itself()), ScriptedChatClient("ok"))

    response = await answer(router, mode)

    assert response.text == "ok"
    assert [outcome for outcome, _, _ in log.attempts] == [
        AttemptOutcome.FAILED,
        AttemptOutcome.COMPLETED,
    ]
    assert asyncio.current_task().cancelling() == 0


@MODES
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_last_clients_own_cancellation_is_raised_as_a_connection_error(
    mode, anyio_backend
):
    """[routing 47]"""
    router = OrderedFailoverChatClient([ScriptedChatClient(cancels_itself())])

    with pytest.raises(APIConnectionError) as caught:
        await answer(router, mode)

    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_close_that_raises_its_own_cancellation_on_an_empty_stream_fails_over(
    anyio_backend,
):
    """[routing 48]"""
    first = ScriptedChatClient(raises_on_close(asyncio.CancelledError()))
    router = OrderedFailoverChatClient([first, ScriptedChatClient("ok")])

    assert (await answer(router, "streaming")).text == "ok"
    assert first.streams_closed == 1


@MODES
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_native_cancellation_propagates(mode, anyio_backend):
    """[routing 50] `Task.cancel` and `asyncio.timeout` count like a scope."""
    first, second = ScriptedChatClient(waits_forever()), ScriptedChatClient("never")
    router = OrderedFailoverChatClient([first, second])

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await answer(router, mode)

    assert (second.calls, first.pending) == ([], 0)
    assert asyncio.current_task().cancelling() == 0


@MODES
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_caught_a_cancellation_before_is_not_taken_for_cancelled(
    mode, anyio_backend
):
    """Its count stays above zero for good; the baseline knows."""
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(OverloadedError)), ScriptedChatClient("ok")]
    )

    async def run():
        asyncio.current_task().cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return await answer(router, mode)

    assert (await asyncio.create_task(run())).text == "ok"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_pending_native_cancellation_is_delivered_before_anything_is_sent(anyio_backend):
    client = ScriptedChatClient("never")
    router = OrderedFailoverChatClient([client])

    async def run():
        asyncio.current_task().cancel()
        await router.get_response("hi")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(run())
    assert client.calls == []


async def test_a_hook_error_on_a_cancelled_request_is_logged(caplog):
    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            raise KeyError("hook")

    assert await cancel_when_blocked(Router([ScriptedChatClient(waits_forever())]), "whole")

    assert "routing.hook_failed" in caplog.text


async def test_a_hook_that_hangs_on_a_cancelled_request_is_given_up():
    """[routing 50] Hooks are shielded, but not for ever: 2 s for the whole request."""

    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            await anyio.sleep_forever()

    router = Router([ScriptedChatClient(waits_forever())])
    started = anyio.current_time()

    assert await cancel_when_blocked(router, "whole")

    assert 1.5 < anyio.current_time() - started < 10


async def test_a_consumer_cancelled_in_its_own_code_has_abandoned_the_stream():
    """[routing 71]"""
    client, log = ScriptedChatClient("a", "b"), Log()
    with anyio.CancelScope() as scope:
        async with log.router(client).get_streaming_response("hi") as stream:
            await stream.__anext__()
            scope.cancel()
            await anyio.sleep_forever()

    assert log.attempts == [(AttemptOutcome.ABANDONED, None, True)]
    assert log.ends == [None]
    assert client.streams_closed == 1


@MODES
async def test_keyboard_interrupt_never_fails_over(mode):
    """[routing 50]"""
    second, log = ScriptedChatClient("never"), Log()
    router = log.router(ScriptedChatClient(fails(SystemExit)), second)

    with pytest.raises(SystemExit):
        await answer(router, mode)

    assert second.calls == []
    assert log.attempts[0][0] is AttemptOutcome.CANCELLED


@MODES
async def test_a_group_of_ordinary_errors_fails_over(mode):
    """[routing 50]"""
    group = ExceptionGroup("several", [OverloadedError("a"), OverloadedError("b")])
    router = FailoverChatClient(
        lambda context: context.remaining[0],
        routes=[ScriptedChatClient(fails(group)), ScriptedChatClient("ok")],
    )

    assert (await answer(router, mode)).text == "ok"


@MODES
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_group_that_holds_a_cancellation_is_one(mode, anyio_backend):
    """[routing 50] While the caller is being cancelled, a group does not hide it."""
    second = ScriptedChatClient("never")

    async def group(_):
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError as error:
            raise BaseExceptionGroup("several", [error, ValueError("x")]) from None

    router = OrderedFailoverChatClient([ScriptedChatClient(runs(group)), second])
    task = asyncio.create_task(answer(router, mode))
    await anyio.wait_all_tasks_blocked()
    task.cancel()

    with pytest.raises(BaseExceptionGroup):
        await task
    assert second.calls == []


async def test_outer_cancellation_wins_over_a_timer_that_ran_out_too():
    """[BR-66]"""
    second = ScriptedChatClient("never")
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(waits_forever()), second], attempt_timeout=0.02
    )

    with anyio.CancelScope(deadline=anyio.current_time() + 0.02) as scope:
        await router.get_response("hi")

    assert scope.cancelled_caught
    assert second.calls == []
