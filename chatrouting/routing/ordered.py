"""Failover along a list."""

import time
from collections.abc import Callable

from typing_extensions import override

from chatrouting.errors import ConfigurationError
from chatrouting.routing._routes import RoutesInput
from chatrouting.routing._settings import CommitOn, Listener, ShouldFailover, Taker
from chatrouting.routing.context import RoutingContext, Selected
from chatrouting.routing.failover import FailoverChatClient


class OrderedFailoverChatClient(FailoverChatClient):
    """Asks clients in the given order until one answers. Every request starts at the first."""

    _routes_parameter = "clients"

    def __init__(
        self,
        clients: RoutesInput,
        *,
        maximum_attempts_per_request: int | None = None,
        should_failover: ShouldFailover | None = None,
        commit_on: CommitOn = "content",
        attempt_timeout: float | None = None,
        first_output_timeout: float | None = None,
        stall_timeout: float | None = None,
        leave_open: bool = False,
        on_routing_update: Listener | None = None,
        name: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Build an ordered failover.

        Args:
            clients: Clients, or a mapping of names to clients; copied. A client may stand in
                several places; each is tried in its turn.
            maximum_attempts_per_request: As for `FailoverChatClient`.
            should_failover: As for `FailoverChatClient`.
            commit_on: As for `FailoverChatClient`.
            attempt_timeout: As for `FailoverChatClient`.
            first_output_timeout: As for `FailoverChatClient`.
            stall_timeout: As for `FailoverChatClient`.
            leave_open: As for `RoutingChatClient`.
            on_routing_update: As for `RoutingChatClient`.
            name: As for `RoutingChatClient`.
            clock: As for `RoutingChatClient`.

        Raises:
            TypeError: If `clients` is None.
            ConfigurationError: If there is no client, or an item is not one.
        """
        super().__init__(
            maximum_attempts_per_request=maximum_attempts_per_request,
            should_failover=should_failover,
            commit_on=commit_on,
            attempt_timeout=attempt_timeout,
            first_output_timeout=first_output_timeout,
            stall_timeout=stall_timeout,
            routes=clients,
            leave_open=leave_open,
            on_routing_update=on_routing_update,
            name=name,
            clock=clock,
        )
        if not self.routes:
            raise ConfigurationError("clients is empty; give at least one chat client.")

    @override
    def _taker(self) -> Taker | None:
        # Nothing to await: each request is spared a coroutine, unless a subclass has its own way.
        is_own = type(self).select_client is OrderedFailoverChatClient.select_client
        return RoutingContext.take_next if is_own else None

    @override
    async def select_client(self, context: RoutingContext) -> Selected:
        """Return the first route that was not attempted."""
        return context.next_route()

    @override
    def may_select_again(self, context: RoutingContext) -> bool:
        """Say whether there is a position left."""
        return context.next_route() is not None
