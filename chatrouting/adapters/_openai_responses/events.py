"""The events of a streamed response, as updates. Pure: bytes and time are somebody else's.

The deltas are the answer; what comes after them only fills gaps. Servers that leave out deltas send
the text with the end of the part, of the item or of the response, and each of these is looked at
in turn, so a whole answer is no more than a last event that nothing came before.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeAlias, final

from chatrouting.adapters._errors import Errors
from chatrouting.adapters._json import Json, as_object, as_objects, as_text, as_time, loads
from chatrouting.adapters._openai_responses.answer import (
    conversation_id,
    finish_reason,
    is_pending,
    message_parts,
    properties,
    reasoning_parts,
    usage,
)
from chatrouting.contents import (
    Content,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCallContent,
)
from chatrouting.errors import ChatClientError
from chatrouting.messages import Role, parse_arguments
from chatrouting.responses import ChatResponseUpdate

Updates: TypeAlias = list[ChatResponseUpdate]
PartKey: TypeAlias = "tuple[str, int] | int"

#: What stands between the parts of a summary, which are paragraphs.
_PARAGRAPH: Final = "\n\n"


class _Item:
    """An output item under way: who it is, and what of it was handed out."""

    __slots__ = (
        "arguments",
        "call_id",
        "has_place",
        "is_done",
        "kind",
        "message_id",
        "name",
        "sent",
    )

    def __init__(self, kind: str, *, has_place: bool) -> None:
        self.kind = kind
        self.has_place = has_place
        self.message_id: str | None = None
        self.call_id = ""
        self.name = ""
        self.arguments = ""
        self.sent: set[PartKey] = set()  #: Parts of which text was handed out.
        self.is_done = False


@final
class ResponsesParser:
    """Reads the events of one response.

    Attributes:
        is_complete: The event that proves a whole answer was seen.
        is_terminal: The same event, or an error: nothing comes after it.
    """

    def __init__(self, errors: Errors, origin: str, *, is_stored: bool) -> None:
        """Start before the first event.

        Args:
            errors: Makes the error of a response that failed.
            origin: Stamped on reasoning, so that it goes back only to who issued it.
            is_stored: Whether the provider was asked to keep the answer.
        """
        self.is_complete = False
        self.is_terminal = False
        self._errors = errors
        self._origin = origin
        self._is_stored = is_stored
        self._response_id: str | None = None
        self._has_begun = False
        self._call_count: dict[str, int] = {}
        self._items: dict[object, _Item] = {}

    def feed(self, event: str, data: str) -> Updates:
        """Take one server-sent event, whose own `type` counts more; see `StreamParser`."""
        if data == "[DONE]":  # sent by servers that write all their streams alike
            return []
        found = as_object(loads(data))
        updates = self._plain_text(found)
        return self._take(event, found) if updates is None else updates

    def feed_object(self, data: Json) -> Updates:
        """Take one event that somebody else has decoded; see `StreamParser`."""
        return self._take("", data)

    def _plain_text(self, event: Json) -> Updates | None:
        """Take a piece of a message's text, which nearly all events are, by the shortest way."""
        if event.get("type") != "response.output_text.delta":
            return None
        index, part, text = map(event.get, ("output_index", "content_index", "delta"))
        item = self._items.get(index) if type(index) is int else None
        if item is None or type(part) is not int or type(text) is not str or not text:
            return None
        item.sent.add(part)
        update = ChatResponseUpdate((TextContent(text),))  # by keyword it is slower
        update.response_id, update.message_id = self._response_id, item.message_id
        return [update]

    def _take(self, name: str, event: Json) -> Updates:
        kind = as_text(event.get("type")) or name
        handler = self._HANDLERS.get(kind)
        if handler is not None:
            return handler(self, event)
        if kind == "error" or event.get("error"):
            raise self._failure(event)
        return []

    def _failure(self, body: Json) -> ChatClientError:
        self.is_terminal = True
        return self._errors.of_answer(status=200, headers={}, body=body)

    def read_whole(self, body: Json) -> Updates:
        """Take the decoded body of a whole answer; see `AnswerParser`."""
        if body.get("status") == "failed":
            raise self._failure(body)
        if not isinstance(body.get("output"), list):
            raise ValueError("a body that is no response object")  # noqa: TRY004  # not a bug
        if is_pending(body) and not body.get("background"):
            raise ValueError(f"a response that is {body['status']!r}")
        return self._finish(body)

    def _finish(self, response: Json) -> Updates:
        """Take the response object that ends the answer; it may be all there is."""
        updates = self._begin(response)
        for index, item in enumerate(as_objects(response.get("output"))):
            updates += self._finish_item(self._find(index, item.get("id")), item, index)
        self.is_complete = self.is_terminal = True
        updates.append(
            self._update(
                (),
                model=as_text(response.get("model")) or None,
                finish_reason=finish_reason(response, has_calls=bool(self._call_count)),
                usage=usage(response),
                conversation_id=conversation_id(response, is_stored=self._is_stored),
                continuation_token=self._response_id if is_pending(response) else None,
                additional_properties=properties(response),
            )
        )
        return updates

    # -- the response ----------------------------------------------------------------------------

    def _begin(self, response: Json) -> Updates:
        if self._has_begun:
            return []
        self._has_begun = True
        self._response_id = as_text(response.get("id")) or None
        return [
            self._update(
                (),
                role=Role.ASSISTANT,
                model=as_text(response.get("model")) or None,
                created_at=as_time(response.get("created_at")),
            )
        ]

    def _on_begin(self, event: Json) -> Updates:
        return self._begin(as_object(event.get("response")))

    def _on_end(self, event: Json) -> Updates:
        return self._finish(as_object(event.get("response")))

    def _on_failed(self, event: Json) -> Updates:
        raise self._failure(as_object(event.get("response")))

    def _update(self, contents: tuple[Content, ...], **facts: Any) -> ChatResponseUpdate:
        return ChatResponseUpdate(contents, response_id=self._response_id, **facts)

    # -- items -----------------------------------------------------------------------------------

    def _find(self, index: object, item_id: object) -> _Item | None:
        """Look an item up by its place, or by its id where a server leaves out the place."""
        has_place = isinstance(index, int)
        found = self._items.get(index) if has_place else None
        if found is None and isinstance(item_id, str):
            found = self._items.get(item_id)
            if has_place and found is not None and found.has_place:
                return None  # another item of the same id
        return found

    def _item_of(self, event: Json) -> _Item | None:
        return self._find(event.get("output_index"), event.get("item_id"))

    def _on_item_added(self, event: Json) -> Updates:
        return self._open_item(as_object(event.get("item")), event.get("output_index"))[1]

    def _open_item(self, item: Json, index: object) -> tuple[_Item, Updates]:
        opened = _Item(as_text(item.get("type")), has_place=isinstance(index, int))
        item_id = as_text(item.get("id"))
        if opened.has_place:
            self._items[index] = opened
        if item_id:
            self._items[item_id] = opened
        if opened.kind == "message":
            return opened, self._open_message(opened, item, item_id)
        if opened.kind == "function_call":
            return opened, self._open_call(opened, item, item_id or f"call_{index}")
        return opened, []

    def _open_message(self, opened: _Item, item: Json, item_id: str) -> Updates:
        opened.message_id = item_id or None
        phase = item.get("phase")
        return [
            self._update(
                (),
                role=Role.ASSISTANT,
                message_id=opened.message_id,
                additional_properties={"phase": phase} if phase else None,
            )
        ]

    def _open_call(self, opened: _Item, item: Json, default_id: str) -> Updates:
        opened.call_id = self._new_call_id(as_text(item.get("call_id")) or default_id)
        opened.name = as_text(item.get("name"))
        opened.arguments = as_text(item.get("arguments"))
        call = ToolCallContent(opened.call_id, opened.name, {}, raw_arguments=opened.arguments)
        return [self._update((call,))]

    def _new_call_id(self, call_id: str) -> str:
        """Tell calls apart to which a server gives the same id."""
        self._call_count[call_id] = count = self._call_count.get(call_id, 0) + 1
        return call_id if count == 1 else f"{call_id}-{count}"

    def _on_item_done(self, event: Json) -> Updates:
        index = event.get("output_index")
        item = as_object(event.get("item"))
        return self._finish_item(self._find(index, item.get("id")), item, index)

    def _finish_item(self, known: _Item | None, item: Json, index: object) -> Updates:
        """Hand out what of an item is missing."""
        updates: Updates = []
        if known is None:
            known, updates = self._open_item(item, index)
        if known.is_done:
            return updates
        known.is_done = True
        if known.kind == "message":
            for part, is_refusal, text in message_parts(item):
                updates += self._missing_part(known, part, text, is_refusal=is_refusal)
        elif known.kind == "reasoning":
            updates += self._finish_reasoning(known, item)
        elif known.kind == "function_call":
            updates += self._finish_call(known, item)
        return updates

    # -- text ------------------------------------------------------------------------------------

    def _on_text(self, event: Json) -> Updates:
        return self._say(self._item_of(event), event, TextContent(as_text(event.get("delta"))))

    def _on_refusal(self, event: Json) -> Updates:
        return self._say(self._item_of(event), event, RefusalContent(as_text(event.get("delta"))))

    def _say(
        self, item: _Item | None, event: Json, content: TextContent | RefusalContent
    ) -> Updates:
        updates: Updates = []
        if not content.text:
            return updates
        if item is None:
            item, updates = self._open_item(
                {"type": "message", "id": event.get("item_id")}, event.get("output_index")
            )
        item.sent.add(_index(event.get("content_index")))
        return [*updates, self._update((content,), message_id=item.message_id)]

    def _on_text_done(self, event: Json) -> Updates:
        return self._on_part_done(event, "text", is_refusal=False)

    def _on_refusal_done(self, event: Json) -> Updates:
        return self._on_part_done(event, "refusal", is_refusal=True)

    def _on_part_done(self, event: Json, field: str, *, is_refusal: bool) -> Updates:
        item = self._item_of(event)
        if item is None:
            return []
        part = _index(event.get("content_index"))
        return self._missing_part(item, part, as_text(event.get(field)), is_refusal=is_refusal)

    def _missing_part(self, item: _Item, part: int, text: str, *, is_refusal: bool) -> Updates:
        if not text or part in item.sent:
            return []
        item.sent.add(part)
        content = RefusalContent(text) if is_refusal else TextContent(text)
        return [self._update((content,), message_id=item.message_id)]

    # -- reasoning -------------------------------------------------------------------------------

    def _on_summary(self, event: Json) -> Updates:
        return self._think(event, ("summary", _index(event.get("summary_index"))))

    def _on_reasoning(self, event: Json) -> Updates:
        return self._think(event, ("content", _index(event.get("content_index"))))

    def _think(self, event: Json, part: tuple[str, int]) -> Updates:
        text = as_text(event.get("delta"))
        item = self._item_of(event)
        updates: Updates = []
        if item is None:
            item, updates = self._open_item(
                {"type": "reasoning", "id": event.get("item_id")}, event.get("output_index")
            )
        return updates + self._reasoning(item, part, text)

    def _reasoning(self, item: _Item, part: tuple[str, int], text: str) -> Updates:
        if not text:
            return []
        if item.sent and part not in item.sent:
            text = _PARAGRAPH + text
        item.sent.add(part)
        return [self._update((ReasoningContent(text, origin=self._origin),))]

    def _finish_reasoning(self, item: _Item, response_item: Json) -> Updates:
        updates: Updates = []
        for part, text in reasoning_parts(response_item):
            if part not in item.sent:
                updates += self._reasoning(item, part, text)
        signature = as_text(response_item.get("encrypted_content"))
        if signature:
            # Seals the text before it; without any, it is all there is.
            is_redacted = not item.sent
            sealed = ReasoningContent("", signature, self._origin, is_redacted=is_redacted)
            updates.append(self._update((sealed,)))
        return updates

    # -- tool calls ------------------------------------------------------------------------------

    def _on_arguments(self, event: Json) -> Updates:
        item = self._item_of(event)
        delta = as_text(event.get("delta"))
        # Of a call that was not announced neither name nor id is known: its end tells everything.
        if item is None or item.kind != "function_call" or not delta:
            return []
        item.arguments += delta
        return [self._update((ToolCallContent(item.call_id, "", {}, raw_arguments=delta),))]

    def _on_arguments_done(self, event: Json) -> Updates:
        item = self._item_of(event)
        if item is None or item.kind != "function_call":
            return []
        return self._settle_arguments(item, as_text(event.get("arguments")))

    def _finish_call(self, item: _Item, call: Json) -> Updates:
        arguments = as_text(call.get("arguments"))
        if not arguments and not item.arguments and call.get("status") != "incomplete":
            arguments = "{}"  # a call without arguments, and not one that was cut
        return self._settle_arguments(item, arguments)

    def _settle_arguments(self, item: _Item, text: str) -> Updates:
        """Hand out what is missing of the arguments; the text given at the end is the right one."""
        sent, item.arguments = item.arguments, text or item.arguments
        if text.startswith(sent):
            missing = text[len(sent) :]
            call = ToolCallContent(item.call_id, "", {}, raw_arguments=missing)
            return [self._update((call,))] if missing else []
        arguments = parse_arguments(text)
        call = ToolCallContent(item.call_id, item.name, arguments, raw_arguments=text)
        # Only a whole call replaces fragments: without arguments it would be one of them.
        return [self._update((call,))] if arguments else []

    _HANDLERS: ClassVar[Mapping[str, Callable[[Any, Json], Updates]]] = {
        "response.created": _on_begin,
        "response.queued": _on_begin,
        "response.in_progress": _on_begin,
        "response.completed": _on_end,
        "response.incomplete": _on_end,
        "response.failed": _on_failed,
        "response.output_item.added": _on_item_added,
        "response.output_item.done": _on_item_done,
        "response.output_text.delta": _on_text,
        "response.output_text.done": _on_text_done,
        "response.refusal.delta": _on_refusal,
        "response.refusal.done": _on_refusal_done,
        "response.reasoning_summary_text.delta": _on_summary,
        "response.reasoning_text.delta": _on_reasoning,
        "response.function_call_arguments.delta": _on_arguments,
        "response.function_call_arguments.done": _on_arguments_done,
    }


def _index(value: object) -> int:
    return value if isinstance(value, int) else 0
