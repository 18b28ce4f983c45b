"""What is worth knowing of limits that are valid: promises that are softer than they look, gaps."""

from collections.abc import Iterator
from typing import Final

from chatrouting.quota.deployments import QuotaDeployment, capacity_of
from chatrouting.quota.guarantees import GuaranteeKind, Portion, TenantGuarantee
from chatrouting.quota.limits import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUESTS,
    TOTAL_TOKENS,
    BucketLimits,
)
from chatrouting.quota.limits_file import LimitsFile

__all__ = ["advise"]

_MOST: Final = 5
#: Seconds of a window in which somebody may wait too long for the next one.
_LONG: Final = 30.0
_TOKENS: Final = (INPUT_TOKENS, OUTPUT_TOKENS, TOTAL_TOKENS)


def advise(limits: LimitsFile) -> list[str]:
    """Return what is worth knowing, a sentence or two each."""
    return [
        *_settings(limits),
        *(told for each in limits.deployments for told in _deployment(each)),
        *_ceilings(limits),
        *_guarantees(limits),
    ]


def _settings(limits: LimitsFile) -> Iterator[str]:
    if limits.settings.get("shadow"):
        yield "shadow is true: everything is decided and counted, and nothing is refused."
    watched = limits.settings.get("watched", ())
    if watched:
        yield f"watched: buckets of {', '.join(watched)} refuse nothing."


def _deployment(each: QuotaDeployment) -> Iterator[str]:
    counted = each.profile.dimensions
    limited = {limit.dimension for limit in each.limits.limits}
    if not limited & set(_TOKENS):
        missing = [name for name in counted if name in _TOKENS]
    else:
        apart = {INPUT_TOKENS, OUTPUT_TOKENS} & set(counted)
        missing = [] if TOTAL_TOKENS in limited else sorted(apart - limited)
    if REQUESTS in counted and REQUESTS not in limited:
        missing.insert(0, REQUESTS)
    if missing:
        yield (
            f"{each.name}: {each.profile.name} counts {' and '.join(missing)}, and there is no "
            "limit on that here; it may refuse what is admitted."
        )
    unpaced = [
        limit.dimension
        for limit in each.limits.limits
        if limit.kind == "ring" and limit.burst is None and limit.window >= _LONG
    ]
    if unpaced:
        yield (
            f"{each.name}: {' and '.join(dict.fromkeys(unpaced))} may be used up in a moment, and "
            "whoever comes then waits for the rest of the window, however urgent it is. A burst "
            "of 5 spreads it."
        )
    if each.profile.unset_cap == "model_maximum":
        yield from _without_cap(each)


def _without_cap(each: QuotaDeployment) -> Iterator[str]:
    maximum = each.maximum_output_tokens
    if maximum is None:
        yield (
            f"{each.name}: {each.profile.name} charges a request without an output cap for the "
            "longest answer of the model, and maximum_output_tokens does not say how long that is."
        )
        return
    for limit in each.limits.limits:
        if limit.dimension in (OUTPUT_TOKENS, TOTAL_TOKENS) and maximum >= limit.usable:
            yield (
                f"{each.name}: a request without an output cap is charged {maximum:,} tokens and "
                f"never fits into {limit.usable:,.0f} {limit.dimension}; send caps."
            )


def _ceilings(limits: LimitsFile) -> Iterator[str]:
    scopes = {each.scope: capacity_of(each.limits) for each in limits.deployments}
    capacity = {
        name: sum(each[name] for each in scopes.values())
        for name in next(iter(scopes.values()))
        if all(name in each for each in scopes.values())
    }
    named = [(f"{key.level.value} {key.id}", each) for key, each in limits.ceilings.items()]
    yield from (told for name, each in named for told in _never_binds(name, each, capacity))


def _never_binds(name: str, bucket: BucketLimits, capacity: dict[str, float]) -> Iterator[str]:
    for dimension, amount in capacity_of(bucket).items():
        if amount > capacity.get(dimension, float("inf")):
            yield (
                f"{name}: its ceiling of {amount:,.0f} {dimension} is above what all deployments "
                f"have, {capacity[dimension]:,.0f}; it never binds."
            )


def _guarantees(limits: LimitsFile) -> Iterator[str]:
    if not any(contract.share for contract in limits.contracts.values()):
        return
    unstated = sorted(
        {
            limit.dimension
            for each in limits.deployments
            for limit in each.limits.limits
            if limit.dimension in _TOKENS and limit.dimension not in limits.largest_request
        }
    )
    if unstated:
        yield (
            f"largest_request does not say how many {' and '.join(unstated)} a request takes; "
            "guarantees are called instant as if every request fitted into every burst."
        )
    governor = limits.make_governor()
    for each in limits.deployments:
        plan = governor.guarantees(each.name)
        slow = [
            guarantee
            for guarantee in plan.guarantees.values()
            if guarantee.kind is GuaranteeKind.LONG_RUN
        ]
        yield from (_slow(guarantee, each.name) for guarantee in slow[:_MOST])
        if len(slow) > _MOST:
            yield (
                f"{len(slow) - _MOST} more tenants have no instant guarantee at {each.name} either."
            )


def _slow(guarantee: TenantGuarantee, deployment: str) -> str:
    portion = next(each for each in guarantee.portions if not each.is_instant)
    return (
        f"{guarantee.tenant} has no instant guarantee at {deployment}: {_why(portion)}. What it is "
        "promised holds on average; raise its share or burst_share, or lower largest_request."
    )


def _why(portion: Portion) -> str:
    largest, burst = portion.largest_request or 0.0, portion.burst
    return (
        f"a request takes up to {largest:,.4g} of {portion.dimension} over {portion.span}, and it "
        f"may spend {burst:,.4g} at once"
    )
