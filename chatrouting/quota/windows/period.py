"""Days and months: a count that begins anew at midnight somewhere."""

from datetime import datetime, time, timedelta
from math import inf
from typing import final
from zoneinfo import ZoneInfo

from typing_extensions import override

from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.windows.window import INSTANT, ROUNDING, Lease, OwnWindow


@final
class CalendarWindow(OwnWindow):
    """From one midnight to the next, or one first of a month to the next, where the limit says."""

    __slots__ = ("_begins", "_ends", "_epoch", "_used", "dimension", "limit", "size")

    def __init__(self, limit: QuotaLimit, epoch: float) -> None:
        self.dimension = limit.dimension
        self._epoch = epoch
        self._used = 0.0
        self._begins = self._ends = -inf
        self._measure(limit)

    def _measure(self, limit: QuotaLimit) -> None:
        self.limit = limit
        self.size = limit.usable

    @override
    def ready_at(self, amount: float, now: float) -> float:
        if self.used(now) + amount <= self.size * ROUNDING:
            return now
        return inf if amount > self.size * ROUNDING else self._ends

    @override
    def charge(self, amount: float, lease: Lease, now: float) -> None:
        self._used += amount

    @override
    def settle(self, charged: float, actual: float, lease: Lease, now: float) -> None:
        if actual > charged:
            self._used = self.used(now) + actual - charged
        elif lease.charged_at >= self._begins:
            self._used = max(0.0, self._used + actual - charged)

    @override
    def used(self, now: float) -> float:
        if now >= self._ends:
            self._turn(now)
            self._used = 0.0
        return self._used

    @override
    def is_at_rest(self, now: float) -> bool:
        return self.used(now) <= 0.0

    @override
    def resize(self, limit: QuotaLimit, now: float) -> None:
        used, begun = self.used(now), self._begins
        self._measure(limit)
        self._turn(now)
        # In another zone this period may have begun before what is counted.
        self._used, self._begins = used, max(begun, self._begins)

    def set_epoch(self, epoch: float, now: float) -> None:
        """Go by a later time of day from now on.

        Args:
            epoch: Unix time at instant 0; more than before.
            now: The time.
        """
        self._ends -= epoch - self._epoch
        self._epoch = epoch
        if now >= self._ends:
            self._turn(now)
            # Not when the period began: what was charged since then by the clock may have been
            # counted in the one before, and is not to be given back to this one.
            self._begins, self._used = now, 0.0

    def _turn(self, now: float) -> None:
        """Find the period that `now` lies in."""
        zone = ZoneInfo(self.limit.timezone)
        first = datetime.fromtimestamp(now + self._epoch, zone).date()
        following = first + timedelta(days=1)
        if self.limit.period == "month":
            first = first.replace(day=1)
            following = (first + timedelta(days=31)).replace(day=1)
        begins, ends = (
            datetime.combine(day, time(), zone).timestamp() for day in (first, following)
        )
        self._begins = begins - self._epoch
        # A clock may be set back over midnight; a period never ends before it is looked at.
        self._ends = max(ends - self._epoch, now + INSTANT)
