"""What every window can do, and on whose account it does it."""

from typing import ClassVar, Final, Protocol

from chatrouting.quota.limits import QuotaLimit

#: Rounding refuses nobody: a billionth more than the limit is not more than the limit.
ROUNDING: Final = 1.0 + 1e-9
#: The same for instants, seconds.
INSTANT: Final = 1e-6


class Lease:
    """On whose account something is charged.

    Attributes:
        charged_at: When.
        expires: From when on gauges count it no more, whether it was settled or not.
    """

    __slots__ = ("charged_at", "expires")

    def __init__(self, charged_at: float, expires: float) -> None:
        self.charged_at = charged_at
        self.expires = expires


class Window(Protocol):
    """What the ledger asks of a window. Amounts are more than 0.

    Attributes:
        is_held: What is charged is given back when the request has ended, however much it used.
        limit: What it holds.
        dimension: Of the limit.
        size: The most that may be charged at once.
    """

    __slots__ = ()

    is_held: ClassVar[bool] = False
    limit: QuotaLimit
    dimension: str
    size: float

    def ready_at(self, amount: float, now: float) -> float:
        """Return when there is room, if nothing else is charged.

        Returns:
            An instant, not after `now` if there is room now; infinity if the amount is more than
            the limit.
        """
        ...

    def charge(self, amount: float, lease: Lease, now: float) -> None:
        """Count an amount, whether there is room or not.

        To be called after `ready_at` or `used`, at the same time.
        """
        ...

    def settle(self, charged: float, actual: float, lease: Lease, now: float) -> None:
        """Replace what was charged by what was used, 0 or more; once for a charge.

        What was used beyond the charge counts from now on.
        """
        ...

    def used(self, now: float) -> float:
        """Return how much is counted, open charges included."""
        ...

    def is_at_rest(self, now: float) -> bool:
        """Say whether a new window would do as well."""
        ...


class OwnWindow(Window, Protocol):
    """A window that counts by itself, and not side by side with others of its bucket."""

    __slots__ = ()

    def resize(self, limit: QuotaLimit, now: float) -> None:
        """Count for another limit on the same dimension and of the same kind from now on."""
        ...
