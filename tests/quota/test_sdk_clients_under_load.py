"""Real SDK clients, real time, and providers that refuse whatever exceeds windows of five seconds.

The same load is sent twice: through the governor, and by the bare SDK with the retries that it has.
"""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio
import pytest
from anthropic import AnthropicError, AsyncAnthropic
from openai import AsyncOpenAI, OpenAIError

from chatrouting import ChatOptions, Usage
from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.errors import QuotaExceededError
from chatrouting.quota.clients import QuotaChatClient
from chatrouting.quota.decisions import DecisionOutcome
from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.estimate import Estimator
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.limits import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOTAL_TOKENS, QuotaLimit
from chatrouting.quota.profiles import provider_profile
from chatrouting.testing.provider_server import ProviderServer, Reply
from tests.quota._provider_limiter import Arrival, ProviderLimiter, Refusal

pytestmark = pytest.mark.timeout(60)

WINDOW = 5.0
#: Longer than a window: what was sent in its first second may be sent again in its last.
SECONDS = 7.0
#: Requests for each one that there is room for.
OVERLOAD = 3.0
#: What arrives later than another by so much is still within the limits. The machine is shared.
JITTER = 0.5
LIMITS = {
    "openai": {REQUESTS: 25, TOTAL_TOKENS: 5_000},
    "anthropic": {REQUESTS: 25, INPUT_TOKENS: 5_000, OUTPUT_TOKENS: 2_500},
}
#: The part of the limits that is used at least. Anthropic judges each second, of which a jitter of
#: half a second takes a third.
USED = {"openai": 0.7, "anthropic": 0.5}


@dataclass(frozen=True)
class Ask:
    """One request, and what the model will write."""

    words: int
    output: int
    cap: int
    streams: bool

    @property
    def text(self):
        return f"{self.output} {'word ' * (self.words - 1)}"


@dataclass
class Tally:
    """What became of the load."""

    offered: int = 0
    answered: int = 0
    turned_away: int = 0  #: By the governor, or by the SDK when it had retried enough.


class StrictProvider:
    """A provider whose limiter sees each request as it arrives on the socket."""

    def __init__(self, name, group):
        self.limiter = ProviderLimiter(
            name, LIMITS[name], windows=dict.fromkeys(LIMITS[name], WINDOW)
        )
        self.server = ProviderServer(self._reply)
        self._group = group
        self._start = anyio.current_time()

    @property
    def seconds(self):
        return anyio.current_time() - self._start

    def _reply(self, request):
        words = _text(request.body["messages"][-1]["content"]).split()
        cap = request.body.get("max_completion_tokens") or request.body["max_tokens"]
        found = self.limiter.arrive(Arrival(input_tokens=len(words), cap=cap), self.seconds)
        if isinstance(found, Refusal):
            return Reply.error(found.status, headers=found.headers)
        output = int(words[0])
        self._group.start_soon(self._write, request, found, output)
        return Reply(
            ("some ", "words ", "more"),
            usage=Usage(input_tokens=len(words), output_tokens=output),
            headers=found.headers,
            delay_before_first_chunk=0.05,
            delay_between_chunks=0.02,
        )

    async def _write(self, request, admission, output):
        await request.done.wait()
        self.limiter.generate(admission, output, self.seconds)
        self.limiter.finish(admission, self.seconds)


def _text(content):
    return content if isinstance(content, str) else content[0]["text"]


def governor_of(name, decisions):
    profile = provider_profile(name)
    limits = [QuotaLimit(each, amount, window=WINDOW) for each, amount in LIMITS[name].items()]
    deployment = QuotaDeployment(
        name=name,
        scope=profile.scope(**dict.fromkeys(profile.scope_parts, "x")),
        profile=profile.replace(header_windows=dict.fromkeys(LIMITS[name], WINDOW)),
        limits=profile.bucket(*limits, jitter=JITTER),
    )
    estimator = Estimator(default_output_tokens=100)
    return QuotaGovernor([deployment], estimator=estimator, on_decision=decisions.append)


async def offer(send, tally):
    """Send requests at their pace, whatever becomes of them, each in a task of its own."""
    rng = Random(1)
    pace = WINDOW / (OVERLOAD * 25)
    async with anyio.create_task_group() as group:

        async def one(ask):
            answered = await send(ask)
            tally.answered += answered
            tally.turned_away += not answered

        with anyio.move_on_after(SECONDS):
            while True:
                cap = rng.choice([60, 100])
                ask = Ask(rng.randint(40, 120), rng.randint(20, cap), cap, rng.random() < 0.5)
                tally.offered += 1
                group.start_soon(one, ask)
                await anyio.sleep(rng.uniform(0.5, 1.5) * pace)
        # Who still waits then has had no answer: a retry of the SDK may rest for half a minute.
        group.cancel_scope.cancel()


def governed(client):
    async def send(ask):
        options = ChatOptions(max_output_tokens=ask.cap)
        try:
            if not ask.streams:
                await client.get_response(ask.text, options)
            else:
                async with client.get_streaming_response(ask.text, options) as stream:
                    await stream.get_final_response()
        except QuotaExceededError:
            return False
        return True

    return send


def bare_openai(sdk):
    async def send(ask):
        messages = [{"role": "user", "content": ask.text}]
        options = {"model": "m", "max_completion_tokens": ask.cap, "messages": messages}
        try:
            answer = await sdk.chat.completions.create(stream=ask.streams, **options)
            if ask.streams:
                async for _ in answer:
                    pass
        except OpenAIError:
            return False
        return True

    return send


def bare_anthropic(sdk):
    async def send(ask):
        messages = [{"role": "user", "content": ask.text}]
        options = {"model": "m", "max_tokens": ask.cap, "messages": messages}
        try:
            answer = await sdk.messages.create(stream=ask.streams, **options)
            if ask.streams:
                async for _ in answer:
                    pass
        except AnthropicError:
            return False
        return True

    return send


SDKS = {
    "openai": (AsyncOpenAI, "openai_base_url", OpenAIChatClient, bare_openai),
    "anthropic": (AsyncAnthropic, "anthropic_base_url", AnthropicChatClient, bare_anthropic),
}


@dataclass
class Run:
    """One provider's load, governed and not."""

    name: str
    governed: Tally = field(default_factory=Tally)
    bare: Tally = field(default_factory=Tally)
    decisions: list[Any] = field(default_factory=list)

    async def play(self):
        make, url, wrap, bare = SDKS[self.name]
        async with anyio.create_task_group() as group, AsyncExitStack() as stack:
            self.ours, self.theirs = (
                StrictProvider(self.name, group),
                StrictProvider(self.name, group),
            )
            for each in (self.ours, self.theirs):
                await stack.enter_async_context(each.server)
            sdks = [
                await stack.enter_async_context(
                    make(api_key="any", base_url=getattr(each.server, url))
                )
                for each in (self.ours, self.theirs)
            ]
            self.governor = governor_of(self.name, self.decisions)
            client = QuotaChatClient(wrap(sdks[0], "m"), self.governor, self.name)
            async with anyio.create_task_group() as load:
                load.start_soon(offer, governed(client), self.governed)
                load.start_soon(offer, bare(sdks[1]), self.bare)
            group.cancel_scope.cancel()

    def __str__(self):
        return "\n".join(
            f"{self.name}, {how}: {tally.offered} offered, {tally.answered} answered, "
            f"{strict.limiter.refused} times refused by the provider"
            for how, tally, strict in (
                ("governed", self.governed, self.ours),
                ("bare SDK with its retries", self.bare, self.theirs),
            )
        )


async def test_a_provider_never_refuses_what_was_admitted(anyio_backend):
    """At three times the load that it has room for. [quota R2] [quota R14] [quota R58]

    The bare SDK is refused, retries, is refused again, and each refusal counts as a request.
    """
    runs = [Run(name) for name in SDKS]
    async with anyio.create_task_group() as group:
        for run in runs:
            group.start_soon(run.play)

    for run in runs:
        print(run)  # noqa: T201  # side by side, for whoever asks by -rP
        assert run.ours.limiter.refused == 0
        assert run.ours.limiter.utilisation(SECONDS) >= USED[run.name]
        assert run.theirs.limiter.refused > 25
        assert not any(run.governor.snapshot().scopes[0].running.values())
        refused = DecisionOutcome.ADMITTED_THEN_PROVIDER_REJECTED
        assert all(each.outcome is not refused for each in run.decisions)
