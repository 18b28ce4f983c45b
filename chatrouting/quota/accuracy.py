"""How good the estimates of a route are: what a decision log and a dashboard show of them."""

from dataclasses import dataclass
from typing import Final, final

from chatrouting.quota.histogram import DecayedHistogram
from chatrouting.quota.quote import Quote, Source
from chatrouting.usage import Usage

#: Requests after which one counts half.
_HALF_LIFE: Final = 500.0
_FADING: Final = 0.5 ** (1 / _HALF_LIFE)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateAccuracy:
    """How the estimates of a route compare with what was used.

    Attributes:
        requests: How many recent ones this rests on.
        input_error: Median of the relative error of the expected input, without sign.
        output_coverage: Share of outputs that stayed within what was reserved, of those whose
            reservation was not their cap; 1 where there is none.
        over_reservation: Tokens reserved for each token used.
    """

    requests: float
    input_error: float
    output_coverage: float
    over_reservation: float


@final
class AccuracyTally:
    """Sums of one route, the newer requests counting more."""

    def __init__(self) -> None:
        self._input_errors = DecayedHistogram(least=1e-4, half_life=_HALF_LIFE)
        self._estimated = 0.0
        self._covered = 0.0
        self._reserved = 0.0
        self._used = 0.0

    def add(self, quote: Quote, usage: Usage, now: float) -> None:
        """Compare one quote with what was used; nothing is counted if the provider did not say."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return
        error = abs(quote.expected_input - usage.input_tokens) / max(1, usage.input_tokens)
        self._input_errors.add(error, now)
        self._reserved = self._reserved * _FADING + quote.input.value + quote.output.value
        self._used = self._used * _FADING + usage.input_tokens + usage.output_tokens
        if quote.output.source is not Source.CAP:
            self._estimated = self._estimated * _FADING + 1.0
            is_covered = usage.output_tokens <= quote.output.value
            self._covered = self._covered * _FADING + is_covered

    def report(self, now: float) -> EstimateAccuracy:
        """Return how things stand."""
        return EstimateAccuracy(
            requests=self._input_errors.samples(now),
            input_error=self._input_errors.quantile(0.5, now),
            output_coverage=self._covered / self._estimated if self._estimated else 1.0,
            over_reservation=self._reserved / self._used if self._used else 1.0,
        )
