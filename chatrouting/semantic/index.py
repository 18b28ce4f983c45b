"""The vectors of all utterances, and how near a query comes to each route.

Rows have length 1, so a cosine is one product; they stand route by route, in the order of their
declaration. An index never changes: adding and removing make a new one, and whoever holds the old
one goes on with it.

Equal vectors may get cosines that differ in the last bit, by the row they stand in. So what
differs by less than `ROUNDING` is taken for equal, and then the order of declaration decides.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias, final

from chatrouting.semantic._vectors import Vectors
from chatrouting.semantic.scoring import ROUNDING, Scoring

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Rows: TypeAlias = "NDArray[np.intp]"
Cosines: TypeAlias = "NDArray[np.float32]"

NO_MATCH: Final = float("-inf")

#: Queries in one matrix product: enough to be fast, few enough for little memory.
_QUERIES_AT_ONCE: Final = 64
#: Numbers in an index from which one product holds up an event loop for a millisecond.
_LARGE: Final = 4_000_000


@final
@dataclass(frozen=True, slots=True, eq=False)
class _NearestRows:
    """The score of a route is its highest cosine; found when somebody asks."""

    cosines: Cosines
    bounds: tuple[int, ...]

    def __getitem__(self, route: int) -> float:
        return float(self.cosines[self.bounds[route] : self.bounds[route + 1]].max())


@final
@dataclass(frozen=True, slots=True, eq=False)
class RouteScoring:
    """The routes' scores for one query.

    Attributes:
        winner: The route with the highest score; of equal ones that with the nearest utterance,
            if the rule ranks utterances, then the first. None if nothing matched.
        score: Its score.
        lead: By how much it leads, None if no other route has a score.
        scores: By route; minus infinity, or missing in a dict, for what has no score.
    """

    winner: int | None
    score: float
    lead: float | None
    scores: "Cosines | dict[int, float] | _NearestRows"

    def score_of(self, route: int) -> float | None:
        """Return the score of a route, None if nothing matched."""
        scores = self.scores
        score = scores.get(route, NO_MATCH) if isinstance(scores, dict) else float(scores[route])
        return None if score == NO_MATCH else score


class _UnitRows:
    """Rows of length 1, among which a zero row, having no direction, matches nothing."""

    __slots__ = ("_void", "rows")

    def __init__(self, rows: Vectors) -> None:
        import numpy as np

        void = np.flatnonzero(~np.any(rows, axis=1))
        self.rows = rows
        self._void = void if len(void) else None

    def cosines(self, query: Vectors) -> Cosines:
        """Return shape (rows,) for a query, (queries, rows) for several."""
        cosines: Cosines = self.rows @ query if query.ndim == 1 else query @ self.rows.T
        if self._void is not None:
            cosines[..., self._void] = NO_MATCH
        return cosines


@final
class UtteranceIndex:
    """Vectors of utterances, route by route.

    Attributes:
        counts: Utterances of each route, at least 1.
    """

    __slots__ = ("_bounds", "_centroids", "_route_of", "_starts", "_utterances", "counts")

    def __init__(self, vectors: Vectors, counts: Sequence[int]) -> None:
        """Make an index.

        Args:
            vectors: Shape (sum(counts), dimension), each row of length 1 or zero; kept, and not
                to be written to any more.
            counts: See the class.
        """
        import numpy as np

        self.counts = tuple(counts)
        self._bounds = (0, *accumulate(self.counts))
        self._starts = np.array(self._bounds[:-1])
        self._route_of = np.repeat(np.arange(len(self.counts)), self.counts)
        self._utterances = _UnitRows(vectors)
        self._centroids = _UnitRows(_centroids(vectors, self._starts))

    @property
    def vectors(self) -> Vectors:
        """Shape (utterances, dimension); not to be written to."""
        return self._utterances.rows

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self.vectors.shape[1])

    def is_work_for_a_thread(self, queries: int) -> bool:
        """Say whether scoring so many queries would hold up an event loop."""
        return self.vectors.size * queries >= _LARGE

    def with_added(self, route: int, vectors: Vectors) -> "UtteranceIndex":
        """Return an index with further rows, of length 1 or zero, at the end of a route."""
        import numpy as np

        counts = list(self.counts)
        end = self._bounds[route + 1]
        counts[route] += len(vectors)
        return UtteranceIndex(np.insert(self.vectors, [end], vectors, axis=0), counts)

    def with_removed(self, route: int, positions: Sequence[int]) -> "UtteranceIndex":
        """Return an index without some utterances of a route, counted from its first as 0."""
        import numpy as np

        counts = list(self.counts)
        counts[route] -= len(positions)
        rows = [self._bounds[route] + position for position in positions]
        return UtteranceIndex(np.delete(self.vectors, rows, axis=0), counts)

    def score(self, query: Vectors, scoring: Scoring) -> RouteScoring:
        """Score the routes for one query.

        Args:
            query: Shape (dimension,), length 1; a zero vector matches nothing.
            scoring: The rule.
        """
        return self._score(
            query,
            scoring,
            partial(self._utterances.cosines, query),
            partial(self._centroids.cosines, query),
        )

    def score_many(self, queries: Vectors, scoring: Scoring) -> Iterator[RouteScoring]:
        """Score the routes for each query, as `score` does, in a fraction of the time."""
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[start : start + _QUERIES_AT_ONCE]
            cosines = self._utterances.cosines(some)
            central = self._centroids.cosines(some)
            for row, query in enumerate(some):
                yield self._score(
                    query,
                    scoring,
                    partial(cosines.__getitem__, row),
                    partial(central.__getitem__, row),
                )

    def _score(
        self,
        query: Vectors,
        scoring: Scoring,
        utterances: Callable[[], Cosines],
        centroids: Callable[[], Cosines],
    ) -> RouteScoring:
        import numpy as np

        if float(query @ query) < 0.5:  # noqa: PLR2004  # the length is 0 or 1
            return RouteScoring(None, NO_MATCH, None, {})
        if scoring.ranks_utterances:
            cosines = utterances()
            rows = nearest_rows(cosines, scoring.top_k)
            routes, near = self._route_of[rows].tolist(), cosines[rows].tolist()
            return _of_nearest(routes, near, takes_mean=scoring.aggregation == "mean")
        if scoring.aggregation == "centroid":
            return _of_all(centroids())
        if scoring.aggregation == "blend":
            best: Cosines = np.maximum.reduceat(utterances(), self._starts)
            return _of_all((best + centroids()) * np.float32(0.5))
        return self._of_nearest_row(utterances())

    def _of_nearest_row(self, cosines: Cosines) -> RouteScoring:
        row = int(cosines.argmax())
        score = float(cosines[row])
        scores = _NearestRows(cosines, self._bounds)
        if score == NO_MATCH:
            return RouteScoring(None, score, None, scores)
        winner = int(self._route_of[row])
        start, end = self._bounds[winner : winner + 2]
        second = max(
            float(cosines[:start].max()) if start else NO_MATCH,
            float(cosines[end:].max()) if end < len(cosines) else NO_MATCH,
        )
        if score - second < ROUNDING:
            winner = int(self._route_of[(cosines >= score - ROUNDING).argmax()])
            score = scores[winner]
        return RouteScoring(winner, score, _lead(score, second), scores)


def _of_all(scores: Cosines) -> RouteScoring:
    winner = int(scores.argmax())
    score = float(scores[winner])
    if score == NO_MATCH:
        return RouteScoring(None, score, None, scores)
    scores[winner] = NO_MATCH
    second = float(scores.max())
    scores[winner] = score
    if score - second < ROUNDING:
        winner = int((scores >= score - ROUNDING).argmax())
        score = float(scores[winner])
    return RouteScoring(winner, score, _lead(score, second), scores)


def _of_nearest(routes: list[int], cosines: list[float], *, takes_mean: bool) -> RouteScoring:
    scores: dict[int, float] = {}
    counts: dict[int, int] = {}
    nearest: dict[int, float] = {}
    for route, cosine in zip(routes, cosines, strict=True):
        if cosine == NO_MATCH:
            continue
        scores[route] = scores.get(route, 0.0) + cosine
        counts[route] = counts.get(route, 0) + 1
        nearest[route] = max(nearest.get(route, cosine), cosine)
    if not scores:
        return RouteScoring(None, NO_MATCH, None, scores)
    if takes_mean:
        scores = {route: total / counts[route] for route, total in scores.items()}
    highest = max(scores.values()) - ROUNDING
    tied = [route for route, score in scores.items() if score >= highest]
    first = max(nearest[route] for route in tied) - ROUNDING
    winner = next(route for route in tied if nearest[route] >= first)
    others = [score for route, score in scores.items() if route != winner]
    lead = _lead(scores[winner], max(others)) if others else None
    return RouteScoring(winner, scores[winner], lead, scores)


def _lead(score: float, second: float) -> float | None:
    return None if second == NO_MATCH else max(0.0, score - second)


def nearest_rows(cosines: Cosines, count: int) -> Rows:
    """Return the rows with the highest cosines, at most `count`, in the order of declaration.

    Of equal ones the first are taken. Rows that match nothing are taken last.
    """
    import numpy as np

    least = np.partition(cosines, -count)[-count] if count < len(cosines) else NO_MATCH
    (rows,) = (cosines >= least - ROUNDING).nonzero()
    if len(rows) <= count:
        return rows
    is_taken = cosines[rows] > least + ROUNDING
    is_taken[(~is_taken).nonzero()[0][: count - int(is_taken.sum())]] = True
    return rows[is_taken]


def _centroids(vectors: Vectors, starts: Rows) -> Vectors:
    """Return the direction of each route's mean; zero where its vectors cancel one another."""
    import numpy as np

    sums = np.add.reduceat(vectors, starts, axis=0, dtype=np.float64)
    lengths = np.linalg.norm(sums, axis=1)
    members = np.add.reduceat(vectors.any(axis=1).astype(np.intp), starts)
    has_none = lengths <= ROUNDING * members
    sums[has_none] = 0.0
    lengths[has_none] = 1.0
    centroids: Vectors = (sums / lengths[:, None]).astype(np.float32)
    return centroids
