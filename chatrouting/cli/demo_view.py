"""What the demo shows a person: what is simulated, attempts as they end, tables at the end."""

from collections.abc import Iterable, Sequence
from typing import Final, final

from typing_extensions import override

from chatrouting.attempt import AttemptOutcome
from chatrouting.cli import demo_run as demo
from chatrouting.cli.demo_report import (
    ByMeaning,
    DemoReport,
    PathResult,
    Spread,
    Unanswered,
    broke_off,
    failure_kind,
)
from chatrouting.cli.demo_schedule import PROVIDERS
from chatrouting.cli.demo_semantic import SCORE_THRESHOLD
from chatrouting.cli.terminal import Cell, Column, Style, Table, Terminal, duration, progress_bar
from chatrouting.semantic.decision import DEFAULT_ROUTE

READ_NEXT: Final = (
    "Read next: README.md, then docs/failover.md. With keys of your own: chatrouting chat --help"
)

MEANING: Final = (
    "And by meaning: a semantic router in front sends each text where similar ones belong, by an "
    "encoder that works offline. Each of its routes is a failover, in an order of its own."
)
MEANING_LEFT_OUT: Final = (
    "A semantic router in front would send each text where similar ones belong. Its encoder works "
    "offline and comes with an extra:"
)
INSTALL: Final = "    pip install 'chatrouting[wordllama]'"

FOREIGN: Final = (
    "An error came through that is not the library's own: that is a bug of chatrouting. Please "
    "report it with the seed."
)

#: From this width on there is room for what was raised.
_WIDE: Final = 100

_ATTEMPT_COLUMNS: Final = (
    Column("no.", is_number=True, width=4),
    Column("mode", width=6),
    Column("provider asked", width=14),
    Column("outcome", width=29),
    Column("time", is_number=True, width=7),
    Column("what was raised"),
)
_OUTCOME_STYLES: Final[dict[AttemptOutcome, Style]] = {
    AttemptOutcome.COMPLETED: "good",
    AttemptOutcome.FAILED: "bad",
}


# Pure: from values to text.


def introduction(requests: int, seed: int) -> list[str]:
    """Say what is simulated, in two paragraphs."""
    simulated = (
        "Three simulated providers run on this machine: two OpenAI regions and Anthropic. They "
        "speak the real protocols over HTTP and misbehave on purpose, on a schedule drawn from "
        f"seed {seed}: 429 with Retry-After, 500, overload inside a stream, a late first word, a "
        "stall, a dropped connection. No key is needed, nothing leaves this machine. The clients "
        "are the real AsyncOpenAI and AsyncAnthropic."
    )
    asked = (
        f"Each of {requests} questions, every other one streamed, goes through a router and then, "
        "for comparison, directly to each provider. The router asks openai/us-east first, then "
        f"openai/europe, then anthropic. A region has {duration(demo.FIRST_OUTPUT_TIMEOUT)} for "
        f"its first output; no stream may stand still for {duration(demo.STALL_TIMEOUT)}. A direct "
        f"call has the SDK's own timeout, set to {duration(demo.DIRECT_TIMEOUT)}; nobody retries."
    )
    return [simulated, asked]


def attempt_cells(seen: demo.SeenAttempt) -> list[Cell]:
    """Lay out one attempt."""
    attempt = seen.attempt
    style = _OUTCOME_STYLES.get(attempt.outcome, "odd")
    mode = "stream" if seen.is_streamed else "whole"
    return [
        Cell(f"#{seen.number}"),
        Cell(mode),
        Cell(seen.route),
        Cell(outcome_words(seen), style),
        Cell(duration(attempt.duration)),
        Cell("" if attempt.exception is None else str(attempt.exception), "dim"),
    ]


def outcome_words(seen: demo.SeenAttempt) -> str:
    """Say how an attempt ended."""
    attempt = seen.attempt
    if attempt.outcome is AttemptOutcome.COMPLETED:
        return "answered"
    kind = failure_kind(seen)
    words = attempt.outcome.value if kind is None else kind
    if attempt.failure is not None and attempt.failure.retry_after is not None:
        words += f", retry after {attempt.failure.retry_after:g} s"
    return words + (", after output" if broke_off(seen) else "")


def attempt_columns(width: int | None) -> Sequence[Column]:
    """Choose what a line of an attempt shows in a terminal of this width."""
    is_wide = width is None or width >= _WIDE
    return _ATTEMPT_COLUMNS if is_wide else _ATTEMPT_COLUMNS[:-1]


def headline(report: DemoReport) -> str:
    """Say in one sentence what a router is good for."""
    best = report.best_provider
    return (
        f"Through the router {report.router.answered} of {report.requests} requests were answered; "
        f"directly, the best provider ({best.path}) answered {best.answered}."
    )


def path_table(report: DemoReport) -> Table:
    """Compare the ways to ask."""
    columns = [
        Column("asked"),
        Column("answered", is_number=True),
        Column("failed", is_number=True),
        Column("broke off*", is_number=True),
        Column("first output", is_number=True),
        Column("p95", is_number=True),
    ]
    return Table(
        columns,
        [_path_row(result, is_router=result is report.router) for result in report.paths],
        title="Simulated providers asked directly, and the router (first output: median, p95)",
    )


def _path_row(result: PathResult, *, is_router: bool) -> list[Cell]:
    share = f"{result.answered} of {result.requests} {result.answered / result.requests:>5.0%}"
    return [
        Cell("through the router" if is_router else result.path),
        Cell(share, "good" if is_router else None),
        _count(result.failed),
        _count(result.broke_off),
        *_durations(result.first_output),
    ]


def attempt_table(report: DemoReport) -> Table:
    """Count the router's attempts by outcome, one column for each provider."""
    rows: dict[str, dict[str, int]] = {"attempts": {}, "answered": {}}
    for each in report.attempts:
        words = "answered" if each.outcome == "completed" else (each.kind or each.outcome)
        if each.after_output:
            words += ", after output*"
        for title in ("attempts", words):
            row = rows.setdefault(title, {})
            row[each.route] = row.get(each.route, 0) + each.count
    return Table(
        [Column("outcome"), *(Column(name, is_number=True) for name in PROVIDERS)],
        [
            [Cell(title), *(_count(row.get(name, 0), None) for name in PROVIDERS)]
            for title, row in rows.items()
        ],
        title="What the router did: its attempts by provider",
    )


def latency_table(report: DemoReport) -> Table:
    """Show how much longer requests took than the attempt that answered them."""
    columns = [
        Column("answered"),
        Column("requests", is_number=True),
        Column("median", is_number=True),
        Column("p95", is_number=True),
    ]
    added = report.added_latency
    named = {
        "by the first provider": added.first_attempt,
        "after failed attempts": added.after_failover,
        "both, without the failed attempts": added.routers_only,
    }
    return Table(
        columns,
        [
            [Cell(title), _count(0 if each is None else each.count, None), *_durations(each)]
            for title, each in named.items()
        ],
        title="What the router adds to the time of the attempt that answered",
    )


def meaning_table(report: DemoReport) -> Table:
    """Show where texts went, and whom they reached."""
    return Table(
        [
            Column("said"),
            Column("route"),
            Column("score", is_number=True),
            Column("asked in turn"),
        ],
        [
            [
                Cell(each.text),
                Cell(each.route, "dim" if each.route == DEFAULT_ROUTE else "good"),
                Cell("-" if each.score is None else f"{each.score:.2f}"),
                _asked(each),
            ]
            for each in report.by_meaning
        ],
        title=f"Routed by meaning (a score below {SCORE_THRESHOLD} leads to the default)",
    )


def _asked(each: ByMeaning) -> Cell:
    names = ", ".join(each.asked)
    return Cell(names) if each.error is None else Cell(f"failed: {names}", "bad")


def unanswered_line(each: Unanswered) -> str:
    """Say what became of a request that the router did not answer."""
    mode = "stream" if each.streaming else "whole"
    if each.after_output:
        end = f"broke off after output at {each.routes[-1]}"
    else:
        end = f"asked {', '.join(each.routes)}; all failed"
    return f"#{each.number} {mode}: {end} ({each.error})"


def _count(number: int, style: Style | None = "bad") -> Cell:
    return Cell(str(number), style) if number else Cell("-", "dim")


def _durations(spread: Spread | None) -> Iterable[Cell]:
    if spread is None:
        return (Cell("-"), Cell("-"))
    return (Cell(duration(spread.median_seconds)), Cell(duration(spread.p95_seconds)))


# The live view.


@final
class TerminalView(demo.DemoView):
    """Shows a run as it goes on, and its report."""

    def __init__(self, terminal: Terminal, *, requests: int, seed: int) -> None:
        self._terminal = terminal
        self._requests = requests
        self._seed = seed
        self._columns = attempt_columns(terminal.width)
        self._path = demo.ROUTER
        self._asked = self._answered = 0

    def open(self) -> None:
        """Say what is simulated."""
        terminal = self._terminal
        terminal.print(terminal.paint("chatrouting demo", "bold"))
        for paragraph in introduction(self._requests, self._seed):
            terminal.prose(paragraph)
            terminal.print("")
        terminal.status("Loading the SDKs ...")

    @override
    def begin(self, path: str) -> None:
        self._path = path
        self._asked = self._answered = 0
        if path == demo.ROUTER:
            self._terminal.row(self._columns, [Cell(each.title, "dim") for each in self._columns])
        elif path == PROVIDERS[0]:
            self._terminal.print("", "Now the same questions, directly to each provider ...")
        self._show_progress()

    @override
    def begin_meaning(self) -> None:
        self._terminal.status("Loading the encoder ...")

    @override
    def saw_attempt(self, seen: demo.SeenAttempt) -> None:
        self._terminal.row(self._columns, attempt_cells(seen)[: len(self._columns)])

    @override
    def saw_call(self, call: demo.Call) -> None:
        self._asked += 1
        self._answered += call.error is None
        self._show_progress()

    def _show_progress(self) -> None:
        bar = progress_bar(self._asked, self._requests)
        way = "through the router" if self._path == demo.ROUTER else f"{self._path} directly"
        missing = self._asked - self._answered
        self._terminal.status(f"{bar} {way}: {self._answered} answered, {missing} not")

    def close(self, report: DemoReport) -> None:
        """Show what came out."""
        terminal = self._terminal
        terminal.print("")
        terminal.prose(headline(report), "bold")
        for table in (path_table(report), attempt_table(report), latency_table(report)):
            terminal.print("")
            terminal.table(table)
        terminal.print("")
        self._explain(report)
        terminal.prose(
            f"All of it took {report.duration_seconds:.1f} s. Providers, router and callers share "
            "one process, so times include waiting for one another."
        )
        terminal.print("")
        self._show_meaning(report)
        terminal.prose(READ_NEXT)

    def _show_meaning(self, report: DemoReport) -> None:
        terminal = self._terminal
        if report.by_meaning_missing is not None:
            terminal.prose(MEANING_LEFT_OUT)
            terminal.print(INSTALL)
        else:
            terminal.prose(MEANING)
            terminal.print("")
            terminal.table(meaning_table(report))
        terminal.print("")

    def _explain(self, report: DemoReport) -> None:
        terminal = self._terminal
        if report.unanswered:
            terminal.print("Not answered through the router:")
        for each in report.unanswered:
            terminal.prose(unanswered_line(each), indent="    ")
        if not report.is_sound:
            terminal.prose(FOREIGN, "bad")
        terminal.prose(
            "* The caller had read part of the answer. A router never starts it again: the "
            "failure is handed on, with what came so far."
        )
        terminal.print("")
