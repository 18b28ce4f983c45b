"""Edges of the loop: what is thrown away, what nobody holds on to, and policies cut off."""

import asyncio
import gc
import itertools
import weakref

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    ChatOptions,
    ChatResponse,
    ChatResponseUpdate,
    FailoverChatClient,
    OrderedFailoverChatClient,
    ResponseStream,
)
from chatrouting.client import ClosingClient, DelegatingChatClient
from chatrouting.errors import NoClientSelectedError, OverloadedError, StreamClosedError
from chatrouting.scope import current_scope
from chatrouting.testing import ScriptedChatClient, fails, runs, update
from chatrouting.testing.scripted import waits_on_close


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


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("which", ["should_failover", "may_select_again"])
async def test_a_predicates_own_cancellation_ends_the_walk(
    anyio_backend, answer, log, caplog, which
):
    """Rule 10: as whatever else it raises; the attempt is reported all the same."""

    def cancel(*_):
        raise asyncio.CancelledError

    class Router(OrderedFailoverChatClient):
        def may_select_again(self, context):
            return which == "should_failover" or cancel()

    router = Router(
        [ScriptedChatClient(fails(OverloadedError)), ScriptedChatClient("never")],
        should_failover=cancel if which == "should_failover" else None,
        on_routing_update=log,
    )
    with pytest.raises(OverloadedError) as raised:
        await answer(router)

    assert log.terminals == [True]
    assert "CancelledError" in raised.value.__notes__[0]
    assert "routing.policy_failed" in caplog.text


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

    assert [scope.call for scope in scopes] == [None]


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


@pytest.mark.virtual_time
async def test_what_an_outer_router_held_back_counts_for_the_inner_one_too(log):
    """The inner router has committed; the outer one goes on waiting, then adopts its stream."""
    client = ScriptedChatClient(update(message_id="m"), runs(lambda _: anyio.sleep(5)), "a")
    inner = OrderedFailoverChatClient(
        [client], commit_on="update", on_routing_update=log, clock=anyio.current_time
    )
    outer = OrderedFailoverChatClient([inner], on_routing_update=log, clock=anyio.current_time)
    await outer.get_streaming_response("Hi").get_final_response()

    assert [each.duration for each in log.attempts] == [pytest.approx(5), pytest.approx(5)]
    assert [each.time_to_first_update for each in log.attempts] == [0, pytest.approx(5)]


@pytest.mark.virtual_time
async def test_closing_is_no_time_of_a_client_that_failed_before_output(log):
    """Rule 7. The stream is closed before the attempt is recorded."""
    work = runs(lambda _: anyio.sleep(3))
    failing = ScriptedChatClient(work, fails(OverloadedError), waits_on_close(1))
    router = OrderedFailoverChatClient(
        [failing, ScriptedChatClient("ok")], on_routing_update=log, clock=anyio.current_time
    )
    await router.get_streaming_response("Hi").get_final_response()

    assert anyio.current_time() == pytest.approx(4)
    assert log.attempts[0].duration == pytest.approx(3)


async def test_a_clock_that_steps_back_makes_no_duration_negative(answer, log):
    ticks = itertools.count(0, -1)
    router = OrderedFailoverChatClient(
        [ScriptedChatClient("a", "b")], on_routing_update=log, clock=lambda: next(ticks)
    )
    await answer(router)

    assert [each.duration for each in log.attempts] == [0]


async def test_a_record_that_comes_too_late_hangs_on_nobody(answer):
    """An inner request that outlives the attempt around it leaves nothing on its scope."""
    over, scopes, late = anyio.Event(), [], []
    inner = OrderedFailoverChatClient([ScriptedChatClient(runs(lambda _: over.wait()), "late")])

    async def ask():
        late.append(await inner.get_response("Hi"))

    async def leave_behind(_):
        scopes.append(current_scope())
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()

    router = OrderedFailoverChatClient([ScriptedChatClient(runs(leave_behind), "a")])
    async with anyio.create_task_group() as group:
        assert (await answer(router)).attempts[0].children == ()
        over.set()

    assert late[0].text == "late"
    assert scopes[0].record.children == ()


@pytest.mark.virtual_time
async def test_the_consumers_time_counts_not_where_nothing_was_output_either(log):
    """Rule 7. The stream had ended before its updates were handed out."""
    work = runs(lambda _: anyio.sleep(3))
    client = ScriptedChatClient(work, update(message_id="m"), update(message_id="m"))
    router = OrderedFailoverChatClient([client], on_routing_update=log, clock=anyio.current_time)
    async for _ in router.get_streaming_response("Hi"):
        await anyio.sleep(10)

    [attempt] = log.attempts
    assert attempt.duration == pytest.approx(3)
    assert attempt.time_to_first_update is None


async def test_a_listener_that_does_what_it_should_leaves_no_log(answer, log, caplog):
    await answer(OrderedFailoverChatClient([ScriptedChatClient("a")], on_routing_update=log))

    assert len(log.attempts) == 1
    assert caplog.records == []


@pytest.mark.virtual_time
async def test_nested_routers_share_the_two_seconds_of_a_cancelled_request(answer):
    """Rule 13: one limit for the request, not one for each router."""

    class Slow(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            await anyio.sleep_forever()

    router = Slow([Slow([Forgetful(anyio.sleep_forever)])])
    with anyio.CancelScope(deadline=anyio.current_time() + 1):
        await answer(router)

    assert anyio.current_time() == pytest.approx(3)


async def test_a_client_whose_stream_was_closed_has_failed(log):
    """The router has taken it for an empty one before it finds that it cannot be gone on with."""
    closed = ResponseStream(Forgetful(refuse).generate())
    await closed.aclose()

    class Careless(DelegatingChatClient):
        def get_streaming_response(self, messages, options=None):
            return closed

    router = OrderedFailoverChatClient([Careless(Forgetful(refuse))], on_routing_update=log)
    with pytest.raises(StreamClosedError):
        await router.get_streaming_response("Hi").get_final_response()

    assert log.outcomes == [AttemptOutcome.FAILED]
    assert log.terminals == [True]


class Forgetful(ClosingClient):
    """Remembers nothing of what it was asked, unlike a scripted client."""

    def __init__(self, act):
        self.act = act

    async def get_response(self, messages, options=None):
        await self.act()
        return ChatResponse("never")

    async def generate(self):
        await self.act()
        yield ChatResponseUpdate("never")

    def get_streaming_response(self, messages, options=None):
        return ResponseStream(self.generate())

    def get_service(self, service_type, service_key=None):
        return None


async def refuse():
    raise OverloadedError("busy")


class Prompt:
    """Something that a request is about."""


@pytest.fixture
def no_collector():
    """Keep the garbage collector away."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.virtual_time
@pytest.mark.parametrize("act", [anyio.sleep_forever, refuse], ids=["timed out", "failed"])
@pytest.mark.usefixtures("no_collector")
async def test_an_attempt_with_a_limit_that_failed_holds_no_messages(act, answer, caplog):
    """[BR-73] Not even until the garbage collector comes."""
    last = ScriptedChatClient("ok")
    router = OrderedFailoverChatClient([Forgetful(act), last], attempt_timeout=1)
    prompt = Prompt()
    held = weakref.ref(prompt)
    options = ChatOptions(additional_properties={"prompt": prompt})
    response = await answer(router, "Hi", options)
    del prompt, options
    last.calls.clear()
    caplog.clear()

    assert response.attempts[0].outcome is AttemptOutcome.FAILED
    assert held() is None


class Choosy(FailoverChatClient):
    """Fails at the point that it is told."""

    def __init__(self, point):
        super().__init__()
        self.point = point

    async def select_client(self, context):
        if self.point == "first selection" or context.previous_attempt is not None:
            raise KeyError(self.point)
        return None if self.point == "nobody" else Forgetful(refuse)

    async def on_routing_update(self, context, attempt, is_terminal):
        if self.point == "update":
            raise KeyError(self.point)


@pytest.mark.parametrize("point", ["nobody", "first selection", "second selection", "update"])
@pytest.mark.usefixtures("no_collector")
async def test_a_request_that_its_policy_failed_holds_no_messages(point, caplog):
    """[BR-73] Once its error is gone."""
    prompt = Prompt()
    held = weakref.ref(prompt)
    options = ChatOptions(additional_properties={"prompt": prompt})
    del prompt
    try:
        await Choosy(point).get_response("Hi", options)
    except (KeyError, NoClientSelectedError):
        caplog.clear()
    del options

    assert held() is None


async def test_a_timer_that_a_client_had_set_keeps_no_client_alive(answer):
    """[BR-72] asyncio keeps it, and the scope it was set in, until it would have gone off."""

    async def work():
        with anyio.fail_after(600):
            await anyio.lowlevel.checkpoint()

    leaf = Forgetful(work)
    router = OrderedFailoverChatClient([OrderedFailoverChatClient([leaf])])
    parts = [weakref.ref(leaf), weakref.ref(router)]
    await answer(router)
    del leaf, router
    gc.collect()

    assert [part() for part in parts] == [None, None]


@pytest.mark.usefixtures("no_collector")
async def test_a_request_that_is_thrown_away_holds_no_messages():
    prompt = Prompt()
    held = weakref.ref(prompt)
    router = OrderedFailoverChatClient([Forgetful(anyio.sleep_forever)])
    request = router.get_response("Hi", ChatOptions(additional_properties={"prompt": prompt}))
    request.send(None)
    request.close()
    del prompt, request

    assert held() is None


async def test_a_stream_that_is_kept_holds_nothing_of_what_its_caller_was_handling():
    class CallerError(Exception):
        """Was there before the request."""

    async def fail():
        raise CallerError

    stream = OrderedFailoverChatClient([ScriptedChatClient("a")]).get_streaming_response("Hi")
    try:
        await fail()
    except CallerError as error:
        held = weakref.ref(error)
        await stream.get_final_response()
    gc.collect()

    assert held() is None
    assert len(stream.attempts) == 1
