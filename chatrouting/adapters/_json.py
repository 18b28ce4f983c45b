"""Reading decoded JSON that may hold anything: what is not of the wanted kind is empty. Pure."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

Json: TypeAlias = Mapping[str, Any]

_DECODER: Final = json.JSONDecoder()
_BLANKS: Final = " \t\n\r"


def loads(text: str) -> Any:
    """Decode JSON as `json.loads` does, but an object and nothing around it without preparations.

    Raises:
        ValueError: If it is no JSON.
    """
    if text.startswith("{"):
        value, end = _DECODER.raw_decode(text)
        if end == len(text) or not text[end:].strip(_BLANKS):
            return value
    return json.loads(text)


def loads_bytes(content: bytes) -> Any:
    """Decode JSON as `json.loads` does, in whatever UTF it is, without looking for that first.

    Raises:
        ValueError: If it is no JSON.
    """
    try:
        return loads(content.decode())
    except ValueError:
        return json.loads(content)


def as_object(value: object) -> Json:
    """Return a JSON object; an empty one for anything else."""
    # Without `cast`, which is a call: this is asked several times for each event.
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def as_objects(value: object) -> list[Json]:
    """Return the objects of a JSON list; none for anything else."""
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, dict)]  # pyright: ignore[reportUnknownVariableType]


def as_text(value: object) -> str:
    """Return a JSON string; an empty one for anything else."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int | None:
    """Return a whole number; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_time(value: object) -> datetime | None:
    """Return a time given as seconds since 1970; None for anything else, and for 0."""
    if not isinstance(value, int | float) or not math.isfinite(value) or not value:
        return None
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
