"""What a simulated load comes to: waits by class, shares by tenant, rates over time."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from chatrouting.simulation.records import Fate, RequestRecord, SimulationResult

_MINUTE: Final = 60.0


@final
@dataclass(frozen=True, slots=True)
class Waits:
    """How long those waited that were served, in seconds."""

    p50: float
    p95: float
    p99: float
    longest: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Requests that have something in common.

    Attributes:
        name: What that is: a class, a tenant.
        offered: How many came.
        fates: What became of them.
        provider_refusals: How often providers refused them.
        waits: Of those that were served.
        offered_share: Their part of all that was asked for, by what requests take of a provider.
        served_share: Their part of all that was served.
    """

    name: str
    offered: int
    fates: dict[Fate, int]
    provider_refusals: int
    waits: Waits
    offered_share: float
    served_share: float

    def count(self, *fates: Fate) -> int:
        """Return how many of them had one of these fates."""
        return sum(self.fates.get(fate, 0) for fate in fates)


@final
@dataclass(frozen=True, slots=True)
class Series:
    """Rates over time, as parts of what all providers grant.

    Attributes:
        times: Ends of minutes, seconds.
        offered: Of the requests that came in the minute before; the first minute is not over yet.
        admitted: Of those that went to a provider in it, and were let in.
    """

    times: tuple[float, ...]
    offered: tuple[float, ...]
    admitted: tuple[float, ...]


def by_class(result: SimulationResult) -> tuple[Group, ...]:
    """Sum up each traffic class."""
    return _groups(result, lambda record: record.request_class)


def by_tenant(result: SimulationResult) -> tuple[Group, ...]:
    """Sum up each tenant."""
    return _groups(result, lambda record: record.tenant)


def in_all(result: SimulationResult) -> Group:
    """Sum up everything."""
    return next(iter(_groups(result, lambda _: "")), _group("", [], 0.0, 0.0))


def over_time(result: SimulationResult, points: int) -> Series:
    """Follow the tightest limit of the load through time.

    Args:
        result: A load that was played.
        points: How many times to look, evenly spaced, the end of the load last.
    """
    dimension = result.tightest
    times = tuple(result.duration * (point + 1) / points for point in range(points))
    offered = [(each.at, each.shares.get(dimension, 0.0)) for each in result.records]
    admitted = sorted(
        (each.sent_at, each.shares.get(dimension, 0.0))
        for each in result.records
        if each.was_served and each.sent_at is not None
    )
    quotas = len(result.limiters())
    return Series(times, _rates(sorted(offered), times, quotas), _rates(admitted, times, quotas))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all does not exceed; 0 if there are none.

    Args:
        values: In ascending order.
        share: More than 0, at most 1.
    """
    return values[math.ceil(share * len(values)) - 1] if values else 0.0


def _rates(
    events: Sequence[tuple[float, float]], times: Sequence[float], quotas: int
) -> tuple[float, ...]:
    """Return the sum of each minute that ends at one of the times, for each quota."""
    found: list[float] = []
    first, last, held = 0, 0, 0.0
    for time in times:
        while last < len(events) and events[last][0] <= time:
            held += events[last][1]
            last += 1
        while first < last and events[first][0] <= time - _MINUTE:
            held -= events[first][1]
            first += 1
        found.append(held / quotas)
    return tuple(found)


def _groups(result: SimulationResult, name_of: Callable[[RequestRecord], str]) -> tuple[Group, ...]:
    records: dict[str, list[RequestRecord]] = defaultdict(list)
    for each in result.records:
        records[name_of(each)].append(each)
    offered = _cost(result.records)
    served = _cost(each for each in result.records if each.was_served)
    return tuple(_group(name, each, offered, served) for name, each in sorted(records.items()))


def _group(name: str, records: Sequence[RequestRecord], offered: float, served: float) -> Group:
    fates: dict[Fate, int] = defaultdict(int)
    for each in records:
        fates[each.fate] += 1
    own = [each for each in records if each.was_served]
    waits = sorted(each.wait for each in own)
    return Group(
        name=name,
        offered=len(records),
        fates=dict(fates),
        provider_refusals=sum(each.provider_refusals for each in records),
        waits=Waits(*(percentile(waits, share) for share in (0.5, 0.95, 0.99, 1.0))),
        offered_share=_cost(records) / offered if offered else 0.0,
        served_share=_cost(own) / served if served else 0.0,
    )


def _cost(records: Iterable[RequestRecord]) -> float:
    return sum(each.share for each in records)
