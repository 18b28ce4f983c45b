"""Counters and histograms of a governor, plain numbers that any sink can read.

Labels are few: a class, a limiter's level and dimension. Tenants are many, so only so many of them
are told apart; the rest are counted together.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, final

#: Upper bounds of the buckets of waits, seconds.
_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)
#: Upper bounds of the buckets of estimates beside what was used, as a ratio.
_RATIOS: Final = (0.25, 0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 10, 30)

_MOST_TENANTS: Final = 1000
_OTHERS: Final = "(others)"


@final
class Histogram:
    """Counts of values by buckets.

    Attributes:
        bounds: Upper bounds of all buckets but the last, which has none.
        counts: How many values fell into each; one more than there are bounds.
        sum: Of all values.
    """

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def quantile(self, share: float) -> float:
        """Return the upper bound of the bucket that a quantile lies in.

        Args:
            share: From 0 to 1.

        Returns:
            A bound; the last one also for what lies above it; 0 if there are no values.
        """
        needed, seen = share * self.count, 0
        if not needed:
            return 0.0
        for count, bound in zip(self.counts, self.bounds, strict=False):
            seen += count
            if seen >= needed:
                return bound
        return self.bounds[-1]


class Count(NamedTuple):
    """A name and a label.

    Attributes:
        name: What is counted, such as "decisions".
        by: What kind of thing the label is, such as "class".
        label: Which one; an outcome and the thing, where outcomes are counted.
    """

    name: str
    by: str
    label: tuple[str, ...]


@final
class QuotaMetrics:
    """What a governor has counted since it was made.

    Counters, by name (what they are told apart by):
    - decisions (outcome and class, tenant, limiter);
    - provider_rejections (funding): refused by a provider although admitted here;
    - borrowed and reclaimed (class): requests on borrowed capacity, and those cut off;
    - reserved and settled (dimension): what was charged, and what it came to;
    - unenforced (limiter): what would have been refused by limits that are only watched;
    - external (dimension): what others have used of a provider's quota, by its headers;
    - drift (dimension): what was charged here less what headers say, over all answers.

    Attributes:
        counters: By name and label.
        queue_waits: Seconds that admitted requests waited, by class.
        output_ratios: Charged output over real output, by model profile.
    """

    def __init__(self) -> None:
        self.counters: dict[Count, float] = {}
        self.queue_waits: dict[str, Histogram] = {}
        self.output_ratios: dict[str, Histogram] = {}
        self._keys: dict[tuple[str, str, tuple[str, ...]], Count] = {}
        self._tenants: set[str] = set()

    def count(self, name: str, by: str, *label: str, amount: float = 1) -> None:
        """Add to a counter."""
        place = name, by, label
        key = self._keys.get(place)
        if key is None:  # made once: it takes longer than to count
            key = self._keys[place] = Count(*place)
            self.counters[key] = 0.0
        self.counters[key] += amount

    def tenant(self, name: str | None) -> str:
        """Return a tenant's name as a label."""
        if name is None:
            return ""
        if name not in self._tenants and len(self._tenants) >= _MOST_TENANTS:
            return _OTHERS
        self._tenants.add(name)
        return name

    def add_wait(self, request_class: str, seconds: float) -> None:
        """Note how long an admitted request has waited."""
        if request_class not in self.queue_waits:
            self.queue_waits[request_class] = Histogram(_SECONDS)
        self.queue_waits[request_class].add(seconds)

    def add_ratio(self, model_profile: str, ratio: float) -> None:
        """Note how an estimate compares with what was used."""
        if model_profile not in self.output_ratios:
            self.output_ratios[model_profile] = Histogram(_RATIOS)
        self.output_ratios[model_profile].add(ratio)

    def total(self, name: str, by: str, *label: str) -> float:
        """Return one counter."""
        return self.counters.get(Count(name, by, label), 0.0)

    def to_dict(self) -> Mapping[str, object]:
        """Return everything as plain JSON, for a dashboard."""
        return {
            "counters": [
                {"name": name, "by": by, "label": list(label), "value": value}
                for (name, by, label), value in sorted(self.counters.items())
            ],
            "queue_wait_seconds": _quantiles(self.queue_waits),
            "output_ratio": _quantiles(self.output_ratios),
        }


def _quantiles(histograms: Mapping[str, Histogram]) -> dict[str, dict[str, float]]:
    return {
        label: {
            "count": histogram.count,
            "sum": histogram.sum,
            "p50": histogram.quantile(0.5),
            "p95": histogram.quantile(0.95),
            "p99": histogram.quantile(0.99),
        }
        for label, histogram in histograms.items()
    }
