"""What users of other balancers complained of, where choosing and resting are to blame."""

from collections import Counter

from chatrouting.errors import InternalServerError, RateLimitError
from chatrouting.pool import Endpoint, Ticket


def broken() -> InternalServerError:
    return InternalServerError("broken", status_code=500)


def test_a_member_that_fails_always_does_not_stay_in_rotation(build, clock):
    """LiteLLM 34836: 25 failures in a row, and still asked, because a cached view was stale."""
    pool = build("bad", "good")
    asked: Counter[str] = Counter()
    for _ in range(100):
        ticket = pool.take()
        asked[ticket.endpoint.id] += 1
        if ticket.endpoint.id == "bad":
            pool.failed(ticket, broken())
        else:
            pool.succeeded(ticket)
        clock.advance(0.1)
    assert 1 <= asked["bad"] <= 3


def test_a_member_that_is_down_for_long_stalls_nobody(build, clock):
    """AI-Gateway 225: stuck on one region, 50 s at a time. Here somebody is always ready."""
    pool = build("first", Endpoint("second", priority=2))
    asked: Counter[str] = Counter()
    for _ in range(600):
        found = pool.pick()
        assert isinstance(found, Ticket)
        asked[found.endpoint.id] += 1
        if found.endpoint.id == "first":
            pool.failed(found, broken())
        else:
            pool.succeeded(found)
        clock.advance(0.1)
    assert asked["first"] <= 12


def test_another_member_is_asked_at_once(build):
    """Copilot-cli 3679: two minutes of back-off on a used-up key before another one was asked."""
    pool = build("a", "b", "c")
    pool.failed(pool.take(), RateLimitError("slow down", status_code=429, retry_after=120))
    pool.failed(pool.take(), RateLimitError("slow down", status_code=429, retry_after=120))
    assert isinstance(pool.pick(), Ticket)


def test_a_refusal_is_no_success(build, clock):
    """Voidllm 184: refusals counted as successes kept a breaker closed."""
    pool = build("a", "b")
    for _ in range(3):
        pool.fail("a", RateLimitError("slow down", status_code=429))
        clock.advance(pool.rest("a"))
    state = pool.state("a")
    assert (state.success_streak, state.consecutive_429s) == (0, 3)


def test_an_agent_finds_its_prompt_in_the_cache_again(build):
    """Hindsight 3271: 0.085 % of hits by chance over many members, 99.4 % by key."""
    hits = {}
    for strategy in ("random", "affinity"):
        pool = build(*"abcdefgh", strategy=strategy)
        warm: set[tuple[str, str]] = set()
        hits[strategy] = 0
        for call in range(2000):
            key = f"agent-{call % 40}"
            ticket = pool.take(affinity_key=key)
            hits[strategy] += (key, ticket.endpoint.id) in warm
            warm.add((key, ticket.endpoint.id))
            pool.succeeded(ticket)
    assert hits["affinity"] == 2000 - 40
    assert hits["random"] < 1750
