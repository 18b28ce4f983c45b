"""The words by which providers say what went wrong, as tables.

Data only; `classify.py` says in which order it counts. One table serves all providers, so that a
correction touches no code.
"""

import re
from collections.abc import Mapping
from typing import Final

from chatrouting.failure import FailureKind

_WORDS: Final[Mapping[FailureKind, tuple[str, ...]]] = {
    FailureKind.QUOTA_EXHAUSTED: (
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "enforced_spend_limit_reached",
        "contract_spend_limit_reached",
        "insufficient_balance",
    ),
    FailureKind.CONTEXT_LENGTH_EXCEEDED: (
        "context_length_exceeded",
        "model_context_window_exceeded",
        "exceed_context_size_error",
    ),
    FailureKind.CONTENT_FILTERED: (
        "content_filter",
        "content_policy_violation",
        "responsibleaipolicyviolation",
        "invalid_prompt",
        "bio_policy",
        "cyber_policy",
        "misalignment_policy_violation",
        "moderation_blocked",
        "image_content_policy_violation",
    ),
    FailureKind.RATE_LIMITED: (
        "rate_limit_exceeded",
        "rate_limit_error",
        "ramp_limit_exceeded",
        "ratelimitreached",
        "too_many_requests",
        "resource_exhausted",
        "slow_down",
        "requests",
        "tokens",
    ),
    FailureKind.OVERLOADED: (
        "overloaded_error",
        "overloaded",
        "engine_overloaded",
        "server_overloaded",
        "compaction_unavailable",
        "serviceunavailable",
        "serviceunavailableexception",
        "service_unavailable",
        "throttlingexception",
        "modelnotreadyexception",
        "unavailable",
    ),
    # A model that wrote its call wrongly may write it rightly the next time.
    FailureKind.SERVER_ERROR: ("tool_use_failed",),
    FailureKind.TIMEOUT: (
        "timeout_error",
        "timeout",
        "modeltimeoutexception",
        "deadline_exceeded",
        "request_timeout",
        "vector_store_timeout",
    ),
    FailureKind.AUTHENTICATION: (
        "invalid_api_key",
        "authentication_error",
        "invalid_authentication",
        "unauthenticated",
        "expiredtokenexception",
        "unrecognizedclientexception",
    ),
    FailureKind.PERMISSION: (
        "permission_error",
        "permission_denied",
        "organization_on_hold",
        "unsupported_country_region_territory",
        "accessdeniedexception",
        "model_not_allowed",
        "data_residency_mismatch",
    ),
    FailureKind.NOT_FOUND: (
        "model_not_found",
        "deploymentnotfound",
        "not_found_error",
        "resourcenotfoundexception",
        "not_found",
    ),
    FailureKind.UNSUPPORTED: (
        "unsupported_parameter",
        "unsupported_value",
        "unsupported_image_media_type",
    ),
    FailureKind.INVALID_REQUEST: (
        "invalid_image",
        "invalid_image_format",
        "invalid_image_mode",
        "invalid_image_url",
        "invalid_base64_image",
        "image_too_small",
        "image_parse_error",
        "image_file_not_found",
        "empty_image_file",
        "failed_to_download_image",
    ),
    FailureKind.CONFLICT: ("conflict_error", "conversation_locked"),
    FailureKind.PAYLOAD_TOO_LARGE: (
        "request_too_large",
        "image_too_large",
        "image_file_too_large",
    ),
    FailureKind.STATE_LOST: ("previous_response_not_found", "item_not_found"),
    FailureKind.REASONING_INVALID: ("invalid_encrypted_content", "invalid_thinking_signature"),
}
KIND_BY_WORD: Final = {word: kind for kind, words in _WORDS.items() for word in words}

#: Words so broad that the status says more, used where there is no telling status.
BROAD_WORDS: Final = {
    "invalid_request_error": FailureKind.INVALID_REQUEST,
    "invalid_request": FailureKind.INVALID_REQUEST,
    "invalid_argument": FailureKind.INVALID_REQUEST,
    "bad_request": FailureKind.INVALID_REQUEST,
    "badrequesterror": FailureKind.INVALID_REQUEST,
    "validationexception": FailureKind.INVALID_REQUEST,
    "string_above_max_length": FailureKind.INVALID_REQUEST,
}

KIND_BY_STATUS: Final = {
    401: FailureKind.AUTHENTICATION,
    402: FailureKind.QUOTA_EXHAUSTED,
    403: FailureKind.PERMISSION,
    404: FailureKind.NOT_FOUND,
    408: FailureKind.TIMEOUT,
    409: FailureKind.CONFLICT,
    413: FailureKind.PAYLOAD_TOO_LARGE,
    429: FailureKind.RATE_LIMITED,
    503: FailureKind.OVERLOADED,
    504: FailureKind.TIMEOUT,
    529: FailureKind.OVERLOADED,
}
#: What a message, in lower case, adds to a kind that the status leaves general: the kinds it may
#: refine, the words, and the kind that they mean.
_REFUSED: Final = frozenset({FailureKind.INVALID_REQUEST, FailureKind.PAYLOAD_TOO_LARGE})
_REFUSED_OR_MISSING: Final = _REFUSED | {FailureKind.NOT_FOUND}
PHRASES: Final = (
    (
        _REFUSED | {FailureKind.RATE_LIMITED, FailureKind.PERMISSION},
        re.compile(r"credit balance is too low|insufficient balance|exceeded your current quota"),
        FailureKind.QUOTA_EXHAUSTED,
    ),
    (
        _REFUSED,
        re.compile(
            r"prompt is too long|maximum context length|context[ _](?:length|window|size)"
            r"|input is too long|reduce the length of the messages",
        ),
        FailureKind.CONTEXT_LENGTH_EXCEEDED,
    ),
    (
        _REFUSED,
        re.compile(r"content management policy|content policy|content filter"),
        FailureKind.CONTENT_FILTERED,
    ),
    (
        _REFUSED,
        re.compile(
            r"signature.{0,12}thinking|thinking.{0,40}(?:cannot be modified|different conversation)"
            r"|encrypted content.{0,60}verified",
        ),
        FailureKind.REASONING_INVALID,
    ),
    (
        _REFUSED_OR_MISSING,
        re.compile(r"previous_response_id|previous response with id|item with id"),
        FailureKind.STATE_LOST,
    ),
    (
        frozenset({FailureKind.SERVER_ERROR}),
        re.compile(r"\boverloaded\b"),
        FailureKind.OVERLOADED,
    ),
)

#: Names of exception classes of network libraries, looked for along the method resolution order.
KIND_BY_CLASS: Final = {
    "PoolTimeout": FailureKind.LOCAL_SATURATION,
    "APITimeoutError": FailureKind.TIMEOUT,
    "TimeoutException": FailureKind.TIMEOUT,
    "ServerTimeoutError": FailureKind.TIMEOUT,
    "APIResponseValidationError": FailureKind.SERVER_ERROR,
    "CredentialsError": FailureKind.AUTHENTICATION,
    "IdentityTokenFileError": FailureKind.AUTHENTICATION,
    "SubjectTokenProviderError": FailureKind.AUTHENTICATION,
    "APIConnectionError": FailureKind.CONNECTION,
    "TransportError": FailureKind.CONNECTION,
    "RequestError": FailureKind.CONNECTION,
    "NetworkError": FailureKind.CONNECTION,
    "ProtocolError": FailureKind.CONNECTION,
    "ClientConnectionError": FailureKind.CONNECTION,
    "EndOfStream": FailureKind.CONNECTION,
    "BrokenResourceError": FailureKind.CONNECTION,
}
NETWORK_LIBRARIES: Final = frozenset(
    {"aiohttp", "anthropic", "anyio", "httpcore", "httpcore2", "httpx", "httpx2", "openai"}
)

#: Failures that another provider, model or account may not meet.
OTHER_TARGETS_DIFFER: Final = frozenset(
    {
        FailureKind.RATE_LIMITED,
        FailureKind.QUOTA_EXHAUSTED,
        FailureKind.OVERLOADED,
        FailureKind.SERVER_ERROR,
        FailureKind.TIMEOUT,
        FailureKind.CONNECTION,
        FailureKind.AUTHENTICATION,
        FailureKind.PERMISSION,
        FailureKind.NOT_FOUND,
        FailureKind.UNSUPPORTED,
        FailureKind.CONTEXT_LENGTH_EXCEEDED,
        FailureKind.PAYLOAD_TOO_LARGE,
        FailureKind.REASONING_INVALID,
        FailureKind.REFUSED_LOCALLY,
    }
)

#: Failures that the same client may not meet again a moment later.
MAY_PASS: Final = frozenset(
    {
        FailureKind.RATE_LIMITED,
        FailureKind.OVERLOADED,
        FailureKind.SERVER_ERROR,
        FailureKind.TIMEOUT,
        FailureKind.CONNECTION,
        FailureKind.LOCAL_SATURATION,
        FailureKind.CONFLICT,
    }
)
