"""Traffic that grows no faster than the provider likes.

Some providers refuse a sharp rise although no limit is reached. So what may be used in a minute is
a little more than what was used in the one before: a cold deployment starts at a small share, and
one that was busy long ago is cold again.
"""

import math
from typing import Final, final

from chatrouting.errors import ConfigurationError

_MINUTE: Final = 60.0


@final
class Ramp:
    """What one quota may be used for, minute by minute. Time is an argument, in seconds."""

    __slots__ = ("_began_at", "_cold", "_growth", "_level", "_used")

    def __init__(self, growth_per_minute: float, *, cold: float = 0.1) -> None:
        """Start cold.

        Args:
            growth_per_minute: How much more a minute may see than the last, 0.2 for 20 %.
            cold: Share of the limits that may be used at once without any traffic before.

        Raises:
            ConfigurationError: If one is out of range.
        """
        if not 0 < growth_per_minute < math.inf:
            raise ConfigurationError(
                f"growth_per_minute is {growth_per_minute!r}; expected a finite number above 0."
            )
        if not 0 < cold <= 1:
            raise ConfigurationError(
                f"cold is {cold!r}; expected a share of the limits, above 0, at most 1."
            )
        self._growth = 1.0 + growth_per_minute
        self._cold = cold
        self._level = 0.0
        self._used = 0.0
        self._began_at = -math.inf

    def share(self, now: float) -> float:
        """Return the part of the limits that may be used in this minute, at most 1."""
        return min(1.0, max(self._cold, self._level_at(now) * self._growth))

    def use(self, share: float, now: float) -> None:
        """Note that a request was admitted which takes this part of a minute's limit."""
        if now - self._began_at >= _MINUTE:
            self._level = self._level_at(now)
            self._used = 0.0
            self._began_at = now
        self._used += share

    def restart(self, now: float) -> None:
        """Be cold again, after the provider was away or refused a rise."""
        self._level = self._cold / self._growth
        self._used = 0.0
        self._began_at = now

    def _level_at(self, now: float) -> float:
        """Return what traffic there has been, which falls as slowly as it may rise."""
        coldest = self._cold / self._growth
        if self._began_at == -math.inf:
            return coldest
        minutes = (now - self._began_at) // _MINUTE
        if minutes < 1:
            return self._level
        # The minute that was counted last, then minutes without anything.
        last = max(self._used, self._level / self._growth)
        return max(coldest, last * math.pow(self._growth, 1.0 - min(minutes, 1e3)))
