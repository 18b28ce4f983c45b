"""What Chat Completions answers, as updates. Pure, and lenient: any field may be missing or null.

A whole answer is read as a stream of one chunk, so that both modes know the same servers.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final, cast, final

from chatrouting.adapters._errors import Errors
from chatrouting.adapters._json import Json, as_object, as_objects, as_text, as_time, loads
from chatrouting.adapters._openai_chat.answer import finish_reason, usage
from chatrouting.adapters._openai_chat.reasoning import ReasoningReader
from chatrouting.adapters._openai_chat.tool_calls import ToolCallReader
from chatrouting.adapters.dialects import Dialect
from chatrouting.contents import Content, DataContent, RefusalContent, TextContent
from chatrouting.errors import ChatClientError
from chatrouting.messages import Role
from chatrouting.policies.error_body import holds_error
from chatrouting.responses import ChatResponseUpdate, FinishReason

_DONE: Final = "[DONE]"
#: Fields that are read or that say nothing; whatever else a server sends is kept as a property.
_KNOWN_OF_CHUNK: Final = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "error", "obfuscation"}
)
_KNOWN_OF_CHOICE: Final = frozenset({"index", "delta", "message", "finish_reason"})
#: Fields of a choice in a chunk that says nothing but text.
_PLAIN_CHOICE: Final = frozenset({"index", "delta", "finish_reason", "logprobs"})
_KNOWN_OF_DELTA: Final = frozenset(
    {
        "role",
        "content",
        "refusal",
        "tool_calls",
        "function_call",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "audio",
    }
)


@final
class ChatParser:
    """Reads the chunks of one answer.

    Attributes:
        is_complete: The end is proven by a finish reason or the terminal marker.
        is_terminal: The terminal marker came, or an error.
    """

    def __init__(
        self, errors: Errors, dialect: Dialect, *, audio_media_type: str = "audio/wav"
    ) -> None:
        """Make a parser.

        Args:
            errors: Makes the errors of this request.
            dialect: Whom the answer comes from.
            audio_media_type: What spoken answers were asked for as.
        """
        self.is_complete = False
        self.is_terminal = False
        self._errors = errors
        self._calls = ToolCallReader()
        self._reasoning = ReasoningReader(dialect)
        self._audio_media_type = audio_media_type
        self._has_choice = False
        #: What was told of the answer already; said again by most chunks.
        self._told: dict[str, Any] = {}

    def feed(self, event: str, data: str) -> Sequence[ChatResponseUpdate]:
        """Take one server-sent event; see `StreamParser`."""
        if data.startswith(_DONE):
            self.is_terminal = True
            return self._done()
        chunk = loads(data)
        if event == "error" or not isinstance(chunk, dict):
            if event == "error" or holds_error(chunk):
                raise self._failure(chunk)
            raise ValueError("a chunk is no JSON object")
        return self.feed_object(chunk)  # pyright: ignore[reportUnknownArgumentType]

    def feed_object(self, data: Json) -> Sequence[ChatResponseUpdate]:
        """Take one chunk; see `StreamParser`."""
        if self._has_choice and (text := self._plain_text(data)):
            return (ChatResponseUpdate((TextContent(text),), response_id=data.get("id") or None),)
        if holds_error(data):
            raise self._failure(data)
        contents: list[Content] = []
        properties = self._news(data, _KNOWN_OF_CHUNK)
        finished = role = None
        choice = _first_choice(data)
        if choice is not None:
            if not self._has_choice:
                self._has_choice = True
                role = Role.ASSISTANT
            delta = as_object(choice.get("delta") or choice.get("message"))
            self._read_delta(delta, contents, properties)
            finished = self._finish(choice, contents)
            properties |= _others(choice, _KNOWN_OF_CHOICE)
        told = usage(data)
        if not (contents or properties or finished or told or role):
            return ()
        return (
            ChatResponseUpdate(
                contents,
                role=role,
                response_id=as_text(data.get("id")) or None,
                model=self._once("model", as_text(data.get("model")) or None),
                finish_reason=finished,
                usage=told,
                created_at=self._once("created", as_time(data.get("created"))),
                additional_properties=properties or None,
            ),
        )

    def read_whole(self, body: Json) -> Sequence[ChatResponseUpdate]:
        """Take the decoded body of a whole answer; see `AnswerParser`."""
        choice = _first_choice(body)
        if choice is None or not isinstance(choice.get("message"), dict):
            raise ValueError("a body that is no chat completion")
        return [*self.feed_object(body), *self._done()]

    def _plain_text(self, data: Json) -> str:
        """Return the text of a chunk that says nothing else, as nearly all do; else ""."""
        choices = data.get("choices")
        if not isinstance(choices, list) or data.get("usage") or data.get("error"):
            return ""
        for name in data:
            if name not in _KNOWN_OF_CHUNK and self._told.get(name) != data[name]:
                return ""
        return "" if self._reasoning.is_open else _plain_text(cast("list[object]", choices))

    def _read_delta(self, delta: Json, contents: list[Content], properties: dict[str, Any]) -> None:
        text = delta.get("content")
        contents += self._reasoning.read(delta)
        said = self._said(delta, text)
        calls = [self._calls.read(one) for one in _calls(delta)]
        if said or calls:
            contents += self._reasoning.seal()
        contents += said
        contents += calls
        properties |= _others(delta, _KNOWN_OF_DELTA)

    def _said(self, delta: Json, text: object) -> list[Content]:
        said: list[Content] = []
        if isinstance(text, str) and text:
            said.append(TextContent(text))
        for part in as_objects(text):
            said += _part(part)
        refusal = as_text(delta.get("refusal"))
        if refusal:
            said.append(RefusalContent(refusal))
        return said + self._spoken(as_object(delta.get("audio")))

    def _spoken(self, audio: Json) -> list[Content]:
        spoken: list[Content] = []
        transcript = as_text(audio.get("transcript"))
        if transcript:
            spoken.append(TextContent(transcript))
        data = as_text(audio.get("data"))
        if data:
            spoken.append(DataContent(_decode(data), self._audio_media_type))
        return spoken

    def _finish(self, choice: Json, contents: list[Content]) -> FinishReason | str | None:
        reason = as_text(choice.get("finish_reason"))
        if not reason:
            return None
        if reason == "error":
            words = {"message": "the answer finished with an error"}
            raise self._failure(choice.get("error") or words)
        self.is_complete = True
        contents += self._reasoning.seal()
        found = finish_reason(reason, has_calls=self._calls.has_calls)
        if found in (FinishReason.STOP, FinishReason.TOOL_CALLS):
            contents += self._calls.complete()
        return found

    def _failure(self, body: object) -> ChatClientError:
        self.is_terminal = True
        return self._errors.of_answer(status=200, headers={}, body=body)

    def _done(self) -> Sequence[ChatResponseUpdate]:
        """Take the marker for the end of an answer whose finish reason stayed null."""
        if self.is_complete or not self._has_choice:
            return ()
        self.is_complete = True
        contents: list[Content] = [*self._reasoning.seal(), *self._calls.complete()]
        return (ChatResponseUpdate(contents),) if contents else ()

    def _news(self, data: Json, known: frozenset[str]) -> dict[str, Any]:
        """Return the fields that nobody reads, unless they were told in the same words."""
        if known.issuperset(data):
            return {}
        news = {
            name: value
            for name, value in _others(data, known).items()
            if self._told.get(name) != value
        }
        self._told |= news
        return news

    def _once(self, name: str, value: Any) -> Any:
        if value is None or self._told.get(name) == value:
            return None
        self._told[name] = value
        return value


def _first_choice(data: Json) -> Json | None:
    """Return the choice that is read; further ones, which `n` asks for, stay unread."""
    for choice in as_objects(data.get("choices")):
        if choice.get("index") in (0, None):
            return choice
    return None


def _plain_text(choices: list[object]) -> str:
    choice = as_object(choices[0] if len(choices) == 1 else None)
    delta = as_object(choice.get("delta"))
    if len(delta) != 1 or choice.get("finish_reason") or choice.get("index"):
        return ""
    if not _PLAIN_CHOICE.issuperset(choice) or choice.get("logprobs"):
        return ""
    return as_text(delta.get("content"))


def _calls(delta: Json) -> Sequence[Json]:
    calls = as_objects(delta.get("tool_calls"))
    older = as_object(delta.get("function_call"))
    return calls if calls or not older else [{"function": older}]


def _part(part: Json) -> list[Content]:
    """Read a part of a message whose content is a list; reasoning in it is read elsewhere."""
    text = as_text(part.get("text"))
    if text and part.get("type") in ("text", "output_text", None):
        return [TextContent(text)]
    refusal = as_text(part.get("refusal"))
    return [RefusalContent(refusal)] if refusal else []


def _others(data: Json, known: frozenset[str]) -> dict[str, Any]:
    return {
        name: value for name, value in data.items() if name not in known and value not in (None, [])
    }


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(data)
    except binascii.Error as error:
        raise ValueError("audio is not base64") from error
