"""Waiting for a member: not for ever, not as a herd, and never for nothing."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from chatrouting.errors import (
    AuthenticationError,
    InternalServerError,
    NoEndpointAvailableError,
    PoolExhaustedError,
    RateLimitError,
)
from chatrouting.pool import Endpoint, EndpointMode, EndpointPool, PoolPolicy, Ticket, waiting

pytestmark = pytest.mark.virtual_time


def pool_of(*members: Endpoint | str, **fields: Any) -> EndpointPool[Any]:
    """Make a pool that goes by the event loop's clock."""
    return EndpointPool(
        [Endpoint(each) if isinstance(each, str) else each for each in members],
        policy=PoolPolicy(**fields),
        name="test",
        clock=anyio.current_time,
        rng=Random(0),
    )


def take(pool: EndpointPool[Any], name: str) -> Ticket:
    found = pool.pick(exclude=[each.id for each in pool.endpoints if each.id != name])
    assert isinstance(found, Ticket)
    return found


def throttle(pool: EndpointPool[Any], **seconds: float) -> None:
    for name, hint in seconds.items():
        error = RateLimitError("slow down", status_code=429, retry_after=hint)
        pool.failed(take(pool, name), error)


async def elapsed(call: Callable[[], Any]) -> float:
    started = anyio.current_time()
    await call()
    return anyio.current_time() - started


async def test_a_request_waits_for_the_member_that_is_ready_first(anyio_backend):
    """[pools 56]: both pre-cooled, 0.5 s and 2 s; the first is asked after 0.45 s to 2 s."""
    pool = pool_of("a", "b", base_cooldown=0.0)
    throttle(pool, a=0.5, b=2.0)
    started = anyio.current_time()
    ticket = await pool.acquire()
    assert ticket.endpoint.id == "a"
    assert 0.5 <= anyio.current_time() - started <= 0.75


async def test_a_member_that_is_ready_is_not_waited_for(anyio_backend):
    pool = pool_of("a", "b")
    throttle(pool, a=60)
    assert await elapsed(pool.acquire) == 0


async def test_a_wait_that_is_too_long_fails_at_once_and_says_when(anyio_backend):
    """[pools 55] [pools B12] [BR-28] [BR-37]; litellm 27823: no hint on exhaustion."""
    pool = pool_of("a", Endpoint("b", priority=2))
    throttle(pool, a=90, b=60)
    with anyio.fail_after(0.001), pytest.raises(PoolExhaustedError) as exhausted:
        await pool.acquire(limit=30)
    assert exhausted.value.retry_after == pytest.approx(60)
    assert str(exhausted.value) == (
        "all endpoints of the pool 'test' are held back; 'b' is ready first, in 60.0 s. "
        "Try again then, or add an endpoint."
    )


async def test_a_policy_may_refuse_to_wait_at_all(anyio_backend):
    """[litellm 3646]: fail or wait? The policy says."""
    pool = pool_of("a", "b", when_all_cooling="raise")
    throttle(pool, a=0.1, b=0.1)
    with pytest.raises(PoolExhaustedError):
        await pool.acquire()


@pytest.mark.parametrize("when_all_cooling", ["wait", "raise"])
async def test_reserved_throughput_is_waited_for_if_there_is_time(anyio_backend, when_all_cooling):
    """What is paid already is worth a wait, but no failure."""
    pool = pool_of(
        Endpoint("ptu", mode=EndpointMode.PTU),
        Endpoint("payg", priority=2),
        ptu_exact_hint=True,
        ptu_grace=1.0,
        when_all_cooling=when_all_cooling,
    )
    throttle(pool, ptu=0.75)
    hurried = await pool.acquire(limit=0.5)
    assert hurried.endpoint.id == "payg"
    patient = await pool.acquire(limit=5)
    assert patient.endpoint.id == "ptu"


async def test_a_wait_can_be_cancelled_at_once(anyio_backend):
    """[pools B11]"""
    pool = pool_of("a", "b")
    throttle(pool, a=100, b=100)
    with anyio.move_on_after(1) as scope:
        await pool.acquire()
    assert scope.cancelled_caught
    assert anyio.current_time() - scope.deadline < 0.001
    assert not pool._core.room.waiters


async def test_filters_that_leave_nobody_are_not_waited_for(anyio_backend):
    pool = pool_of(Endpoint("a", region="eastus"))
    with pytest.raises(NoEndpointAvailableError):
        await pool.acquire(regions={"westus"})


async def test_those_who_wait_for_one_member_do_not_come_as_a_herd(anyio_backend):
    """[pools B14] [pools 43]: nobody knows yet what it can bear, so that few come at first."""
    pool = pool_of("a", "b")
    throttle(pool, a=10, b=1000)
    times: list[float] = []

    async def ask() -> None:
        await pool.acquire(limit=60)
        times.append(round(anyio.current_time(), 6))

    started = anyio.current_time()
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(ask)
    assert started + 10 <= min(times)
    assert max(times) <= started + 10 + 0.25 * 50
    assert sum(time < started + 11 for time in times) <= 25
    assert len(set(times)) == 50


async def test_each_answer_wakes_two_who_wait(anyio_backend):
    """[pools B14]: a member that answers can bear more, one that was throttled meanwhile cannot."""
    pool = pool_of("a", "b")
    throttle(pool, a=10, b=1000)
    waves: Counter[int] = Counter()

    async def ask() -> None:
        ticket = await pool.acquire(limit=60)
        waves[int(anyio.current_time() - started - 10)] += 1
        await anyio.sleep(1)
        pool.succeeded(ticket)

    started = anyio.current_time()
    async with anyio.create_task_group() as group:
        for _ in range(500):
            group.start_soon(ask)
    by_second = [waves[second] for second in range(len(waves))]
    assert by_second[0] <= 30
    assert all(later <= 3 * before + 30 for before, later in pairwise(by_second))
    assert len(by_second) <= 6


async def test_who_waits_for_a_probe_looks_again_though_nobody_tells(anyio_backend):
    """The probe ends, the one that it wakes is refused: the others must not wait for ever."""
    pool = pool_of("a", "b", probe_concurrency=1)
    pool.failed(take(pool, "a"), InternalServerError("broken", status_code=500))
    throttle(pool, b=100)
    await anyio.sleep(5)
    probe = await pool.acquire()
    times: list[float] = []

    async def ask() -> None:
        await pool.acquire()  # and never gives back what it got
        times.append(anyio.current_time())

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(ask)
        await anyio.sleep(1)
        pool.succeeded(probe)
        now = anyio.current_time()
    assert sum(time == now for time in times) == 2
    assert max(times) <= now + 5 + 0.25 * 10


async def test_a_slot_wakes_the_request_that_waited_longest(anyio_backend):
    """[pools B13]"""
    pool = pool_of(Endpoint("a", max_concurrency=1))
    held = await pool.acquire()
    order: list[int] = []

    async def ask(number: int) -> None:
        ticket = await pool.acquire()
        order.append(number)
        await checkpoint()
        pool.succeeded(ticket)

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(ask, number)
            await anyio.sleep(0.01)
        pool.succeeded(held)
    assert order == [0, 1, 2, 3, 4]


async def test_two_slots_that_come_at_once_wake_two_requests(anyio_backend):
    pool = pool_of(Endpoint("a", max_concurrency=2))
    held = [await pool.acquire(), await pool.acquire()]
    times: list[float] = []

    async def ask() -> None:
        await pool.acquire(limit=60)
        times.append(anyio.current_time())

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        group.start_soon(ask)
        await anyio.sleep(1)
        now = anyio.current_time()
        for ticket in held:
            pool.released(ticket)
    assert times == [now, now]


async def test_who_queued_for_a_member_that_is_throttled_meanwhile_does_not_rush_it(anyio_backend):
    """[pools B13]"""
    pool = pool_of(Endpoint("a", max_concurrency=1), Endpoint("b", max_concurrency=1))
    first, second = await pool.acquire(), await pool.acquire()
    times: list[float] = []

    async def ask() -> None:
        ticket = await pool.acquire()
        times.append(anyio.current_time())
        await anyio.sleep(1)
        pool.succeeded(ticket)

    started = anyio.current_time()
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(ask)
        await anyio.sleep(0.01)
        pool.failed(first, RateLimitError("slow down", status_code=429, retry_after=30))
        pool.failed(second, RateLimitError("slow down", status_code=429, retry_after=20))
    assert min(times) >= started + 20
    assert len(times) == 4


async def test_a_slot_goes_to_a_request_that_can_use_it(anyio_backend):
    pool = pool_of(
        Endpoint("eu", region="eu", max_concurrency=1),
        Endpoint("us", region="us", max_concurrency=1),
    )
    held = {name: take(pool, name) for name in ("eu", "us")}
    got: list[str] = []

    async def ask(region: str) -> None:
        ticket = await pool.acquire(regions={region}, limit=60)
        got.append(ticket.endpoint.id)

    async with anyio.create_task_group() as group:
        for region in ("eu", "us"):
            group.start_soon(ask, region)
            await anyio.sleep(0.01)
        pool.released(held["us"])
        await anyio.sleep(1)
        assert got == ["us"]
        pool.released(held["eu"])
    assert got == ["us", "eu"]


async def test_a_request_that_is_cancelled_as_its_slot_comes_hands_it_on(anyio_backend):
    """[BR-54]"""
    pool = pool_of(Endpoint("a", max_concurrency=1))
    held = await pool.acquire()
    got: list[str] = []
    scope = anyio.CancelScope()

    async def ask(name: str, own: anyio.CancelScope) -> None:
        with own:
            await pool.acquire()
            got.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "cancelled", scope)
        await anyio.sleep(0.01)
        group.start_soon(ask, "next", anyio.CancelScope(deadline=anyio.current_time() + 5))
        await anyio.sleep(0.01)
        pool.released(held)
        scope.cancel()
    assert got == ["next"]


async def test_half_of_a_crowd_may_give_up_and_no_slot_is_lost(anyio_backend):
    """[BR-54]: limit 1 to 3, a hundred that wait, a random half of them cancelled."""
    for seed in range(6):
        pool = pool_of(Endpoint("a", max_concurrency=1 + seed % 3))
        random = Random(seed)
        done: list[int] = []

        async def ask(number: int, patience: float, pool=pool, done=done) -> None:
            with anyio.move_on_after(patience):
                ticket = await pool.acquire()
                try:
                    await anyio.sleep(0.01)
                finally:
                    pool.released(ticket)
                done.append(number)

        patient = set(random.sample(range(100), 50))
        async with anyio.create_task_group() as group:
            for number in range(100):
                patience = 1000.0 if number in patient else random.random()
                group.start_soon(ask, number, patience)
        assert patient <= set(done)
        assert pool.snapshot()[0].in_flight == 0
        assert not pool._core.room.waiters


async def test_a_request_waits_for_a_slot_no_longer_than_it_may(anyio_backend):
    pool = pool_of(Endpoint("a", max_concurrency=1))
    await pool.acquire()
    with pytest.raises(PoolExhaustedError, match="when a running attempt ends") as exhausted:
        await pool.acquire(limit=3)
    assert exhausted.value.retry_after is None


async def test_those_who_wait_for_a_probe_hear_of_its_end(anyio_backend):
    """[BR-45]"""
    pool = pool_of("a", "b", probe_concurrency=1)
    pool.failed(take(pool, "a"), InternalServerError("broken", status_code=500))
    throttle(pool, b=100)
    await anyio.sleep(5)
    probe = await pool.acquire()
    got: list[float] = []

    async def ask() -> None:
        ticket = await pool.acquire()
        got.append(anyio.current_time())
        await anyio.sleep(0.01)
        pool.succeeded(ticket)

    started = anyio.current_time()
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask)
        await anyio.sleep(1)
        assert got == []
        pool.succeeded(probe)
    assert len(got) == 20
    assert max(got) <= started + 1.08


async def test_an_answer_from_before_a_failure_wakes_nobody(anyio_backend):
    """[BR-45]: the one that waits for the probe would find no slot."""
    pool = pool_of("a", "b", probe_concurrency=1)
    old = take(pool, "a")
    pool.failed(take(pool, "a"), InternalServerError("broken", status_code=500))
    throttle(pool, b=100)
    await anyio.sleep(5)
    probe = await pool.acquire()
    times: list[float] = []

    async def ask() -> None:
        await pool.acquire()
        times.append(anyio.current_time())

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.sleep(1)
        pool.succeeded(old)
        await anyio.sleep(1)
        assert times == []
        now = anyio.current_time()
        pool.succeeded(probe)
    assert times == [now]


async def test_a_probe_that_says_nothing_is_taken_over_by_one_who_waits(anyio_backend):
    """[BR-45]"""
    pool = pool_of("a", "b", probe_concurrency=1)
    pool.failed(take(pool, "a"), InternalServerError("broken", status_code=500))
    throttle(pool, b=100)
    await anyio.sleep(5)
    probe = await pool.acquire()
    got: list[Ticket] = []

    async def ask() -> None:
        got.append(await pool.acquire())

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.sleep(1)
        now = anyio.current_time()
        pool.released(probe)
    assert (got[0].endpoint.id, got[0].is_probe) == ("a", True)
    assert anyio.current_time() <= now + 0.26


async def test_all_who_wait_for_a_slot_hear_that_its_member_rests(anyio_backend):
    """[pools B13]: also if the first of them gives up meanwhile."""
    pool = pool_of(Endpoint("a", max_concurrency=1), "b")
    throttle(pool, b=100)
    held = take(pool, "a")
    times: list[float] = []

    async def ask(patience: float) -> None:
        with anyio.move_on_after(patience):
            await pool.acquire()
            times.append(anyio.current_time())

    started = anyio.current_time()
    async with anyio.create_task_group() as group:
        for patience in (5.0, 1000.0):
            group.start_soon(ask, patience)
            await anyio.sleep(0.01)
        pool.failed(held, RateLimitError("slow down", status_code=429, retry_after=10))
    assert len(times) == 1
    assert started + 10 <= times[0] <= started + 11


async def test_a_parked_member_that_answers_ends_the_wait_for_others(anyio_backend):
    pool = pool_of("a", "b")
    denied = AuthenticationError("bad key", status_code=401)
    pool.failed(take(pool, "a"), denied)
    pool.failed(take(pool, "b"), denied)
    mended = take(pool, "a")
    pool.failed(take(pool, "b"), RateLimitError("slow down", status_code=429, retry_after=50))
    started = anyio.current_time()
    pool.succeeded(mended)
    ticket = await pool.acquire()
    assert ticket.endpoint.id == "a"
    assert anyio.current_time() == started


async def test_new_endpoints_end_a_wait(anyio_backend):
    pool = pool_of("a", "b")
    throttle(pool, a=100, b=100)

    async def mend() -> None:
        await anyio.sleep(1)
        pool.replace_endpoints([*pool.endpoints, Endpoint("c")])

    async with anyio.create_task_group() as group:
        group.start_soon(mend)
        ticket = await pool.acquire()
    assert ticket.endpoint.id == "c"


async def test_what_happens_between_a_look_and_the_wait_is_not_missed(anyio_backend):
    pool = pool_of(Endpoint("a", max_concurrency=1))
    ticket = await pool.acquire()
    cooling = pool.pick()
    pool.released(ticket)
    with anyio.fail_after(1):
        await pool._core.room.wait(
            100, changes=cooling.changes, accepts=lambda _: True, stagger=0.0
        )


def test_a_waiter_whose_event_loop_is_gone_takes_no_slot():
    """[BR-71]"""
    pool = EndpointPool([Endpoint("a", max_concurrency=1)])
    room = pool._core.room

    async def wait_and_leave() -> None:
        waiter = waiting._Waiter(lambda _: True)
        room.waiters.append(waiter)

    for backend in ("asyncio", "trio"):
        anyio.run(wait_and_leave, backend=backend)
    assert len(room.waiters) == 2
    room.wake_one(Endpoint("a"))
    assert not room.waiters


@pytest.mark.parametrize("wakes", ["one", "all"])
async def test_a_ticket_collected_in_the_middle_of_the_room_wakes_after_it(anyio_backend, wakes):
    """A destructor that waits for the lock of its own thread would wait for ever. [BR-53]"""
    room = waiting.WaitingRoom()
    with room._lock:
        if wakes == "one":
            room.wake_one(Endpoint("a"))
        else:
            room.wake_all()
        assert room.changes == 0
    assert room.changes == 1
