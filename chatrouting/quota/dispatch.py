"""Who of those that wait goes next.

Requests that a guarantee covers go first. Then comes the head of the line. If the head does not
fit, another request passes only if the head's start does not move by that (conservative backfill,
after batch schedulers): without the rule small requests starve a large one. A request held back by
a limit of its own is set aside and is no head.

Nothing is polled: `Dispatcher.next_start` says when it is worth looking again. Time is an
argument; what fits is the `Room`'s to say.
"""

import heapq
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar, final

from chatrouting.quota.line import Waiting, WaitingLine, flow_of

W = TypeVar("W", bound=Waiting)
W_contra = TypeVar("W_contra", bound=Waiting, contravariant=True)
Grant = TypeVar("Grant")

#: Tenants of each class that are looked at in one go; bounds the work of it.
SCAN_DEPTH: Final = 8

#: Starts this near to each other, in seconds, are the same.
_SAME_TIME: Final = 1e-6


@final
@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a request cannot start now.

    Attributes:
        wait: Seconds until it could, if nothing else happens; infinity if only an event helps.
        place: The bucket of the principal's own that holds it back; None if it is the
            deployment's, for which others wait as well.
    """

    wait: float
    place: Hashable = None


class Room(Protocol[W_contra, Grant]):
    """What a dispatcher asks about requests."""

    def admit(self, waiting: W_contra, now: float, /) -> Grant | Blocked:
        """Take what a request needs, all of it or nothing."""
        ...

    def undo(self, grant: Grant, now: float, /) -> None:
        """Give back what `admit` took last, as if it had never been taken."""
        ...

    def wait(self, waiting: W_contra, now: float, /) -> float:
        """Return the seconds until a request could start, without taking anything."""
        ...

    def assured_in(self, waiting: W_contra, now: float, /) -> float:
        """Return the seconds until a guarantee covers a request; infinity if none ever does."""
        ...


@final
class Dispatcher(Generic[W, Grant]):
    """Hands out what becomes free at one deployment.

    Attributes:
        line: Those that wait. They join and leave by the dispatcher.
        next_start: When to look again, as of the last look: no request fits before, unless
            something is given back. Infinity: only an event helps.
    """

    def __init__(self, room: Room[W, Grant]) -> None:
        self.line: WaitingLine[W] = WaitingLine()
        self.next_start = math.inf
        self._room = room
        self._covered: dict[W, None] = {}  # in the order in which they were covered
        # When a guarantee will cover the next request of a tenant.
        self._expected: dict[W, float] = {}
        self._heap: list[tuple[float, int, W]] = []
        self._pushed = 0

    def join(self, waiting: W, now: float) -> None:
        """Let a request wait."""
        self.line.join(waiting)
        self.renew(flow_of(waiting.principal), now)

    def leave(self, waiting: W, now: float) -> None:
        """Take a request out that waits no more; one that is not in the line is let alone."""
        if waiting.lane is not None:
            self.line.leave(waiting)
            self._covered.pop(waiting, None)
            self._expected.pop(waiting, None)
            self.renew(flow_of(waiting.principal), now)

    def renew(self, tenant: str | None, now: float) -> None:
        """Find out again when a tenant's guarantee covers its next request.

        To be called when what the tenant is assured of has changed.
        """
        for waiting in self.line.candidates_of(tenant):
            self._expect(waiting, now + self._room.assured_in(waiting, now))

    def released(self, places: Iterable[Hashable], now: float) -> None:
        """Let requests go on that were held back by their own limits at these places."""
        for tenant in self.line.unpark(places):
            self.renew(tenant, now)

    def next_granted(self, now: float) -> tuple[W, Grant] | None:
        """Take one request out of the line that may start now; None if there is none.

        Call it until it returns None; then `next_start` holds.
        """
        for tenant in self.line.unpark_due(now):
            self.renew(tenant, now)
        while True:
            look: _Look[W, Grant] = _Look(self._room, now)
            for waiting in self._candidates(now):
                granted = look.at(waiting)
                if granted is not None:
                    self.leave(waiting, now)
                    self.line.charge(waiting)
                    return waiting, granted
            for waiting, blocked in look.held_back:
                self.line.park(waiting, now + blocked.wait, blocked.place)
                self.renew(flow_of(waiting.principal), now)
            # What stood behind a request that is set aside has not been looked at yet.
            if not look.held_back:
                covered = self._heap[0][0] if self._clean() else math.inf
                self.next_start = min(look.next_start, covered, self.line.next_unparked())
                return None

    def _candidates(self, now: float) -> list[W]:
        """Return those to look at: first the ones that a guarantee covers, then by their turn."""
        while self._clean() and self._heap[0][0] <= now:
            waiting = heapq.heappop(self._heap)[2]
            del self._expected[waiting]
            self._covered[waiting] = None
        covered = [each for each in list(self._covered) if self._is_covered(each, now)]
        covered.sort(key=self.line.rank)
        return list(dict.fromkeys([*covered, *self.line.in_order(SCAN_DEPTH)]))

    def _is_covered(self, waiting: W, now: float) -> bool:
        if waiting.lane is not None and waiting.lane.parked_until is not None:
            return False
        later = self._room.assured_in(waiting, now)
        if later > 0:  # another request of the tenant has used it meanwhile
            self._covered.pop(waiting, None)
            self._expect(waiting, now + later)
        return later <= 0

    def _expect(self, waiting: W, covered_at: float) -> None:
        if covered_at == math.inf or waiting in self._covered:
            return
        expected = self._expected.get(waiting, math.inf)
        if abs(covered_at - expected) > _SAME_TIME:
            self._pushed += 1
            self._expected[waiting] = covered_at
            heapq.heappush(self._heap, (covered_at, self._pushed, waiting))

    def _clean(self) -> bool:
        """Drop what is expected no more from the front; say whether something is left."""
        while self._heap and self._expected.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return bool(self._heap)


@final
class _Look(Generic[W, Grant]):
    """One look at the requests in a line, in the order in which they should go."""

    def __init__(self, room: Room[W, Grant], now: float) -> None:
        self.held_back: list[tuple[W, Blocked]] = []
        self.next_start = math.inf
        self._room = room
        self._now = now
        self._head: tuple[W, float] | None = None

    def at(self, waiting: W) -> Grant | None:
        """Return what a request is given now, None if nothing."""
        found = self._room.admit(waiting, self._now)
        if isinstance(found, Blocked):
            if found.place is not None:
                self.held_back.append((waiting, found))
                return None
            start = self._now + found.wait
            self.next_start = min(self.next_start, start)
            if start < math.inf:  # what can never start is held up by nobody
                self._head = self._head or (waiting, start)
            return None
        if self._leaves_the_head_its_start():
            return found
        self._room.undo(found, self._now)
        return None

    def _leaves_the_head_its_start(self) -> bool:
        if self._head is None:
            return True
        waiting, start = self._head
        return self._now + self._room.wait(waiting, self._now) <= start + _SAME_TIME
