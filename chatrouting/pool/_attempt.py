"""One attempt at one member: bounded in time, and its ticket given back however it ends.

A pool learns of an attempt where it is judged. This file is about the ways out on which nobody
judges: a stream that is dropped, and a coroutine that is thrown away.
"""

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, cast

from anyio.lowlevel import current_token

from chatrouting._cancellation import cancel_count
from chatrouting._limits import LimitExpired, run_within
from chatrouting.errors import AttemptTimeoutError
from chatrouting.pool._request import PooledRequest
from chatrouting.pool.endpoint import Endpoint
from chatrouting.pool.member import Ticket
from chatrouting.pool.pool import EndpointPool

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
        error = expired.caused(_timeout(request, endpoint))
    except GeneratorExit:
        give_back_later(request.pool, ticket, current_token().native_token)
        raise
    raise error


def _timeout(request: PooledRequest, endpoint: Endpoint) -> AttemptTimeoutError:
    if request.is_over_budget:
        return AttemptTimeoutError(
            f"the pool's total_budget of {request.pool.policy.total_budget} s ran out while "
            f"endpoint {endpoint.id!r} was asked."
        )
    return AttemptTimeoutError(
        f"endpoint {endpoint.id!r} did not answer in {endpoint.timeout} s (timeout)."
    )


def give_back_later(pool: EndpointPool[Any], ticket: Ticket, loop: Any) -> None:
    """Give a ticket back from a destructor, which may run in the middle of anything.

    The pool's lock may be held right below, in this very thread, so the event loop does it.
    """
    give_back = partial(pool.released, ticket)
    schedule = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
    try:
        cast("Callable[[Callable[[], object]], object]", schedule)(give_back)
    except RuntimeError:  # the loop is closed; trio's error is one, too
        give_back()
