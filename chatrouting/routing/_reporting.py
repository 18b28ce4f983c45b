"""How a router, its listener and the log learn of attempts and ends."""

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import anyio

from chatrouting._cancellation import cancel_count, is_cancellation, is_foreign_cancellation
from chatrouting.attempt import RoutingAttempt
from chatrouting.routing._errors import with_cause
from chatrouting.routing._settings import CallSettings, Listener, UpdateHook
from chatrouting.routing.context import RoutingContext

logger = logging.getLogger("chatrouting.routing")

T = TypeVar("T")


def reporter(
    on_update: UpdateHook | None, listener: Listener | None, name: str | None
) -> UpdateHook | None:
    """Return what tells a router's own hook of an attempt, then the listener, whatever it did.

    It raises what the router's own hook raised. A listener's exception is logged.

    Args:
        on_update: The router's own hook; None if it does nothing.
        listener: Whoever else wants to know.
        name: The router's name, for the log.
    """
    if listener is None:
        return on_update
    tell_listener = _teller(listener, name)
    if on_update is None:
        return tell_listener

    async def tell_both(*told: *tuple[RoutingContext, RoutingAttempt, bool]) -> None:
        try:
            await on_update(*told)
        except GeneratorExit:  # thrown away: nothing can be awaited
            raise
        except BaseException:
            await tell_listener(*told)
            raise
        await tell_listener(*told)

    return tell_both


def _teller(listener: Listener, name: str | None) -> UpdateHook:
    async def tell_listener(*told: *tuple[RoutingContext, RoutingAttempt, bool]) -> None:
        baseline = cancel_count()
        try:
            answer = listener(*told)
            if hasattr(answer, "__await__"):
                await cast("Awaitable[None]", answer)
        except BaseException as error:
            if not isinstance(error, Exception) and not is_foreign_cancellation(error, baseline):
                raise
            logger.exception("routing.listener_failed router=%s", name)

    return tell_listener


async def report(
    settings: CallSettings,
    context: RoutingContext,
    attempt: RoutingAttempt,
    is_terminal: bool,  # noqa: FBT001  # handed through to hooks, which get it so
) -> None:
    """Tell of an attempt whoever wants to know.

    Raises:
        BaseException: What the router's own hook raised.
    """
    if settings.report is not None:
        await settings.report(context, attempt, is_terminal)


async def as_policy(waiting: Awaitable[T]) -> T:
    """Await what a policy does.

    Raises:
        RuntimeError: If it raised a cancellation although its caller is not being cancelled: to
            the caller's event loop that would look like a cancellation of its own.
        BaseException: What else it raised.
    """
    baseline = cancel_count()
    try:
        return await waiting
    except BaseException as error:
        if is_foreign_cancellation(error, baseline):
            raise cancelled_by_policy(error) from error
        raise


def cancelled_by_policy(cancellation: BaseException) -> RuntimeError:
    """Make the error for a policy that raised a cancellation of its own."""
    error = RuntimeError(
        "a policy raised a cancellation although its caller is not being cancelled; "
        "something that it waited for was cancelled."
    )
    error.__cause__ = cancellation
    return error


def as_answer(answer: object) -> bool:
    """Read what `should_failover` said.

    Raises:
        TypeError: If it is awaitable, which would always count as a yes.
    """
    if inspect.iscoroutine(answer):
        answer.close()  # else Python warns that it was never awaited
        raise TypeError("should_failover is asynchronous; it must be a plain function.")
    return bool(answer)


async def report_end(
    settings: CallSettings, context: RoutingContext, exception: BaseException | None
) -> None:
    """Tell the router's own hook of the end of a request.

    Raises:
        BaseException: What the hook raised.
    """
    if settings.on_ended is not None:
        await as_policy(settings.on_ended(context, exception))


async def shielded(call: Callable[[], Awaitable[None]], ends: float, name: str | None) -> None:
    """Await a hook on a cancelled request; whatever it does, the cancellation goes on.

    Args:
        call: The hook.
        ends: When it is cut off, by the event loop's clock.
        name: The router's name, for the log.
    """
    with anyio.CancelScope(deadline=ends, shield=True) as shield:
        try:
            await call()
        except Exception:  # logged; nothing may replace the cancellation
            logger.exception("routing.hook_failed router=%s", name)
    if shield.cancelled_caught:
        logger.warning("routing.hook_timed_out router=%s", name)


def outranked(
    error: BaseException | None, hook_error: BaseException, cause: BaseException | None
) -> BaseException:
    """Return what a stream ends with whose hook raised: the hook's error, unless it is cancelled.

    Args:
        error: What the stream ended with before.
        hook_error: What the hook raised.
        cause: The error that the hook was told of.
    """
    if error is not None and is_cancellation(error) and isinstance(hook_error, Exception):
        logger.error("routing.hook_failed while the request was cancelled", exc_info=hook_error)
        return error
    return with_cause(hook_error, cause)


def log_failover(settings: CallSettings, attempt: RoutingAttempt) -> None:
    """Say that another client will be asked; never a word of the conversation."""
    if not logger.isEnabledFor(logging.WARNING):
        return
    logger.warning(
        "routing.failover router=%s route=%s number=%d kind=%s duration_seconds=%.3f request_id=%s",
        settings.name,
        attempt.route,
        attempt.number,
        attempt.failure.kind if attempt.failure else None,
        attempt.duration,
        attempt.request_id,
    )
