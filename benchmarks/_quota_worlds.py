"""What `quota_simulation.py` plays: providers, governors, loads; and sums of what came of them."""

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias, final

from chatrouting.quota import (
    DEFAULT_CLASSES,
    BucketLimits,
    ChargePolicy,
    Estimator,
    Pressure,
    ProviderScope,
    QuotaDeployment,
    QuotaGovernor,
    QuotaLimit,
    TrafficClass,
    provider_profile,
)
from chatrouting.quota.ledger import Denial, Hold, Ledger
from chatrouting.quota.limits import keys_of
from chatrouting.simulation import (
    Arrival,
    GovernorMaker,
    LoadStream,
    ProviderLimiter,
    RequestRecord,
    SimulationResult,
    simulate,
)
from chatrouting.simulation.engine import Knowledge

MINUTE: Final = 60.0
#: A part of each limit that is left free, since requests arrive later than they were admitted.
HEADROOM: Final = 0.03
#: Seconds' worth that may be sent at once where limits are paced: then those who share a limit take
#: turns all the time, and not only when a window has room again.
BURST: Final = 2.0
#: Waits for as long as it takes, so that a backlog stands.
PATIENT: Final = TrafficClass(
    name="patient", max_wait=3_600.0, max_queue_items=100_000, on_pressure=(Pressure.QUEUE,)
)

#: What an account has at each provider, for its usual window.
GRANTED: Final[Mapping[str, Mapping[str, float]]] = {
    "openai": {"requests": 200, "total_tokens": 100_000},
    "azure": {"requests": 200, "total_tokens": 100_000},
    "azure_ptu": {"total_tokens": 100_000},
    "anthropic": {"requests": 300, "input_tokens": 50_000, "output_tokens": 20_000},
    "gemini": {"requests": 300, "input_tokens": 50_000},
    "bedrock_runtime": {"requests": 200, "total_tokens": 100_000},
    "bedrock_mantle": {"input_tokens": 80_000, "output_tokens": 20_000},
    "groq": {"requests": 14_400, "total_tokens": 70_000},
    "mistral": {"requests": 6, "total_tokens": 70_000},
}
#: A larger account, for several who share it.
SHARED: Final[Mapping[str, float]] = {"requests": 600, "total_tokens": 300_000}
_WINDOWS: Final[Mapping[tuple[str, str], float]] = {
    ("groq", "requests"): 86_400.0,
    ("mistral", "requests"): 1.0,
}

Points: TypeAlias = list[float]


def deployment(
    name: str,
    profile_name: str,
    granted: Mapping[str, float],
    *,
    scope: str = "x",
    burst: float | None = None,
) -> QuotaDeployment:
    """Make a deployment that is limited as its provider says; paced if there is a burst."""
    profile = provider_profile(profile_name)
    limits = [
        _limit(key, amount, _WINDOWS.get((profile_name, key), MINUTE), burst)
        for key, amount in granted.items()
    ]
    return QuotaDeployment(
        name=name,
        scope=profile.scope(**dict.fromkeys(profile.scope_parts, scope)),
        profile=profile,
        limits=profile.bucket(*limits, headroom=HEADROOM),
    )


def _limit(dimension: str, amount: float, window: float, burst: float | None) -> QuotaLimit:
    if dimension == "concurrency":
        return QuotaLimit(dimension, amount)
    return QuotaLimit(dimension, amount, window=window, burst=burst if window >= MINUTE else None)


def governing(*deployments: QuotaDeployment, **settings: Any) -> GovernorMaker:
    """Return what makes a governor of deployments."""

    def make(clock: Callable[[], float], wall_clock: Callable[[], datetime]) -> QuotaGovernor:
        return QuotaGovernor(
            deployments,
            clock=clock,
            wall_clock=wall_clock,
            classes=(*DEFAULT_CLASSES.values(), PATIENT),
            estimator=Estimator(default_output_tokens=400),
            **settings,
        )

    return make


def play(
    profile: str,
    load: Iterable[LoadStream],
    *,
    duration: float,
    granted: Mapping[str, float] | None = None,
    is_governed: bool = True,
    knowledge: Knowledge = "estimated",
    burst: float | None = None,
    unchecked: Sequence[str] = (),
    breaks_streams: bool = False,
    **settings: Any,
) -> SimulationResult:
    """Play a load before one deployment.

    Args:
        profile: Of the provider.
        load: Who sends what.
        duration: Seconds.
        granted: By the provider; `GRANTED` if left out.
        is_governed: By a governor; else the SDK's retries are all there is.
        knowledge: What the governor is told of a request.
        burst: Seconds' worth that may be sent at once; None: the whole window's.
        unchecked: Limits that the governor is not told of.
        breaks_streams: The provider breaks streams off when it has no output left.
        settings: Of the governor.
    """
    amounts = GRANTED[profile] if granted is None else granted
    checked = {name: amount for name, amount in amounts.items() if name not in unchecked}
    make = governing(deployment("d", profile, checked, burst=burst), **settings)
    return simulate(
        load,
        {"d": ProviderLimiter(profile, amounts, breaks_streams=breaks_streams)},
        make_governor=make if is_governed else None,
        duration=duration,
        knowledge=knowledge,
    )


def rate_of(profile: str, stream: LoadStream, granted: Mapping[str, float] | None = None) -> float:
    """Return how many requests like those of a stream a provider has room for in a minute."""
    provider = ProviderLimiter(profile, GRANTED[profile] if granted is None else granted)
    cap = stream.max_output_tokens
    arrival = Arrival(input_tokens=int(stream.input_tokens * _MEAN), cap=cap)
    shares = provider.shares(arrival, int(stream.output_tokens * _MEAN))
    # What is for a day is not used up in minutes.
    short = [share for name, share in shares.items() if provider.logs[name][0].window <= MINUTE]
    return 1.0 / max(short)


#: The mean of sizes whose logarithms deviate by 0.5, beside their middle.
_MEAN: Final = math.exp(0.5**2 / 2)


# How a result is summed up.


def share_of(record: RequestRecord, dimension: str) -> float:
    """Return what a request comes to, in minutes of the whole limit."""
    return record.shares.get(dimension, 0.0)


def binned(
    result: SimulationResult,
    width: float,
    *,
    by: Callable[[RequestRecord], str | None],
    at: Callable[[RequestRecord], float | None],
) -> dict[str, Points]:
    """Sum requests up by a name and by time, in what the tightest limit has room for."""
    count = math.ceil(result.duration / width)
    found: dict[str, Points] = defaultdict(lambda: [0.0] * count)
    tightest = result.tightest
    for record in result.records:
        name, time = by(record), at(record)
        if name is not None and time is not None and time < result.duration:
            found[name][int(time / width)] += share_of(record, tightest) * MINUTE / width
    return {name: [round(each, 4) for each in points] for name, points in sorted(found.items())}


def flow(result: SimulationResult, width: float) -> dict[str, Points]:
    """Return what was offered and what went to the provider, as parts of its limit."""
    offered = binned(result, width, by=lambda _: "offered", at=lambda each: each.at)
    sent = binned(result, width, by=lambda _: "admitted", at=lambda each: each.sent_at)
    return {**offered, **sent}


def waits(records: Iterable[RequestRecord]) -> Points:
    """Return what those who were let go had waited, ascending."""
    return sorted(each.wait for each in records if each.sent_at is not None)


def quantile(values: Sequence[float], part: float) -> float:
    """Return a quantile of ascending values; 0 of none."""
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0.0


def worst(times: Sequence[float], amounts: Sequence[float], window: float = MINUTE) -> float:
    """Return the most that falls into any window."""
    found, held, first = 0.0, 0.0, 0
    for time, amount in zip(times, amounts, strict=True):
        held += amount
        while times[first] <= time - window:
            held -= amounts[first]
            first += 1
        found = max(found, held)
    return found


def rolling(
    times: Sequence[float], amounts: Sequence[float], *, step: float, until: float
) -> Points:
    """Return what falls into the minute before each of some times."""
    marks = [step * number for number in range(1, int(until / step) + 1)]
    pairs = list(zip(times, amounts, strict=True))
    return [sum(amount for time, amount in pairs if mark - MINUTE < time <= mark) for mark in marks]


# One limit, and a sender who never stops: what limiters do with what was not used.


class Limiter(Protocol):
    """Something that lets amounts through, and is told what they came to."""

    def take(self, amount: float, now: float) -> object | float:
        """Return what to settle with, or the seconds until it fits."""
        ...

    def settle(self, taken: object, amount: float, now: float) -> None:
        """Say what was used of what was taken."""
        ...


@final
@dataclass(slots=True)
class _Taken:
    amount: float


@final
class TokenBucket:
    """The usual bucket: a minute's worth at once, refilled by time."""

    def __init__(self, limit: float, *, refunds: bool) -> None:
        """Start full."""
        self._limit, self._level, self._at, self._refunds = limit, limit, 0.0, refunds

    def take(self, amount: float, now: float) -> object | float:
        """Take from the level."""
        gained = (now - self._at) * self._limit / MINUTE
        self._level, self._at = min(self._limit, self._level + gained), now
        if amount > self._level + 1e-9:
            return (amount - self._level) * MINUTE / self._limit
        self._level -= amount
        return _Taken(amount)

    def settle(self, taken: object, amount: float, now: float) -> None:
        """Give back to the level, which time has filled meanwhile."""
        if isinstance(taken, _Taken) and self._refunds:
            self.take(0.0, now)
            self._level = min(self._limit, self._level + taken.amount - amount)


@final
class Ring:
    """The library's window, which gives back to the moment of the charge."""

    def __init__(self, limit: float) -> None:
        """Start unused."""
        bucket = BucketLimits((QuotaLimit("output_tokens", limit),), ChargePolicy())
        self._ledger = Ledger(lambda _: bucket)
        self._path = self._ledger.path(keys_of(scope=ProviderScope("p", {})))

    def take(self, amount: float, now: float) -> object | float:
        """Charge an estimate."""
        found = self._ledger.admit(self._path, {"output_tokens": amount}, now)
        return found.wait if isinstance(found, Denial) else found

    def settle(self, taken: object, amount: float, now: float) -> None:
        """Replace the estimate."""
        if isinstance(taken, Hold):
            self._ledger.settle(taken, {"output_tokens": amount}, now)


def greedy(
    limiter: Limiter,
    *,
    estimate: float,
    output: Callable[[float], float],
    seconds: float,
    start: float,
    until: float,
) -> tuple[Points, Points]:
    """Send as soon as there is room; return when each was sent, and what it came to.

    Args:
        limiter: Under which limit.
        estimate: What each is taken to need.
        output: What it needs, by the time that it is sent.
        seconds: How long each runs.
        start: When the sender begins.
        until: When it ends.
    """
    times, amounts = Points(), Points()
    running: list[tuple[float, int, object, float]] = []
    now = start
    while now < until:
        found = limiter.take(estimate, now)
        if not isinstance(found, float):
            times.append(now)
            amounts.append(output(now))
            heapq.heappush(running, (now + seconds, len(times), found, amounts[-1]))
            continue
        later = now + max(found, 0.001)
        if running and running[0][0] <= later:
            now, _, taken, used = heapq.heappop(running)
            limiter.settle(taken, used, now)
        else:
            now = later
    return times, amounts
