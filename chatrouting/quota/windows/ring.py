"""A sliding window, exact to one slot, that gives back where it was charged.

A token bucket regains by time what a request holds, and gets it again when the request is settled:
that let up to 3.5 times the limit through. A ring that credits the slot of the charge keeps
(settled amounts of what started in the window) + (open estimates of those) <= limit, always.
"""

from array import array
from bisect import bisect_left
from math import floor, inf
from typing import final

from typing_extensions import override

from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.windows.window import ROUNDING, Lease, Window


@final
class SlotRing(Window):
    """Never more than the limit in any `window` seconds.

    Charges of one slot leave together, when the youngest of them may: a window of 60 slots looks
    back over 60 whole ones and the one that has begun. Only slots with charges take memory.
    """

    __slots__ = (
        "_amounts",
        "_newest",
        "_newest_amount",
        "_per_second",
        "_slots",
        "_total",
        "dimension",
        "limit",
        "size",
    )

    def __init__(self, limit: QuotaLimit) -> None:
        self.dimension = limit.dimension
        # The newest slot stands by itself, since nearly everything happens there. Of the older
        # ones there are the numbers, ascending, and the amounts of those that have any.
        self._newest = -(2**62)
        self._newest_amount = 0.0
        self._slots = array("q")
        self._amounts = array("d")
        self._total = 0.0
        self._measure(limit)

    def _measure(self, limit: QuotaLimit) -> None:
        self.limit = limit
        self.size = limit.usable
        self._per_second = limit.slots / limit.window

    @override
    def ready_at(self, amount: float, now: float) -> float:
        slot = floor(now * self._per_second)
        if slot > self._newest:
            self._turn(slot)
        excess = self._total + amount - self.size * ROUNDING
        return now if excess <= 0.0 else self._free_at(excess, amount)

    def _free_at(self, excess: float, amount: float) -> float:
        """Return when enough of the oldest slots have left."""
        if amount > self.size * ROUNDING:
            return inf
        leaving = self._newest
        for slot, held in zip(self._slots, self._amounts, strict=True):
            excess -= held
            if excess <= 0.0:
                leaving = slot
                break
        return (leaving + self.limit.slots + 1) / self._per_second

    @override
    def charge(self, amount: float, lease: Lease, now: float) -> None:
        self._newest_amount += amount
        self._total += amount

    @override
    def settle(self, charged: float, actual: float, lease: Lease, now: float) -> None:
        if actual > charged:
            self._catch_up(now)
            self.charge(actual - charged, lease, now)
            return
        origin = floor(lease.charged_at * self._per_second)
        if origin == self._newest:
            self._newest_amount += actual - charged
            self._total += actual - charged
            return
        slots = self._slots
        place = bisect_left(slots, origin)
        if place < len(slots) and slots[place] == origin:
            held = self._amounts[place]
            # Never less than nothing: a ring whose slots have changed may hold less at this place.
            left = max(0.0, held + actual - charged)
            self._amounts[place] = left
            self._total += left - held

    @override
    def used(self, now: float) -> float:
        self._catch_up(now)
        return max(0.0, self._total)

    @override
    def is_at_rest(self, now: float) -> bool:
        self._catch_up(now)
        return not self._slots and not self._newest_amount

    @override
    def resize(self, limit: QuotaLimit, now: float) -> None:
        before = self._per_second
        self._catch_up(now)
        self._measure(limit)
        if self._per_second == before:
            return
        self._keep_newest()
        old = list(zip(self._slots, self._amounts, strict=True))
        self._slots, self._amounts = array("q"), array("d")
        self._newest = floor(now * self._per_second)
        for slot, amount in old:
            # Each charge moves to where the last of its old slot would be: later, never earlier.
            end = floor((slot + 1) / before * self._per_second)
            if end >= self._newest:
                self._newest_amount += amount
            elif self._slots and self._slots[-1] == end:
                self._amounts[-1] += amount
            else:
                self._slots.append(end)
                self._amounts.append(amount)
        self._turn(self._newest)

    def _catch_up(self, now: float) -> None:
        slot = floor(now * self._per_second)
        if slot > self._newest:
            self._turn(slot)

    def _keep_newest(self) -> None:
        """Put the newest slot to the older ones."""
        if self._newest_amount:
            self._slots.append(self._newest)
            self._amounts.append(self._newest_amount)
            self._newest_amount = 0.0

    def _turn(self, newest: int) -> None:
        """Begin a slot, and let go of what has left the window."""
        if newest > self._newest:
            self._keep_newest()
        self._newest = newest
        gone = bisect_left(self._slots, newest - self.limit.slots)
        del self._slots[:gone]
        del self._amounts[:gone]
        # Summed anew, so that roundings do not pile up.
        self._total = sum(self._amounts, self._newest_amount)
