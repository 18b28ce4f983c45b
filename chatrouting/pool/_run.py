"""The loop of pooled calls that are no chats: choose, ask, and again where that is allowed.

Chats have the router's loop. Here an answer is whole, and nobody records attempts: the pool's
events and its log tell of them.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import anyio

from chatrouting import _cancellation
from chatrouting._stream_source import cancelled_by_client
from chatrouting.errors import ConfigurationError, RefusedLocallyError
from chatrouting.policies.classify import classify
from chatrouting.pool._attempt import run_attempt
from chatrouting.pool._request import PooledRequest
from chatrouting.pool._roster import Roster
from chatrouting.pool.endpoint import Endpoint
from chatrouting.pool.events import logger
from chatrouting.pool.loop_clients import Closable
from chatrouting.pool.pool import EndpointPool

T = TypeVar("T")
MemberT = TypeVar("MemberT", bound=Closable)


def always(error: Exception) -> bool:  # noqa: ARG001  # says so of every error
    """Let the pool's policy alone decide."""
    return True


async def run(
    pool: EndpointPool[MemberT],
    call: Callable[[MemberT, Endpoint], Awaitable[T]],
    *,
    may_repeat: Callable[[Exception], bool] = always,
) -> T:
    """Call members until one answers.

    Args:
        pool: The pool.
        call: Asks the client of a member.
        may_repeat: Whether a failed call may be made again at all.

    Raises:
        NoEndpointAvailableError: If all members are held back, and none is back in time.
        Exception: The last member's error, unchanged.
    """
    request = PooledRequest(Roster(pool))
    failed: Exception | None = None
    while request.pick() is not None or await request.acquire() is not None:
        try:
            return await _attempt(request, call)
        except Exception as error:
            if not _goes_on(request, error, may_repeat):
                raise
            # What reached a provider says more than a refusal on this side.
            if isinstance(failed or error, RefusedLocallyError) or not isinstance(
                error, RefusedLocallyError
            ):
                failed = error
        # Between two attempts a cancellation gets its chance.
        await _cancellation.deliver_cancellation()
    raise failed or RuntimeError("a member was left out before it was asked")


async def _attempt(request: PooledRequest, call: Callable[[MemberT, Endpoint], Awaitable[T]]) -> T:
    """Ask the chosen member once; what it raises is judged by the caller, unless that gave up."""
    pool: EndpointPool[MemberT] = request.pool
    endpoint = request.endpoint
    baseline = _cancellation.cancel_count()
    began = anyio.current_time()
    try:
        client = pool.client_for(endpoint)
        result = await run_attempt(request, endpoint, partial(call, client, endpoint))
    except Exception as error:
        if _cancellation.is_caller_cancelled(baseline):
            request.neutral()
        await _cancellation.give_way(error, baseline)
        raise
    except GeneratorExit:  # thrown away: `run_attempt` has given back what is held
        raise
    except BaseException as error:
        if _cancellation.is_foreign_cancellation(error, baseline):
            raise cancelled_by_client() from error
        request.neutral()
        raise
    request.succeeded(anyio.current_time() - began)
    return result


def _goes_on(
    request: PooledRequest, error: Exception, may_repeat: Callable[[Exception], bool]
) -> bool:
    """Tell the pool of an error, and say whether another attempt is made."""
    endpoint = request.endpoint
    if isinstance(error, ConfigurationError):
        request.neutral()
        return False
    if isinstance(error, RefusedLocallyError):
        request.refused()
        return not request.is_single and error.fallback_allowed is not False
    failure = classify(error)
    goes_on = (
        request.may_try_again(request.failures + 1, failure.retry_after)
        and may_repeat(error)
        and request.moves_on(error)
        and request.pool.may_retry()
    )
    request.failed(error)
    if goes_on:
        logger.warning(
            "pool.failover pool=%s endpoint=%s kind=%s",
            request.pool.name,
            endpoint.id,
            failure.kind.value,
        )
    return goes_on
