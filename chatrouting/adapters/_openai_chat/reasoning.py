"""Reasoning out of chat deltas, wherever a server puts it. Pure.

Text stands in `reasoning_content`, in `reasoning`, in parts of the content, or in
`reasoning_details`. The latter must go back as they came, so they are collected and travel as the
signature of the last piece of reasoning before something else is said.
"""

import json
from typing import Any, Final, final

from chatrouting.adapters._json import Json, as_object, as_objects, as_text
from chatrouting.adapters.dialects import Dialect
from chatrouting.contents import ReasoningContent

#: Fields of a detail that come in pieces.
_JOINED: Final = ("text", "summary", "data")


@final
class ReasoningReader:
    """Reads the reasoning of one answer."""

    def __init__(self, dialect: Dialect) -> None:
        """Make a reader; `dialect` names the origin and whether details are kept."""
        self._origin = dialect.name
        self._keeps_details = dialect.reasoning_field == "reasoning_details"
        self._details: list[dict[str, Any]] = []

    @property
    def is_open(self) -> bool:
        """Whether details wait to be sealed."""
        return bool(self._details)

    def read(self, delta: Json) -> list[ReasoningContent]:
        """Return the reasoning of a delta."""
        details = as_objects(delta.get("reasoning_details"))
        if self._keeps_details:
            for detail in details:
                self._collect(detail)
        text = as_text(delta.get("reasoning_content")) or as_text(delta.get("reasoning"))
        text = text or _of_details(details) or _of_parts(delta.get("content"))
        return [ReasoningContent(text, origin=self._origin)] if text else []

    def seal(self) -> list[ReasoningContent]:
        """Return the details collected since the last seal, as the end of the reasoning so far."""
        if not self._details:
            return []
        signature = json.dumps(self._details, ensure_ascii=False)
        self._details = []
        return [ReasoningContent("", signature, self._origin)]

    def _collect(self, detail: Json) -> None:
        last = self._details[-1] if self._details else {}
        if not last or any(last.get(key) != detail.get(key) for key in ("type", "index")):
            self._details.append(dict(detail))
            return
        for name, value in detail.items():
            if name in _JOINED and isinstance(value, str) and isinstance(last.get(name), str):
                last[name] += value
            elif value is not None:
                last[name] = value


def _of_details(details: list[Json]) -> str:
    return "".join(as_text(one.get("text")) or as_text(one.get("summary")) for one in details)


def _of_parts(content: object) -> str:
    """Read the reasoning parts of a content that is a list, as Mistral sends it."""
    texts: list[str] = []
    for part in as_objects(content):
        thinking = part.get("thinking")
        texts.append(as_text(thinking))
        texts += (as_text(as_object(piece).get("text")) for piece in as_objects(thinking))
    return "".join(texts)
