"""What a governor knows, and what it does whenever something has changed.

All of it runs under one lock, and nothing is awaited there: a look and the charge that follows are
one step, on one event loop and on several.
"""

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, final

from chatrouting._core_lock import CoreLock
from chatrouting.errors import ConfigurationError
from chatrouting.quota import _checks
from chatrouting.quota._belief import ScopeBelief
from chatrouting.quota._candidate import Candidate, Grant
from chatrouting.quota._ceilings import Ceilings, Watched
from chatrouting.quota._room import ScopeRoom
from chatrouting.quota.capacity import AdaptiveSettings
from chatrouting.quota.classes import TrafficClass
from chatrouting.quota.decisions import Decision
from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.guarantees import GuaranteePlan, TenantContract, check_contracts, plan
from chatrouting.quota.ledger import Ledger
from chatrouting.quota.limits import BucketKey, BucketLimits, Level, ProviderScope, keys_of
from chatrouting.quota.metrics import QuotaMetrics

_logger = logging.getLogger(__name__)

#: Called with each decision when it is complete, from whatever thread completes it.
DecisionListener = Callable[[Decision], object]

#: How often, seconds, to look whether the time of day has gone ahead of the clock, and by how much.
_MINUTE: Final = 60.0
_STEP: Final = 0.5
_NO_CONTRACT: Final = TenantContract()


@final
class GovernorCore:
    """Deployments, buckets, rooms.

    Attributes:
        lock: Held whenever anything else here is used.
        clock: Seconds that never go back.
        lease: Seconds after which what is not extended holds no slot.
        ledger: All buckets.
        deployments: By name.
        rooms: By scope.
        classes: By name.
        metrics: What was counted.
        contracts: By tenant.
    """

    def __init__(
        self,
        deployments: Mapping[str, QuotaDeployment],
        classes: Mapping[str, TrafficClass],
        *,
        ceilings: Mapping[BucketKey, BucketLimits],
        default_ceilings: Mapping[Level, BucketLimits],
        contracts: Mapping[str, TenantContract],
        pool_share: float,
        largest_request: Mapping[str, float],
        watched: Collection[Level | BucketKey],
        is_shadow: bool,
        adaptive: AdaptiveSettings,
        cold_share: float,
        on_decision: DecisionListener | None,
        clock: Callable[[], float],
        lease: float,
        wall_clock: Callable[[], datetime],
    ) -> None:
        _checks.check_flag("shadow", is_shadow)
        _checks.check_kind("adaptive", adaptive, AdaptiveSettings, "AdaptiveSettings")
        _checks.check_number("cold_share", cold_share, above=0, most=1)
        check_contracts(contracts)
        self._ceilings = Ceilings(ceilings, default_ceilings)
        self._watched = Watched(watched)
        self.lock = CoreLock()
        self.clock = clock
        self.lease = lease
        self.metrics = QuotaMetrics()
        self.deployments = dict(deployments)
        self.classes = classes
        self.contracts = dict(contracts)
        self._wall_clock = wall_clock
        self._epoch = self._epoch_now()
        self._epoch_at = clock()
        self.ledger = Ledger(self._limits_of, lease=lease, epoch=self._epoch)
        self.rooms: dict[ProviderScope, ScopeRoom] = {}
        self._pool_share = pool_share
        self._largest_request = largest_request
        self._is_shadow = is_shadow
        self._on_decision = on_decision
        self._complete: list[Decision] = []
        self._scopes: dict[BucketKey, ScopeRoom] = {}
        self._rooms: dict[str, ScopeRoom] = {}  # a scope takes longer to hash than a name
        for each in self.deployments.values():
            if each.scope not in self.rooms:
                self._open(each, adaptive, cold_share)
            self._rooms[each.name] = self.rooms[each.scope]

    def deployment(self, name: str) -> QuotaDeployment:
        """Return a deployment by its name.

        Raises:
            ConfigurationError: If there is none: what has no limits is never unlimited.
        """
        try:
            return self.deployments[name]
        except (KeyError, TypeError):  # what cannot be hashed is no name
            raise ConfigurationError(
                f"deployment {name!r} has no limits in this governor; it governs "
                f"{', '.join(map(repr, self.deployments))}. Add it, with its limits."
            ) from None

    def traffic(self, name: str) -> TrafficClass:
        """Return a traffic class by its name.

        Raises:
            ConfigurationError: If there is none.
        """
        try:
            return self.classes[name]
        except (KeyError, TypeError):
            raise ConfigurationError(
                f"request class {name!r} is none of {', '.join(map(repr, self.classes))}; add a "
                "TrafficClass of that name to the governor."
            ) from None

    def room(self, deployment: QuotaDeployment) -> ScopeRoom:
        """Return where a deployment's requests wait."""
        return self._rooms[deployment.name]

    def weight(self, tenant: str | None) -> float:
        """Return a tenant's weight beyond its guarantee."""
        return self.contracts.get(tenant or "", _NO_CONTRACT).weight

    def is_enforced(self, key: BucketKey) -> bool:
        """Say whether a bucket may refuse, or is only watched."""
        return self.enforces_all or not (self._is_shadow or key in self._watched)

    @property
    def enforces_all(self) -> bool:
        """Whether nothing is only watched."""
        return not (self._is_shadow or self._watched)

    def guarantees(self, limits: BucketLimits) -> GuaranteePlan:
        """Return what tenants get of a deployment with these limits."""
        return plan(
            limits.limits,
            self.contracts,
            pool_share=self._pool_share,
            largest_request=self._largest_request,
        )

    # Whenever something has changed.

    def renew(self, room: ScopeRoom, now: float) -> None:
        """Follow what a provider leaves of its limits, and let go of what nobody has settled.

        Days and months follow the time of day.
        """
        room.expire(now)
        if room.belief.renew(now):
            self.lay_out([room], now)
        if now >= self._epoch_at + _MINUTE:
            self._follow_time_of_day(now)

    def _follow_time_of_day(self, now: float) -> None:
        """Let days end at midnight also after a machine slept, or its time was set forward.

        Not after it was set back: a day that has ended already would begin to count anew.
        """
        self._epoch_at, epoch = now, self._epoch_now()
        if epoch > self._epoch + _STEP:
            self._epoch = epoch
            self.ledger.set_epoch(epoch, now)
            self._look_at_all(now)

    def _epoch_now(self) -> float:
        # In this order: to be held up in between is not taken for a step forward.
        return self._wall_clock().timestamp() - self.clock()

    def lay_out(self, rooms: Iterable[ScopeRoom], now: float) -> None:
        """Let the buckets, and the guarantees, follow the limits."""
        self.ledger.reconfigure(now)
        for room in rooms:
            room.promise(self.guarantees(room.belief.limits), now)
            self.dispatch(room, now)

    def released(self, keys: Iterable[BucketKey], now: float) -> None:
        """Look at those who wait, after something was given back in these buckets."""
        keys = tuple(keys)
        for room in self.rooms.values():
            if room.waiting:
                room.dispatcher.released(keys, now)
                self.dispatch(room, now)

    def dispatch(self, room: ScopeRoom, now: float) -> None:
        """Hand out what fits, and set the timer for the rest."""
        while (found := room.dispatcher.next_granted(now)) is not None:
            candidate, grant = found
            room.waiting.pop(candidate, None)
            candidate.grant = grant
            waiter = candidate.waiter
            if waiter is None:
                continue
            waiter.grant = candidate, grant
            self.withdraw(waiter.candidates, now)
            if not waiter.wake():
                # Its event loop is gone, and nobody will ever take the grant.
                self.take_back(candidate, grant, now)
        room.renewed_at = room.belief.changes_at(now)
        self.set_timer(room)

    def take_back(self, candidate: Candidate, grant: Grant, now: float) -> None:
        """Undo a grant that nobody takes, and look at those who wait for what it held."""
        room = self.room(candidate.deployment)
        room.undo(grant, now)
        room.dispatcher.renew(candidate.principal.tenant, now)
        keys = [key for hold in grant.holds() for key in hold.path.keys]
        self.released([*keys, room.key, room.own_place(candidate)], now)

    def join(self, candidate: Candidate, now: float) -> None:
        """Let a request wait."""
        room = self.room(candidate.deployment)
        room.waiting[candidate] = None
        room.dispatcher.join(candidate, now)

    def withdraw(self, candidates: Iterable[Candidate], now: float) -> None:
        """Let requests wait no more."""
        for candidate in candidates:
            room = self.room(candidate.deployment)
            if candidate in room.waiting:
                del room.waiting[candidate]
                room.dispatcher.leave(candidate, now)
                # It may have kept others back: to be looked at in a moment.
                room.dispatcher.next_start = now
                self.set_timer(room)

    def set_timer(self, room: ScopeRoom) -> None:
        """Let the one that has waited longest keep the timer, and wake it if that moves."""
        waiters = (each.waiter for each in room.waiting)
        leader = next((each for each in waiters if each and not each.is_left_behind), None)
        if leader is not room.leader:
            if room.leader is not None:
                room.leader.leads.remove(room)
            room.leader = leader
            room.timer_at = math.inf
            if leader is not None:
                leader.leads.append(room)
        if leader is not None and room.next_start < room.timer_at:
            leader.wake()
        room.timer_at = room.next_start

    # What goes out.

    def complete(self, decision: Decision) -> None:
        """Keep a record until it can be told, outside of the lock."""
        if self._on_decision is not None:
            self._complete.append(decision)

    @property
    def keeps_levels(self) -> bool:
        """Whether records say what the windows counted."""
        return self._on_decision is not None

    def tell(self) -> None:
        """Tell the listener of complete decisions. Not under the lock: it may ask anything."""
        while self._complete and self._on_decision is not None:
            with self.lock:
                told, self._complete = self._complete, []
            for decision in told:
                try:
                    self._on_decision(decision)
                except Exception:
                    _logger.exception("quota.listener_failed decision=%s", decision.id)

    def configure(
        self,
        *,
        limits: Mapping[str, BucketLimits],
        ceilings: Mapping[BucketKey, BucketLimits | None],
        contracts: Mapping[str, TenantContract],
        now: float,
    ) -> None:
        """Change limits and contracts; all of them or, if they are wrong, none.

        Args:
            limits: By deployment; others of the same scope follow.
            ceilings: By bucket; None takes one away.
            contracts: By tenant.
            now: The time.

        Raises:
            ConfigurationError: If guarantees exceed what there is, or the limits of one scope are
                given twice and differ.
        """
        _checks.check_mapping(
            "deployments", limits, str, BucketLimits, "BucketLimits for each name of a deployment"
        )
        self._ceilings.check(ceilings)
        check_contracts(contracts)
        by_scope = self._by_scope(limits)
        before, self.contracts = self.contracts, {**self.contracts, **contracts}
        deployments = {
            name: replace(each, limits=by_scope.get(each.scope, each.limits))
            for name, each in self.deployments.items()
        }
        try:
            for each in deployments.values():
                self.guarantees(each.limits)
        except ConfigurationError:
            self.contracts = before
            raise
        self.deployments = deployments
        for scope, changed in by_scope.items():
            self.rooms[scope].belief.configure(changed)
        self._ceilings.change(ceilings)
        self.lay_out(self.rooms.values(), now)
        self._look_at_all(now)

    def enforce(
        self, *, is_shadow: bool, watched: Collection[Level | BucketKey], now: float
    ) -> None:
        """Change which buckets may refuse.

        Raises:
            ConfigurationError: If something watched is neither a level nor a bucket.
        """
        _checks.check_flag("shadow", is_shadow)
        self._watched = Watched(watched)
        self._is_shadow = is_shadow
        for key, room in self._scopes.items():
            room.is_enforced = self.is_enforced(key)
            for candidate in room.waiting:
                candidate.tell_apart(self.is_enforced)
        self._look_at_all(now)

    def _look_at_all(self, now: float) -> None:
        for room in self.rooms.values():
            room.dispatcher.released(list(room.dispatcher.line.places()), now)
            self.dispatch(room, now)

    def _by_scope(self, limits: Mapping[str, BucketLimits]) -> dict[ProviderScope, BucketLimits]:
        found: dict[ProviderScope, BucketLimits] = {}
        for name, each in limits.items():
            scope = self.deployment(name).scope
            if found.setdefault(scope, each) != each:
                raise ConfigurationError(
                    f"deployment {name!r} shares the quota {scope} with another one that is given "
                    "other limits; give both the same ones, or one of them."
                )
        return found

    def _open(
        self, deployment: QuotaDeployment, adaptive: AdaptiveSettings, cold_share: float
    ) -> None:
        (key,) = keys_of(scope=deployment.scope)
        belief = ScopeBelief(
            deployment.profile, deployment.limits, adaptive=adaptive, cold_share=cold_share
        )
        room = ScopeRoom(
            key,
            self.ledger,
            belief,
            is_enforced=self.is_enforced(key),
            keeps_levels=self.keeps_levels,
        )
        now = self.clock()
        belief.renew(now)
        room.promise(self.guarantees(belief.limits), now)
        self.rooms[deployment.scope] = self._scopes[key] = room

    def _limits_of(self, key: BucketKey) -> BucketLimits | None:
        if key.level is Level.DEPLOYMENT:
            room = self._scopes.get(key)
            return None if room is None else room.belief.limits
        return self._ceilings.of(key)
