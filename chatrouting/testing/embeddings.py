"""An embedding generator in memory: vectors that are given, or made from the words of a text.

Needs no numpy. The script words of `chatrouting.testing.scripted` that fit make it misbehave:
`waits`, `waits_for`, `fails`, and `returns` for answers of a wrong shape.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self, TypeAlias, cast, final

from typing_extensions import override

from chatrouting.client import ClosingClient
from chatrouting.errors import ClientClosedError, ConfigurationError
from chatrouting.testing._script_steps import Fails, Returns, Waits, WaitsFor

__all__ = ["FakeEmbeddingGenerator"]

EmbeddingStep: TypeAlias = Waits | WaitsFor | Fails | Returns

_DIMENSION: Final = 32


@final
class FakeEmbeddingGenerator(ClosingClient):
    """An embedding generator whose vectors are known beforehand.

    A text without a given vector gets one of length 1 that is made from its words, the same in
    each process. Texts that share words come out alike, others nearly at right angles.

    Attributes:
        calls: The texts of each call, in order.
        close_count: How often the generator was closed.
    """

    def __init__(
        self,
        *script: EmbeddingStep,
        vectors: Mapping[str, Sequence[float]] | None = None,
        dimension: int | None = None,
    ) -> None:
        """Make a generator.

        Args:
            script: What happens at each call before the answer, or in place of it.
            vectors: Texts and their vectors, all of one length; handed out as they are.
            dimension: Length of the vectors; left out that of `vectors`, or 32.

        Raises:
            ConfigurationError: If a vector of `vectors` is not `dimension` long.
        """
        self.calls: list[tuple[str, ...]] = []
        self.close_count = 0
        self._vectors = {text: list(vector) for text, vector in (vectors or {}).items()}
        self._dimension = _dimension(self._vectors, dimension)
        self._script = tuple(script)
        self._scripts: tuple[tuple[EmbeddingStep, ...], ...] = ()

    @classmethod
    def per_call(
        cls,
        *scripts: EmbeddingStep | Sequence[EmbeddingStep],
        vectors: Mapping[str, Sequence[float]] | None = None,
        dimension: int | None = None,
    ) -> Self:
        """Make a generator that plays one script after the other, and then only answers.

        Args:
            scripts: One for each call; several steps are a list, an empty one only answers.
            vectors: As for the class.
            dimension: As for the class.
        """
        generator = cls(vectors=vectors, dimension=dimension)
        generator._scripts = tuple(
            tuple(script) if isinstance(script, Sequence) else (script,) for script in scripts
        )
        return generator

    async def generate(self, texts: list[str]) -> Any:
        """Return one vector for each text, in order, as lists of floats.

        Raises:
            TypeError: If `texts` is a single text.
            ValueError: If `texts` is empty, which providers refuse.
            ClientClosedError: If the generator was closed.
        """
        if self.close_count:
            raise ClientClosedError("the embedding generator was closed; ask before aclose.")
        if isinstance(cast("object", texts), str):
            raise TypeError("texts is one text; expected a list of texts.")
        if not texts:
            raise ValueError("texts is empty; expected one text or more.")
        self.calls.append(tuple(texts))
        number = len(self.calls)
        for step in self._scripts[number - 1] if number <= len(self._scripts) else self._script:
            if isinstance(step, Returns):
                return step.value
            await step.run(None)
        return [self._vector(text) for text in texts]

    @override
    async def aclose(self) -> None:
        """Count the closing; calls are refused from now on."""
        self.close_count += 1

    def _vector(self, text: str) -> list[float]:
        given = self._vectors.get(text)
        return _from_words(text, self._dimension) if given is None else list(given)


def _dimension(vectors: Mapping[str, Sequence[float]], dimension: int | None) -> int:
    expected = next(map(len, vectors.values()), _DIMENSION) if dimension is None else dimension
    for text, vector in vectors.items():
        if len(vector) != expected:
            raise ConfigurationError(
                f"the vector of {text!r} is {len(vector)} long; expected {expected}, as the "
                "others. To answer a wrong shape use returns(...)."
            )
    return expected


def _from_words(text: str, dimension: int) -> list[float]:
    """Add up a fixed direction for each word."""
    words = [_direction(word, dimension) for word in text.lower().split() or [""]]
    total = [sum(parts) for parts in zip(*words, strict=True)]
    length = math.hypot(*total)
    return [part / length for part in total]


def _direction(word: str, dimension: int) -> list[float]:
    # No byte gives 0, so a direction has a length whatever the dimension.
    return [byte - 127.5 for byte in hashlib.shake_128(word.encode()).digest(dimension)]
