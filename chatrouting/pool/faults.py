"""What a failed attempt says about the member that was asked.

Four verdicts. A wrong request says nothing about a member, and neither does a refusal on this side;
a limit passes when its window does; a server that fails recovers by itself; a bad key or a missing
deployment stays until a person mends it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias, final

from chatrouting.errors import RequestTimeoutError
from chatrouting.failure import Failure, FailureKind
from chatrouting.policies.classify import classify


class Verdict(StrEnum):
    """What a failure means for the health of a member."""

    NEUTRAL = "neutral"  #: Nothing: the request is wrong, or it was refused on this side.
    THROTTLED = "throttled"  #: A limit of requests or tokens is used up.
    TRANSIENT = "transient"  #: It failed, or could not be reached.
    MEMBER = "member"  #: Its key, its right or its deployment is wrong, or its plan used up.


@final
@dataclass(frozen=True, slots=True)
class Fault:
    """One failure, judged.

    Attributes:
        verdict: What it means for the member.
        failure: What kind of failure it is, and when the provider says to come back.
        status: HTTP status; that which belongs to the kind if the error came inside a stream.
    """

    verdict: Verdict
    failure: Failure
    status: int | None = None


#: Judges what an attempt raised.
FaultClassifier: TypeAlias = Callable[[BaseException], Fault]

_VERDICTS: Final = {
    FailureKind.RATE_LIMITED: Verdict.THROTTLED,
    FailureKind.OVERLOADED: Verdict.TRANSIENT,
    FailureKind.SERVER_ERROR: Verdict.TRANSIENT,
    FailureKind.TIMEOUT: Verdict.TRANSIENT,
    FailureKind.CONNECTION: Verdict.TRANSIENT,
    FailureKind.CONFLICT: Verdict.TRANSIENT,
    # A client of one's own raises what it likes; only its author can tell it from a fault.
    FailureKind.UNKNOWN: Verdict.TRANSIENT,
    FailureKind.QUOTA_EXHAUSTED: Verdict.MEMBER,
    FailureKind.AUTHENTICATION: Verdict.MEMBER,
    FailureKind.PERMISSION: Verdict.MEMBER,
    FailureKind.NOT_FOUND: Verdict.MEMBER,
}
#: The statuses of errors that came inside a stream, after a 200.
_STATUS_OF_KIND: Final = {FailureKind.RATE_LIMITED: 429, FailureKind.OVERLOADED: 529}
_FIRST_ERROR: Final = 400

_TOO_EARLY: Final = 425
_TOO_MANY_REQUESTS: Final = 429
_TRANSIENT_UPSTREAM: Final = frozenset({500, 502, 503, 504})


def judge(error: BaseException) -> Fault:
    """Judge a failure by its kind; the classifier of every policy but `typeagent()`."""
    failure = classify(error)
    status = _status_of(error, failure)
    if isinstance(error, RequestTimeoutError) or not isinstance(error, Exception):
        # The caller had no more time. Others may still have, and the member did nothing wrong.
        return Fault(Verdict.NEUTRAL, failure, status)
    if status == _TOO_EARLY:
        return Fault(Verdict.TRANSIENT, failure, status)
    return Fault(_VERDICTS.get(failure.kind, Verdict.NEUTRAL), failure, status)


def judge_as_typeagent(error: BaseException) -> Fault:
    """Judge by status alone, as TypeAgent does: 429, four server errors, and no answer at all."""
    fault = judge(error)
    if fault.status is None:
        is_fault = fault.verdict is not Verdict.NEUTRAL
        return Fault(Verdict.TRANSIENT if is_fault else Verdict.NEUTRAL, fault.failure)
    verdict = Verdict.NEUTRAL
    if fault.status == _TOO_MANY_REQUESTS:
        verdict = Verdict.THROTTLED
    elif fault.status in _TRANSIENT_UPSTREAM:
        verdict = Verdict.TRANSIENT
    return Fault(verdict, fault.failure, fault.status)


def _status_of(error: BaseException, failure: Failure) -> int | None:
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= _FIRST_ERROR:
        return status
    return _STATUS_OF_KIND.get(failure.kind)
