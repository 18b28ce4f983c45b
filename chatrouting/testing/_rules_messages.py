"""What a strict server checks in a body for Anthropic Messages."""

import re
from collections.abc import Iterator
from itertools import pairwise
from types import MappingProxyType

from chatrouting.testing._json import JsonObject, as_object, as_objects
from chatrouting.testing._rules import Rules, Subject, messages_required, model_required

_FIELD = re.compile(
    "anthropic_version|billing_policy|cache_control|container|context_management|diagnostics"
    "|fallbacks|inference_geo|max_tokens|mcp_servers|messages|metadata|model|output_config"
    "|output_format|service_tier|speed|stop_sequences|stream|system|temperature|thinking"
    "|tool_choice|tools|top_k|top_p|user_profile_id"
)
_ID = re.compile(r"[a-zA-Z0-9_-]+")


def _blocks(message: JsonObject) -> list[JsonObject]:
    """Give the content as blocks; a text is one of them."""
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else as_objects(content)


def _turns(subject: Subject) -> list[tuple[int, JsonObject]]:
    """Give the numbered messages of user and assistant; a system message is no turn."""
    return [
        (number, message)
        for number, message in enumerate(subject.messages)
        if message.get("role") != "system"
    ]


def _unknown_field(subject: Subject) -> Iterator[str]:
    for name in subject.body:
        if not _FIELD.fullmatch(name):
            yield f"{name}: extra inputs are not permitted."


def _max_tokens(subject: Subject) -> Iterator[str]:
    value = subject.body.get("max_tokens")
    if value is None:
        yield "max_tokens: field required."
    elif not isinstance(value, int) or value < 1:
        yield "max_tokens: must be an integer greater than or equal to 1."


def _sampling(subject: Subject) -> Iterator[str]:
    for name in ("temperature", "top_p", "top_k"):
        value = subject.body.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{name}: input should be a valid number."


def _tools(subject: Subject) -> Iterator[str]:
    for number, tool in enumerate(as_objects(subject.body.get("tools"))):
        schema = as_object(tool.get("input_schema"))
        if tool.get("type", "custom") == "custom" and schema.get("type") != "object":
            yield f"tools.{number}.input_schema.type: input should be 'object'."


def _roles(subject: Subject) -> Iterator[str]:
    for number, message in enumerate(subject.messages):
        if message.get("role") not in {"user", "assistant", "system"}:
            yield f"messages.{number}.role: input should be 'user' or 'assistant'."


def _first_turn(subject: Subject) -> Iterator[str]:
    if subject.messages[0].get("role") != "user":
        yield "messages.0: the first message must use the user role."


def _alternation(subject: Subject) -> Iterator[str]:
    turns = _turns(subject)
    for (_, before), (number, message) in pairwise(turns):
        if before.get("role") == message.get("role"):
            yield (
                f"messages.{number}: roles must alternate between user and assistant, "
                f"but found several {message.get('role')} roles in a row."
            )


def _content_required(subject: Subject) -> Iterator[str]:
    for number, message in enumerate(subject.messages):
        if not _blocks(message):
            yield f"messages.{number}: all messages must have non-empty content."


def _blank_text(subject: Subject) -> Iterator[str]:
    places = [(f"messages.{number}", message) for number, message in enumerate(subject.messages)]
    if "system" in subject.body:
        places.insert(0, ("system", {"content": subject.body["system"]}))
    for place, message in places:
        for block in _with_results(_blocks(message)):
            if block.get("type") == "text" and not str(block.get("text") or "").strip():
                yield f"{place}: text content blocks must contain non-whitespace text."


def _with_results(blocks: list[JsonObject]) -> Iterator[JsonObject]:
    """Give the blocks, and those inside tool results."""
    for block in blocks:
        yield block
        if block.get("type") == "tool_result":
            yield from as_objects(block.get("content"))


def _trailing_whitespace(subject: Subject) -> Iterator[str]:
    last = subject.messages[-1]
    text = (_blocks(last) or [JsonObject()])[-1].get("text")
    if last.get("role") == "assistant" and isinstance(text, str) and text != text.rstrip():
        yield "messages: final assistant content cannot end with trailing whitespace."


def _ids(message: JsonObject, kind: str, field: str) -> list[str]:
    return [str(block.get(field)) for block in _blocks(message) if block.get("type") == kind]


def _tool_ids(subject: Subject) -> Iterator[str]:
    for number, message in enumerate(subject.messages):
        for kind, field in (("tool_use", "id"), ("tool_result", "tool_use_id")):
            for one in _ids(message, kind, field):
                if not _ID.fullmatch(one):
                    yield (
                        f"messages.{number}.content: {kind}.{field}: string should match "
                        f"pattern '^[a-zA-Z0-9_-]+$', got {one!r}."
                    )


def _tool_input(subject: Subject) -> Iterator[str]:
    for number, message in enumerate(subject.messages):
        for block in _blocks(message):
            if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict):
                yield f"messages.{number}.content: tool_use.input: input should be an object."


def _results_follow(subject: Subject) -> Iterator[str]:
    turns = _turns(subject)
    for (number, message), (_, after) in zip(turns, [*turns[1:], (0, JsonObject())], strict=True):
        results = _ids(after, "tool_result", "tool_use_id")
        missing = [one for one in _ids(message, "tool_use", "id") if one not in results]
        if missing:
            yield (
                f"messages.{number}: tool_use ids were found without tool_result blocks "
                f"immediately after: {', '.join(missing)}."
            )


def _results_belong(subject: Subject) -> Iterator[str]:
    turns = _turns(subject)
    for (_, before), (number, message) in zip([(0, JsonObject()), *turns], turns, strict=False):
        calls = _ids(before, "tool_use", "id")
        results = _ids(message, "tool_result", "tool_use_id")
        strays = [one for one in results if one not in calls]
        if strays or len(set(results)) < len(results):
            yield (
                f"messages.{number}: each tool_result block must have exactly one corresponding "
                f"tool_use block in the previous message; wrong: {', '.join(strays or results)}."
            )


def _results_first(subject: Subject) -> Iterator[str]:
    for number, message in enumerate(subject.messages):
        kinds = [block.get("type") == "tool_result" for block in _blocks(message)]
        if kinds != sorted(kinds, reverse=True):
            yield f"messages.{number}: tool_result blocks must come before all other content."


def _signatures(subject: Subject) -> Iterator[str]:
    for number, message in enumerate(subject.messages):
        for block in _blocks(message):
            if not _is_genuine(block, subject):
                yield f"messages.{number}.content: Invalid signature in thinking block."


def _is_genuine(block: JsonObject, subject: Subject) -> bool:
    if block.get("type") == "thinking":
        text = subject.issued.get(str(block.get("signature")))
        return text is not None and text == str(block.get("thinking"))
    return block.get("type") != "redacted_thinking" or block.get("data") in subject.issued.values()


MESSAGES: Rules = MappingProxyType(
    {
        "model_required": model_required,
        "max_tokens_required": _max_tokens,
        "unknown_field": _unknown_field,
        "sampling_numbers": _sampling,
        "tool_schema": _tools,
        "messages_required": messages_required,
        "role": _roles,
        "first_turn_user": _first_turn,
        "roles_alternate": _alternation,
        "content_required": _content_required,
        "blank_text": _blank_text,
        "trailing_whitespace": _trailing_whitespace,
        "tool_id": _tool_ids,
        "tool_input": _tool_input,
        "results_follow": _results_follow,
        "results_belong": _results_belong,
        "results_first": _results_first,
        "signature": _signatures,
    }
)
