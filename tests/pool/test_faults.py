"""What a failure says about the member that was asked."""

import anyio
import pytest

from chatrouting.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AttemptTimeoutError,
    AuthenticationError,
    BadRequestError,
    ChatClientError,
    ConfigurationError,
    ConflictError,
    ContentFilteredError,
    ContextLengthExceededError,
    FirstOutputTimeoutError,
    InsufficientQuotaError,
    InternalServerError,
    LocalSaturationError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    PoolExhaustedError,
    QuotaExceededError,
    RateLimitError,
    RequestTimeoutError,
    RequestTooLargeError,
    ResponseValidationError,
    StreamInterruptedError,
    UnsupportedOptionError,
)
from chatrouting.pool import PoolPolicy, Verdict

NEUTRAL, THROTTLED = Verdict.NEUTRAL, Verdict.THROTTLED
TRANSIENT, MEMBER = Verdict.TRANSIENT, Verdict.MEMBER


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (RateLimitError(status_code=429), THROTTLED),
        (InternalServerError(status_code=500), TRANSIENT),
        (InternalServerError(status_code=502), TRANSIENT),
        (OverloadedError(status_code=503), TRANSIENT),
        (APITimeoutError(status_code=504), TRANSIENT),
        (OverloadedError(status_code=529), TRANSIENT),
        (APITimeoutError(status_code=408), TRANSIENT),
        (ConflictError(status_code=409), TRANSIENT),
        (APIStatusError(status_code=425), TRANSIENT),
        (APIConnectionError(), TRANSIENT),
        (APITimeoutError(), TRANSIENT),
        (StreamInterruptedError(), TRANSIENT),
        (ResponseValidationError(status_code=200), TRANSIENT),
        (AttemptTimeoutError(), TRANSIENT),
        (FirstOutputTimeoutError(), TRANSIENT),
        (RuntimeError("of a client of one's own"), TRANSIENT),
        (ConnectionRefusedError(), TRANSIENT),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'status_code', value)}",
)
def test_what_passes_by_itself_lets_a_member_rest(error, verdict):
    """[pools 50] [pools 51] [pools B10] [BR-40]"""
    assert PoolPolicy().classify(error).verdict is verdict


@pytest.mark.parametrize(
    "error",
    [
        BadRequestError(status_code=400),
        BadRequestError(status_code=422),
        ContentFilteredError(status_code=400),
        ContextLengthExceededError(status_code=400),
        RequestTooLargeError(status_code=413),
        UnsupportedOptionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_wrong_request_says_nothing_about_the_member(error):
    """[pools 51] [pools 52] [BR-34]; sglang 25811: an over-long prompt cost a worker its health."""
    assert PoolPolicy().classify(error).verdict is NEUTRAL


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationError(status_code=401),
        PermissionDeniedError(status_code=403),
        NotFoundError(status_code=404),
        InsufficientQuotaError(status_code=429),
        InsufficientQuotaError(status_code=402),
    ],
    ids=lambda error: f"{type(error).__name__}-{error.status_code}",
)
def test_what_a_person_has_to_mend_is_the_members_fault(error):
    """[pools 51] [pools B9]; credit used up also comes as a 429 or a 402 (litellm 16092)."""
    assert PoolPolicy().classify(error).verdict is MEMBER


@pytest.mark.parametrize(
    "error",
    [
        QuotaExceededError(retry_after=3.0),
        PoolExhaustedError(retry_after=3.0),
        LocalSaturationError(),
        ConfigurationError(),
        RequestTimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_happened_on_this_side_says_nothing_about_the_member(error):
    """[BR-37] [BR-38]"""
    assert PoolPolicy().classify(error).verdict is NEUTRAL


async def test_a_cancellation_says_nothing_about_the_member(anyio_backend):
    """[BR-38]"""
    cancelled = anyio.get_cancelled_exc_class()
    error = cancelled() if anyio_backend[0] == "asyncio" else None
    if error is None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await anyio.sleep_forever()
            except cancelled as caught:
                error = caught
                raise
    assert PoolPolicy().classify(error).verdict is NEUTRAL


def test_an_error_inside_a_stream_has_the_status_of_its_kind():
    fault = PoolPolicy().classify(RateLimitError(status_code=200))
    assert (fault.verdict, fault.status) == (THROTTLED, 429)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (RateLimitError(status_code=429), THROTTLED),
        (InsufficientQuotaError(status_code=429), THROTTLED),
        (OverloadedError(status_code=503), TRANSIENT),
        (APIConnectionError(), TRANSIENT),
        (APITimeoutError(), TRANSIENT),
        (OverloadedError(status_code=529), NEUTRAL),
        (APITimeoutError(status_code=408), NEUTRAL),
        (ConflictError(status_code=409), NEUTRAL),
        (InternalServerError(status_code=501), NEUTRAL),
        (AuthenticationError(status_code=401), NEUTRAL),
        (ChatClientError(status_code=400), NEUTRAL),
        (QuotaExceededError(), NEUTRAL),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'status_code', value)}",
)
def test_typeagent_judges_by_status_alone(error, verdict):
    """[pools 50] [pools 51]"""
    assert PoolPolicy.typeagent().classify(error).verdict is verdict
