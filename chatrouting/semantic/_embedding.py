"""Calls of an embedding generator: in batches, in time, and only usable answers."""

from collections.abc import Sequence
from functools import partial
from typing import Final, final

import anyio
from anyio import to_thread

from chatrouting import _cancellation
from chatrouting._limits import LimitExpired, run_within
from chatrouting.client import EmbeddingGenerator
from chatrouting.errors import EmbeddingError, EmbeddingTimeoutError
from chatrouting.options import check_timeout
from chatrouting.semantic._checks import check_count, check_generator
from chatrouting.semantic._vectors import Vectors, as_unit_vector, as_vectors, make_unit_rows
from chatrouting.semantic.cached import CachedEmbeddingGenerator

#: Vectors whose conversion, from lists of numbers, would hold up an event loop for milliseconds.
_MANY: Final = 32


@final
class Embedder:
    """Makes vectors of length 1 from texts; zero where a text has none."""

    def __init__(
        self,
        generator: EmbeddingGenerator,
        *,
        timeout: float | None,
        batch_size: int | None,
        query_cache_size: int,
    ) -> None:
        """Wrap a generator.

        Raises:
            TypeError: If `generator` is None.
            ConfigurationError: If it is no embedding generator, or a number is out of range.
        """
        check_timeout("embedding_timeout", timeout)
        check_generator("embedding_generator", generator)
        if batch_size is not None:
            check_count("batch_size", batch_size)
        check_count("query_cache_size", query_cache_size, least=0)
        self._generator = generator
        self._for_queries = (
            CachedEmbeddingGenerator(generator, maximum_size=query_cache_size)
            if query_cache_size
            else generator
        )
        self._timeout = timeout
        self._batch_size = batch_size

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in order.

        Raises:
            EmbeddingError: If the generator returns something else, or is out of time.
            Exception: What the generator raises.
        """
        size = self._batch_size or len(texts)
        batches: list[Vectors] = []
        for start in range(0, len(texts), size):
            batch = list(texts[start : start + size])
            answer = await self._ask(self._generator, batch)
            if len(batch) < _MANY:
                batches.append(_unit_vectors(answer, len(batch)))
            else:
                batches.append(await to_thread.run_sync(_unit_vectors, answer, len(batch)))
        if len({batch.shape[1] for batch in batches}) > 1:
            lengths = sorted({batch.shape[1] for batch in batches})
            raise EmbeddingError(
                f"the embedding generator returned vectors of the lengths {lengths}; "
                "expected all of one length."
            )
        if len(batches) == 1:
            return batches[0]
        import numpy as np

        joined: Vectors = np.concatenate(batches)
        return joined

    async def embed_query(self, text: str) -> Vectors:
        """Return the vector of one text.

        Raises:
            EmbeddingError: As `embed` does.
            Exception: What the generator raises.
        """
        return as_unit_vector(await self._ask(self._for_queries, [text]))

    async def _ask(self, generator: EmbeddingGenerator, texts: list[str]) -> object:
        baseline = _cancellation.cancel_count()
        try:
            if self._timeout is None:
                return await generator.generate(texts)
            deadline = anyio.current_time() + self._timeout
            return await run_within(deadline, partial(generator.generate, texts), baseline)
        except LimitExpired as expired:
            error = expired.caused(
                EmbeddingTimeoutError(
                    f"the embedding generator gave no answer within {self._timeout} s "
                    f"for {len(texts)} texts."
                )
            )
        except BaseException as cancellation:
            if not _cancellation.is_foreign_cancellation(cancellation, baseline):
                raise
            error = EmbeddingError("the embedding generator was cancelled from inside.")
            error.__cause__ = cancellation
        raise error


def _unit_vectors(answer: object, count: int) -> Vectors:
    vectors: Vectors = as_vectors(answer, count)
    make_unit_rows(vectors)
    return vectors
