"""What a provider means by a refusal."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.errors import (
    BadRequestError,
    InsufficientQuotaError,
    OverloadedError,
    RateLimitError,
)
from chatrouting.quota.headers import DAY
from chatrouting.quota.limits import INPUT_TOKENS, REQUESTS
from chatrouting.quota.profiles import provider_profile
from chatrouting.quota.throttle import (
    Throttle,
    ThrottleKind,
    Violation,
    read_retry_delay,
    read_throttle,
    read_violations,
)

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


def read(error, name="openai"):
    return read_throttle(error, provider_profile(name), now=NOW)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(RateLimitError("Rate limit reached."), ThrottleKind.QUOTA, id="429"),
        pytest.param(
            RateLimitError("slow down", code="ramp_limit_exceeded"),
            ThrottleKind.ACCELERATION,
            id="ramp",
        ),
        pytest.param(
            RateLimitError("This would exceed your acceleration limit; scale up gradually."),
            ThrottleKind.ACCELERATION,
            id="acceleration",
        ),
        pytest.param(OverloadedError("Overloaded"), ThrottleKind.OVERLOAD, id="529"),
        pytest.param(
            RateLimitError("The service is experiencing high demand."),
            ThrottleKind.OVERLOAD,
            id="high demand is not your quota",
        ),
        pytest.param(
            RateLimitError("Rate limit reached for requests per day (RPD)"),
            ThrottleKind.DAILY,
            id="per day",
        ),
        pytest.param(
            InsufficientQuotaError("You exceeded your current quota."),
            ThrottleKind.SPEND,
            id="plan",
        ),
    ],
)
def test_one_status_says_five_things(error, kind):
    """[quota R3] [quota R58]"""
    assert read(error).kind is kind


def test_an_error_about_something_else_is_no_refusal():
    assert read(BadRequestError("no")) is None
    assert read(ValueError("no")) is None


def test_the_wait_and_the_name_of_the_limit_are_kept():
    """[quota R12] What the provider said can be told again."""
    headers = {
        "retry-after": "7",
        "anthropic-ratelimit-requests-remaining": "3",
        "anthropic-ratelimit-output-tokens-remaining": "0",
        "anthropic-ratelimit-output-tokens-reset": "2026-12-01T12:00:07Z",
    }
    error = RateLimitError("no", retry_after=7.0, rate_limit_headers=headers)
    found = read(error, "anthropic")
    assert (found.kind, found.retry_after, found.limiter) == (
        ThrottleKind.QUOTA,
        7,
        "output-tokens",
    )
    assert [each.remaining for each in found.readings] == [3, 0]


def test_a_limit_for_a_day_that_is_used_up_is_told_by_the_profile():
    """[quota R4] Groq's requests are those of a day."""
    headers = {"x-ratelimit-limit-requests": "14400", "x-ratelimit-remaining-requests": "0"}
    error = RateLimitError("no", rate_limit_headers=headers)
    assert read(error, "groq").kind is ThrottleKind.DAILY
    assert read(error, "openai").kind is ThrottleKind.QUOTA


DETAILS = {
    "error": {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [
                    {
                        "quotaMetric": "googleapis.com/generate_content_input_token_count",
                        "quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier",
                        "quotaValue": "125000",
                    },
                    {
                        "quotaMetric": "generativelanguage.googleapis.com/generate_requests",
                        "quotaId": "GenerateRequestsPerDayPerProjectPerModel",
                    },
                    {"quotaId": "Something"},
                ],
            },
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "55s"},
        ],
    }
}


def google_error(body):
    error = RateLimitError("Resource has been exhausted")
    error.__cause__ = RuntimeError()
    error.__cause__.body = body
    return error


BODIES = {"whole": DETAILS, "in a list": [DETAILS], "cut": DETAILS["error"]}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_details_of_google_name_every_limit_that_was_exceeded(body):
    """[quota R12] In the body, since there are no headers."""
    assert read_violations(body) == (
        Violation(
            "GenerateContentInputTokensPerModelPerMinute-FreeTier", INPUT_TOKENS, 60.0, 125_000
        ),
        Violation("GenerateRequestsPerDayPerProjectPerModel", REQUESTS, DAY),
        Violation("Something"),
    )
    assert read_retry_delay(body) == 55.0
    assert read(google_error(body), "gemini") == Throttle(
        ThrottleKind.DAILY, 55.0, "GenerateContentInputTokensPerModelPerMinute-FreeTier"
    )


def test_a_limit_of_nothing_is_a_plan_without_it():
    """A limit of 0 is never waited for."""
    violation = {"quotaId": "GenerateRequestsPerMinute", "quotaValue": 0}
    body = {"details": [{"@type": "x/google.rpc.QuotaFailure", "violations": [violation]}]}
    assert read_violations(body) == (Violation("GenerateRequestsPerMinute", REQUESTS, 60.0, 0.0),)
    assert read(google_error(body), "gemini").kind is ThrottleKind.SPEND


def test_a_delay_that_is_no_text_is_none():
    details = [{"@type": "RetryInfo", "retryDelay": 5}, {"@type": "RetryInfo", "retryDelay": "5s"}]
    assert read_retry_delay({"details": details}) == 5.0
    assert read_retry_delay({"details": details[:1]}) is None


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "details", "violations", "@type", "retryDelay", "quotaValue"]
            ),
            inner | st.sampled_from(["QuotaFailure", "RetryInfo"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JUNK)
def test_no_body_makes_the_reader_raise(body):
    assert isinstance(read_violations(body), tuple)
    delay = read_retry_delay(body)
    assert delay is None or delay >= 0
    assert isinstance(read(google_error(body), "gemini"), Throttle)
