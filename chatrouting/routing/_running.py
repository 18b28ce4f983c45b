"""An attempt while it runs: what the client inside sees of it, and what its record is made from."""

import time
from collections.abc import Callable
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

#: Looked up once, as in `attempt.py`.
_CANCELLED: Final = AttemptOutcome.CANCELLED

#: Stands in an attempt that is over for the record that it made.
_HANDED_OVER: Final = RoutingAttempt()


@final
class RunningAttempt(RequestScope):
    """One invocation of one client, and the scope that it runs in.

    One object for both: each is paid at every layer of every call.

    Attributes:
        record: What becomes its record; nobody else sees it before `finish` returns it.
        stream: What the client answers with, while it is read ahead and at its end. None between:
            whoever keeps the context must not keep alive a stream that its reader has dropped.
        timed_from: Event loop time from which limits count, None if none is set.
    """

    __slots__ = (
        "_before_commit",
        "_clock",
        "_is_committed",
        "_started",
        "_waited_at_attach",
        "stream",
        "timed_from",
    )

    def __init__(self, call: "RouterCall", client: ChatClient, route: str, number: int) -> None:
        self.call = call
        self.parent = outer = call.outer
        self.stream: ResponseStream | None = None
        self.timed_from: float | None = None
        # Field by field: the constructor's checks find nothing here and cost more than the rest.
        self.record = record = RoutingAttempt.__new__(RoutingAttempt)
        record.client = client
        record.route = route
        record.number = number
        record.request_key = call.request_key
        record.attempt_key = self.key = call.key + number
        record.parent_key = None if outer is None else outer.key
        record.children = ()
        record.timestamp = time.time()  # noqa: TID251  # a point in time, no duration
        self._started = call.settings.clock()

    def read_from(self, stream: ResponseStream, clock: Callable[[], float]) -> None:
        """Note the stream that the client answers with. For a whole answer nothing of it is set."""
        self.stream = stream
        self._clock = clock
        self._before_commit: float | None = None
        self._is_committed = False
        self._waited_at_attach: float | None = None

    def commit(self, *, has_update: bool) -> None:
        """Note that no other client will be asked; `has_update` unless the stream ended empty."""
        self._before_commit = self._so_far()
        self._is_committed = has_update

    def attach(self, stream: ResponseStream) -> None:
        """Leave the stream to its layer, and note what was waited for it until now."""
        self.stream = None
        if self._waited_at_attach is None:
            self._waited_at_attach = stream.waited

    def end(self) -> None:
        """Note that the attempt is over, and let go of what belongs to it.

        asyncio keeps a timer that was cancelled, with the context variables it was set in, until
        it would have gone off: without this a timeout of ten minutes holds the messages, and the
        clients that the records name, as long.
        """
        self.call = None
        self.record = _HANDED_OVER
        self.stream = None

    def _so_far(self) -> float:
        seconds = self._clock() - self._started
        if self.stream is not None:
            # Closing happens inside a read that fails; it is no time of the client.
            seconds -= self.stream.closing
        return seconds if seconds > 0 else 0.0  # a clock may step back

    def _duration(self) -> float:
        """Seconds waited for the client: up to the commit, and for each update since."""
        if self._before_commit is None:
            return self._so_far()
        if self.stream is None or self._waited_at_attach is None:
            return self._before_commit
        return self._before_commit + max(0.0, self.stream.waited - self._waited_at_attach)

    def finish(
        self,
        call: "RouterCall",
        outcome: AttemptOutcome,
        exception: BaseException | None = None,
        usage: Usage | None = None,
    ) -> RoutingAttempt:
        """Make the record; nothing of the attempt changes afterwards.

        Args:
            call: The router call that made the attempt.
            outcome: How it ended.
            exception: What was raised.
            usage: Of a whole answer; a stream knows its own.
        """
        record, stream, outer = self.record, self.stream, self.parent
        record.outcome = outcome
        if exception is None:
            record.exception = record.failure = None
        else:
            if outcome is _CANCELLED:
                # What the client made of the cancellation says more than the cancellation.
                exception = _cancellation.made_of(exception) or exception
            record.exception = exception
            record.failure = _failure(outcome, exception)
            self._tell_of_failure()
        if stream is None:
            seconds = call.settings.clock() - self._started
            record.duration = seconds if seconds > 0 else 0.0  # a clock may step back
            record.time_to_first_update = None
            record.usage = usage
        else:
            record.duration = self._duration()
            record.time_to_first_update = self._before_commit if self._is_committed else None
            record.usage = stream.usage
        record.usage_is_estimated = False
        selection = call.selection
        if selection is None:
            record.reason = record.detail = None
        else:
            record.reason, record.detail = selection.reason, selection.detail
        self.end()
        if outer is not None and outer.call is not None:
            outer.record.children += (record,)
        return record

    def _tell_of_failure(self) -> None:
        """Let the routers around know that there is an exception to release."""
        scope: RequestScope | None = self
        while scope is not None and scope.call is not None:
            scope.call.has_failed = True
            scope = scope.parent


def _failure(outcome: AttemptOutcome, exception: BaseException) -> Failure:
    if outcome is _CANCELLED and not isinstance(exception, Exception):
        return Failure.of(FailureKind.CANCELLED)
    return classify(exception)
