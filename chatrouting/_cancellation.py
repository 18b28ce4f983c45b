"""Is the caller being cancelled, or did somebody raise a cancellation of their own?

The only file of the core that may look at asyncio. On trio only the runtime can raise a
cancellation, so every one is the caller's. On asyncio anything can raise `CancelledError`: a
client that awaits a task somebody else cancelled, or an HTTP library. The caller is being
cancelled if an enclosing anyio scope is (its effective deadline is then minus infinity), or if
`Task.cancel` was called more often than it was at the start of the call.
"""

import math
import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

import anyio
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    import asyncio


def _asyncio_task() -> "asyncio.Task[object] | None":
    # Not imported: where asyncio has not been loaded, no task of it can be running.
    module = sys.modules.get("asyncio")
    if module is None:
        return None
    try:
        # `current_task` finds the loop too, but takes twice as long for it.
        task: asyncio.Task[object] | None = module.current_task(module.get_running_loop())
    except RuntimeError:  # no asyncio loop in this thread: trio
        return None
    return task


def cancel_count() -> int:
    """Count the cancellations that the current asyncio task was asked for; 0 on trio."""
    # As in `_asyncio_task`: a frame less, for each call of each router.
    module = sys.modules.get("asyncio")
    if module is None:
        return 0
    try:
        task = module.current_task(module.get_running_loop())
    except RuntimeError:
        return 0
    return 0 if task is None else task.cancelling()


async def cancel_baseline() -> int:
    """Return what `is_caller_cancelled` is to compare with, at the start of a call.

    A task may have been asked to cancel once and have caught it, so that its count stays above
    zero for good; or the cancellation is still on its way, and one turn of the loop delivers it.
    """
    baseline = cancel_count()
    if baseline:
        await sys.modules["asyncio"].sleep(0)
        baseline = cancel_count()
    return baseline


def is_caller_cancelled(baseline: int) -> bool:
    """Say whether the caller gave up since `baseline` was taken."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    return cancel_count() > baseline


def is_cancellation(error: BaseException) -> bool:
    """Say whether `error` is the running loop's cancellation, or a group that holds one."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(is_cancellation(inner) for inner in group.exceptions)
    return isinstance(error, anyio.get_cancelled_exc_class())


def deliver_cancellation() -> Awaitable[None]:
    """Give a pending cancellation the chance to be raised where the answer is awaited."""
    if _asyncio_task() is None:
        return checkpoint()
    # The same, without the search for the running loop's kind that takes as long again.
    sleeping: Awaitable[None] = sys.modules["asyncio"].sleep(0)
    return sleeping


async def give_way(error: Exception, baseline: int) -> None:
    """Raise the caller's cancellation, with `error` as its cause, if the caller is being cancelled.

    A client may turn the cancellation that it met into an error of its own.
    """
    if is_caller_cancelled(baseline):
        try:
            await deliver_cancellation()
        except BaseException as cancellation:
            cancellation.__cause__ = error
            raise


def made_of(stopped: BaseException) -> Exception | None:
    """Return the error that a client made of a cancellation, None if it let it through."""
    error = stopped if isinstance(stopped, Exception) else stopped.__cause__
    return error if isinstance(error, Exception) else None


def is_foreign_cancellation(error: BaseException, baseline: int) -> bool:
    """Say whether a client raised a cancellation although its caller is not being cancelled.

    Only asyncio can tell; on trio only the runtime raises cancellations.
    """
    return (
        _asyncio_task() is not None and is_cancellation(error) and not is_caller_cancelled(baseline)
    )
