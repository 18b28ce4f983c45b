"""What a router brings to the loop: the same for all its requests."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from chatrouting.attempt import RoutingAttempt
from chatrouting.responses import ChatResponseUpdate
from chatrouting.routing._routes import RouteTable
from chatrouting.routing.context import RoutingContext, Selected, Target

Selector: TypeAlias = Callable[[RoutingContext], Selected | Awaitable[Selected]]
Taker: TypeAlias = Callable[[RoutingContext], Target | None]
UpdateHook: TypeAlias = Callable[[RoutingContext, RoutingAttempt, bool], Awaitable[None]]
EndHook: TypeAlias = Callable[[RoutingContext, BaseException | None], Awaitable[None]]
Listener: TypeAlias = Callable[[RoutingContext, RoutingAttempt, bool], Awaitable[None] | None]
ShouldFailover: TypeAlias = Callable[[RoutingContext, RoutingAttempt], bool]
CommitOn: TypeAlias = Literal["content", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverSettings:
    """What makes a router select again, and when it gives up waiting.

    Attributes:
        maximum_attempts: Attempts of one request, refusals not counted; None for no limit.
        should_failover: Asked about each failure; None means that every one moves on.
        may_select_again: Whether the policy has anything left to select.
        commit_on: What ends the time in which a stream may still be replaced.
        attempt_timeout: Seconds waited for one client, None for no limit.
        first_output_timeout: Seconds from the start of an attempt to its first output.
        stall_timeout: Seconds of waiting since the last output.
    """

    maximum_attempts: int | None
    should_failover: ShouldFailover | None
    may_select_again: Callable[[RoutingContext], bool]
    commit_on: CommitOn
    attempt_timeout: float | None
    first_output_timeout: float | None
    stall_timeout: float | None

    @property
    def early_limit(self) -> float | None:
        """The shorter of the limits that run before the first output; None if there is none."""
        if self.attempt_timeout is None or self.first_output_timeout is None:
            return self.attempt_timeout or self.first_output_timeout
        return min(self.attempt_timeout, self.first_output_timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """Everything that the loop needs of a router.

    Attributes:
        name: The router's name, for notes and logs.
        clock: Measures durations.
        routes: The router's clients.
        select: The policy.
        take: Finds the next target at once, where that needs no awaiting; where it finds none the
            policy is asked.
        report: Tells whoever wants to know of attempts; None if nobody does.
        on_ended: The router's own hook for the end of a request; None if it does nothing.
        failover: None for a router that selects once.
        has_early_limit: Whether a limit of an attempt runs before its first output.
    """

    name: str | None
    clock: Callable[[], float]
    routes: RouteTable
    select: Selector
    take: Taker | None
    report: UpdateHook | None
    on_ended: EndHook | None
    failover: FailoverSettings | None
    has_early_limit: bool

    def commits(self, update: ChatResponseUpdate) -> bool:
        """Say whether nobody else may answer once this update is handed out."""
        return self.failover is None or self.failover.commit_on == "update" or update.has_output
