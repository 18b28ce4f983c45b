"""Where requests wait for a member to be ready.

A request waits for a time, or for an attempt that gives its slot back. Whoever ends an attempt may
run in another thread with another event loop, so waiters are woken through their own loop. One slot
wakes one waiter; what concerns all of them wakes all, spread over a moment.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, final

import anyio
from anyio.lowlevel import current_token

from chatrouting._core_lock import CoreLock
from chatrouting.pool.endpoint import Endpoint


@final
class _Waiter:
    """One request that waits.

    Attributes:
        accepts: Says whether a slot of an endpoint is of use to it.
        event: Set by its own event loop, a moment after it was woken.
        granted: The endpoint with a free slot that it was woken for.
        is_called: It was woken together with all others.
    """

    __slots__ = ("_loop", "accepts", "event", "granted", "is_called")

    def __init__(self, accepts: Callable[[Endpoint], bool]) -> None:
        self._loop: Any = current_token().native_token
        self.accepts = accepts
        self.event = anyio.Event()
        self.granted: Endpoint | None = None
        self.is_called = False

    def wake(self) -> bool:
        """Wake it; False if its event loop is gone."""
        # The one is asyncio's, the other trio's; any thread may call them, and neither blocks.
        schedule: Callable[[Callable[[], None]], object] = (
            getattr(self._loop, "call_soon_threadsafe", None) or self._loop.run_sync_soon
        )
        try:
            schedule(self.event.set)
        except RuntimeError:  # the loop is closed; trio's error is one, too
            return False
        return True


@final
class WaitingRoom:
    """The requests that wait for one pool.

    Attributes:
        waiters: Them, those first who wait longest.
        changes: Counts what they wait for. A request notes it when it finds nobody ready, so that
            it cannot miss what happens before it waits.
    """

    __slots__ = ("_lock", "changes", "waiters")

    def __init__(self) -> None:
        self._lock = CoreLock()
        self.waiters: deque[_Waiter] = deque()
        self.changes = 0

    async def wait(
        self,
        seconds: float,
        *,
        changes: int,
        accepts: Callable[[Endpoint], bool],
        stagger: float,
    ) -> None:
        """Wait until a slot is free, or so many seconds; whoever waited looks again at once.

        Args:
            seconds: May be infinity.
            changes: What the counter was when nobody was ready.
            accepts: Says whether a slot of an endpoint is of use.
            stagger: Further seconds, if all waiters were woken at once.
        """
        waiter = _Waiter(accepts)
        with self._lock:
            if self.changes != changes:
                return
            self.waiters.append(waiter)
        try:
            with anyio.move_on_after(seconds):
                await waiter.event.wait()
        except BaseException:
            self._leave(waiter)
            if waiter.granted is not None:  # a slot for a request that is gone
                self.wake_one(waiter.granted)
            raise
        self._leave(waiter)
        if waiter.is_called:
            await anyio.sleep(stagger)

    def wake_one(self, endpoint: Endpoint) -> None:
        """Let the request look again that waited longest for a slot such as this endpoint's."""
        if self._lock.is_held_here():  # a ticket was collected in the middle of something
            self._lock.later(partial(self.wake_one, endpoint))
            return
        with self._lock:
            self.changes += 1
            for waiter in tuple(self.waiters):
                if waiter.accepts(endpoint):
                    self.waiters.remove(waiter)
                    waiter.granted = endpoint  # before it runs, perhaps in another thread
                    if waiter.wake():
                        return

    def wake_all(self) -> None:
        """Let all requests look again, one after the other."""
        if self._lock.is_held_here():
            self._lock.later(self.wake_all)
            return
        with self._lock:
            self.changes += 1
            while self.waiters:
                waiter = self.waiters.popleft()
                waiter.is_called = True
                waiter.wake()

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock, suppress(ValueError):
            self.waiters.remove(waiter)
