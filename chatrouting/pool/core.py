"""What a pool and its pinned views share, and what follows when a ticket is given back."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Generic, final

import anyio

from chatrouting._core_lock import CoreLock
from chatrouting.errors import PoolExhaustedError
from chatrouting.pool.events import PoolEvent, log_event, logger
from chatrouting.pool.loop_clients import ClientT, LoopClients
from chatrouting.pool.member import BLOCKED, Chance, Cooling, Member, Ticket
from chatrouting.pool.policy import PoolPolicy
from chatrouting.pool.selection import Filter
from chatrouting.pool.table import Table
from chatrouting.pool.waiting import WaitingRoom
from chatrouting.pool.windows import RetryBudget

#: Who waits for a running attempt looks again after so many seconds, whatever became of that.
_LOOK_AGAIN: Final = 5.0


@final
class Core(Generic[ClientT]):
    """State, settings and clients of one pool.

    Attributes:
        table: The members.
        clients: What calls them.
        policy: How they are treated.
        name: Of the pool.
        clock: A monotonic clock.
        chance: Where chance comes from.
        on_event: A listener.
        lock: Held for every look at the members.
        room: Where requests wait.
        retries: The retry budget, if there is one.
    """

    __slots__ = (
        "chance",
        "clients",
        "clock",
        "lock",
        "name",
        "on_event",
        "policy",
        "retries",
        "room",
        "table",
    )

    def __init__(
        self,
        table: Table,
        clients: LoopClients[ClientT],
        *,
        policy: PoolPolicy,
        name: str,
        clock: Callable[[], float],
        chance: Chance,
        on_event: Callable[[PoolEvent], object] | None,
    ) -> None:
        self.table = table
        self.clients = clients
        self.policy = policy
        self.name = name
        self.clock = clock
        self.chance = chance
        self.on_event = on_event
        self.lock = CoreLock()
        self.room = WaitingRoom()
        self.retries = None if policy.retry_budget is None else RetryBudget(policy.retry_budget)

    def pick(
        self,
        allows: Filter | None,
        key: str | None,
        tokens: int | None,
        is_retry: bool,  # noqa: FBT001  # handed through, for each call
        patience: float,
    ) -> Ticket | Cooling:
        """Choose whom to ask. By position: keywords would be a tenth of the choice.

        Args:
            allows: Says whether an endpoint may be asked; None lets all be asked.
            key: As for `EndpointPool.pick`.
            tokens: Likewise.
            is_retry: Likewise.
            patience: Likewise.

        Raises:
            NoEndpointAvailableError: If no member fits, ready or not.
        """
        lock = self.lock
        lock.acquire()
        try:
            now = self.clock()
            table = self.table
            selection = table.selection
            found: Member | Cooling
            if allows is None and now < selection.until:
                ready = selection.ready
                if selection.is_random:
                    # Nearly all pools choose so; a call for it would be a twentieth of the choice.
                    found = ready[int(self.chance() * len(ready))]
                else:
                    found = selection.choose(ready, now, key)
            else:
                found = selection.select(now, key, tokens, allows, patience)
                if type(found) is Cooling:
                    return replace(found, changes=self.room.changes)
            if self.retries is not None and not is_retry:
                self.retries.note_request(now)
            return table.health.begin(found, now, tokens)
        finally:
            lock.give_back()
            if lock.waiting:
                lock.do_waiting()

    def succeeded(self, ticket: Ticket, latency: float | None) -> None:
        """Give a ticket back after an answer; see `EndpointPool.succeeded`."""
        lock = self.lock
        member = ticket.member
        lock.acquire()
        try:
            now = self.clock()
            event = self.table.health.succeed(ticket, latency, now)
            opens_in = member.open_at - now
        finally:
            lock.give_back()
            if lock.waiting:
                lock.do_waiting()
        if event is not None or ticket.is_probe or member.is_limited or self.room.waiters:
            self.tell(ticket, event, opens_in, answered=True)

    async def acquire(
        self, look: Callable[..., Ticket | Cooling], accepts: Filter, limit: float
    ) -> Ticket:
        """Wait for a ticket.

        Args:
            look: Picks, for a request with so many seconds of `patience`.
            accepts: Says whether a slot of an endpoint is of use.
            limit: The longest wait, in seconds.

        Raises:
            PoolExhaustedError: If nobody is ready in time; at once if that is known.
        """
        refuses = self.policy.when_all_cooling == "raise"
        deadline = anyio.current_time() + limit
        while True:
            left = deadline - anyio.current_time()
            found = look(patience=left)
            if isinstance(found, Ticket):
                return found
            is_hopeless = left <= 0 or (found.wait > left and not found.is_busy)
            if is_hopeless or (refuses and not found.is_choice):
                raise _exhausted(self.name, found)
            stagger = self.chance() * self.policy.wake_jitter
            wait = min(found.wait, _LOOK_AGAIN) if found.is_busy else found.wait
            await self.room.wait(
                # The more there are, the longer it takes, lest they exhaust at once what came back;
                # answers wake them sooner.
                min(wait + stagger * (1 + len(self.room.waiters)), left),
                changes=found.changes,
                accepts=accepts,
                stagger=min(stagger, left),
            )

    def tell(
        self, ticket: Ticket, event: PoolEvent | None, opens_in: float, *, answered: bool = False
    ) -> None:
        """Wake those who wait for what happened, and let others know of it.

        Args:
            ticket: It was given back.
            event: What happened to its member, if anything did.
            opens_in: Seconds until the member may be asked, infinity if it has no slot left.
            answered: The attempt got its answer.
        """
        if opens_in < BLOCKED:
            self._wake(ticket, opens_in, answered=answered)
        if event is not None:
            log_event(self.name, event)
            self._report(event)

    def _wake(self, ticket: Ticket, opens_in: float, *, answered: bool) -> None:
        is_limited = ticket.member.is_limited
        if answered and opens_in <= 0 and not is_limited:
            # Two for each answer: as fast as a member can bear, and no herd that it cannot.
            self.room.wake_one(ticket.endpoint)
            self.room.wake_one(ticket.endpoint)
        elif ticket.holds_slot and (ticket.is_probe or opens_in > 0):
            self.room.wake_all()
        elif ticket.holds_slot:
            # Each slot wakes one request, the second as the first: each may be waited for.
            self.room.wake_one(ticket.endpoint)

    def _report(self, event: PoolEvent) -> None:
        if self.on_event is None:
            return
        try:
            self.on_event(event)
        except Exception:  # noqa: BLE001  # the listener's own
            logger.exception("pool.listener_failed pool=%s", self.name)


def _exhausted(name: str, cooling: Cooling) -> PoolExhaustedError:
    is_known = cooling.wait < math.inf
    when = f"in {cooling.wait:.1f} s" if is_known else "when a running attempt ends"
    return PoolExhaustedError(
        f"all endpoints of the pool {name!r} are held back; {cooling.endpoint.id!r} is ready "
        f"first, {when}. Try again then, or add an endpoint.",
        retry_after=cooling.wait if is_known else None,
    )
