"""One attempt at one member: bounded in time, and its ticket given back however it ends.

A pool learns of an attempt where it is judged. This file is about the ways out on which nobody
judges: a stream that is dropped, and a coroutine that is thrown away.
"""

import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from chatrouting._cancellation import cancel_count
from chatrouting._limits import LimitExpired, run_within
from chatrouting.errors import AttemptTimeoutError
from chatrouting.pool._request import PooledRequest
from chatrouting.pool.endpoint import Endpoint

T = TypeVar("T")


async def run_attempt(
    request: PooledRequest, endpoint: Endpoint, call: Callable[[], Awaitable[T]]
) -> T:
    """Await a call of a member's client, until its time is over.

    Raises:
        AttemptTimeoutError: If it took longer than the endpoint, or the request, is given.
        BaseException: What the call raised.
    """
    ticket = request.held
    ends = request.ends_attempt(endpoint)
    try:
        if ends == math.inf:
            return await call()
        return await run_within(ends, call, cancel_count())
    except LimitExpired as expired:
        error = expired.caused(timeout_error(request, endpoint))
    except GeneratorExit:
        request.pool.released(ticket)
        raise
    raise error


def timeout_error(request: PooledRequest, endpoint: Endpoint) -> AttemptTimeoutError:
    """Make the error of an attempt whose time is over."""
    if request.is_over_budget:
        return AttemptTimeoutError(
            f"the pool's total_budget of {request.pool.policy.total_budget} s ran out while "
            f"endpoint {endpoint.id!r} was asked."
        )
    return AttemptTimeoutError(
        f"endpoint {endpoint.id!r} did not answer in {endpoint.timeout} s (timeout)."
    )
