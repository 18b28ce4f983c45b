"""semantic-router: its `IndexedRouter` over its own index, with vectors that are made already."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from semantic_router import Route
from semantic_router.encoders import DenseEncoder
from semantic_router.routers import IndexedRouter

#: Its rules; the first is its default. All of them look at its default number of examples.
AGGREGATIONS = ("mean", "max", "sum")


class _Ready(DenseEncoder):
    """Looks vectors up."""

    vector_of: Callable[[str], Sequence[float]]

    def __call__(self, docs: list[str]) -> list[Sequence[float]]:
        return [self.vector_of(text) for text in docs]

    async def acall(self, docs: list[str]) -> list[Sequence[float]]:
        return [self.vector_of(text) for text in docs]


def build(
    examples: Mapping[str, Sequence[str]], vector_of: Callable[[str], Sequence[float]]
) -> Any:
    """Make a router with its defaults."""
    routes = [Route(name=name, utterances=list(texts)) for name, texts in examples.items()]
    return IndexedRouter(encoder=_Ready(name="ready", vector_of=vector_of), routes=routes)


async def best_routes(
    examples: Mapping[str, Sequence[str]],
    vector_of: Callable[[str], Sequence[float]],
    texts: Sequence[str],
) -> dict[str, list[str]]:
    """Return where its rules send texts.

    The index, which takes the most time, is asked once for all rules. That its router says the same
    is checked on some of the texts.
    """
    router = build(examples, vector_of)
    rules = {
        rule: IndexedRouter(encoder=router.encoder, index=router.index, aggregation=rule)
        for rule in AGGREGATIONS
    }
    found: dict[str, list[str]] = {rule: [] for rule in rules}
    for text in texts:
        scores, names = router.index.query(vector=np.array(vector_of(text)), top_k=router.top_k)
        hits: dict[str, list[float]] = {}
        for name, score in zip(names, scores, strict=True):
            hits.setdefault(str(name), []).append(float(score))
        for rule, each in rules.items():
            totals = dict.fromkeys(examples, 0.0)
            totals |= {name: each.aggregate(values) for name, values in hits.items()}
            found[rule].append(max(totals, key=totals.__getitem__))
    for rule, each in rules.items():
        for text, route in list(zip(texts, found[rule], strict=True))[:20]:
            choice = await each.acall(text)
            if choice.name != route:
                raise AssertionError(f"{rule}: {choice.name} is not {route} for {text!r}")
    return found
