"""The room of quotas: a request is shaped before the provider sees it.

In come a request, on whose account it runs, and limits; out comes a reservation, or a refusal that
names the limit and the wait. `profiles` says how each provider counts, `estimate` what a request
will need, `limits` and `windows` what there is, `ledger` what is used of it, `fairness` who is
next, `headers` and `reconcile` what the provider says. Pure, time is an argument. Next: `adapters`.
"""

from chatrouting.quota.limits import (
    BucketKey,
    BucketLimits,
    ChargePolicy,
    Level,
    ProviderScope,
    QuotaLimit,
)

__all__ = [
    "BucketKey",
    "BucketLimits",
    "ChargePolicy",
    "Level",
    "ProviderScope",
    "QuotaLimit",
]
