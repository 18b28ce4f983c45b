"""Policies: three presets, and no field that holds what it cannot."""

import pytest

from chatrouting.errors import ConfigurationError
from chatrouting.pool import PoolPolicy


def test_the_defaults_are_the_readmes():
    """[pools 39] [pools 41] [pools 42] [pools 54]"""
    policy = PoolPolicy()
    assert (policy.base_cooldown, policy.backoff_factor, policy.max_backoff) == (2.0, 2.0, 120.0)
    assert (policy.transient_cooldown, policy.success_streak) == (5.0, 3)
    assert (policy.total_budget, policy.attempts_for(3), policy.strategy) == (180.0, None, "random")


def test_resilient_switches_on_what_contradicts_the_readme():
    policy = PoolPolicy.resilient()
    assert policy.max_retry_after == 3600.0
    assert policy.attempts_for(4) == 12
    assert (policy.strategy, policy.member_fault, policy.panic) == ("p2c", "rotate", True)


def test_the_smaller_of_two_limits_of_attempts_counts():
    assert PoolPolicy(max_attempts=5, max_attempts_per_member=3).attempts_for(1) == 3
    assert PoolPolicy(max_attempts=5, max_attempts_per_member=3).attempts_for(2) == 5


def test_regions_are_taken_in_any_case():
    policy = PoolPolicy(prefer_regions=["EastUS"], allow_regions={"EastUS", "westus"})
    assert policy.prefer_regions == ("eastus",)
    assert policy.allow_regions == {"eastus", "westus"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_cooldown", -1.0),
        ("base_cooldown", float("nan")),
        ("base_cooldown", True),
        ("backoff_factor", 0.5),
        ("max_backoff", 1.0),
        ("max_retry_after", -1),
        ("transient_cooldown", None),
        ("max_transient_cooldown", 4.0),
        ("cooldown_jitter", -0.1),
        ("member_fault_max", 1.0),
        ("success_streak", 0),
        ("affinity_bound", 0.9),
        ("latency_decay", 0),
        ("slow_start_min", 0.0),
        ("slow_start_min", 1.5),
        ("probe_concurrency", 0),
        ("max_ejection", 1.1),
        ("trial_share", 0),
        ("trial_share", 1.1),
        ("retry_budget", -0.2),
        ("max_attempts", 0),
        ("total_budget", 0),
        ("stream_idle_timeout", -1),
        ("strategy", "fastest"),
        ("member_fault", "ignore"),
        ("when_all_cooling", "panic"),
    ],
)
def test_a_field_that_holds_what_it_cannot_is_refused_by_name(field, value):
    """[BR-63]"""
    with pytest.raises(ConfigurationError, match=f"^{field} is {value!r}; expected"):
        PoolPolicy(**{field: value})


@pytest.mark.parametrize("regions", ["eastus", [1]])
def test_regions_are_a_collection_of_texts(regions):
    with pytest.raises(ConfigurationError, match="expected a collection of region names"):
        PoolPolicy(prefer_regions=regions)


def test_statuses_are_those_of_errors():
    with pytest.raises(ConfigurationError, match="honour_retry_after_on is 200"):
        PoolPolicy(honour_retry_after_on=(200,))
