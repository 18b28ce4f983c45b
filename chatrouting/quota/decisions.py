"""What was decided about a request, as a record.

A decision answers five questions before anything is sent: which deployment, how much of it, on
whose account, what is done, and how it will be settled. It is complete when the request is over,
with what was used, and goes to the log once. A denial becomes a `QuotaExceededError` whose details
are a plain JSON object (`REJECTION_SCHEMA`): ids and numbers, no prompt and no secret.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, final

from chatrouting.errors import (
    QuotaDeadlineError,
    QuotaExceededError,
    QuotaExhaustedError,
    QuotaQueueFullError,
    QuotaQueueTimeoutError,
    QuotaRequestTooLargeError,
)
from chatrouting.options import Principal
from chatrouting.quota.ledger import Denial
from chatrouting.quota.limits import BucketKey, ChargePolicy, ProviderScope
from chatrouting.quota.quote import Quote
from chatrouting.usage import Usage


class DecisionOutcome(StrEnum):
    """What was done with a request."""

    ADMITTED = "admitted"
    QUEUED_THEN_ADMITTED = "queued_then_admitted"
    DOWNGRADED = "downgraded"  #: Admitted with a lower output cap, or to a lesser deployment.
    REROUTED = "rerouted"  #: Admitted after another deployment had no room.
    QUEUE_TIMEOUT = "queue_timeout"  #: It waited as long as it may.
    CANCELLED = "cancelled"  #: The caller gave up while it waited.
    REJECTED_LOCALLY = "rejected_locally"
    ADMITTED_THEN_PROVIDER_REJECTED = "admitted_then_provider_rejected"


class FundingKind(StrEnum):
    """What pays for an admitted request."""

    GUARANTEED = "guaranteed"  #: Its tenant's guarantee.
    BORROWED = "borrowed"  #: What those with guarantees leave.
    SHARED = "shared"  #: Nobody has a guarantee there.


class DenialReason(StrEnum):
    """Why a request was not admitted."""

    EXHAUSTED = "exhausted"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    DEADLINE = "deadline"
    TOO_LARGE = "too_large"


_ERRORS: Final[Mapping[DenialReason, type[QuotaExceededError]]] = {
    DenialReason.EXHAUSTED: QuotaExhaustedError,
    DenialReason.QUEUE_FULL: QuotaQueueFullError,
    DenialReason.QUEUE_TIMEOUT: QuotaQueueTimeoutError,
    DenialReason.DEADLINE: QuotaDeadlineError,
    DenialReason.TOO_LARGE: QuotaRequestTooLargeError,
}
_PHRASES: Final[Mapping[DenialReason, str]] = {
    DenialReason.EXHAUSTED: "has no room now",
    DenialReason.QUEUE_FULL: "has no room, and its queue is full",
    DenialReason.QUEUE_TIMEOUT: "had no room while the request waited",
    DenialReason.DEADLINE: "has no room before the request runs out of time",
    DenialReason.TOO_LARGE: "never has room for so large a request",
}


@final
@dataclass(frozen=True, slots=True)
class Limiter:
    """The limit that binds: of all that a request must clear, the one that it waits longest for.

    Attributes:
        key: The bucket; its level and id. None if the deployment is closed by its provider, or
            keeps what it has for guarantees.
        name: The dimension and window, or what else keeps the request back.
        needed: What the request would be charged; None where that says nothing.
        used: What is used already; likewise.
        size: The most that there is; likewise.
    """

    key: BucketKey | None
    name: str
    needed: float | None = None
    used: float | None = None
    size: float | None = None

    @classmethod
    def of(cls, denial: Denial) -> "Limiter":
        """Name the limit that made the ledger refuse."""
        limit = denial.limit
        name = f"{limit.dimension} per {limit.span}"
        return cls(denial.key, name, denial.needed, denial.used, limit.usable)

    def __str__(self) -> str:
        if self.key is None:
            return self.name
        return f"{self.key.level.value} {self.key.id}: {self.name}"


@final
@dataclass(frozen=True, slots=True)
class BucketLevel:
    """What one window counted around a decision.

    Attributes:
        limiter: Level, id, dimension and window.
        before: Used before the decision.
        after: Used after it.
        size: The most that may be charged at once.
    """

    limiter: str
    before: float
    after: float
    size: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How an admitted request ended.

    Attributes:
        usage: What the provider reported; None if nothing, so that the estimate stays.
        seconds: How long the request ran.
        was_sent: A provider may have seen it.
        has_failed: The provider answered with an error.
        input_error: The input that was charged less the real one, in tokens; None if unknown.
        output_error: The same of the output.
    """

    usage: Usage | None
    seconds: float
    was_sent: bool
    has_failed: bool
    input_error: float | None
    output_error: float | None

    @property
    def usage_is_estimated(self) -> bool:
        """Whether the estimate stays charged, since nobody said what was used."""
        return self.was_sent and (self.usage is None or self.usage.output_tokens is None)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision about one request at one deployment.

    Attributes:
        id: Unique to this decision.
        trace_id: What the application calls the request; the decision's id if it does not say.
        at: When, by the governor's clock.
        deployment: Name of the deployment.
        scope: Whose quota that is at the provider.
        model: The provider's model; None if that is not known.
        model_profile: The class of models; empty if none.
        quote: What it will probably need, with the source of each number.
        charges: What it is admitted with, by dimension.
        principal: On whose account.
        request_class: Its traffic class.
        outcome: What was done.
        policy: How the deployment counts, and so how the request is settled.
        funding: What pays for it; None if it was not admitted.
        limiter: The limit that binds; None if there was room.
        limiters: What binds at each deployment that was asked together with this one.
        reason: Why it was not admitted; None if it was.
        wait: Seconds until it could be admitted as far as can be told; infinity if never.
        queued: Seconds that it waited.
        fallback_allowed: Another deployment may be tried.
        may_queue: It may wait, as far as its class is concerned.
        downgrade_profile: The model profile that may be used instead; None if none.
        downgraded_from: The deployment that was asked for, where a lesser one takes its place; the
            rest of the record is about that one.
        max_output_tokens: The cap that it must be sent with; None: its own.
        is_enforced: False if a limit binds that is only watched: `limiter`, `reason` and `wait` say
            what it would have refused, and the request goes on.
        levels: What the windows counted, if a log is kept.
        settlement: How it ended; None if it was not admitted, or still runs.
    """

    id: str
    trace_id: str
    at: float
    deployment: str
    scope: ProviderScope
    model: str | None
    model_profile: str
    quote: Quote
    charges: Mapping[str, float]
    principal: Principal
    request_class: str
    outcome: DecisionOutcome
    policy: ChargePolicy
    funding: FundingKind | None = None
    limiter: Limiter | None = None
    limiters: tuple[str, ...] = ()
    reason: DenialReason | None = None
    wait: float = 0.0
    queued: float = 0.0
    fallback_allowed: bool = True
    may_queue: bool = False
    downgrade_profile: str | None = None
    downgraded_from: str | None = None
    max_output_tokens: int | None = None
    is_enforced: bool = True
    levels: tuple[BucketLevel, ...] = ()
    settlement: Settlement | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a denial as a JSON object of `REJECTION_SCHEMA`, without secrets and prompts."""
        retry_after = None if math.isinf(self.wait) else math.ceil(self.wait * 1000)
        return {
            "type": "rate_limited",
            "limiter": None if self.limiter is None else str(self.limiter),
            "limiters": list(self.limiters),
            "provider": self.scope.provider,
            "deployment": self.deployment,
            "model_profile": self.model_profile or None,
            "provider_model": self.model,
            "retry_after_ms": retry_after,
            "organisation_id": self.principal.organisation,
            "tenant_id": self.principal.tenant,
            "team_id": self.principal.team,
            "api_key_id": self.principal.api_key,
            "request_class": self.request_class,
            "estimated_input_tokens": int(self.quote.input.value),
            "estimated_output_tokens": int(self.quote.output.value),
            "gateway_decision": self.outcome.value,
            "reason": None if self.reason is None else self.reason.value,
            "fallback_allowed": self.fallback_allowed,
            "downgrade_profile": self.downgrade_profile,
            "trace_id": self.trace_id,
        }

    def to_error(self) -> QuotaExceededError:
        """Return a denial as the exception that says it."""
        reason = self.reason or DenialReason.EXHAUSTED
        return _ERRORS[reason](
            self._message(reason),
            retry_after=None if math.isinf(self.wait) else self.wait,
            fallback_allowed=self.fallback_allowed,
            details=self.to_dict(),
        )

    def _message(self, reason: DenialReason) -> str:
        said = f"quota {self.limiter or self.deployment} {_PHRASES[reason]}"
        limiter = self.limiter
        if limiter is not None and limiter.needed is not None:
            said += f": {limiter.needed:g} needed, {limiter.used:g} of {limiter.size:g} used"
        if reason is DenialReason.TOO_LARGE or math.isinf(self.wait):
            return f"{said}. Make the request smaller, or send it elsewhere."
        return f"{said}. Try again in {self.wait:.3g} s."


def _text(*, optional: bool = False) -> dict[str, Any]:
    return {"type": ["string", "null"] if optional else "string"}


_FIELDS: Final[Mapping[str, dict[str, Any]]] = {
    "type": {"const": "rate_limited"},
    "limiter": _text(optional=True),
    "limiters": {"type": "array", "items": _text()},
    "provider": _text(),
    "deployment": _text(),
    "model_profile": _text(optional=True),
    "provider_model": _text(optional=True),
    "retry_after_ms": {"type": ["integer", "null"], "minimum": 0},
    "organisation_id": _text(optional=True),
    "tenant_id": _text(optional=True),
    "team_id": _text(optional=True),
    "api_key_id": _text(optional=True),
    "request_class": _text(),
    "estimated_input_tokens": {"type": "integer", "minimum": 0},
    "estimated_output_tokens": {"type": "integer", "minimum": 0},
    "gateway_decision": {"enum": [outcome.value for outcome in DecisionOutcome]},
    "reason": {"enum": [*(reason.value for reason in DenialReason), None]},
    "fallback_allowed": {"type": "boolean"},
    "downgrade_profile": _text(optional=True),
    "trace_id": _text(),
}

#: JSON schema of `Decision.to_dict` and of the details of a `QuotaExceededError`.
REJECTION_SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Rejection by a quota",
    "type": "object",
    "properties": dict(_FIELDS),
    "required": list(_FIELDS),
    "additionalProperties": False,
}
