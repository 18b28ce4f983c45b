"""Reading when a provider says to come back."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.policies.retry_after import (
    parse_http_date,
    parse_number,
    parse_reset,
    parse_retry_after,
    rate_limit_headers,
    retry_after_in_text,
)

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        pytest.param("2", 2.0, id="whole"),
        pytest.param("1.9", 1.9, id="fraction"),
        pytest.param(" 3 ", 3.0, id="spaces"),
        pytest.param("0", 0.0, id="zero"),
        pytest.param("5s", 5.0, id="unit"),
        pytest.param("Tue, 01 Dec 2026 12:00:30 GMT", 30.0, id="RFC 1123"),
        pytest.param("Tuesday, 01-Dec-26 12:00:30 GMT", 30.0, id="RFC 850"),
        pytest.param("Tue Dec  1 12:00:30 2026", 30.0, id="asctime"),
        pytest.param("Tue, 01 Dec 2026 11:00:00 GMT", 0.0, id="past date"),
        pytest.param("2, 5", 2.0, id="two lines"),
        pytest.param("Tue, 01 Dec 2026 12:00:30 GMT, 5", 30.0, id="two lines, a date first"),
        pytest.param("-5", None, id="negative"),
        pytest.param("nan", None, id="nan"),
        pytest.param("inf", None, id="inf"),
        pytest.param("9" * 400, None, id="too many digits"),
        pytest.param("1e9", None, id="exponent"),
        pytest.param("2026-12-01", None, id="ISO date"),
        pytest.param("soon", None, id="junk"),
        pytest.param("Tue, 99 Dec 2026 99:00:30 GMT", None, id="impossible date"),
        pytest.param("", None, id="empty"),
    ],
)
def test_retry_after_takes_seconds_and_the_three_http_dates(value, seconds):
    """[BR-26] [pools 45-46] Decimal seconds and dates are read; what is not readable is absent."""
    assert parse_retry_after({"Retry-After": value}, now=NOW) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        pytest.param({"retry-after-ms": "250", "retry-after": "9"}, 0.25, id="milliseconds win"),
        pytest.param({"x-ms-retry-after-ms": "1500"}, 1.5, id="Azure milliseconds"),
        pytest.param({"retry-after-ms": "-1", "retry-after": "9"}, 9.0, id="unreadable is skipped"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_the_first_readable_hint_wins(headers, seconds):
    """[pools 47] Milliseconds come before seconds, and junk does not hide a readable hint."""
    assert parse_retry_after(headers, now=NOW) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        pytest.param(
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "6m0s",
                "x-ratelimit-remaining-tokens": "10",
                "x-ratelimit-reset-tokens": "50m",
            },
            360.0,
            id="only the exhausted limit",
        ),
        pytest.param(
            {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"},
            0.02,
            id="milliseconds",
        ),
        pytest.param(
            {
                "x-ratelimit-remaining-tokens": "-3",
                "x-ratelimit-reset-tokens": "7.5",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "2s",
            },
            7.5,
            id="the longer of two",
        ),
        pytest.param(
            {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "2d"},
            3600.0,
            id="an hour at most",
        ),
        pytest.param(
            {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW.timestamp() + 4))},
            4.0,
            id="epoch seconds",
        ),
        pytest.param(
            {
                "X-RateLimit-Remaining": "0",
                "X-RateLimit-Reset": str(int(NOW.timestamp() + 4) * 1000),
            },
            4.0,
            id="epoch milliseconds",
        ),
        pytest.param(
            {
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-12-01T12:00:15Z",
                "anthropic-ratelimit-requests-remaining": "5",
                "anthropic-ratelimit-requests-reset": "2026-12-01T12:30:00Z",
            },
            15.0,
            id="RFC 3339",
        ),
        pytest.param(
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2026-12-01T11:00:00",
            },
            0.0,
            id="RFC 3339 in the past, without a zone",
        ),
        pytest.param(
            {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "whenever"},
            None,
            id="junk",
        ),
        pytest.param({"x-ratelimit-remaining-tokens": "0"}, None, id="no reset"),
        pytest.param({"x-ratelimit-remaining-tokens": "?"}, None, id="no number"),
    ],
)
def test_resets_count_for_limits_that_are_used_up(headers, seconds):
    """[pools 47] The reset of a limit with room left says nothing about this refusal."""
    assert parse_retry_after(headers, now=NOW) == pytest.approx(seconds)


def test_without_a_clock_dates_stay_unread():
    assert parse_retry_after({"retry-after": "Tue, 01 Dec 2026 12:00:30 GMT"}, now=None) is None
    reset = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000000"}
    assert parse_retry_after(reset, now=None) is None
    assert parse_retry_after({"retry-after": "4"}, now=None) == 4.0


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        pytest.param("Please retry after 24 seconds.", 24.0, id="Azure"),
        pytest.param("Please try again in 20ms. Visit", 0.02, id="OpenAI"),
        pytest.param("Rate limit reached. Please try again in 6m0s.", 360.0, id="compound"),
        pytest.param("try again in 1.5 seconds", 1.5, id="fraction"),
        pytest.param("Retry in 300 milliseconds", 0.3, id="milliseconds"),
        pytest.param("wait for 2 minutes", 120.0, id="minutes"),
        pytest.param("limit of 10 requests in 60 seconds", None, id="a limit, not a hint"),
        pytest.param("try again later", None, id="no number"),
        pytest.param("", None, id="empty"),
    ],
)
def test_a_hint_in_words_is_read(message, seconds):
    """[pools 47] The phrase is the last resort."""
    assert retry_after_in_text(message) == pytest.approx(seconds)


def test_only_rate_limit_headers_are_kept():
    headers = {
        "X-RateLimit-Remaining-Tokens": "3",
        "Anthropic-RateLimit-Requests-Reset": "x",
        "Retry-After": "2",
        "Authorization": "secret",
        "Set-Cookie": "secret",
    }
    assert rate_limit_headers(headers) == {
        "x-ratelimit-remaining-tokens": "3",
        "anthropic-ratelimit-requests-reset": "x",
        "retry-after": "2",
    }
    assert rate_limit_headers({"date": "x"}) is None


@pytest.mark.parametrize(
    "name",
    [
        "x-ratelimitbysize-remaining-minute",
        "ratelimitbysize-reset",
        "x-rate-limit-reset-tokens",
        "anthropic-priority-input-tokens-remaining",
        "anthropic-fast-output-tokens-limit",
        "x-ms-spillover-from-deployment",
        "x-ms-spillover-error",
        "x-ms-deployment-name",
    ],
)
def test_other_spellings_of_the_families_are_kept(name):
    """[quota R12] What a provider says of its limits stays with the answer, as it was said."""
    assert rate_limit_headers({name.title(): "1"}) == {name: "1"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1.5", 1.5), ("6m0s", 360.0), ("2026-12-01T12:00:30Z", 30.0), ("soon", None), ("-1", None)],
)
def test_a_reset_is_read_in_any_form(text, seconds):
    assert parse_reset(f" {text} ", NOW) == seconds


@pytest.mark.parametrize(
    ("text", "number"), [("20", 20.0), ("-1", None), ("1e3", None), ("", None)]
)
def test_a_number_is_plain_decimals(text, number):
    assert parse_number(text) == number


def test_http_dates_are_aware():
    assert parse_http_date("Tue Dec  1 12:00:00 2026") == NOW
    assert parse_http_date("2026-12-01") is None


NAMES = st.sampled_from(
    [
        "retry-after",
        "retry-after-ms",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ]
)


@given(st.dictionaries(NAMES, st.text(max_size=20) | st.sampled_from(["0", "-1", "5", "1s"])))
def test_no_header_makes_the_parser_raise_or_go_negative(headers):
    wait = parse_retry_after(headers, now=NOW)
    assert wait is None or (wait >= 0 and math.isfinite(wait))
