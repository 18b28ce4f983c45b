"""Answers that hold more than our contents can: server tools, citations.

Such an answer is kept as it came, in the message's `additional_properties["anthropic"]`, and is
replayed block for block to the same issuer; a paused turn goes on only so. A message that was
edited meanwhile is sent as it reads now.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from chatrouting.contents import ToolCallContent
from chatrouting.messages import ChatMessage

KEY: Final = "anthropic"

_PLAIN: Final = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})


def keep(blocks: Sequence[Mapping[str, Any]], origin: str) -> dict[str, Any] | None:
    """Return the properties of a message with these blocks; None if its contents say it all."""
    if all(map(_is_plain, blocks)):
        return None
    return {KEY: {"origin": origin, "content": list(blocks)}}


def _is_plain(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and kind in _PLAIN and not block.get("citations")


def kept_blocks(message: ChatMessage, origin: str) -> Sequence[Mapping[str, Any]] | None:
    """Return the blocks to replay for a message; None if it is to be written from its contents."""
    kept = (message.additional_properties or {}).get(KEY)
    if not isinstance(kept, Mapping):
        return None
    properties = cast("Mapping[str, Any]", kept)
    if properties.get("origin") != origin:
        return None
    blocks = cast("Sequence[Mapping[str, Any]]", properties.get("content") or ())
    return blocks if _says_the_same(blocks, message) else None


def _says_the_same(blocks: Sequence[Mapping[str, Any]], message: ChatMessage) -> bool:
    text = "".join(str(block.get("text")) for block in blocks if block.get("type") == "text")
    calls = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    return text == message.text and calls == [
        content.call_id for content in message.contents if isinstance(content, ToolCallContent)
    ]
