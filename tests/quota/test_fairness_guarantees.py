"""What tenants are promised, and what happens to what they do not use."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.errors import ConfigurationError
from chatrouting.quota.assured import AssuredShares
from chatrouting.quota.guarantees import GuaranteeKind, TenantContract, plan
from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.timeline import Timeline
from chatrouting.quota.windows import RingForm, RingSet, SlotRing

LIMIT = QuotaLimit("output_tokens", 60_000)
HALVES = {"a": TenantContract(share=0.45), "b": TenantContract(share=0.45)}


class Deployment:
    """One limit of a provider, and the guarantees on it, as a governor uses them."""

    def __init__(self, contracts, limit=LIMIT, **settings):
        self.limit = limit
        self.plan = plan([limit], contracts, **settings)
        self.shares = AssuredShares(self.plan, 0.0)
        self.ring = SlotRing(RingSet(RingForm([limit])), 0)
        self.admitted = []

    def ask(self, tenant, amount, now):
        """Admit by guarantee, else by borrowing; return what paid, None if nothing could."""
        charges = {self.limit.dimension: amount}
        owner = tenant if self.shares.covered_in(tenant, charges, now) == 0 else None
        if self.shares.lent_in(owner, charges, now) > 0:
            return None
        if self.ring.ready_at(amount, now) > now:
            return None
        self.ring.charge(amount, Lease(now), now)
        funding = self.shares.take(owner, charges, now)
        self.admitted.append((now, amount, tenant, funding))
        return funding

    def settle(self, funding, actual, now):
        charged = funding.charges[self.limit.dimension]
        self.ring.settle(charged, actual, Lease(funding.charged_at), now)
        self.shares.settle(funding, {self.limit.dimension: actual}, now)


class Lease:
    """What windows want to know of a charge."""

    def __init__(self, at):
        self.charged_at = at
        self.expires = at + 600


# The plan.


def test_the_plan_says_which_guarantee_each_tenant_gets():
    """Instant if its largest request fits its burst, else in the long run. [quota R41, R46]"""
    contracts = {
        "large": TenantContract(share=0.5),
        "small": TenantContract(share=0.1, weight=2.0),
        "none": TenantContract(),
    }
    found = plan([LIMIT], contracts, largest_request={"output_tokens": 2000})
    kinds = {tenant: each.kind for tenant, each in found.guarantees.items()}
    assert kinds == {
        "large": GuaranteeKind.INSTANT,
        "small": GuaranteeKind.LONG_RUN,
        "none": GuaranteeKind.NONE,
    }
    (portion,) = found.guarantees["large"].portions
    assert (portion.amount, portion.burst, portion.rate) == (30_000, 3000, 450)
    assert found.pool(LIMIT) == pytest.approx(0.4 * 60_000)
    assert found.guarantees["small"].weight == 2.0
    assert not found.is_empty
    assert plan([LIMIT], {"none": TenantContract()}).is_empty


def test_promises_above_the_capacity_are_refused_at_once():
    """[quota R46, R34]"""
    contracts = {"a": TenantContract(share=0.6), "b": TenantContract(share=0.4)}
    with pytest.raises(ConfigurationError, match=r"add up to 1 of the capacity; at most 0.95"):
        plan([LIMIT], contracts)


@pytest.mark.parametrize(
    ("limit", "contract", "words"),
    [
        (
            QuotaLimit("requests", 60, kind="bucket", burst=5),
            TenantContract(share=0.5, burst_share=0.3),
            "hands out 5",
        ),
        (
            QuotaLimit("requests", 60, kind="bucket", burst=30),
            TenantContract(share=0.9, burst_share=0.1),
            "comes back at 0.5",
        ),
        (QuotaLimit("requests", 60, slots=5), TenantContract(share=0.95), "in one slot"),
    ],
    ids=["burst", "refill", "slots"],
)
def test_what_a_limit_cannot_hand_out_so_fast_is_refused(limit, contract, words):
    """[quota R46]"""
    with pytest.raises(ConfigurationError, match=words):
        plan([limit], {"a": contract})


@pytest.mark.parametrize(
    "fields",
    [
        {"weight": 0},
        {"weight": True},
        {"weight": float("nan")},
        {"share": 1.0},
        {"share": -0.1},
        {"share": float("nan")},
        {"share": 0.5, "burst_share": 0.5},
        {"share": 0.5, "burst_share": 0.0},
    ],
    ids=str,
)
def test_a_contract_that_means_nothing_is_refused(fields):
    """[BR-63]"""
    with pytest.raises(ConfigurationError, match="of a contract is"):
        TenantContract(**fields)


@pytest.mark.parametrize("pool_share", [0, 1.5, float("nan"), True])
def test_a_pool_that_means_nothing_is_refused(pool_share):
    """[BR-63]"""
    with pytest.raises(ConfigurationError, match="pool_share is"):
        plan([LIMIT], {}, pool_share=pool_share)


def test_a_paced_limit_has_smaller_bursts_and_a_calendar_none():
    paced = QuotaLimit("requests", 600, burst=5)
    day = QuotaLimit("requests", 10_000, period="day")
    found = plan([paced, day], {"a": TenantContract(share=0.5)})
    assert found.limits == (paced,)
    (portion,) = found.guarantees["a"].portions
    assert portion.burst == pytest.approx(12.5)  # half of the burst of 50, for half of the limit


def test_slots_are_kept_whole():
    gauge = QuotaLimit("concurrency", 10)
    found = plan([gauge], {"a": TenantContract(share=0.25), "b": TenantContract(share=0.05)})
    assert [each.portions[0].amount for each in found.guarantees.values()] == [2, 0]
    assert [each.kind for each in found.guarantees.values()] == [
        GuaranteeKind.INSTANT,
        GuaranteeKind.LONG_RUN,
    ]


# Guarantee, borrowing, reclaim.


def flood(deployment, tenant, amount, start, end, *, tick=0.02):
    """Let a tenant ask for as much as it can get."""
    now = start
    while now < end:
        if deployment.ask(tenant, amount, now) is None:
            now += tick
    return now


def rate_of(deployment, tenant, start, end):
    spent = sum(
        amount for at, amount, who, _ in deployment.admitted if who == tenant and start <= at < end
    )
    return spent / (end - start) * 60 / deployment.limit.usable


def test_a_lone_tenant_gets_nearly_all():
    """It borrows what the other one does not use. [quota R42]"""
    deployment = Deployment(HALVES)
    flood(deployment, "a", 400, 0, 300, tick=0.1)
    assert rate_of(deployment, "a", 60, 300) >= 0.9


def test_a_tenant_within_its_share_never_waits_while_others_saturate():
    """Bursts up to its burst, refill at its rate, whatever the borrowers do.

    [quota R41, R43, R44, G5, G7]
    """
    deployment = Deployment({"a": TenantContract(share=0.45), "b": TenantContract(share=0.45)})
    portion = deployment.plan.guarantees["b"].portions[0]
    now = flood(deployment, "a", 400, 0, 200, tick=0.1)
    returned = now
    spent = 0.0
    while now < returned + 150:
        while spent + 300 <= portion.burst + portion.rate * (now - returned):
            assert deployment.ask("b", 300, now) is not None
            spent += 300
        while deployment.ask("a", 400, now) is not None:
            pass
        now += 0.1
    assert spent >= 0.99 * (portion.burst + 150 * portion.rate)
    assert rate_of(deployment, "a", returned + 60, now) <= 0.56


def test_lending_stops_in_the_moment_in_which_its_owner_spends():
    """What was lent before is not taken back; nothing new is lent of it. [quota R43, R45, G7]"""
    deployment = Deployment(HALVES)
    flood(deployment, "a", 400, 0, 120, tick=0.1)
    before = deployment.shares.lent_in(None, {"output_tokens": 400}, 120)
    deployment.ask("b", 2700, 120)
    after = deployment.shares.lent_in(None, {"output_tokens": 400}, 120)
    assert after >= before


@given(seed=st.integers(0, 2**32), shares=st.lists(st.floats(0.05, 0.3), min_size=1, max_size=3))
def test_whoever_stays_within_its_share_is_admitted(seed, shares):
    """Under any mix of borrowers, sizes, settlements and idle times. [quota R41, R44, G5]"""
    rng = random.Random(seed)
    contracts = {str(number): TenantContract(share=share) for number, share in enumerate(shares)}
    deployment = Deployment(contracts)
    spent = dict.fromkeys(contracts, 0.0)
    portions = {who: each.portions[0] for who, each in deployment.plan.guarantees.items()}
    level = {who: portion.burst for who, portion in portions.items()}
    open_requests = []
    now = 0.0
    for _ in range(400):
        step = rng.choice([0.0, 0.05, 0.5, 5.0])
        now += step
        for who, portion in portions.items():
            level[who] = min(portion.burst, level[who] + portion.rate * step)
        amount = rng.uniform(1, 2500)
        who = rng.choice([*contracts, "stranger"])
        funding = deployment.ask(who, amount, now)
        if who in contracts and amount <= level[who]:
            assert funding is not None
            assert funding.tenant == who
        if funding is not None:
            if funding.tenant is not None:
                level[who] -= amount
                spent[who] += amount
            open_requests.append((funding, amount))
        if open_requests and rng.random() < 0.5:
            funding, amount = open_requests.pop(rng.randrange(len(open_requests)))
            deployment.settle(funding, rng.uniform(0, amount), now)


@given(seed=st.integers(0, 2**32))
def test_what_cannot_be_borrowed_now_can_be_when_it_is_said(seed):
    """If nothing else happens meanwhile. [quota R57, G8]"""
    rng = random.Random(seed)
    deployment = Deployment(HALVES)
    now = 0.0
    for _ in range(100):
        now += rng.choice([0.0, 0.3, 4.0])
        amount = rng.uniform(1, 4000)
        charges = {"output_tokens": amount}
        wait = deployment.shares.lent_in(None, charges, now)
        if wait > 0:
            later = now + wait + 1e-6
            assert deployment.shares.lent_in(None, charges, later) == 0
        else:
            deployment.shares.take(None, charges, now)


@given(seed=st.integers(0, 2**32))
def test_a_guarantee_covers_a_request_when_it_is_said(seed):
    """[quota R57, G5]"""
    rng = random.Random(seed)
    deployment = Deployment(HALVES)
    now = 0.0
    for _ in range(50):
        now += rng.choice([0.0, 0.3, 4.0])
        charges = {"output_tokens": rng.uniform(1, 4000)}
        wait = deployment.shares.covered_in("a", charges, now)
        if wait > 0:
            assert deployment.shares.covered_in("a", charges, now + wait) == 0
        else:
            deployment.shares.take("a", charges, now)


def test_a_request_larger_than_the_burst_is_covered_by_a_full_one():
    """The excess is borrowed, and paid off before the tenant is assured again. [quota R41]"""
    deployment = Deployment({"a": TenantContract(share=0.1)})
    charges = {"output_tokens": 3000.0}
    assert deployment.shares.covered_in("a", charges, 0) == 0
    deployment.shares.take("a", charges, 0)
    rate = deployment.plan.guarantees["a"].portions[0].rate
    assert deployment.shares.covered_in("a", charges, 0) == pytest.approx(3000 / rate)
    assert deployment.shares.levels("a", 0) == {"output_tokens per 60 s": 0.0}


def test_the_sum_of_levels_is_the_sum_of_the_levels():
    """Through debts, refunds and full levels. [quota R45]"""
    rng = random.Random(3)
    contracts = {str(number): TenantContract(share=0.1) for number in range(9)}
    deployment = Deployment(contracts)
    (rate,) = deployment.shares._rates
    now = 0.0
    for _ in range(3000):
        now += rng.choice([0.0, 0.1, 3.0])
        rate.levels.move(rng.choice(list(contracts)), rng.uniform(-3000, 1000), now)
        levels = [max(0.0, rate.levels.level(each, now)) for each in contracts]
        assert rate.levels.total(now) == pytest.approx(sum(levels), abs=1e-6)


def test_a_stranger_has_no_guarantee():
    deployment = Deployment({"a": TenantContract(share=0.1), "n": TenantContract()})
    for tenant in (None, "stranger", "n"):
        assert deployment.shares.covered_in(tenant, {"output_tokens": 1}, 0) == float("inf")
    assert deployment.shares.levels("stranger", 0) == {}


def test_slots_are_kept_free_for_those_who_have_them():
    """A slot cannot be reclaimed by time, so it is not lent. [quota R43, G7]"""
    gauge = QuotaLimit("concurrency", 10)
    shares = AssuredShares(plan([gauge], {"a": TenantContract(share=0.3)}), 0)
    one = {"concurrency": 1.0}
    assert shares.to_ask_for(None, one, 0) == {"concurrency": 4.0}
    assert shares.to_ask_for("a", one, 0) == one
    fundings = [shares.take("a", one, 0) for _ in range(3)]
    assert shares.covered_in("a", one, 0) == float("inf")
    assert shares.to_ask_for(None, one, 0) == one
    shares.settle(fundings[0], {}, 1)
    assert shares.covered_in("a", one, 1) == 0
    assert shares.to_ask_for(None, one, 1) == {"concurrency": 2.0}


def test_a_pace_is_kept_free_for_those_who_are_assured_of_it():
    """What is handed out at once is not all lent, or a guarantee would wait for refill."""
    paced = QuotaLimit("requests", 600, kind="bucket", burst=6)
    shares = AssuredShares(plan([paced], {"a": TenantContract(share=0.5)}), 0)
    one = {"requests": 1.0}
    assert shares.lent_in(None, one, 0) == 0
    assert shares.to_ask_for(None, one, 0) == {"requests": pytest.approx(1 + 15)}
    assert shares.to_ask_for("a", one, 0) == one
    shares.take("a", {"requests": 10.0}, 0)
    assert shares.to_ask_for(None, one, 0) == {"requests": pytest.approx(1 + 5)}


def test_what_was_taken_by_mistake_is_given_back_whole():
    deployment = Deployment(HALVES)
    shares = deployment.shares
    charges = {"output_tokens": 2000.0}
    before = shares.levels("a", 0), shares._rates[0].timeline.borrowable(0, 0)
    shares.undo(shares.take("a", charges, 0), 0)
    assert (shares.levels("a", 0), shares._rates[0].timeline.borrowable(0, 0)) == before


def test_a_bucket_gives_nothing_back():
    """Time has done so already. What was taken by mistake is given back all the same."""
    paced = QuotaLimit("requests", 600, kind="bucket", burst=6)
    contracts = {"a": TenantContract(share=0.5)}
    shares = AssuredShares(plan([paced], contracts), 0)
    funding = shares.take("a", {"requests": 10.0}, 0)
    shares.settle(funding, {"requests": 0.0}, 0)
    assert shares.levels("a", 0) == {"requests per 60 s": pytest.approx(5)}
    shares.undo(shares.take("a", {"requests": 3.0}, 0), 0)
    assert shares.levels("a", 0) == {"requests per 60 s": pytest.approx(5)}
    other = QuotaLimit("requests", 600, kind="bucket", burst=6, window=30)
    assert shares.renewed(plan([paced], contracts), 0).levels("a", 0) == {
        "requests per 60 s": pytest.approx(5)
    }
    assert shares.renewed(plan([other], contracts), 0).levels("a", 0) == {
        "requests per 30 s": pytest.approx(30)
    }


def test_what_fills_a_window_at_once_leaves_it_at_once():
    """[quota R57]"""
    timeline = Timeline(LIMIT, 5000, 500)
    timeline.add(50_000, 3.5, 3.5)
    assert timeline.borrowable(5000, 4) < 7000
    assert timeline.borrowable_at(7000, 4) == 64
    assert timeline.borrowable(5000, 64) >= 7000


def test_a_new_plan_keeps_what_is_used():
    """Levels keep their fraction, the window its contents, gauges their holds. [quota R63]"""
    limits = [LIMIT, QuotaLimit("concurrency", 10)]
    contracts = {"a": TenantContract(share=0.4), "gone": TenantContract(share=0.1)}
    shares = AssuredShares(plan(limits, contracts), 0)
    charges = {"output_tokens": 1200.0, "concurrency": 1.0}
    funding = shares.take("a", charges, 0)
    twice = [QuotaLimit("output_tokens", 120_000), limits[1]]
    renewed = shares.renewed(plan(twice, {"a": TenantContract(share=0.4)}), 0)
    assert renewed.levels("a", 0) == {
        "output_tokens per 60 s": pytest.approx(2400),
        "concurrency per at once": 3,
    }
    held = renewed._rates[0].timeline
    assert list(held.entries()) == [(0, 1200)]
    renewed.settle(funding, {"output_tokens": 200.0}, 1)
    assert list(held.entries()) == [(0, 200)]
    assert renewed.levels("a", 1)["concurrency per at once"] == 4


def test_over_use_is_charged_when_it_is_known():
    """[quota R28]"""
    deployment = Deployment(HALVES)
    funding = deployment.shares.take("a", {"output_tokens": 1000.0}, 0)
    deployment.shares.settle(funding, {"output_tokens": 1500.0}, 5)
    assert list(deployment.shares._rates[0].timeline.entries()) == [(0, 1000), (5, 500)]
    funding = deployment.shares.take(None, {"output_tokens": 10.0}, 5)
    deployment.shares.settle(funding, {"output_tokens": 0.0}, 500)
    assert list(deployment.shares._rates[0].timeline.entries()) == []


def test_no_window_is_exceeded_whatever_is_lent():
    """Settled and open amounts of any minute. [quota G1, R44]"""
    rng = random.Random(11)
    deployment = Deployment(HALVES)
    amounts = []
    now = 0.0
    while now < 400:
        now += 0.1
        for tenant in ("a", "b", "stranger"):
            estimate = rng.uniform(200, 2000)
            funding = deployment.ask(tenant, estimate, now)
            if funding is not None:
                actual = estimate * rng.choice([0.1, 1.0])
                deployment.settle(funding, actual, now)
                amounts.append((now, actual))
    for start, _ in itertools.islice(amounts, 0, None, 50):
        in_window = sum(amount for at, amount in amounts if start <= at < start + 60)
        assert in_window <= LIMIT.amount * (1 + 1e-6)
