"""The buckets that exist, and the paths of buckets that requests take.

A bucket comes to be when a request first needs it, and goes when a new one would do as well: so a
million tenants take the memory of those that are busy. One path is one combination of buckets, made
once and used by every request that takes it. No counting here, that is the windows', and no
decision, that is the ledger's.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final, TypeAlias, final
from weakref import WeakValueDictionary

from chatrouting.errors import ConfigurationError
from chatrouting.quota.bucket import Bucket, BucketForm
from chatrouting.quota.limits import BucketKey, BucketLimits, ChargePolicy, Level
from chatrouting.quota.windows import (
    Amounts,
    CalendarWindow,
    Counter,
    CounterKind,
    Late,
    Section,
    kind_of,
    section_of,
)

#: Says what holds for a bucket; None if nothing is limited there.
LimitsOf: TypeAlias = Callable[[BucketKey], BucketLimits | None]

#: Some sections of a path, with what to charge there.
Parts: TypeAlias = list[tuple[Section, Amounts]]

#: Seconds without a request after which a path may go.
_IDLE: Final = 60.0


@final
class Layout:
    """What paths through buckets of the same kinds have in common; kept once for all of them.

    Attributes:
        places: Of the names of the buckets, among the keys of the path.
        owners: The same for each counter of the path.
        policies: How the buckets count; those that count alike share one.
        sections: How the counters of the path are charged.
    """

    __slots__ = ("__weakref__", "owners", "places", "policies", "sections")

    def __init__(
        self,
        places: tuple[int, ...],
        owners: tuple[int, ...],
        policies: tuple[ChargePolicy, ...],
        sections: tuple[Section, ...],
    ) -> None:
        self.places = places
        self.owners = owners
        self.policies = policies
        self.sections = sections


#: Of paths that have not been laid, or have been let go.
_NOWHERE: Final = Layout((), (), (), ())


@final
class Path:
    """The buckets that a request must clear, from the outside in. Made by a `BucketTable`.

    Attributes:
        keys: Their names, also of those without limits.
        counters: Of the buckets, section by section.
        layout: What they are.
        generation: Of the limits that it was laid for; 0 once it has been let go.
        open_holds: How many requests hold something on it.
        busy_until: When the last lease ends, for holds that are never settled.
        used_at: When it was last asked.
    """

    __slots__ = (
        "busy_until",
        "counters",
        "generation",
        "keys",
        "layout",
        "open_holds",
        "used_at",
    )

    def __init__(self, keys: tuple[BucketKey, ...]) -> None:
        self.keys = keys
        self.counters: tuple[Counter, ...] = ()
        self.layout = _NOWHERE
        self.generation = 0
        self.open_holds = 0
        self.busy_until = -inf
        self.used_at = -inf

    def parts(self, costs: Sequence[Mapping[str, float]]) -> Parts:
        """Return what to charge in each section, leaving out those that are charged nothing.

        Args:
            costs: By dimension, for each policy.
        """
        parts: Parts = []
        for section in self.layout.sections:
            amounts = section.amounts(costs[section.policy])
            if amounts:
                parts.append((section, amounts))
        return parts

    def late(self, parts: Parts, now: float) -> list[Late]:
        """Return the limits that have no room."""
        late: list[Late] = []
        for section, amounts in parts:
            late += section.late(self.counters, amounts, now)
        return late

    def key_of(self, late: Late) -> BucketKey:
        """Name the bucket of a limit."""
        return self.keys[self.layout.owners[self.counters.index(late.counter)]]


@final
class BucketTable:
    """All buckets and paths that are in use.

    Attributes:
        buckets: By their names.
        generation: Counts the changes of limits; a path of an older one is laid anew.
    """

    def __init__(self, limits_of: LimitsOf, *, epoch: float) -> None:
        self.buckets: dict[BucketKey, Bucket] = {}
        self.generation = 1
        # Held by what uses them: who has limits of his own takes them along when he goes.
        self._forms: WeakValueDictionary[BucketLimits, BucketForm] = WeakValueDictionary()
        self._layouts: WeakValueDictionary[object, Layout] = WeakValueDictionary()
        self._limits_of = limits_of
        self._epoch = epoch
        self._paths: dict[tuple[BucketKey, ...], Path] = {}
        self._to_tend: deque[Path] = deque()

    @property
    def path_count(self) -> int:
        """How many paths are kept."""
        return len(self._paths)

    def path(self, keys: Iterable[BucketKey]) -> Path:
        """Return the path through some buckets.

        A bucket that is named twice is passed once.

        Raises:
            ConfigurationError: If a deployment among them has no limits.
        """
        keys = tuple(keys)
        path = self._paths.get(keys)
        if path is None:
            path = Path(keys)
            self._lay(path)
            self._paths[path.keys] = path
            self._to_tend.append(path)
        elif path.generation != self.generation:
            self._lay(path)
        return path

    def tend(self, now: float) -> None:
        """Look at one path, and let go of it and of its buckets if they are idle.

        Called for every request, so that nobody ever waits for a sweep over all.
        """
        if not self._to_tend:
            return
        self._to_tend.rotate(-1)
        path = self._to_tend[-1]
        if path.used_at + _IDLE <= now and self._is_idle(path, now):
            self._to_tend.pop()
            del self._paths[path.keys]
            path.generation = 0
            self._release(self.buckets_of(path))
            path.layout = _NOWHERE
            path.counters = ()

    def reconfigure(self, now: float) -> None:
        """Ask anew what holds for every bucket that is in use."""
        self.generation += 1
        for bucket in self.buckets.values():
            limits = self._limits_of(bucket.key) or BucketLimits(())
            if limits != bucket.form.limits:
                bucket.reconfigure(self._form(limits), now, self._epoch)

    def set_epoch(self, epoch: float, now: float) -> None:
        """Let all calendars go by a later time of day; see `Ledger.set_epoch`."""
        self._epoch = epoch
        for bucket in self.buckets.values():
            for counter in bucket.counters:
                if isinstance(counter, CalendarWindow):
                    counter.set_epoch(epoch, now)

    def buckets_of(self, path: Path) -> list[Bucket]:
        """Return the buckets of a path, from the outside in."""
        return [self.buckets[path.keys[place]] for place in path.layout.places]

    def _lay(self, path: Path) -> None:
        places: dict[BucketKey, int] = {}
        for place, key in enumerate(path.keys):
            places.setdefault(key, place)
        buckets = [
            (place, bucket)
            for key, place in places.items()
            if (bucket := self._bucket(key)) is not None
        ]
        for _, bucket in buckets:
            self.buckets[bucket.key] = bucket
            bucket.paths += 1
        self._release(self.buckets_of(path))
        # What is equal is kept once: there may be a hundred thousand paths.
        path.keys = tuple(
            known.key if (known := self.buckets.get(key)) else key for key in path.keys
        )
        policies = tuple(dict.fromkeys(bucket.form.limits.policy for _, bucket in buckets))
        alike: dict[tuple[int, CounterKind], list[tuple[int, Counter]]] = {}
        for place, bucket in buckets:
            policy = policies.index(bucket.form.limits.policy)
            for counter in bucket.counters:
                alike.setdefault((policy, kind_of(counter)), []).append((place, counter))
        path.counters = tuple(counter for part in alike.values() for _, counter in part)
        sections = tuple(
            (*which, tuple(place for place, _ in part)) for which, part in alike.items()
        )
        path.layout = self._layout(tuple(place for place, _ in buckets), policies, sections)
        path.generation = self.generation

    def _layout(
        self,
        places: tuple[int, ...],
        policies: tuple[ChargePolicy, ...],
        parts: tuple[tuple[int, CounterKind, tuple[int, ...]], ...],
    ) -> Layout:
        layout = self._layouts.get((places, policies, parts))
        if layout is None:
            owners: list[int] = []
            sections: list[Section] = []
            for policy, kind, of in parts:
                span = slice(len(owners), len(owners) + len(of))
                sections.append(section_of(kind, policy=policy, span=span))
                owners += of
            layout = Layout(places, tuple(owners), policies, tuple(sections))
            self._layouts[places, policies, parts] = layout
        return layout

    def _form(self, limits: BucketLimits) -> BucketForm:
        form = self._forms.get(limits)
        if form is None:
            form = self._forms[limits] = BucketForm(limits)
        return form

    def _bucket(self, key: BucketKey) -> Bucket | None:
        bucket = self.buckets.get(key)
        if bucket is not None:
            return bucket
        limits = self._limits_of(key)
        if limits is None and key.level == Level.DEPLOYMENT:
            raise ConfigurationError(
                f"deployment {key.id!r} has no limits; configure them, or say with an empty tuple "
                "of limits that it has none."
            )
        return None if limits is None else Bucket(key, self._form(limits), self._epoch)

    def _release(self, buckets: Iterable[Bucket]) -> None:
        for bucket in buckets:
            bucket.paths -= 1
            if not bucket.paths:
                del self.buckets[bucket.key]

    def _is_idle(self, path: Path, now: float) -> bool:
        if path.open_holds and now < path.busy_until:
            return False
        return all(bucket.paths > 1 or bucket.is_at_rest(now) for bucket in self.buckets_of(path))
