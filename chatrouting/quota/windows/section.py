"""Sections: the windows of one path that count the same dimensions in the same way.

Most buckets of a path have limits of the same kinds. So what a request is charged there is worked
out once, and they are looked at and charged in one loop. This is what requests spend their time
on: a call and a dict look-up for each of 24 windows took half as long again as all that is left.
"""

from collections.abc import Mapping
from math import floor
from typing import Any, NamedTuple, Protocol, TypeAlias, final

from typing_extensions import override

from chatrouting.quota.windows.ring import RingSet, SlotRing
from chatrouting.quota.windows.window import Lease, OwnWindow

#: What a bucket is made of.
Counter: TypeAlias = RingSet | OwnWindow

#: The window of one limit.
LimitWindow: TypeAlias = SlotRing | OwnWindow

#: What it counts, and how: its type, its dimensions, and its slots in a second.
CounterKind: TypeAlias = tuple[type[Counter], tuple[str, ...], float]

#: What is charged, or how that changes, by place of the dimension; what is nothing is left out.
Amounts: TypeAlias = list[tuple[int, float]]


class Late(NamedTuple):
    """A limit that has no room for what it is asked for.

    Attributes:
        ready_at: When it has.
        counter: Where it is counted.
        place: Of the dimension.
        needed: What it was asked for.
    """

    ready_at: float
    counter: Counter
    place: int
    needed: float


class Section(Protocol):
    """Some windows of a path. The path has them; what is equal of many paths is kept once.

    Attributes:
        policy: Place of their policy among those of the path.
        span: Where they are among the counters of the path.
    """

    __slots__ = ()

    policy: int
    span: slice

    def amounts(self, costs: Mapping[str, float]) -> Amounts:
        """Return what each of them is charged."""
        ...

    def late(self, counters: tuple[Any, ...], amounts: Amounts, now: float) -> list[Late]:
        """Return those that have no room now."""
        ...

    def fullest(self, counters: tuple[Any, ...], now: float) -> float:
        """Return which part of the fullest of them is used."""
        ...

    def charge(self, counters: tuple[Any, ...], amounts: Amounts, lease: Lease, now: float) -> None:
        """Charge all of them, right after they have been asked whether they are late."""
        ...

    def settle(
        self,
        counters: tuple[Any, ...],
        charged: Mapping[str, float],
        actual: Mapping[str, float],
        lease: Lease,
        now: float,
    ) -> None:
        """Replace what was charged by what was used, in all of them."""
        ...


def window_of(counter: Counter, place: int) -> LimitWindow:
    """Return the window of one limit of a bucket.

    Args:
        counter: What counts it.
        place: Of the limit there.
    """
    return SlotRing(counter, place) if isinstance(counter, RingSet) else counter


def kind_of(counter: Counter) -> CounterKind:
    """Return what counters of one section have in common, beside their policy."""
    if isinstance(counter, RingSet):
        return RingSet, counter.form.dimensions, counter.form.per_second
    return type(counter), (counter.dimension,), 0.0


def section_of(kind: CounterKind, *, policy: int, span: slice) -> Section:
    """Return the section of some counters that are of one kind."""
    which, dimensions, per_second = kind
    if which is RingSet:
        return RingSection(dimensions, per_second, policy=policy, span=span)
    return OwnSection(dimensions[0], policy=policy, span=span)


@final
class RingSection(Section):
    """Ring sets of the same dimensions and slots."""

    __slots__ = ("_per_second", "_places", "policy", "span")

    def __init__(
        self, dimensions: tuple[str, ...], per_second: float, *, policy: int, span: slice
    ) -> None:
        self._places = tuple(enumerate(dimensions))
        self._per_second = per_second
        self.policy = policy
        self.span = span

    @override
    def amounts(self, costs: Mapping[str, float]) -> Amounts:
        amounts: Amounts = []
        for place, dimension in self._places:
            amount = costs.get(dimension)
            if amount:
                amounts.append((place, amount))
        return amounts

    @override
    def late(self, counters: tuple[RingSet, ...], amounts: Amounts, now: float) -> list[Late]:
        slot = floor(now * self._per_second)
        late: list[Late] = []
        for ring in counters[self.span]:
            if slot > ring.newest:
                ring.turn(slot)
            totals, most = ring.totals, ring.form.most
            for place, amount in amounts:
                if (
                    totals[place] + amount > most[place]
                    and (ready_at := ring.ready_at(place, amount)) > now
                ):
                    late.append(Late(ready_at, ring, place, amount))
        return late

    @override
    def fullest(self, counters: tuple[RingSet, ...], now: float) -> float:
        fullest = 0.0
        for ring in counters[self.span]:
            ring.catch_up(now)
            for total, limit in zip(ring.totals, ring.form.limits, strict=True):
                fullest = max(fullest, total / limit.usable)
        return fullest

    @override
    def charge(
        self, counters: tuple[RingSet, ...], amounts: Amounts, lease: Lease, now: float
    ) -> None:
        for ring in counters[self.span]:
            totals = ring.totals
            for place, amount in amounts:
                totals[place] += amount

    @override
    def settle(
        self,
        counters: tuple[RingSet, ...],
        charged: Mapping[str, float],
        actual: Mapping[str, float],
        lease: Lease,
        now: float,
    ) -> None:
        changes: Amounts = []
        is_less = True
        for place, dimension in self._places:
            change = actual.get(dimension, 0.0) - charged.get(dimension, 0.0)
            if change:
                changes.append((place, change))
                is_less = is_less and change < 0.0
        if not changes:
            return
        slot = floor(lease.charged_at * self._per_second)
        for ring in counters[self.span]:
            if not is_less or ring.heirs is not None:
                ring.settle(changes, lease, now)
            elif slot == ring.newest:
                totals = ring.totals
                for place, change in changes:
                    totals[place] += change
            else:
                ring.give_back(changes, slot)


@final
class OwnSection(Section):
    """Windows of one kind and dimension that count by themselves."""

    __slots__ = ("_dimension", "policy", "span")

    def __init__(self, dimension: str, *, policy: int, span: slice) -> None:
        self._dimension = dimension
        self.policy = policy
        self.span = span

    @override
    def amounts(self, costs: Mapping[str, float]) -> Amounts:
        amount = costs.get(self._dimension)
        return [(0, amount)] if amount else []

    @override
    def late(self, counters: tuple[OwnWindow, ...], amounts: Amounts, now: float) -> list[Late]:
        ((_, amount),) = amounts
        late: list[Late] = []
        for window in counters[self.span]:
            ready_at = window.ready_at(amount, now)
            if ready_at > now:
                late.append(Late(ready_at, window, 0, amount))
        return late

    @override
    def fullest(self, counters: tuple[OwnWindow, ...], now: float) -> float:
        return max(window.used(now) / window.size for window in counters[self.span])

    @override
    def charge(
        self, counters: tuple[OwnWindow, ...], amounts: Amounts, lease: Lease, now: float
    ) -> None:
        ((_, amount),) = amounts
        for window in counters[self.span]:
            window.charge(amount, lease, now)

    @override
    def settle(
        self,
        counters: tuple[OwnWindow, ...],
        charged: Mapping[str, float],
        actual: Mapping[str, float],
        lease: Lease,
        now: float,
    ) -> None:
        before = charged.get(self._dimension, 0.0)
        after = actual.get(self._dimension, 0.0)
        for window in counters[self.span]:
            if before != after or window.is_held:
                window.settle(before, after, lease, now)
