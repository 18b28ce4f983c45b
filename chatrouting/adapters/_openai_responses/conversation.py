"""Messages as input items of the Responses API. Pure: nothing is sent here.

What the API would refuse is put right on the copy that goes out: blank texts are left out, ids of
tool calls are made legal, a call without a result gets one that says so, a result without its call
becomes text, and reasoning goes back only to whom it came from. Ids of items are never sent: they
mean nothing without stored responses.
"""

import mimetypes
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from chatrouting.adapters._call_ids import CallIds
from chatrouting.adapters._outbound import (
    NOT_CARRIED_OUT,
    ORPHAN,
    arguments_text,
    cannot_carry,
    data_url,
)
from chatrouting.contents import (
    Content,
    DataContent,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCallContent,
    ToolResultContent,
    UriContent,
)
from chatrouting.errors import UnsupportedOptionError
from chatrouting.messages import ChatMessage, Role

Item: TypeAlias = dict[str, Any]

#: Longest `call_id` that the API takes.
MAX_CALL_ID: Final = 64

_ROLES: Final[Mapping[Role, str]] = {
    Role.SYSTEM: "system",
    Role.USER: "user",
    Role.ASSISTANT: "assistant",
    Role.TOOL: "user",  # text beside the results, which are items of their own
}


def input_items(
    messages: Iterable[ChatMessage], *, origin: str, is_continued: bool = False
) -> list[Item]:
    """Write a conversation.

    Args:
        messages: In order; a message of which nothing is left is left out.
        origin: Who is asked. Reasoning of any other origin is dropped.
        is_continued: The provider holds what came before, so that a result may answer a call of
            which nothing is known here.

    Raises:
        UnsupportedOptionError: If a content cannot be carried and must not be dropped.
    """
    writer = _Writer(origin, is_continued=is_continued)
    for message in messages:
        writer.add(message)
    return _without_dangling_reasoning(_with_all_calls_answered(writer.items))


class _Writer:
    def __init__(self, origin: str, *, is_continued: bool) -> None:
        self.items: list[Item] = []
        self._origin = origin
        self._is_continued = is_continued
        self._calls: set[str] = set()
        self._ids = CallIds(lambda call_id: len(call_id) <= MAX_CALL_ID)

    def add(self, message: ChatMessage) -> None:
        """Append the items of one message, in the order of its contents."""
        parts: list[Item] = []
        for content in message.contents:
            if isinstance(content, ReasoningContent | ToolCallContent | ToolResultContent):
                self._say(message, parts)
                parts = []
                self._add_item(content)
            else:
                parts.extend(_parts(content, message.role))
        self._say(message, parts)

    def _say(self, message: ChatMessage, parts: list[Item]) -> None:
        if not parts:
            return
        item: Item = {"type": "message", "role": _ROLES[message.role], "content": parts}
        phase = (message.additional_properties or {}).get("phase")
        if phase is not None and message.role is Role.ASSISTANT:
            item["phase"] = phase
        self.items.append(item)

    def _add_item(self, content: ReasoningContent | ToolCallContent | ToolResultContent) -> None:
        if isinstance(content, ReasoningContent):
            if content.signature and content.origin == self._origin:
                self.items.append(_reasoning(content))
        elif isinstance(content, ToolCallContent):
            self.items.append(_call(content, self._ids.of_call(content.call_id)))
            self._calls.add(self.items[-1]["call_id"])
        else:
            call_id = self._ids.of_result(content.call_id)
            is_orphan = call_id not in self._calls and not self._is_continued
            self.items.append(_orphan(content) if is_orphan else _result(content, call_id))


def _parts(content: Content, role: Role) -> list[Item]:
    """Write a content that is said, as no or one part of a message."""
    if isinstance(content, TextContent):
        kind = "output_text" if role is Role.ASSISTANT else "input_text"
        return [{"type": kind, "text": content.text}] if content.text.strip() else []
    if isinstance(content, RefusalContent):
        if role is Role.ASSISTANT:
            return [{"type": "refusal", "refusal": content.text}] if content.text.strip() else []
        return _parts(TextContent(content.text), role)
    if role is Role.ASSISTANT:
        raise _unsupported(f"{type(content).__name__} in an assistant message")
    return [_media(content)]


def _media(content: Content) -> Item:
    if not isinstance(content, DataContent | UriContent):
        raise _unsupported(f"{type(content).__name__} in the result of a tool")
    family = content.media_type.partition("/")[0]
    if family in ("audio", "video"):
        raise _unsupported(f"content of the media type {content.media_type!r}")
    url = content.uri if isinstance(content, UriContent) else data_url(content)
    if family == "image":
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if not url.startswith("data:"):
        return {"type": "input_file", "file_url": url}
    name = content.name if isinstance(content, DataContent) else None
    if name is None:
        name = "file" + (mimetypes.guess_extension(content.media_type) or "")
    return {"type": "input_file", "filename": name, "file_data": url}


def _unsupported(what: str) -> UnsupportedOptionError:
    return cannot_carry(what, "the Responses API")


def _reasoning(content: ReasoningContent) -> Item:
    summary = [{"type": "summary_text", "text": content.text}] if content.text else []
    return {"type": "reasoning", "summary": summary, "encrypted_content": content.signature}


def _call(content: ToolCallContent, call_id: str) -> Item:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": content.name,
        "arguments": arguments_text(content),
    }


def _result(content: ToolResultContent, call_id: str) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": _output(content)}


def _orphan(content: ToolResultContent) -> Item:
    """Write a result whose call is gone as what it says; the API takes it as a result no more."""
    output = _output(content)
    parts = _parts(TextContent(output), Role.TOOL) if isinstance(output, str) else output
    label = {"type": "input_text", "text": ORPHAN}
    return {"type": "message", "role": "user", "content": [label, *parts]}


def _output(content: ToolResultContent) -> str | list[Item]:
    """Write a result. The API has no mark for a failed call: the text says so."""
    if isinstance(content.result, str):
        return f"Error: {content.result}" if content.is_error else content.result
    parts = [
        part
        for item in content.result
        if not isinstance(item, ReasoningContent)
        for part in _parts(item, Role.TOOL)
    ]
    if content.is_error:
        parts.insert(0, {"type": "input_text", "text": "Error:"})
    return parts or ""


def _with_all_calls_answered(items: list[Item]) -> list[Item]:
    """Give each call an output, which the API insists on, before anything else is said."""
    answered = {item["call_id"] for item in items if item["type"] == "function_call_output"}
    complete: list[Item] = []
    missing: list[Item] = []
    for item in items:
        if item["type"] == "function_call":
            if item["call_id"] not in answered:
                missing.append(_not_carried_out(item))
        elif item["type"] != "function_call_output":
            complete.extend(missing)
            missing = []
        complete.append(item)
    return complete + missing


def _not_carried_out(call: Item) -> Item:
    return _result(ToolResultContent("", NOT_CARRIED_OUT), call["call_id"])


def _without_dangling_reasoning(items: list[Item]) -> list[Item]:
    """Leave out reasoning that what it led to does not follow: the API refuses it alone."""
    kept: list[Item] = []
    for item in reversed(items):
        if item["type"] != "reasoning" or (kept and _is_of_model(kept[-1])):
            kept.append(item)
    kept.reverse()
    return kept


def _is_of_model(item: Item) -> bool:
    return item["type"] in ("reasoning", "function_call") or item.get("role") == "assistant"
