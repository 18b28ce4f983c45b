"""JSON as this package reads and writes it: without trust in its shape."""

import json
from typing import Any, TypeGuard

JsonObject = dict[str, Any]


def is_object(value: object) -> TypeGuard[JsonObject]:
    """Tell whether a value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Tell whether a value is a list."""
    return isinstance(value, list)


def as_object(value: object) -> JsonObject:
    """Give an object as itself and anything else as an empty one."""
    return value if is_object(value) else {}


def as_objects(value: object) -> list[JsonObject]:
    """Give the items of a list, each as an object; anything else is an empty list."""
    return [as_object(item) for item in value] if is_list(value) else []


def loads(text: str | bytes) -> Any:
    """Read JSON; None if it cannot be read."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def dumps(value: object) -> str:
    """Write JSON as servers do: compact, characters unescaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def known(**fields: Any) -> JsonObject:
    """Leave out what is None, and objects that are empty for that reason."""
    return {name: value for name, value in fields.items() if value is not None and value != {}}
