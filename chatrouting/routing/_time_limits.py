"""The limits of time of one attempt: as a whole before its commit, and what is left after it."""

import anyio

from chatrouting._layers import StreamLayer
from chatrouting.errors import (
    AttemptTimeoutError,
    ChatClientError,
    FirstOutputTimeoutError,
    RequestTimeoutError,
)
from chatrouting.routing._errors import request_timeout
from chatrouting.routing._running import RunningAttempt
from chatrouting.routing._settings import FailoverSettings


def limit_before_commit(
    failover: FailoverSettings | None, attempt: RunningAttempt, deadline: float | None
) -> float | None:
    """Return the nearest limit of an attempt that begins now, by the event loop's clock.

    Args:
        failover: The router's settings.
        attempt: The attempt; it learns from when its limits count.
        deadline: The end of the request, where this router is the one to enforce it.

    Returns:
        None if there is none.
    """
    early = None if failover is None else failover.early_limit
    if early is None:
        return deadline
    attempt.timed_from = now = anyio.current_time()
    ends = now + early
    return ends if deadline is None or ends <= deadline else deadline


def limit_error(
    failover: FailoverSettings | None, attempt: RunningAttempt, limit: float
) -> ChatClientError:
    """Return the error for the limit that `limit_before_commit` gave."""
    early, began = None if failover is None else failover.early_limit, attempt.timed_from
    if failover is None or early is None or began is None or began + early > limit:
        return request_timeout(f"while route {attempt.record.route!r} was asked")
    said = f"route {attempt.record.route!r} did not answer in {early} s"
    if failover.attempt_timeout == early:
        return AttemptTimeoutError(f"{said} (attempt_timeout).")
    return FirstOutputTimeoutError(f"{said} (first_output_timeout).")


def over_time(
    attempt: RunningAttempt, error: BaseException, deadline: float | None
) -> BaseException:
    """Return what a failure is once the time of the request has run out.

    Args:
        attempt: What failed.
        error: What it raised.
        deadline: The end of the request, where this router is the one to enforce it.
    """
    if deadline is None or not isinstance(error, Exception) or anyio.current_time() < deadline:
        return error
    if isinstance(error, RequestTimeoutError):
        return error
    timeout = request_timeout(f"while route {attempt.record.route!r} was asked")
    timeout.__cause__ = error
    return timeout


def set_limits_after_commit(
    layer: StreamLayer,
    failover: FailoverSettings | None,
    attempt: RunningAttempt,
    *,
    has_output: bool,
) -> None:
    """Give a stream's layer what is left of the limits."""
    if failover is None:
        return
    layer.stall_timeout = failover.stall_timeout
    layer.has_output = has_output
    if attempt.timed_from is None:
        return
    used = anyio.current_time() - attempt.timed_from
    if failover.attempt_timeout is not None:
        layer.attempt_timeout = failover.attempt_timeout - used
    if failover.first_output_timeout is not None and not has_output:
        layer.first_output_timeout = failover.first_output_timeout - used
