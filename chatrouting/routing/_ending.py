"""The end of a stream that was committed to: its outcome, and telling the hooks of it."""

from collections.abc import Awaitable, Callable

from chatrouting._cancellation import is_cancellation
from chatrouting.attempt import AttemptOutcome, RoutingAttempt
from chatrouting.routing._errors import annotate
from chatrouting.routing._reporting import as_policy, outranked, report
from chatrouting.routing._running import RunningAttempt
from chatrouting.routing._settings import CallSettings
from chatrouting.routing.context import RoutingContext


def outcome_of_stream(
    attempt: RunningAttempt, error: BaseException | None
) -> tuple[AttemptOutcome, BaseException | None]:
    """Say how an attempt ended whose stream ended with `error`, and what its exception is.

    Args:
        attempt: The attempt.
        error: As `StreamLayer.on_end` is told.
    """
    if error is None:
        return AttemptOutcome.COMPLETED, None
    if isinstance(error, GeneratorExit):
        is_whole = attempt.stream is not None and attempt.stream.finish_reason is not None
        return (AttemptOutcome.COMPLETED if is_whole else AttemptOutcome.ABANDONED), None
    if isinstance(error, Exception):
        return AttemptOutcome.FAILED, error
    return AttemptOutcome.CANCELLED, error


async def tell_of_end(
    settings: CallSettings,
    context: RoutingContext,
    record: RoutingAttempt,
    error: BaseException | None,
    report_end: Callable[[BaseException | None], Awaitable[None]],
) -> tuple[BaseException | None, BaseException | None]:
    """Tell the hooks of a stream's last attempt and of its request's end, whatever they do.

    Returns:
        What the stream ends with, and the cancellation that cut a hook off where the caller had
        given up: by the stream's limit of time, or by the caller's event loop.
    """
    gave_up = error is not None and not isinstance(error, Exception)
    result, cut_off = error, None
    cause = None if isinstance(error, GeneratorExit) else error
    try:
        await as_policy(report(settings, context, record, True))
    except GeneratorExit:  # thrown away: nothing can be awaited
        raise
    except BaseException as hook_error:  # noqa: BLE001  # the stream raises it
        if gave_up and is_cancellation(hook_error):
            cut_off = hook_error
        else:
            result = outranked(error, hook_error, cause)
    if result is not None and result is cause:
        annotate(result, context.attempts, settings.name, context.request_id)
    ended_with = None if isinstance(result, GeneratorExit) else result
    try:
        await report_end(ended_with)
    except BaseException as hook_error:  # noqa: BLE001  # the stream raises it
        if gave_up and is_cancellation(hook_error):
            cut_off = hook_error
        else:
            result = outranked(result, hook_error, ended_with)
    return result, cut_off
