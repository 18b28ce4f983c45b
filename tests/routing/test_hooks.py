"""The hooks: each attempt is reported once, each request ends once."""

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    FailoverChatClient,
    OrderedFailoverChatClient,
    RoutingChatClient,
    Usage,
)
from chatrouting.errors import OverloadedError
from chatrouting.testing import (
    ManualClock,
    ScriptedChatClient,
    fails,
    finishes,
    runs,
    update,
    waits_forever,
)


async def pause(_):
    """Be somewhere that a cancellation can reach."""
    await anyio.lowlevel.checkpoint()


PAUSE = runs(pause)


def failing(error=OverloadedError):
    return ScriptedChatClient(fails(error))


class Hooked(FailoverChatClient):
    """Keeps what its hooks are told, and raises what it was given for each."""

    def __init__(self, *clients, update_error=None, end_error=None, **settings):
        super().__init__(lambda context: next(iter(context.remaining), None), routes=clients)
        self.updates = []
        self.ends = []
        self.update_error = update_error
        self.end_error = end_error

    async def on_routing_update(self, context, attempt, is_terminal):
        await anyio.lowlevel.checkpoint()
        self.updates.append((context, attempt, is_terminal))
        if self.update_error is not None:
            raise self.update_error

    async def on_request_ended(self, context, exception):
        await anyio.lowlevel.checkpoint()
        self.ends.append((context, exception))
        if self.end_error is not None:
            raise self.end_error

    @property
    def terminals(self):
        return [is_terminal for _, _, is_terminal in self.updates]


async def test_a_failure_and_a_success_are_two_updates(mode, answer):
    """[routing 33]"""
    error = OverloadedError("busy")
    router = Hooked(failing(error), ScriptedChatClient("ok"))
    await answer(router)

    (_, failed, is_failed_last), (_, worked, is_worked_last) = router.updates

    assert (is_failed_last, is_worked_last) == (False, True)
    assert (failed.client, failed.exception) == (router.routes["route-1"], error)
    assert failed.duration >= 0
    assert failed.time_to_first_update is None
    assert not failed.output_committed
    assert not failed.response_completed
    assert (worked.client, worked.exception) == (router.routes["route-2"], None)
    assert worked.response_completed
    assert worked.output_committed is (mode == "streaming")


async def test_one_context_serves_all_selections_and_updates_of_a_request(answer):
    """[routing 34]"""
    selected = []

    class Router(Hooked):
        def may_select_again(self, context):
            selected.append(context)
            return super().may_select_again(context)

    router = Router(failing(), failing(), ScriptedChatClient("ok"))
    await answer(router)

    contexts = [*selected, *(context for context, _, _ in router.updates), router.ends[0][0]]
    assert {id(context) for context in contexts} == {id(contexts[0])}


async def test_what_the_hook_writes_is_seen_by_the_next_selection(answer):
    """[routing 35]"""
    seen = []

    class Router(FailoverChatClient):
        async def select_client(self, context):
            seen.append(dict(context.state))
            return failing() if not context.attempts else ScriptedChatClient("ok")

        async def on_routing_update(self, context, attempt, is_terminal):
            await anyio.lowlevel.checkpoint()
            context.state["failed"] = attempt.route

    await answer(Router())

    assert seen == [{}, {"failed": "ScriptedChatClient"}]


async def test_a_terminal_hooks_error_replaces_the_requests_and_is_caused_by_it(answer):
    """[routing 36]"""
    error, hook_error = OverloadedError("busy"), KeyError("hook")

    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            raise hook_error

    with pytest.raises(KeyError) as raised:
        await answer(Router([failing(error)]))

    assert raised.value is hook_error
    assert hook_error.__cause__ is error


async def test_a_terminal_hooks_error_replaces_an_answer(answer):
    """[routing 36] The overridden method is policy; listeners are the gentle kind."""
    router = Hooked(ScriptedChatClient("ok"), update_error=KeyError("hook"))

    with pytest.raises(KeyError):
        await answer(router)

    assert router.terminals == [True]


async def test_a_nonterminal_hooks_error_ends_the_request(answer):
    """[routing 37] One selection, one update, and the attempt's error as its cause."""
    error, second = OverloadedError("busy"), ScriptedChatClient("never")
    router = Hooked(failing(error), second, update_error=KeyError("hook"))

    with pytest.raises(KeyError) as raised:
        await answer(router)

    assert raised.value.__cause__ is error
    assert second.calls == []
    assert router.terminals == [False]


async def test_a_hook_that_raises_the_attempts_own_error_gives_it_no_cause(answer):
    error = OverloadedError("busy")

    with pytest.raises(OverloadedError) as raised:
        await answer(Hooked(failing(error), update_error=error))

    assert raised.value is error
    assert error.__cause__ is None


async def test_a_cause_that_the_hooks_error_has_already_stays(answer):
    cause, hook_error = ValueError("of its own"), KeyError("hook")
    hook_error.__cause__ = cause

    with pytest.raises(KeyError):
        await answer(Hooked(failing(), update_error=hook_error))

    assert hook_error.__cause__ is cause


async def test_a_nonterminal_update_is_a_failure_that_committed_nothing(answer, log):
    """[routing 38]"""
    router = OrderedFailoverChatClient(
        [failing(), ScriptedChatClient(update(), fails(KeyError)), ScriptedChatClient("ok")],
        on_routing_update=log,
    )
    await answer(router)

    assert log.terminals == [False, False, True]
    assert log.outcomes[:2] == [AttemptOutcome.FAILED] * 2
    assert None not in log.exceptions[:2]
    assert [attempt.output_committed for attempt in log.attempts[:2]] == [False, False]


async def complete(router):
    async with router.get_streaming_response("Hi") as stream:
        await stream.get_final_response()


async def abandon(router):
    async with router.get_streaming_response("Hi") as stream:
        await anext(stream)


async def cancel(router):
    with anyio.CancelScope() as scope:
        async with router.get_streaming_response("Hi") as stream:
            await anext(stream)
            scope.cancel()
            await anext(stream)


@pytest.mark.parametrize(
    ("use", "outcome"),
    [
        (complete, AttemptOutcome.COMPLETED),
        (abandon, AttemptOutcome.ABANDONED),
        (cancel, AttemptOutcome.CANCELLED),
    ],
)
async def test_each_invoked_client_is_reported_once(use, outcome):
    """[routing 39] However its stream ends; a first one that failed likewise."""
    router = Hooked(failing(), ScriptedChatClient("a", PAUSE, "b"))

    await use(router)

    assert [attempt.outcome for _, attempt, _ in router.updates] == [AttemptOutcome.FAILED, outcome]
    assert router.terminals == [False, True]


async def test_the_inner_stream_is_closed_before_the_hook_runs():
    """[routing 66] On failover, and on every end of a stream."""
    closed = []

    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            closed.append(attempt.client.streams_closed)

    for use in (complete, abandon, cancel):
        first, second = failing(), ScriptedChatClient("a", PAUSE, "b")
        await use(Router([first, second]))

    assert closed == [1, 1] * 3


async def test_a_record_says_what_is_known_of_the_attempt(answer, log):
    """[routing 72]"""
    client = ScriptedChatClient("ok", finishes(usage=Usage(input_tokens=3, output_tokens=1)))
    router = OrderedFailoverChatClient(
        {"a": failing(OverloadedError("busy", retry_after=2)), "b": client}, on_routing_update=log
    )
    await answer(router)

    failed, completed = log.attempts
    assert [attempt.number for attempt in log.attempts] == [1, 2]
    assert failed.request_id == completed.request_id == log.contexts[0].request_id
    assert failed.attempt_id != completed.attempt_id
    assert (failed.failure.kind.value, failed.failure.retry_after) == ("overloaded", 2)
    assert completed.failure is None
    assert completed.usage == Usage(input_tokens=3, output_tokens=1)
    assert not completed.usage_is_estimated
    assert completed.started_at >= failed.started_at
    assert completed.started_at.tzinfo is not None


async def test_a_whole_response_is_never_committed_early(log):
    """[routing 73]"""
    router = OrderedFailoverChatClient([ScriptedChatClient("ok")], on_routing_update=log)
    await router.get_response("Hi")

    [attempt] = log.attempts
    assert (attempt.output_committed, attempt.time_to_first_update) == (False, None)


async def test_the_first_update_of_a_stream_is_timed_within_its_duration(log):
    """[routing 73]"""
    clock = ManualClock()

    def take_a_second(_):
        clock.advance(1)

    client = ScriptedChatClient(runs(take_a_second), "a", runs(take_a_second), "b")
    router = OrderedFailoverChatClient([client], clock=clock, on_routing_update=log)
    await complete(router)

    [attempt] = log.attempts
    assert attempt.output_committed
    assert (attempt.time_to_first_update, attempt.duration) == (1, 2)


async def test_no_exception_and_not_completed_means_abandoned(log):
    """[routing 74]"""
    router = OrderedFailoverChatClient([ScriptedChatClient("a", "b")], on_routing_update=log)
    await abandon(router)

    [attempt] = log.attempts
    assert (attempt.exception, attempt.response_completed) == (None, False)
    assert attempt.outcome is AttemptOutcome.ABANDONED


async def test_time_in_selector_and_hook_is_not_counted(answer, log):
    """[routing 67]"""
    clock = ManualClock()

    class Slow(FailoverChatClient):
        async def select_client(self, context):
            clock.advance(10)
            return next(iter(context.remaining))

        async def on_routing_update(self, context, attempt, is_terminal):
            clock.advance(100)

    def take_a_second(_):
        clock.advance(1)

    routes = [ScriptedChatClient(runs(take_a_second), end) for end in (fails(KeyError), "ok")]
    await answer(Slow(routes=routes, clock=clock, on_routing_update=log))

    assert [attempt.duration for attempt in log.attempts] == [1, 1]


@pytest.mark.parametrize("cls", [RoutingChatClient, FailoverChatClient])
async def test_a_listener_hears_of_every_router_also_of_a_plain_one(answer, log, cls):
    await answer(cls(lambda _: ScriptedChatClient("ok"), on_routing_update=log))

    assert log.outcomes == [AttemptOutcome.COMPLETED]
    assert log.terminals == [True]


async def test_a_plain_routers_failure_is_terminal(answer, log):
    router = RoutingChatClient(lambda _: failing(), on_routing_update=log)

    with pytest.raises(OverloadedError):
        await answer(router)

    assert log.outcomes == [AttemptOutcome.FAILED]
    assert log.terminals == [True]


async def test_a_listener_may_be_async(answer):
    heard = []

    async def listen(context, attempt, is_terminal):
        await anyio.lowlevel.checkpoint()
        heard.append(attempt.outcome)

    await answer(OrderedFailoverChatClient([ScriptedChatClient("ok")], on_routing_update=listen))

    assert heard == [AttemptOutcome.COMPLETED]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_listeners_error_is_logged_and_never_replaces_an_answer(answer, caplog, is_async):
    def fail(*_):
        raise KeyError("metrics")

    async def fail_later(*_):
        raise KeyError("metrics")

    router = OrderedFailoverChatClient(
        [failing(), ScriptedChatClient("ok")], on_routing_update=fail_later if is_async else fail
    )

    assert (await answer(router)).text == "ok"
    messages = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert messages == ["routing.listener_failed router=None"] * 2


async def test_a_listener_is_told_after_the_overridden_method(answer):
    order = []

    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            order.append("method")

    router = Router(
        [ScriptedChatClient("ok")], on_routing_update=lambda *_: order.append("listener")
    )
    await answer(router)

    assert order == ["method", "listener"]


async def test_a_listener_is_told_also_where_the_method_raised(answer, log):
    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            raise KeyError("policy")

    with pytest.raises(KeyError):
        await answer(Router([ScriptedChatClient("ok")], on_routing_update=log))

    assert log.outcomes == [AttemptOutcome.COMPLETED]


async def test_an_answer_ends_its_request_without_an_exception(answer):
    router = Hooked(failing(), ScriptedChatClient("ok"))

    await answer(router)

    assert router.ends == [(router.updates[0][0], None)]


async def test_a_failed_request_ends_with_what_the_caller_gets(answer):
    error = OverloadedError("busy")
    router = Hooked(failing(KeyError), failing(error))

    with pytest.raises(OverloadedError):
        await answer(router)

    assert [exception for _, exception in router.ends] == [error]


async def test_a_failed_selection_ends_the_request(answer):
    router = Hooked()

    with pytest.raises(RuntimeError) as raised:
        await answer(router)

    assert [exception for _, exception in router.ends] == [raised.value]
    assert router.updates == []


async def test_a_failing_update_hook_ends_the_request_with_its_own_error(answer):
    error = KeyError("hook")
    router = Hooked(ScriptedChatClient("ok"), update_error=error)

    with pytest.raises(KeyError):
        await answer(router)

    assert [exception for _, exception in router.ends] == [error]


async def test_a_cancelled_request_ends_with_the_cancellation(answer):
    async def cancel_here(_):
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    router = Hooked(ScriptedChatClient(runs(cancel_here)))
    with anyio.CancelScope() as scope:
        await answer(router)

    [(_, exception)] = router.ends
    assert isinstance(exception, anyio.get_cancelled_exc_class())


async def test_an_error_of_the_hook_on_a_cancelled_request_is_not_what_the_caller_gets(caplog):
    """The hook's error is logged; the cancellation propagates, and is what the end tells of."""
    router = Hooked(ScriptedChatClient("a", PAUSE), update_error=KeyError("hook"))

    await cancel(router)

    [(_, exception)] = router.ends
    assert isinstance(exception, anyio.get_cancelled_exc_class())
    assert "hook" in caplog.text


async def test_an_abandoned_stream_ends_its_request_without_an_exception():
    router = Hooked(ScriptedChatClient("a", "b"))

    await abandon(router)

    assert router.ends == [(router.updates[0][0], None)]


async def test_a_stream_that_breaks_ends_its_request_with_the_error():
    error = OverloadedError("busy")
    router = Hooked(ScriptedChatClient("a", fails(error)))

    with pytest.raises(OverloadedError):
        await complete(router)

    assert [exception for _, exception in router.ends] == [error]


async def test_a_coroutine_that_is_thrown_away_tells_nobody_and_asks_nobody_else(mode):
    """[routing 50] Nothing can be awaited any more; a `GeneratorExit` is no failure."""
    second = ScriptedChatClient("never")
    router = Hooked(ScriptedChatClient(waits_forever()), second)
    stream = router.get_streaming_response("Hi")
    coroutine = router.get_response("Hi") if mode == "whole" else stream.__anext__()
    coroutine.send(None)

    coroutine.close()

    assert (router.updates, router.ends) == ([], [])
    assert second.calls == []


async def test_a_read_that_is_thrown_away_after_output_tells_nobody():
    """[routing 50] The stream is over; layers give back what they hold, by `on_dropped`."""
    router = Hooked(ScriptedChatClient("a", waits_forever()))
    stream = router.get_streaming_response("Hi")
    await anext(stream)
    reading = stream.__anext__()
    reading.send(None)

    reading.close()

    assert (router.updates, router.ends) == ([], [])
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_stream_that_was_never_read_began_no_request():
    router = Hooked(ScriptedChatClient("never"))

    async with router.get_streaming_response("Hi"):
        pass

    assert router.ends == []
    assert router.updates == []


async def test_the_end_comes_after_the_last_update(answer):
    order = []

    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            order.append(is_terminal)

        async def on_request_ended(self, context, exception):
            order.append("end")

    router = Router(
        [failing(), ScriptedChatClient("ok")], on_routing_update=lambda *_: order.append("listener")
    )
    await answer(router)

    assert order == [False, "listener", True, "listener", "end"]


async def test_an_error_of_the_end_hook_replaces_an_answer(answer):
    """It is policy, as the other hook is."""
    router = Hooked(ScriptedChatClient("ok"), end_error=KeyError("end"))

    with pytest.raises(KeyError):
        await answer(router)

    assert len(router.ends) == 1


async def test_an_error_of_the_end_hook_is_caused_by_the_requests(answer):
    error = OverloadedError("busy")
    router = Hooked(failing(error), end_error=KeyError("end"))

    with pytest.raises(KeyError) as raised:
        await answer(router)

    assert raised.value.__cause__ is error
    assert len(router.ends) == 1


async def test_an_error_of_the_update_hook_of_an_abandoned_stream_is_raised_from_its_close():
    router = Hooked(ScriptedChatClient("a", "b"), update_error=KeyError("hook"))

    with pytest.raises(KeyError):
        await abandon(router)

    assert len(router.updates) == len(router.ends) == 1
