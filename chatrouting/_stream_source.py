"""Where the updates of a stream come from: one iterator, waited for and closed.

Knows about waiting, time limits and closing; nothing about layers. An outer stream that adopts an
inner one takes this object over as it is.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import AsyncGeneratorType, CoroutineType
from typing import Any, Final, cast, final

import anyio

from chatrouting import _cancellation
from chatrouting._layers import StreamTimer
from chatrouting._limits import LimitExpired, run_within
from chatrouting.errors import APIConnectionError
from chatrouting.responses import ChatResponseUpdate
from chatrouting.scope import CLOSING_LIMIT, RequestScope, closing_deadline, leave

TakeReady = Callable[[], ChatResponseUpdate | None]

_TIMED_OUT: Final = f"closing a stream took more than {CLOSING_LIMIT} s."


class LimitReachedError(Exception):
    """A limit of time ran out: carries what each side of its layer is told."""

    def __init__(self, index: int, error: BaseException, cancellation: BaseException) -> None:
        super().__init__(index)
        self.index = index
        self.error = error
        self.cancellation = cancellation


@final
class StreamSource:
    """One iterator of updates and what was waited for it.

    Attributes:
        waited: Seconds waited so far, by `clock`.
        closing: Seconds that closing took, by `clock`.
        clock: What waiting is measured with.
        timers: Limits of the layers, inside first.
        scope: Surroundings for an iterator that may call routers itself.
        take_ready: The iterator's own, None if it has none or is not prepared.
    """

    __slots__ = ("_iterator", "clock", "closing", "scope", "take_ready", "timers", "waited")

    def __init__(self, iterator: AsyncIterator[ChatResponseUpdate]) -> None:
        if iterator is None or isinstance(iterator, CoroutineType):
            raise _refusal(iterator)
        self._iterator: AsyncIterator[ChatResponseUpdate] | None = iterator
        self.take_ready: TakeReady | None = None
        self.waited = 0.0
        self.closing = 0.0
        self.clock: Callable[[], float] = time.perf_counter
        self.timers: list[StreamTimer] = []
        self.scope: RequestScope | None = None

    def prepare(self) -> None:
        """Ask for the iterator. Whatever `__aiter__` raises comes out."""
        iterable = cast("Any", self._iterator)
        if hasattr(iterable, "__aiter__"):
            self._iterator = iterable.__aiter__()
        self.take_ready = getattr(self._iterator, "take_ready", None)

    async def read(self) -> ChatResponseUpdate:  # noqa: C901  # saves a call for each update
        """Wait for the next update.

        Raises:
            StopAsyncIteration: At a clean end.
            LimitReachedError: If a layer's limit of time ran out.
            BaseException: What the iterator raised. A cancellation is the caller's.
        """
        iterator = self._iterator
        if iterator is None:
            raise StopAsyncIteration
        baseline = _cancellation.cancel_count()
        if baseline:
            baseline = await _cancellation.cancel_baseline()
        # An iterator with `take_ready` calls no routers: it needs no scope.
        scope = self.scope if self.take_ready is None else None
        token = None if scope is None else scope.enter()
        clock = self.clock
        started = clock()
        try:
            if self.timers:
                return await self._read_within_limits(iterator, baseline)
            return await iterator.__anext__()
        except (StopAsyncIteration, LimitReachedError):
            raise
        except Exception as error:
            await _cancellation.give_way(error, baseline)
            raise
        except BaseException as error:
            if _cancellation.is_foreign_cancellation(error, baseline):
                raise cancelled_by_client() from error
            raise
        finally:
            self.waited += clock() - started
            if token is not None:
                leave(token)

    async def _read_within_limits(
        self, iterator: AsyncIterator[ChatResponseUpdate], baseline: int
    ) -> ChatResponseUpdate:
        now = anyio.current_time()
        limits = [(near[0], near[1], each) for each in self.timers if (near := each.nearest(now))]
        if not limits:
            return await iterator.__anext__()
        # On a tie the first one wins, which is the innermost.
        left, kind, timer = min(limits, key=lambda limit: limit[0])
        try:
            return await run_within(now + left, iterator.__anext__, baseline)
        except LimitExpired as expired:
            error = expired.caused(timer.error(kind))
            raise LimitReachedError(timer.index, error, expired.stopped) from None
        finally:
            waited = anyio.current_time() - now
            for each in self.timers:
                each.waited(waited)

    async def close(self, deadline: float | None = None) -> BaseException | None:
        """Close the iterator once, shielded; return what that raised.

        Args:
            deadline: When to give up, by the event loop's clock; None means in 2 s.
        """
        iterator, self._iterator, self.take_ready = self._iterator, None, None
        close: Callable[[], Awaitable[None]] | None = getattr(iterator, "aclose", None)
        has_ended = isinstance(iterator, AsyncGeneratorType) and iterator.ag_frame is None
        if close is None or has_ended:
            return None
        baseline = _cancellation.cancel_count()
        token = None if self.scope is None else self.scope.enter()
        started = self.clock()
        try:
            limit = closing_deadline(None) if deadline is None else deadline
            with anyio.CancelScope(deadline=limit, shield=True) as scope:
                await _close(close, baseline)
        except BaseException as error:  # noqa: BLE001  # the caller weighs it
            return error
        finally:
            self.closing += self.clock() - started
            if token is not None:
                leave(token)
        return TimeoutError(_TIMED_OUT) if scope.cancelled_caught else None


async def _close(close: Callable[[], Awaitable[None]], baseline: int) -> None:
    """Close inside of the shield, where no scope outside of it counts as a cancellation."""
    try:
        await close()
    except BaseException as error:
        if _cancellation.is_foreign_cancellation(error, baseline):
            raise cancelled_by_client() from error
        raise


def cancelled_by_client() -> APIConnectionError:
    """Make the error for a client that raised a cancellation of its own."""
    return APIConnectionError(
        "the client raised a cancellation although its caller is not being cancelled; "
        "something that it waited for was cancelled."
    )


def _refusal(source: object) -> TypeError:
    if isinstance(source, CoroutineType):
        source.close()  # else Python warns that it was never awaited
        return TypeError(
            "a stream was made from a coroutine; get_streaming_response must be a plain function "
            "that returns a stream, or an async generator."
        )
    return TypeError("a stream was made from None; expected an async iterator of updates.")
