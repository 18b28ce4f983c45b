"""Closing several things, all of them, whatever one of them does."""

import logging
from collections.abc import Awaitable, Callable, Iterable

import anyio

from chatrouting import _cancellation
from chatrouting.scope import CLOSING_LIMIT

logger = logging.getLogger("chatrouting.client")


async def close_all(closers: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Await every closer, in order; a failing one does not keep the others from being closed.

    If the caller is cancelled meanwhile, the rest is closed under a shield of 2 s.

    Raises:
        Exception: The one error, if there was one.
        ExceptionGroup: All of them, if there were several.
    """
    remaining = list(closers)
    errors: list[Exception] = []
    try:
        while remaining:
            await _close(remaining.pop(0), errors)
    except BaseException:
        with anyio.move_on_after(CLOSING_LIMIT, shield=True):
            while remaining:
                await _close(remaining.pop(0), errors)
        for error in errors:  # the cancellation is raised, and hides them
            logger.error("client.close_failed", exc_info=error)  # noqa: TRY400  # of another one
        raise
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(f"{len(errors)} clients could not be closed.", errors)


async def _close(closer: Callable[[], Awaitable[None]], errors: list[Exception]) -> None:
    baseline = _cancellation.cancel_count()
    try:
        await closer()
    except Exception as error:  # noqa: BLE001  # raised once all are closed
        errors.append(error)
    except BaseException as error:
        if not _cancellation.is_foreign_cancellation(error, baseline):
            raise
        errors.append(RuntimeError(f"closing was cancelled from inside: {error!r}"))
