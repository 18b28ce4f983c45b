"""What it costs to choose a member of a pool, and to note how its attempt went.

All members are ready, which is what a pool is like nearly always. A second table has pools where
one is not ready, or where each choice changes who is.
"""

import logging
from collections.abc import Sequence
from typing import Any

import anyio
from _measure import Measure, Samples, clock, rotate
from _report import Report, arguments, number

from chatrouting.errors import RateLimitError
from chatrouting.pool import Endpoint, EndpointPool, PoolPolicy, Ticket
from chatrouting.pool.policy import Strategy

SIZES = (3, 16, 100)
STRATEGIES: tuple[Strategy, ...] = ("random", "weighted", "p2c", "affinity")
#: In a row; at the end of each row all tickets are given back.
PICKS = 300

Pool = EndpointPool[Any]

#: Size, and the most that a pick may cost by "random", in microseconds; by "p2c" twice that.
TARGETS = {3: 1.0, 100: 5.0}


def make_pool(size: int, policy: PoolPolicy, **facts: Any) -> Pool:
    """Make a pool whose members have all answered before."""
    pool: Pool = EndpointPool(
        [Endpoint(f"region-{place}", **facts) for place in range(size)], policy=policy
    )
    for endpoint in pool.endpoints:
        ticket = pool.pinned(endpoint.id).pick()
        if isinstance(ticket, Ticket):
            pool.succeeded(ticket, latency=0.5)
    return pool


def key_of(policy: PoolPolicy) -> str | None:
    """Return the key of all requests, where the policy looks at keys."""
    return "a conversation" if policy.strategy == "affinity" else None


def picking(pool: Pool) -> Measure:
    """Measure one choice; giving back what was chosen is not measured."""
    key = key_of(pool.policy)

    async def measure() -> float:
        pick = pool.pick
        started = clock()
        found = [pick(affinity_key=key) for _ in range(PICKS)]
        spent = clock() - started
        for each in found:
            if isinstance(each, Ticket):
                pool.released(each)
        return spent / PICKS / 1000

    return measure


def whole(pool: Pool) -> Measure:
    """Measure one choice and the note that the attempt got its answer."""
    key = key_of(pool.policy)

    async def measure() -> float:
        pick, succeeded = pool.pick, pool.succeeded
        started = clock()
        for _ in range(PICKS):
            found = pick(affinity_key=key)
            if isinstance(found, Ticket):
                succeeded(found, latency=0.5)
        return (clock() - started) / PICKS / 1000

    return measure


def failing(pool: Pool) -> Measure:
    """Measure one choice and the note that the member refused; nobody rests for it."""
    error = RateLimitError("slow down", status_code=429)

    async def measure() -> float:
        pick, failed = pool.pick, pool.failed
        started = clock()
        for _ in range(PICKS):
            found = pick()
            if isinstance(found, Ticket):
                failed(found, error)
        return (clock() - started) / PICKS / 1000

    return measure


def resting(size: int) -> Pool:
    """Make a pool in which one member rests for good."""
    pool = make_pool(size, PoolPolicy(max_retry_after=1e9))
    ticket = pool.pick()
    if isinstance(ticket, Ticket):
        pool.failed(ticket, RateLimitError("slow down", status_code=429, retry_after=1e9))
    return pool


def cases() -> dict[str, Measure]:
    """Return all cases."""
    found: dict[str, Measure] = {}
    for size in SIZES:
        for strategy in STRATEGIES:
            pool = make_pool(size, PoolPolicy(strategy=strategy))
            found[f"{strategy}, {size}: pick"] = picking(pool)
            found[f"{strategy}, {size}: whole"] = whole(pool)
        found[f"one rests, {size}"] = picking(resting(size))
        limited = make_pool(size, PoolPolicy(), max_concurrency=PICKS)
        found[f"limited, {size}"] = picking(limited)
        refusing = make_pool(size, PoolPolicy(base_cooldown=0.0))
        found[f"refusing, {size}"] = failing(refusing)
        slow = make_pool(size, PoolPolicy.resilient())
        found[f"resilient, {size}"] = whole(slow)
    return found


def rows(samples: Samples, names: Sequence[str], suffix: str = "") -> list[list[str]]:
    """Return a line for each name and a column for each size."""
    return [
        [name, *(number(samples.median(f"{name}, {size}{suffix}")) for size in SIZES)]
        for name in names
    ]


def tell(report: Report, samples: Samples) -> None:
    """Fill the report."""
    report.keep("selection", samples)
    sizes = [f"{size} members" for size in SIZES]
    report.table("One choice, µs", ["strategy", *sizes], rows(samples, STRATEGIES, suffix=": pick"))
    report.table(
        "One choice and the note of its success, µs",
        ["strategy", *sizes],
        rows(samples, STRATEGIES, suffix=": whole"),
    )
    special = {
        "one rests": "one choice while a member rests",
        "limited": "one choice, `max_concurrency` set",
        "refusing": "one choice and the note of a refusal",
        "resilient": "one choice and its success, `resilient()`",
    }
    lines = rows(samples, list(special))
    report.table(
        "Less quiet pools, µs",
        ["case", *sizes],
        [[special[name], *numbers] for name, *numbers in lines],
    )
    for strategy, factor in (("random", 1.0), ("p2c", 2.0)):
        for size, limit in TARGETS.items():
            report.claim(
                f"a choice by {strategy!r} among {size} members",
                samples.median(f"{strategy}, {size}: pick"),
                limit * factor,
                "µs",
            )


async def main() -> None:
    """Measure, and tell."""
    asked = arguments(__doc__).parse_args()
    logging.disable()
    turns = 5 if asked.quick else 61
    report = Report("pool_selection", "Choosing a member of a pool", asked.quick, turns)
    tell(report, await rotate(cases(), turns))
    report.tell(save=asked.save)


if __name__ == "__main__":
    anyio.run(main)
