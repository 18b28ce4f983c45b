"""Embeddings over the OpenAI SDK's client: OpenAI, Azure, and the servers that imitate them.

    generator = OpenAIEmbeddingGenerator(AsyncOpenAI(), "text-embedding-3-small")
    vectors = await generator.generate(["fix my bug", "hello"])

Vectors travel as base64, a fifth of their decimal digits, and come out as arrays of the standard
library, which `numpy.asarray` takes as they are. numpy itself is not loaded here.
"""

import base64
import sys
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast, final

from anyio import to_thread

from chatrouting.adapters._connection import Answer, Call
from chatrouting.adapters._errors import Errors
from chatrouting.adapters._json import as_object, as_objects
from chatrouting.adapters._openai_sdk import EMBEDDINGS, OpenAIConnection
from chatrouting.client import ClosingClient
from chatrouting.errors import ConfigurationError
from chatrouting.policies.error_body import holds_error

if TYPE_CHECKING:
    from chatrouting.adapters._openai_sdk import AsyncOpenAI

__all__ = ["OpenAIEmbeddingGenerator"]

#: The most inputs that the API takes in one request.
_MOST_INPUTS: Final = 2048
#: Bytes of an answer from which decoding it would hold up the event loop for milliseconds.
_LARGE_ANSWER: Final = 1_000_000


@final
class OpenAIEmbeddingGenerator(ClosingClient):
    """Turns texts into vectors. Safe for many concurrent tasks.

    The SDK's own retries are off for what goes through here.
    """

    def __init__(self, client: "AsyncOpenAI | None" = None, model: str | None = None) -> None:
        """Wrap an SDK client.

        Args:
            client: An `AsyncOpenAI` or a subclass; it stays the caller's. None: one is made from
                the environment at the first request, and closed with this generator.
            model: Model, or Azure's deployment.

        Raises:
            TypeError: If `client` is something else.
        """
        self._connection = OpenAIConnection(client)
        self._model = model

    async def generate(self, texts: Iterable[str]) -> "list[array[float]]":
        """Return one vector for each text, in order.

        Args:
            texts: Any number of texts; more than the API takes at once are sent in turn.

        Returns:
            Arrays of float32, all of one length.

        Raises:
            TypeError: If `texts` is one text, or None.
            ConfigurationError: If no model is named.
            ChatClientError: If the provider refuses, cannot be reached, or gives no vectors.
            LocalSaturationError: If the SDK client's connection pool is full.
        """
        if texts is None or isinstance(texts, str):
            raise TypeError(f"texts is {type(texts).__name__}; expected a list of texts.")
        self._connection.check_open()
        if not self._model:
            raise ConfigurationError(
                "no model is named: give one to OpenAIEmbeddingGenerator(client, model)."
            )
        errors = Errors(self._connection.provider, self._model)
        vectors: list[array[float]] = []
        inputs = list(texts)
        for start in range(0, len(inputs), _MOST_INPUTS):
            batch = inputs[start : start + _MOST_INPUTS]
            body = {"model": self._model, "input": batch, "encoding_format": "base64"}
            with errors.translating():
                answer = await self._connection.post(Call(EMBEDDINGS, body))
            if len(answer.content) < _LARGE_ANSWER:
                vectors += _read(answer, len(batch), errors)
            else:
                vectors += await to_thread.run_sync(_read, answer, len(batch), errors)
        if len({len(vector) for vector in vectors}) > 1:
            raise errors.unreadable("vectors of several lengths")
        return vectors

    async def aclose(self) -> None:
        """Close the SDK client if it was made here; one that was given stays open."""
        await self._connection.aclose()


def _read(answer: Answer, count: int, errors: Errors) -> "list[array[float]]":
    body = answer.decoded(errors)
    if holds_error(body):
        raise errors.of_answer(status=200, headers=answer.headers, body=body)
    items = as_objects(as_object(body).get("data"))
    try:
        # Some servers leave the index out; then the order is all there is.
        found = {item.get("index", place): item for place, item in enumerate(items)}
        return [_vector(found[index].get("embedding")) for index in range(count)]
    except (KeyError, TypeError, ValueError, OverflowError):
        reason = f"{len(items)} embeddings, not one readable for each of {count} texts"
    raise errors.unreadable(reason, headers=answer.headers)


def _vector(value: object) -> "array[float]":
    """Read base64, or numbers from a server that knows nothing else."""
    vector: array[float] = array("f")
    if isinstance(value, str):
        vector.frombytes(base64.b64decode(value, validate=True))
        if sys.byteorder == "big":  # pragma: no cover  # the wire is little-endian
            vector.byteswap()
    elif isinstance(value, list):
        vector.extend(cast("list[float]", value))
    if not vector:
        raise ValueError("an embedding is empty")
    return vector
