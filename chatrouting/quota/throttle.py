"""What a provider means when it refuses for want of quota: wait, slow down, or do not come back.

One status, 429, says five things. Which of them is told by the code and the words of the error, by
the details that Google's servers put into its body, and by the limits that are used up.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, cast, final

from chatrouting.errors import ChatClientError
from chatrouting.failure import FailureKind
from chatrouting.policies.classify import classify
from chatrouting.policies.retry_after import parse_reset
from chatrouting.quota.headers import DAY, MINUTE, LimitReading, read_limits
from chatrouting.quota.limits import INPUT_TOKENS, REQUESTS
from chatrouting.quota.profiles import ProviderProfile


class ThrottleKind(StrEnum):
    """Why a provider refused."""

    QUOTA = "quota"  #: A limit for a minute or less; it comes back by itself.
    ACCELERATION = "acceleration"  #: Traffic rose too fast.
    OVERLOAD = "overload"  #: The provider has no capacity, whatever our quota is.
    DAILY = "daily"  #: A limit for a day or longer.
    SPEND = "spend"  #: Money, or a plan without any quota; waiting does not help.


@final
@dataclass(frozen=True, slots=True)
class Throttle:
    """A refusal by the provider.

    Attributes:
        kind: Why.
        retry_after: Seconds after which the provider says to come back; None if it does not say.
        limiter: The provider's own name of the limit; None if it names none.
        readings: The limits that it told.
    """

    kind: ThrottleKind
    retry_after: float | None = None
    limiter: str | None = None
    readings: tuple[LimitReading, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Violation:
    """One limit that Google's servers say was exceeded.

    Attributes:
        limiter: The id of the quota, such as "GenerateRequestsPerDayPerProjectPerModel-FreeTier".
        dimension: What it counts, in our terms; None if its name does not say.
        window: Seconds; None if its name does not say.
        limit: The limit, None if it is not told. 0 is a plan without this quota.
    """

    limiter: str
    dimension: str | None = None
    window: float | None = None
    limit: float | None = None


#: Looked for in the code and the message, in lower case, in this order.
_WORDS: Final = (
    (ThrottleKind.ACCELERATION, ("ramp_limit", "acceleration", "ramp up", "too quickly")),
    (ThrottleKind.OVERLOAD, ("high demand", "peak load", "overloaded", "at capacity")),
    (ThrottleKind.DAILY, ("per day", "daily", "(rpd)", "(tpd)", "per month", "86400 sec")),
)
_KINDS: Final = {
    FailureKind.QUOTA_EXHAUSTED: ThrottleKind.SPEND,
    FailureKind.OVERLOADED: ThrottleKind.OVERLOAD,
    FailureKind.RATE_LIMITED: ThrottleKind.QUOTA,
}


def read_throttle(
    error: BaseException, profile: ProviderProfile, *, now: datetime | None = None
) -> Throttle | None:
    """Read a refusal.

    Args:
        error: What the client raised.
        profile: Of the provider.
        now: An aware time that resets given as points in time are measured from.

    Returns:
        None if the error is about something else. Never raises.
    """
    failure = classify(error)
    kind = _KINDS.get(failure.kind)
    if kind is None:
        return None
    headers = error.rate_limit_headers if isinstance(error, ChatClientError) else None
    readings = read_limits(headers or {}, now=now, windows=profile.header_windows)
    body = getattr(error.__cause__, "body", None) or getattr(error, "body", None)
    violations = read_violations(body)
    exhausted = [each for each in readings if each.remaining == 0]
    if kind is ThrottleKind.QUOTA:
        kind = _refined(error, violations, exhausted)
    wait = failure.retry_after
    named: list[LimitReading | Violation] = [*violations, *exhausted]
    return Throttle(
        kind,
        read_retry_delay(body) if wait is None else wait,
        next((each.limiter for each in named), None),
        readings,
    )


def _refined(
    error: BaseException, violations: Iterable[Violation], exhausted: Iterable[LimitReading]
) -> ThrottleKind:
    if any(each.limit == 0 for each in violations):
        return ThrottleKind.SPEND
    said = f"{getattr(error, 'code', '')} {error}".lower()
    for kind, words in _WORDS:
        if any(word in said for word in words):
            return kind
    limits: list[LimitReading | Violation] = [*violations, *exhausted]
    windows = [each.window or MINUTE for each in limits]
    # Of several limits that are used up, waiting helps only when the longest has come back.
    return ThrottleKind.DAILY if max(windows, default=MINUTE) >= DAY else ThrottleKind.QUOTA


def read_violations(body: object) -> tuple[Violation, ...]:
    """Read which quotas were exceeded from the body of an error of Google's servers.

    Args:
        body: Decoded JSON, or the inner error object that an SDK has cut out.

    Returns:
        Empty if it has no such details. Never raises.
    """
    return tuple(
        _violation(each)
        for detail in _details(body, "QuotaFailure")
        for each in _objects(detail.get("violations"))
    )


def read_retry_delay(body: object) -> float | None:
    """Read the wait from the body of an error of Google's servers, in seconds."""
    for detail in _details(body, "RetryInfo"):
        delay = detail.get("retryDelay")
        if isinstance(delay, str):
            return parse_reset(delay, None)
    return None


def _violation(found: Mapping[str, Any]) -> Violation:
    limiter = str(found.get("quotaId") or found.get("quotaMetric") or found.get("subject") or "")
    name = f"{limiter} {found.get('quotaMetric', '')}".lower()
    dimension = REQUESTS if "requests" in name else None
    # The quota is on what is read: the name says "input tokens".
    if "token" in name:
        dimension = INPUT_TOKENS
    window = DAY if "perday" in name else MINUTE if "perminute" in name else None
    try:
        limit = float(found["quotaValue"])
    except (KeyError, TypeError, ValueError):
        limit = None
    return Violation(limiter, dimension, window, limit)


def _details(body: object, kind: str) -> Iterator[Mapping[str, Any]]:
    outer = next(iter(_objects(body)), _object(body))
    error = _object(outer.get("error")) or outer
    for detail in _objects(error.get("details")):
        if str(detail.get("@type", "")).endswith(kind):
            yield detail


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [found for item in items if (found := _object(item))]
