"""Twenty thousand requests to a pool of three regions on loopback, and nothing left over.

Each region is a process of its own that fails by a seed; real Azure clients ask them, 64 at a time.
Half of the requests stream, a fifth of the callers leave early. Exits with 1 if a request was
neither answered nor failed with a typed error, if an attempt has not exactly one record, if a slot
of a member or a connection was not given back, or if memory grew.
"""

import gc
import logging
import subprocess
import sys
import warnings
from collections import Counter
from contextlib import ExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from random import Random
from types import AsyncGeneratorType
from typing import Any, Final, cast, final

import anyio
import httpx2
from _report import Report, arguments
from _soak_provider import FIRST_OUTPUT_TIMEOUT, TEXT
from soak import (
    CONCURRENCY,
    GROWTH_BLOCKS,
    GROWTH_MIB,
    LEAVE_EARLY,
    LEFT_BY_OTHERS,
    PATIENCE,
    Counted,
    Errors,
    expect_none,
    provider_saw,
    run,
    tell,
)

from chatrouting import ChatClient, ChatRoutingError, ResponseStream
from chatrouting.attempt import RoutingAttempt
from chatrouting.errors import LocalSaturationError
from chatrouting.pool import ApiKey, Endpoint, EndpointPool, PooledChatClient, PoolPolicy
from chatrouting.pool.sdk import chat_clients

REGIONS: Final = ("eastus", "westus", "swedencentral")
#: Blocks by which two looks at the same process differ, however many requests lie between.
NOISE: Final = 1_500
#: With fewer requests what is made once is more than what grows.
FEWEST_FOR_GROWTH = 1000
#: A third of all answers are faults. Rests are a hundredth of the usual, else all would wait.
POLICY: Final = replace(
    PoolPolicy.resilient(),
    base_cooldown=0.02,
    max_backoff=0.2,
    max_retry_after=0.1,
    transient_cooldown=0.02,
    max_transient_cooldown=0.2,
    member_fault_cooldown=0.05,
    member_fault_max=0.2,
    slow_start=0.1,
    wake_jitter=0.02,
    retry_budget=None,
    total_budget=15.0,
)


def http_client() -> httpx2.AsyncClient:
    """Make one with as many connections as callers: one that is not given back is missed."""
    limits = httpx2.Limits(max_connections=CONCURRENCY)
    return httpx2.AsyncClient(verify=False, limits=limits, timeout=httpx2.Timeout(20, pool=10))


@final
class PoolCaller:
    """Makes requests of a pool and keeps account of them.

    Attributes:
        told: How each request ended, and what the client told.
        surprises: What must not happen.
        pool: The pool.
    """

    def __init__(self, urls: dict[str, str], seed: int) -> None:
        self.told: Counter[str] = Counter()
        self.surprises: list[str] = []
        self._seed = seed
        endpoints = [
            Endpoint(
                region.upper(),
                url,
                deployment="gpt",
                api_version="2025-04-01-preview",
                region=region,
                max_concurrency=CONCURRENCY,
                timeout=FIRST_OUTPUT_TIMEOUT,
                auth=ApiKey("k"),
            )
            for region, url in urls.items()
        ]
        factory = chat_clients(http_client=http_client)

        def make(endpoint: Endpoint) -> ChatClient:
            return Counted(factory(endpoint), self.told)

        self._factory = factory
        self.pool: EndpointPool[ChatClient] = EndpointPool(
            endpoints, policy=POLICY, client_factory=make, rng=Random(seed)
        )
        self._client = PooledChatClient(self.pool, on_routing_update=self._note)

    def _note(self, context: object, attempt: RoutingAttempt, is_terminal: bool) -> None:  # noqa: ARG002, FBT001
        self.told["records"] += 1
        self.told[f"attempt {attempt.outcome.value}"] += 1
        self.told[f"asked {attempt.route}"] += 1

    async def make(self, number: int) -> None:
        """Make one request."""
        rng = Random(f"{self._seed} {number}")
        leaves = rng.random() < LEAVE_EARLY
        ask = self._whole if number % 2 else self._streamed
        try:
            await ask(f"This is request {number}.", rng, leaves=leaves)
        except LocalSaturationError as error:
            self.surprises.append(f"request {number}: a connection was not given back: {error}")
        except ChatRoutingError as error:
            self.told["failed"] += 1
            self.told[f"failed: {type(error).__name__}"] += 1
        except Exception as error:  # noqa: BLE001  # that is what is looked for
            self.surprises.append(f"request {number}: {type(error).__name__}: {error}")

    async def _whole(self, message: str, rng: Random, *, leaves: bool) -> None:
        with anyio.move_on_after(rng.uniform(0, PATIENCE) if leaves else None) as scope:
            self._judge((await self._client.get_response(message)).text)
        self.told["left"] += scope.cancelled_caught

    async def _streamed(self, message: str, rng: Random, *, leaves: bool) -> None:
        is_cancelled = leaves and rng.random() < 1 / 2
        stays_for = rng.randrange(1, 5) if leaves and not is_cancelled else None
        with anyio.move_on_after(rng.uniform(0, PATIENCE) if is_cancelled else None) as scope:
            texts: list[str] = []
            async with aclosing(self._client.get_streaming_response(message)) as stream:
                async for update in stream:
                    texts.append(update.text)
                    if len(texts) == stays_for:
                        self.told["left"] += 1
                        return
            self._judge("".join(texts))
        self.told["left"] += scope.cancelled_caught

    def _judge(self, text: str) -> None:
        self.told["answered"] += 1
        if text.strip() != TEXT.strip():
            self.surprises.append(f"an answer is not what was sent: {text!r}")

    async def aclose(self) -> None:
        """Close the pool, and what its clients share."""
        await self._client.aclose()
        await self.pool.aclose()
        await self._factory.aclose()


async def soak(report: Report, providers: "dict[str, subprocess.Popen[str]]", asked: Any) -> None:
    """Run everything, and tell what happened and what is left."""
    pipes = {
        region: (provider.stdin, provider.stdout)
        for region, provider in providers.items()
        if provider.stdin is not None and provider.stdout is not None
    }
    urls = {
        region: (await anyio.to_thread.run_sync(answers.readline)).strip()
        for region, (_, answers) in pipes.items()
    }
    tasks = {task.id for task in anyio.get_running_tasks()}
    caller = PoolCaller(urls, asked.seed)
    async with aclosing(caller):
        with anyio.fail_after(asked.minutes * 60):
            quarters = await run(cast("Any", caller), asked.requests)
        held = [
            f"{state.id}: {state.in_flight}" for state in caller.pool.snapshot() if state.in_flight
        ]
    tasks_left = [str(task) for task in anyio.get_running_tasks() if task.id not in tasks]
    gc.collect()
    await anyio.sleep(0.1)  # trio closes a generator that was collected at its next turn
    kinds = (ResponseStream, AsyncGeneratorType)
    streams_left = [repr(each) for each in gc.get_objects() if isinstance(each, kinds)]
    seen: Counter[str] = Counter()
    errors: list[str] = []
    for questions, answers in pipes.values():
        found = await provider_saw(questions, answers)
        errors += found.pop("errors")
        seen.update(found)
    tell(report, caller.told, dict(seen), quarters)
    told = caller.told
    ended = told["answered"] + told["failed"] + told["left"]
    report.claim("requests that ended in no known way", asked.requests - ended, 0, "")
    attempts = abs(told["invocations"] - told["records"])
    report.claim("invocations without one record", attempts, 0, "")
    expect_none(report, "slots of members that are held", held)
    (mib_before, blocks_before), (mib, blocks) = quarters[1], quarters[3]
    report.claim("memory that the second half added", mib - mib_before, GROWTH_MIB, "MiB")
    if asked.requests >= FEWEST_FOR_GROWTH:
        grown = max(0, blocks - blocks_before - NOISE) / (asked.requests / 2)
        report.claim("blocks that the second half added", grown, GROWTH_BLOCKS, "a request")
    report.claim("connections left open", seen["open"], 0, "")
    expect_none(report, "other errors and wrong answers", caller.surprises)
    expect_none(report, "tasks left over", tasks_left)
    expect_none(report, "streams and generators left over", streams_left)
    expect_none(report, "errors of the providers themselves", errors)


def main() -> int:
    """Run the regions and the clients; 0 if all is well."""
    parser = arguments(__doc__)
    parser.add_argument("--requests", type=int, help="20,000 unless quick")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30, help="give up after that")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    asked = parser.parse_args()
    asked.requests = asked.requests or (400 if asked.quick else 20_000)
    title = f"{asked.requests:,} requests to a pool of three regions, on {asked.backend}"
    report = Report(f"pool-soak-{asked.backend}", title, asked.quick, 1)
    errors = Errors()
    logging.getLogger().addHandler(errors)
    provider_file = Path(__file__).with_name("_soak_provider.py")
    pipe = subprocess.PIPE
    with warnings.catch_warnings(record=True) as warned, ExitStack() as stack:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", LEFT_BY_OTHERS, ResourceWarning)
        providers: dict[str, subprocess.Popen[str]] = {}
        for number, region in enumerate(REGIONS):
            command = [sys.executable, str(provider_file), str(asked.seed * 10 + number)]
            provider = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            providers[region] = stack.enter_context(provider)
            stack.callback(provider.terminate)
        anyio.run(soak, report, providers, asked, backend=asked.backend)
    expect_none(report, "warnings", [str(each.message) for each in warned])
    expect_none(report, "logged errors", errors.texts)
    report.tell(save=asked.save)
    return int(any(claim.verdict != "yes" for claim in report.claims))


if __name__ == "__main__":
    sys.exit(main())
