"""The vectors of all utterances, and how near a query comes to each route.

Rows have length 1, so a cosine is one product; they stand route by route, in the order of their
declaration. An index never changes: adding and removing make a new one, and whoever holds the old
one goes on with it.

Equal vectors may get cosines that differ in the last bit, by the row they stand in. So what
differs by less than `ROUNDING` is taken for equal, and then the order of declaration decides.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

from chatrouting.semantic._vectors import Vectors, arranged
from chatrouting.semantic.scoring import ROUNDING, Scoring

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Rows: TypeAlias = "NDArray[np.intp]"
Cosines: TypeAlias = "NDArray[np.float32]"

KeyT = TypeVar("KeyT")

NO_MATCH: Final = float("-inf")

#: Queries in one matrix product: enough to be fast, few enough for little memory.
_QUERIES_AT_ONCE: Final = 64
#: So few of so many rows are found sooner one after the other than by parting the rows: in 3 µs
#: instead of 6 of 1,000, in a quarter of the time of 100,000.
_FEW: Final = 8
_MANY: Final = 500
#: Numbers in an index from which one product holds up an event loop for a millisecond.
_LARGE: Final = 4_000_000


@final
class _NearestRows:
    """The score of a route is its highest cosine; found when somebody asks."""

    __slots__ = ("_bounds", "_cosines")

    def __init__(self, cosines: Cosines, bounds: tuple[int, ...]) -> None:
        self._cosines = cosines
        self._bounds = bounds

    def __getitem__(self, route: int) -> float:
        return _highest(self._cosines[self._bounds[route] : self._bounds[route + 1]])


@final
class RouteScoring:
    """The routes' scores for one query; made once and never changed.

    Attributes:
        winner: The route with the highest score; of equal ones that with the nearest utterance,
            if the rule ranks utterances, then the first. None if nothing matched.
        score: Its score.
        lead: By how much it leads, None if no other route has a score.
    """

    __slots__ = ("_scores", "lead", "score", "winner")

    def __init__(
        self,
        winner: int | None,
        score: float,
        second: float,
        scores: "Cosines | dict[int, float] | _NearestRows",
    ) -> None:
        """Keep what was found.

        Args:
            winner: See the class.
            score: See the class.
            second: The highest score of another route, minus infinity if none has one.
            scores: By route; minus infinity, or missing in a dict, for what has no score.
        """
        self.winner = winner
        self.score = score
        self.lead = None if second == NO_MATCH else score - second if score > second else 0.0
        self._scores = scores

    def score_of(self, route: int) -> float | None:
        """Return the score of a route, None if nothing matched."""
        scores = self._scores
        score = scores.get(route, NO_MATCH) if isinstance(scores, dict) else float(scores[route])
        return None if score == NO_MATCH else score


class _UnitRows:
    """Rows of length 1, among which a zero row, having no direction, matches nothing."""

    __slots__ = ("_is_padded", "_padded", "_void", "rows")

    def __init__(self, rows: Vectors) -> None:
        import numpy as np

        void = np.flatnonzero(~np.any(rows, axis=1))
        self._padded = arranged(rows)
        self.rows = self._padded[: len(rows)]
        self._is_padded = len(self._padded) > len(rows)
        self._void = void if len(void) else None

    def cosines(self, query: Vectors) -> Cosines:
        """Return shape (rows,) for a query, (queries, rows) for several."""
        # The method, which takes a microsecond less than the operator.
        cosines: Cosines = self._padded.dot(query) if query.ndim == 1 else query @ self._padded.T
        if self._is_padded:
            cosines = cosines[..., : len(self.rows)]
        if self._void is not None:
            cosines[..., self._void] = NO_MATCH
        return cosines


@final
class UtteranceIndex:
    """Vectors of utterances, route by route.

    Attributes:
        counts: Utterances of each route, at least 1.
        dimension: Length of the vectors.
    """

    __slots__ = (
        "_bounds",
        "_centroids",
        "_route_of",
        "_starts",
        "_utterances",
        "counts",
        "dimension",
    )

    def __init__(self, vectors: Vectors, counts: Sequence[int]) -> None:
        """Make an index.

        Args:
            vectors: Shape (sum(counts), dimension), each row of length 1 or zero; copied.
            counts: See the class.
        """
        import numpy as np

        self.counts = tuple(counts)
        self.dimension = int(vectors.shape[1])
        self._bounds = (0, *accumulate(self.counts))
        self._starts = np.array(self._bounds[:-1])
        self._route_of = tuple(
            route for route, members in enumerate(self.counts) for _ in range(members)
        )
        self._utterances = _UnitRows(vectors)
        self._centroids = _UnitRows(_centroids(vectors, self._starts))

    @property
    def vectors(self) -> Vectors:
        """Shape (utterances, dimension); not to be written to."""
        return self._utterances.rows

    def is_work_for_a_thread(self, queries: int) -> bool:
        """Say whether scoring so many queries would hold up an event loop."""
        return self._bounds[-1] * self.dimension * queries >= _LARGE

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
        return self._score(query, scoring, self._utterances.cosines, self._centroids.cosines, query)

    def score_many(self, queries: Vectors, scoring: Scoring) -> Iterator[RouteScoring]:
        """Score the routes for each query, as `score` does, in a fraction of the time."""
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[start : start + _QUERIES_AT_ONCE]
            cosines = self._utterances.cosines(some)
            central = self._centroids.cosines(some)
            for row, query in enumerate(some):
                yield self._score(query, scoring, cosines.__getitem__, central.__getitem__, row)

    def _score(
        self,
        query: Vectors,
        scoring: Scoring,
        utterances: Callable[[KeyT], Cosines],
        centroids: Callable[[KeyT], Cosines],
        key: KeyT,
    ) -> RouteScoring:
        if scoring.ranks_utterances:
            found = self._of_nearest_rows(utterances(key), scoring)
        elif scoring.aggregation == "centroid":
            found = _of_all(centroids(key))
        elif scoring.aggregation == "blend":
            found = _of_all(self._blend(utterances(key), centroids(key)))
        else:
            found = self._of_nearest_row(utterances(key))
        # A query of zeros has the cosine 0 to everything, so only then one has to look.
        return _NOTHING if found.score == 0 and not query.any() else found

    def _blend(self, utterances: Cosines, centroids: Cosines) -> Cosines:
        import numpy as np

        scores: Cosines = np.maximum.reduceat(utterances, self._starts)
        scores += centroids
        scores *= 0.5
        return scores

    def _of_nearest_rows(self, cosines: Cosines, scoring: Scoring) -> RouteScoring:
        rows, near = nearest_rows(cosines, scoring.top_k)
        route_of = self._route_of
        scores: dict[int, float] = {}
        for row, cosine in zip(rows, near, strict=True):
            route = route_of[row]
            scores[route] = scores[route] + cosine if route in scores else cosine
        if len(scores) < len(rows) and scoring.aggregation == "mean":
            scores = _means(scores, [route_of[row] for row in rows])
        winner, score, second = _highest_two(scores)
        if score - second < ROUNDING:
            tied = {route for route, own in scores.items() if own >= score - ROUNDING}
            winner = _of_nearest_tied(tied, [route_of[row] for row in rows], near)
            score = scores[winner]
        return RouteScoring(winner, score, second, scores)

    def _of_nearest_row(self, cosines: Cosines) -> RouteScoring:
        row = int(cosines.argmax())
        score = cosines.item(row)
        if score == NO_MATCH:
            return _NOTHING
        scores = _NearestRows(cosines, self._bounds)
        winner = self._route_of[row]
        start, end = self._bounds[winner : winner + 2]
        second = max(_highest(cosines[:start]), _highest(cosines[end:]))
        if score - second < ROUNDING:
            winner = self._route_of[(cosines >= score - ROUNDING).argmax()]
            score = scores[winner]
        return RouteScoring(winner, score, second, scores)


#: What a query without a direction gets, or one to which no utterance has one.
_NOTHING: Final = RouteScoring(None, NO_MATCH, NO_MATCH, {})


def _highest(cosines: Cosines) -> float:
    """Return the highest of some cosines; of none, minus infinity."""
    # In half the time of `max`.
    return cosines.item(cosines.argmax()) if len(cosines) else NO_MATCH


def _of_all(scores: Cosines) -> RouteScoring:
    winner = int(scores.argmax())
    score = scores.item(winner)
    if score == NO_MATCH:
        return _NOTHING
    scores[winner] = NO_MATCH
    second = _highest(scores)
    scores[winner] = score
    if score - second < ROUNDING:
        winner = int((scores >= score - ROUNDING).argmax())
        score = scores.item(winner)
    return RouteScoring(winner, score, second, scores)


def _means(sums: dict[int, float], routes: list[int]) -> dict[int, float]:
    counts = dict.fromkeys(sums, 0)
    for route in routes:
        counts[route] += 1
    return {route: total / counts[route] for route, total in sums.items()}


def _highest_two(scores: dict[int, float]) -> tuple[int | None, float, float]:
    """Return the route with the highest score, that score and the second highest."""
    winner, score, second = None, NO_MATCH, NO_MATCH
    for route, own in scores.items():
        if own > score:
            winner, score, second = route, own, score
        elif own > second:
            second = own
    return winner, score, second


def _of_nearest_tied(tied: set[int], routes: list[int], cosines: list[float]) -> int:
    """Return the first of some routes that has a nearest utterance of them all."""
    near = [pair for pair in zip(routes, cosines, strict=True) if pair[0] in tied]
    highest = max(cosine for _, cosine in near) - ROUNDING
    return min(route for route, cosine in near if cosine >= highest)


def nearest_rows(cosines: Cosines, count: int) -> tuple[list[int], list[float]]:
    """Find the rows with the highest cosines, at most `count`.

    Of equal ones the first are taken. Rows that match nothing are not.

    Args:
        cosines: Shape (rows,); the function may write to it.
        count: At least 1.

    Returns:
        The rows, in any order, and their cosines.
    """
    if count >= len(cosines):
        all_near = cosines.tolist()
        matching = [row for row, cosine in enumerate(all_near) if cosine != NO_MATCH]
        return matching, [all_near[row] for row in matching]
    # With one more, which comes first, to see whether it is equal to the least that is taken.
    if count <= _FEW and len(cosines) >= _MANY:
        rows, near = _highest_in_turn(cosines, count + 1)
    else:
        places = cosines.argpartition(-count - 1)[-count - 1 :]
        rows, near = places.tolist(), cosines[places].tolist()
    beyond, *taken = near
    least = min(taken)
    if least - beyond > ROUNDING:
        return rows[1:], taken
    cosines[rows] = near  # again; of a row that came twice what matched comes last, and stays
    return _first_of_equal(cosines, count, least)


def _highest_in_turn(cosines: Cosines, count: int) -> tuple[list[int], list[float]]:
    """Find the rows with the highest cosines, the highest last, and strike them out.

    Where nothing is left that matches, a row may come again as one that does not.
    """
    rows: list[int] = []
    near: list[float] = []
    for _ in range(count):
        row = int(cosines.argmax())
        rows.append(row)
        near.append(cosines.item(row))
        cosines[row] = NO_MATCH
    rows.reverse()
    near.reverse()
    return rows, near


def _first_of_equal(cosines: Cosines, count: int, least: float) -> tuple[list[int], list[float]]:
    """Take the rows above the least cosine, and of those equal to it the first."""
    (rows,) = ((cosines >= least - ROUNDING) & (cosines != NO_MATCH)).nonzero()
    is_taken = cosines[rows] > least + ROUNDING
    is_taken[(~is_taken).nonzero()[0][: count - int(is_taken.sum())]] = True
    rows = rows[is_taken]
    return rows.tolist(), cosines[rows].tolist()


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
