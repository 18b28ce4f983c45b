"""Token counts, in one spelling for all providers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one response. None means that the provider did not say; it is not zero.

    `a + b` adds field by field; a number plus None is the number.
    """

    input_tokens: int | None = None  #: Everything the model read, cached input included.
    output_tokens: int | None = None  #: Everything the model wrote, reasoning included.
    cache_read_input_tokens: int | None = None  #: The part of the input read from a cache.
    cache_write_input_tokens: int | None = None  #: The part of the input written to a cache.
    reasoning_output_tokens: int | None = None  #: The part of the output that is reasoning.

    @property
    def total_tokens(self) -> int | None:
        """Input plus output; None if either is unknown."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        """Sum over attempts or turns."""
        return Usage(
            input_tokens=_plus(self.input_tokens, other.input_tokens),
            output_tokens=_plus(self.output_tokens, other.output_tokens),
            cache_read_input_tokens=_plus(
                self.cache_read_input_tokens, other.cache_read_input_tokens
            ),
            cache_write_input_tokens=_plus(
                self.cache_write_input_tokens, other.cache_write_input_tokens
            ),
            reasoning_output_tokens=_plus(
                self.reasoning_output_tokens, other.reasoning_output_tokens
            ),
        )

    def updated_by(self, later: "Usage") -> "Usage":
        """Return what `later`, a cumulative report on the same response, leaves standing.

        Each field of `later` that is not None replaces the earlier value.
        """
        return Usage(
            input_tokens=_latest(self.input_tokens, later.input_tokens),
            output_tokens=_latest(self.output_tokens, later.output_tokens),
            cache_read_input_tokens=_latest(
                self.cache_read_input_tokens, later.cache_read_input_tokens
            ),
            cache_write_input_tokens=_latest(
                self.cache_write_input_tokens, later.cache_write_input_tokens
            ),
            reasoning_output_tokens=_latest(
                self.reasoning_output_tokens, later.reasoning_output_tokens
            ),
        )


def _plus(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _latest(earlier: int | None, later: int | None) -> int | None:
    return earlier if later is None else later
