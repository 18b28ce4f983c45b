"""The index against a slow oracle in plain Python, and changes against building anew."""

import math
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chatrouting.semantic._vectors import as_vectors, make_unit_rows
from chatrouting.semantic.decision import DecisionRule
from chatrouting.semantic.index import RouteScoring, UtteranceIndex
from chatrouting.semantic.scoring import ROUNDING, Scoring

RULES = ["mean", "sum", "max", "centroid", "blend"]
DEFAULT = "default"

# --- the oracle -----------------------------------------------------------------------------------


def direction(vector):
    """Return a vector of length 1, None for one that has no direction."""
    length = math.hypot(*vector)
    if not math.isfinite(length) or length == 0:
        return None
    return [part / length for part in vector]


def cosine(one, other):
    if one is None or other is None:
        return None
    # Rounded, so that what is equal on paper is equal here.
    return round(sum(a * b for a, b in zip(one, other, strict=True)), 9)


def middle(directions):
    known = [each for each in directions if each is not None]
    if not known:
        return None
    mean = [sum(parts) / len(known) for parts in zip(*known, strict=True)]
    return None if math.hypot(*mean) < 1e-6 else direction(mean)


@dataclass
class Verdict:
    """What the oracle says; a score of None means that nothing matched."""

    scores: list[float | None]
    ranks: list[int]  #: Place of each route's nearest utterance among the nearest ones.
    cosines: list[float]

    @property
    def winner(self):
        known = [route for route, score in enumerate(self.scores) if score is not None]
        return min(known, key=lambda route: (-self.scores[route], self.ranks[route]), default=None)

    @property
    def is_clear(self):
        """Say whether float32 can tell apart what is different on paper."""
        for values in (self.cosines, self.scores):
            known = sorted(value for value in values if value is not None)
            for one, other in pairwise(known):
                if 1e-8 < other - one < 1e-5:
                    return False
        return True


def judge(routes, query, scoring):
    """Score routes of vectors, each as a list, by the definition."""
    query = direction(query)
    units = [[direction(vector) for vector in vectors] for vectors in routes]
    cosines = [
        (cosine(vector, query), route) for route, vectors in enumerate(units) for vector in vectors
    ]
    known = [(near, row, route) for row, (near, route) in enumerate(cosines) if near is not None]
    nearest = sorted(known, key=lambda each: (-each[0], each[1]))[: scoring.top_k]
    scores, ranks = [], []
    for route, vectors in enumerate(units):
        matches = [near for near, _, owner in nearest if owner == route]
        all_matches = [near for near, _, owner in known if owner == route]
        best = max(all_matches, default=None)
        central = cosine(middle(vectors), query)
        match scoring.aggregation:
            case "mean" | "sum" if scoring.top_k == 1:
                score = best
            case "mean":
                score = sum(matches) / len(matches) if matches else None
            case "sum":
                score = sum(matches) if matches else None
            case "max":
                score = best
            case "centroid":
                score = central
            case "blend":
                score = None if best is None or central is None else (best + central) / 2
        scores.append(None if score is None else round(score, 9))
        owners = [owner for _, _, owner in nearest]
        is_ranked = scoring.top_k > 1 and scoring.aggregation in ("mean", "sum")
        ranks.append(owners.index(route) if is_ranked and route in owners else route)
    return Verdict(scores, ranks, [near for near, _, _ in known])


# --- what is generated ----------------------------------------------------------------------------

NUMBERS = st.integers(-3, 3).map(float)
ODD = st.sampled_from([0.0, math.nan, math.inf, -math.inf, 1.0])


@st.composite
def worlds(draw):
    """Return routes of vectors, and a query: zeros, duplicates, NaN and the rest."""
    dimension = draw(st.integers(1, 3))
    plain = st.lists(NUMBERS, min_size=dimension, max_size=dimension)
    odd = st.lists(ODD, min_size=dimension, max_size=dimension)
    vectors = st.one_of(plain, plain, plain, plain, odd)
    pool = draw(st.lists(vectors, min_size=1, max_size=4))
    vectors = st.one_of(vectors, st.sampled_from(pool))  # so that there are duplicates
    route = st.lists(vectors, min_size=1, max_size=5)
    return draw(st.lists(route, min_size=1, max_size=4)), draw(vectors)


SCORINGS = st.builds(Scoring, st.sampled_from(RULES), st.integers(1, 25))


def unit_rows(vectors):
    rows = as_vectors(vectors, len(vectors))
    make_unit_rows(rows)
    return rows


def index_of(routes):
    rows = [vector for vectors in routes for vector in vectors]
    return UtteranceIndex(unit_rows(rows), [len(vectors) for vectors in routes])


# --- the properties -------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(worlds(), SCORINGS)
def test_scores_and_winner_are_those_of_the_oracle(world, scoring):
    """[routing 99, 104, 105, 109, BR-89]"""
    routes, query = world
    verdict = judge(routes, query, scoring)
    assume(verdict.is_clear)

    scored = index_of(routes).score(unit_rows([query])[0], scoring)

    found = [scored.score_of(route) for route in range(len(routes))]
    assert [None if score is None else round(score, 4) for score in found] == [
        None if score is None else pytest.approx(score, abs=1e-4) for score in verdict.scores
    ]
    assert scored.winner == verdict.winner
    if scored.winner is not None:
        rivals = [s for r, s in enumerate(verdict.scores) if r != scored.winner and s is not None]
        lead = verdict.scores[scored.winner] - max(rivals) if rivals else None
        assert scored.score == pytest.approx(verdict.scores[scored.winner], abs=1e-5)
        assert scored.lead == (None if lead is None else pytest.approx(lead, abs=1e-5))


@settings(max_examples=150, deadline=None)
@given(worlds(), SCORINGS, st.floats(-1, 1), st.floats(0, 1), st.booleans())
def test_decisions_are_those_of_the_oracle(world, scoring, threshold, margin, is_exact):
    """[routing 100, 102] Also where threshold and margin are met exactly."""
    routes, query = world
    verdict = judge(routes, query, scoring)
    assume(verdict.is_clear)
    winner = verdict.winner
    names = {f"route-{route}": route for route in range(len(routes))}
    rivals = [s for r, s in enumerate(verdict.scores) if r != winner and s is not None]
    lead = None if winner is None or not rivals else verdict.scores[winner] - max(rivals)
    if is_exact and winner is not None:
        threshold, margin = verdict.scores[winner], margin if lead is None else lead
    score = None if winner is None else verdict.scores[winner]
    assume(score is None or is_exact or abs(score - threshold) > 1e-5)
    assume(lead is None or is_exact or abs(lead - margin) > 1e-5)

    rule = DecisionRule(names, (threshold,) * len(routes), margin, scoring.limit)
    decision = rule.decide(index_of(routes).score(unit_rows([query])[0], scoring))

    is_good = score is not None and score >= threshold and (lead is None or lead >= margin)
    assert decision.route == (f"route-{winner}" if is_good else DEFAULT)
    assert (decision.best is None) == (score is None)
    assert all(s is None or -scoring.limit <= s <= scoring.limit for s in decision.scores.values())


@settings(max_examples=60, deadline=None)
@given(worlds(), st.lists(worlds(), max_size=3), SCORINGS)
def test_many_queries_are_scored_as_each_alone(world, others, scoring):
    routes, query = world
    dimension = len(query)
    queries = [query, *(q for _, q in others if len(q) == dimension)] * 25
    index, rows = index_of(routes), unit_rows(queries)

    for row, many in zip(rows, list(index.score_many(rows, scoring)), strict=True):
        one: RouteScoring = index.score(row, scoring)
        assert many.winner == one.winner
        for route in range(len(routes)):
            left, right = many.score_of(route), one.score_of(route)
            assert left == (None if right is None else pytest.approx(right, abs=2 * ROUNDING))


@settings(max_examples=100, deadline=None)
@given(worlds(), st.data())
def test_changes_lead_to_the_index_that_building_anew_gives(world, data):
    """Rows, their order and the routes' middles, after any additions and removals."""
    routes, query = world
    routes = [list(vectors) for vectors in routes]
    index = index_of(routes)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(routes) - 1))
        before = index.vectors.copy()
        if data.draw(st.booleans()) and len(routes[place]) > 1:
            size = len(routes[place])
            gone = data.draw(
                st.lists(st.integers(0, size - 1), min_size=1, max_size=size - 1, unique=True)
            )
            changed = index.with_removed(place, gone)
            routes[place] = [each for at, each in enumerate(routes[place]) if at not in gone]
        else:
            vector = st.lists(NUMBERS, min_size=len(query), max_size=len(query))
            new = data.draw(st.lists(vector, min_size=1, max_size=3))
            changed = index.with_added(place, unit_rows(new))
            routes[place] += new
        assert np.array_equal(index.vectors, before)  # who holds the old one is not disturbed
        index = changed

    anew = index_of(routes)
    assert np.array_equal(index.vectors, anew.vectors)
    assert index.counts == anew.counts
    row = unit_rows([query])[0]
    for rule in RULES:
        left, right = index.score(row, Scoring(rule, 2)), anew.score(row, Scoring(rule, 2))
        assert (left.winner, left.score) == (right.winner, right.score)


@settings(max_examples=50, deadline=None)
@given(worlds())
def test_rows_of_an_index_have_length_one_or_zero(world):
    routes, _ = world
    index = index_of(routes)

    lengths = np.linalg.norm(index.vectors.astype(float), axis=1)

    assert ((abs(lengths - 1) < 1e-6) | (lengths == 0)).all()
    assert [0, *accumulate(index.counts)][-1] == len(lengths)
    assert index.dimension == len(routes[0][0])
