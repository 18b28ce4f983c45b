"""OpenAI Embeddings: deterministic vectors, one for each input."""

import base64
import hashlib
import math
import struct
from typing import Any

from chatrouting.testing._json import JsonObject, dumps, is_list
from chatrouting.testing._turn import Turn

#: Length of a vector unless the request asks for another.
DIMENSIONS = 8


def whole(turn: Turn) -> JsonObject:
    """Render a list of embeddings; the vector of a text is the same on every server."""
    inputs = _inputs(turn.body.get("input"))
    size: int = turn.body.get("dimensions") or DIMENSIONS
    encode = _base64 if turn.body.get("encoding_format") == "base64" else list[float]
    answer: JsonObject = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": encode(vector(item, size))}
            for index, item in enumerate(inputs)
        ],
        "model": turn.model,
    }
    if turn.reply.usage is not None:
        tokens = sum(len(item if is_list(item) else str(item).split()) for item in inputs)
        answer["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    return answer | dict(turn.reply.extra_fields)


def vector(item: object, size: int = DIMENSIONS) -> list[float]:
    """Make a unit vector out of a text or a list of tokens."""
    seed = item if isinstance(item, str) else dumps(item)
    raw = [_number(f"{index} {seed}") for index in range(size)]
    length = math.hypot(*raw)
    return [number / length for number in raw]


def _number(seed: str) -> float:
    """Give a number between -1 and 1, never 0."""
    return (int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") + 0.5) / 2**31 - 1


def _inputs(given: Any) -> list[Any]:
    """Make one list of the four forms: a text, texts, tokens, lists of tokens."""
    if is_list(given) and given and not isinstance(given[0], int):
        return given
    return [given]


def _base64(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
