"""Vectors without a network, a GPU or torch: the words' vectors that the wordllama package carries.

A text's vector is the mean of its tokens' vectors, 256 numbers. The package is not imported, it is
read: importing it loads pydantic and requests, and sets up logging for the whole process. Its own
loader wants to download a tokenizer that is there. So `tokenizers` is all that is loaded.

The weights (MIT) are a half-precision matrix of 16 MB, mapped and not read, so that processes
share it. They were trained from the token embeddings of open language models and use the
vocabulary of Llama 2.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from anyio import to_thread
from typing_extensions import override

from chatrouting.client import ClosingClient
from chatrouting.errors import ClientClosedError, MissingExtraError
from chatrouting.semantic._one_at_a_time import Turns
from chatrouting.semantic._vectors import Vectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
_INSTALL: Final = "pip install 'chatrouting[wordllama]'"

#: Texts that would hold up an event loop for a millisecond.
_MANY: Final = 16
#: Characters likewise.
_LONG: Final = 10_000


@final
class WordLlamaEmbeddingGenerator(ClosingClient):
    """Turns texts into vectors, offline: 256 numbers of float32, in some 50 µs for a sentence.

    English serves it best. A text without any known token gets a zero vector, which matches
    nothing. Cosines of related texts lie around 0.5: thresholds of other encoders do not fit.
    Safe for many concurrent tasks.
    """

    def __init__(self) -> None:
        """Find the package; its files are opened at the first call, in a worker thread.

        Raises:
            MissingExtraError: If it is not installed.
        """
        self._folder = _find_package()
        self._model: _Model | None = None
        self._turns = Turns()
        self._is_closed = False

    async def generate(self, texts: Iterable[str]) -> Vectors:
        """Return one vector for each text, in order, as a float32 array.

        Raises:
            ClientClosedError: If the generator was closed.
            MissingExtraError: If the package's files are not those that are expected.
        """
        if self._is_closed:
            raise ClientClosedError("the embedding generator was closed; ask before aclose.")
        model = self._model
        if model is None:
            model = await self._load()
        asked = list(texts)
        if len(asked) < _MANY and sum(map(len, asked)) < _LONG:
            return model.embed(asked)
        return await to_thread.run_sync(model.embed, asked)

    @override
    async def aclose(self) -> None:
        """Let go of the weights."""
        self._is_closed = True
        self._model = None

    async def _load(self) -> "_Model":
        async with self._turns.turn():
            if self._model is None:
                self._model = await to_thread.run_sync(_open_model, self._folder)
            return self._model


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    weights: "NDArray[np.float16]"
    tokenizer: "Tokenizer"

    def embed(self, texts: list[str]) -> Vectors:
        import numpy as np

        vectors = np.zeros((len(texts), self.weights.shape[1]), np.float32)
        for text, vector in zip(texts, vectors, strict=True):
            # Not as a batch: that starts threads, of which a process that forks is warned.
            tokens = self.tokenizer.encode(text, add_special_tokens=False).ids
            if tokens:
                self.weights[tokens].mean(axis=0, dtype=np.float32, out=vector)
        return vectors


def _find_package() -> Path:
    spec = find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations or find_spec("tokenizers") is None:
        raise MissingExtraError(
            "the package wordllama, which carries the weights of this encoder, is not installed. "
            f"Run: {_INSTALL}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _open_model(folder: Path) -> _Model:
    import numpy as np
    from tokenizers import Tokenizer

    try:
        with (folder / _WEIGHTS).open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(length))
        tensor = header["embedding.weight"]
        start, _ = tensor["data_offsets"]
        weights = np.memmap(
            folder / _WEIGHTS,
            dtype={"F16": "<f2"}[tensor["dtype"]],
            mode="r",
            offset=8 + length + start,
            shape=tuple(tensor["shape"]),
        )
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
    except Exception as error:  # the tokenizer's reader raises plain Exceptions
        raise MissingExtraError(
            f"the installed package wordllama holds no readable {_WEIGHTS} and {_TOKENIZER}. "
            f"Run: {_INSTALL}"
        ) from error
    return _Model(np.asarray(weights), tokenizer)
