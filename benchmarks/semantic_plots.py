"""Pictures of what `semantic_accuracy.py` saved, for docs/semantic-routing.md.

Needs the extra `plots`; measures nothing.
"""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _plots import COLOURS, INK, Curve, Panel, draw_curves, draw_shares, save
from _report import RESULTS

Saved = Mapping[str, Any]

#: The best first, as they stand at the right end of most panels.
RULES = dict(zip(("blend", "centroid", "sum", "max", "mean"), COLOURS, strict=False))
#: The rules that semantic-router has.
THEIRS = {"sum": "sum", "max": "max", "mean": "mean (its default)"}
#: The rules whose threshold is moved.
SWEPT = {
    "blend": "blend (named: thresholds)",
    "centroid": "centroid",
    "max": "max",
    "mean": "mean, as semantic-router",
}
#: Thresholds whose points are named.
NAMED = (0.3, 0.4, 0.5, 0.6)
#: In scope and right, out of scope and rejected: the targets of `semantic_accuracy.py`.
WANTED = (85, 75)


def newest(name: str) -> Saved:
    """Read the numbers of the last saved run of a script."""
    path = max(RESULTS.glob(f"{name}-py*.json"), key=_modified)
    samples: Saved = json.loads(path.read_text(encoding="utf-8"))["samples"]
    return samples


def _modified(path: Path) -> float:
    return path.stat().st_mtime


def accuracy(samples: Saved) -> None:
    """Draw how often each rule is right, by number of examples."""
    panels: list[Panel] = []
    for name, by_count in samples.items():
        if "None" not in by_count:
            continue
        means = {
            rule: [statistics.mean(each[rule]) for each in by_count.values()]
            for rule in by_count["None"]
        }
        places = range(len(by_count))
        curves = [
            Curve(rule, places, means[rule], colour, is_bold=rule == "blend")
            for rule, colour in RULES.items()
        ]
        curves += [
            Curve(f"semantic-router, {name}", places, values, RULES[rule], is_rings=True)
            for rule, name in THEIRS.items()
            if (values := means.get(f"semantic-router {rule}"))
        ]
        names = ["all" if count == "None" else count for count in by_count]
        panels.append(Panel(name, curves, x_names=names))
    figure = draw_curves(
        "Right answers by number of examples, offline encoder, no threshold",
        panels,
        x_label="examples of each route",
        y_label="% right",
    )
    print(save(figure, "semantic-accuracy"))


def thresholds(samples: Saved) -> None:
    """Draw what is right in scope against what is rejected out of scope."""
    panels: list[Panel] = []
    for name, moved in _samples_of(samples, "thresholds").items():
        at = moved["thresholds"]
        labels = {at.index(value): f"{value}" for value in NAMED}
        curves = [
            Curve(
                SWEPT[rule],
                moved[rule]["rejected"],
                moved[rule]["in scope"],
                colour,
                is_bold=rule == "blend",
                labels=labels if rule == "blend" else {},
            )
            for rule, colour in RULES.items()
            if rule in SWEPT
        ]
        fitted = samples[f"{name}: out of scope"]
        x, y = ([statistics.mean(fitted[key])] for key in ("rejected", "in scope"))
        curves.append(Curve("blend, fitted thresholds", x, y, INK, is_rings=True))
        panels.append(Panel(name, curves, x_range=(0, 100), y_range=(30, 90), wanted=WANTED))
    figure = draw_curves(
        "In scope against out of scope as the threshold moves, 20 examples a route",
        panels,
        x_label="% of what belongs nowhere that went to the default",
        y_label="% of what belongs to a route that went to it",
    )
    print(save(figure, "semantic-thresholds"))


def confusion(samples: Saved) -> None:
    """Draw where the texts of each route go."""
    for name, flow in _samples_of(samples, "where texts go").items():
        routes = [route.replace("_and_", " & ").replace("_", " ") for route in flow["routes"]]
        figure = draw_shares(
            f"Where texts go: {name}, % of each line",
            flow["percent"],
            rows=[*routes, "none of them"],
            columns=[*routes, "default"],
            x_label="went to",
            y_label="belongs to",
        )
        print(save(figure, "semantic-confusion"))


def _samples_of(samples: Saved, kind: str) -> dict[str, Any]:
    """Return the numbers of a kind by set."""
    end = f": {kind}"
    return {key.removesuffix(end): value for key, value in samples.items() if key.endswith(end)}


def main() -> None:
    """Draw all."""
    samples = newest("semantic_accuracy")
    accuracy(samples)
    thresholds(samples)
    confusion(samples)


if __name__ == "__main__":
    main()
