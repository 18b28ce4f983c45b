"""The sets of labelled utterances in `data/`, and draws of examples from them."""

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Self, TypeAlias

DATA = Path(__file__).parent / "data"

#: Examples by route.
Examples: TypeAlias = Mapping[str, Sequence[str]]
#: Routes and texts.
Queries: TypeAlias = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Intents:
    """One set.

    Attributes:
        name: For tables.
        train: All examples, none twice in a route.
        validation: May be empty.
        test: What is reported on.
        strange_validation: Texts that belong to no route, for fitting; may be empty.
        strange_test: Likewise.
    """

    name: str
    train: Examples
    validation: Queries
    test: Queries
    strange_validation: Sequence[str] = ()
    strange_test: Sequence[str] = ()

    @property
    def texts(self) -> list[str]:
        """All texts, none twice."""
        examples = [text for texts in self.train.values() for text in texts]
        queries = [text for _, text in (*self.validation, *self.test)]
        every = (*examples, *queries, *self.strange_validation, *self.strange_test)
        return list(dict.fromkeys(every))

    def with_test_queries(self, most: int | None) -> Self:
        """Return the set with so many test queries drawn from all; with all of them for None."""
        if most is None or len(self.test) <= most:
            return self
        return replace(self, test=Random(0).sample(list(self.test), most))

    def draw(self, count: int | None, seed: int) -> Examples:
        """Draw so many examples for each route; all for None."""
        if count is None:
            return self.train
        random = Random(seed)
        return {route: random.sample(texts, count) for route, texts in self.train.items()}


def load_all() -> list[Intents]:
    """Read all sets."""
    clinc = _load("CLINC150", "clinc150", {})
    domains = {label: domain for domain, label in _rows("clinc150_domains")}
    by_domain = _load("CLINC150, 10 domains", "clinc150", domains)
    return [clinc, by_domain, _load("BANKING77", "banking77", {}), _load("SNIPS", "snips", {})]


def _load(name: str, file: str, groups: Mapping[str, str]) -> Intents:
    train: dict[str, dict[str, None]] = {}
    rest: dict[str, list[tuple[str, str]]] = {}
    for split, label, text in _rows(file):
        route = groups.get(label, label)
        if split == "train":
            train.setdefault(route, {})[text] = None
        else:
            rest.setdefault(split, []).append((route, text))
    return Intents(
        name,
        {route: list(texts) for route, texts in train.items()},
        rest.get("val", []),
        rest["test"],
        [text for split in ("oos_train", "oos_val") for _, text in rest.get(split, [])],
        [text for _, text in rest.get("oos_test", [])],
    )


def _rows(file: str) -> Iterator[list[str]]:
    with gzip.open(DATA / f"{file}.tsv.gz", "rt", encoding="utf-8", newline="\n") as lines:
        next(lines)
        for line in lines:
            yield line.rstrip("\n").split("\t")
