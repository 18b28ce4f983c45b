"""Pictures of saved results: curves, dots by case, and tables of shares, all in one look.

matplotlib comes with the extra `plots`. A script reads `results/`, so that a picture can be drawn
anew without measuring anew, and saves what it draws into `docs/images/`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from PIL import Image

IMAGES = Path(__file__).parent.parent / "docs" / "images"

#: Told apart by the colour-blind, too (Okabe and Ito); the darkest for what matters most.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK: Final = "#333333"
PALE: Final = "#d9d9d9"
#: Of the names of dots; the last one is what matters.
_DOT_COLOURS: Final = (COLOURS[4], COLOURS[3], COLOURS[1], COLOURS[0])

#: From here on a cell is so dark that its number must be light.
_DARK: Final = 30.0
#: A number below is written as a dot: it is there, and does not matter.
_WRITTEN: Final = 0.5
#: Names that a legend of one line has room for.
_MOST_IN_A_LINE: Final = 5
#: More than a picture with lines and letters needs.
_MOST_COLOURS: Final = 256

#: With more points than these a curve is drawn without them: they would only make it thick.
_MOST_POINTS: Final = 10

#: One side of a picture's area, from the lowest to the highest.
Range: TypeAlias = tuple[float, float]

_LOOK: Final[Mapping[str, Any]] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.dpi": 130,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "font.size": 9,
    "grid.color": "#ebebeb",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """One line, or the same as rings.

    Attributes:
        name: For the legend; the same name in several panels is one entry.
        x: Places, from left to right.
        y: As many values.
        colour: One of `COLOURS`, say.
        is_bold: It is the line that the picture is about.
        is_rings: Only its points are drawn, as rings: for what is to lie upon another line.
        labels: Texts at some of its points, by their position.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    is_bold: bool = False
    is_rings: bool = False
    labels: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True)
class Panel:
    """One area with its curves.

    Attributes:
        title: Above it.
        curves: What is in it.
        x_names: Names of the places 0, 1, 2 and so on; numbers if there are none.
        x_range: Ends of the axis; as the curves need for None.
        y_range: Likewise.
        wanted: The corner from which on everything is as wanted; it is shaded.
        span: A part of the axis that is shaded, and what it is.
    """

    title: str
    curves: Sequence[Curve]
    x_names: Sequence[str] = ()
    x_range: Range | None = None
    y_range: Range | None = None
    wanted: tuple[float, float] | None = None
    span: tuple[Range, str] | None = None


@dataclass(frozen=True, slots=True)
class Dots:
    """One number of each case, for several that are compared.

    Attributes:
        title: What the number is, and its unit.
        values: By name, as many as there are cases; 0 or more.
        linear_to: Up to this the axis has equal steps, from there on each is ten times the last.
    """

    title: str
    values: Mapping[str, Sequence[float]]
    linear_to: float


def draw_curves(
    title: str, panels: Sequence[Panel], *, x_label: str, y_label: str, columns: int = 2
) -> Figure:
    """Draw panels beside and below one another, with one legend for all."""
    with mpl.rc_context(dict(_LOOK)):
        rows = -(-len(panels) // columns)
        figure = Figure(figsize=(4.2 * columns, 3.1 * rows + 0.9), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left")
        areas = figure.subplots(rows, columns, squeeze=False)
        lines: dict[str, Any] = {}
        for panel, area in zip(panels, areas.flat, strict=True):
            lines |= _draw_panel(area, panel)
        for area in areas[-1]:
            area.set_xlabel(x_label)
        for area in areas[:, 0]:
            area.set_ylabel(y_label)
        ncols = len(lines) if len(lines) <= _MOST_IN_A_LINE else -(-len(lines) // 2)
        figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=ncols)
    return figure


def draw_dots(title: str, panels: Sequence[Dots], *, cases: Sequence[str]) -> Figure:
    """Draw panels beside one another, with a line for each case and a dot for each name.

    Args:
        title: Above it.
        panels: All with the same names, of which the last one matters most.
        cases: Names of the lines, from the top.
    """
    with mpl.rc_context(dict(_LOOK) | {"axes.grid.axis": "x"}):
        figure = Figure(
            figsize=(2.0 + 2.7 * len(panels), 1.6 + 0.42 * len(cases)), layout="constrained"
        )
        figure.suptitle(title, x=0.01, ha="left")
        areas = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        dots: dict[str, Any] = {}
        for panel, area in zip(panels, areas, strict=True):
            dots |= _draw_dots(area, panel)
        areas[0].set_yticks(range(len(cases)), cases)
        areas[0].set_ylim(len(cases) - 0.5, -0.5)
        figure.legend(list(dots.values()), list(dots), loc="outside lower center", ncols=len(dots))
    return figure


def draw_shares(
    title: str,
    percent: Sequence[Sequence[float]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    x_label: str,
    y_label: str,
) -> Figure:
    """Draw how much of each row is in which column, as numbers upon shades.

    Args:
        title: Above it.
        percent: One line for each row, one number for each column.
        rows: Names.
        columns: Names.
        x_label: What the columns are.
        y_label: What the rows are.
    """
    with mpl.rc_context(dict(_LOOK) | {"axes.grid": False}):
        size = (1.9 + 0.52 * len(columns), 1.6 + 0.42 * len(rows))
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(title, x=0.01, ha="left")
        area = figure.subplots()
        values = np.asarray(percent)
        # The root, so that what is small and wrong is seen beside what is large and right.
        area.imshow(np.sqrt(values.clip(min=0) / 100), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        area.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
        area.set_yticks(range(len(rows)), rows)
        area.set_xlabel(x_label)
        area.set_ylabel(y_label)
        area.tick_params(length=0)
        area.spines[:].set_visible(False)
        for (row, column), value in np.ndenumerate(values):
            text = f"{value:.0f}" if value > _WRITTEN else "·"
            colour = "white" if value >= _DARK else INK if value > _WRITTEN else "#aaaaaa"
            area.text(column, row, text, ha="center", va="center", color=colour)
    return figure


def save(figure: Figure, name: str) -> Path:
    """Write a picture into the documentation, as small as it gets; return where it is."""
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / f"{name}.png"
    drawn = BytesIO()
    figure.savefig(drawn)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(_MOST_COLOURS).save(path, optimize=True)
    return path


def _draw_panel(area: Any, panel: Panel) -> dict[str, Any]:
    """Draw everything into one area; return the lines by name."""
    area.set_title(panel.title)
    lines = {curve.name: _draw_curve(area, curve) for curve in panel.curves}
    if panel.x_names:
        area.set_xticks(range(len(panel.x_names)), panel.x_names)
        area.margins(x=0.08)
    if panel.x_range is not None:
        area.set_xlim(*panel.x_range)
    if panel.y_range is not None:
        area.set_ylim(*panel.y_range)
    if panel.wanted is not None:
        _shade_wanted(area, *panel.wanted)
    if panel.span is not None:
        (left, right), name = panel.span
        area.axvspan(left, right, color="#f1f1f1", linewidth=0, zorder=0)
        area.annotate(
            name,
            ((left + right) / 2, 1),
            (0, -4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            va="top",
            color="#888888",
        )
    return lines


def _draw_dots(area: Any, panel: Dots) -> dict[str, Any]:
    """Draw the dots of each case a little below one another, upon bands; return them by name."""
    area.set_title(panel.title)
    area.set_xscale("symlog", linthresh=panel.linear_to, linscale=0.7)
    area.xaxis.set_major_formatter("{x:g}")
    area.tick_params(axis="y", length=0, pad=10)
    count = len(panel.values)
    dots: dict[str, Any] = {}
    for place, (name, values) in enumerate(panel.values.items()):
        shift = 0.62 * ((place + 0.5) / count - 0.5)
        is_last = place == count - 1
        dots[name] = area.scatter(
            values,
            [case + shift for case in range(len(values))],
            s=38 if is_last else 22,
            color=_DOT_COLOURS[place - count],
            zorder=5 if is_last else 4,
            clip_on=False,
        )
    cases = len(next(iter(panel.values.values())))
    for case in range(0, cases, 2):
        area.axhspan(case - 0.5, case + 0.5, color="#f5f5f5", linewidth=0, zorder=0)
    area.set_xlim(left=0)
    return dots


def _shade_wanted(area: Any, x: float, y: float) -> None:
    right, top = area.get_xlim()[1], area.get_ylim()[1]
    area.fill_between((x, right), y, top, color="#e3f1e7", linewidth=0, zorder=0)
    area.annotate(
        "wanted",
        (right, top),
        (-5, -5),
        textcoords="offset points",
        ha="right",
        va="top",
        color="#2f7d4f",
    )


def _draw_curve(area: Any, curve: Curve) -> Any:
    shape: dict[str, Any] = {"marker": "o", "markersize": 3.5}
    if curve.is_rings:
        shape = {
            "linestyle": "none",
            "marker": "o",
            "markersize": 9,
            "markeredgewidth": 1.5,
            "markerfacecolor": "none",
            "zorder": 5,
        }
    elif len(curve.x) > _MOST_POINTS:
        shape = {}
    width = {"linewidth": 3.0, "zorder": 4} if curve.is_bold else {}
    (line,) = area.plot(curve.x, curve.y, color=curve.colour, label=curve.name, **shape, **width)
    for place, text in curve.labels.items():
        point = (curve.x[place], curve.y[place])
        area.plot(*point, "o", color=curve.colour, markersize=6)
        area.annotate(
            text,
            point,
            (-6, -5),
            textcoords="offset points",
            ha="right",
            va="top",
            color=curve.colour,
            fontweight="bold",
            path_effects=[withStroke(linewidth=3, foreground="white")],
            zorder=6,
        )
    return line
