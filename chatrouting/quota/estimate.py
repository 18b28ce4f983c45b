"""Estimates what a request needs, from its text, and from what earlier ones turned out to need.

The input is estimated from the looks of its text, or counted exactly where there is a counter, and
then corrected by the ratio that the provider's own numbers had to such estimates before. The
output is the lower of its cap and a high quantile of what the route has written. Where a route has
seen too little, wider ones stand for it; where nothing is known, cautious numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from anyio import to_thread

from chatrouting.errors import ConfigurationError
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, check_count
from chatrouting.quota._checks import check_number, is_number
from chatrouting.quota.accuracy import AccuracyTally, EstimateAccuracy
from chatrouting.quota.histogram import DecayedHistogram
from chatrouting.quota.history import RecentlyUsed, RouteHistory
from chatrouting.quota.profiles import ProviderProfile
from chatrouting.quota.prompt_cache import CachedPrompts
from chatrouting.quota.quote import Figure, InputBasis, Quote, Route, Source
from chatrouting.quota.request_text import RequestText, TokenCounter, request_text
from chatrouting.usage import Usage

#: Before anything is learnt: more tokens a piece than most kinds of text have.
_CAUTION: Final = 1.3
#: The same where text was counted exactly: frames of messages and tools remain a guess.
_CAUTION_COUNTED: Final = 1.05
#: Part of a limit that the first requests of a route are taken to need, if they have no cap and
#: the usual guess would leave no room for their input.
_FIRST_SHARE: Final = 0.25


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteTarget:
    """Who would answer.

    Attributes:
        deployment: Its name.
        profile: How its provider counts.
        model_profile: The model, or the class of models, that requests are alike by.
        maximum_output_tokens: The most that the model writes; None if that is not known.
        largest_output_tokens: The most that its limits ever have room for; None for no limit.
    """

    deployment: str
    profile: ProviderProfile
    model_profile: str = ""
    maximum_output_tokens: int | None = None
    largest_output_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.maximum_output_tokens is not None:
            check_count("maximum_output_tokens", self.maximum_output_tokens)
        if self.largest_output_tokens is not None:
            check_count("largest_output_tokens", self.largest_output_tokens)

    def route(self, options: ChatOptions) -> Route:
        """Return what a request to this target is estimated by."""
        hints = options.routing
        principal = hints.principal if hints is not None else None
        return Route(
            self.deployment,
            self.model_profile,
            (principal.tenant if principal is not None else None) or "",
            (hints.request_class if hints is not None else None) or "",
            options.reasoning_effort or "",
        )


@final
class Estimator:
    """Quotes requests and learns from their ends. Time is an argument, in seconds.

    Not for several threads at once.
    """

    def __init__(
        self,
        *,
        counter: TokenCounter | None = None,
        coverage: float = 0.95,
        default_output_tokens: int = 4_096,
        default_duration: float = 60.0,
        minimum_samples: int = 20,
        maximum_routes: int = 10_000,
    ) -> None:
        """Know nothing yet.

        Args:
            counter: Counts text exactly, for models of its family.
            coverage: Share of requests that are to need no more than was estimated, below 1.
            default_output_tokens: Of a route that nothing is known about.
            default_duration: Likewise, seconds.
            minimum_samples: Recent requests that a route must have seen to be believed.
            maximum_routes: How many routes are remembered, and how many prompts.

        Raises:
            ConfigurationError: If a number is out of range.
        """
        if not (is_number(coverage) and 0 < coverage < 1):
            raise ConfigurationError(
                f"coverage is {coverage!r}; expected a share of requests, more than 0, less than 1."
            )
        check_number("default_duration", default_duration, above=0)
        if counter is not None and not callable(getattr(counter, "count", None)):
            raise ConfigurationError(f"counter is {counter!r}; expected a TokenCounter.")
        check_count("default_output_tokens", default_output_tokens)
        check_count("minimum_samples", minimum_samples)
        check_count("maximum_routes", maximum_routes)
        self._counter = counter
        self._coverage = coverage
        self._default_output = float(default_output_tokens)
        self._default_duration = default_duration
        # Several keys for each route: the coarser ones.
        keys = 5 * maximum_routes
        self._corrections = RouteHistory(
            lambda: DecayedHistogram(least=0.02, growth=1.01, half_life=200),
            maximum=keys,
            minimum_samples=minimum_samples,
        )
        self._outputs = RouteHistory(
            DecayedHistogram, maximum=keys, minimum_samples=minimum_samples
        )
        self._durations = RouteHistory(
            lambda: DecayedHistogram(least=0.05), maximum=keys, minimum_samples=minimum_samples
        )
        self._cached = CachedPrompts(maximum_routes)
        self._tallies = RecentlyUsed(AccuracyTally, maximum_routes)
        self._coarser = lru_cache(maximum_routes)(Route.coarser)  # the same for every request

    def quote(
        self,
        messages: Sequence[ChatMessage],
        options: ChatOptions,
        target: QuoteTarget,
        *,
        is_streaming: bool,
        now: float,
    ) -> Quote:
        """Estimate a request. Changes nothing; several targets may be asked.

        Text that a counter could only count by holding up the event loop is estimated.
        """
        text = request_text(messages, options, target.profile.tokens)
        counter = self._counter_of(target)
        if counter is not None and len(text.text) > counter.inline_characters:
            counter = None
        tokens = text.estimate() if counter is None else text.count(counter)
        basis = _basis(text, target, tokens, is_counted=counter is not None)
        return self._quote(basis, options, target, is_streaming=is_streaming, now=now)

    async def quote_exactly(
        self,
        messages: Sequence[ChatMessage],
        options: ChatOptions,
        target: QuoteTarget,
        *,
        is_streaming: bool,
        now: float,
    ) -> Quote:
        """Estimate a request, and count long text too if there is a counter, in a worker thread."""
        counter = self._counter_of(target)
        text = request_text(messages, options, target.profile.tokens)
        if counter is None or len(text.text) <= counter.inline_characters:
            return self.quote(messages, options, target, is_streaming=is_streaming, now=now)
        tokens = await to_thread.run_sync(text.count, counter)
        basis = _basis(text, target, tokens, is_counted=True)
        return self._quote(basis, options, target, is_streaming=is_streaming, now=now)

    def learn(
        self,
        quote: Quote,
        usage: Usage | None,
        *,
        seconds: float,
        now: float,
        is_complete: bool = True,
    ) -> None:
        """Compare a quote with what the request turned out to need.

        Args:
            quote: As it was made before.
            usage: What the provider reported; what it does not say teaches nothing.
            seconds: How long the request ran.
            now: The time.
            is_complete: False if the answer was broken off: its length and time teach nothing.
        """
        usage = usage or Usage()
        keys = self._coarser(quote.route)
        if is_complete:
            self._durations.add(keys, seconds, now)
            if usage.output_tokens is not None:
                self._outputs.add(keys, usage.output_tokens, now)
                self._tallies.use(quote.route).add(quote, usage, now)
        if usage.input_tokens is None:
            return
        if usage.input_tokens > 0 and quote.basis.tokens > 0:
            ratio = usage.input_tokens / quote.basis.tokens
            self._corrections.add(_correction_keys(quote.basis, keys), ratio, now)
        if quote.basis.prefix is not None:
            key = (quote.route.deployment, quote.basis.prefix)
            self._cached.add(key, usage.cache_read_input_tokens or 0, now)

    def accuracy(self, route: Route, now: float) -> EstimateAccuracy:
        """Return how good the estimates of a route have been."""
        return (self._tallies.peek(route) or AccuracyTally()).report(now)

    def _counter_of(self, target: QuoteTarget) -> TokenCounter | None:
        counter = self._counter
        is_of_family = counter is not None and counter.family == target.profile.tokens.family
        return counter if is_of_family else None

    def _quote(
        self,
        basis: InputBasis,
        options: ChatOptions,
        target: QuoteTarget,
        *,
        is_streaming: bool,
        now: float,
    ) -> Quote:
        route = target.route(options)
        keys = self._coarser(route)
        reading, expected = self._input(basis, keys, now)
        cap = _cap(options)
        return Quote(
            route=route,
            profile=target.profile,
            input=reading,
            expected_input=expected,
            output=self._output(cap, target, keys, now),
            output_cap=cap,
            maximum_output=target.maximum_output_tokens,
            cache_read=self._cache_read(basis, route, expected, now),
            duration=self._learnt(self._durations, keys, self._default_duration, now),
            is_streaming=is_streaming,
            basis=basis,
        )

    def _input(
        self, basis: InputBasis, keys: tuple[Route, ...], now: float
    ) -> tuple[Figure, float]:
        found = self._corrections.find(_correction_keys(basis, keys), now)
        source = Source.COUNTED if basis.is_counted else Source.DEFAULT
        if found is None:
            caution = _CAUTION_COUNTED if basis.is_counted else _CAUTION
            return Figure(float(math.ceil(basis.tokens * caution)), source), basis.tokens
        if not basis.is_counted:
            source = Source.COARSER if found.depth else Source.ROUTE
        upper = basis.tokens * found.histogram.quantile(self._coverage, now)
        expected = basis.tokens * found.histogram.quantile(0.5, now)
        return Figure(float(math.ceil(upper)), source, found.samples), expected

    def _output(
        self, cap: int | None, target: QuoteTarget, keys: tuple[Route, ...], now: float
    ) -> Figure:
        learnt = self._learnt(self._outputs, keys, self._default_of(target, cap), now)
        caps = [each for each in (cap, target.maximum_output_tokens) if each is not None]
        value = float(math.ceil(learnt.value))
        if caps and min(caps) <= value:
            return Figure(float(min(caps)), Source.CAP, learnt.samples)
        return Figure(value, learnt.source, learnt.samples)

    def _default_of(self, target: QuoteTarget, cap: int | None) -> float:
        largest = target.largest_output_tokens
        if cap is not None or largest is None or self._default_output <= largest / 2:
            return self._default_output
        # A guess above the limit would be refused for ever, and nothing be learnt.
        return max(1.0, largest * _FIRST_SHARE)

    def _learnt(
        self, history: RouteHistory, keys: tuple[Route, ...], default: float, now: float
    ) -> Figure:
        found = history.find(keys, now)
        if found is None:
            return Figure(default, Source.DEFAULT)
        value = found.histogram.quantile(self._coverage, now)
        return Figure(value, Source.COARSER if found.depth else Source.ROUTE, found.samples)

    def _cache_read(
        self, basis: InputBasis, route: Route, expected_input: float, now: float
    ) -> Figure:
        tokens, samples = self._cached.expect((route.deployment, basis.prefix), now)
        if not tokens:
            return Figure(0.0, Source.NONE)
        return Figure(float(int(min(tokens, expected_input))), Source.ROUTE, samples)


def _cap(options: ChatOptions) -> int | None:
    """Return the most that all answers together may have; some providers write several at once."""
    cap = options.max_output_tokens
    answers: object = (options.additional_properties or {}).get("n")
    if cap is None or isinstance(answers, bool) or not isinstance(answers, int):
        return cap
    return cap * max(1, answers)


def _basis(
    text: RequestText, target: QuoteTarget, tokens: float, *, is_counted: bool
) -> InputBasis:
    return InputBasis(tokens, target.profile.tokens.family, is_counted, text.prefix)


def _correction_keys(basis: InputBasis, keys: tuple[Route, ...]) -> list[tuple[object, ...]]:
    """Name what has the same ratio: estimates and counts are corrected apart."""
    kind = (basis.family, basis.is_counted)
    return [*((*kind, route) for route in keys), kind]
