"""A load: who sends how much, of which size, from when to when.

Seeded, so that it can be played again. Requests come as a Poisson process; sizes are log-normal,
as those of real prompts and answers are.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, final

from chatrouting.errors import ConfigurationError
from chatrouting.options import check_count
from chatrouting.simulation.provider_counting import Arrival

_MINUTE: Final = 60.0
#: Seconds that the way to a provider takes.
_WAY: Final = (0.02, 0.1)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStream:
    """Requests of one kind.

    Attributes:
        tenant: Who sends them; empty for nobody in particular.
        requests_per_minute: On average, more than 0.
        request_class: Their traffic class; None: the governor's default.
        deployments: Where they may go, asked together, the first preferred; empty: everywhere.
        input_tokens: Half of them have less.
        output_tokens: Half of the answers have less.
        spread: Of both, the standard deviation of the logarithm: 0 makes all alike, 0.5 two of
            three lie between 0.6 and 1.6 times the middle.
        max_output_tokens: The cap that they set; None: none.
        cached_share: Part of the input that the provider reads from its cache.
        first_output: Seconds from the arrival to the first token.
        tokens_per_second: How fast answers are written.
        start: When the first comes, seconds.
        stop: When no more come, seconds.
    """

    tenant: str = ""
    requests_per_minute: float
    request_class: str | None = None
    deployments: tuple[str, ...] = ()
    input_tokens: float = 1_000.0
    output_tokens: float = 250.0
    spread: float = 0.5
    max_output_tokens: int | None = None
    cached_share: float = 0.0
    first_output: float = 0.5
    tokens_per_second: float = 80.0
    start: float = 0.0
    stop: float = math.inf

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "input_tokens", "output_tokens", "tokens_per_second"):
            self._check(name, "more than 0", is_right=0 < getattr(self, name) < math.inf)
        for name in ("spread", "first_output", "start"):
            self._check(name, "at least 0", is_right=0 <= getattr(self, name) < math.inf)
        self._check("cached_share", "from 0 to 1", is_right=0 <= self.cached_share <= 1)
        self._check("stop", "more than start", is_right=self.stop > self.start)
        if self.max_output_tokens is not None:
            check_count("max_output_tokens", self.max_output_tokens)

    def requests(self, rng: Random, until: float) -> Iterator["LoadRequest"]:
        """Draw the requests that come before a time, in their order."""
        at = self.start
        while True:
            at += rng.expovariate(self.requests_per_minute / _MINUTE)
            if at >= min(self.stop, until):
                return
            yield self._request(at, rng)

    def _request(self, at: float, rng: Random) -> "LoadRequest":
        read = self._size(self.input_tokens, rng)
        written = self._size(self.output_tokens, rng)
        if self.max_output_tokens is not None:
            written = min(written, self.max_output_tokens)
        return LoadRequest(
            stream=self,
            at=at,
            arrival=Arrival(
                input_tokens=read,
                cap=self.max_output_tokens,
                cached_tokens=int(read * self.cached_share),
            ),
            output=written,
            way=rng.uniform(*_WAY),
            seconds=self.first_output + written / self.tokens_per_second,
        )

    def _size(self, middle: float, rng: Random) -> int:
        return max(1, round(rng.lognormvariate(math.log(middle), self.spread)))

    def _check(self, name: str, expected: str, *, is_right: bool) -> None:
        if not is_right:
            raise ConfigurationError(
                f"{name} of the load of {self.tenant or 'nobody'!r} is {getattr(self, name)!r}; "
                f"expected a number, {expected}."
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """One request, and what will become of it if nobody refuses it.

    Attributes:
        stream: Whose.
        at: When it comes, seconds.
        arrival: What the provider counts.
        output: Tokens of the answer.
        way: Seconds to the provider.
        seconds: That it runs there.
    """

    stream: LoadStream
    at: float
    arrival: Arrival
    output: int
    way: float
    seconds: float
