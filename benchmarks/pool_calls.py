"""What a pool adds to one call, in memory and over the SDK, and what its members cost to build.

In memory nothing waits and no provider is asked. A pool sets a limit of time for each attempt; the
same pool without limits, and a failover with one, show what that alone costs. Over the SDK a
transport answers from memory; LiteLLM's router, where it is installed, stands beside.
"""

import gc
import logging
import tracemalloc
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import peers
from _canned import MESSAGES as SENT
from _canned import MODEL, TEXT, Provider
from _measure import Measure, Samples, clock, per_call, rotate
from _report import Report, arguments, number
from calls import MESSAGES, Answering
from openai import AsyncOpenAI

from chatrouting import OrderedFailoverChatClient
from chatrouting.pool import ApiKey, Endpoint, EndpointPool, PooledChatClient, PoolPolicy
from chatrouting.pool.sdk import chat_clients

MEMBERS = 100
BARE = "bare SDK"
OURS = "pool of 3"
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
        "failover over 3, attempt_timeout": OrderedFailoverChatClient(
            [Answering() for _ in range(3)], attempt_timeout=60.0
        ),
        "pool of 1": pooled(1),
        "pool of 3": pooled(3),
        "pool of 100": pooled(100),
        "pool of 3, resilient": pooled(3, policy=PoolPolicy.resilient()),
        "pool of 3, no limits of time": pooled(3, policy=unlimited, timeout=None),
    }

    def call(client: Any) -> Any:
        return lambda: client.get_response(MESSAGES)

    return {name: per_call(call(client), repeat) for name, client in clients.items()}


async def sdk_costs(turns: int, repeat: int) -> Samples:
    """Measure a call over the SDK: bare, by a pool of three, and by LiteLLM's router over three."""
    async with AsyncExitStack() as closers:
        sdk = AsyncOpenAI(api_key="k", max_retries=0, http_client=Provider().http_client())
        closers.push_async_callback(sdk.close)
        endpoints = [
            Endpoint(f"m{place}", provider="openai", model=MODEL, auth=ApiKey(f"k-{place}"))
            for place in range(3)
        ]
        factory = chat_clients(http_client=lambda: Provider().http_client())
        pool = await closers.enter_async_context(EndpointPool(endpoints, client_factory=factory))
        client = PooledChatClient(pool)

        messages: Any = SENT

        async def bare() -> str | None:
            answer = await sdk.chat.completions.create(model=MODEL, messages=messages)
            return answer.choices[0].message.content

        async def pooled() -> str:
            return (await client.get_response(SENT)).text

        calls: dict[str, peers.Call] = {BARE: bare, OURS: pooled}
        theirs = peers.three_deployments()
        if theirs is not None:
            closers.push_async_callback(theirs.close)
            calls[theirs.label] = theirs.call
        for label, call in calls.items():
            if await call() != TEXT:
                raise RuntimeError(f"{label}: answered something else")
        return await rotate({label: per_call(call, repeat) for label, call in calls.items()}, turns)


def tell_sdk_costs(report: Report, costs: Samples) -> None:
    """Write what a call over the SDK costs."""
    rows = [
        (
            case,
            number(costs.median(case)),
            number(costs.p95(case)),
            f"{number(costs.ratio(case, BARE))} x",
        )
        for case in costs.by_case
    ]
    header = ("one call, µs of CPU", "median", "p95", "beside the bare SDK")
    report.table("A call over the real SDK, in process", header, rows)
    theirs = next((case for case in costs.by_case if case not in (BARE, OURS)), None)
    share = None if theirs is None else costs.ratio(OURS, theirs)
    report.claim("a call by a pool of 3, share of LiteLLM's Router over 3", share, 0.25, "x")
    report.notes += peers.note(("litellm",))


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
    for case in ("pool of 3", "pool of 3, no limits of time"):
        added = calls.added(case, "bare client")
        report.claim(f"{case}, and failover, added to a call", added, 10.0, "µs")
    report.claim("100 members, beside AsyncOpenAI()", costs.ratio(ours, sdk), 1.2, "x")
    report.claim("memory of 100 members", held(members), 5.0, "MiB")
    tell_sdk_costs(report, await sdk_costs(3 if quick else 41, 1 if quick else 6))


def main() -> None:
    """Measure and tell."""
    asked = arguments(__doc__).parse_args()
    # Nobody listens to logs here, for none of the libraries.
    logging.disable()
    turns = 5 if asked.quick else 61
    report = Report("pool_calls", "What a pool adds to a call", asked.quick, turns)

    async def run() -> None:
        await measure(report, quick=asked.quick)

    anyio.run(run)
    report.tell(save=asked.save)


if __name__ == "__main__":
    main()
