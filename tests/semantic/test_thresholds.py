"""Fitting thresholds: what is found, and that nothing is reported on what it was fitted on."""

import math

import pytest

from chatrouting.errors import ConfigurationError
from chatrouting.semantic import fit_thresholds
from chatrouting.testing import FakeEmbeddingGenerator


def at(angle):
    """Return a direction in the plane, in degrees from east to north."""
    return [math.cos(math.radians(angle)), math.sin(math.radians(angle))]


#: Queries are angles: code is near 0 degrees, chat near 90, and 45 or 180 belong nowhere.
ANGLES = [str(angle) for angle in range(-40, 200)]
VECTORS = {angle: at(float(angle)) for angle in ANGLES}
CODE = [str(angle) for angle in range(-10, 11)]
CHAT = [str(angle) for angle in range(80, 101)]
NOWHERE = [str(angle) for angle in range(40, 51)]


@pytest.fixture
def router(build):
    return build(FakeEmbeddingGenerator(vectors=VECTORS), code=["0"], chat=["90"])


def labelled(**queries):
    pairs = [
        (text, None if label == "none" else label)
        for label, texts in queries.items()
        for text in texts
    ]
    return [text for text, _ in pairs], [label for _, label in pairs]


async def test_thresholds_tell_what_belongs_from_what_does_not(router):
    """Between cos 10° and cos 40°."""
    fit = await router.fit_thresholds(*labelled(code=CODE, chat=CHAT, none=NOWHERE))

    assert (fit.accuracy, fit.misrouted, fit.rejection) == (1.0, 0.0, 1.0)
    assert (fit.in_scope, fit.out_of_scope) == (42, 11)
    for threshold in fit.thresholds.values():
        assert math.cos(math.radians(40)) < threshold < math.cos(math.radians(10))
    assert fit.margin == 0.0


async def test_a_fit_changes_nothing_until_it_is_used(router):
    fit = await router.fit_thresholds(*labelled(code=CODE, chat=CHAT, none=NOWHERE))
    assert (await router.explain("44")).route == "code"
    assert router.thresholds == {"code": 0.0, "chat": 0.0}

    router.use_thresholds(fit.thresholds, margin=fit.margin)

    assert (await router.explain("44")).route == "default"
    assert (await router.explain("5")).route == "code"
    assert router.thresholds == fit.thresholds


async def test_what_is_reported_was_not_fitted_on(router):
    """The labels are by chance, so that nothing can be learnt.

    A report on the same queries would be of a threshold that does better than chance.
    """
    texts = [str(angle) for angle in range(-40, 40)]
    labels = ["code" if (number * 7919) % 13 % 2 else None for number in range(80)]

    fit = await router.fit_thresholds(texts, labels)
    decisions = await router.explain_many(texts)
    router.use_thresholds(fit.thresholds, margin=fit.margin)
    same = await router.explain_many(texts)
    right = sum(d.route == "code" for d, label in zip(same, labels, strict=True) if label)
    rejected = sum(d.route == "default" for d, label in zip(same, labels, strict=True) if not label)

    assert fit.accuracy + fit.rejection < right / fit.in_scope + rejected / fit.out_of_scope
    assert fit == fit_thresholds(decisions, labels)


async def test_a_validation_set_is_reported_on_and_has_no_part_in_the_fit(router):
    """Its labels are the opposite of what was fitted."""
    training = labelled(code=CODE, chat=CHAT, none=NOWHERE)

    fit = await router.fit_thresholds(
        *training, validation=labelled(code=NOWHERE, chat=["5"], none=[*CHAT, "180"])
    )

    assert fit.accuracy == 0.0
    assert fit.misrouted == 1 / 12
    assert fit.rejection == 1 / 22
    assert (fit.in_scope, fit.out_of_scope) == (12, 22)
    assert fit.thresholds == (await router.fit_thresholds(*training)).thresholds


@pytest.mark.parametrize("least", [0.0, 0.5, 0.9, 1.0])
async def test_enough_of_what_does_not_belong_is_rejected_if_asked_for(router, least):
    """And no more than has to be: accuracy falls as rejection rises."""
    training = labelled(
        code=[str(angle) for angle in range(-15, 16)], none=[str(angle) for angle in range(5, 36)]
    )

    fit = await router.fit_thresholds(*training, validation=training, minimum_rejection=least)
    all_in = await router.fit_thresholds(*training, validation=training, minimum_rejection=0.0)

    assert fit.rejection >= least
    assert fit.accuracy <= all_in.accuracy == 1.0
    assert (least < 0.7) or fit.accuracy < 1.0


async def test_a_route_whose_queries_score_high_gets_a_higher_threshold(build):
    """One level for both, above what belongs nowhere, would leave 61 % of the queries."""
    vectors = {str(angle): at(float(angle)) for angle in range(-180, 181)}
    router = build(FakeEmbeddingGenerator(vectors=vectors), tight=["0"], loose=["180"])
    tight = [str(angle) for angle in range(-5, 6)] * 6
    loose = [str(angle) for angle in range(140, 171)] * 2
    nowhere = [str(angle) for angle in [*range(15, 40), *range(-40, -14)]]

    fit = await router.fit_thresholds(*labelled(tight=tight, loose=loose, none=nowhere))

    assert fit.thresholds["tight"] > fit.thresholds["loose"] + 0.05
    assert fit.accuracy > 0.75
    assert fit.rejection > 0.95


async def test_a_margin_is_found_where_it_tells_more_than_a_threshold(build):
    """What belongs nowhere lies in the middle, and scores as high as what belongs."""
    vectors = {str(angle): at(float(angle)) for angle in range(-180, 181)}
    router = build(FakeEmbeddingGenerator(vectors=vectors), code=["0"], chat=["40"])
    far = [str(angle) for angle in [*range(-22, -12), *range(53, 63)]]
    labels = ["code"] * 10 + ["chat"] * 10
    middle = [str(angle) for angle in range(18, 23)] * 4

    fit = await router.fit_thresholds([*far, *middle], [*labels, *[None] * 20])
    router.use_thresholds(fit.thresholds, margin=fit.margin)

    assert fit.margin > 0
    assert (fit.accuracy, fit.rejection) == (1.0, 1.0)
    assert (await router.explain("20")).route == "default"


async def test_scores_of_sums_have_thresholds_of_sums(build):
    router = build(
        FakeEmbeddingGenerator(vectors=VECTORS),
        code=["-3", "0", "3"],
        chat=["87", "90", "93"],
        score_aggregation="sum",
        top_k=3,
    )

    fit = await router.fit_thresholds(*labelled(code=CODE, chat=CHAT, none=["45"] * 10))
    router.use_thresholds(fit.thresholds)

    assert all(2 < threshold <= 3 for threshold in fit.thresholds.values())


async def test_queries_that_match_nothing_count_as_sent_to_the_default(build):
    vectors = {"0": [1.0, 0.0], "5": at(5.0), "nothing": [0.0, 0.0]}
    router = build(FakeEmbeddingGenerator(vectors=vectors), code=["0"])

    fit = await router.fit_thresholds(["5", " ", "nothing"] * 4, ["code", None, None] * 4)
    nothing_matches = await router.fit_thresholds(["nothing", " "] * 4, ["code", None] * 4)

    assert (fit.accuracy, fit.rejection) == (1.0, 1.0)
    assert (nothing_matches.accuracy, nothing_matches.rejection) == (0.0, 1.0)


async def test_the_default_may_be_called_by_its_name(router):
    queries, labels = labelled(code=CODE, chat=CHAT, none=NOWHERE)

    named = await router.fit_thresholds(queries, [label or "default" for label in labels])

    assert named == await router.fit_thresholds(queries, labels)


@pytest.mark.parametrize(
    ("queries", "labels", "settings", "message"),
    [
        (["0", "1"], ["code"], {}, "2 queries and 1 labels"),
        (
            ["0", "1"],
            ["code", "coding"],
            {},
            "label 2 is 'coding', which is no route; expected one",
        ),
        ([], [], {}, "0 queries with a route and 0 without"),
        (["0", "1"], ["code", "code"], {}, "2 queries with a route and 0 without"),
        (["0", "1"], [None, None], {}, "0 queries with a route and 2 without"),
        (["0", "1"], ["code", None], {}, "queries with a route and . without"),
        (["0", "1"] * 5, ["code", None] * 5, {"folds": 1}, "folds is 1"),
        (["0", "1"] * 5, ["code", None] * 5, {"validation": (["1"], [None])}, "0 queries with"),
    ],
)
async def test_what_nothing_can_be_learnt_from_is_refused(
    router, queries, labels, settings, message
):
    with pytest.raises(ConfigurationError, match=message):
        await router.fit_thresholds(queries, labels, **settings)


@pytest.mark.parametrize(
    ("thresholds", "settings", "message"),
    [
        ({"coding": 0.5}, {}, "there is no route 'coding'"),
        ({"code": 1.5}, {}, "the threshold of route 'code' is 1.5"),
        ({}, {"margin": 3}, "margin is 3"),
    ],
)
def test_thresholds_that_make_no_sense_are_not_used(router, thresholds, settings, message):
    with pytest.raises(ConfigurationError, match=message):
        router.use_thresholds({"chat": 0.5, **thresholds}, **settings)

    assert router.thresholds == {"code": 0.0, "chat": 0.0}


def test_thresholds_left_out_stay(router):
    router.use_thresholds({"chat": 0.5})

    assert router.thresholds == {"code": 0.0, "chat": 0.5}
    assert router.margin == 0.0
