"""How large a value is as a rule: counts in logarithmic cells, the old ones fading.

A quantile is known to the width of a cell, 5 % by default, whatever the range. Weights halve with
each number of further values and with each span of time, so that a route that changes is followed
and one that slept is not trusted. Adding costs a logarithm. The idea of the cells is that of
DDSketch (Masson, Rim, Lee, 2019).
"""

import math
from array import array
from typing import Final, NamedTuple, final

from chatrouting.errors import ConfigurationError

#: Weights are powers of two that grow; before they reach what a float holds, all are scaled down.
_LARGEST_EXPONENT: Final = 500.0
_CELLS: Final = 2_000
#: A share of all weights so small that whatever it came from is forgotten.
_FADED_AWAY: Final = 1e-3
#: A quantile is found anew when so large a part of the values, or of a half-life, is new.
_STALE: Final = 0.02


class _Quantile(NamedTuple):
    value: float
    added: int  #: It holds up to this number of values,
    until: float  #: and up to this time.

    def holds(self, added: int, now: float) -> bool:
        return added <= self.added and now <= self.until


@final
class DecayedHistogram:
    """Values from `least` on, of which the newer ones count more. Time is an argument, in seconds.

    A time that lies before one given earlier counts as that one.
    """

    __slots__ = (
        "_added",
        "_cells",
        "_exponent",
        "_growth",
        "_half_life_seconds",
        "_known",
        "_least",
        "_step",
        "_then",
        "_total",
    )

    def __init__(
        self,
        *,
        least: float = 1.0,
        growth: float = 1.05,
        half_life: float = 500.0,
        half_life_seconds: float = 6 * 3600.0,
    ) -> None:
        """Start empty.

        Args:
            least: Everything up to here is one cell; more than 0.
            growth: Width of a cell, the ratio of its edges; more than 1.
            half_life: Further values after which a value counts half.
            half_life_seconds: Seconds after which it does.

        Raises:
            ConfigurationError: If one of them is out of range.
        """
        for name, value, bound in (
            ("least", least, 0.0),
            ("growth", growth, 1.0),
            ("half_life", half_life, 0.0),
            ("half_life_seconds", half_life_seconds, 0.0),
        ):
            if not (value > bound and math.isfinite(value)):
                raise ConfigurationError(
                    f"{name} of a histogram is {value!r}; expected a finite number above {bound:g}."
                )
        self._least = least
        self._growth = math.log(growth)
        self._step = 1.0 / half_life
        self._half_life_seconds = half_life_seconds
        self._cells = array("d")
        self._known: dict[float, _Quantile] = {}
        self._added = 0
        self._total = 0.0
        self._exponent = 0.0
        self._then = -math.inf

    def add(self, value: float, now: float) -> None:
        """Count a value. What is not finite is left out."""
        if not math.isfinite(value):
            return
        # The next weight becomes larger, which is the same as making all others smaller.
        steps = self._step
        if now > self._then:
            if self._total:
                steps += (now - self._then) / self._half_life_seconds
            self._then = now
        self._exponent += steps
        if self._exponent > _LARGEST_EXPONENT:
            self._rescale()
        self._added += 1
        cell = 0
        if value > self._least:
            cell = min(_CELLS, math.ceil(math.log(value / self._least) / self._growth))
        if cell >= len(self._cells):
            self._cells.extend([0.0] * (cell + 1 - len(self._cells)))
        weight = 2.0**self._exponent
        self._cells[cell] += weight
        self._total += weight

    def samples(self, now: float) -> float:
        """Return how many fresh values the faded ones are worth."""
        if not self._total:
            return 0.0
        idle = max(0.0, now - self._then) / self._half_life_seconds
        return self._total / math.exp2(self._exponent) * math.exp2(-idle)

    def quantile(self, share: float, now: float) -> float:
        """Return a value that a further one will not exceed, with this probability.

        It is the upper edge of a cell. Of few values it lies higher than the share says, since
        what comes next need not lie among what came so far.

        Args:
            share: Between 0 and 1.
            now: The time.

        Returns:
            0.0 if the histogram is empty.
        """
        samples = self.samples(now)
        if not samples:
            return 0.0
        known = self._known.get(share)
        if known is None or not known.holds(self._added, now):
            known = _Quantile(
                self._find(share, samples),
                self._added + int(samples * _STALE),
                now + self._half_life_seconds * _STALE,
            )
            self._known[share] = known
        return known.value

    def _find(self, share: float, samples: float) -> float:
        # A share of n + 1 values, of which the next is one; at most all that have not faded away.
        exceeding = max(_FADED_AWAY, 1.0 - share * (samples + 1.0) / samples)
        above = 0.0
        for cell in range(len(self._cells) - 1, 0, -1):
            above += self._cells[cell]
            if above > exceeding * self._total:
                return self._edge(cell)
        return self._edge(0)

    def _edge(self, cell: int) -> float:
        return self._least * math.exp(cell * self._growth)

    def _rescale(self) -> None:
        """Begin again with small weights, before they are too large for a float."""
        scale = math.exp2(-self._exponent)
        self._cells = array("d", [weight * scale for weight in self._cells])
        self._total *= scale
        self._exponent = 0.0
