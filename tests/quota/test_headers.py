"""What rate-limit headers say."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.quota.headers import DAY, LimitReading, read_limits

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


def read_one(headers, **settings):
    readings = read_limits(headers, now=NOW, **settings)
    assert len(readings) == 1, readings
    return readings[0]


def test_the_families_of_openai_are_read_with_their_resets():
    """[quota R12] The provider's own names stay beside our dimensions."""
    headers = {
        "X-RateLimit-Limit-Requests": "60",
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-remaining-tokens": "149984",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-reset-tokens": "6m0s",
        "date": "Tue, 01 Dec 2026 12:00:30 GMT",
        "x-request-id": "limit",
    }
    assert read_limits(headers, now=NOW) == (
        LimitReading(
            limiter="requests", dimension="requests", window=60, limit=60, remaining=59, reset=1
        ),
        LimitReading(
            limiter="tokens",
            dimension="total_tokens",
            window=60,
            limit=150_000,
            remaining=149_984,
            reset=360,
        ),
    )


def test_a_window_of_the_project_is_told_from_that_of_the_organisation():
    """[quota R12] A family that nobody has listed is read by the words in its names."""
    readings = read_limits(
        {
            "x-ratelimit-limit-project-tokens": "1000",
            "x-ratelimit-remaining-project-tokens": "10",
            "x-ratelimit-remaining-tokens": "500",
            "x-ratelimit-remaining-tokens_usage_based": "400",
        }
    )
    assert [(each.limiter, each.dimension, each.scope, each.remaining) for each in readings] == [
        ("project-tokens", "total_tokens", "project", 10),
        ("tokens", "total_tokens", "", 500),
        ("tokens-usage-based", "total_tokens", "usage-based", 400),
    ]


def test_the_families_of_anthropic_are_read():
    readings = read_limits(
        {
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-input-tokens-limit": "80000",
            "anthropic-ratelimit-input-tokens-remaining": "79000",
            "anthropic-ratelimit-input-tokens-reset": "2026-12-01T12:00:15Z",
            "anthropic-ratelimit-output-tokens-remaining": "16000",
            "anthropic-priority-input-tokens-remaining": "5",
            "anthropic-fast-output-tokens-remaining": "6",
        },
        now=NOW,
    )
    assert [(each.dimension, each.scope, each.remaining) for each in readings] == [
        ("requests", "", 49),
        ("input_tokens", "", 79_000),
        ("output_tokens", "", 16_000),
        ("input_tokens", "priority", 5),
        ("output_tokens", "fast", 6),
    ]
    assert (readings[1].limit, readings[1].reset) == (80_000, 15)


def test_a_utilisation_is_read_with_the_window_in_its_name():
    reading = read_one(
        {
            "anthropic-ratelimit-unified-5h-utilization": "0.42",
            "anthropic-ratelimit-unified-5h-reset": str(int(NOW.timestamp()) + 60),
        }
    )
    assert (reading.limiter, reading.scope, reading.dimension) == ("unified-5h", "unified", None)
    assert (reading.window, reading.utilisation, reading.reset) == (5 * 3600, 0.42, 60)


def test_a_provider_may_mean_a_day_where_another_means_a_minute():
    """[quota R4] Groq's requests are those of a day, its tokens those of a minute."""
    requests, tokens = read_limits(
        {"x-ratelimit-limit-requests": "14400", "x-ratelimit-limit-tokens": "18000"},
        windows={"requests": DAY},
    )
    assert (requests.window, tokens.window) == (DAY, 60)
    reading = read_one({"x-ratelimit-limit-requests": "20"}, windows={"requests": None})
    assert reading.window is None


@pytest.mark.parametrize(
    ("name", "dimension", "window"),
    [
        ("x-ratelimitbysize-limit-minute", "total_tokens", 60),
        ("x-ratelimit-limit-tokens-minute", "total_tokens", 60),
        ("x-ratelimit-limit-requests-day", "requests", DAY),
        ("x-ratelimit-limit-tokens-month", "total_tokens", 30 * DAY),
        ("x-ratelimit-limit-req-second", None, 1),
        ("x-rate-limit-limit-tokens", "total_tokens", 60),
        ("ratelimit-limit", None, 60),
        ("x-ratelimit-limit-concurrent-requests", "concurrency", 60),
        ("x-ratelimit-limit-concurrency", "concurrency", 60),
    ],
)
def test_other_spellings(name, dimension, window):
    reading = read_one({name: "7"})
    assert (reading.dimension, reading.window, reading.limit) == (dimension, window, 7)


def test_the_draft_of_the_ietf_is_read():
    readings = read_limits(
        {
            "RateLimit-Policy": '"burst";q=100;w=60, "daily";q=1000;w=86400',
            "RateLimit": '"burst";r=50;t=30,"daily"; r=20 ;t=9;pk=abc',
        }
    )
    assert readings == (
        LimitReading(limiter="burst", scope="burst", window=60, limit=100, remaining=50, reset=30),
        LimitReading(limiter="daily", scope="daily", window=DAY, limit=1000, remaining=20, reset=9),
    )
    older = read_one({"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "50"})
    assert (older.limit, older.remaining) == (100, 50)


@pytest.mark.parametrize("value", ["-1", "", "nan", "1e9", "unlimited", "9" * 400])
def test_a_value_that_is_none_is_absent_but_the_limit_is_named(value):
    """Azure has answered -1 for limit and rest, with a reset of 0."""
    reading = read_one({"x-ratelimit-limit-tokens": value, "x-ratelimit-remaining-tokens": value})
    assert reading == LimitReading(limiter="tokens", dimension="total_tokens", window=60)


def test_the_wait_goes_by_the_rate_and_not_by_the_reset():
    """The reset of OpenAI is the time until everything is back: waiting for it is too long."""
    reading = LimitReading(
        limiter="tokens", window=60, limit=60_000, remaining=400, reset=59.6, dimension="x"
    )
    assert reading.wait_for(400) == 0
    assert reading.wait_for(1_400) == pytest.approx(1)
    assert reading.wait_for(60_001) is None
    assert LimitReading(limiter="tokens", limit=5, window=60).wait_for(1) is None
    assert LimitReading(limiter="tokens", limit=5, remaining=1).wait_for(2) is None


WORDS = st.sampled_from(
    ["x", "anthropic", "ratelimit", "rate", "limit", "remaining", "reset", "tokens", "5h", "", "q"]
)
NAMES = st.lists(WORDS, max_size=6).map("-".join) | st.sampled_from(
    ["ratelimit", "ratelimit-policy"]
)


@given(st.dictionaries(NAMES, st.text(max_size=30) | st.sampled_from(["-1", "5;w=9", '"a";q=.'])))
def test_no_header_makes_the_parser_raise_or_give_what_is_no_amount(headers):
    for reading in read_limits(headers, now=NOW):
        for number in (reading.limit, reading.remaining, reading.reset, reading.window):
            assert number is None or (number >= 0 and math.isfinite(number))
