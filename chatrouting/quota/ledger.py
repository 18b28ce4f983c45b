"""The ledger: who may use how much of which bucket, all or nothing.

A request is *admitted* over all windows of all its buckets, or changes none of them; it *holds*
what it may need until it is *settled* with what it used, exactly once. Nothing here waits, and
nothing is awaited between the look and the charge: on one event loop that is as atomic as a lock.
Time is an argument, and one that goes back counts as the latest that was given.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, final

from chatrouting.quota.buckets import BucketTable, LimitsOf, Parts, Path
from chatrouting.quota.charging import admission_costs, check_charges, known, settlement_costs
from chatrouting.quota.limits import BucketKey, QuotaLimit
from chatrouting.quota.windows import Counter, Gauge, Late, Lease, RingSet, window_of

#: Added to a wait, seconds: adding a wait to a clock may round down.
_ROUNDING: Final = 1e-6

_NOTHING: Final[Mapping[str, float]] = MappingProxyType({})

#: What to charge by dimension, for each policy of a path.
_Costs: TypeAlias = Sequence[Mapping[str, float]]


@final
class Hold(Lease):
    """What one request has been charged. To be settled, whatever becomes of the request.

    Attributes:
        path: Where.
        layout: The path's, as it was.
        counters: The path's, as they were: whoever holds something settles with these.
        charges: What the request was said to need.
        costs: What the policies of the path made of that.
        is_open: It has not been settled yet.
    """

    __slots__ = ("charges", "costs", "counters", "is_open", "layout", "path")

    def __init__(
        self,
        path: Path,
        charges: Mapping[str, float],
        costs: _Costs,
        now: float,
        expires: float,
    ) -> None:
        # Not by Lease: that is one more call for each request.
        self.charged_at = now
        self.expires = expires
        self.path = path
        self.layout = path.layout
        self.counters = path.counters
        self.charges = charges
        self.costs = costs
        self.is_open = True


@final
@dataclass(frozen=True, slots=True)
class Denial:
    """Why a request is not admitted: the limit that makes it wait longest.

    Attributes:
        key: The bucket.
        limit: Its limit, with dimension and window.
        needed: What the request would be charged there.
        used: What is counted there now.
        wait: Seconds until the request would be admitted if nothing else were; infinity if it is
            larger than the limit. For a gauge, when leases end; it is over earlier if a request
            that runs is settled.
    """

    key: BucketKey
    limit: QuotaLimit
    needed: float
    used: float
    wait: float

    @property
    def is_too_large(self) -> bool:
        """Whether no waiting helps."""
        return self.wait == inf


class Headroom(NamedTuple):
    """How much room there is.

    Attributes:
        share: What is free of the fullest window, 0 to 1.
        wait: Seconds until a request would be admitted; 0 if now, infinity if never.
    """

    share: float
    wait: float


class WindowUsage(NamedTuple):
    """What one window counts.

    Attributes:
        key: The bucket.
        limit: What the window holds. A ring that is paced has two windows.
        used: Open charges included; may be more than `size`.
        size: The most that may be charged at once.
    """

    key: BucketKey
    limit: QuotaLimit
    used: float
    size: float


@final
class Ledger:
    """All buckets of one process.

    Args:
        limits_of: Asked when a bucket is first needed, and by `reconfigure`.
        lease: Seconds after which a hold that was neither settled nor extended no longer counts
            in gauges. What it was charged elsewhere stays: the provider may have seen it.
        epoch: Unix time at instant 0 of the clock that `now` is read from, for calendars.
    """

    def __init__(self, limits_of: LimitsOf, *, lease: float = 600.0, epoch: float = 0.0) -> None:
        self._table = BucketTable(limits_of, epoch=epoch)
        self._lease = lease
        self._now = -inf

    def path(self, keys: Iterable[BucketKey]) -> Path:
        """Return the path through some buckets, from the outside in; see `limits.keys_of`.

        Raises:
            ConfigurationError: If a deployment among them has no limits.
        """
        return self._table.path(keys)

    def admit(self, path: Path, charges: Mapping[str, float], now: float) -> Hold | Denial:
        """Charge a request to all its buckets, or to none.

        Args:
            path: Its buckets.
            charges: What it may need, by dimension; see `charging`.
            now: The time.

        Raises:
            ValueError: If a charge is negative or not finite.
        """
        now = self._advance(now)
        path = self._current(path, now)
        costs = _costs(path, charges)
        parts = path.parts(costs)
        late = path.late(parts, now)
        if late:
            return self._denial(path, late, now)
        return self._commit(path, charges, costs, parts, now)

    def admit_all(
        self, requests: Iterable[tuple[Path, Mapping[str, float]]], now: float
    ) -> tuple[Hold, ...] | Denial:
        """Admit on several paths, or on none; each gets a hold of its own.

        For a request that is charged once to its tenant and anew to each deployment it tries.
        No bucket may lie on two of the paths.

        Raises:
            ValueError: If a charge is negative or not finite.
        """
        now = self._advance(now)
        parts = [(self._current(path, now), charges) for path, charges in requests]
        asked = [
            (path, charges, costs, path.parts(costs))
            for path, charges in parts
            for costs in (_costs(path, charges),)
        ]
        denials = [
            self._denial(path, late, now)
            for path, _, _, amounts in asked
            if (late := path.late(amounts, now))
        ]
        if denials:
            return max(denials, key=lambda denial: denial.wait)
        return tuple(self._commit(*each, now) for each in asked)

    def settle(
        self,
        hold: Hold,
        actual: Mapping[str, float] | None,
        now: float,
        *,
        sent: bool = True,
        failed: bool = False,
    ) -> bool:
        """Replace what is held by what was used.

        Args:
            hold: What the request was admitted with.
            actual: What it used, as far as it is known; for the rest the estimate stays.
            now: The time; what was used beyond the charge counts from now on.
            sent: Whether a provider may have seen the request. If not, all of it is given back.
            failed: Whether the provider answered with an error.

        Returns:
            Whether this call settled it. A second one changes nothing.
        """
        if not hold.is_open:
            return False
        now = self._advance(now)
        if not hold.path.generation:
            self._find(hold)
        hold.is_open = False
        hold.path.open_holds -= 1
        settled = _settlements(hold, known(actual), failed=failed) if sent else None
        costs, counters = hold.costs, hold.counters
        for section in hold.layout.sections:
            place = section.policy
            used = settled[place] if settled is not None else _NOTHING
            section.settle(counters, costs[place], used, hold, now)
        return True

    def extend(self, hold: Hold, now: float) -> None:
        """Renew the lease of a hold whose request still runs; it counts in gauges again."""
        if not hold.is_open:
            return
        now = self._advance(now)
        if not hold.path.generation:
            self._find(hold)
        hold.expires = now + self._lease
        hold.path.busy_until = max(hold.path.busy_until, hold.expires)
        for section in hold.layout.sections:
            costs = hold.costs[section.policy]
            for window in hold.counters[section.span]:
                if isinstance(window, Gauge) and (amount := costs.get(window.dimension)):
                    window.renew(amount, hold)

    def debit(
        self, path: Path, amounts: Mapping[str, float], now: float, *, within: float = 0.0
    ) -> None:
        """Charge what somebody else has used, whether there is room or not; not to gauges.

        Args:
            path: The buckets.
            amounts: By dimension. No policy is applied.
            now: The time.
            within: Seconds over which it was used: a shorter window is charged its part.

        Raises:
            ValueError: If an amount is negative or not finite.
        """
        check_charges(amounts)
        now = self._advance(now)
        nobody = Lease(now, now)
        for bucket in self._table.buckets_of(self._current(path, now)):
            for window in bucket.windows:
                amount = amounts.get(window.dimension, 0.0)
                if amount and not window.is_held:
                    is_shorter = window.limit.period is None and window.limit.window < within
                    part = window.limit.window / within if is_shorter else 1.0
                    window.used(now)
                    window.charge(amount * part, nobody, now)

    def headroom(self, path: Path, charges: Mapping[str, float], now: float) -> Headroom:
        """Say how much room there is, and when a request would be admitted. Charges nothing.

        Raises:
            ValueError: If a charge is negative or not finite.
        """
        now = self._advance(now)
        path = self._current(path, now)
        late = path.late(path.parts(_costs(path, charges)), now)
        used = [section.fullest(path.counters, now) for section in path.layout.sections]
        ready_at = max((each.ready_at for each in late), default=now)
        wait = ready_at - now + _ROUNDING if late else 0.0
        return Headroom(max(0.0, 1.0 - max(used, default=0.0)), wait)

    def usage(self, path: Path, now: float) -> tuple[WindowUsage, ...]:
        """Say what each window of a path counts."""
        now = self._advance(now)
        return tuple(
            _usage(bucket.key, *which, now)
            for bucket in self._table.buckets_of(self._current(path, now))
            for which in bucket.places
        )

    def snapshot(self, now: float) -> Iterator[WindowUsage]:
        """Yield what each window of each bucket counts. Not to be mixed with other calls."""
        now = self._advance(now)
        for bucket in self._table.buckets.values():
            for which in bucket.places:
                yield _usage(bucket.key, *which, now)

    def reconfigure(self, now: float) -> None:
        """Ask for all limits anew. What is held stays held.

        More room is there at once. With less, nothing is admitted until enough has left.
        """
        self._table.reconfigure(self._advance(now))

    def set_epoch(self, epoch: float, now: float) -> None:
        """Let days and months go by a later time of day: an epoch that is more than before."""
        self._table.set_epoch(epoch, self._advance(now))

    @property
    def bucket_count(self) -> int:
        """How many buckets are kept; idle ones go as requests come."""
        return len(self._table.buckets)

    @property
    def path_count(self) -> int:
        """How many paths are kept; idle ones go as requests come."""
        return self._table.path_count

    def _advance(self, now: float) -> float:
        self._now = max(self._now, now)
        return self._now

    def _current(self, path: Path, now: float) -> Path:
        if path.generation != self._table.generation:
            path = self._table.path(path.keys)
        path.used_at = now
        self._table.tend(now)
        return path

    def _find(self, hold: Hold) -> None:
        """Let a hold whose path was let go, since its lease had ended, count in the buckets of now.

        It was alive all the same, and nobody looks at the buckets that went.
        """
        path = self._table.path(hold.path.keys)
        if path.layout is hold.layout:
            hold.path, hold.counters = path, path.counters
            path.open_holds += 1

    def _denial(self, path: Path, late: Sequence[Late], now: float) -> Denial:
        """Name the limit that makes a request wait longest; of several the first of the path."""
        slowest = late[0]
        for each in late:
            if each.ready_at > slowest.ready_at or (
                each.ready_at == slowest.ready_at
                and each is not slowest
                and self._order(path, each) < self._order(path, slowest)
            ):
                slowest = each
        window = window_of(slowest.counter, slowest.place)
        return Denial(
            path.key_of(slowest),
            window.limit,
            slowest.needed,
            window.used(now),
            slowest.ready_at - now + _ROUNDING,
        )

    def _order(self, path: Path, late: Late) -> tuple[int, int]:
        """Return the place of a limit on its path: of its bucket, and there of its window."""
        key = path.key_of(late)
        places = self._table.buckets[key].places
        return path.keys.index(key), places.index((late.counter, late.place))

    def _commit(
        self,
        path: Path,
        charges: Mapping[str, float],
        costs: _Costs,
        parts: Parts,
        now: float,
    ) -> Hold:
        hold = Hold(path, charges, costs, now, now + self._lease)
        path.open_holds += 1
        path.busy_until = max(path.busy_until, hold.expires)
        counters = path.counters
        for section, amounts in parts:
            section.charge(counters, amounts, hold, now)
        return hold


def _costs(path: Path, charges: Mapping[str, float]) -> _Costs:
    check_charges(charges)
    return [admission_costs(policy, charges) for policy in path.layout.policies]


def _settlements(hold: Hold, actual: Mapping[str, float], *, failed: bool) -> _Costs:
    costs = hold.costs
    return [
        settlement_costs(policy, hold.charges, costs[place], actual, failed=failed)
        for place, policy in enumerate(hold.layout.policies)
    ]


def _usage(key: BucketKey, counter: Counter, place: int, now: float) -> WindowUsage:
    if isinstance(counter, RingSet):
        limit = counter.form.limits[place]
        return WindowUsage(key, limit, counter.used(place, now), limit.usable)
    return WindowUsage(key, counter.limit, counter.used(now), counter.size)
