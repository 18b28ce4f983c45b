"""`chatrouting semantic`: where texts would go, and how well labelled texts go there.

Results go to standard output; errors and the progress of long work go to standard error. No chat
client is asked.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chatrouting.cli.semantic_files import InputError, LabelledQuery, read_queries, read_routes
from chatrouting.cli.terminal import Cell, Column, Table, Terminal, progress_bar, shorten
from chatrouting.client import EmbeddingGenerator
from chatrouting.errors import ConfigurationError
from chatrouting.semantic.decision import DEFAULT_ROUTE, DecisionReason, SemanticDecision
from chatrouting.semantic.router import SemanticRoutingChatClient
from chatrouting.semantic.thresholds import ThresholdFit, fit_thresholds

__all__ = ["InputError", "evaluate", "try_question"]

_AT_ONCE: Final = 256
_PAIRS_SHOWN: Final = 10
_WIDEST_EXAMPLE: Final = 60
_SCORES: Final = (
    Column("route"),
    Column("score", is_number=True),
    Column("threshold", is_number=True),
    Column(""),
)
_PAIRS: Final = (
    Column("queries", is_number=True),
    Column("belong to"),
    Column("went to"),
    Column("such as"),
)
_THRESHOLDS: Final = (
    Column("route"),
    Column("now", is_number=True),
    Column("suggested", is_number=True),
)


async def try_question(
    routes: Path, question: str, *, generator: EmbeddingGenerator, out: Terminal
) -> int:
    """Show the score of every route for one question, and where it goes.

    Returns:
        The exit code, 0.

    Raises:
        InputError: If the routes cannot be used.
    """
    async with read_routes(routes).make_router(generator) as router:
        decision = await router.explain(question)
        out.table(_scores_table(decision, router))
        out.print("")
        out.prose(_verdict(decision, router.margin))
    return 0


async def evaluate(
    routes: Path, data: Path, *, generator: EmbeddingGenerator, out: Terminal, notes: Terminal
) -> int:
    """Show how labelled queries are routed, and which thresholds would be better.

    Args:
        routes: The file of routes.
        data: The file of queries.
        generator: Makes the vectors; closed at the end.
        out: Where results go.
        notes: Where the progress goes.

    Returns:
        The exit code, 0.

    Raises:
        InputError: If a file cannot be used.
    """
    async with read_routes(routes).make_router(generator) as router:
        queries = read_queries(data, router.utterances)
        decisions = await _decide(router, queries, notes)
        _show_accuracy(queries, decisions, out)
        _show_pairs(queries, decisions, out)
        known = {text for utterances in router.utterances.values() for text in utterances}
        repeated = sum(query.text in known for query in queries)
        if repeated:
            out.prose(
                f"Note: utterances of the routes among the queries: {repeated}. They are found for "
                "certain; leave them out to learn something.",
                "odd",
            )
            out.print("")
        fit = _fit(queries, decisions, notes)
        if isinstance(fit, ThresholdFit):
            _show_fit(fit, router, out)
        else:
            out.prose(f"No thresholds are suggested: {fit}")
    return 0


def _scores_table(decision: SemanticDecision, router: SemanticRoutingChatClient) -> Table:
    def height(route: str) -> float:
        score = decision.scores[route]
        return float("-inf") if score is None else score

    rows = [
        [
            Cell(route, "good" if route == decision.route else None),
            Cell(_written(decision.scores[route])),
            Cell(_written(router.thresholds[route])),
            Cell("<- wins" if route == decision.route else ""),
        ]
        for route in sorted(decision.scores, key=height, reverse=True)
    ]
    if decision.route == DEFAULT_ROUTE:
        rows.append([Cell(DEFAULT_ROUTE, "good"), Cell("-"), Cell("-"), Cell("<- wins")])
    return Table(_SCORES, rows)


def _verdict(decision: SemanticDecision, margin: float) -> str:
    score, threshold = _written(decision.score), _written(decision.threshold)
    lead = f"and leads by {_written(decision.lead)}" if decision.lead is not None else "alone"
    best = f"{decision.best!r} scores {score}"
    to_default = "so the default client is asked."
    match decision.reason:
        case DecisionReason.MATCHED:
            return f"{best}, reaches its threshold {threshold} {lead}."
        case DecisionReason.BELOW_THRESHOLD:
            return f"{best}, which is below its threshold {threshold}, {to_default}"
        case DecisionReason.NO_CLEAR_LEAD:
            return f"{best} {lead}, which is less than the margin {_written(margin)}, {to_default}"
        case DecisionReason.NO_TEXT:
            return f"The question is blank, {to_default}"
        case _:
            return f"No utterance matches, {to_default}"


async def _decide(
    router: SemanticRoutingChatClient, queries: Sequence[LabelledQuery], notes: Terminal
) -> list[SemanticDecision]:
    decisions: list[SemanticDecision] = []
    try:
        notes.status("embedding the utterances")
        await router.warm_up()
        for start in range(0, len(queries), _AT_ONCE):
            notes.status(f"{progress_bar(start, len(queries))} queries")
            some = queries[start : start + _AT_ONCE]
            decisions += await router.explain_many(query.text for query in some)
    finally:
        notes.status("")
    return decisions


def _fit(
    queries: Sequence[LabelledQuery], decisions: Sequence[SemanticDecision], notes: Terminal
) -> ThresholdFit | ConfigurationError:
    notes.status("fitting thresholds")
    try:
        return fit_thresholds(decisions, [query.label for query in queries])
    except ConfigurationError as error:  # too few queries of one sort
        return error
    finally:
        notes.status("")


def _show_accuracy(
    queries: Sequence[LabelledQuery], decisions: Sequence[SemanticDecision], out: Terminal
) -> None:
    pairs = list(zip(queries, decisions, strict=True))
    inside = [(query.label, found.route) for query, found in pairs if query.label is not None]
    outside = [found.route for query, found in pairs if query.label is None]
    if inside:
        right = sum(label == route for label, route in inside)
        unsure = sum(route == DEFAULT_ROUTE for _, route in inside)
        out.print(
            f"{len(inside)} queries belong to a route:",
            f"  {_share(right, len(inside))} went to it",
            f"  {_share(len(inside) - right - unsure, len(inside))} went to another",
            f"  {_share(unsure, len(inside))} went to the default client",
        )
    if outside:
        rejected = sum(route == DEFAULT_ROUTE for route in outside)
        out.print(
            f"{len(outside)} queries belong to none:",
            f"  {_share(rejected, len(outside))} went to the default client",
        )
    out.print("")


def _show_pairs(
    queries: Sequence[LabelledQuery], decisions: Sequence[SemanticDecision], out: Terminal
) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for query, decision in zip(queries, decisions, strict=True):
        pair = (query.label or DEFAULT_ROUTE, decision.route)
        if pair[0] != pair[1]:
            counts[pair] += 1
            examples.setdefault(pair, query.text)
    if not counts:
        out.print("No query went astray.", "")
        return
    rows = [
        [
            Cell(str(count)),
            Cell(label),
            Cell(route),
            Cell(shorten(examples[label, route], _WIDEST_EXAMPLE)),
        ]
        for (label, route), count in counts.most_common(_PAIRS_SHOWN)
    ]
    out.table(Table(_PAIRS, rows, "Most confused"))
    out.print("")


def _show_fit(fit: ThresholdFit, router: SemanticRoutingChatClient, out: Terminal) -> None:
    now = router.thresholds
    rows = [
        [Cell(route), Cell(_written(now[route])), Cell(_written(threshold))]
        for route, threshold in fit.thresholds.items()
    ]
    out.table(Table(_THRESHOLDS, rows, "Suggested thresholds"))
    out.print("")
    out.prose(
        f"With these, and margin = {fit.margin:.3f} (now {router.margin:.3f}): {fit.accuracy:.1%} "
        f"of what belongs to a route goes to it, {fit.misrouted:.1%} to another, and "
        f"{fit.rejection:.1%} of what belongs to none to the default client. Measured by "
        "cross-validation, on queries that had no part in the fit."
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:6.1%}"


def _written(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"
