"""What a pool adds to one call, in memory, and what its hundred members cost to build.

Nothing waits and no provider is asked. A pool sets a limit of time for each attempt; the same pool
without limits shows what that alone costs.
"""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import anyio
from _measure import Measure, clock, per_call, rotate
from _report import Report, arguments, number
from calls import MESSAGES, Answering
from openai import AsyncOpenAI

from chatrouting import OrderedFailoverChatClient
from chatrouting.pool import ApiKey, Endpoint, EndpointPool, PooledChatClient, PoolPolicy
from chatrouting.pool.sdk import chat_clients

MEMBERS = 100
#: Members as pools have them: each at a host of its own.
ENDPOINTS = [
    Endpoint(
        f"R{number}",
        f"https://r{number}.openai.azure.com",
        deployment="gpt-4o",
        api_version="2024-10-21",
        auth=ApiKey("k"),
    )
    for number in range(MEMBERS)
]


def pooled(members: int, *, policy: PoolPolicy | None = None, timeout: float | None = 60.0) -> Any:
    """Put a chat client over members that answer at once."""
    clients = {Endpoint(f"m{place}", timeout=timeout): Answering() for place in range(members)}
    return PooledChatClient(EndpointPool(clients, policy=policy))


def call_cases(repeat: int) -> dict[str, Measure]:
    """Return what is measured of calls."""
    unlimited = PoolPolicy(total_budget=None)
    clients: dict[str, Any] = {
        "bare client": Answering(),
        "failover over 3": OrderedFailoverChatClient([Answering() for _ in range(3)]),
        "pool of 1": pooled(1),
        "pool of 3": pooled(3),
        "pool of 100": pooled(100),
        "pool of 3, resilient": pooled(3, policy=PoolPolicy.resilient()),
        "pool of 3, no limits of time": pooled(3, policy=unlimited, timeout=None),
    }

    def call(client: Any) -> Any:
        return lambda: client.get_response(MESSAGES)

    return {name: per_call(call(client), repeat) for name, client in clients.items()}


def bare_sdk() -> list[Any]:
    """Make one SDK client, and a hundred that share its HTTP client."""
    client = AsyncOpenAI(api_key="k")
    return [client, *(client.with_options(max_retries=0) for _ in range(MEMBERS))]


def members() -> list[Any]:
    """Make a hundred members."""
    factory = chat_clients()
    return [factory, *(factory(endpoint) for endpoint in ENDPOINTS)]


def building(make: Callable[[], list[Any]]) -> Measure:
    """Measure making something once, in CPU microseconds."""

    async def measure() -> float:
        started = clock()
        make()
        return (clock() - started) / 1000

    return measure


def held(make: Callable[[], list[Any]]) -> float:
    """Return the MiB that something holds."""
    make()  # what is loaded once is no part of it
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = make()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return (after - before) / 2**20


async def measure(report: Report, *, quick: bool) -> None:
    """Measure everything."""
    calls = await rotate(call_cases(50 if quick else 400), 5 if quick else 61)
    header = ("one call, µs of CPU", "median", "p95", "added to the bare client")
    rows = [
        (
            case,
            number(calls.median(case)),
            number(calls.p95(case)),
            number(calls.added(case, "bare client")),
        )
        for case in calls.by_case
    ]
    report.table("A call", header, rows)
    built = {"AsyncOpenAI() and 100 with_options": building(bare_sdk), "100": building(members)}
    costs = await rotate(built, 3 if quick else 21)
    sdk, ours = costs.by_case
    report.table(
        "A hundred members",
        ("", "ms of CPU", "MiB"),
        [
            (sdk, number(costs.median(sdk) / 1000), number(held(bare_sdk))),
            ("members of a pool", number(costs.median(ours) / 1000), number(held(members))),
        ],
    )
    added = calls.added("pool of 3", "bare client")
    report.claim("pool of 3 and failover, added to a call", added, 10.0, "µs")
    report.claim("100 members, beside AsyncOpenAI()", costs.ratio(ours, sdk), 1.2, "x")
    report.claim("memory of 100 members", held(members), 5.0, "MiB")


def main() -> None:
    """Measure and tell."""
    asked = arguments(__doc__).parse_args()
    turns = 5 if asked.quick else 61
    report = Report("pool_calls", "What a pool adds to a call", asked.quick, turns)

    async def run() -> None:
        await measure(report, quick=asked.quick)

    anyio.run(run)
    report.tell(save=asked.save)


if __name__ == "__main__":
    main()
