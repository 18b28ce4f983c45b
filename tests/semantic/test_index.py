"""How utterances become scores, in a plane where every cosine can be told by looking."""

import math

import numpy as np
import pytest

from chatrouting.semantic import DecisionReason
from chatrouting.semantic._vectors import arranged
from chatrouting.semantic.index import UtteranceIndex, nearest_rows
from chatrouting.semantic.scoring import Scoring
from chatrouting.testing import FakeEmbeddingGenerator

RULES = ["mean", "sum", "max", "centroid", "blend"]


def near(score):
    return pytest.approx(score, abs=1e-6)


async def test_the_route_with_the_nearest_utterance_wins(build):
    """[routing 98]"""
    router = build(code=["east"], chat=["north"])

    assert (await router.explain("nearly east")).route == "code"


async def test_lengths_of_vectors_do_not_count(build):
    """[BR-89] Cosines of vectors that are not normalised, on either side."""
    router = build(code=["far east"], chat=["nearly east"])

    decision = await router.explain("east")

    assert decision.scores == {"code": near(1.0), "chat": near(0.8)}


@pytest.mark.parametrize("rule", RULES)
async def test_the_opposite_direction_scores_minus_one(build, rule):
    """[BR-89]"""
    router = build(code=["west"], score_aggregation=rule, score_threshold=-1)

    assert (await router.explain("east")).score == near(-1.0)
    assert (await router.explain("far east")).route == "code"


@pytest.mark.parametrize(("rule", "winner"), [("mean", "exact"), ("sum", "close")])
async def test_the_nearest_of_all_routes_are_taken_and_then_put_together(build, rule, winner):
    """[routing 99] One exact match beats two of 0.8 on average, not in sum."""
    router = build(
        exact=["east", "south"],
        close=["nearly east", "nearly east, southwards"],
        score_aggregation=rule,
        top_k=3,
    )

    decision = await router.explain("east")

    expected = {"mean": (1.0, 0.8), "sum": (1.0, 1.6)}[rule]
    assert decision.route == winner
    assert decision.scores == {"exact": near(expected[0]), "close": near(expected[1])}


async def test_a_mean_is_over_the_matches_only(build):
    """[routing 105] Not over all utterances of the route, of which "north" would lower it."""
    router = build(code=["east", "north"], chat=["nearly east"], top_k=2)

    assert (await router.explain("east")).scores == {"code": near(1.0), "chat": near(0.8)}


async def test_more_neighbours_than_utterances_are_all_of_them(build):
    """[routing 105]"""
    router = build(code=["east", "north"], chat=["nearly east"], top_k=50)

    assert (await router.explain("east")).scores == {"code": near(0.5), "chat": near(0.8)}


async def test_a_route_outside_of_the_nearest_has_no_score(build):
    router = build(code=["east", "far east"], chat=["north"], top_k=2)

    decision = await router.explain("east")

    assert decision.scores == {"code": near(1.0), "chat": None}
    assert decision.lead is None


@pytest.mark.parametrize("rule", ["mean", "sum", "max"])
async def test_with_one_neighbour_every_route_has_a_score(build, rule):
    """The mean, and the sum, of one cosine is that cosine; so nothing is hidden."""
    router = build(code=["east", "west"], chat=["north"], score_aggregation=rule)

    decision = await router.explain("nearly east")

    assert decision.scores == {"code": near(0.8), "chat": near(0.6)}
    assert decision.lead == near(0.2)


async def test_the_nearest_example_the_middle_and_half_of_each(build):
    """East and north together lie north-east."""
    routes = {"code": ["east", "north"], "chat": ["west"]}
    middle = math.sqrt(0.5)
    for rule, score in [("max", 1.0), ("centroid", middle), ("blend", (1 + middle) / 2)]:
        decision = await build(routes=routes, score_aggregation=rule).explain("east")

        assert decision.scores["code"] == near(score)
        assert decision.scores["chat"] == near(-1.0)


@pytest.mark.parametrize("rule", ["centroid", "blend"])
@pytest.mark.parametrize("angles", [(0, 180), (0, 120, 240), (7, 79, 151, 223, 295)])
async def test_a_route_whose_utterances_cancel_one_another_has_no_middle(build, rule, angles):
    """It matches nothing, rather than whatever direction rounding leaves."""
    vectors = {
        f"{angle}°": [1e3 * math.cos(math.radians(angle)), 1e3 * math.sin(math.radians(angle))]
        for angle in (*angles, 90, 30)
    }
    router = build(
        FakeEmbeddingGenerator(vectors=vectors),
        code=[f"{angle}°" for angle in angles],
        chat=["90°"],
        score_aggregation=rule,
    )

    decision = await router.explain("30°")

    assert decision.route == "chat"
    assert decision.scores["code"] is None


# --- ties -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("top_k", [1, 3])
async def test_of_equal_routes_the_first_wins(build, rule, top_k):
    """[routing 104]"""
    router = build(first=["east"], second=["far east"], score_aggregation=rule, top_k=top_k)

    assert (await router.explain("east")).route == "first"


async def test_of_equal_neighbours_the_first_are_taken(build):
    """[routing 104] Two places for three equal utterances."""
    router = build(
        a=["east"], b=["far east"], c=["nearly east", "nearly east, southwards"], top_k=2
    )

    assert (await router.explain("east")).scores == {"a": near(1.0), "b": near(1.0), "c": None}


async def test_between_equal_scores_the_one_with_the_nearest_utterance_wins(build):
    """[routing 104] 1.0 and 0.0 are 0.5 on average, and so is 0.5 twice."""
    half = [0.5, math.sqrt(0.75)]
    generator = FakeEmbeddingGenerator(
        vectors={"half": half, "half again": [half[0], -half[1]], "east": [1, 0], "north": [0, 1]}
    )
    router = build(generator, even=["half", "half again"], uneven=["north", "east"], top_k=4)

    decision = await router.explain("east")

    assert decision.scores == {"even": near(0.5), "uneven": near(0.5)}
    assert decision.route == "uneven"
    assert decision.lead == near(0.0)


def test_equal_vectors_tie_whatever_row_they_stand_in():
    """Products of equal rows may differ in their last bit; the order of declaration decides."""
    rng = np.random.default_rng(7)
    for size in range(2, 40):
        row = rng.normal(size=19).astype(np.float32)
        row /= np.linalg.norm(row)
        query = (row + 0.1 * rng.normal(size=19)).astype(np.float32)
        query /= np.linalg.norm(query)
        index = UtteranceIndex(np.tile(row, (size, 1)), [1] * size)

        for rule, top_k in [("max", 1), ("mean", 2), ("sum", 2), ("centroid", 1), ("blend", 1)]:
            assert index.score(query, Scoring(rule, top_k)).winner == 0


@pytest.mark.parametrize(
    ("cosines", "count", "rows"),
    [
        ([0.1, 0.9, 0.5], 2, [1, 2]),
        ([0.5, 0.9, 0.5, 0.5], 2, [0, 1]),
        ([0.5, 0.5, 0.5, 0.5], 2, [0, 1]),
        ([0.5, 0.5 + 2e-7, 0.5 - 2e-7, 0.5 + 3e-7], 3, [0, 1, 2]),
        ([0.1, 0.2], 2, [0, 1]),
        ([0.1, -math.inf, 0.2], 2, [0, 2]),
    ],
)
def test_of_equal_rows_the_first_are_the_nearest(cosines, count, rows):
    """[routing 104]"""
    found, near = nearest_rows(np.array(cosines, np.float32), count)

    assert sorted(found) == rows
    assert near == pytest.approx([cosines[row] for row in found])


@pytest.mark.parametrize("count", [1, 2, 5, 8, 9, 40])
@pytest.mark.parametrize("size", [30, 499, 500, 1200])
@pytest.mark.parametrize(
    "kind", ["different", "equal", "few that match", "the first that match", "none that matches"]
)
def test_the_nearest_of_few_and_of_many_rows_are_those_of_a_stable_sort(kind, size, count):
    """[routing 104] Whichever way is taken to find them."""
    rng = np.random.default_rng(size + count)
    cosines = rng.permutation(size).astype(np.float32) / np.float32(size)
    if kind == "equal":
        cosines = np.round(cosines, 1)
    elif kind == "few that match":
        cosines[rng.permutation(size)[3:]] = -math.inf
    elif kind == "the first that match":
        cosines[2:] = -math.inf
    elif kind == "none that matches":
        cosines[:] = -math.inf
    best = [row for row in np.argsort(-cosines, kind="stable") if cosines[row] != -math.inf]
    expected = {row: cosines.item(row) for row in best[:count]}

    rows, near = nearest_rows(cosines.copy(), count)

    assert dict(zip(rows, near, strict=True)) == expected


@pytest.mark.parametrize("count", [65, 71, 72])
@pytest.mark.parametrize("order", ["C", "F"])
def test_many_rows_lie_column_by_column_and_columns_begin_at_32_bytes(order, count):
    """So the product with a query takes the least time, wherever the rows came from."""
    given = np.asarray(np.eye(100, 7, dtype=np.float32), order=order)[:count]

    index = UtteranceIndex(given, [count])

    assert index.vectors.strides == (4, 4 * 72)
    assert index.vectors.ctypes.data % 64 == 0
    assert np.array_equal(index.vectors, given)
    assert not arranged(given)[count:].any()
    # What fills the columns up is no utterance: it would be nearer than the opposite direction.
    opposite = -np.ones(7, np.float32) / np.float32(math.sqrt(7))
    assert index.score(opposite, Scoring("max", 1)).score < 0


def test_a_few_rows_lie_one_by_one():
    """For the same reason."""
    rows = np.eye(5, 7, dtype=np.float32)
    for given in (rows, np.asfortranarray(rows), rows[:4]):
        vectors = UtteranceIndex(given, [len(given)]).vectors

        assert vectors.flags.c_contiguous
        assert not np.shares_memory(vectors, given)
        assert np.array_equal(vectors, given)


# --- no direction ---------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", ["nowhere", "undefined", "endless"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("top_k", [1, 3])
async def test_an_utterance_without_a_direction_matches_nothing(build, rule, top_k, nothing):
    """[routing 109, BR-89] A perfect match is not spoilt by it, and it alone wins nothing."""
    router = build(
        good=[nothing, "east"],
        other=["nearly east"],
        lost=[nothing],
        score_aggregation=rule,
        top_k=top_k,
        score_threshold=-1,
    )

    decision = await router.explain("east")

    assert decision.route == "good"
    assert decision.score == near(1.0)
    assert decision.scores["lost"] is None


@pytest.mark.parametrize("nothing", ["nowhere", "undefined", "endless"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("top_k", [1, 3])
async def test_a_query_without_a_direction_goes_to_the_default(build, rule, top_k, nothing):
    """[routing 109]"""
    router = build(code=["east"], score_aggregation=rule, top_k=top_k, score_threshold=-1)

    decision = await router.explain(nothing)

    assert decision.route == "default"
    assert decision.reason is DecisionReason.NO_MATCH
    assert decision.scores == {"code": None}
    assert (decision.best, decision.score, decision.threshold) == (None, None, None)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("top_k", [1, 3])
async def test_without_any_direction_every_request_goes_to_the_default(build, rule, top_k):
    """[routing 109]"""
    router = build(code=["nowhere"], score_aggregation=rule, top_k=top_k, score_threshold=-1)

    assert (await router.explain("east")).reason is DecisionReason.NO_MATCH


@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e300])
async def test_tiny_and_huge_vectors_have_a_direction(build, scale):
    """Their squares vanish, or overflow, in float32. 1e300 is more than float32 can hold."""
    generator = FakeEmbeddingGenerator(vectors={"x": [scale, scale], "y": [1.0, 0.0]})
    router = build(generator, code=["x"])

    score = (await router.explain("y")).score

    assert score == (None if scale == 1e300 else near(math.sqrt(0.5)))


# --- duplicates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("top_k", [1, 2, 4])
async def test_repeating_an_utterance_changes_nothing(build, rule, top_k):
    """[BR-89] Neither the score of the route, nor that of another by taking its place."""
    settings = {"score_aggregation": rule, "top_k": top_k, "score_threshold": -1}
    once = build(code=["nearly east", "north"], chat=["east"], **settings)
    often = build(code=["nearly east", "north", *["nearly east"] * 5], chat=["east"], **settings)

    for query in ["east", "north", "west", "north-east"]:
        assert await once.explain(query) == await often.explain(query)


# --- many at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("top_k", [1, 3])
async def test_many_texts_are_judged_as_each_alone(build, plane, rule, top_k):
    router = build(
        code=["east", "nowhere"],
        chat=["north", "nearly east"],
        score_aggregation=rule,
        top_k=top_k,
        score_threshold=0.5,
    )
    texts = ["east", " ", "nowhere", "west", "north-east", ""] * 30

    together = await router.explain_many(iter(texts))

    for text, decision in zip(texts, together, strict=True):
        alone = await router.explain(text)
        assert (decision.route, decision.reason) == (alone.route, alone.reason)
        assert decision.score == (None if alone.score is None else near(alone.score))
    assert len(plane.calls) == 2 + sum(bool(text.strip()) for text in texts)


async def test_no_texts_need_no_vectors(build, plane):
    router = build(code=["east"])

    assert await router.explain_many([]) == []
    assert [each.reason for each in await router.explain_many([" "])] == [DecisionReason.NO_TEXT]
    assert plane.calls == []


async def test_a_large_index_is_searched_beside_the_event_loop(build):
    """Four million numbers; the result is the same."""
    generator = FakeEmbeddingGenerator(dimension=4000)
    texts = [f"text number {number}" for number in range(1001)]
    router = build(generator, code=texts[:500], chat=texts[500:], score_aggregation="max")

    alone = await router.explain("text number 700")
    (together,) = await router.explain_many(["text number 700"])

    assert alone.route == together.route == "chat"
    assert alone.score == near(1.0)
