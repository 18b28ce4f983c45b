"""[BR-63] Settings that make no sense are refused where they are made, by their name."""

import math

import pytest

from chatrouting import ChatOptions, FailoverChatClient, RetryChatClient, RoutingHints
from chatrouting.policies.backoff import ExponentialBackoff
from chatrouting.testing import ScriptedChatClient

SECONDS = [0, -1, -0.5, math.nan, math.inf, True, False, "5"]
COUNTS = [0, -1, math.nan, 1.5, True, False, "5"]


def failover(**settings):
    return FailoverChatClient(lambda _: None, **settings)


def retry(**settings):
    return RetryChatClient(ScriptedChatClient(), **settings)


@pytest.mark.parametrize("value", SECONDS, ids=repr)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (failover, "attempt_timeout"),
        (failover, "first_output_timeout"),
        (failover, "stall_timeout"),
        (retry, "attempt_timeout"),
        (retry, "maximum_wait"),
        (RoutingHints, "timeout"),
    ],
)
def test_seconds_are_a_positive_finite_number(make, name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}; expected seconds"):
        make(**{name: value})


@pytest.mark.parametrize("value", COUNTS, ids=repr)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (failover, "maximum_attempts_per_request"),
        (retry, "maximum_attempts_per_request"),
        (ChatOptions, "max_output_tokens"),
    ],
)
def test_a_count_is_a_whole_number_from_one_on(make, name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}; expected a whole number"):
        make(**{name: value})


@pytest.mark.parametrize("name", ["initial", "factor", "maximum"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf], ids=repr)
def test_a_backoff_is_made_of_finite_numbers(name, value):
    with pytest.raises(ValueError, match=f"backoff's {name} is {value!r}; expected a finite"):
        ExponentialBackoff(**{name: value})
