"""The requests that wait at one deployment, in the order in which they should go.

Fair between classes and between tenants in a class (`fairness`); first come, first served for one
principal. A request that is held back by a limit of its own (its tenant's, its key's) is *parked*
and stands in nobody's way. Who of them fits is for `dispatch`, and nothing here knows of limits.
Time is an argument.
"""

import heapq
import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, final

from chatrouting.options import Principal
from chatrouting.quota.classes import TrafficClass
from chatrouting.quota.fairness import FairClock


def flow_of(principal: Principal) -> str | None:
    """Return whose requests share one flow: the tenant's, else the organisation's."""
    return principal.tenant if principal.tenant is not None else principal.organisation


@dataclass(eq=False, slots=True, kw_only=True)
class Waiting:
    """One request in a line; to be derived from by whoever knows more of it.

    Attributes:
        traffic: Its class.
        principal: Who asks.
        weight: The tenant's, beside other tenants of the class.
        cost: Dominant share of the deployment.
        tokens: What it asks for, for the bound of the class.
    """

    traffic: TrafficClass
    principal: Principal
    weight: float = 1.0
    cost: float = 0.0
    tokens: float = 0.0
    lane: "Lane[Any] | None" = field(
        default=None, init=False, repr=False
    )  #: None: it waits nowhere.


W = TypeVar("W", bound=Waiting)


@final
class Lane(Generic[W]):
    """The requests of one principal in one class, oldest first."""

    __slots__ = ("flow", "parked_at", "parked_until", "principal", "queue")

    def __init__(self, flow: "Flow[W]", principal: Principal) -> None:
        self.flow = flow
        self.principal = principal
        self.queue: OrderedDict[W, int] = OrderedDict()
        self.parked_at: Hashable = None
        self.parked_until: float | None = None

    def head(self) -> W:
        """Return the oldest request."""
        return next(iter(self.queue))

    def number(self) -> int:
        """Return the place of the oldest request among all that ever came."""
        return next(iter(self.queue.values()))


@final
class Flow(Generic[W]):
    """The lanes of one tenant in one class."""

    __slots__ = ("group", "key", "lanes", "queued_cost", "weight")

    def __init__(self, group: "Group[W]", key: str | None, weight: float) -> None:
        self.group = group
        self.key = key
        self.weight = weight
        self.lanes: dict[Principal, Lane[W]] = {}
        self.queued_cost = 0.0

    def candidate(self) -> W | None:
        """Return the oldest request that is not parked."""
        free = [lane for lane in self.lanes.values() if lane.parked_until is None]
        return min(free, key=lambda lane: lane.number()).head() if free else None


@final
class Group(Generic[W]):
    """The flows of one class."""

    __slots__ = ("clock", "flows", "items", "queued_cost", "tokens", "traffic", "weights")

    def __init__(self, traffic: TrafficClass) -> None:
        self.traffic = traffic
        self.clock: FairClock[str | None] = FairClock()
        self.flows: dict[str | None, Flow[W]] = {}
        self.items = 0
        self.tokens = 0.0
        self.queued_cost = 0.0
        self.weights = 0.0


@final
class WaitingLine(Generic[W]):
    """Requests that wait for one deployment."""

    def __init__(self) -> None:
        self._groups: dict[str, Group[W]] = {}
        self._classes: FairClock[str] = FairClock()
        self._came = 0
        self._parked: list[tuple[float, int, Lane[W]]] = []
        self._parked_at: dict[Hashable, set[Lane[W]]] = {}

    def __len__(self) -> int:
        """Count the requests that wait."""
        return sum(group.items for group in self._groups.values())

    def is_full(self, waiting: W) -> bool:
        """Say whether its class has no place for a request that would join now, or came last."""
        traffic = waiting.traffic
        group = self._groups.get(traffic.name)
        items, queued = (0, 0.0) if group is None else (group.items, group.tokens)
        if waiting.lane is not None:
            items, queued = items - 1, queued - waiting.tokens
        limit = traffic.max_queue_tokens
        is_long = limit is not None and queued + waiting.tokens > limit
        return items >= traffic.max_queue_items or is_long

    def join(self, waiting: W) -> None:
        """Let a request wait, behind those of its principal."""
        group = self._group(waiting.traffic)
        key = flow_of(waiting.principal)
        flow = group.flows.get(key)
        if flow is None:
            flow = group.flows[key] = Flow(group, key, waiting.weight)
            group.weights += flow.weight
        lane = flow.lanes.setdefault(waiting.principal, Lane(flow, waiting.principal))
        self._came += 1
        lane.queue[waiting] = self._came
        waiting.lane = lane
        flow.queued_cost += waiting.cost
        group.queued_cost += waiting.cost
        group.items += 1
        group.tokens += waiting.tokens
        self._tell_clocks(flow)

    def leave(self, waiting: W) -> None:
        """Take a request out; one that waits here no more is let alone."""
        lane = waiting.lane
        if lane is None:
            return
        waiting.lane = None
        flow, group = lane.flow, lane.flow.group
        if lane.head() is waiting:
            self._unpark(lane)  # it was set aside for its head; the next one may need less
        del lane.queue[waiting]
        flow.queued_cost -= waiting.cost
        group.queued_cost -= waiting.cost
        group.items -= 1
        group.tokens -= waiting.tokens
        if not lane.queue:
            del flow.lanes[lane.principal]
        if not flow.lanes:
            del group.flows[flow.key]
            group.weights -= flow.weight
        self._tell_clocks(flow)

    def charge(self, waiting: W) -> None:
        """Move the tenant and its class on by a request that is admitted, waiting or not."""
        group = self._group(waiting.traffic)
        flow = flow_of(waiting.principal)
        group.clock.charge(flow, waiting.cost, waiting.weight)
        self._classes.charge(group.traffic.name, waiting.cost, group.traffic.weight)

    def correct(self, waiting: W, difference: float) -> None:
        """Mend a charge by the real cost less the one charged."""
        group = self._group(waiting.traffic)
        group.clock.correct(flow_of(waiting.principal), difference, waiting.weight)
        self._classes.correct(group.traffic.name, difference, group.traffic.weight)

    def in_order(self, count: int) -> list[W]:
        """Return who should go next, at most `count` of each class and one of each tenant."""
        found: list[W] = []
        for group in self._groups_in_order():
            flows = (group.flows[key] for key in group.clock.in_order(count))
            found += [each for flow in flows if (each := flow.candidate()) is not None]
        return found

    def candidates_of(self, tenant: str | None) -> Iterable[W]:
        """Yield the next request of a tenant in each class."""
        for group in self._groups.values():
            flow = group.flows.get(tenant)
            candidate = None if flow is None else flow.candidate()
            if candidate is not None:
                yield candidate

    def rank(self, waiting: W) -> tuple[bool, float, float]:
        """Return what to sort requests by, those that should go first in front."""
        traffic = waiting.traffic
        clock = self._groups[traffic.name].clock
        tags = self._classes.start(traffic.name), clock.start(flow_of(waiting.principal))
        return not traffic.is_control, *tags

    def work_ahead(self, waiting: W) -> float:
        """Estimate the cost that is served before a request that would join now, or came last.

        While others wait, a flow gets its share by weight; what it has waiting itself comes first.
        """
        traffic = waiting.traffic
        group = self._group(traffic)
        flow = group.flows.get(flow_of(waiting.principal))
        own, weight = (0.0, 0.0) if flow is None else (flow.queued_cost, flow.weight)
        rivals = (group.weights - weight) / waiting.weight
        queued = group.queued_cost
        if waiting.lane is not None:
            own, queued = own - waiting.cost, queued - waiting.cost
        in_class = min(own + (own + waiting.cost) * rivals, queued)
        others = [each for each in self._groups.values() if each.items and each is not group]
        weights = sum(each.traffic.weight for each in others) / traffic.weight
        total = queued + sum(each.queued_cost for each in others)
        return min(in_class + (in_class + waiting.cost) * weights, total)

    def park(self, waiting: W, until: float, place: Hashable) -> None:
        """Set a request's lane aside until then, or until something is given back at a place.

        One that waits here no more is let alone.
        """
        lane = waiting.lane
        if lane is None:
            return
        lane.parked_until = until
        lane.parked_at = place
        self._parked_at.setdefault(place, set()).add(lane)
        if until < math.inf:
            self._came += 1
            heapq.heappush(self._parked, (until, self._came, lane))
        self._tell_clocks(lane.flow)

    def unpark(self, places: Iterable[Hashable]) -> set[str | None]:
        """Let those go on that wait for something at these places; return their tenants."""
        lanes = [lane for place in places for lane in self._parked_at.get(place, ())]
        for lane in lanes:
            self._unpark(lane)
            self._tell_clocks(lane.flow)
        return {lane.flow.key for lane in lanes}

    def unpark_due(self, now: float) -> set[str | None]:
        """Let those go on whose time has come; return their tenants."""
        tenants: set[str | None] = set()
        while self.next_unparked() <= now:
            lane = heapq.heappop(self._parked)[2]
            self._unpark(lane)
            self._tell_clocks(lane.flow)
            tenants.add(lane.flow.key)
        return tenants

    def next_unparked(self) -> float:
        """Return when the time of the next one that is parked comes."""
        while self._parked and self._parked[0][2].parked_until != self._parked[0][0]:
            heapq.heappop(self._parked)
        return self._parked[0][0] if self._parked else math.inf

    def places(self) -> Iterable[Hashable]:
        """Return the places at which somebody waits for something."""
        return self._parked_at.keys()

    def counts(self) -> dict[str, int]:
        """Count the requests that wait, by class."""
        return {name: group.items for name, group in self._groups.items() if group.items}

    def _group(self, traffic: TrafficClass) -> Group[W]:
        group = self._groups.get(traffic.name)
        if group is None:
            group = self._groups[traffic.name] = Group(traffic)
        return group

    def _groups_in_order(self) -> list[Group[W]]:
        names = self._classes.in_order(len(self._groups))
        groups = [self._groups[name] for name in names]
        return sorted(groups, key=lambda group: not group.traffic.is_control)

    def _unpark(self, lane: Lane[W]) -> None:
        if lane.parked_until is None:
            return
        lanes = self._parked_at[lane.parked_at]
        lanes.discard(lane)
        if not lanes:
            del self._parked_at[lane.parked_at]
        lane.parked_until = lane.parked_at = None

    def _tell_clocks(self, flow: Flow[W]) -> None:
        """Keep a flow, and its class, on the clocks exactly while it has a candidate."""
        group = flow.group
        if flow.candidate() is None:
            group.clock.leave(flow.key)
        else:
            group.clock.arrive(flow.key)
        if group.clock.is_idle:
            self._classes.leave(group.traffic.name)
        else:
            self._classes.arrive(group.traffic.name)
