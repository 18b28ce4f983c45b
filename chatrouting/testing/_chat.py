"""OpenAI Chat Completions: one reply as JSON and as SSE events."""

from typing import Any

from chatrouting.testing._json import JsonObject, as_object, dumps, known
from chatrouting.testing._reply import ToolCall
from chatrouting.testing._turn import CREATED, Event, Mark, Turn, chunks
from chatrouting.usage import Usage


def whole(turn: Turn) -> JsonObject:
    """Render a `chat.completion`."""
    reply = turn.reply
    message: JsonObject = {
        "role": "assistant",
        "content": None if turn.text is None else "".join(turn.text),
        "refusal": reply.refusal,
    }
    if reply.reasoning is not None:
        message[reply.reasoning_field] = "".join(chunks(reply.reasoning))
    if reply.tool_calls:
        message["tool_calls"] = [_call(call, call.text) for call in reply.tool_calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": turn.finish_reason,
    }
    answer = _envelope(turn, "chat.completion", [choice])
    if reply.usage is not None:
        answer["usage"] = None if reply.usage_style == "null" else usage(reply.usage)
    return answer


def events(turn: Turn) -> list[Event]:
    """Render `chat.completion.chunk` events and `[DONE]`."""
    reply = turn.reply
    found: list[Event] = []
    if reply.prompt_filter:
        found.append(_prompt_filter(turn))
    found.append(_chunk(turn, {"role": "assistant", "content": "", "refusal": None}, "start"))
    deltas: list[tuple[JsonObject, Mark]] = [
        *(({reply.reasoning_field: piece}, "reasoning") for piece in chunks(reply.reasoning)),
        *(({"content": piece}, "content") for piece in turn.text or ()),
        *(({"refusal": piece}, "content") for piece in chunks(reply.refusal)),
        *(({"tool_calls": calls}, "content") for calls in _tool_deltas(turn)),
    ]
    found.extend(
        _chunk(turn, delta, mark, output=number)
        for number, (delta, mark) in enumerate(deltas, start=1)
    )
    found.append(_chunk(turn, {}, "finish", finish_reason=turn.finish_reason))
    if reply.usage is not None and reply.usage_style != "every_chunk" and _wants_usage(turn):
        total = None if reply.usage_style == "null" else usage(reply.usage)
        found.append(
            _event({**_envelope(turn, "chat.completion.chunk", []), "usage": total}, "usage")
        )
    found.append(Event(None, "[DONE]", "terminal"))
    return found


def usage(counts: Usage) -> JsonObject:
    """Spell usage as chat completions does."""
    return known(
        prompt_tokens=counts.input_tokens,
        completion_tokens=counts.output_tokens,
        total_tokens=counts.total_tokens,
        prompt_tokens_details=known(
            cached_tokens=counts.cache_read_input_tokens,
            cache_write_tokens=counts.cache_write_input_tokens,
        ),
        completion_tokens_details=known(reasoning_tokens=counts.reasoning_output_tokens),
    )


def _envelope(turn: Turn, kind: str, choices: list[Any]) -> JsonObject:
    return {
        "id": turn.id("chatcmpl-"),
        "object": kind,
        "created": CREATED,
        "model": turn.model,
        "choices": choices,
        **turn.reply.extra_fields,
    }


def _wants_usage(turn: Turn) -> bool:
    return bool(as_object(turn.body.get("stream_options")).get("include_usage"))


def _chunk(
    turn: Turn,
    delta: JsonObject,
    mark: Mark,
    *,
    finish_reason: str | None = None,
    output: int | None = None,
) -> Event:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    chunk = _envelope(turn, "chat.completion.chunk", [choice])
    counts = turn.reply.usage
    if counts is not None and turn.reply.usage_style == "every_chunk":
        so_far = counts.output_tokens if output is None and mark == "finish" else output or 0
        chunk["usage"] = usage(counts.updated_by(Usage(output_tokens=so_far)))
    elif _wants_usage(turn):
        chunk["usage"] = None
    return _event(chunk, mark)


def _event(chunk: JsonObject, mark: Mark) -> Event:
    return Event(None, dumps(chunk), mark)


def _prompt_filter(turn: Turn) -> Event:
    results = [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}]
    chunk = _envelope(turn, "", []) | {"id": "", "model": "", "created": 0}
    return _event({**chunk, "prompt_filter_results": results}, "")


def _call(call: ToolCall, arguments: str) -> JsonObject:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
        **call.extra,
    }


def _tool_deltas(turn: Turn) -> list[list[JsonObject]]:
    """Give the `tool_calls` of each chunk."""
    style = turn.reply.tool_chunks
    if style == "fragments":
        return [
            [_index(turn, number) | delta]
            for number, call in enumerate(turn.reply.tool_calls)
            for delta in (
                _call(call, ""),
                *({"function": {"arguments": piece}} for piece in call.fragments if piece),
            )
        ]
    calls = [
        _index(turn, number) | _call(call, call.text)
        for number, call in enumerate(turn.reply.tool_calls)
    ]
    return [[call] for call in calls] if style == "whole" else [calls] if calls else []


def _index(turn: Turn, number: int) -> JsonObject:
    return {"each": {"index": number}, "zero": {"index": 0}, "missing": {}}[turn.reply.tool_index]
