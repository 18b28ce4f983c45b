"""What follows from the limits that a provider tells."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.errors import ConfigurationError
from chatrouting.quota.headers import LimitReading, read_limits
from chatrouting.quota.limits import INPUT_TOKENS, REQUESTS, TOTAL_TOKENS
from chatrouting.quota.profiles import provider_profile
from chatrouting.quota.reconcile import Belief, Correction, Place, Reconciler

TOKENS = Place(TOTAL_TOKENS, 60.0)
MINUTE_OF_REQUESTS = Place(REQUESTS, 60.0)


def told(remaining, limit=1_000, *, scope="", dimension=TOTAL_TOKENS, window=60.0):
    return LimitReading(
        limiter="x",
        dimension=dimension,
        scope=scope,
        window=window,
        limit=limit,
        remaining=remaining,
    )


def observe(reconciler, *readings, used=300, present=0, limit=1_000, order=0, place=TOKENS):
    beliefs, now = {place: Belief(limit, used)}, {place: Belief(limit, present)}
    return reconciler.observe(readings, beliefs, now, order=order)


def openai(**settings):
    return Reconciler(provider_profile("openai"), **settings)


def test_what_others_have_used_is_charged():
    """[quota R58] The provider has counted 450 where 300 were charged here."""
    assert observe(openai(), told(550)) == (Correction(TOKENS, 150, -150),)


def test_nothing_is_ever_given_back():
    """[quota R58] A provider that counts less may be late: that is drift, and no credit."""
    assert observe(openai(), told(900)) == (Correction(TOKENS, 0.0, 200),)


def test_our_own_requests_of_the_meantime_are_not_taken_for_those_of_others():
    """[quota R58] The provider may have counted when the request came, or when it was over."""
    assert observe(openai(), told(550), used=300, present=450)[0].external == 0
    assert observe(openai(), told(550), used=300, present=400)[0].external == 50
    assert observe(openai(), told(550), used=450, present=10)[0].external == 0


def test_a_difference_that_rounding_explains_is_none():
    """[quota R58] A hundredth of a limit, or what the provider is known to round to."""
    assert observe(openai(), told(691))[0].external == 0
    assert observe(openai(), told(689))[0].external == 11
    anthropic = Reconciler(provider_profile("anthropic"))
    place = Place(INPUT_TOKENS, 60.0)
    rounded = told(9_000, 10_000, dimension=INPUT_TOKENS)
    assert observe(anthropic, rounded, used=400, limit=10_000, place=place)[0].external == 0
    rounded = told(8_000, 10_000, dimension=INPUT_TOKENS)
    assert observe(anthropic, rounded, used=400, limit=10_000, place=place)[0].external == 1_600


def test_the_newest_by_order_of_sending_counts():
    """[quota R58] Answers overtake each other; one to an older request tells of the past."""
    reconciler = openai()
    assert observe(reconciler, told(700), order=5)
    assert observe(reconciler, told(100), order=4) == ()
    assert observe(reconciler, told(600), order=6)[0].external == 100


def test_where_only_what_remains_is_told_the_configured_limit_is_taken():
    reconciler = openai()
    assert observe(reconciler, told(500, None))[0].external == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1"},
        {"x-ratelimit-limit-tokens": "-1", "x-ratelimit-reset-tokens": "0"},
        {"x-ratelimit-remaining-tokens-day": "5"},
        {"x-ratelimit-remaining-input-tokens": "5"},
        {"x-ratelimit-remaining": "5"},
        {"x-ratelimit-remaining-priority-tokens": "5"},
    ],
    ids=["none", "-1", "reset 0", "a day", "not counted", "nameless", "another tier"],
)
def test_headers_that_say_nothing_of_our_limit_change_nothing(headers):
    """[quota R12] Azure has sent -1, and resets of 0."""
    assert all(
        (each.external, each.drift, each.limit) == (0.0, 0.0, None)
        for each in observe(openai(), *read_limits(headers))
    )


def test_the_tighter_of_the_limits_of_organisation_and_project_holds():
    """[quota R11] What is left is the least that any of them leaves."""
    found = observe(openai(), told(900, 2_000), told(500, 1_000, scope="project"))
    assert found == (Correction(TOKENS, 200, -200),)


def test_another_limit_is_believed_when_it_was_told_three_times():
    """[quota R58] Once is an accident."""
    reconciler = openai()
    limits = [
        observe(reconciler, told(400, limit), order=order)[0].limit
        for order, limit in enumerate([800, 800, 1_000, 800, 800, 800, 800, 800])
    ]
    assert limits == [None, None, None, None, None, 800, None, None]


def test_a_limit_is_never_believed_to_be_above_the_configured_one():
    """[quota R13] Limits are configuration; it may leave a part of the account to others."""
    reconciler = openai(observations=1)
    assert observe(reconciler, told(None, 5_000))[0].limit is None
    assert observe(reconciler, told(None, 500))[0].limit == 500
    assert observe(reconciler, told(None, 5_000))[0].limit == 1_000


def test_a_limit_of_an_unknown_unit_is_told_by_its_ratio():
    """[quota R12] Azure's 20 of a deployment with 120 a minute are those of ten seconds."""
    azure = Reconciler(provider_profile("azure"), observations=1)
    ten = Place(REQUESTS, 10.1)  # as a profile keeps it, for the jitter
    beliefs = {MINUTE_OF_REQUESTS: Belief(120, 90), ten: Belief(20, 3)}
    reading = told(15, 20, dimension=REQUESTS, window=None)
    assert azure.observe([reading], beliefs, {}, order=0) == (Correction(ten, 2, -2),)
    del beliefs[ten]
    assert azure.observe([reading], beliefs, {}, order=1) == ()
    for limit in (50, None):
        strange = told(15, limit, dimension=REQUESTS, window=None)
        assert azure.observe([strange], beliefs, {}, order=2) == ()
    whole = told(20, 120, dimension=REQUESTS, window=None)
    assert azure.observe([whole], beliefs, {}, order=3)[0].external == 10
    assert azure.observe([whole], {}, {}, order=4) == ()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.none() | st.floats(0, 5_000),
            st.none() | st.floats(0, 5_000),
            st.floats(0, 2_000),
        )
    )
)
def test_belief_is_only_ever_lowered(told_values):
    """[quota R58] Whatever is told, in whatever order: no credit, and no limit above ours."""
    reconciler = openai(observations=1)
    for order, limit, remaining, used in told_values:
        for each in observe(reconciler, told(remaining, limit), used=used, order=order):
            assert each.external >= 0
            assert each.limit is None or each.limit <= 1_000


@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_a_number_of_observations_is_one(value):
    """[BR-63]"""
    with pytest.raises(ConfigurationError, match="observations"):
        openai(observations=value)
