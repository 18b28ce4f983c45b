"""Turns: one task at a time, whatever event loop or thread it runs in.

Whoever waits for its turn and finds the work done by then has none to do. So the first requests of
a router build its index once; and if the build fails or is cancelled, the next one builds.
"""

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import final
from weakref import WeakKeyDictionary

import anyio
from anyio import to_thread
from anyio.lowlevel import current_token


@final
class Turns:
    """A lock for tasks of any event loop, asyncio's or trio's."""

    def __init__(self) -> None:
        #: Within a loop tasks queue up here, so that at most one of each loop waits in a thread.
        self._queues: WeakKeyDictionary[object, anyio.Lock] = WeakKeyDictionary()
        self._is_taken = threading.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Wait for the turn, and have it for the block. Waiting can be cancelled."""
        queue = self._queues.setdefault(current_token().native_token, anyio.Lock())
        async with queue:
            while not self._is_taken.acquire(blocking=False):
                # Another loop has it. No thread takes the turn itself: it might be abandoned.
                await to_thread.run_sync(self._wait, abandon_on_cancel=True)
            try:
                yield
            finally:
                self._is_taken.release()

    def _wait(self) -> None:
        with self._is_taken:
            pass
