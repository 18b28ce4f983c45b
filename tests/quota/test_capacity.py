"""How much of a quota refusals leave, and how fast traffic may rise."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.errors import ConfigurationError
from chatrouting.quota.capacity import AdaptiveCapacity, AdaptiveSettings
from chatrouting.quota.headers import LimitReading
from chatrouting.quota.ramp import Ramp
from chatrouting.quota.throttle import Throttle, ThrottleKind

QUOTA = Throttle(ThrottleKind.QUOTA)


@pytest.mark.parametrize(
    "kind", [ThrottleKind.QUOTA, ThrottleKind.ACCELERATION, ThrottleKind.OVERLOAD]
)
def test_a_refusal_shrinks_what_is_used_and_time_brings_it_back(kind):
    """[quota R58] By a factor at once, then by steps."""
    capacity = AdaptiveCapacity()
    assert capacity.share(0.0) == 1.0
    capacity.refused(Throttle(kind), sent_at=99.0, now=100.0)
    assert capacity.share(100.0) == pytest.approx(0.8)
    assert capacity.share(160.0) == pytest.approx(0.9)
    assert capacity.share(220.0) == 1.0
    assert capacity.share(1e9) == 1.0


def test_requests_that_were_under_way_together_shrink_it_once():
    """[quota R58] Ten refusals of one burst are one piece of news."""
    capacity = AdaptiveCapacity()
    for number in range(10):
        capacity.refused(QUOTA, sent_at=99.0, now=100.0 + number / 10)
    assert capacity.share(101.0) == pytest.approx(0.8, abs=0.01)
    capacity.refused(QUOTA, sent_at=100.5, now=102.0)
    assert capacity.share(102.0) < 0.65


def test_something_is_always_tried():
    """[quota R58] Otherwise nobody would find out that it works again."""
    capacity = AdaptiveCapacity(AdaptiveSettings(least=0.25))
    for second in range(100):
        capacity.refused(QUOTA, sent_at=second, now=second)
    assert capacity.share(100.0) >= 0.25


def test_the_provider_says_when_to_come_back():
    """[quota R58] The quota is closed until then; a shorter wait takes nothing back. [BR-39]"""
    capacity = AdaptiveCapacity()
    assert capacity.closed_for(5.0) == 0.0
    capacity.refused(Throttle(ThrottleKind.QUOTA, 30.0), sent_at=9.0, now=10.0)
    capacity.refused(Throttle(ThrottleKind.QUOTA, 1.0), sent_at=9.5, now=11.0)
    assert capacity.closed_for(12.0) == 28.0
    assert capacity.closed_for(40.0) == 0.0


@pytest.mark.parametrize("kind", [ThrottleKind.DAILY, ThrottleKind.SPEND])
def test_what_does_not_come_back_in_a_minute_closes_the_quota(kind):
    """[quota R58] Shrinking would ask a dead quota again and again."""
    reading = LimitReading(limiter="requests-day", window=86_400, remaining=0, reset=7_200)
    for throttle, seconds in (
        (Throttle(kind), 3_600),
        (Throttle(kind, 60.0), 60),
        (Throttle(kind, readings=(reading,)), 7_200),
        (Throttle(kind, readings=(LimitReading(limiter="x", remaining=5, reset=9),)), 3_600),
    ):
        capacity = AdaptiveCapacity()
        capacity.refused(throttle, sent_at=0.0, now=0.0)
        assert capacity.closed_for(0.0) == seconds
        assert capacity.share(0.0) == 1.0


@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.none() | st.floats(0, 99)))
)
def test_the_share_is_always_one(refusals):
    """[BR-60] Also when clocks step."""
    capacity = AdaptiveCapacity()
    for sent_at, now, wait in refusals:
        capacity.refused(Throttle(ThrottleKind.QUOTA, wait), sent_at=sent_at, now=now)
        assert 0.1 <= capacity.share(now) <= 1.0
        assert capacity.closed_for(now) >= 0


@pytest.mark.parametrize("name", ["decrease", "recovery_per_minute", "least"])
@pytest.mark.parametrize("value", [0, -0.1, math.nan, math.inf])
def test_settings_that_mean_nothing_are_refused(name, value):
    """[BR-63]"""
    with pytest.raises(ConfigurationError, match=name):
        AdaptiveSettings(**{name: value})


def test_a_decrease_of_one_is_none():
    with pytest.raises(ConfigurationError, match="decrease"):
        AdaptiveSettings(decrease=1.0)


def use_all(ramp, minutes, *, start=0.0):
    """Use whatever is allowed, every six seconds; return the sums of the minutes."""
    sums = []
    for minute in range(minutes):
        total = 0.0
        for step in range(10):
            now = start + 60.0 * minute + 6.0 * step
            take = max(0.0, min(ramp.share(now) / 10, ramp.share(now) - total))
            ramp.use(take, now)
            total += take
        sums.append(total)
    return sums


def test_a_cold_deployment_is_ramped():
    """[quota R59] No minute sees more than a fifth more than the one before."""
    sums = use_all(Ramp(0.2), 20)
    assert sums[0] == pytest.approx(0.1)
    for before, after in pairwise(sums):
        assert before <= after <= before * 1.2 + 1e-9
    assert sums[12] < 1.0
    assert sums[13:] == pytest.approx([1.0] * 7)


def test_traffic_that_was_low_does_not_jump():
    """[quota R59] [quota R15] Time alone warms nothing up."""
    ramp = Ramp(0.2, cold=0.05)
    for minute in range(60):
        ramp.use(0.2 if minute > 20 else 0.05, 60.0 * minute)
    assert ramp.share(60.0 * 60) == pytest.approx(0.24)


def test_what_was_busy_long_ago_is_cold_again():
    """[quota R59] It cools as slowly as it warms up."""
    ramp = Ramp(0.2)
    use_all(ramp, 20)
    assert ramp.share(20 * 60.0) == 1.0
    assert ramp.share(25 * 60.0) == pytest.approx(1.2**-4, rel=0.01)
    assert ramp.share(60 * 60.0) == pytest.approx(0.1)
    assert ramp.share(1e12) == pytest.approx(0.1)


def test_a_deployment_that_has_recovered_is_ramped():
    """[quota R59]"""
    ramp = Ramp(0.2)
    use_all(ramp, 20)
    ramp.restart(1_200.0)
    assert ramp.share(1_200.0) == pytest.approx(0.1)
    sums = use_all(ramp, 5, start=1_200.0)
    assert sums[4] == pytest.approx(0.1 * 1.2**4, rel=0.01)


@pytest.mark.parametrize(
    ("growth", "cold"),
    [(0, 0.1), (-1, 0.1), (math.nan, 0.1), (math.inf, 0.1), (0.2, 0), (0.2, 1.1), (0.2, math.nan)],
)
def test_a_ramp_that_means_nothing_is_refused(growth, cold):
    """[BR-63]"""
    with pytest.raises(ConfigurationError):
        Ramp(growth, cold=cold)
