"""What a request will probably need, and what that is charged as.

A quote is the answer to "how much, before anything is sent". It changes nothing, so that several
deployments can be asked. Its charges go to every bucket alike; `charging` says what each makes of
them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, final

from chatrouting.errors import ConfigurationError
from chatrouting.options import check_count
from chatrouting.quota._checks import check_kind, is_number
from chatrouting.quota.charging import CACHE_READ_TOKENS, OUTPUT_CAP
from chatrouting.quota.limits import (
    CONCURRENCY,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUESTS,
    STREAM_SECONDS,
)
from chatrouting.quota.profiles import ProviderProfile
from chatrouting.usage import Usage

_FIGURES: Final = ("input", "output", "cache_read", "duration")
#: Samples at which an estimate is half trusted.
_HALF_TRUSTED: Final = 20.0


class Route(NamedTuple):
    """What requests have in common that need alike: what is learnt from some holds for the next.

    Attributes:
        deployment: Who answers.
        profile: The model, or the class of models.
        tenant: On whose account.
        request_class: Such as "interactive" or "batch".
        effort: Of reasoning, if it was asked for: such answers have another length.
    """

    deployment: str
    profile: str = ""
    tenant: str = ""
    request_class: str = ""
    effort: str = ""

    def coarser(self) -> "tuple[Route, ...]":
        """Return this route, then those that stand for it while little is known of it."""
        routes = (
            self,
            Route(self.deployment, self.profile, "", self.request_class, self.effort),
            Route("", self.profile, "", self.request_class, self.effort),
            Route("", self.profile, "", "", self.effort),
        )
        # A part that is empty anyway makes two of them one, which must not count twice.
        return tuple(dict.fromkeys(routes))


class Source(StrEnum):
    """Where a number comes from."""

    COUNTED = "counted"  #: An exact counter, corrected by what the provider reported.
    ROUTE = "route"  #: Earlier requests of the route.
    COARSER = "coarser"  #: Earlier requests of a wider route.
    DEFAULT = "default"  #: A cautious number; nothing is known.
    CAP = "cap"  #: The output cap, below what would have been estimated.
    NONE = "none"  #: Does not apply.


@final
@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a quote, and how far to trust it.

    Attributes:
        value: The number.
        source: Where it comes from.
        samples: How many recent requests it rests on.
    """

    value: float
    source: Source
    samples: float = 0.0

    def __post_init__(self) -> None:
        # Not a number compares with nothing.
        if not (is_number(self.value) and self.value >= 0):
            raise ConfigurationError(
                f"value of a figure is {self.value!r}; expected a number, at least 0."
            )

    @property
    def confidence(self) -> float:
        """From 0, a default, towards 1."""
        if self.source in (Source.COUNTED, Source.NONE):
            return 1.0
        return self.samples / (self.samples + _HALF_TRUSTED)


class InputBasis(NamedTuple):
    """What the estimate of the input was made from; learning compares it with the real number.

    Attributes:
        tokens: Before any correction.
        family: Whose tokens.
        is_counted: An exact counter was used for the text.
        prefix: Stands for the beginning that requests share; None if there is none.
    """

    tokens: float
    family: str
    is_counted: bool = False
    prefix: int | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What a request will probably need.

    Attributes:
        route: What it was estimated by.
        profile: How the provider counts that it would go to.
        input: Tokens that the input will hardly exceed.
        expected_input: Tokens that it will exceed as often as not.
        output: Tokens that the output will hardly exceed, at most its cap.
        output_cap: The cap that the request sets; None if it sets none.
        maximum_output: The most that the model writes; None if that is not known.
        cache_read: Part of the input that will probably come from the provider's cache.
        duration: Seconds that the request will hardly exceed.
        is_streaming: The answer comes in pieces.
        basis: What the input was estimated from.
        downgrades: Quotes of other deployments that the request may be sent to instead, as far as
            its class may be downgraded to their model profiles; best first.
    """

    route: Route
    profile: ProviderProfile
    input: Figure
    expected_input: float
    output: Figure
    output_cap: int | None
    maximum_output: int | None
    cache_read: Figure
    duration: Figure
    is_streaming: bool
    basis: InputBasis
    downgrades: "tuple[Quote, ...]" = ()

    def __post_init__(self) -> None:
        check_kind("route of a quote", self.route, Route, "a Route")
        check_kind("profile of a quote", self.profile, ProviderProfile, "a ProviderProfile")
        for name in _FIGURES:
            check_kind(name, getattr(self, name), Figure, "a Figure")
        if self.output_cap is not None:
            check_count("output_cap of a quote", self.output_cap)

    def charges(self) -> dict[str, float]:
        """Return what a request is admitted with, as `charging` reads it."""
        cap = self._cap()
        weight = self.profile.output_weight
        held = cap if self.profile.cap_held_as_input else 0.0
        return {
            REQUESTS: 1.0,
            INPUT_TOKENS: self.input.value + held,
            OUTPUT_TOKENS: self.output.value * weight,
            OUTPUT_CAP: cap * weight,
            CACHE_READ_TOKENS: self.cache_read.value,
            CONCURRENCY: 1.0,
            STREAM_SECONDS: self.duration.value if self.is_streaming else 0.0,
        }

    def actual(self, usage: Usage | None, *, seconds: float) -> dict[str, float]:
        """Return what a request used, as far as it is known, as `charging` reads it.

        Args:
            usage: What the provider reported; what it does not say is left out, so that the
                estimate stays.
            seconds: How long the request ran.
        """
        usage = usage or Usage()
        used = {STREAM_SECONDS: seconds if self.is_streaming else 0.0}
        if usage.input_tokens is not None:
            used[INPUT_TOKENS] = float(usage.input_tokens)
            used[CACHE_READ_TOKENS] = float(usage.cache_read_input_tokens or 0)
        elif self.profile.cap_held_as_input:
            # The estimate stays, but not the room for the output beside it.
            used[INPUT_TOKENS] = self.input.value
            used[CACHE_READ_TOKENS] = self.cache_read.value
        if usage.output_tokens is not None:
            used[OUTPUT_TOKENS] = usage.output_tokens * self.profile.output_weight
        return used

    def _cap(self) -> float:
        """Return what a provider that charges the cap takes for it."""
        if self.output_cap is not None:
            return self.output_cap
        if self.maximum_output is not None and self.profile.unset_cap == "model_maximum":
            return self.maximum_output
        return self.output.value
