"""What a limit, a policy, a scope and the name of a bucket may be."""

import copy
import math
import pickle

import pytest

from chatrouting.errors import ConfigurationError
from chatrouting.options import Principal
from chatrouting.quota.limits import (
    DIMENSIONS,
    BucketKey,
    BucketLimits,
    ChargePolicy,
    Level,
    ProviderScope,
    QuotaLimit,
    keys_of,
)

USUAL_KINDS = {
    "requests": "ring",
    "input_tokens": "ring",
    "output_tokens": "ring",
    "total_tokens": "ring",
    "concurrency": "gauge",
    "stream_seconds": "gauge",
}


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_dimension_has_its_usual_kind_of_limit(dimension):
    """[quota R5, R6, R7, R8, R9, R10] Rates are rings over a minute, what is held is a gauge."""
    limit = QuotaLimit(dimension, 10)
    assert limit.kind == USUAL_KINDS[dimension]
    assert limit.window == 60.0


def test_a_dimension_of_ones_own_is_a_ring():
    """[quota R12] What no provider but one counts is expressed as it is, not hidden."""
    assert QuotaLimit("custom:images", 50).kind == "ring"


def test_a_period_makes_a_calendar():
    """[quota R15]"""
    limit = QuotaLimit("requests", 1000, period="day", timezone="America/Los_Angeles")
    assert (limit.kind, limit.span) == ("calendar", "day")


def test_a_bucket_has_a_burst_of_five_seconds():
    assert QuotaLimit("requests", 60, kind="bucket").burst == 5.0
    assert QuotaLimit("requests", 60).burst is None


def test_headroom_is_never_used():
    assert QuotaLimit("requests", 100, headroom=0.05).usable == pytest.approx(95)


@pytest.mark.parametrize(
    ("limit", "span"),
    [
        (QuotaLimit("requests", 1), "60 s"),
        (QuotaLimit("requests", 1, window=0.5), "0.5 s"),
        (QuotaLimit("concurrency", 1), "at once"),
        (QuotaLimit("total_tokens", 1, period="month"), "month"),
    ],
)
def test_a_limit_says_what_it_is_counted_over(limit, span):
    assert limit.span == span


NONSENSE = {
    "negative": {"amount": -1},
    "zero": {"amount": 0},
    "not a number": {"amount": math.nan},
    "infinite": {"amount": math.inf},
    "a truth": {"amount": True},
    "a text": {"amount": "10"},
    "no window": {"window": 0},
    "endless window": {"window": math.inf},
    "no slots": {"slots": 0},
    "half a slot": {"slots": 0.5},
    "no burst": {"burst": 0},
    "burst of a whole window": {"burst": 60},
    "negative headroom": {"headroom": -0.1},
    "headroom of all": {"headroom": 1},
    "headroom of a truth": {"headroom": False},
    "unknown dimension": {"dimension": "tokens"},
    "nameless dimension": {"dimension": "custom:"},
    "no dimension": {"dimension": None},
    "unknown kind": {"kind": "sliding"},
    "empty kind": {"kind": ""},
    "calendar without period": {"kind": "calendar"},
    "ring with period": {"kind": "ring", "period": "day"},
    "unknown period": {"period": "week"},
    "unknown timezone": {"period": "day", "timezone": "Mars/Olympus"},
    "timezone of another type": {"period": "day", "timezone": 5},
    "no timezone": {"period": "day", "timezone": None},
    "timezone out of bounds": {"period": "day", "timezone": "../secret"},
    "concurrency that is used up": {"dimension": "concurrency", "kind": "ring"},
    "gauge with burst": {"dimension": "concurrency", "burst": 5},
}


@pytest.mark.parametrize("settings", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_when_the_limit_is_made(settings):
    """[BR-63] [quota R13] The message names the dimension and what was expected."""
    given = {"dimension": "requests", "amount": 10} | settings
    with pytest.raises(ConfigurationError, match=r"expected|leave|a gauge|calendar"):
        QuotaLimit(**given)


@pytest.mark.parametrize("setting", ["output_charge", "refund", "cache_reads", "failed_requests"])
def test_a_policy_refuses_what_it_does_not_know(setting):
    with pytest.raises(ConfigurationError, match=f"{setting}.*expected one of"):
        ChargePolicy(**{setting: "sometimes"})


def test_limits_of_a_bucket_are_kept_as_a_tuple():
    limits = [QuotaLimit("requests", 1)]
    assert BucketLimits(limits).limits == tuple(limits)


def test_scopes_are_equal_by_what_they_say():
    """[quota R11] Two deployments of one scope share one bucket; order says nothing."""
    one = ProviderScope("azure", {"region": "eu", "deployment": "gpt"})
    other = ProviderScope("azure", {"deployment": "gpt", "region": "eu"})
    assert one == other
    assert hash(one) == hash(other)
    assert str(one) == str(other) == "azure:deployment=gpt,region=eu"
    assert one != ProviderScope("azure", {"deployment": "gpt"})


def test_unequal_scopes_are_unequal_texts():
    """Whatever signs an id has, it cannot be taken for several."""
    one = ProviderScope("x", {"a": "1,b=2"})
    other = ProviderScope("x", {"a": "1", "b": "2"})
    assert str(one) != str(other)


def test_a_scope_cannot_be_changed_and_can_be_pickled():
    parts = {"region": "eu"}
    scope = ProviderScope("azure", parts)
    parts["region"] = "us"
    assert scope.parts == {"region": "eu"}
    with pytest.raises(TypeError, match="cannot be changed"):
        scope.parts["region"] = "us"
    assert pickle.loads(pickle.dumps(scope)) == scope == copy.deepcopy(scope)  # noqa: S301


def test_a_scope_needs_a_provider_and_texts():
    with pytest.raises(ConfigurationError, match="provider of a scope is ''"):
        ProviderScope("")
    with pytest.raises(ConfigurationError, match="parts of a scope of azure has 'region': 1"):
        ProviderScope("azure", {"region": 1})


def test_the_levels_go_from_the_outside_in():
    """[quota R32]"""
    everybody = Principal(organisation="acme", tenant="shop", team="search", api_key="k1")
    keys = keys_of(everybody, model_profile="large", scope=ProviderScope("openai"))
    assert [key.level for key in keys] == list(Level)
    assert [key.id for key in keys] == ["acme", "shop", "search", "k1", "large", "openai:"]


def test_every_level_may_be_left_out():
    """[quota R32]"""
    assert keys_of() == ()
    assert keys_of(Principal()) == ()
    assert [key.level for key in keys_of(Principal(team="search"))] == [Level.TEAM]


def test_teams_of_one_name_in_two_tenants_are_two_teams():
    (_, one), (_, other) = (
        keys_of(Principal(tenant=tenant, team="search")) for tenant in ("shop", "bank")
    )
    assert one.id == other.id
    assert one != other


def test_deployments_of_one_scope_are_one_bucket():
    """[quota R11]"""
    scope = ProviderScope("azure", {"region": "eu"})
    assert keys_of(scope=scope) == (BucketKey(Level.DEPLOYMENT, "azure:region=eu"),)
