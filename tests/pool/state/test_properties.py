"""What holds of every pool, whatever its policy, its members and what happens to them."""

from collections import Counter
from math import floor
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chatrouting.errors import (
    APIConnectionError,
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    NoEndpointAvailableError,
    OverloadedError,
    QuotaExceededError,
    RateLimitError,
)
from chatrouting.pool import Endpoint, EndpointMode, EndpointPool, PoolPolicy, Ticket
from chatrouting.testing import ManualClock

REGIONS = [None, "eastus", "swedencentral", "westus"]

ENDPOINT = st.fixed_dictionaries(
    {
        "region": st.sampled_from(REGIONS),
        "priority": st.integers(1, 2),
        "mode": st.sampled_from(EndpointMode),
        "weight": st.sampled_from([None, 1.0, 5.0]),
        "max_concurrency": st.sampled_from([None, None, 1, 3]),
        "quota_group": st.sampled_from([None, None, "shared"]),
        "tpm": st.sampled_from([None, 500]),
    }
)
POLICY: st.SearchStrategy[dict[str, Any] | None] = st.one_of(
    st.just({}),
    st.just(None),
    st.fixed_dictionaries(
        {
            "strategy": st.sampled_from(["random", "weighted", "p2c", "affinity"]),
            "probe_concurrency": st.sampled_from([None, 1, 2]),
            "max_ejection": st.sampled_from([None, 0.0, 0.5]),
            "panic": st.booleans(),
            "when_all_cooling": st.sampled_from(["wait", "try_soonest"]),
            "member_fault": st.sampled_from(["raise", "raise_and_park", "rotate"]),
            "max_retry_after": st.sampled_from([120.0, 3600.0]),
            "cooldown_jitter": st.sampled_from([0.0, 0.5]),
            "slow_start": st.sampled_from([0.0, 30.0]),
            "ptu_exact_hint": st.booleans(),
            "ptu_grace": st.sampled_from([0.0, 2.0]),
            "enforce_tpm": st.booleans(),
            "max_transient_cooldown": st.sampled_from([None, 60.0]),
            "trial_share": st.sampled_from([None, 0.3]),
            "prefer_regions": st.sampled_from([(), ("westus", "eastus")]),
            "allow_regions": st.sampled_from([None, frozenset({"eastus", "swedencentral"})]),
        }
    ),
)
ENDS = st.sampled_from(["success", "release", "wrong", "throttle", "fail", "full", "deny", "lost"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("pick"),
            st.sampled_from([None, {"eastus"}, {"swedencentral", "westus"}]),
            st.sampled_from([None, "k1", "k2"]),
        ),
        st.tuples(st.just("end"), ENDS, st.sampled_from([None, 0.5, 9.0, 300.0])),
        st.tuples(st.just("pass"), st.none(), st.sampled_from([0.0, 0.5, 2.0, 5.0, 60.0, 400.0])),
    ),
    min_size=10,
    max_size=80,
)


def error_of(end: str, hint: float | None) -> Exception:
    return {
        "wrong": BadRequestError("no", status_code=400),
        "throttle": RateLimitError("slow down", status_code=429, retry_after=hint),
        "fail": InternalServerError("broken", status_code=500),
        "full": OverloadedError("full", status_code=503, retry_after=hint),
        "deny": AuthenticationError("bad key", status_code=401),
        "lost": APIConnectionError("no route"),
    }.get(end) or QuotaExceededError("of a member's own")


class Diary:
    """Runs the steps and checks what must hold after each."""

    def __init__(self, pool: EndpointPool[Any], clock: ManualClock, order: Random) -> None:
        self.pool = pool
        self.policy = pool.policy
        self.clock = clock
        self.order = order
        self.running: list[Ticket] = []
        self.hinted: dict[str, float] = {}
        self.ends = self.cooldowns()

    def cooldowns(self) -> dict[str, float]:
        members = self.pool._core.table.members
        return {name: member.cooldown_until for name, member in members.items()}

    def pick(self, regions: set[str] | None, key: str | None) -> None:
        try:
            found = self.pool.pick(regions=regions, affinity_key=key, tokens=100)
        except NoEndpointAvailableError:
            return
        if not isinstance(found, Ticket):
            assert found.wait >= 0
            return
        endpoint = found.endpoint
        self.running.append(found)
        # A residency filter is never violated.
        assert regions is None or endpoint.region in regions
        allowed = self.policy.allow_regions
        assert allowed is None or endpoint.region in allowed
        # No member is asked before the time that its server stated.
        assert self.hinted.get(endpoint.id, -1.0) <= self.clock.seconds
        running = Counter(ticket.endpoint.id for ticket in self.running)
        probing = Counter(ticket.endpoint.id for ticket in self.running if ticket.is_probe)
        assert running[endpoint.id] <= (endpoint.max_concurrency or len(self.running))
        assert probing[endpoint.id] <= (self.policy.probe_concurrency or 0)

    def end(self, how: str, hint: float | None) -> None:
        if not self.running:
            return
        ticket = self.running.pop(self.order.randrange(len(self.running)))
        is_successful_probe = how == "success" and ticket.is_probe
        if how == "success":
            self.pool.succeeded(ticket, latency=hint)
        elif how == "release":
            self.pool.released(ticket)
        else:
            self.pool.failed(ticket, error_of(how, hint))
        if how in ("throttle", "full") and hint is not None and len(self.pool.endpoints) > 1:
            self.hinted[ticket.endpoint.id] = max(
                self.hinted.get(ticket.endpoint.id, 0.0),
                self.clock.seconds + min(hint, self.policy.max_retry_after),
            )
        self.check_rests(ticket.endpoint.id if is_successful_probe else None)

    def check_rests(self, reopened: str | None) -> None:
        before, self.ends = self.ends, self.cooldowns()
        for name, end in before.items():
            # A rest never ends earlier than it was to end, except by a successful probe.
            assert self.ends[name] >= end or name == reopened
        if self.policy.max_ejection is not None:
            members = self.pool._core.table.members.values()
            left_out = sum(member.faulted_until > self.clock.seconds for member in members)
            assert left_out <= max(1, floor(self.policy.max_ejection * len(members)))


@given(
    endpoints=st.lists(ENDPOINT, min_size=1, max_size=5),
    fields=POLICY,
    seed=st.integers(0, 1000),
    steps=STEPS,
)
def test_rests_filters_probes_and_counters_hold_whatever_happens(endpoints, fields, seed, steps):
    """[pools B7] [pools B8] [BR-28] [BR-39] [BR-47]"""
    endpoints[0]["region"] = "eastus"  # somebody may be asked whatever the policy
    policy = PoolPolicy.resilient() if fields is None else PoolPolicy(**fields)
    clock = ManualClock()
    pool: EndpointPool[Any] = EndpointPool(
        [Endpoint(f"m{number}", **facts) for number, facts in enumerate(endpoints)],
        policy=policy,
        clock=clock,
        rng=Random(seed),
    )
    diary = Diary(pool, clock, Random(seed))
    for kind, what, number in steps:
        if kind == "pick":
            diary.pick(what, number)
        elif kind == "end":
            diary.end(what, number)
        else:
            clock.advance(number)
    # Everything is given back, and nothing is left over.
    while diary.running:
        diary.end("release", None)
    assert all(state.in_flight == 0 for state in pool.snapshot())
    assert all(member.probes == 0 for member in pool._core.table.members.values())
    clock.advance(10_000)
    assert isinstance(pool.pick(), Ticket)


def test_mixed_ends_leave_no_counter_and_spread_the_load(build):
    """[BR-47]: a counter that once went below zero drew all traffic to the first member."""
    pool = build("a", "b", "c", strategy="p2c")
    random = Random(1)
    asked: Counter[str] = Counter()
    running: list[Ticket] = []
    for _ in range(200):
        ticket = pool.take()
        asked[ticket.endpoint.id] += 1
        running.append(ticket)
        if len(running) > 10:
            done = running.pop(random.randrange(len(running)))
            for _ in range(2):  # a second time must not count
                pool.released(done) if random.random() < 0.5 else pool.succeeded(done)
    for ticket in running:
        pool.released(ticket)
    assert [state.in_flight for state in pool.snapshot()] == [0, 0, 0]
    assert all(50 <= count <= 84 for count in asked.values())
