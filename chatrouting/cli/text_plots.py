"""Plots made of characters, for a terminal. ASCII only, so that every console can show them."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["Bar", "area", "bar", "log_bar"]

_FULL: Final = 1.0
_AXIS: Final = 8


class Bar(NamedTuple):
    """A bar of several parts, from the left to the right.

    Attributes:
        ends: Where each part ends, ascending.
        marks: The character of each.
    """

    ends: Sequence[float]
    marks: str


def area(below: Sequence[float], above: Sequence[float], *, height: int, end: str) -> list[str]:
    """Draw two series as areas, the second behind the first, with a line at 1.

    Args:
        below: Drawn with "#".
        above: Drawn with "." where it is higher; as many values.
        height: Lines of the plot, without the axis.
        end: What is written at the right end of the axis.
    """
    top = max(_FULL, *below, *above)
    step = top / height
    line_at = math.ceil(_FULL / step) - 1
    lines: list[str] = []
    for row in range(height - 1, -1, -1):
        level = (row + 0.5) * step
        blank = "-" if row == line_at else " "
        cells = "".join(
            "#" if low >= level else "." if high >= level else blank
            for low, high in zip(below, above, strict=True)
        )
        label = "100 % " if row == line_at else f"{top:.0%} ".replace("%", " %")
        lines.append(f"{label if row in (line_at, height - 1) else '':>{_AXIS}}|{cells}")
    lines.append(f"{'0 % ':>{_AXIS}}+{'-' * len(below)}")
    lines.append(f"{'':{_AXIS}} 0{end:>{len(below) - 1}}")
    return lines


def bar(drawn: Bar, *, width: int, most: float) -> str:
    """Draw a bar.

    Args:
        drawn: Its parts.
        width: Characters of a value of `most`.
        most: The largest value of all bars beside one another; more than 0.
    """
    cells = ""
    for end, mark in zip(drawn.ends, drawn.marks, strict=True):
        cells += mark * (round(width * min(end, most) / most) - len(cells))
    return cells.ljust(width)


def log_bar(drawn: Bar, *, width: int, least: float, most: float) -> str:
    """Draw a bar on a scale of powers.

    Args:
        drawn: Its parts.
        width: Characters of a value of `most`.
        least: What is drawn as nothing; more than 0.
        most: More than `least`.
    """
    whole = math.log(most / least)
    ends = [math.log(max(end, least) / least) / whole for end in drawn.ends]
    return bar(Bar(ends, drawn.marks), width=width, most=1.0)
