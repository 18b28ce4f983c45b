"""One provider's quota while it is used: its bucket, its guarantees, and those who wait for it.

Deployments of one scope share it. It answers the questions of `dispatch`: what fits, when, and on
whose account. Nothing here waits or awaits; the governor calls it under its lock.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, final

from chatrouting.quota._belief import ScopeBelief
from chatrouting.quota._candidate import Candidate, Grant, Refusal
from chatrouting.quota._waiters import Waiter
from chatrouting.quota.assured import AssuredShares
from chatrouting.quota.buckets import Path
from chatrouting.quota.decisions import BucketLevel, FundingKind, Limiter
from chatrouting.quota.dispatch import Blocked, Dispatcher
from chatrouting.quota.guarantees import GuaranteePlan
from chatrouting.quota.ledger import Denial, Hold, Ledger
from chatrouting.quota.limits import TOTAL_TOKENS, BucketKey
from chatrouting.quota.reservation import Reservation

_MINUTE: Final = 60.0
#: Names of what binds where no bucket does.
_CLOSED: Final = "closed by the provider"
_KEPT: Final = "kept for guarantees"
_NO_BORROWING: Final = "guarantee of the tenant"


@final
class ScopeRoom:
    """A `Room` over one scope.

    Attributes:
        key: Of the scope's bucket.
        belief: What the provider leaves of it.
        shares: The guarantees; None if nobody has one.
        dispatcher: Those that wait.
        waiting: The same, oldest first.
        running: Reservations that are open, the first to expire in front.
        sent: How many requests were admitted.
        is_enforced: False: its bucket is only watched.
        leader: Who keeps the timer of those that wait.
        timer_at: When that goes off.
        renewed_at: When there may be more of the limits to use; infinity if there is all.
    """

    def __init__(
        self,
        key: BucketKey,
        ledger: Ledger,
        belief: ScopeBelief,
        *,
        is_enforced: bool,
        keeps_levels: bool,
    ) -> None:
        self.key = key
        self.belief = belief
        self.shares: AssuredShares | None = None
        self.dispatcher: Dispatcher[Candidate, Grant] = Dispatcher(self)
        self.waiting: dict[Candidate, None] = {}
        self.running: dict[Reservation, None] = {}
        self.sent = 0
        self.is_enforced = is_enforced
        self.leader: Waiter | None = None
        self.timer_at = math.inf
        self.renewed_at = math.inf
        self._path: Path | None = None
        self._ledger = ledger
        self._keeps_levels = keeps_levels
        self._kept = Limiter(key, _KEPT)

    @property
    def path(self) -> Path:
        """The way through the scope's bucket alone."""
        # Found anew if it was let go meanwhile: to look for it takes as long as to use it.
        if self._path is None or not self._path.generation:
            self._path = self._ledger.path([self.key])
        return self._path

    @property
    def next_start(self) -> float:
        """When to look again at those that wait."""
        return min(self.dispatcher.next_start, self.renewed_at)

    def promise(self, plan: GuaranteePlan, now: float) -> None:
        """Keep these guarantees from now on."""
        if plan.is_empty:
            self.shares = None
        elif self.shares is None:
            self.shares = AssuredShares(plan, now)
        else:
            self.shares = self.shares.renewed(plan, now)

    def expire(self, now: float) -> None:
        """Give back the slots of requests of which nobody has heard for the length of a lease."""
        while self.running:
            oldest = next(iter(self.running))
            if oldest.expires > now:
                return
            del self.running[oldest]
            if oldest.grant.funding is not None and self.shares is not None:
                self.shares.release(oldest.grant.funding, now)

    def extend(self, reservation: Reservation, expires: float, now: float) -> None:
        """Note that a request still runs."""
        self.running.pop(reservation, None)
        self.running[reservation] = None
        reservation.expires = expires
        if reservation.grant.funding is not None and self.shares is not None:
            self.shares.hold_again(reservation.grant.funding, now)

    def admit(self, candidate: Candidate, now: float) -> Grant | Blocked:
        """Take what a request needs in all buckets, or nothing; say why in `refusal`."""
        owner = self._owner(candidate, now)
        kept = self._kept_from(candidate, owner, now)
        if kept is not None:
            denial = self._own_denial(candidate, now)
            return self._blocked(candidate, kept if denial is None else self._of(denial, now))
        before = self.levels(candidate, now) if self._keeps_levels else ()
        unpaid = _unpaid(candidate, candidate.own_keys)
        parts = [(self._ledger.path(unpaid), candidate.own_charges)] if unpaid else []
        if self.is_enforced:
            parts.append((self.path, candidate.charges))
        held = self._ledger.admit_all(parts, now)
        if isinstance(held, Denial):
            if owner is not None and held.key == self.key and held.limit.kind == "gauge":
                self._reclaim_for(candidate)
            return self._blocked(candidate, self._of(held, now))
        candidate.refusal = None
        unenforced: list[Denial] = []
        own = held[: 1 if unpaid else 0]
        watched = _unpaid(candidate, candidate.watched_keys)
        own += self._watch(watched, candidate.own_charges, now, unenforced)
        here = (
            held[-1:]
            if self.is_enforced
            else self._watch((self.key,), candidate.charges, now, unenforced)
        )
        funding, kind = None, FundingKind.SHARED
        if self.shares is not None:
            funding = self.shares.take(owner, candidate.costs, now)
            kind = FundingKind.BORROWED if owner is None else FundingKind.GUARANTEED
        return Grant(
            own,
            # Now, and not when the request is told: until then others of the ticket may begin.
            candidate.ticket if candidate.ticket.lend(own) else None,
            here[0] if here else None,
            funding,
            kind,
            unenforced[0] if unenforced else None,
            before,
        )

    def undo(self, grant: Grant, now: float) -> None:
        """Give back what was granted, as if it had never been."""
        for hold in grant.holds():
            self._ledger.settle(hold, None, now, sent=False)
        if grant.ticket is not None:
            grant.ticket.take_back(grant.own)
        if grant.funding is not None and self.shares is not None:
            self.shares.undo(grant.funding, now)

    def wait(self, candidate: Candidate, now: float) -> float:
        """Return the seconds until a request could start."""
        kept = self._kept_from(candidate, self._owner(candidate, now), now)
        waits = [0.0 if kept is None else kept.wait]
        if unpaid := _unpaid(candidate, candidate.own_keys):
            path = self._ledger.path(unpaid)
            waits.append(self._ledger.headroom(path, candidate.own_charges, now).wait)
        if self.is_enforced:
            waits.append(self._wait_here(candidate.charges, now))
        return max(waits)

    def wait_of_refused(self, candidate: Candidate, now: float) -> float:
        """Return the seconds until a request could start that was looked at and refused.

        What binds first may not be what binds longest. That is found out here, for whom it
        concerns: a line is looked at far more often than anybody asks.
        """
        refusal = candidate.refusal
        if refusal is None:
            return 0.0  # it stands behind others that wait
        if not (refusal.is_whole and refusal.at == now):
            left = refusal.wait - max(0.0, now - refusal.at)
            wait = max(left, self.wait(candidate, now))
            refusal = replace(refusal, wait=wait, at=now, is_whole=True)
            candidate.refusal = refusal
        return refusal.wait

    def work_ahead(self, candidate: Candidate) -> float:
        """Estimate the seconds that those take who are served before a request."""
        if not self.waiting:
            return 0.0
        # Of what is left of the limits they take a larger part than of all of it.
        return self.dispatcher.line.work_ahead(candidate) * _MINUTE / self.belief.share

    def assured_in(self, candidate: Candidate, now: float) -> float:
        """Return the seconds until its tenant's guarantee covers a request."""
        if self.shares is None or not candidate.traffic.may_use_guarantee:
            return math.inf
        return self.shares.covered_in(candidate.principal.tenant, candidate.costs, now)

    def levels(self, candidate: Candidate, now: float) -> tuple[BucketLevel, ...]:
        """Return what all windows count that a request must clear."""
        keys = (*candidate.own_keys, *candidate.watched_keys, self.key)
        return tuple(
            BucketLevel(
                f"{each.key.level} {each.key.id}: {each.limit.dimension} per {each.limit.span}",
                each.used,
                each.used,
                each.size,
            )
            for each in self._ledger.usage(self._ledger.path(keys), now)
        )

    def own_place(self, candidate: Candidate) -> BucketKey:
        """Name where a tenant waits for its own guarantee."""
        return BucketKey(self.key.level, self.key.id, (candidate.principal.tenant,))

    def _owner(self, candidate: Candidate, now: float) -> str | None:
        return candidate.principal.tenant if self.assured_in(candidate, now) <= 0 else None

    def _kept_from(self, candidate: Candidate, owner: str | None, now: float) -> Refusal | None:
        """Say what else than the buckets keeps a request back."""
        if not self.is_enforced:
            return None
        closed = self.belief.closed_for(now)
        if closed > 0:
            return Refusal(Limiter(self.key, _CLOSED), closed, at=now)
        if self.shares is None:
            return None
        if owner is None and not candidate.traffic.may_borrow:
            wait = self.assured_in(candidate, now)
            return Refusal(
                Limiter(self.key, _NO_BORROWING),
                wait,
                key=self.own_place(candidate),
                is_slot=math.isinf(wait) and self._has_guarantee(self.shares, candidate),
                at=now,
            )
        wait = self._lent_in(self.shares, candidate, owner, now)
        return Refusal(self._kept, wait, at=now) if wait > 0 else None

    def _has_guarantee(self, shares: AssuredShares, candidate: Candidate) -> bool:
        is_promised = shares.is_promised(candidate.principal.tenant)
        return is_promised and candidate.traffic.may_use_guarantee

    def _lent_in(
        self, shares: AssuredShares, candidate: Candidate, owner: str | None, now: float
    ) -> float:
        lent = shares.lent_in(owner, candidate.costs, now)
        asked = shares.to_ask_for(owner, candidate.costs, now)
        if asked is candidate.costs or asked == candidate.costs or not self._wait_for(asked, now):
            return lent
        # Until then guarantees may want more than now.
        later = shares.to_ask_for(owner, candidate.costs, now, is_later=True)
        return max(lent, self._wait_for(later, now))

    def _wait_for(self, costs: Mapping[str, float], now: float) -> float:
        # Total tokens are worked out from the others where those are given.
        total = {TOTAL_TOKENS: costs.get(TOTAL_TOKENS, 0.0)}
        others = {name: amount for name, amount in costs.items() if name != TOTAL_TOKENS}
        return max(self._wait_here(total, now), self._wait_here(others, now))

    def _wait_here(self, charges: Mapping[str, float], now: float) -> float:
        return self._ledger.headroom(self.path, charges, now).wait

    def _own_denial(self, candidate: Candidate, now: float) -> Denial | None:
        """Ask the principal's buckets alone; nothing is charged."""
        path = self._ledger.path(_unpaid(candidate, candidate.own_keys))
        if not self._ledger.headroom(path, candidate.own_charges, now).wait:
            return None
        found = self._ledger.admit(path, candidate.own_charges, now)
        return found if isinstance(found, Denial) else None

    def _watch(
        self,
        keys: tuple[BucketKey, ...],
        charges: Mapping[str, float],
        now: float,
        unenforced: list[Denial],
    ) -> tuple[Hold, ...]:
        """Charge buckets that are only watched, as far as they have room."""
        if not keys:
            return ()
        found = self._ledger.admit(self._ledger.path(keys), charges, now)
        if isinstance(found, Hold):
            return (found,)
        unenforced.append(found)
        return ()

    def _of(self, denial: Denial, now: float) -> Refusal:
        # What is too large for a limit that the provider has lowered may fit again.
        is_too_large = denial.is_too_large and not (
            denial.key == self.key and self.belief.is_lowered
        )
        return Refusal(
            Limiter.of(denial),
            denial.wait,
            key=denial.key,
            is_too_large=is_too_large,
            is_slot=denial.limit.kind == "gauge" and not is_too_large,
            at=now,
        )

    def _blocked(self, candidate: Candidate, refusal: Refusal) -> Blocked:
        candidate.refusal = refusal
        if refusal.is_too_large and candidate.waiter is not None:
            candidate.waiter.wake()  # to hear of it: limits were lowered while it waited
        return Blocked(refusal.wait, None if refusal.key == self.key else refusal.key)

    def _reclaim_for(self, candidate: Candidate) -> None:
        """Ask the youngest of those that borrow to stop, once for each request that waits."""
        found = [each for each in self.running if each.may_be_reclaimed]
        if found and not candidate.has_reclaimed:
            candidate.has_reclaimed = True
            max(found, key=lambda each: each.order).is_reclaimed = True


def _unpaid(candidate: Candidate, keys: tuple[BucketKey, ...]) -> tuple[BucketKey, ...]:
    """Return which of these buckets a request has still to pay."""
    if not candidate.ticket.holds:
        return keys
    return tuple(key for key in keys if not candidate.ticket.has_paid(key))
