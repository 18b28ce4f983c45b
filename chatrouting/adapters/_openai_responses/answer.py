"""What the Responses API answers, as values of ours. Pure, and lenient: any field may be missing.

The parts of one response object: facts, usage, finish reason, the texts of its items. The series of
events, and the whole answer as the last of them, is the subject of `events`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from chatrouting.adapters._json import Json, as_count, as_object, as_objects, as_text
from chatrouting.responses import FinishReason
from chatrouting.usage import Usage

_INCOMPLETE: Final[Mapping[str, FinishReason]] = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}

#: Items that become contents of a message; the others are kept as they came.
CONTENT_ITEMS: Final = frozenset({"message", "reasoning", "function_call"})


def is_pending(response: Json) -> bool:
    """Say whether a response is still being made, in the background."""
    return response.get("status") in ("queued", "in_progress")


def finish_reason(response: Json, *, has_calls: bool) -> FinishReason | str | None:
    """Return why a response ended; a word that we do not know passes through."""
    status = as_text(response.get("status")) or "completed"
    if is_pending(response):
        return None
    if status == "completed":
        return FinishReason.TOOL_CALLS if has_calls else FinishReason.STOP
    reason = as_text(as_object(response.get("incomplete_details")).get("reason"))
    return _INCOMPLETE.get(reason) or reason or status


def usage(response: Json) -> Usage | None:
    """Return the tokens of a response; None if it does not say."""
    report = as_object(response.get("usage"))
    if not report:
        return None
    read = as_object(report.get("input_tokens_details"))
    written = as_object(report.get("output_tokens_details"))
    return Usage(
        input_tokens=as_count(report.get("input_tokens")),
        output_tokens=as_count(report.get("output_tokens")),
        cache_read_input_tokens=as_count(read.get("cached_tokens")),
        cache_write_input_tokens=as_count(read.get("cache_write_tokens")),
        reasoning_output_tokens=as_count(written.get("reasoning_tokens")),
    )


def conversation_id(response: Json, *, is_stored: bool) -> str | None:
    """Return what the next request may go on from.

    Args:
        response: The response object.
        is_stored: What the request decided, for a response that does not say itself.
    """
    conversation = as_text(as_object(response.get("conversation")).get("id"))
    if conversation:
        return conversation
    stored = response.get("store")
    is_kept = stored if isinstance(stored, bool) else is_stored
    return (as_text(response.get("id")) or None) if is_kept else None


def properties(response: Json) -> dict[str, Any] | None:
    """Return what else is worth keeping: the tier, and items that only this provider knows."""
    kept: dict[str, Any] = {}
    if as_text(response.get("service_tier")):
        kept["service_tier"] = response["service_tier"]
    others = [item for item in as_objects(response.get("output")) if not _is_content(item)]
    if others:
        kept["other_output"] = others
    return kept or None


def _is_content(item: Json) -> bool:
    return as_text(item.get("type")) in CONTENT_ITEMS


def message_parts(item: Json) -> Iterator[tuple[int, bool, str]]:
    """Give the parts of a message item: index, whether it is a refusal, text."""
    for index, part in enumerate(as_objects(item.get("content"))):
        is_refusal = part.get("type") == "refusal"
        yield index, is_refusal, as_text(part.get("refusal" if is_refusal else "text"))


def reasoning_parts(item: Json) -> Iterator[tuple[tuple[str, int], str]]:
    """Give the parts of a reasoning item: a key, as events name it, and the text."""
    for field in ("summary", "content"):
        for index, part in enumerate(as_objects(item.get(field))):
            yield (field, index), as_text(part.get("text"))
