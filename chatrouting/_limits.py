"""One limit of time around one call of a client."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

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
    scope = anyio.move_on_after(None)  # what `CancelScope` makes too, for two thirds of the time
    scope.deadline = deadline
    scope.__enter__()
    try:
        # By hand what `with` would do: what stopped the call is kept only if the scope caught it,
        # else the exception and this frame would keep each other alive.
        try:
            answer = await call()
        except BaseException as error:
            if not scope.__exit__(type(error), error, error.__traceback__):
                raise
            stopped = error
        else:
            scope.__exit__(None, None, None)
            return answer
    except StopAsyncIteration:
        raise
    except Exception as error:
        if not scope.cancel_called or _cancellation.is_caller_cancelled(baseline):
            raise
        raise LimitExpired(error) from error
    try:
        if _cancellation.is_caller_cancelled(baseline):
            await _cancellation.deliver_cancellation()
        raise LimitExpired(stopped) from None
    finally:
        del stopped  # else the exception and this frame keep each other alive
