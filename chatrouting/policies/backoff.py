"""How long to wait before the same client is asked again.

Exponential backoff with full jitter: a wait is drawn evenly between nothing and a bound that
doubles with each failure, so that callers who failed together do not come back together (after
Brooker, "Exponential Backoff And Jitter", 2015). Pure: the random number is an argument.
"""

import math
from dataclasses import dataclass
from typing import final

from chatrouting.errors import ConfigurationError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """Waits that grow.

    Attributes:
        initial: Bound of the first wait, seconds.
        factor: What the bound is multiplied by after each further failure; at least 1.
        maximum: Largest bound, seconds.
    """

    initial: float = 0.5
    factor: float = 2.0
    maximum: float = 8.0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("initial", self.initial, 0.0),
            ("factor", self.factor, 1.0),
            ("maximum", self.maximum, self.initial),
        ):
            if not (value >= least and math.isfinite(value)):
                raise ConfigurationError(
                    f"backoff's {name} is {value!r}; expected a finite number, at least {least}."
                )

    def bound(self, failures: int) -> float:
        """Return the largest wait, in seconds, after this many failures in a row (1, 2, ...)."""
        # Bounded before the power is taken: a float would overflow after a thousand failures.
        exponent = min(failures - 1, 64)
        return min(self.maximum, self.initial * self.factor**exponent)

    def delay(self, failures: int, fraction: float, hint: float | None = None) -> float:
        """Return the seconds to wait.

        Args:
            failures: Failures in a row, at least 1.
            fraction: A random number in 0..1.
            hint: What the provider asked for, in seconds. The client is never asked before it is
                over; the jitter is added to it, so that all who got one hint do not return at once.
        """
        wait = self.bound(failures) * fraction
        return wait if hint is None else hint + min(wait, self.initial)
