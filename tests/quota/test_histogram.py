"""Quantiles of values of which the newer ones count more."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.errors import ConfigurationError
from chatrouting.quota.histogram import DecayedHistogram

VALUES = st.lists(st.floats(1, 1e6), min_size=1, max_size=200)


def filled(values, **settings):
    histogram = DecayedHistogram(**settings)
    for value in values:
        histogram.add(value, 0.0)
    return histogram


def test_an_empty_one_knows_nothing():
    histogram = DecayedHistogram()
    assert (histogram.samples(0.0), histogram.quantile(0.95, 0.0)) == (0.0, 0.0)


@given(VALUES, st.floats(0.01, 0.99))
def test_a_quantile_is_within_a_cell_of_the_exact_one(values, share):
    """[quota R22] The value of rank `share * (n + 1)`, the largest if there is no such rank."""
    histogram = filled(values, half_life=1e9)
    ordered = sorted(values)
    rank = min(len(values), math.ceil(share * (len(values) + 1)))
    # The rank may fall on the border of two values.
    below, above = ordered[max(0, rank - 2)], ordered[min(len(values) - 1, rank)]
    assert below * 0.999 <= histogram.quantile(share, 0.0) <= above * 1.051


def test_a_share_of_further_values_is_covered_as_promised():
    """[quota R22] 95 % of what follows lies at or below the 95th percentile."""
    rng = random.Random(1)
    histogram = filled(rng.lognormvariate(6, 0.8) for _ in range(500))
    bound = histogram.quantile(0.95, 0.0)
    covered = sum(rng.lognormvariate(6, 0.8) <= bound for _ in range(10_000)) / 10_000
    assert 0.93 <= covered <= 0.97


def test_of_few_values_the_largest_is_the_bound():
    assert filled([10, 20, 400]).quantile(0.95, 0.0) == pytest.approx(400, rel=0.05)


def test_a_change_is_followed():
    """[quota R23] Old values fade as new ones come."""
    histogram = filled([100.0] * 300, half_life=50)
    for _ in range(300):
        histogram.add(5_000.0, 0.0)
    assert histogram.quantile(0.5, 0.0) > 4_000


def test_what_slept_is_trusted_less():
    """[quota R23] Time makes values fade as well; those that stay keep their quantiles."""
    histogram = filled([100.0] * 100, half_life_seconds=10)
    assert histogram.samples(0.0) == pytest.approx(100, rel=0.1)
    assert histogram.samples(10.0) == pytest.approx(50, rel=0.1)
    assert histogram.quantile(0.95, 10.0) == pytest.approx(100, rel=0.05)
    histogram.add(7.0, 1_000.0)
    assert histogram.quantile(0.95, 1_000.0) == pytest.approx(7, rel=0.05)


def test_a_quantile_is_found_anew_when_a_fiftieth_is_new():
    """[quota R23] Not for every value, for a request asks for four."""
    histogram = filled([100.0] * 100)
    assert histogram.quantile(0.5, 0.0) == pytest.approx(100, rel=0.05)
    histogram.add(1e6, 0.0)
    assert histogram.quantile(0.999, 0.0) > 9e5
    known = histogram.quantile(0.5, 0.0)
    for _ in range(150):
        histogram.add(1e6, 0.0)
        known = histogram.quantile(0.5, 0.0)
    assert known > 9e5


def test_a_clock_that_steps_back_changes_nothing():
    """[BR-60] No weight grows because a clock was set."""
    histogram = filled([100.0] * 10)
    histogram.add(100.0, 1_000.0)
    before = histogram.samples(1_000.0)
    assert histogram.samples(-1e9) == before
    histogram.add(100.0, -1e9)
    assert histogram.samples(1_000.0) == pytest.approx(before + 1, rel=0.01)


def test_many_values_do_not_overflow():
    histogram = DecayedHistogram(half_life=1)
    for number in range(3_000):
        histogram.add(50.0, number)
    assert histogram.samples(3_000.0) == pytest.approx(2, rel=0.01)
    assert histogram.quantile(0.5, 3_000.0) == pytest.approx(50, rel=0.05)


@pytest.mark.parametrize("value", [-1.0, 0.0, 0.5, 1.0])
def test_what_lies_below_the_least_is_one_cell(value):
    assert filled([value]).quantile(0.5, 0.0) == 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_left_out(value):
    assert filled([value]).samples(0.0) == 0.0


@pytest.mark.parametrize("name", ["least", "growth", "half_life", "half_life_seconds"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_settings_out_of_range_are_refused(name, value):
    """[BR-63]"""
    with pytest.raises(ConfigurationError, match=name):
        DecayedHistogram(**{name: value})
