"""A terminal view in plain ANSI: colours, a status line that is rewritten in place, tables.

Rendering is pure: functions from values to lines. `Terminal` only knows how wide it is, whether it
takes colours and whether a line can be rewritten; in a pipe it is a stream of text lines. ASCII
only, so that every console can show it.
"""

import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self, TextIO, TypeAlias, final

Style: TypeAlias = Literal["good", "bad", "odd", "dim", "bold"]
Paint: TypeAlias = "Callable[[str, Style | None], str]"

_CODES: Final[Mapping[Style, str]] = {
    "good": "32",
    "bad": "31",
    "odd": "33",
    "dim": "2",
    "bold": "1",
}
_ERASE: Final = "\r\x1b[2K"
_GAP: Final = "  "
#: Longer lines of prose are hard to read, however wide the terminal is.
_WIDEST_PROSE: Final = 92


@dataclass(frozen=True, slots=True)
class Cell:
    """A text in a table, and how it is painted."""

    text: str
    style: Style | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its heading.
        is_number: Set to the right.
        width: At least so wide, for tables whose rows come one by one.
    """

    title: str
    is_number: bool = False
    width: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings, below a title if there is one."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str = ""


def plain(text: str, style: Style | None = None) -> str:  # noqa: ARG001  # a `Paint`
    """Paint nothing."""
    return text


def ansi(text: str, style: Style | None = None) -> str:
    """Paint with ANSI codes."""
    return text if style is None else f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def shorten(text: str, width: int | None) -> str:
    """Cut a text to `width` characters, with dots where something is missing."""
    if width is None or len(text) <= width:
        return text
    return text[: max(width - 3, 0)].rstrip() + "..."[: max(width, 0)]


def wrap(text: str, width: int | None, *, indent: str = "") -> list[str]:
    """Break a paragraph into lines; `indent` stands before all but the first."""
    return textwrap.wrap(
        " ".join(text.split()),
        min(width or _WIDEST_PROSE, _WIDEST_PROSE),
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def render_row(
    columns: Sequence[Column], cells: Sequence[Cell], *, width: int | None, paint: Paint = plain
) -> str:
    """Lay out one row; what does not fit into `width` is cut at the end of the line."""
    room = width
    pieces: list[str] = []
    for number, (column, cell) in enumerate(zip(columns, cells, strict=True)):
        is_last = number == len(columns) - 1
        text = cell.text.rjust(column.width) if column.is_number else cell.text
        if not (is_last or column.is_number):
            text = text.ljust(column.width)
        text = shorten(text, room)
        pieces.append(paint(text, cell.style) if text.strip() else text)
        if room is not None:
            room = max(room - len(text) - len(_GAP), 0)
    return _GAP.join(pieces).rstrip()


def render_table(table: Table, *, width: int | None, paint: Paint = plain) -> list[str]:
    """Lay out a table; columns are as wide as what stands in them."""
    columns = [
        Column(
            column.title,
            column.is_number,
            max(len(text) for text in (column.title, *(row[number].text for row in table.rows))),
        )
        for number, column in enumerate(table.columns)
    ]
    heading = [Cell(column.title, "dim") for column in columns]
    lines = [render_row(columns, row, width=width, paint=paint) for row in (heading, *table.rows)]
    return [paint(table.title, "bold"), *lines] if table.title else lines


def progress_bar(done: int, total: int, width: int = 24) -> str:
    """Draw how much of something is done."""
    filled = width * done // total
    return f"[{'#' * filled}{'.' * (width - filled)}] {done}/{total}"


def duration(seconds: float | None) -> str:
    """Write a duration for a reader, in three digits or so."""
    if seconds is None:
        return "-"
    if seconds < 0.01:  # noqa: PLR2004  # tenths of a millisecond matter below ten
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


@final
class Terminal:
    """A stream of text that may be a terminal.

    Attributes:
        width: Columns; None where lines may be of any length.
        paint: Colours a text, or does not.
    """

    def __init__(
        self, stream: TextIO, *, width: int | None, has_colours: bool, is_live: bool
    ) -> None:
        self.width = width
        self.paint: Paint = ansi if has_colours else plain
        self._stream = stream
        self._is_live = is_live
        self._status = ""

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str], *, is_plain: bool) -> Self:
        """Look at what a stream is.

        Args:
            stream: Such as standard output.
            environment: Where NO_COLOR and TERM may be set.
            is_plain: No colours and no rewriting, also in a terminal.
        """
        is_terminal = stream.isatty()
        is_live = is_terminal and not is_plain and environment.get("TERM") != "dumb"
        return cls(
            stream,
            width=_width(stream) if is_terminal else None,
            has_colours=is_live and not environment.get("NO_COLOR"),
            is_live=is_live,
        )

    def print(self, *lines: str) -> None:
        """Write lines, above the status line if there is one."""
        status = self._status
        self.status("")
        for line in lines:
            self._stream.write(f"{line}\n")
        self.status(status)
        self._stream.flush()

    def prose(self, text: str, style: Style | None = None, *, indent: str = "") -> None:
        """Write a paragraph; `indent` stands before all lines but the first."""
        lines = wrap(text, self.width, indent=indent)
        self.print(*(self.paint(line, style) for line in lines))

    def table(self, table: Table) -> None:
        """Write a table."""
        self.print(*render_table(table, width=self.width, paint=self.paint))

    def row(self, columns: Sequence[Column], cells: Sequence[Cell]) -> None:
        """Write one row of a table whose rows come one by one."""
        self.print(render_row(columns, cells, width=self.width, paint=self.paint))

    def status(self, text: str) -> None:
        """Rewrite the status line; an empty text removes it. Nothing where that cannot be done."""
        if not self._is_live or text == self._status == "":
            return
        # One column stays free: some terminals break the line in the last one.
        shown = shorten(text, None if self.width is None else self.width - 1)
        self._stream.write(_ERASE + self.paint(shown, "dim") if text else _ERASE)
        self._stream.flush()
        self._status = text


def _width(stream: TextIO) -> int:
    columns = os.get_terminal_size(stream.fileno()).columns
    return columns or 80  # a terminal of a program may not say
