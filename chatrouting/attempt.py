"""The record of one attempt: one invocation of one client by a router."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

from typing_extensions import override

from chatrouting.failure import Failure
from chatrouting.usage import Usage

if TYPE_CHECKING:
    from chatrouting.client import ChatClient


class AttemptOutcome(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"  #: The answer came whole, or its end was handed to the consumer.
    FAILED = "failed"
    CANCELLED = "cancelled"  #: The caller, or an outer timer, gave up.
    ABANDONED = "abandoned"  #: The consumer closed the stream before its end.
    REFUSED_LOCALLY = "refused_locally"  #: No provider was asked.


#: Looked up once: reaching an enum's member costs as much as a call, for each attempt.
_COMPLETED: Final = AttemptOutcome.COMPLETED


def identifier(key: int | str) -> str:
    """Return what a key is written as: a number by 16 digits, a text as it is."""
    return key if isinstance(key, str) else f"{key:016x}"


@dataclass(slots=True, init=False, repr=False)
class RoutingAttempt:
    """What a router tells of one attempt. Holds no messages.

    Made by routers; constructible by anyone, so that policies can be tested without one.
    No exception does not mean success: look at `outcome` or `response_completed`.

    Attributes:
        client: The client that was invoked; None in a record that was pickled.
        route: Its name in the router.
        number: 1 for the first attempt of this router call.
        request_key: What `request_id` is written from.
        attempt_key: What `attempt_id` is written from.
        parent_key: What `parent_id` is written from.
        children: Records of inner routers, in the order of their ends.
        outcome: How the attempt ended.
        exception: What was raised, also where the caller was cancelled meanwhile.
        failure: `exception`, classified.
        duration: Seconds waited for the client; the consumer's time between updates, selectors,
            hooks and closing are excluded.
        time_to_first_update: Seconds from the start to the moment of commit; None if nothing was
            committed, so always None for a whole response.
        usage: Tokens as far as they are known; also of a stream that broke.
        usage_is_estimated: `usage` is a guess that no provider confirmed.
        timestamp: When the client was invoked, in seconds since the epoch.
        reason: Why the policy selected the client: `Selection.reason`.
        detail: What else the policy says of its choice: `Selection.detail`.
    """

    client: "ChatClient | None"
    route: str
    number: int
    request_key: int | str
    attempt_key: int | str
    parent_key: int | str | None
    children: "tuple[RoutingAttempt, ...]"
    outcome: AttemptOutcome
    exception: BaseException | None
    failure: Failure | None
    duration: float
    time_to_first_update: float | None
    usage: Usage | None
    usage_is_estimated: bool
    timestamp: float | None
    reason: str | None
    detail: object

    def __init__(
        self,
        *,
        client: "ChatClient | None" = None,
        route: str = "route-1",
        number: int = 1,
        request_id: str = "",
        attempt_id: str = "",
        parent_id: str | None = None,
        children: "Sequence[RoutingAttempt]" = (),
        outcome: AttemptOutcome | str | None = None,
        exception: BaseException | None = None,
        failure: Failure | None = None,
        duration: float = 0.0,
        time_to_first_update: float | None = None,
        output_committed: bool | None = None,
        response_completed: bool | None = None,
        usage: Usage | None = None,
        usage_is_estimated: bool = False,
        started_at: datetime | None = None,
        reason: str | None = None,
        detail: object = None,
    ) -> None:
        """Make a record; what is left out follows from the rest.

        Args:
            client: See the class.
            route: See the class.
            number: See the class.
            request_id: See the class.
            attempt_id: See the class.
            parent_id: See the class.
            children: See the class.
            outcome: Also as its word. None: FAILED with an exception, COMPLETED without one,
                ABANDONED if `response_completed` is False and there is no exception.
            exception: See the class.
            failure: See the class.
            duration: See the class.
            time_to_first_update: See the class.
            output_committed: None: whether `time_to_first_update` is set.
            response_completed: None: whether `outcome` is COMPLETED.
            usage: See the class.
            usage_is_estimated: See the class.
            started_at: Becomes `timestamp`.
            reason: See the class.
            detail: See the class.

        Raises:
            ValueError: If the fields contradict one another, or `outcome` is no such word.
        """
        if outcome is None:
            outcome = _outcome_of(exception, response_completed)
        elif type(outcome) is not AttemptOutcome:
            outcome = AttemptOutcome(outcome)
        completed = outcome is _COMPLETED
        committed = time_to_first_update is not None
        if output_committed is not None and output_committed is not committed:
            raise ValueError(
                f"output_committed is {output_committed} with time_to_first_update "
                f"{time_to_first_update}; the one is True exactly when the other is set."
            )
        if (completed and exception is not None) or (
            response_completed is not None and response_completed is not completed
        ):
            raise ValueError(
                f"outcome is {outcome.value} with response_completed {response_completed} and "
                f"exception {exception!r}; COMPLETED goes with True and no exception."
            )
        if time_to_first_update is not None and not 0 <= time_to_first_update <= duration:
            raise ValueError(
                f"time_to_first_update is {time_to_first_update} and duration {duration}; "
                "expected 0 <= time_to_first_update <= duration."
            )
        self.client = client
        self.route = route
        self.number = number
        self.request_key = request_id
        self.attempt_key = attempt_id
        self.parent_key = parent_id
        self.children = tuple(children)
        self.outcome = outcome
        self.exception = exception
        self.failure = failure
        self.duration = duration
        self.time_to_first_update = time_to_first_update
        self.usage = usage
        self.usage_is_estimated = usage_is_estimated
        self.timestamp = None if started_at is None else started_at.timestamp()
        self.reason = reason
        self.detail = detail

    @property
    def request_id(self) -> str:
        """Shared by all routers that one request passes."""
        return identifier(self.request_key)

    @property
    def attempt_id(self) -> str:
        """Unique to this attempt."""
        return identifier(self.attempt_key)

    @property
    def parent_id(self) -> str | None:
        """The `attempt_id` of the attempt of an outer router in which this one ran."""
        return None if self.parent_key is None else identifier(self.parent_key)

    @property
    def output_committed(self) -> bool:
        """Whether something was handed to the caller of the router."""
        return self.time_to_first_update is not None

    @property
    def response_completed(self) -> bool:
        """Whether `outcome` is COMPLETED."""
        return self.outcome is _COMPLETED

    @override
    def __repr__(self) -> str:
        said = "" if self.exception is None else f", exception={self.exception!r}"
        return (
            f"{type(self).__name__}(route={self.route!r}, number={self.number}, "
            f"outcome={self.outcome.value!r}{said}, duration={self.duration:.6g}, "
            f"attempt_id={self.attempt_id!r}, parent_id={self.parent_id!r}, "
            f"children={len(self.children)})"
        )

    @property
    def started_at(self) -> datetime | None:
        """When the client was invoked, an aware time in UTC."""
        return None if self.timestamp is None else datetime.fromtimestamp(self.timestamp, UTC)

    def __copy__(self) -> Self:
        return self  # a record never changes

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        # A client does not travel, and nobody who unpickles a record could use it.
        fields = {name: getattr(self, name) for name in self.__slots__}
        return None, fields | {"client": None}


def _outcome_of(
    exception: BaseException | None,
    response_completed: bool | None,  # noqa: FBT001  # a value handed through, not a switch
) -> AttemptOutcome:
    if exception is not None:
        return AttemptOutcome.FAILED
    if response_completed is False:
        return AttemptOutcome.ABANDONED
    return AttemptOutcome.COMPLETED
