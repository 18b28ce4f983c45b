"""The record of an attempt: constructible by anyone, and never contradicting itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting import AttemptOutcome, RoutingAttempt
from chatrouting.attempt import identifier

SECONDS = st.floats(0, 10)


def test_a_policy_can_be_tested_with_a_record_of_its_own():
    """All fields have defaults. [routing 72]"""
    attempt = RoutingAttempt(route="gpt", duration=1.5)
    assert (attempt.route, attempt.number, attempt.children) == ("gpt", 1, ())
    assert attempt.client is attempt.exception is attempt.usage is None


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({}, AttemptOutcome.COMPLETED),
        ({"response_completed": True}, AttemptOutcome.COMPLETED),
        ({"exception": OSError()}, AttemptOutcome.FAILED),
        ({"exception": OSError(), "response_completed": False}, AttemptOutcome.FAILED),
        ({"response_completed": False}, AttemptOutcome.ABANDONED),
        ({"outcome": AttemptOutcome.CANCELLED, "exception": OSError()}, AttemptOutcome.CANCELLED),
        ({"outcome": AttemptOutcome.CANCELLED}, AttemptOutcome.CANCELLED),
        ({"outcome": "completed"}, AttemptOutcome.COMPLETED),
        ({"outcome": "abandoned"}, AttemptOutcome.ABANDONED),
    ],
)
def test_the_outcome_follows_from_the_rest(fields, outcome):
    """No exception and not completed means abandoned, not success. [routing 74]"""
    attempt = RoutingAttempt(**fields)
    assert attempt.outcome is outcome
    assert attempt.response_completed is (outcome is AttemptOutcome.COMPLETED)


@pytest.mark.parametrize(
    "fields",
    [
        {"exception": OSError(), "response_completed": True},
        {"outcome": AttemptOutcome.COMPLETED, "exception": OSError()},
        {"outcome": AttemptOutcome.ABANDONED, "response_completed": True},
        {"outcome": AttemptOutcome.COMPLETED, "response_completed": False},
        {"output_committed": True},
        {"output_committed": False, "time_to_first_update": 0.5, "duration": 1.0},
        {"time_to_first_update": 2.0, "duration": 1.0},
        {"time_to_first_update": -1.0, "duration": 1.0},
    ],
)
def test_a_record_that_contradicts_itself_is_refused(fields):
    """[routing 73]"""
    with pytest.raises(ValueError, match=r"COMPLETED goes with|one is True exactly|expected 0 <="):
        RoutingAttempt(**fields)


def test_an_outcome_that_is_no_word_of_ours_is_refused():
    with pytest.raises(ValueError, match="finished"):
        RoutingAttempt(outcome="finished")


@given(
    outcome=st.none() | st.sampled_from(AttemptOutcome),
    exception=st.none() | st.just(OSError()),
    duration=SECONDS,
    time_to_first_update=st.none() | SECONDS,
    output_committed=st.none() | st.booleans(),
    response_completed=st.none() | st.booleans(),
)
def test_every_record_keeps_the_invariants(**fields):
    """Completed implies no exception; committed goes with the time of it. [routing 73]"""
    try:
        attempt = RoutingAttempt(**fields)
    except ValueError:
        return
    assert attempt.response_completed is (attempt.outcome is AttemptOutcome.COMPLETED)
    assert not (attempt.response_completed and attempt.exception)
    assert attempt.output_committed is (attempt.time_to_first_update is not None)
    assert 0 <= (attempt.time_to_first_update or 0.0) <= attempt.duration
    for name, given_value in fields.items():
        assert given_value is None or getattr(attempt, name) == given_value


def test_every_identifier_of_a_router_is_16_digits_long():
    assert identifier(31) == "000000000000001f"
    assert identifier("of a user's own") == "of a user's own"
