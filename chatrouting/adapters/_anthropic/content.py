"""Contents as blocks of Anthropic's Messages API. Pure: one content at a time.

Which turn a block belongs to, and in what order, is the subject of `conversation`.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from chatrouting.adapters._anthropic.models import Target
from chatrouting.adapters._outbound import base64_text
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

Block: TypeAlias = dict[str, Any]

IMAGE_TYPES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_IMAGE_ALIASES: Final = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg"}
_PDF: Final = "application/pdf"
#: Sent as documents of plain text.
_TEXT_TYPES: Final = frozenset({"application/json", "application/xml", "application/yaml"})
#: Hosts of these providers fetch nothing.
_WITHOUT_URIS: Final = frozenset({"bedrock"})

#: The one key of an input made of arguments that are not a JSON object.
RAW_ARGUMENTS: Final = "raw_arguments"


def user_block(content: Content, target: Target) -> Block | None:
    """Write a content of a user turn; None if nothing of it is sent.

    Raises:
        UnsupportedOptionError: If Anthropic has no block for it.
    """
    if isinstance(content, TextContent | RefusalContent):
        return text_block(content.text)
    if isinstance(content, DataContent):
        return _data(content, target)
    if isinstance(content, UriContent):
        return _uri(content, target)
    if isinstance(content, ReasoningContent):
        return None
    raise _misplaced(content, "a user message", target)


def assistant_block(content: Content, target: Target) -> Block | None:
    """Write what the model said; None if nothing of it is sent. Tool calls have their own way.

    Raises:
        UnsupportedOptionError: If Anthropic has no block for it.
    """
    if isinstance(content, TextContent | RefusalContent):
        return text_block(content.text)
    if isinstance(content, ReasoningContent):
        return _reasoning(content, target)
    raise _misplaced(content, "an assistant message", target)


def text_block(text: str) -> Block | None:
    """Write text; None for blank text, which the API refuses."""
    return {"type": "text", "text": text} if text.strip() else None


def _reasoning(content: ReasoningContent, target: Target) -> Block | None:
    # The API refuses reasoning of anybody else, and its own without the proof.
    if content.origin != target.origin or content.signature is None:
        return None
    if content.is_redacted:
        return {"type": "redacted_thinking", "data": content.signature}
    return {"type": "thinking", "thinking": content.text, "signature": content.signature}


def call_block(content: ToolCallContent, call_id: str) -> Block:
    """Write a tool call under the id that is sent."""
    return {
        "type": "tool_use",
        "id": call_id,
        "name": content.name,
        "input": _input(content),
    }


def _input(content: ToolCallContent) -> dict[str, Any]:
    """Give the arguments as the object that the API wants, whatever the model wrote."""
    raw = content.raw_arguments
    if content.arguments or not raw or not raw.strip():
        return dict(content.arguments)
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        return {RAW_ARGUMENTS: raw}
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {RAW_ARGUMENTS: raw}


def result_block(content: ToolResultContent, call_id: str, target: Target) -> Block:
    """Write a tool's result under the id that is sent; blank results have no content.

    Raises:
        UnsupportedOptionError: If it holds something that Anthropic has no block for.
    """
    block: Block = {"type": "tool_result", "tool_use_id": call_id}
    result: str | list[Block]
    if isinstance(content.result, str):
        result = content.result if content.result.strip() else ""
    else:
        found = (user_block(item, target) for item in content.result)
        result = [item for item in found if item is not None]
    if result:
        block["content"] = result
    if content.is_error:
        block["is_error"] = True
    return block


def _data(content: DataContent, target: Target) -> Block:
    media_type = content.media_type.lower().partition(";")[0].strip()
    media_type = _IMAGE_ALIASES.get(media_type, media_type)
    if media_type in IMAGE_TYPES:
        return {"type": "image", "source": _base64(content.data, media_type)}
    if media_type == _PDF:
        return _document(_base64(content.data, media_type), content.name)
    if media_type.startswith("text/") or media_type in _TEXT_TYPES:
        text = content.data.decode("utf-8", "replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
        return _document(source, content.name)
    raise _wrong_type(content.media_type, target)


def _uri(content: UriContent, target: Target) -> Block:
    if content.uri.startswith("data:"):
        return _data(_inline(content, target), target)
    if target.provider in _WITHOUT_URIS or not content.uri.startswith(("https://", "http://")):
        scheme = content.uri.partition(":")[0][:20]
        raise target.unsupported(
            f"content by reference ({scheme!r})", "fetch it and send a DataContent."
        )
    source = {"type": "url", "url": content.uri}
    if content.media_type.startswith("image/"):
        return {"type": "image", "source": source}
    if content.media_type == _PDF:
        return _document(source, None)
    raise _wrong_type(content.media_type, target)


def _inline(content: UriContent, target: Target) -> DataContent:
    head, _, data = content.uri.removeprefix("data:").partition(",")
    media_type, _, encoding = head.rpartition(";")
    try:
        decoded = base64.b64decode(data, validate=True) if encoding == "base64" else None
    except ValueError:
        decoded = None
    if decoded is None:
        raise target.unsupported("a data URI that is not base64", "send a DataContent.")
    return DataContent(decoded, media_type or content.media_type)


def _base64(data: bytes, media_type: str) -> dict[str, str]:
    return {"type": "base64", "media_type": media_type, "data": base64_text(data)}


def _document(source: Mapping[str, str], title: str | None) -> Block:
    block: Block = {"type": "document", "source": source}
    return block if title is None else block | {"title": title}


def _wrong_type(media_type: str, target: Target) -> UnsupportedOptionError:
    return target.unsupported(
        f"content of type {media_type!r}",
        "send JPEG, PNG, GIF or WebP images, PDF or text, or use another provider.",
    )


def _misplaced(content: Content, place: str, target: Target) -> UnsupportedOptionError:
    return target.unsupported(f"{type(content).__name__} in {place}", "leave it out.")
