"""A condition without a lock: wait until something that others change has come true."""

from collections.abc import Callable

import anyio


class Changes:
    """Wakes every waiter on each change; a waiter goes on when its predicate holds."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def notify(self) -> None:
        """Let all waiters look again."""
        event, self._event = self._event, anyio.Event()
        event.set()

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Return once `predicate()` is true; at once if it is already."""
        while not predicate():
            await self._event.wait()
