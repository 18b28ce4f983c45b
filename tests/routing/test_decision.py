"""The one decision, without a router around it."""

import pytest

from chatrouting import AttemptOutcome, RoutingAttempt
from chatrouting.errors import (
    ConfigurationError,
    OverloadedError,
    QuotaExceededError,
    RequestTimeoutError,
)
from chatrouting.routing._decision import Verdict, choose_error, decide

FAILED, REFUSED = AttemptOutcome.FAILED, AttemptOutcome.REFUSED_LOCALLY


def counting(count):
    """Return attempts of which so many count, and one that was refused."""
    refused = RoutingAttempt(outcome=REFUSED)
    return [refused, *(RoutingAttempt(outcome=FAILED) for _ in range(count))]


def verdict(outcome=FAILED, error=None, **facts):
    defaults = {
        "is_committed": False,
        "attempts": counting(1),
        "maximum_attempts": None,
        "is_over_time": False,
    }
    return decide(outcome=outcome, error=error or OverloadedError("x"), **(defaults | facts))


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (AttemptOutcome.COMPLETED, Verdict.STOP),
        (AttemptOutcome.ABANDONED, Verdict.STOP),
        (AttemptOutcome.CANCELLED, Verdict.STOP),
        (AttemptOutcome.FAILED, Verdict.ASK),
        (AttemptOutcome.REFUSED_LOCALLY, Verdict.GO_ON),
    ],
)
def test_only_failures_and_refusals_may_go_on(outcome, expected):
    assert verdict(outcome) is expected


@pytest.mark.parametrize("outcome", [FAILED, REFUSED])
@pytest.mark.parametrize("fact", ["is_committed", "is_over_time"])
def test_nothing_goes_on_after_the_commit_or_the_deadline(outcome, fact):
    assert verdict(outcome, **{fact: True}) is Verdict.STOP


@pytest.mark.parametrize(
    ("counted", "maximum", "expected"),
    [(1, 2, Verdict.ASK), (2, 2, Verdict.STOP), (3, 2, Verdict.STOP), (99, None, Verdict.ASK)],
)
def test_a_failure_goes_on_below_the_limit(counted, maximum, expected):
    assert verdict(attempts=counting(counted), maximum_attempts=maximum) is expected


def test_a_refusal_goes_on_whatever_the_limit():
    assert verdict(REFUSED, attempts=counting(2), maximum_attempts=2) is Verdict.GO_ON


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [(None, Verdict.GO_ON), (True, Verdict.GO_ON), (False, Verdict.STOP)],
)
def test_a_refusal_says_whether_others_may_be_asked(allowed, expected):
    assert verdict(REFUSED, QuotaExceededError("x", fallback_allowed=allowed)) is expected


@pytest.mark.parametrize("error", [ConfigurationError("x"), RequestTimeoutError("x")])
def test_some_failures_never_go_on(error):
    assert verdict(error=error) is Verdict.STOP


def failed(error):
    return RoutingAttempt(exception=error)


def refused(error):
    return RoutingAttempt(outcome=REFUSED, exception=error)


def test_the_error_that_ends_the_request_is_raised():
    error = OverloadedError("last")

    assert choose_error(error, [failed(KeyError("first")), failed(error)]) is error


@pytest.mark.parametrize("current", ["the refusal", "nothing left to select"])
def test_a_providers_error_is_preferred_over_a_later_refusal(current):
    error, refusal = OverloadedError("x"), QuotaExceededError("x")
    ending = refusal if current == "the refusal" else None

    assert choose_error(ending, [failed(KeyError()), failed(error), refused(refusal)]) is error


def test_a_refusal_that_allows_no_fallback_is_raised_itself():
    refusal = QuotaExceededError("x", fallback_allowed=False)

    assert choose_error(refusal, [failed(OverloadedError("x")), refused(refusal)]) is refusal


def test_without_a_providers_error_the_last_refusal_is_raised():
    last = QuotaExceededError("last")

    assert choose_error(None, [refused(QuotaExceededError("first")), refused(last)]) is last


def test_there_is_nothing_to_raise_for_an_attempt_that_did_not_fail():
    with pytest.raises(ValueError, match="exception"):
        choose_error(None, [RoutingAttempt()])
