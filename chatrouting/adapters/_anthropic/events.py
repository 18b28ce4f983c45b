"""An answer of the Messages API as updates: one reader for streams and for whole messages.

A whole message is read as the events that would have streamed it, so both modes understand the same
things. Lenient: unknown events and deltas mean nothing, a block that was not begun begins with its
first delta, one that was not ended ends with the message.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, final

from chatrouting.adapters._anthropic.answer import (
    CallNames,
    Seam,
    finish_reason,
    properties,
    refusal,
    usage,
)
from chatrouting.adapters._anthropic.raw import keep
from chatrouting.adapters._errors import Errors
from chatrouting.adapters._json import Json, as_object, as_objects, as_text, loads
from chatrouting.contents import Content, ReasoningContent, TextContent, ToolCallContent
from chatrouting.messages import Role
from chatrouting.policies.error_body import holds_error
from chatrouting.responses import ChatResponseUpdate

#: What a block without a beginning is taken for.
_KINDS: Final[Mapping[str, str]] = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
}


def _is_message(body: Json) -> bool:
    content = body.get("content")
    return isinstance(content, list) or (content is None and body.get("type") == "message")


class _Block:
    """A block under way."""

    __slots__ = ("call_id", "citations", "kind", "pieces", "signature", "start")

    def __init__(self, start: Json, names: CallNames) -> None:
        self.start = start
        self.kind = as_text(start.get("type"))
        self.call_id = names.of(start.get("id")) if self.kind == "tool_use" else ""
        self.pieces: list[str] = []
        self.signature = as_text(start.get("signature"))
        self.citations: list[Any] = as_objects(start.get("citations"))

    def whole(self) -> Json:
        """Return the block as it stands in a whole message."""
        if self.kind == "thinking":
            text = as_text(self.start.get("thinking")) + "".join(self.pieces)
            return {"type": "thinking", "thinking": text, "signature": self.signature}
        if self.kind == "text" and (self.pieces or self.citations):
            text = as_text(self.start.get("text")) + "".join(self.pieces)
            return {**self.start, "text": text, "citations": self.citations or None}
        if self.pieces:
            return {**self.start, "input": _parsed("".join(self.pieces))}
        return self.start


def _parsed(raw: str) -> Any:
    try:
        return loads(raw)
    except ValueError:
        return {}


def _written(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False) if arguments else "{}"


@final
class MessagesParser:
    """Reads the events of one message.

    Attributes:
        is_complete: The reason of the end was read; a body that ends now is whole.
        is_terminal: `message_stop` or an error was read: nothing follows.
    """

    def __init__(self, errors: Errors, *, origin: str, trimmed: str) -> None:
        """Start before the first event.

        Args:
            errors: Makes the error of an error event.
            origin: Who issues the reasoning of the message.
            trimmed: White space taken from the text that the message goes on from.
        """
        self.is_complete = False
        self.is_terminal = False
        self._errors = errors
        self._origin = origin
        self._seam = Seam(trimmed)
        self._names = CallNames()
        self._message_id: str | None = None
        self._model: str | None = None
        self._counts: dict[str, Any] = {}
        self._blocks: dict[int, _Block] = {}
        self._closed: list[Json] = []

    def feed(self, event: str, data: str) -> Sequence[ChatResponseUpdate]:
        """Take one server-sent event; see `StreamParser`."""
        if event == "ping" or data == "[DONE]":  # sent by servers that write all streams alike
            return ()
        found = as_object(loads(data))
        updates = self._plain_text(found)
        return self._read(found, event) if updates is None else updates

    def feed_object(self, data: Json) -> Sequence[ChatResponseUpdate]:
        """Take one event that somebody else has decoded; see `StreamParser`."""
        return self._read(data, "")

    def read_whole(self, body: Json) -> Sequence[ChatResponseUpdate]:
        """Take the decoded body of a whole message; see `AnswerParser`."""
        if not _is_message(body):
            raise ValueError("a body that is no message")
        self._note(body)
        updates: list[ChatResponseUpdate] = []
        for index, block in enumerate(as_objects(body.get("content"))):
            updates += self._start_block({"index": index, "content_block": block})
            updates += self._stop_block({"index": index})
        updates = updates or self._update()
        updates[0].role = Role.ASSISTANT
        return updates + self._finish({"delta": body})

    def _plain_text(self, event: Json) -> list[ChatResponseUpdate] | None:
        """Take a piece of a block's text, which nearly all events are, by the shortest way."""
        if event.get("type") != "content_block_delta":
            return None
        index, delta = event.get("index"), as_object(event.get("delta"))
        block = self._blocks.get(index) if type(index) is int else None
        if block is None or delta.get("type") != "text_delta" or self._seam.is_open:
            return None
        text = delta.get("text")
        if type(text) is not str or not text:
            return None
        block.pieces.append(text)
        return self._update(TextContent(text))

    def _read(self, event: Json, name: str) -> Sequence[ChatResponseUpdate]:
        """Return the updates that an event makes; `name` stood in front of it."""
        kind = as_text(event.get("type")) or name
        if kind == "content_block_delta":
            return self._read_delta(event)
        if kind == "error" or name == "error" or holds_error(event):
            self.is_terminal = True
            raise self._errors.of_answer(status=200, headers={}, body=event)
        reader = self._READERS.get(kind)
        return () if reader is None else reader(self, event)

    def _start(self, event: Json) -> list[ChatResponseUpdate]:
        self._note(as_object(event.get("message")))
        updates = self._update()
        updates[0].role, updates[0].usage = Role.ASSISTANT, usage(self._counts)
        return updates

    def _note(self, message: Json) -> None:
        self._message_id = as_text(message.get("id")) or None
        self._model = as_text(message.get("model")) or None
        self._count(message)

    def _count(self, event: Json) -> None:
        # Counts are cumulative: a later one replaces, it is never added.
        for name, value in as_object(event.get("usage")).items():
            if value is not None:
                self._counts[name] = value

    def _update(self, *contents: Content) -> list[ChatResponseUpdate]:
        update = ChatResponseUpdate(contents)  # by keyword it is slower
        update.message_id = update.response_id = self._message_id
        update.model = self._model
        return [update]

    def _start_block(self, event: Json) -> list[ChatResponseUpdate]:
        index = event.get("index")
        start = as_object(event.get("content_block"))
        unnamed = len(self._closed) + len(self._blocks)
        block = self._open(index if isinstance(index, int) else unnamed, start)
        if block.kind == "text":
            return self._say(as_text(start.get("text")))
        if block.kind == "thinking":
            return self._think(as_text(start.get("thinking")))
        if block.kind == "redacted_thinking":
            data = as_text(start.get("data"))
            return self._update(ReasoningContent("", data, self._origin, is_redacted=True))
        if block.kind == "tool_use":
            name = as_text(start.get("name"))
            return self._update(ToolCallContent(block.call_id, name, {}, ""))
        return []

    def _open(self, index: int, start: Json) -> _Block:
        block = self._blocks[index] = _Block(start, self._names)
        return block

    def _read_delta(self, event: Json) -> list[ChatResponseUpdate]:
        """Read what most events are."""
        delta = as_object(event.get("delta"))
        kind = as_text(delta.get("type"))
        block = self._block(event.get("index"), kind)
        if block is None:
            return []
        if kind == "text_delta":
            text = as_text(delta.get("text"))
            block.pieces.append(text)
            return self._say(text)
        if kind == "thinking_delta":
            text = as_text(delta.get("thinking"))
            block.pieces.append(text)
            return self._think(text)
        if kind == "input_json_delta":
            return self._argue(block, as_text(delta.get("partial_json")))
        if kind == "signature_delta":
            block.signature += as_text(delta.get("signature"))
        elif kind == "citations_delta" and delta.get("citation") is not None:
            block.citations.append(delta["citation"])
        return []

    def _block(self, index: object, kind: str) -> _Block | None:
        """Find the block of a delta: the one named, else the last one, else a new one."""
        if isinstance(index, int) and index in self._blocks:
            return self._blocks[index]
        if index is None and self._blocks:
            return self._blocks[next(reversed(self._blocks))]
        if kind not in _KINDS:
            return None
        return self._open(index if isinstance(index, int) else 0, {"type": _KINDS[kind]})

    def _say(self, text: str) -> list[ChatResponseUpdate]:
        text = self._seam.take(text)
        return self._update(TextContent(text)) if text else []

    def _think(self, text: str) -> list[ChatResponseUpdate]:
        return self._update(ReasoningContent(text, None, self._origin)) if text else []

    def _argue(self, block: _Block, raw: str) -> list[ChatResponseUpdate]:
        if not raw:
            return []
        block.pieces.append(raw)
        # The input of a server's tool is streamed too, but is not ours to answer.
        return self._update(ToolCallContent(block.call_id, "", {}, raw)) if block.call_id else []

    def _stop_block(self, event: Json) -> list[ChatResponseUpdate]:
        index = event.get("index")
        if not isinstance(index, int):
            index = next(reversed(self._blocks), 0)
        block = self._blocks.pop(index, None)
        return [] if block is None else self._close(block)

    def _close(self, block: _Block) -> list[ChatResponseUpdate]:
        self._closed.append(block.whole())
        if block.kind == "text":
            text = self._seam.take("", is_last=True)
            return self._update(TextContent(text)) if text else []
        if block.kind == "thinking" and block.signature:
            return self._update(ReasoningContent("", block.signature, self._origin))
        if block.kind == "tool_use" and not block.pieces:
            raw = _written(block.start.get("input"))
            return self._update(ToolCallContent(block.call_id, "", {}, raw))
        return []

    def _finish(self, event: Json) -> list[ChatResponseUpdate]:
        delta = as_object(event.get("delta"))
        updates: list[ChatResponseUpdate] = []
        reason = finish_reason(delta.get("stop_reason"))
        if reason is not None:
            self.is_complete = True
            updates += self._close_all()
        self._count(event)
        updates += self._rest(refusal(delta))
        updates.append(
            ChatResponseUpdate(
                response_id=self._message_id,
                model=self._model,
                finish_reason=reason,
                usage=usage(self._counts),
                additional_properties=properties(delta, self._counts),
            )
        )
        return updates

    def _close_all(self) -> list[ChatResponseUpdate]:
        updates = [update for block in self._blocks.values() for update in self._close(block)]
        self._blocks.clear()
        return updates

    def _rest(self, contents: tuple[Content, ...]) -> list[ChatResponseUpdate]:
        kept = keep(self._closed, self._origin)
        if not contents and kept is None:
            return []
        updates = self._update(*contents)
        updates[0].additional_properties = kept
        return updates

    def _stop(self, event: Json) -> list[ChatResponseUpdate]:  # noqa: ARG002
        self.is_complete = self.is_terminal = True
        return self._close_all()

    _READERS: ClassVar[Mapping[str, Callable[[Any, Json], list[ChatResponseUpdate]]]] = {
        "message_start": _start,
        "content_block_start": _start_block,
        "content_block_stop": _stop_block,
        "message_delta": _finish,
        "message_stop": _stop,
    }
