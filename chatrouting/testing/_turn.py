"""What the renderers take and give: one reply to one request in, JSON or a list of events out."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from chatrouting.testing._reply import DEFAULT_TEXT, Reply

#: What an event is for. "content" marks output, which `At` and `omit` refer to.
Mark = Literal["", "start", "reasoning", "content", "finish", "usage", "terminal"]

#: A fixed moment, so that answers are the same in every run.
CREATED = 1_700_000_000


@dataclass(frozen=True, slots=True)
class Event:
    """One SSE event, not yet encoded."""

    name: str | None
    data: str
    mark: Mark = ""
    raw: bytes | None = None  #: Sent as it is instead of name and data.

    def encode(self, *, names: bool, line_end: str) -> bytes:
        """Give the bytes of the event, blank line included."""
        if self.raw is not None:
            return self.raw
        lines = [f"data: {self.data}", "", ""]
        if names and self.name is not None:
            lines.insert(0, f"event: {self.name}")
        return line_end.join(lines).encode()


@dataclass(frozen=True, slots=True)
class Turn:
    """A reply together with what the request says about how to render it."""

    reply: Reply
    body: Mapping[str, Any]  #: The request's.
    number: int  #: Of the request, for ids.
    sign: Callable[[str], str]  #: Issues this server's signature for a piece of reasoning.

    @property
    def model(self) -> str:
        """The model that the answer names."""
        return self.reply.model or str(self.body.get("model", ""))

    def id(self, prefix: str) -> str:
        """The id of the answer."""
        return f"{prefix}{self.number}" if self.reply.id is None else self.reply.id

    @property
    def text(self) -> tuple[str, ...] | None:
        """The text in chunks; None where the answer has none."""
        reply = self.reply
        if reply.content is not None:
            return chunks(reply.content)
        other = (reply.tool_calls, reply.refusal, reply.reasoning, reply.redacted_reasoning)
        return None if any(other) else chunks(DEFAULT_TEXT)

    @property
    def finish_reason(self) -> str | None:
        """The neutral finish reason; None if it is to be left out."""
        if "finish" in self.reply.omit:
            return None
        return self.reply.finish_reason or ("tool_calls" if self.reply.tool_calls else "stop")


def chunks(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """Cut a text at its words; a sequence is cut already."""
    if text is None:
        return ()
    return tuple(re.findall(r"\s*\S+|\s+", text)) if isinstance(text, str) else tuple(text)
