"""The text of a request, and how many tokens it has by its looks.

Bytes for each token vary from 1.4 in base64 to 5 in prose, and a route often sees several kinds of
text. Tokens for each *piece* hardly vary: a vocabulary splits text into words, numbers and signs
before anything else. So pieces are counted, by one pattern, and long text is sampled.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

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
from chatrouting.messages import ChatMessage, Role
from chatrouting.options import ChatOptions, JsonSchemaFormat, Tool
from chatrouting.quota.token_rules import TokenRules

#: About a token each: up to eight letters, of which only the first is large; up to three digits;
#: up to three signs; three letters of a script with two bytes a letter; two kana; one of any other.
_PIECE: Final = re.compile(
    r"[A-Za-z][a-z]{0,7}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,3}"
    r"|[\u0080-\u07ff]{1,3}|[\u3040-\u30ff]{1,2}|[^\x00-\u07ff]"
)
#: Characters that are looked at in full, some millisecond; of longer text as many, spread evenly.
_LOOKED_AT: Final = 8_192
_SLICE: Final = 256


class TokenCounter(Protocol):
    """Counts the tokens of text exactly, for one family of models."""

    @property
    def family(self) -> str:
        """The family that it counts for, such as "openai"."""
        ...

    @property
    def inline_characters(self) -> int:
        """How much it counts without holding up an event loop, say in a millisecond."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens. May be called from a worker thread."""
        ...


@dataclass(frozen=True, slots=True)
class RequestText:
    """What there is to count in a request.

    Attributes:
        text: All texts, one to a line: of people and models, schemas, arguments and results.
        fixed: Tokens of messages' frames, of tools and of media.
        per_piece: Tokens of a piece of text.
        prefix: Stands for instructions, tools and leading system messages; None without those.
    """

    text: str
    fixed: int
    per_piece: float
    prefix: int | None

    def estimate(self) -> float:
        """Return tokens by the looks of the text."""
        return self.fixed + self.per_piece * _pieces(self.text)

    def count(self, counter: TokenCounter) -> float:
        """Return tokens as counted."""
        return float(self.fixed + counter.count(self.text))


def request_text(
    messages: Sequence[ChatMessage], options: ChatOptions, rules: TokenRules
) -> RequestText:
    """Collect what there is to count in a request."""
    found = _Collector(rules)
    if options.instructions:
        found.fixed += rules.per_message
        found.texts.append(options.instructions)
    found.tools(options.tools or ())
    if isinstance(options.response_format, JsonSchemaFormat):
        found.fixed += rules.per_tool
        found.texts.append(_dumped(options.response_format.schema))
    shared = (*found.texts, *_leading_system_texts(messages))
    for message in messages:
        found.fixed += rules.per_message
        for content in message.contents:
            found.content(content)
    return RequestText(
        "\n".join(found.texts),
        found.fixed + rules.per_reply,
        rules.per_piece,
        hash(shared) if shared else None,
    )


class _Collector:
    def __init__(self, rules: TokenRules) -> None:
        self.texts: list[str] = []
        self.fixed = 0
        self._rules = rules

    def tools(self, tools: Iterable[Tool]) -> None:
        names = [tool.name for tool in tools]
        if not names:
            return
        self.fixed += self._rules.with_tools + self._rules.per_tool * len(names)
        for tool in tools:
            self.texts += [tool.name, tool.description or ""]
            if tool.parameters is not None:
                self.texts.append(_dumped(tool.parameters))

    def content(self, content: Content) -> None:
        if isinstance(content, TextContent | ReasoningContent | RefusalContent):
            self.texts.append(content.text)
        elif isinstance(content, DataContent | UriContent):
            self.fixed += self._rules.media.tokens(content)
        elif isinstance(content, ToolCallContent):
            self.fixed += self._rules.per_tool
            self.texts += [content.name, content.raw_arguments or _dumped(content.arguments)]
        else:
            self._tool_result(content)

    def _tool_result(self, content: ToolResultContent) -> None:
        self.fixed += self._rules.per_tool
        if isinstance(content.result, str):
            self.texts.append(content.result)
            return
        for part in content.result:
            self.content(part)


def _leading_system_texts(messages: Sequence[ChatMessage]) -> Iterator[str]:
    for message in messages:
        if message.role is not Role.SYSTEM:
            return
        yield message.text


def _dumped(value: Mapping[str, Any]) -> str:
    # What is no JSON fails when it is sent, and not while it is counted.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _pieces(text: str) -> float:
    if len(text) <= _LOOKED_AT:
        return len(_PIECE.findall(text))
    slices = _LOOKED_AT // _SLICE
    step = (len(text) - _SLICE) // (slices - 1)
    starts = range(0, slices * step, step)
    found = sum(len(_PIECE.findall(text, start, start + _SLICE)) for start in starts)
    return found * len(text) / _LOOKED_AT
