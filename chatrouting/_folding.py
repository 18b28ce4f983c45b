"""Joining what came in pieces: contents of one message, and reports of usage."""

from dataclasses import replace
from typing import final

from chatrouting.contents import (
    Content,
    DataContent,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCallContent,
)
from chatrouting.messages import parse_arguments
from chatrouting.usage import Usage


@final
class UsageFold:
    """Reports of usage on one stream: later ones replace, those of several responses add up.

    A stream holds several responses where a client runs a loop of its own inside.
    """

    __slots__ = ("_by_response",)

    def __init__(self) -> None:
        self._by_response: dict[str | None, Usage] = {}

    def add(self, response_id: str | None, usage: Usage) -> None:
        """Take one report; `response_id` None means the response reported on last.

        An id that comes after a report without one names that response.
        """
        if response_id is None and self._by_response:
            response_id = next(reversed(self._by_response))
        known = response_id if None not in self._by_response else None
        earlier = self._by_response.pop(known, None)
        self._by_response[response_id] = earlier.updated_by(usage) if earlier else usage

    @property
    def total(self) -> Usage | None:
        """The sum over responses; None if nothing was reported."""
        total: Usage | None = None
        for usage in self._by_response.values():
            total = usage if total is None else total + usage
        return total


def coalesce(contents: list[Content], *, is_complete: bool) -> list[Content]:
    """Join runs of one kind, and the fragments of each tool call at the place of the first."""
    if len(contents) == 1 and not isinstance(contents[0], ToolCallContent):
        return contents
    merged: list[Content] = []
    run: list[Content] = []
    calls: dict[str, list[ToolCallContent]] = {}
    places: dict[str, int] = {}
    for item in contents:
        if isinstance(item, ToolCallContent) and item.call_id in calls:
            calls[item.call_id].append(item)
            continue
        if run and not _continues(run[-1], item):
            merged.append(_join(run))
            run = []
        if isinstance(item, ToolCallContent):
            calls[item.call_id] = [item]
            places[item.call_id] = len(merged)
            merged.append(item)
        else:
            run.append(item)
    if run:
        merged.append(_join(run))
    for call_id, pieces in calls.items():
        merged[places[call_id]] = _join_call(pieces, is_complete=is_complete)
    return merged


def _continues(before: Content, item: Content) -> bool:
    if isinstance(before, ReasoningContent) and isinstance(item, ReasoningContent):
        # A signature seals what stands before it; redacted reasoning is whole as it is.
        sealed = before.signature is not None or before.is_redacted or item.is_redacted
        return not sealed and before.origin == item.origin
    if isinstance(before, DataContent) and isinstance(item, DataContent):
        same = (before.media_type, before.name) == (item.media_type, item.name)
        return same and item.media_type.startswith("text/")
    return type(before) is type(item) and isinstance(item, TextContent | RefusalContent)


def _join(run: list[Content]) -> Content:
    first = run[0]
    if len(run) == 1:
        return first
    if isinstance(first, DataContent):
        data = b"".join(item.data for item in run if isinstance(item, DataContent))
        return replace(first, data=data)
    text = "".join(
        item.text
        for item in run
        if isinstance(item, TextContent | ReasoningContent | RefusalContent)
    )
    if isinstance(first, ReasoningContent):
        last = run[-1]
        signature = last.signature if isinstance(last, ReasoningContent) else None
        return replace(first, text=text, signature=signature)
    return TextContent(text) if isinstance(first, TextContent) else RefusalContent(text)


def _join_call(pieces: list[ToolCallContent], *, is_complete: bool) -> ToolCallContent:
    """Make one call of its fragments; a whole call that comes later replaces them."""
    whole = [piece for piece in pieces if piece.arguments or piece.raw_arguments is None]
    if whole:
        return whole[-1]
    raw = "".join(piece.raw_arguments or "" for piece in pieces)
    return ToolCallContent(
        pieces[0].call_id,
        next((piece.name for piece in pieces if piece.name), ""),
        parse_arguments(raw) if is_complete else {},
        raw,
        next((p.additional_properties for p in pieces if p.additional_properties), None),
    )
