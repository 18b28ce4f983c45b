"""Guarantee, borrowing and reclaim on one deployment, by overflow donation.

Each tenant with a contract has an assured level for each limit (`levels`). A request within the
level is *guaranteed*. Every other request *borrows*: what would overflow a full level is nobody's,
and what nobody can claim in time may be had (`timeline`). So what a tenant does not use is lent,
and lending stops in the moment in which the tenant spends again. Nothing is taken from anybody.

A tenant whose level is full may make a request larger than that: the level goes below 0, and the
excess is borrowed. Gauges know no refill; there a part is kept free for those with contracts.
Pure; time is an argument.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, final

from chatrouting.quota.guarantees import GuaranteeKind, GuaranteePlan, Portion
from chatrouting.quota.levels import Levels
from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.timeline import Timeline

#: Rounding refuses nobody, as a part of an amount.
_ROUNDING: Final = 1e-9


@final
@dataclass(eq=False, slots=True)
class Funding:
    """What pays for one request.

    Attributes:
        tenant: Whose assured levels; None if it is borrowed.
        charges: What the deployment was charged, by dimension.
        charged_at: When.
        holds_slots: It counts in gauges.
    """

    tenant: str | None
    charges: Mapping[str, float]
    charged_at: float
    holds_slots: bool = True


@final
class _Rate:
    """One limit over a window, as far as it is shared out."""

    def __init__(self, limit: QuotaLimit, portions: Mapping[str, Portion], now: float) -> None:
        self.limit = limit
        self.portions = portions
        self.levels = Levels(portions, now)
        self._bursts = sum(each.burst for each in portions.values())
        self.pool = limit.usable - self._bursts
        rates = sum(each.rate for each in portions.values())
        self.timeline = Timeline(limit, self._bursts, rates) if limit.kind == "ring" else None
        # What may be lent, and when amounts may be, as of an instant: a line of requests asks for
        # all of them in one moment. None once something has changed.
        self._lendable: tuple[float, float, dict[float, float]] | None = None

    def assured(self, tenant: str, now: float) -> float:
        return max(0.0, self.levels.level(tenant, now))

    def covered_in(self, tenant: str, amount: float, now: float) -> float:
        portion = self.portions[tenant]
        # A full level covers any one request.
        needed = min(amount, portion.burst)
        missing = needed - self.levels.level(tenant, now)
        return missing / portion.rate if missing > needed * _ROUNDING else 0.0

    def lent_in(self, amount: float, now: float) -> float:
        if self.timeline is None:
            return 0.0
        lendable = self._lendable
        if lendable is None or lendable[0] != now:
            free = self.timeline.borrowable(self.levels.total(now), now)
            lendable = self._lendable = now, free, {}
        _, free, waits = lendable
        amount = min(amount, self.timeline.largest)
        if amount <= free:
            return 0.0
        wait = waits.get(amount)
        if wait is None:
            wait = waits[amount] = self.timeline.borrowable_at(amount, now) - now
        return wait

    def to_keep_free(self, now: float, *, is_later: bool) -> float:
        if self.limit.burst is None:
            return 0.0  # the timeline takes care of what is not paced
        return self._bursts if is_later else self.levels.total(now)

    def take(self, tenant: str | None, amount: float, now: float) -> None:
        self._lendable = None
        if tenant is not None:
            self.levels.move(tenant, -amount, now)
        if self.timeline is not None:
            self.timeline.add(amount, now, now)

    def settle(self, tenant: str | None, change: float, charged_at: float, now: float) -> None:
        self._lendable = None
        if self.timeline is not None:
            self.timeline.add(change, charged_at if change < 0 else now, now)
        if tenant is None:
            return
        if change < 0:
            # Not more than the window has room for: time has given back a part of it already.
            change = max(change, -self._room(now))
        self.levels.move(tenant, -change, now)

    def _room(self, now: float) -> float:
        if self.timeline is None:
            return 0.0  # a bucket gives nothing back
        return max(0.0, self.timeline.borrowable(self.levels.total(now), now))

    def undo(self, tenant: str | None, amount: float, now: float) -> None:
        self._lendable = None
        if self.timeline is not None:
            self.timeline.add(-amount, now, now)
        if tenant is not None:
            self.levels.move(tenant, amount, now)

    def adopt(self, other: "_Rate", now: float) -> None:
        self._lendable = None
        for tenant, fraction in other.levels.fractions(now).items():
            if tenant in self.portions:
                self.levels.move(tenant, (fraction - 1) * self.portions[tenant].burst, now)
        if self.timeline is not None and other.timeline is not None:
            for at, amount in other.timeline.entries():
                self.timeline.add(amount, at, now)


@final
class _Gauge:
    """One gauge, as far as a part of it is kept free."""

    def __init__(self, limit: QuotaLimit, portions: Mapping[str, Portion]) -> None:
        self.limit = limit
        self.portions = portions
        self.held = dict.fromkeys(portions, 0.0)
        self._free = sum(each.amount for each in portions.values())
        self.pool = limit.usable - self._free

    def assured(self, tenant: str, now: float) -> float:  # noqa: ARG002  # as of `_Rate`
        return max(0.0, self.portions[tenant].amount - self.held[tenant])

    def covered_in(self, tenant: str, amount: float, now: float) -> float:
        kept = self.portions[tenant].amount
        # Of less than one slot nothing is kept; such a tenant is assured of its rates only.
        if kept == 0 or min(amount, kept) <= self.assured(tenant, now) * (1 + _ROUNDING):
            return 0.0
        return math.inf

    def to_keep_free(self, now: float, *, is_later: bool) -> float:  # noqa: ARG002  # as of `_Rate`
        return max(0.0, self._free)

    def take(self, tenant: str | None, amount: float, now: float) -> None:
        if tenant is not None:
            before = self.assured(tenant, now)
            # What was taken before the plan was made anew may be given back later.
            self.held[tenant] = max(0.0, self.held[tenant] + amount)
            self._free += self.assured(tenant, now) - before

    def undo(self, tenant: str | None, amount: float, now: float) -> None:
        self.take(tenant, -amount, now)

    def adopt(self, other: "_Gauge", now: float) -> None:
        for tenant, held in other.held.items():
            if tenant in self.portions:
                self.take(tenant, held, now)


@final
class AssuredShares:
    """The guarantees on one deployment while they are used.

    Where a tenant is an argument, None stands for whoever borrows.

    Attributes:
        plan: What was promised.
    """

    def __init__(self, plan: GuaranteePlan, now: float) -> None:
        self.plan = plan
        self._rates: list[_Rate] = []
        self._gauges: list[_Gauge] = []
        for place, limit in enumerate(plan.limits):
            portions = {
                tenant: guarantee.portions[place]
                for tenant, guarantee in plan.guarantees.items()
                if guarantee.kind is not GuaranteeKind.NONE
            }
            if limit.kind == "gauge":
                self._gauges.append(_Gauge(limit, portions))
            else:
                self._rates.append(_Rate(limit, portions, now))
        self._promised = frozenset(
            tenant
            for tenant, guarantee in plan.guarantees.items()
            if guarantee.kind is not GuaranteeKind.NONE
        )
        self._shares: tuple[_Rate | _Gauge, ...] = (*self._rates, *self._gauges)
        # Those of which something has to be kept free beside the timeline.
        self._kept = tuple(
            each for each in self._shares if each.limit.burst or each.limit.kind == "gauge"
        )

    def is_promised(self, tenant: str | None) -> bool:
        """Say whether a tenant has a guarantee here."""
        return tenant in self._promised

    def covered_in(self, tenant: str | None, charges: Mapping[str, float], now: float) -> float:
        """Return the seconds until a tenant's guarantee covers a request.

        Returns:
            0 if it does now; infinity if it has none, or uses all slots that are kept for it.
        """
        if tenant is None or tenant not in self._promised:
            return math.inf
        latest = 0.0
        for each in self._shares:
            later = each.covered_in(tenant, charges.get(each.limit.dimension, 0.0), now)
            latest = max(latest, later)
        return latest

    def lent_in(self, tenant: str | None, charges: Mapping[str, float], now: float) -> float:
        """Return the seconds until what goes beyond a tenant's levels can be borrowed.

        Truthful if nothing else happens, and 0 if it can be now. More than the pool is never lent
        at once; a larger request borrows the pool, and the rest is on the deployment.
        """
        latest = 0.0
        for each in self._rates:
            part = self._borrowed(each, tenant, charges, now)
            if part > 0:
                latest = max(latest, each.lent_in(part, now))
        return latest

    def to_ask_for(
        self,
        tenant: str | None,
        charges: Mapping[str, float],
        now: float,
        *,
        is_later: bool = False,
    ) -> Mapping[str, float]:
        """Return what the deployment must have room for, so that guarantees keep theirs.

        It is more than the charges where the deployment paces, or has slots that are kept free. As
        in `lent_in`, a request larger than the pool is asked for as if it were no larger.

        Args:
            tenant: See the class.
            charges: Of the request, by dimension.
            now: The time.
            is_later: As if all levels were full: by the time that there is room they may be.
        """
        if not self._kept:
            return charges
        asked = dict(charges)
        for each in self._kept:
            dimension = each.limit.dimension
            borrowed = self._borrowed(each, tenant, charges, now)
            if borrowed > 0:
                # Its own level is spent by it, and need not be kept any more.
                own = charges[dimension] - borrowed
                kept = max(0.0, each.to_keep_free(now, is_later=is_later) - own)
                kept -= max(0.0, borrowed - each.pool)
                asked[dimension] = max(asked[dimension], charges[dimension] + kept)
        return asked

    def take(self, tenant: str | None, charges: Mapping[str, float], now: float) -> Funding:
        """Pay for a request that is admitted."""
        for each in self._shares:
            each.take(tenant, charges.get(each.limit.dimension, 0.0), now)
        return Funding(tenant, charges, now)

    def undo(self, funding: Funding, now: float) -> None:
        """Give back what was taken last, as if it had never been."""
        tenant = self._still_promised(funding.tenant)
        for each in self._shares:
            each.undo(tenant, funding.charges.get(each.limit.dimension, 0.0), now)

    def settle(self, funding: Funding, actual: Mapping[str, float], now: float) -> None:
        """Replace what was charged by what the deployment counted in the end."""
        tenant = self._still_promised(funding.tenant)
        for each in self._rates:
            charged = funding.charges.get(each.limit.dimension, 0.0)
            change = actual.get(each.limit.dimension, charged) - charged
            if change:
                each.settle(tenant, change, funding.charged_at, now)
        self.release(funding, now)

    def release(self, funding: Funding, now: float) -> None:
        """Give back the slots alone, as of a request of which nobody has heard for long."""
        if funding.holds_slots:
            funding.holds_slots = False
            tenant = self._still_promised(funding.tenant)
            for gauge in self._gauges:
                gauge.undo(tenant, funding.charges.get(gauge.limit.dimension, 0.0), now)

    def hold_again(self, funding: Funding, now: float) -> None:
        """Count slots again that were given back, since the request still runs."""
        if not funding.holds_slots:
            funding.holds_slots = True
            tenant = self._still_promised(funding.tenant)
            for gauge in self._gauges:
                gauge.take(tenant, funding.charges.get(gauge.limit.dimension, 0.0), now)

    def renewed(self, plan: GuaranteePlan, now: float) -> "AssuredShares":
        """Return the same state under another plan."""
        renewed = AssuredShares(plan, now)
        for new, old in _pairs(renewed._rates, self._rates):
            new.adopt(old, now)
        for gauge, before in _pairs(renewed._gauges, self._gauges):
            gauge.adopt(before, now)
        return renewed

    def levels(self, tenant: str, now: float) -> dict[str, float]:
        """Return what a tenant is assured of now, by dimension and span."""
        if not self.is_promised(tenant):
            return {}
        return {
            f"{each.limit.dimension} per {each.limit.span}": each.assured(tenant, now)
            for each in self._shares
        }

    def _still_promised(self, tenant: str | None) -> str | None:
        """Return a tenant unless its promise has been taken back meanwhile."""
        return tenant if self.is_promised(tenant) else None

    def _borrowed(
        self,
        each: "_Rate | _Gauge",
        tenant: str | None,
        charges: Mapping[str, float],
        now: float,
    ) -> float:
        amount = charges.get(each.limit.dimension, 0.0)
        own = 0.0 if tenant is None else each.assured(tenant, now)
        return amount - own if amount > own * (1 + _ROUNDING) else 0.0


_Share = TypeVar("_Share", _Rate, _Gauge)


def _pairs(new: list[_Share], old: list[_Share]) -> Iterator[tuple[_Share, _Share]]:
    """Match those that share out the same limit, though perhaps another amount of it."""
    before = {(each.limit.dimension, each.limit.span, each.limit.kind): each for each in old}
    for each in new:
        same = before.get((each.limit.dimension, each.limit.span, each.limit.kind))
        if same is not None:
            yield each, same
