"""Those who wait at one deployment: who goes next, and when it is worth looking again."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting import Principal
from chatrouting.quota.classes import Pressure, TrafficClass
from chatrouting.quota.dispatch import Blocked, Dispatcher
from chatrouting.quota.line import Waiting

CLASS = TrafficClass(name="interactive")


class Bucket:
    """A room with one bucket that refills, and ceilings of tenants that do not."""

    def __init__(self, capacity=100.0, rate=10.0):
        self.capacity = capacity
        self.rate = rate
        self.level = capacity
        self.at = 0.0
        self.ceilings = {}
        self.assured = {}
        self.own_wait = math.inf

    def free(self, now):
        self.level = min(self.capacity, self.level + self.rate * max(0.0, now - self.at))
        self.at = max(self.at, now)
        return self.level

    def wait(self, waiting, now):
        missing = waiting.cost - self.free(now)
        return 0.0 if missing <= 1e-9 else missing / self.rate if self.rate else math.inf

    def admit(self, waiting, now):
        tenant = waiting.principal.tenant
        if self.ceilings.get(tenant, math.inf) < waiting.cost:
            return Blocked(self.own_wait, tenant)
        wait = self.wait(waiting, now)
        if wait > 0:
            return Blocked(wait)
        self.level -= waiting.cost
        if tenant in self.ceilings:
            self.ceilings[tenant] -= waiting.cost
        return waiting.cost

    def undo(self, grant, now):
        self.level += grant

    def assured_in(self, waiting, now):
        return self.assured.get(waiting.principal.tenant, math.inf)


def request(tenant, cost, traffic=CLASS, weight=1.0, key=None):
    principal = Principal(tenant=tenant, api_key=key)
    return Waiting(traffic=traffic, principal=principal, weight=weight, cost=cost, tokens=cost)


def joined(dispatcher, *requests, now=0.0):
    for each in requests:
        dispatcher.join(each, now)
    return requests


def granted(dispatcher, now):
    """Hand out all that fits; return to whom."""
    found = []
    while (grant := dispatcher.next_granted(now)) is not None:
        found.append(grant[0])
    return found


def tenants(found):
    return [each.principal.tenant for each in found]


def test_one_principal_is_served_in_the_order_of_its_coming():
    dispatcher = Dispatcher(Bucket())
    requests = joined(dispatcher, *(request("a", cost) for cost in (3, 1, 2)))
    assert granted(dispatcher, 0) == list(requests)
    assert len(dispatcher.line) == 0
    assert dispatcher.next_start == math.inf


def test_tenants_take_turns_by_weight():
    """[quota R40]"""
    dispatcher = Dispatcher(Bucket(capacity=80, rate=0))
    joined(dispatcher, *(request("a", 10, weight=1.0) for _ in range(20)))
    joined(dispatcher, *(request("b", 10, weight=3.0) for _ in range(20)))
    served = tenants(granted(dispatcher, 0))
    assert served.count("a") == 2
    assert served.count("b") == 6


def test_classes_take_turns_by_weight_and_none_starves():
    """A flood of batch does not hold up those who wait, and is not shut out by them.

    [quota R37, R47]
    """
    batch = TrafficClass(name="batch", weight=1.0)
    interactive = TrafficClass(name="interactive", weight=9.0)
    dispatcher = Dispatcher(Bucket(capacity=100, rate=0))
    joined(dispatcher, *(request("b", 5, batch) for _ in range(500)))
    joined(dispatcher, *(request("i", 5, interactive) for _ in range(500)))
    served = tenants(granted(dispatcher, 0))
    assert served.count("b") == 2
    assert served.count("i") == 18


def test_a_control_class_goes_first():
    control = TrafficClass(name="control", is_control=True)
    dispatcher = Dispatcher(Bucket())
    joined(dispatcher, request("a", 10), request("ops", 10, control))
    assert tenants(granted(dispatcher, 0)) == ["ops", "a"]


def test_a_small_request_does_not_pass_a_large_one_that_it_would_delay():
    """The large one starts when it could have, however many small ones come. [quota G9]"""
    bucket = Bucket(capacity=100, rate=10)
    dispatcher = Dispatcher(bucket)
    bucket.level = 20
    joined(dispatcher, request("large", 80))
    now = 0.0
    while len(dispatcher.line):
        joined(dispatcher, request(f"small-{now}", 5), now=now)
        served = granted(dispatcher, now)
        if "large" in tenants(served):
            break
        assert served == []
        now += 0.5
    assert now == 6.0
    assert dispatcher.next_start > 6.0


def test_a_request_passes_a_head_that_it_does_not_delay():
    """A head that waits for something else is not held up by it. [quota G6]"""

    class TwoDimensions(Bucket):
        def wait(self, waiting, now):
            if waiting.principal.tenant == "slots":
                return max(0.0, 7.0 - now)
            return super().wait(waiting, now)

    dispatcher = Dispatcher(TwoDimensions())
    joined(dispatcher, request("slots", 1), request("tokens", 1))
    assert tenants(granted(dispatcher, 0)) == ["tokens"]
    assert dispatcher.next_start == 7.0
    assert tenants(granted(dispatcher, 7)) == ["slots"]


def test_what_can_never_start_is_no_head():
    """Limits may be lowered below what a request needs that waits already. [quota G6, R63]"""
    dispatcher = Dispatcher(bucket := Bucket(capacity=10, rate=0))
    joined(dispatcher, request("head", 20), request("b", 1))
    assert tenants(granted(dispatcher, 0)) == ["b"]
    assert bucket.level == 9
    assert dispatcher.next_start == math.inf


def test_a_request_held_back_by_its_own_limit_is_in_nobodys_way():
    """It is looked at again when its time comes, or when something is given back there.

    [quota R35, R38, G6]
    """
    bucket = Bucket()
    bucket.ceilings["poor"] = 0.0
    bucket.own_wait = 30.0
    dispatcher = Dispatcher(bucket)
    joined(dispatcher, *(request("poor", 1) for _ in range(3)), request("b", 1))
    assert tenants(granted(dispatcher, 0)) == ["b"]
    assert dispatcher.next_start == 30.0
    bucket.ceilings["poor"] = 1.0
    assert granted(dispatcher, 1) == []
    dispatcher.released(["nothing", "poor"], 1)
    assert tenants(granted(dispatcher, 1)) == ["poor"]
    assert dispatcher.next_start == 31.0
    bucket.ceilings["poor"] = 5.0
    assert tenants(granted(dispatcher, 31)) == ["poor", "poor"]
    assert len(dispatcher.line) == 0


def test_a_key_at_its_limit_does_not_hold_up_other_keys_of_the_tenant():
    """[quota R36]"""

    class Keys(Bucket):
        def admit(self, waiting, now):
            if waiting.principal.api_key == "spent":
                return Blocked(math.inf, "spent")
            return super().admit(waiting, now)

    dispatcher = Dispatcher(Keys())
    spent, other = request("a", 1, key="spent"), request("a", 1, key="other")
    joined(dispatcher, spent, other)
    assert granted(dispatcher, 0) == [other]
    dispatcher.leave(spent, 0)
    dispatcher.leave(spent, 0)
    assert len(dispatcher.line) == 0


def test_a_parked_request_may_leave_and_its_time_is_forgotten():
    bucket = Bucket()
    bucket.ceilings["poor"], bucket.own_wait = 0.0, 30.0
    dispatcher = Dispatcher(bucket)
    (poor,) = joined(dispatcher, request("poor", 1))
    assert granted(dispatcher, 0) == []
    dispatcher.leave(poor, 1)
    assert granted(dispatcher, 1) == []
    assert dispatcher.next_start == math.inf


def test_whoever_stands_behind_one_that_was_set_aside_goes_when_that_one_leaves():
    """The lane was set aside for its head alone. [quota G6, R51]"""
    dispatcher = Dispatcher(bucket := Bucket())
    bucket.ceilings["a"] = 5
    bucket.own_wait = 50.0
    large, small = joined(dispatcher, request("a", 10), request("a", 1))
    assert granted(dispatcher, 0) == []
    dispatcher.leave(large, 0)
    assert granted(dispatcher, 0) == [small]


def test_several_may_be_held_back_at_one_place():
    """[quota R36]"""
    bucket = Bucket()
    bucket.ceilings["a"] = 0.0
    dispatcher = Dispatcher(bucket)
    first, second = joined(dispatcher, request("a", 1, key="x"), request("a", 1, key="y"))
    assert granted(dispatcher, 0) == []
    dispatcher.leave(first, 0)
    bucket.ceilings["a"] = 1.0
    dispatcher.released(dispatcher.line.places(), 0)
    assert granted(dispatcher, 0) == [second]


def test_whoever_waits_nowhere_cannot_leave_and_cannot_be_set_aside():
    dispatcher = Dispatcher(Bucket())
    stranger = request("a", 1)
    dispatcher.line.leave(stranger)
    dispatcher.line.park(stranger, 5.0, "place")
    assert list(dispatcher.line.places()) == []


def test_whoever_is_covered_by_a_guarantee_goes_first():
    """[quota R41, G5]"""
    bucket = Bucket(capacity=10, rate=0)
    bucket.assured["g"] = 0.0
    dispatcher = Dispatcher(bucket)
    joined(dispatcher, *(request("a", 5) for _ in range(3)), request("g", 5))
    assert tenants(granted(dispatcher, 0)) == ["g", "a"]


def test_a_guarantee_that_covers_later_is_looked_at_then():
    """And is found out anew if somebody else of the tenant has used it."""
    bucket = Bucket(capacity=10, rate=0)
    dispatcher = Dispatcher(bucket)
    bucket.level = 0
    bucket.assured["g"] = 4.0
    _, covered = joined(dispatcher, request("a", 5), request("g", 5))
    assert granted(dispatcher, 0) == []
    assert dispatcher.next_start == 4.0
    bucket.level = 5
    bucket.assured["g"] = 2.0
    assert tenants(granted(dispatcher, 4)) == ["a"]
    assert dispatcher.next_start == 6.0
    bucket.level = 5
    bucket.assured["g"] = 0.0
    dispatcher.renew("g", 5)
    assert granted(dispatcher, 5) == [covered]


def test_a_covered_request_that_is_parked_stays_covered():
    bucket = Bucket()
    bucket.ceilings["g"], bucket.own_wait, bucket.assured["g"] = 0.0, 9.0, 0.0
    dispatcher = Dispatcher(bucket)
    joined(dispatcher, request("g", 1))
    assert granted(dispatcher, 0) == []
    assert granted(dispatcher, 1) == []
    assert dispatcher.next_start == 9.0
    del bucket.ceilings["g"]
    assert tenants(granted(dispatcher, 9)) == ["g"]


def test_the_bounds_of_a_class_hold():
    """[quota R50]"""
    traffic = TrafficClass(name="bounded", max_queue_items=2, max_queue_tokens=100)
    dispatcher = Dispatcher(Bucket(capacity=0, rate=0))
    line = dispatcher.line
    assert not line.is_full(request("c", 100, traffic))
    assert line.is_full(request("c", 101, traffic))
    first, last = joined(dispatcher, request("a", 60, traffic), request("b", 40, traffic))
    assert line.is_full(request("c", 0, traffic))
    assert not line.is_full(last)  # it has its place already
    assert line.counts() == {"bounded": 2}
    dispatcher.leave(first, 0)
    assert not line.is_full(request("c", 60, traffic))
    assert line.is_full(request("c", 61, traffic))
    assert line.is_full(request("c", 0, TrafficClass(name="never", max_queue_items=0)))


def test_work_ahead_is_what_fair_shares_let_go_first():
    """[quota R50]"""
    batch = TrafficClass(name="batch", weight=1.0)
    chat = TrafficClass(name="chat", weight=4.0)
    dispatcher = Dispatcher(Bucket(capacity=0, rate=0))
    line = dispatcher.line
    assert line.work_ahead(request("a", 8, chat)) == 0
    joined(dispatcher, *(request("b", 10, batch) for _ in range(10)))
    assert line.work_ahead(request("a", 8, chat)) == pytest.approx(2)
    joined(dispatcher, *(request("a", 8, chat) for _ in range(5)))
    assert line.work_ahead(request("a", 8, chat)) == pytest.approx(40 + 48 / 4)
    assert line.work_ahead(request("new", 8, chat)) == pytest.approx(8 + 16 / 4)
    assert line.work_ahead(request("b", 10, batch)) == pytest.approx(140)


@given(seed=st.integers(0, 2**32))
def test_nobody_who_fits_stays_and_nobody_starves(seed):
    """Each look says when the next one is due, which is later, until nobody waits.

    [quota G6, G9]
    """
    rng = random.Random(seed)
    dispatcher = Dispatcher(Bucket(capacity=100, rate=10))
    now = 0.0
    for _ in range(120):
        if rng.random() < 0.5:
            joined(dispatcher, request(rng.choice("abc"), rng.uniform(1, 100)), now=now)
        if rng.random() < 0.1:
            for gone in dispatcher.line.in_order(1):
                dispatcher.leave(gone, now)
        granted(dispatcher, now)
        assert now < dispatcher.next_start
        assert (dispatcher.next_start == math.inf) == (len(dispatcher.line) == 0)
        now += rng.uniform(0, 3)
    looks = 0
    granted(dispatcher, now)
    while len(dispatcher.line):
        assert dispatcher.next_start > now
        now = dispatcher.next_start
        granted(dispatcher, now)
        looks += 1
    assert looks <= 500


@given(seed=st.integers(0, 2**32))
def test_a_waiter_is_overtaken_by_its_bound_at_most(seed):
    """What others get while one waits: a request of each flow more than its own. [quota G9]"""
    rng = random.Random(seed)
    bucket = Bucket(capacity=100, rate=10)
    dispatcher = Dispatcher(bucket)
    for tenant in "abc":
        joined(dispatcher, *(request(tenant, rng.uniform(1, 100)) for _ in range(50)))
    now = 0.0
    granted(dispatcher, now)
    late = request("late", 50.0)
    joined(dispatcher, late, now=now)
    overtaken = 0.0
    while late.lane is not None:
        now = dispatcher.next_start
        for each in granted(dispatcher, now):
            overtaken += each.cost
            if each is late:
                break
    assert overtaken <= 50 + 2 * 3 * 100


class Model:
    """Start-time fair queueing as it is defined, slowly: every question looks at all who wait.

    A class is a flow of the deployment, a tenant one of its class.
    """

    def __init__(self):
        self.waiting = []
        self.tags, self.turns, self.clocks = {}, {}, {}
        self.turn = 0

    def flows(self, each):
        """Name the flows of a request, each behind its server, with their weights."""
        name = each.traffic.name
        return {
            ("", name): each.traffic.weight,
            (name, each.principal.tenant): each.weight,
        }

    def join(self, each):
        busy = {flow for other in self.waiting for flow in self.flows(other)}
        for flow in self.flows(each).keys() - busy:
            self._move(flow, max(self.clocks.get(flow[0], 0.0), self.tags.get(flow, 0.0)))
        self.waiting.append(each)

    def serve(self):
        """Return who is next, and move its flows on."""
        found = min(self.waiting, key=self._rank)  # of one flow the oldest
        self.waiting.remove(found)
        for flow, weight in self.flows(found).items():
            self.clocks[flow[0]] = max(self.clocks.get(flow[0], 0.0), self.tags[flow])
            self._move(flow, self.tags[flow] + found.cost / weight)
        return found

    def _rank(self, each):
        return [(self.tags[flow], self.turns[flow]) for flow in self.flows(each)]

    def _move(self, flow, tag):
        self.turn += 1  # of equal tags the one that was set first
        self.tags[flow], self.turns[flow] = tag, self.turn


@given(seed=st.integers(0, 2**32))
def test_whoever_is_next_by_the_definition_goes_next(seed):
    """[quota G4] Whatever comes and leaves, and whenever; there is room for one at a time."""
    rng = random.Random(seed)
    classes = [TrafficClass(name=name, weight=rng.uniform(0.2, 8)) for name in ("chat", "batch")]
    weights = {tenant: rng.uniform(0.5, 6) for tenant in "abcd"}
    dispatcher, model, now = Dispatcher(Bucket(capacity=100, rate=100)), Model(), 0.0
    for _ in range(60):
        for _ in range(rng.choice([0, 0, 1, 1, 3])):
            tenant = rng.choice("abcd")
            each = request(tenant, rng.uniform(51, 100), rng.choice(classes), weights[tenant])
            dispatcher.join(each, now)
            model.join(each)
        if model.waiting and rng.random() < 0.1:
            gone = rng.choice(model.waiting)
            model.waiting.remove(gone)
            dispatcher.leave(gone, now)

        expected = [model.serve()] if model.waiting else []

        assert granted(dispatcher, now) == expected
        now += 1.0


# Classes.


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"weight": 0},
        {"weight": float("inf")},
        {"max_wait": -1},
        {"max_wait": float("nan")},
        {"max_queue_items": True},
        {"max_queue_items": -1},
        {"max_queue_tokens": 0},
        {"borrowed_max_stream": 0},
        {"min_output_tokens": 0},
        {"on_pressure": ("queue", "hope")},
        {"on_pressure": ("downgrade",)},
    ],
    ids=str,
)
def test_a_class_that_means_nothing_is_refused(fields):
    """[quota R49], [BR-63]"""
    with pytest.raises(ValueError, match=r"class|expected"):
        TrafficClass(**{"name": "x", **fields})


def test_what_stands_behind_reject_is_never_tried():
    """[quota R48]"""
    traffic = TrafficClass(name="x", on_pressure=("reroute", "reject", "queue"))
    assert traffic.on_pressure == (Pressure.REROUTE,)
    assert traffic.allows(Pressure.REROUTE)
    assert not traffic.allows(Pressure.QUEUE)
