"""Time for tests: a clock that is set by hand, and event loops whose time is virtual.

A router measures durations by its `clock` argument: give it a `ManualClock`. Its timers run on the
event loop's own time: run the test on one of `virtual_time_backends()`, where a wait of an hour is
over at once, because time jumps whenever nothing is left to do. For asyncio this is an event loop
of ours, for trio it is trio's own `MockClock`.

The only file of the test kit that may look at asyncio.
"""

import asyncio
import math
import selectors
from collections.abc import Callable
from contextvars import Context
from functools import partial
from importlib import import_module
from typing import Any, TypeVarTuple, final

from typing_extensions import override

__all__ = ["ManualClock", "VirtualTimeEventLoop", "virtual_time_backends"]

Arguments = TypeVarTuple("Arguments")


@final
class ManualClock:
    """A clock for `clock=` arguments: calling it returns its seconds.

    Attributes:
        seconds: What it shows.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ValueError: If `seconds` is less than 0; such a clock never runs backwards.
        """
        if seconds < 0:
            raise ValueError(f"advance was given {seconds}; expected seconds, at least 0.")
        self.seconds += seconds


@final
class _JumpingSelector(selectors.DefaultSelector):
    """Waits for files in real time, and for timers by moving a clock."""

    def __init__(self, clock: ManualClock, autojump_threshold: float) -> None:
        super().__init__()
        self._clock = clock
        self._threshold = autojump_threshold

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            # No timer is set, or there is something else to do: time stands still.
            return super().select(timeout)
        events = super().select(self._threshold)
        if not events:
            self._clock.advance(timeout)
        return events


@final
class VirtualTimeEventLoop(asyncio.SelectorEventLoop):
    """An asyncio loop that begins at 0 and jumps to the next timer when there is nothing to do.

    A socket that can be read or written comes before any jump. What a thread or another process
    does is not seen; where one takes part, give it a real moment by `autojump_threshold`.
    """

    def __init__(self, autojump_threshold: float = 0.0) -> None:
        """Make a loop.

        Args:
            autojump_threshold: Real seconds without any event before time jumps.
        """
        self._clock = ManualClock()
        super().__init__(_JumpingSelector(self._clock, autojump_threshold))

    @override
    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._clock()

    @override
    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Set a timer; one at infinity, as `anyio.sleep_forever` sets it, never has its turn."""
        if when == math.inf:
            # Left out of the schedule, or time would jump on by days for as long as it waits.
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)


def virtual_time_backends(
    autojump_threshold: float = 0.0,
) -> dict[str, Callable[[], tuple[str, dict[str, Any]]]]:
    """Return, by name, makers of values for the `anyio_backend` fixture of anyio's pytest plugin.

    Each test needs a value of its own. trio is imported when its maker is called.

    Args:
        autojump_threshold: Real seconds without any event before time jumps. 0 unless threads,
            or sockets to other processes, take part.
    """
    return {
        "asyncio": partial(_asyncio_backend, autojump_threshold),
        "trio": partial(_trio_backend, autojump_threshold),
    }


def _asyncio_backend(autojump_threshold: float) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": partial(VirtualTimeEventLoop, autojump_threshold)}


def _trio_backend(autojump_threshold: float) -> tuple[str, dict[str, Any]]:
    clock = import_module("trio.testing").MockClock(autojump_threshold=autojump_threshold)
    return "trio", {"clock": clock}
