"""Windows: how much of one limit is used, and when there is room for more.

Four ways to count, one for each kind of `QuotaLimit`, behind one protocol, `window`. Limits of one
bucket over the same slots are columns of one `RingSet`; what counts alike on a path is charged as
one `section`. Time is an argument, seconds of a clock that never goes back; a time before one that
was given already counts as that.
Nothing here waits, asks or refuses: the ledger does, over many windows at once.
"""

from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.windows.gauge import Gauge
from chatrouting.quota.windows.pacer import Pacer
from chatrouting.quota.windows.period import CalendarWindow
from chatrouting.quota.windows.ring import RingForm, RingSet, SlotRing
from chatrouting.quota.windows.section import (
    Amounts,
    Counter,
    CounterKind,
    Late,
    LimitWindow,
    Section,
    kind_of,
    section_of,
    window_of,
)
from chatrouting.quota.windows.window import Lease, OwnWindow, Window

__all__ = [
    "Amounts",
    "CalendarWindow",
    "Counter",
    "CounterKind",
    "Gauge",
    "Late",
    "Lease",
    "LimitWindow",
    "OwnWindow",
    "Pacer",
    "RingForm",
    "RingSet",
    "Section",
    "SlotRing",
    "Window",
    "kind_of",
    "own_window_of",
    "section_of",
    "window_of",
]


def own_window_of(limit: QuotaLimit, *, epoch: float) -> OwnWindow:
    """Make the window of a limit that counts by itself: of a ring, its pace.

    Args:
        limit: What it holds; a ring with a burst, or no ring.
        epoch: Unix time at instant 0, for calendars.
    """
    if limit.kind == "gauge":
        return Gauge(limit)
    if limit.kind == "calendar":
        return CalendarWindow(limit, epoch)
    return Pacer(limit)
