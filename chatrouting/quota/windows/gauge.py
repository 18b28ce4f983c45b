"""What is held and given back: requests that run, seconds that streams may take."""

from math import inf
from typing import final

from typing_extensions import override

from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.windows.window import ROUNDING, Lease, Window


@final
class Gauge(Window):
    """What is held at the same time. What is not given back ends with its lease."""

    __slots__ = ("_held", "_leases", "dimension", "limit", "size")

    is_held = True

    def __init__(self, limit: QuotaLimit) -> None:
        self.dimension = limit.dimension
        self._leases: dict[Lease, float] = {}
        self._held = 0.0
        self._measure(limit)

    def _measure(self, limit: QuotaLimit) -> None:
        self.limit = limit
        self.size = limit.usable

    @override
    def ready_at(self, amount: float, now: float) -> float:
        if self._held + amount <= self.size * ROUNDING:
            return now
        if amount > self.size * ROUNDING:
            return inf
        return self._free_at(amount, now)

    def _free_at(self, amount: float, now: float) -> float:
        """Return when enough leases have ended. They are looked at only when there is no room."""
        excess = self.used(now) + amount - self.size * ROUNDING
        free_at = now
        for lease in sorted(self._leases, key=_expires):
            if excess <= 0.0:
                break
            excess -= self._leases[lease]
            free_at = lease.expires
        return free_at

    @override
    def charge(self, amount: float, lease: Lease, now: float) -> None:
        self._leases[lease] = amount
        self._held += amount

    @override
    def settle(self, charged: float, actual: float, lease: Lease, now: float) -> None:
        self._held -= self._leases.pop(lease, 0.0)
        if not self._leases:
            self._held = 0.0
            self._leases.clear()  # an empty dict may have room for many

    def renew(self, amount: float, lease: Lease) -> None:
        """Count again what is still running, although its lease had ended."""
        if lease not in self._leases:
            self.charge(amount, lease, lease.charged_at)

    @override
    def used(self, now: float) -> float:
        if any(lease.expires <= now for lease in self._leases):
            live = {lease: held for lease, held in self._leases.items() if lease.expires > now}
            self._leases = live
            self._held = sum(live.values())
        return self._held

    @override
    def is_at_rest(self, now: float) -> bool:
        return all(lease.expires <= now for lease in self._leases)

    @override
    def resize(self, limit: QuotaLimit, now: float) -> None:
        self._measure(limit)


def _expires(lease: Lease) -> float:
    return lease.expires
