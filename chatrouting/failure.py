"""What kind of failure an attempt met, and how far it reaches.

Values only. Which exception means which kind is decided in `policies/classify.py`; what follows
from a kind is decided by routers, pools and quotas.
"""

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Why an attempt failed, by what a router can do about it."""

    RATE_LIMITED = "rate_limited"  #: Too many requests or tokens; passes by waiting.
    QUOTA_EXHAUSTED = "quota_exhausted"  #: Money or plan used up; waiting does not help.
    OVERLOADED = "overloaded"  #: The provider has no capacity for anybody.
    SERVER_ERROR = "server_error"  #: The provider failed, or answered what cannot be read.
    TIMEOUT = "timeout"  #: No answer in time, the provider's or our own limit.
    CONNECTION = "connection"  #: No connection, or it broke, also inside a stream.
    LOCAL_SATURATION = "local_saturation"  #: Our own connection pool is full.
    AUTHENTICATION = "authentication"  #: The credential was refused.
    PERMISSION = "permission"  #: The credential may not do this here.
    NOT_FOUND = "not_found"  #: No such model or deployment.
    INVALID_REQUEST = "invalid_request"  #: The request itself is wrong, everywhere.
    UNSUPPORTED = "unsupported"  #: This client cannot carry an option or content; another may.
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"  #: Longer than this model's window.
    PAYLOAD_TOO_LARGE = "payload_too_large"  #: More bytes than this provider takes.
    CONTENT_FILTERED = "content_filtered"  #: Refused by a content policy.
    CONFLICT = "conflict"  #: A resource was locked or changed by somebody else.
    STATE_LOST = "state_lost"  #: A conversation or item id the provider does not know.
    REASONING_INVALID = "reasoning_invalid"  #: Replayed reasoning was not accepted.
    REFUSED_LOCALLY = "refused_locally"  #: No provider was asked: quota, breaker, no endpoint.
    CONFIGURATION = "configuration"  #: The stack is built wrongly.
    CANCELLED = "cancelled"  #: The caller gave up.
    UNKNOWN = "unknown"  #: An exception that says nothing about a provider.


class FailureScope(StrEnum):
    """What a failure says something about."""

    REQUEST = "request"  #: This request only; the health of the target is untouched.
    CREDENTIAL = "credential"  #: Everything that uses the same key or account.
    DEPLOYMENT = "deployment"  #: This model at this endpoint.
    PROVIDER = "provider"  #: The whole provider or the way to it.
    LOCAL = "local"  #: This process; nobody's health.


_SCOPES = {
    FailureKind.RATE_LIMITED: FailureScope.DEPLOYMENT,
    FailureKind.QUOTA_EXHAUSTED: FailureScope.CREDENTIAL,
    FailureKind.OVERLOADED: FailureScope.DEPLOYMENT,
    FailureKind.SERVER_ERROR: FailureScope.DEPLOYMENT,
    FailureKind.TIMEOUT: FailureScope.DEPLOYMENT,
    FailureKind.CONNECTION: FailureScope.PROVIDER,
    FailureKind.LOCAL_SATURATION: FailureScope.LOCAL,
    FailureKind.AUTHENTICATION: FailureScope.CREDENTIAL,
    FailureKind.PERMISSION: FailureScope.CREDENTIAL,
    FailureKind.NOT_FOUND: FailureScope.DEPLOYMENT,
    FailureKind.REFUSED_LOCALLY: FailureScope.LOCAL,
    FailureKind.CONFIGURATION: FailureScope.LOCAL,
    FailureKind.CANCELLED: FailureScope.LOCAL,
    FailureKind.UNKNOWN: FailureScope.LOCAL,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure, classified.

    Attributes:
        kind: Why the attempt failed.
        scope: What the failure says something about.
        retry_after: Seconds after which the provider, or the part that refused, says to come
            back. None if nothing was said; never negative.
    """

    kind: FailureKind
    scope: FailureScope
    retry_after: float | None = None

    @classmethod
    def of(cls, kind: FailureKind, retry_after: float | None = None) -> "Failure":
        """Make a failure with the scope that its kind usually has."""
        if retry_after is None:
            return _PLAIN[kind]
        return cls(kind, _SCOPES.get(kind, FailureScope.REQUEST), retry_after)


#: Values, so one of each will do: making one takes as long as the whole judgement.
_PLAIN = {kind: Failure(kind, _SCOPES.get(kind, FailureScope.REQUEST)) for kind in FailureKind}
