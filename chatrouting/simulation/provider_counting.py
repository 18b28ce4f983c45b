"""How each provider counts, written from its documentation and apart from `quota.profiles`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

from chatrouting._frozen import FrozenDict
from chatrouting.quota.limits import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOTAL_TOKENS


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request as the provider sees it.

    Attributes:
        input_tokens: What it counts of the text.
        cap: The caller's output cap; None if there is none.
        cached_tokens: Part of the input that is read from its cache.
    """

    input_tokens: int
    cap: int | None = None
    cached_tokens: int = 0


Amount = Callable[[Arrival, int], float]


@final
@dataclass(frozen=True, kw_only=True)
class Counting:
    """How one provider counts.

    Attributes:
        arrival: What is charged when a request comes, by dimension; the second argument is the
            most that the model writes.
        checked: What must fit besides, without being charged.
        generated: Where output counts when it is generated; full, it refuses requests.
        settled: What the charge becomes at the end, in its place; the second argument is the
            output.
        is_settled_without_cap: It becomes that only for a request without a cap.
        refused_count: Refused requests count as requests.
        short: Windows over which a limit for a minute is enforced, seconds.
        windows: Of limits that are not for a minute.
        status: Of a refusal.
    """

    arrival: Mapping[str, Amount]
    checked: Mapping[str, Amount] = FrozenDict()
    generated: tuple[str, ...] = ()
    settled: Mapping[str, Amount] = FrozenDict()
    is_settled_without_cap: bool = False
    refused_count: bool = True
    short: Mapping[str, float] = FrozenDict()
    windows: Mapping[str, float] = FrozenDict()
    status: int = 429


def _one(_: Arrival, __: int) -> float:
    return 1.0


def _input(arrival: Arrival, _: int) -> float:
    return float(arrival.input_tokens)


def _uncached(arrival: Arrival, _: int) -> float:
    return float(arrival.input_tokens - arrival.cached_tokens)


def _cap(arrival: Arrival, maximum: int) -> float:
    return float(maximum if arrival.cap is None else arrival.cap)


def _input_and_cap(arrival: Arrival, maximum: int) -> float:
    return arrival.input_tokens + _cap(arrival, maximum)


def _input_and_own_cap(arrival: Arrival, _: int) -> float:
    return arrival.input_tokens + float(arrival.cap or 0)


def _used(arrival: Arrival, output: int) -> float:
    return float(arrival.input_tokens + output)


def _used_uncached(arrival: Arrival, output: int) -> float:
    return float(arrival.input_tokens - arrival.cached_tokens + output)


COUNTING: Final[Mapping[str, Counting]] = {
    "openai": Counting(arrival={REQUESTS: _one, TOTAL_TOKENS: _input_and_own_cap}),
    "azure": Counting(
        arrival={REQUESTS: _one, TOTAL_TOKENS: _input_and_cap},
        settled={TOTAL_TOKENS: _used},
        is_settled_without_cap=True,
        short={REQUESTS: 10.0},
    ),
    "azure_ptu": Counting(
        arrival={TOTAL_TOKENS: _input_and_cap},
        settled={TOTAL_TOKENS: _used_uncached},
        refused_count=False,
    ),
    "anthropic": Counting(
        arrival={REQUESTS: _one, INPUT_TOKENS: _uncached},
        generated=(OUTPUT_TOKENS,),
        short={REQUESTS: 1.0},
    ),
    "gemini": Counting(arrival={REQUESTS: _one, INPUT_TOKENS: _input}),
    "bedrock_runtime": Counting(
        arrival={REQUESTS: _one, TOTAL_TOKENS: _input_and_cap},
        settled={TOTAL_TOKENS: _used_uncached},
    ),
    "bedrock_mantle": Counting(
        arrival={INPUT_TOKENS: _uncached},
        checked={INPUT_TOKENS: _cap},
        generated=(OUTPUT_TOKENS,),
        refused_count=False,
    ),
    "groq": Counting(
        arrival={REQUESTS: _one, INPUT_TOKENS: _uncached, TOTAL_TOKENS: _uncached},
        generated=(OUTPUT_TOKENS, TOTAL_TOKENS),
        windows={REQUESTS: 86_400.0},
    ),
    "mistral": Counting(
        arrival={REQUESTS: _one, TOTAL_TOKENS: _input},
        generated=(TOTAL_TOKENS,),
        windows={REQUESTS: 1.0},
    ),
    "self_hosted": Counting(arrival={}, refused_count=False, status=503),
}
