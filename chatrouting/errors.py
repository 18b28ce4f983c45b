"""Every exception of the library.

    ChatRoutingError
      ConfigurationError (ValueError)     a stack built wrongly, found when it is built
        MissingExtraError                 an optional dependency is not installed
        PoolConfigError                   variables that give no pool, or not the one that is meant
      ClientClosedError                   a client used after `aclose`
      StreamClosedError (RuntimeError)    a stream used after its end
      NoClientSelectedError (RuntimeError)
      EmbeddingError (RuntimeError)       an embedding generator gave no usable vectors
        EmbeddingTimeoutError (TimeoutError)
      ChatClientError                     a provider call failed
        APIConnectionError                no connection, or it broke
          APITimeoutError                 the SDK's own timeout
        APIStatusError                    the provider answered with an error
          BadRequestError                 400, 422
            ContextLengthExceededError
            ContentFilteredError
            UnsupportedOptionError        also raised here, before anything is sent
          AuthenticationError             401
          PermissionDeniedError           403
          NotFoundError                   404
          ConflictError                   409
          RequestTooLargeError            413
          RateLimitError                  429
            InsufficientQuotaError        402, or a 429 that no waiting mends
          InternalServerError             500 and above
            OverloadedError               503, 529
        ResponseValidationError           the provider answered something that cannot be read
        StreamInterruptedError            the stream broke off
        AttemptTimeoutError (TimeoutError)
        FirstOutputTimeoutError (TimeoutError)
        StallTimeoutError (TimeoutError)
        RequestTimeoutError (TimeoutError)
      RefusedLocallyError                 no provider was asked
        QuotaExceededError                a quota has no room; `to_dict` says which
          QuotaExhaustedError             none now; `retry_after` says when
          QuotaQueueFullError             as many wait already as may
          QuotaQueueTimeoutError (TimeoutError)   it waited as long as it may
          QuotaDeadlineError              it would wait longer than it has time
          QuotaRequestTooLargeError       larger than a limit; no waiting helps
          QuotaReclaimedError             cut off, because a guarantee needs what it had borrowed
        NoEndpointAvailableError
          PoolExhaustedError              every member of a pool is held back
        CircuitOpenError
        LocalSaturationError

Each takes its message, then its fields by keyword. All of them pickle; the SDK's exception, where
there is one, is the `__cause__` and does not travel. No message holds a key, a prompt or a header.
"""

from collections.abc import Mapping, Sequence

from chatrouting.failure import FailureKind

__all__ = [
    "APIConnectionError",
    "APIStatusError",
    "APITimeoutError",
    "AttemptTimeoutError",
    "AuthenticationError",
    "BadRequestError",
    "ChatClientError",
    "ChatRoutingError",
    "CircuitOpenError",
    "ClientClosedError",
    "ConfigurationError",
    "ConflictError",
    "ContentFilteredError",
    "ContextLengthExceededError",
    "EmbeddingError",
    "EmbeddingTimeoutError",
    "FirstOutputTimeoutError",
    "InsufficientQuotaError",
    "InternalServerError",
    "LocalSaturationError",
    "MissingExtraError",
    "NoClientSelectedError",
    "NoEndpointAvailableError",
    "NotFoundError",
    "OverloadedError",
    "PermissionDeniedError",
    "PoolConfigError",
    "PoolExhaustedError",
    "QuotaDeadlineError",
    "QuotaExceededError",
    "QuotaExhaustedError",
    "QuotaQueueFullError",
    "QuotaQueueTimeoutError",
    "QuotaReclaimedError",
    "QuotaRequestTooLargeError",
    "RateLimitError",
    "RefusedLocallyError",
    "RequestTimeoutError",
    "RequestTooLargeError",
    "ResponseValidationError",
    "StallTimeoutError",
    "StreamClosedError",
    "StreamInterruptedError",
    "UnsupportedOptionError",
]


class ChatRoutingError(Exception):
    """Root of everything that this library raises on its own account."""


class ConfigurationError(ChatRoutingError, ValueError):
    """A stack is built wrongly. Found when it is built where possible; never fails over."""


class MissingExtraError(ConfigurationError):
    """An optional dependency is not installed. The message names the extra to install."""


class PoolConfigError(ConfigurationError):
    """Variables of the environment give no pool of endpoints, or not the one that is meant.

    Attributes:
        problems: A sentence for each variable, with its name; it shows no secret.
    """

    def __init__(self, message: str = "", *, problems: Sequence[str] | None = None) -> None:
        super().__init__(message)
        self.problems = None if problems is None else tuple(problems)


class ClientClosedError(ChatRoutingError):
    """A client was used after it was closed."""


class StreamClosedError(ChatRoutingError, RuntimeError):
    """A stream was used after it was cancelled, closed early, or taken over by another one."""


class NoClientSelectedError(ChatRoutingError, RuntimeError):
    """`select_client` returned None at the first selection of a request."""


class EmbeddingError(ChatRoutingError, RuntimeError):
    """An embedding generator returned something that is not one vector for each text."""


class EmbeddingTimeoutError(EmbeddingError, TimeoutError):
    """`embedding_timeout` ran out: the time waited for one call of an embedding generator."""


class ChatClientError(ChatRoutingError):
    """A call of a provider failed.

    Attributes:
        kind: Why, in the terms that routers decide by.
        provider: Name of the provider, such as "openai".
        model: The model that was asked for.
        status_code: HTTP status; None if no answer came, 200 for an error inside a stream.
        code: The provider's own error code or type, as text.
        request_id: The provider's id of the request.
        retry_after: Seconds to wait, as the provider says; 0.0 for the past, None if unreadable.
        rate_limit_headers: `retry-after` and the rate-limit families, lower case; None if absent.
    """

    kind: FailureKind = FailureKind.UNKNOWN

    def __init__(
        self,
        message: str = "",
        *,
        kind: FailureKind | None = None,
        provider: str | None = None,
        model: str | None = None,
        status_code: int | None = None,
        code: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        rate_limit_headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        if kind is not None:
            self.kind = kind
        self.provider = provider
        self.model = model
        self.status_code = status_code
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after
        self.rate_limit_headers = rate_limit_headers


class APIConnectionError(ChatClientError):
    """No connection could be made, or it broke before an answer."""

    kind = FailureKind.CONNECTION


class APITimeoutError(APIConnectionError):
    """The SDK or the HTTP client gave up waiting."""

    kind = FailureKind.TIMEOUT


class APIStatusError(ChatClientError):
    """The provider answered with an error."""

    kind = FailureKind.INVALID_REQUEST


class BadRequestError(APIStatusError):
    """The provider refuses the request as it is (400, 422)."""


class ContextLengthExceededError(BadRequestError):
    """The request is longer than the model's window."""

    kind = FailureKind.CONTEXT_LENGTH_EXCEEDED


class ContentFilteredError(BadRequestError):
    """A content policy refused the request."""

    kind = FailureKind.CONTENT_FILTERED


class UnsupportedOptionError(BadRequestError):
    """An option or a content that this client cannot carry, and that must not be dropped."""

    kind = FailureKind.UNSUPPORTED


class AuthenticationError(APIStatusError):
    """The credential was refused (401)."""

    kind = FailureKind.AUTHENTICATION


class PermissionDeniedError(APIStatusError):
    """The credential may not do this (403)."""

    kind = FailureKind.PERMISSION


class NotFoundError(APIStatusError):
    """No such model, deployment or path (404)."""

    kind = FailureKind.NOT_FOUND


class ConflictError(APIStatusError):
    """The resource was locked or changed meanwhile (409)."""

    kind = FailureKind.CONFLICT


class RequestTooLargeError(APIStatusError):
    """More bytes than the provider takes (413)."""

    kind = FailureKind.PAYLOAD_TOO_LARGE


class RateLimitError(APIStatusError):
    """Too many requests or tokens (429)."""

    kind = FailureKind.RATE_LIMITED


class InsufficientQuotaError(RateLimitError):
    """Money or plan used up; no waiting mends it."""

    kind = FailureKind.QUOTA_EXHAUSTED


class InternalServerError(APIStatusError):
    """The provider failed (500 and above)."""

    kind = FailureKind.SERVER_ERROR


class OverloadedError(InternalServerError):
    """The provider has no capacity now (503, 529, or an event inside a stream)."""

    kind = FailureKind.OVERLOADED


class ResponseValidationError(ChatClientError):
    """The provider answered with success, but not with an answer."""

    kind = FailureKind.SERVER_ERROR


class StreamInterruptedError(ChatClientError):
    """A stream broke off: cut, malformed, or without its terminal event."""

    kind = FailureKind.CONNECTION


class AttemptTimeoutError(ChatClientError, TimeoutError):
    """`attempt_timeout` ran out: the time waited for one client."""

    kind = FailureKind.TIMEOUT


class FirstOutputTimeoutError(ChatClientError, TimeoutError):
    """`first_output_timeout` ran out before the first output."""

    kind = FailureKind.TIMEOUT


class StallTimeoutError(ChatClientError, TimeoutError):
    """`stall_timeout` ran out: no output since the last one."""

    kind = FailureKind.TIMEOUT


class RequestTimeoutError(ChatClientError, TimeoutError):
    """`RoutingHints.timeout` ran out: the whole request. Never fails over."""

    kind = FailureKind.TIMEOUT


class RefusedLocallyError(ChatRoutingError):
    """Something on this side refused; no provider was asked, and nobody's health changes.

    Attributes:
        retry_after: Seconds until it may be granted, None if that is not known.
        fallback_allowed: False ends the walk of a failover with this refusal. None means True.
    """

    def __init__(
        self,
        message: str = "",
        *,
        retry_after: float | None = None,
        fallback_allowed: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.fallback_allowed = fallback_allowed


class QuotaExceededError(RefusedLocallyError):
    """A quota has no room for the request.

    Attributes:
        details: What the governor says of it, as plain JSON: ids and numbers, no text of the
            request. None if it was raised by somebody else.
    """

    def __init__(
        self,
        message: str = "",
        *,
        retry_after: float | None = None,
        fallback_allowed: bool | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, retry_after=retry_after, fallback_allowed=fallback_allowed)
        self.details = details

    def to_dict(self) -> dict[str, object]:
        """Return the details, as the body of an answer; empty if there are none."""
        return dict(self.details or {})


class QuotaExhaustedError(QuotaExceededError):
    """There is no room now. `retry_after` says when there is, if nobody else comes."""


class QuotaQueueFullError(QuotaExceededError):
    """There is no room now, and as many requests of the class wait as may."""


class QuotaQueueTimeoutError(QuotaExceededError, TimeoutError):
    """The request has waited as long as its class, or its caller, lets it."""


class QuotaDeadlineError(QuotaExceededError):
    """The request would wait longer than it has time; it was refused without waiting."""


class QuotaRequestTooLargeError(QuotaExceededError):
    """The request needs more than a limit ever gives. No waiting helps; another target may."""


class QuotaReclaimedError(QuotaExceededError):
    """The request ran on borrowed capacity, which a guarantee needs back, or for too long."""


class NoEndpointAvailableError(RefusedLocallyError):
    """No endpoint may be called now."""


class PoolExhaustedError(NoEndpointAvailableError):
    """Every member of a pool is held back; nothing was sent."""


class CircuitOpenError(RefusedLocallyError):
    """A circuit breaker is open."""


class LocalSaturationError(RefusedLocallyError):
    """This process has no connection or slot left for the call; the provider is not at fault."""
