"""How everything here is measured: CPU time of this thread, medians of interleaved turns.

Every turn measures each case once, in another order, so that whatever a neighbour does to the
machine falls on all of them alike. Two cases are compared turn by turn, and the median of these
comparisons counts. The garbage collector runs between turns and not within them.
"""

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TypeAlias, final

#: Nanoseconds that this thread was on a processor; waiting and neighbours do not count.
clock = time.thread_time_ns

#: Runs a case and returns what it cost, in CPU microseconds.
Measure: TypeAlias = Callable[[], Awaitable[float]]

_WARM_UP_TURNS = 2


def per_call(call: Callable[[], Awaitable[object]], repeat: int) -> Measure:
    """Measure one call, as the mean over `repeat` calls in a row."""

    async def measure() -> float:
        started = clock()
        for _ in range(repeat):
            await call()
        return (clock() - started) / repeat / 1000

    return measure


@final
class Samples:
    """What each case cost in each turn."""

    def __init__(self, by_case: Mapping[str, list[float]]) -> None:
        self.by_case = by_case

    def __contains__(self, case: str) -> bool:
        return case in self.by_case

    def median(self, case: str) -> float:
        """Return the median cost."""
        return statistics.median(self.by_case[case])

    def p95(self, case: str) -> float:
        """Return what 95 % of the turns did not exceed."""
        ordered = sorted(self.by_case[case])
        return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]

    def added(self, case: str, base: str) -> float:
        """Return by how much a case costs more than another, as the median over turns."""
        return self._paired(case, base, lambda one, other: one - other)

    def ratio(self, case: str, base: str) -> float:
        """Return how many times another case a case costs, as the median over turns."""
        return self._paired(case, base, lambda one, other: one / other)

    def _paired(self, case: str, base: str, compare: Callable[[float, float], float]) -> float:
        pairs = zip(self.by_case[case], self.by_case[base], strict=True)
        return statistics.median(compare(one, other) for one, other in pairs)


async def rotate(cases: Mapping[str, Measure], turns: int) -> Samples:
    """Measure all cases once a turn, in an order that changes from turn to turn."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    order = list(cases)
    shuffle = Random(0).shuffle
    gc.disable()
    try:
        for turn in range(-_WARM_UP_TURNS, turns):
            shuffle(order)
            gc.collect()
            for name in order:
                cost = await cases[name]()
                if turn >= 0:
                    found[name].append(cost)
    finally:
        gc.enable()
    return Samples(found)
