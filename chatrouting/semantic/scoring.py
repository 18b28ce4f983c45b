"""How utterances become the score of a route, and which numbers make sense for it. No numpy.

A score is made of cosines between the query and the utterances of a route. The rules:

    mean      of the route's utterances among the `top_k` nearest of all routes
    sum       of the same; a route with many near utterances wins over one with a single one
    max       the nearest utterance of the route
    centroid  the direction in which the route's utterances lie together
    blend     half `max`, half `centroid`

`mean` and `sum` with `top_k` are those of Microsoft.Extensions.AI. `blend` is the most accurate on
public sets of utterances, with few and with many of them. Each rule has a range of its own, so a
threshold that was fitted for one is wrong for another, and so it is with encoders.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final, get_args

from chatrouting.errors import ConfigurationError
from chatrouting.semantic._checks import check_count

ScoreAggregation: TypeAlias = Literal["mean", "sum", "max", "centroid", "blend"]

#: Scores nearer to one another than this are equal: float32 tells no more.
ROUNDING: Final = 1e-6


@final
@dataclass(frozen=True, slots=True)
class Scoring:
    """A rule, and how many utterances it looks at.

    Attributes:
        aggregation: See the module.
        top_k: Nearest utterances that `mean` and `sum` look at; the others look at all.

    Raises:
        ConfigurationError: If there is no such rule, or `top_k` is no whole number from 1.
    """

    aggregation: ScoreAggregation
    top_k: int

    def __post_init__(self) -> None:
        if self.aggregation not in get_args(ScoreAggregation):
            raise ConfigurationError(
                f"score_aggregation is {self.aggregation!r}; "
                f"expected one of {', '.join(get_args(ScoreAggregation))}."
            )
        check_count("top_k", self.top_k)

    @property
    def limit(self) -> float:
        """The highest possible score; the lowest is its negative."""
        return float(self.top_k) if self.aggregation == "sum" else 1.0

    @property
    def ranks_utterances(self) -> bool:
        """Whether only routes with an utterance among the nearest have a score.

        The mean, or the sum, of the one nearest utterance is its cosine: with `top_k` 1 both are
        `max`, by which every route has a score.
        """
        return self.top_k > 1 and self.aggregation in ("mean", "sum")

    def check_threshold(self, threshold: float, name: str) -> float:
        """Return a threshold that can be met and missed.

        Raises:
            ConfigurationError: If it is no number from `-limit` to `limit`.
        """
        if not _is_number(threshold) or not -self.limit <= threshold <= self.limit:
            raise ConfigurationError(
                f"{name} is {threshold!r}; scores by {self.aggregation!r} with top_k {self.top_k} "
                f"are between {-self.limit:g} and {self.limit:g}, so a threshold is too."
            )
        return float(threshold)

    def check_margin(self, margin: float) -> float:
        """Return a margin that two scores can have.

        Raises:
            ConfigurationError: If it is no number from 0 to the width of the range.
        """
        if not _is_number(margin) or not 0 <= margin <= 2 * self.limit:
            raise ConfigurationError(
                f"margin is {margin!r}; expected a number from 0 to {2 * self.limit:g}."
            )
        return float(margin)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)
