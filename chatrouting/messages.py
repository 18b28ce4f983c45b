"""Messages, and the forms in which callers may write them.

`as_messages` takes text, messages, mappings as the SDKs spell them, and iterables of those.
What a mapping may hold is read here once; turning messages into what a provider expects is the
adapters' work.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, cast

from chatrouting._frozen import frozen
from chatrouting.contents import (
    Content,
    ContentsInput,
    DataContent,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCallContent,
    ToolResultContent,
    UriContent,
    as_contents,
)


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True, init=False)
class ChatMessage:
    """One message of a conversation.

    Attributes:
        role: Who speaks.
        contents: What is said, as a tuple.
        author_name: Name of the speaker, where there are several.
        message_id: The provider's id of the message.
        additional_properties: Whatever else a provider said about the message.
    """

    role: Role
    contents: tuple[Content, ...]
    author_name: str | None
    message_id: str | None
    additional_properties: Mapping[str, Any] | None

    def __init__(
        self,
        role: Role | str,
        contents: ContentsInput,
        *,
        author_name: str | None = None,
        message_id: str | None = None,
        additional_properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a message; text and single contents are put into a tuple.

        Raises:
            ValueError: If `role` is not one of `Role`.
            TypeError: If `contents` holds something that is neither text nor content.
        """
        put = object.__setattr__
        put(self, "role", role if isinstance(role, Role) else _role(role))
        put(self, "contents", as_contents(contents))
        put(self, "author_name", author_name)
        put(self, "message_id", message_id)
        put(self, "additional_properties", frozen(additional_properties))

    @property
    def text(self) -> str:
        """The text contents, joined."""
        return "".join(item.text for item in self.contents if isinstance(item, TextContent))


MessagesInput: TypeAlias = (
    str | ChatMessage | Mapping[str, Any] | Iterable[ChatMessage | Mapping[str, Any] | str]
)


class _Messages(tuple[ChatMessage, ...]):
    """Messages that were read already: each router and each adapter asks for them again."""

    __slots__ = ()


def as_messages(value: MessagesInput) -> tuple[ChatMessage, ...]:
    """Return messages as a tuple, reading an iterable once.

    Args:
        value: Text (one user message), a message, a mapping with `role` and `content` as the
            OpenAI and Anthropic SDKs spell it, or an iterable of those.

    Raises:
        TypeError: If `value` is None or an item is none of these.
        ValueError: If a mapping has an unknown role or an unknown kind of part.
    """
    if type(value) is _Messages:
        return value
    items: Any = value
    if type(value) is tuple or type(value) is list:
        for item in items:
            if type(item) is not ChatMessage:
                return _Messages(map(_as_message, items))
        return _Messages(items)
    if isinstance(value, str | ChatMessage | Mapping):
        return _Messages((_as_message(items),))
    if not isinstance(value, Iterable) or isinstance(value, bytes):
        raise TypeError(_not_messages(value))
    return _Messages(map(_as_message, items))


def _as_message(value: ChatMessage | Mapping[str, Any] | str) -> ChatMessage:
    if isinstance(value, ChatMessage):
        return value
    if isinstance(value, str):
        return ChatMessage(Role.USER, value)
    if isinstance(value, (dict, Mapping)):  # a dict is known without asking the abstract class
        return _from_mapping(value)
    raise TypeError(_not_messages(value))


def _not_messages(value: object) -> str:
    return (
        f"messages are {type(value).__name__}; expected text, a ChatMessage, a mapping with "
        "'role' and 'content', or an iterable of those."
    )


def _role(value: object) -> Role:
    if value == "developer":
        return Role.SYSTEM
    try:
        return Role(cast("str", value))
    except ValueError:
        known = ", ".join(Role)
        raise ValueError(f"role {value!r} is not known; use one of {known}.") from None


def _from_mapping(value: Mapping[str, Any]) -> ChatMessage:
    if "role" not in value:
        raise ValueError(f"a message mapping needs 'role'; got the keys {sorted(value)}.")
    role = _role(value["role"])
    contents = _parts(value.get("content"))
    if role is Role.TOOL and "tool_call_id" in value:
        contents = (ToolResultContent(str(value["tool_call_id"]), _result(contents)),)
    elif _are_results(contents):
        role = Role.TOOL
    if value.get("refusal"):
        contents += (RefusalContent(str(value["refusal"])),)
    calls = tuple(map(_openai_call, value.get("tool_calls") or ()))
    return ChatMessage(role, contents + calls, author_name=value.get("name"))


def _are_results(contents: tuple[Content, ...]) -> bool:
    for item in contents:
        if not isinstance(item, ToolResultContent):
            return False
    return bool(contents)


def _result(contents: tuple[Content, ...]) -> str | tuple[Content, ...]:
    first = contents[0] if len(contents) == 1 else None
    return first.text if isinstance(first, TextContent) else contents


def _parts(value: Any) -> tuple[Content, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (TextContent(value),)
    kind = type(value).__name__
    parts: Any = value
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"'content' is {kind}; expected text, None or a list of parts.")
    return tuple(map(_part, parts))


def _part(value: Any) -> Content:
    if not isinstance(value, Mapping):
        return as_contents([value])[0]
    part = cast("Mapping[str, Any]", value)
    kind = str(part.get("type"))
    reader = _READERS.get(kind)
    if reader is None:
        raise ValueError(
            f"content part of type {kind!r} is not known; use one of {sorted(_READERS)} "
            "or a content object."
        )
    try:
        return reader(part)
    except KeyError as error:
        raise ValueError(f"content part of type {kind!r} lacks {error.args[0]!r}.") from error


def _openai_call(value: Mapping[str, Any]) -> ToolCallContent:
    try:
        function = value["function"]
        call_id, name = str(value["id"]), str(function["name"])
    except KeyError as error:
        raise ValueError(f"tool call lacks {error.args[0]!r}.") from error
    raw = str(function.get("arguments") or "{}")
    return ToolCallContent(call_id, name, parse_arguments(raw), raw)


def parse_arguments(raw: str) -> dict[str, Any]:
    """Parse the arguments of a tool call; {} when the text is not a JSON object."""
    try:
        parsed = json.loads(raw)
        return frozen(cast("dict[str, Any]", parsed)) if isinstance(parsed, dict) else {}
    except (ValueError, RecursionError):
        return {}


def _text(part: Mapping[str, Any]) -> Content:
    return TextContent(str(part["text"]))


def _image_url(part: Mapping[str, Any]) -> Content:
    image: Any = part["image_url"]
    return _from_url(image if isinstance(image, str) else str(image["url"]), "image/*")


def _source(part: Mapping[str, Any]) -> Content:
    source = part["source"]
    default = "image/*" if part["type"] == "image" else "application/pdf"
    if source["type"] == "url":
        return UriContent(str(source["url"]), default)
    if source["type"] == "base64":
        media_type = str(source.get("media_type", default))
        return DataContent(_decode(str(source["data"])), media_type, part.get("title"))
    raise ValueError(f"source of type {source['type']!r} is not known; use 'url' or 'base64'.")


def _file(part: Mapping[str, Any]) -> Content:
    file = part.get("file", part)
    content = _from_url(str(file["file_data"]), "application/pdf")
    if isinstance(content, DataContent):
        return DataContent(content.data, content.media_type, file.get("filename"))
    return content


def _audio(part: Mapping[str, Any]) -> Content:
    audio = part["input_audio"]
    return DataContent(_decode(str(audio["data"])), f"audio/{audio['format']}")


def _from_url(url: str, media_type: str) -> Content:
    if not url.startswith("data:"):
        return UriContent(url, media_type)
    head, _, data = url[len("data:") :].partition(",")
    if not head.endswith(";base64"):
        raise ValueError("a data URL must be base64-encoded; use DataContent for other bytes.")
    return DataContent(_decode(data), head.removesuffix(";base64") or media_type)


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError("the data of a content part is not base64.") from error


def _tool_use(part: Mapping[str, Any]) -> Content:
    return ToolCallContent(str(part["id"]), str(part["name"]), dict(part["input"]))


def _tool_result(part: Mapping[str, Any]) -> Content:
    content = part.get("content", "")
    result = content if isinstance(content, str) else _parts(content)
    return ToolResultContent(str(part["tool_use_id"]), result, bool(part.get("is_error")))


_READERS: dict[str, Callable[[Mapping[str, Any]], Content]] = {
    "text": _text,
    "input_text": _text,
    "output_text": _text,
    "refusal": lambda part: RefusalContent(str(part["refusal"])),
    "image_url": _image_url,
    "input_image": _image_url,
    "image": _source,
    "document": _source,
    "file": _file,
    "input_file": _file,
    "input_audio": _audio,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    # Without knowing who issued it, reasoning cannot be sent back: the origin stays unset.
    "thinking": lambda part: ReasoningContent(str(part["thinking"]), part.get("signature")),
    "redacted_thinking": lambda part: ReasoningContent("", str(part["data"]), is_redacted=True),
}
