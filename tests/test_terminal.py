"""Rendering for terminals, narrow ones and pipes: pure functions, and the one status line."""

import io
import os

import pytest

from chatrouting.cli.terminal import (
    Cell,
    Column,
    Table,
    Terminal,
    ansi,
    duration,
    progress_bar,
    render_row,
    render_table,
    shorten,
    wrap,
)

TABLE = Table(
    [Column("route"), Column("count", is_number=True), Column("message")],
    [
        [Cell("openai/us-east"), Cell("12"), Cell("a long message about what went wrong", "dim")],
        [Cell("anthropic", "good"), Cell("3"), Cell("")],
    ],
    title="Attempts",
)


def live(width: int = 80, *, has_colours: bool = False) -> tuple[Terminal, io.StringIO]:
    stream = io.StringIO()
    return Terminal(stream, width=width, has_colours=has_colours, is_live=True), stream


def test_a_table_is_as_wide_as_its_content_in_a_pipe():
    assert render_table(TABLE, width=None) == [
        "Attempts",
        "route           count  message",
        "openai/us-east     12  a long message about what went wrong",
        "anthropic           3",
    ]


def test_a_table_is_cut_at_the_width_of_a_terminal():
    lines = render_table(TABLE, width=40)
    assert lines[2] == "openai/us-east     12  a long message..."
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize("width", range(1, 60))
def test_no_row_is_wider_than_the_terminal(width):
    lines = render_table(Table(TABLE.columns, TABLE.rows), width=width)
    assert all(len(line) <= width for line in lines)


def test_colours_take_no_room():
    row = [Cell("x", "bad"), Cell("yes", "good")]
    columns = [Column("a", width=3), Column("b", is_number=True, width=5)]
    line = render_row(columns, row, width=80, paint=ansi)
    assert line == "\x1b[31mx  \x1b[0m  \x1b[32m  yes\x1b[0m"


def test_a_table_without_rows_is_its_heading():
    assert render_table(Table([Column("a"), Column("b")], []), width=80) == ["a  b"]


@pytest.mark.parametrize(
    ("width", "expected"),
    [(None, "abcdefgh"), (8, "abcdefgh"), (7, "abcd..."), (3, "..."), (1, "."), (0, "")],
)
def test_a_text_is_shortened_with_dots(width, expected):
    assert shorten("abcdefgh", width) == expected


def test_prose_stays_readable_in_a_wide_terminal():
    lines = wrap("word " * 60, 160)
    assert max(map(len, lines)) <= 92
    assert wrap("word " * 60, None) == lines


def test_prose_is_not_broken_at_hyphens_and_hangs_by_its_indent():
    assert wrap("see chat --help", 11, indent="  ") == ["see chat", "  --help"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "-"),
        (0.00004, "0.0 ms"),
        (0.00123, "1.2 ms"),
        (0.012, "12 ms"),
        (0.25, "250 ms"),
        (1.234, "1.23 s"),
    ],
)
def test_a_duration_is_written_with_its_unit(seconds, expected):
    assert duration(seconds) == expected


@pytest.mark.parametrize(("done", "bar"), [(0, "[....] 0/3"), (1, "[#...] 1/3"), (3, "[####] 3/3")])
def test_a_bar_shows_progress(done, bar):
    assert progress_bar(done, 3, width=4) == bar


def test_the_status_line_is_rewritten_in_place():
    terminal, stream = live()
    terminal.status("1 of 2")
    terminal.status("2 of 2")
    terminal.status("")
    assert stream.getvalue() == "\r\x1b[2K1 of 2\r\x1b[2K2 of 2\r\x1b[2K"


def test_lines_are_written_above_the_status_line():
    terminal, stream = live()
    terminal.status("1 of 2")
    terminal.print("one", "two")
    assert stream.getvalue() == "\r\x1b[2K1 of 2\r\x1b[2Kone\ntwo\n\r\x1b[2K1 of 2"


def test_a_status_line_fits_into_the_terminal():
    terminal, stream = live(width=10)
    terminal.status("0123456789")
    assert stream.getvalue() == "\r\x1b[2K012345..."


def test_a_pipe_gets_lines_only():
    stream = io.StringIO()
    terminal = Terminal.of(stream, {}, is_plain=False)
    terminal.status("1 of 2")
    terminal.print(terminal.paint("one", "bad"))
    assert (terminal.width, stream.getvalue()) == (None, "one\n")


@pytest.fixture
def pseudo_terminal():
    """A real terminal, 132 columns wide, and the end at which its screen can be read."""
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    near, far = pty.openpty()
    termios.tcsetwinsize(far, (50, 132))
    with os.fdopen(far, "w", encoding="utf-8") as stream, os.fdopen(near, "rb", 0) as screen:
        yield stream, screen


END = "<end>"


def read_to_end(screen: io.FileIO) -> bytes:
    """Read what was written up to `END`; a terminal hands it over in pieces."""
    seen = b""
    while not seen.endswith(END.encode()):
        seen += screen.read(1000)
    return seen.removesuffix(END.encode())


@pytest.mark.parametrize(
    ("environment", "is_plain", "expected"),
    [
        ({"TERM": "xterm"}, False, b"\r\x1b[2K\x1b[2mnow\x1b[0m\x1b[31mx\x1b[0m"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, b"\r\x1b[2Knowx"),
        ({"TERM": "xterm", "NO_COLOR": ""}, False, b"\r\x1b[2K\x1b[2mnow\x1b[0m\x1b[31mx\x1b[0m"),
        ({"TERM": "dumb"}, False, b"x"),
        ({"TERM": "xterm"}, True, b"x"),
    ],
    ids=["colours", "NO_COLOR", "NO_COLOR-empty", "dumb", "plain"],
)
def test_a_terminal_gets_what_it_can_show(pseudo_terminal, environment, is_plain, expected):
    """NO_COLOR keeps the status line; `--plain` and dumb terminals have neither."""
    stream, screen = pseudo_terminal
    terminal = Terminal.of(stream, environment, is_plain=is_plain)
    terminal.status("now")
    stream.write(terminal.paint("x", "bad") + END)
    stream.flush()
    assert terminal.width == 132
    assert read_to_end(screen) == expected


def test_a_terminal_that_does_not_say_its_width_has_eighty_columns(pseudo_terminal):
    stream, _ = pseudo_terminal
    pytest.importorskip("termios").tcsetwinsize(stream.fileno(), (0, 0))
    assert Terminal.of(stream, {}, is_plain=False).width == 80
