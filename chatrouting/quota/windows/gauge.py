"""What is held and given back: requests that run, seconds that streams may take."""

from math import inf
from typing import final

from typing_extensions import override

from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.windows.window import ROUNDING, Lease, OwnWindow


@final
class Gauge(OwnWindow):
    """What is held at the same time. What is not given back ends with its lease."""

    __slots__ = ("_held", "_leases", "dimension", "limit", "size")

    is_held = True

    def __init__(self, limit: QuotaLimit) -> None:
        self.dimension = limit.dimension
        # None if nothing is held: most gauges hold nothing, and an empty dict takes memory.
        self._leases: dict[Lease, float] | None = None
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
        leases = self._leases or {}
        for lease in sorted(leases, key=_expires):
            if excess <= 0.0:
                break
            excess -= leases[lease]
            free_at = lease.expires
        return free_at

    @override
    def charge(self, amount: float, lease: Lease, now: float) -> None:
        if self._leases is None:
            self._leases = {}
        self._leases[lease] = amount
        self._held += amount

    @override
    def settle(self, charged: float, actual: float, lease: Lease, now: float) -> None:
        if self._leases is None:
            return
        self._held -= self._leases.pop(lease, 0.0)
        if not self._leases:
            self._held = 0.0
            self._leases = None

    def renew(self, amount: float, lease: Lease) -> None:
        """Count again what is still running, although its lease had ended."""
        if self._leases is None or lease not in self._leases:
            self.charge(amount, lease, lease.charged_at)

    @override
    def used(self, now: float) -> float:
        leases = self._leases
        if leases is not None and any(lease.expires <= now for lease in leases):
            live = {lease: held for lease, held in leases.items() if lease.expires > now}
            self._leases = live or None
            self._held = sum(live.values())
        return self._held

    @override
    def is_at_rest(self, now: float) -> bool:
        return all(lease.expires <= now for lease in self._leases or ())

    @override
    def resize(self, limit: QuotaLimit, now: float) -> None:
        self._measure(limit)


def _expires(lease: Lease) -> float:
    return lease.expires
