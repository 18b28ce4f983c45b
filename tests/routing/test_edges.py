"""Edges where two rules meet: slow hooks at an early close, thrown-away requests, odd policies."""

import asyncio
import contextvars
import gc
import logging
import warnings

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    ChatOptions,
    FailoverChatClient,
    OrderedFailoverChatClient,
    ResponseStream,
    RoutingChatClient,
    RoutingHints,
)
from chatrouting.client import DelegatingChatClient
from chatrouting.errors import (
    OverloadedError,
    QuotaExceededError,
    RequestTimeoutError,
    StallTimeoutError,
)
from chatrouting.scope import carrying_tickets, current_scope
from chatrouting.stream import StreamLayer
from chatrouting.testing import (
    ScriptedChatClient,
    fails,
    runs,
    update,
    waits_forever,
)
from chatrouting.testing.scripted import waits_on_close

pytestmark = pytest.mark.virtual_time


async def test_a_slow_hook_at_an_early_close_is_given_up_and_cancels_nobody(caplog):
    """Nobody is being cancelled: closing the stream must not raise a cancellation."""
    ended = []

    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            await anyio.sleep(60)

        async def on_request_ended(self, context, exception):
            ended.append(exception)

    async with Router([ScriptedChatClient("a", "b")]).get_streaming_response("hi") as stream:
        await stream.__anext__()

    assert ended == [None]
    assert anyio.current_time() == pytest.approx(2)
    assert "stream.hook_timed_out" in caplog.text


async def test_closing_and_hooks_of_a_cancelled_request_share_two_seconds():
    """[routing 50] One limit for the whole request, not one for each part."""

    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            await anyio.sleep_forever()

    router = Router([ScriptedChatClient("a", waits_forever(), waits_on_close(60))])
    stream = router.get_streaming_response("hi")
    await stream.__anext__()
    with anyio.CancelScope(deadline=anyio.current_time() + 1):
        await stream.__anext__()

    assert anyio.current_time() == pytest.approx(3)


@pytest.mark.parametrize("mode", ["whole", "streaming"])
async def test_a_stall_is_counted_from_output_only(mode):
    """An update without output is none to count from, whatever commits."""
    client = ScriptedChatClient(update(message_id="m"), runs(lambda _: anyio.sleep(5)), "a")
    router = OrderedFailoverChatClient([client], commit_on="update", stall_timeout=1)
    if mode == "whole":
        assert (await router.get_response("hi")).text == "a"
        return
    async with router.get_streaming_response("hi") as stream:
        assert (await stream.get_final_response()).text == "a"


async def test_a_stall_after_output_still_ends_the_stream():
    client = ScriptedChatClient(update(message_id="m"), "a", waits_forever())
    router = OrderedFailoverChatClient([client], commit_on="update", stall_timeout=1)

    with pytest.raises(StallTimeoutError):
        async for _ in router.get_streaming_response("hi"):
            continue


async def test_a_failure_at_the_end_of_the_requests_time_is_a_timeout():
    """A client that blocks the loop past the deadline and fails by itself changes nothing."""

    async def fail_late(_):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)
        raise OverloadedError("late")

    router = RoutingChatClient(lambda _: ScriptedChatClient(runs(fail_late)))
    options = ChatOptions(routing=RoutingHints(timeout=1))

    with pytest.raises(RequestTimeoutError) as caught:
        await router.get_response("hi", options)

    assert isinstance(caught.value.__cause__, OverloadedError)


async def test_a_selector_that_names_a_refusing_client_again_is_asked_again(answer):
    """A position whose client has refused is skipped; the walk goes on."""
    refusing = ScriptedChatClient(fails(QuotaExceededError))
    names = iter(["a", "a", "b"])
    router = FailoverChatClient(
        lambda _: next(names), routes={"a": refusing, "b": ScriptedChatClient("b")}
    )

    assert (await answer(router)).text == "b"
    assert len(refusing.calls) == 1


async def test_a_selector_that_knows_only_refusing_clients_ends_the_request(answer):
    refusing = ScriptedChatClient(fails(QuotaExceededError))
    router = FailoverChatClient(lambda _: "a", routes={"a": refusing})

    with pytest.raises(QuotaExceededError):
        await answer(router)
    assert len(refusing.calls) == 1


async def test_an_asynchronous_predicate_is_a_mistake_and_no_yes(answer, caplog):
    async def never(context, attempt):
        return False

    second = ScriptedChatClient("never")
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(OverloadedError)), second], should_failover=never
    )

    with pytest.raises(OverloadedError):
        await answer(router)

    assert second.calls == []
    assert "should_failover is asynchronous" in caplog.text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_listeners_own_cancellation_does_not_cost_an_answer(anyio_backend, answer, caplog):
    def listen(*_):
        raise asyncio.CancelledError

    router = OrderedFailoverChatClient([ScriptedChatClient("a")], on_routing_update=listen)

    assert (await answer(router)).text == "a"
    assert "routing.listener_failed" in caplog.text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("where", ["selector", "hook"])
async def test_a_policys_own_cancellation_is_an_error_of_the_policy(anyio_backend, answer, where):
    class Router(RoutingChatClient):
        async def select_client(self, context):
            if where == "selector":
                raise asyncio.CancelledError
            return ScriptedChatClient("a")

        async def on_routing_update(self, context, attempt, is_terminal):
            raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="policy raised a cancellation"):
        await answer(Router())


async def test_what_is_no_update_fails_the_attempt_and_closes_its_stream():
    first = ScriptedChatClient(runs(lambda _: None), "a", source="object")

    class Wrong(DelegatingChatClient):
        def get_streaming_response(self, messages, options=None):
            return self.inner.get_streaming_response(messages, options).map(lambda _: None)

    router = OrderedFailoverChatClient([Wrong(first), ScriptedChatClient("ok")])
    async with router.get_streaming_response("hi") as stream:
        response = await stream.get_final_response()

    assert response.text == "ok"
    assert isinstance(response.attempts[0].exception, TypeError)
    assert first.streams_closed == 1


async def test_records_of_inner_routers_keep_no_frames_either():
    """[BR-73] An inner router that is cancelled by an outer limit raises, and is kept."""
    inner = OrderedFailoverChatClient([ScriptedChatClient(waits_forever())])
    outer = OrderedFailoverChatClient([inner, ScriptedChatClient("ok")], attempt_timeout=1)

    response = await outer.get_response("hi")

    [child] = response.attempts[0].children
    assert child.outcome is AttemptOutcome.CANCELLED
    assert child.exception.__traceback__ is None


async def test_a_client_that_swallows_an_inner_failure_keeps_no_frames():
    inner = OrderedFailoverChatClient([ScriptedChatClient(fails(OverloadedError))])

    class Swallowing(DelegatingChatClient):
        async def get_response(self, messages, options=None):
            try:
                return await self.inner.get_response(messages, options)
            except OverloadedError:
                return await ScriptedChatClient("ok").get_response(messages, options)

    response = await OrderedFailoverChatClient([Swallowing(inner)]).get_response("hi")

    [child] = response.attempts[0].children
    assert child.exception.__traceback__ is None


async def test_tickets_are_one_mapping_for_the_whole_request():
    seen = []

    def look(_):
        seen.append(current_scope().tickets)
        raise OverloadedError("busy")

    inner = OrderedFailoverChatClient([ScriptedChatClient(runs(look))])
    router = OrderedFailoverChatClient([ScriptedChatClient(runs(look)), inner])
    with pytest.raises(OverloadedError):
        await router.get_response("hi")

    assert seen[0] is seen[1]


async def test_tickets_from_outside_of_every_router_are_the_requests(answer):
    seen = []
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(runs(lambda _: seen.append(current_scope().tickets)), "a")]
    )
    tickets = {}
    with carrying_tickets(tickets):
        await answer(router)
    await answer(router)

    assert seen[0] is tickets
    assert seen[1] is not tickets


async def test_a_dropped_stream_gives_everything_back_where_warnings_are_errors(caplog):
    """One layer that fails to give back keeps no other from it."""
    given_back = []

    class Holding(StreamLayer):
        def on_dropped(self):
            given_back.append(self)

    class Failing(StreamLayer):
        def on_dropped(self):
            raise KeyError("slot")

    inner = ScriptedChatClient("a", "b").get_streaming_response("hi")

    async def open_inner():
        return inner

    async def open_middle():
        return ResponseStream.deferred(open_inner, Failing())

    stream = ResponseStream.deferred(open_middle, Holding())
    await stream.__anext__()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        stream = inner = None  # the inner handle knows the outer one
        gc.collect()

    assert len(given_back) == 1
    assert "stream.hook_failed" in caplog.text


async def test_a_request_that_is_thrown_away_elsewhere_tells_nobody(caplog):
    """Whoever throws a coroutine away may stand in another context."""
    told = []
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(waits_forever()), ScriptedChatClient("never")],
        on_routing_update=lambda *each: told.append(each),
    )
    request = router.get_response("hi")
    request.send(None)

    contextvars.Context().run(request.close)

    assert told == []
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
