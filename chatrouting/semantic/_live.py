"""The index of a running router: built at the first need, changed while requests go on.

What requests read is one attribute that holds an immutable value. Everything that makes a new
value has its turn, one after the other; so a request sees all of a change or nothing of it.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar, final

from anyio import to_thread

from chatrouting.errors import ConfigurationError, EmbeddingError
from chatrouting.semantic._embedding import Embedder
from chatrouting.semantic._one_at_a_time import Turns
from chatrouting.semantic._vectors import Vectors
from chatrouting.semantic.index import UtteranceIndex
from chatrouting.semantic.profiles import read_utterances
from chatrouting.semantic.store import (
    FilePath,
    StoredVectors,
    arrange,
    read_vectors,
    write_vectors,
)

T = TypeVar("T")

#: Utterances whose vectors are copied in an instant.
_FEW: Final = 1000
#: The least cosine between a stored vector and the one that the encoder makes of the same text
#: now. Providers' vectors vary by less from call to call; two encoders agree far less.
_SAME: Final = 0.99


@final
@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """The utterances of all routes, and their index once it is built."""

    utterances: Mapping[str, tuple[str, ...]]
    index: UtteranceIndex | None

    @property
    def texts(self) -> list[str]:
        """All utterances, in the order of their declaration."""
        return [text for utterances in self.utterances.values() for text in utterances]

    @property
    def counts(self) -> list[int]:
        """Utterances of each route."""
        return [len(utterances) for utterances in self.utterances.values()]

    def position(self, route: str) -> int:
        """Return the place of a route.

        Raises:
            ConfigurationError: If there is no such route.
        """
        if route not in self.utterances:
            known = ", ".join(repr(each) for each in self.utterances)
            raise ConfigurationError(f"there is no route {route!r}; expected one of {known}.")
        return list(self.utterances).index(route)

    def with_route(
        self, route: str, utterances: tuple[str, ...], index: UtteranceIndex | None
    ) -> "Corpus":
        """Return a corpus in which a route has other utterances."""
        return Corpus({**self.utterances, route: utterances}, index)


@final
class LiveIndex:
    """Utterances that can change, and an index that follows.

    Attributes:
        corpus: What is in force now; replaced as a whole.
    """

    def __init__(self, utterances: Mapping[str, tuple[str, ...]], embedder: Embedder) -> None:
        self.corpus = Corpus(utterances, None)
        self._embedder = embedder
        self._turns = Turns()

    async def get(self) -> UtteranceIndex:
        """Return the index, building it if nobody has.

        Raises:
            EmbeddingError: If the generator returns no usable vectors.
            Exception: What the generator raises.
        """
        index = self.corpus.index
        if index is not None:
            return index
        async with self._turns.turn():
            return await self._built()

    async def add(self, route: str, utterances: Iterable[str]) -> None:
        """Add utterances that a route does not have yet."""
        texts = read_utterances(utterances, route)
        async with self._turns.turn():
            corpus = self.corpus
            position = corpus.position(route)
            before = corpus.utterances[route]
            new = tuple(text for text in texts if text not in set(before))
            index = corpus.index
            if index is not None and new:
                vectors = await self._embedder.embed(new)
                check_dimension(index, vectors)
                add = partial(index.with_added, position, vectors)
                index = await _make(len(index.vectors), add)
            self.corpus = corpus.with_route(route, before + new, index)

    async def remove(self, route: str, utterances: Iterable[str]) -> None:
        """Remove utterances of a route, but not all of them."""
        texts = set(read_utterances(utterances, route))
        async with self._turns.turn():
            corpus = self.corpus
            position = corpus.position(route)
            before = corpus.utterances[route]
            _check_removal(route, before, texts)
            gone = [number for number, text in enumerate(before) if text in texts]
            index = corpus.index
            if index is not None:
                remove = partial(index.with_removed, position, gone)
                index = await _make(len(index.vectors), remove)
            left = tuple(text for text in before if text not in texts)
            self.corpus = corpus.with_route(route, left, index)

    async def save(self, path: FilePath, encoder: str) -> None:
        """Write the vectors to a file, building the index if nobody has."""
        async with self._turns.turn():
            index = await self._built()
            stored = StoredVectors(encoder, self.corpus.utterances, index.vectors)
            await to_thread.run_sync(write_vectors, path, stored)

    async def load(self, path: FilePath, encoder: str) -> None:
        """Take the vectors from a file, if the encoder would make the same today."""
        async with self._turns.turn():
            corpus = self.corpus
            stored = await to_thread.run_sync(read_vectors, path)
            vectors = await to_thread.run_sync(arrange, path, stored, corpus.utterances)
            texts = corpus.texts
            longest = max(range(len(texts)), key=lambda row: len(texts[row]))
            now = await self._embedder.embed([texts[longest]])
            _check_same_encoder(path, stored.encoder, encoder, vectors[longest], now[0])
            index = await _make(len(vectors), partial(UtteranceIndex, vectors, corpus.counts))
            self.corpus = replace(corpus, index=index)

    async def _built(self) -> UtteranceIndex:
        """Return the index; whoever calls has the turn."""
        corpus = self.corpus
        if corpus.index is not None:
            return corpus.index
        vectors = await self._embedder.embed(corpus.texts)
        index = await _make(len(vectors), partial(UtteranceIndex, vectors, corpus.counts))
        self.corpus = replace(corpus, index=index)
        return index


async def _make(size: int, make: Callable[[], T]) -> T:
    return make() if size <= _FEW else await to_thread.run_sync(make)


def check_dimension(index: UtteranceIndex, vectors: Vectors) -> None:
    """Refuse vectors that cannot be compared with those of the index.

    Raises:
        EmbeddingError: If their length is another one.
    """
    if vectors.shape[-1] != index.dimension:
        raise EmbeddingError(
            f"the embedding generator returned vectors of length {vectors.shape[-1]}, but those of "
            f"the index have {index.dimension}; expected the generator that it was built with."
        )


def _check_removal(route: str, before: Sequence[str], texts: set[str]) -> None:
    unknown = texts - set(before)
    if unknown:
        raise ConfigurationError(
            f"route {route!r} has no utterance {min(unknown)!r}; give one of its own."
        )
    if len(texts) == len(before):
        raise ConfigurationError(
            f"route {route!r} would have no utterances left; add others before."
        )


def _check_same_encoder(
    path: FilePath, then: str, now: str, stored: Vectors, made: Vectors
) -> None:
    """Compare one stored vector with the one that the encoder makes of the same text.

    A name would not do: the same class serves many models, and a wrapper has another class.
    """
    if len(stored) != len(made):
        raise ConfigurationError(
            f"{os.fspath(path)!r} is foreign: its vectors, by {then}, are {len(stored)} long; "
            f"those of {now} are {len(made)}. Save the index again."
        )
    cosine = float(stored @ made)
    if cosine < _SAME and (stored.any() or made.any()):
        raise ConfigurationError(
            f"{os.fspath(path)!r} is foreign: its vectors, by {then}, are not those of {now}; for "
            f"one text their cosine is {cosine:.2f}, where the same encoder gives 1. Save the "
            "index again."
        )
