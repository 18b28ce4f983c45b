"""What is in the window of one limit of a deployment, and how much of it may be lent.

A borrowed token stays in the window until it leaves, and those who were promised a share may be
back before. So only that is lent which they cannot claim until then: at any later moment, what is
still in the window, all assured levels, and all refill up to that moment must fit into the limit.
This is exact over the slots of a ring. It stays so under refunds, which go back to the slot of the
charge; a pool of tokens would regain by time what it gets back by refund. Pure; time is an
argument.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, final

from chatrouting.quota.limits import QuotaLimit

#: Rounding refuses nobody, as a part of the limit.
_ROUNDING: Final = 1e-9


@final
class Timeline:
    """What is in the window of one ring, by slots, and what can be borrowed of it.

    Attributes:
        largest: What can be borrowed at once when nothing is in the window.
    """

    def __init__(self, limit: QuotaLimit, bursts: float, rates: float) -> None:
        self._limit = limit
        self._bursts = bursts
        self._rates = rates
        self._width = limit.window / limit.slots
        self.largest = limit.usable - bursts - rates * (limit.window + self._width)
        self._slots: list[int] = []
        self._amounts: list[float] = []
        # What is claimed, and since when it is counted; None once an older slot has changed. What
        # the newest one gets is claimed until each of the others leaves, and is kept beside it: a
        # line of waiting requests takes and gives back there all the time, 60 slots long.
        self._claimed: tuple[list[tuple[float, float]], float] | None = None
        self._added = 0.0

    def add(self, amount: float, at: float, now: float) -> None:
        """Count an amount, more or less than 0, in the slot of an instant."""
        self._forget(now)
        slot = math.floor(at / self._width)
        if slot + self._limit.slots < math.floor(now / self._width):
            return
        place = bisect_left(self._slots, slot)
        if place == len(self._slots) or self._slots[place] != slot:
            self._slots.insert(place, slot)
            self._amounts.insert(place, 0.0)
            self._claimed = None
        held = self._amounts[place] + amount
        if held < 0.0 or place != len(self._slots) - 1:
            self._claimed = None
        self._amounts[place] = max(0.0, held)
        self._added += amount

    def borrowable(self, levels: float, now: float) -> float:
        """Return what can be borrowed now.

        Args:
            levels: Sum of the assured levels.
            now: The time.
        """
        claims, since = self._claims(now)
        # Until the slot that has begun leaves nothing else need be in the window.
        most = self._rates * (self._leaves_at(math.floor(now / self._width)) - since)
        if claims:
            most = max(most, claims[0][1] + self._added)
        free = self._limit.usable - levels - (most - self._rates * (now - since))
        return free + self._limit.usable * _ROUNDING

    def borrowable_at(self, amount: float, now: float) -> float:
        """Return when an amount can surely be borrowed, if nothing else happens.

        Args:
            amount: At most `largest`.
            now: The time, at which it cannot.
        """
        claims, since = self._claims(now)
        at = now
        for leaves_at, claimed in claims:
            # As if all levels were full by then: they may be.
            excess = claimed + self._added + amount + self._bursts - self._limit.usable
            paid_in = excess / self._rates if self._rates > 0 else 0 if excess <= 0 else math.inf
            if max(at, since + paid_in) < leaves_at:
                return max(at, since + paid_in)
            at = leaves_at
        return at

    def entries(self) -> Iterator[tuple[float, float]]:
        """Yield instants and what is counted as of them."""
        for slot, amount in zip(self._slots, self._amounts, strict=True):
            yield slot * self._width, amount

    def _claims(self, now: float) -> tuple[list[tuple[float, float]], float]:
        """Return when slots leave, oldest first, with the most that is claimed until then.

        Until a slot leaves, it and all younger ones are in the window, and so is the refill up to
        then. That is counted from an instant, the second result, for the caller to take off what is
        over. `_added` has come since to each of them.
        """
        self._forget(now)
        if self._claimed is None:
            held, most = 0.0, -math.inf
            rates, width, slots = self._rates, self._width, self._limit.slots + 1
            found: list[tuple[float, float]] = []
            for slot, amount in zip(reversed(self._slots), reversed(self._amounts), strict=True):
                held += amount
                leaves_at = (slot + slots) * width
                claimed = held + rates * (leaves_at - now)
                most = max(most, claimed)
                found.append((leaves_at, most))
            found.reverse()
            self._claimed = found, now
            self._added = 0.0
        return self._claimed

    def _leaves_at(self, slot: int) -> float:
        return (slot + self._limit.slots + 1) * self._width

    def _forget(self, now: float) -> None:
        gone = bisect_left(self._slots, math.floor(now / self._width) - self._limit.slots)
        if gone:
            del self._slots[:gone]
            del self._amounts[:gone]
            if self._claimed is not None:
                del self._claimed[0][:gone]  # nothing else depends on the oldest
