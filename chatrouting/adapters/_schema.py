"""JSON schemas as OpenAI's strict mode takes them. Pure.

Strict mode refuses a schema whose objects are open or have optional properties. What fits the
stricter schema fits the caller's too, by which they check the answer.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

Schema: TypeAlias = Mapping[str, Any]

#: Hold schemas by name.
_NAMED: Final = frozenset({"properties", "$defs", "definitions"})
#: Hold lists of schemas.
_LISTED: Final = frozenset({"anyOf", "oneOf", "allOf"})


def strict_schema(schema: Schema) -> dict[str, Any]:
    """Return a copy with closed objects, all of whose properties are required."""
    strict = {name: _inner(name, value) for name, value in schema.items()}
    if _is_object(strict):
        strict.setdefault("additionalProperties", False)
        strict["required"] = list(strict.get("properties") or {})
    return strict


def _inner(name: str, value: Any) -> Any:
    if name in _NAMED and isinstance(value, Mapping):
        return {key: _schema(item) for key, item in cast("Schema", value).items()}
    if name in _LISTED and isinstance(value, list | tuple):
        return [_schema(item) for item in cast("list[Any]", value)]
    return _schema(value) if name == "items" else value


def _schema(value: Any) -> Any:
    """Adapt a schema in a schema; `true` and `false` are schemas too."""
    return strict_schema(cast("Schema", value)) if isinstance(value, Mapping) else value


def _is_object(schema: Schema) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)
