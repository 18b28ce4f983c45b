"""An even pace: how much is spent ahead of the refill.

The generic cell rate algorithm (ITU-T I.371): one instant instead of a level and a time. What a
request did not use is given back only if nothing was charged since.
"""

from math import inf
from typing import final

from typing_extensions import override

from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.windows.window import INSTANT, ROUNDING, Lease, OwnWindow


@final
class Pacer(OwnWindow):
    """An even pace, by one instant: until when the refill is spent (GCRA).

    Beside a ring, the refill is the whole limit, and a request larger than the burst waits no
    longer than one as large as it. Alone ("bucket"), burst and refill of a window add up to the
    limit, and a request larger than the burst waits until the bucket has been idle for long enough
    to have paid for it: so the limit holds in any window, for requests of any size.
    """

    __slots__ = (
        "_burst",
        "_last_charge",
        "_longest",
        "_seconds_each",
        "_spent_until",
        "dimension",
        "limit",
        "size",
    )

    def __init__(self, limit: QuotaLimit) -> None:
        self.dimension = limit.dimension
        self._spent_until = -inf
        self._last_charge = -inf
        self._measure(limit)

    def _measure(self, limit: QuotaLimit) -> None:
        self.limit = limit
        burst = limit.burst or 0.0
        self.size = limit.usable * burst / limit.window
        self._seconds_each = limit.window / limit.usable
        self._longest = burst
        if limit.kind == "bucket":
            # The burst is a share of the limit, and only the rest is refilled.
            self._seconds_each = limit.window / (limit.usable - self.size)
            self._longest = inf
        self._burst = self.size * self._seconds_each

    @override
    def ready_at(self, amount: float, now: float) -> float:
        if amount > self.limit.usable * ROUNDING:
            return inf
        seconds = min(amount * self._seconds_each, self._longest)
        return self._spent_until + seconds - self._burst - INSTANT

    @override
    def charge(self, amount: float, lease: Lease, now: float) -> None:
        self._spent_until = max(self._spent_until, now) + amount * self._seconds_each
        self._last_charge = now

    @override
    def settle(self, charged: float, actual: float, lease: Lease, now: float) -> None:
        if actual > charged:
            self.charge(actual - charged, lease, now)
        elif lease.charged_at >= self._last_charge:
            # The last charge can be corrected exactly. An earlier one cannot: time may have given
            # back what it held, and it would be had twice.
            self._spent_until -= (charged - actual) * self._seconds_each

    @override
    def used(self, now: float) -> float:
        return max(0.0, self._spent_until - now) / self._seconds_each

    @override
    def is_at_rest(self, now: float) -> bool:
        return self._spent_until + self.limit.window <= now

    @override
    def resize(self, limit: QuotaLimit, now: float) -> None:
        used = self.used(now)
        self._measure(limit)
        if used:
            self._spent_until = now + used * self._seconds_each
