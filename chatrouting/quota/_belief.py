"""What a provider's answers leave of one quota: its limits, how much of them, and from when on.

Brings together what `reconcile`, `capacity` and `ramp` say, as limits that the ledger can hold.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, final

from chatrouting.quota.capacity import AdaptiveCapacity, AdaptiveSettings
from chatrouting.quota.deployments import scaled
from chatrouting.quota.headers import read_limits
from chatrouting.quota.ledger import WindowUsage
from chatrouting.quota.limits import BucketLimits
from chatrouting.quota.profiles import ProviderProfile
from chatrouting.quota.ramp import Ramp
from chatrouting.quota.reconcile import Belief, Correction, Place, Reconciler
from chatrouting.quota.throttle import Throttle, ThrottleKind

#: The share moves in steps of this: each step lays out the limits anew.
_STEP: Final = 0.05
_MINUTE: Final = 60.0
#: Looked at again no sooner, seconds.
_SOON: Final = 0.1
#: A lower limit that nobody confirms for so long, seconds, is believed no more. It may be too low
#: for any request, and then no answer would ever correct it.
_FADES: Final = 600.0


@final
class ScopeBelief:
    """What is believed of one scope's limits.

    Attributes:
        limits: What may be used now, by the steps that `renew` has taken.
    """

    def __init__(
        self,
        profile: ProviderProfile,
        limits: BucketLimits,
        *,
        adaptive: AdaptiveSettings,
        cold_share: float,
    ) -> None:
        self.limits = limits
        self._profile = profile
        self._configured = limits
        self._amounts = _amounts(limits)
        self._capacity = AdaptiveCapacity(adaptive)
        self._recovery = adaptive.recovery_per_minute
        self._reconciler = Reconciler(profile)
        growth = profile.growth_per_minute
        self._ramp = None if growth is None or cold_share >= 1 else Ramp(growth, cold=cold_share)
        self._believed: dict[Place, float] = {}
        self._told_at = -math.inf
        self._shown = 1.0

    def closed_for(self, now: float) -> float:
        """Return the seconds for which the provider wants to see nothing."""
        return self._capacity.closed_for(now)

    @property
    def share(self) -> float:
        """Which part of the limits may be used, by the steps that `renew` has taken."""
        return self._shown

    @property
    def is_lowered(self) -> bool:
        """Whether less may be used than was configured."""
        return self._shown < 1 or bool(self._believed)

    def configure(self, limits: BucketLimits) -> None:
        """Start from other limits; what the provider has told of the old ones is forgotten."""
        self._configured = limits
        self._amounts = _amounts(limits)
        self._believed = {}
        self._reconciler = Reconciler(self._profile)
        self._lay_out()

    def renew(self, now: float) -> bool:
        """Follow the share that may be used; say whether `limits` have changed."""
        has_faded = bool(self._believed) and now >= self._told_at + _FADES
        if has_faded:
            self.configure(self._configured)
        share = self._capacity.share(now)
        if self._ramp is not None:
            share = min(share, self._ramp.share(now))
        step = 1.0 if share >= 1 else max(_STEP, math.floor(share / _STEP + 1e-9) * _STEP)
        if step == self._shown:
            return has_faded
        self._shown = step
        self._lay_out()
        return True

    def changes_at(self, now: float) -> float:
        """Return when `renew` will probably find more to use; infinity if there is all."""
        fades_at = max(now + _SOON, self._told_at + _FADES) if self._believed else math.inf
        if self._shown >= 1:
            return fades_at
        if self._ramp is not None:
            return min(now + _MINUTE, fades_at)
        missing = self._shown + _STEP - self._capacity.share(now)
        return min(now + max(_SOON, missing / self._recovery * _MINUTE), fades_at)

    def used(self, share: float, now: float) -> None:
        """Note a request that takes this share of a minute."""
        if self._ramp is not None:
            self._ramp.use(share, now)

    def refused(self, throttle: Throttle, *, sent_at: float, now: float) -> None:
        """Note a refusal by the provider."""
        self._capacity.refused(throttle, sent_at=sent_at, now=now)
        if self._ramp is not None and throttle.kind is ThrottleKind.ACCELERATION:
            self._ramp.restart(now)

    def beliefs(self, usage: Iterable[WindowUsage]) -> dict[Place, Belief]:
        """Return what to compare headers with, as the windows stand."""
        found: dict[Place, Belief] = {}
        for window in usage:
            place = Place(window.limit.dimension, window.limit.window)
            if place in self._amounts and place not in found:
                found[place] = Belief(self._amounts[place], window.used)
        return found

    def told(
        self,
        headers: Mapping[str, str],
        beliefs: Mapping[Place, Belief],
        present: Mapping[Place, Belief],
        *,
        order: int,
        now: float,
        now_of_day: datetime | None,
    ) -> tuple[Correction, ...]:
        """Read the headers of an answer; `limits` follow what they say of them."""
        readings = read_limits(headers, now=now_of_day, windows=self._profile.header_windows)
        corrections = self._reconciler.observe(readings, beliefs, present, order=order)
        if corrections:
            self._told_at = now
        for each in corrections:
            if each.limit is not None and each.limit > 0:
                self._believed[each.place] = each.limit
                self._lay_out()
        return corrections

    def _lay_out(self) -> None:
        limits = tuple(
            limit
            if limit.kind not in ("ring", "bucket")
            else replace(
                limit,
                amount=min(
                    limit.amount,
                    self._believed.get(Place(limit.dimension, limit.window), math.inf),
                ),
            )
            for limit in self._configured.limits
        )
        self.limits = scaled(BucketLimits(limits, self._configured.policy), self._shown)


def _amounts(limits: BucketLimits) -> dict[Place, float]:
    """Return what headers may speak of."""
    return {
        Place(limit.dimension, limit.window): limit.amount
        for limit in limits.limits
        if limit.kind in ("ring", "bucket")
    }
