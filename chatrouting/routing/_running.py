"""An attempt while it runs: what the client inside sees of it, and what its record is made from."""

import time
from typing import TYPE_CHECKING, Final, final

from chatrouting import _cancellation
from chatrouting.attempt import AttemptOutcome, RoutingAttempt
from chatrouting.client import ChatClient
from chatrouting.failure import Failure, FailureKind
from chatrouting.policies.classify import classify
from chatrouting.scope import RequestScope
from chatrouting.stream import ResponseStream
from chatrouting.usage import Usage

if TYPE_CHECKING:
    from chatrouting.routing._call import RouterCall

_COMPLETED: Final = AttemptOutcome.COMPLETED


@final
class RunningAttempt(RequestScope):
    """One invocation of one client, and the scope that it runs in.

    One object for both: each of them costs a quarter of what a router adds to a call.

    Attributes:
        client: What is invoked; None once the attempt is over.
        route: Its name in the router.
        number: 1 for the first of the router call.
        stream: The client's stream, then the one that adopted it; None for a whole response.
        timed_from: Event loop time from which limits count, None if none is set.
    """

    __slots__ = (
        "_before_commit",
        "_clock",
        "_is_committed",
        "_started",
        "_timestamp",
        "_waited_at_attach",
        "client",
        "number",
        "route",
        "stream",
        "timed_from",
    )

    def __init__(self, call: "RouterCall", client: ChatClient, route: str) -> None:
        parent = call.parent
        self.client: ChatClient | None = client
        self.route = route
        self.number = call.number
        self.request_id = call.context.request_id
        self.attempt_id = f"{call.call_id}-{call.number}"
        self.context = call.context
        self.parent = parent
        self.depth = 1 if parent is None else parent.depth + 1
        self.deadline = call.ends_at
        self.children = []
        self.tickets = call.tickets
        self.waits_together = call.waits_together
        self.is_ended = False
        self._closing_deadline = None
        self.stream: ResponseStream | None = None
        self.timed_from: float | None = None
        self._clock = clock = call.settings.clock
        self._before_commit: float | None = None
        self._is_committed = False
        self._waited_at_attach: float | None = None
        self._timestamp = time.time()  # noqa: TID251  # a point in time, no duration
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

    def end(self) -> None:
        """Note that the attempt is over, and let go of what belongs to it.

        asyncio keeps a timer that was cancelled, with the context variables it was set in, until
        it would have gone off: without this a timeout of ten minutes holds the messages, and the
        clients that the records name, as long.
        """
        self.is_ended = True
        self.context = None
        self.children = []
        self.client = None
        self.stream = None

    def _so_far(self) -> float:
        seconds = self._clock() - self._started
        if self.stream is not None:
            # Closing happens inside a read that fails; it is no time of the client.
            seconds -= self.stream.closing
        return seconds if seconds > 0 else 0.0  # a clock may step back

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
        parent = self.parent
        selection = None if self.context is None else self.context.selection
        # Field by field: the constructor's checks find nothing here and cost more than the rest.
        attempt = RoutingAttempt.__new__(RoutingAttempt)
        attempt.client = self.client
        attempt.route = self.route
        attempt.number = self.number
        attempt.request_id = self.request_id
        attempt.attempt_id = self.attempt_id
        attempt.parent_id = None if parent is None else parent.attempt_id
        attempt.children = tuple(self.children)
        attempt.outcome = outcome
        attempt.exception = exception
        attempt.failure = None if exception is None else _failure(outcome, exception)
        attempt.duration = self.duration()
        attempt.time_to_first_update = self._before_commit if self._is_committed else None
        attempt.output_committed = self._is_committed
        attempt.response_completed = outcome is _COMPLETED
        attempt.usage = usage
        attempt.usage_is_estimated = False
        attempt.timestamp = self._timestamp
        attempt.reason = attempt.detail = None
        if selection is not None:
            attempt.reason, attempt.detail = selection.reason, selection.detail
        self.end()
        if parent is not None and not parent.is_ended:
            parent.children.append(attempt)
        return attempt


def _failure(outcome: AttemptOutcome, exception: BaseException) -> Failure:
    if outcome is AttemptOutcome.CANCELLED and not isinstance(exception, Exception):
        return Failure.of(FailureKind.CANCELLED)
    return classify(exception)
