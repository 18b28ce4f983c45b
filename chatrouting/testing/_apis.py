"""The table of the protocols that a provider server speaks, and how a request finds its row."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from chatrouting.testing import _chat, _embeddings, _errors, _images, _messages, _responses
from chatrouting.testing._json import JsonObject
from chatrouting.testing._reply import ErrorBody, ErrorShape
from chatrouting.testing._requests import RecordedRequest
from chatrouting.testing._rules import CHAT, EMBEDDINGS, IMAGES, RESPONSES, Rules
from chatrouting.testing._rules_messages import MESSAGES
from chatrouting.testing._turn import Event, Turn


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the APIs of one provider have in common."""

    error: Callable[[int, ErrorBody], JsonObject]
    request_id: str  #: The header that names the request.
    ping: bytes


@dataclass(frozen=True, slots=True)
class Api:
    """One API."""

    path: re.Pattern[str]
    whole: Callable[[Turn], JsonObject]
    events: Callable[[Turn], list[Event]] | None  #: None: this API has no streams.
    stream_error: ErrorShape  #: How this API puts an error into a stream.
    rules: Rules  #: What a strict server checks.


OPENAI = Dialect(_errors.openai_error, "x-request-id", b": ping\n\n")
AZURE = Dialect(_errors.azure_error, "x-request-id", b": ping\n\n")
ANTHROPIC = Dialect(
    _errors.anthropic_error, "request-id", b'event: ping\ndata: {"type":"ping"}\n\n'
)

_AZURE_PATH = re.compile(r"/openai/")
_PREFIX = r"(/v1|/openai|/openai/v1|/openai/deployments/[^/]+)?"

APIS: Iterable[Api] = (
    Api(re.compile(_PREFIX + "/chat/completions"), _chat.whole, _chat.events, "data", CHAT),
    Api(
        re.compile(_PREFIX + "/responses"), _responses.whole, _responses.events, "failed", RESPONSES
    ),
    Api(re.compile(_PREFIX + "/embeddings"), _embeddings.whole, None, "data", EMBEDDINGS),
    Api(re.compile(_PREFIX + "/images/(generations|edits)"), _images.whole, None, "data", IMAGES),
    Api(re.compile("(/v1)?/messages"), _messages.whole, _messages.events, "event", MESSAGES),
)


def find_api(request: RecordedRequest) -> Api | None:
    """Give the API that a request is for; None if there is none."""
    if request.method != "POST":
        return None
    return next((api for api in APIS if api.path.fullmatch(request.path)), None)


def find_dialect(request: RecordedRequest) -> Dialect:
    """Tell whose error bodies and headers a request expects, also on an unknown path."""
    if _AZURE_PATH.match(request.path):
        return AZURE
    anthropic = "anthropic-version" in request.headers or request.path.endswith("/messages")
    return ANTHROPIC if anthropic else OPENAI


def api_key(headers: Mapping[str, str]) -> str | None:
    """Give the key that a request shows, by any provider's header."""
    for name in ("x-api-key", "api-key"):
        if name in headers:
            return headers[name]
    return headers.get("authorization", "").removeprefix("Bearer ") or None
