"""OpenAI Responses: one reply as JSON and as SSE events."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from chatrouting.testing._json import JsonObject, dumps, known
from chatrouting.testing._reply import ToolCall
from chatrouting.testing._turn import CREATED, Event, Mark, Turn, chunks

#: Finish reasons that leave a response incomplete, as `incomplete_details.reason` spells them.
_INCOMPLETE: Mapping[str, str] = MappingProxyType(
    {"length": "max_output_tokens", "content_filter": "content_filter"}
)

#: Name, mark and fields of an event, before it is numbered.
_Draft = tuple[str, Mark, JsonObject]


def whole(turn: Turn) -> JsonObject:
    """Render a finished `response`."""
    return _finished(turn, [item for item, _ in _items(turn)])


def events(turn: Turn) -> list[Event]:
    """Render `response.created` to `response.completed` (or incomplete, or failed)."""
    begun = _response(turn, "in_progress")
    drafts: list[_Draft] = [
        ("response.created", "start", {"response": begun}),
        ("response.in_progress", "start", {"response": begun}),
    ]
    items = _items(turn)
    for index, (_, item_drafts) in enumerate(items):
        drafts.extend(
            (name, mark, {"output_index": index, **fields}) for name, mark, fields in item_drafts
        )
    response = _finished(turn, [item for item, _ in items])
    drafts.append((f"response.{response['status']}", "terminal", {"response": response}))
    return [
        Event(name, dumps({"type": name, "sequence_number": number, **fields}), mark)
        for number, (name, mark, fields) in enumerate(drafts)
    ]


def usage(turn: Turn) -> JsonObject | None:
    """Spell usage as Responses does."""
    counts = turn.reply.usage
    if counts is None or turn.reply.usage_style == "null":
        return None
    return known(
        input_tokens=counts.input_tokens,
        input_tokens_details=known(
            cached_tokens=counts.cache_read_input_tokens,
            cache_write_tokens=counts.cache_write_input_tokens,
        ),
        output_tokens=counts.output_tokens,
        output_tokens_details=known(reasoning_tokens=counts.reasoning_output_tokens),
        total_tokens=counts.total_tokens,
    )


def _response(turn: Turn, status: str) -> JsonObject:
    return {
        "id": turn.id("resp_"),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": turn.body.get("instructions"),
        "model": turn.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": turn.body.get("previous_response_id"),
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _finished(turn: Turn, items: list[JsonObject]) -> JsonObject:
    reason = turn.finish_reason
    status = "completed"
    details = None
    if reason in {"failed", "cancelled"}:
        status = reason
    elif reason not in {None, "stop", "tool_calls"}:
        status = "incomplete"
        details = {"reason": _INCOMPLETE.get(reason or "", reason)}
    finished = {"output": items, "usage": usage(turn), "incomplete_details": details}
    return {**_response(turn, status), **finished, **turn.reply.extra_fields}


def _items(turn: Turn) -> list[tuple[JsonObject, list[_Draft]]]:
    """Give each output item whole, with the events that stream it."""
    reply = turn.reply
    found: list[tuple[JsonObject, list[_Draft]]] = []
    if reply.reasoning is not None:
        found.append(_reasoning(turn))
    if turn.text is not None:
        part: JsonObject = {"type": "output_text", "text": "".join(turn.text), "annotations": []}
        found.append(_message(turn, part, "text", "output_text", turn.text))
    if reply.refusal is not None:
        part = {"type": "refusal", "refusal": reply.refusal}
        found.append(_message(turn, part, "refusal", "refusal", chunks(reply.refusal)))
    found.extend(_call(turn, number, call) for number, call in enumerate(reply.tool_calls))
    return found


def _message(
    turn: Turn, part: JsonObject, field: str, stem: str, pieces: Iterable[str]
) -> tuple[JsonObject, list[_Draft]]:
    item_id = f"msg_{turn.number}_{stem}"
    where = {"item_id": item_id, "content_index": 0}
    begun: JsonObject = {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    item = {**begun, "status": "completed", "content": [part]}
    return item, [
        ("response.output_item.added", "", {"item": begun}),
        ("response.content_part.added", "", {**where, "part": {**part, field: ""}}),
        *((f"response.{stem}.delta", "content", {**where, "delta": piece}) for piece in pieces),
        (f"response.{stem}.done", "", {**where, field: part[field]}),
        ("response.content_part.done", "", {**where, "part": part}),
        ("response.output_item.done", "", {"item": item}),
    ]


def _call(turn: Turn, number: int, call: ToolCall) -> tuple[JsonObject, list[_Draft]]:
    item_id = f"fc_{turn.number}_{number}"
    item: JsonObject = {
        "id": item_id,
        "type": "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.text,
    }
    begun = {**item, "status": "in_progress", "arguments": ""}
    where = {"item_id": item_id}
    stem = "response.function_call_arguments"
    return item, [
        ("response.output_item.added", "content", {"item": begun}),
        *((f"{stem}.delta", "content", {**where, "delta": piece}) for piece in call.fragments),
        (f"{stem}.done", "", {**where, "name": call.name, "arguments": call.text}),
        ("response.output_item.done", "", {"item": item}),
    ]


def _reasoning(turn: Turn) -> tuple[JsonObject, list[_Draft]]:
    pieces = chunks(turn.reply.reasoning)
    text = "".join(pieces)
    item_id = f"rs_{turn.number}"
    begun: JsonObject = {"id": item_id, "type": "reasoning", "summary": []}
    part = {"type": "summary_text", "text": text}
    item = {**begun, "summary": [part]}
    if "reasoning.encrypted_content" in _included(turn.body):
        item["encrypted_content"] = turn.sign(text)
    where = {"item_id": item_id, "summary_index": 0}
    stem = "response.reasoning_summary"
    return item, [
        ("response.output_item.added", "", {"item": begun}),
        (f"{stem}_part.added", "", {**where, "part": {**part, "text": ""}}),
        *((f"{stem}_text.delta", "reasoning", {**where, "delta": piece}) for piece in pieces),
        (f"{stem}_text.done", "", {**where, "text": text}),
        (f"{stem}_part.done", "", {**where, "part": part}),
        ("response.output_item.done", "", {"item": item}),
    ]


def _included(body: Mapping[str, Any]) -> Iterable[str]:
    included: Iterable[str] = body.get("include") or ()
    return included
