"""What a pool of regions does for a whole service while some of them fail, in virtual time.

Twenty minutes of up to a thousand processes, by a seed, for four ways of calling: each process its
own region with the SDK's retries, a list that is walked in order, and pools by two policies. The
pools are the library's own. Nothing is measured in real time.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias, final

from _callers import Caller, OrderedList, Pooled, SingleEndpoint
from _report import Report, arguments, number
from _virtual import BIN, Counts, Region, Time, Trouble

from chatrouting.pool import PoolPolicy

#: Makes a process of a service.
Make: TypeAlias = Callable[..., Caller]
Numbers: TypeAlias = Mapping[str, float]

README: Final = "PoolPolicy()"
RESILIENT: Final = "PoolPolicy.resilient()"
WAYS: Final[Mapping[str, Make]] = {
    "one region each, SDK retries": SingleEndpoint,
    "ordered list": OrderedList,
    README: partial(Pooled, PoolPolicy()),
    RESILIENT: partial(Pooled, PoolPolicy.resilient()),
}

#: Troubles begin here, and last a quarter of an hour where nothing else is said.
BEGINS: Final = 60.0
ENDS: Final = 960.0
UNTIL: Final = 1260.0
#: Requests that begin so late may not be through at the end.
TAIL: Final = 60.0
#: After so many seconds of a trouble, a pool is to have learned of it.
LEARNED: Final = 60.0
#: A quick run has so many times fewer processes.
QUICK: Final = 20


@final
@dataclass(frozen=True, slots=True)
class Scenario:
    """A service and its troubles.

    Attributes:
        name: What happens.
        troubles: What is wrong.
        processes: How many there are.
        rate: Requests a second of each.
        regions: How many there are.
        load: All requests, as a part of what all regions take.
        reserved: What the first region takes, as a part of all requests, if it is reserved; the
            others take half of the requests each.
        ends: When the troubles are over.
    """

    name: str
    troubles: Sequence[Trouble] = ()
    processes: int = 100
    rate: float = 1.0
    regions: int = 3
    load: float = 0.5
    reserved: float | None = None
    ends: float = ENDS

    @property
    def total(self) -> float:
        """All requests of a second."""
        return self.processes * self.rate

    @property
    def capacities(self) -> list[float]:
        """Calls a second that each region takes."""
        if self.reserved is not None:
            return [self.reserved * self.total] + [self.total / 2] * (self.regions - 1)
        return [self.total / self.load / self.regions] * self.regions


def during(kind: str, *regions: int, share: float = 1.0, ends: float = ENDS) -> list[Trouble]:
    """Describe a trouble of some regions."""
    return [Trouble(kind, regions, BEGINS, ends, share)]


DOWN: Final = Scenario("one of three down", during("down", 0))
BACK: Final = Scenario("all down for a minute", during("down", 0, 1, 2, ends=120.0), load=0.8)
RESERVED: Final = Scenario("reserved region takes 60 %", reserved=0.6)
#: Those in which what is left carries the load while one region is down.
FITTING: Final = (
    DOWN,
    replace(DOWN, name="one down, 95 % of the rest used", load=0.95 * 2 / 3),
    replace(DOWN, name="one down, 1 process", processes=1, rate=50.0),
    replace(DOWN, name="one down, 1,000 processes", processes=1000, rate=0.2),
    replace(DOWN, name="one of twelve down", regions=12),
)
SCENARIOS: Final = (
    *FITTING,
    replace(DOWN, name="one of three silent", troubles=during("silent", 0)),
    replace(DOWN, name="two of three down", troubles=during("down", 0, 1), load=0.25),
    replace(DOWN, name="20 % of one region fail", troubles=during("brownout", 0, share=0.2)),
    replace(DOWN, name="20 % of all regions fail", troubles=during("brownout", 0, 1, 2, share=0.2)),
    replace(BACK, ends=120.0),
    RESERVED,
    replace(DOWN, name="one bad key", troubles=during("key", 0)),
)
#: Requests a second of one process, and how many there are.
PACES: Final = {0.05: 1000, 0.1: 500, 0.2: 250, 0.5: 100, 1.0: 50, 5.0: 10, 50.0: 1}
#: From here on a process is so busy that the target holds for it.
PACED: Final = 0.2


@final
@dataclass(frozen=True, slots=True)
class Life:
    """What one way of calling came to in one scenario."""

    scenario: Scenario
    counts: Counts

    @property
    def lost(self) -> int:
        """Requests without an answer, from when the trouble began."""
        return self.counts.requests(BEGINS, UNTIL - TAIL, lost=True)

    def later(self, outcome: str) -> float:
        """Return what per cent of the calls ended so, from the second minute of the trouble on."""
        start = BEGINS + LEARNED
        end = self.scenario.ends if self.scenario.ends > start else UNTIL
        return 100 * self.counts.calls(start, end, outcome=outcome) / self.counts.calls(start, end)

    def used(self) -> float:
        """Return what per cent of the first region's capacity was used."""
        answered = self.counts.calls(BEGINS, UNTIL, outcome="answer", region=0)
        return 100 * answered / (self.scenario.capacities[0] * (UNTIL - BEGINS))

    def came_back(self) -> float:
        """Return what the first region gets in its second minute, in per cent of its share."""
        start = self.scenario.ends + 60
        calls = self.counts.calls(start, start + 60)
        return 100 * self.counts.calls(start, start + 60, region=0) * self.scenario.regions / calls

    def numbers(self) -> dict[str, float]:
        """Return all that is reported."""
        start, end = BEGINS, UNTIL - TAIL
        return {
            "lost": self.lost,
            "lost %": 100 * self.lost / self.counts.requests(start, end),
            "p50": self.counts.added(start, end, 0.5),
            "p99": self.counts.added(start, end, 0.99),
            "wasted %": self.later("fault") + self.later("429"),
            "429 %": self.later("429"),
            "used %": self.used(),
            "came back %": self.came_back(),
        }

    def course(self) -> dict[str, list[float]]:
        """Return what happened in the course of time, by half minutes."""
        step = 6 * BIN
        starts = [place * step for place in range(int((UNTIL - TAIL) / step))]
        counts = self.counts
        wasted: list[float] = []
        share: list[float] = []
        lost: list[float] = []
        for start in starts:
            calls = counts.calls(start, start + step)
            answers = counts.calls(start, start + step, outcome="answer")
            wasted.append(100 * (calls - answers) / calls)
            share.append(100 * counts.calls(start, start + step, region=0) / calls)
            began = counts.requests(start, start + step)
            lost.append(100 * counts.requests(start, start + step, lost=True) / began)
        minutes = [(start + step / 2 - BEGINS) / 60 for start in starts]
        return {"minutes": minutes, "wasted %": wasted, "first region %": share, "lost %": lost}


def live(scenario: Scenario, make: Make, *, seed: int = 1) -> Life:
    """Let a service live through a scenario."""
    time, counts, rng = Time(), Counts(), Random(seed)
    regions = [
        Region(
            place,
            capacity,
            time=time,
            counts=counts,
            rng=Random(rng.random()),
            troubles=scenario.troubles,
            is_reserved=scenario.reserved is not None and place == 0,
        )
        for place, capacity in enumerate(scenario.capacities)
    ]
    for place in range(scenario.processes):
        caller = make(place, regions, time=time, counts=counts, rng=Random(rng.random()))
        time.start(caller.requests(scenario.rate))
    time.run(UNTIL)
    return Life(scenario, counts)


def smaller(scenario: Scenario, *, is_quick: bool) -> Scenario:
    """Return the same service with fewer processes, for a look."""
    if not is_quick:
        return scenario
    return replace(scenario, processes=max(1, scenario.processes // QUICK))


def run_scenarios(report: Report) -> Mapping[str, Mapping[str, Numbers]]:
    """Let all ways of calling live through all scenarios."""
    found: dict[str, dict[str, Numbers]] = {}
    courses: dict[str, Any] = {}
    for scenario in SCENARIOS:
        lives = {
            way: live(smaller(scenario, is_quick=report.is_quick), make)
            for way, make in WAYS.items()
        }
        found[scenario.name] = {way: life.numbers() for way, life in lives.items()}
        if scenario.name in (DOWN.name, BACK.name):
            courses[scenario.name] = {way: life.course() for way, life in lives.items()}
    report.samples |= {"scenarios": found, "courses": courses}
    return found


def run_paces(report: Report) -> Mapping[str, Mapping[float, Numbers]]:
    """Let quiet and busy processes live through one of three regions being down."""
    found: dict[str, dict[float, Numbers]] = {}
    for way in (README, RESILIENT):
        found[way] = {}
        for rate, processes in PACES.items():
            scenario = replace(DOWN, rate=rate, processes=processes)
            life = live(smaller(scenario, is_quick=report.is_quick), WAYS[way])
            found[way][rate] = life.numbers()
    report.samples["paces"] = {
        way: {f"{rate:g}": numbers for rate, numbers in by_rate.items()}
        for way, by_rate in found.items()
    }
    return found


def tell(
    report: Report,
    scenarios: Mapping[str, Mapping[str, Numbers]],
    paces: Mapping[str, Mapping[float, Numbers]],
) -> None:
    """Write the tables and the claims."""
    report.table(
        "What became of the requests, and of the calls",
        ("scenario, way", "lost %", "added p50, s", "added p99, s", "wasted %", "of these 429"),
        [
            (f"{name}: {way}", *(number(found[key]) for key in ("lost %", "p50", "p99")), *rest)
            for name, by_way in scenarios.items()
            for way, found in by_way.items()
            for rest in [(number(found["wasted %"]), number(found["429 %"]))]
        ],
    )
    report.table(
        "Calls to the region that was down, in the second minute after that, % of its share",
        ("scenario", *WAYS),
        [
            (each.name, *(number(found["came back %"]) for found in scenarios[each.name].values()))
            for each in FITTING
        ],
    )
    report.table(
        "The reserved region",
        ("way", "used %", "refusals, % of all calls"),
        [
            (way, number(found["used %"]), number(found["429 %"]))
            for way, found in scenarios[RESERVED.name].items()
        ],
    )
    report.table(
        "One of three down, by pace of a process: calls wasted, %, and calls to it as above",
        (
            "requests a second",
            "processes",
            *(f"{way}: {what}" for what in ("wasted", "back") for way in paces),
        ),
        [
            (
                f"{rate:g}",
                f"{processes:,}",
                *(
                    number(paces[way][rate][key])
                    for key in ("wasted %", "came back %")
                    for way in paces
                ),
            )
            for rate, processes in PACES.items()
        ],
    )
    for each in FITTING:
        found = scenarios[each.name][RESILIENT]
        report.claim(f"{each.name}: requests lost", found["lost"], 0, "")
        report.claim(f"{each.name}: calls wasted after a minute", found["wasted %"], 1, "%")
    most = max(found["wasted %"] for rate, found in paces[RESILIENT].items() if rate >= PACED)
    report.claim(f"processes of {PACED} to 50 requests a second: calls wasted", most, 1, "%")


def main() -> None:
    """Simulate and tell."""
    asked = arguments(__doc__).parse_args()
    logging.disable()
    report = Report(
        "pool_simulation", "A service whose regions fail, simulated", asked.quick, turns=1
    )
    report.notes.append(
        "Virtual time, one seed. Three regions and 100 processes of one request a second, half of "
        "what the regions take, where nothing else is said; a trouble lasts 15 minutes. An answer "
        "takes 1 s in the median, a refusal 0.05 s, a failure 0.2 s, silence 30 s. Added is what a "
        "request took before the call that was answered was sent. Wasted are calls without an "
        "answer, from the second minute of the trouble to its end. Requests are counted from the "
        "beginning of the trouble up to four minutes after it."
    )
    tell(report, run_scenarios(report), run_paces(report))
    report.tell(save=asked.save)


if __name__ == "__main__":
    main()
