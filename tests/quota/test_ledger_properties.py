"""What holds of the ledger whatever happens, in whatever order, on whatever clock.

A state machine admits, settles, extends and changes limits at times that also go back. Beside the
ledger stands a model that keeps every single charge; the ledger may never know less than it, and
at most the charges of one slot more.
"""

import copy
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chatrouting.options import Principal
from chatrouting.quota.charging import admission_costs, settlement_costs
from chatrouting.quota.ledger import Denial, Hold, Ledger
from chatrouting.quota.limits import (
    BucketKey,
    BucketLimits,
    ChargePolicy,
    Level,
    ProviderScope,
    QuotaLimit,
    keys_of,
)

pytestmark = pytest.mark.timeout(180)

NEARLY = 1 + 1e-6
AGES = 1e7  #: A window that nothing leaves: what it counts is all that was ever charged.
LEASE = 45.0

POLICIES = [
    ChargePolicy(),
    ChargePolicy(output_charge="cap", refund="none", failed_requests="free"),
    ChargePolicy(output_charge="generated", cache_reads="release_on_settle"),
]


def limits(requests, tokens, places, policy, is_turned):
    """Make limits, some over the same slots; turned, the same ones stand in another order."""
    limits = (
        QuotaLimit("requests", requests, window=1, slots=4),
        QuotaLimit("requests", 2 * requests, window=10),
        QuotaLimit("requests", 6 * requests, window=60, slots=7),
        QuotaLimit("output_tokens", tokens, window=60),
        QuotaLimit("input_tokens", 2 * tokens, window=60),
        QuotaLimit("total_tokens", 2 * tokens, window=60),
        QuotaLimit("input_tokens", 300, window=10, kind="bucket", burst=2.0),
        QuotaLimit("total_tokens", 1e9, window=AGES),
        QuotaLimit("concurrency", places),
    )
    return BucketLimits(limits[::-1] if is_turned else limits, policy)


some_limits = st.builds(
    limits,
    requests=st.integers(1, 4),
    tokens=st.sampled_from([500, 1000, 2000.5]),
    places=st.integers(1, 4),
    policy=st.sampled_from(POLICIES),
    is_turned=st.booleans(),
)
steps = st.sampled_from([0.0, 0.001, 0.25, 0.3, 1.0, 7.0, 11.0, 61.0, -11.0]) | st.floats(-2, 20)
amounts = st.sampled_from([0, 1, 50, 100, 300]) | st.floats(0, 700)
some_charges = st.fixed_dictionaries(
    {"requests": st.just(1), "concurrency": st.just(1), "output_tokens": amounts},
    optional={
        "input_tokens": amounts,
        "output_cap": amounts,
        "cache_read_tokens": st.integers(0, 50),
    },
)
some_usage = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "input_tokens": amounts,
        "output_tokens": amounts,
        "cache_read_tokens": st.integers(0, 50),
    },
)
some_ends = st.sampled_from(["served", "failed", "unsent"])
some_keys = st.builds(
    keys_of,
    st.builds(Principal, tenant=st.sampled_from("ab"), api_key=st.sampled_from([None, "k"])),
    scope=st.sampled_from([None, ProviderScope("x"), ProviderScope("y")]),
)


@dataclass
class Charge:
    """An amount, and when it was charged."""

    at: float
    amount: float


@dataclass
class Entry:
    """What the model knows of one hold in one bucket."""

    policy: ChargePolicy
    costs: dict[str, float]
    charges: dict[str, Charge]


@dataclass
class Account:
    """Every charge of one bucket."""

    charged: dict[str, list[Charge]] = field(default_factory=dict)

    def add(self, dimension, at, amount):
        charge = Charge(at, amount)
        self.charged.setdefault(dimension, []).append(charge)
        return charge

    def over(self, dimension, after, until):
        """Return the sum of what was charged in a span, and the largest charge."""
        found = [
            each.amount for each in self.charged.get(dimension, ()) if after < each.at <= until
        ]
        return sum(found), max(found, default=0)


def has_holds(machine):
    """A function with a name: old versions of hypothesis parse a lambda's source at each step."""
    return bool(machine.holds)


class LedgerMachine(RuleBasedStateMachine):
    """A ledger and its model. [quota G1, G2, G3, G8] [quota R29, R33, R57, R63]"""

    @initialize(tenant=some_limits, key=some_limits, deployment=some_limits)
    def start(self, tenant, key, deployment):
        self.limits = {Level.TENANT: tenant, Level.API_KEY: key, Level.DEPLOYMENT: deployment}
        self.ledger = Ledger(lambda key: self.limits[key.level], lease=LEASE)
        self.given = self.now = 100.0
        self.accounts: dict[BucketKey, Account] = {}
        self.holds: list[tuple[Hold, dict, dict[BucketKey, Entry]]] = []

    def wait(self, step):
        """Read the clock, which may have gone back."""
        self.given = max(0.0, self.given + step)
        self.now = max(self.now, self.given)

    @rule(keys=some_keys, charges=some_charges, step=steps)
    def admit(self, keys, charges, step):
        self.wait(step)
        path = self.ledger.path(keys)
        before = list(self.ledger.usage(path, self.given))
        found = self.ledger.admit(path, charges, self.given)
        if isinstance(found, Denial):
            assert list(self.ledger.usage(path, self.given)) == before
            self.check_wait(*copy.deepcopy((self.ledger, path)), charges, found.wait)
            return
        entries = {}
        for key in keys:
            policy = self.limits[key.level].policy
            costs = admission_costs(policy, charges)
            account = self.accounts.setdefault(key, Account())
            entries[key] = Entry(
                policy,
                costs,
                {name: account.add(name, self.now, cost) for name, cost in costs.items()},
            )
        self.holds.append((found, charges, entries))
        self.check_windows(entries)

    def check_wait(self, ledger, path, charges, wait):
        """At the time that was named, and not before, the request is admitted."""
        too_early = copy.deepcopy((ledger, path))
        if wait == float("inf"):
            assert isinstance(ledger.admit(path, charges, self.now + 1e6), Denial)
            return
        assert isinstance(ledger.admit(path, charges, self.now + wait), Hold)
        if wait > 0.002:
            ledger, path = too_early
            assert isinstance(ledger.admit(path, charges, self.now + wait - 0.001), Denial)

    def check_windows(self, entries):
        """No window that ends now, and that the request needed, holds more than its limit."""
        for key, entry in entries.items():
            account = self.accounts[key]
            for limit in self.limits[key.level].limits:
                if not entry.costs.get(limit.dimension):
                    continue
                used, _ = account.over(limit.dimension, self.now - limit.window, self.now)
                if limit.kind != "gauge":
                    assert used <= limit.usable * NEARLY
                if limit.kind == "bucket":
                    burst = limit.usable * limit.burst / limit.window
                    for span in (1, 10, 60):
                        used, largest = account.over(limit.dimension, self.now - span, self.now)
                        refill = (limit.usable - burst) / limit.window * span
                        # One that is larger than the burst goes through alone.
                        assert used <= max(largest, burst + refill) * NEARLY

    @precondition(has_holds)
    @rule(
        data=st.data(),
        actual=some_usage,
        step=steps,
        end=st.sampled_from(["served", "failed", "unsent"]),
    )
    def settle(self, data, actual, step, end):
        self.wait(step)
        hold, charges, entries = self.holds.pop(data.draw(st.integers(0, len(self.holds) - 1)))
        sent, failed = end != "unsent", end == "failed"
        assert self.ledger.settle(hold, actual, self.given, sent=sent, failed=failed)
        for key, entry in entries.items():
            costs = {}
            if sent:
                costs = settlement_costs(
                    entry.policy, charges, entry.costs, actual or {}, failed=failed
                )
            for name in {*costs, *entry.costs}:
                before, after = entry.costs.get(name, 0), costs.get(name, 0)
                if after > before:
                    self.accounts[key].add(name, self.now, after - before)
                elif name in entry.charges:
                    entry.charges[name].amount = after
        assert not self.ledger.settle(hold, actual, self.given, sent=False)

    @precondition(has_holds)
    @rule(data=st.data(), step=steps)
    def extend(self, data, step):
        self.wait(step)
        hold, _, _ = self.holds[data.draw(st.integers(0, len(self.holds) - 1))]
        self.ledger.extend(hold, self.given)
        assert hold.expires == self.now + LEASE

    @rule(level=st.sampled_from([Level.TENANT, Level.API_KEY, Level.DEPLOYMENT]), new=some_limits)
    def reconfigure(self, level, new):
        self.limits[level] = new
        self.ledger.reconfigure(self.given)

    @rule(keys=some_keys, amount=st.integers(1, 5), step=steps)
    def somebody_else_uses(self, keys, amount, step):
        self.wait(step)
        self.ledger.debit(self.ledger.path(keys), {"requests": amount}, self.given)
        for key in keys:
            self.accounts.setdefault(key, Account()).add("requests", self.now, amount)

    @invariant()
    def nothing_is_lost_and_nothing_is_counted_twice(self):
        for key, limit, used, _ in self.ledger.snapshot(self.given):
            account = self.accounts.get(key, Account())
            if limit.kind == "gauge":
                running = [
                    entries[key].costs["concurrency"]
                    for hold, _, entries in self.holds
                    if key in entries and hold.expires > self.now
                ]
                assert used == sum(running)
            elif limit.kind == "ring":
                slot = limit.window / limit.slots
                least, _ = account.over(limit.dimension, self.now - limit.window, self.now)
                most, _ = account.over(limit.dimension, self.now - limit.window - slot, self.now)
                assert least / NEARLY - 1e-6 <= used <= most * NEARLY + 1e-6

    def teardown(self):
        """When all is settled and old, nothing is left but what never leaves."""
        for hold, _, _ in getattr(self, "holds", ()):
            self.ledger.settle(hold, None, self.given)
        for _, limit, used, _ in getattr(self, "ledger", Ledger(lambda _: None)).snapshot(1e6):
            assert used == 0 or limit.window == AGES


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_million_operations_leave_nothing_behind():
    """[quota R29, G3] Requests that end in every way, on keys that come and go."""
    rng = random.Random(7)
    holds: list[Hold] = []
    tenant = BucketLimits((QuotaLimit("requests", 3000), QuotaLimit("concurrency", 200)))
    key = BucketLimits((QuotaLimit("total_tokens", 10_000), QuotaLimit("concurrency", 5)))
    ledger = Ledger(lambda k: {Level.TENANT: tenant, Level.API_KEY: key}[k.level], lease=120.0)
    charges = {"requests": 1, "input_tokens": 300, "output_tokens": 200, "concurrency": 1}
    now, operations, most_buckets = 0.0, 0, 0
    while operations < 1_000_000:
        now += 0.005
        name = f"k{int(now / 10) + rng.randrange(40)}"  # a key is used for some minutes
        path = ledger.path((BucketKey(Level.TENANT, "t"), BucketKey(Level.API_KEY, name)))
        found = ledger.admit(path, charges, now)
        operations += 1
        if isinstance(found, Hold):
            holds.append(found)
        if len(holds) > 150 or (holds and rng.random() < 0.5):
            place = rng.randrange(len(holds))
            holds[place], holds[-1] = holds[-1], holds[place]
            hold = holds.pop()
            end = rng.random()
            if end < 0.01:
                continue  # lost: nobody ever settles it
            actual = {"output_tokens": rng.randrange(400)} if end < 0.7 else None
            ledger.settle(hold, actual, now, sent=end < 0.9, failed=end > 0.8)
            operations += 1
        most_buckets = max(most_buckets, ledger.bucket_count)
    for hold in holds:
        ledger.settle(hold, None, now)
    assert most_buckets < 500
    now += 300.0
    assert all(usage.used == 0 for usage in ledger.snapshot(now))
    last = ledger.path([BucketKey(Level.TENANT, "t")])
    for _ in range(1000):
        ledger.admit(last, {}, now)
    assert (ledger.bucket_count, ledger.path_count) == (1, 1)
