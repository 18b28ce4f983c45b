"""JSON schemas as Anthropic's structured outputs take them.

The API knows a part of JSON schema: objects are closed, and limits such as `minimum` are refused.
What it refuses moves into the description, where the model still reads it; what the caller has to
check an answer by is the schema they gave.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

Schema: TypeAlias = Mapping[str, Any]

#: Kept as they are.
_KEPT: Final = frozenset(
    {"type", "enum", "const", "required", "title", "default", "$ref", "additionalProperties"}
)
#: Hold schemas by name.
_NAMED: Final = frozenset({"properties", "$defs", "definitions"})
#: Hold lists of schemas; the API has no `oneOf`.
_LISTED: Final[Mapping[str, str]] = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
_FORMATS: Final = frozenset(
    {
        *("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6"),
        "uuid",
    }
)


def adapt_schema(schema: Schema) -> dict[str, Any]:
    """Return a copy with closed objects, and with what the API refuses in the descriptions."""
    adapted: dict[str, Any] = {}
    moved: list[str] = []
    for name, value in schema.items():
        if name in _NAMED:
            adapted[name] = {key: _inner(item) for key, item in _object(value).items()}
        elif name in _LISTED:
            adapted[_LISTED[name]] = [_inner(item) for item in value]
        elif name == "items":
            adapted[name] = _inner(value)
        elif _is_kept(name, value):
            adapted[name] = value
        elif name not in ("description", "$schema"):
            moved.append(f"{name}: {value}")
    if _is_object(schema):
        adapted["additionalProperties"] = False
    description = "\n\n".join(
        text for text in (schema.get("description"), ", ".join(moved)) if text
    )
    return adapted | {"description": description} if description else adapted


def _is_kept(name: str, value: Any) -> bool:
    if name == "format":
        return value in _FORMATS
    if name == "minItems":
        return value in (0, 1)
    return name in _KEPT


def _is_object(schema: Schema) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _inner(value: Any) -> Any:
    """Adapt a schema in a schema; `true` and `false` are schemas too."""
    return adapt_schema(cast("Schema", value)) if isinstance(value, Mapping) else value


def _object(value: Any) -> Schema:
    return cast("Schema", value) if isinstance(value, Mapping) else {}
