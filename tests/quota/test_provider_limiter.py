"""The strict providers of these tests, and that a profile's bucket keeps within their rules."""

import heapq
from dataclasses import dataclass
from random import Random

import pytest

from chatrouting.quota.charging import CACHE_READ_TOKENS, OUTPUT_CAP
from chatrouting.quota.headers import DAY, read_limits
from chatrouting.quota.ledger import Denial, Ledger
from chatrouting.quota.limits import (
    CONCURRENCY,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUESTS,
    TOTAL_TOKENS,
    QuotaLimit,
    keys_of,
)
from chatrouting.quota.profiles import PROVIDER_PROFILES, provider_profile
from chatrouting.quota.throttle import read_retry_delay, read_violations
from tests.quota._provider_limiter import (
    COUNTING,
    START,
    Admission,
    Arrival,
    Log,
    ProviderLimiter,
    Refusal,
)

ARRIVAL = Arrival(input_tokens=1_000, cap=500, cached_tokens=600)


def arrive(limiter, now=0.0, arrival=ARRIVAL):
    admission = limiter.arrive(arrival, now)
    assert isinstance(admission, Admission), admission
    return admission


def counted(limiter, dimension, now=0.0):
    return limiter.logs[dimension][0].used(now)


def test_every_profile_has_a_provider():
    assert list(COUNTING) == list(PROVIDER_PROFILES)


@pytest.mark.parametrize(
    ("name", "dimension", "at_first", "generating", "in_the_end"),
    [
        ("openai", TOTAL_TOKENS, 1_500, 1_500, 1_500),
        ("azure", TOTAL_TOKENS, 1_500, 1_500, 1_500),
        ("azure_ptu", TOTAL_TOKENS, 1_500, 1_500, 500),
        ("anthropic", INPUT_TOKENS, 400, 400, 400),
        ("anthropic", OUTPUT_TOKENS, 0, 100, 100),
        ("gemini", INPUT_TOKENS, 1_000, 1_000, 1_000),
        ("bedrock_runtime", TOTAL_TOKENS, 1_500, 1_500, 500),
        ("bedrock_mantle", INPUT_TOKENS, 400, 400, 400),
        ("bedrock_mantle", OUTPUT_TOKENS, 0, 100, 100),
        ("groq", TOTAL_TOKENS, 400, 500, 500),
        ("mistral", TOTAL_TOKENS, 1_000, 1_100, 1_100),
    ],
)
def test_each_counts_in_its_own_way(name, dimension, at_first, generating, in_the_end):
    """[quota R4] What is charged at arrival, while output is generated, and when it is over."""
    limiter = ProviderLimiter(name, {dimension: 10_000})
    admission = arrive(limiter)
    assert counted(limiter, dimension) == at_first
    limiter.generate(admission, 100, 1.0)
    assert counted(limiter, dimension, 1.0) == generating
    limiter.finish(admission, 2.0)
    assert counted(limiter, dimension, 2.0) == in_the_end


def test_without_a_cap_the_most_that_the_model_writes_is_presumed_until_the_end():
    """[quota R18]"""
    limiter = ProviderLimiter("azure", {TOTAL_TOKENS: 100_000}, maximum_output=16_000)
    admission = arrive(limiter, arrival=Arrival(input_tokens=1_000))
    assert counted(limiter, TOTAL_TOKENS) == 17_000
    limiter.generate(admission, 200, 1.0)
    limiter.finish(admission, 2.0)
    assert counted(limiter, TOTAL_TOKENS, 2.0) == 1_200


def test_what_does_not_fit_is_refused_with_the_wait_until_it_does():
    limiter = ProviderLimiter("openai", {TOTAL_TOKENS: 2_000})
    arrive(limiter, 0.0)
    refusal = limiter.arrive(ARRIVAL, 20.0)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.limiter) == (429, TOTAL_TOKENS)
    assert refusal.headers["retry-after"] == "41"
    assert isinstance(limiter.arrive(ARRIVAL, 59.0), Refusal)
    assert isinstance(limiter.arrive(ARRIVAL, 60.0), Admission)


@pytest.mark.parametrize(("name", "after"), [("openai", 10.0), ("bedrock_mantle", 0.0)])
def test_refused_requests_count_where_the_provider_counts_them(name, after):
    """[quota R31]"""
    limits = {REQUESTS: 100, INPUT_TOKENS: 10, TOTAL_TOKENS: 10}
    limiter = ProviderLimiter(name, limits)
    for _ in range(10):
        assert isinstance(limiter.arrive(ARRIVAL, 0.0), Refusal)
    assert counted(limiter, REQUESTS) == after


def test_short_windows_are_enforced():
    """[quota R14] 60 a minute are one a second."""
    limiter = ProviderLimiter("anthropic", {REQUESTS: 60})
    assert isinstance(limiter.arrive(ARRIVAL, 0.0), Admission)
    assert isinstance(limiter.arrive(ARRIVAL, 0.5), Refusal)
    assert isinstance(limiter.arrive(ARRIVAL, 1.5), Admission)


def test_mantle_wants_room_for_the_cap_in_the_input():
    limiter = ProviderLimiter("bedrock_mantle", {INPUT_TOKENS: 1_000})
    arrive(limiter)
    assert isinstance(limiter.arrive(ARRIVAL, 0.0), Refusal)
    arrive(limiter, arrival=Arrival(input_tokens=100, cap=500))


def test_a_server_of_ones_own_has_slots():
    limiter = ProviderLimiter("self_hosted", {CONCURRENCY: 1})
    admission = arrive(limiter)
    refusal = limiter.arrive(ARRIVAL, 0.0)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.limiter) == (503, CONCURRENCY)
    limiter.finish(admission, 1.0)
    arrive(limiter, 1.0)


@pytest.mark.parametrize(
    ("name", "limits", "readings"),
    [
        (
            "openai",
            {REQUESTS: 60, TOTAL_TOKENS: 10_000},
            {(REQUESTS, 60.0): (60, 59), (TOTAL_TOKENS, 60.0): (10_000, 8_500)},
        ),
        (
            "azure",
            {REQUESTS: 120, TOTAL_TOKENS: 10_000},
            {(REQUESTS, None): (20, 19), (TOTAL_TOKENS, 60.0): (10_000, 8_500)},
        ),
        (
            "groq",
            {REQUESTS: 1_000, TOTAL_TOKENS: 10_000},
            {(REQUESTS, DAY): (1_000, 999), (TOTAL_TOKENS, 60.0): (10_000, 9_600)},
        ),
        (
            "anthropic",
            {REQUESTS: 60, INPUT_TOKENS: 10_000},
            {(REQUESTS, 60.0): (60, 59), (INPUT_TOKENS, 60.0): (10_000, 10_000)},
        ),
        ("mistral", {TOTAL_TOKENS: 10_000}, {(TOTAL_TOKENS, 60.0): (10_000, 9_000)}),
        ("bedrock_runtime", {TOTAL_TOKENS: 10_000}, {}),
        ("gemini", {REQUESTS: 10}, {}),
    ],
)
def test_their_headers_are_read_as_they_are_meant(name, limits, readings):
    """[quota R12] Units, rounding and names differ."""
    headers = arrive(ProviderLimiter(name, limits), 5.0).headers
    found = read_limits(headers, now=START, windows=provider_profile(name).header_windows)
    assert {
        (each.dimension, each.window): (each.limit, each.remaining)
        for each in found
        if each.remaining is not None
    } == readings
    assert all(each.reset is None or each.reset <= DAY + 5 for each in found)


def test_the_body_of_google_is_read():
    limiter = ProviderLimiter("gemini", {REQUESTS: 1})
    arrive(limiter)
    refusal = limiter.arrive(ARRIVAL, 20.0)
    assert isinstance(refusal, Refusal)
    assert [each.dimension for each in read_violations(refusal.body)] == [REQUESTS]
    assert read_retry_delay(refusal.body) == 41.0


def test_a_log_is_exact():
    log = Log(10, 60.0)
    first, _ = log.count(6, 0.0), log.count(3, 30.0)
    assert (log.left(59.9), log.left(60.0), log.left(90.0)) == (1, 7, 10)
    log = Log(10, 60.0)
    first = log.count(6, 0.0)
    log.count(3, 30.0)
    assert (log.wait(2, 40.0), log.wait(8, 40.0), log.wait(11, 40.0)) == (20, 50, 60)
    log.correct(first, 1, 40.0)
    assert (log.left(40.0), log.total) == (6, 4)
    log.correct(first, 9, 61.0)
    assert (log.left(61.0), log.total) == (7, 12)


# A backlog, governed by nothing but a profile's bucket.

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


@dataclass
class Outcome:
    """What came of a backlog."""

    refused: int
    admitted: int
    utilisation: float


class Backlog:
    """Requests without end, each sent as soon as the ledger admits it. Estimates are right."""

    def __init__(self, name, *, seed=1, seconds=600.0):
        self.provider = ProviderLimiter(name, LIMITS[name])
        self._profile = provider_profile(name)
        limits = [
            QuotaLimit(dimension, amount, window=COUNTING[name].windows.get(dimension, 60.0))
            for dimension, amount in LIMITS[name].items()
        ]
        bucket = self._profile.bucket(*limits, headroom=0.03)
        self._ledger = Ledger(lambda _: bucket)
        self._path = self._ledger.path(keys_of(scope=self._profile_scope()))
        self._rng = Random(seed)
        self._seconds = seconds
        self._events = []
        self._count = 0
        self._next = self._request()

    def run(self):
        self._push(0.0, self._offer)
        while self._events and self._events[0][0] <= self._seconds:
            now, _, act = heapq.heappop(self._events)
            act(now)
        return Outcome(
            self.provider.refused,
            self.provider.admitted,
            self.provider.utilisation(self._seconds),
        )

    def _profile_scope(self):
        return self._profile.scope(**dict.fromkeys(self._profile.scope_parts, "x"))

    def _push(self, time, act):
        self._count += 1
        heapq.heappush(self._events, (time, self._count, act))

    def _request(self):
        rng = self._rng
        arrival = Arrival(
            input_tokens=int(rng.lognormvariate(6.3, 0.7)) + 1,
            cap=rng.choice([300, 400, 1_000]),
            cached_tokens=0,
        )
        return arrival, min(arrival.cap, int(rng.lognormvariate(5, 0.8)) + 1)

    def _offer(self, now):
        arrival, output = self._next
        charges = {
            REQUESTS: 1.0,
            INPUT_TOKENS: arrival.input_tokens
            + (arrival.cap if self._profile.cap_held_as_input else 0),
            OUTPUT_TOKENS: output,
            OUTPUT_CAP: arrival.cap,
            CACHE_READ_TOKENS: arrival.cached_tokens,
        }
        hold = self._ledger.admit(self._path, charges, now)
        if isinstance(hold, Denial):
            assert not hold.is_too_large
            self._push(now + min(hold.wait, 0.25), self._offer)
            return
        self._next = self._request()
        # The way there takes its time, and not always the same.
        self._push(
            now + self._rng.uniform(0.02, 0.1), lambda at: self._send(hold, arrival, output, at)
        )
        self._push(now, self._offer)

    def _send(self, hold, arrival, output, now):
        admission = self.provider.arrive(arrival, now)
        if isinstance(admission, Refusal):
            self._ledger.settle(hold, None, now, failed=True)
            return
        seconds = 0.3 + output / 80
        for part in range(4):
            tokens = output * (part + 1) // 4 - output * part // 4
            self._push(
                now + seconds * (part + 1) / 4,
                lambda at, tokens=tokens: self.provider.generate(admission, tokens, at),
            )
        self._push(now + seconds, lambda at: self._finish(hold, admission, output, at))

    def _finish(self, hold, admission, output, now):
        self.provider.finish(admission, now)
        actual = {INPUT_TOKENS: float(admission.arrival.input_tokens), OUTPUT_TOKENS: float(output)}
        self._ledger.settle(hold, actual, now)


@pytest.mark.parametrize("name", LIMITS)
def test_a_profile_keeps_within_its_providers_limits_and_uses_them(name):
    """[quota R2] [quota R4] [quota R14] No refusal in a backlog without end, and no idle quota."""
    outcome = Backlog(name).run()
    assert outcome.admitted > 500
    assert outcome.refused == 0
    assert outcome.utilisation >= 0.95, outcome
