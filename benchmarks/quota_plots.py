"""Pictures of what `quota_simulation.py` saved, for docs/benchmarks.md.

Needs the extra `plots`; simulates nothing.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from _plots import COLOURS, INK, Curve, Panel, draw_curves, save
from _report import RESULTS

Saved = Mapping[str, Any]

BLUE, RED, GREEN, PINK, ORANGE, SKY = COLOURS
GREY = "#9a9a9a"
MINUTE = 60.0
#: A line with as many points has no marks.
PLAIN = 12

OFFERED = "offered"
LIMIT = "provider's limit"
OURS = "governor: admitted"
RETRIES = "SDK retries: answered"
IN_LIMITS = "last minute, in limits"


def newest() -> Saved:
    """Read the numbers of the last saved run."""
    path = max(RESULTS.glob("quota_simulation-py*.json"), key=lambda each: each.stat().st_mtime)
    samples: Saved = json.loads(path.read_text(encoding="utf-8"))["samples"]
    return samples


def course(
    name: str, points: Sequence[float], width: float, colour: str, *, is_bold: bool = False
) -> Curve:
    """Return a line over minutes, each point at the end of its bin."""
    ends = [(number + 1) * width / MINUTE for number in range(len(points))]
    return Curve(name, ends, points, colour, is_bold=is_bold)


def level(name: str, value: float, until: float, colour: str = INK) -> Curve:
    """Return a straight line."""
    return Curve(name, [until * step / PLAIN for step in range(PLAIN + 1)], [value] * 13, colour)


def last_minute(points: Sequence[float], width: float) -> list[float]:
    """Return what came in the minute before the end of each bin."""
    bins = round(MINUTE / width)
    return [
        sum(points[max(0, number - bins + 1) : number + 1]) / bins for number in range(len(points))
    ]


def minutes(
    name: str, points: Sequence[float], width: float, colour: str, *, is_bold: bool = False
) -> Curve:
    """Return a line of what came in the minute before."""
    return course(name, last_minute(points, width), width, colour, is_bold=is_bold)


def against_retries(saved: Saved, title: str) -> Panel:
    """Return what a governor lets through, and what SDKs get alone, of the same load."""
    width, governed, bare = saved["width"], saved["governed"], saved["not"]
    until = len(governed[OFFERED]) * width / MINUTE
    nothing = [0.0] * len(governed[OFFERED])
    return Panel(
        title,
        [
            minutes(OFFERED, governed[OFFERED], width, GREY),
            level(LIMIT, 1.0, until),
            minutes(RETRIES, bare.get("answered", nothing), width, RED),
            minutes(OURS, governed["admitted"], width, BLUE, is_bold=True),
        ],
    )


def overload(samples: Saved) -> None:
    """Draw what was offered, admitted and answered under three times the limits."""
    panels = [
        against_retries(samples[f"overload: {profile}"], f"limits of {profile}")
        for profile in ("openai", "anthropic")
    ]
    figure = draw_curves(
        "Three times what the provider grants", panels, x_label="minutes", y_label=IN_LIMITS
    )
    print(save(figure, "quota-overload"))


def refunds(samples: Saved) -> Panel:
    """Return how far limiters that give back go beyond the limit."""
    saved = samples["refunds"]
    width, series = saved["width"], saved["series"]
    names = ("bucket with refunds", "bucket, no refunds", OURS)
    lines = [
        course(name, points, width, colour, is_bold=colour == BLUE)
        for name, points, colour in zip(names, series.values(), (PINK, ORANGE, BLUE), strict=True)
    ]
    until = len(next(iter(series.values()))) * width / MINUTE
    title = "Refunds: answers grow from 100 to 4,000"
    return Panel(title, [level(LIMIT, 1.0, until), *lines])


def drift(samples: Saved) -> Panel:
    """Return how estimates that drift are followed."""
    saved = samples["drift"]
    width, governed = saved["width"], saved["governed"]
    first, second = (each / MINUTE for each in saved["changes"])
    return Panel(
        f"Answers 4 times as long from minute {first:g} to {second:g}",
        [
            minutes(OFFERED, governed[OFFERED], width, GREY),
            level(LIMIT, 1.0, len(governed[OFFERED]) * width / MINUTE),
            minutes(OURS, governed["admitted"], width, BLUE, is_bold=True),
        ],
    )


def returning(samples: Saved) -> Panel:
    """Return the shares of a tenant that is alone, and of one that comes back."""
    saved = samples["returning"]
    width, shares = saved["width"], saved["shares"]
    both = [sum(pair) for pair in zip(*shares.values(), strict=True)]
    return Panel(
        f"A tenant with a guarantee returns at minute {saved['back'] / MINUTE:g}",
        [
            level(LIMIT, 1.0, len(both) * width / MINUTE),
            minutes("tenant alone", shares["alone"], width, SKY),
            minutes("tenant that returns", shares["returning"], width, GREEN),
            minutes(OURS, both, width, BLUE, is_bold=True),
        ],
    )


def hazards(samples: Saved) -> None:
    """Draw where limiters go wrong."""
    figure = draw_curves(
        "Where limiters go wrong",
        [
            refunds(samples),
            against_retries(samples["cold burst"], "A cold burst at Azure, which judges 10 s"),
            drift(samples),
            returning(samples),
        ],
        x_label="minutes",
        y_label=IN_LIMITS,
    )
    print(save(figure, "quota-hazards"))


def shares(samples: Saved) -> None:
    """Draw who gets how much: tenants by weight, and classes while batch floods."""
    weighted, flood = samples["weighted"], samples["flood"]
    colours = {"interactive": BLUE, "streaming-agent": GREEN, "batch": ORANGE}
    by_weight = [
        minutes(name, points, weighted["width"], colour)
        for (name, points), colour in zip(weighted["shares"].items(), (SKY, PINK, RED), strict=True)
    ]
    by_class = [
        minutes(name, flood["shares"][name], flood["width"], colour)
        for name, colour in colours.items()
    ]
    begins, ends = (flood[name] / MINUTE for name in ("begins", "ends"))
    figure = draw_curves(
        "Who gets how much",
        [
            Panel("Three tenants in a backlog, of weights 1, 3, 6", by_weight, y_range=(0, 0.8)),
            Panel(
                f"Classes; batch floods from minute {begins:g} to {ends:g}",
                by_class,
                y_range=(0, 0.8),
            ),
        ],
        x_label="minutes",
        y_label=IN_LIMITS,
    )
    print(save(figure, "quota-shares"))


def waits(samples: Saved) -> None:
    """Draw waits by class while batch floods."""
    flood = samples["flood"]
    width, by_class = flood["width"], flood["waits"]
    until = len(by_class["batch"]) * width / MINUTE
    short = [
        level("longest that interactive may wait", 2.0, until),
        course("streaming-agent", by_class["streaming-agent"], width, GREEN),
        course("interactive", by_class["interactive"], width, BLUE, is_bold=True),
    ]
    # Who came late had not been let go when the time was over.
    reached = [value for value in by_class["batch"] if value]
    last = len(by_class["batch"]) - next(
        (number for number, value in enumerate(reversed(by_class["batch"])) if value), 0
    )
    long = [course("batch", by_class["batch"][:last], width, ORANGE)] if reached else []
    begins, ends = (flood[name] / MINUTE for name in ("begins", "ends"))
    figure = draw_curves(
        f"Waits while batch floods from minute {begins:g} to {ends:g}: 95th percentile by arrival",
        [
            Panel("People and agents", short, y_range=(0, 2.5), x_range=(0, until)),
            Panel("Batch, as far as it was let go", long, x_range=(0, until)),
        ],
        x_label="minutes",
        y_label="seconds",
    )
    print(save(figure, "quota-waits"))


def main() -> None:
    """Draw all."""
    samples = newest()
    overload(samples)
    hazards(samples)
    shares(samples)
    waits(samples)


if __name__ == "__main__":
    main()
