"""What more than one API wants written, refused or logged in the same way. Pure but for the log."""

import base64
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from chatrouting.contents import DataContent, ToolCallContent
from chatrouting.errors import BadRequestError, ConfigurationError, UnsupportedOptionError
from chatrouting.options import ChatOptions

_log = logging.getLogger("chatrouting.adapters")

Body: TypeAlias = dict[str, Any]

#: Stands before a result whose call is gone.
ORPHAN: Final = "Result of an earlier tool call:"
#: Stands for the result of a call that has none.
NOT_CARRIED_OUT: Final = "Error: the call was not carried out."
#: The parameters of a tool that names none.
ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}

#: What additional properties cannot say, and how it is said instead.
_RESERVED: Final[Mapping[str, str]] = {
    "model": "Set ChatOptions.model instead.",
    "messages": "Pass the messages to the call instead.",
    "input": "Pass the messages to the call instead.",
    "stream": "Call get_streaming_response instead.",
}
#: Lists that additional properties make longer.
_APPENDED: Final = frozenset({"tools", "include"})


def extras(options: ChatOptions) -> Mapping[str, Any]:
    """Return the caller's own fields of the request body.

    Raises:
        ConfigurationError: If one of them is filled in by the client.
    """
    found = options.additional_properties
    if not found:
        return {}
    for name in _RESERVED:
        if name in found:
            raise ConfigurationError(
                f"additional_properties holds {name!r}, which the client fills in itself. "
                + _RESERVED[name]
            )
    return found


def merge_extras(body: Body, extra: Mapping[str, Any]) -> None:
    """Let the caller's own fields have the last word in a request body; the same for all APIs.

    None leaves a field out. An object is merged with ours key by key, one level deep. The lists
    `tools` and `include` are appended to. Anything else replaces what the options say.
    """
    for name, value in extra.items():
        if value is None:
            body.pop(name, None)
        else:
            body[name] = _merged(name, body.get(name), value)


def _merged(name: str, ours: Any, theirs: Any) -> Any:
    """Merge two values of a field; a copy, since what is sent is not the caller's."""
    if isinstance(theirs, Mapping):
        mine = cast("Body", ours) if isinstance(ours, Mapping) else {}
        return {**mine, **cast("Body", theirs)}
    if name in _APPENDED and isinstance(theirs, list | tuple):
        said = cast("list[object]", ours or [])
        return said + [value for value in cast("Sequence[object]", theirs) if value not in said]
    return theirs


def json_format(value: str) -> Body:
    """Write a response format that is no schema, as both APIs of OpenAI spell it.

    Raises:
        UnsupportedOptionError: If it is unknown.
    """
    if value not in ("text", "json"):
        raise UnsupportedOptionError(
            f"response_format is {value!r}; expected 'text', 'json' or a JsonSchemaFormat."
        )
    return {"type": "json_object" if value == "json" else value}


def base64_text(data: bytes) -> str:
    """Write bytes as text."""
    return base64.b64encode(data).decode("ascii")


def data_url(content: DataContent) -> str:
    """Write bytes as a data URL."""
    return f"data:{content.media_type};base64,{base64_text(content.data)}"


def arguments_text(call: ToolCallContent) -> str:
    """Write arguments as JSON text: the model's own text where it still says the same.

    Raises:
        BadRequestError: If they hold what JSON cannot.
    """
    if call.raw_arguments is not None and _spells(call.raw_arguments, call.arguments):
        return call.raw_arguments
    try:
        return json.dumps(dict(call.arguments), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        reason = unwritable(dict(call.arguments))
    raise BadRequestError(
        f"the arguments of tool call {call.call_id!r} cannot be written as JSON: {reason}."
    )


def unwritable(value: object) -> str | None:
    """Say what of a body or a part of one cannot be written as JSON; None if all of it can.

    The place is told, and not what stands there, which may be the prompt.
    """
    try:
        return _unwritable(value, "")
    except RecursionError:
        return "it is nested too deeply"


def _unwritable(value: object, place: str) -> str | None:
    if isinstance(value, str):
        return None if _is_unicode(value) else f"{place} holds half of a surrogate pair"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{place} is {value}"
    if value is None or isinstance(value, int):
        return None
    items: Iterable[tuple[object, object]]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
    elif isinstance(value, list | tuple):
        items = enumerate(cast("Sequence[object]", value))
    else:
        return f"{place} is of the type {type(value).__name__}"
    for key, held in items:
        inside = f"{place}[{key!a}]"
        found = _unwritable(key, f"the key of {inside}") or _unwritable(held, inside)
        if found is not None:
            return found
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _spells(raw: str, arguments: Mapping[str, Any]) -> bool:
    try:
        return bool(json.loads(raw) == dict(arguments))
    except (ValueError, RecursionError):
        return False


def cannot_carry(what: str, api: str) -> UnsupportedOptionError:
    """Make the error for a content that an API has no place for."""
    return UnsupportedOptionError(
        f"{what} cannot be sent by {api}; "
        "leave it out or route the request to a client that carries it."
    )


def nothing_to_send() -> BadRequestError:
    """Make the error for a conversation of which nothing is left."""
    return BadRequestError(
        "no message holds anything that can be sent; "
        "expected at least one text that is not blank, file, tool call or result."
    )


def log_dropped(provider: str, model: str, dropped: Sequence[str]) -> None:
    """Tell once which options the answer does without, by their names only."""
    if dropped:
        _log.warning(
            "adapters.options_dropped provider=%s model=%s options=%s",
            provider,
            model,
            ",".join(dropped),
        )
