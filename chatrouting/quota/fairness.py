"""Fair shares: whose request is next, and what a request costs for that.

Start-time fair queueing (Goyal, Vin and Cheng, 1996) over classes, and over tenants inside each
class. A flow's start tag is where its next request begins on a clock that runs by work done, not by
time; the lowest goes first, and a request moves its flow on by cost / weight. A flow that was idle
is lifted to the clock when it comes back, so that idling earns no credit (as the virtual token
counter does; Sheng et al., "Fairness in Serving Large Language Models", 2024).

Two flows that both wait all the time never differ by more than the largest cost of each over its
weight. Nothing here knows of time, limits or tokens; costs come from `dominant_share`.
"""

import heapq
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar, final

Flow = TypeVar("Flow", bound=Hashable)

#: Flows below this number are never searched for idle ones.
_FEW: Final = 64


def dominant_share(charges: Mapping[str, float], capacities: Mapping[str, float]) -> float:
    """Return how much of a deployment a request takes, by the dimension it takes most of.

    Dominant resource fairness (Ghodsi et al., 2011): one tenant burns requests and another one
    burns output tokens, and a count of tokens is blind to the first.

    Args:
        charges: Amount for each dimension.
        capacities: What the deployment has of each, in one window; dimensions without are free.

    Returns:
        A fraction of one window's capacity, at least 0.
    """
    most = 0.0
    for dimension, capacity in capacities.items():
        amount = charges.get(dimension, 0.0)
        if capacity > 0 and amount > most * capacity:
            most = amount / capacity
    return most


@final
class FairClock(Generic[Flow]):
    """The tags of flows that share one server.

    A flow is *waiting* from `arrive` to `leave`. It may be charged at any time, also while it
    waits for nothing.

    Attributes:
        virtual_time: Where idle flows begin when they come back; never goes back.
    """

    def __init__(self) -> None:
        self.virtual_time = 0.0
        self._finish: dict[Flow, float] = {}
        self._start: dict[Flow, tuple[float, int]] = {}
        # Start tags of waiting flows; entries that no longer hold are skipped.
        self._heap: list[tuple[float, int, Flow]] = []
        self._pushed = 0
        self._sweep_at = _FEW

    def __len__(self) -> int:
        """Count the flows that are remembered."""
        return len(self._finish.keys() | self._start.keys())

    def __contains__(self, flow: Flow) -> bool:
        """Say whether a flow is waiting."""
        return flow in self._start

    def __iter__(self) -> Iterator[Flow]:
        """Go through the waiting flows, in no order."""
        return iter(self._start)

    @property
    def is_idle(self) -> bool:
        """Whether no flow waits."""
        return not self._start

    def start(self, flow: Flow) -> float:
        """Return the tag at which the next request of a flow begins."""
        waiting = self._start.get(flow)
        if waiting is not None:
            return waiting[0]
        return max(self.virtual_time, self._finish.get(flow, 0.0))

    def arrive(self, flow: Flow) -> None:
        """Note that a flow has something waiting."""
        if flow not in self._start:
            self._put(flow, self.start(flow))

    def leave(self, flow: Flow) -> None:
        """Note that nothing of a flow waits any more."""
        start = self._start.pop(flow, None)
        if start is not None:
            self._finish[flow] = start[0]

    def first(self) -> Flow | None:
        """Return the flow whose turn it is, None if none is waiting."""
        return self._heap[0][2] if self._clean() else None

    def in_order(self, count: int) -> list[Flow]:
        """Return the first flows, those whose turn is next in front."""
        found: list[tuple[float, int, Flow]] = []
        while len(found) < count and self._clean():
            found.append(heapq.heappop(self._heap))
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [flow for _, _, flow in found]

    def charge(self, flow: Flow, cost: float, weight: float) -> None:
        """Move a flow on by what it was given.

        Args:
            flow: One that waits, or was served without waiting.
            cost: As `dominant_share`.
            weight: Its share beside the others, more than 0.
        """
        start = self.start(flow)
        # Never past a flow that waits: one that comes back would then be set behind it.
        reached = min(start, self._heap[0][0]) if self._clean() else start
        self.virtual_time = max(self.virtual_time, reached)
        self._move(flow, start + cost / weight)

    def correct(self, flow: Flow, difference: float, weight: float) -> None:
        """Mend an earlier charge, now that the real cost is known.

        Args:
            flow: The one that was charged.
            difference: The real cost less the one charged.
            weight: As it was charged with.
        """
        self._move(flow, self.start(flow) + difference / weight)

    def _move(self, flow: Flow, tag: float) -> None:
        if flow in self._start:
            self._put(flow, tag)
        else:
            self._finish[flow] = tag
            self._forget_idle()

    def _put(self, flow: Flow, tag: float) -> None:
        self._finish.pop(flow, None)
        self._pushed += 1  # flows with one tag keep the order in which they came
        self._start[flow] = (tag, self._pushed)
        heapq.heappush(self._heap, (tag, self._pushed, flow))
        if len(self._heap) > 2 * len(self._start) + _FEW:
            self._heap = [entry for entry in self._heap if self._holds(entry)]
            heapq.heapify(self._heap)

    def _clean(self) -> bool:
        """Drop entries that no longer hold from the front; say whether one is left."""
        while self._heap and not self._holds(self._heap[0]):
            heapq.heappop(self._heap)
        return bool(self._heap)

    def _holds(self, entry: tuple[float, int, Flow]) -> bool:
        return self._start.get(entry[2]) == entry[:2]

    def _forget_idle(self) -> None:
        """Drop idle flows that would be lifted to the clock anyway."""
        if len(self._finish) < self._sweep_at:
            return
        now = self.virtual_time
        self._finish = {flow: tag for flow, tag in self._finish.items() if tag > now}
        self._sweep_at = max(_FEW, 2 * len(self._finish))
