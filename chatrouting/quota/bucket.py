"""One bucket: what counts for one key, and how that goes on when its limits change."""

from typing import final

from chatrouting.quota.limits import BucketKey, BucketLimits, QuotaLimit
from chatrouting.quota.windows import (
    Counter,
    LimitWindow,
    OwnWindow,
    RingForm,
    RingSet,
    SlotRing,
    own_window_of,
    window_of,
)


@final
class BucketForm:
    """What buckets of equal limits have in common; kept once for all of them.

    Attributes:
        limits: What they hold.
        rings: Of their ring sets, which are the first of their counters.
        own: The limits of those that count by themselves, in the order of these.
        places: Of each window, in the order of the limits, the place of what counts it, and of its
            column there.
    """

    __slots__ = ("__weakref__", "limits", "own", "places", "rings")

    def __init__(self, limits: BucketLimits) -> None:
        self.limits = limits
        alike: dict[tuple[float, int], list[QuotaLimit]] = {}
        for limit in limits.limits:
            if limit.kind == "ring":
                alike.setdefault((limit.window, limit.slots), []).append(limit)
        self.rings = tuple(RingForm(columns) for columns in alike.values())
        self.own: list[QuotaLimit] = []
        self.places: list[tuple[int, int]] = []
        begun = dict.fromkeys(alike, 0)
        for limit in limits.limits:
            if limit.kind == "ring":
                span = limit.window, limit.slots
                self.places.append((list(alike).index(span), begun[span]))
                begun[span] += 1
            if limit.kind != "ring" or limit.burst is not None:
                self.places.append((len(self.rings) + len(self.own), 0))
                self.own.append(limit)

    def counters(self, epoch: float) -> tuple[Counter, ...]:
        """Make what counts in a bucket."""
        own = (own_window_of(limit, epoch=epoch) for limit in self.own)
        return (*(RingSet(form) for form in self.rings), *own)

    def is_like(self, other: "BucketForm") -> bool:
        """Say whether the same is counted in the same way, up to other amounts."""
        return len(self.limits.limits) == len(other.limits.limits) and all(
            (one.kind, one.dimension, one.window, one.slots, one.period, one.burst is None)
            == (two.kind, two.dimension, two.window, two.slots, two.period, two.burst is None)
            for one, two in zip(self.limits.limits, other.limits.limits, strict=True)
        )


@final
class Bucket:
    """What counts for one key.

    Attributes:
        key: Its name.
        form: Its limits.
        counters: Its ring sets, and what counts by itself.
        paths: How many paths lead through it.
    """

    __slots__ = ("counters", "form", "key", "paths")

    def __init__(self, key: BucketKey, form: BucketForm, epoch: float) -> None:
        self.key = key
        self.form = form
        self.counters = form.counters(epoch)
        self.paths = 0

    @property
    def places(self) -> list[tuple[Counter, int]]:
        """Where its windows are, in the order of the limits: two for a ring that is paced."""
        return [(self.counters[at], place) for at, place in self.form.places]

    @property
    def windows(self) -> list[LimitWindow]:
        """Its windows, in that order."""
        return [window_of(self.counters[at], place) for at, place in self.form.places]

    def is_at_rest(self, now: float) -> bool:
        """Say whether nothing is counted any more."""
        return all(counter.is_at_rest(now) for counter in self.counters)

    def reconfigure(self, form: BucketForm, now: float, epoch: float) -> None:
        """Hold other limits, keeping what is counted for those that were there before.

        A limit is the same one if its dimension, kind and window are: others begin at nothing.
        """
        before, self.form = self.form, form
        if form.is_like(before):
            self._resize(now)
            return
        old: dict[object, list[LimitWindow]] = {}
        for at, place in before.places:
            window = window_of(self.counters[at], place)
            old.setdefault(_identity(window), []).append(window)
        counters = form.counters(epoch)
        columns: dict[RingSet, list[SlotRing | None]] = {}
        own: dict[OwnWindow, OwnWindow] = {}
        for at, place in form.places:
            window = window_of(counters[at], place)
            same = old.get(_identity(window))
            kept = same.pop(0) if same else None
            if isinstance(window, SlotRing):
                columns.setdefault(window.ring, []).append(
                    kept if isinstance(kept, SlotRing) else None
                )
            elif kept is not None and not isinstance(kept, SlotRing):
                kept.resize(window.limit, now)
                own[window] = kept
        for ring, kept_columns in columns.items():
            ring.inherit(kept_columns, now)
        self.counters = tuple(
            counter if isinstance(counter, RingSet) else own.get(counter, counter)
            for counter in counters
        )

    def _resize(self, now: float) -> None:
        """Take other amounts from the form."""
        limits = iter(self.form.own)
        rings = iter(self.form.rings)
        for counter in self.counters:
            if isinstance(counter, RingSet):
                counter.form = next(rings)
            else:
                counter.resize(next(limits), now)


def _identity(window: LimitWindow) -> object:
    limit = window.limit
    return type(window), limit.dimension, limit.span
