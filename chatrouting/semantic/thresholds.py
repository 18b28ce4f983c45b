"""Thresholds learnt from queries whose routes are known, and an honest word on what they are worth.

What is reported is measured on queries that took no part in the fit: on a validation set, or on
each part of the queries by a fit of the others.

Three numbers are learnt, not one for each route, since nobody has enough queries for that: a
level; how far routes whose queries score high, or low, on average differ from it; and a margin.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

from chatrouting.errors import ConfigurationError
from chatrouting.semantic._checks import check_count
from chatrouting.semantic.decision import DEFAULT_ROUTE, SemanticDecision

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.float64]
    Places: TypeAlias = NDArray[np.intp]

#: The route that a query belongs to; None or "default" if it belongs to none.
Label: TypeAlias = str | None

#: Queries that a route must have for its own mean to count as much as that of all routes.
_WEIGHT_OF_ALL: Final = 10
#: How much of a route's difference from the others enters its threshold.
_SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_MARGINS: Final = 8


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdFit:
    """Thresholds, and how they do on queries that they were not fitted on.

    Attributes:
        thresholds: For each route; give them to `use_thresholds`.
        margin: The same.
        accuracy: Share of queries that belong to a route and went to it.
        misrouted: Share of queries that belong to a route and went to another one. The rest of
            them went to the default client.
        rejection: Share of queries that belong to no route and went to the default client.
        in_scope: Number of queries with a route that this was measured on.
        out_of_scope: Number of those without.
    """

    thresholds: Mapping[str, float]
    margin: float
    accuracy: float
    misrouted: float
    rejection: float
    in_scope: int
    out_of_scope: int


def fit_thresholds(
    decisions: Sequence[SemanticDecision],
    labels: Sequence[Label],
    *,
    validation: tuple[Sequence[SemanticDecision], Sequence[Label]] | None = None,
    folds: int = 5,
    minimum_rejection: float | None = None,
) -> ThresholdFit:
    """Find thresholds for all routes, and a margin.

    Args:
        decisions: What a router with whatever thresholds says to the queries.
        labels: Where the queries belong.
        validation: Others to report on. None: the fit is repeated on all but one part of the
            queries, reported on that part, for each of `folds` parts.
        folds: Number of parts, at least 2.
        minimum_rejection: Of the thresholds that send at least this share of the queries without
            a route to the default client, take those that are right most often. None: take those
            whose accuracy and rejection are highest together.

    Raises:
        ConfigurationError: If a label is no route, or there are too few queries with a route, or
            without, to fit and report on.
    """
    if not decisions:
        raise _too_few(0, 0)
    routes = list(decisions[0].scores)
    task = _Task(len(routes), decisions[0].scores.limit, minimum_rejection)
    sample = _read(decisions, labels, routes)
    rule = _fit(sample, task)
    if validation is None:
        outcome = _cross_fit(sample, task, folds)
    else:
        outcome = _count(_read(*validation, routes), rule)
    if not outcome.in_scope or not outcome.out_of_scope:
        raise _too_few(outcome.in_scope, outcome.out_of_scope)
    return ThresholdFit(
        thresholds=MappingProxyType(dict(zip(routes, rule.thresholds.tolist(), strict=True))),
        margin=rule.margin,
        accuracy=outcome.right / outcome.in_scope,
        misrouted=outcome.wrong / outcome.in_scope,
        rejection=outcome.rejected / outcome.out_of_scope,
        in_scope=outcome.in_scope,
        out_of_scope=outcome.out_of_scope,
    )


class _Sample(NamedTuple):
    """Queries, one in each place."""

    best: "Places"  #: The route with the highest score, -1 if there is none.
    score: "Numbers"
    lead: "Numbers"  #: Infinite if no other route has a score.
    label: "Places"  #: The right route, -1 if there is none.

    def part(self, where: "NDArray[np.bool_]") -> "_Sample":
        best, score, lead, label = self
        return _Sample(best[where], score[where], lead[where], label[where])


class _Task(NamedTuple):
    routes: int
    limit: float
    minimum_rejection: float | None


class _Rule(NamedTuple):
    thresholds: "Numbers"
    margin: float


class _Outcome(NamedTuple):
    right: int
    wrong: int
    rejected: int
    in_scope: int
    out_of_scope: int


def _read(
    decisions: Sequence[SemanticDecision], labels: Sequence[Label], routes: list[str]
) -> _Sample:
    import numpy as np

    if len(decisions) != len(labels):
        raise ConfigurationError(
            f"there are {len(decisions)} queries and {len(labels)} labels; expected a label for "
            "each query."
        )
    places: dict[Label, int] = {route: place for place, route in enumerate(routes)}
    places |= {None: -1, DEFAULT_ROUTE: -1}
    unknown = next((label for label in labels if label not in places), None)
    if unknown is not None:
        raise ConfigurationError(
            f"label {labels.index(unknown) + 1} is {unknown!r}, which is no route; expected one "
            f"of {', '.join(map(repr, routes))}, or None for a query that belongs to no route."
        )
    infinity = float("inf")
    return _Sample(
        np.array([places[each.best] for each in decisions], np.intp),
        np.array([-infinity if each.score is None else each.score for each in decisions]),
        np.array([infinity if each.lead is None else each.lead for each in decisions]),
        np.array([places[label] for label in labels], np.intp),
    )


def _fit(sample: _Sample, task: _Task) -> _Rule:
    import numpy as np

    in_scope = int((sample.label >= 0).sum())
    out_of_scope = len(sample.label) - in_scope
    if not in_scope or not out_of_scope:
        raise _too_few(in_scope, out_of_scope)
    is_right = (sample.best == sample.label) & (sample.label >= 0)
    offsets = _offsets(sample, is_right, task.routes)
    best_value, found = -1.0, _Rule(offsets, 0.0)
    for margin in _margins(sample):
        leads = (sample.lead >= margin) & (sample.best >= 0)
        for share in _SHARES:
            height = sample.score - share * offsets[sample.best]
            right = np.sort(height[is_right & leads])
            strange = np.sort(height[(sample.label < 0) & leads])
            levels = _between(height[leads])
            accuracy = (len(right) - right.searchsorted(levels)) / in_scope
            rejection = 1 - (len(strange) - strange.searchsorted(levels)) / out_of_scope
            value = _value(accuracy, rejection, task.minimum_rejection)
            place = int(value.argmax())
            if value[place] > best_value + 1e-9:  # else the simpler rule stays
                best_value = float(value[place])
                thresholds = levels[place] + share * offsets
                found = _Rule(thresholds.clip(-task.limit, task.limit), margin)
    return found


def _offsets(sample: _Sample, is_right: "NDArray[np.bool_]", routes: int) -> "Numbers":
    """Return how much higher than all routes' each route's right queries score, on average."""
    import numpy as np

    where, scores = sample.best[is_right], sample.score[is_right]
    if not len(scores):
        return np.zeros(routes)
    counts = np.bincount(where, minlength=routes)
    sums = np.bincount(where, scores - scores.mean(), minlength=routes)
    return sums / (counts + _WEIGHT_OF_ALL)


def _margins(sample: _Sample) -> list[float]:
    import numpy as np

    leads = sample.lead[np.isfinite(sample.lead)]
    if not len(leads):
        return [0.0]
    return [0.0, *np.quantile(leads, np.linspace(0.1, 0.8, _MARGINS)).tolist()]


def _between(heights: "Numbers") -> "Numbers":
    """Return levels that tell the heights apart, from below all of them to above."""
    import numpy as np

    steps = np.unique(heights)
    if not len(steps):
        return np.zeros(1)
    inner = (steps[1:] + steps[:-1]) / 2
    return np.concatenate(([steps[0] - 1e-3], inner, [steps[-1] + 1e-3]))


def _value(accuracy: "Numbers", rejection: "Numbers", minimum_rejection: float | None) -> "Numbers":
    import numpy as np

    if minimum_rejection is None:
        return accuracy + rejection
    # Below the minimum nothing counts but to come near it.
    return np.where(rejection >= minimum_rejection, 1 + accuracy, rejection)


def _count(sample: _Sample, rule: _Rule) -> _Outcome:
    accepted = (
        (sample.best >= 0)
        & (sample.score >= rule.thresholds[sample.best])
        & (sample.lead >= rule.margin)
    )
    belongs = sample.label >= 0
    is_right = sample.best == sample.label
    return _Outcome(
        right=int((accepted & belongs & is_right).sum()),
        wrong=int((accepted & belongs & ~is_right).sum()),
        rejected=int((~accepted & ~belongs).sum()),
        in_scope=int(belongs.sum()),
        out_of_scope=int((~belongs).sum()),
    )


def _cross_fit(sample: _Sample, task: _Task, folds: int) -> _Outcome:
    check_count("folds", folds, least=2)
    outcomes = [
        _count(sample.part(held_out), _fit(sample.part(~held_out), task))
        for held_out in _parts(sample.label, folds)
    ]
    return _Outcome(*(sum(counts) for counts in zip(*outcomes, strict=True)))


def _parts(labels: "Places", folds: int) -> "Iterator[NDArray[np.bool_]]":
    """Deal out the queries, those of each route in turn."""
    import numpy as np

    dealt = np.empty(len(labels), np.intp)
    dealt[np.argsort(labels, kind="stable")] = np.arange(len(labels)) % folds
    for fold in range(folds):
        yield dealt == fold


def _too_few(in_scope: int, out_of_scope: int) -> ConfigurationError:
    return ConfigurationError(
        f"there are {in_scope} queries with a route and {out_of_scope} without to fit or report "
        "on; expected some of each. Label queries that belong to no route None."
    )
