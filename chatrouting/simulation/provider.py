"""Providers as strict as they may be: each counts in its own way, over any rolling window.

Kept apart from the quota room, so that both can be wrong only by chance in the same way. Pure: time
is an argument, in seconds, and must not go back.

A request *arrives* and is let in or refused; what is let in may *generate* output and *finishes*.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, final

from chatrouting.errors import ConfigurationError
from chatrouting.quota.limits import CONCURRENCY, REQUESTS, STREAM_SECONDS, QuotaLimit
from chatrouting.simulation.provider_counting import COUNTING, Amount, Arrival
from chatrouting.simulation.provider_headers import Told, google_body, write_headers
from chatrouting.simulation.provider_log import Entry, Log

_MINUTE: Final = 60.0
_PERIODS: Final = {"day": 86_400.0, "month": 30 * 86_400.0}
#: Profiles whose refusals name no time to come back.
_SILENT: Final = ("bedrock_runtime", "bedrock_mantle", "self_hosted")


@final
@dataclass(frozen=True, slots=True)
class Refusal:
    """What a request that does not fit is answered with.

    Attributes:
        status: Of the answer.
        limiter: The dimension that it does not fit into.
        retry_after: What the answer says of coming back, seconds; None if nothing.
        headers: Those of the rate limits.
        body: Decoded JSON.
    """

    status: int
    limiter: str
    retry_after: float | None
    headers: Mapping[str, str]
    body: Mapping[str, Any]


@final
@dataclass(eq=False, slots=True)
class Admission:
    """A request that was let in.

    Attributes:
        arrival: The request.
        headers: What the response says of the limits.
        entries: What was counted when it came, by dimension.
        generated: Output so far, tokens.
        is_running: It has not finished.
    """

    arrival: Arrival
    headers: Mapping[str, str]
    entries: dict[str, list[Entry]]
    generated: int = 0
    is_running: bool = True


@final
class ProviderLimiter:
    """One quota at one provider.

    Attributes:
        profile: Name of the provider's profile.
        limits: Amounts by dimension.
        refused: How many requests were refused.
        admitted: How many were let in.
        logs: What was counted, by dimension; a short window after that of the limit.
    """

    def __init__(
        self,
        profile: str,
        limits: Mapping[str, float],
        *,
        maximum_output: int = 16_384,
        windows: Mapping[str, float] | None = None,
        breaks_streams: bool = False,
    ) -> None:
        """Start unused.

        Args:
            profile: Name of the provider's profile.
            limits: Amounts by dimension.
            maximum_output: The most that the model writes.
            windows: Seconds of a limit, by dimension, where it is not the provider's usual one.
            breaks_streams: Where output counts as it is generated: without room for more, streams
                break off. Otherwise they go on, and only new requests are refused.

        Raises:
            ConfigurationError: If it is not known how that provider counts.
        """
        if profile not in COUNTING:
            raise ConfigurationError(
                f"how {profile!r} counts is not known; expected one of {', '.join(COUNTING)}."
            )
        self.profile = profile
        self.limits = limits
        self.refused = 0
        self.admitted = 0
        self._counting = COUNTING[profile]
        self._windows = {**self._counting.windows, **(windows or {})}
        self._maximum = maximum_output
        self._breaks_streams = breaks_streams
        self._running = 0
        self.logs: dict[str, list[Log]] = {
            dimension: self._logs(dimension, limit)
            for dimension, limit in limits.items()
            if dimension not in (CONCURRENCY, STREAM_SECONDS)
        }

    @classmethod
    def granting(
        cls, profile: str, limits: Iterable[QuotaLimit], *, maximum_output: int = 16_384
    ) -> Self:
        """Make a provider that grants limits as they are configured, without their headroom.

        Days and months are counted from the first request on.

        Args:
            profile: Name of the provider's profile.
            limits: Several may be on one dimension.
            maximum_output: The most that the model writes.

        Raises:
            ConfigurationError: If it is not known how that provider counts.
        """
        first: dict[str, QuotaLimit] = {}
        further: list[QuotaLimit] = []
        for limit in limits:
            if limit.dimension in first:
                further.append(limit)
            first.setdefault(limit.dimension, limit)
        made = cls(
            profile,
            {name: limit.amount for name, limit in first.items()},
            maximum_output=maximum_output,
            windows={name: _window(limit) for name, limit in first.items()},
        )
        for limit in further:
            if limit.kind != "gauge":
                made.logs[limit.dimension].append(Log(limit.amount, _window(limit)))
        return made

    def arrive(self, arrival: Arrival, now: float) -> Admission | Refusal:
        """Let a request in, or refuse it."""
        counting = self._counting
        costs = {name: cost(arrival, self._maximum) for name, cost in counting.arrival.items()}
        limiter, wait = self._binding(arrival, costs, now)
        if limiter is not None:
            self.refused += 1
            if counting.refused_count:
                self._count(REQUESTS, 1.0, now)
            return self._refusal(limiter, wait, now)
        self.admitted += 1
        self._running += 1
        entries = {name: self._count(name, cost, now) for name, cost in costs.items()}
        return Admission(arrival, self.headers(now), entries)

    def generate(self, admission: Admission, tokens: int, now: float) -> bool:
        """Count output that has been generated.

        Returns:
            False if there is no room for it and streams break off: then none of it counts.
        """
        logs = [log for name in self._counting.generated for log in self.logs.get(name, ())]
        if self._breaks_streams and not all(log.fits(tokens, now) for log in logs):
            return False
        admission.generated += tokens
        for log in logs:
            log.count(float(tokens), now)
        return True

    def finish(self, admission: Admission, now: float) -> None:
        """End a request: correct what was charged, where the provider does.

        Raises:
            ValueError: If it has ended before.
        """
        if not admission.is_running:
            raise ValueError("the request has finished already; finish it once.")
        admission.is_running = False
        self._running -= 1
        for dimension, settle in self._settled(admission.arrival).items():
            amount = settle(admission.arrival, admission.generated)
            entries = admission.entries.get(dimension, [])
            for log, entry in zip(self.logs.get(dimension, []), entries, strict=True):
                log.correct(entry, amount, now)

    def shares(self, arrival: Arrival, output: int) -> dict[str, float]:
        """Return what a request comes to in the end: minutes of each limit, by dimension."""
        counting, maximum = self._counting, self._maximum
        costs = {name: cost(arrival, maximum) for name, cost in counting.arrival.items()}
        settled = self._settled(arrival)
        costs.update({name: settle(arrival, output) for name, settle in settled.items()})
        for name in counting.generated:
            costs[name] = costs.get(name, 0.0) + output
        return {
            name: costs.get(name, 0.0) / log.limit * log.window / _MINUTE
            for name, (log, *_) in self.logs.items()
        }

    def utilisation(self, seconds: float) -> float:
        """Return which part of the fullest limit was used, from the time 0 on, by what was let in.

        0 if it has no limit of that length, or shorter.
        """
        used = [
            (log.total - self._wasted(name)) / (log.limit * seconds / log.window)
            for name, (log, *_) in self.logs.items()
            if log.window <= seconds
        ]
        return max(used, default=0.0)

    def headers(self, now: float) -> Mapping[str, str]:
        """Return what a response says of the limits."""
        told = {
            dimension: [Told(log.limit, log.left(now), log.time_to_full(now)) for log in logs]
            for dimension, logs in self.logs.items()
        }
        return write_headers(self.profile, told, now)

    def _wasted(self, dimension: str) -> float:
        """Return how much of a limit went into requests that were refused."""
        is_counted = dimension == REQUESTS and self._counting.refused_count
        return float(self.refused) if is_counted else 0.0

    def _settled(self, arrival: Arrival) -> Mapping[str, Amount]:
        if self._counting.is_settled_without_cap and arrival.cap is not None:
            return {}
        return self._counting.settled

    def _logs(self, dimension: str, limit: float) -> list[Log]:
        window = self._windows.get(dimension, _MINUTE)
        logs = [Log(limit, window)]
        short = self._counting.short.get(dimension)
        if short is not None and short < window:
            logs.append(Log(max(1.0, limit * short / window), short))
        return logs

    def _binding(
        self, arrival: Arrival, costs: Mapping[str, float], now: float
    ) -> tuple[str | None, float]:
        """Return the limit that a request must wait for longest, and how long."""
        if self._running >= self.limits.get(CONCURRENCY, math.inf):
            return CONCURRENCY, 1.0
        found: str | None = None
        longest = 0.0
        for name, logs in self.logs.items():
            amount = self._asked(name, arrival, costs)
            for log in logs:
                if log.fits(amount, now):
                    continue
                wait = log.wait(amount, now)
                if wait >= longest:
                    found, longest = name, wait
        return found, longest

    def _asked(self, name: str, arrival: Arrival, costs: Mapping[str, float]) -> float:
        """Return how much of a limit must be free for a request."""
        counting = self._counting
        amount = costs.get(name, 0.0)
        if name in counting.checked:
            amount += counting.checked[name](arrival, self._maximum)
        if name in counting.generated:
            # What is not known yet is not asked for, but there must be room for something.
            amount = max(amount, 1.0)
        return amount

    def _count(self, dimension: str, amount: float, now: float) -> list[Entry]:
        return [log.count(amount, now) for log in self.logs.get(dimension, ())]

    def _refusal(self, limiter: str, wait: float, now: float) -> Refusal:
        headers = dict(self.headers(now))
        body: dict[str, Any] = {"error": {"message": f"limit of {limiter} reached"}}
        after: float | None = int(wait) + 1.0
        if self.profile in _SILENT:
            after = None
        elif self.profile == "gemini":
            body = google_body(limiter, wait)
        elif self.profile == "azure_ptu":
            headers["retry-after-ms"] = str(int(wait * 1000) + 1)
            after = (int(wait * 1000) + 1) / 1000
        else:
            headers["retry-after"] = str(int(wait) + 1)
        return Refusal(self._counting.status, limiter, after, headers, body)


def _window(limit: QuotaLimit) -> float:
    return limit.window if limit.period is None else _PERIODS[limit.period]
