"""Providers as strict as they may be: each counts in its own way, over any rolling window.

Written from the providers' documentation and apart from the library, so that both can be wrong only
by chance in the same way. Pure: time is an argument, in seconds, and must not go back.

A request *arrives* and is let in or refused; what is let in may *generate* output and *finishes*.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, final

REQUESTS, INPUT, OUTPUT, TOTAL = "requests", "input_tokens", "output_tokens", "total_tokens"
CONCURRENCY = "concurrency"
#: The wall clock at the time 0.
START = datetime(2026, 12, 1, tzinfo=UTC)
#: Sums of fractions differ by as much.
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A request as the provider sees it: what it counts of the text, and the caller's cap."""

    input_tokens: int
    cap: int | None = None
    cached_tokens: int = 0


@dataclass(frozen=True)
class Refusal:
    """What a request that does not fit is answered with."""

    status: int
    limiter: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


@dataclass(eq=False)
class Admission:
    """A request that was let in, and what the response says of the limits."""

    arrival: Arrival
    headers: Mapping[str, str]
    entries: dict[str, "_Entry"] = field(default_factory=dict)
    generated: int = 0
    is_running: bool = True


@dataclass(eq=False)
class _Entry:
    time: float
    amount: float


class Log:
    """Everything that was counted, exactly: at most `limit` in any `window` seconds."""

    def __init__(self, limit: float, window: float) -> None:
        self.limit = limit
        self.window = window
        self.total = 0.0
        self._used = 0.0
        self._entries: deque[_Entry] = deque()

    def used(self, now: float) -> float:
        while self._entries and self._entries[0].time <= now - self.window:
            self._used -= self._entries.popleft().amount
        return max(0.0, self._used)

    def left(self, now: float) -> float:
        return max(0.0, self.limit - self.used(now))

    def fits(self, amount: float, now: float) -> bool:
        return self.used(now) + amount <= self.limit + ROUNDING

    def count(self, amount: float, now: float) -> _Entry:
        entry = _Entry(now, amount)
        self._entries.append(entry)
        self._used += amount
        self.total += amount
        return entry

    def correct(self, entry: _Entry, amount: float, now: float) -> None:
        """Make an entry what it should have been, at the time that it was made."""
        self.used(now)
        self.total += amount - entry.amount
        if entry.time > now - self.window:
            self._used += amount - entry.amount
        entry.amount = amount

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until an amount fits if nothing else comes."""
        missing = self.used(now) + amount - self.limit
        for entry in self._entries:
            missing -= entry.amount
            if missing <= ROUNDING:
                return entry.time + self.window - now
        return self.window

    def time_to_full(self, now: float) -> float:
        self.used(now)
        return self._entries[-1].time + self.window - now if self._entries else 0.0


Amount = Callable[[Arrival, int], float]


@final
@dataclass(frozen=True, kw_only=True)
class Counting:
    """How one provider counts.

    Attributes:
        arrival: What is charged when a request comes, by dimension; the second argument is the
            most that the model writes.
        checked: What must fit besides, without being charged.
        generated: Where output counts when it is generated; full, it refuses requests.
        settled: What the charge becomes at the end, in its place; the second argument is the
            output.
        is_settled_without_cap: It becomes that only for a request without a cap.
        refused_count: Refused requests count as requests.
        short: Windows over which a limit for a minute is enforced, seconds.
        windows: Of limits that are not for a minute.
        status: Of a refusal.
    """

    arrival: Mapping[str, Amount]
    checked: Mapping[str, Amount] = field(default_factory=dict)
    generated: tuple[str, ...] = ()
    settled: Mapping[str, Amount] = field(default_factory=dict)
    is_settled_without_cap: bool = False
    refused_count: bool = True
    short: Mapping[str, float] = field(default_factory=dict)
    windows: Mapping[str, float] = field(default_factory=dict)
    status: int = 429


def _one(_: Arrival, __: int) -> float:
    return 1.0


def _input(arrival: Arrival, _: int) -> float:
    return float(arrival.input_tokens)


def _uncached(arrival: Arrival, _: int) -> float:
    return float(arrival.input_tokens - arrival.cached_tokens)


def _cap(arrival: Arrival, maximum: int) -> float:
    return float(maximum if arrival.cap is None else arrival.cap)


def _input_and_cap(arrival: Arrival, maximum: int) -> float:
    return arrival.input_tokens + _cap(arrival, maximum)


def _input_and_own_cap(arrival: Arrival, _: int) -> float:
    return arrival.input_tokens + float(arrival.cap or 0)


def _used(arrival: Arrival, output: int) -> float:
    return float(arrival.input_tokens + output)


def _used_uncached(arrival: Arrival, output: int) -> float:
    return float(arrival.input_tokens - arrival.cached_tokens + output)


COUNTING: Mapping[str, Counting] = {
    "openai": Counting(arrival={REQUESTS: _one, TOTAL: _input_and_own_cap}),
    "azure": Counting(
        arrival={REQUESTS: _one, TOTAL: _input_and_cap},
        settled={TOTAL: _used},
        is_settled_without_cap=True,
        short={REQUESTS: 10.0},
    ),
    "azure_ptu": Counting(
        arrival={TOTAL: _input_and_cap}, settled={TOTAL: _used_uncached}, refused_count=False
    ),
    "anthropic": Counting(
        arrival={REQUESTS: _one, INPUT: _uncached}, generated=(OUTPUT,), short={REQUESTS: 1.0}
    ),
    "gemini": Counting(arrival={REQUESTS: _one, INPUT: _input}),
    "bedrock_runtime": Counting(
        arrival={REQUESTS: _one, TOTAL: _input_and_cap}, settled={TOTAL: _used_uncached}
    ),
    "bedrock_mantle": Counting(
        arrival={INPUT: _uncached}, checked={INPUT: _cap}, generated=(OUTPUT,), refused_count=False
    ),
    "groq": Counting(
        arrival={REQUESTS: _one, INPUT: _uncached, TOTAL: _uncached},
        generated=(OUTPUT, TOTAL),
        windows={REQUESTS: 86_400.0},
    ),
    "mistral": Counting(
        arrival={REQUESTS: _one, TOTAL: _input}, generated=(TOTAL,), windows={REQUESTS: 1.0}
    ),
    "self_hosted": Counting(arrival={}, refused_count=False, status=503),
}


class ProviderLimiter:
    """One quota at one provider.

    Attributes:
        refused: How many requests were refused.
        admitted: How many were let in.
    """

    def __init__(
        self, profile: str, limits: Mapping[str, float], *, maximum_output: int = 16_384
    ) -> None:
        """Start unused.

        Args:
            profile: Name of the provider's profile.
            limits: Amounts by dimension, for the window that the provider has them for.
            maximum_output: The most that the model writes.
        """
        self.profile = profile
        self.counting = COUNTING[profile]
        self.limits = limits
        self.refused = 0
        self.admitted = 0
        self._maximum = maximum_output
        self._running = 0
        self.logs: dict[str, list[Log]] = {
            dimension: self._logs(dimension, limit)
            for dimension, limit in limits.items()
            if dimension != CONCURRENCY
        }

    def arrive(self, arrival: Arrival, now: float) -> Admission | Refusal:
        """Let a request in, or refuse it."""
        costs = {name: cost(arrival, self._maximum) for name, cost in self.counting.arrival.items()}
        limiter, wait = self._binding(arrival, costs, now)
        if limiter is not None:
            self.refused += 1
            if self.counting.refused_count:
                self._count(REQUESTS, 1.0, now)
            return self._refusal(limiter, wait, now)
        self.admitted += 1
        self._running += 1
        entries = {name: self._count(name, cost, now) for name, cost in costs.items()}
        kept = {name: entry for name, entry in entries.items() if entry is not None}
        return Admission(arrival, self.headers(now), kept)

    def generate(self, admission: Admission, tokens: int, now: float) -> None:
        """Count output that has been generated."""
        admission.generated += tokens
        for dimension in self.counting.generated:
            self._count(dimension, float(tokens), now)

    def finish(self, admission: Admission, now: float) -> None:
        """End a request: correct what was charged, where the provider does."""
        assert admission.is_running, "it has finished already"
        admission.is_running = False
        self._running -= 1
        if self.counting.is_settled_without_cap and admission.arrival.cap is not None:
            return
        for dimension, settle in self.counting.settled.items():
            entry = admission.entries.get(dimension)
            if entry is not None:
                amount = settle(admission.arrival, admission.generated)
                self.logs[dimension][0].correct(entry, amount, now)

    def utilisation(self, seconds: float) -> float:
        """Return the used share of the limit that is used most, over the time from 0 on."""
        logs = [each[0] for each in self.logs.values() if each[0].window <= seconds]
        return max(log.total / (log.limit * seconds / log.window) for log in logs)

    def headers(self, now: float) -> Mapping[str, str]:
        """Return what a response says of the limits."""
        return _HEADERS.get(self.profile, _no_headers)(self, now)

    def _logs(self, dimension: str, limit: float) -> list[Log]:
        window = self.counting.windows.get(dimension, 60.0)
        logs = [Log(limit, window)]
        short = self.counting.short.get(dimension)
        if short is not None:
            logs.append(Log(max(1.0, limit * short / window), short))
        return logs

    def _binding(
        self, arrival: Arrival, costs: Mapping[str, float], now: float
    ) -> tuple[str | None, float]:
        """Return the limit that a request must wait for longest, and how long."""
        if self._running >= self.limits.get(CONCURRENCY, float("inf")):
            return CONCURRENCY, 1.0
        found: str | None = None
        longest = 0.0
        for name, logs in self.logs.items():
            amount = costs.get(name, 0.0)
            if name in self.counting.checked:
                amount += self.counting.checked[name](arrival, self._maximum)
            if name in self.counting.generated:
                # What is not known yet is not asked for, but there must be room for something.
                amount = max(amount, 1.0)
            for log in logs:
                if not log.fits(amount, now) and log.wait(amount, now) >= longest:
                    found, longest = name, log.wait(amount, now)
        return found, longest

    def _count(self, dimension: str, amount: float, now: float) -> _Entry | None:
        entries = [log.count(amount, now) for log in self.logs.get(dimension, ())]
        return entries[0] if entries else None

    def _refusal(self, limiter: str, wait: float, now: float) -> Refusal:
        headers = dict(self.headers(now))
        body: dict[str, Any] = {"error": {"message": f"limit of {limiter} reached"}}
        if self.profile == "gemini":
            body = _google_body(limiter, wait)
        elif self.profile == "azure_ptu":
            headers["retry-after-ms"] = str(int(wait * 1000) + 1)
        elif self.profile not in ("bedrock_runtime", "bedrock_mantle", "self_hosted"):
            headers["retry-after"] = str(int(wait) + 1)
        return Refusal(self.counting.status, limiter, headers, json.loads(json.dumps(body)))


# What the responses say.


def _no_headers(_: ProviderLimiter, __: float) -> Mapping[str, str]:
    return {}


def _duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60.0)
    return f"{int(minutes)}m{rest:.2f}s" if minutes else f"{int(rest * 1000)}ms"


_OPENAI_NAMES = {REQUESTS: "requests", TOTAL: "tokens"}


def _openai_headers(limiter: ProviderLimiter, now: float) -> Mapping[str, str]:
    """Durations until everything is back, which is no time to wait."""
    headers: dict[str, str] = {}
    for dimension, name in _OPENAI_NAMES.items():
        if dimension in limiter.logs:
            # Azure tells of its shortest window, without saying so.
            log = limiter.logs[dimension][-1]
            headers[f"x-ratelimit-limit-{name}"] = str(int(log.limit))
            headers[f"x-ratelimit-remaining-{name}"] = str(int(log.left(now)))
            headers[f"x-ratelimit-reset-{name}"] = _duration(log.time_to_full(now))
    return headers


_ANTHROPIC_NAMES = {REQUESTS: "requests", INPUT: "input-tokens", OUTPUT: "output-tokens"}


def _anthropic_headers(limiter: ProviderLimiter, now: float) -> Mapping[str, str]:
    """Points in time, and tokens rounded to thousands."""
    headers: dict[str, str] = {}
    for dimension, name in _ANTHROPIC_NAMES.items():
        if dimension in limiter.logs:
            log = limiter.logs[dimension][0]
            left = log.left(now)
            rounded = left if dimension == REQUESTS else 1_000 * round(left / 1_000)
            reset = START + timedelta(seconds=now + log.time_to_full(now))
            prefix = f"anthropic-ratelimit-{name}"
            headers[f"{prefix}-limit"] = str(int(log.limit))
            headers[f"{prefix}-remaining"] = str(int(rounded))
            headers[f"{prefix}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
    return headers


def _mistral_headers(limiter: ProviderLimiter, now: float) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    if TOTAL in limiter.logs:
        log = limiter.logs[TOTAL][0]
        headers["x-ratelimitbysize-limit-minute"] = str(int(log.limit))
        headers["x-ratelimitbysize-remaining-minute"] = str(int(log.left(now)))
        headers["ratelimitbysize-reset"] = str(int(log.time_to_full(now)) + 1)
    return headers


_HEADERS: Mapping[str, Callable[[ProviderLimiter, float], Mapping[str, str]]] = {
    "openai": _openai_headers,
    "azure": _openai_headers,
    "groq": _openai_headers,
    "anthropic": _anthropic_headers,
    "mistral": _mistral_headers,
}


def _google_body(limiter: str, wait: float) -> dict[str, Any]:
    counted = "Requests" if limiter == REQUESTS else "ContentInputTokens"
    violation = {"quotaId": f"Generate{counted}PerMinutePerProjectPerModel"}
    return {
        "error": {
            "code": 429,
            "status": "RESOURCE_EXHAUSTED",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                    "violations": [violation],
                },
                {
                    "@type": "type.googleapis.com/google.rpc.RetryInfo",
                    "retryDelay": f"{int(wait) + 1}s",
                },
            ],
        }
    }
