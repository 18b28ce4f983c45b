"""From an SDK's exceptions and a provider's error answers to errors of ours."""

import pickle

import anthropic
import httpx2
import openai
import pytest
from openai._exceptions import SubjectTokenProviderError

from chatrouting.adapters._errors import Errors
from chatrouting.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    ChatClientError,
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
    UnsupportedOptionError,
)
from chatrouting.failure import FailureKind

ERRORS = Errors("openai", "gpt-x")
SECRET = "sk-verysecretverysecret"  # noqa: S105  # a made-up key to look for
PROMPT = "the prompt that nobody may see"


@pytest.mark.parametrize(
    ("status", "body", "error_class", "kind"),
    [
        (400, {"error": {}}, BadRequestError, FailureKind.INVALID_REQUEST),
        (422, {"detail": []}, BadRequestError, FailureKind.INVALID_REQUEST),
        (418, None, APIStatusError, FailureKind.INVALID_REQUEST),
        (
            400,
            {"error": {"code": "context_length_exceeded"}},
            ContextLengthExceededError,
            FailureKind.CONTEXT_LENGTH_EXCEEDED,
        ),
        (
            400,
            {"error": {"code": "content_filter"}},
            ContentFilteredError,
            FailureKind.CONTENT_FILTERED,
        ),
        (
            400,
            {"error": {"code": "unsupported_parameter"}},
            UnsupportedOptionError,
            FailureKind.UNSUPPORTED,
        ),
        (401, None, AuthenticationError, FailureKind.AUTHENTICATION),
        (402, None, InsufficientQuotaError, FailureKind.QUOTA_EXHAUSTED),
        (403, None, PermissionDeniedError, FailureKind.PERMISSION),
        (404, None, NotFoundError, FailureKind.NOT_FOUND),
        (408, None, APIStatusError, FailureKind.TIMEOUT),
        (409, None, ConflictError, FailureKind.CONFLICT),
        (413, None, RequestTooLargeError, FailureKind.PAYLOAD_TOO_LARGE),
        (429, None, RateLimitError, FailureKind.RATE_LIMITED),
        (
            429,
            {"error": {"type": "insufficient_quota"}},
            InsufficientQuotaError,
            FailureKind.QUOTA_EXHAUSTED,
        ),
        (500, None, InternalServerError, FailureKind.SERVER_ERROR),
        (502, "<html>", InternalServerError, FailureKind.SERVER_ERROR),
        (503, None, OverloadedError, FailureKind.OVERLOADED),
        (504, None, InternalServerError, FailureKind.TIMEOUT),
        (529, None, OverloadedError, FailureKind.OVERLOADED),
        (200, {"error": {"code": 502}}, InternalServerError, FailureKind.SERVER_ERROR),
        (200, {"error": {"type": "overloaded_error"}}, OverloadedError, FailureKind.OVERLOADED),
        (
            200,
            {"error": {"type": "invalid_request_error"}},
            BadRequestError,
            FailureKind.INVALID_REQUEST,
        ),
    ],
)
def test_an_error_answer_becomes_the_class_of_its_kind(status, body, error_class, kind):
    """[BR-13] The kind is read from the body first, then from the status; the class follows it."""
    error = ERRORS.of_answer(status=status, headers={}, body=body)
    assert type(error) is error_class
    assert error.kind is kind
    assert error.status_code == status


def test_an_error_says_what_a_router_decides_by():
    headers = httpx2.Headers(
        {"X-Request-Id": "req-1", "Retry-After": "2", "X-RateLimit-Remaining-Requests": "0"}
    )
    body = {"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}
    error = ERRORS.of_answer(status=429, headers=headers, body=body)
    assert str(error) == "openai model 'gpt-x' answered 429 (rate_limit_exceeded): Slow down"
    assert (error.provider, error.model) == ("openai", "gpt-x")
    assert (error.code, error.request_id) == ("rate_limit_exceeded", "req-1")
    assert error.retry_after == 2.0
    assert error.rate_limit_headers == {
        "retry-after": "2",
        "x-ratelimit-remaining-requests": "0",
    }


def test_an_error_without_an_error_status_says_so():
    inside = ERRORS.of_answer(status=200, headers={}, body={"error": {"code": "x"}})
    assert str(inside) == "openai model 'gpt-x' sent an error as its answer (x)"
    redirect = ERRORS.of_answer(status=302, headers={}, body="")
    assert str(redirect) == "openai model 'gpt-x' answered 302"


def test_a_hint_in_the_words_of_a_rate_limit_is_the_last_resort():
    body = {"error": {"message": "Please try again in 1.5s."}}
    assert ERRORS.of_answer(status=429, headers={}, body=body).retry_after == 1.5
    assert ERRORS.of_answer(status=400, headers={}, body=body).retry_after is None


def request() -> httpx2.Request:
    return httpx2.Request(
        "POST",
        "https://api.example/v1/chat/completions",
        headers={"Authorization": f"Bearer {SECRET}"},
        json={"messages": [{"role": "user", "content": PROMPT}]},
    )


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        pytest.param(openai.APITimeoutError(request()), APITimeoutError, id="timeout"),
        pytest.param(
            caused(openai.APITimeoutError(request()), httpx2.PoolTimeout("x")),
            LocalSaturationError,
            id="no free connection",
        ),
        pytest.param(
            openai.APIConnectionError(request=request()), APIConnectionError, id="connection"
        ),
        pytest.param(httpx2.ReadTimeout("x"), APITimeoutError, id="raw timeout"),
        pytest.param(httpx2.ReadError("x"), APIConnectionError, id="raw cut"),
        pytest.param(
            openai.APIError("x", request(), body={"type": "overloaded_error"}),
            OverloadedError,
            id="error event",
        ),
        pytest.param(
            openai.APIResponseValidationError(
                httpx2.Response(200, request=request()), body=None, message="x"
            ),
            ResponseValidationError,
            id="validation",
        ),
        pytest.param(
            anthropic.APIStatusError(
                "x",
                response=httpx2.Response(200, request=request()),
                body={"type": "error", "error": {"type": "rate_limit_error", "message": "m"}},
            ),
            RateLimitError,
            id="Anthropic's error event",
        ),
        pytest.param(SubjectTokenProviderError("no token"), AuthenticationError, id="credential"),
    ],
)
def test_exceptions_of_the_sdks_are_read_by_what_they_carry(error, error_class):
    """The error trees of both SDKs, raw exceptions of the HTTP library, and a full local pool."""
    assert type(ERRORS.of_exception(error)) is error_class


def test_an_exception_of_somebody_else_is_not_translated():
    assert ERRORS.of_exception(KeyError("x")) is None


def test_what_is_translated_keeps_its_cause_and_what_is_not_goes_through():
    sdk_error = openai.APITimeoutError(request())
    with pytest.raises(APITimeoutError) as caught, ERRORS.translating():
        raise sdk_error
    assert caught.value.__cause__ is sdk_error
    foreign = KeyError("x")
    with pytest.raises(KeyError) as passed, ERRORS.translating():
        raise foreign
    assert passed.value is foreign
    ours = RateLimitError("x")
    with pytest.raises(RateLimitError) as same, ERRORS.translating():
        raise ours
    assert same.value is ours


@pytest.mark.parametrize(
    "error",
    [
        ERRORS.of_answer(status=429, headers={"retry-after": "2"}, body={"error": {"code": "x"}}),
        ERRORS.interrupted("broke off", kind=FailureKind.TIMEOUT),
        ERRORS.unreadable("an HTML page", headers={"x-request-id": "r"}),
    ],
)
def test_errors_pickle_with_their_fields(error):
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    assert isinstance(copy, ChatClientError)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)
