"""`chatrouting semantic`: scores of a question, labelled queries, and files that cannot be used."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chatrouting.cli import main
from chatrouting.cli.semantic import evaluate, try_question
from chatrouting.cli.semantic_files import InputError, LabelledQuery, read_queries, read_routes
from chatrouting.cli.terminal import Terminal
from chatrouting.testing import FakeEmbeddingGenerator

ROUTES = """
score_threshold = 0.7
margin = 0.1
[routes.code]
utterances = ["bug"]
[routes.chat]
utterances = ["hello"]
threshold = 0.9
"""
#: "bug" is east and "hello" north; what is named by its way from east has the cosine in its name.
VECTORS = {
    "bug": [1.0, 0.0],
    "hello": [0.0, 1.0],
    "broken": [0.8, 0.6],
    "hi": [0.3, 0.954],
    "both": [1.0, 1.0],
    "neither": [-1.0, -1.0],
    "nothing": [0.0, 0.0],
}


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a file and returns its path."""

    def write_file(text, name="routes.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


class Console:
    """Runs commands with vectors in a plane and keeps what they write."""

    def __init__(self) -> None:
        self.out = io.StringIO()
        self.notes = io.StringIO()

    async def try_question(self, routes: Path, question: str) -> str:
        code = await try_question(
            routes,
            question,
            generator=FakeEmbeddingGenerator(vectors=VECTORS),
            out=Terminal(self.out, width=None, has_colours=False, is_live=False),
        )
        assert code == 0
        return self.out.getvalue()

    async def evaluate(self, routes: Path, data: Path) -> str:
        code = await evaluate(
            routes,
            data,
            generator=FakeEmbeddingGenerator(vectors=VECTORS),
            out=Terminal(self.out, width=None, has_colours=False, is_live=False),
            notes=Terminal(self.notes, width=None, has_colours=False, is_live=True),
        )
        assert code == 0
        return self.out.getvalue()


@pytest.fixture
def console() -> Console:
    return Console()


# Trying.


async def test_every_route_is_shown_with_its_score_the_best_first(anyio_backend, console, write):
    shown = await console.try_question(write(ROUTES), "hi")

    rows = [line.split() for line in shown.splitlines()]
    assert rows[:3] == [
        ["route", "score", "threshold"],
        ["chat", "0.954", "0.900", "<-", "wins"],
        ["code", "0.300", "0.700"],
    ]
    last = "'chat' scores 0.954, reaches its threshold 0.900 and leads by 0.654."
    assert shown.splitlines()[-1] == last


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("neither", "'code' scores -0.707, which is below its threshold 0.700"),
        ("both", "'code' scores 0.707 and leads by 0.000, which is less than the margin 0.100"),
        ("nothing", "No utterance matches"),
        (" ", "The question is blank"),
    ],
)
async def test_a_question_for_the_default_client_is_told_why(
    anyio_backend, console, write, question, reason
):
    shown = await console.try_question(write(ROUTES), question)
    assert shown.splitlines()[3].split() == ["default", "-", "-", "<-", "wins"]
    assert " ".join(shown.splitlines()[5:]) == f"{reason}, so the default client is asked."


async def test_a_single_route_leads_nobody(anyio_backend, console, write):
    shown = await console.try_question(write('[routes.code]\nutterances = ["bug"]'), "broken")
    assert shown.endswith("'code' scores 0.800, reaches its threshold 0.400 alone.\n")


# Evaluating.

DATA = """\
label\ttext
code\tbroken
code\tbroken
code\tboth
code\thi
chat\thi
default\tneither
default\tbroken
"""


async def test_queries_are_counted_by_where_they_went(anyio_backend, console, write):
    shown = await console.evaluate(write(ROUTES), write(DATA, "data.tsv"))

    lines = [line.strip() for line in shown.splitlines()]
    assert lines[:6] == [
        "5 queries belong to a route:",
        "60.0% went to it",
        "20.0% went to another",
        "20.0% went to the default client",
        "2 queries belong to none:",
        "50.0% went to the default client",
    ]
    assert [line.split() for line in lines[7:12]] == [
        ["Most", "confused"],
        ["queries", "belong", "to", "went", "to", "such", "as"],
        ["1", "code", "default", "both"],
        ["1", "code", "chat", "hi"],
        ["1", "default", "code", "broken"],
    ]


async def test_thresholds_are_suggested_with_what_they_would_do(anyio_backend, console, write):
    data = "label\ttext\n" + "code\tbroken\nchat\thi\ndefault\tneither\n" * 10
    shown = await console.evaluate(write(ROUTES), write(data, "data.tsv"))

    assert "No query went astray." in shown
    table = shown.partition("Suggested thresholds\n")[2].splitlines()
    assert [line.split()[:2] for line in table[1:3]] == [["code", "0.700"], ["chat", "0.900"]]
    text = " ".join(shown.split())
    assert "(now 0.100): 100.0% of what belongs to a route goes to it, 0.0% to another" in text
    assert "and 100.0% of what belongs to none" in text


async def test_progress_goes_to_the_notes_and_is_removed_at_the_end(anyio_backend, console, write):
    data = "label\ttext\n" + "code\tbroken\n" * 600
    await console.evaluate(write(ROUTES), write(data, "data.tsv"))

    assert "256/600 queries" in console.notes.getvalue()
    assert "fitting thresholds" in console.notes.getvalue()
    assert console.notes.getvalue().endswith("\x1b[2K")


@pytest.mark.timeout(60)
def test_a_person_at_a_terminal_sees_a_bar_that_makes_way_for_the_results(write):
    """The whole command in a pseudo-terminal of 80 columns, with the real encoder."""
    pytest.importorskip("tokenizers")
    routes = write(ROUTES)
    data = write("label\ttext\n" + "code\tthere is a bug\n" * 600, "data.tsv")
    shown = in_a_terminal("semantic", "evaluate", str(routes), str(data))

    progress, _, results = shown.rpartition("\r\x1b[2K")
    bars = re.findall(r"\[[#.]+\] \d+/\d+ queries", progress)
    assert bars == [
        "[........................] 0/600 queries",
        "[##########..............] 256/600 queries",
        "[####################....] 512/600 queries",
    ]
    assert "600 queries belong to a route" in shown
    assert "#" not in results


def in_a_terminal(*arguments: str) -> str:
    """Run a command in a pseudo-terminal of its own; return all that it writes there."""
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    command = [sys.executable, "-m", "chatrouting", *arguments]
    outer, inner = pty.openpty()
    termios.tcsetwinsize(inner, (40, 80))
    with subprocess.Popen(
        command, stdin=inner, stdout=inner, stderr=inner, env=os.environ | {"TERM": "xterm"}
    ) as process:
        os.close(inner)
        pieces: list[bytes] = []
        with contextlib.suppress(OSError):  # so Linux says that the other end is closed
            while piece := os.read(outer, 65536):
                pieces.append(piece)
    os.close(outer)
    assert process.returncode == 0, b"".join(pieces)
    return b"".join(pieces).decode()


@pytest.mark.parametrize(
    ("data", "share"),
    [
        ("label\ttext\ncode\tbroken\n", "1 queries belong to a route"),
        ("label\ttext\ndefault\tneither\n", "1 queries belong to none"),
    ],
)
async def test_without_both_sorts_of_queries_no_threshold_is_suggested(
    anyio_backend, console, write, data, share
):
    shown = await console.evaluate(write(ROUTES), write(data, "data.tsv"))
    assert share in shown
    assert "No thresholds are suggested: there are" in shown


async def test_queries_that_are_utterances_are_mentioned(anyio_backend, console, write):
    """They score 1, so that they would flatter the routes."""
    shown = await console.evaluate(write(ROUTES), write("label\ttext\ncode\tbug\n", "data.tsv"))
    assert "Note: utterances of the routes among the queries: 1." in shown


# Files.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[routes.code", "is no TOML: Expected"),
        ("", "has no routes; expected a table [routes.NAME] with utterances for each."),
        ("[routes]", "has no routes;"),
        ("routes = 1", "has no routes;"),
        ("treshold = 1", "unknown 'treshold'; expected 'score_aggregation', 'score_threshold',"),
        ('[routes]\ncode = "bug"', "route 'code' is str; expected a table [routes.code]"),
        ("[routes.code]", "route 'code' has no utterances"),
        ("[routes.code]\nutterances = []", "route 'code' has no utterances"),
        ('[routes.code]\nutterances = "bug"', "the utterances of route 'code' are str"),
        ('[routes.code]\nutterances = ["a", " "]', "utterance 2 of route 'code' is blank"),
        ("[routes.code]\nutterances = [1]", "utterance 1 of route 'code' is int"),
        ("[routes.code]\nexamples = []", "route 'code': unknown 'examples'; expected 'utterances'"),
        (
            '[routes.code]\nutterances = ["a"]\nthreshold = 2',
            "the threshold of route 'code' is 2; scores by 'blend'",
        ),
        ('[routes.default]\nutterances = ["a"]', "a profile has the name 'default'"),
        ('score_aggregation = "best"\n[routes.a]\nutterances = ["a"]', "is 'best'; expected"),
        ('top_k = 0\n[routes.a]\nutterances = ["a"]', "top_k is 0"),
    ],
)
def test_routes_that_cannot_be_used_are_refused_by_name(write, text, message):
    path = write(text)
    with pytest.raises(InputError) as caught:
        read_routes(path).make_router(FakeEmbeddingGenerator())
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ", line 1: the columns are ''; expected 'label' and 'text'"),
        ("label\ttext\tsplit\n", ", line 1: the columns are 'label', 'text', 'split'; expected"),
        ("code\tbroken\n", ", line 1: the columns are 'code', 'broken'; expected"),
        ("label\ttext\n", " has no queries below its first line"),
        ("label\ttext\ncode\ta\ncode b\n", ", line 3: 1 columns; expected a label, a tab"),
        ("label\ttext\ncode\ta\tb\n", ", line 2: 3 columns;"),
        ("label\ttext\n\ncode\ta\n", ", line 2: 1 columns;"),
        ("label\ttext\ncode\t \n", ", line 2: the text is blank"),
        ("label\ttext\ncoed\ta\n", ", line 2: the label 'coed' is no route; expected one of 'code"),
    ],
)
def test_queries_that_cannot_be_used_are_refused_by_line(write, text, message):
    path = write(text, "data.tsv")
    with pytest.raises(InputError) as caught:
        read_queries(path, ["code", "chat"])
    assert str(caught.value).startswith(f"{path}{message}")


def test_queries_may_have_their_columns_in_any_order_and_the_ends_of_lines_of_any_system(tmp_path):
    path = tmp_path / "data.tsv"
    path.write_bytes(b"\xef\xbb\xbftext\tlabel\r\nit is \xc3\xa9tale\tcode\r\nelse\tdefault\r\n")
    assert read_queries(path, ["code"]) == [
        LabelledQuery("code", "it is étale"),
        LabelledQuery(None, "else"),
    ]


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"cannot be read: No such file"):
        read_routes(tmp_path / "nothing.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(InputError, match=r"is no UTF-8 text"):
        read_routes(tmp_path / "latin.toml")


# The program.


def test_the_offline_encoder_tells_routes_apart(capsys, write):
    pytest.importorskip("tokenizers")
    routes = """
    [routes.code]
    utterances = ["fix this bug in my program", "why does this unit test fail"]
    [routes.billing]
    utterances = ["where is my invoice", "refund my last payment"]
    """
    assert main(["semantic", "try", str(write(routes)), "please refund the invoice"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith("billing")
    assert "<- wins" in out.splitlines()[1]
    assert err == ""

    data = write("label\ttext\nbilling\tplease refund the invoice\n", "data.tsv")
    assert main(["semantic", "evaluate", str(write(routes)), str(data)]) == 0
    assert "100.0% went to it" in capsys.readouterr().out


def test_a_file_that_cannot_be_used_is_one_line_and_no_traceback(capsys, tmp_path):
    pytest.importorskip("tokenizers")
    assert main(["semantic", "try", str(tmp_path / "none.toml"), "Hi"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{tmp_path / 'none.toml'} cannot be read")
    assert len(err.splitlines()) == 1


def test_without_the_extra_the_message_names_it(capsys, monkeypatch, write):
    monkeypatch.setitem(sys.modules, "wordllama", None)  # how Python notes that there is none
    assert main(["semantic", "try", str(write(ROUTES)), "Hi"]) == 2
    assert "pip install 'chatrouting[wordllama]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["semantic"], ["semantic", "fly"], ["semantic", "try", "routes.toml"]]
)
def test_a_command_that_cannot_be_read_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: chatrouting semantic" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["try"], ["evaluate"]])
def test_help_fits_a_narrow_terminal(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["semantic", *command, "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
