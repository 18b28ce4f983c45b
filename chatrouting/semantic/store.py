"""Vectors of utterances in a file, so that a process need not embed them again.

The file is a zip of arrays as numpy writes it: float32 vectors, and a header in JSON with the
utterances and a fingerprint of both. Nothing in it is executed when it is read.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast, final

from chatrouting.errors import ConfigurationError
from chatrouting.semantic._vectors import Vectors

FilePath: TypeAlias = "str | os.PathLike[str]"

_FORMAT: Final = "chatrouting utterance vectors 1"


@final
@dataclass(frozen=True, slots=True, eq=False)
class StoredVectors:
    """What a file holds.

    Attributes:
        encoder: Class of the generator that made the vectors, for people.
        routes: Utterances by the name of their route.
        vectors: Shape (utterances of all routes, dimension), in the same order.
    """

    encoder: str
    routes: Mapping[str, Sequence[str]]
    vectors: Vectors


def write_vectors(path: FilePath, stored: StoredVectors) -> None:
    """Write a file, or replace it whole: readers see the old one or the new one.

    Raises:
        OSError: If the file cannot be written.
    """
    import numpy as np

    routes = {route: list(utterances) for route, utterances in stored.routes.items()}
    header = {
        "format": _FORMAT,
        "encoder": stored.encoder,
        "routes": routes,
        "fingerprint": _fingerprint(routes, stored.vectors),
    }
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    target = Path(path)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, header=text, vectors=stored.vectors)
        os.replace(name, target)  # noqa: PTH105  # as one step, also on Windows
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_vectors(path: FilePath) -> StoredVectors:
    """Read a file.

    Raises:
        OSError: If the file cannot be read.
        ConfigurationError: If it is no such file, or was changed since it was written.
    """
    import numpy as np

    try:
        # numpy leaves a file open that it opened and could not read.
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            header: dict[str, Any] = json.loads(arrays["header"].tobytes())
            vectors: Vectors = arrays["vectors"]
        routes = cast("dict[str, list[str]]", header["routes"])
        is_ours = header["format"] == _FORMAT
        is_whole = is_ours and header["fingerprint"] == _fingerprint(routes, vectors)
        encoder = str(header["encoder"])
    except OSError:
        raise
    except Exception as error:  # whatever a foreign file makes zipfile, numpy and json raise
        raise _foreign(path) from error
    if not is_ours:
        raise _foreign(path)
    if not is_whole:
        raise ConfigurationError(
            f"{os.fspath(path)!r} is not as it was written: its fingerprint does not fit its "
            "contents. Save the index again."
        )
    return StoredVectors(encoder, routes, vectors)


def arrange(path: FilePath, stored: StoredVectors, wanted: Mapping[str, Sequence[str]]) -> Vectors:
    """Return the vectors of the wanted utterances in their order; routes not wanted are left out.

    Args:
        path: For messages.
        stored: What was read from it.
        wanted: Utterances by the name of their route.

    Raises:
        ConfigurationError: If the file has other utterances for a wanted route, or none.
    """
    rows: list[int] = []
    positions = _positions(stored.routes)
    for route, utterances in wanted.items():
        here = positions.get(route)
        if here is None:
            raise ConfigurationError(
                f"{os.fspath(path)!r} is stale: it has no route {route!r}. Save the index again."
            )
        lost, added = here.keys() - set(utterances), set(utterances) - here.keys()
        if lost or added:
            raise ConfigurationError(
                f"{os.fspath(path)!r} is stale: of the utterances of route {route!r}, {len(added)} "
                f"are new and {len(lost)} are gone since it was written. Save the index again."
            )
        rows += [here[text] for text in utterances]
    return stored.vectors[rows]


def _positions(routes: Mapping[str, Sequence[str]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    start = 0
    for route, utterances in routes.items():
        found[route] = {text: start + number for number, text in enumerate(utterances)}
        start += len(utterances)
    return found


def _fingerprint(routes: Mapping[str, Sequence[str]], vectors: Vectors) -> str:
    import numpy as np

    facts = [_FORMAT, list(routes.items()), list(vectors.shape), str(vectors.dtype)]
    digest = hashlib.sha256(json.dumps(facts).encode())
    digest.update(np.ascontiguousarray(vectors).data)
    return digest.hexdigest()


def _foreign(path: FilePath) -> ConfigurationError:
    return ConfigurationError(
        f"{os.fspath(path)!r} holds no utterance vectors of this library; "
        "give a file that save() wrote."
    )
