"""One request at a pool: what it holds of a member, and whether it may try another one.

Shared by the clients of all kinds, so that they treat members and time in one way. What a failure
means for a member the pool says; here is what it means for the request.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any, Final, cast, final

import anyio

from chatrouting.errors import AuthenticationError, NoEndpointAvailableError
from chatrouting.pool._roster import Roster
from chatrouting.pool.endpoint import Endpoint
from chatrouting.pool.faults import Fault, Verdict
from chatrouting.pool.member import Cooling, Ticket
from chatrouting.pool.pool import EndpointPool
from chatrouting.pool.selection import Filter

#: What a pool of one does; of larger ones the pool's own logger tells.
logger = logging.getLogger("chatrouting.retry")

_NOBODY: Final[frozenset[str]] = frozenset()


@final
class PooledRequest:
    """One request, from its first choice of a member to its end.

    Attributes:
        roster: Whom it may ask.
        deadline: When a router ends it, by the event loop's clock; infinity if none does.
        ends: When its budget of time is used up, by the event loop's clock.
        ticket: What the running attempt holds; None between attempts.
        failures: Attempts that failed.
        pause: Seconds of that wait, until it has begun.
    """

    __slots__ = (
        "_is_retry",
        "_left_out",
        "_now",
        "deadline",
        "ends",
        "failures",
        "pause",
        "roster",
        "ticket",
    )

    def __init__(self, roster: Roster, deadline: float = math.inf) -> None:
        """Begin now; the budget of time counts from here.

        Args:
            roster: See the class.
            deadline: See the class.
        """
        self.roster = roster
        self.deadline = deadline
        budget = roster.budget
        #: When the first attempt begins, if that was read; None for later ones.
        self._now: float | None = None
        self.ends = math.inf
        if budget is not None:
            self._now = anyio.current_time()
            self.ends = self._now + budget
        self.ticket: Ticket | None = None
        self.failures = 0
        self.pause = 0.0
        self._left_out = _NOBODY
        self._is_retry = False

    @property
    def pool(self) -> EndpointPool[Any]:
        """The pool."""
        return self.roster.pool

    @property
    def is_single(self) -> bool:
        """There is nobody else to ask: the same member is asked again, after a wait."""
        return len(self.roster.names) == 1

    def pick(
        self,
        key: str | None = None,
        tokens: int | None = None,
        room: Mapping[str, float] | None = None,
    ) -> str | None:
        """Choose a member at once; None if it takes a wait, or nobody is left. By position.

        Args:
            key: For affinity.
            tokens: What the request is thought to take.
            room: What members have left, see `Filter`.
        """
        roster = self.roster
        while not self.pause:
            allows = None
            if self._left_out or roster.only is not None or room is not None:
                allows = Filter(self._left_out, None, roster.only, room)
            try:
                found = roster.core.pick(allows, key, tokens, self._is_retry, math.inf)
            except NoEndpointAvailableError:
                return None  # `acquire` says so
            if type(found) is Cooling:
                return None
            name = self._hold(found)
            if name is not None:
                return name
        return None

    async def acquire(
        self, *, key: str | None = None, tokens: int | None = None, deadline: float = math.inf
    ) -> str | None:
        """Choose a member, and wait for one where the policy says so.

        Args:
            key: For affinity.
            tokens: What the request is thought to take.
            deadline: When the request ends anyway, by the event loop's clock.

        Returns:
            None if nobody can be asked in time and something was tried before.

        Raises:
            NoEndpointAvailableError: If nothing was tried before.
        """
        if self.pause:
            pause, self.pause = self.pause, 0.0
            logger.info("retry.wait pool=%s seconds=%.3f", self.pool.name, pause)
            await self.roster.sleep(pause)
        self._now = None
        while True:
            ends = min(self.ends, deadline, anyio.current_effective_deadline())
            try:
                ticket = await self.pool.acquire(
                    limit=max(0.0, ends - anyio.current_time()),
                    affinity_key=key,
                    exclude=self._left_out,
                    tokens=tokens,
                    is_retry=self._is_retry,
                )
            except NoEndpointAvailableError:
                if self._is_retry:
                    return None
                raise
            name = self._hold(ticket)
            if name is not None:
                return name

    def admit(self, endpoint: Endpoint) -> None:
        """Hold the member that is asked next, if it is ready, although nobody picked it.

        The router has waited for it: it refused the request first, and then had room.
        """
        others = [each.id for each in self.pool.endpoints if each.id != endpoint.id]
        try:
            found = self.pool.pick(exclude=others, is_retry=True)
        except NoEndpointAvailableError:  # the pool has it no longer
            return
        if isinstance(found, Ticket):
            self.ticket = found

    def _hold(self, ticket: Ticket) -> str | None:
        """Keep a ticket, and return the name of its endpoint; None if it joined too late."""
        self.ticket = ticket
        name = self.roster.names.get(ticket.endpoint.id)
        if name is None:
            self.refused()
            return None
        if self._is_retry:
            self._now = None
        self._is_retry = True
        return name

    @property
    def held(self) -> Ticket:
        """What the running attempt holds; there must be one."""
        return cast("Ticket", self.ticket)

    @property
    def endpoint(self) -> Endpoint:
        """Whom the running attempt asks."""
        return self.held.endpoint

    def ends_attempt(self, endpoint: Endpoint) -> float:
        """Return when an attempt that begins now has taken too long, by the event loop's clock.

        Infinity also where it is cut off from further out before that: a timer of its own would be
        a second one for nothing, half of what the pool adds.
        """
        ends = self.ends
        if endpoint.timeout is not None:
            now = anyio.current_time() if self._now is None else self._now
            ends = min(ends, now + endpoint.timeout)
        # The second question is for calls that somebody shields from cancellation.
        if self.deadline < ends and anyio.current_effective_deadline() < ends:
            return math.inf
        return ends

    @property
    def is_over_budget(self) -> bool:
        """The budget of time is used up."""
        return anyio.current_time() >= self.ends

    def succeeded(self, latency: float) -> None:
        """Note that the attempt got its answer, its first output after so many seconds."""
        ticket, self.ticket = self.held, None
        self.pool.succeeded(ticket, latency=latency)

    def failed(self, error: BaseException) -> None:
        """Note what the attempt raised."""
        self.failures += 1
        ticket = self.held
        if isinstance(error, TimeoutError) and self.is_over_budget:
            # It was cut short: that says nothing about the member.
            self.neutral()
            return
        self.ticket = None
        if self.pool.failed(ticket, error).verdict is Verdict.MEMBER:
            # All members may be parked, and are asked then: each one once.
            self._left_out |= {ticket.endpoint.id}

    def refused(self) -> None:
        """Note that the member's client refused on this side; it is not asked again."""
        self._left_out |= {self.endpoint.id}
        self.neutral()

    def neutral(self) -> None:
        """Note that the attempt ended, and tells nothing: it was cancelled or abandoned."""
        self.pool.released(self.held)
        self.ticket = None

    def may_try_again(self, failures: int, hint: float | None, deadline: float = math.inf) -> bool:
        """Say whether attempts and time are left; in a pool of one, set the wait before the next.

        Args:
            failures: How many there were.
            hint: What the provider asked to wait, in seconds.
            deadline: When the request ends anyway, by the event loop's clock.
        """
        policy = self.pool.policy
        if not self.is_single:
            limit = policy.attempts_for(len(self.pool.endpoints))
            return (limit is None or failures < limit) and not self.is_over_budget
        if failures > self.pool.preferred.max_retries:
            return False
        self.pause = policy.backoff.delay(failures, self.roster.rng(), hint)
        ends = min(self.ends, deadline, anyio.current_effective_deadline())
        return anyio.current_time() + self.pause < ends

    def moves_on(self, error: BaseException) -> bool:
        """Say whether another member may do better after this error."""
        fault: Fault = self.pool.policy.classify(error)
        if fault.verdict is Verdict.MEMBER:
            return not self.is_single and (
                self.pool.policy.member_fault == "rotate" or _lacks_credential(error)
            )
        return fault.verdict is not Verdict.NEUTRAL


def _lacks_credential(error: BaseException) -> bool:
    """Say whether there was no token to send: nobody was asked, and others may have a key."""
    return isinstance(error, AuthenticationError) and error.status_code is None
