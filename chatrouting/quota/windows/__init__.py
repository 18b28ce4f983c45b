"""Windows: how much of one limit is used, and when there is room for more.

Four ways to count, one for each kind of `QuotaLimit`, behind one protocol. Time is an argument,
seconds of a clock that never goes back; a time before one that was given already counts as that.
Nothing here waits, asks or refuses: the ledger does, over many windows at once.
"""

from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.windows.gauge import Gauge
from chatrouting.quota.windows.pacer import Pacer
from chatrouting.quota.windows.period import CalendarWindow
from chatrouting.quota.windows.ring import SlotRing
from chatrouting.quota.windows.window import Lease, Window

__all__ = [
    "CalendarWindow",
    "Gauge",
    "Lease",
    "Pacer",
    "SlotRing",
    "Window",
    "windows_of",
]


def windows_of(limit: QuotaLimit, *, epoch: float) -> tuple[Window, ...]:
    """Make the windows that hold a limit: two for a ring that is paced, otherwise one.

    Args:
        limit: What they hold.
        epoch: Unix time at instant 0, for calendars.
    """
    if limit.kind == "gauge":
        return (Gauge(limit),)
    if limit.kind == "calendar":
        return (CalendarWindow(limit, epoch),)
    if limit.kind == "bucket":
        return (Pacer(limit),)
    return (SlotRing(limit),) if limit.burst is None else (SlotRing(limit), Pacer(limit))
