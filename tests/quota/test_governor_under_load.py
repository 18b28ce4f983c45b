"""The whole governor at three times the limits of every kind of provider, in virtual time."""

import pytest

from chatrouting.quota.classes import DEFAULT_CLASSES, Pressure, TrafficClass
from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.estimate import Estimator
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.limits import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOTAL_TOKENS, QuotaLimit
from chatrouting.quota.profiles import provider_profile
from chatrouting.simulation import Arrival, Fate, LoadStream, ProviderLimiter, simulate

pytestmark = pytest.mark.timeout(120)

LIMITS = {
    "openai": {REQUESTS: 200, TOTAL_TOKENS: 70_000},
    "azure": {REQUESTS: 200, TOTAL_TOKENS: 70_000},
    "azure_ptu": {TOTAL_TOKENS: 70_000},
    "anthropic": {REQUESTS: 120, INPUT_TOKENS: 30_000, OUTPUT_TOKENS: 20_000},
    "gemini": {REQUESTS: 120, INPUT_TOKENS: 60_000},
    "bedrock_runtime": {REQUESTS: 200, TOTAL_TOKENS: 70_000},
    "bedrock_mantle": {INPUT_TOKENS: 60_000, OUTPUT_TOKENS: 20_000},
    "groq": {REQUESTS: 14_400, TOTAL_TOKENS: 50_000},
    "mistral": {REQUESTS: 3, TOTAL_TOKENS: 50_000},
}
#: Not for a minute.
WINDOWS = {("groq", REQUESTS): 86_400.0, ("mistral", REQUESTS): 1.0}
PATIENT = TrafficClass(
    name="patient", max_wait=3_600, max_queue_items=10_000, on_pressure=(Pressure.QUEUE,)
)
DURATION = 120.0


def stream(name, of_capacity, request_class="patient", *, times=1, **fields):
    """Make a load that asks for so much of what a provider grants."""
    limits = {key: times * amount for key, amount in LIMITS[name].items()}
    usual = {"input_tokens": 300, "output_tokens": 100, "max_output_tokens": 200, **fields}
    arrival = Arrival(input_tokens=340, cap=200)
    provider = ProviderLimiter(name, limits)
    shares = provider.shares(arrival, 110)
    # What is for a day is not used up in minutes.
    share = max(share for key, share in shares.items() if provider.logs[key][0].window <= 60)
    return LoadStream(requests_per_minute=of_capacity / share, request_class=request_class, **usual)


def play(name, *load, burst=None, times=1, is_governed=True, **settings):
    profile = provider_profile(name)
    granted = {key: times * amount for key, amount in LIMITS[name].items()}
    limits = [
        QuotaLimit(key, amount, window=WINDOWS.get((name, key), 60.0), burst=burst)
        for key, amount in granted.items()
    ]
    deployment = QuotaDeployment(
        name="d",
        scope=profile.scope(**dict.fromkeys(profile.scope_parts, "x")),
        profile=profile,
        limits=profile.bucket(*limits, headroom=0.03),
    )

    def make(clock, wall_clock):
        return QuotaGovernor(
            [deployment],
            clock=clock,
            wall_clock=wall_clock,
            classes=(*DEFAULT_CLASSES.values(), PATIENT),
            estimator=Estimator(default_output_tokens=200),
        )

    provider = ProviderLimiter(name, granted)
    made = make if is_governed else None
    return simulate(load, {"d": provider}, make_governor=made, duration=DURATION, **settings)


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_known_exactly_is_used_and_never_refused(name):
    """[quota R2] [quota R4] [quota R14] No 429 at three times the limits, 95 % of them used."""
    result = play(name, stream(name, 3.0), knowledge="exact")
    assert result.provider_refusals == 0
    assert result.utilisation >= 0.95


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_estimated_is_used_and_never_refused(name):
    """[quota R2] [quota R22] [quota R27-R28] Nor with 95th percentiles, of which 85 % are used."""
    result = play(name, stream(name, 3.0))
    assert result.provider_refusals == 0
    assert result.utilisation >= 0.85


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])
def test_retries_alone_are_refused_and_get_less(name):
    """[quota R2] Beside a governor on the same load: refusals count as requests."""
    load = stream(name, 3.0)
    governed, bare = play(name, load), play(name, load, is_governed=False)
    counts = [sum(each.fate is Fate.ANSWERED for each in one.records) for one in (governed, bare)]
    print(f"{name}: {counts} answered, {bare.provider_refusals} refused")  # noqa: T201
    assert governed.provider_refusals == 0
    assert bare.provider_refusals > len(bare.records)
    assert counts[0] > 1.5 * counts[1]


def test_a_flood_of_batch_leaves_interactive_requests_their_wait():
    """[quota R37] [quota R47] [quota R49] By the classes that are there without any settings.

    A class turns away what it cannot serve in time; so those count too.
    """
    people = stream("openai", 0.3, "interactive", times=5)
    jobs = stream("openai", 1.1, "batch", times=5, start=20.0)
    result = play("openai", people, jobs, burst=2.0, times=5)
    chats = [each for each in result.records if each.request_class == "interactive"]
    waits = sorted(each.wait for each in chats if each.sent_at is not None)
    assert len(chats) > 200
    assert waits[int(0.99 * len(waits))] <= DEFAULT_CLASSES["interactive"].max_wait
    assert sum(each.fate is Fate.REFUSED for each in chats) <= 0.01 * len(chats)
    assert any(each.wait > 20 for each in result.records if each.request_class == "batch")
