"""Rate limiters: one check of one bucket, in memory, with a limit that is never reached."""

import aiolimiter
import limits
import pyrate_limiter
import throttled

from peers import BARE_LIMITER, Call

_PLENTY = 10**9


def buckets() -> dict[str, Call]:
    """Return one check of one bucket for each library."""
    return {
        "limits, sliding counter": _limits(),
        "throttled-py, token bucket": _throttled(),
        BARE_LIMITER: _aiolimiter(),
        "pyrate-limiter, GCRA": _pyrate_limiter(),
    }


def _limits() -> Call:
    limiter = limits.strategies.SlidingWindowCounterRateLimiter(limits.storage.MemoryStorage())
    item = limits.RateLimitItemPerMinute(_PLENTY)

    async def check() -> bool:
        return bool(limiter.hit(item, "key", cost=1))

    return check


def _throttled() -> Call:
    limiter = throttled.Throttled(
        key="key",
        using="token_bucket",
        quota=throttled.rate_limiter.per_min(_PLENTY, burst=_PLENTY),
        store=throttled.store.MemoryStore(),
    )

    async def check() -> bool:
        return not limiter.limit("key", cost=1).limited

    return check


def _aiolimiter() -> Call:
    limiter = aiolimiter.AsyncLimiter(_PLENTY, 60)

    async def check() -> bool:
        await limiter.acquire(1)
        return True

    return check


def _pyrate_limiter() -> Call:
    rate = pyrate_limiter.Rate(_PLENTY, pyrate_limiter.Duration.MINUTE)
    bucket = pyrate_limiter.StateBucket([rate], algorithm=pyrate_limiter.GCRA())
    limiter = pyrate_limiter.Limiter(bucket)

    async def check() -> bool:
        return bool(limiter.try_acquire("key", weight=1))

    return check
