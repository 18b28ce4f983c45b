"""What a request costs in a bucket: the bucket's policy applied to estimates, and to what was used.

A request is described once, by its *charges*; every bucket reads them in its own way. They are
amounts by dimension, and two more that only policies look at: `OUTPUT_CAP` and
`CACHE_READ_TOKENS`. Total tokens are worked out here, since what counts as input and output is the
policy's to say.
"""

from collections.abc import Mapping
from math import inf
from typing import Final

from chatrouting.quota.limits import INPUT_TOKENS, OUTPUT_TOKENS, TOTAL_TOKENS, ChargePolicy

#: The most output that the request lets the model write.
OUTPUT_CAP: Final = "output_cap"
#: The part of the input that is read from a cache.
CACHE_READ_TOKENS: Final = "cache_read_tokens"

#: More than any request uses, and counted exactly; far more would leave no room for other digits.
_MOST: Final = 2**53

_OF_POLICIES: Final = frozenset(
    {INPUT_TOKENS, OUTPUT_TOKENS, TOTAL_TOKENS, OUTPUT_CAP, CACHE_READ_TOKENS}
)


def check_charges(charges: Mapping[str, float]) -> None:
    """Refuse amounts that no request can have.

    Raises:
        ValueError: If one is negative, infinite or no number.
    """
    for amount in charges.values():
        if not 0 <= amount < inf:
            dimension = next(name for name, each in charges.items() if not 0 <= each < inf)
            raise ValueError(
                f"a request is charged {amount!r} of {dimension}; expected a finite number, "
                "at least 0."
            )


def admission_costs(policy: ChargePolicy, charges: Mapping[str, float]) -> dict[str, float]:
    """Return what to charge before a request is sent, by dimension.

    Without an output cap, the estimate of the output stands for it.
    """
    costs = dict(charges)
    costs.pop(OUTPUT_CAP, None)
    costs.pop(CACHE_READ_TOKENS, None)
    if INPUT_TOKENS not in charges and OUTPUT_TOKENS not in charges:
        costs[TOTAL_TOKENS] = charges.get(TOTAL_TOKENS, 0.0)
        return costs
    tokens = charges.get(INPUT_TOKENS, 0.0)
    if policy.cache_reads == "free":
        tokens = max(0.0, tokens - charges.get(CACHE_READ_TOKENS, 0.0))
    output = charges.get(OUTPUT_TOKENS, 0.0)
    if policy.output_charge == "cap":
        output = charges.get(OUTPUT_CAP, output)
    elif policy.output_charge == "generated":
        # Not nothing: a bucket that is full must refuse also what is charged later.
        output = min(1.0, output)
    costs[INPUT_TOKENS] = tokens
    costs[OUTPUT_TOKENS] = output
    costs[TOTAL_TOKENS] = tokens + output
    return costs


def settlement_costs(
    policy: ChargePolicy,
    charges: Mapping[str, float],
    charged: Mapping[str, float],
    actual: Mapping[str, float],
    *,
    failed: bool,
) -> Mapping[str, float]:
    """Return what a request that was sent costs in the end, by dimension.

    Args:
        policy: Of the bucket.
        charges: The estimates.
        charged: What `admission_costs` made of them.
        actual: What was used, as far as it is known; for the rest the estimate stays.
        failed: The provider answered with an error.
    """
    if failed and policy.failed_requests == "free":
        return {}
    costs = dict(charged)
    for name, amount in actual.items():
        if name not in _OF_POLICIES:
            costs[name] = amount  # noqa: PERF403  # there are hardly ever any
    if INPUT_TOKENS in charged:
        tokens = _input(policy, charged, actual)
        output = _output(policy, charges, charged, actual, failed=failed)
        costs[INPUT_TOKENS] = tokens
        costs[OUTPUT_TOKENS] = output
        costs[TOTAL_TOKENS] = tokens + output
    elif TOTAL_TOKENS in actual:
        costs[TOTAL_TOKENS] = actual[TOTAL_TOKENS]
    if policy.refund == "none":
        return {name: max(cost, charged.get(name, 0.0)) for name, cost in costs.items()}
    return costs


def _input(
    policy: ChargePolicy, charged: Mapping[str, float], actual: Mapping[str, float]
) -> float:
    tokens = actual.get(INPUT_TOKENS)
    if tokens is None:
        return charged[INPUT_TOKENS]
    if policy.cache_reads == "count":
        return tokens
    return max(0.0, tokens - actual.get(CACHE_READ_TOKENS, 0.0))


def _output(
    policy: ChargePolicy,
    charges: Mapping[str, float],
    charged: Mapping[str, float],
    actual: Mapping[str, float],
    *,
    failed: bool,
) -> float:
    output = actual.get(OUTPUT_TOKENS)
    if output is not None:
        return output
    if policy.output_charge == "generated":
        # Hardly anything has been charged; if nobody says how much it was, the estimate is.
        return 0.0 if failed else charges.get(OUTPUT_TOKENS, 0.0)
    return charged[OUTPUT_TOKENS]


def known(actual: Mapping[str, float] | None) -> Mapping[str, float]:
    """Return the amounts that can be believed: what a provider says may be anything."""
    if actual is None:
        return {}
    for amount in actual.values():
        if not 0 <= amount <= _MOST:
            return {name: each for name, each in actual.items() if 0 <= each <= _MOST}
    return actual
