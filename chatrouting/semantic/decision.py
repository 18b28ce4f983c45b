"""What a semantic router decided about a request, and why."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, final

from typing_extensions import override

from chatrouting.routing.context import RoutingContext
from chatrouting.semantic.index import RouteScoring
from chatrouting.semantic.scoring import ROUNDING, Scoring

#: Name of the route of the default client.
DEFAULT_ROUTE: Final = "default"

_KEY: Final = "chatrouting.semantic.decision"


class DecisionReason(StrEnum):
    """Why a request went where it went; all but the first lead to the default client."""

    MATCHED = "matched"  #: The best route reached its threshold, and the margin.
    BELOW_THRESHOLD = "below_threshold"
    NO_CLEAR_LEAD = "no_clear_lead"  #: The best route does not lead by the margin.
    NO_MATCH = "no_match"  #: The query's vector is zero or not finite, or so are the utterances'.
    NO_TEXT = "no_text"  #: The conversation holds no text to go by; nothing was embedded.
    EMBEDDING_ERROR = "embedding_error"


_MATCHED = DecisionReason.MATCHED


@final
class RouteScores(Mapping[str, float | None]):
    """The score of every route; None for one that has none.

    By `mean` and `sum` with `top_k` above 1 only routes with a near enough utterance have one.
    """

    __slots__ = ("_positions", "_scoring", "limit")

    def __init__(
        self, positions: Mapping[str, int], scoring: RouteScoring | None, limit: float
    ) -> None:
        self._positions = positions
        self._scoring = scoring
        self.limit = limit  #: The highest possible score; the lowest is its negative.

    @override
    def __getitem__(self, route: str) -> float | None:
        position = self._positions[route]
        score = None if self._scoring is None else self._scoring.score_of(position)
        return None if score is None else _bounded(score, self.limit)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    @override
    def __len__(self) -> int:
        return len(self._positions)

    @override
    def __reduce__(self) -> tuple[object, ...]:
        # The scores travel, not what they were counted from.
        return _with_scores, (dict(self), self.limit)

    @override
    def __repr__(self) -> str:
        return repr(dict(self))

    @override
    def __str__(self) -> str:
        return " ".join(f"{route}={_written(score)}" for route, score in self.items())


def _with_scores(scores: Mapping[str, float | None], limit: float) -> RouteScores:
    positions = {route: position for position, route in enumerate(scores)}
    known = {positions[route]: score for route, score in scores.items() if score is not None}
    return RouteScores(positions, RouteScoring(None, 0.0, -math.inf, known), limit)


@final
@dataclass(frozen=True, slots=True)
class SemanticDecision:
    """Where a request goes, and what speaks for it.

    Attributes:
        route: Where it goes; "default" is the default client.
        reason: Why.
        best: The route with the highest score, whether or not that was enough; None if no
            utterance matched.
        score: The score of `best`, None without one.
        threshold: The threshold of `best`, None without one; reached by a score that is equal.
        lead: By how much `best` leads; None if no other route has a score.
        scores: The score of every route.
        error: What the embedding generator raised, if that is why.
    """

    route: str
    reason: DecisionReason
    scores: RouteScores
    best: str | None = None
    score: float | None = None
    threshold: float | None = None
    lead: float | None = None
    error: Exception | None = None

    @override
    def __str__(self) -> str:
        if self.best is None:
            return self.reason.value
        return (
            f"{self.reason.value}: {self.best!r} scores {_written(self.score)}, "
            f"threshold {_written(self.threshold)}, lead {_written(self.lead)}"
        )


def decision_of(context: RoutingContext) -> SemanticDecision | None:
    """Return what a semantic router decided about a request, for hooks and listeners.

    Args:
        context: As `on_routing_update` gets it.

    Returns:
        None if nothing is decided yet, or the context is another router's.
    """
    found = context.state.get(_KEY)
    return found if isinstance(found, SemanticDecision) else None


def keep_decision(context: RoutingContext, decision: SemanticDecision) -> None:
    """Put a decision where `decision_of` finds it, also if a subclass chooses otherwise."""
    context.state[_KEY] = decision


@final
@dataclass(frozen=True, slots=True)
class DecisionRule:
    """What a score must reach.

    Attributes:
        positions: The routes, by name.
        thresholds: One for each route.
        margin: By how much the best route must lead.
        limit: The highest possible score.
        names: The routes, by position.
    """

    positions: Mapping[str, int]
    thresholds: tuple[float, ...]
    margin: float
    limit: float
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.positions))

    @classmethod
    def checked(
        cls, scoring: Scoring, thresholds: Mapping[str, float], margin: float
    ) -> "DecisionRule":
        """Make a rule for the routes of `thresholds`, in their order.

        Raises:
            ConfigurationError: If a number is none that scores can have.
        """
        return cls(
            positions={route: place for place, route in enumerate(thresholds)},
            thresholds=tuple(
                scoring.check_threshold(threshold, f"the threshold of route {route!r}")
                for route, threshold in thresholds.items()
            ),
            margin=scoring.check_margin(margin),
            limit=scoring.limit,
        )

    def decide(self, scoring: RouteScoring) -> SemanticDecision:
        """Judge the best route. Threshold and margin are inclusive."""
        winner = scoring.winner
        if winner is None:
            return self.undecided(DecisionReason.NO_MATCH)
        best = self.names[winner]
        threshold = self.thresholds[winner]
        reason = _MATCHED
        if scoring.score < threshold - ROUNDING:
            reason = DecisionReason.BELOW_THRESHOLD
        elif scoring.lead is not None and scoring.lead < self.margin - ROUNDING:
            reason = DecisionReason.NO_CLEAR_LEAD
        # By position: names would take a quarter longer.
        return SemanticDecision(
            best if reason is _MATCHED else DEFAULT_ROUTE,
            reason,
            RouteScores(self.positions, scoring, self.limit),
            best,
            _bounded(scoring.score, self.limit),
            threshold,
            scoring.lead,
        )

    def undecided(self, reason: DecisionReason, error: Exception | None = None) -> SemanticDecision:
        """Return the decision for the default client where there is nothing to compare."""
        scores = RouteScores(self.positions, None, self.limit)
        return SemanticDecision(DEFAULT_ROUTE, reason, scores, error=error)


def _bounded(score: float, limit: float) -> float:
    """Take off what float32 adds beyond the highest and the lowest score."""
    return score if -limit <= score <= limit else math.copysign(limit, score)


def _written(number: float | None) -> str:
    return "none" if number is None else f"{number:.3f}"
