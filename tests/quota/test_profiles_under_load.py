"""A backlog without end, governed by a profile's bucket alone, before the strict provider."""

import heapq
from dataclasses import dataclass
from random import Random

import pytest

from chatrouting.messages import as_messages
from chatrouting.options import ChatOptions
from chatrouting.quota.charging import OUTPUT_CAP
from chatrouting.quota.estimate import Estimator, QuoteTarget
from chatrouting.quota.headers import read_limits
from chatrouting.quota.ledger import Denial, Ledger
from chatrouting.quota.limits import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUESTS,
    TOTAL_TOKENS,
    QuotaLimit,
    keys_of,
)
from chatrouting.quota.profiles import provider_profile
from chatrouting.quota.reconcile import Belief, Place, Reconciler
from chatrouting.usage import Usage
from tests.quota._provider_limiter import COUNTING, START, Arrival, ProviderLimiter, Refusal

LIMITS = {
    "openai": {REQUESTS: 600, TOTAL_TOKENS: 300_000},
    "azure": {REQUESTS: 600, TOTAL_TOKENS: 300_000},
    "azure_ptu": {TOTAL_TOKENS: 300_000},
    "anthropic": {REQUESTS: 300, INPUT_TOKENS: 150_000, OUTPUT_TOKENS: 60_000},
    "gemini": {REQUESTS: 300, INPUT_TOKENS: 150_000},
    "bedrock_runtime": {REQUESTS: 600, TOTAL_TOKENS: 300_000},
    "bedrock_mantle": {INPUT_TOKENS: 250_000, OUTPUT_TOKENS: 60_000},
    "groq": {REQUESTS: 14_400, TOTAL_TOKENS: 200_000},
    "mistral": {REQUESTS: 6, TOTAL_TOKENS: 200_000},
}


@dataclass(frozen=True)
class Request:
    """What is sent, and what will be written."""

    text: str
    arrival: Arrival
    output: int


class Truth:
    """Knows what requests need."""

    def __init__(self, profile):
        self._held = profile.cap_held_as_input

    def charges(self, request, _):
        arrival = request.arrival
        return request, {
            REQUESTS: 1.0,
            INPUT_TOKENS: arrival.input_tokens + (arrival.cap if self._held else 0),
            OUTPUT_TOKENS: request.output,
            OUTPUT_CAP: arrival.cap,
        }

    def actual(self, request, _, __):
        return {INPUT_TOKENS: request.arrival.input_tokens, OUTPUT_TOKENS: request.output}


class Guess:
    """Estimates what requests need, and learns."""

    def __init__(self, profile):
        self._estimator = Estimator(default_output_tokens=400)
        self._target = QuoteTarget(deployment="d", profile=profile)

    def charges(self, request, now):
        options = ChatOptions(max_output_tokens=request.arrival.cap)
        messages = as_messages(request.text)
        quote = self._estimator.quote(messages, options, self._target, is_streaming=True, now=now)
        return quote, quote.charges()

    def actual(self, quote, usage, now):
        self._estimator.learn(quote, usage, seconds=1.0, now=now)
        return quote.actual(usage, seconds=1.0)


class Backlog:
    """Requests without end, each sent as soon as the ledger admits it."""

    def __init__(self, name, knowledge, *, seconds=300.0):
        self.provider = ProviderLimiter(name, LIMITS[name])
        profile = provider_profile(name)
        bucket = profile.bucket(
            *(
                QuotaLimit(dimension, amount, window=COUNTING[name].windows.get(dimension, 60.0))
                for dimension, amount in LIMITS[name].items()
            ),
            headroom=0.03,
        )
        scope = profile.scope(**dict.fromkeys(profile.scope_parts, "x"))
        self.ledger = Ledger(lambda _: bucket)
        self.path = self.ledger.path(keys_of(scope=scope))
        self._knowledge = knowledge(profile)
        self._rng = Random(1)
        self._seconds = seconds
        self._events = []
        self._count = 0
        self._next = self._request()

    def run(self):
        """Return the share of the fullest limit that was used."""
        self._push(0.0, self._offer)
        while self._events and self._events[0][0] <= self._seconds:
            now, _, act = heapq.heappop(self._events)
            act(now)
        return self.provider.utilisation(self._seconds)

    def was_sent(self, hold, now):
        """Look at a request that is sent."""

    def was_answered(self, hold, now):
        """Look at an answer that has come, whole."""

    def _push(self, time, act):
        self._count += 1
        heapq.heappush(self._events, (time, self._count, act))

    def _request(self):
        rng = self._rng
        words = int(rng.lognormvariate(6.3, 0.7)) + 1
        cap = rng.choice([300, 400, 1_000])
        output = min(cap, int(rng.lognormvariate(5, 0.8)) + 1)
        # What the provider counts is near what the words look like, and never quite that.
        counted = int(words * rng.uniform(1.05, 1.25)) + 12
        return Request("word " * words, Arrival(input_tokens=counted, cap=cap), output)

    def _offer(self, now):
        request = self._next
        quote, charges = self._knowledge.charges(request, now)
        hold = self.ledger.admit(self.path, charges, now)
        if isinstance(hold, Denial):
            assert not hold.is_too_large
            # What is settled meanwhile may make room before.
            self._push(now + min(hold.wait, 0.25), self._offer)
            return
        self.was_sent(hold, now)
        self._next = self._request()
        # The way there takes its time, and not always the same.
        arrives = now + self._rng.uniform(0.02, 0.1)
        self._push(arrives, lambda at: self._send(hold, quote, request, at))
        self._push(now, self._offer)

    def _send(self, hold, quote, request, now):
        admission = self.provider.arrive(request.arrival, now)
        if isinstance(admission, Refusal):
            self.ledger.settle(hold, None, now, failed=True)
            return
        seconds = 0.3 + request.output / 80
        for part in range(4):
            tokens = request.output * (part + 1) // 4 - request.output * part // 4
            self._push(
                now + seconds * (part + 1) / 4,
                lambda at, tokens=tokens: self.provider.generate(admission, tokens, at),
            )
        self._push(now + seconds, lambda at: self._finish(hold, quote, admission, at))

    def _finish(self, hold, quote, admission, now):
        self.provider.finish(admission, now)
        self.was_answered(hold, now)
        usage = Usage(
            input_tokens=admission.arrival.input_tokens, output_tokens=admission.generated
        )
        self.ledger.settle(hold, self._knowledge.actual(quote, usage, now), now)


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_known_exactly_is_used_and_never_exceeded(name):
    """[quota R2] [quota R4] [quota R14] No refusal, and 95 % of what the provider grants."""
    backlog = Backlog(name, Truth)
    assert backlog.run() >= 0.95
    assert (backlog.provider.refused, backlog.provider.admitted > 300) == (0, True)


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_estimated_is_used_and_never_exceeded(name):
    """[quota R2] [quota R22] [quota R27-R28] No refusal, and 85 % with 95th percentiles."""
    backlog = Backlog(name, Guess)
    assert backlog.run() >= 0.85
    assert (backlog.provider.refused, backlog.provider.admitted > 300) == (0, True)


class Listening(Backlog):
    """Charges what the headers of whole answers seem to say of others."""

    def __init__(self, name):
        super().__init__(name, Truth)
        self._profile = provider_profile(name)
        self._reconciler = Reconciler(self._profile)
        self._sent = {}

    def was_sent(self, hold, now):
        self._sent[hold] = len(self._sent), self._beliefs(now)

    def was_answered(self, hold, now):
        order, beliefs = self._sent[hold]
        headers = self.provider.headers(now)
        readings = read_limits(headers, now=START, windows=self._profile.header_windows)
        present = self._beliefs(now)
        for each in self._reconciler.observe(readings, beliefs, present, order=order):
            self.ledger.debit(self.path, {each.place.dimension: each.external}, now)

    def _beliefs(self, now):
        return {
            Place(each.limit.dimension, each.limit.window): Belief(each.limit.amount, each.used)
            for each in self.ledger.usage(self.path, now)
        }


@pytest.mark.parametrize("name", ["openai", "azure", "anthropic", "mistral"])
def test_listening_costs_nothing_while_nobody_else_uses_the_key(name):
    """[quota R58] Requests of the meantime, rounding and jitter are not taken for other clients."""
    backlog = Listening(name)
    assert backlog.run() >= 0.95
    assert backlog.provider.refused == 0
