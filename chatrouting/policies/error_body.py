"""What an error body says, whoever wrote it.

Providers and the servers that imitate them agree on no shape: an `error` object, the same without
its envelope, a list around it, `detail` as text or as a list, an error that is plain text. Codes
may be numbers, and then they are HTTP statuses. Decoded JSON comes in; four facts go out.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

_SHORTENED: Final = 300
_MASK: Final = "[key]"
#: The look ahead spares the alternatives at most places: a fifth of the time.
_KEY: Final = re.compile(
    r"\b(?=[sprgxkhnAB])"
    r"(?:(?:sk|pk|rk|gsk|xai|pplx|key|hf|r8|nvapi|AIza)[-_]?[\w*.-]{12,}|Bearer\s+\S+)",
    re.ASCII,
)
#: What an HTTP library says of a key that cannot be a header.
_QUOTING: Final = "Illegal header value "
_QUOTED: Final = re.compile(rf"(?<={_QUOTING})b?['\"].*")
#: Validation errors of Python servers repeat what they were given, and that is the prompt.
_ECHO: Final = re.compile(r"""(?:input_value\s*=|['"]input['"]\s*:).*""", re.DOTALL)
_STATUSES: Final = range(100, 600)
_THREE_DIGITS: Final = re.compile(r"[1-5][0-9][0-9]", re.ASCII)


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """What was found in an error body. Empty text where nothing was said.

    Attributes:
        code: The most specific word for what went wrong.
        type: The family of the error.
        message: The provider's own words, shortened, without keys.
        status: An HTTP status that stood in the body.
    """

    code: str = ""
    type: str = ""
    message: str = ""
    status: int | None = None


def read_error_body(body: object) -> ErrorFacts:
    """Read the decoded body of an error, or the inner error object that an SDK has cut out.

    Never raises: what has no known shape gives empty facts.
    """
    body = _first(body)
    if isinstance(body, str):
        return ErrorFacts(message=shorten(body))
    if not isinstance(body, Mapping):
        return ErrorFacts()
    outer = cast("Mapping[str, Any]", body)
    inner = outer.get("error")
    if isinstance(inner, str):
        return _of_text(inner, outer)
    if isinstance(inner, Mapping):
        return _of_object(cast("Mapping[str, Any]", inner))
    return _of_object(outer)


def holds_error(body: object) -> bool:
    """Say whether a decoded answer that came with success is an error all the same."""
    found = cast("Mapping[str, Any]", body) if type(body) is dict else _mapping(_first(body))
    return bool(found.get("error")) or "error" in (found.get("object"), found.get("type"))


def mask_keys(text: str, keys: Iterable[str] = ()) -> str:
    """Replace `keys`, and what looks like a credential."""
    for key in keys:
        text = text.replace(key, _MASK)
    if _QUOTING in text:
        text = _QUOTED.sub(_MASK, text)
    return _KEY.sub(_MASK, text)


def shorten(message: str) -> str:
    """Cut foreign text to a length for messages; keys, echoes of the request and HTML go out."""
    if message.lstrip().startswith("<"):
        return ""
    text = _ECHO.sub("[...]", " ".join(mask_keys(message).split()))
    return text if len(text) <= _SHORTENED else text[: _SHORTENED - 3] + "..."


def _of_text(text: str, outer: Mapping[str, Any]) -> ErrorFacts:
    description = outer.get("error_description") or outer.get("message")
    # OAuth puts a code where others put their words.
    code = text if " " not in text else ""
    return ErrorFacts(code=code, message=shorten(_text(description) or text))


def _of_object(error: Mapping[str, Any]) -> ErrorFacts:
    details = _mapping(error.get("details"))
    inner = _mapping(error.get("innererror") or error.get("inner_error"))
    code = error.get("code")
    status = _status(code) or _status(error.get("statusCode")) or _status(error.get("status"))
    family = _word(error.get("type")) or _word(error.get("status")) or _word(error.get("__type"))
    return ErrorFacts(
        code=_word(details.get("error_code")) or _word(code) or _word(inner.get("code")),
        type="" if family == "error" else family,
        message=shorten(_message(error)),
        status=status,
    )


def _message(error: Mapping[str, Any]) -> str:
    for name in ("message", "Message", "detail", "msg"):
        value = error.get(name)
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value).get("detail")
        if isinstance(value, list):
            return "; ".join(_complaint(item) for item in cast("list[object]", value))
        if isinstance(value, str) and value:
            return value
    return ""


def _complaint(item: object) -> str:
    """One entry of a list of validation errors: where and what, never the input."""
    found = _mapping(item)
    where = found.get("loc")
    place = ".".join(map(str, cast("list[object]", where))) if isinstance(where, list) else ""
    return f"{place}: {_text(found.get('msg'))}" if place else _text(found.get("msg"))


def _first(body: object) -> object:
    """Take the error out of the list that some put around it."""
    return cast("list[object]", body)[0] if isinstance(body, list) and body else body  # pyright: ignore[reportUnknownVariableType]


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _word(value: object) -> str:
    return value if isinstance(value, str) and _status(value) is None else ""


def _status(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    if isinstance(value, str) and _THREE_DIGITS.fullmatch(value) is None:
        return None
    number = int(value)
    return number if number in _STATUSES else None
