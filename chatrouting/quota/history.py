"""What is remembered of earlier requests: by route, the least recently used forgotten first."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar, final

from chatrouting.quota.histogram import DecayedHistogram

ValueT = TypeVar("ValueT")


@final
class RecentlyUsed(Generic[ValueT]):
    """Values by key, made when first asked for; beyond a number the longest unused is dropped."""

    def __init__(self, make: Callable[[], ValueT], maximum: int) -> None:
        """Start empty; `maximum` is at least 1."""
        self._make = make
        self._maximum = maximum
        self._values: dict[Hashable, ValueT] = {}

    def __len__(self) -> int:
        return len(self._values)

    def peek(self, key: Hashable) -> ValueT | None:
        """Return a value if there is one; looking is no use."""
        return self._values.get(key)

    def use(self, key: Hashable) -> ValueT:
        """Return the value, a new one if there was none."""
        value = self._values.pop(key, None)
        if value is None:
            value = self._make()
            if len(self._values) >= self._maximum:
                # A dict keeps the order of insertion: the first is the longest unused.
                del self._values[next(iter(self._values))]
        self._values[key] = value
        return value


class Found(NamedTuple):
    """A histogram that has seen enough, and how far from the asked key it stands."""

    histogram: DecayedHistogram
    samples: float
    depth: int  #: 0 for the key itself, 1 for the next coarser one, and so on.


@final
class RouteHistory:
    """Values by key, with coarser keys that stand in while a key has seen little."""

    def __init__(
        self, make: Callable[[], DecayedHistogram], *, maximum: int, minimum_samples: int
    ) -> None:
        """Start empty.

        Args:
            make: Makes the histogram of a key.
            maximum: Number of keys that are remembered.
            minimum_samples: Recent values that a key must have seen to be believed.
        """
        self._histograms = RecentlyUsed(make, maximum)
        self._minimum = minimum_samples

    def add(self, keys: Iterable[Hashable], value: float, now: float) -> None:
        """Count a value for a key and all coarser ones."""
        for key in keys:
            self._histograms.use(key).add(value, now)

    def find(self, keys: Sequence[Hashable], now: float) -> Found | None:
        """Return the histogram of the first key that has seen enough."""
        for depth, key in enumerate(keys):
            histogram = self._histograms.peek(key)
            if histogram is not None:
                samples = histogram.samples(now)
                # Twenty values that came one after the other are a little less than twenty.
                if samples > self._minimum - 1:
                    return Found(histogram, samples, depth)
        return None
