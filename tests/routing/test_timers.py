"""The four limits of time, in virtual time on both event loops."""

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    ChatOptions,
    ChatResponseUpdate,
    FailoverChatClient,
    OrderedFailoverChatClient,
    RoutingChatClient,
    RoutingHints,
)
from chatrouting.errors import (
    AttemptTimeoutError,
    ConfigurationError,
    FirstOutputTimeoutError,
    OverloadedError,
    RequestTimeoutError,
    StallTimeoutError,
)
from chatrouting.testing import (
    ManualClock,
    ScriptedChatClient,
    fails,
    finishes,
    runs,
    update,
    virtual_time_backends,
    waits,
    waits_forever,
)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    """Time is virtual: a wait of an hour takes none."""
    return virtual_time_backends()[request.param]()


MODES = pytest.mark.parametrize("mode", ["whole", "streaming"])


async def answer(client, mode, options=None):
    if mode == "whole":
        return await client.get_response("hi", options)
    async with client.get_streaming_response("hi", options) as stream:
        return await stream.get_final_response()


def hinted(timeout):
    return ChatOptions(routing=RoutingHints(timeout=timeout))


@MODES
async def test_attempt_timeout_moves_on_to_the_next_client(mode):
    slow = ScriptedChatClient(waits_forever(), "never")
    router = OrderedFailoverChatClient(
        {"slow": slow, "fast": ScriptedChatClient("fast")}, attempt_timeout=5
    )

    response = await answer(router, mode)

    assert response.text == "fast"
    assert anyio.current_time() == pytest.approx(5)
    failed = response.attempts[0]
    assert isinstance(failed.exception, AttemptTimeoutError)
    assert failed.outcome is AttemptOutcome.FAILED
    assert "'slow'" in str(failed.exception)
    assert slow.pending == 0


@MODES
async def test_first_output_timeout_is_not_reset_by_signs_of_life(mode):
    """[BR-06] Pings and empty deltas are no output; the limit runs from the start."""
    pings = [step for _ in range(50) for step in (waits(0.1), update("", message_id="m"))]
    slow = ScriptedChatClient(*pings, "never")
    router = OrderedFailoverChatClient([slow, ScriptedChatClient("fast")], first_output_timeout=0.3)

    response = await answer(router, mode)

    assert response.text == "fast"
    assert anyio.current_time() == pytest.approx(0.3)
    assert isinstance(response.attempts[0].exception, FirstOutputTimeoutError)


async def test_first_output_timeout_is_over_once_there_is_output():
    client = ScriptedChatClient("a", waits(10), "b")
    router = OrderedFailoverChatClient([client], first_output_timeout=1)

    assert (await answer(router, "streaming")).text == "ab"


async def test_first_output_timeout_runs_on_after_a_commit_on_an_empty_update():
    """With `commit_on="update"` the limit still holds, though nobody else can answer."""
    client = ScriptedChatClient(update(message_id="m"), waits_forever())
    router = OrderedFailoverChatClient(
        [client, ScriptedChatClient("never")], first_output_timeout=1, commit_on="update"
    )

    with pytest.raises(FirstOutputTimeoutError):
        await answer(router, "streaming")

    assert anyio.current_time() == pytest.approx(1)


async def test_stall_timeout_fails_the_stream_after_output():
    """[BR-18] The outcome is decided at the end: exactly one failed record."""
    log = []
    client = ScriptedChatClient("a", waits(1), update(""), waits_forever())
    router = OrderedFailoverChatClient(
        [client, ScriptedChatClient("never")],
        stall_timeout=3,
        on_routing_update=lambda _, attempt, is_terminal: log.append((attempt, is_terminal)),
    )
    async with router.get_streaming_response("hi") as stream:
        with pytest.raises(StallTimeoutError, match="3"):
            await stream.get_final_response()

    [(attempt, is_terminal)] = log
    assert is_terminal
    assert attempt.outcome is AttemptOutcome.FAILED
    assert attempt.output_committed
    # An update without output does not end a stall.
    assert anyio.current_time() == pytest.approx(3)
    assert stream.partial_response.text == "a"
    assert client.streams_closed == 1


async def test_attempt_timeout_goes_on_while_the_stream_is_read():
    client = ScriptedChatClient(waits(1), "a", waits(1), "b", waits(10), "c")
    router = OrderedFailoverChatClient([client], attempt_timeout=5)
    received = []

    with pytest.raises(AttemptTimeoutError):
        async for each in router.get_streaming_response("hi"):
            received.append(each.text)

    assert received == ["a", "b"]
    assert anyio.current_time() == pytest.approx(5)


@pytest.mark.parametrize("source", ["object", "generator", "ready"])
async def test_the_consumers_time_counts_for_no_limit_of_an_attempt(source):
    client = ScriptedChatClient("a", waits(0.5), "b", waits(0.5), "c", source=source)
    router = OrderedFailoverChatClient(
        [client], attempt_timeout=2, first_output_timeout=2, stall_timeout=2
    )
    received = []

    async for each in router.get_streaming_response("hi"):
        received.append(each.text)
        await anyio.sleep(100)

    assert received == ["a", "b", "c"]


async def test_data_that_is_ready_is_never_lost_to_a_timer():
    """A late reader still gets what has arrived; only waiting is limited."""
    client = ScriptedChatClient("a", "b", "c", source="ready")
    router = OrderedFailoverChatClient([client], attempt_timeout=1)
    received = []

    async for each in router.get_streaming_response("hi"):
        received.append(each.text)
        await anyio.sleep(10)

    assert received == ["a", "b", "c"]


@MODES
async def test_the_requests_timeout_ends_it_and_never_fails_over(mode):
    ended = []

    class Router(OrderedFailoverChatClient):
        async def on_request_ended(self, context, exception):
            ended.append(exception)

    second = ScriptedChatClient("never")
    log = []
    router = Router(
        [ScriptedChatClient(waits_forever()), second],
        on_routing_update=lambda _, attempt, is_terminal: log.append((attempt, is_terminal)),
    )

    with pytest.raises(RequestTimeoutError) as caught:
        await answer(router, mode, hinted(2))

    assert anyio.current_time() == pytest.approx(2)
    assert second.calls == []
    assert ended == [caught.value]
    [(attempt, is_terminal)] = log
    assert (attempt.outcome, attempt.exception, is_terminal) == (
        AttemptOutcome.FAILED,
        caught.value,
        True,
    )


@MODES
async def test_the_requests_timeout_bounds_the_selection(mode):
    async def select(_):
        await anyio.sleep_forever()

    log = []
    router = RoutingChatClient(select, on_routing_update=lambda *update: log.append(update))

    with pytest.raises(RequestTimeoutError, match="selected"):
        await answer(router, mode, hinted(2))

    assert log == []


async def test_the_requests_timeout_counts_the_consumers_time():
    client = ScriptedChatClient("a", "b", waits(0.1), "c")
    router = OrderedFailoverChatClient([client])

    with pytest.raises(RequestTimeoutError):
        async for _ in router.get_streaming_response("hi", hinted(1)):
            await anyio.sleep(0.7)


@MODES
async def test_only_the_outermost_router_enforces_the_requests_timeout(mode):
    """For the inner ones it is an ordinary cancellation."""
    log = []
    inner = OrderedFailoverChatClient(
        [ScriptedChatClient(waits_forever()), ScriptedChatClient("never")],
        on_routing_update=lambda _, attempt, __: log.append(("inner", attempt.outcome)),
    )
    outer = OrderedFailoverChatClient(
        [inner, ScriptedChatClient("never")],
        on_routing_update=lambda _, attempt, __: log.append(("outer", attempt.outcome)),
    )

    with pytest.raises(RequestTimeoutError):
        await answer(outer, mode, hinted(1))

    assert log == [("inner", AttemptOutcome.CANCELLED), ("outer", AttemptOutcome.FAILED)]


async def test_a_timer_that_runs_out_after_adoption_cancels_only_what_is_inside():
    log = []

    def note(name):
        return lambda _, attempt, __: log.append((name, attempt.outcome))

    leaf = ScriptedChatClient("a", waits_forever())
    inner = OrderedFailoverChatClient([leaf], on_routing_update=note("inner"))
    middle = OrderedFailoverChatClient([inner], stall_timeout=2, on_routing_update=note("middle"))
    outer = OrderedFailoverChatClient([middle], stall_timeout=9, on_routing_update=note("outer"))

    with pytest.raises(StallTimeoutError, match="2"):
        await answer(outer, "streaming")

    assert log == [
        ("inner", AttemptOutcome.CANCELLED),
        ("middle", AttemptOutcome.FAILED),
        ("outer", AttemptOutcome.FAILED),
    ]


async def test_on_a_tie_the_inner_timer_wins():
    log = []
    leaf = ScriptedChatClient("a", waits_forever())
    inner = OrderedFailoverChatClient(
        [leaf], stall_timeout=2, on_routing_update=lambda _, a, __: log.append(a.outcome)
    )
    outer = OrderedFailoverChatClient([inner], stall_timeout=2)

    with pytest.raises(StallTimeoutError):
        await answer(outer, "streaming")

    assert log == [AttemptOutcome.FAILED]


@MODES
async def test_an_error_that_the_client_makes_of_our_timer_becomes_its_cause(mode):
    """SDKs turn a cancellation into an error of their own; the limit names the failure."""

    async def translate(_):
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            raise OverloadedError("translated") from None

    router = OrderedFailoverChatClient([ScriptedChatClient(runs(translate))], attempt_timeout=1)

    with pytest.raises(AttemptTimeoutError) as caught:
        await answer(router, mode)

    assert isinstance(caught.value.__cause__, OverloadedError)


@MODES
async def test_a_failure_after_the_deadline_is_terminal(mode):
    """The base knows that the time is over: no second client is selected."""
    second = ScriptedChatClient("never")

    async def block(_):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)
        raise OverloadedError("late")

    router = OrderedFailoverChatClient([ScriptedChatClient(runs(block)), second])

    with pytest.raises(RequestTimeoutError) as caught:
        await answer(router, mode, hinted(1))

    assert isinstance(caught.value.__cause__, OverloadedError)
    assert second.calls == []


async def test_no_timer_leaves_no_scope_and_nothing_to_cancel():
    client = ScriptedChatClient(waits(10_000), "a", waits(10_000), "b")
    router = FailoverChatClient(lambda _: client)

    assert (await answer(router, "streaming")).text == "ab"


async def test_duration_leaves_out_the_consumer_the_selector_the_hook_and_closing():
    """[routing 67]"""
    log = []

    class Slow(FailoverChatClient):
        async def select_client(self, context):
            await anyio.sleep(50)
            return context.remaining[0]

        async def on_routing_update(self, context, attempt, is_terminal):
            await anyio.sleep(50)
            log.append(attempt)

    client = ScriptedChatClient(waits(1), "a", waits(2), "b", waits(3), "c")
    router = Slow(routes=[client], clock=anyio.current_time)

    async for _ in router.get_streaming_response("hi"):
        await anyio.sleep(100)

    assert log[0].duration == pytest.approx(6)
    assert log[0].time_to_first_update == pytest.approx(1)


async def test_duration_is_measured_by_the_given_clock():
    clock = ManualClock()
    client = ScriptedChatClient(runs(lambda _: clock.advance(3)), "a")
    router = OrderedFailoverChatClient([client], clock=clock)

    response = await router.get_response("hi")

    assert response.attempts[0].duration == 3


@pytest.mark.parametrize("name", ["attempt_timeout", "first_output_timeout", "stall_timeout"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_nonsense_limits_are_refused_when_the_router_is_built(name, value):
    with pytest.raises(ConfigurationError, match=name):
        OrderedFailoverChatClient([ScriptedChatClient("a")], **{name: value})


def test_updates_without_output_are_told_from_output():
    assert not ChatResponseUpdate("", role=None).has_output
    assert ChatResponseUpdate("a").has_output


async def test_failing_client_with_timers_set_still_fails_over():
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(OverloadedError)), ScriptedChatClient("ok", finishes("stop"))],
        attempt_timeout=5,
        first_output_timeout=5,
        stall_timeout=5,
    )

    assert (await answer(router, "streaming")).text == "ok"


@MODES
@pytest.mark.parametrize("limit", [2.5, 2])
async def test_the_nearer_of_two_limits_is_the_one_that_runs_out(mode, limit):
    """On a tie it is the attempt's, which is the inner one; the request's time is over as well."""
    router = OrderedFailoverChatClient([ScriptedChatClient(waits_forever())], attempt_timeout=limit)
    began = anyio.current_time()

    with pytest.raises(RequestTimeoutError) as caught:
        await answer(router, mode, hinted(2))

    assert anyio.current_time() - began == pytest.approx(2)
    assert isinstance(caught.value.__cause__, AttemptTimeoutError) == (limit == 2)
