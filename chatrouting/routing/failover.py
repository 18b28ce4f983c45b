"""The router that selects again when a client fails before anything reached the caller."""

import time
from collections.abc import Callable, Sequence

from typing_extensions import override

from chatrouting.admission import AdmissionRequest
from chatrouting.errors import ConfigurationError
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, check_count, check_timeout
from chatrouting.routing._routes import RoutesInput
from chatrouting.routing._settings import (
    CommitOn,
    FailoverSettings,
    Listener,
    Selector,
    ShouldFailover,
)
from chatrouting.routing._waiting import queue_of
from chatrouting.routing.context import RoutingContext
from chatrouting.routing.router import RoutingChatClient


class FailoverChatClient(RoutingChatClient):
    """Selects again when a client fails and nothing has reached the caller yet.

    Once output is out, a failure is the caller's; a stream is never patched together from two
    clients. Cancellation is no failure. Which failures move on, `should_failover` decides; by
    default every exception does.

    Further method to override: `may_select_again`.
    """

    def __init__(
        self,
        select_client: Selector | None = None,
        *,
        maximum_attempts_per_request: int | None = None,
        should_failover: ShouldFailover | None = None,
        commit_on: CommitOn = "content",
        attempt_timeout: float | None = None,
        first_output_timeout: float | None = None,
        stall_timeout: float | None = None,
        routes: RoutesInput = (),
        leave_open: bool = False,
        on_routing_update: Listener | None = None,
        name: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Build a failover.

        Args:
            select_client: As for `RoutingChatClient`; asked again after each failure.
            maximum_attempts_per_request: At least 1; refusals that asked no provider do not
                count. None: as often as `select_client` returns a client.
            should_failover: Given (context, attempt), says whether another client may be asked.
                Not asked about refusals. If it raises, no other client is asked.
            commit_on: "content" holds back what carries no output until the first output, so
                that an error behind it can still move on; "update" commits on the first update.
            attempt_timeout: Seconds waited for one client in all.
            first_output_timeout: Seconds from the start of an attempt to its first output.
            stall_timeout: Seconds of waiting since the last output. Time that the consumer takes
                counts for none of the three.
            routes: As for `RoutingChatClient`.
            leave_open: As for `RoutingChatClient`.
            on_routing_update: As for `RoutingChatClient`.
            name: As for `RoutingChatClient`.
            clock: As for `RoutingChatClient`; timers use the event loop's.

        Raises:
            ConfigurationError: If a number is out of range or `commit_on` is neither word.
        """
        if maximum_attempts_per_request is not None:
            check_count("maximum_attempts_per_request", maximum_attempts_per_request)
        if commit_on not in ("content", "update"):
            raise ConfigurationError(f"commit_on is {commit_on!r}; expected 'content' or 'update'.")
        check_timeout("attempt_timeout", attempt_timeout)
        check_timeout("first_output_timeout", first_output_timeout)
        check_timeout("stall_timeout", stall_timeout)
        self._failover = FailoverSettings(
            maximum_attempts=maximum_attempts_per_request,
            should_failover=should_failover,
            may_select_again=self.may_select_again,
            commit_on=commit_on,
            attempt_timeout=attempt_timeout,
            first_output_timeout=first_output_timeout,
            stall_timeout=stall_timeout,
        )
        super().__init__(
            select_client,
            routes=routes,
            leave_open=leave_open,
            on_routing_update=on_routing_update,
            name=name,
            clock=clock,
        )

    @override
    def _failover_settings(self) -> FailoverSettings:
        return self._failover

    @property
    def maximum_attempts_per_request(self) -> int | None:
        """The limit given at construction."""
        return self._failover.maximum_attempts

    def admission_requests(
        self, messages: tuple[ChatMessage, ...], options: ChatOptions, *, is_streaming: bool
    ) -> Sequence[AdmissionRequest]:
        """Say what the routes would wait for; see `chatrouting.admission`.

        Args:
            messages: Of the request.
            options: Of the request.
            is_streaming: Whether it is for a stream.
        """
        queues = [queue for queue in map(queue_of, self._routes.clients) if queue is not None]
        asked = [
            queue.admission_requests(messages, options, is_streaming=is_streaming)
            for queue in queues
        ]
        return [request for requests in asked for request in requests]

    def may_select_again(self, context: RoutingContext) -> bool:  # noqa: ARG002  # for overrides
        """Say whether the policy has anything left to select, so that hooks know the last attempt.

        Args:
            context: The request; the attempt that has ended is its `previous_attempt`.
        """
        return True
