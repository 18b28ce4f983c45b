"""Messages as Chat Completions wants them. Pure: nothing is sent here.

What the API would refuse is put right on the copy that goes out: blank texts are left out, ids of
tool calls are made legal, results stand behind their calls, a call without a result gets one that
says so, a result without its call becomes text, and reasoning goes back only to whom it came from.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from chatrouting.adapters._call_ids import CallIds
from chatrouting.adapters._openai_chat.alternation import alternating, text_part
from chatrouting.adapters._outbound import (
    NOT_CARRIED_OUT,
    ORPHAN,
    arguments_text,
    base64_text,
    cannot_carry,
    data_url,
    nothing_to_send,
)
from chatrouting.adapters.dialects import Dialect
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

_MAX_CALL_ID: Final = 40
_NINE_ALPHANUMERICS: Final = re.compile(r"[a-zA-Z0-9]{9}")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_AUDIO_FORMATS: Final = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
}


def chat_messages(
    messages: Iterable[ChatMessage], dialect: Dialect, *, instructions: str | None = None
) -> list[Item]:
    """Write a conversation.

    Args:
        messages: In order; a message of which nothing is left is left out.
        dialect: Whom it goes to.
        instructions: System text that stands first.

    Raises:
        UnsupportedOptionError: If a content cannot be carried and must not be dropped.
        BadRequestError: If nothing is left to be sent.
    """
    writer = _Writer(dialect)
    if instructions and instructions.strip():
        writer.say_as_system(instructions)
    for message in messages:
        writer.add(message)
    items = writer.finish()
    if not items:
        raise nothing_to_send()
    return alternating(items) if dialect.needs_alternation else items


class _Calls:
    """The calls of one assistant message, and what answers them."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = ids
        self.results: dict[str, Item] = {}
        #: What results hold besides text; follows them as a user message.
        self.media: list[Item] = []

    def items(self) -> Iterable[Item]:
        yield from self.results.values()
        for call_id in self.ids:
            if call_id not in self.results:
                yield _tool_message(call_id, NOT_CARRIED_OUT)
        if self.media:
            yield {"role": "user", "content": self.media}


class _Writer:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._entries: list[Item | _Calls] = []
        self._calls: dict[str, _Calls] = {}
        if dialect.tool_call_id_style == "mistral":
            self._ids = CallIds(
                lambda call_id: _NINE_ALPHANUMERICS.fullmatch(call_id) is not None,
                lambda digits: digits[:9],
            )
        else:
            self._ids = CallIds(lambda call_id: len(call_id) <= _MAX_CALL_ID)

    def say_as_system(self, text: str) -> None:
        self._entries.append({"role": self._dialect.system_role, "content": text})

    def add(self, message: ChatMessage) -> None:
        if message.role is Role.ASSISTANT:
            self._add_assistant(message)
        else:
            self._add_other(message)

    def finish(self) -> list[Item]:
        """Return all messages, each result behind its call."""
        items: list[Item] = []
        for entry in self._entries:
            items.extend(entry.items() if isinstance(entry, _Calls) else (entry,))
        return items

    def _add_other(self, message: ChatMessage) -> None:
        parts: list[Item] = []
        for content in message.contents:
            if isinstance(content, ToolResultContent):
                parts.extend(self._add_result(content))
            else:
                parts.extend(self._parts(content))
        if not parts:
            return
        role = self._dialect.system_role if message.role is Role.SYSTEM else "user"
        item: Item = {"role": role, "content": _content(parts)}
        self._add_name(item, message)
        self._entries.append(item)

    def _add_name(self, item: Item, message: ChatMessage) -> None:
        name = message.author_name
        if name and self._dialect.supports_names and _NAME.fullmatch(name):
            item["name"] = name

    def _add_result(self, result: ToolResultContent) -> list[Item]:
        """Put a result behind its call; return what is to be said instead if it has none."""
        call_id = self._ids.of_result(result.call_id)
        calls = self._calls.get(call_id)
        text, media = self._result(result)
        if calls is None or call_id in calls.results:
            said = [text_part(text)] if text.strip() else []
            return [text_part(ORPHAN), *said, *media]
        calls.results[call_id] = _tool_message(call_id, text)
        if media:
            calls.media += [text_part(f"Content of the result of {call_id}:"), *media]
        return []

    def _result(self, result: ToolResultContent) -> tuple[str, list[Item]]:
        """Write a result: its text, which tells of a failure, and the rest as parts."""
        texts: list[str] = ["Error: "] if result.is_error else []
        media: list[Item] = []
        if isinstance(result.result, str):
            texts.append(result.result)
        else:
            for content in result.result:
                if isinstance(content, TextContent | RefusalContent):
                    texts.append(content.text)
                    continue
                media.extend(self._parts(content))
                if isinstance(content, DataContent | UriContent):
                    texts.append(f"[{content.media_type}, see the next message]")
        return "".join(texts), media

    def _add_assistant(self, message: ChatMessage) -> None:
        calls = [self._call(one) for one in message.contents if isinstance(one, ToolCallContent)]
        item: Item = {"role": "assistant", "content": None, **self._said(message.contents)}
        if calls:
            item["tool_calls"] = calls
        if item == {"role": "assistant", "content": None}:
            return
        self._add_reasoning(item, message)
        self._add_name(item, message)
        self._entries.append(item)
        if calls:
            group = _Calls([call["id"] for call in calls])
            self._calls.update(dict.fromkeys(group.ids, group))
            self._entries.append(group)

    def _said(self, contents: Sequence[Content]) -> Item:
        """Write what the model said: text and refusals, neither if blank."""
        said = {"content": "", "refusal": ""}
        for content in contents:
            if isinstance(content, TextContent):
                said["content"] += content.text
            elif isinstance(content, RefusalContent):
                said["refusal" if self._dialect.supports_refusals else "content"] += content.text
            elif not isinstance(content, ReasoningContent | ToolCallContent):
                raise _unsupported(f"{type(content).__name__} in an assistant message")
        return {field: text for field, text in said.items() if text.strip()}

    def _call(self, call: ToolCallContent) -> Item:
        function = {"name": call.name, "arguments": arguments_text(call)}
        item: Item = {"id": self._ids.of_call(call.call_id), "type": "function"}
        if self._dialect.keep_tool_call_extras:
            item.update(call.additional_properties or {})
        return {**item, "function": function}

    def _add_reasoning(self, item: Item, message: ChatMessage) -> None:
        policy = self._dialect.replay_reasoning
        if policy == "never" or (policy == "with_tools" and "tool_calls" not in item):
            return
        reasoning = [
            content
            for content in message.contents
            if isinstance(content, ReasoningContent) and content.origin == self._dialect.name
        ]
        if not reasoning:
            return
        field = self._dialect.reasoning_field
        if field == "reasoning_details":
            item[field] = [detail for one in reasoning for detail in _details(one)]
        else:
            item[field] = "".join(one.text for one in reasoning)

    def _parts(self, content: Content) -> list[Item]:
        """Write a content of a message that is not the model's, as no or one part."""
        if isinstance(content, TextContent | RefusalContent):
            return [text_part(content.text)] if content.text.strip() else []
        if isinstance(content, ReasoningContent):
            return []
        if isinstance(content, DataContent):
            return [_data(content)]
        if isinstance(content, UriContent):
            return [self._uri(content)]
        raise _unsupported(f"{type(content).__name__} in a message that is not the model's")

    def _uri(self, content: UriContent) -> Item:
        if not content.media_type.startswith("image/"):
            raise _unsupported(f"a URI of the media type {content.media_type!r}")
        if not (self._dialect.image_url_allowed or content.uri.startswith("data:")):
            raise _unsupported(f"to {self._dialect.name}, an image by its URL")
        return {"type": "image_url", "image_url": {"url": content.uri}}


def _content(parts: list[Item]) -> str | list[Item]:
    """Write one text as text: some servers know nothing else."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    return parts


def _tool_message(call_id: str, text: str) -> Item:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _data(content: DataContent) -> Item:
    family = content.media_type.partition("/")[0]
    if family == "image":
        return {"type": "image_url", "image_url": {"url": data_url(content)}}
    if family == "audio" and content.media_type in _AUDIO_FORMATS:
        audio = {
            "data": base64_text(content.data),
            "format": _AUDIO_FORMATS[content.media_type],
        }
        return {"type": "input_audio", "input_audio": audio}
    if family in ("audio", "video"):
        raise _unsupported(f"content of the media type {content.media_type!r}")
    if family == "text":
        return text_part(content.data.decode("utf-8", "replace"))
    file = {"filename": content.name or "file", "file_data": data_url(content)}
    return {"type": "file", "file": file}


def _details(content: ReasoningContent) -> list[Any]:
    """Give reasoning details back as they came; the signature holds them."""
    if content.signature is None:
        return [{"type": "reasoning.text", "text": content.text}]
    try:
        details: list[Any] = json.loads(content.signature)
    except ValueError:
        return []  # not what this adapter wrote, so nobody could read it
    return details if isinstance(details, list) else []


def _unsupported(what: str) -> UnsupportedOptionError:
    return cannot_carry(what, "Chat Completions")
