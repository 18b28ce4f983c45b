"""From answers and exceptions to kinds of failure."""

import socket
import ssl
from typing import get_args

import anthropic
import anyio
import httpx2
import openai
import pytest
from openai.types.responses import ResponseError

from chatrouting.attempt import RoutingAttempt
from chatrouting.errors import (
    ClientClosedError,
    ConfigurationError,
    LocalSaturationError,
    OverloadedError,
    QuotaExceededError,
    RateLimitError,
    StallTimeoutError,
    StreamInterruptedError,
)
from chatrouting.failure import Failure, FailureKind, FailureScope
from chatrouting.options import ChatOptions
from chatrouting.policies.classify import classify, classify_response, failover_by_kind

K = FailureKind


@pytest.mark.parametrize(
    ("status", "code", "type", "message", "kind"),
    [
        (429, "rate_limit_exceeded", "requests", "", K.RATE_LIMITED),
        (429, None, "rate_limit_error", "", K.RATE_LIMITED),
        (429, None, None, "<html>", K.RATE_LIMITED),
        (200, "rate_limit_exceeded", None, "", K.RATE_LIMITED),
        (429, "insufficient_quota", "insufficient_quota", "", K.QUOTA_EXHAUSTED),
        (429, "rate_limit_exceeded", "insufficient_quota", "", K.QUOTA_EXHAUSTED),
        (429, None, None, "You exceeded your current quota", K.QUOTA_EXHAUSTED),
        (429, "enforced_spend_limit_reached", "rate_limit_error", "", K.QUOTA_EXHAUSTED),
        (402, None, None, "", K.QUOTA_EXHAUSTED),
        (
            400,
            None,
            "invalid_request_error",
            "Your credit balance is too low",
            K.QUOTA_EXHAUSTED,
        ),
        (529, None, "overloaded_error", "", K.OVERLOADED),
        (200, None, "overloaded_error", "", K.OVERLOADED),
        (503, None, None, "", K.OVERLOADED),
        (500, None, "server_error", "The engine is currently overloaded", K.OVERLOADED),
        (200, None, "ThrottlingException", "", K.OVERLOADED),
        (500, None, "api_error", "", K.SERVER_ERROR),
        (502, None, None, "<html>", K.SERVER_ERROR),
        (599, "brand_new_code", None, "", K.SERVER_ERROR),
        (None, "server_error", None, "", K.SERVER_ERROR),
        (None, None, None, "", K.SERVER_ERROR),
        (200, "502", None, "", K.SERVER_ERROR),
        (200, "429", None, "", K.RATE_LIMITED),
        (504, None, None, "", K.TIMEOUT),
        (408, None, None, "", K.TIMEOUT),
        (None, None, "timeout_error", "", K.TIMEOUT),
        (401, "invalid_api_key", "invalid_request_error", "", K.AUTHENTICATION),
        (401, None, None, "", K.AUTHENTICATION),
        (403, None, "permission_error", "", K.PERMISSION),
        (400, "organization_on_hold", "invalid_request_error", "", K.PERMISSION),
        (404, "model_not_found", "invalid_request_error", "", K.NOT_FOUND),
        (404, "DeploymentNotFound", None, "", K.NOT_FOUND),
        (404, None, None, "model 'x' not found", K.NOT_FOUND),
        (400, None, "invalid_request_error", "", K.INVALID_REQUEST),
        (422, "string_above_max_length", None, "", K.INVALID_REQUEST),
        (418, "brand_new_code", None, "", K.INVALID_REQUEST),
        (None, None, "invalid_request_error", "", K.INVALID_REQUEST),
        (400, "unsupported_parameter", "invalid_request_error", "", K.UNSUPPORTED),
        (400, "context_length_exceeded", None, "", K.CONTEXT_LENGTH_EXCEEDED),
        (400, None, "invalid_request_error", "prompt is too long", K.CONTEXT_LENGTH_EXCEEDED),
        (400, None, "BadRequestError", "maximum context length is", K.CONTEXT_LENGTH_EXCEEDED),
        (400, None, "exceed_context_size_error", "", K.CONTEXT_LENGTH_EXCEEDED),
        (400, "tool_use_failed", "invalid_request_error", "", K.SERVER_ERROR),
        (200, "vector_store_timeout", None, "", K.TIMEOUT),
        (200, "data_residency_mismatch", None, "", K.PERMISSION),
        (200, "unsupported_image_media_type", None, "", K.UNSUPPORTED),
        (200, "image_content_policy_violation", None, "", K.CONTENT_FILTERED),
        *(
            (200, code, None, "", K.INVALID_REQUEST)
            for code in (
                *("invalid_image", "invalid_image_format", "invalid_image_mode"),
                *("invalid_image_url", "invalid_base64_image", "image_too_small"),
                *("image_parse_error", "image_file_not_found", "empty_image_file"),
                "failed_to_download_image",
            )
        ),
        (400, "content_filter", None, "", K.CONTENT_FILTERED),
        (400, "ResponsibleAIPolicyViolation", None, "", K.CONTENT_FILTERED),
        (400, None, None, "Azure OpenAI's content management policy", K.CONTENT_FILTERED),
        (409, None, "conflict_error", "", K.CONFLICT),
        (413, None, "request_too_large", "", K.PAYLOAD_TOO_LARGE),
        (413, None, None, "", K.PAYLOAD_TOO_LARGE),
        (404, None, "invalid_request_error", "Previous response with id 'x'", K.STATE_LOST),
        (400, None, None, "bad previous_response_id", K.STATE_LOST),
        (400, None, None, "Invalid `signature` in `thinking` block", K.REASONING_INVALID),
        (
            400,
            None,
            None,
            "The encrypted content for item x could not be verified",
            K.REASONING_INVALID,
        ),
        (400, "invalid_encrypted_content", None, "", K.REASONING_INVALID),
    ],
)
def test_each_row_of_the_classification_table_holds(status, code, type, message, kind):
    """[BR-13] Code, then type, then status, then words; unknown 4xx and 5xx have a home."""
    assert classify_response(status=status, code=code, type=type, message=message) is kind


def test_every_code_of_a_failed_response_is_known():
    """Those that the SDK lists; what it does not list is taken for the server's failure."""
    codes = get_args(ResponseError.model_fields["code"].annotation)
    kinds = {
        code: classify_response(status=200, code=code, type=None, message="") for code in codes
    }
    assert [code for code, kind in kinds.items() if kind is K.SERVER_ERROR] == ["server_error"]


def request() -> httpx2.Request:
    return httpx2.Request("POST", "https://api.example/v1/chat/completions")


def openai_error(status: int, body: object, headers: dict[str, str] | None = None) -> Exception:
    response = httpx2.Response(status, headers=headers, request=request())
    return openai.APIStatusError("words", response=response, body=body)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(OverloadedError("x"), K.OVERLOADED, id="ours"),
        pytest.param(StreamInterruptedError("x", kind=K.TIMEOUT), K.TIMEOUT, id="ours, kind given"),
        pytest.param(StallTimeoutError("x"), K.TIMEOUT, id="our timer"),
        pytest.param(QuotaExceededError("x"), K.REFUSED_LOCALLY, id="refusal"),
        pytest.param(LocalSaturationError("x"), K.LOCAL_SATURATION, id="saturation"),
        pytest.param(ConfigurationError("x"), K.CONFIGURATION, id="configuration"),
        pytest.param(ClientClosedError("x"), K.UNKNOWN, id="closed"),
        pytest.param(
            openai_error(429, {"code": "insufficient_quota"}), K.QUOTA_EXHAUSTED, id="SDK"
        ),
        pytest.param(openai_error(503, "<html>"), K.OVERLOADED, id="SDK, HTML"),
        pytest.param(
            openai.APIError("x", request(), body={"type": "overloaded_error"}),
            K.OVERLOADED,
            id="SDK, inside a stream",
        ),
        pytest.param(
            anthropic.APIStatusError(
                "x",
                response=httpx2.Response(200, request=request()),
                body={"type": "error", "error": {"type": "overloaded_error", "message": "m"}},
            ),
            K.OVERLOADED,
            id="Anthropic SDK, inside a stream",
        ),
        pytest.param(openai.APITimeoutError(request()), K.TIMEOUT, id="SDK timeout"),
        pytest.param(
            caused(openai.APITimeoutError(request()), httpx2.PoolTimeout("x")),
            K.LOCAL_SATURATION,
            id="SDK timeout for want of a connection",
        ),
        pytest.param(
            openai.APIConnectionError(request=request()), K.CONNECTION, id="SDK connection"
        ),
        pytest.param(httpx2.ReadTimeout("x"), K.TIMEOUT, id="raw read timeout"),
        pytest.param(httpx2.RemoteProtocolError("x"), K.CONNECTION, id="raw cut"),
        pytest.param(anyio.EndOfStream(), K.CONNECTION, id="end of stream"),
        pytest.param(TimeoutError(), K.TIMEOUT, id="TimeoutError"),
        pytest.param(ConnectionResetError(), K.CONNECTION, id="reset"),
        pytest.param(socket.gaierror(-2, "unknown host"), K.CONNECTION, id="DNS"),
        pytest.param(ssl.SSLError("x"), K.CONNECTION, id="TLS"),
        pytest.param(FileNotFoundError(2, "x", "name"), K.UNKNOWN, id="file system"),
        pytest.param(KeyError("x"), K.UNKNOWN, id="a bug"),
        pytest.param(
            caused(KeyError("x"), ConnectionResetError()), K.CONNECTION, id="a network cause"
        ),
        pytest.param(
            ExceptionGroup("g", [ExceptionGroup("h", [OverloadedError("x")])]),
            K.OVERLOADED,
            id="group of one",
        ),
        pytest.param(
            ExceptionGroup("g", [OverloadedError("x"), KeyError("y")]), K.UNKNOWN, id="group of two"
        ),
        pytest.param(KeyboardInterrupt(), K.UNKNOWN, id="interrupt"),
    ],
)
def test_exceptions_are_classified_by_what_they_are(error, kind):
    """[BR-40] By type and by what an error carries, never by its text alone."""
    assert classify(error).kind is kind


async def test_cancellation_is_its_own_kind(anyio_backend):
    caught: list[BaseException] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class() as error:
            caught.append(error)
            raise
    assert classify(caught[0]) == Failure(K.CANCELLED, FailureScope.LOCAL)


def test_waiting_time_comes_along():
    assert classify(RateLimitError("x", retry_after=3.0)).retry_after == 3.0
    assert classify(QuotaExceededError("x", retry_after=4.0)).retry_after == 4.0
    assert classify(openai_error(429, None, {"retry-after": "5"})).retry_after == 5.0


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("error_class", [RateLimitError, QuotaExceededError, LocalSaturationError])
def test_a_waiting_time_that_is_none_is_left_out(error_class, seconds):
    assert classify(error_class("x", retry_after=seconds)).retry_after is None


def test_a_date_is_measured_from_the_answers_own_date():
    headers = {
        "date": "Tue, 01 Dec 2026 12:00:00 GMT",
        "retry-after": "Tue, 01 Dec 2026 12:00:30 GMT",
    }
    assert classify(openai_error(429, None, headers)).retry_after == 30.0
    del headers["date"]
    assert classify(openai_error(429, None, headers)).retry_after is None


def test_a_hostile_exception_is_unknown():
    class HostileError(Exception):
        @property
        def body(self) -> object:
            raise RuntimeError("no")

    assert classify(HostileError()).kind is K.UNKNOWN


def test_a_loop_of_causes_ends():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(first).kind is K.UNKNOWN


class Context:
    """What the predicate looks at of a routing context."""

    def __init__(self, conversation_id: str | None = None) -> None:
        self.options = ChatOptions(conversation_id=conversation_id)


def attempt(kind: FailureKind) -> RoutingAttempt:
    return RoutingAttempt(exception=ValueError("x"), failure=Failure.of(kind))


STAYS = {
    K.INVALID_REQUEST,
    K.CONTENT_FILTERED,
    K.STATE_LOST,
    K.LOCAL_SATURATION,
    K.CONFIGURATION,
    K.CANCELLED,
    K.UNKNOWN,
}


@pytest.mark.parametrize("kind", list(FailureKind))
def test_failover_by_kind_moves_only_where_another_target_can_differ(kind):
    """[BR-32] [BR-34] The column "other" of the classification table."""
    assert failover_by_kind(Context(), attempt(kind)) is (kind not in STAYS)


def test_a_conflict_moves_only_without_a_conversation_of_the_provider():
    assert not failover_by_kind(Context("conv"), attempt(K.CONFLICT))


def test_an_attempt_without_a_failure_does_not_move():
    assert not failover_by_kind(Context(), RoutingAttempt(response_completed=False))
