"""One request that waits, and how it is woken: also from another event loop, and another thread.

A waiter has an event of its own. It waits at one deployment or at several at once; the first grant
wins. At each deployment one of those that wait, the leader, keeps the timer: there is no task in
the background and nothing is polled.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast, final

import anyio
from anyio.lowlevel import current_token

if TYPE_CHECKING:
    from chatrouting.quota._candidate import Candidate, Grant

#: Timers do not go off sooner, seconds: added to a clock, less might not move it.
TICK = 0.001


class _AsyncioLoop(Protocol):
    def call_soon_threadsafe(self, callback: Callable[[], None], /) -> object: ...


class _TrioToken(Protocol):
    def run_sync_soon(self, callback: Callable[[], None], /) -> object: ...


class Timed(Protocol):
    """Something that is to be looked at again at some time."""

    @property
    def next_start(self) -> float:
        """When; infinity for never."""
        ...


@final
@dataclass(eq=False, slots=True)
class Waiter:
    """A request that waits. To be made in the task that will wait.

    Attributes:
        candidates: The same request at each deployment where it waits.
        leads: The rooms whose timers it keeps.
        grant: Which of them was given what; None while it waits.
    """

    candidates: "tuple[Candidate, ...]"
    leads: list[Timed] = field(default_factory=list[Timed])
    grant: "tuple[Candidate, Grant] | None" = None
    _event: anyio.Event = field(default_factory=anyio.Event)
    _thread: int = field(default_factory=threading.get_ident)
    _loop: object = field(default_factory=lambda: current_token().native_token)

    @property
    def is_left_behind(self) -> bool:
        """Whether its event loop was closed around it, as asyncio's may be."""
        is_closed = getattr(self._loop, "is_closed", None)
        return is_closed is not None and is_closed()

    def wake(self) -> bool:
        """Let `wait` return.

        Returns:
            False if nobody will: the event loop has been closed.
        """
        if self.is_left_behind:
            return False
        if threading.get_ident() == self._thread:
            self._event.set()
            return True
        try:
            if hasattr(self._loop, "call_soon_threadsafe"):
                cast("_AsyncioLoop", self._loop).call_soon_threadsafe(self._event.set)
            else:
                cast("_TrioToken", self._loop).run_sync_soon(self._event.set)
        except RuntimeError:  # what both loops raise when they are closed
            return False
        return True

    async def wait(self, until: float, now: float) -> None:
        """Wait until somebody wakes this, or a timer that it keeps is due.

        Args:
            until: When to give up, by the clock of the governor.
            now: The time of that clock.
        """
        due = min([until, *(room.next_start for room in self.leads)])
        with anyio.move_on_after(math.inf if due == math.inf else max(TICK, due - now)):
            await self._event.wait()

    def rest(self) -> None:
        """Be ready to wait again."""
        self._event = anyio.Event()
