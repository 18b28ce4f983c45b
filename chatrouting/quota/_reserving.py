"""Reserving: at once, or after a wait in one line or in several.

The only file of the governor that awaits anything, and never under the lock.
"""

from collections.abc import Iterable, Sequence
from typing import final

from chatrouting.errors import ConfigurationError
from chatrouting.quota._candidate import Candidate
from chatrouting.quota._checks import check_each
from chatrouting.quota._core import GovernorCore
from chatrouting.quota._deciding import Deciding, refusal_of
from chatrouting.quota._room import ScopeRoom
from chatrouting.quota._waiters import Waiter
from chatrouting.quota.classes import Pressure
from chatrouting.quota.decisions import Decision, DenialReason
from chatrouting.quota.quote import Quote
from chatrouting.quota.reservation import Reservation
from chatrouting.quota.ticket import AdmissionTicket


@final
class Reserving:
    """Turns quotes into reservations."""

    def __init__(self, core: GovernorCore, deciding: Deciding) -> None:
        self._core = core
        self._deciding = deciding

    def try_now(self, quote: Quote, ticket: AdmissionTicket) -> Reservation | Decision:
        """Reserve without waiting; return the denial if there is no room."""
        with self._core.lock:
            now = self._core.clock()
            candidates = [self._deciding.candidate(quote, ticket)]
            found = self._at_once(candidates, now)
            if found is None and candidates[0].traffic.on_pressure[:1] == (Pressure.DOWNGRADE,):
                found = self._with_less(candidates, now)
            if found is not None:
                return found
            return self._deciding.deny(candidates, None, since=now, now=now)

    async def reserve(
        self,
        quotes: Quote | Sequence[Quote],
        ticket: AdmissionTicket,
        *,
        max_wait: float | None,
        time_left: float | None,
        can_reroute: bool,
    ) -> Reservation | Decision:
        """Reserve at one of several deployments, and wait for that if the class allows it.

        Raises:
            ConfigurationError: If there is no quote, or a deployment is not governed here.
        """
        asked = (quotes,) if isinstance(quotes, Quote) else _checked(quotes)
        with self._core.lock:
            since = self._core.clock()
            candidates = [self._deciding.candidate(each, ticket) for each in asked]
            steps = _steps(candidates, can_reroute=can_reroute)
            # A lesser request of its own, or the same one elsewhere, would stand behind it.
            stays = len(candidates) == 1 and steps == [Pressure.QUEUE]
            found = self._at_once(candidates, since, stays_in_line=stays)
            if found is not None:
                return found
            lower_first = steps[:1] == [Pressure.DOWNGRADE]
            found = self._with_less(candidates, since) if lower_first else None
            queueing, reason = list[Candidate](), None
            if found is None and Pressure.QUEUE in steps:
                queueing, reason = self._may_queue(candidates, max_wait, time_left, since)
            if found is None and not queueing and Pressure.DOWNGRADE in steps:
                found = self._with_less(candidates, since)
            if found is not None:
                return found
            if not queueing:
                self._core.withdraw(candidates, since)
                return self._deciding.deny(candidates, reason, since=since, now=since)
            # In the same moment: nobody has changed anything since they were looked at.
            waiter = self._join(queueing, since)
        return await self._wait(
            waiter,
            since,
            since + _longest(queueing, max_wait, time_left),
            may_downgrade=Pressure.DOWNGRADE in steps,
        )

    async def _wait(
        self,
        waiter: Waiter,
        since: float,
        until: float,
        *,
        may_downgrade: bool,
    ) -> Reservation | Decision:
        """Wait in all lines at once; the first grant wins, and the others are left before."""
        try:
            while True:
                found = self._look(waiter, since, until, may_downgrade=may_downgrade)
                if found is not None:
                    return found
                await waiter.wait(until, self._core.clock())
        except BaseException:
            # Also after a grant that came too late: whoever is cancelled has taken nothing.
            self._abandon(waiter, since)
            raise

    def _join(self, candidates: Sequence[Candidate], now: float) -> Waiter:
        """Let a request wait that has been looked at in this moment, and does not fit."""
        core = self._core
        try:
            waiter = Waiter(tuple(candidates))
        except BaseException:  # there is no event loop to wait on
            core.withdraw(candidates, now)
            raise
        new = list[ScopeRoom]()
        for candidate in candidates:
            room = core.room(candidate.deployment)
            candidate.waiter = waiter
            if candidate.lane is None:
                core.join(candidate, now)
                new.append(room)
            else:
                core.set_timer(room)
        for room in new:
            core.dispatch(room, now)
        return waiter

    def _look(
        self, waiter: Waiter, since: float, until: float, *, may_downgrade: bool = False
    ) -> Reservation | Decision | None:
        """Do what is due; return how the wait ended, None if it goes on."""
        core = self._core
        with core.lock:
            now = core.clock()
            for room in [each for each in core.rooms.values() if each.leader is waiter]:
                if room.next_start <= now:
                    core.renew(room, now)
                    core.dispatch(room, now)
            if waiter.grant is not None:
                candidate, grant = waiter.grant
                reservation = self._deciding.accept(
                    candidate, grant, since=since, has_queued=True, now=now
                )
                waiter.grant = None
                return reservation
            is_too_large = all(refusal_of(each).is_too_large for each in waiter.candidates)
            if is_too_large or now >= until:
                core.withdraw(waiter.candidates, now)
                less = self._with_less(waiter.candidates, now, since) if may_downgrade else None
                if less is not None:
                    return less
                reason = None if is_too_large else DenialReason.QUEUE_TIMEOUT
                return self._deciding.deny(waiter.candidates, reason, since=since, now=now)
            waiter.rest()
            return None

    def _abandon(self, waiter: Waiter, since: float) -> None:
        core = self._core
        with core.lock:
            now = core.clock()
            core.withdraw(waiter.candidates, now)
            if waiter.grant is not None:
                candidate, grant = waiter.grant
                waiter.grant = None
                core.take_back(candidate, grant, now)
            core.complete(self._deciding.cancelled(waiter.candidates[0], since=since, now=now))
        core.tell()

    def _at_once(
        self,
        candidates: Iterable[Candidate],
        now: float,
        since: float | None = None,
        *,
        stays_in_line: bool = False,
    ) -> Reservation | None:
        since = now if since is None else since
        for candidate in candidates:
            grant = self._deciding.try_now(candidate, now, stays_in_line=stays_in_line)
            if grant is not None:
                return self._deciding.accept(
                    candidate, grant, since=since, has_queued=False, now=now
                )
        return None

    def _with_less(
        self, candidates: Sequence[Candidate], now: float, since: float | None = None
    ) -> Reservation | None:
        instead = (each for one in candidates for each in self._deciding.downgraded(one))
        return self._at_once(instead, now, since)

    def _may_queue(
        self,
        candidates: Sequence[Candidate],
        max_wait: float | None,
        time_left: float | None,
        now: float,
    ) -> tuple[list[Candidate], DenialReason | None]:
        """Return those that may wait; if there are none, why."""
        reasons = {
            each: self._deciding.reason_not_to_queue(each, max_wait, time_left, now)
            for each in candidates
        }
        may = [each for each, reason in reasons.items() if reason is None]
        return may, reasons[self._deciding.soonest(candidates, now)]


def _checked(quotes: Sequence[Quote]) -> Sequence[Quote]:
    expected = "a Quote of each deployment that may answer"
    found = check_each("quotes", quotes, Quote, expected)
    if not found:
        raise ConfigurationError(
            f"quotes is {quotes!r}, and there is nowhere to reserve; expected {expected}, one at "
            "least."
        )
    return found


def _longest(
    candidates: Sequence[Candidate], max_wait: float | None, time_left: float | None
) -> float:
    limits = (candidates[0].traffic.max_wait, max_wait, time_left)
    return min(limit for limit in limits if limit is not None)


def _steps(candidates: Sequence[Candidate], *, can_reroute: bool) -> list[Pressure]:
    """Return what may be tried here, in order.

    What stands behind a reroute that is possible is for the next deployment.
    """
    steps = list(candidates[0].traffic.on_pressure)
    if can_reroute and Pressure.REROUTE in steps:
        return steps[: steps.index(Pressure.REROUTE)]
    return [step for step in steps if step is not Pressure.REROUTE]
