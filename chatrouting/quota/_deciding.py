"""Candidates in, decisions out: what a request asks for, what it was given, or why not."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import getrandbits
from typing import Any, Final, final

from chatrouting.quota._candidate import Candidate, Grant, Refusal
from chatrouting.quota._checks import check_kind
from chatrouting.quota._core import GovernorCore
from chatrouting.quota._room import ScopeRoom
from chatrouting.quota.charging import OUTPUT_CAP, admission_costs
from chatrouting.quota.classes import Pressure, TrafficClass
from chatrouting.quota.decisions import (
    BucketLevel,
    Decision,
    DecisionOutcome,
    DenialReason,
    FundingKind,
    Limiter,
)
from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.dispatch import Blocked
from chatrouting.quota.ledger import Headroom
from chatrouting.quota.limits import INPUT_TOKENS, OUTPUT_TOKENS, BucketKey, Level, keys_of
from chatrouting.quota.quote import Figure, Quote, Source
from chatrouting.quota.reservation import Reservation, Settler
from chatrouting.quota.ticket import AdmissionTicket

#: Levels that stay the same wherever the request goes.
_OWN: Final = frozenset({Level.ORGANISATION, Level.TENANT, Level.TEAM, Level.API_KEY})
#: Nobody is told to come back for a slot sooner, seconds.
_SOON: Final = 0.1


def own_amounts(quote: Quote, amounts: Mapping[str, float]) -> Mapping[str, float]:
    """Return what the principal's buckets read: tokens as they are, not as a provider weighs them.

    Args:
        quote: Of the request.
        amounts: Charges or what was used, as the deployment reads them.
    """
    weight = quote.profile.output_weight
    if weight == 1.0 and not quote.profile.cap_held_as_input:
        return amounts
    own = dict(amounts)
    for dimension in (OUTPUT_TOKENS, OUTPUT_CAP):
        if dimension in own:
            own[dimension] /= weight
    if quote.profile.cap_held_as_input and OUTPUT_CAP in own:
        own[INPUT_TOKENS] = quote.input.value
    return own


@final
class Deciding:
    """Looks at requests under the lock of its core."""

    def __init__(self, core: GovernorCore, settler: Settler) -> None:
        self._core = core
        self._settler = settler

    def candidate(self, quote: Quote, ticket: AdmissionTicket) -> Candidate:
        """Return a request at the deployment that it was quoted for.

        Raises:
            ConfigurationError: If there is no such deployment, or one of them is something else.
        """
        check_kind("a quote", quote, Quote, "a Quote; `QuotaGovernor.quote` makes one")
        check_kind(
            "ticket", ticket, AdmissionTicket, "a ticket; `QuotaGovernor.open_ticket` makes one"
        )
        core = self._core
        deployment = core.deployment(quote.route.deployment)
        traffic = core.traffic(ticket.request_class)
        return self._candidate(quote, ticket, deployment, traffic)

    def downgraded(self, candidate: Candidate) -> Iterator[Candidate]:
        """Yield a request as it may be admitted instead: shorter first, then at lesser models."""
        yield from self._shorter(candidate)
        for quote in candidate.quote.downgrades:
            deployment = self._core.deployment(quote.route.deployment)
            if deployment.model_profile != candidate.traffic.downgrade_profile:
                continue
            lesser = self._candidate(quote, candidate.ticket, deployment, candidate.traffic)
            lesser.downgraded_from = candidate.deployment.name
            yield lesser
            yield from self._shorter(lesser)

    def _shorter(self, candidate: Candidate) -> Iterator[Candidate]:
        """Yield a request with the lowest output cap that its class allows, unless it has that."""
        quote, least = candidate.quote, candidate.traffic.min_output_tokens
        if least is None or (quote.output_cap is not None and quote.output_cap <= least):
            return
        output = quote.output
        if output.value > least:
            output = Figure(float(least), Source.CAP, output.samples)
        lower = replace(quote, output=output, output_cap=least)
        found = self._candidate(lower, candidate.ticket, candidate.deployment, candidate.traffic)
        found.max_output_tokens = least
        found.downgraded_from = candidate.downgraded_from
        yield found

    def headroom(self, quote: Quote, ticket: AdmissionTicket, now: float) -> Headroom:
        """Say how much room there is for a request. Changes nothing."""
        candidate = self.candidate(quote, ticket)
        room, ledger = self._core.room(candidate.deployment), self._core.ledger
        share = ledger.headroom(room.path, candidate.charges, now).share
        if room.belief.closed_for(now) > 0:
            share = 0.0
        return Headroom(share, max(room.wait(candidate, now), room.work_ahead(candidate)))

    def try_now(
        self, candidate: Candidate, now: float, *, stays_in_line: bool = False
    ) -> Grant | None:
        """Admit a request that need not wait; None if it would have to.

        Args:
            candidate: The request.
            now: The time.
            stays_in_line: Where others wait it may stay behind them, so that nobody need look at
                all of them again; whoever asks for that withdraws it if it is not to wait.
        """
        core, room = self._core, self._core.room(candidate.deployment)
        core.renew(room, now)
        if room.waiting and room.assured_in(candidate, now) > 0:
            # Those who wait go first, unless this one keeps none of them back.
            core.join(candidate, now)
            core.dispatch(room, now)
            if candidate.grant is None and not stays_in_line:
                core.withdraw([candidate], now)
            return candidate.grant
        found = room.admit(candidate, now)
        if isinstance(found, Blocked):
            return None
        room.dispatcher.line.charge(candidate)
        room.dispatcher.renew(candidate.principal.tenant, now)
        return found

    def accept(
        self, candidate: Candidate, grant: Grant, *, since: float, has_queued: bool, now: float
    ) -> Reservation:
        """Make a reservation of what was granted."""
        core, room = self._core, self._core.room(candidate.deployment)
        watched = grant.unenforced
        decision = Decision(
            **self._common(candidate, now),
            outcome=_outcome(candidate, has_queued=has_queued),
            funding=grant.kind,
            queued=now - since,
            max_output_tokens=candidate.max_output_tokens,
            downgraded_from=candidate.downgraded_from,
            limiter=None if watched is None else Limiter.of(watched),
            reason=None if watched is None else DenialReason.EXHAUSTED,
            wait=0.0 if watched is None else watched.wait,
            is_enforced=watched is None,
            levels=self._levels(candidate, grant, room, now),
        )
        beliefs = room.belief.beliefs(core.ledger.usage(room.path, now))
        reservation = Reservation(
            candidate,
            grant,
            decision,
            settler=self._settler,
            clock=core.clock,
            expires=now + core.lease,
            order=room.sent,
            beliefs=beliefs,
        )
        room.sent += 1
        room.running[reservation] = None
        room.belief.used(candidate.cost, now)
        self._count_admitted(decision)
        return reservation

    def deny(
        self,
        candidates: Sequence[Candidate],
        reason: DenialReason | None,
        *,
        since: float,
        now: float,
    ) -> Decision:
        """Say why a request was not admitted at any of some deployments.

        Args:
            candidates: The same request at each of them, looked at and refused.
            reason: None: what the limits say.
            since: When it was asked for.
            now: The time.
        """
        best = self.soonest(candidates, now)
        refusal = refusal_of(best)
        ticket = best.ticket
        for each in candidates:
            ticket.note_denial(each.deployment.name)
        is_too_large = all(refusal_of(each).is_too_large for each in candidates)
        if reason is None:
            reason = DenialReason.TOO_LARGE if is_too_large else DenialReason.EXHAUSTED
        is_own = refusal.key is not None and refusal.key.level in _OWN
        outcome = DecisionOutcome.REJECTED_LOCALLY
        if reason is DenialReason.QUEUE_TIMEOUT:
            outcome = DecisionOutcome.QUEUE_TIMEOUT
        decision = Decision(
            **self._common(best, now),
            outcome=outcome,
            limiter=refusal.limiter,
            limiters=tuple(str(refusal_of(each).limiter) for each in candidates),
            reason=reason,
            wait=self.predicted(best, now),
            queued=now - since,
            fallback_allowed=best.traffic.allows(Pressure.REROUTE) and not is_own,
            may_queue=self.reason_not_to_queue(best, None, None, now) is None,
            downgrade_profile=_downgrade_profile(best.traffic),
        )
        self._count("decisions", decision)
        self._core.complete(decision)
        return decision

    def cancelled(self, candidate: Candidate, *, since: float, now: float) -> Decision:
        """Say that the caller gave up while the request waited."""
        decision = Decision(
            **self._common(candidate, now),
            outcome=DecisionOutcome.CANCELLED,
            limiter=refusal_of(candidate).limiter,
            queued=now - since,
        )
        self._count("decisions", decision)
        return decision

    def soonest(self, candidates: Sequence[Candidate], now: float) -> Candidate:
        """Return the one that would probably wait least."""
        return min(candidates, key=lambda each: self.predicted(each, now))

    def predicted(self, candidate: Candidate, now: float) -> float:
        """Return the seconds that a refused request will probably wait; infinity if for ever."""
        refusal = refusal_of(candidate)
        if refusal.is_too_large:
            return math.inf
        room = self._core.room(candidate.deployment)
        wait = room.wait_of_refused(candidate, now)
        if refusal.is_slot:
            # Leases last long; a request that runs has probably ended before.
            ends = min((each.ends_in(now) for each in room.running), default=0.0)
            wait = max(_SOON, min(wait, ends))
        return max(wait, room.work_ahead(candidate))

    def reason_not_to_queue(
        self, candidate: Candidate, max_wait: float | None, timeout: float | None, now: float
    ) -> DenialReason | None:
        """Say why a refused request may not wait; None if it may."""
        traffic = candidate.traffic
        predicted = self.predicted(candidate, now)
        if math.isinf(predicted):
            too_large = refusal_of(candidate).is_too_large
            return DenialReason.TOO_LARGE if too_large else DenialReason.EXHAUSTED
        if not traffic.allows(Pressure.QUEUE) or predicted > traffic.max_wait:
            return DenialReason.EXHAUSTED
        if max_wait is not None and predicted > max_wait:
            return DenialReason.EXHAUSTED
        if timeout is not None and predicted > timeout:
            return DenialReason.DEADLINE
        line = self._core.room(candidate.deployment).dispatcher.line
        return DenialReason.QUEUE_FULL if line.is_full(candidate) else None

    def _candidate(
        self,
        quote: Quote,
        ticket: AdmissionTicket,
        deployment: QuotaDeployment,
        traffic: TrafficClass,
    ) -> Candidate:
        core = self._core
        charges = quote.charges()
        costs = admission_costs(deployment.limits.policy, charges)
        keys = keys_of(ticket.principal, model_profile=deployment.model_profile or None)
        watched_keys: tuple[BucketKey, ...] = ()
        if not core.enforces_all:
            watched_keys = tuple(key for key in keys if not core.is_enforced(key))
            keys = tuple(key for key in keys if key not in watched_keys)
        return Candidate(
            traffic=traffic,
            principal=ticket.principal,
            weight=core.weight(ticket.principal.tenant),
            cost=deployment.share_of(quote, costs),
            tokens=quote.input.value + quote.output.value,
            deployment=deployment,
            quote=quote,
            charges=charges,
            own_charges=own_amounts(quote, charges),
            costs=costs,
            own_keys=keys,
            watched_keys=watched_keys,
            ticket=ticket,
        )

    def _common(self, candidate: Candidate, now: float) -> dict[str, Any]:
        """Return what every decision says; to replace it in a record afterwards takes as long."""
        deployment, ticket = candidate.deployment, candidate.ticket
        decision_id = f"{getrandbits(64):016x}"  # an id, no secret
        return {
            "id": decision_id,
            "trace_id": ticket.trace_id or decision_id,
            "at": now,
            "deployment": deployment.name,
            "scope": deployment.scope,
            "model": deployment.model,
            "model_profile": deployment.model_profile,
            "quote": candidate.quote,
            "charges": candidate.charges,
            "principal": candidate.principal,
            "request_class": candidate.traffic.name,
            "policy": deployment.limits.policy,
        }

    def _levels(
        self, candidate: Candidate, grant: Grant, room: ScopeRoom, now: float
    ) -> tuple[BucketLevel, ...]:
        if not grant.before:
            return ()
        after = room.levels(candidate, now)
        return tuple(
            replace(then, after=later.after)
            for then, later in zip(grant.before, after, strict=False)
        )

    def _count_admitted(self, decision: Decision) -> None:
        metrics = self._core.metrics
        self._count("decisions", decision)
        metrics.add_wait(decision.request_class, decision.queued)
        if decision.funding is FundingKind.BORROWED:
            metrics.count("borrowed", "class", decision.request_class)
        if not decision.is_enforced and decision.limiter is not None:
            metrics.count("unenforced", "limiter", _label(decision.limiter))

    def _count(self, name: str, decision: Decision) -> None:
        metrics, outcome = self._core.metrics, decision.outcome.value
        metrics.count(name, "class", outcome, decision.request_class)
        metrics.count(name, "tenant", outcome, metrics.tenant(decision.principal.tenant))
        if decision.limiter is not None:
            metrics.count(name, "limiter", outcome, _label(decision.limiter))


def refusal_of(candidate: Candidate) -> Refusal:
    """Return why a request did not fit when it was looked at last."""
    # One that nobody has looked at stands behind others that wait.
    return candidate.refusal or Refusal(Limiter(None, "others wait"), 0.0)


def _outcome(candidate: Candidate, *, has_queued: bool) -> DecisionOutcome:
    if candidate.max_output_tokens is not None or candidate.downgraded_from is not None:
        return DecisionOutcome.DOWNGRADED
    if has_queued:
        return DecisionOutcome.QUEUED_THEN_ADMITTED
    if candidate.ticket.was_denied_before(candidate.deployment.name):
        return DecisionOutcome.REROUTED
    return DecisionOutcome.ADMITTED


def _downgrade_profile(traffic: TrafficClass) -> str | None:
    return traffic.downgrade_profile if traffic.allows(Pressure.DOWNGRADE) else None


def _label(limiter: Limiter) -> str:
    """Name a limiter without its id: there may be many."""
    level = "" if limiter.key is None else f"{limiter.key.level.value}: "
    return f"{level}{limiter.name}"
