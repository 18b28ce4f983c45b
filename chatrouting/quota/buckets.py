"""The buckets that exist, and the paths of buckets that requests take.

A bucket comes to be when a request first needs it, and goes when a new one would do as well: so a
million tenants take the memory of those that are busy. One path is one combination of buckets, made
once and used by every request that takes it. No counting here, that is the windows', and no
decision, that is the ledger's.
"""

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Final, NamedTuple, TypeAlias, final

from chatrouting.errors import ConfigurationError
from chatrouting.quota.limits import BucketKey, BucketLimits, ChargePolicy, Level
from chatrouting.quota.windows import Window, windows_of

#: Says what holds for a bucket; None if nothing is limited there.
LimitsOf: TypeAlias = Callable[[BucketKey], BucketLimits | None]

#: Seconds without a request after which a path may go.
_IDLE: Final = 60.0


class Step(NamedTuple):
    """One bucket of a path.

    Attributes:
        bucket: The bucket.
        windows: As they were when the path was laid: whoever holds something settles with these.
        policy: Place of the bucket's policy among those of the path.
    """

    bucket: "Bucket"
    windows: tuple[Window, ...]
    policy: int


@final
class Bucket:
    """The windows of one key.

    Attributes:
        key: Its name.
        limits: What the windows hold.
        windows: In the order of the limits.
        paths: How many paths lead through it.
    """

    __slots__ = ("_step", "key", "limits", "paths", "windows")

    def __init__(self, key: BucketKey, limits: BucketLimits, epoch: float) -> None:
        self.key = key
        self.limits = limits
        self.windows = tuple(
            window for limit in limits.limits for window in windows_of(limit, epoch=epoch)
        )
        self.paths = 0
        self._step = Step(self, self.windows, 0)

    def step(self, policy: int) -> Step:
        """Return the bucket as a part of a path, where its policy has this place."""
        if self._step.policy != policy or self._step.windows is not self.windows:
            self._step = Step(self, self.windows, policy)
        return self._step

    def is_at_rest(self, now: float) -> bool:
        """Say whether nothing is counted any more."""
        return all(window.is_at_rest(now) for window in self.windows)

    def reconfigure(self, limits: BucketLimits, now: float, epoch: float) -> None:
        """Hold other limits, keeping what is counted for those that were there before.

        A limit is the same one if its dimension, kind and window are: others begin at nothing.
        """
        old: dict[object, list[Window]] = {}
        for window in self.windows:
            old.setdefault(_identity(window), []).append(window)
        windows: list[Window] = []
        for limit in limits.limits:
            for new in windows_of(limit, epoch=epoch):
                same = old.get(_identity(new))
                if same:
                    same[0].resize(limit, now)
                windows.append(same.pop(0) if same else new)
        self.limits = limits
        self.windows = tuple(windows)


def _identity(window: Window) -> object:
    limit = window.limit
    return type(window), limit.dimension, limit.span


@final
class Path:
    """The buckets that a request must clear, from the outside in. Made by a `BucketTable`.

    Attributes:
        keys: Their names, also of those without limits.
        steps: The buckets.
        policies: How they count; buckets that count alike share one.
        generation: Of the limits that it was laid for.
        open_holds: How many requests hold something on it.
        busy_until: When the last lease ends, for holds that are never settled.
        used_at: When it was last asked.
    """

    __slots__ = (
        "busy_until",
        "generation",
        "keys",
        "open_holds",
        "policies",
        "steps",
        "used_at",
    )

    def __init__(self, keys: tuple[BucketKey, ...]) -> None:
        self.keys = keys
        self.steps: tuple[Step, ...] = ()
        self.policies: tuple[ChargePolicy, ...] = ()
        self.generation = 0
        self.open_holds = 0
        self.busy_until = -inf
        self.used_at = -inf


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
            self._release(path.steps)
            path.steps = ()

    def reconfigure(self, now: float) -> None:
        """Ask anew what holds for every bucket that is in use."""
        self.generation += 1
        for bucket in self.buckets.values():
            limits = self._limits_of(bucket.key) or BucketLimits(())
            if limits != bucket.limits:
                bucket.reconfigure(limits, now, self._epoch)

    def _lay(self, path: Path) -> None:
        buckets = [
            bucket for key in dict.fromkeys(path.keys) if (bucket := self._bucket(key)) is not None
        ]
        for bucket in buckets:
            self.buckets[bucket.key] = bucket
            bucket.paths += 1
        self._release(path.steps)
        # What is equal is kept once: there may be a hundred thousand paths.
        path.keys = tuple(
            bucket.key if (bucket := self.buckets.get(key)) else key for key in path.keys
        )
        path.policies = tuple(dict.fromkeys(bucket.limits.policy for bucket in buckets))
        path.steps = tuple(
            bucket.step(path.policies.index(bucket.limits.policy)) for bucket in buckets
        )
        path.generation = self.generation

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
        return None if limits is None else Bucket(key, limits, self._epoch)

    def _release(self, steps: Iterable[Step]) -> None:
        for step in steps:
            step.bucket.paths -= 1
            if not step.bucket.paths:
                del self.buckets[step.bucket.key]

    def _is_idle(self, path: Path, now: float) -> bool:
        if path.open_holds and now < path.busy_until:
            return False
        return all(step.bucket.paths > 1 or step.bucket.is_at_rest(now) for step in path.steps)
