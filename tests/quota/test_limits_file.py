"""A governor's settings from a TOML file."""

from typing import Any

import pytest

from chatrouting.errors import ConfigurationError
from chatrouting.options import Principal
from chatrouting.quota import (
    BucketKey,
    GuaranteeKind,
    Level,
    ProviderScope,
    QuotaLimit,
    parse_limits,
    provider_profile,
    read_limits_file,
)
from chatrouting.quota.limits import keys_of

SCOPE = 'scope = { organisation = "o", project = "p", model_group = "m" }'
LEAST = f"""
[deployments.a]
profile = "openai"
{SCOPE}
limits = {{ requests = 10 }}
"""
MOST = f"""
pool_share = 0.1
cold_share = 0.5
lease = 60
shadow = true
watched = ["tenant"]
default_class = "nightly"

[largest_request]
total_tokens = 400

[deployments.a]
profile = "openai"
{SCOPE}
model = "gpt-x"
model_profile = "large"
maximum_output_tokens = 200
headroom = 0.1
jitter = 0.2
[deployments.a.limits]
requests = [{{ amount = 100 }}, {{ amount = 1_000, period = "day", timezone = "Europe/Riga" }}]
total_tokens = {{ amount = 5_000, burst = 10 }}
concurrency = 8
"custom:images" = {{ amount = 5, window = 1, slots = 10 }}

[deployments."b c"]
profile = "openai"
scope = {{ organisation = "o", project = "q", model_group = "m" }}
limits = {{ requests = 10, total_tokens = 1_000 }}

[contracts.acme]
weight = 3
share = 0.4
burst_share = 0.02
[contracts.globex]

[[ceilings]]
tenant = "acme"
team = "research"
output_charge = "cap"
limits = {{ total_tokens = 900 }}
[[ceilings]]
model_profile = "large"
limits = {{ requests = 50 }}
[[ceilings]]
level = "api_key"
limits = {{ requests = 5 }}

[classes.interactive]
max_wait = 1.5
[classes.nightly]
max_queue_items = 5_000
on_pressure = ["queue"]

[simulation]
duration = 60
"""


def reading(text: str) -> str:
    """Return how a file is refused."""
    with pytest.raises(ConfigurationError) as caught:
        parse_limits(text, source="limits.toml")
    return str(caught.value)


def test_the_least_that_a_file_says_is_a_deployment():
    """[quota R13] Limits are what somebody has written down."""
    limits = parse_limits(LEAST)
    profile = provider_profile("openai")
    (deployment,) = limits.deployments
    assert deployment.limits == profile.bucket(QuotaLimit("requests", 10))
    assert deployment.scope == profile.scope(organisation="o", project="p", model_group="m")
    assert list(limits.make_governor().deployments) == ["a"]


def test_everything_that_a_file_may_say_is_read():
    """[quota R14-R15] [quota R32] Several windows, levels with the path to them."""
    limits = parse_limits(MOST)
    first, second = limits.deployments
    assert (first.model, first.model_profile, first.maximum_output_tokens) == (
        "gpt-x",
        "large",
        200,
    )
    assert second.name == "b c"
    said = provider_profile("openai").bucket(
        QuotaLimit("requests", 100),
        QuotaLimit("requests", 1_000, period="day", timezone="Europe/Riga"),
        QuotaLimit("total_tokens", 5_000, burst=10),
        QuotaLimit("concurrency", 8),
        QuotaLimit("custom:images", 5, window=1, slots=10),
        headroom=0.1,
        jitter=0.2,
    )
    assert first.limits == said
    (research,) = keys_of(Principal(tenant="acme", team="research"))[1:]
    assert list(limits.ceilings) == [research, BucketKey(Level.MODEL_PROFILE, "large")]
    assert limits.ceilings[research].policy.output_charge == "cap"
    assert list(limits.default_ceilings) == [Level.API_KEY]
    assert limits.contracts["acme"].burst_share == 0.02
    assert limits.contracts["globex"].share == 0
    assert limits.largest_request == {"total_tokens": 400}
    assert limits.settings == {
        "pool_share": 0.1,
        "cold_share": 0.5,
        "lease": 60,
        "shadow": True,
        "watched": (Level.TENANT,),
        "default_class": "nightly",
    }
    assert limits.simulation == {"duration": 60}


def test_a_class_of_the_usual_ones_keeps_what_the_file_does_not_change():
    classes = {each.name: each for each in parse_limits(MOST).classes}
    assert list(classes) == ["interactive", "streaming-agent", "batch", "backfill", "nightly"]
    assert (classes["interactive"].max_wait, classes["interactive"].weight) == (1.5, 8.0)
    assert classes["nightly"].weight == 1.0


def test_a_governor_is_made_of_it():
    """[quota R46] [quota R62] Contracts, shadow and the default class arrive there."""
    told: list[Any] = []
    governor = parse_limits(MOST).make_governor(on_decision=told.append, clock=lambda: 5.0)
    assert governor.guarantees("a").guarantees["acme"].kind is not GuaranteeKind.NONE
    assert governor.lease == 60
    assert governor.ticket().request_class == "nightly"
    assert governor.snapshot().at == 5.0


def test_deployments_of_one_scope_share_a_quota():
    """[quota R11]"""
    text = LEAST + LEAST.replace("[deployments.a]", "[deployments.b]")
    assert len(parse_limits(text).make_governor().snapshot().scopes) == 1


def test_a_file_is_read(tmp_path):
    path = tmp_path / "limits.toml"
    path.write_text("\ufeff" + LEAST, encoding="utf-8")
    limits = read_limits_file(path)
    assert (limits.source, limits.deployments[0].scope) == (
        str(path),
        ProviderScope("openai", {"organisation": "o", "project": "p", "model_group": "m"}),
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"no\.toml cannot be read: No such file"):
        read_limits_file(tmp_path / "no.toml")
    path = tmp_path / "latin.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="no UTF-8 text"):
        read_limits_file(path)


def changed(old: str, new: str) -> str:
    assert old in LEAST
    return LEAST.replace(old, new)


TEN = "requests = 10"
WRONG = {
    "no TOML": ("x = [", "limits.toml is no TOML: "),
    "nothing": ("", "limits.toml has no deployments; expected a table [deployments.NAME]"),
    "a key at the top": ("shadwo = true", "unknown key 'shadwo'; expected "),
    "negative": (changed("10", "-5"), "[deployments.a.limits] requests: amount"),
    "NaN": (changed("10", "nan"), "[deployments.a.limits] requests: amount"),
    "infinite": (changed("10", "inf"), "[deployments.a.limits] requests: amount"),
    "zero": (changed("10", "0"), "[deployments.a.limits] requests: amount"),
    "true": (changed("10", "true"), "requests: amount of the limit on requests is True"),
    "a word": (changed("10", '"many"'), "requests: amount of the limit on requests is 'many'"),
    "a dimension": (changed("requests", "reqs"), "reqs: a limit has the dimension 'reqs'"),
    "a profile": (changed('"openai"', '"opnai"'), "[deployments.a] profile: provider profile"),
    "a part missing": (changed(', model_group = "m"', ""), "[deployments.a.scope]: a scope of"),
    "a part of the scope": (changed('"m"', "3"), "[deployments.a.scope]: model_group is 3"),
    "a key of a deployment": (changed("limits", "limit"), "unknown key 'limit'; expected "),
    "profile missing": (changed('profile = "openai"', ""), "profile is missing; expected a text"),
    "a key of a limit": (
        changed(TEN, "requests = { amount = 1, windw = 3 }"),
        "[deployments.a.limits.requests]: unknown key 'windw'",
    ),
    "amount missing": (changed(TEN, "requests = { window = 3 }"), "requests]: amount is missing"),
    "numbers": (changed(TEN, "requests = [1, 2]"), "requests is [1, 2]; expected tables, each"),
    "one of several": (
        changed(TEN, "requests = [{ amount = 1 }, { amount = -1 }]"),
        "[[deployments.a.limits.requests]] no. 2: amount of the limit",
    ),
    "a window": (changed(TEN, "requests = { amount = 1, window = 0 }"), "window of the limit"),
    "a timezone": (
        changed(TEN, 'requests = { amount = 1, period = "day", timezone = "Mars" }'),
        "timezone of the limit on requests is 'Mars'",
    ),
    "no limits": (changed(TEN, ""), "[deployments.a] limits: a quota of openai has no limits"),
    "not counted": (changed("requests", "input_tokens"), "openai does not count input_tokens"),
    "headroom": (LEAST + "headroom = 1.0", "headroom of the limit on requests is 1.0"),
    "jitter": (LEAST + "jitter = nan", "[deployments.a] limits: jitter is nan"),
    "maximum": (LEAST + "maximum_output_tokens = 0", "maximum_output_tokens is 0"),
    "no table": ("[deployments]\na = 3", "[deployments]: a is 3; expected a table [deployments.a]"),
    "a quoted name": (
        changed(".a]", '."a b"]').replace("10", "-1"),
        '[deployments."a b".limits] requests',
    ),
    "one scope, other limits": (
        LEAST + changed(".a]", ".b]").replace("10", "20"),
        "[deployments]: deployments 'a' and 'b' share the quota",
    ),
    "guarantees above capacity": (
        LEAST + "[contracts.x]\nshare = 0.6\n[contracts.y]\nshare = 0.5",
        "[contracts] at deployment 'a': the guarantees of 2 tenants add up to 1.1",
    ),
    "a share": (LEAST + "[contracts.x]\nshare = nan", "[contracts.x]: share of a contract is nan"),
    "a weight": (LEAST + "[contracts.x]\nweight = 0", "[contracts.x]: weight of a contract is 0"),
    "for nobody": (LEAST + "[[ceilings]]\nlimits = { requests = 1 }", "for whom it is"),
    "for two": (
        LEAST + '[[ceilings]]\ntenant = "x"\nlevel = "team"\nlimits = { requests = 1 }',
        "[[ceilings]] no. 1: it does not say for whom it is",
    ),
    "no ceiling": (LEAST + '[[ceilings]]\ntenant = "x"\nlimits = {}', "no. 1: limits is empty"),
    "a ceiling of 0": (
        LEAST + '[[ceilings]]\ntenant = "x"\nlimits = { requests = 0 }',
        "[[ceilings]] no. 1, [limits] requests: amount",
    ),
    "one ceiling": (
        LEAST + '[ceilings]\ntenant = "x"',
        "expected tables, each below a line [[ceilings]]",
    ),
    "twice": (
        LEAST + '[[ceilings]]\ntenant = "x"\nlimits = { requests = 1 }\n' * 2,
        "[[ceilings]] no. 2: it is given twice",
    ),
    "a level": (
        LEAST + '[[ceilings]]\nlevel = "tenants"\nlimits = { requests = 1 }',
        "the level is 'tenants'; expected one of organisation, tenant",
    ),
    "watched": ('watched = ["x"]\n' + LEAST, "limits.toml watched: the level is 'x'"),
    "a list": ('watched = "tenant"\n' + LEAST, "watched is 'tenant'; expected a list of texts"),
    "a flag": ("shadow = 1\n" + LEAST, "shadow is 1; expected true or false"),
    "a wait": (LEAST + "[classes.x]\nmax_wait = -1", "[classes.x]: max_wait of traffic class"),
    "a count": (LEAST + "[classes.x]\nmax_queue_items = 1.5", "expected a whole number"),
    "pressure": (LEAST + '[classes.x]\non_pressure = ["w"]', "[classes.x]: on_pressure"),
    "a class": ('default_class = "y"\n' + LEAST, "limits.toml: request class 'y' is none of"),
    "a pool of 0": ("pool_share = 0\n" + LEAST, "limits.toml: pool_share is 0"),
    "a lease": ("lease = nan\n" + LEAST, "limits.toml: lease is nan"),
    "a cold share": ("cold_share = 2\n" + LEAST, "limits.toml: cold_share is 2"),
    "too large": (
        LEAST + "[largest_request]\nrequests = 20",
        "a request of 20 requests never fits into the limit of deployment 'a', 9.5 over 60 s",
    ),
    "too large for a tenant": (
        LEAST
        + '[[ceilings]]\ntenant = "x"\nlimits = { total_tokens = 5 }\n'
        + "[largest_request]\ntotal_tokens = 6",
        "never fits into the limit of tenant 'x', 5 over 60 s",
    ),
    "too large for anybody": (
        LEAST
        + '[[ceilings]]\nlevel = "team"\nlimits = { total_tokens = 5 }\n'
        + "[largest_request]\ntotal_tokens = 6",
        "never fits into the limit of every team",
    ),
    "a largest request": (LEAST + "[largest_request]\nrequests = nan", "requests is nan; expected"),
    "an unknown largest": (LEAST + "[largest_request]\nreqs = 1", "the dimension 'reqs'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_at_once_with_its_table_and_key(name):
    """[quota R46] Bad input is a clear error before anything runs."""
    text, said = WRONG[name]
    message = reading(text)
    assert message.startswith("limits.toml")
    assert said in message


def test_a_misspelt_key_is_told_what_is_like_it():
    assert reading("pol_share = 1").endswith("Is 'pool_share' meant?")
