"""Which limits a bucket of somebody's has, and which buckets are only watched.

What is given for a tenant holds for it in whatever organisation it is; what is given for it in one
organisation holds there instead. Likewise for teams and keys: what a name leaves out may be
anything. Two tenants of one name in two organisations count apart all the same.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import dropwhile, product
from typing import Final, final

from chatrouting.errors import ConfigurationError
from chatrouting.quota._checks import check_each, check_kind, check_text
from chatrouting.quota.limits import BucketKey, BucketLimits, Level

#: How many ids may stand around one of a level.
_DEPTHS: Final[Mapping[Level, int]] = {
    Level.ORGANISATION: 0,
    Level.TENANT: 1,
    Level.TEAM: 2,
    Level.API_KEY: 3,
    Level.MODEL_PROFILE: 0,
}


@final
class Ceilings:
    """Limits by bucket and, where there are none, by level.

    Raises:
        TypeError: If a limit is None.
        ConfigurationError: If something would never hold for anybody.
    """

    def __init__(
        self,
        named: Mapping[BucketKey, BucketLimits],
        defaults: Mapping[Level, BucketLimits],
    ) -> None:
        check_kind("ceilings", named, Mapping, "BucketLimits for each BucketKey")
        for key, limits in named.items():
            _check_key("ceilings", key)
            check_kind(f"ceiling of {key}", limits, BucketLimits, "BucketLimits")
        check_kind("default_ceilings", defaults, Mapping, "BucketLimits for each Level")
        for level, limits in defaults.items():
            check_kind("a key of default_ceilings", level, Level, "a Level, such as Level.TENANT")
            _check_level(level)
            check_kind(f"default ceiling of {level}", limits, BucketLimits, "BucketLimits")
        self._named = dict(named)
        self._defaults = dict(defaults)

    def of(self, key: BucketKey) -> BucketLimits | None:
        """Return what holds for a bucket; None if nothing does."""
        for each in _names(key):
            found = self._named.get(each)
            if found is not None:
                return found
        return self._defaults.get(key.level)

    def check(self, changes: Mapping[BucketKey, BucketLimits | None]) -> None:
        """Refuse changes as `__init__` refuses ceilings; None takes one away."""
        check_kind("ceilings", changes, Mapping, "BucketLimits for each BucketKey")
        for key, limits in changes.items():
            _check_key("ceilings", key)
            if limits is not None:
                check_kind(f"ceiling of {key}", limits, BucketLimits, "BucketLimits")

    def change(self, changes: Mapping[BucketKey, BucketLimits | None]) -> None:
        """Make changes that have been checked."""
        for key, limits in changes.items():
            self._named.pop(key, None)
            if limits is not None:
                self._named[key] = limits


@final
class Watched:
    """Buckets, and whole levels, that refuse nothing.

    Raises:
        TypeError: If it is None.
        ConfigurationError: If something is neither, or stands for nobody.
    """

    def __init__(self, watched: Collection[Level | BucketKey]) -> None:
        expected = "levels and bucket keys, such as [Level.TENANT]"
        # A key is a tuple, and would be taken apart in silence.
        if isinstance(watched, BucketKey):
            raise ConfigurationError(f"watched is {watched!r}; expected {expected}.")
        self._found = frozenset(check_each("watched", watched, (Level, BucketKey), expected))
        for each in self._found:
            if isinstance(each, BucketKey) and each.level != Level.DEPLOYMENT:
                _check_key("watched", each)

    def __bool__(self) -> bool:
        """Say whether anything is watched."""
        return bool(self._found)

    def __contains__(self, key: BucketKey) -> bool:
        """Say whether a bucket is watched, by itself or with its level."""
        return key.level in self._found or any(each in self._found for each in _names(key))


def _names(key: BucketKey) -> Iterator[BucketKey]:
    """Yield what a bucket may be called: by all that it belongs to, then by less and less of it.

    Of two names of as many ids the one with the inner ids comes first.
    """
    choices = [(None,) if each is None else (each, None) for each in reversed(key.within)]
    for within in sorted(product(*choices), key=lambda within: within.count(None)):
        known = dropwhile(lambda each: each is None, reversed(within))
        yield BucketKey(key.level, key.id, tuple(known))


def _check_key(name: str, key: object) -> None:
    check_kind(
        f"a key of {name}", key, BucketKey, 'a BucketKey, such as BucketKey(Level.TENANT, "acme")'
    )
    if not isinstance(key, BucketKey):
        return
    check_kind(f"level of {key}", key.level, Level, "a Level")
    _check_level(key.level)
    check_text(f"id of {key}", key.id)
    within: object = key.within
    outer = key.within[0] if isinstance(within, tuple) and key.within else ""
    is_right = (
        isinstance(within, tuple)
        and outer is not None
        and len(key.within) <= _DEPTHS[key.level]
        and all(each is None or isinstance(each, str) for each in key.within)
    )
    if not is_right:
        raise ConfigurationError(
            f"{name} has {key!r}, and no {key.level} is within {within!r}; expected a tuple of the "
            f"ids around it, {_DEPTHS[key.level]} at most, beginning with the first that is known. "
            "`keys_of` makes keys."
        )


def _check_level(level: Level) -> None:
    if level == Level.DEPLOYMENT:
        raise ConfigurationError(
            "a ceiling is given for a deployment, whose limits are its own; write them into its "
            "QuotaDeployment, or change them by update_limits(deployments=...)."
        )
