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
        "_capacity",
        "_newest",
        "_per_second",
        "_slots",
        "_total",
        "dimension",
        "limit",
        "size",
    )

    def __init__(self, limit: QuotaLimit) -> None:
        self.dimension = limit.dimension
        self._slots = array("q")  # numbers of the slots with charges, ascending
        self._amounts = array("d")
        self._newest = -(2**62)
        self._total = 0.0
        self._measure(limit)

    def _measure(self, limit: QuotaLimit) -> None:
        self.limit = limit
        self.size = limit.usable
        self._capacity = self.size * ROUNDING
        self._per_second = limit.slots / limit.window

    @override
    def ready_at(self, amount: float, now: float) -> float:
        slot = floor(now * self._per_second)
        if slot > self._newest:
            self._turn(slot)
        excess = self._total + amount - self._capacity
        return now if excess <= 0.0 else self._free_at(excess, amount)

    def _free_at(self, excess: float, amount: float) -> float:
        """Return when enough of the oldest slots have left."""
        if amount > self._capacity:
            return inf
        leaving = self._newest
        for leaving, held in zip(self._slots, self._amounts, strict=True):  # noqa: B007
            excess -= held
            if excess <= 0.0:
                break
        return (leaving + self.limit.slots + 1) / self._per_second

    @override
    def charge(self, amount: float, lease: Lease, now: float) -> None:
        slots = self._slots
        if slots and slots[-1] == self._newest:
            self._amounts[-1] += amount
        else:
            slots.append(self._newest)
            self._amounts.append(amount)
        self._total += amount

    @override
    def settle(self, charged: float, actual: float, lease: Lease, now: float) -> None:
        if actual > charged:
            self._catch_up(now)
            self.charge(actual - charged, lease, now)
            return
        slots = self._slots
        origin = floor(lease.charged_at * self._per_second)
        place = bisect_left(slots, origin)
        if place < len(slots) and slots[place] == origin:
            amounts = self._amounts
            # No more than is there: a ring whose slots have changed may hold less at this place.
            back = min(charged - actual, amounts[place])
            amounts[place] -= back
            self._total -= back

    @override
    def used(self, now: float) -> float:
        self._catch_up(now)
        return max(0.0, self._total)

    @override
    def is_at_rest(self, now: float) -> bool:
        self._catch_up(now)
        return not self._slots

    @override
    def resize(self, limit: QuotaLimit, now: float) -> None:
        before = self._per_second
        self._measure(limit)
        if self._per_second == before:
            return
        # Each charge moves to where the last of its old slot would be: later, never earlier.
        ends = [floor((slot + 1) / before * self._per_second) for slot in self._slots]
        amounts = self._amounts
        self._slots, self._amounts = array("q"), array("d")
        self._newest = floor(now * self._per_second)
        for slot, amount in zip(ends, amounts, strict=True):
            place = min(slot, self._newest)
            if self._slots and self._slots[-1] == place:
                self._amounts[-1] += amount
            else:
                self._slots.append(place)
                self._amounts.append(amount)
        self._turn(self._newest)

    def _catch_up(self, now: float) -> None:
        self._turn(max(self._newest, floor(now * self._per_second)))

    def _turn(self, newest: int) -> None:
        """Let go of what has left the window."""
        self._newest = newest
        gone = bisect_left(self._slots, newest - self.limit.slots)
        if gone:
            del self._slots[:gone]
            del self._amounts[:gone]
            # Summed anew, so that roundings do not pile up.
            self._total = sum(self._amounts)
