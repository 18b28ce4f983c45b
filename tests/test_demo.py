"""The demo: its schedule, its numbers, its text, and a run over real sockets."""

import io
import json
from collections import Counter
from dataclasses import replace

import pytest

from chatrouting.attempt import AttemptOutcome, RoutingAttempt
from chatrouting.cli.demo import demo, demo_as_json
from chatrouting.cli.demo_report import DemoReport, Spread, make_report, spread
from chatrouting.cli.demo_run import ROUTER, Call, DemoRecord, DemoView, SeenAttempt, run_demo
from chatrouting.cli.demo_schedule import (
    PROVIDERS,
    Fault,
    answer,
    check_answer,
    fault,
    is_streamed,
    make_reply,
    question,
    question_number,
)
from chatrouting.cli.demo_semantic import PROVIDERS_OF, TEXTS, Routed, route_texts
from chatrouting.cli.demo_view import (
    FOREIGN,
    INSTALL,
    MEANING_LEFT_OUT,
    TerminalView,
    attempt_cells,
    attempt_columns,
    attempt_table,
    headline,
    introduction,
    latency_table,
    meaning_table,
    outcome_words,
    path_table,
    unanswered_line,
)
from chatrouting.cli.terminal import Terminal, render_row, render_table
from chatrouting.errors import MissingExtraError, OverloadedError, StallTimeoutError
from chatrouting.failure import Failure, FailureKind
from chatrouting.testing import FakeEmbeddingGenerator, ScriptedChatClient, fails

EAST, EUROPE, ANTHROPIC = PROVIDERS


# The schedule.


def schedule(seed: int, provider: str, requests: int) -> list[Fault]:
    return [fault(seed, provider, number) for number in range(1, requests + 1)]


def test_the_same_seed_gives_the_same_schedule():
    """A fixed piece of it, since nothing else would notice a change between two runs."""
    assert schedule(27, EAST, 60) == schedule(27, EAST, 60)
    assert [kind.value for kind in schedule(27, EAST, 8)] == [
        "none",
        "none",
        "none",
        "none",
        "none",
        "overloaded",
        "none",
        "dropped",
    ]


def test_seeds_and_providers_have_schedules_of_their_own():
    drawn = [schedule(27, EAST, 60), schedule(28, EAST, 60), schedule(27, EUROPE, 60)]
    assert all(drawn.count(one) == 1 for one in drawn)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_fault_is_drawn_but_most_answers_are_good(provider):
    counts = Counter(schedule(1, provider, 2000))
    assert set(counts) == set(Fault)
    assert 0.5 < counts[Fault.NONE] / 2000 < 0.8


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_question_that_warms_up_is_always_answered(provider):
    assert {fault(seed, provider, 0) for seed in range(200)} == {Fault.NONE}


def test_half_of_the_questions_are_streamed():
    assert sum(is_streamed(number) for number in range(1, 61)) == 30


def test_a_question_is_known_by_its_number():
    assert question_number(question(17)) == 17
    with pytest.raises(ValueError, match="without a question's number"):
        question_number("hello")


def test_a_wrong_answer_is_found_out():
    check_answer(3, answer(3))
    with pytest.raises(ValueError, match="question 3 was answered by"):
        check_answer(3, answer(4))


def test_overload_is_an_error_inside_a_stream_and_a_status_else():
    def reply(provider, is_streamed):
        return make_reply(Fault.OVERLOADED, "x", provider=provider, is_streamed=is_streamed)

    assert (reply(EAST, True).status, reply(EAST, True).error_at) == (200, "content")
    assert [reply(provider, False).status for provider in PROVIDERS] == [503, 503, 529]


# The numbers.


def seen(number: int, route: str, error: Exception | None = None, **fields) -> SeenAttempt:
    kind = getattr(error, "kind", None)
    failure = None if kind is None else Failure.of(kind, fields.pop("retry_after", None))
    attempt = RoutingAttempt(route=route, exception=error, failure=failure, **fields)
    return SeenAttempt(number=number, is_streamed=is_streamed(number), route=route, attempt=attempt)


def call(path: str, number: int, duration: float, error=None, first_output=None) -> Call:
    return Call(
        path=path,
        number=number,
        is_streamed=is_streamed(number),
        error=error,
        duration=duration,
        first_output=first_output,
    )


STALLED = StallTimeoutError("no output for 0.25 s.")
BUSY = OverloadedError("The provider is busy.")


@pytest.fixture
def record() -> DemoRecord:
    """Four questions.

    One is answered at once, one after failing over, one breaks off, and one fails everywhere.
    """
    record = DemoRecord(requests=4, seed=5, duration=2.5)
    record.attempts = [
        seen(1, EAST, duration=0.020),
        seen(2, EAST, BUSY, duration=0.004),
        seen(2, EUROPE, duration=0.080, time_to_first_update=0.03),
        seen(4, EAST, STALLED, duration=0.3, time_to_first_update=0.03),
        seen(3, EAST, BUSY, duration=0.01),
        seen(3, EUROPE, BUSY, duration=0.01, retry_after=2.0),
        seen(3, ANTHROPIC, BUSY, duration=0.01),
    ]
    record.calls = [
        call(ROUTER, 1, 0.021),
        call(ROUTER, 2, 0.090, first_output=0.035),
        call(ROUTER, 4, 0.301, STALLED, first_output=0.031),
        call(ROUTER, 3, 0.031, BUSY),
        *(call(EAST, number, 0.02, BUSY) for number in (2, 3)),
        call(EAST, 1, 0.02),
        call(EAST, 4, 0.02, STALLED, first_output=0.03),
        *(call(EUROPE, number, 0.02) for number in (1, 2, 4)),
        call(EUROPE, 3, 0.02, BUSY),
        *(call(ANTHROPIC, number, 0.02, BUSY) for number in (1, 2, 3, 4)),
    ]
    return record


ROUTED = Routed(
    text="my tests fail since this morning",
    route="billing",
    best="billing",
    score=0.5,
    asked=(EUROPE, EAST),
    error=None,
)


@pytest.fixture
def report(record) -> DemoReport:
    return make_report(record)


def test_a_spread_is_the_median_and_a_measured_high_value():
    assert spread([]) is None
    assert spread([3.0]) == Spread(1, 3.0, 3.0)
    assert spread([float(n) for n in range(100, 0, -1)]) == Spread(100, 50.5, 95.0)


def test_each_path_adds_up(report):
    rows = [(one.path, one.answered, one.broke_off, one.failed) for one in report.paths]
    assert rows == [(EAST, 1, 1, 2), (EUROPE, 3, 0, 1), (ANTHROPIC, 0, 0, 4), (ROUTER, 2, 1, 1)]
    assert report.best_provider.path == EUROPE
    assert report.router.first_output == Spread(2, 0.033, 0.035)


def test_attempts_are_counted_by_route_outcome_and_kind(report):
    rows = [
        (one.route, one.outcome, one.kind, one.after_output, one.count) for one in report.attempts
    ]
    assert rows == [
        (EAST, "failed", "overloaded", False, 2),
        (EAST, "completed", None, False, 1),
        (EAST, "failed", "timeout", True, 1),
        (EUROPE, "completed", None, False, 1),
        (EUROPE, "failed", "overloaded", False, 1),
        (ANTHROPIC, "failed", "overloaded", False, 1),
    ]


def test_added_latency_is_what_the_answering_attempt_did_not_take(report):
    added = report.added_latency
    assert added.first_attempt is not None
    assert added.after_failover is not None
    assert added.routers_only is not None
    assert added.first_attempt.median_seconds == pytest.approx(0.001)
    assert added.after_failover.median_seconds == pytest.approx(0.010)
    assert added.routers_only.p95_seconds == pytest.approx(0.006)
    assert [added.first_attempt.count, added.after_failover.count, added.routers_only.count] == [
        1,
        1,
        2,
    ]


def test_an_unanswered_request_is_told_as_what_it_is(report):
    assert [unanswered_line(one) for one in report.unanswered] == [
        f"#3 whole: asked {EAST}, {EUROPE}, {ANTHROPIC}; all failed (OverloadedError)",
        f"#4 stream: broke off after output at {EAST} (StallTimeoutError)",
    ]


def test_a_foreign_exception_makes_the_run_unsound(record):
    assert make_report(record).is_sound
    record.calls[3] = replace(record.calls[3], error=ValueError("a bug"))
    assert not make_report(record).is_sound


def test_a_foreign_exception_behind_the_semantic_router_makes_the_run_unsound(record):
    record.routed = [ROUTED, replace(ROUTED, error=BUSY)]
    assert make_report(record).is_sound
    record.routed.append(replace(ROUTED, error=ValueError("a bug")))
    assert not make_report(record).is_sound


def test_a_report_without_answers_has_no_spreads():
    record = DemoRecord(requests=1, seed=1)
    record.attempts = [seen(1, EAST, BUSY)]
    record.calls = [call(path, 1, 0.1, BUSY) for path in (ROUTER, *PROVIDERS)]
    report = make_report(record)
    assert report.added_latency.first_attempt is None
    assert render_table(latency_table(report), width=None)[2].split() == [
        *["by", "the", "first", "provider"],
        *["-", "-", "-"],
    ]


# The text.


def test_the_result_is_one_sentence(report):
    assert headline(report) == (
        "Through the router 2 of 4 requests were answered; directly, the best provider "
        "(openai/europe) answered 3."
    )


def test_the_introduction_says_what_is_simulated():
    text = " ".join(introduction(60, 27))
    for words in ("simulated", "seed 27", "No key is needed", "60 questions", "AsyncOpenAI"):
        assert words in text


@pytest.mark.parametrize("width", [80, 160, None])
def test_the_tables_are_the_same_in_every_terminal(report, width):
    tables = [path_table(report), attempt_table(report), latency_table(report)]
    text = "\n".join(line for table in tables for line in render_table(table, width=width))
    assert text == TABLES


TABLES = """\
Simulated providers asked directly, and the router (first output: median, p95)
asked                   answered  failed  broke off*  first output    p95
openai/us-east      1 of 4   25%       2           1         30 ms  30 ms
openai/europe       3 of 4   75%       1           -             -      -
anthropic           0 of 4    0%       4           -             -      -
through the router  2 of 4   50%       1           1         33 ms  35 ms
What the router did: its attempts by provider
outcome                 openai/us-east  openai/europe  anthropic
attempts                             4              2          1
answered                             1              1          -
overloaded                           2              1          1
timeout, after output*               1              -          -
What the router adds to the time of the attempt that answered
answered                           requests   median      p95
by the first provider                     1   1.0 ms   1.0 ms
after failed attempts                     1  10.0 ms  10.0 ms
both, without the failed attempts         2   3.5 ms   6.0 ms"""


@pytest.mark.parametrize("width", [80, 160, None])
def test_texts_routed_by_meaning_fit_into_every_terminal(record, width):
    default = {"route": "default", "best": None, "score": None}
    record.routed = [
        ROUTED,
        replace(ROUTED, text="tell me a joke about cats", asked=(EAST,), **default),
        replace(ROUTED, text="who painted the Mona Lisa", asked=(EAST,), error=BUSY),
    ]
    table = meaning_table(make_report(record))
    assert "\n".join(render_table(table, width=width)) == MEANINGS


MEANINGS = """\
Routed by meaning (a score below 0.3 leads to the default)
said                              route    score  asked in turn
my tests fail since this morning  billing   0.50  openai/europe, openai/us-east
tell me a joke about cats         default      -  openai/us-east
who painted the Mona Lisa         billing   0.50  failed: openai/us-east"""


def test_an_attempt_is_one_line(record):
    def lines(width):
        columns = attempt_columns(width)
        return [
            render_row(columns, attempt_cells(one)[: len(columns)], width=width)
            for one in record.attempts
        ]

    assert lines(80) == [line[:68].rstrip() for line in lines(None)]
    assert "\n".join(lines(None)) == ATTEMPTS
    assert all(len(line) <= 160 for line in lines(160))


ATTEMPTS = """\
  #1  whole   openai/us-east  answered                         20 ms
  #2  stream  openai/us-east  overloaded                      4.0 ms  The provider is busy.
  #2  stream  openai/europe   answered                         80 ms
  #4  stream  openai/us-east  timeout, after output           300 ms  no output for 0.25 s.
  #3  whole   openai/us-east  overloaded                       10 ms  The provider is busy.
  #3  whole   openai/europe   overloaded, retry after 2 s      10 ms  The provider is busy.
  #3  whole   anthropic       overloaded                       10 ms  The provider is busy."""


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (RoutingAttempt(duration=1), "answered"),
        (RoutingAttempt(outcome=AttemptOutcome.CANCELLED), "cancelled"),
        (
            RoutingAttempt(
                exception=BUSY, failure=Failure.of(FailureKind.RATE_LIMITED, retry_after=2.5)
            ),
            "rate_limited, retry after 2.5 s",
        ),
        (
            RoutingAttempt(
                exception=STALLED,
                failure=Failure.of(FailureKind.TIMEOUT),
                duration=1,
                time_to_first_update=0.5,
            ),
            "timeout, after output",
        ),
    ],
    ids=["answered", "cancelled", "hint", "broke-off"],
)
def test_an_outcome_is_said_in_words(attempt, words):
    one = SeenAttempt(number=1, is_streamed=True, route=EAST, attempt=attempt)
    assert outcome_words(one) == words


def test_the_view_shows_progress_above_which_attempts_go_by(record, report):
    stream = io.StringIO()
    terminal = Terminal(stream, width=80, has_colours=False, is_live=True)
    view = TerminalView(terminal, requests=4, seed=5)
    view.open()
    view.begin(ROUTER)
    view.saw_attempt(record.attempts[0])
    view.saw_call(record.calls[0])
    view.begin(EAST)
    terminal.status("")
    view.close(report)
    shown = stream.getvalue()
    for words in (
        "Loading the SDKs ...",
        "[######..................] 1/4 through the router: 1 answered, 0 not",
        "[........................] 0/4 openai/us-east directly: 0 answered, 0 not",
        "Not answered through the router:",
        "Read next:",
    ):
        assert words in shown
    assert FOREIGN.split(":", maxsplit=1)[0] not in shown


def test_an_unsound_run_says_that_it_is_a_bug(record):
    record.calls[3] = replace(record.calls[3], error=ValueError("a bug"))
    stream = io.StringIO()
    terminal = Terminal(stream, width=None, has_colours=False, is_live=False)
    TerminalView(terminal, requests=4, seed=5).close(make_report(record))
    assert " ".join(stream.getvalue().split()).count(FOREIGN) == 1


# A run.


class CountingView(DemoView):
    """Counts what it sees."""

    def __init__(self) -> None:
        self.counts = Counter[str]()

    def begin(self, path: str) -> None:
        self.counts["paths"] += 1

    def saw_attempt(self, seen: SeenAttempt) -> None:
        self.counts["attempts"] += 1

    def saw_call(self, call: Call) -> None:
        self.counts["calls"] += 1


#: Kinds that a fault may have as a failure, besides a timeout, which a slow machine may add.
KINDS = {
    Fault.NONE: set[str](),
    Fault.RATE_LIMITED: {"rate_limited"},
    Fault.SERVER_ERROR: {"server_error"},
    Fault.OVERLOADED: {"overloaded"},
    Fault.SLOW_START: set[str](),
    Fault.DROPPED: {"connection"},
    Fault.STALLED: set[str](),
    Fault.CUT_OFF: {"connection"},
}


@pytest.mark.timeout(60)
async def test_a_run_follows_its_schedule_and_its_numbers_agree(anyio_backend):
    """Nobody answers against the schedule, and every request is accounted for."""
    view = CountingView()
    record = await run_demo(requests=12, seed=27, view=view)
    report = make_report(record)

    assert view.counts == {"paths": 4, "calls": 48, "attempts": len(record.attempts)}
    for one in record.attempts:
        kind = fault(27, one.route, one.number)
        if one.attempt.outcome is AttemptOutcome.COMPLETED:
            assert kind in (Fault.NONE, Fault.SLOW_START)
        elif one.attempt.outcome is AttemptOutcome.FAILED:
            assert one.attempt.failure is not None
            assert one.attempt.failure.kind.value in KINDS[kind] | {"timeout"}
    for one in record.calls:
        if one.path != ROUTER and one.error is None:
            assert fault(27, one.path, one.number) in (Fault.NONE, Fault.SLOW_START)
    check_numbers(report)


def check_numbers(report: DemoReport) -> None:
    """Check that the numbers of one report agree with one another."""
    assert report.is_sound
    assert [one.path for one in report.paths] == [*PROVIDERS, ROUTER]
    for one in report.paths:
        assert one.requests == report.requests
        assert one.answered + one.broke_off + one.failed == one.requests
    completed = [one.count for one in report.attempts if one.outcome == "completed"]
    assert sum(completed) == report.router.answered
    first = sum(one.count for one in report.attempts if one.route == EAST)
    assert first == report.requests
    assert len(report.unanswered) == report.router.broke_off + report.router.failed
    added = report.added_latency
    counts = [
        0 if one is None else one.count for one in (added.first_attempt, added.after_failover)
    ]
    assert sum(counts) == report.router.answered
    for unanswered in report.unanswered:
        assert unanswered.routes == PROVIDERS[: len(unanswered.routes)]


@pytest.mark.timeout(60)
async def test_texts_go_where_similar_ones_belong(anyio_backend):
    """Whatever fails behind the semantic router, a text stays on its route."""
    record = await run_demo(requests=1, seed=27, view=DemoView())

    assert record.missing is None
    assert [each.text for each in record.routed] == list(TEXTS)
    assert [each.route for each in record.routed] == [
        *["code", "code", "billing", "billing", "travel", "travel", "default", "default"]
    ]
    for each in record.routed:
        assert each.asked == PROVIDERS_OF[each.route][: len(each.asked)]
    assert {len(each.asked) for each in record.routed} == {1, 2}


async def test_a_text_that_nobody_answers_is_told_with_its_error(anyio_backend):
    providers = {name: ScriptedChatClient(*[fails(OverloadedError)] * 8) for name in PROVIDERS}

    routed = await route_texts(providers, FakeEmbeddingGenerator(dimension=64))

    assert [type(each.error) for each in routed] == [OverloadedError] * len(TEXTS)
    assert all(each.asked == PROVIDERS_OF[each.route] for each in routed)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_without_an_encoder_the_demo_says_how_to_get_one(anyio_backend):
    def make_encoder():
        raise MissingExtraError("nothing is installed. Run: pip install it")

    record = await run_demo(requests=1, seed=27, view=DemoView(), make_encoder=make_encoder)
    report = make_report(record)
    stream = io.StringIO()
    terminal = Terminal(stream, width=None, has_colours=False, is_live=False)
    TerminalView(terminal, requests=1, seed=27).close(report)

    assert report.by_meaning_missing == "nothing is installed. Run: pip install it"
    assert MEANING_LEFT_OUT in " ".join(stream.getvalue().split())
    assert INSTALL in stream.getvalue().splitlines()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_demo_shows_its_report_in_a_pipe(anyio_backend):
    stream = io.StringIO()
    terminal = Terminal(stream, width=None, has_colours=False, is_live=False)
    assert await demo(terminal, requests=4, seed=27) == 0
    lines = stream.getvalue().splitlines()
    assert lines[0] == "chatrouting demo"
    assert lines[-1].startswith("Read next:")
    assert "Routed by meaning (a score below 0.3 leads to the default)" in lines
    assert "\x1b" not in stream.getvalue()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_json_is_one_object_with_units_in_its_names(anyio_backend):
    stream = io.StringIO()
    assert await demo_as_json(stream, requests=4, seed=27) == 0
    numbers = json.loads(stream.getvalue())
    assert (numbers["simulated"], numbers["seed"], numbers["requests"]) == (True, 27, 4)
    assert numbers["duration_seconds"] > 0
    assert numbers["by_meaning"][0]["route"] == "code"
    assert set(numbers["added_latency"]["routers_only"]) == {
        "count",
        "median_seconds",
        "p95_seconds",
    }
