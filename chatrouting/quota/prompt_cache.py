"""How much of the next input will come from the provider's cache.

Learnt for each beginning that requests to a deployment share: the mean of what was read from the
cache, misses among them, the newer ones counting more. Providers forget a prompt that is not used
for some minutes, and so does this.
"""

import math
from collections.abc import Hashable
from typing import Final, final

from chatrouting.quota.history import RecentlyUsed

#: Seconds for which a provider keeps a prompt that nobody asks for.
_KEPT: Final = 300.0
#: Weight of the newest observation in the mean.
_WEIGHT: Final = 0.2
_MINIMUM: Final = 3


class _Beginning:
    __slots__ = ("last", "mean", "seen")

    def __init__(self) -> None:
        self.mean = 0.0
        self.seen = 0
        self.last = -math.inf


@final
class CachedPrompts:
    """What was read from the cache, by shared beginning."""

    def __init__(self, maximum: int) -> None:
        """Start empty, to remember so many beginnings."""
        self._beginnings = RecentlyUsed(_Beginning, maximum)

    def expect(self, key: Hashable, now: float) -> tuple[float, int]:
        """Return the tokens to expect, and the number of requests that this rests on."""
        found = self._beginnings.peek(key)
        if found is None or found.seen < _MINIMUM or now - found.last > _KEPT:
            return 0.0, 0
        return found.mean, found.seen

    def add(self, key: Hashable, tokens: int, now: float) -> None:
        """Count what one request read from the cache, 0 for a miss."""
        found = self._beginnings.use(key)
        found.seen += 1
        # The first ones are averaged evenly.
        found.mean += (tokens - found.mean) * max(_WEIGHT, 1 / found.seen)
        found.last = max(found.last, now)
