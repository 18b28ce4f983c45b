"""How each provider counts."""

import math
from pathlib import Path

import pytest

from chatrouting.errors import ConfigurationError
from chatrouting.messages import as_messages
from chatrouting.options import ChatOptions
from chatrouting.quota.charging import admission_costs, settlement_costs
from chatrouting.quota.estimate import Estimator, QuoteTarget
from chatrouting.quota.limits import (
    CONCURRENCY,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUESTS,
    STREAM_SECONDS,
    TOTAL_TOKENS,
    ProviderScope,
    QuotaLimit,
)
from chatrouting.quota.profiles import PROVIDER_PROFILES, provider_profile
from chatrouting.usage import Usage

NAMES = [
    "openai",
    "azure",
    "azure_ptu",
    "anthropic",
    "gemini",
    "bedrock_runtime",
    "bedrock_mantle",
    "groq",
    "mistral",
    "self_hosted",
]
PAGE = Path(__file__).parents[2] / "docs" / "quota-profiles.md"
MESSAGES = as_messages("What is the capital of Latvia? " * 40)
MAXIMUM = 64_000
CAP = 500


def quote_for(name, *, cap=CAP, maximum=MAXIMUM, **changes):
    target = QuoteTarget(
        deployment="d",
        profile=provider_profile(name).replace(**changes),
        maximum_output_tokens=maximum,
    )
    options = ChatOptions(max_output_tokens=cap)
    return Estimator(default_output_tokens=200).quote(
        MESSAGES, options, target, is_streaming=True, now=0.0
    )


def costs_of(name, **settings):
    quote = quote_for(name, **settings)
    return quote, admission_costs(quote.profile.policy, quote.charges())


def settled_of(quote, costs, usage):
    actual = quote.actual(usage, seconds=2.0)
    return settlement_costs(quote.profile.policy, quote.charges(), costs, actual, failed=False)


def test_all_profiles_are_there():
    assert list(PROVIDER_PROFILES) == NAMES


def test_one_request_has_different_charges_at_different_providers():
    """[quota R4] A request in OpenAI's shape has not OpenAI's quota."""
    outputs = {name: costs_of(name)[1][OUTPUT_TOKENS] for name in NAMES}
    assert outputs.pop("gemini") <= 1  # counted, if at all, when it is generated
    assert outputs == {
        "openai": CAP,
        "azure": CAP,
        "azure_ptu": CAP,
        "anthropic": 200,
        "bedrock_runtime": CAP,
        "bedrock_mantle": 200,
        "groq": 200,
        "mistral": 200,
        "self_hosted": 200,
    }


@pytest.mark.parametrize(
    ("name", "output"),
    [("azure", MAXIMUM), ("bedrock_runtime", MAXIMUM), ("openai", 200), ("anthropic", 200)],
)
def test_without_a_cap_some_take_the_most_that_the_model_writes(name, output):
    """[quota R18] The usual cause of a surprise: nobody set a cap, so 64,000 tokens are charged."""
    assert costs_of(name, cap=None)[1][OUTPUT_TOKENS] == output
    assert costs_of(name, cap=None, maximum=None)[1][OUTPUT_TOKENS] == 200


def test_the_cap_takes_room_in_the_input_until_the_request_is_over():
    """[quota R4] Mantle checks the input and the cap against the limit on input."""
    quote, costs = costs_of("bedrock_mantle")
    assert costs[INPUT_TOKENS] == quote.input.value + CAP
    for usage, left in (
        (Usage(input_tokens=300, output_tokens=90), 300),
        (None, quote.input.value),
    ):
        settled = settled_of(quote, costs, usage)
        assert settled[INPUT_TOKENS] == left


def test_output_may_count_more_than_input():
    """[quota R8] Some models burn a combined limit faster by output."""
    quote, costs = costs_of("bedrock_runtime", output_weight=5.0)
    assert costs[TOTAL_TOKENS] == quote.input.value + 5 * CAP
    usage = Usage(input_tokens=300, output_tokens=90)
    assert quote.actual(usage, seconds=1.0)[OUTPUT_TOKENS] == 450


@pytest.mark.parametrize(
    ("name", "left"),
    [("anthropic", 100), ("azure_ptu", 100), ("bedrock_runtime", 100), ("mistral", 1_000)],
)
def test_reads_from_a_cache_are_free_where_the_provider_says_so(name, left):
    """[quota R20]"""
    quote, costs = costs_of(name)
    usage = Usage(input_tokens=1_000, output_tokens=5, cache_read_input_tokens=900)
    settled = settled_of(quote, costs, usage)
    assert settled[INPUT_TOKENS] == left


def test_an_estimate_that_was_too_high_is_not_given_back_by_those_who_count_estimates():
    """[quota R4] OpenAI and Azure charge what they expect when the request comes."""
    for name in ("openai", "azure"):
        quote, costs = costs_of(name)
        usage = Usage(input_tokens=10, output_tokens=10)
        settled = settled_of(quote, costs, usage)
        assert settled[TOTAL_TOKENS] == costs[TOTAL_TOKENS]


@pytest.mark.parametrize("name", NAMES)
def test_requests_that_fail_count_unless_the_provider_says_otherwise(name):
    """[quota R31]"""
    free = {"azure_ptu", "bedrock_mantle", "self_hosted"}
    policy = provider_profile(name).policy
    assert (policy.failed_requests == "free") == (name in free)


def test_limits_are_configuration():
    """[quota R13] No limit is derived from a name, and no limit at all is not unlimited."""
    with pytest.raises(ConfigurationError, match="has no limits"):
        provider_profile("openai").bucket()
    with pytest.raises(ConfigurationError, match="'gpt-5' is not known; expected one of openai"):
        provider_profile("gpt-5")


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_on_what_the_provider_does_not_count_is_refused(name):
    """[quota R13] A limit that can never bind is a mistake."""
    profile = provider_profile(name)
    for dimension in (REQUESTS, INPUT_TOKENS, OUTPUT_TOKENS, TOTAL_TOKENS):
        limit = QuotaLimit(dimension, 1_000_000)
        if dimension in profile.dimensions:
            assert profile.bucket(limit).policy == profile.policy
        else:
            with pytest.raises(ConfigurationError, match=f"{name} does not count {dimension}"):
                profile.bucket(limit)


def test_what_is_held_and_what_is_ones_own_may_be_limited_everywhere():
    """[quota R9-R10] Slots and stream seconds are limited on our side."""
    limits = provider_profile("self_hosted").bucket(
        QuotaLimit(CONCURRENCY, 4), QuotaLimit(STREAM_SECONDS, 600), QuotaLimit("custom:images", 5)
    )
    assert [(each.dimension, each.headroom) for each in limits.limits] == [
        (CONCURRENCY, 0.0),
        (STREAM_SECONDS, 0.0),
        ("custom:images", 0.05),
    ]


def test_a_limit_for_a_minute_is_kept_over_shorter_times_too():
    """[quota R14] 600 a minute may mean 100 in ten seconds."""
    limits = provider_profile("azure").bucket(
        QuotaLimit(REQUESTS, 600), QuotaLimit(TOTAL_TOKENS, 100_000)
    )
    assert [(each.dimension, each.window, each.usable) for each in limits.limits] == [
        (REQUESTS, 60, 570),
        (TOTAL_TOKENS, 60, 95_000),
        (REQUESTS, 10.1, 100),
    ]


def test_the_shorter_limit_always_lets_one_request_through():
    """[quota R14] 30 a minute is half a request a second, and no request is half."""
    limits = provider_profile("anthropic").bucket(QuotaLimit(REQUESTS, 30))
    assert [(each.window, each.usable) for each in limits.limits] == [
        (60, 28.5),
        (1.1, 1),
    ]


def test_days_and_short_limits_stay_as_they_are():
    """[quota R15] A limit for a day has no shorter one, nor has one that is as short already."""
    daily = QuotaLimit(REQUESTS, 14_400, period="day", headroom=0.01)
    assert provider_profile("azure").bucket(daily).limits == (daily,)
    per_second = QuotaLimit(REQUESTS, 5, window=1)
    limits = provider_profile("mistral").bucket(per_second, headroom=0.2, jitter=0.25).limits
    assert limits == (QuotaLimit(REQUESTS, 5, window=1.25),)


@pytest.mark.parametrize("jitter", [-0.1, math.nan, math.inf])
def test_a_jitter_is_seconds(jitter):
    """[BR-63]"""
    with pytest.raises(ConfigurationError, match="jitter"):
        provider_profile("openai").bucket(QuotaLimit(REQUESTS, 5), jitter=jitter)


def test_a_scope_has_the_parts_by_which_the_provider_tells_its_quotas_apart():
    """[quota R11] [quota R12] Two deployments of one scope share one bucket."""
    azure = provider_profile("azure")
    scope = azure.scope(subscription="s", region="sweden", deployment="chat")
    assert scope == ProviderScope(
        "azure", {"region": "sweden", "deployment": "chat", "subscription": "s"}
    )
    with pytest.raises(ConfigurationError, match="expected subscription, region, deployment"):
        azure.scope(region="sweden")


@pytest.mark.parametrize("field", ["output_weight", "growth_per_minute", "short_windows"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_numbers_that_mean_nothing_are_refused(field, value):
    """[BR-63]"""
    change = {field: {REQUESTS: value} if field == "short_windows" else value}
    with pytest.raises(ConfigurationError, match="profile 'openai'"):
        provider_profile("openai").replace(**change)


def test_the_numbers_of_a_profile_cannot_be_changed():
    with pytest.raises(TypeError):
        provider_profile("azure").short_windows[REQUESTS] = 1.0


WORDS = {
    "cap": "its cap",
    "estimate": "its estimate",
    "generated": "when it is written",
    "origin_slot": "comes back",
    "none": "is kept",
    "count": "count",
    "free": "are free",
    "release_on_settle": "come back at the end",
    "model_maximum": "the model's maximum",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_page_on_profiles_says_what_they_say(name):
    """[quota R4] The table is what people read; the data is what counts."""
    profile = provider_profile(name)
    policy = profile.policy
    counted = ", ".join(profile.dimensions).replace("_", " ") or "nothing"
    unset = "the estimate" if profile.unset_cap == "estimate" else WORDS[profile.unset_cap]
    rules = (policy.output_charge, policy.refund, policy.cache_reads, policy.failed_requests)
    row = [f"`{name}`", counted, *(WORDS[rule] for rule in rules), unset]
    page = PAGE.read_text(encoding="utf-8")
    assert f"| {' | '.join(row)} |" in page
    assert f"| `{name}` | {', '.join(profile.scope_parts).replace('_', ' ')} |" in page
