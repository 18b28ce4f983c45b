"""Loads played before strict providers, in virtual time."""

import math
from dataclasses import replace
from random import Random

import pytest

from chatrouting.errors import ConfigurationError
from chatrouting.quota import (
    QuotaDeployment,
    QuotaGovernor,
    QuotaLimit,
    TrafficClass,
    parse_limits,
    provider_profile,
)
from chatrouting.simulation import (
    Admission,
    Arrival,
    Fate,
    LoadStream,
    ProviderLimiter,
    Refusal,
    by_class,
    by_tenant,
    over_time,
    read_scenario,
    simulate,
)
from chatrouting.simulation.summary import in_all, percentile

GRANTED = {"requests": 120, "total_tokens": 120_000}
#: 150 requests a minute of a tenant, where all have room for 120 in all.
STREAM = LoadStream(
    tenant="acme", requests_per_minute=150, output_tokens=200, max_output_tokens=400
)
PATIENT = TrafficClass(name="patient", max_wait=600, max_queue_items=10_000)


def make_governor(*names, profile="openai", granted=GRANTED, **settings):
    """Return a maker of governors for one quota of these deployments."""
    counts = provider_profile(profile)
    scope = counts.scope(**dict.fromkeys(counts.scope_parts, "x"))
    limits = [QuotaLimit(dimension, amount) for dimension, amount in granted.items()]
    deployments = [
        QuotaDeployment(name=name, scope=scope, profile=counts, limits=counts.bucket(*limits))
        for name in names or ("a",)
    ]
    return lambda clock, wall_clock: QuotaGovernor(
        deployments,
        classes=[PATIENT],
        default_class="patient",
        clock=clock,
        wall_clock=wall_clock,
        **settings,
    )


def play(*load, governed=True, duration=120.0, **settings):
    return simulate(
        load or [STREAM],
        {"a": ProviderLimiter("openai", GRANTED)},
        make_governor=make_governor() if governed else None,
        duration=duration,
        **settings,
    )


# Playing.


@pytest.mark.parametrize("knowledge", ["exact", "estimated"])
def test_a_governed_load_meets_no_refusal_and_an_ungoverned_one_does(knowledge):
    """[quota R2] Beside a client that tries again as SDKs do."""
    governed = play(knowledge=knowledge)
    without = play(knowledge=knowledge, governed=False)
    assert governed.provider_refusals == 0
    assert governed.utilisation >= 0.85
    assert without.provider_refusals > 0
    assert len(governed.records) == len(without.records) > 200


def told(result):
    return [(each.at, each.fate, each.sent_at, each.shares) for each in result.records]


def test_the_same_seed_gives_the_same_numbers():
    assert told(play(duration=60, seed=7)) == told(play(duration=60, seed=7))
    assert told(play(duration=60, seed=7)) != told(play(duration=60, seed=8))


def test_both_event_loops_give_the_same_requests():
    on_trio, on_asyncio = (play(duration=60, backend=name) for name in ("trio", "asyncio"))
    assert [each.at for each in on_trio.records] == [each.at for each in on_asyncio.records]
    assert on_trio.provider_refusals == on_asyncio.provider_refusals == 0


def test_what_still_runs_or_waits_at_the_end_is_told():
    slow = replace(STREAM, tokens_per_second=2.0, requests_per_minute=240)
    fates = {each.fate for each in play(slow, duration=60).records}
    assert {Fate.RUNNING, Fate.WAITING} <= fates


def test_what_the_governor_has_no_room_for_is_refused_with_the_reason():
    hasty = TrafficClass(name="patient", max_wait=0, max_queue_items=0)

    def make(clock, wall_clock):
        made = make_governor()(clock, wall_clock)
        return QuotaGovernor(
            made.deployments.values(), classes=[hasty], default_class="patient", clock=clock
        )

    result = simulate(
        [STREAM],
        {"a": ProviderLimiter("openai", GRANTED)},
        make_governor=make,
        duration=120,
    )
    refused = [each for each in result.records if each.fate is Fate.REFUSED]
    assert refused
    assert {each.reason for each in refused} <= {"queue_full", "exhausted", "deadline"}
    assert all(each.sent_at is None for each in refused)


def test_a_provider_that_grants_less_than_was_configured_refuses_what_was_admitted():
    """[quota R3] It is told as such, and the governor shrinks what it uses. [quota R58]"""
    granted = {"total_tokens": 60_000}
    result = simulate(
        [STREAM],
        {"a": ProviderLimiter("bedrock_runtime", granted)},
        make_governor=make_governor(profile="bedrock_runtime", granted=GRANTED),
        duration=120,
    )
    refused = [each for each in result.records if each.fate is Fate.PROVIDER_REFUSED]
    assert len(refused) == result.provider_refusals > 0
    assert result.snapshot is not None
    assert result.snapshot.scopes[0].is_lowered


def test_a_borrowed_stream_that_lasts_too_long_is_cut_off():
    """[quota R10] As its class says."""
    brief = TrafficClass(name="brief", max_wait=60, borrowed_max_stream=5)
    limits = parse_limits(
        """
        [deployments.a]
        profile = "openai"
        scope = { organisation = "o", project = "p", model_group = "m" }
        limits = { total_tokens = 100_000 }
        [contracts.owner]
        share = 0.2
        """
    )
    limits = replace(limits, classes=(brief,), settings={"default_class": "brief"})
    result = simulate(
        [replace(STREAM, requests_per_minute=20, output_tokens=400, tokens_per_second=10)],
        {"a": ProviderLimiter("openai", {"total_tokens": 100_000})},
        make_governor=lambda clock, wall: limits.make_governor(clock=clock, wall_clock=wall),
        duration=120,
    )
    assert {each.funding for each in result.records if each.was_served} == {"borrowed"}
    assert any(each.fate is Fate.CUT_OFF for each in result.records)


def test_deployments_of_one_quota_share_a_provider():
    """[quota R11]"""
    shared = ProviderLimiter("openai", GRANTED)
    result = simulate(
        [STREAM, replace(STREAM, tenant="globex", deployments=("b",))],
        {"a": shared, "b": shared},
        make_governor=make_governor("a", "b"),
        duration=90,
    )
    assert result.limiters() == [shared]
    assert {each.deployment for each in result.records if each.was_served} == {"a", "b"}
    assert result.provider_refusals == 0


def test_progress_is_told():
    seen = []
    play(duration=30, on_progress=seen.append)
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert len(seen) > 100


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"duration": 0}, "duration is 0; expected seconds"),
        ({"load": []}, "needs a load"),
        ({"load": [replace(STREAM, deployments=("b",))]}, "the load names deployment 'b'"),
        ({"load": [replace(STREAM, request_class="x")]}, "request class 'x'"),
        ({"make_governor": make_governor("other")}, "does not know deployment 'a'"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_it_is_played(change, said):
    given = {"load": [STREAM], "make_governor": make_governor(), "duration": 60} | change
    with pytest.raises(ConfigurationError, match=said):
        simulate(providers={"a": ProviderLimiter("openai", GRANTED)}, **given)


# Loads.


def test_a_stream_draws_what_it_says():
    stream = LoadStream(
        requests_per_minute=600,
        input_tokens=500,
        output_tokens=100,
        max_output_tokens=150,
        cached_share=0.5,
        start=10,
        stop=70,
    )
    drawn = list(stream.requests(Random(3), 1_000))
    assert 500 < len(drawn) < 700
    assert all(10 <= each.at < 70 for each in drawn)
    sizes = sorted(each.arrival.input_tokens for each in drawn)
    assert 400 < sizes[len(sizes) // 2] < 600
    assert max(each.output for each in drawn) == 150
    assert all(
        each.arrival.cached_tokens == each.arrival.input_tokens // 2
        and each.seconds == 0.5 + each.output / 80
        for each in drawn
    )


def test_without_spread_all_requests_are_alike():
    stream = LoadStream(requests_per_minute=60, input_tokens=500, spread=0)
    assert {each.arrival.input_tokens for each in stream.requests(Random(1), 60)} == {500}


@pytest.mark.parametrize(
    "change",
    [
        {"requests_per_minute": 0},
        {"requests_per_minute": math.nan},
        {"input_tokens": -1},
        {"output_tokens": math.inf},
        {"tokens_per_second": 0},
        {"spread": -0.1},
        {"first_output": math.nan},
        {"cached_share": 1.1},
        {"stop": 0},
        {"max_output_tokens": 0},
    ],
)
def test_a_load_that_cannot_be_is_refused(change):
    with pytest.raises(ConfigurationError, match=next(iter(change))):
        LoadStream(**{"requests_per_minute": 1, **change})


# Providers.


def test_a_provider_grants_what_is_configured_without_the_headroom():
    """[quota R14-R15] Every window of every dimension."""
    granted = [
        QuotaLimit("requests", 3, headroom=0.5),
        QuotaLimit("requests", 5, period="day"),
        QuotaLimit("concurrency", 4),
    ]
    provider = ProviderLimiter.granting("openai", granted)
    sent = [provider.arrive(Arrival(input_tokens=1), now) for now in (0, 0, 0, 0, 61, 61)]
    # Refused requests count: after the fourth, one is left of the day.
    assert [type(each) for each in sent] == [*[Admission] * 3, Refusal, Admission, Refusal]
    assert sent[3].limiter == "requests"


def test_two_gauges_of_one_dimension_are_one():
    granted = [QuotaLimit("concurrency", 1), QuotaLimit("concurrency", 2)]
    provider = ProviderLimiter.granting("self_hosted", granted)
    assert isinstance(provider.arrive(Arrival(input_tokens=1), 0), Admission)
    refused = provider.arrive(Arrival(input_tokens=1), 0)
    assert isinstance(refused, Refusal)
    assert (refused.status, refused.limiter, refused.retry_after) == (503, "concurrency", None)
    assert provider.utilisation(60) == 0


def test_a_provider_nobody_knows_is_refused():
    with pytest.raises(ConfigurationError, match="how 'acme' counts is not known"):
        ProviderLimiter("acme", {})


@pytest.mark.parametrize(
    ("profile", "dimension", "retry_after"),
    [
        ("openai", "requests", 61.0),
        ("azure_ptu", "total_tokens", 60.001),
        ("gemini", "requests", 61.0),
        ("mistral", "requests", 2.0),
        ("bedrock_runtime", "requests", None),
    ],
)
def test_a_refusal_says_when_to_come_back_as_its_provider_does(profile, dimension, retry_after):
    provider = ProviderLimiter(profile, {dimension: 1})
    request = Arrival(input_tokens=1)
    provider.arrive(replace(request, cap=0), 0)
    refused = provider.arrive(request, 0)
    assert isinstance(refused, Refusal)
    assert refused.retry_after == retry_after


def test_where_a_provider_is_silent_sdks_wait_longer_each_time():
    """[BR-33] Half a second, then a second, less a part by chance."""
    result = simulate(
        [replace(STREAM, requests_per_minute=600)],
        {"a": ProviderLimiter("bedrock_runtime", GRANTED)},
        make_governor=None,
        duration=30,
    )
    given_up = [each for each in result.records if each.fate is Fate.PROVIDER_REFUSED]
    assert given_up
    assert all(1.125 <= each.wait <= 1.8 for each in given_up)
    assert {each.provider_refusals for each in given_up} == {3}


def test_a_request_ends_once():
    provider = ProviderLimiter("openai", GRANTED)
    admission = provider.arrive(Arrival(input_tokens=1), 0)
    provider.finish(admission, 1)
    with pytest.raises(ValueError, match="finished already"):
        provider.finish(admission, 2)


@pytest.mark.parametrize(
    ("profile", "dimension", "minutes"),
    [
        ("openai", "total_tokens", 0.15),
        ("azure_ptu", "total_tokens", 0.11),
        ("anthropic", "output_tokens", 0.01),
        ("groq", "total_tokens", 0.11),
    ],
)
def test_what_a_request_comes_to_is_told_as_its_provider_counts(profile, dimension, minutes):
    """[quota R4]"""
    provider = ProviderLimiter(profile, {dimension: 10_000})
    shares = provider.shares(Arrival(input_tokens=1_000, cap=500), 100)
    assert shares == {dimension: pytest.approx(minutes)}


# Sums.


def test_waits_and_shares_are_those_of_the_records():
    """[quota R61]"""
    result = play(STREAM, replace(STREAM, tenant="globex", requests_per_minute=50))
    (whole,) = by_class(result)
    assert whole.name == "patient"
    waits = sorted(each.wait for each in result.records if each.was_served)
    assert (whole.waits.p50, whole.waits.longest) == (
        waits[math.ceil(len(waits) / 2) - 1],
        waits[-1],
    )
    acme, globex = by_tenant(result)
    assert acme.offered_share + globex.offered_share == pytest.approx(1)
    assert acme.served_share + globex.served_share == pytest.approx(1)
    assert acme.offered_share > globex.offered_share
    assert whole.count(Fate.ANSWERED, Fate.RUNNING) == len(waits)
    assert in_all(result).offered == acme.offered + globex.offered == len(result.records)


def test_what_is_admitted_in_a_minute_is_no_more_than_the_limit():
    """[quota G1] As far as requests that are under way let one see."""
    result = play(duration=240, knowledge="exact")
    series = over_time(result, 48)
    assert result.tightest == "total_tokens"
    assert (len(series.times), series.times[-1]) == (48, 240)
    assert max(series.admitted) <= 1.0
    assert max(series.offered) > 1.0


def test_nothing_has_no_percentile():
    assert percentile([], 0.5) == 0
    assert percentile([1.0, 2.0], 0.5) == 1.0


# Scenarios.

LIMITS = """
[deployments.a]
profile = "anthropic"
scope = { organisation = "o", workspace = "w", model_class = "m" }
limits = { requests = 300, input_tokens = 150_000, output_tokens = 60_000 }
"""


def test_a_file_may_say_what_is_played():
    text = f"""{LIMITS}
    [simulation]
    duration = 30
    seed = 9
    knowledge = "exact"
    [[simulation.load]]
    tenant = "acme"
    requests_per_minute = 60
    request_class = "batch"
    deployments = ["a"]
    """
    scenario = read_scenario(parse_limits(text))
    assert scenario.load == (
        LoadStream(
            tenant="acme", requests_per_minute=60, request_class="batch", deployments=("a",)
        ),
    )
    assert (scenario.duration, scenario.seed, scenario.knowledge) == (30, 9, "exact")
    assert not scenario.is_default_load
    result = scenario.times(3).play()
    assert {each.request_class for each in result.records} == {"batch"}
    assert len(result.records) > 60


def test_a_file_that_says_nothing_gets_twice_the_load_that_there_is_room_for():
    scenario = read_scenario(parse_limits(f"{LIMITS}[contracts.acme]\n[contracts.globex]\n"))
    assert scenario.is_default_load
    assert {each.tenant for each in scenario.load} == {"acme", "globex"}
    (provider,) = scenario.providers().values()
    asked = sum(
        each.requests_per_minute
        * max(
            provider.shares(
                Arrival(input_tokens=int(each.input_tokens), cap=each.max_output_tokens),
                int(each.output_tokens),
            ).values()
        )
        for each in scenario.load
    )
    assert asked == pytest.approx(2)


def test_deployments_of_one_scope_have_one_provider():
    """[quota R11]"""
    scenario = read_scenario(parse_limits(LIMITS + LIMITS.replace(".a]", ".b]")))
    first, second = scenario.providers().values()
    assert first is second


def test_the_made_up_load_fits_into_small_limits_and_into_slots():
    small = LIMITS.replace("150_000", "3_000").replace("60_000", "1_000")
    assert max(each.input_tokens for each in read_scenario(parse_limits(small)).load) <= 50
    slots = """
    [deployments.a]
    profile = "self_hosted"
    scope = { server = "s" }
    limits = { concurrency = 4 }
    """
    load = read_scenario(parse_limits(slots)).load
    assert {each.tenant for each in load} == {"acme", "globex", "initech", "umbrella"}
    result = replace(read_scenario(parse_limits(slots)), duration=60.0).play()
    assert result.tightest == ""
    assert result.provider_refusals == 0


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[simulation]\nlength = 3", r"\[simulation\]: unknown key 'length'"),
        ("[simulation]\nduration = 0", r"\[simulation\]: duration is 0; expected seconds"),
        ("[simulation]\nduration = nan", r"\[simulation\]: duration is nan"),
        ('[simulation]\nknowledge = "all"', r"\[simulation\]: knowledge is 'all'"),
        ("[[simulation.load]]", r"\[\[simulation.load\]\] no. 1: requests_per_minute is missing"),
        (
            "[[simulation.load]]\nrequests_per_minute = -1",
            r"\[\[simulation.load\]\] no. 1: requests_per_minute of the load of 'nobody' is -1",
        ),
        (
            '[[simulation.load]]\nrequests_per_minute = 1\ndeployments = ["b"]',
            "no. 1: deployments says 'b'; expected one of a",
        ),
        (
            '[[simulation.load]]\nrequests_per_minute = 1\nrequest_class = "b"',
            "no. 1: request_class says 'b'; expected one of interactive",
        ),
    ],
)
def test_what_is_wrong_in_a_scenario_is_refused_with_its_table_and_key(table, said):
    with pytest.raises(ConfigurationError, match=said):
        read_scenario(parse_limits(f"{LIMITS}{table}\n", source="limits.toml"))
