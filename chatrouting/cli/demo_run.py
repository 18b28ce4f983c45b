"""Runs the demo: provider servers, real SDK clients, a stack of routers, and questions to them.

What it gives back is a plain record of what happened; `demo_report` makes numbers of it.
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, final

import anyio

from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.attempt import RoutingAttempt
from chatrouting.cli import sdk_clients as sdk
from chatrouting.cli.demo_schedule import (
    PROVIDERS,
    check_answer,
    is_streamed,
    question,
    question_number,
    replies,
)
from chatrouting.cli.demo_semantic import Routed, route_texts
from chatrouting.client import ChatClient, EmbeddingGenerator
from chatrouting.errors import MissingExtraError
from chatrouting.routing.context import RoutingContext
from chatrouting.routing.ordered import OrderedFailoverChatClient
from chatrouting.semantic.wordllama import WordLlamaEmbeddingGenerator
from chatrouting.testing.provider_server import ProviderServer

ROUTER: Final = "router"

#: Seconds that one OpenAI region has for its first output, and that any stream may stand still.
FIRST_OUTPUT_TIMEOUT: Final = 0.25
STALL_TIMEOUT: Final = 0.25
#: Seconds that both regions together have; the last provider then gets more time than they did.
ALL_REGIONS_TIMEOUT: Final = 1.0
#: Seconds after which a direct call is given up: the SDK's own limit between two reads.
DIRECT_TIMEOUT: Final = 0.8

#: Questions that are under way at the same time.
_CONCURRENCY: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAttempt:
    """One invocation of one provider by the routers."""

    number: int  #: Of the question.
    is_streamed: bool
    route: str
    attempt: RoutingAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One question, as its caller saw it."""

    path: str  #: A provider's name, or `ROUTER`.
    number: int
    is_streamed: bool
    error: Exception | None
    duration: float  #: Seconds.
    first_output: float | None  #: Seconds until the first output of a stream.


@dataclass(slots=True)
class DemoRecord:
    """All that happened."""

    requests: int
    seed: int
    calls: list[Call] = field(default_factory=list[Call])
    attempts: list[SeenAttempt] = field(default_factory=list[SeenAttempt])
    duration: float = 0.0  #: Seconds for all questions on all paths, without starting up.
    routed: list[Routed] = field(default_factory=list[Routed])
    missing: str | None = None  #: Why nothing was routed by meaning.


class DemoView:
    """Watches a run; this one looks away. Override what is to be seen."""

    def begin(self, path: str) -> None:
        """Learn that questions are put to a provider, or to the router, from now on."""

    def begin_meaning(self) -> None:
        """Learn that texts are routed by meaning from now on."""

    def saw_attempt(self, seen: SeenAttempt) -> None:
        """Learn of an attempt of the routers."""

    def saw_call(self, call: Call) -> None:
        """Learn of the end of a question."""


@final
@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes down what happens, and lets the view see it."""

    record: DemoRecord
    view: DemoView

    def note_attempt(
        self,
        prefix: str,
        context: RoutingContext,
        attempt: RoutingAttempt,
        is_terminal: bool,  # noqa: ARG002, FBT001  # a hook's arguments
    ) -> None:
        """Note an attempt at a provider; `prefix` is what comes before its route's name."""
        route = prefix + attempt.route
        # The outer router's attempt at all regions is told by the inner router's own.
        if route in PROVIDERS:
            seen = SeenAttempt(
                number=question_number(context.messages[0].text),
                is_streamed=context.is_streaming,
                route=route,
                attempt=attempt,
            )
            self.record.attempts.append(seen)
            self.view.saw_attempt(seen)

    def note_call(self, call: Call) -> None:
        """Note the end of a question."""
        self.record.calls.append(call)
        self.view.saw_call(call)


async def run_demo(
    *,
    requests: int,
    seed: int,
    view: DemoView,
    make_encoder: Callable[[], EmbeddingGenerator] = WordLlamaEmbeddingGenerator,
) -> DemoRecord:
    """Ask the questions 1 to `requests`: of the router, then of each provider directly.

    Then route some texts by meaning, if there is an encoder.
    """
    record = DemoRecord(requests, seed)
    recorder = Recorder(record, view)
    async with _providers(seed) as providers:
        clients = {name: each.through_router for name, each in providers.items()}
        router = make_router(clients, recorder)
        for client in clients.values():
            await _warm_up(client)
        start = time.perf_counter()
        await _Asking(ROUTER, router, recorder).ask_all()
        for name, each in providers.items():
            await _Asking(name, each.directly, recorder).ask_all()
        record.duration = time.perf_counter() - start
        view.begin_meaning()
        try:
            record.routed = await route_texts(clients, make_encoder())
        except MissingExtraError as error:
            record.missing = str(error)
    return record


def make_router(clients: Mapping[str, ChatClient], recorder: Recorder) -> OrderedFailoverChatClient:
    """Stack the routers: two regions of one provider, and behind them another provider.

    Args:
        clients: One for each of `PROVIDERS`.
        recorder: Told of each attempt.
    """
    regions = OrderedFailoverChatClient(
        {"us-east": clients["openai/us-east"], "europe": clients["openai/europe"]},
        first_output_timeout=FIRST_OUTPUT_TIMEOUT,
        stall_timeout=STALL_TIMEOUT,
        on_routing_update=partial(recorder.note_attempt, "openai/"),
        name="openai",
    )
    return OrderedFailoverChatClient(
        {"openai": regions, "anthropic": clients["anthropic"]},
        first_output_timeout=ALL_REGIONS_TIMEOUT,
        stall_timeout=STALL_TIMEOUT,
        on_routing_update=partial(recorder.note_attempt, ""),
        name="demo",
    )


@dataclass(frozen=True, slots=True)
class _Provider:
    """One simulated provider, with the limits that its callers set."""

    through_router: ChatClient  #: The routers' own limits are the first to be reached.
    directly: ChatClient


@asynccontextmanager
async def _providers(seed: int) -> AsyncGenerator[Mapping[str, _Provider]]:
    """Serve the providers, with clients of the real SDKs."""
    async with AsyncExitStack() as stack:
        found: dict[str, _Provider] = {}
        for name in PROVIDERS:
            server = await stack.enter_async_context(ProviderServer(replies(seed, name)))
            if name == "anthropic":
                client = sdk.loopback_anthropic_client(server.anthropic_base_url)
                await stack.enter_async_context(client)
                impatient = client.with_options(timeout=DIRECT_TIMEOUT)
                found[name] = _Provider(
                    AnthropicChatClient(client, "claude-demo"),
                    AnthropicChatClient(impatient, "claude-demo"),
                )
            else:
                found[name] = await _openai_provider(stack, server.openai_base_url)
        yield found


async def _openai_provider(stack: AsyncExitStack, url: str) -> _Provider:
    client = await stack.enter_async_context(sdk.loopback_openai_client(url))
    impatient = client.with_options(timeout=DIRECT_TIMEOUT)
    return _Provider(OpenAIChatClient(client, "gpt-demo"), OpenAIChatClient(impatient, "gpt-demo"))


async def _warm_up(client: ChatClient) -> None:
    """Let the SDKs load and prepare what they do at a first call, in both modes."""
    await client.get_response(question(0))
    await client.get_streaming_response(question(0)).get_final_response()


@final
class _Asking:
    """All questions to one client, some at a time."""

    def __init__(self, path: str, client: ChatClient, recorder: Recorder) -> None:
        self._path = path
        self._client = client
        self._recorder = recorder

    async def ask_all(self) -> None:
        """Put all questions."""
        self._recorder.view.begin(self._path)
        numbers = iter(range(1, self._recorder.record.requests + 1))
        async with anyio.create_task_group() as group:
            for _ in range(_CONCURRENCY):
                group.start_soon(self._ask_each, numbers)

    async def _ask_each(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            self._recorder.note_call(await self._ask(number))

    async def _ask(self, number: int) -> Call:
        error: Exception | None = None
        first_output: float | None = None
        start = time.perf_counter()
        try:
            if is_streamed(number):
                async with self._client.get_streaming_response(question(number)) as stream:
                    async for update in stream:
                        if first_output is None and update.has_output:
                            first_output = time.perf_counter() - start
                    text = stream.partial_response.text
            else:
                text = (await self._client.get_response(question(number))).text
            check_answer(number, text)
        except Exception as raised:  # noqa: BLE001  # told in the report, and decides the exit code
            error = raised
        return Call(
            path=self._path,
            number=number,
            is_streamed=is_streamed(number),
            error=error,
            duration=time.perf_counter() - start,
            first_output=first_output,
        )
