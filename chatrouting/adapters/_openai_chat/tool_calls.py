"""Tool calls out of chat deltas, told apart although servers number them as they like. Pure.

By the book a delta names its call by `index`, and id and name come once. Servers leave the index
out, give all calls the same one, repeat names, send whole calls in one delta, or no id at all.
"""

import json
from typing import Any, final
from uuid import uuid4

from chatrouting.adapters._json import Json, as_object, as_text
from chatrouting.contents import ToolCallContent

_KNOWN = frozenset({"id", "index", "type", "function", "custom"})


class _Call:
    __slots__ = ("arguments", "call_id", "name", "wire_id")

    def __init__(self, wire_id: str) -> None:
        self.wire_id = wire_id
        #: Some servers give no id; the result needs one to answer.
        self.call_id = wire_id or f"call_{uuid4().hex[:24]}"
        self.name = ""
        self.arguments: list[str] = []

    def has_all_arguments(self) -> bool:
        try:
            return isinstance(json.loads("".join(self.arguments)), dict)
        except ValueError:
            return False


@final
class ToolCallReader:
    """Reads the deltas of one answer, or the calls of a whole one."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    @property
    def has_calls(self) -> bool:
        """Whether there was any call."""
        return bool(self._calls)

    def read(self, delta: Json) -> ToolCallContent:
        """Return what a delta adds, as a fragment of the call that it belongs to."""
        function = as_object(delta.get("function") or delta.get("custom"))
        wire_id = as_text(delta.get("id"))
        name = as_text(function.get("name"))
        arguments = _arguments(function)
        index = delta.get("index")
        call = self._find(index, wire_id)
        if call is None or _begins_another(call, wire_id, name, arguments):
            call = self._add(index, wire_id)
        if arguments:
            call.arguments.append(arguments)
        said = "" if call.name else name
        call.name = call.name or name
        extras = {key: value for key, value in delta.items() if key not in _KNOWN}
        return ToolCallContent(call.call_id, said, {}, arguments, extras or None)

    def complete(self) -> list[ToolCallContent]:
        """Return fragments that complete the calls of a finished answer which have no arguments."""
        found = [call for call in self._calls if not call.arguments]
        for call in found:
            call.arguments.append("{}")
        return [ToolCallContent(call.call_id, "", {}, "{}") for call in found]

    def _find(self, index: object, wire_id: str) -> _Call | None:
        if isinstance(index, int):
            return self._by_index.get(index)
        if wire_id:
            return self._by_id.get(wire_id)
        return self._calls[-1] if self._calls else None

    def _add(self, index: object, wire_id: str) -> _Call:
        call = _Call(wire_id)
        self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        if wire_id:
            self._by_id[wire_id] = call
        return call


def _begins_another(call: _Call, wire_id: str, name: str, arguments: str) -> bool:
    """Say whether a delta that is numbered like a call begins another one all the same."""
    if wire_id:
        return wire_id != call.wire_id and bool(call.wire_id or name)
    # A name repeated beside the last fragment of its own call begins nothing.
    return bool(name and (arguments or name != call.name)) and call.has_all_arguments()


def _arguments(function: Json) -> str:
    value: Any = function.get("arguments", function.get("input"))
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
