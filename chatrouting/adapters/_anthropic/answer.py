"""What the Messages API says of an answer, as values of ours. Pure, and lenient to what is missing.

The facts of one message. Its contents, and the message as a series of events, are the subject of
`events`.
"""

from collections.abc import Mapping
from typing import Any, Final, final

from chatrouting.adapters._json import Json, as_count, as_object, as_text
from chatrouting.contents import RefusalContent
from chatrouting.responses import FinishReason
from chatrouting.usage import Usage

_FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "refusal": FinishReason.CONTENT_FILTER,
    "pause_turn": FinishReason.PAUSE,
}
#: What else is said about an answer, kept where it says something.
_PROPERTIES: Final = ("stop_sequence", "stop_details", "container")

_NOTHING: Final = Usage()


def finish_reason(stop_reason: object) -> FinishReason | str | None:
    """Return why a message ended; a word that we do not know passes through."""
    word = as_text(stop_reason)
    return _FINISH_REASONS.get(word) or word or None


def usage(counts: Json) -> Usage | None:
    """Return the tokens of a message; None if it does not say.

    The API's `input_tokens` leave out what the cache gave or took; ours are all that was read.
    """
    fresh = as_count(counts.get("input_tokens"))
    read = as_count(counts.get("cache_read_input_tokens"))
    written = as_count(counts.get("cache_creation_input_tokens"))
    details = as_object(counts.get("output_tokens_details"))
    found = Usage(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=as_count(counts.get("output_tokens")),
        cache_read_input_tokens=read,
        cache_write_input_tokens=written,
        reasoning_output_tokens=as_count(details.get("thinking_tokens")),
    )
    return None if found == _NOTHING else found


def properties(message: Json, counts: Json) -> dict[str, Any] | None:
    """Return what else is worth keeping of an answer, None if there is nothing."""
    found = {name: message[name] for name in _PROPERTIES if message.get(name) is not None}
    tier = counts.get("service_tier")
    if tier is not None:
        found["service_tier"] = tier
    return found or None


def refusal(message: Json) -> tuple[RefusalContent, ...]:
    """Return how the provider explains a refusal; empty if it was none or says nothing."""
    explanation = as_text(as_object(message.get("stop_details")).get("explanation"))
    return (RefusalContent(explanation),) if explanation else ()


@final
class Seam:
    """Joins an answer to the text it goes on from, whose trailing white space was not sent.

    The caller has that white space in their text already. Where the model writes it again, at the
    very beginning, it is left out.
    """

    __slots__ = ("_ahead", "_trimmed")

    def __init__(self, trimmed: str) -> None:
        self._trimmed = trimmed
        self._ahead = ""

    @property
    def is_open(self) -> bool:
        """Whether what comes next may be white space to be left out."""
        return bool(self._trimmed)

    def take(self, text: str, *, is_last: bool = False) -> str:
        """Return the part of the next text that may be handed out now.

        Args:
            text: The next piece of the answer.
            is_last: No further piece follows.
        """
        if not self._trimmed:
            return text
        self._ahead += text
        blank = len(self._ahead) - len(self._ahead.lstrip())
        if blank == len(self._ahead) < len(self._trimmed) and not is_last:
            return ""
        for length in range(min(blank, len(self._trimmed)), 0, -1):
            if self._trimmed.endswith(self._ahead[:length]):
                self._ahead = self._ahead[length:]
                break
        text, self._ahead, self._trimmed = self._ahead, "", ""
        return text


@final
class CallNames:
    """Gives the tool calls of one message ids that differ; some servers send none, or one twice."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: set[str] = set()

    def of(self, call_id: object) -> str:
        """Return the id of the next call."""
        name = as_text(call_id)
        if not name or name in self._given:
            name = f"{name or 'call'}_{len(self._given)}"
        self._given.add(name)
        return name
