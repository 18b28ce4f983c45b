"""Ten thousand requests over the real SDKs on loopback, with faults, and nothing left over.

The provider is a process of its own, so that this one's memory is the clients' alone. Half of the
requests stream, a fifth of the callers leave early, and a third of what the provider answers is a
fault, all of it by a seed. Exits with 1 if a request was neither answered nor failed with a typed
error, if an invocation has not exactly one record, if memory grew, or if a connection, a task or a
stream is left over.
"""

import gc
import json
import logging
import subprocess
import sys
import time
import warnings
from collections import Counter
from contextlib import aclosing
from pathlib import Path
from random import Random
from types import AsyncGeneratorType
from typing import IO, Any, Final, final

import anyio
import httpx2
from _report import Report, arguments
from _soak_provider import FIRST_OUTPUT_TIMEOUT, TEXT
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from typing_extensions import override

from chatrouting import (
    ChatClient,
    ChatOptions,
    ChatResponse,
    ChatRoutingError,
    DelegatingChatClient,
    OrderedFailoverChatClient,
    ResponseStream,
    RoutingAttempt,
    RoutingContext,
)
from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.adapters.openai_responses import OpenAIResponsesChatClient
from chatrouting.errors import LocalSaturationError
from chatrouting.messages import MessagesInput

CONCURRENCY: Final = 64
LEAVE_EARLY: Final = 0.2
#: Callers that are cancelled are so within this time, which most answers take longer than.
PATIENCE: Final = 0.05
#: httpx2 leaves its generators to the garbage collector where a response is closed before its end.
#: asyncio closes them without a word; trio closes them and warns, and a warning that is kept here
#: keeps its generator.
LEFT_BY_OTHERS: Final = "Async generator '(httpx2|httpcore2)[.]"
#: What the second half of the requests may add to the memory of the process, and to the blocks that
#: Python has allocated: a leak of one object a request shows in these.
GROWTH_MIB: Final = 4.0
GROWTH_BLOCKS: Final = 0.2


@final
class Counted(DelegatingChatClient):
    """Counts how often a client is invoked."""

    def __init__(self, inner: ChatClient, told: Counter[str]) -> None:
        super().__init__(inner)
        self._told = told

    @override
    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole, counted."""
        self._told["invocations"] += 1
        return await super().get_response(messages, options)

    @override
    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece, counted."""
        self._told["invocations"] += 1
        return super().get_streaming_response(messages, options)


@final
class Caller:
    """Makes requests and keeps account of them.

    Attributes:
        told: How each request ended, and what the routers told.
        surprises: What must not happen.
    """

    def __init__(self, url: str, seed: int) -> None:
        self.told: Counter[str] = Counter()
        self.surprises: list[str] = []
        self._seed = seed
        self._openai = AsyncOpenAI(base_url=f"{url}/v1", api_key="k", http_client=_http_client())
        self._anthropic = AsyncAnthropic(base_url=url, api_key="k", http_client=_http_client())
        chat = Counted(OpenAIChatClient(self._openai, "gpt"), self.told)
        responses = Counted(OpenAIResponsesChatClient(self._openai, "gpt"), self.told)
        claude = Counted(AnthropicChatClient(self._anthropic, "claude"), self.told)
        self._routers = [
            self._failover(chat=chat, claude=claude),
            self._failover(claude=claude, responses=responses, chat=chat),
            self._failover(nested=self._failover(responses=responses, claude=claude), chat=chat),
            self._failover(only=responses),
        ]

    def _failover(self, **clients: ChatClient) -> OrderedFailoverChatClient:
        return OrderedFailoverChatClient(
            clients, first_output_timeout=FIRST_OUTPUT_TIMEOUT, on_routing_update=self._note
        )

    def _note(
        self,
        context: RoutingContext,  # noqa: ARG002
        attempt: RoutingAttempt,
        is_terminal: bool,  # noqa: ARG002, FBT001
    ) -> None:
        if attempt.route != "nested":
            self.told["records"] += 1
            self.told[f"attempt {attempt.outcome.value}"] += 1

    async def make(self, number: int) -> None:
        """Make one request."""
        rng = Random(f"{self._seed} {number}")
        router = rng.choice(self._routers)
        leaves = rng.random() < LEAVE_EARLY
        ask = self._whole if number % 2 else self._streamed
        try:
            await ask(router, f"This is request {number}.", rng, leaves=leaves)
        except LocalSaturationError as error:
            self.surprises.append(f"request {number}: a connection was not given back: {error}")
        except ChatRoutingError as error:
            self.told["failed"] += 1
            self.told[f"failed: {type(error).__name__}"] += 1
        except Exception as error:  # noqa: BLE001  # that is what is looked for
            self.surprises.append(f"request {number}: {type(error).__name__}: {error}")

    async def _whole(self, router: ChatClient, message: str, rng: Random, *, leaves: bool) -> None:
        with anyio.move_on_after(rng.uniform(0, PATIENCE) if leaves else None) as scope:
            self._judge((await router.get_response(message)).text)
        self.told["left"] += scope.cancelled_caught

    async def _streamed(
        self, router: ChatClient, message: str, rng: Random, *, leaves: bool
    ) -> None:
        # Whoever leaves is cancelled, or stops reading after a few updates.
        is_cancelled = leaves and rng.random() < 1 / 2
        stays_for = rng.randrange(1, 5) if leaves and not is_cancelled else None
        with anyio.move_on_after(rng.uniform(0, PATIENCE) if is_cancelled else None) as scope:
            texts: list[str] = []
            async with aclosing(router.get_streaming_response(message)) as stream:
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
        """Close the routers and the SDK clients."""
        for router in self._routers:
            await router.aclose()
        await self._openai.close()
        await self._anthropic.close()


def _http_client() -> httpx2.AsyncClient:
    # As many connections as callers: one that is not given back is missed.
    limits = httpx2.Limits(max_connections=CONCURRENCY)
    return httpx2.AsyncClient(limits=limits, timeout=httpx2.Timeout(20, pool=10))


@final
class Errors(logging.Handler):
    """Keeps what is logged as an error, such as a hook that failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def memory() -> float:
    """Return what this process holds, in MiB; 0 where the system does not tell."""
    gc.collect()
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    return int(status.read_text(encoding="ascii").split("VmRSS:")[1].split()[0]) / 1024


async def run(caller: Caller, requests: int) -> list[tuple[float, int]]:
    """Make all requests, 64 at a time; returns MiB and allocated blocks after each quarter."""
    quarters: list[tuple[float, int]] = []
    started = time.monotonic()
    for quarter in range(4):
        end = (quarter + 1) * requests // 4
        numbers = iter(range(quarter * requests // 4, end))

        async def work(numbers: Any = numbers) -> None:
            for number in numbers:
                await caller.make(number)

        async with anyio.create_task_group() as group:
            for _ in range(CONCURRENCY):
                group.start_soon(work)
        mib = memory()
        quarters.append((mib, sys.getallocatedblocks()))
        rate = end / (time.monotonic() - started)
        print(
            f"{end:,} requests, {rate:.0f} a second, {mib:.1f} MiB, "
            f"{len(caller.surprises)} surprises",
            flush=True,
        )
    return quarters


async def provider_saw(questions: IO[str], answers: IO[str]) -> dict[str, Any]:
    """Ask the provider what it saw, again while it still has open connections: it hears late."""
    seen: dict[str, Any] = {}
    for _ in range(50):
        questions.write("\n")
        questions.flush()
        seen = json.loads(await anyio.to_thread.run_sync(answers.readline))
        if not seen["open"]:
            break
        await anyio.sleep(0.1)
    return seen


async def soak(report: Report, provider: "subprocess.Popen[str]", asked: Any) -> None:
    """Run everything, and tell what happened and what is left."""
    if provider.stdin is None or provider.stdout is None:
        raise RuntimeError("the provider was started without pipes")
    url = (await anyio.to_thread.run_sync(provider.stdout.readline)).strip()
    tasks = {task.id for task in anyio.get_running_tasks()}
    caller = Caller(url, asked.seed)
    async with aclosing(caller):
        with anyio.fail_after(asked.minutes * 60):
            quarters = await run(caller, asked.requests)
    tasks_left = [str(task) for task in anyio.get_running_tasks() if task.id not in tasks]
    gc.collect()
    await anyio.sleep(0.1)  # trio closes a generator that was collected at its next turn
    kinds = (ResponseStream, AsyncGeneratorType)
    streams_left = [repr(each) for each in gc.get_objects() if isinstance(each, kinds)]
    seen = await provider_saw(provider.stdin, provider.stdout)
    tell(report, caller.told, seen, quarters)
    told = caller.told
    ended = told["answered"] + told["failed"] + told["left"]
    report.claim("requests that ended in no known way", asked.requests - ended, 0, "")
    invoked = told["invocations"]
    report.claim("invocations without one record", abs(invoked - told["records"]), 0, "")
    (mib_before, blocks_before), (mib, blocks) = quarters[1], quarters[3]
    report.claim("memory that the second half added", mib - mib_before, GROWTH_MIB, "MiB")
    grown = (blocks - blocks_before) / (asked.requests / 2)
    report.claim("blocks that the second half added", grown, GROWTH_BLOCKS, "a request")
    report.claim("connections left open", seen["open"], 0, "")
    expect_none(report, "other errors and wrong answers", caller.surprises)
    expect_none(report, "tasks left over", tasks_left)
    expect_none(report, "streams and generators left over", streams_left)
    expect_none(report, "errors of the provider itself", seen["errors"])


def tell(
    report: Report, told: Counter[str], seen: dict[str, Any], quarters: list[tuple[float, int]]
) -> None:
    """Write the tables."""
    rows = [(name, f"{count:,}") for name, count in sorted(told.items())]
    rows.append(("requests that the provider saw", f"{seen['requests']:,}"))
    rows.append(("connections that it accepted", f"{seen['connections']:,}"))
    report.table("What happened", ("", "count"), rows)
    header = ("after", "a quarter", "a half", "three quarters", "all")
    of_process = ("MiB", *(f"{mib:.1f}" for mib, _ in quarters))
    of_python = ("allocated blocks", *(f"{blocks:,}" for _, blocks in quarters))
    report.table("Memory", header, [of_process, of_python])


def expect_none(report: Report, what: str, found: list[str]) -> None:
    """Claim that there is nothing of a kind, and show the first of what there is."""
    report.claim(what, len(found), 0, "")
    report.notes += [f"{what}: {each}" for each in found[:10]]


def main() -> int:
    """Run the provider and the clients; 0 if all is well."""
    parser = arguments(__doc__)
    parser.add_argument("--requests", type=int, help="10,000 unless quick")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30, help="give up after that")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    asked = parser.parse_args()
    asked.requests = asked.requests or (400 if asked.quick else 10_000)
    title = f"{asked.requests:,} requests on loopback, on {asked.backend}"
    report = Report(f"soak-{asked.backend}", title, asked.quick, 1)
    errors = Errors()
    logging.getLogger().addHandler(errors)
    provider_file = Path(__file__).with_name("_soak_provider.py")
    command = [sys.executable, str(provider_file), str(asked.seed)]
    pipe = subprocess.PIPE
    with (
        warnings.catch_warnings(record=True) as warned,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as provider,
    ):
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", LEFT_BY_OTHERS, ResourceWarning)
        try:
            anyio.run(soak, report, provider, asked, backend=asked.backend)
        finally:
            provider.terminate()
    expect_none(report, "warnings", [str(each.message) for each in warned])
    expect_none(report, "logged errors", errors.texts)
    report.tell(save=asked.save)
    return int(any(claim.verdict != "yes" for claim in report.claims))


if __name__ == "__main__":
    sys.exit(main())
