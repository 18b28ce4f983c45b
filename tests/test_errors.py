"""The exceptions: their tree, their fields, and that they travel."""

import copy
import pickle
from collections.abc import Iterator

import pytest

from chatrouting import errors
from chatrouting.errors import (
    APIStatusError,
    AttemptTimeoutError,
    ChatClientError,
    ChatRoutingError,
    ConfigurationError,
    NoClientSelectedError,
    PoolConfigError,
    RateLimitError,
    RefusedLocallyError,
    RequestTimeoutError,
    StreamClosedError,
)
from chatrouting.failure import Failure, FailureKind, FailureScope

CLIENT_FIELDS: dict[str, object] = {
    "kind": FailureKind.OVERLOADED,
    "provider": "openai",
    "model": "gpt-x",
    "status_code": 429,
    "code": "rate_limit_exceeded",
    "request_id": "req_1",
    "retry_after": 2.5,
    "rate_limit_headers": {"retry-after": "2.5"},
}
POOL_FIELDS: dict[str, object] = {"problems": ("a variable: it is empty",)}
REFUSAL_FIELDS: dict[str, object] = {"retry_after": 2.5, "fallback_allowed": False}


def tree(root: type[BaseException]) -> Iterator[type[BaseException]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


ALL = list(tree(ChatRoutingError))


def fields_of(kind: type[BaseException]) -> dict[str, object]:
    if issubclass(kind, ChatClientError):
        return CLIENT_FIELDS
    if issubclass(kind, PoolConfigError):
        return POOL_FIELDS
    return REFUSAL_FIELDS if issubclass(kind, RefusedLocallyError) else {}


def test_the_tree_is_the_one_that_the_module_draws():
    """Names, order of nesting and built-in bases."""
    drawn = set()
    above = []
    for line in (errors.__doc__ or "").splitlines():
        words = line.replace("(", " ").replace(")", " ").split()
        depth = (len(line) - len(line.lstrip())) // 2 - 2
        if depth < 0 or not words:
            continue
        del above[depth:]
        if above:
            drawn.add((words[0], above[-1]))
        drawn |= {(words[0], each) for each in words[1:] if each in BUILT_IN}
        above.append(words[0])
    real = {(kind.__name__, base.__name__) for kind in ALL for base in kind.__bases__}
    assert drawn == real - {("ChatRoutingError", "Exception")}


BUILT_IN = {"RuntimeError", "TimeoutError", "ValueError"}


def test_every_error_is_public():
    assert {kind.__name__ for kind in ALL} == set(errors.__all__)


@pytest.mark.parametrize("kind", ALL)
def test_an_error_is_its_message(kind):
    assert str(kind("what happened")) == "what happened"
    assert str(kind()) == ""


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("copied", [lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy])  # noqa: S301
def test_an_error_travels_with_its_fields_and_notes(kind, copied):
    fields = fields_of(kind)
    error = kind("what happened", **fields)
    error.add_note("route 'gpt': overloaded")
    twin = copied(error)
    assert type(twin) is kind
    assert twin.args == ("what happened",)
    assert {name: getattr(twin, name) for name in fields} == fields
    assert twin.__notes__ == ["route 'gpt': overloaded"]


@pytest.mark.parametrize("kind", [each for each in ALL if fields_of(each)])
def test_fields_that_are_not_given_are_none(kind):
    error = kind("what happened")
    others = set(fields_of(kind)) - {"kind"}
    assert {getattr(error, name) for name in others} == {None}


KINDS = {
    "ChatClientError": FailureKind.UNKNOWN,
    "APIConnectionError": FailureKind.CONNECTION,
    "APITimeoutError": FailureKind.TIMEOUT,
    "APIStatusError": FailureKind.INVALID_REQUEST,
    "BadRequestError": FailureKind.INVALID_REQUEST,
    "ContextLengthExceededError": FailureKind.CONTEXT_LENGTH_EXCEEDED,
    "ContentFilteredError": FailureKind.CONTENT_FILTERED,
    "UnsupportedOptionError": FailureKind.UNSUPPORTED,
    "AuthenticationError": FailureKind.AUTHENTICATION,
    "PermissionDeniedError": FailureKind.PERMISSION,
    "NotFoundError": FailureKind.NOT_FOUND,
    "ConflictError": FailureKind.CONFLICT,
    "RequestTooLargeError": FailureKind.PAYLOAD_TOO_LARGE,
    "RateLimitError": FailureKind.RATE_LIMITED,
    "InsufficientQuotaError": FailureKind.QUOTA_EXHAUSTED,
    "InternalServerError": FailureKind.SERVER_ERROR,
    "OverloadedError": FailureKind.OVERLOADED,
    "ResponseValidationError": FailureKind.SERVER_ERROR,
    "StreamInterruptedError": FailureKind.CONNECTION,
    "AttemptTimeoutError": FailureKind.TIMEOUT,
    "FirstOutputTimeoutError": FailureKind.TIMEOUT,
    "StallTimeoutError": FailureKind.TIMEOUT,
    "RequestTimeoutError": FailureKind.TIMEOUT,
}


def test_the_class_says_the_kind_unless_told_otherwise():
    classes = list(tree(ChatClientError))
    assert {kind.__name__: kind("").kind for kind in classes} == KINDS
    assert RateLimitError("", kind=FailureKind.OVERLOADED).kind is FailureKind.OVERLOADED
    assert RateLimitError("").kind is FailureKind.RATE_LIMITED


@pytest.mark.parametrize(
    ("error", "built_in"),
    [
        (ConfigurationError, ValueError),
        (StreamClosedError, RuntimeError),
        (NoClientSelectedError, RuntimeError),
        (AttemptTimeoutError, TimeoutError),
        (RequestTimeoutError, TimeoutError),
    ],
)
def test_python_words_work_where_python_has_one(error, built_in):
    with pytest.raises(built_in):
        raise error("what happened")


def test_an_attempt_that_timed_out_is_no_status():
    assert not issubclass(AttemptTimeoutError, APIStatusError)


# Kinds and scopes.


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_has_a_usual_scope(kind):
    failure = Failure.of(kind, 2.0)
    assert (failure.kind, failure.retry_after) == (kind, 2.0)
    assert failure.scope in FailureScope


@pytest.mark.parametrize(
    ("kind", "scope"),
    [
        (FailureKind.INVALID_REQUEST, FailureScope.REQUEST),
        (FailureKind.CONTENT_FILTERED, FailureScope.REQUEST),
        (FailureKind.AUTHENTICATION, FailureScope.CREDENTIAL),
        (FailureKind.RATE_LIMITED, FailureScope.DEPLOYMENT),
        (FailureKind.CONNECTION, FailureScope.PROVIDER),
        (FailureKind.REFUSED_LOCALLY, FailureScope.LOCAL),
    ],
)
def test_what_is_wrong_with_a_request_touches_nobodys_health(kind, scope):
    assert Failure.of(kind).scope is scope
