"""How the state of a member changes: it is asked, it answers, it fails, it is left alone.

Pure and synchronous: time and chance are arguments. The rules are those of TypeAgent's endpoint
pools, with Envoy's ceiling for ejections, half-open probes and epochs added. An epoch ends with
each failure of a member, so that a burst of refusals to requests that were sent together counts
once, and an answer to an older request does not count as recovery. Rests are counted in seconds,
of which a quiet process has many for each request: so a member that goes on failing may be set
aside as well, until so many requests have gone to others.
"""

from collections.abc import Hashable, Sequence
from math import ceil, floor, inf
from typing import Final, final

from chatrouting.policies.backoff import ExponentialBackoff
from chatrouting.pool.endpoint import Endpoint, EndpointMode
from chatrouting.pool.events import PoolEvent, PoolEventKind
from chatrouting.pool.faults import Fault, Verdict
from chatrouting.pool.member import NEVER, Chance, Member, Ticket
from chatrouting.pool.policy import PoolPolicy
from chatrouting.pool.selection import Selection
from chatrouting.pool.strategies import observe_latency

#: The least rest of reserved throughput, whatever the server says.
_LEAST_EXACT_REST: Final = 0.1
#: A process so quiet that the turn of a member takes longer tries it after this time all the same.
_LONGEST_ASIDE: Final = 3600.0


@final
class Health:
    """The transitions of all members of a pool."""

    __slots__ = (
        "_begun",
        "_chance",
        "_eject_limit",
        "_faults",
        "_members",
        "_next_turn",
        "_parking",
        "_policy",
        "_selection",
        "_throttling",
        "_turns_apart",
    )

    def __init__(
        self,
        members: Sequence[Member],
        policy: PoolPolicy,
        chance: Chance,
        selection: Selection,
    ) -> None:
        """Take charge of the members, and find out which of them share a limit.

        Args:
            members: All of them.
            policy: Says what follows from what.
            chance: Random numbers from 0 to 1.
            selection: Is told when a member opens at another time.
        """
        self._members = members
        self._selection = selection
        self._policy = policy
        self._chance = chance
        self._throttling = policy.backoff
        self._faults = ExponentialBackoff(
            initial=policy.transient_cooldown,
            factor=policy.backoff_factor,
            maximum=policy.max_transient_cooldown or policy.transient_cooldown,
        )
        self._parking = ExponentialBackoff(
            initial=policy.member_fault_cooldown, factor=2.0, maximum=policy.member_fault_max
        )
        self._eject_limit = len(members)
        if policy.max_ejection is not None:
            self._eject_limit = max(1, floor(policy.max_ejection * len(members)))
        self._turns_apart = ceil(1 / policy.trial_share) if policy.trial_share else None
        self._next_turn = inf
        self._begun = 0
        if policy.quota_groups:
            _join_mates(members)

    def begin(self, member: Member, now: float, tokens: int | None) -> Ticket:
        """Note that an attempt begins."""
        ticket = Ticket()
        ticket.endpoint = member.endpoint
        ticket.member = member
        ticket.epoch = member.epoch
        ticket.is_probe = member.needs_probe
        ticket.is_open = True
        member.in_flight += 1
        if self._turns_apart is not None:
            self._count_turns(member, now)
        if ticket.is_probe:
            member.probes += 1
            self._refresh(member)
        elif member.is_limited:
            self._refresh(member)
        if member.budget is not None:
            member.budget.spend(tokens or 0, now)
        return ticket

    def release(self, ticket: Ticket) -> bool:
        """Give back what an attempt holds; False if it was given back before."""
        if not ticket.is_open:
            return False
        ticket.is_open = False
        member = ticket.member
        member.in_flight -= 1
        if ticket.is_probe:
            member.probes -= 1
        if member.on_trial and ticket.epoch == member.epoch:
            # It had its turn in vain, unless it failed, which `fail` sees to.
            member.set_aside_until = NEVER
            self._refresh(member)
        elif ticket.is_probe or member.is_limited:
            self._refresh(member)
        return True

    def succeed(self, ticket: Ticket, latency: float | None, now: float) -> PoolEvent | None:
        """Note that an attempt got its answer, its first output after so many seconds."""
        member, policy = ticket.member, self._policy
        if latency is not None and ticket.is_open:
            observe_latency(member, latency, now, policy.latency_decay)
        if not self.release(ticket) or (ticket.epoch != member.epoch and policy.epochs):
            return None
        member.success_streak += 1
        if member.success_streak >= policy.success_streak:
            member.consecutive_429s = member.consecutive_faults = 0
        member.on_trial = False
        if not ticket.is_probe and not member.parkings:
            return None
        member.parkings = 0
        member.parked_until = NEVER
        if ticket.is_probe:
            member.needs_probe = False
            # More than it rests by itself only where it was asked for want of a better one.
            member.faulted_until = min(member.faulted_until, now)
            member.throttled_until = min(member.throttled_until, now)
            member.reopened_at = now
        self._refresh(member)
        return PoolEvent(PoolEventKind.REOPENED, member.endpoint)

    def fail(self, ticket: Ticket, fault: Fault, now: float) -> PoolEvent | None:
        """Note that an attempt failed."""
        member = ticket.member
        if not self.release(ticket):
            return None
        is_fresh = self._is_fresh(ticket)
        hint = self._hint(fault)
        if fault.verdict is Verdict.THROTTLED:
            seconds = self._throttle(member, hint, now, is_fresh=is_fresh)
            kind = PoolEventKind.THROTTLED
        elif fault.verdict is Verdict.TRANSIENT:
            seconds = self._fault(member, hint, now, is_fresh=is_fresh)
            kind = PoolEventKind.FAULTED
        elif fault.verdict is Verdict.MEMBER and self._policy.member_fault != "raise":
            was_parked = member.parked_until > now
            member.parked_for = fault.failure.kind
            seconds = self._park(member, hint, now, is_fresh=is_fresh)
            if was_parked:
                return None
            kind = PoolEventKind.PARKED
        else:
            return None
        return PoolEvent(kind, member.endpoint, seconds, fault.failure.kind)

    def _is_fresh(self, ticket: Ticket) -> bool:
        return ticket.epoch == ticket.member.epoch or not self._policy.epochs

    def _hint(self, fault: Fault) -> float:
        """Return how long the server wants to be left alone, as far as the policy listens."""
        hint = fault.failure.retry_after
        if hint is None or fault.status not in self._policy.honour_retry_after_on:
            return 0.0
        return min(hint, self._policy.max_retry_after)

    def _throttle(self, member: Member, hint: float, now: float, *, is_fresh: bool) -> float:
        """Let a member and its mates rest for want of quota; return for how long."""
        policy = self._policy
        is_reserved = member.endpoint.mode is EndpointMode.PTU
        if hint and policy.ptu_exact_hint and is_reserved:
            # Paid already: it is back when the server says, and refusing is its normal way.
            seconds = max(_LEAST_EXACT_REST, hint)
        else:
            if is_fresh:
                member.consecutive_429s += 1
            seconds = max(hint, self._throttling.bound(max(1, member.consecutive_429s)))
            seconds *= self._jitter()
        for mate in member.mates:
            mate.consecutive_429s = max(mate.consecutive_429s, member.consecutive_429s)
            mate.needs_probe |= policy.probe_concurrency is not None and mate.consecutive_429s > 1
            if policy.epochs:
                mate.throttled_until = max(mate.throttled_until, now + seconds)
            else:  # as upstream, where the last refusal has the last word
                mate.throttled_until, mate.faulted_until = now + seconds, NEVER
            self._close(mate, now, hint)
        return seconds

    def _fault(self, member: Member, hint: float, now: float, *, is_fresh: bool) -> float:
        """Let a member rest that failed, unless too many do; return for how long."""
        policy = self._policy
        member.consecutive_faults += is_fresh
        seconds = max(hint, self._faults.bound(max(1, member.consecutive_faults)))
        seconds *= self._jitter()
        may_rest = self._may_leave_out(member, now)
        if may_rest:
            member.faulted_until = max(member.faulted_until, now + seconds)
            member.needs_probe |= policy.probe_concurrency is not None
        else:
            seconds = hint
        if self._turns_apart is not None and (member.consecutive_faults > 1 or not may_rest):
            member.on_trial = True
            self._set_aside(member, now)
        self._close(member, now, hint)
        return seconds

    def _count_turns(self, asked: Member, now: float) -> None:
        """Take the turn of a member that is tried, and give others theirs when it comes."""
        self._begun += 1
        if asked.on_trial:
            self._set_aside(asked, now)
        if self._begun >= self._next_turn:
            self._give_turns()

    def _set_aside(self, member: Member, now: float) -> None:
        """Let others be asked first until the member's turn comes."""
        member.turn = self._begun + (self._turns_apart or 0)
        member.set_aside_until = now + _LONGEST_ASIDE
        self._next_turn = min(self._next_turn, member.turn)
        self._refresh(member)

    def _give_turns(self) -> None:
        waiting = [each for each in self._members if each.on_trial and each.turn > self._begun]
        self._next_turn = min((each.turn for each in waiting), default=inf)
        for member in self._members:
            if member.on_trial and member not in waiting:
                member.set_aside_until = NEVER
                self._refresh(member)

    def _may_leave_out(self, member: Member, now: float) -> bool:
        others = sum(each.faulted_until > now for each in self._members if each is not member)
        return others < self._eject_limit

    def _park(self, member: Member, hint: float, now: float, *, is_fresh: bool) -> float:
        """Leave a member out until somebody mends it; return for how long."""
        member.parkings += is_fresh
        seconds = max(hint, self._parking.bound(max(1, member.parkings)))
        member.parked_until = max(member.parked_until, now + seconds)
        self._close(member, now, hint)
        return seconds

    def _close(self, member: Member, now: float, hint: float) -> None:
        """Begin a new epoch after a failure."""
        member.epoch += 1
        member.success_streak = 0
        if hint and self._policy.epochs:
            member.hinted_until = max(member.hinted_until, now + hint)
        member.reopened_at = max(member.cooldown_until, member.parked_until)
        self._refresh(member)

    def _refresh(self, member: Member) -> None:
        before = member.open_at
        member.refresh()
        if member.open_at != before:
            self._selection.forget()

    def _jitter(self) -> float:
        if not self._policy.cooldown_jitter:
            return 1.0
        return 1.0 + self._chance() * self._policy.cooldown_jitter


def _join_mates(members: Sequence[Member]) -> None:
    groups: dict[Hashable, list[Member]] = {}
    for member in members:
        groups.setdefault(_group_of(member.endpoint), []).append(member)
    for group in groups.values():
        for member in group:
            member.mates = tuple(group)


def _group_of(endpoint: Endpoint) -> Hashable:
    """Tell apart whose limits are counted apart, as far as an endpoint shows it."""
    if endpoint.quota_group is not None:
        return endpoint.quota_group
    if endpoint.url is None and endpoint.auth is None:
        return "", endpoint.id  # a client of one's own, about which nothing is known
    host = (endpoint.url or "").partition("://")[2].partition("/")[0].lower()
    if endpoint.provider == "azure":
        return host, endpoint.deployment or endpoint.model
    return host, endpoint.auth, endpoint.model
