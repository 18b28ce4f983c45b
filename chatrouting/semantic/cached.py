"""An embedding generator that remembers."""

import threading
from collections.abc import Iterable
from itertools import islice
from typing import final

from typing_extensions import override

from chatrouting.client import ClosingClient, EmbeddingGenerator
from chatrouting.errors import EmbeddingError
from chatrouting.semantic._checks import check_count, check_generator
from chatrouting.semantic._vectors import Vectors, as_vectors


@final
class CachedEmbeddingGenerator(ClosingClient):
    """Asks another generator only for texts whose vectors it does not know. Closes it.

    The vectors last asked for are kept, and with them their texts, in memory. Vectors that are not
    finite are not kept. Safe for many concurrent tasks and threads.
    """

    def __init__(self, inner: EmbeddingGenerator, *, maximum_size: int = 1024) -> None:
        """Wrap a generator.

        Args:
            inner: Asked for what is missing.
            maximum_size: How many texts are remembered, at least 1.

        Raises:
            TypeError: If `inner` is None.
            ConfigurationError: If `inner` is no embedding generator, or `maximum_size` less than 1.
        """
        check_generator("inner", inner)
        check_count("maximum_size", maximum_size)
        self._inner = inner
        self._maximum_size = maximum_size
        self._vectors: dict[str, Vectors] = {}  # the longest unused first
        self._lock = threading.Lock()

    async def generate(self, texts: Iterable[str]) -> Vectors:
        """Return one vector for each text, in order, as a float32 array.

        Raises:
            EmbeddingError: If `inner` returns something else, or other lengths than before.
            Exception: What `inner` raises.
        """
        import numpy as np

        asked = list(texts)
        if not asked:
            return np.empty((0, 0), np.float32)
        known = self._known(asked)
        missing = list(dict.fromkeys(text for text in asked if text not in known))
        if missing:
            made = as_vectors(await self._inner.generate(missing), len(missing))
            new = dict(zip(missing, made, strict=True))
            self._keep({text: row.copy() for text, row in new.items() if np.isfinite(row).all()})
            known |= new
        lengths = {len(vector) for vector in known.values()}
        if len(lengths) > 1:
            raise EmbeddingError(
                f"the embedding generator returned vectors of the lengths {sorted(lengths)}; "
                "expected all of one length."
            )
        return np.stack([known[text] for text in asked])

    @override
    async def aclose(self) -> None:
        """Close `inner`."""
        await self._inner.aclose()

    def _known(self, texts: list[str]) -> dict[str, Vectors]:
        with self._lock:
            found = {text: self._vectors.pop(text) for text in set(texts) & self._vectors.keys()}
            self._vectors |= found  # behind the others: used last
        return found

    def _keep(self, vectors: dict[str, Vectors]) -> None:
        with self._lock:
            self._vectors |= vectors
            too_many = max(0, len(self._vectors) - self._maximum_size)
            for text in list(islice(self._vectors, too_many)):
                del self._vectors[text]
