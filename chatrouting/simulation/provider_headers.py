"""What a strict provider's answers say of its limits, in each provider's own words.

Names and units as the providers have them, misleading ones included.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from chatrouting.quota.limits import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOTAL_TOKENS

#: The wall clock at the time 0.
START: Final = datetime(2026, 12, 1, tzinfo=UTC)

_OPENAI: Final = {REQUESTS: "requests", TOTAL_TOKENS: "tokens"}
_ANTHROPIC: Final = {
    REQUESTS: "requests",
    INPUT_TOKENS: "input-tokens",
    OUTPUT_TOKENS: "output-tokens",
}


class Told(NamedTuple):
    """What there is to tell of one window.

    Attributes:
        limit: All of it.
        left: What is left of it.
        time_to_full: Seconds until nothing of it is used.
    """

    limit: float
    left: float
    time_to_full: float


#: Of each dimension its windows, the shortest last.
Windows = Mapping[str, list[Told]]


def write_headers(profile: str, windows: Windows, now: float) -> Mapping[str, str]:
    """Write the headers of an answer; none for a provider that sends none."""
    write = _WRITERS.get(profile)
    return {} if write is None else write(windows, now)


def google_body(limiter: str, wait: float) -> dict[str, Any]:
    """Write the body of a refusal by Google's servers."""
    counted = "Requests" if limiter == REQUESTS else "ContentInputTokens"
    violation = {"quotaId": f"Generate{counted}PerMinutePerProjectPerModel"}
    prefix = "type.googleapis.com/google.rpc"
    return {
        "error": {
            "code": 429,
            "status": "RESOURCE_EXHAUSTED",
            "details": [
                {"@type": f"{prefix}.QuotaFailure", "violations": [violation]},
                {"@type": f"{prefix}.RetryInfo", "retryDelay": f"{int(wait) + 1}s"},
            ],
        }
    }


def _duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60.0)
    return f"{int(minutes)}m{rest:.2f}s" if minutes else f"{int(rest * 1000)}ms"


def _openai(windows: Windows, _: float) -> Mapping[str, str]:
    """Durations until everything is back, which is no time to wait."""
    headers: dict[str, str] = {}
    for dimension, name in _OPENAI.items():
        if dimension in windows:
            # Azure tells of its shortest window, without saying so.
            told = windows[dimension][-1]
            headers[f"x-ratelimit-limit-{name}"] = str(int(told.limit))
            headers[f"x-ratelimit-remaining-{name}"] = str(int(told.left))
            headers[f"x-ratelimit-reset-{name}"] = _duration(told.time_to_full)
    return headers


def _anthropic(windows: Windows, now: float) -> Mapping[str, str]:
    """Points in time, and tokens rounded to thousands."""
    headers: dict[str, str] = {}
    for dimension, name in _ANTHROPIC.items():
        if dimension in windows:
            told = windows[dimension][0]
            rounded = told.left if dimension == REQUESTS else 1_000 * round(told.left / 1_000)
            reset = START + timedelta(seconds=now + told.time_to_full)
            prefix = f"anthropic-ratelimit-{name}"
            headers[f"{prefix}-limit"] = str(int(told.limit))
            headers[f"{prefix}-remaining"] = str(int(rounded))
            headers[f"{prefix}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
    return headers


def _mistral(windows: Windows, _: float) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    if TOTAL_TOKENS in windows:
        told = windows[TOTAL_TOKENS][0]
        headers["x-ratelimitbysize-limit-minute"] = str(int(told.limit))
        headers["x-ratelimitbysize-remaining-minute"] = str(int(told.left))
        headers["ratelimitbysize-reset"] = str(int(told.time_to_full) + 1)
    return headers


_WRITERS: Final[Mapping[str, Callable[[Windows, float], Mapping[str, str]]]] = {
    "openai": _openai,
    "azure": _openai,
    "groq": _openai,
    "anthropic": _anthropic,
    "mistral": _mistral,
}
