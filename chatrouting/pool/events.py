"""What a pool tells of itself: events as they happen, and a view of all members at one moment."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from chatrouting.failure import FailureKind
from chatrouting.pool.endpoint import Endpoint, EndpointMode
from chatrouting.pool.member import Member

logger = logging.getLogger("chatrouting.pool")


class PoolEventKind(StrEnum):
    """What happened to a member."""

    THROTTLED = "throttled"  #: It refused for want of quota, and rests.
    FAULTED = "faulted"  #: It failed, and rests.
    PARKED = "parked"  #: It is left out until somebody mends it.
    REOPENED = "reopened"  #: It answered after a rest that it had to prove itself after.


@final
@dataclass(frozen=True, slots=True)
class PoolEvent:
    """Something that changed the state of a member.

    Attributes:
        kind: What happened.
        endpoint: To whom.
        seconds: How long it rests; 0 for one that reopened.
        failure: What kind of failure did it; None for one that reopened.
    """

    kind: PoolEventKind
    endpoint: Endpoint
    seconds: float = 0.0
    failure: FailureKind | None = None


class EndpointStatus(StrEnum):
    """Whether a member may be asked, and if not, why."""

    READY = "ready"
    THROTTLED = "throttled"
    FAULTED = "faulted"
    PARKED = "parked"
    BUSY = "busy"  #: All its slots are taken.
    PROBING = "probing"  #: Somebody tries whether it is well again.
    SET_ASIDE = "set_aside"  #: It failed again and again: others are asked first.


@final
@dataclass(frozen=True, slots=True)
class EndpointState:
    """How a member is doing. Holds no key.

    Attributes:
        id: Of the endpoint.
        region: Of the endpoint.
        mode: Of the endpoint.
        priority: Of the endpoint.
        status: Whether it may be asked.
        ready_in: Seconds until its rest ends; 0 if it has none.
        consecutive_429s: Refusals without a streak of successes since.
        consecutive_faults: Failures likewise.
        success_streak: Successes without a failure since.
        epoch: How many failures it has seen.
        in_flight: Attempts that run.
        latency: Moving average of the seconds to the first output; None if nothing is known.
        parked_for: Why it is parked, None if it is not.
    """

    id: str
    region: str | None
    mode: EndpointMode
    priority: int
    status: EndpointStatus
    ready_in: float
    consecutive_429s: int
    consecutive_faults: int
    success_streak: int
    epoch: int
    in_flight: int
    latency: float | None
    parked_for: FailureKind | None


def state_of(member: Member, now: float) -> EndpointState:
    """Take a view of a member."""
    endpoint = member.endpoint
    is_parked = member.parked_until > now
    return EndpointState(
        id=endpoint.id,
        region=endpoint.region,
        mode=endpoint.mode,
        priority=endpoint.priority,
        status=_status_of(member, now),
        ready_in=max(0.0, member.cooldown_until - now, member.parked_until - now),
        consecutive_429s=member.consecutive_429s,
        consecutive_faults=member.consecutive_faults,
        success_streak=member.success_streak,
        epoch=member.epoch,
        in_flight=member.in_flight,
        latency=member.latency,
        parked_for=member.parked_for if is_parked else None,
    )


def _status_of(member: Member, now: float) -> EndpointStatus:
    if member.parked_until > now:
        return EndpointStatus.PARKED
    if member.throttled_until > now:
        return EndpointStatus.THROTTLED
    if member.cooldown_until > now:
        return EndpointStatus.FAULTED
    if member.is_blocked:
        return EndpointStatus.PROBING if member.needs_probe else EndpointStatus.BUSY
    if member.set_aside_until > now:
        return EndpointStatus.SET_ASIDE
    return EndpointStatus.READY


_LEVELS: Final[Mapping[PoolEventKind, int]] = {
    PoolEventKind.PARKED: logging.WARNING,
    PoolEventKind.THROTTLED: logging.INFO,
    PoolEventKind.FAULTED: logging.INFO,
    PoolEventKind.REOPENED: logging.INFO,
}


def log_event(pool: str, event: PoolEvent) -> None:
    """Write an event to the log; one that a person has to mend as a warning, with the variables."""
    logger.log(
        _LEVELS[event.kind],
        "pool.%s pool=%s endpoint=%s seconds=%.3f kind=%s variables=%s",
        event.kind.value,
        pool,
        event.endpoint.id,
        event.seconds,
        event.failure,
        ",".join(event.endpoint.source),
    )
