"""Who of the ready members of a tier is asked, by each strategy."""

from collections import Counter
from itertools import count

import pytest

from chatrouting import ChatMessage, ChatOptions, Role, Tool
from chatrouting.errors import InternalServerError, RateLimitError
from chatrouting.pool import Endpoint, stable_prefix


def shares(pool, picks: int = 4000) -> dict[str, float]:
    counts = Counter(pool.names(picks))
    return {name: counts[name] / picks for name in sorted(counts)}


# Weights.


def test_declared_limits_do_not_skew_the_default(build):
    """[pools 31] [pools 34]"""
    pool = build(Endpoint("a", weight=9.0, tpm=90_000), Endpoint("b", weight=1.0))
    assert shares(pool)["a"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    "facts",
    [
        {"a": {"weight": 3.0}, "b": {"weight": 1.0}},
        {"a": {"tpm": 30_000}, "b": {"tpm": 10_000}},
        {"a": {"capacity": 30}, "b": {"capacity": 10}},
        {"a": {"weight": 3.0, "tpm": 1}, "b": {"weight": 1.0, "tpm": 99_999}},
    ],
    ids=["weight", "tpm", "capacity", "weight before tpm"],
)
def test_weighted_members_are_asked_in_proportion(build, facts):
    """[pools 31]"""
    pool = build(*(Endpoint(name, **fields) for name, fields in facts.items()), strategy="weighted")
    assert shares(pool)["a"] == pytest.approx(0.75, abs=0.03)


def test_a_member_without_a_weight_counts_as_the_mean_of_its_tier(build):
    pool = build(
        Endpoint("a", weight=3.0), Endpoint("b", weight=1.0), Endpoint("c"), strategy="weighted"
    )
    assert shares(pool)["c"] == pytest.approx(1 / 3, abs=0.03)


def test_equal_weights_are_the_same_as_none(build):
    """[pools 34]"""
    pool = build("a", "b", "c", strategy="weighted")
    counts = Counter(pool.names(3000))
    assert all(700 <= counts[name] <= 1300 for name in "abc")


def test_a_weight_of_a_member_that_rests_goes_to_the_others(build):
    """[BR-44]: weight 200 to 1, and still nobody asks the one that refused."""
    pool = build(Endpoint("a", weight=200.0), Endpoint("b", weight=1.0), strategy="weighted")
    pool.fail("a", RateLimitError("slow down", status_code=429, retry_after=60))
    assert set(pool.names(50)) == {"b"}


# Slow start.


@pytest.mark.parametrize("strategy", ["random", "weighted"])
def test_a_member_that_comes_back_gets_its_share_by_and_by(build, clock, strategy):
    """[pools B14]"""
    pool = build("a", "b", strategy=strategy, slow_start=30.0)
    pool.fail("a", InternalServerError("broken", status_code=500))
    clock.advance(5)
    assert shares(pool)["a"] == pytest.approx(0.1 / 1.1, abs=0.03)
    clock.advance(15)
    assert shares(pool)["a"] == pytest.approx(0.5 / 1.5, abs=0.03)
    clock.advance(15)
    assert shares(pool)["a"] == pytest.approx(0.5, abs=0.03)


def test_slow_start_begins_with_the_successful_probe(build, clock):
    pool = build("a", "b", strategy="random", slow_start=30.0, probe_concurrency=1)
    pool.fail("a", InternalServerError("broken", status_code=500))
    clock.advance(100)
    pool.answer("a")
    assert shares(pool)["a"] == pytest.approx(0.1 / 1.1, abs=0.03)


def test_by_load_a_member_that_comes_back_looks_busier_than_it_is(build, clock):
    pool = build("a", "b", strategy="p2c", slow_start=30.0)
    pool.fail("a", InternalServerError("broken", status_code=500))
    clock.advance(5)
    taken = Counter(pool.take().endpoint.id for _ in range(22))
    assert taken == {"b": 20, "a": 2}


# The better of two.


def test_the_better_of_two_is_the_less_busy_one(build):
    """[BR-52]: what is held open counts, whoever holds it."""
    pool = build("a", "b", strategy="p2c")
    pool.take("a")
    assert set(pool.names(20)) == {"b"}


def test_load_is_spread_evenly_where_all_are_equal(build):
    pool = build("a", "b", "c", strategy="p2c")
    taken = Counter(pool.take().endpoint.id for _ in range(300))
    assert max(taken.values()) - min(taken.values()) <= 4


def test_the_better_of_two_is_the_quicker_one(build):
    pool = build("a", "b", strategy="p2c")
    for name, seconds in (("a", 0.4), ("b", 0.1)):
        pool.succeeded(pool.take(name), latency=seconds)
    taken = Counter(pool.take().endpoint.id for _ in range(50))
    assert taken == {"b": 40, "a": 10}


def test_the_better_of_two_carries_load_by_its_weight(build):
    pool = build(Endpoint("a", weight=3.0), Endpoint("b", weight=1.0), strategy="p2c")
    taken = Counter(pool.take().endpoint.id for _ in range(40))
    assert taken == {"a": 30, "b": 10}


def test_a_peak_counts_at_once_and_is_forgotten_by_and_by(build, clock):
    pool = build("a", "b")
    pool.succeeded(pool.take("a"), latency=0.1)
    pool.succeeded(pool.take("a"), latency=2.0)
    assert pool.state("a").latency == 2.0
    clock.advance(10)
    pool.succeeded(pool.take("a"), latency=0.1)
    decayed = 2.0 / 2.718281828
    assert pool.state("a").latency == pytest.approx(decayed + 0.1 * (1 - 1 / 2.718281828))


def test_what_was_slow_long_ago_is_tried_again(build, clock):
    pool = build("a", "b", strategy="p2c")
    pool.succeeded(pool.take("a"), latency=9.0)
    clock.advance(60)
    pool.succeeded(pool.take("b"), latency=0.1)
    assert set(pool.names(5)) == {"a"}


def test_a_member_of_which_nothing_is_known_counts_as_the_median(build):
    """[BR-49]"""
    pool = build("a", "b", "c", "d", strategy="p2c")
    for name, seconds in (("a", 0.1), ("b", 0.3), ("c", 9.0)):
        pool.succeeded(pool.take(name), latency=seconds)
    assert 0 < shares(pool)["d"] < shares(pool)["a"]
    assert "c" not in shares(pool)


def test_a_failure_makes_no_member_look_quick(build, clock):
    """[BR-49]"""
    pool = build("a", "b", strategy="p2c")
    pool.succeeded(pool.take("b"), latency=0.2)
    pool.fail("a", InternalServerError("broken", status_code=500))
    clock.advance(5)
    assert pool.state("a").latency is None


def test_a_ticket_that_was_given_back_measures_nothing(build):
    pool = build("a", "b")
    ticket = pool.take("a")
    pool.released(ticket)
    pool.succeeded(ticket, latency=3.0)
    assert pool.state("a").latency is None


# Affinity.


def test_the_same_key_finds_the_same_member(build):
    """Agentgateway 2572: balancing that knows no keys destroys the providers' caches."""
    pool = build("a", "b", "c", "d", strategy="affinity")
    for number in range(20):
        found = set()
        for _ in range(5):
            ticket = pool.take(affinity_key=f"session-{number}")
            found.add(ticket.endpoint.id)
            pool.released(ticket)
        assert len(found) == 1


def test_two_processes_agree_on_the_member_of_a_key(build):
    one, other = (build("a", "b", "c", strategy="affinity", seed=seed) for seed in (1, 2))
    for number in range(50):
        key = f"session-{number}"
        assert one.take(affinity_key=key).endpoint == other.take(affinity_key=key).endpoint


def test_keys_are_spread_over_all_members(build):
    pool = build("a", "b", "c", "d", strategy="affinity")
    counts: Counter[str] = Counter()
    for number in range(2000):
        ticket = pool.take(affinity_key=f"session-{number}")
        counts[ticket.endpoint.id] += 1
        pool.released(ticket)
    assert all(400 <= counts[name] <= 600 for name in "abcd")


def test_a_key_moves_only_if_its_member_leaves(build):
    whole = build("a", "b", "c", "d", strategy="affinity")
    without = build("a", "b", "c", strategy="affinity")
    for number in range(200):
        tickets = [pool.take(affinity_key=f"session-{number}") for pool in (whole, without)]
        before, after = (ticket.endpoint.id for ticket in tickets)
        assert before in ("d", after)
        whole.released(tickets[0])
        without.released(tickets[1])


def test_a_key_goes_elsewhere_while_its_member_rests(build, clock):
    """[BR-50]: it is pinned to nobody dead."""
    pool = build("a", "b", strategy="affinity")
    home = pool.take(affinity_key="s")
    pool.failed(home, RateLimitError("slow down", status_code=429, retry_after=9))
    away = pool.take(affinity_key="s")
    assert away.endpoint != home.endpoint
    pool.succeeded(away)
    clock.advance(9)
    assert pool.take(affinity_key="s").endpoint == home.endpoint


def test_one_busy_key_starves_nobody(build):
    """CLIProxyAPI 5800: a member carries at most 1.25 times the mean load."""
    pool = build("a", "b", "c", "d", strategy="affinity")
    taken = Counter(pool.take(affinity_key="s").endpoint.id for _ in range(100))
    assert max(taken.values()) <= 32
    assert sum(taken.values()) == 100


def test_without_a_key_any_member_is_asked(build):
    pool = build("a", "b", "c", strategy="affinity")
    assert set(pool.names(50)) == {"a", "b", "c"}


def test_what_an_agents_calls_have_in_common_is_a_key():
    options = ChatOptions(instructions="Be brief.", tools=[Tool("look", "Looks.")])
    system = ChatMessage(Role.SYSTEM, "You are a pilot.")
    key = stable_prefix([system, ChatMessage(Role.USER, "Hi")], options)
    assert key == "Be brief.\nYou are a pilot.\nlook\nLooks."
    assert key == stable_prefix([system, ChatMessage(Role.USER, "Something else")], options)
    assert key != stable_prefix([ChatMessage(Role.USER, "Hi")], options)


def test_a_long_prompt_counts_by_its_beginning():
    system = ChatMessage(Role.SYSTEM, "x" * 10_000)
    key = stable_prefix([system], ChatOptions())
    assert key is not None
    assert len(key) == 4096


def test_where_nothing_is_in_common_there_is_no_key():
    assert stable_prefix([ChatMessage(Role.USER, "Hi")], ChatOptions()) is None


def test_the_parameters_of_a_tool_tell_keys_apart():
    one, other = (
        ChatOptions(tools=[Tool("look", None, {"type": "object", "title": title})])
        for title in ("one", "other")
    )
    assert stable_prefix([], one) != stable_prefix([], other)


# Declared limits.


def test_a_member_beyond_its_declared_tokens_is_passed_over(build, clock):
    """[pools 31]"""
    pool = build(Endpoint("a", tpm=1000), Endpoint("b", tpm=100_000), enforce_tpm=True)
    while pool.take(tokens=400).endpoint.id != "a":
        pass
    while pool.take(tokens=400).endpoint.id != "a":
        pass
    assert {pool.take(tokens=400).endpoint.id for _ in range(30)} == {"b"}
    clock.advance(64)
    assert {pool.take(tokens=400).endpoint.id for _ in range(30)} == {"a", "b"}


def test_declared_limits_hold_nobody_back_for_good(build):
    pool = build(Endpoint("a", tpm=100), Endpoint("b", priority=2), enforce_tpm=True)
    assert {pool.take(tokens=90).endpoint.id for _ in range(5)} == {"a"}


def test_declared_limits_mean_nothing_unless_the_policy_says_so(build):
    """[pools 31]"""
    pool = build(Endpoint("a", tpm=1), Endpoint("b", tpm=100_000))
    assert {pool.take(tokens=400).endpoint.id for _ in range(30)} == {"a", "b"}


def test_a_limit_of_requests_is_divided_as_azure_divides_it(build, clock):
    pool = build(Endpoint("a", rpm=60), "b", enforce_tpm=True)
    counts: Counter[str] = Counter()
    for _ in range(100):
        counts[pool.take().endpoint.id] += 1
    assert counts["a"] == 10


def test_many_picks_cost_no_more_memory_than_few(build, clock):
    """[BR-73]"""
    pool = build(Endpoint("a", tpm=1000), "b", enforce_tpm=True, retry_budget=0.2)
    for _ in count():
        if clock.seconds > 200:
            break
        pool.released(pool.take(tokens=1))
        clock.advance(0.1)
    budget = pool._core.table.members["a"].budget
    assert budget is not None
    assert len(budget._tokens._slices) <= 22
