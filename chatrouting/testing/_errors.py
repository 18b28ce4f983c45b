"""Error bodies of the providers, and the shapes in which an error comes inside a stream."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType

from chatrouting.testing._json import JsonObject, dumps, known
from chatrouting.testing._reply import ErrorBody, ErrorShape
from chatrouting.testing._turn import CREATED, Event, Turn

#: What OpenAI usually says with a status: type and code.
_OPENAI: Mapping[int, tuple[str, str | None]] = MappingProxyType(
    {
        400: ("invalid_request_error", None),
        401: ("invalid_request_error", "invalid_api_key"),
        403: ("invalid_request_error", "unsupported_country_region_territory"),
        404: ("invalid_request_error", "model_not_found"),
        429: ("requests", "rate_limit_exceeded"),
        500: ("server_error", None),
        503: ("server_error", "server_overloaded"),
        529: ("server_error", "server_overloaded"),
    }
)
_ANTHROPIC: Mapping[int, str] = MappingProxyType(
    {
        400: "invalid_request_error",
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        408: "timeout_error",
        409: "conflict_error",
        413: "request_too_large",
        429: "rate_limit_error",
        500: "api_error",
        504: "timeout_error",
        529: "overloaded_error",
    }
)

#: The status whose type and code an error inside a stream has unless the reply says otherwise.
_IN_STREAM = 529


def openai_error(status: int, error: ErrorBody) -> JsonObject:
    """Write `{"error": {message, type, param, code}}`."""
    fallback = (
        "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    )
    type_, code = _OPENAI.get(status, (fallback, None))
    body = {
        "message": error.message or f"The provider answered {status}.",
        "type": error.type or type_,
        "param": error.param,
        # A code belongs to its type: a given type alone leaves the usual code out.
        "code": code if error.code is None and error.type is None else error.code,
    }
    return {"error": body | dict(error.extra)}


def azure_error(status: int, error: ErrorBody) -> JsonObject:
    """Write an error as Azure's gateway does; only its 401 differs from OpenAI's form."""
    if status != HTTPStatus.UNAUTHORIZED:
        return openai_error(status, error)
    message = (
        error.message or "Access denied due to invalid subscription key or wrong API endpoint."
    )
    return {"statusCode": status, "message": message}


def anthropic_error(status: int, error: ErrorBody) -> JsonObject:
    """Write `{"type": "error", "error": {...}}`; the server adds the `request_id`."""
    fallback = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "api_error"
    body = known(
        type=error.type or _ANTHROPIC.get(status, fallback),
        message=error.message or f"The provider answered {status}.",
        details=known(error_code=error.code),
    )
    return {"type": "error", "error": body | dict(error.extra)}


def stream_error(
    turn: Turn,
    envelope: Callable[[int, ErrorBody], JsonObject],
    shape: ErrorShape,
) -> Event:
    """Write the reply's error as one event of a stream.

    Args:
        turn: The turn that fails; its reply has an `error_body`.
        envelope: The provider's way to write an error body.
        shape: See `ErrorShape`.
    """
    error = turn.reply.error_body or ErrorBody()
    body = envelope(_IN_STREAM, error)
    return _SHAPES[shape](turn, body)


def _flat(turn: Turn, body: JsonObject) -> Event:
    inner = body["error"]
    fields = {name: inner.get(name) for name in ("code", "message", "param")}
    return Event("error", dumps({"type": "error", **fields, "sequence_number": turn.number}))


def _failed(turn: Turn, body: JsonObject) -> Event:
    inner = body["error"]
    code = inner.get("code") or inner.get("type")
    response: JsonObject = {
        "id": turn.id("resp_"),
        "object": "response",
        "created_at": CREATED,
        "status": "failed",
        "error": {"code": code, "message": inner["message"]},
        "incomplete_details": None,
        "model": turn.model,
        "output": [],
        "usage": None,
    }
    name = "response.failed"
    return Event(name, dumps({"type": name, "response": response, "sequence_number": turn.number}))


def _chunk(turn: Turn, body: JsonObject, choices: list[JsonObject]) -> Event:
    chunk = {
        "id": turn.id("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": turn.model,
        "choices": choices,
        "error": body["error"],
    }
    return Event(None, dumps(chunk))


_FAILED_CHOICE = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}

_SHAPES: Mapping[ErrorShape, Callable[[Turn, JsonObject], Event]] = MappingProxyType(
    {
        "event": lambda _, body: Event("error", dumps(body)),
        "data": lambda _, body: Event(None, dumps({"error": body["error"]})),
        "flat": _flat,
        "failed": _failed,
        "bare": lambda _, body: Event("error", dumps({"message": body["error"]["message"]})),
        "chunk": lambda turn, body: _chunk(turn, body, []),
        "finish": lambda turn, body: _chunk(turn, body, [_FAILED_CHOICE]),
    }
)
