"""Embeddings by the members of a pool.

Vectors of two models cannot be compared, and a wrong deployment in one region is corruption without
an error. So all vectors must have one length: a member that gives another one is at fault.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, final

from chatrouting.client import ClosingClient, EmbeddingGenerator
from chatrouting.errors import ClientClosedError, ResponseValidationError
from chatrouting.failure import FailureKind
from chatrouting.options import check_count
from chatrouting.pool._run import run
from chatrouting.pool.endpoint import Endpoint
from chatrouting.pool.pool import EndpointPool

#: The most inputs that the providers' APIs take in one request.
MOST_INPUTS: Final = 2048


@final
class PooledEmbeddingGenerator(ClosingClient):
    """Turns texts into vectors, by whichever member of a pool answers.

    Safe for many concurrent tasks. The pool stays the caller's: closing the generator leaves it
    open.

    Attributes:
        dimension: The length of all vectors; None until it is known.
    """

    def __init__(
        self, pool: EndpointPool[EmbeddingGenerator], *, dimension: int | None = None
    ) -> None:
        """Put a generator over a pool.

        Args:
            pool: The pool; its clients are embedding generators.
            dimension: The length of a vector. None: that of the first one.

        Raises:
            TypeError: If `pool` is no pool.
            ConfigurationError: If `dimension` is less than 1.
        """
        if not isinstance(pool, EndpointPool):
            raise TypeError(f"pool is {type(pool).__name__}; expected an EndpointPool.")
        if dimension is not None:
            check_count("dimension", dimension)
        self._pool = pool
        self._is_closed = False
        self.dimension = dimension

    @property
    def pool(self) -> EndpointPool[EmbeddingGenerator]:
        """The pool."""
        return self._pool

    async def generate(self, texts: Iterable[str]) -> list[Any]:
        """Return one vector for each text, in order.

        Args:
            texts: Any number; 2,048 go into one call, and each call may be another member's.

        Returns:
            Vectors as the members' generators make them. Nobody is asked for no texts.

        Raises:
            TypeError: If `texts` is one text, or None.
            PoolExhaustedError: If all members are held back, and none is back in time.
            ClientClosedError: If this generator or the pool was closed.
            Exception: The last member's error, unchanged.
        """
        if texts is None or isinstance(texts, str):
            raise TypeError(f"texts is {type(texts).__name__}; expected a list of texts.")
        if self._is_closed:
            raise ClientClosedError("the generator was used after aclose; make a new one.")
        inputs = list(texts)
        vectors: list[Any] = []
        for start in range(0, len(inputs), MOST_INPUTS):
            batch = inputs[start : start + MOST_INPUTS]

            async def call(
                generator: EmbeddingGenerator, endpoint: Endpoint, batch: list[str] = batch
            ) -> Sequence[Any]:
                found: Sequence[Any] = await generator.generate(batch)
                self._check(found, len(batch), endpoint)
                return found

            vectors.extend(await run(self._pool, call))
        return vectors

    async def aclose(self) -> None:
        """Refuse further calls; the pool stays open."""
        self._is_closed = True

    def _check(self, vectors: Sequence[Any], count: int, endpoint: Endpoint) -> None:
        """Refuse vectors that are no answer, or not of the model that the others are of."""
        if len(vectors) != count:
            raise ResponseValidationError(
                f"endpoint {endpoint.id!r} gave {len(vectors)} vectors for {count} texts.",
                provider=endpoint.provider,
                model=endpoint.model,
            )
        lengths = {len(vector) for vector in vectors}
        expected = self.dimension or len(vectors[0])
        if lengths != {expected}:
            raise ResponseValidationError(
                f"endpoint {endpoint.id!r} gave vectors of length "
                f"{', '.join(str(length) for length in sorted(lengths - {expected}))}; expected "
                f"{expected}. Look whether its deployment is of the same model.",
                # As if the right deployment were missing: a person has to mend it.
                kind=FailureKind.NOT_FOUND,
                provider=endpoint.provider,
                model=endpoint.model,
            )
        self.dimension = expected
