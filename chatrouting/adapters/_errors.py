"""From what a provider or an SDK says to the errors of this library.

Shared by all adapters. The SDKs' exceptions are read by what they carry, not by their classes, so
that this file imports neither. What is raised keeps the SDK's exception as its cause, without the
request that this one holds: its headers are the key and its body is the prompt.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast, final

from chatrouting.adapters._redaction import redact
from chatrouting.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    ChatClientError,
    ChatRoutingError,
    ConflictError,
    ContentFilteredError,
    ContextLengthExceededError,
    InsufficientQuotaError,
    InternalServerError,
    LocalSaturationError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    RateLimitError,
    RequestTooLargeError,
    ResponseValidationError,
    StreamInterruptedError,
    UnsupportedOptionError,
)
from chatrouting.failure import FailureKind
from chatrouting.policies.classify import classify, classify_response
from chatrouting.policies.error_body import read_error_body, shorten
from chatrouting.policies.retry_after import (
    parse_retry_after,
    rate_limit_headers,
    retry_after_in_text,
)

_CLASSES: Final[Mapping[FailureKind, type[APIStatusError]]] = {
    FailureKind.RATE_LIMITED: RateLimitError,
    FailureKind.QUOTA_EXHAUSTED: InsufficientQuotaError,
    FailureKind.OVERLOADED: OverloadedError,
    FailureKind.SERVER_ERROR: InternalServerError,
    FailureKind.AUTHENTICATION: AuthenticationError,
    FailureKind.PERMISSION: PermissionDeniedError,
    FailureKind.NOT_FOUND: NotFoundError,
    FailureKind.UNSUPPORTED: UnsupportedOptionError,
    FailureKind.CONTEXT_LENGTH_EXCEEDED: ContextLengthExceededError,
    FailureKind.PAYLOAD_TOO_LARGE: RequestTooLargeError,
    FailureKind.CONTENT_FILTERED: ContentFilteredError,
    FailureKind.CONFLICT: ConflictError,
    FailureKind.STATE_LOST: BadRequestError,
    FailureKind.REASONING_INVALID: BadRequestError,
}
#: Kinds that say that no answer came.
_WITHOUT_ANSWER: Final[Mapping[FailureKind, tuple[type[ChatClientError], str]]] = {
    FailureKind.TIMEOUT: (APITimeoutError, "timed out"),
    FailureKind.CONNECTION: (APIConnectionError, "could not be reached"),
    FailureKind.AUTHENTICATION: (AuthenticationError, "got no credential"),
}
_BAD_REQUESTS: Final = frozenset({200, 400, 422})
_SERVER_ERRORS: Final = 500
_CLIENT_ERRORS: Final = 400
_REDIRECTS: Final = 300

_REQUEST_IDS: Final = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid")


@dataclass(frozen=True, slots=True)
class Errors:
    """Makes the errors of one request.

    Attributes:
        provider: Who was asked.
        model: What was asked for.
    """

    provider: str
    model: str

    def of_answer(
        self, *, status: int, headers: Mapping[str, str], body: object
    ) -> ChatClientError:
        """Make the error for an error answer, or for an error object inside an answer.

        Args:
            status: HTTP status; below 400 for an error inside a stream or dressed as success.
            headers: Of the answer, in lower case or case-insensitive.
            body: Decoded JSON in any shape, or text.
        """
        facts = read_error_body(body)
        kind = classify_response(
            status=status if status >= _CLIENT_ERRORS else facts.status,
            code=facts.code,
            type=facts.type,
            message=facts.message,
        )
        code = facts.code or facts.type or None
        limits = rate_limit_headers(headers)
        retry_after = parse_retry_after(limits, now=datetime.now(UTC)) if limits else None
        if retry_after is None and kind in (FailureKind.RATE_LIMITED, FailureKind.OVERLOADED):
            retry_after = retry_after_in_text(facts.message)
        return _class(kind, status)(
            self._answered(status, code, facts.message),
            kind=kind,
            provider=self.provider,
            model=self.model,
            status_code=status,
            code=code,
            request_id=request_id(headers),
            retry_after=retry_after,
            rate_limit_headers=limits,
        )

    def of_exception(self, error: Exception) -> ChatRoutingError | None:
        """Make the error for an exception of an SDK or an HTTP library; None if it is no such."""
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        if isinstance(status, int) and hasattr(error, "body"):
            return self._of_sdk_answer(error, status, cast("Any", response))
        kind = classify(error).kind
        if kind is FailureKind.LOCAL_SATURATION:
            return LocalSaturationError(
                f"no connection to {self._target} became free in the HTTP client's own pool. "
                "Allow it more connections, or close streams that are no longer read."
            )
        if kind in _WITHOUT_ANSWER:
            error_class, words = _WITHOUT_ANSWER[kind]
            return error_class(
                f"{self._target} {words}{_reason(error)}", provider=self.provider, model=self.model
            )
        if isinstance(getattr(error, "body", None), dict):
            return self.of_answer(status=200, headers={}, body=cast("Any", error).body)
        return None

    def interrupted(
        self, reason: str, *, kind: FailureKind = FailureKind.CONNECTION
    ) -> StreamInterruptedError:
        """Make the error for a stream that broke off; `reason` goes on from "the stream of X"."""
        return StreamInterruptedError(
            f"the stream of {self._target} {reason}",
            kind=kind,
            provider=self.provider,
            model=self.model,
            status_code=200,
        )

    def unreadable(
        self, reason: str, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> ResponseValidationError:
        """Make the error for a success that is no answer; `reason` goes on from "X answered"."""
        headers = headers or {}
        return ResponseValidationError(
            f"{self._target} answered {status} with {reason}",
            provider=self.provider,
            model=self.model,
            status_code=status,
            request_id=request_id(headers),
            rate_limit_headers=rate_limit_headers(headers),
        )

    def complete(self, error: ChatClientError, headers: Mapping[str, str] | None = None) -> None:
        """Fill in what an error does not know of its request, also from the answer's headers."""
        headers = headers or {}
        error.provider = error.provider or self.provider
        error.model = error.model or self.model
        error.request_id = error.request_id or request_id(headers)
        error.rate_limit_headers = error.rate_limit_headers or rate_limit_headers(headers)

    def translating(self) -> "Translation":
        """Redact what an SDK raises in a `with` block, and raise it as an error of ours from it.

        What is neither an SDK's nor an HTTP library's goes through as it is.
        """
        return Translation(self)

    @property
    def _target(self) -> str:
        return f"{self.provider} model {self.model!r}"

    def _answered(self, status: int, code: str | None, words: str) -> str:
        how = f"answered {status}" if status >= _REDIRECTS else "sent an error as its answer"
        named = f" ({code})" if code else ""
        return f"{self._target} {how}{named}" + (f": {words}" if words else "")

    def _of_sdk_answer(self, error: Exception, status: int, response: Any) -> ChatClientError:
        # The HTTP library decodes all headers anew each time that it looks for one.
        headers = {name.lower(): value for name, value in response.headers.items()}
        if type(error).__name__ == "APIResponseValidationError":
            return self.unreadable("an unexpected body", status=status, headers=headers)
        return self.of_answer(status=status, headers=headers, body=cast("Any", error).body)


@final
class Translation:
    """See `Errors.translating`. No generator: one costs four times as much, for each request."""

    __slots__ = ("_errors", "_stop")

    def __init__(self, errors: Errors) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        self._stop = sys.exception()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return
        redact(error, self._stop)
        ours = None if isinstance(error, ChatRoutingError) else self._errors.of_exception(error)
        if ours is not None:
            raise ours from error


def request_id(headers: Mapping[str, str]) -> str | None:
    """Find the provider's id of a request among the headers of its answer."""
    return next((headers[name] for name in _REQUEST_IDS if name in headers), None)


def _class(kind: FailureKind, status: int) -> type[APIStatusError]:
    if kind is FailureKind.TIMEOUT and status >= _SERVER_ERRORS:
        return InternalServerError
    if kind is FailureKind.INVALID_REQUEST and status in _BAD_REQUESTS:
        return BadRequestError
    return _CLASSES.get(kind, APIStatusError)


def _reason(error: BaseException) -> str:
    """Name the innermost cause, whose words are the most precise."""
    while error.__cause__ is not None:
        error = error.__cause__
    words = shorten(str(error))
    return f" ({type(error).__name__}: {words})" if words else f" ({type(error).__name__})"
