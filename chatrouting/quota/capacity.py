"""How much of a quota may be used after the provider has refused, and when again.

Additive increase, multiplicative decrease, as for congestion in networks (Chiu and Jain, 1989): a
refusal shrinks what is used, at most once for the requests that were under way together, and time
brings it back. A provider that says when to come back is not asked before.
"""

import math
from dataclasses import dataclass
from typing import Final, final

from chatrouting.quota._checks import check_number
from chatrouting.quota.throttle import Throttle, ThrottleKind

#: Seconds for which a quota stays closed where waiting helps only after a time that nobody tells.
_CLOSED: Final = 3600.0
_SHRINKING: Final = (ThrottleKind.QUOTA, ThrottleKind.ACCELERATION, ThrottleKind.OVERLOAD)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveSettings:
    """How strongly refusals count.

    Attributes:
        decrease: What the share is multiplied by at a refusal, 0 < decrease < 1.
        recovery_per_minute: What is added to it in each minute without one.
        least: The share never falls below this, so that something is tried; 0 < least <= 1.
    """

    decrease: float = 0.8
    recovery_per_minute: float = 0.1
    least: float = 0.1

    def __post_init__(self) -> None:
        for name, value, most in (
            ("decrease", self.decrease, math.nextafter(1.0, 0.0)),
            ("recovery_per_minute", self.recovery_per_minute, 60.0),
            ("least", self.least, 1.0),
        ):
            check_number(f"{name} of adaptive settings", value, above=0, most=most)


@final
class AdaptiveCapacity:
    """What the provider's refusals leave of one quota. Time is an argument, in seconds.

    Attributes:
        closed_until: No request is to be sent before; minus infinity if there was no refusal.
    """

    __slots__ = ("_changed_at", "_settings", "_share", "closed_until")

    def __init__(self, settings: AdaptiveSettings = AdaptiveSettings()) -> None:
        self._settings = settings
        self._share = 1.0
        self._changed_at = -math.inf
        self.closed_until = -math.inf

    def share(self, now: float) -> float:
        """Return the part of the limits that may be used, at most 1."""
        if self._share == 1.0:
            return 1.0
        minutes = max(0.0, now - self._changed_at) / 60.0
        return min(1.0, self._share + minutes * self._settings.recovery_per_minute)

    def closed_for(self, now: float) -> float:
        """Return the seconds for which nothing is to be sent, 0.0 if something may."""
        return max(0.0, self.closed_until - now)

    def refused(self, throttle: Throttle, *, sent_at: float, now: float) -> None:
        """Note a refusal.

        Args:
            throttle: What the provider said.
            sent_at: When the refused request was sent. One that was sent before the share fell
                says nothing about what is used since.
            now: The time.
        """
        wait = throttle.retry_after
        if throttle.kind in _SHRINKING:
            if sent_at >= self._changed_at:
                fallen = self.share(now) * self._settings.decrease
                self._share = max(self._settings.least, fallen)
                self._changed_at = now
        elif wait is None:
            wait = _time_told(throttle) or _CLOSED
        if wait is not None:
            # A later refusal with a shorter wait takes nothing back.
            self.closed_until = max(self.closed_until, now + wait)


def _time_told(throttle: Throttle) -> float | None:
    """Return when the limit that is used up is back in full, which is when the next one fits."""
    resets = [each.reset for each in throttle.readings if each.remaining == 0 and each.reset]
    return max(resets, default=None)
