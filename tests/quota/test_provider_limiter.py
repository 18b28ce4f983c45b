"""The strict providers of these tests."""

import pytest

from chatrouting.quota.headers import DAY, read_limits
from chatrouting.quota.limits import (
    CONCURRENCY,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUESTS,
    TOTAL_TOKENS,
)
from chatrouting.quota.profiles import PROVIDER_PROFILES, provider_profile
from chatrouting.quota.throttle import read_retry_delay, read_violations
from tests.quota._provider_limiter import (
    COUNTING,
    START,
    Admission,
    Arrival,
    Log,
    ProviderLimiter,
    Refusal,
)

ARRIVAL = Arrival(input_tokens=1_000, cap=500, cached_tokens=600)


def arrive(limiter, now=0.0, arrival=ARRIVAL):
    admission = limiter.arrive(arrival, now)
    assert isinstance(admission, Admission), admission
    return admission


def counted(limiter, dimension, now=0.0):
    return limiter.logs[dimension][0].used(now)


def test_every_profile_has_a_provider():
    assert list(COUNTING) == list(PROVIDER_PROFILES)


@pytest.mark.parametrize(
    ("name", "dimension", "at_first", "generating", "in_the_end"),
    [
        ("openai", TOTAL_TOKENS, 1_500, 1_500, 1_500),
        ("azure", TOTAL_TOKENS, 1_500, 1_500, 1_500),
        ("azure_ptu", TOTAL_TOKENS, 1_500, 1_500, 500),
        ("anthropic", INPUT_TOKENS, 400, 400, 400),
        ("anthropic", OUTPUT_TOKENS, 0, 100, 100),
        ("gemini", INPUT_TOKENS, 1_000, 1_000, 1_000),
        ("bedrock_runtime", TOTAL_TOKENS, 1_500, 1_500, 500),
        ("bedrock_mantle", INPUT_TOKENS, 400, 400, 400),
        ("bedrock_mantle", OUTPUT_TOKENS, 0, 100, 100),
        ("groq", TOTAL_TOKENS, 400, 500, 500),
        ("mistral", TOTAL_TOKENS, 1_000, 1_100, 1_100),
    ],
)
def test_each_counts_in_its_own_way(name, dimension, at_first, generating, in_the_end):
    """[quota R4] What is charged at arrival, while output is generated, and when it is over."""
    limiter = ProviderLimiter(name, {dimension: 10_000})
    admission = arrive(limiter)
    assert counted(limiter, dimension) == at_first
    limiter.generate(admission, 100, 1.0)
    assert counted(limiter, dimension, 1.0) == generating
    limiter.finish(admission, 2.0)
    assert counted(limiter, dimension, 2.0) == in_the_end


def test_without_a_cap_the_most_that_the_model_writes_is_presumed_until_the_end():
    """[quota R18]"""
    limiter = ProviderLimiter("azure", {TOTAL_TOKENS: 100_000}, maximum_output=16_000)
    admission = arrive(limiter, arrival=Arrival(input_tokens=1_000))
    assert counted(limiter, TOTAL_TOKENS) == 17_000
    limiter.generate(admission, 200, 1.0)
    limiter.finish(admission, 2.0)
    assert counted(limiter, TOTAL_TOKENS, 2.0) == 1_200


def test_what_does_not_fit_is_refused_with_the_wait_until_it_does():
    limiter = ProviderLimiter("openai", {TOTAL_TOKENS: 2_000})
    arrive(limiter, 0.0)
    refusal = limiter.arrive(ARRIVAL, 20.0)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.limiter) == (429, TOTAL_TOKENS)
    assert refusal.headers["retry-after"] == "41"
    assert isinstance(limiter.arrive(ARRIVAL, 59.0), Refusal)
    assert isinstance(limiter.arrive(ARRIVAL, 60.0), Admission)


@pytest.mark.parametrize(("name", "after"), [("openai", 10.0), ("bedrock_mantle", 0.0)])
def test_refused_requests_count_where_the_provider_counts_them(name, after):
    """[quota R31]"""
    limits = {REQUESTS: 100, INPUT_TOKENS: 10, TOTAL_TOKENS: 10}
    limiter = ProviderLimiter(name, limits)
    for _ in range(10):
        assert isinstance(limiter.arrive(ARRIVAL, 0.0), Refusal)
    assert counted(limiter, REQUESTS) == after


def test_short_windows_are_enforced():
    """[quota R14] 60 a minute are one a second."""
    limiter = ProviderLimiter("anthropic", {REQUESTS: 60})
    assert isinstance(limiter.arrive(ARRIVAL, 0.0), Admission)
    assert isinstance(limiter.arrive(ARRIVAL, 0.5), Refusal)
    assert isinstance(limiter.arrive(ARRIVAL, 1.5), Admission)


def test_mantle_wants_room_for_the_cap_in_the_input():
    limiter = ProviderLimiter("bedrock_mantle", {INPUT_TOKENS: 1_000})
    arrive(limiter)
    assert isinstance(limiter.arrive(ARRIVAL, 0.0), Refusal)
    arrive(limiter, arrival=Arrival(input_tokens=100, cap=500))


def test_a_server_of_ones_own_has_slots():
    limiter = ProviderLimiter("self_hosted", {CONCURRENCY: 1})
    admission = arrive(limiter)
    refusal = limiter.arrive(ARRIVAL, 0.0)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.limiter) == (503, CONCURRENCY)
    limiter.finish(admission, 1.0)
    arrive(limiter, 1.0)


@pytest.mark.parametrize(
    ("name", "limits", "readings"),
    [
        (
            "openai",
            {REQUESTS: 60, TOTAL_TOKENS: 10_000},
            {(REQUESTS, 60.0): (60, 59), (TOTAL_TOKENS, 60.0): (10_000, 8_500)},
        ),
        (
            "azure",
            {REQUESTS: 120, TOTAL_TOKENS: 10_000},
            {(REQUESTS, None): (20, 19), (TOTAL_TOKENS, 60.0): (10_000, 8_500)},
        ),
        (
            "groq",
            {REQUESTS: 1_000, TOTAL_TOKENS: 10_000},
            {(REQUESTS, DAY): (1_000, 999), (TOTAL_TOKENS, 60.0): (10_000, 9_600)},
        ),
        (
            "anthropic",
            {REQUESTS: 60, INPUT_TOKENS: 10_000},
            {(REQUESTS, 60.0): (60, 59), (INPUT_TOKENS, 60.0): (10_000, 10_000)},
        ),
        ("mistral", {TOTAL_TOKENS: 10_000}, {(TOTAL_TOKENS, 60.0): (10_000, 9_000)}),
        ("bedrock_runtime", {TOTAL_TOKENS: 10_000}, {}),
        ("gemini", {REQUESTS: 10}, {}),
    ],
)
def test_their_headers_are_read_as_they_are_meant(name, limits, readings):
    """[quota R12] Units, rounding and names differ."""
    headers = arrive(ProviderLimiter(name, limits), 5.0).headers
    found = read_limits(headers, now=START, windows=provider_profile(name).header_windows)
    assert {
        (each.dimension, each.window): (each.limit, each.remaining)
        for each in found
        if each.remaining is not None
    } == readings
    assert all(each.reset is None or each.reset <= DAY + 5 for each in found)


def test_the_body_of_google_is_read():
    limiter = ProviderLimiter("gemini", {REQUESTS: 1})
    arrive(limiter)
    refusal = limiter.arrive(ARRIVAL, 20.0)
    assert isinstance(refusal, Refusal)
    assert [each.dimension for each in read_violations(refusal.body)] == [REQUESTS]
    assert read_retry_delay(refusal.body) == 41.0


def test_a_log_is_exact():
    log = Log(10, 60.0)
    first, _ = log.count(6, 0.0), log.count(3, 30.0)
    assert (log.left(59.9), log.left(60.0), log.left(90.0)) == (1, 7, 10)
    log = Log(10, 60.0)
    first = log.count(6, 0.0)
    log.count(3, 30.0)
    assert (log.wait(2, 40.0), log.wait(8, 40.0), log.wait(11, 40.0)) == (20, 50, 60)
    log.correct(first, 1, 40.0)
    assert (log.left(40.0), log.total) == (6, 4)
    log.correct(first, 9, 61.0)
    assert (log.left(61.0), log.total) == (7, 12)
