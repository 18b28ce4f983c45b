"""An attempt while it runs: what its record is made from."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import final

from chatrouting import _cancellation
from chatrouting.attempt import AttemptOutcome, RoutingAttempt
from chatrouting.failure import Failure, FailureKind
from chatrouting.policies.classify import classify
from chatrouting.routing._selecting import Target
from chatrouting.scope import RequestScope
from chatrouting.stream import ResponseStream
from chatrouting.usage import Usage


@final
class RunningAttempt:
    """One invocation of one client.

    Attributes:
        target: What is invoked.
        number: 1 for the first of the router call.
        scope: What the client sees of the request.
        stream: The client's stream, then the one that adopted it; None for a whole response.
        timed_from: Event loop time from which limits count, None if none is set.
    """

    __slots__ = (
        "_before_commit",
        "_clock",
        "_is_committed",
        "_started",
        "_started_at",
        "_waited_at_attach",
        "number",
        "scope",
        "stream",
        "target",
        "timed_from",
    )

    def __init__(
        self, target: Target, number: int, scope: RequestScope, clock: Callable[[], float]
    ) -> None:
        self.target = target
        self.number = number
        self.scope = scope
        self.stream: ResponseStream | None = None
        self.timed_from: float | None = None
        self._clock = clock
        self._before_commit: float | None = None
        self._is_committed = False
        self._waited_at_attach: float | None = None
        self._started_at = datetime.now(UTC)
        self._started = clock()

    def commit(self, *, has_update: bool) -> None:
        """Note that no other client will be asked; `has_update` unless the stream ended empty."""
        self._before_commit = self._so_far()
        self._is_committed = has_update

    def attach(self, stream: ResponseStream) -> None:
        """Note the stream that carries the attempt from now on."""
        self.stream = stream
        if self._waited_at_attach is None:
            self._waited_at_attach = stream.waited

    def _so_far(self) -> float:
        seconds = self._clock() - self._started
        if self.stream is not None:
            # Closing happens inside a read that fails; it is no time of the client.
            seconds -= self.stream.closing
        return max(0.0, seconds)  # a clock may step back

    def duration(self) -> float:
        """Seconds waited for the client: up to the commit, and for each update since."""
        if self._before_commit is None:
            return self._so_far()
        if self.stream is None or self._waited_at_attach is None:
            return self._before_commit
        return self._before_commit + max(0.0, self.stream.waited - self._waited_at_attach)

    def record(
        self,
        outcome: AttemptOutcome,
        exception: BaseException | None = None,
        usage: Usage | None = None,
    ) -> RoutingAttempt:
        """Make the record; nothing of the attempt changes afterwards."""
        if exception is not None and outcome is AttemptOutcome.CANCELLED:
            # What the client made of the cancellation says more than the cancellation.
            exception = _cancellation.made_of(exception) or exception
        if usage is None and self.stream is not None:
            usage = self.stream.usage
        parent = self.scope.parent
        attempt = RoutingAttempt(
            client=self.target.client,
            route=self.target.route,
            number=self.number,
            request_id=self.scope.request_id,
            attempt_id=self.scope.attempt_id,
            parent_id=None if parent is None else parent.attempt_id,
            children=self.scope.children,
            outcome=outcome,
            exception=exception,
            failure=None if exception is None else _failure(outcome, exception),
            duration=self.duration(),
            time_to_first_update=self._before_commit if self._is_committed else None,
            usage=usage,
            started_at=self._started_at,
        )
        self.scope.end()
        if parent is not None and not parent.is_ended:
            parent.children.append(attempt)
        return attempt


def _failure(outcome: AttemptOutcome, exception: BaseException) -> Failure:
    if outcome is AttemptOutcome.CANCELLED and not isinstance(exception, Exception):
        return Failure.of(FailureKind.CANCELLED)
    return classify(exception)
