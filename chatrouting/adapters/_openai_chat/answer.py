"""What Chat Completions says of an answer, as values of ours. Pure; any field may be missing.

The facts of one answer. Its contents, and the answer as a series of chunks, are the subject of
`events`.
"""

from collections.abc import Mapping
from typing import Final

from chatrouting.adapters._json import Json, as_count, as_object
from chatrouting.responses import FinishReason
from chatrouting.usage import Usage

_FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
}

_NOTHING: Final = Usage()


def finish_reason(word: str, *, has_calls: bool) -> FinishReason | str:
    """Return why an answer ended; a word that we do not know passes through.

    Some servers say "stop" beside tool calls: the calls count more.
    """
    found = _FINISH_REASONS.get(word, word)
    if has_calls and found is FinishReason.STOP:
        return FinishReason.TOOL_CALLS
    return found


def usage(data: Json) -> Usage | None:
    """Return the tokens that a chunk or a whole answer tells of; None if it does not say."""
    report = as_object(data.get("usage") or as_object(data.get("x_groq")).get("usage"))
    if not report:
        return None
    prompt = as_object(report.get("prompt_tokens_details"))
    completion = as_object(report.get("completion_tokens_details"))
    found = Usage(
        input_tokens=as_count(report.get("prompt_tokens")),
        output_tokens=as_count(report.get("completion_tokens")),
        cache_read_input_tokens=as_count(
            prompt.get("cached_tokens", report.get("prompt_cache_hit_tokens"))
        ),
        cache_write_input_tokens=as_count(prompt.get("cache_write_tokens")),
        reasoning_output_tokens=as_count(completion.get("reasoning_tokens")),
    )
    return None if found == _NOTHING else found
