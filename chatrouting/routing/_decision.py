"""What follows from an attempt: the one decision, pure, for both modes."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from chatrouting.attempt import AttemptOutcome, RoutingAttempt
from chatrouting.errors import ConfigurationError, RefusedLocallyError, RequestTimeoutError
from chatrouting.responses import ChatResponse

#: Looked up once, as in `attempt.py`.
_FAILED: Final = AttemptOutcome.FAILED
_REFUSED: Final = AttemptOutcome.REFUSED_LOCALLY

#: After these nobody else is asked.
_FINAL: Final = (ConfigurationError, RequestTimeoutError)


class Verdict(Enum):
    """What a router does after an attempt."""

    STOP = auto()  #: No further selection: hand over the answer or raise.
    GO_ON = auto()  #: Select again.
    ASK = auto()  #: Select again if `should_failover` says so.


def decide(
    *,
    outcome: AttemptOutcome,
    error: BaseException | None,
    is_committed: bool,
    attempts: Sequence[RoutingAttempt],
    maximum_attempts: int | None,
    is_over_time: bool,
) -> Verdict:
    """Decide whether another client may be selected.

    Args:
        outcome: How the attempt ended.
        error: What it raised.
        is_committed: Something was handed to the caller.
        attempts: All so far; those that were refused do not count against the limit.
        maximum_attempts: The limit, None for none.
        is_over_time: The deadline of the request has passed.
    """
    if is_committed or is_over_time:
        return Verdict.STOP
    if outcome is _REFUSED:
        # A refusal cost nothing and reached nobody: the walk goes on unless it forbids it.
        refused = isinstance(error, RefusedLocallyError) and error.fallback_allowed is False
        return Verdict.STOP if refused else Verdict.GO_ON
    if outcome is not _FAILED or isinstance(error, _FINAL):
        return Verdict.STOP
    if maximum_attempts is not None and _counted(attempts) >= maximum_attempts:
        return Verdict.STOP
    return Verdict.ASK


def _counted(attempts: Sequence[RoutingAttempt]) -> int:
    return sum(attempt.outcome is not _REFUSED for attempt in attempts)


def choose_error(
    current: BaseException | None, attempts: Sequence[RoutingAttempt]
) -> BaseException:
    """Choose what a request raises: the last error of a provider, else the last refusal.

    Args:
        current: The error of the attempt that ends the request; None if the policy had nothing
            left to select. A refusal that forbids going on is raised itself.
        attempts: All attempts of the router call, in order; at least one.
    """
    if current is not None and (
        not isinstance(current, RefusedLocallyError) or current.fallback_allowed is False
    ):
        return current
    failed = [each for each in attempts if each.outcome is AttemptOutcome.FAILED]
    chosen = (failed or attempts)[-1].exception
    if chosen is None:
        raise ValueError("the last attempt has no exception; only failed requests raise.")
    return chosen


def check_answer(answer: object, route: str) -> None:
    """Refuse what is no answer.

    Raises:
        TypeError: If it is no `ChatResponse`.
    """
    if not isinstance(answer, ChatResponse):
        raise TypeError(
            f"route {route!r} answered {type(answer).__name__}; "
            "get_response must return a ChatResponse."
        )
