"""What is limited, by how much, and how a bucket counts. Values only; `windows` counts.

A `QuotaLimit` is one number over one window. A bucket, which is one level's share of a path (one
tenant, one deployment), has several of them and one `ChargePolicy`: a provider counts in its own
way, and a tenant's ceiling in ours. Limits are explicit: nothing is derived from a model's name.
"""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Final, Literal, NamedTuple, TypeAlias, cast, final, get_args
from urllib.parse import quote
from zoneinfo import ZoneInfo

from chatrouting._frozen import FrozenDict
from chatrouting.errors import ConfigurationError
from chatrouting.options import Principal, check_count
from chatrouting.quota._checks import check_each, check_kind, check_mapping, check_text, is_number

REQUESTS: Final = "requests"
INPUT_TOKENS: Final = "input_tokens"
OUTPUT_TOKENS: Final = "output_tokens"
TOTAL_TOKENS: Final = "total_tokens"
CONCURRENCY: Final = "concurrency"
STREAM_SECONDS: Final = "stream_seconds"

DIMENSIONS: Final = (
    REQUESTS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    TOTAL_TOKENS,
    CONCURRENCY,
    STREAM_SECONDS,
)

#: How a dimension of one's own begins, such as "custom:images".
CUSTOM: Final = "custom:"

#: What is held while a request runs, and not used up.
_HELD: Final = frozenset({CONCURRENCY, STREAM_SECONDS})

#: Seconds of refill that a bucket hands out at once, if nothing else is said.
_BURST: Final = 5.0

LimitKind: TypeAlias = Literal["ring", "bucket", "calendar", "gauge"]
Period: TypeAlias = Literal["day", "month"]


@final
@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """At most so much of one dimension in one window.

    The kinds:
    - "ring": never more than `amount` in any `window` seconds, exactly. What a request did not use
      is given back to the moment that it was charged to.
    - "bucket": the same promise, and even pace: at most `burst` seconds' worth at once, the rest by
      refill. Gives nothing back, for time has given it back already.
    - "calendar": from midnight to midnight, or month to month, in `timezone`.
    - "gauge": at most `amount` at the same time; `window` means nothing.

    Attributes:
        dimension: One of `DIMENSIONS`, or `custom:` and a name.
        amount: More than 0. A request that needs more than this is never admitted.
        kind: If left out, a calendar if there is a period, a gauge for concurrency and stream
            seconds, otherwise a ring.
        window: Seconds, for rings and buckets.
        burst: Seconds of refill that may be spent at once, less than `window`; 5 for a bucket if
            left out. A ring with a burst is paced: what exceeds the burst waits, although the
            window has room.
        headroom: Part of `amount` that is never used, 0 <= headroom < 1. For the limits of a
            provider, to whom requests come later than they were admitted, 0.03 to 0.05.
        slots: Of a ring: charges of one `window / slots` leave the window together. More slots
            use the window better, and take more memory.
        period: Of a calendar.
        timezone: Of a calendar, such as "America/Los_Angeles".
        usable: The amount without the headroom.
    """

    dimension: str
    amount: float
    _: KW_ONLY
    # Never None: what is left out is found out when the limit is made.
    kind: LimitKind = cast("LimitKind", None)  # noqa: RUF009  # a cast calls nothing
    window: float = 60.0
    burst: float | None = None
    headroom: float = 0.0
    slots: int = 60
    period: Period | None = None
    timezone: str = "UTC"
    usable: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_dimension(self.dimension)
        given = cast("LimitKind | None", self.kind)
        kind = self._usual_kind() if given is None else given
        if kind == "bucket" and self.burst is None:
            object.__setattr__(self, "burst", _BURST)
        object.__setattr__(self, "kind", kind)
        self._check_numbers()
        self._check_kind()
        object.__setattr__(self, "usable", self.amount * (1.0 - self.headroom))

    @property
    def span(self) -> str:
        """What the amount is counted over, as a person reads it: "60 s", "day", "at once"."""
        if self.kind == "gauge":
            return "at once"
        return self.period or f"{self.window:g} s"

    def _usual_kind(self) -> LimitKind:
        if self.period is not None:
            return "calendar"
        return "gauge" if self.dimension in _HELD else "ring"

    def _check_numbers(self) -> None:
        name = f"of the limit on {self.dimension}"
        _check_positive(f"amount {name}", self.amount)
        _check_positive(f"window {name}", self.window)
        check_count(f"slots {name}", self.slots)
        if self.burst is not None:
            _check_positive(f"burst {name}", self.burst)
            if self.burst >= self.window:
                raise ConfigurationError(
                    f"burst {name} is {self.burst!r} s; expected less than its window, "
                    f"{self.window:g} s."
                )
        if not (is_number(self.headroom) and 0 <= self.headroom < 1):
            raise ConfigurationError(
                f"headroom {name} is {self.headroom!r}; expected a fraction, 0 <= headroom < 1."
            )

    def _check_kind(self) -> None:
        where = f"the limit on {self.dimension}"
        kinds = get_args(LimitKind)
        if self.kind not in kinds:
            raise ConfigurationError(
                f"kind of {where} is {self.kind!r}; expected one of {', '.join(kinds)}."
            )
        if (self.kind == "calendar") != (self.period is not None):
            raise ConfigurationError(
                f"{where} is a {self.kind} with the period {self.period!r}; a calendar, and "
                "nothing else, has one."
            )
        if self.dimension == CONCURRENCY and self.kind != "gauge":
            raise ConfigurationError(
                f"{where} is a {self.kind}; what is held and given back is a gauge."
            )
        if self.burst is not None and self.kind not in ("ring", "bucket"):
            raise ConfigurationError(f"{where} is a {self.kind} with a burst; leave burst out.")
        if self.period is not None:
            self._check_calendar(where)

    def _check_calendar(self, where: str) -> None:
        if self.period not in get_args(Period):
            raise ConfigurationError(
                f"period of {where} is {self.period!r}; expected one of "
                f"{', '.join(get_args(Period))}."
            )
        check_text(f"timezone of {where}", self.timezone)
        try:
            ZoneInfo(self.timezone)
        except (ValueError, OSError, LookupError) as error:
            raise ConfigurationError(
                f"timezone of {where} is {self.timezone!r}, which is not known here; expected a "
                'name such as "UTC" or "America/Los_Angeles". Where the system has no time zones, '
                "install tzdata."
            ) from error


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ChargePolicy:
    """How one bucket counts. The defaults are right for ceilings of our own.

    Attributes:
        output_charge: What a request is charged for output when it is admitted: the output cap,
            the estimate, or one token, so that output counts when it has been generated.
        refund: Where the unused part goes: back to the moment of the charge, or nowhere, for a
            provider that counts its own estimate. More than was charged is always charged.
        cache_reads: Whether input read from a cache counts: always; never, not even in the
            estimate; or until the request is settled.
        failed_requests: Whether a request that the provider answered with an error counts.
    """

    output_charge: Literal["cap", "estimate", "generated"] = "estimate"
    refund: Literal["origin_slot", "none"] = "origin_slot"
    cache_reads: Literal["count", "free", "release_on_settle"] = "count"
    failed_requests: Literal["count", "free"] = "count"

    def __post_init__(self) -> None:
        choices: tuple[tuple[str, object, tuple[str, ...]], ...] = (
            ("output_charge", self.output_charge, ("cap", "estimate", "generated")),
            ("refund", self.refund, ("origin_slot", "none")),
            ("cache_reads", self.cache_reads, ("count", "free", "release_on_settle")),
            ("failed_requests", self.failed_requests, ("count", "free")),
        )
        for name, value, allowed in choices:
            if value not in allowed:
                raise ConfigurationError(
                    f"{name} of a charge policy is {value!r}; expected one of {', '.join(allowed)}."
                )


@final
@dataclass(frozen=True, slots=True)
class BucketLimits:
    """All limits of one bucket, and how it counts.

    Attributes:
        limits: Several may be on one dimension, over windows of their own. None at all, written
            as an empty tuple, is a bucket without limits.
        policy: See there.
    """

    limits: tuple[QuotaLimit, ...]
    policy: ChargePolicy = ChargePolicy()

    def __post_init__(self) -> None:
        limits = check_each("limits of a bucket", self.limits, QuotaLimit, "a tuple of QuotaLimits")
        check_kind("policy of a bucket", self.policy, ChargePolicy, "a ChargePolicy")
        object.__setattr__(self, "limits", limits)


@final
@dataclass(frozen=True, slots=True)
class ProviderScope:
    """What a provider counts together. Deployments of equal scopes share one bucket.

    Attributes:
        provider: Such as "azure".
        parts: What tells this scope from others of that provider, such as subscription, region
            and deployment; workspace and model family; project and tier.
    """

    provider: str
    parts: Mapping[str, str] = FrozenDict()

    def __post_init__(self) -> None:
        check_text("provider of a scope", self.provider)
        name = f"parts of a scope of {self.provider}"
        check_mapping(name, self.parts, str, str, "a text for each name")
        object.__setattr__(self, "parts", FrozenDict(self.parts))

    def __str__(self) -> str:
        # Quoted, so that unequal scopes are unequal texts.
        parts = ",".join(
            f"{_quoted(name)}={_quoted(self.parts[name])}" for name in sorted(self.parts)
        )
        return f"{_quoted(self.provider)}:{parts}"


class Level(StrEnum):
    """Whose limit it is, from the outside in."""

    ORGANISATION = "organisation"
    TENANT = "tenant"
    TEAM = "team"
    API_KEY = "api_key"
    MODEL_PROFILE = "model_profile"
    DEPLOYMENT = "deployment"


_PRINCIPAL_LEVELS: Final = (Level.ORGANISATION, Level.TENANT, Level.TEAM, Level.API_KEY)


class BucketKey(NamedTuple):
    """Names one bucket.

    Attributes:
        level: Whose limit it is.
        id: Of the tenant, team, key, ...; of a deployment its scope, as a text.
        within: Ids of what this one belongs to, from the outside in, beginning with the first that
            is known: teams of one name in two tenants are two teams. A tenant of no organisation
            is within nothing.
    """

    level: Level
    id: str
    within: tuple[str | None, ...] = ()


def keys_of(
    principal: Principal | None = None,
    *,
    model_profile: str | None = None,
    scope: ProviderScope | None = None,
) -> tuple[BucketKey, ...]:
    """Name the buckets that a request must clear, from the outside in. What is None is left out."""
    keys: list[BucketKey] = []
    if principal is not None:
        ids = (principal.organisation, principal.tenant, principal.team, principal.api_key)
        outermost = next((depth for depth, own in enumerate(ids) if own is not None), 0)
        for depth, (level, own) in enumerate(zip(_PRINCIPAL_LEVELS, ids, strict=True)):
            if own is not None:
                keys.append(BucketKey(level, own, ids[outermost:depth]))
    if model_profile is not None:
        keys.append(BucketKey(Level.MODEL_PROFILE, model_profile))
    if scope is not None:
        keys.append(BucketKey(Level.DEPLOYMENT, str(scope)))
    return tuple(keys)


def _quoted(text: str) -> str:
    return quote(text, safe="/@ ")


def check_dimension(name: str) -> None:
    """Refuse what is no dimension.

    Raises:
        ConfigurationError: If `name` is none.
    """
    is_own = isinstance(name, str) and name.startswith(CUSTOM) and len(name) > len(CUSTOM)
    if name not in DIMENSIONS and not is_own:
        raise ConfigurationError(
            f"a limit has the dimension {name!r}; expected one of {', '.join(DIMENSIONS)}, or "
            f"{CUSTOM!r} and a name of your own."
        )


def _check_positive(name: str, value: float) -> None:
    if not (is_number(value) and 0 < value < math.inf):
        raise ConfigurationError(f"{name} is {value!r}; expected a finite number, more than 0.")
