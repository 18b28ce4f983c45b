"""What is given wrongly is told at once: by name, with its value, and what was expected."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chatrouting import ChatOptions, Principal, RoutingHints
from chatrouting.errors import ConfigurationError
from chatrouting.quota import (
    AdaptiveSettings,
    BucketKey,
    BucketLimits,
    Estimator,
    Figure,
    Level,
    MediaRule,
    ProviderScope,
    QuotaChatClient,
    QuotaDeployment,
    QuotaGovernor,
    QuotaLimit,
    Quote,
    Source,
    TenantQuotaClient,
    TokenRules,
    TrafficClass,
    parse_limits,
    provider_profile,
)
from chatrouting.quota.headers import read_limits
from chatrouting.testing import ScriptedChatClient
from tests.quota._desk import PROFILE, Desk, deployment

NAN = math.nan
A = deployment("a", QuotaLimit("requests", 10))
TENANT = BucketKey(Level.TENANT, "x")
LIMITS = BucketLimits((QuotaLimit("requests", 1),))
#: What no setting is.
NEITHER = (object(), {1: 2}, ["x"])


def governor(**changes: Any) -> QuotaGovernor:
    return QuotaGovernor(**{"deployments": [A], **changes})


def traffic(**changes: Any) -> TrafficClass:
    return TrafficClass(**{"name": "x", **changes})


def rules(**changes: Any) -> TokenRules:
    return replace(PROFILE.tokens, **changes)


def media(**changes: Any) -> MediaRule:
    return replace(PROFILE.tokens.media, **changes)


def quoted(**changes: Any) -> Quote:
    return replace(Desk().quote(), **changes)


def figure(**changes: Any) -> Figure:
    return Figure(**{"value": 1.0, "source": Source.CAP, **changes})


def bucket(**changes: Any) -> BucketLimits:
    return BucketLimits(**{"limits": (), **changes})


def scope(**changes: Any) -> ProviderScope:
    return ProviderScope(**{"provider": "azure", **changes})


def placed(**changes: Any) -> QuotaDeployment:
    return replace(A, **changes)


_NUMBERS = (-1, NAN, math.inf, "x", True)
_AMOUNTS = (*_NUMBERS, 0)
_SETTINGS: dict[Callable[..., Any], dict[str, tuple[Any, ...]]] = {
    traffic: {
        "name": ("", 1),
        "weight": _AMOUNTS,
        "max_wait": _NUMBERS,
        "max_queue_items": _NUMBERS,
        "is_control": ("false", 1, None),
        "may_borrow": ("no",),
        "may_use_guarantee": (0,),
        "is_preemptible": (1,),
        "on_pressure": ("queue", 5, ("sleep",), (1,)),
        "downgrade_profile": ("", 7),
        "min_output_tokens": (0, 1.5),
        "borrowed_max_stream": _AMOUNTS,
    },
    AdaptiveSettings: {
        "decrease": (*_AMOUNTS, 1, None),
        "recovery_per_minute": (*_AMOUNTS, 61),
        "least": (*_AMOUNTS, 2),
    },
    placed: {
        "name": ("", 1, None),
        "scope": NEITHER,
        "profile": ("azure",),
        "limits": ([QuotaLimit("requests", 1)], "x"),
        "model": ("", 1),
        "model_profile": (1,),
        "maximum_output_tokens": (0, 1.5, NAN),
    },
    bucket: {
        "limits": (5, "requests", QuotaLimit("requests", 1), ("x",)),
        "policy": ("cap", {}),
    },
    scope: {"provider": ("", 5, None), "parts": (5, "eu", ["eu"], {"region": 1}, {1: "eu"})},
    Estimator: {
        "coverage": (0, 1, NAN, "x", True),
        "default_duration": _AMOUNTS,
        "default_output_tokens": (0, NAN),
        "counter": (5, object()),
    },
    PROFILE.replace: {
        "name": ("", 1),
        "dimensions": ("requests", 1, (1,)),
        "scope_parts": ("server", (1,)),
        "header_scopes": (1,),
        "policy": ("cap",),
        "tokens": NEITHER,
        "unset_cap": ("none", 1),
        "output_weight": (*_AMOUNTS, None),
        "growth_per_minute": _AMOUNTS,
        "cap_held_as_input": (1, "no"),
        "short_windows": (5, {"requests": 0}, {"requests": None}, {1: 1.0}),
        "header_windows": ([1], {"requests": NAN}),
        "header_rounding": ("x", {"requests": -1}),
    },
    PROFILE.bucket: {"jitter": _NUMBERS, "headroom": (1, -0.1, NAN)},
    provider_profile: {"name": ("x", "", 1, [])},
    rules: {"family": ("", 1), "per_piece": _AMOUNTS, "per_tool": _NUMBERS, "media": NEITHER},
    media: {"image_tile": _AMOUNTS, "longest_edge": _AMOUNTS, "image_base": _NUMBERS},
    governor: {
        "deployments": ((), "x", 5, [1]),
        "ceilings": ([1], 5, {"acme": LIMITS}, {TENANT: 5}, {Level.TENANT: LIMITS}),
        "default_ceilings": (5, {"tenant": LIMITS}, {Level.TENANT: "x"}, {TENANT: LIMITS}),
        "contracts": (5, "x", [], {"acme": 0.5}, {1: 2}),
        "classes": (5, "x", ["interactive"]),
        "default_class": ("", "x", [], 1),
        "estimator": NEITHER,
        "pool_share": (*_AMOUNTS, 2),
        "largest_request": (5, {"requests": NAN}, {"requests": 0}, {"x": 1}, {1: 1}),
        "shadow": ("false", 1, None),
        "watched": ("tenant", TENANT, 5, [1]),
        "adaptive": NEITHER,
        "cold_share": (*_AMOUNTS, 1.5),
        "on_decision": (5,),
        "clock": (5, None),
        "wall_clock": ("now", None),
        "lease": (*_AMOUNTS, None),
    },
    quoted: {"route": ("a",), "profile": ("azure",), "input": (5,), "output_cap": (0, NAN, "x")},
    figure: {"value": (-1, NAN, "x", None, True)},
    parse_limits: {"text": (5, {})},
}


def cases() -> list[Any]:
    return [
        pytest.param(make, name, value, id=f"{make.__name__}-{name}-{value!r:.20}")
        for make, settings in _SETTINGS.items()
        for name, values in settings.items()
        for value in values
    ]


@pytest.mark.parametrize(("make", "name", "value"), cases())
def test_a_wrong_setting_is_told_when_it_is_made(make, name, value):
    """Bad input is a clear error at once, which says what was expected."""
    limits = [QuotaLimit("requests", 1)] if make == PROFILE.bucket else []

    with pytest.raises(ConfigurationError, match=r"expected|has no deployments|is none of|could"):
        make(*limits, **{name: value})


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: bucket(limits=None), id="limits of a bucket"),
        pytest.param(lambda: bucket(policy=None), id="a policy"),
        pytest.param(lambda: scope(parts=None), id="parts of a scope"),
        pytest.param(lambda: placed(limits=None), id="limits"),
        pytest.param(lambda: governor(deployments=None), id="deployments"),
        pytest.param(lambda: governor(adaptive=None), id="adaptive"),
        pytest.param(lambda: governor(watched=None), id="watched"),
        pytest.param(lambda: governor(ceilings={TENANT: None}), id="a ceiling"),
        pytest.param(lambda: TenantQuotaClient(ScriptedChatClient(), None), id="a governor"),  # type: ignore[arg-type]
        pytest.param(
            lambda: QuotaChatClient(ScriptedChatClient(), Desk().governor, None),  # type: ignore[arg-type]
            id="a deployment",
        ),
    ],
)
def test_none_where_something_is_needed_is_a_type_error(make):
    """None is what a forgotten value looks like; the message names it."""
    with pytest.raises(TypeError, match=r"is None; expected"):
        make()


@pytest.mark.parametrize("quotes", [[], (), {}, "x", 5, [1]], ids=repr)
async def test_a_reservation_of_nothing_is_refused(anyio_backend, quotes):
    """Nowhere to reserve is a mistake of the caller's, and says so."""
    desk = Desk()

    with pytest.raises(ConfigurationError, match="expected a Quote of each deployment"):
        await desk.governor.reserve(quotes, desk.ticket())


@pytest.mark.parametrize("wrong", [None, "x", 5, object()], ids=["None", "text", "5", "object"])
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda desk, wrong: desk.governor.try_reserve(wrong, desk.ticket()), id="try"),
        pytest.param(
            lambda desk, wrong: desk.governor.try_reserve(desk.quote(), wrong), id="ticket"
        ),
        pytest.param(
            lambda desk, wrong: desk.governor.headroom(wrong, desk.ticket()), id="headroom"
        ),
        pytest.param(lambda desk, wrong: desk.governor.traffic_class(wrong), id="class"),
        pytest.param(lambda desk, wrong: desk.governor.close_ticket(wrong), id="close"),
        pytest.param(
            lambda desk, wrong: desk.governor.observe(wrong, {"retry-after": "1"}), id="observe"
        ),
        pytest.param(
            lambda desk, wrong: desk.governor.quote(wrong, ChatOptions(), "a", is_streaming=False),
            id="messages",
        ),
        pytest.param(
            lambda desk, wrong: desk.governor.quote((), wrong, "a", is_streaming=False),
            id="options",
        ),
        pytest.param(
            lambda desk, wrong: desk.governor.quote((), ChatOptions(), wrong, is_streaming=False),
            id="deployment",
        ),
        pytest.param(lambda desk, wrong: desk.governor.guarantees(wrong), id="guarantees"),
    ],
)
def test_a_wrong_argument_is_refused_and_changes_nothing(call, wrong):
    """What a method is given wrongly it names, before it charges anything."""
    desk = Desk()

    with pytest.raises((TypeError, ConfigurationError), match=r"expected|it governs"):
        call(desk, wrong)

    assert desk.used() == 0


@pytest.mark.parametrize("name", ["organisation", "tenant", "team", "api_key"])
@pytest.mark.parametrize("own", [7, True, NAN, ["x"], b"x"], ids=repr)
async def test_the_id_of_a_principal_is_a_text(anyio_backend, name, own):
    """[quota R35] The number 7 would not be the tenant "7", and clear no ceiling of it."""
    desk = Desk()
    principal = Principal(**{name: own})
    options = ChatOptions(routing=RoutingHints(principal=principal))
    inner = ScriptedChatClient()

    with pytest.raises(ConfigurationError, match=f"{name} of a principal is .*expected a text"):
        desk.governor.open_ticket(principal)
    with pytest.raises(ConfigurationError, match=f"{name} of a principal"):
        await QuotaChatClient(inner, desk.governor, "a").get_response("Hi", options)

    assert inner.calls == []


@pytest.mark.parametrize(
    "changes",
    [
        {"deployments": {"a": 5}},
        {"deployments": 5},
        {"ceilings": {"acme": LIMITS}},
        {"ceilings": {TENANT: 5}},
        {"contracts": {"acme": 0.5}},
        {"contracts": "x"},
    ],
    ids=repr,
)
def test_a_wrong_change_changes_nothing(changes):
    """[quota R63] All of a change of limits, or nothing."""
    desk = Desk()
    half = BucketLimits((QuotaLimit("output_tokens", 500),))
    before = desk.governor.snapshot().windows

    with pytest.raises(ConfigurationError, match="expected"):
        desk.governor.update_limits(**{"deployments": {"a": half}, **changes})

    assert desk.governor.snapshot().windows == before


def test_headers_of_other_types_are_passed_over():
    """[quota R58] Whatever a client of one's own puts there, reading it never raises."""
    found = read_limits({1: "2", "x-ratelimit-limit-requests": 5, "ratelimit": None})

    assert found == ()
