"""What tenants are promised of a deployment, and whether all promises can be kept at once.

A contract gives a tenant a share of every limit of a deployment. In any window the share is its
`burst`, which it may spend at once, and a refill. `plan` does the sums when a governor is built,
and says which guarantee each tenant gets:

- *instant*: a request within the share starts at once, whatever others do;
- *long run*: the share holds on average. The burst is smaller than the tenant's largest request,
  so one request may have to wait for its turn. Thousands of small tenants have to be content with
  that: their bursts together would fill the window.

A part of each limit, the pool, belongs to nobody. Without it nothing could be lent while every
tenant may come back at any moment. Calendar limits are not shared out: what is used of a day stays
used, whoever did it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from chatrouting.errors import ConfigurationError
from chatrouting.quota._checks import check_mapping, check_number, is_number
from chatrouting.quota.limits import CONCURRENCY, REQUESTS, QuotaLimit, check_dimension

#: Part of each limit that may be spent at once by all guarantees together, if they do not say.
_BURSTS: Final = 0.1

#: Part of a paced burst that the guarantees leave to the pool.
_HALF: Final = 0.5

_ROUNDING: Final = 1e-9


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TenantContract:
    """What one tenant has been promised.

    Attributes:
        weight: Its part of what is shared out beyond guarantees, beside other tenants that wait;
            more than 0.
        share: Part of every limit of a deployment that is its own, 0 <= share < 1.
        burst_share: Part of every limit that it may spend at once, less than `share`; None: a
            tenth of the share, less where the provider paces.
    """

    weight: float = 1.0
    share: float = 0.0
    burst_share: float | None = None

    def __post_init__(self) -> None:
        check_number("weight of a contract", self.weight, above=0)
        if not (is_number(self.share) and 0 <= self.share < 1):
            raise ConfigurationError(
                f"share of a contract is {self.share!r}; expected a fraction, 0 <= share < 1."
            )
        burst = self.burst_share
        if burst is not None and not (is_number(burst) and 0 < burst < self.share):
            raise ConfigurationError(
                f"burst_share of a contract is {burst!r} with the share {self.share!r}; expected "
                "a fraction, more than 0 and less than the share."
            )


class GuaranteeKind(StrEnum):
    """How firm a promise is."""

    NONE = "none"
    LONG_RUN = "long_run"
    INSTANT = "instant"


@final
@dataclass(frozen=True, slots=True)
class Portion:
    """One tenant's portion of one limit.

    Attributes:
        dimension: What is limited.
        span: Over what, as a person reads it.
        amount: Its own of each window, burst and refill together; of a gauge, what is kept free.
        burst: What it may spend at once.
        rate: Refill, in a second; 0 for a gauge.
        largest_request: What one request of it may take, as far as that was stated.
    """

    dimension: str
    span: str
    amount: float
    burst: float
    rate: float
    largest_request: float | None

    @property
    def is_instant(self) -> bool:
        """Whether its largest request fits into the burst."""
        largest = 0.0 if self.largest_request is None else self.largest_request
        return self.burst > 0 and largest <= self.burst * (1 + _ROUNDING)


@final
@dataclass(frozen=True, slots=True)
class TenantGuarantee:
    """What one tenant gets of one deployment.

    Attributes:
        tenant: Whose it is.
        kind: The weakest over its portions.
        weight: Its weight beyond the guarantee.
        portions: One for each limit that is shared out.
    """

    tenant: str
    kind: GuaranteeKind
    weight: float
    portions: tuple[Portion, ...]


@final
@dataclass(frozen=True, slots=True)
class GuaranteePlan:
    """The promises on one deployment, all of which can be kept at once.

    Attributes:
        limits: Those that are shared out, in the order of the portions.
        pool_share: Part of each that belongs to nobody; what no contract claims comes to it.
        guarantees: By tenant.
    """

    limits: tuple[QuotaLimit, ...]
    pool_share: float
    guarantees: Mapping[str, TenantGuarantee]

    @property
    def is_empty(self) -> bool:
        """Whether nobody has been promised anything."""
        return all(each.kind is GuaranteeKind.NONE for each in self.guarantees.values())

    def pool(self, limit: QuotaLimit) -> float:
        """Return how much of a limit may be borrowed at once without touching a guarantee."""
        return limit.usable * self.pool_share


def plan(
    limits: Iterable[QuotaLimit],
    contracts: Mapping[str, TenantContract],
    *,
    pool_share: float = 0.05,
    largest_request: Mapping[str, float] | None = None,
) -> GuaranteePlan:
    """Check the contracts against a deployment's limits, and say what each tenant gets.

    Args:
        limits: Of the deployment.
        contracts: By tenant.
        pool_share: Part of each limit that no contract may claim, 0 < pool_share <= 1.
        largest_request: The most that one request takes, by dimension; one request and one slot
            if left out. What is not stated is taken to fit into every burst.

    Raises:
        ConfigurationError: If the promises exceed what there is.
    """
    check_contracts(contracts)
    _check_largest(largest_request or {})
    if not (is_number(pool_share) and 0 < pool_share <= 1):
        raise ConfigurationError(
            f"pool_share is {pool_share!r}; expected a fraction, 0 < pool_share <= 1."
        )
    claimed = sum(contract.share for contract in contracts.values())
    if claimed > 1 - pool_share + _ROUNDING:
        raise ConfigurationError(
            f"the guarantees of {len(contracts)} tenants add up to {claimed:.4g} of the capacity; "
            f"at most {1 - pool_share:.4g} can be promised beside a pool of {pool_share:.4g}. "
            "Lower their shares, or the pool."
        )
    largest = {REQUESTS: 1.0, CONCURRENCY: 1.0, **(largest_request or {})}
    shared_out = tuple(each for each in limits if each.kind != "calendar")
    portions = {
        tenant: tuple(_portion(contract, limit, largest) for limit in shared_out)
        for tenant, contract in contracts.items()
    }
    for place, limit in enumerate(shared_out):
        each_has = [each[place] for each in portions.values()]
        _check_bursts(limit, each_has, limit.usable * (1 - claimed))
    return GuaranteePlan(
        limits=shared_out,
        pool_share=1 - claimed,
        guarantees={
            tenant: TenantGuarantee(
                tenant, _kind(contract, portions[tenant]), contract.weight, portions[tenant]
            )
            for tenant, contract in contracts.items()
        },
    )


def check_contracts(contracts: Mapping[str, TenantContract]) -> None:
    """Refuse what are no contracts.

    Raises:
        TypeError: If it is None.
        ConfigurationError: If it is something else.
    """
    check_mapping("contracts", contracts, str, TenantContract, "a TenantContract for each tenant")


def _check_largest(largest_request: Mapping[str, float]) -> None:
    check_mapping("largest_request", largest_request, str, object, "an amount for each dimension")
    for dimension, amount in largest_request.items():
        check_dimension(dimension)
        check_number(f"{dimension} of the largest request", amount, above=0)


def burst_capacity(limit: QuotaLimit) -> float:
    """Return how much of a limit can be spent in one moment."""
    if limit.burst is None:
        return limit.usable
    return limit.usable * limit.burst / limit.window


def refill(limit: QuotaLimit) -> float:
    """Return how much of a limit comes back in a second, beside what can be spent at once."""
    kept = burst_capacity(limit) if limit.kind == "bucket" else 0.0
    return (limit.usable - kept) / limit.window


def _portion(contract: TenantContract, limit: QuotaLimit, largest: Mapping[str, float]) -> Portion:
    amount = contract.share * limit.usable
    stated = largest.get(limit.dimension)
    if limit.kind == "gauge":
        # Half a slot is no slot.
        kept = math.floor(amount + _ROUNDING) if limit.dimension == CONCURRENCY else amount
        return Portion(limit.dimension, limit.span, kept, kept, 0.0, stated)
    if contract.burst_share is None:
        at_once = min(_BURSTS, _HALF * burst_capacity(limit) / limit.usable)
        burst = amount * at_once
    else:
        burst = contract.burst_share * limit.usable
    rate = (amount - burst) / limit.window
    return Portion(limit.dimension, limit.span, amount, burst, rate, stated)


def _kind(contract: TenantContract, portions: tuple[Portion, ...]) -> GuaranteeKind:
    if contract.share == 0 or not portions:
        return GuaranteeKind.NONE
    if all(portion.is_instant for portion in portions):
        return GuaranteeKind.INSTANT
    return GuaranteeKind.LONG_RUN


def _check_bursts(limit: QuotaLimit, portions: list[Portion], pool: float) -> None:
    """Refuse what a paced limit cannot hand out as fast as it was promised."""
    bursts = sum(each.burst for each in portions)
    rates = sum(each.rate for each in portions)
    where = f"the limit on {limit.dimension} over {limit.span}"
    if bursts > burst_capacity(limit) * (1 + _ROUNDING):
        raise ConfigurationError(
            f"the bursts of all guarantees add up to {bursts:g} at once, and {where} hands out "
            f"{burst_capacity(limit):g}. Lower their burst_share, or let the limit burst more."
        )
    if rates > refill(limit) * (1 + _ROUNDING):
        raise ConfigurationError(
            f"the guarantees add up to {rates:g} in a second, and {where} comes back at "
            f"{refill(limit):g}. Lower their shares, or the limit's burst."
        )
    in_slot = rates * limit.window / limit.slots
    if limit.kind == "ring" and in_slot >= pool:
        raise ConfigurationError(
            f"the pool of {where} is {pool:g}, and the guarantees refill {in_slot:g} in one slot, "
            "so that nothing could be lent. Raise pool_share, or the limit's slots."
        )
