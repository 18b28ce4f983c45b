"""What one semantic decision costs, beside semantic-router and beside the bare product of vectors.

The encoder only looks vectors up. One BLAS thread. CPU time is that of the process, since large
indexes are searched in a worker thread.
"""

import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import anyio
import numpy as np
import peers
from _measure import Measure, Samples, rotate
from _report import Report, arguments, number

from chatrouting import as_messages
from chatrouting.semantic import ScoreAggregation, SemanticRoutingChatClient
from chatrouting.testing import ScriptedChatClient

DIMENSIONS = (256, 384)
#: Utterances, and how many decisions are measured in a row.
SIZES = {10: 200, 100: 200, 1_000: 100, 10_000: 10, 100_000: 1}
#: semantic-router keeps copies in float64: a GB at the largest size.
LARGEST_OF_PEER = 10_000
PER_ROUTE = 10
NEAREST = 5

BARE = "bare product, five nearest"
PEER = "semantic-router"
MEAN, MAX, BLEND = "mean of five", "max", "blend"
RULES: Mapping[str, tuple[ScoreAggregation, int]] = {
    MEAN: ("mean", NEAREST),
    MAX: ("max", 1),
    BLEND: ("blend", 1),
}

Matrix = np.ndarray[Any, np.dtype[np.float32]]


def per_call(call: Callable[[], Awaitable[object]], repeat: int) -> Measure:
    """Measure one call in CPU microseconds of all threads."""

    async def measure() -> float:
        started = time.process_time_ns()
        for _ in range(repeat):
            await call()
        return (time.process_time_ns() - started) / repeat / 1000

    return measure


class Ready:
    """An encoder that looks vectors up."""

    def __init__(self, vectors: Mapping[str, Matrix]) -> None:
        self._vectors = vectors

    async def generate(self, texts: list[str]) -> Matrix:
        """Return one row for each text."""
        found = [self._vectors[text] for text in texts]
        return found[0][None] if len(found) == 1 else np.stack(found)

    async def aclose(self) -> None:
        """Nothing is open."""


async def bare(rows: Matrix, query: Matrix) -> object:
    """Find the nearest rows as plain numpy does; the length of the query does not matter to it."""
    cosines = rows @ query
    if len(cosines) <= NEAREST:
        return np.argsort(-cosines)
    best = np.argpartition(cosines, -NEAREST)[-NEAREST:]
    return best[np.argsort(-cosines[best])]


async def cases(count: int, dimension: int, repeat: int) -> dict[str, Measure]:
    """Build everything over the same vectors, and check that all give the same route."""
    random = np.random.default_rng(0)
    texts = [f"utterance {number}" for number in range(count)]
    rows = random.standard_normal((count, dimension), np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    query = rows[count // 2] + random.standard_normal(dimension, np.float32) * np.float32(0.02)
    vectors = dict(zip(texts, rows, strict=True)) | {"query": query}
    width = min(PER_ROUTE, count // 5)
    examples = {
        f"route {start // width}": texts[start : start + width] for start in range(0, count, width)
    }

    found: dict[str, Measure] = {BARE: per_call(partial(bare, rows, query), repeat)}
    expected = f"route {count // 2 // width}"
    for label, (rule, top_k) in RULES.items():
        router = SemanticRoutingChatClient(
            Ready(vectors),
            {name: (ScriptedChatClient(name), own) for name, own in examples.items()},
            ScriptedChatClient("default"),
            score_aggregation=rule,
            top_k=top_k,
        )
        messages = as_messages("query")  # a router has them before it asks where they go
        decision = await router.explain(messages)
        if decision.best != expected and label != MEAN:
            raise AssertionError(f"{label}: {decision.best} is not {expected}")
        found[label] = per_call(partial(router.explain, messages), repeat)
    theirs = peers.semantic_router()
    if theirs is not None and count <= LARGEST_OF_PEER:
        other = theirs.build(examples, vectors.__getitem__)
        await other.acall("query")
        found[PEER] = per_call(partial(other.acall, "query"), repeat)
    return found


def tell(report: Report, dimension: int, found: Mapping[int, Samples]) -> None:
    """Write the table and the claims of one dimension."""
    columns = (BARE, *RULES, PEER)
    rows = [
        (
            f"{count:,}",
            *(number(each.median(case)) if case in each else "-" for case in columns),
        )
        for count, each in found.items()
    ]
    report.table(f"{dimension} dimensions, µs of CPU", ("utterances", *columns), rows)
    for count, each in found.items():
        report.keep(f"{dimension} dimensions, {count} utterances", each)
        limit = {1_000: 1 / 10, 10_000: 1 / 15}.get(count)
        where = f"{count:,} utterances, {dimension} dimensions"
        if limit is not None:
            if PEER in each:
                least = f"{number(each.ratio(BARE, PEER))} of semantic-router"
                report.notes.append(f"{where}: the bare product and no more is {least}.")
            for rule in (MEAN, BLEND):
                ratio = each.ratio(rule, PEER) if PEER in each else None
                report.claim(f"{where}: {rule}, share of semantic-router", ratio, limit, "x")
        if count >= 1_000:  # noqa: PLR2004  # from where on the product counts most
            report.claim(
                f"{where}: {MEAN}, over the bare product", each.ratio(MEAN, BARE), 1.3, "x"
            )


async def run(report: Report, *, largest: int) -> None:
    """Measure everything."""
    for dimension in DIMENSIONS:
        found: dict[int, Samples] = {}
        for count, repeat in SIZES.items():
            if count <= largest:
                measures = await cases(
                    count, dimension, min(repeat, 20) if report.is_quick else repeat
                )
                found[count] = await rotate(measures, report.turns)
        tell(report, dimension, found)


def main() -> None:
    """Measure and tell."""
    asked = arguments(__doc__).parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # numpy has read it by now
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)  # noqa: S606
    turns = 3 if asked.quick else 21
    report = Report("semantic_speed", "What a semantic decision costs", asked.quick, turns)
    report.notes.append(
        "Ten utterances a route (two of ten utterances). One decision of the whole router: from "
        "the message to the reason. The bare product gets a vector and returns the five nearest "
        f"rows. semantic-router is asked by `acall`, up to {LARGEST_OF_PEER:,} utterances."
    )
    report.notes += peers.note(("semantic_router",))
    anyio.run(partial(run, report, largest=1_000 if asked.quick else 100_000))
    report.tell(save=asked.save)


if __name__ == "__main__":
    main()
