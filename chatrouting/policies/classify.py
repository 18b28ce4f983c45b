"""From an exception, or from what a provider answered, to a kind of failure.

The rules are tables. Evidence counts in this order: the provider's code, its type, the HTTP status,
and last the words of its message, which only refine what the status leaves general. Codes are open
sets: an unknown refusal is about the request, an unknown 5xx about the server.
"""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from chatrouting.errors import (
    ChatClientError,
    ConfigurationError,
    LocalSaturationError,
    RefusedLocallyError,
)
from chatrouting.failure import Failure, FailureKind
from chatrouting.policies._tables import (
    BROAD_WORDS,
    KIND_BY_CLASS,
    KIND_BY_STATUS,
    KIND_BY_WORD,
    MAY_PASS,
    NETWORK_LIBRARIES,
    OTHER_TARGETS_DIFFER,
    PHRASES,
)
from chatrouting.policies.error_body import ErrorFacts, read_error_body
from chatrouting.policies.retry_after import parse_http_date, parse_retry_after

if TYPE_CHECKING:
    from chatrouting.attempt import RoutingAttempt

_CLIENT_ERRORS: Final = 400
_SERVER_ERRORS: Final = 500


def classify_response(
    *, status: int | None, code: str | None, type: str | None, message: str
) -> FailureKind:
    """Say what kind of failure an error answer is.

    Args:
        status: HTTP status; None or 200 for an error inside a stream.
        code: The provider's code, a word. A number is taken as a status where there is none.
        type: The provider's type.
        message: The provider's words.
    """
    words = [word.lower() for word in (code, type) if word]
    if status is None or status < _CLIENT_ERRORS:
        status = next((int(word) for word in words if _is_status(word)), None)
    known = [KIND_BY_WORD[word] for word in words if word in KIND_BY_WORD]
    if FailureKind.QUOTA_EXHAUSTED in known:
        # A plan used up also comes as a rate limit, by type or by code.
        return FailureKind.QUOTA_EXHAUSTED
    if known:
        return _refined(known[0], message)
    return _refined(_by_status(status, words), message)


def _is_status(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) == len("429")


def _by_status(status: int | None, words: list[str]) -> FailureKind:
    if status in KIND_BY_STATUS:
        return KIND_BY_STATUS[status]
    if status is not None and status >= _SERVER_ERRORS:
        return FailureKind.SERVER_ERROR
    if status is not None and status >= _CLIENT_ERRORS:
        return FailureKind.INVALID_REQUEST
    # An error without a status came inside a stream: what is not about the request is the server's.
    return next(
        (BROAD_WORDS[word] for word in words if word in BROAD_WORDS), FailureKind.SERVER_ERROR
    )


def _refined(kind: FailureKind, message: str) -> FailureKind:
    lower = message.lower()
    for general, pattern, special in PHRASES:
        if kind in general and pattern.search(lower):
            return special
    return kind


def classify(error: BaseException) -> Failure:
    """Say what kind of failure an exception is. Never raises.

    Errors of this library say it themselves. Others are read by what they carry: a status, a body
    and headers as the SDKs' errors do, the network libraries' classes, also as causes. What tells
    nothing of a provider, a bug above all, is `UNKNOWN`.
    """
    error = _unwrap(error)
    own = _own(error)
    if own is not None:
        return own
    try:
        return _foreign(error)
    except Exception:  # noqa: BLE001  # a foreign object's property may raise anything
        return Failure.of(FailureKind.UNKNOWN)


def failover_by_kind(context: object, attempt: "RoutingAttempt") -> bool:
    """Move on only where another target can differ; a ready-made `should_failover`.

    Not for a request that is wrong everywhere or refused for what it says, and not for a failure
    that says nothing about a provider.
    """
    failure = attempt.failure
    if failure is None:
        return False
    if failure.kind is FailureKind.CONFLICT:
        options = getattr(context, "options", None)
        return getattr(options, "conversation_id", None) is None
    return failure.kind in OTHER_TARGETS_DIFFER


def retry_by_kind(context: object, attempt: "RoutingAttempt") -> bool:  # noqa: ARG001  # as above
    """Ask the same client again only after a failure that may pass by itself."""
    return attempt.failure is not None and attempt.failure.kind in MAY_PASS


def _unwrap(error: BaseException) -> BaseException:
    """Take a single exception out of its group; several tell nothing in common."""
    if _is_group(error) and len(error.exceptions) == 1:
        return _unwrap(error.exceptions[0])
    return error


def _is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)


def _own(error: BaseException) -> Failure | None:
    if isinstance(error, ChatClientError):
        return Failure.of(error.kind, _hint(error.retry_after))
    if isinstance(error, LocalSaturationError):
        return Failure.of(FailureKind.LOCAL_SATURATION, _hint(error.retry_after))
    if isinstance(error, RefusedLocallyError):
        return Failure.of(FailureKind.REFUSED_LOCALLY, _hint(error.retry_after))
    if isinstance(error, ConfigurationError):
        return Failure.of(FailureKind.CONFIGURATION)
    if not isinstance(error, Exception):
        cancelled = type(error).__name__ in ("CancelledError", "Cancelled")
        return Failure.of(FailureKind.CANCELLED if cancelled else FailureKind.UNKNOWN)
    return None


def _hint(seconds: float | None) -> float | None:
    """Take what an error of ours says for nothing where it is no time to come, as in a header."""
    return seconds if seconds is not None and 0 <= seconds < math.inf else None


def _foreign(error: BaseException) -> Failure:
    if any(kind is FailureKind.LOCAL_SATURATION for kind in _kinds_of_chain(error)):
        return Failure.of(FailureKind.LOCAL_SATURATION)
    answered = _answered(error)
    if answered is not None:
        return answered
    return Failure.of(next(_kinds_of_chain(error), FailureKind.UNKNOWN))


def _answered(error: BaseException) -> Failure | None:
    """Classify an exception that carries a provider's answer, as the SDKs' errors do."""
    facts = read_error_body(getattr(error, "body", None))
    status = _int(getattr(error, "status_code", None)) or _int(getattr(error, "status", None))
    code = getattr(error, "code", None)
    status = status or _int(code) or facts.status
    if status is None and facts == ErrorFacts():
        return None
    kind = classify_response(
        status=status,
        code=facts.code or (code if isinstance(code, str) else None),
        type=facts.type,
        message=facts.message or str(error),
    )
    headers = getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(headers, Mapping):
        return Failure.of(kind)
    return Failure.of(kind, _retry_after(cast("Mapping[str, str]", headers)))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    # Measured from the answer's own date: this function has no clock, and theirs is the right one.
    sent = headers.get("date") or headers.get("Date")
    return parse_retry_after(headers, now=parse_http_date(sent) if sent else None)


def _int(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= 100 else None  # noqa: PLR2004  # the least HTTP status


def _kinds_of_chain(error: BaseException) -> Iterator[FailureKind]:
    """Kinds that the classes of an exception and of its causes tell, the outermost first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        kind = _kind_of_class(current)
        if kind is not None:
            yield kind
        current = current.__cause__


def _kind_of_class(error: BaseException) -> FailureKind | None:
    for base in type(error).__mro__:
        if base.__module__.partition(".")[0] in NETWORK_LIBRARIES:
            kind = KIND_BY_CLASS.get(base.__name__)
            if kind is not None:
                return kind
    if isinstance(error, TimeoutError):
        return FailureKind.TIMEOUT
    # Errors of the file system carry a file name; the rest of OSError is sockets, DNS and TLS.
    if isinstance(error, OSError) and error.filename is None:
        return FailureKind.CONNECTION
    return None
