"""A lock around what destructors may change as well.

A stream that is dropped gives back what it holds from wherever the garbage collector finds it, and
that may be in the middle of the very work that the lock is for, in the same thread. Waiting for the
lock would then be for ever, and going on would change what is being changed. So it is left for when
the lock is free.

Taking it and giving it back are the C lock's own methods, and asking whose it is, too. `with` costs
twice as much on Python 3.11, so where every tenth of a microsecond counts it is written by hand:

    lock.acquire()
    try:
        ...
    finally:
        lock.give_back()
        if lock.waiting:
            lock.do_waiting()
"""

import threading
from collections.abc import Callable
from typing import Any, final


@final
class CoreLock:
    """A lock that knows whether this thread holds it.

    Attributes:
        acquire: Takes the lock.
        give_back: Gives it back and no more; `waiting` is to be looked at afterwards.
        is_held_here: Says whether this thread is in the middle of something.
        waiting: What is to be done as soon as the lock is free.
    """

    __slots__ = ("acquire", "give_back", "is_held_here", "waiting")

    def __init__(self) -> None:
        # Reentrant for the sake of its owner alone, which it notes in the very step that takes it.
        lock: Any = threading.RLock()
        self.acquire: Callable[[], object] = lock.acquire
        self.give_back: Callable[[], None] = lock.release
        # Not public, but what `threading.Condition` asks every lock that it is given.
        self.is_held_here: Callable[[], bool] = lock._is_owned  # noqa: SLF001
        self.waiting: list[Callable[[], object]] = []

    def release(self) -> None:
        """Give the lock back, and do what had to wait for that."""
        self.give_back()
        # Afterwards: what a destructor leaves here up to the last moment is not forgotten.
        if self.waiting:
            self.do_waiting()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def later(self, call: Callable[[], object]) -> None:
        """Call something as soon as this thread has given the lock back."""
        self.waiting.append(call)

    def do_waiting(self) -> None:
        """Do what had to wait, after the lock was given back."""
        while self.waiting:
            self.acquire()
            calls, self.waiting = self.waiting, []
            self.give_back()
            for call in calls:
                call()
