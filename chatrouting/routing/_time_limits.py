"""The limits of time of one attempt: as a whole before its commit, and what is left after it."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import anyio

from chatrouting._layers import StreamLayer
from chatrouting.errors import AttemptTimeoutError, ChatClientError, FirstOutputTimeoutError
from chatrouting.routing._errors import request_timeout
from chatrouting.routing._running import RunningAttempt
from chatrouting.routing._settings import FailoverSettings

#: When it is over, by the event loop's clock, and the error for that.
Limit: TypeAlias = tuple[float, Callable[[], ChatClientError]]


def limit_before_commit(
    failover: FailoverSettings | None, attempt: RunningAttempt, deadline: float | None
) -> Limit | None:
    """Return the nearest limit of an attempt that begins now, None if there is none.

    Args:
        failover: The router's settings.
        attempt: The attempt; it learns from when its limits count.
        deadline: The end of the request, where this router is the one to enforce it.
    """
    has_early_limit = failover is not None and failover.has_early_limit
    if deadline is None and not has_early_limit:
        return None
    limits: list[Limit] = []
    route = attempt.route
    if failover is not None and has_early_limit:
        now = attempt.timed_from = anyio.current_time()
        for seconds, kind, name in (
            (failover.attempt_timeout, AttemptTimeoutError, "attempt_timeout"),
            (failover.first_output_timeout, FirstOutputTimeoutError, "first_output_timeout"),
        ):
            if seconds is not None:
                text = f"route {route!r} did not answer in {seconds} s ({name})."
                limits.append((now + seconds, partial(kind, text)))
    if deadline is not None:
        limits.append((deadline, partial(request_timeout, f"while route {route!r} was asked")))
    return min(limits, key=lambda limit: limit[0], default=None)


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
