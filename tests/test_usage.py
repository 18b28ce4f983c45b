"""Token counts: sums, and reports that replace each other."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting import Usage

COUNT = st.none() | st.integers(0, 10**9)
USAGES = st.builds(
    Usage,
    input_tokens=COUNT,
    output_tokens=COUNT,
    cache_read_input_tokens=COUNT,
    cache_write_input_tokens=COUNT,
    reasoning_output_tokens=COUNT,
)


@pytest.mark.parametrize(
    ("usage", "total"),
    [
        (Usage(input_tokens=3, output_tokens=4), 7),
        (Usage(input_tokens=0, output_tokens=0), 0),
        (Usage(input_tokens=3), None),
        (Usage(output_tokens=4), None),
        (Usage(input_tokens=3, output_tokens=4, cache_read_input_tokens=2), 7),
    ],
)
def test_the_total_is_known_if_both_parts_are(usage, total):
    """Cached input and reasoning are inside of the two, not beside them."""
    assert usage.total_tokens == total


@given(USAGES, USAGES)
def test_a_sum_adds_what_is_known(first, second):
    """A number plus None is the number; absent plus absent stays absent."""
    for field in fields(Usage):
        known = [n for u in (first, second) if (n := getattr(u, field.name)) is not None]
        assert getattr(first + second, field.name) == (sum(known) if known else None)


@given(USAGES, USAGES, USAGES)
def test_sums_are_the_same_in_any_order(a, b, c):
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Usage() == a


@given(USAGES, USAGES)
def test_a_later_report_replaces_what_it_knows(earlier, later):
    updated = earlier.updated_by(later)
    for field in fields(Usage):
        told = getattr(later, field.name)
        expected = getattr(earlier, field.name) if told is None else told
        assert getattr(updated, field.name) == expected
