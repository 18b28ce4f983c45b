"""One window of a strict provider: everything that was counted, with its time."""

from collections import deque
from dataclasses import dataclass
from typing import Final, final

#: Sums of fractions differ by as much.
_ROUNDING: Final = 1e-6


@final
@dataclass(eq=False, slots=True)
class Entry:
    """An amount, and when it was counted."""

    time: float
    amount: float


@final
class Log:
    """Everything that was counted, exactly: at most `limit` in any `window` seconds."""

    def __init__(self, limit: float, window: float) -> None:
        self.limit = limit
        self.window = window
        self.total = 0.0
        self._used = 0.0
        self._entries: deque[Entry] = deque()

    def used(self, now: float) -> float:
        """Return what the window has counted."""
        while self._entries and self._entries[0].time <= now - self.window:
            self._used -= self._entries.popleft().amount
        return max(0.0, self._used)

    def left(self, now: float) -> float:
        """Return what it still lets through."""
        return max(0.0, self.limit - self.used(now))

    def fits(self, amount: float, now: float) -> bool:
        """Say whether an amount can be let through."""
        return self.used(now) + amount <= self.limit + _ROUNDING

    def count(self, amount: float, now: float) -> Entry:
        """Count an amount."""
        entry = Entry(now, amount)
        self._entries.append(entry)
        self._used += amount
        self.total += amount
        return entry

    def correct(self, entry: Entry, amount: float, now: float) -> None:
        """Make an entry what it should have been, at the time that it was made."""
        self.used(now)
        self.total += amount - entry.amount
        if entry.time > now - self.window:
            self._used += amount - entry.amount
        entry.amount = amount

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until an amount fits if nothing else comes."""
        missing = self.used(now) + amount - self.limit
        for entry in self._entries:
            missing -= entry.amount
            if missing <= _ROUNDING:
                return entry.time + self.window - now
        return self.window

    def time_to_full(self, now: float) -> float:
        """Return the seconds until nothing is used, if nothing else comes."""
        self.used(now)
        return self._entries[-1].time + self.window - now if self._entries else 0.0
