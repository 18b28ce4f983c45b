"""Fair shares between flows, and what a request costs for them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.quota.fairness import FairClock, dominant_share

CAPACITIES = {"requests": 100.0, "output_tokens": 10_000.0}


@pytest.mark.parametrize(
    ("charges", "share"),
    [
        ({"requests": 1.0, "output_tokens": 50.0}, 0.01),
        ({"requests": 1.0, "output_tokens": 5000.0}, 0.5),
        ({"requests": 1.0, "custom:images": 4.0}, 0.01),
        ({"custom:images": 4.0}, 0.0),
        ({}, 0.0),
    ],
    ids=["requests bind", "tokens bind", "unlimited", "nothing limited", "nothing"],
)
def test_a_request_costs_its_largest_part_of_what_a_deployment_has(charges, share):
    """Whoever burns requests pays like whoever burns tokens. [quota R40]"""
    assert dominant_share(charges, CAPACITIES) == pytest.approx(share)


def serve(clock, weights, costs, dispatches):
    """Serve flows that always have something waiting; return what each was given."""
    given = dict.fromkeys(weights, 0.0)
    for flow in weights:
        clock.arrive(flow)
    for _ in range(dispatches):
        flow = clock.first()
        cost = costs(flow)
        clock.charge(flow, cost, weights[flow])
        given[flow] += cost
    return given


def test_weights_are_shares_under_backlog():
    """Weights 1:3:6 give 10, 30 and 60 % within one point, whatever the requests cost.

    [quota R40]
    """
    rng = random.Random(7)
    weights = {"a": 1.0, "b": 3.0, "c": 6.0}
    given = serve(FairClock(), weights, lambda _: rng.uniform(100, 16_000), 20_000)
    total = sum(given.values())
    shares = {flow: 100 * amount / total for flow, amount in given.items()}
    assert shares == pytest.approx({"a": 10, "b": 30, "c": 60}, abs=1)


@given(
    weights=st.lists(st.floats(0.1, 10), min_size=2, max_size=5),
    seed=st.integers(0, 2**32),
    dispatches=st.integers(1, 300),
)
def test_two_flows_that_wait_never_differ_by_more_than_a_request_of_each(weights, seed, dispatches):
    """The bound of start-time fair queueing, at every dispatch. [quota G4]"""
    rng = random.Random(seed)
    flows = dict(enumerate(weights))
    clock = FairClock()
    given = dict.fromkeys(flows, 0.0)
    largest = dict.fromkeys(flows, 0.0)
    for flow in flows:
        clock.arrive(flow)
    for _ in range(dispatches):
        flow = clock.first()
        cost = rng.uniform(0, 1000)
        clock.charge(flow, cost, flows[flow])
        given[flow] += cost
        largest[flow] = max(largest[flow], cost)
        each = [(given[i] / flows[i], largest[i] / flows[i]) for i in flows]
        for i, (work, most) in enumerate(each):
            for other_work, other_most in each[i + 1 :]:
                assert abs(work - other_work) <= most + other_most + 1e-6


@given(seed=st.integers(0, 2**32), dispatches=st.integers(1, 200))
def test_settled_amounts_keep_the_bound_but_for_what_is_still_open(seed, dispatches):
    """Estimates that turn out wrong are mended; only open ones may still be wrong. [quota G4]"""
    rng = random.Random(seed)
    clock = FairClock()
    flows = ("a", "b")
    settled = dict.fromkeys(flows, 0.0)
    errors = dict.fromkeys(flows, 0.0)
    open_requests = []
    largest = dict.fromkeys(flows, 0.0)
    for flow in flows:
        clock.arrive(flow)
    for _ in range(dispatches):
        flow = clock.first()
        estimate, actual = rng.uniform(0, 1000), rng.uniform(0, 1000)
        clock.charge(flow, estimate, 1.0)
        settled[flow] += actual
        errors[flow] += abs(actual - estimate)
        largest[flow] = max(largest[flow], estimate, actual)
        open_requests.append((flow, estimate, actual))
        if rng.random() < 0.7:
            flow, estimate, actual = open_requests.pop(rng.randrange(len(open_requests)))
            clock.correct(flow, actual - estimate, 1.0)
            errors[flow] -= abs(actual - estimate)
        bound = 2 * sum(largest.values()) + sum(errors.values())
        assert abs(settled["a"] - settled["b"]) <= bound + 1e-6


def test_idling_earns_no_credit():
    """A flow that comes back is lifted to where the others are. [quota R40]"""
    clock = FairClock()
    serve(clock, {"busy": 1.0}, lambda _: 10.0, 1000)
    given = serve(clock, {"busy": 1.0, "returning": 1.0}, lambda _: 10.0, 100)
    assert abs(given["busy"] - given["returning"]) <= 20


def test_a_flow_that_comes_back_does_not_wait_for_one_that_was_served_without_waiting():
    """Service outside of the line never moves the clock past those who wait."""
    clock = FairClock()
    clock.arrive("waits")
    for _ in range(100):
        clock.charge("bypasses", 10.0, 1.0)
    clock.arrive("returns")
    assert clock.start("returns") == clock.start("waits")
    clock.arrive("bypasses")
    assert clock.in_order(3) == ["waits", "returns", "bypasses"]


def test_flows_go_in_the_order_of_their_tags_then_of_their_coming():
    clock = FairClock()
    for flow in "abc":
        clock.arrive(flow)
    clock.charge("a", 5.0, 1.0)
    clock.charge("b", 2.0, 1.0)
    assert clock.in_order(2) == ["c", "b"]
    assert clock.in_order(9) == ["c", "b", "a"]
    clock.leave("c")
    clock.leave("c")
    assert clock.first() == "b"
    assert "c" not in clock
    assert sorted(clock) == ["a", "b"]


def test_nobody_waits_on_an_empty_clock():
    clock = FairClock()
    assert clock.first() is None
    assert clock.in_order(3) == []


def test_flows_that_idle_are_forgotten():
    """Memory is that of the flows that are ahead of the clock."""
    clock = FairClock()
    for number in range(10_000):
        clock.charge(number, 1.0, 1.0)
        clock.charge("busy", 1.0, 1.0)
    assert len(clock) < 200


def test_corrections_do_not_pile_up():
    clock = FairClock()
    for flow in "ab":
        clock.arrive(flow)
    for number in range(1000):
        clock.correct("a", (-1.0) ** number, 1.0)
    clock.correct("a", 5.0, 1.0)
    assert clock.in_order(2) == ["b", "a"]
    assert len(clock) == 2
