"""One limit of time around one call of a client."""

from collections.abc import Awaitable, Callable
from contextvars import Context
from types import TracebackType
from typing import TypeVar, cast, final

import anyio

from chatrouting import _cancellation

T = TypeVar("T")


class LimitExpired(Exception):  # noqa: N818  # a message between two functions, never an error
    """The time was over. `stopped` is what the client raised then: a cancellation or an error."""

    def __init__(self, stopped: BaseException) -> None:
        super().__init__()
        self.stopped = stopped

    def caused(self, error: BaseException) -> BaseException:
        """Return `error`, caused by what the client made of the cancellation, if it did."""
        error.__cause__ = _cancellation.made_of(self.stopped)
        return error


async def run_within(deadline: float, call: Callable[[], Awaitable[T]], baseline: int) -> T:
    """Await `call` until `deadline`.

    An answer that is there is returned, however late. Cancellation of the caller wins over the
    limit.

    Args:
        deadline: Absolute time of the event loop's clock.
        call: Awaited once.
        baseline: What `cancel_baseline` gave at the start of the caller's call.

    Raises:
        LimitExpired: If the time was over first.
        BaseException: What `call` raised by itself.
    """
    stopped: BaseException | None = None
    scope = anyio.CancelScope(deadline=deadline)
    try:
        with _Timed(scope):
            try:
                return await call()
            except BaseException as error:
                stopped = error
                raise
    except StopAsyncIteration:
        raise
    except Exception as error:
        if not scope.cancel_called or _cancellation.is_caller_cancelled(baseline):
            raise
        raise LimitExpired(error) from error
    if _cancellation.is_caller_cancelled(baseline):
        await _cancellation.deliver_cancellation()
    raise LimitExpired(cast("BaseException", stopped)) from None


@final
class _Timed:
    """Enters a scope without the caller's context variables.

    asyncio keeps a timer that was cancelled, and the variables it was set in, until it would have
    gone off. They name the attempt that runs, which holds its stream: one that is dropped half-read
    would stay alive, and keep its slot, as long.
    """

    __slots__ = ("_scope",)

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        Context().run(self._scope.__enter__)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return self._scope.__exit__(exc_type, exc, traceback)
