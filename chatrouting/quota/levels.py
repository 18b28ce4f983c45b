"""How much of what it is assured of each tenant may spend, and how much that is for all together.

A level refills at the tenant's rate up to its burst. The sum over thousands of tenants is kept as
one number that moves in straight lines, with a heap of the instants at which it bends: when a
tenant becomes full, or has paid off a request larger than its level. So time costs nothing for
each tenant. Pure; time is an argument.
"""

import heapq
from collections.abc import Mapping
from typing import final

from chatrouting.quota.guarantees import Portion


@final
class Levels:
    """The assured levels of one limit, and their sum, which moves with time."""

    def __init__(self, portions: Mapping[str, Portion], now: float) -> None:
        self._portions = portions
        self._levels = {tenant: portion.burst for tenant, portion in portions.items()}
        self._set_at = dict.fromkeys(portions, now)
        self._versions = dict.fromkeys(portions, 0)
        # Instants at which a tenant's level begins to count, or is full.
        self._events: list[tuple[float, int, str]] = []
        self._filling: set[str] = set()
        self._rate = 0.0
        self._total = sum(self._levels.values())
        self._now = now

    def level(self, tenant: str, now: float) -> float:
        """Return what a tenant may spend; less than 0 after a request larger than that."""
        portion = self._portions[tenant]
        elapsed = max(0.0, now - self._set_at[tenant])
        return min(portion.burst, self._levels[tenant] + portion.rate * elapsed)

    def total(self, now: float) -> float:
        """Return the sum of all levels above 0."""
        while self._events and self._events[0][0] <= now:
            at, version, tenant = heapq.heappop(self._events)
            if version == self._versions[tenant]:
                self._pass_to(at)
                if tenant in self._filling:
                    self._stop(tenant)
                else:
                    self._fill(tenant, 0.0, at)
        self._pass_to(now)
        return max(0.0, self._total)

    def move(self, tenant: str, amount: float, now: float) -> None:
        """Add to a tenant's level, or take from it."""
        self.total(now)
        before = self.level(tenant, now)
        portion = self._portions[tenant]
        after = min(portion.burst, before + amount)
        self._stop(tenant)
        self._versions[tenant] += 1
        self._total += max(0.0, after) - max(0.0, before)
        self._levels[tenant], self._set_at[tenant] = after, now
        if 0 <= after < portion.burst:
            self._fill(tenant, after, now)
        elif after < 0:
            self._expect(now - after / portion.rate, tenant)

    def fractions(self, now: float) -> dict[str, float]:
        """Return each tenant's level as a part of its burst."""
        return {
            tenant: self.level(tenant, now) / portion.burst
            for tenant, portion in self._portions.items()
        }

    def _fill(self, tenant: str, level: float, now: float) -> None:
        portion = self._portions[tenant]
        self._filling.add(tenant)
        self._rate += portion.rate
        self._expect(now + (portion.burst - level) / portion.rate, tenant)

    def _stop(self, tenant: str) -> None:
        if tenant in self._filling:
            self._filling.remove(tenant)
            # Set anew where it can be, so that roundings do not pile up.
            self._rate = self._rate - self._portions[tenant].rate if self._filling else 0.0

    def _expect(self, at: float, tenant: str) -> None:
        heapq.heappush(self._events, (at, self._versions[tenant], tenant))

    def _pass_to(self, now: float) -> None:
        self._total += self._rate * max(0.0, now - self._now)
        self._now = max(self._now, now)
