"""Anthropic Messages: one reply as JSON and as SSE events."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from chatrouting.testing._json import JsonObject, dumps, known, loads
from chatrouting.testing._turn import Event, Mark, Turn, chunks

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "pause": "pause_turn",
}


def whole(turn: Turn) -> JsonObject:
    """Render a `message`."""
    blocks = [block for block, _ in _blocks(turn)]
    return {**_message(turn, blocks, usage(turn)), **_stop(turn), **turn.reply.extra_fields}


def events(turn: Turn) -> list[Event]:
    """Render `message_start` to `message_stop`."""
    start = _message(turn, [], _start_usage(turn))
    found = [_event("message_start", "start", message=start)]
    for index, (block, deltas) in enumerate(_blocks(turn)):
        found.extend(_block_events(index, block, deltas))
    if "finish" not in turn.reply.omit:
        delta = known(delta=_stop(turn), usage=usage(turn))
        found.append(_event("message_delta", "finish", **delta))
    found.append(_event("message_stop", "terminal"))
    return found


def usage(turn: Turn) -> JsonObject | None:
    """Spell usage as Anthropic does: `input_tokens` excludes what the cache gave or took."""
    counts = turn.reply.usage
    if counts is None or turn.reply.usage_style == "null":
        return None
    cached = (counts.cache_read_input_tokens or 0) + (counts.cache_write_input_tokens or 0)
    return known(
        input_tokens=None if counts.input_tokens is None else counts.input_tokens - cached,
        cache_read_input_tokens=counts.cache_read_input_tokens,
        cache_creation_input_tokens=counts.cache_write_input_tokens,
        output_tokens=counts.output_tokens,
        output_tokens_details=known(thinking_tokens=counts.reasoning_output_tokens),
    )


def _start_usage(turn: Turn) -> JsonObject | None:
    counts = usage(turn)
    if counts is None:
        return None
    counts.pop("output_tokens_details", None)
    return counts | {"output_tokens": 1}


def _message(turn: Turn, blocks: list[JsonObject], counts: JsonObject | None) -> JsonObject:
    message = {
        "id": turn.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": turn.model,
        "content": blocks,
        "stop_reason": None,
        "stop_sequence": None,
    }
    return message if counts is None else message | {"usage": counts}


def _stop(turn: Turn) -> JsonObject:
    reason = turn.finish_reason
    if reason is not None and turn.reply.refusal is not None:
        details = {"type": "refusal", "category": None, "explanation": turn.reply.refusal}
        return {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
    raw = None if reason is None else _STOP_REASONS.get(reason, reason)
    return {"stop_reason": raw, "stop_sequence": None}


def _blocks(turn: Turn) -> list[tuple[JsonObject, list[JsonObject]]]:
    """Give each content block whole, with the deltas that stream it."""
    reply = turn.reply
    found: list[tuple[JsonObject, list[JsonObject]]] = []
    if reply.reasoning is not None:
        found.append(_thinking(turn))
    if reply.redacted_reasoning is not None:
        turn.sign(reply.redacted_reasoning)
        found.append(({"type": "redacted_thinking", "data": reply.redacted_reasoning}, []))
    if turn.text is not None:
        deltas = [{"type": "text_delta", "text": piece} for piece in turn.text]
        found.append(({"type": "text", "text": "".join(turn.text)}, deltas))
    for call in reply.tool_calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.text)}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in call.fragments]
        found.append((block, deltas))
    return found


def _thinking(turn: Turn) -> tuple[JsonObject, list[JsonObject]]:
    pieces = chunks(turn.reply.reasoning)
    signature = turn.sign("".join(pieces))
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    deltas.append({"type": "signature_delta", "signature": signature})
    return {"type": "thinking", "thinking": "".join(pieces), "signature": signature}, deltas


def _input(arguments: str) -> Any:
    """Read the arguments; what is not JSON can only be streamed and is text in a whole answer."""
    if not arguments:
        return {}
    value = loads(arguments)
    return arguments if value is None else value


#: What a block holds of its streamed fields when it starts.
_EMPTY: Mapping[str, Any] = MappingProxyType(
    {"text": "", "thinking": "", "signature": "", "input": JsonObject()}
)
_DELTA_MARKS: Mapping[str, Mark] = MappingProxyType(
    {"text": "content", "tool_use": "content", "thinking": "reasoning"}
)


def _block_events(index: int, block: JsonObject, deltas: list[JsonObject]) -> list[Event]:
    kind = block["type"]
    start = {name: _EMPTY.get(name, value) for name, value in block.items()}
    mark = _DELTA_MARKS.get(kind, "")
    # The name of a call is output; an empty block of text is not.
    first: Mark = "content" if kind == "tool_use" else ""
    return [
        _event("content_block_start", first, index=index, content_block=start),
        *(_event("content_block_delta", mark, index=index, delta=delta) for delta in deltas),
        _event("content_block_stop", index=index),
    ]


def _event(name: str, mark: Mark = "", **fields: Any) -> Event:
    return Event(name, dumps({"type": name, **fields}), mark)
