"""Conversations for servers whose chat templates are narrow. Pure.

Such a template takes system text once and first, and then users and assistants in turn. What does
not fit is joined to its neighbour: nothing is dropped and nothing changes its order.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

Item: TypeAlias = dict[str, Any]

_SYSTEM_ROLES: Final = ("system", "developer")
_GAP: Final = "\n\n"


def text_part(text: str) -> Item:
    """Write text as a part of a message."""
    return {"type": "text", "text": text}


def alternating(items: Iterable[Item]) -> list[Item]:
    """Join turns of one role, and system text to one at the start or to the user's turn."""
    turns: list[Item] = []
    for item in items:
        turn = item
        if item["role"] in _SYSTEM_ROLES and turns and turns[-1]["role"] not in _SYSTEM_ROLES:
            turn = {**item, "role": "user"}
        if turns and _belong_together(turns[-1], turn):
            turns[-1] = _joined(turns[-1], turn)
        else:
            turns.append(turn)
    return turns


def _belong_together(turn: Item, item: Item) -> bool:
    # Behind tool calls stand their results; a tool message answers one call.
    return turn["role"] == item["role"] != "tool" and "tool_calls" not in turn


def _joined(turn: Item, item: Item) -> Item:
    return {**turn, **item, "content": _joined_content(turn["content"], item["content"])}


def _joined_content(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, str) and isinstance(second, str):
        return first + _GAP + second
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: str | list[Item]) -> list[Item]:
    return [text_part(content)] if isinstance(content, str) else content
