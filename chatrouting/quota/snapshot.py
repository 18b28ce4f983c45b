"""What a governor shows of itself: limits, use, lines and guarantees at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from chatrouting.quota._core import GovernorCore
from chatrouting.quota._room import ScopeRoom
from chatrouting.quota.decisions import FundingKind


@final
@dataclass(frozen=True, slots=True)
class WindowState:
    """One window of one bucket.

    Attributes:
        level: Whose bucket.
        id: Of the tenant, team, scope, ....
        dimension: What is limited.
        span: Over what, as a person reads it.
        used: Open charges included; may be more than `size`.
        size: The most that may be charged at once.
    """

    level: str
    id: str
    dimension: str
    span: str
    used: float
    size: float


@final
@dataclass(frozen=True, slots=True)
class ScopeState:
    """One provider's quota.

    Attributes:
        scope: Its name.
        deployments: That share it.
        running: Open reservations, by what pays for them.
        oldest_running: Seconds since the oldest of them was admitted; 0 if there is none.
        waiting: Requests in the line, by class.
        next_start: Seconds until the line is looked at again; infinity: only an event helps.
        closed_for: Seconds for which the provider wants to see nothing.
        is_lowered: The provider leaves less than was configured.
        assured: What each tenant with a guarantee may spend now, by dimension and span.
    """

    scope: str
    deployments: tuple[str, ...]
    running: Mapping[str, int]
    oldest_running: float
    waiting: Mapping[str, int]
    next_start: float
    closed_for: float
    is_lowered: bool
    assured: Mapping[str, Mapping[str, float]]


@final
@dataclass(frozen=True, slots=True)
class QuotaSnapshot:
    """A governor at one moment.

    Attributes:
        at: By the governor's clock.
        windows: Of all buckets that are in use.
        scopes: One for each provider's quota.
        metrics: Counters and histograms, as plain JSON.
    """

    at: float
    windows: tuple[WindowState, ...]
    scopes: tuple[ScopeState, ...]
    metrics: Mapping[str, Any]


def take_snapshot(core: GovernorCore) -> QuotaSnapshot:
    """Look at everything, under the lock of the core."""
    now = core.clock()
    windows = tuple(
        WindowState(
            each.key.level.value,
            each.key.id,
            each.limit.dimension,
            each.limit.span,
            each.used,
            each.size,
        )
        for each in core.ledger.snapshot(now)
    )
    scopes = tuple(_scope_state(core, room, now) for room in core.rooms.values())
    return QuotaSnapshot(now, windows, scopes, core.metrics.to_dict())


def _scope_state(core: GovernorCore, room: ScopeRoom, now: float) -> ScopeState:
    running = [each.funding for each in room.running]
    oldest = max((now - each.started_at for each in room.running), default=0.0)
    tenants = () if room.shares is None else tuple(room.shares.plan.guarantees)
    return ScopeState(
        scope=room.key.id,
        deployments=tuple(
            name for name, each in core.deployments.items() if core.room(each) is room
        ),
        running={kind.value: count for kind in FundingKind if (count := running.count(kind))},
        oldest_running=oldest,
        waiting=room.dispatcher.line.counts(),
        next_start=max(0.0, room.next_start - now),
        closed_for=room.belief.closed_for(now),
        is_lowered=room.belief.is_lowered,
        assured={
            tenant: levels
            for tenant in tenants
            if room.shares is not None and (levels := room.shares.levels(tenant, now))
        },
    )
