"""Sliding windows, exact to one slot, that give back where they were charged.

A token bucket regains by time what a request holds, and gets it again when the request is settled:
that let up to 3.5 times the limit through. A ring that credits the slot of the charge keeps
(settled amounts of what started in the window) + (open estimates of those) <= limit, always.

A bucket has one `RingSet` for all its limits over the same slots. It counts them side by side, one
column for each, since requests charge them together; a `SlotRing` is one of the columns.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from math import floor, inf
from operator import add, sub
from typing import Final, final

from typing_extensions import override

from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.windows.window import ROUNDING, Lease, Window

#: A number before that of any slot.
_NEVER: Final = -(2**62)
#: The most that fits into a byte.
_BYTE: Final = 255


@final
class RingForm:
    """What rings of equal limits have in common; kept once for all of them.

    Attributes:
        limits: One for each column, all with the same window and slots.
        dimensions: Of the limits.
        most: What the columns may hold, roundings included.
        slots: Of a window.
        per_second: Slots in a second.
        nothing: As much as an empty row. Never changed.
    """

    __slots__ = ("__weakref__", "dimensions", "limits", "most", "nothing", "per_second", "slots")

    def __init__(self, limits: Iterable[QuotaLimit]) -> None:
        self.limits = tuple(limits)
        self.dimensions = tuple(limit.dimension for limit in self.limits)
        self.most = tuple(limit.usable * ROUNDING for limit in self.limits)
        self.slots = self.limits[0].slots
        self.per_second = self.slots / self.limits[0].window
        self.nothing = [0.0] * len(self.limits)


@final
class RingSet:
    """Never more than each limit in any `window` seconds.

    Charges of one slot leave together, when the youngest of them may: a window of 60 slots looks
    back over 60 whole ones and the one that has begun. Only slots with charges take memory.

    Attributes:
        form: Its limits.
        newest: Number of the slot that has begun.
        heirs: Who goes on with its columns, by their places; None as long as it counts itself.
        totals: What is counted, by column; to be changed only right after `turn` or `catch_up`.
    """

    # What the newest slot has is what the totals have more than `_older`. Of the slots before it
    # there are the numbers, ascending and counted from `_base`, and the amounts of those that have
    # any, row after row: floats of four bytes as long as these hold them exactly. So 60 slots of
    # three limits take 1.1 KB; each limit by itself, in eight bytes, took 3.1 in all.
    __slots__ = ("_amounts", "_base", "_numbers", "_older", "form", "heirs", "newest", "totals")

    def __init__(self, form: RingForm) -> None:
        self.form = form
        self.newest = _NEVER
        self.heirs: dict[int, SlotRing] | None = None
        self._clear()

    def _clear(self) -> None:
        self.totals = self.form.nothing.copy()
        self._older = self.form.nothing
        self._base = 0
        self._numbers: array[int] | None = None
        self._amounts: array[float] | None = None

    def catch_up(self, now: float) -> None:
        """Begin the slot of `now`, if it has not begun."""
        slot = floor(now * self.form.per_second)
        if slot > self.newest:
            self.turn(slot)

    def turn(self, slot: int) -> None:
        """Begin a slot, later than the newest, and let go of what has left the window."""
        before, self.newest = self.newest, slot
        horizon = slot - self.form.slots
        if before < horizon:
            self._clear()
            return
        totals, numbers, amounts = self.totals, self._numbers, self._amounts
        row = list(map(sub, totals, self._older)) if totals != self._older else None
        if numbers and amounts and self._base + numbers[0] < horizon:
            gone = bisect_left(numbers, horizon - self._base)
            # Summed anew once in a window, so that roundings do not pile up.
            is_new = before // self.form.slots != slot // self.form.slots
            self._let_go(gone, numbers, amounts, is_new=is_new)
            totals[:] = self._older if row is None else map(add, self._older, row)
        if row is not None:
            self._keep(before, row)
            self._older = totals.copy()

    def _let_go(
        self, gone: int, numbers: "array[int]", amounts: "array[float]", *, is_new: bool
    ) -> None:
        """Forget so many of the oldest slots. `is_new`: add up what stays, and not what goes."""
        if gone == len(numbers):
            self._older = self.form.nothing
            self._numbers = self._amounts = None
            return
        columns = len(self.totals)
        del numbers[:gone]
        stay = amounts[gone * columns :]
        if is_new:
            self._older = [sum(stay[place::columns], 0.0) for place in range(columns)]
        else:
            for at, amount in enumerate(amounts[: gone * columns]):
                self._older[at % columns] -= amount
        self._amounts = stay

    def _keep(self, slot: int, row: list[float]) -> None:
        """Put a slot to the older ones."""
        numbers, amounts = self._numbers, self._amounts
        if numbers is None or amounts is None:
            self._base = slot
            # Bytes if they then are counted anew no more than once in a window.
            self._numbers = array("B" if 2 * self.form.slots <= _BYTE else "q", (0,))
        else:
            number = slot - self._base
            if number > _BYTE and numbers.typecode == "B":
                number -= numbers[0]
                self._base += numbers[0]
                numbers = self._numbers = array("B", [each - numbers[0] for each in numbers])
            numbers.append(number)
        added = array("f" if amounts is None else amounts.typecode, row)
        if added.tolist() != row:
            amounts, added = amounts and array("d", amounts), array("d", row)
        # Not extended: that would make room for more, which never comes: a tenth of it.
        self._amounts = amounts + added if amounts else added

    def settle(self, changes: Sequence[tuple[int, float]], lease: Lease, now: float) -> None:
        """Change what was charged, once for a charge.

        Args:
            changes: What was used more or less than charged, by column. More counts from now on,
                less is given back where it was charged.
            lease: On whose account it was charged.
            now: The time.
        """
        if self.heirs is not None:
            for place, change in changes:
                heir = self.heirs.get(place)
                # No call for each: limits may change a thousand times while a request runs.
                while heir is not None and heir.ring.heirs is not None:
                    heir = heir.ring.heirs.get(heir.place)
                if heir is not None:
                    heir.settle(0.0, change, lease, now)
            return
        for place, change in changes:
            if change > 0.0:
                self.catch_up(now)
                self.totals[place] += change
        less = [each for each in changes if each[1] < 0.0]
        if less:
            self.give_back(less, floor(lease.charged_at * self.form.per_second))

    def give_back(self, changes: Sequence[tuple[int, float]], slot: int) -> None:
        """Take from a slot what it was charged; what has left the window is gone already."""
        if slot == self.newest:
            for place, change in changes:
                self.totals[place] += change
            return
        amounts, row = self._amounts, self._row_of(slot)
        if amounts is None or row is None:
            return
        for at, change in changes:
            place = row + at
            held = amounts[place]
            left = held + change
            if left < 0.0:  # noqa: PLR1730  # a call that is hardly ever needed
                left = 0.0  # a ring whose slots have changed may hold less at this place
            amounts[place] = left
            if amounts[place] != left:
                amounts = self._amounts = array("d", amounts)
                amounts[place] = left
            gone = left - held
            self._older[at] += gone
            self.totals[at] += gone

    def _row_of(self, slot: int) -> int | None:
        """Return where the amounts of an older slot begin; None if it has none."""
        numbers, number = self._numbers, slot - self._base
        if numbers is None:
            return None
        at = bisect_left(numbers, number)
        return at * len(self.totals) if at < len(numbers) and numbers[at] == number else None

    def used(self, place: int, now: float) -> float:
        """Return how much a column counts."""
        self.catch_up(now)
        return max(0.0, self.totals[place])

    def ready_at(self, place: int, amount: float) -> float:
        """Return when enough of the oldest slots have left a column that is full."""
        most = self.form.most[place]
        if amount > most:
            return inf
        excess = self.totals[place] + amount - most
        leaving = next(
            (slot for slot, amounts in self.rows() if (excess := excess - amounts[place]) <= 0.0),
            self.newest,
        )
        return (leaving + self.form.slots + 1) / self.form.per_second

    def rows(self) -> Iterator[tuple[int, Sequence[float]]]:
        """Yield each slot with its amounts, by column; the oldest first, the newest last."""
        columns = len(self.totals)
        if self._numbers is not None and self._amounts is not None:
            for at, number in enumerate(self._numbers):
                yield self._base + number, self._amounts[at * columns : (at + 1) * columns]
        yield self.newest, list(map(sub, self.totals, self._older))

    def is_at_rest(self, now: float) -> bool:
        """Say whether a new one would do as well."""
        self.catch_up(now)
        return self.totals == self.form.nothing

    def inherit(self, columns: "Sequence[SlotRing | None]", now: float) -> None:
        """Go on with what others count; what they are settled with changes this count from now on.

        Args:
            columns: Whose count each column goes on with; None to begin at nothing.
            now: The time.
        """
        slots: dict[int, list[float]] = {}
        newest = floor(now * self.form.per_second)
        for place, source in enumerate(columns):
            for slot, amount in source.moved_to(self.form, now) if source is not None else ():
                row = slots.setdefault(min(slot, newest), self.form.nothing.copy())
                row[place] += amount
        for place, source in enumerate(columns):
            if source is not None:
                source.pass_on(SlotRing(self, place))
        self.newest = newest
        now_charged = slots.pop(newest, self.form.nothing)
        self._older = self.form.nothing
        for slot in sorted(slots):
            if any(slots[slot]):
                self._keep(slot, slots[slot])
                self._older = list(map(add, self._older, slots[slot]))
        self.totals = list(map(add, self._older, now_charged))

    def let_inherit(self, place: int, heir: "SlotRing") -> None:
        """Settle what a column was charged with another one from now on; this one is not used."""
        if self.heirs is None:
            self.heirs = {}
        self.heirs[place] = heir


@final
class SlotRing(Window):
    """One column of a `RingSet`: the window of one limit."""

    __slots__ = ("dimension", "limit", "place", "ring", "size")

    def __init__(self, ring: RingSet, place: int) -> None:
        self.ring = ring
        self.place = place
        self.limit = ring.form.limits[place]
        self.dimension = self.limit.dimension
        self.size = self.limit.usable

    @override
    def ready_at(self, amount: float, now: float) -> float:
        self.ring.catch_up(now)
        is_full = self.ring.totals[self.place] + amount > self.ring.form.most[self.place]
        return self.ring.ready_at(self.place, amount) if is_full else now

    @override
    def charge(self, amount: float, lease: Lease, now: float) -> None:
        self.ring.totals[self.place] += amount

    @override
    def settle(self, charged: float, actual: float, lease: Lease, now: float) -> None:
        self.ring.settle([(self.place, actual - charged)], lease, now)

    @override
    def used(self, now: float) -> float:
        return self.ring.used(self.place, now)

    @override
    def is_at_rest(self, now: float) -> bool:
        return self.ring.is_at_rest(now)

    def moved_to(self, form: RingForm, now: float) -> list[tuple[int, float]]:
        """Return what is counted, by slots of another form.

        Each charge moves to where the last of its old slot would be: later, never earlier.
        """
        self.ring.catch_up(now)
        before, after = self.ring.form.per_second, form.per_second
        return [
            (slot if before == after else floor((slot + 1) / before * after), amounts[self.place])
            for slot, amounts in self.ring.rows()
        ]

    def pass_on(self, heir: "SlotRing") -> None:
        """Let another column go on with the count."""
        self.ring.let_inherit(self.place, heir)
