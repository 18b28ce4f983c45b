"""Reads a governor's settings from a TOML file, as `docs/quota.md` describes it.

Whatever is wrong is a `ConfigurationError` that names the file, the table and the key. Nothing is
read from the environment, and no secret belongs there.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast, final

from chatrouting._frozen import FrozenDict
from chatrouting.errors import ConfigurationError
from chatrouting.options import Principal
from chatrouting.quota import deployments as known_deployments
from chatrouting.quota._checks import check_kind, check_number
from chatrouting.quota._core import DecisionListener
from chatrouting.quota.classes import DEFAULT_CLASSES, TrafficClass
from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.estimate import Estimator
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.guarantees import TenantContract, plan
from chatrouting.quota.limits import (
    BucketKey,
    BucketLimits,
    ChargePolicy,
    Level,
    QuotaLimit,
    check_dimension,
    keys_of,
)
from chatrouting.quota.profiles import provider_profile
from chatrouting.quota.tables import (
    ANYTHING,
    COUNT,
    FLAG,
    NUMBER,
    TABLE,
    TEXT,
    TEXTS,
    Kind,
    Tables,
)

_SETTINGS: Final[Mapping[str, Kind]] = {
    "default_class": TEXT,
    "pool_share": NUMBER,
    "cold_share": NUMBER,
    "lease": NUMBER,
    "shadow": FLAG,
    "watched": TEXTS,
}
_TABLES: Final[Mapping[str, Kind]] = {
    "deployments": TABLE,
    "ceilings": ANYTHING,
    "contracts": TABLE,
    "classes": TABLE,
    "largest_request": TABLE,
    "simulation": TABLE,
}
_DEPLOYMENT: Final[Mapping[str, Kind]] = {
    "profile": TEXT,
    "scope": TABLE,
    "limits": TABLE,
    "model": TEXT,
    "model_profile": TEXT,
    "maximum_output_tokens": COUNT,
    "headroom": NUMBER,
    "jitter": NUMBER,
}
_LIMIT: Final[Mapping[str, Kind]] = {
    "amount": NUMBER,
    "kind": TEXT,
    "window": NUMBER,
    "burst": NUMBER,
    "headroom": NUMBER,
    "slots": COUNT,
    "period": TEXT,
    "timezone": TEXT,
}
_PRINCIPAL: Final = ("organisation", "tenant", "team", "api_key")
_POLICY: Final = ("output_charge", "refund", "cache_reads", "failed_requests")
_CEILING: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(_PRINCIPAL, TEXT),
    "model_profile": TEXT,
    "level": TEXT,
    "limits": TABLE,
    **dict.fromkeys(_POLICY, TEXT),
}
_CONTRACT: Final[Mapping[str, Kind]] = {"weight": NUMBER, "share": NUMBER, "burst_share": NUMBER}
_CLASS: Final[Mapping[str, Kind]] = {
    "weight": NUMBER,
    "is_control": FLAG,
    "max_queue_items": COUNT,
    "max_queue_tokens": COUNT,
    "max_wait": NUMBER,
    "may_use_guarantee": FLAG,
    "may_borrow": FLAG,
    "borrowed_max_stream": NUMBER,
    "is_preemptible": FLAG,
    "on_pressure": TEXTS,
    "downgrade_profile": TEXT,
    "min_output_tokens": COUNT,
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsFile:
    """What a governor is made of, as a file says it.

    Attributes:
        source: The file's name.
        deployments: What is governed.
        granted: What the provider grants each of them, without the margins that are left free.
        ceilings: Limits of those that are named.
        default_ceilings: Limits of the others, by level.
        contracts: By tenant.
        classes: The usual ones, as the file changes them, and those that it adds.
        largest_request: The most that one request takes, by dimension.
        settings: Further arguments of the governor, as far as they are given.
        simulation: What the file says of a load to be played; not looked at here.
    """

    source: str
    deployments: tuple[QuotaDeployment, ...]
    granted: Mapping[str, tuple[QuotaLimit, ...]]
    ceilings: Mapping[BucketKey, BucketLimits]
    default_ceilings: Mapping[Level, BucketLimits]
    contracts: Mapping[str, TenantContract]
    classes: tuple[TrafficClass, ...]
    largest_request: Mapping[str, float]
    settings: Mapping[str, Any]
    simulation: Mapping[str, Any]

    @property
    def pool_share(self) -> float:
        """Part of each limit that no contract may claim."""
        return float(self.settings.get("pool_share", 0.05))

    def make_governor(
        self,
        *,
        estimator: Estimator | None = None,
        on_decision: DecisionListener | None = None,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> QuotaGovernor:
        """Make a governor. The arguments are those of `QuotaGovernor`."""
        return QuotaGovernor(
            self.deployments,
            ceilings=self.ceilings,
            default_ceilings=self.default_ceilings,
            contracts=self.contracts,
            classes=self.classes,
            largest_request=self.largest_request,
            estimator=estimator,
            on_decision=on_decision,
            clock=clock,
            wall_clock=wall_clock,
            **self.settings,
        )


def read_limits_file(path: str | PathLike[str]) -> LimitsFile:
    """Read a file.

    Raises:
        ConfigurationError: If it cannot be read, or something in it is wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is no UTF-8 text; save it as such.") from error
    return parse_limits(text, source=str(path))


def parse_limits(text: str, *, source: str = "limits") -> LimitsFile:
    """Read the text of a file.

    Args:
        text: TOML.
        source: What complaints call it.

    Raises:
        ConfigurationError: If something in it is wrong.
    """
    check_kind("text", text, str, "the text of a file; `read_limits_file` reads one")
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{source} is no TOML: {error}.") from error
    root = Tables(found, source)
    values = root.values({**_SETTINGS, **_TABLES})
    ceilings, default_ceilings = _ceilings(root)
    limits = LimitsFile(
        source=source,
        deployments=_deployments(root),
        granted={name: _limits(each.table("limits")) for name, each in root.tables("deployments")},
        ceilings=ceilings,
        default_ceilings=default_ceilings,
        contracts=_contracts(root),
        classes=_classes(root),
        largest_request=_largest(root),
        settings=_settings(root, {key: values[key] for key in _SETTINGS if key in values}),
        simulation=FrozenDict(values.get("simulation", {})),
    )
    with root.named():
        plan((), {}, pool_share=limits.pool_share)
    _check_guarantees(limits, root)
    _check_largest(limits, root)
    with root.named():
        limits.make_governor()
    return limits


def _settings(root: Tables, values: dict[str, Any]) -> Mapping[str, Any]:
    if "watched" in values:
        with root.named("watched"):
            values["watched"] = tuple(_level(name) for name in values["watched"])
    return FrozenDict(values)


def _deployments(root: Tables) -> tuple[QuotaDeployment, ...]:
    found = tuple(_deployment(name, table) for name, table in root.tables("deployments"))
    if not found:
        raise ConfigurationError(
            f"{root.where} has no deployments; expected a table [deployments.NAME] for each, with "
            "profile, scope and limits."
        )
    with root.table("deployments").named():
        known_deployments.by_name(found)
    return found


def _deployment(name: str, table: Tables) -> QuotaDeployment:
    values = table.values(_DEPLOYMENT, required=("profile", "scope", "limits"))
    with table.named("profile"):
        profile = provider_profile(values.pop("profile"))
    scope = table.table("scope")
    parts = scope.values(dict.fromkeys(values.pop("scope"), TEXT))
    with scope.named():
        quota = profile.scope(**parts)
    limits = _limits(table.table("limits"))
    margins = {key: values.pop(key) for key in ("headroom", "jitter") if key in values}
    del values["limits"]
    with table.named("limits"):
        bucket = profile.bucket(*limits, **margins)
    with table.named():
        return QuotaDeployment(name=name, scope=quota, profile=profile, limits=bucket, **values)


def _limits(table: Tables) -> tuple[QuotaLimit, ...]:
    """Read limits: a number for a minute, a table, or several of those for one dimension."""
    found: list[QuotaLimit] = []
    for dimension, value in table.items():
        if isinstance(value, dict):
            found.append(_limit(dimension, table.table(dimension)))
        elif isinstance(value, list):
            found += [_limit(dimension, each) for each in table.each(dimension)]
        else:
            with table.named(dimension):
                # Whether it is a number at all, the limit finds out.
                found.append(QuotaLimit(dimension, cast("float", value)))
    return tuple(found)


def _limit(dimension: str, table: Tables) -> QuotaLimit:
    values = table.values(_LIMIT, required=("amount",))
    with table.named():
        return QuotaLimit(dimension, **values)


def _ceilings(
    root: Tables,
) -> tuple[Mapping[BucketKey, BucketLimits], Mapping[Level, BucketLimits]]:
    named: dict[BucketKey, BucketLimits] = {}
    defaults: dict[Level, BucketLimits] = {}
    for table in root.each("ceilings"):
        values = table.values(_CEILING, required=("limits",))
        limits = _limits(table.table("limits"))
        if not limits:
            raise ConfigurationError(f"{table.where}: limits is empty; expected one at least.")
        policy = {key: values[key] for key in _POLICY if key in values}
        with table.named():
            bucket = BucketLimits(limits, ChargePolicy(**policy))
            key = _whose(values)
            if key in named or key in defaults:
                raise ConfigurationError("it is given twice; give all limits in one of the tables.")
        if isinstance(key, Level):
            defaults[key] = bucket
        else:
            named[key] = bucket
    return named, defaults


def _whose(values: Mapping[str, Any]) -> BucketKey | Level:
    """Return whom a ceiling is for: one that is named, or all of a level."""
    ids = {key: values[key] for key in _PRINCIPAL if key in values}
    ways = [bool(ids), "model_profile" in values, "level" in values]
    if sum(ways) != 1:
        raise ConfigurationError(
            "it does not say for whom it is; expected ids (organisation, tenant, team, api_key), "
            "or a model_profile, or a level, for all of that level that have no own."
        )
    if "level" in values:
        return _level(values["level"])
    principal = Principal(**ids) if ids else None
    return keys_of(principal, model_profile=values.get("model_profile"))[-1]


def _level(name: str) -> Level:
    try:
        return Level(name)
    except ValueError:
        raise ConfigurationError(
            f"the level is {name!r}; expected one of {', '.join(Level)}."
        ) from None


def _contracts(root: Tables) -> Mapping[str, TenantContract]:
    found: dict[str, TenantContract] = {}
    for tenant, table in root.tables("contracts"):
        values = table.values(_CONTRACT)
        with table.named():
            found[tenant] = TenantContract(**values)
    return found


def _classes(root: Tables) -> tuple[TrafficClass, ...]:
    found = dict(DEFAULT_CLASSES)
    for name, table in root.tables("classes"):
        values = table.values(_CLASS)
        with table.named():
            found[name] = replace(found.get(name) or TrafficClass(name=name), **values)
    return tuple(found.values())


def _largest(root: Tables) -> Mapping[str, float]:
    table = root.table("largest_request")
    values = table.values({dimension: NUMBER for dimension, _ in table.items()})
    for dimension, amount in values.items():
        with table.named():
            check_dimension(dimension)
            check_number(dimension, amount, above=0)
    return FrozenDict(values)


def _check_guarantees(limits: LimitsFile, root: Tables) -> None:
    for each in limits.deployments:
        with root.table("contracts").named(f"at deployment {each.name!r}"):
            plan(
                each.limits.limits,
                limits.contracts,
                pool_share=limits.pool_share,
                largest_request=limits.largest_request,
            )


def _check_largest(limits: LimitsFile, root: Tables) -> None:
    """Refuse limits that the largest request never fits into."""
    buckets = [
        *((f"deployment {each.name!r}", each.limits) for each in limits.deployments),
        *((f"{key.level} {key.id!r}", bucket) for key, bucket in limits.ceilings.items()),
        *((f"every {level}", bucket) for level, bucket in limits.default_ceilings.items()),
    ]
    for name, bucket in buckets:
        for limit in bucket.limits:
            needed = limits.largest_request.get(limit.dimension, 0.0)
            if needed > limit.usable:
                raise ConfigurationError(
                    f"{root.table('largest_request').where}: a request of {needed:g} "
                    f"{limit.dimension} never fits into the limit of {name}, {limit.usable:g} over "
                    f"{limit.span}. Raise the limit, or lower what a request may take."
                )
