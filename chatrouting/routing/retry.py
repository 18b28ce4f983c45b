"""Failover to the same client: waits, and asks again."""

import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, final

import anyio
from typing_extensions import override

from chatrouting.client import ChatClient
from chatrouting.options import check_timeout
from chatrouting.policies.backoff import ExponentialBackoff
from chatrouting.policies.classify import retry_by_kind
from chatrouting.routing._settings import CommitOn, Listener, ShouldFailover
from chatrouting.routing.context import RoutingContext, Selected
from chatrouting.routing.failover import FailoverChatClient

_DEFAULT_BACKOFF: Final = ExponentialBackoff()
_DELAY: Final = "chatrouting.retry.delay"


@final
class RetryChatClient(FailoverChatClient):
    """Asks one client again after a failure that may pass, with a wait before.

    The SDKs' own retries are off beneath the adapters, so this is where they belong: each attempt
    leaves a record, and nothing is retried twice. The provider's hint is honoured. A wait that
    would outlast the request, or `maximum_wait`, is not begun: the error is raised at once, with
    the hint on it, so that an outer failover can turn elsewhere.
    """

    _routes_parameter = "inner"

    def __init__(
        self,
        inner: ChatClient,
        *,
        maximum_attempts_per_request: int | None = 3,
        backoff: ExponentialBackoff = _DEFAULT_BACKOFF,
        maximum_wait: float = 30.0,
        rng: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        should_failover: ShouldFailover | None = retry_by_kind,
        commit_on: CommitOn = "content",
        attempt_timeout: float | None = None,
        first_output_timeout: float | None = None,
        stall_timeout: float | None = None,
        leave_open: bool = False,
        on_routing_update: Listener | None = None,
        name: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Build a retry.

        Args:
            inner: The client; closed with this one.
            maximum_attempts_per_request: At least 1, the first attempt included.
            backoff: The waits where the provider gives no hint.
            maximum_wait: Longest single wait, seconds.
            rng: Returns random numbers in 0..1.
            sleep: Waits for a number of seconds; must be cancellable.
            should_failover: Which failures are worth another try; by default those that may pass
                by themselves. None: all.
            commit_on: As for `FailoverChatClient`.
            attempt_timeout: As for `FailoverChatClient`; the waits are not part of an attempt.
            first_output_timeout: As for `FailoverChatClient`.
            stall_timeout: As for `FailoverChatClient`.
            leave_open: As for `RoutingChatClient`.
            on_routing_update: As for `RoutingChatClient`.
            name: As for `RoutingChatClient`.
            clock: As for `RoutingChatClient`.

        Raises:
            TypeError: If `inner`, `backoff`, `rng` or `sleep` is None.
            ConfigurationError: If a number is out of range or `inner` is no chat client.
        """
        if inner is None:
            raise TypeError("inner is None; expected a chat client.")
        for parameter, value in (("backoff", backoff), ("rng", rng), ("sleep", sleep)):
            if value is None:
                raise TypeError(f"{parameter} is None; leave it out for the default.")
        check_timeout("maximum_wait", maximum_wait)
        self._backoff = backoff
        self._maximum_wait = maximum_wait
        self._rng = rng
        self._sleep = sleep
        super().__init__(
            maximum_attempts_per_request=maximum_attempts_per_request,
            should_failover=should_failover,
            commit_on=commit_on,
            attempt_timeout=attempt_timeout,
            first_output_timeout=first_output_timeout,
            stall_timeout=stall_timeout,
            routes=[inner],
            leave_open=leave_open,
            on_routing_update=on_routing_update,
            name=name,
            clock=clock,
        )
        (self._inner,) = self.routes.values()

    @override
    async def select_client(self, context: RoutingContext) -> Selected:
        """Return the client; after a failure once the wait is over."""
        if context.previous_attempt is not None:
            await self._sleep(context.state.pop(_DELAY))
        return self._inner

    @override
    def may_select_again(self, context: RoutingContext) -> bool:
        """Say whether the next wait is short enough to be begun, and remember how long it is."""
        attempt = context.previous_attempt
        if attempt is None or context.has_refused(self._inner):
            return attempt is None
        hint = None if attempt.failure is None else attempt.failure.retry_after
        delay = self._backoff.delay(attempt.number, self._rng(), hint)
        ends = min(anyio.current_effective_deadline(), context.deadline)
        if delay > self._maximum_wait or anyio.current_time() + delay >= ends:
            return False
        context.state[_DELAY] = delay
        return True
