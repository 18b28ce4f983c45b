"""Those who wait for a reservation: in what order, for how long, and how they are woken."""

import asyncio
import random
import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint

from chatrouting import Principal, Usage
from chatrouting.errors import (
    QuotaDeadlineError,
    QuotaExhaustedError,
    QuotaQueueFullError,
    QuotaQueueTimeoutError,
    QuotaRequestTooLargeError,
    RateLimitError,
)
from chatrouting.quota._waiters import Waiter
from chatrouting.quota.classes import Pressure, TrafficClass
from chatrouting.quota.decisions import DecisionOutcome, DenialReason, FundingKind
from chatrouting.quota.guarantees import TenantContract
from chatrouting.quota.limits import BucketLimits, QuotaLimit, keys_of
from chatrouting.quota.profiles import provider_profile
from tests.quota._desk import Desk, deployment

pytestmark = pytest.mark.virtual_time

OUTPUT = QuotaLimit("output_tokens", 1000)
SLOTS = QuotaLimit("concurrency", 1)
PATIENT = TrafficClass(name="patient", max_wait=500, max_queue_items=10_000)


def patient(*deployments, classes=(PATIENT,), **settings):
    """Open a desk on the time of the event loop, whose requests wait long."""
    settings = {"default_class": classes[0].name, **settings}
    return Desk(*deployments, classes=classes, clock=anyio.current_time, **settings)


async def reserve(desk, tenant="acme", output=100, name="a", *, request_class=None, **limits):
    ticket = desk.ticket(tenant, request_class)
    return await desk.governor.reserve(desk.quote(output, name), ticket, **limits)


async def settled():
    """Let every task do what it can do now."""
    for _ in range(10):
        await checkpoint()


def room_of(desk, name="a"):
    core = desk.governor._core
    return core.room(core.deployments[name])


def is_quiet(desk):
    """Say whether nobody waits, and nothing is kept of those who did."""
    rooms = desk.governor._core.rooms.values()
    return all(
        not room.waiting and not len(room.dispatcher.line) and room.leader is None for room in rooms
    )


async def test_room_that_is_there_is_given_at_once(anyio_backend):
    desk = patient()
    reservation = await reserve(desk)
    assert reservation.decision.outcome is DecisionOutcome.ADMITTED
    assert reservation.decision.queued == 0
    assert anyio.current_time() == reservation.started_at


def test_nobody_is_left_in_the_line_who_cannot_wait():
    """Without an event loop there is nothing to wait on; those who can wait are not held up."""
    desk = Desk(classes=(PATIENT,), default_class="patient")
    desk.fill()
    waiting = desk.governor._deciding.candidate(desk.quote(), desk.ticket("first"))
    desk.governor._core.join(waiting, 0.0)

    reserving = desk.governor.reserve(desk.quote(), desk.ticket())
    with pytest.raises((RuntimeError, LookupError)):
        reserving.send(None)

    assert list(room_of(desk).waiting) == [waiting]
    assert len(room_of(desk).dispatcher.line) == 1


async def test_a_request_waits_until_the_window_has_room(anyio_backend):
    """To the tick, without anybody asking in between. [quota R48, R54, G6]"""
    desk = patient()
    desk.fill()
    predicted = desk.ask().wait
    start = anyio.current_time()
    reservation = await reserve(desk)
    assert anyio.current_time() - start == pytest.approx(predicted, abs=0.002)
    assert reservation.decision.outcome is DecisionOutcome.QUEUED_THEN_ADMITTED
    assert reservation.decision.queued == pytest.approx(predicted, abs=0.002)
    assert desk.governor.metrics.queue_waits["patient"].sum == pytest.approx(predicted, abs=0.01)
    assert is_quiet(desk)


async def test_nothing_is_polled(anyio_backend):
    """One timer at each deployment, whoever waits there. [quota G6]"""
    desk = patient()
    desk.fill()
    looks = []
    room = room_of(desk)
    look = room.dispatcher.next_granted

    def counted(now):
        looks.append(now)
        return look(now)

    room.dispatcher.next_granted = counted
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(reserve, desk)
        await settled()
        joins = len(looks)
        await anyio.sleep(50)
        assert len(looks) == joins
    assert len(looks) <= joins + 25


async def test_a_settlement_wakes_whoever_fits_then(anyio_backend):
    """[quota G6]"""
    desk = patient(deployment("a", SLOTS))
    running = desk.take()
    done = []

    async def wait():
        done.append(await reserve(desk))

    start = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await settled()
        running.settle()
    assert anyio.current_time() == start
    assert done[0].is_open


async def test_a_higher_limit_wakes_those_who_wait(anyio_backend):
    """[quota R63]"""
    desk = patient()
    desk.fill()
    start = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(reserve, desk)
        await settled()
        desk.governor.update_limits(
            deployments={"a": BucketLimits((QuotaLimit("output_tokens", 2000),))}
        )
    assert anyio.current_time() == start


async def test_those_who_wait_are_told_when_a_provider_leaves_more_again(anyio_backend):
    """A request that is too large for a limit as it was lowered. [quota R58, G6]"""
    desk = patient()
    desk.take(output=10).fail(RateLimitError("slow down", status_code=429))
    start = anyio.current_time()
    ticket = desk.ticket()
    waiting = desk.governor._deciding.candidate(desk.quote(850), ticket)
    waiting.waiter = Waiter((waiting,))
    core = desk.governor._core
    core.join(waiting, start)
    core.dispatch(room_of(desk), start)
    found = None
    while found is None:
        await waiting.waiter.wait(start + 400, anyio.current_time())
        found = desk.governor._reserving._look(waiting.waiter, start, start + 400)
    assert found.is_open
    assert anyio.current_time() - start == pytest.approx(30, abs=1)


async def test_those_who_wait_are_told_when_a_lower_limit_has_faded(anyio_backend):
    """[quota R58, G6]"""
    profile = provider_profile("openai")
    slow = TrafficClass(name="slow", max_wait=3000)
    limit = QuotaLimit("total_tokens", 1000)
    desk = patient(deployment("a", limit, profile=profile), classes=(slow,))
    running = desk.fill()
    begin = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(reserve, desk, "acme", 500)
        await settled()
        for each in running[:3]:
            desk.governor.observe(each, {"x-ratelimit-limit-tokens": "120"})
    assert anyio.current_time() - begin == pytest.approx(600, abs=1)


async def test_those_who_wait_for_a_cold_deployment_are_looked_at_each_minute(anyio_backend):
    """[quota R59, G6]"""
    profile = provider_profile("anthropic").replace(short_windows={})
    desk = patient(deployment("a", OUTPUT, profile=profile), cold_share=0.5)
    desk.fill(output=50)
    start = anyio.current_time()
    reservation = await reserve(desk, output=50)
    assert anyio.current_time() - start <= 62
    assert room_of(desk).renewed_at <= anyio.current_time() + 60
    assert reservation.is_open


@pytest.mark.parametrize("binding", ["deployment", "tenant"])
async def test_who_waits_for_a_limit_goes_when_that_is_only_watched(anyio_backend, binding):
    """[quota R62, G6]"""
    (acme,) = keys_of(Principal(tenant="acme"))
    desk = patient(ceilings={acme: BucketLimits((OUTPUT,))} if binding == "tenant" else {})
    desk.fill()
    begin = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(reserve, desk)
        await settled()
        desk.governor.update_enforcement(shadow=True)
    assert anyio.current_time() == begin
    assert is_quiet(desk)


async def test_who_may_not_borrow_waits_for_a_slot_of_its_own(anyio_backend):
    """It is not refused for good. [quota R48]"""
    own = TrafficClass(name="own", may_borrow=False, max_wait=100)
    slots = QuotaLimit("concurrency", 4)
    contracts = {"acme": TenantContract(share=0.5)}
    desk = patient(deployment("a", slots), contracts=contracts, classes=(own,))
    running = [desk.take() for _ in range(2)]
    assert desk.ask().wait < 100
    assert desk.ask("nobody").wait == float("inf")
    async with anyio.create_task_group() as group:
        group.start_soon(reserve, desk)
        await settled()
        running[0].settle()
    assert desk.log[-1].outcome is DecisionOutcome.QUEUED_THEN_ADMITTED or is_quiet(desk)


@pytest.mark.parametrize("level", ["deployment", "tenant"])
async def test_what_has_become_too_large_for_its_limits_is_told_and_keeps_nobody_back(
    anyio_backend, level
):
    """[quota G6, R63]"""
    (acme,) = keys_of(Principal(tenant="acme"))
    desk = patient(ceilings={acme: BucketLimits((OUTPUT,))})
    desk.take(output=600)
    lower = BucketLimits((QuotaLimit("output_tokens", 800),))
    refused, begin = [], anyio.current_time()

    async def large():
        with pytest.raises(QuotaRequestTooLargeError) as raised:
            await reserve(desk, output=900)
        refused.append(raised.value)

    async with anyio.create_task_group() as group:
        group.start_soon(large)
        await settled()
        assert (await reserve_later(group, desk)) == []
        if level == "deployment":
            desk.governor.update_limits(deployments={"a": lower})
        else:
            desk.governor.update_limits(ceilings={acme: lower})
    [error] = refused
    assert error.details["reason"] == "too_large"
    assert anyio.current_time() == begin
    assert is_quiet(desk)


async def reserve_later(group, desk):
    """Let a small request wait behind others; return the list that it comes into."""
    done = []

    async def small():
        done.append(await reserve(desk, output=50))

    group.start_soon(small)
    await settled()
    return done


async def test_what_a_provider_leaves_too_little_for_keeps_nobody_back(anyio_backend):
    """It is not refused: the provider may leave more again. [quota G6, R58]"""
    desk = patient()
    desk.take(output=600)
    async with anyio.create_task_group() as group:
        group.start_soon(reserve, desk, "large", 900)
        await settled()
        desk.take("small", 10).fail(RateLimitError("slow down", status_code=429))
        small = await reserve_later(group, desk)
        assert len(small) == 1
        assert len(room_of(desk).waiting) == 1
    assert is_quiet(desk)


async def test_a_higher_ceiling_wakes_those_who_wait_for_it(anyio_backend):
    """[quota R63]"""
    (key,) = keys_of(Principal(tenant="acme"))
    desk = patient(ceilings={key: BucketLimits((QuotaLimit("output_tokens", 100),))})
    desk.fill()
    start = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(reserve, desk)
        await settled()
        assert isinstance(await reserve(desk, "other"), object)
        desk.governor.update_limits(ceilings={key: None})
    assert anyio.current_time() == start


async def test_a_ceiling_that_has_room_again_wakes_those_who_wait_for_it(anyio_backend):
    """Here and at every other deployment. [quota R35, G6]"""
    (key,) = keys_of(Principal(tenant="acme"))
    desk = patient(
        deployment("a", OUTPUT),
        deployment("b", OUTPUT),
        ceilings={key: BucketLimits((QuotaLimit("concurrency", 1),))},
    )
    running = desk.take(name="a")
    start = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(reserve, desk, "acme", 100, "b")
        await settled()
        running.settle()
    assert anyio.current_time() == start


async def test_whoever_came_first_goes_first(anyio_backend):
    desk = patient(deployment("a", SLOTS))
    running = desk.take()
    order = []

    async def wait(number):
        async with await reserve(desk):
            order.append(number)

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(wait, number)
            await settled()
        running.settle()
    assert order == [0, 1, 2, 3, 4]
    assert is_quiet(desk)


async def test_whoever_comes_later_does_not_pass(anyio_backend):
    """Not at once either: a large request that waits is not starved by small ones. [quota G9]"""
    desk = patient()
    desk.fill("small", 100)
    async with anyio.create_task_group() as group:
        group.start_soon(reserve, desk, "large", 900)
        await anyio.sleep(61)
        assert not desk.fill("small", 200)
    assert desk.used() == 900


# Bounds.


async def test_a_request_that_would_wait_too_long_is_refused_at_once(anyio_backend):
    """With the predicted wait. [quota R50]"""
    desk = patient()
    desk.fill()
    start = anyio.current_time()
    with pytest.raises(QuotaDeadlineError) as caught:
        await reserve(desk, timeout=5.0)
    assert caught.value.retry_after == pytest.approx(61, abs=1)
    with pytest.raises(QuotaExhaustedError):
        await reserve(desk, max_wait=5.0)
    assert anyio.current_time() == start
    assert [each.reason for each in desk.log[-2:]] == [
        DenialReason.DEADLINE,
        DenialReason.EXHAUSTED,
    ]


async def test_the_wait_of_those_before_counts(anyio_backend):
    """[quota R50]"""
    desk = patient()
    desk.fill()
    async with anyio.create_task_group() as group:
        for _ in range(30):
            group.start_soon(reserve, desk)
        await settled()
        denial = desk.ask()
        assert denial.wait == pytest.approx(180, abs=30)
        assert desk.governor.headroom(desk.quote(), desk.ticket()).wait >= 150
        with pytest.raises(QuotaDeadlineError):
            await reserve(desk, timeout=100.0)
        group.cancel_scope.cancel()
    assert is_quiet(desk)


async def test_the_wait_of_those_before_is_longer_where_the_provider_leaves_less(anyio_backend):
    """[quota R50, R57]"""
    waits = []
    for status in (None, 429):
        desk = patient()
        running = desk.fill()
        if status is not None:
            running[0].fail(RateLimitError("slow down", status_code=status))
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(reserve, desk, "other")
            await settled()
            waits.append(desk.ask("other").wait)
            group.cancel_scope.cancel()
    assert waits[1] == pytest.approx(waits[0] / 0.8, rel=0.01)


async def test_a_queue_is_bounded(anyio_backend):
    """[quota R50]"""
    small = TrafficClass(name="small", max_queue_items=2, max_wait=500)
    desk = patient(classes=(small,))
    desk.fill()
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(reserve, desk)
        await settled()
        assert desk.governor.snapshot().scopes[0].waiting == {"small": 2}
        with pytest.raises(QuotaQueueFullError):
            await reserve(desk)


async def test_a_request_waits_no_longer_than_its_class_allows(anyio_backend):
    """Where the wait cannot be told, it ends. [quota R50, R54]"""
    desk = patient(deployment("a", SLOTS), classes=(TrafficClass(name="short", max_wait=20),))
    running = desk.take()
    start = anyio.current_time()
    with pytest.raises(QuotaQueueTimeoutError, match="while the request waited"):
        await reserve(desk)
    assert anyio.current_time() - start == pytest.approx(20, abs=0.01)
    assert desk.log[-1].outcome is DecisionOutcome.QUEUE_TIMEOUT
    assert desk.log[-1].queued == pytest.approx(20, abs=0.01)
    assert is_quiet(desk)
    running.settle()
    await reserve(desk)


async def test_what_never_fits_does_not_wait(anyio_backend):
    """[BR-63]"""
    desk = patient()
    start = anyio.current_time()
    with pytest.raises(QuotaRequestTooLargeError):
        await reserve(desk, output=2000)
    assert anyio.current_time() == start


@pytest.mark.parametrize("limits", [{"max_wait": 0}, {"timeout": -1.0}], ids=str)
async def test_times_that_mean_nothing_are_refused(anyio_backend, limits):
    """[BR-63]"""
    with pytest.raises(ValueError, match="expected seconds"):
        await reserve(patient(), **limits)


async def test_a_class_that_does_not_queue_is_refused_at_once(anyio_backend):
    """[quota R48]"""
    desk = patient(classes=(TrafficClass(name="now", on_pressure=(Pressure.REJECT,)),))
    desk.fill()
    start = anyio.current_time()
    with pytest.raises(QuotaExhaustedError) as caught:
        await reserve(desk)
    assert caught.value.fallback_allowed is False
    assert anyio.current_time() == start


async def test_a_class_that_reroutes_first_waits_only_where_there_is_nowhere_to_go(anyio_backend):
    """[quota R48, R49, R55]"""
    eager = TrafficClass(name="eager", max_wait=100, on_pressure=(Pressure.REROUTE, Pressure.QUEUE))
    desk = patient(classes=(eager,))
    desk.fill()
    with pytest.raises(QuotaExhaustedError) as caught:
        await reserve(desk, can_reroute=True)
    assert caught.value.fallback_allowed is True
    assert desk.log[-1].may_queue
    await reserve(desk)


async def test_a_lower_cap_comes_before_or_after_the_queue_as_the_class_says(anyio_backend):
    """[quota R48, R52]"""
    first = TrafficClass(
        name="first", min_output_tokens=10, on_pressure=(Pressure.DOWNGRADE, Pressure.QUEUE)
    )
    last = TrafficClass(
        name="last",
        min_output_tokens=10,
        max_wait=5,
        on_pressure=(Pressure.QUEUE, Pressure.DOWNGRADE),
    )
    desk = patient(classes=(first, last))
    desk.take(output=950)
    assert (await reserve(desk, request_class="first")).max_output_tokens == 10
    assert (await reserve(desk, request_class="last")).max_output_tokens == 10


# Cancellation.


async def test_a_cancelled_waiter_leaves_no_trace(anyio_backend):
    """[quota R51], [BR-54]"""
    desk = patient()
    desk.fill()
    with anyio.move_on_after(5):
        await reserve(desk)
    assert is_quiet(desk)
    assert desk.used() == 1000
    assert desk.log[-1].outcome is DecisionOutcome.CANCELLED
    assert desk.log[-1].queued == pytest.approx(5, abs=0.01)


async def test_a_grant_that_comes_with_the_cancellation_is_given_back(anyio_backend):
    """And goes to the next one. [quota R29, R51], [BR-54]"""
    desk = patient(deployment("a", SLOTS))
    running = desk.take()
    done = []

    async def wait():
        done.append(await reserve(desk))

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as inner:
                inner.start_soon(wait)
                await settled()
                group.start_soon(wait)
                await settled()
                scope.cancel()
                running.settle()
    assert len(done) == 1
    assert desk.used("concurrency") == 1
    assert is_quiet(desk)


async def test_a_grant_by_guarantee_that_comes_too_late_is_given_back_whole(anyio_backend):
    """[quota R29, R51]"""
    contracts = {"rich": TenantContract(share=0.5)}
    desk = patient(deployment("a", QuotaLimit("concurrency", 2), OUTPUT), contracts=contracts)
    running = [desk.take("rich", 10) for _ in range(2)]
    before = desk.governor.snapshot().scopes[0].assured
    async with anyio.create_task_group() as group:
        group.start_soon(reserve, desk, "rich", 10)
        await settled()
        assert len(room_of(desk).waiting) == 1
        group.cancel_scope.cancel()
        desk.governor.update_limits(
            deployments={"a": BucketLimits((QuotaLimit("concurrency", 4), OUTPUT))}
        )
    assert desk.used("concurrency") == 2
    after = desk.governor.snapshot().scopes[0].assured
    assert after["rich"]["output_tokens per 60 s"] == before["rich"]["output_tokens per 60 s"]
    for each in running:
        each.settle()
    assert is_quiet(desk)


@pytest.mark.parametrize("elsewhere", ["a", "b"])
async def test_what_comes_too_late_goes_to_whoever_waits_for_the_same_ceiling(
    anyio_backend, elsewhere
):
    """Wherever that is, and at once. [quota G6, R51]"""
    (acme,) = keys_of(Principal(tenant="acme"))
    slot = BucketLimits((SLOTS,))
    desk = patient(deployment("a"), deployment("b"), ceilings={acme: slot})
    running = desk.take()
    done = []

    async def wait(name):
        done.append(await reserve(desk, name=name))

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as inner:
                inner.start_soon(wait, "a")
                await settled()
                group.start_soon(wait, elsewhere)
                await settled()
                scope.cancel()
                running.settle()
        await settled()
        assert [each.decision.deployment for each in done] == [elsewhere]
    assert desk.used("concurrency", "tenant") == 1
    assert is_quiet(desk)


@pytest.mark.parametrize("first_ends", [True, False], ids=["ends before", "begins before"])
async def test_a_ticket_is_lent_when_room_is_granted_and_not_when_that_is_told(
    anyio_backend, first_ends
):
    """Until then another attempt of the request may end, or begin. [quota R29, R33]"""
    (acme,) = keys_of(Principal(tenant="acme"))
    limits = BucketLimits((QuotaLimit("requests", 50), QuotaLimit("concurrency", 50)))
    desk = patient(deployment("a", SLOTS), deployment("b"), ceilings={acme: limits})
    governor, ticket, found = desk.governor, desk.ticket(is_kept=True), []
    busy = desk.take("other")
    other = governor.try_reserve(desk.quote(name="b"), ticket)
    if not first_ends:
        other.settle()

    async def wait():
        found.append(await governor.reserve(desk.quote(), ticket))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await settled()
        busy.settle()
        if first_ends:
            other.settle()
        else:
            found.append(governor.try_reserve(desk.quote(name="b"), ticket))
    for each in found:
        each.settle()
    governor.close_ticket(ticket)
    assert desk.used("concurrency", "tenant") == 0
    assert desk.used("requests", "tenant") == 2


@pytest.mark.parametrize("has_paid", [False, True])
async def test_a_ticket_is_taken_back_from_a_grant_that_comes_too_late(anyio_backend, has_paid):
    """With what was paid for it, and not with what had been paid before. [quota R29, R51]"""
    (acme,) = keys_of(Principal(tenant="acme"))
    two = QuotaLimit("concurrency", 2)
    ceilings = {acme: BucketLimits((two,))}
    desk = patient(deployment("a", SLOTS), deployment("b"), ceilings=ceilings)
    busy, ticket = desk.take("other"), desk.ticket(is_kept=True)
    if has_paid:
        desk.governor.try_reserve(desk.quote(name="b"), ticket).settle()
    async with anyio.create_task_group() as group:
        group.start_soon(desk.governor.reserve, desk.quote(), ticket)
        await settled()
        group.cancel_scope.cancel()
        desk.governor.update_limits(deployments={"a": BucketLimits((two,))})
    assert not ticket.is_lent
    assert desk.used("concurrency", "tenant") == len(ticket.holds) == int(has_paid)
    desk.governor.close_ticket(ticket)
    busy.settle()
    assert desk.used("concurrency", "tenant") == desk.used("concurrency") == 0
    assert is_quiet(desk)


async def test_one_slot_is_asked_back_for_one_that_waits(anyio_backend):
    """Of those that borrow, the youngest that may be cut off. [quota R43, G7]"""
    batch = TrafficClass(name="batch", is_preemptible=True, may_use_guarantee=False, max_wait=500)
    desk = patient(
        deployment("a", QuotaLimit("concurrency", 4)),
        classes=(PATIENT, batch),
        contracts={"rich": TenantContract(share=0.5)},
    )
    borrowed = desk.fill("other", request_class="batch")
    mine = desk.take("rich")
    desk.governor.update_limits(deployments={"a": BucketLimits((QuotaLimit("concurrency", 3),))})
    mine.settle()
    firm = desk.take("rich")
    desk.governor.update_limits(deployments={"a": BucketLimits((QuotaLimit("concurrency", 2),))})
    firm.settle()
    async with anyio.create_task_group() as group:
        group.start_soon(reserve, desk, "rich")
        await settled()
        desk.governor.update_limits(contracts={"rich": TenantContract(share=0.5, weight=2)})
        assert [each.is_reclaimed for each in borrowed] == [False, True]
        borrowed[1].fail()
    assert desk.used("concurrency") == 2


@pytest.mark.parametrize("seed", range(10))
async def test_cancelling_half_of_a_hundred_loses_no_slot(anyio_backend, seed):
    """[quota R29, R51, G3], [BR-54]"""
    rng = random.Random(seed)
    desk = patient(deployment("a", QuotaLimit("concurrency", 2)))
    done = []

    async def wait(patience):
        with anyio.move_on_after(patience):
            async with await reserve(desk):
                await anyio.sleep(rng.uniform(0, 1))
                done.append(1)

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(wait, rng.choice([rng.uniform(0, 10), 400.0]))
    assert desk.used("concurrency") == 0
    assert is_quiet(desk)
    assert len(done) >= 30


# Several deployments.


async def test_the_first_grant_of_several_lines_wins(anyio_backend):
    """The others are left before they are charged. [quota R48]"""
    desk = patient(deployment("a", SLOTS), deployment("b", SLOTS))
    busy = {name: desk.take(name=name) for name in "ab"}
    found = []

    async def wait():
        quotes = [desk.quote(100, name) for name in "ab"]
        found.append(await desk.governor.reserve(quotes, desk.ticket()))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await settled()
        assert len(room_of(desk, "a").waiting) == len(room_of(desk, "b").waiting) == 1
        busy["b"].settle()
        busy["a"].settle()
    assert found[0].decision.deployment == "b"
    assert is_quiet(desk)
    desk.take(name="a")


async def test_several_deployments_are_tried_before_any_wait(anyio_backend):
    desk = patient(deployment("a", OUTPUT), deployment("b", OUTPUT))
    desk.fill(name="a")
    quotes = [desk.quote(100, name) for name in "ab"]
    reservation = await desk.governor.reserve(quotes, desk.ticket())
    assert reservation.decision.deployment == "b"


async def test_one_denial_of_several_names_all_limits_and_the_shortest_wait(anyio_backend):
    """[quota R39, R53]"""
    classes = (TrafficClass(name="now", on_pressure=(Pressure.REROUTE,)),)
    desk = patient(
        deployment("a", OUTPUT), deployment("b", QuotaLimit("requests", 1)), classes=classes
    )
    desk.fill(name="a")
    await anyio.sleep(5)
    desk.fill(name="b")
    with pytest.raises(QuotaExhaustedError) as caught:
        quotes = [desk.quote(100, name) for name in "ba"]
        await desk.governor.reserve(quotes, desk.ticket())
    said = caught.value.to_dict()
    assert said["deployment"] == "a"
    assert said["limiters"] == [
        "deployment test:server=b: requests per 60 s",
        "deployment test:server=a: output_tokens per 60 s",
    ]


async def test_a_denial_of_several_gives_the_reason_of_the_soonest(anyio_backend):
    """[quota R39]"""
    desk = patient(deployment("a", QuotaLimit("output_tokens", 50)), deployment("b", OUTPUT))
    desk.fill(name="b")
    quotes = [desk.quote(100, name) for name in "ab"]
    with pytest.raises(QuotaDeadlineError):
        await desk.governor.reserve(quotes, desk.ticket(), timeout=1.0)


async def test_too_large_for_one_is_no_reason_not_to_wait_for_another(anyio_backend):
    """[quota R39]"""
    desk = patient(
        deployment("a", QuotaLimit("output_tokens", 50)),
        deployment("b", OUTPUT),
    )
    desk.fill(name="b")
    quotes = [desk.quote(100, name) for name in "ab"]
    reservation = await desk.governor.reserve(quotes, desk.ticket())
    assert reservation.decision.deployment == "b"


async def test_leaving_one_line_lets_others_pass_in_it(anyio_backend):
    """[quota G6]"""
    desk = patient(deployment("a", OUTPUT), deployment("b", OUTPUT))
    desk.fill("x", 100, name="b")
    desk.fill("x", 900, name="a")
    order = []

    async def joint():
        quotes = [desk.quote(1000, "b"), desk.quote(1000, "a")]
        await desk.governor.reserve(quotes, desk.ticket())
        order.append("joint")

    async def small():
        await reserve(desk, "small", 50, "a")
        order.append("small")

    async with anyio.create_task_group() as group:
        group.start_soon(joint)
        await settled()
        group.start_soon(small)
        await settled()
    assert sorted(order) == ["joint", "small"]


# Fairness.


async def load(desk, tenant, output, *, workers, duration, done, request_class=None, until=300.0):
    """Keep several requests of a tenant coming; note when each was admitted, and its wait."""

    async def work():
        while anyio.current_time() < until:
            start = anyio.current_time()
            reservation = await reserve(desk, tenant, output, request_class=request_class)
            now = anyio.current_time()
            done.append((now, tenant, output, now - start))
            await anyio.sleep(duration)
            reservation.settle(Usage(input_tokens=20, output_tokens=output))

    async with anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(work)


def shares_of(done, start, end):
    given = {}
    for at, tenant, output, _ in done:
        if start <= at < end:
            given[tenant] = given.get(tenant, 0) + output
    total = sum(given.values())
    return {tenant: 100 * amount / total for tenant, amount in given.items()}


FAST = QuotaLimit("output_tokens", 60_000, slots=60)


async def test_weights_are_shares_under_backlog(anyio_backend):
    """Weights 1:3:6 give 10, 30 and 60 % within one point. [quota R40, G4]"""
    contracts = {name: TenantContract(weight=w) for name, w in (("a", 1), ("b", 3), ("c", 6))}
    desk = patient(
        deployment("a", QuotaLimit("output_tokens", 60_000, burst=2)), contracts=contracts
    )
    done = []
    async with anyio.create_task_group() as group:
        for tenant in "abc":
            group.start_soon(
                lambda tenant=tenant: load(
                    desk, tenant, 500, workers=30, duration=0.1, done=done, until=400.0
                )
            )
        await anyio.sleep(450)
        group.cancel_scope.cancel()
    assert shares_of(done, 60, 400) == pytest.approx({"a": 10, "b": 30, "c": 60}, abs=1)


async def test_a_tenant_within_its_share_waits_for_nobody(anyio_backend):
    """While borrowers saturate, also after they had everything. [quota R41, R43, R44, G5, G7]"""
    contracts = {"rich": TenantContract(share=0.3), "greedy": TenantContract(share=0.3)}
    desk = patient(deployment("a", FAST), contracts=contracts)
    done, mine = [], []
    rate = 0.3 * 0.9 * 1000

    async def steady():
        await anyio.sleep(120)
        while anyio.current_time() < 300:
            start = anyio.current_time()
            reservation = await reserve(desk, "rich", 270)
            mine.append((anyio.current_time() - start, reservation.funding))
            reservation.settle(Usage(input_tokens=20, output_tokens=270))
            await anyio.sleep(270 / rate)

    async with anyio.create_task_group() as group:
        group.start_soon(
            lambda: load(desk, "greedy", 400, workers=50, duration=0.5, done=done, until=300.0)
        )
        group.start_soon(steady)
        await anyio.sleep(310)
        group.cancel_scope.cancel()
    assert {wait for wait, _ in mine} == {0}
    assert {funding for _, funding in mine} == {FundingKind.GUARANTEED}
    assert len(mine) >= 175
    alone = sum(output for at, _, output, _ in done if 60 <= at < 120)
    assert alone >= 0.9 * 60_000 - 400


async def test_a_flood_of_batch_does_not_hold_up_those_who_wait(anyio_backend):
    """[quota R37, R47, R49]"""
    interactive = TrafficClass(name="interactive", weight=8, max_wait=100)
    batch = TrafficClass(name="batch", weight=1, max_wait=5000, max_queue_items=1000)
    desk = patient(
        deployment("a", QuotaLimit("output_tokens", 60_000, burst=2)), classes=(interactive, batch)
    )
    chats, bulk = [], []

    async def chat():
        await load(
            desk, "user", 300, workers=1, duration=0.5, done=chats, request_class="interactive"
        )

    async def flood():
        await load(desk, "bulk", 400, workers=200, duration=0.1, done=bulk, request_class="batch")

    async with anyio.create_task_group() as group:
        group.start_soon(flood)
        group.start_soon(chat)
        await anyio.sleep(290)
        group.cancel_scope.cancel()
    waits = sorted(wait for _, _, _, wait in chats)
    assert waits[int(0.99 * len(waits))] <= 2.0
    assert len(bulk) >= 300


# Loops and threads.


class TestInRealTime:
    """What takes part in two event loops."""

    pytestmark = pytest.mark.virtual_time(autojump_threshold=5)

    @pytest.mark.parametrize("other", ["asyncio", "trio"])
    async def test_a_request_of_one_event_loop_is_woken_from_another(self, anyio_backend, other):
        """Whatever loop that is. [quota R29]"""
        desk = Desk(deployment("a", SLOTS), classes=[PATIENT], default_class="patient")
        desk.clock.advance(1)
        running = desk.take()
        joined = threading.Event()
        found = []

        async def elsewhere():
            async with anyio.create_task_group() as group:

                async def wait():
                    found.append(await reserve(desk))

                group.start_soon(wait)
                while not room_of(desk).waiting:
                    await checkpoint()
                joined.set()

        thread = threading.Thread(target=anyio.run, args=(elsewhere,), kwargs={"backend": other})
        thread.start()
        assert joined.wait(10)
        running.settle()
        thread.join(10)
        assert found[0].is_open
        assert is_quiet(desk)

    async def test_four_loops_share_one_governor(self, anyio_backend):
        """No more run at once than there are slots, and nobody is forgotten. [quota R29, G3]"""
        desk = Desk(
            deployment("a", QuotaLimit("concurrency", 3)),
            classes=[PATIENT],
            default_class="patient",
        )
        guard = threading.Lock()
        running, most, done = [], [], []

        async def work():
            for _ in range(20):
                async with await reserve(desk):
                    with guard:
                        running.append(1)
                        most.append(len(running))
                    await checkpoint()
                    with guard:
                        running.pop()
                done.append(1)

        async def loop():
            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(work)

        threads = [
            threading.Thread(target=anyio.run, args=(loop,), kwargs={"backend": backend})
            for backend in ("asyncio", "trio") * 2
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(done) == 320
        assert max(most) <= 3
        assert desk.used("concurrency") == 0
        assert is_quiet(desk)

    def test_a_request_of_a_loop_that_was_closed_around_it_is_left_behind(self):
        """In the same thread: `run_until_complete` ends with tasks that still wait. [quota R29]"""
        desk = Desk(deployment("a", SLOTS), classes=[PATIENT], default_class="patient")
        running = desk.take()
        kept = []

        async def leave_a_task():
            wait = desk.governor.reserve(desk.quote(), desk.ticket())
            kept.append(asyncio.ensure_future(wait))
            await asyncio.sleep(0)

        loop = asyncio.new_event_loop()
        loop.run_until_complete(leave_a_task())
        loop.close()
        room = room_of(desk)
        desk.governor._core.set_timer(room)
        assert room.leader is None
        running.settle()
        assert desk.used("concurrency") == 0
        assert is_quiet(desk)
        kept[0]._log_destroy_pending = False

    async def test_a_request_of_a_loop_that_is_gone_takes_nothing(self, anyio_backend):
        """[quota R29]"""
        desk = Desk(deployment("a", SLOTS), classes=[PATIENT], default_class="patient")
        running = desk.take()
        core = desk.governor._core
        candidate = desk.governor._deciding.candidate(desk.quote(), desk.ticket())

        async def begin():
            candidate.waiter = Waiter((candidate,))

        thread = threading.Thread(target=anyio.run, args=(begin,))
        thread.start()
        thread.join(10)
        core.join(candidate, desk.clock())
        running.settle()
        assert desk.used("concurrency") == 0
        assert is_quiet(desk)
