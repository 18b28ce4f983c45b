"""How the four kinds of window count, give back and say when there is room."""

from datetime import UTC, datetime
from math import inf
from zoneinfo import ZoneInfo

import pytest

from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.windows import Lease, RingForm, RingSet, SlotRing, own_window_of

#: What the ledger adds to a wait.
A_LITTLE = 1e-6


def ring_of(limit):
    return SlotRing(RingSet(RingForm([limit])), 0)


def window_of(*args, epoch=0.0, **settings):
    limit = QuotaLimit(*args, **settings)
    return ring_of(limit) if limit.kind == "ring" else own_window_of(limit, epoch=epoch)


def resized(ring, limit, now):
    """Return what goes on with the count of a ring for another limit."""
    other = ring_of(limit)
    other.ring.inherit([ring], now)
    return other


def charge(window, amount, now, *, lasts=600.0):
    """Charge if there is room, and return the lease; None if there is none."""
    if window.ready_at(amount, now) > now:
        return None
    lease = Lease(now, now + lasts)
    window.charge(amount, lease, now)
    return lease


def admitted(window, amount, now, most=10_000):
    """Return how many requests go through at one instant."""
    return next(n for n in range(most) if charge(window, amount, now) is None)


class TestRing:
    """A sliding window, exact to one slot."""

    def test_takes_the_whole_limit_at_once_and_no_more(self):
        ring = window_of("requests", 100)
        assert admitted(ring, 1, now=0.0) == 100

    def test_is_full_until_the_charge_is_a_window_old(self):
        """[quota G1] The slot that a charge lies in leaves when its youngest charge may."""
        ring = window_of("requests", 100)
        charge(ring, 100, now=0.9)
        assert ring.ready_at(1, now=60.0) == 61.0
        assert ring.ready_at(1, now=60.899) == 61.0
        assert charge(ring, 100, now=61.0)

    def test_says_when_enough_of_it_has_left(self):
        """[quota G8] Not when all has."""
        ring = window_of("requests", 100)
        for second in range(10):
            charge(ring, 10, now=float(second))
        assert ring.ready_at(25, now=10.0) == 63.0

    def test_never_takes_more_than_the_limit(self):
        ring = window_of("requests", 100)
        assert ring.ready_at(101, now=0.0) == inf

    def test_gives_back_where_it_was_charged(self):
        """[quota R28] What a request of 30 s ago did not use leaves with it, not 30 s later."""
        ring = window_of("output_tokens", 1000)
        lease = charge(ring, 1000, now=0.5)
        ring.settle(1000, 100, lease, now=30.0)
        assert ring.used(now=30.0) == 100
        charge(ring, 900, now=30.0)
        assert ring.ready_at(100, now=60.0) == 61.0
        assert ring.used(now=61.0) == 900

    def test_charges_what_was_used_beyond_to_the_slot_of_now(self):
        """[quota R28] The level may go above the limit; that holds up the next ones."""
        ring = window_of("output_tokens", 1000)
        lease = charge(ring, 1000, now=0.5)
        ring.settle(1000, 1500, lease, now=30.5)
        assert ring.used(now=30.5) == 1500
        assert ring.used(now=61.0) == 500
        assert ring.used(now=91.0) == 0

    def test_gives_nothing_back_for_what_has_left(self):
        ring = window_of("output_tokens", 1000)
        lease = charge(ring, 1000, now=0.0)
        charge(ring, 700, now=70.0)
        ring.settle(1000, 0, lease, now=90.0)
        assert ring.used(now=90.0) == 700

    @pytest.mark.parametrize("length", [5, 30, 90])
    def test_holds_the_limit_when_outputs_change_from_short_to_long(self, length):
        """A bucket with refunds let 2.5 to 3.5 times the limit through. [quota G1]"""
        ring = window_of("output_tokens", 60_000)
        started = []
        open_leases = []
        for tick in range(4 * 400):
            now = tick / 4
            while open_leases and open_leases[0].charged_at + length <= now:
                lease = open_leases.pop(0)
                ring.settle(4000, 100 if lease.charged_at < 200 else 4000, lease, now)
            while lease := charge(ring, 4000, now):
                open_leases.append(lease)
                started.append((now, 100 if now < 200 else 4000))
        for end, _ in started:
            assert sum(used for at, used in started if end - 60 < at <= end) <= 60_000

    @pytest.mark.parametrize("window", [0.3, 7.0, 60.0, 3600.0])
    @pytest.mark.parametrize("slots", [1, 7, 60])
    @pytest.mark.parametrize("start", [0.0, 12.345, 1.7e9])
    def test_is_free_at_the_instant_it_names(self, window, slots, start):
        """[quota G8] For slots of any length and clocks of any size."""
        ring = window_of("requests", 10, window=window, slots=slots)
        charge(ring, 10, now=start)
        ready_at = ring.ready_at(1, now=start)
        assert window - A_LITTLE <= ready_at - start <= window * (1 + 1 / slots) + A_LITTLE
        assert charge(ring, 10, now=ready_at + A_LITTLE)

    def test_a_time_that_goes_back_counts_as_the_latest(self):
        """[BR-60] Charges do not get old by that, nor younger."""
        ring = window_of("requests", 100)
        charge(ring, 60, now=50.0)
        charge(ring, 40, now=39.0)
        assert ring.used(now=30.0) == 100
        assert ring.ready_at(1, now=20.0) == 111.0
        assert ring.used(now=111.0) == 0

    def test_more_is_free_at_once_when_the_limit_is_raised(self):
        """[quota R63]"""
        ring = window_of("requests", 10)
        charge(ring, 10, now=0.0)
        ring = resized(ring, QuotaLimit("requests", 15), now=1.0)
        assert admitted(ring, 1, now=1.0) == 5

    def test_nothing_is_free_until_it_has_drained_when_the_limit_is_lowered(self):
        """[quota R63]"""
        ring = window_of("requests", 10)
        for second in range(10):
            charge(ring, 1, now=float(second))
        ring = resized(ring, QuotaLimit("requests", 4), now=10.0)
        assert ring.ready_at(1, now=10.0) == 67.0
        assert admitted(ring, 1, now=67.0) == 1

    def test_charges_move_to_other_slots_without_getting_older(self):
        ring = window_of("requests", 10, window=60, slots=60)
        lease = charge(ring, 4, now=7.0)
        charge(ring, 3, now=9.5)
        ring = resized(ring, QuotaLimit("requests", 10, window=60, slots=4), now=10.0)
        assert ring.used(now=10.0) == 7
        assert ring.ready_at(10, now=10.0) == 75.0
        ring.settle(4, 1, lease, now=11.0)
        assert ring.used(now=11.0) == 4
        ring = resized(ring, QuotaLimit("requests", 10, window=6, slots=6), now=20.0)
        assert ring.used(now=20.0) == 4
        assert ring.used(now=27.0) == 0

    def test_what_is_counted_moves_no_further_than_to_now(self):
        """[quota R63] Although its old slot ends after the new one that has begun."""
        ring = window_of("requests", 10)
        charge(ring, 4, now=14.5)
        ring = resized(ring, QuotaLimit("requests", 10, slots=4), now=14.7)
        assert ring.used(now=74.9) == 4
        assert ring.used(now=75.0) == 0

    def test_gives_back_no_more_than_is_there_when_its_slots_have_changed(self):
        """What was charged may have moved to the next slot, and others be where it was."""
        ring = window_of("requests", 10)
        charge(ring, 1, now=7.0)
        lease = charge(ring, 4, now=8.0)
        ring = resized(ring, QuotaLimit("requests", 10, slots=20), now=30.0)
        ring.settle(4, 0, lease, now=31.0)
        assert ring.used(now=31.0) == 4

    def test_counts_on_through_many_windows(self):
        """[quota G1] Numbers of slots are kept short, whatever the clock says."""
        ring = window_of("requests", 1000)
        leases = [charge(ring, 3, now=1e6 + second) for second in range(1000)]
        ring.settle(3, 1, leases[-30], now=1e6 + 999)
        assert ring.used(now=1e6 + 999) == 61 * 3 - 2
        assert ring.used(now=1e6 + 1029) == 31 * 3 - 2
        assert ring.used(now=1e6 + 1031) == 29 * 3

    def test_many_slots_are_as_exact(self):
        """[quota G1]"""
        ring = window_of("requests", 1000, slots=600)
        leases = [charge(ring, 3, now=tick / 10 + 0.05) for tick in range(0, 3000, 3)]
        ring.settle(3, 1, leases[-30], now=299.8)
        assert ring.used(now=299.8) == 200 * 3 - 2

    def test_holds_what_four_bytes_do_not(self):
        """[quota G3] Amounts are kept in four bytes as long as these are exact."""
        ring = window_of("output_tokens", 1e9)
        lease = charge(ring, 2.0**25, now=0.0)
        charge(ring, 2.0**25, now=1.0)
        ring.settle(2.0**25, 2.0**25 - 1, lease, now=2.0)
        charge(ring, 2.0**25 + 1, now=3.0)
        assert ring.used(now=4.0) == 3 * 2.0**25
        assert ring.used(now=61.0) == 2 * 2.0**25 + 1
        assert ring.used(now=62.0) == 2.0**25 + 1

    @pytest.mark.parametrize("amount", [2**24 + 1, 0.1, 1e39])
    def test_counts_what_four_bytes_do_not_hold_beside_what_they_do(self, amount):
        """[quota G3] Also when it is added up anew, or becomes such a number at last."""
        ring = window_of("custom:money", 1e40)
        charge(ring, 1, now=0.0)
        charge(ring, amount, now=1.0)
        lease = charge(ring, 2.0 * amount, now=2.0)
        charge(ring, 1, now=3.0)
        assert ring.used(now=62.5) == pytest.approx(2 * amount + 1, rel=1e-12)
        ring.settle(2.0 * amount, amount, lease, now=62.5)
        assert ring.used(now=62.5) == pytest.approx(amount + 1, rel=1e-12)

    def test_what_is_given_back_may_leave_what_four_bytes_do_not_hold(self):
        """[quota G3]"""
        ring = window_of("output_tokens", 1e9)
        charge(ring, 1, now=0.0)
        lease = charge(ring, 2.0**25, now=1.0)
        charge(ring, 1, now=2.0)
        ring.settle(2.0**25, 2.0**25 - 1, lease, now=3.0)
        assert ring.used(now=61.0) == 2.0**25

    def test_counts_never_less_than_nothing(self):
        """[quota G3] Not even by a rounding."""
        ring = window_of("custom:money", 10)
        first, second = charge(ring, 0.2, now=0.0), charge(ring, 0.5, now=0.0)
        ring.settle(0.2, 0.0, first, now=0.0)
        ring.settle(0.5, 0.0, second, now=0.0)
        assert ring.used(now=0.0) == 0

    def test_a_rounding_leaves_within_a_window(self):
        """A huge amount rounds those beside it; when all these have left, so has the rounding."""
        ring = window_of("custom:money", 1e12)
        for second in range(200):
            charge(ring, 1e10 if second == 10 else 0.1, now=float(second))
        assert ring.used(now=199.0) == pytest.approx(6.1, rel=1e-12)

    def test_roundings_do_not_pile_up(self):
        ring = window_of("custom:money", 100.0)
        for tick in range(6000):
            ring.settle(0.3, 0.1, charge(ring, 0.3, now=tick / 2), now=tick / 2)
        assert ring.used(now=2999.5) == pytest.approx(12.2, rel=1e-12)
        assert ring.used(now=3061.0) == 0

    def test_rests_when_all_has_left(self):
        ring = window_of("requests", 10)
        assert ring.is_at_rest(now=0.0)
        charge(ring, 1, now=0.0)
        assert not ring.is_at_rest(now=60.0)
        assert ring.is_at_rest(now=61.0)

    def test_fractions_fill_it_without_a_rest(self):
        """Ten tenths are one, whatever floats make of that."""
        ring = window_of("custom:money", 1.0)
        assert admitted(ring, 0.1, now=0.0) == 10


class TestPacer:
    """Even pace, beside a ring and alone."""

    def test_a_ring_with_a_burst_is_paced(self):
        """[quota R14] Half a minute's limit in a second waits, although the minute has room."""
        limit = QuotaLimit("requests", 600, burst=1.0)
        ring, pacer = ring_of(limit), own_window_of(limit, epoch=0.0)
        assert admitted(pacer, 1, now=0.0) == 10
        assert pacer.ready_at(1, now=0.0) == pytest.approx(0.1, abs=1e-5)
        assert ring.ready_at(300, now=0.0) == 0.0

    def test_a_paced_ring_reaches_the_whole_limit(self):
        pacer = own_window_of(QuotaLimit("requests", 600, burst=1.0), epoch=0.0)
        through = sum(admitted(pacer, 1, now=tick / 10) for tick in range(600))
        assert through == 609

    def test_beside_a_ring_a_large_request_only_waits_for_what_was_spent(self):
        pacer = own_window_of(QuotaLimit("input_tokens", 600, burst=1.0), epoch=0.0)
        assert charge(pacer, 300, now=0.0)
        assert pacer.ready_at(300, now=0.0) == pytest.approx(30.0, abs=1e-5)

    def test_alone_it_holds_the_limit_in_any_window(self):
        """A bucket as large as the limit would let twice the limit through. [quota G1]"""
        bucket = window_of("requests", 1200, kind="bucket", burst=10.0)
        times = []
        for tick in range(1800):
            times += [tick / 10] * admitted(bucket, 1, now=tick / 10)
        worst = max(sum(start <= at < start + 60 for at in times) for start in range(120))
        assert 1190 <= worst <= 1200

    def test_alone_a_large_request_waits_until_idle_time_has_paid_for_it(self):
        """[quota G1] So the limit holds for requests larger than the burst as well."""
        bucket = window_of("input_tokens", 60, kind="bucket", burst=5.0)
        assert charge(bucket, 60, now=0.0)
        assert bucket.ready_at(60, now=1.0) > 60.0
        assert bucket.ready_at(1, now=1.0) == pytest.approx(61.1, abs=0.1)
        assert bucket.ready_at(61, now=0.0) == inf

    def test_gives_back_the_last_charge_only(self):
        """[quota R28] What an earlier one held, time may have given back already."""
        bucket = window_of("requests", 60, kind="bucket", burst=30.0)
        first = charge(bucket, 10, now=0.0)
        second = charge(bucket, 10, now=1.0)
        used = bucket.used(now=1.0)
        bucket.settle(10, 0, first, now=1.0)
        assert bucket.used(now=1.0) == used
        bucket.settle(10, 0, second, now=1.0)
        assert bucket.used(now=1.0) == pytest.approx(used - 10)

    def test_charges_what_was_used_beyond(self):
        bucket = window_of("requests", 60, kind="bucket", burst=30.0)
        lease = charge(bucket, 10, now=0.0)
        bucket.settle(10, 25, lease, now=0.0)
        assert bucket.used(now=0.0) == pytest.approx(25)

    def test_debts_are_kept_in_units_when_the_limit_changes(self):
        """[quota R63]"""
        bucket = window_of("requests", 60, kind="bucket", burst=30.0)
        charge(bucket, 30, now=0.0)
        bucket.resize(QuotaLimit("requests", 120, kind="bucket", burst=30.0), now=0.0)
        assert bucket.used(now=0.0) == pytest.approx(30)
        assert admitted(bucket, 1, now=0.0) == 30

    def test_a_change_of_limit_at_rest_changes_nothing_else(self):
        bucket = window_of("requests", 60, kind="bucket", burst=30.0)
        bucket.resize(QuotaLimit("requests", 12, kind="bucket", burst=30.0), now=0.0)
        assert admitted(bucket, 1, now=0.0) == 6

    def test_rests_when_a_new_one_would_do_as_well(self):
        bucket = window_of("requests", 60, kind="bucket")
        charge(bucket, 5, now=0.0)
        assert not bucket.is_at_rest(now=60.0)
        assert bucket.is_at_rest(now=66.0)


def unix(*args, zone="UTC"):
    return datetime(*args, tzinfo=ZoneInfo(zone)).timestamp()


class TestCalendar:
    """Days and months, where the limit says."""

    def test_a_day_ends_at_midnight_there(self):
        """[quota R15] Daily quotas of some providers begin anew at midnight in California."""
        start = unix(2026, 11, 30, 22, 0, zone="America/Los_Angeles")
        day = window_of("requests", 10, period="day", timezone="America/Los_Angeles", epoch=start)
        charge(day, 10, now=0.0)
        assert day.ready_at(1, now=60.0) == 2 * 3600.0
        assert charge(day, 10, now=2 * 3600.0)

    def test_a_month_ends_with_its_last_day(self):
        """[quota R15]"""
        start = unix(2028, 2, 10)
        month = window_of("total_tokens", 10, period="month", epoch=start)
        charge(month, 10, now=0.0)
        assert month.ready_at(1, now=0.0) == unix(2028, 3, 1) - start

    def test_a_day_may_have_23_hours(self):
        """When clocks are put forward."""
        start = unix(2026, 3, 29, zone="Europe/Riga")
        day = window_of("requests", 1, period="day", timezone="Europe/Riga", epoch=start)
        charge(day, 1, now=0.0)
        assert day.ready_at(1, now=0.0) == 23 * 3600.0

    def test_gives_back_within_the_period(self):
        day = window_of("requests", 10, period="day")
        lease = charge(day, 10, now=0.0)
        day.settle(10, 4, lease, now=100.0)
        assert day.used(now=100.0) == 4

    def test_gives_nothing_back_to_another_period(self):
        day = window_of("requests", 10, period="day")
        lease = charge(day, 10, now=86_399.0)
        charge(day, 3, now=86_401.0)
        day.settle(10, 4, lease, now=86_402.0)
        assert day.used(now=86_402.0) == 3

    def test_charges_what_was_used_beyond(self):
        day = window_of("requests", 10, period="day")
        lease = charge(day, 10, now=86_399.0)
        day.settle(10, 14, lease, now=86_402.0)
        assert day.used(now=86_402.0) == 4

    def test_never_takes_more_than_the_limit(self):
        assert window_of("requests", 10, period="day").ready_at(11, now=0.0) == inf

    def test_keeps_the_count_when_the_limit_changes(self):
        """[quota R63]"""
        day = window_of("requests", 10, period="day")
        charge(day, 8, now=0.0)
        day.resize(QuotaLimit("requests", 5, period="day", timezone="Asia/Tokyo"), now=10.0)
        assert day.used(now=10.0) == 8
        assert day.ready_at(1, now=10.0) == 15 * 3600.0

    def test_rests_in_a_new_period(self):
        day = window_of("requests", 10, period="day")
        charge(day, 1, now=0.0)
        assert not day.is_at_rest(now=86_399.0)
        assert day.is_at_rest(now=86_400.0)

    def test_unix_time_is_what_it_counts_from(self):
        now = datetime(2026, 11, 30, 23, 59, tzinfo=UTC).timestamp()
        day = window_of("requests", 1, period="day")
        charge(day, 1, now=now)
        assert day.ready_at(1, now=now) == now + 60.0


class TestGauge:
    """What is held at the same time."""

    def test_takes_so_many_at_once(self):
        """[quota R9]"""
        assert admitted(window_of("concurrency", 3), 1, now=0.0) == 3

    def test_has_room_again_when_one_ends(self):
        """[BR-53] Whatever it used, all of what it held."""
        gauge = window_of("concurrency", 1)
        lease = charge(gauge, 1, now=0.0)
        assert charge(gauge, 1, now=1.0) is None
        gauge.settle(1, 1, lease, now=2.0)
        assert charge(gauge, 1, now=2.0)

    def test_long_streams_exhaust_it_at_any_rate_of_requests(self):
        """[quota R10] Ten streams of a minute fit into 600 stream seconds, and no more."""
        gauge = window_of("stream_seconds", 600)
        assert admitted(gauge, 60, now=0.0) == 10

    def test_a_lease_that_ends_gives_the_place_back(self):
        gauge = window_of("concurrency", 1)
        lease = charge(gauge, 1, now=0.0, lasts=10.0)
        assert charge(gauge, 1, now=9.9) is None
        assert charge(gauge, 1, now=10.0)
        gauge.settle(1, 1, lease, now=11.0)
        assert gauge.used(now=11.0) == 1

    def test_says_when_enough_leases_have_ended(self):
        """[quota G8]"""
        gauge = window_of("stream_seconds", 100)
        for amount, lasts in ((50, 30.0), (30, 10.0), (20, 20.0)):
            charge(gauge, amount, now=0.0, lasts=lasts)
        assert gauge.ready_at(30, now=1.0) == 10.0
        assert gauge.ready_at(31, now=1.0) == 20.0
        assert gauge.ready_at(51, now=1.0) == 30.0
        assert gauge.ready_at(101, now=1.0) == inf

    def test_a_renewed_lease_holds_its_place(self):
        gauge = window_of("concurrency", 1)
        lease = charge(gauge, 1, now=0.0, lasts=10.0)
        lease.expires = 20.0
        gauge.renew(1, lease)
        assert gauge.used(now=15.0) == 1

    def test_what_still_runs_counts_again_when_it_is_renewed_late(self):
        """Also beyond the limit, for it does run."""
        gauge = window_of("concurrency", 1)
        lease = charge(gauge, 1, now=0.0, lasts=10.0)
        charge(gauge, 1, now=11.0)
        lease.expires = 30.0
        gauge.renew(1, lease)
        assert gauge.used(now=12.0) == 2

    def test_a_lower_limit_waits_until_it_has_drained(self):
        """[quota R63]"""
        gauge = window_of("concurrency", 3)
        leases = [charge(gauge, 1, now=0.0) for _ in range(3)]
        gauge.resize(QuotaLimit("concurrency", 2), now=1.0)
        gauge.settle(1, 1, leases[0], now=1.0)
        assert charge(gauge, 1, now=1.0) is None
        gauge.settle(1, 1, leases[1], now=1.0)
        assert charge(gauge, 1, now=1.0)

    def test_rests_when_nothing_is_held(self):
        gauge = window_of("concurrency", 3)
        assert gauge.is_at_rest(now=0.0)
        charge(gauge, 1, now=0.0, lasts=10.0)
        assert not gauge.is_at_rest(now=9.0)
        assert gauge.is_at_rest(now=10.0)
