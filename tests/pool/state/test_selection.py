"""Who is asked: tiers, filters, and what happens if nobody is ready."""

from collections import Counter

import pytest

from chatrouting.errors import (
    AuthenticationError,
    ConfigurationError,
    InternalServerError,
    NoEndpointAvailableError,
    OverloadedError,
    RateLimitError,
)
from chatrouting.pool import Endpoint, EndpointMode, EndpointPool

PTU, PAYG = EndpointMode.PTU, EndpointMode.PAYG


def throttled(seconds: float | None = None) -> RateLimitError:
    return RateLimitError("slow down", status_code=429, retry_after=seconds)


def failed() -> InternalServerError:
    return InternalServerError("broken", status_code=500)


def test_equal_members_are_asked_equally_often(build):
    """[pools 34]"""
    counts = Counter(build("a", "b", "c").names(3000))
    assert all(700 <= counts[name] <= 1300 for name in "abc")


def test_only_the_lowest_tier_with_a_ready_member_is_asked(build):
    """[pools 34]"""
    pool = build(Endpoint("b", priority=2), Endpoint("a", priority=1), Endpoint("z", priority=-1))
    assert set(pool.names(50)) == {"z"}


def test_the_next_tier_is_asked_while_the_first_one_rests(build, clock):
    """[pools 35] [pools 56]"""
    pool = build("a", Endpoint("b", priority=2))
    pool.fail("a", throttled(7))
    assert pool.names(1) == ["b"]
    clock.advance(7)
    assert pool.names(1) == ["a"]


def test_the_tiers_are_walked_in_order(build):
    """[pools 56]: three tiers 429, 502, success."""
    pool = build(*(Endpoint(name, priority=tier) for tier, name in enumerate("abc", 1)))
    pool.failed(pool.take(), throttled())
    pool.failed(pool.take(), InternalServerError("bad gateway", status_code=502))
    assert pool.names(1) == ["c"]


def test_a_member_is_ready_at_the_very_end_of_its_rest(build, clock):
    """[pools 33]"""
    pool = build("a", Endpoint("b", priority=2))
    pool.fail("a", throttled())
    clock.advance(1.999)
    assert pool.names(1) == ["b"]
    clock.advance(0.001)
    assert pool.names(1) == ["a"]


def test_of_two_equal_members_only_the_other_one_is_asked_after_a_refusal(build):
    """[pools 56] [BR-44]"""
    pool = build("a", "b")
    pool.fail("a", throttled())
    assert set(pool.names(50)) == {"b"}


def test_a_pool_that_cools_names_who_is_ready_first_in_any_tier(build, clock):
    """[pools 36]"""
    pool = build("a", "b", Endpoint("c", priority=2))
    pool.fail("a", throttled(9))
    pool.fail("b", throttled(8))
    pool.fail("c", throttled(3))
    clock.advance(1)
    cooling = pool.cooling()
    assert (cooling.endpoint.id, cooling.wait, cooling.is_busy) == ("c", 2.0, False)


def test_of_two_that_are_ready_at_the_same_time_the_first_is_named(build):
    """[pools 36]"""
    pool = build("a", "b")
    pool.fail("b", failed())
    pool.fail("a", failed())
    assert pool.cooling().endpoint.id == "a"


@pytest.mark.parametrize("members", [[], {}, ()])
def test_a_pool_without_members_is_refused(members):
    """[pools 37]"""
    with pytest.raises(ConfigurationError, match="the pool has no endpoints"):
        EndpointPool(members)


def test_the_same_seed_and_clock_make_the_same_choices(build):
    """[pools 38]"""
    assert build("a", "b", "c", seed=5).names(30) == build("a", "b", "c", seed=5).names(30)


def test_members_are_sorted_by_priority_then_bare_ones_then_as_given(build):
    """[pools 60] [pools 32]"""
    pool = build(
        Endpoint("M_WESTUS", region="westus", priority=2),
        Endpoint("M_EASTUS_PTU", region="eastus", mode=PTU),
        Endpoint("M_PTU", mode=PTU),
        Endpoint("M"),
        Endpoint("M_SWEDEN", region="sweden", priority=2),
    )
    ids = [each.id for each in pool.endpoints]
    assert ids == ["M", "M_EASTUS_PTU", "M_PTU", "M_WESTUS", "M_SWEDEN"]
    assert pool.preferred.id == "M"


def test_excluded_members_are_passed_over(build):
    """[BR-32]"""
    pool = build("a", "b", Endpoint("c", priority=2))
    ticket = pool.pick(exclude={"a", "b"})
    assert ticket.endpoint.id == "c"
    with pytest.raises(NoEndpointAvailableError, match="excluded: 'a', 'b', 'c'"):
        pool.pick(exclude=["a", "b", "c"])


def test_a_filter_of_regions_is_no_preference(build):
    """[pools 36] with a residency filter: a ready member elsewhere is no way out."""
    pool = build(
        Endpoint("eu", region="swedencentral"), Endpoint("us", region="eastus"), Endpoint("nowhere")
    )
    allowed = {"swedencentral"}
    ticket = pool.pick(regions=allowed)
    assert ticket.endpoint.id == "eu"
    pool.failed(ticket, throttled(30))
    assert pool.cooling(regions=allowed).wait == 30
    with pytest.raises(NoEndpointAvailableError, match="regions allowed: norwayeast"):
        pool.pick(regions={"norwayeast"})


def test_the_regions_of_the_policy_hold_for_every_request(build):
    pool = build(
        Endpoint("eu", region="swedencentral"),
        Endpoint("us", region="eastus"),
        Endpoint("nowhere"),
        allow_regions=frozenset({"SwedenCentral"}),
    )
    assert set(pool.names(30)) == {"eu"}
    with pytest.raises(NoEndpointAvailableError):
        pool.pick(regions={"eastus"})


def test_a_policy_that_allows_no_member_is_refused(build):
    with pytest.raises(ConfigurationError, match="allow_regions allows norwayeast"):
        build(Endpoint("a", region="eastus"), allow_regions=frozenset({"norwayeast"}))


def test_preferred_regions_come_first_within_a_tier_and_nowhere_else(build, clock):
    pool = build(
        Endpoint("w", region="westus"),
        Endpoint("e1", region="eastus"),
        Endpoint("e2", region="eastus"),
        Endpoint("s", region="swedencentral", priority=2),
        prefer_regions=("swedencentral", "eastus"),
    )
    assert set(pool.names(50)) == {"e1", "e2"}
    pool.fail("e1", throttled())
    pool.fail("e2", throttled())
    assert pool.names(1) == ["w"]


def test_reserved_throughput_is_worth_a_short_wait(build, clock):
    """A pool may wait for what is paid anyway, rather than spill to what costs more."""
    pool = build(
        Endpoint("ptu", mode=PTU),
        Endpoint("payg", mode=PAYG, priority=2),
        ptu_exact_hint=True,
        ptu_grace=0.5,
    )
    pool.fail("ptu", throttled(0.75))
    assert pool.names(1) == ["payg"]
    clock.advance(0.25)
    cooling = pool.cooling()
    assert (cooling.endpoint.id, cooling.wait) == ("ptu", 0.5)
    clock.advance(0.5)
    assert pool.names(1) == ["ptu"]


def test_without_grace_reserved_throughput_is_not_waited_for(build):
    pool = build(Endpoint("ptu", mode=PTU), Endpoint("p", priority=2), ptu_exact_hint=True)
    pool.fail("ptu", throttled(0.2))
    assert pool.names(1) == ["p"]


def test_panic_asks_the_one_that_would_be_back_first(build, clock):
    """Guessing is better than failing, where nobody said to stay away."""
    pool = build("a", "b", panic=True)
    pool.fail("b", failed())
    clock.advance(1)
    pool.fail("a", failed())
    assert pool.names(1) == ["b"]


@pytest.mark.parametrize(
    "last", [throttled(), OverloadedError("full", status_code=503, retry_after=60)]
)
def test_panic_ends_where_a_server_asked_for_rest(build, last):
    """No member is asked before its hint has passed; refusals for want of quota are no faults."""
    pool = build("a", "b", panic=True)
    pool.fail("a", last)
    pool.fail("b", last)
    assert pool.cooling().endpoint.id == "a"


def test_one_that_asked_for_rest_leaves_the_panic_to_the_others(build):
    pool = build("a", "b", panic=True)
    pool.fail("a", OverloadedError("full", status_code=503, retry_after=60))
    pool.fail("b", failed())
    assert set(pool.names(10)) == {"b"}


def test_without_panic_a_pool_that_failed_everywhere_cools(build):
    pool = build("a", "b")
    pool.fail("a", failed())
    pool.fail("b", failed())
    assert pool.cooling().wait == 5.0


def test_the_soonest_may_be_tried_unless_the_server_named_a_time(build, clock):
    """[litellm 3646]: fail or wait? Both are a policy, and so is trying."""
    pool = build("a", "b", when_all_cooling="try_soonest")
    pool.fail("a", throttled(9))
    pool.fail("b", throttled())
    assert pool.names(1) == ["b"]
    pool.fail("b", throttled(20))
    assert pool.cooling().endpoint.id == "a"


def test_a_hint_holds_for_all_who_share_the_limit_and_is_cut_by_no_later_one(build, clock):
    """[BR-28] [BR-39]"""
    pool = build(
        Endpoint("a", quota_group="one"),
        Endpoint("b", quota_group="one"),
        when_all_cooling="try_soonest",
    )
    pool.fail("a", throttled(60), throttled(1))
    clock.advance(2)
    assert pool.cooling().wait == 58


def test_if_all_are_parked_they_are_asked_all_the_same(build, clock):
    """[pools B9]"""
    pool = build("a", "b", Endpoint("c", priority=2))
    denied = AuthenticationError("bad key", status_code=401)
    pool.fail("a", denied)
    assert set(pool.names(20)) == {"b"}
    pool.fail("b", denied)
    assert set(pool.names(20)) == {"c"}
    pool.fail("c", denied)
    assert set(pool.names(40)) == {"a", "b"}


def test_parked_members_that_rest_as_well_are_waited_for_until_that_rest_ends(build):
    pool = build("a", "b")
    denied = AuthenticationError("bad key", status_code=401)
    pool.fail("a", denied, throttled(7))
    pool.fail("b", denied, throttled(9))
    cooling = pool.cooling()
    assert (cooling.endpoint.id, cooling.wait) == ("a", 7)


def test_one_that_rests_is_waited_for_rather_than_a_parked_one_asked(build):
    pool = build("a", "b")
    pool.fail("a", AuthenticationError("bad key", status_code=401))
    pool.fail("b", throttled(7))
    assert pool.cooling().endpoint.id == "b"


def test_a_full_member_is_passed_over_until_a_slot_is_given_back(build):
    """[pools 23] [pools B13]: the limit is part of the choice; nobody queues at a member."""
    pool = build(Endpoint("a", max_concurrency=2), Endpoint("b", priority=2))
    first, second = pool.take(), pool.take()
    assert [first.endpoint.id, second.endpoint.id] == ["a", "a"]
    assert pool.names(1) == ["b"]
    pool.succeeded(first)
    assert pool.names(1) == ["a"]


def test_each_member_has_slots_of_its_own(build):
    """[pools 23] [BR-48]"""
    pool = build(Endpoint("a", max_concurrency=10), Endpoint("b", max_concurrency=10))
    taken = Counter(pool.take().endpoint.id for _ in range(20))
    assert taken == {"a": 10, "b": 10}
    cooling = pool.cooling()
    assert (cooling.wait, cooling.is_busy) == (float("inf"), True)


def test_a_full_member_beside_one_that_rests_may_be_ready_first(build):
    pool = build(Endpoint("a", max_concurrency=1), "b")
    pool.fail("b", throttled(30))
    pool.take("a")
    cooling = pool.cooling()
    assert (cooling.endpoint.id, cooling.wait, cooling.is_busy) == ("b", 30, True)
