"""Ids of tool calls on their way out: a legal one for each call, the same for call and result.

Providers differ in length and alphabet, and some servers give empty or repeated ids. The history
keeps the id it has; what is sent is derived here, the same in every run.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import final


@final
class CallIds:
    """The ids of one request; calls and results are to be asked for in the order they are sent.

    Args:
        is_legal: Whether the provider takes an id as it is. An empty one is never taken.
        form: Makes a legal id of 64 hexadecimal digits that are the same for the same id.
    """

    def __init__(
        self,
        is_legal: Callable[[str], bool],
        form: Callable[[str], str] = lambda digits: f"call_{digits[:32]}",
    ) -> None:
        self._is_legal = is_legal
        self._form = form
        self._sent: dict[str, list[str]] = {}
        self._open: dict[str, deque[str]] = {}

    def of_call(self, call_id: str) -> str:
        """Return the id to send with a call; a repeated one gets an id of its own."""
        sent = self._sent.setdefault(call_id, [])
        sent.append(self._derive(call_id, len(sent)))
        self._open.setdefault(call_id, deque()).append(sent[-1])
        return sent[-1]

    def of_result(self, call_id: str) -> str:
        """Return the id to send with a result: that of the first call still without one."""
        waiting = self._open.get(call_id)
        if waiting:
            return waiting.popleft()
        sent = self._sent.get(call_id)
        return sent[-1] if sent else self._derive(call_id, 0)

    def _derive(self, call_id: str, repetition: int) -> str:
        if repetition == 0 and call_id and self._is_legal(call_id):
            return call_id
        seed = f"{repetition} {call_id}".encode("utf-8", "surrogatepass")
        return self._form(hashlib.sha256(seed).hexdigest())
