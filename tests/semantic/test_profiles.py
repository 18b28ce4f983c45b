"""What a semantic router is built from: forms of profiles, and what is refused."""

import math

import pytest

from chatrouting import (
    ClientMetadata,
    DelegatingChatClient,
    EmbeddingGenerator,
    SemanticRoutingChatClient,
)
from chatrouting.errors import ConfigurationError
from chatrouting.semantic import RouteProfile, SemanticDecision
from chatrouting.testing import FakeEmbeddingGenerator, ScriptedChatClient

GPT = ClientMetadata("openai", "gpt-x")
A, B, DEFAULT = ScriptedChatClient("a"), ScriptedChatClient("b"), ScriptedChatClient("default")


def router(profiles, **settings):
    return SemanticRoutingChatClient(FakeEmbeddingGenerator(), profiles, DEFAULT, **settings)


# --- forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profiles", "names"),
    [
        pytest.param({A: ["fix"], B: ["hi", "hello"]}, ["route-1", "route-2"], id="clients"),
        pytest.param(
            {A: (["fix"], None), B: (["hi", "hello"], 0.5)}, ["route-1", "route-2"], id="and more"
        ),
        pytest.param([(A, ["fix"]), (B, ("hi", "hello"))], ["route-1", "route-2"], id="pairs"),
        pytest.param(
            iter([(A, ["fix"], None), [B, iter(["hi", "hello"]), 0.5]]),
            ["route-1", "route-2"],
            id="triples",
        ),
        pytest.param(
            [RouteProfile(A, ["fix"]), RouteProfile(B, {"hi": 1, "hello": 2}, threshold=0.5)],
            ["route-1", "route-2"],
            id="profiles",
        ),
        pytest.param(
            {"code": (A, ["fix"]), "chat": (B, ["hi", "hello"])}, ["code", "chat"], id="names"
        ),
        pytest.param(
            {"code": RouteProfile(A, ["fix"]), "chat": (B, ["hi", "hello"], 0.5)},
            ["code", "chat"],
            id="names and more",
        ),
    ],
)
def test_profiles_take_every_form(profiles, names):
    built = router(profiles)

    assert built.routes == {names[0]: A, names[1]: B, "default": DEFAULT}
    assert built.utterances == {names[0]: ("fix",), names[1]: ("hi", "hello")}
    assert built.thresholds[names[0]] == 0.3
    assert built.thresholds[names[1]] in (0.3, 0.5)


def test_routes_are_named_as_routers_name_them():
    named = ScriptedChatClient(metadata=GPT)

    assert list(router([(named, ["x"]), (named, ["y"])]).utterances) == [
        "openai/gpt-x",
        "openai/gpt-x-2",
    ]


def test_clients_need_not_be_hashable():
    class Unhashable(DelegatingChatClient):
        __hash__ = None

    client = Unhashable(A)

    assert router([(client, ["x"])]).routes["route-1"] is client


def test_a_threshold_of_a_routes_own_goes_before_the_routers():
    built = router([(A, ["x"], 0.9), (B, ["y"])], score_threshold=0.4, margin=0.1)

    assert built.thresholds == {"route-1": 0.9, "route-2": 0.4}
    assert built.margin == 0.1


def test_two_utterances_are_no_utterance_and_a_threshold():
    assert router({A: ("x", "y")}).utterances == {"route-1": ("x", "y")}


def test_exact_repetitions_are_dropped():
    """[BR-89] Saying it twice says nothing new."""
    assert router([(A, ["x", "y", "x"])]).utterances == {"route-1": ("x", "y")}


def test_utterances_are_copied_and_cannot_be_changed_from_outside():
    given = ["x"]
    built = router([(A, given)])
    given.append("y")

    assert built.utterances == {"route-1": ("x",)}
    with pytest.raises(TypeError):
        built.utterances["route-1"] = ()
    with pytest.raises(TypeError):
        built.thresholds["route-1"] = 0.0


async def test_every_form_has_a_type() -> None:
    """[BR-90] Whatever is asked, one type comes back. The type checkers read this test."""
    clients: dict[ScriptedChatClient, list[str]] = {A: ["x"]}
    with_thresholds: dict[ScriptedChatClient, tuple[list[str], float]] = {A: (["x"], 0.5)}
    pairs: list[tuple[ScriptedChatClient, list[str]]] = [(A, ["x"])]
    triples: list[tuple[ScriptedChatClient, tuple[str, ...], float]] = [(A, ("x",), 0.5)]
    names: dict[str, tuple[ScriptedChatClient, list[str]]] = {"route-1": (A, ["x"])}
    profiles: dict[str, RouteProfile] = {"route-1": RouteProfile(A, ["x"], threshold=0.5)}
    generator = FakeEmbeddingGenerator()
    routers = [
        SemanticRoutingChatClient(generator, clients, DEFAULT),
        SemanticRoutingChatClient(generator, with_thresholds, DEFAULT),
        SemanticRoutingChatClient(generator, pairs, DEFAULT),
        SemanticRoutingChatClient(generator, triples, DEFAULT),
        SemanticRoutingChatClient(generator, names, DEFAULT),
        SemanticRoutingChatClient(generator, profiles, DEFAULT),
        SemanticRoutingChatClient(generator, [(A, ["x"]), (DEFAULT, ["y"], 0.2)], B),
        SemanticRoutingChatClient(generator, {A: ["x"], DEFAULT: ["y"]}, B),
    ]

    for each in routers:
        decision: SemanticDecision = await each.explain("x")
        score: float | None = decision.scores["route-1"]
        assert score == decision.score == pytest.approx(1.0)
        together: list[SemanticDecision] = await each.explain_many(["x"])
        assert together == [decision]


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["embedding_generator", "profiles", "default_client"])
def test_none_is_a_type_error(missing):
    """[routing 94]"""
    given = {
        "embedding_generator": FakeEmbeddingGenerator(),
        "profiles": [(A, ["x"])],
        "default_client": DEFAULT,
        missing: None,
    }

    with pytest.raises(TypeError, match=f"{missing} is None"):
        SemanticRoutingChatClient(**given)


@pytest.mark.parametrize("profiles", ["text", 7])
def test_profiles_that_are_no_collection_are_a_type_error(profiles):
    with pytest.raises(TypeError, match="profiles is"):
        router(profiles)


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        pytest.param([], "profiles is empty", id="no profile"),
        pytest.param({}, "profiles is empty", id="no entry"),
        pytest.param([(A, ["x"]), (B, [])], "route 'route-2' has no utterances", id="no utterance"),
        pytest.param(
            {"code": (A, ["x", " \n"])}, "utterance 2 of route 'code' is blank", id="blank"
        ),
        pytest.param(
            {"code": (A, ["x", None])}, "utterance 2 of route 'code' is NoneType", id="none"
        ),
        pytest.param({"code": (A, "fix my bug")}, "utterances of route 'code' are str", id="text"),
        pytest.param({"code": (A, None)}, "utterances of route 'code' are NoneType", id="no list"),
        pytest.param([(None, ["x"])], "profile 1 begins with NoneType", id="no client"),
        pytest.param({"code": ["x", "y"]}, "profile 'code' begins with str", id="utterances alone"),
        pytest.param({"code": ["x"]}, "profile 'code' is of 1 items", id="one item"),
        pytest.param([A], "profile 1 is ScriptedChatClient", id="a client alone"),
        pytest.param({"default": (A, ["x"])}, "name 'default'", id="the default's name"),
        pytest.param({"": (A, ["x"])}, "has the name ''", id="an empty name"),
        pytest.param([(A, ["x"], 1.5)], "threshold of route 'route-1' is 1.5", id="threshold"),
        pytest.param([(A, ["x"], True)], "threshold of route 'route-1' is True", id="a truth"),
    ],
)
def test_a_profile_that_is_not_as_it_should_be_is_a_value_error_that_names_it(profiles, message):
    """[routing 95]"""
    with pytest.raises(ConfigurationError, match=message) as raised:
        router(profiles)

    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param({"top_k": 0}, "top_k is 0", id="no neighbours"),
        pytest.param({"top_k": 2.0}, "top_k is 2.0", id="a fraction"),
        pytest.param({"top_k": True}, "top_k is True", id="a truth"),
        pytest.param(
            {"score_aggregation": "median"}, "expected one of mean, sum", id="unknown rule"
        ),
        pytest.param({"margin": -0.1}, "margin is -0.1", id="negative margin"),
        pytest.param({"margin": 2.1}, "margin is 2.1", id="margin that nothing reaches"),
        pytest.param({"on_embedding_error": "ignore"}, "on_embedding_error is", id="policy"),
        pytest.param({"embedding_timeout": 0}, "embedding_timeout", id="no time"),
        pytest.param({"batch_size": 0}, "batch_size is 0", id="empty batches"),
        pytest.param({"query_cache_size": -1}, "query_cache_size is -1", id="negative cache"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    """[routing 96]"""
    with pytest.raises(ValueError, match=message):
        router([(A, ["x"])], **settings)


@pytest.mark.parametrize("aggregation", ["mean", "max", "centroid", "blend"])
@pytest.mark.parametrize("threshold", [-1, 0.3, 1.0])
def test_thresholds_are_cosines(aggregation, threshold):
    """[routing 97]"""
    built = router([(A, ["x"])], score_aggregation=aggregation, top_k=2, score_threshold=threshold)

    assert built.thresholds == {"route-1": threshold}
    with pytest.raises(ConfigurationError, match="between -1 and 1"):
        router([(A, ["x"])], score_aggregation=aggregation, top_k=2, score_threshold=1.1)


@pytest.mark.parametrize("threshold", [-2, 2])
def test_thresholds_of_sums_go_as_far_as_sums(threshold):
    """[routing 97]"""
    router([(A, ["x"])], score_aggregation="sum", top_k=2, score_threshold=threshold)

    with pytest.raises(ConfigurationError, match="between -2 and 2"):
        router([(A, ["x"])], score_aggregation="sum", top_k=2, score_threshold=threshold * 1.05)


@pytest.mark.parametrize("threshold", [math.nan, math.inf, -math.inf, "0.3", None])
def test_a_threshold_is_a_number(threshold):
    """[routing 97, BR-89] One that no score can reach, or miss, is a mistake."""
    with pytest.raises(ConfigurationError, match="score_threshold"):
        router([(A, ["x"])], score_threshold=threshold)


def test_an_extractor_is_a_function():
    with pytest.raises(TypeError, match="extract_text is None"):
        router([(A, ["x"])], extract_text=None)


def test_a_generator_is_one():
    with pytest.raises(ConfigurationError, match="embedding_generator is ScriptedChatClient"):
        SemanticRoutingChatClient(A, [(A, ["x"])], DEFAULT)
    assert isinstance(FakeEmbeddingGenerator(), EmbeddingGenerator)
