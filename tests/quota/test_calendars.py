"""Days and months where clocks are put forward and back, in leap years, and over long gaps.

Against the time zones themselves: a period ends when the date there is another one.
"""

from bisect import bisect_left
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chatrouting.quota.classes import TrafficClass
from chatrouting.quota.ledger import Denial, Ledger
from chatrouting.quota.limits import BucketKey, BucketLimits, Level, QuotaLimit
from chatrouting.testing import ManualClock
from tests.quota._desk import Desk, deployment

MINUTE = 60
HOUR = 60 * MINUTE
#: At midnight clocks are put forward in Cairo, Beirut, Havana and Santiago, so that there is none;
#: in Havana there are two when they are put back. Lord Howe moves by half an hour.
ZONES = [
    "UTC",
    "Europe/Riga",
    "America/Los_Angeles",
    "Africa/Cairo",
    "Asia/Beirut",
    "America/Havana",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Kiritimati",
    "Pacific/Chatham",
]
MINUTES = st.integers(
    int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) // MINUTE,
    int(datetime(2033, 1, 1, tzinfo=UTC).timestamp()) // MINUTE,
)


def key_of(minute, zone, period):
    """Return what names the period that a minute since 1970 lies in."""
    date = datetime.fromtimestamp(minute * MINUTE, ZoneInfo(zone)).date()
    return (date.year, date.month, date.day if period == "day" else 1)


def end_of(minute, zone, period):
    """Return the first minute of the next period, by asking the zone and nothing else."""
    longest = 26 * 60 if period == "day" else 32 * 24 * 60
    later = range(minute, minute + longest)
    own = key_of(minute, zone, period)
    return later[bisect_left(later, True, key=lambda each: key_of(each, zone, period) > own)]


class OneEach:
    """One request in each period of a zone."""

    def __init__(self, period, zone, epoch):
        limits = BucketLimits((QuotaLimit("requests", 1, period=period, timezone=zone),))
        self.ledger = Ledger(lambda _: limits, epoch=epoch)

    def wait(self, now):
        """Take one, and return 0, or the seconds until there is one."""
        path = self.ledger.path([BucketKey(Level.TENANT, "x")])
        found = self.ledger.admit(path, {"requests": 1.0}, now)
        return found.wait if isinstance(found, Denial) else 0.0


@pytest.mark.parametrize("period", ["day", "month"])
@pytest.mark.parametrize("zone", ZONES)
@given(minute=MINUTES)
@example(minute=int(datetime(2028, 2, 28, 12, tzinfo=UTC).timestamp()) // MINUTE)
@example(minute=int(datetime(2028, 2, 29, 12, tzinfo=UTC).timestamp()) // MINUTE)
@example(minute=int(datetime(2026, 12, 31, 12, tzinfo=UTC).timestamp()) // MINUTE)
def test_a_period_ends_when_the_date_there_changes(zone, period, minute):
    """[quota R15] Whenever it is first looked at, and however the clock counts."""
    epoch, end = minute * MINUTE - 1000.0, end_of(minute, zone, period) * MINUTE
    one_each = OneEach(period, zone, epoch)
    now = minute * MINUTE - epoch

    assert one_each.wait(now) == 0
    assert one_each.wait(now) == pytest.approx(end - epoch - now, abs=1e-3)
    assert one_each.wait(end - epoch - 1) > 0
    assert one_each.wait(end - epoch) == 0


@pytest.mark.parametrize("zone", ZONES)
def test_each_day_of_five_years_admits_once(zone):
    """[quota R15] Over every change of clocks and a leap day, with a look each hour."""
    one_each = OneEach("day", zone, 0.0)
    at, last = datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2029, 1, 1, 12, tzinfo=UTC)
    days: list[object] = []
    while at < last:
        if not one_each.wait(at.timestamp()):
            days.append(at.astimezone(ZoneInfo(zone)).date())
        at += timedelta(hours=1)

    assert len(days) == len(set(days)) == (days[-1] - days[0]).days + 1


@pytest.mark.parametrize(
    ("begin", "hours"),
    [
        pytest.param("2026-03-28T22:00+00:00", 23, id="put forward"),
        pytest.param("2026-10-24T21:00+00:00", 25, id="put back"),
        pytest.param("2028-02-28T22:00+00:00", 24, id="a leap day"),
    ],
)
def test_a_governor_follows_the_days_of_a_zone(begin, hours):
    """[quota R15, R57] From midnight to midnight in Riga; the refusal tells when that is."""
    midnight, clock = datetime.fromisoformat(begin), ManualClock(5000.0)
    limit = QuotaLimit("requests", 1, period="day", timezone="Europe/Riga")

    def wall_clock():
        return midnight + timedelta(seconds=clock() - 5000.0)

    desk = Desk(deployment("a", limit), clock=clock, wall_clock=wall_clock)
    desk.take()
    clock.advance(2 * HOUR)

    denial = desk.ask()

    assert denial.wait == pytest.approx((hours - 2) * HOUR, abs=0.01)
    clock.advance(denial.wait)
    assert desk.take()


class Days:
    """A governor whose time of day may be set."""

    def __init__(self, amount=2, **settings):
        self.clock, self.ahead = ManualClock(5000.0), 0.0
        limit = QuotaLimit("requests", amount, period="day")
        self.desk = Desk(
            deployment("a", limit),
            deployment("b"),
            clock=self.clock,
            wall_clock=self.wall_clock,
            **settings,
        )

    def wall_clock(self):
        morning = datetime(2026, 11, 30, 10, tzinfo=UTC)
        return morning + timedelta(seconds=self.clock() - 5000.0 + self.ahead)

    def set_ahead(self, hours):
        """Let it go on an hour later, with so many hours that the clock knows nothing of."""
        self.clock.advance(HOUR)
        self.ahead += hours * HOUR


@pytest.mark.parametrize(
    ("hours", "left"),
    [
        pytest.param(8, 5, id="slept on the same day"),
        pytest.param(-3, 13, id="set back"),
        pytest.param(-12, 13, id="set back by a day"),
    ],
)
def test_a_day_ends_by_the_time_of_day(hours, left):
    """[quota R15, R57] The clock that never goes back stands still while a machine sleeps."""
    days = Days()
    days.desk.fill()
    days.set_ahead(hours)

    denial = days.desk.ask()

    assert denial.wait == pytest.approx(left * HOUR, abs=0.1)
    days.clock.advance(denial.wait)
    assert days.desk.take()


def test_a_day_that_was_slept_through_is_over():
    """[quota R15] Also where the time of day is set back afterwards: it begins but once."""
    days = Days()
    days.desk.fill()
    days.set_ahead(14)

    assert len(days.desk.fill()) == 2

    days.set_ahead(-14)
    assert days.desk.fill() == []


def test_what_yesterday_counted_is_not_given_back_to_today():
    """[quota R28] By the clock it was charged after the midnight that a machine slept through."""
    days = Days()
    slept = days.desk.take()
    days.set_ahead(14)
    days.desk.fill()

    slept.fail(sent=False)

    assert days.desk.used("requests") == 2


def test_buckets_that_come_later_go_by_the_same_time_of_day():
    """[quota R15, R35]"""
    acme = BucketKey(Level.TENANT, "acme")
    ceiling = BucketLimits((QuotaLimit("requests", 1, period="day"),))
    days = Days(9, ceilings={acme: ceiling})
    days.desk.take("other")
    days.set_ahead(8)
    days.desk.take("other")

    days.desk.take("acme")

    assert days.desk.ask("acme").wait == pytest.approx(5 * HOUR, abs=0.1)


async def test_whoever_waits_for_a_day_that_was_slept_through_goes_on(anyio_backend):
    """[quota G6] As soon as anybody comes, wherever to."""
    patient = TrafficClass(name="patient", max_wait=60 * HOUR)
    days = Days(classes=[patient], default_class="patient")
    days.desk.fill()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(days.desk.governor.reserve, days.desk.quote(), days.desk.ticket())
        await anyio.wait_all_tasks_blocked()
        days.set_ahead(14)

        days.desk.take(name="b")
        await anyio.wait_all_tasks_blocked()

        assert days.desk.used("requests") == 1
        tasks.cancel_scope.cancel()


def test_another_zone_gives_nothing_back_twice():
    """[quota R28, R63] Its day has begun before what is counted, and with what is not."""
    clock, midnight = ManualClock(), datetime(2026, 11, 30, 23, tzinfo=UTC)
    limit = QuotaLimit("requests", 2, period="day")
    desk = Desk(
        deployment("a", limit),
        clock=clock,
        wall_clock=lambda: midnight + timedelta(seconds=clock()),
    )
    yesterday = desk.take()
    clock.advance(2 * HOUR)
    desk.fill()
    moved = BucketLimits((replace(limit, timezone="America/Los_Angeles"),))
    desk.governor.update_limits(deployments={"a": moved})

    yesterday.fail(sent=False)

    assert desk.used("requests") == 2
