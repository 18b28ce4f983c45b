"""The governor's lock.

A stream that is dropped gives its slot back from wherever the garbage collector finds it, and that
may be in the middle of the governor's own work, in the same thread. Waiting for the lock would then
be for ever, and going on would change what is being changed. So it is left for when the lock is
free.
"""

import threading
from collections.abc import Callable
from typing import Final, final


@final
class CoreLock:
    """A lock that knows whether this thread holds it."""

    def __init__(self) -> None:
        # Reentrant for one moment only: between taking it and saying so.
        self._lock: Final = threading.RLock()
        self._owner: int | None = None
        self._later: list[Callable[[], object]] = []

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = None
        calls, self._later = self._later, []
        self._lock.release()
        for call in calls:
            call()

    def is_held_here(self) -> bool:
        """Say whether this thread is in the middle of something."""
        return self._owner == threading.get_ident()

    def later(self, call: Callable[[], object]) -> None:
        """Call something as soon as this thread has given the lock back."""
        self._later.append(call)
