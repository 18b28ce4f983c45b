"""What a governor is told of the deployments that it governs. Values only."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import final

from chatrouting._frozen import FrozenDict
from chatrouting.errors import ConfigurationError
from chatrouting.options import check_count
from chatrouting.quota._checks import check_each, check_kind, check_text
from chatrouting.quota.estimate import QuoteTarget
from chatrouting.quota.fairness import dominant_share
from chatrouting.quota.limits import (
    CONCURRENCY,
    OUTPUT_TOKENS,
    TOTAL_TOKENS,
    BucketLimits,
    ProviderScope,
)
from chatrouting.quota.profiles import ProviderProfile
from chatrouting.quota.quote import Quote

_MINUTE = 60.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDeployment:
    """One place that requests are sent to.

    Attributes:
        name: Unique in a governor.
        scope: Whose quota it is at the provider; deployments of equal scopes share one.
        profile: How the provider counts.
        limits: What the provider grants; see `ProviderProfile.bucket`. Explicit, always: a model's
            name tells no limit.
        model: The provider's model, for records.
        model_profile: The class of models that requests are alike by; ceilings may be on it.
        maximum_output_tokens: The most that the model writes; None if that is not known.
        capacity: What there is of each dimension in a minute, by the limits.
        target: What the estimator is told.
    """

    name: str
    scope: ProviderScope
    profile: ProviderProfile
    limits: BucketLimits
    model: str | None = None
    model_profile: str = ""
    maximum_output_tokens: int | None = None
    capacity: Mapping[str, float] = field(init=False, repr=False, compare=False)
    target: QuoteTarget = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_text("name of a deployment", self.name)
        of_this = f"of deployment {self.name!r}"
        check_kind(f"scope {of_this}", self.scope, ProviderScope, "a ProviderScope")
        check_kind(f"profile {of_this}", self.profile, ProviderProfile, "a ProviderProfile")
        check_kind(f"limits {of_this}", self.limits, BucketLimits, "BucketLimits")
        check_kind(f"model_profile {of_this}", self.model_profile, str, "a text")
        if self.model is not None:
            check_text(f"model {of_this}", self.model)
        if self.maximum_output_tokens is not None:
            check_count("maximum_output_tokens", self.maximum_output_tokens)
        # Here and not at each request, of which every one asks twice.
        object.__setattr__(self, "capacity", FrozenDict(capacity_of(self.limits)))
        target = QuoteTarget(
            deployment=self.name,
            profile=self.profile,
            model_profile=self.model_profile,
            maximum_output_tokens=self.maximum_output_tokens,
            largest_output_tokens=self._largest_output(),
        )
        object.__setattr__(self, "target", target)

    def _largest_output(self) -> int | None:
        sizes = [
            limit.usable
            for limit in self.limits.limits
            if limit.dimension in (OUTPUT_TOKENS, TOTAL_TOKENS)
        ]
        return max(1, int(min(sizes))) if sizes else None

    def share_of(self, quote: Quote, costs: Mapping[str, float]) -> float:
        """Return what a request takes of the deployment, in minutes of all of it.

        Args:
            quote: For how long it holds what it holds.
            costs: What the deployment charges for it, by dimension.
        """
        if CONCURRENCY in self.capacity:
            costs = {**costs, CONCURRENCY: costs.get(CONCURRENCY, 0.0) * quote.duration.value}
        return dominant_share(costs, self.capacity)


def capacity_of(limits: BucketLimits) -> dict[str, float]:
    """Return what there is of each dimension in a minute; of slots, slot seconds."""
    found: dict[str, float] = {}
    for limit in limits.limits:
        if limit.kind == "calendar" or (limit.kind == "gauge" and limit.dimension != CONCURRENCY):
            continue
        seconds = 1.0 if limit.kind == "gauge" else limit.window
        capacity = limit.usable * _MINUTE / seconds
        found[limit.dimension] = min(capacity, found.get(limit.dimension, math.inf))
    return found


def scaled(limits: BucketLimits, share: float) -> BucketLimits:
    """Return limits of which only a share may be used; slots stay."""
    if share >= 1.0:
        return limits
    return replace(
        limits,
        limits=tuple(
            limit if limit.kind == "gauge" else replace(limit, amount=limit.amount * share)
            for limit in limits.limits
        ),
    )


def by_name(deployments: Iterable[QuotaDeployment]) -> dict[str, QuotaDeployment]:
    """Return deployments by their names.

    Raises:
        ConfigurationError: If two have one name, or one scope but not the same limits, or
            something is no deployment.
    """
    deployments = check_each("deployments", deployments, QuotaDeployment, "QuotaDeployment objects")
    found: dict[str, QuotaDeployment] = {}
    limits: dict[ProviderScope, QuotaDeployment] = {}
    for each in deployments:
        if each.name in found:
            raise ConfigurationError(
                f"deployment {each.name!r} is given twice; names must be unique in a governor."
            )
        found[each.name] = each
        first = limits.setdefault(each.scope, each)
        if first.limits != each.limits:
            raise ConfigurationError(
                f"deployments {first.name!r} and {each.name!r} share the quota {each.scope}, but "
                "not its limits; give both the same ones."
            )
    return found
