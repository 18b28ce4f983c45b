"""What a strict server checks in a body, as tables of named rules; those of the OpenAI APIs.

Only rules that a client must keep when it translates a conversation. Each rule is a generator of
complaints: it yields what is wrong, place first, and nothing if all is well.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from chatrouting.testing._json import JsonObject, as_objects, is_list


@dataclass(frozen=True, slots=True)
class Subject:
    """A body under examination."""

    body: JsonObject
    issued: Mapping[str, str]  #: Signatures that this server has issued, with the text of each.

    @property
    def messages(self) -> list[JsonObject]:
        """The messages of a chat request."""
        return as_objects(self.body.get("messages"))

    @property
    def items(self) -> list[JsonObject]:
        """The input of a Responses request; a text is one message."""
        given = self.body.get("input")
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        return as_objects(given)


Rule = Callable[[Subject], Iterator[str]]
Rules = Mapping[str, Rule]

#: The complaint about a body that no rule can look into.
JSON_BODY: tuple[str, str] | None = (
    "json_body",
    "We could not parse the JSON body of your request.",
)


def first_complaint(rules: Rules, subject: Subject) -> tuple[str, str] | None:
    """Give the name of the first broken rule and the complaint; None if all is well."""
    for name, rule in rules.items():
        complaint = next(rule(subject), None)
        if complaint is not None:
            return name, complaint
    return None


def model_required(subject: Subject) -> Iterator[str]:
    """Every API needs a model."""
    if not subject.body.get("model"):
        yield "model: you must provide a model parameter."


def messages_required(subject: Subject) -> Iterator[str]:
    """No conversation is empty."""
    if not subject.messages:
        yield "messages: at least one message is required."


#: Names of this library that no API knows. The servers behind these APIs take too many others.
_OURS = frozenset(
    {
        "additional_properties",
        "allow_multiple_tool_calls",
        "conversation_id",
        "routing",
        "stop_sequences",
    }
)


def _foreign_field(names: frozenset[str]) -> Rule:
    def rule(subject: Subject) -> Iterator[str]:
        for name in sorted(names & subject.body.keys()):
            yield f"{name}: unrecognized request argument."

    return rule


# Chat completions


def _call_ids(message: JsonObject) -> list[str]:
    return [str(call.get("id") or "") for call in as_objects(message.get("tool_calls"))]


def _calls_answered(subject: Subject) -> Iterator[str]:
    open_ids: list[str] = []
    for number, message in enumerate([*subject.messages, JsonObject()]):
        if message.get("role") == "tool":
            open_ids = [one for one in open_ids if one != message.get("tool_call_id")]
            continue
        if open_ids:
            yield (
                f"messages.{number}: an assistant message with tool_calls must be followed by "
                f"tool messages responding to each tool_call_id; missing: {', '.join(open_ids)}."
            )
        open_ids = _call_ids(message)


def _tool_messages_follow_calls(subject: Subject) -> Iterator[str]:
    calls: list[str] = []
    for number, message in enumerate(subject.messages):
        if message.get("role") != "tool":
            calls = _call_ids(message)
        elif message.get("tool_call_id") not in calls:
            yield (
                f"messages.{number}: role 'tool' must be a response to a preceding message "
                "with tool_calls."
            )


def _assistant_content(subject: Subject) -> Iterator[str]:
    for number, message in enumerate(subject.messages):
        given = (message.get(name) for name in ("content", "tool_calls", "refusal", "audio"))
        if message.get("role") == "assistant" and not any(given):
            yield f"messages.{number}: an assistant message needs content or tool_calls."


def _chat_call_ids(subject: Subject) -> Iterator[str]:
    for number, message in enumerate(subject.messages):
        for one in _call_ids(message):
            yield from _check_id(f"messages.{number}.tool_calls", one, 40)


def _tool_text(subject: Subject) -> Iterator[str]:
    for number, message in enumerate(subject.messages):
        content = message.get("content")
        parts = {part.get("type") for part in as_objects(content)}
        if message.get("role") == "tool" and not (isinstance(content, str) or parts == {"text"}):
            yield f"messages.{number}: the content of a tool message must be text."


def _call_arguments(subject: Subject) -> Iterator[str]:
    for number, message in enumerate(subject.messages):
        for call in as_objects(message.get("tool_calls")):
            function: JsonObject = call.get("function") or {}
            if call.get("type") == "function" and not isinstance(function.get("arguments"), str):
                yield f"messages.{number}.tool_calls: function.arguments must be a string."


CHAT: Rules = MappingProxyType(
    {
        "model_required": model_required,
        "messages_required": messages_required,
        "unknown_field": _foreign_field(_OURS | {"instructions", "max_output_tokens"}),
        "call_id": _chat_call_ids,
        "call_arguments": _call_arguments,
        "assistant_content": _assistant_content,
        "tool_without_call": _tool_messages_follow_calls,
        "calls_answered": _calls_answered,
        "tool_text": _tool_text,
    }
)

# Responses

_ITEM_TYPES = re.compile(
    "message|reasoning|item_reference|compaction|compaction_trigger|additional_tools|program"
    "|program_output|mcp_list_tools|mcp_approval_request|mcp_approval_response|tool_search_output"
    "|(function|custom_tool|computer|local_shell|shell|apply_patch)_call(_output)?"
    "|(file_search|web_search|code_interpreter|image_generation|mcp|tool_search)_call"
)
_PART_TYPES: Mapping[str, frozenset[str]] = MappingProxyType(
    {"assistant": frozenset({"output_text", "refusal"})}
)
_INPUT_PARTS = frozenset({"input_text", "input_image", "input_file", "input_audio"})


def _kind(item: JsonObject) -> Any:
    return item.get("type") or ("message" if "role" in item else None)


def _continues(subject: Subject) -> bool:
    names = ("previous_response_id", "conversation")
    return any(subject.body.get(name) is not None for name in names)


def _input_required(subject: Subject) -> Iterator[str]:
    if not subject.items and not _continues(subject):
        yield "input: one of input, previous_response_id or conversation must be provided."


def _item_types(subject: Subject) -> Iterator[str]:
    for number, item in enumerate(subject.items):
        if not _ITEM_TYPES.fullmatch(str(_kind(item))):
            yield f"input[{number}]: invalid value for type: {_kind(item)!r}."


def _part_types(subject: Subject) -> Iterator[str]:
    for number, item in enumerate(subject.items):
        allowed = _PART_TYPES.get(str(item.get("role")), _INPUT_PARTS)
        for part in as_objects(item.get("content")) if _kind(item) == "message" else ():
            if part.get("type") not in allowed:
                yield f"input[{number}].content: invalid value for type: {part.get('type')!r}."


def _responses_call_ids(subject: Subject) -> Iterator[str]:
    for number, item in enumerate(subject.items):
        if _kind(item) in {"function_call", "function_call_output"}:
            yield from _check_id(f"input[{number}].call_id", str(item.get("call_id") or ""), 64)


def _outputs_follow_calls(subject: Subject) -> Iterator[str]:
    calls: set[Any] = set()
    for number, item in enumerate(subject.items):
        if _kind(item) == "function_call":
            calls.add(item.get("call_id"))
        elif _kind(item) == "function_call_output" and item.get("call_id") not in calls:
            # A continued conversation has calls that are not in this input.
            if _continues(subject):
                continue
            yield (
                f"input[{number}]: no tool call found for function call output with "
                f"call_id {item.get('call_id')}."
            )


def _outputs_present(subject: Subject) -> Iterator[str]:
    outputs = {
        item.get("call_id") for item in subject.items if _kind(item) == "function_call_output"
    }
    for number, item in enumerate(subject.items):
        if _kind(item) == "function_call" and item.get("call_id") not in outputs:
            yield (
                f"input[{number}]: no tool output found for function call {item.get('call_id')}."
            )


def _encrypted_reasoning(subject: Subject) -> Iterator[str]:
    for number, item in enumerate(subject.items):
        content = item.get("encrypted_content")
        if _kind(item) == "reasoning" and content is not None and content not in subject.issued:
            yield f"input[{number}]: the encrypted content could not be verified."


RESPONSES: Rules = MappingProxyType(
    {
        "model_required": model_required,
        "input_required": _input_required,
        "unknown_field": _foreign_field(_OURS | {"messages"}),
        "item_type": _item_types,
        "part_type": _part_types,
        "call_id": _responses_call_ids,
        "tool_without_call": _outputs_follow_calls,
        "calls_answered": _outputs_present,
        "encrypted_content": _encrypted_reasoning,
    }
)

# Embeddings


def _embedding_input(subject: Subject) -> Iterator[str]:
    given = subject.body.get("input")
    items = given if is_list(given) else [given]
    if not items or not all(item or item == 0 for item in items):
        yield "input: cannot be an empty string or an empty list."


EMBEDDINGS: Rules = MappingProxyType(
    {
        "model_required": model_required,
        "unknown_field": _foreign_field(_OURS),
        "input_required": _embedding_input,
    }
)


def _prompt_required(subject: Subject) -> Iterator[str]:
    if not subject.body.get("prompt"):
        yield "prompt: you must provide a prompt."


IMAGES: Rules = MappingProxyType(
    {
        "model_required": model_required,
        "unknown_field": _foreign_field(_OURS),
        "prompt_required": _prompt_required,
    }
)


def _check_id(place: str, call_id: str, limit: int) -> Iterator[str]:
    if not call_id:
        yield f"{place}: the id of a call cannot be empty."
    elif len(call_id) > limit:
        yield f"{place}: string too long: expected at most {limit}, got {len(call_id)} characters."
