"""Pictures of what `pool_simulation.py` saved, for docs/endpoint-pools.md and docs/benchmarks.md.

Needs the extra `plots`; simulates nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

from _plots import COLOURS, INK, Curve, Dots, Panel, draw_curves, draw_dots, save
from _report import RESULTS

Saved = Mapping[str, Any]

#: The last one is the one that the pictures are about.
WAYS = dict(
    zip(
        (
            "one region each, SDK retries",
            "ordered list",
            "PoolPolicy()",
            "PoolPolicy.resilient()",
        ),
        (COLOURS[4], COLOURS[3], COLOURS[1], COLOURS[0]),
        strict=True,
    )
)
RESILIENT = "PoolPolicy.resilient()"
#: Per cent of the calls, at most.
TARGET = 1.0


def newest() -> Saved:
    """Read the numbers of the last saved run."""
    path = max(RESULTS.glob("pool_simulation-py*.json"), key=lambda each: each.stat().st_mtime)
    samples: Saved = json.loads(path.read_text(encoding="utf-8"))["samples"]
    return samples


def courses(samples: Saved) -> None:
    """Draw two outages in the course of time."""
    down, back = "one of three down", "all down for a minute"
    quarter, minute = ((0.0, 15.0), "down"), ((0.0, 1.0), "down")
    figure = draw_curves(
        "Outages, minute by minute: 100 processes, three regions",
        [
            Panel(
                f"{down}: calls without an answer",
                _course(samples, down, "wasted %"),
                span=quarter,
            ),
            Panel(f"{down}: calls to it", _course(samples, down, "first region %"), span=quarter),
            Panel(
                f"{back}: requests lost",
                _course(samples, back, "lost %"),
                x_range=(-1, 5),
                y_range=(-4, 116),
                span=minute,
            ),
            Panel(
                f"{back}: calls without an answer",
                _course(samples, back, "wasted %"),
                x_range=(-1, 5),
                y_range=(-4, 116),
                span=minute,
            ),
        ],
        x_label="minutes since the outage began",
        y_label="% of all",
    )
    print(save(figure, "pool-outages"))


def _course(samples: Saved, scenario: str, what: str) -> list[Curve]:
    by_way = samples["courses"][scenario]
    return [
        Curve(way, by_way[way]["minutes"], by_way[way][what], colour, is_bold=way == RESILIENT)
        for way, colour in WAYS.items()
    ]


def scenarios(samples: Saved) -> None:
    """Draw what became of requests and calls in all scenarios."""
    by_scenario = samples["scenarios"]
    figure = draw_dots(
        "Four ways of calling, from the beginning of a trouble up to four minutes after it",
        [
            Dots(title, {way: _numbers(by_scenario, way, key) for way in WAYS}, linear_to)
            for title, key, linear_to in (
                ("requests lost, %", "lost %", 1.0),
                ("added latency, p99, s", "p99", 1.0),
                ("calls wasted after a minute, %", "wasted %", 1.0),
            )
        ],
        cases=list(by_scenario),
    )
    print(save(figure, "pool-scenarios"))


def _numbers(by_scenario: Saved, way: str, key: str) -> list[float]:
    return [by_way[way][key] for by_way in by_scenario.values()]


def paces(samples: Saved) -> None:
    """Draw what quiet and busy processes waste on a region that is down, and how they return."""
    names = list(samples["paces"][RESILIENT])
    # With so many points that none of them is drawn.
    places = [step / 10 for step in range(10 * len(names) - 9)]
    target = Curve(f"target: {TARGET:g} %", places, [TARGET] * len(places), INK)
    figure = draw_curves(
        "One of three regions down for 15 minutes, by pace of the processes",
        [
            Panel(
                "calls wasted after a minute, % of all",
                [*_by_pace(samples, "wasted %"), target],
                x_names=names,
                y_range=(0, 26),
            ),
            Panel(
                "calls to it 1 to 2 minutes after, % of its share",
                _by_pace(samples, "came back %"),
                x_names=names,
                y_range=(0, 115),
            ),
        ],
        x_label="requests a second of one process",
        y_label="%",
    )
    print(save(figure, "pool-paces"))


def _by_pace(samples: Saved, what: str) -> list[Curve]:
    return [
        Curve(
            way,
            range(len(by_pace)),
            [found[what] for found in by_pace.values()],
            WAYS[way],
            is_bold=way == RESILIENT,
        )
        for way, by_pace in samples["paces"].items()
    ]


def main() -> None:
    """Draw all."""
    samples = newest()
    courses(samples)
    scenarios(samples)
    paces(samples)


if __name__ == "__main__":
    main()
