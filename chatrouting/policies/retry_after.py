"""When a provider says to come back.

One parser for the headers of all providers. Milliseconds come before seconds, as in both SDKs;
resets of a limit count only where that limit is used up, since a reset of a limit with room left
says nothing about a refusal. Nothing here raises: a header is foreign text.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final

_NUMBER: Final = re.compile(r"\d+(\.\d*)?|\.\d+")
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|[smhd])")
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+")
#: Only dates that begin with the name of a day: "2026-12-01" is no number of seconds either.
_HTTP_DATE: Final = re.compile(r"[A-Za-z]{3,9},? .*\d")
_PHRASE: Final = re.compile(
    r"(?:retry|try again|retrying|wait)[^.\d]{0,20}?\b(?:after|in|for)\s+"
    r"(?:(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>milliseconds?|seconds?|minutes?)\b"
    r"|(?P<duration>(?:\d+(?:\.\d+)?(?:ms|[smhd]))+)\b)",
    re.IGNORECASE,
)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PHRASE_UNITS: Final = {"mil": 0.001, "sec": 1.0, "min": 60.0}

#: "x-ratelimitbysize-" and "x-rate-limit-" are spellings in use; the families of Anthropic's other
#: tiers lack the word. The last two say that reserved throughput at Azure was used
#: up and the request spilled over, and who answered.
_PREFIXES: Final = (
    "x-ratelimit",
    "x-rate-limit",
    "ratelimit",
    "anthropic-ratelimit-",
    "anthropic-priority-",
    "anthropic-fast-",
    "x-ms-spillover-",
    "x-ms-deployment-name",
)
_HINTS: Final = ("retry-after", "retry-after-ms", "x-ms-retry-after-ms")

#: Resets are bookkeeping of the provider, not a request to wait: an hour is the most we believe.
_LONGEST_RESET: Final = 3600.0
_EPOCH_SECONDS: Final = 1e9
_EPOCH_MILLISECONDS: Final = 1e11


def parse_retry_after(headers: Mapping[str, str], *, now: datetime | None) -> float | None:
    """Read how long a refused request should wait.

    The first readable one wins: `retry-after-ms`, `x-ms-retry-after-ms`, `retry-after` as decimal
    seconds or one of the three HTTP dates, then the reset of each limit with nothing remaining.

    Args:
        headers: Of a refusal, in any case.
        now: An aware time that dates are measured from; None leaves dates unread.

    Returns:
        Seconds, 0.0 for a date in the past; None if nothing readable was said. Never negative.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        milliseconds = _first(lower.get(name), parse_number)
        if milliseconds is not None:
            return milliseconds / 1000
    for read in (_seconds, partial(_date, now=now)):
        seconds = _first(lower.get("retry-after"), read)
        if seconds is not None:
            return seconds
    return _reset_of_exhausted(lower, now)


def retry_after_in_text(message: str) -> float | None:
    """Read "retry after 20 seconds", "try again in 6m0s" and the like from a provider's words.

    Returns:
        Seconds, or None if the text says nothing of the kind.
    """
    found = _PHRASE.search(message)
    if found is None:
        return None
    if found["duration"]:
        return _seconds(found["duration"].lower())
    return _finite(float(found["number"]) * _PHRASE_UNITS[found["unit"][:3].lower()])


def rate_limit_headers(headers: Mapping[str, str]) -> dict[str, str] | None:
    """Keep `retry-after`, the rate-limit families and what Azure says of spilling over.

    Returns:
        The headers in lower case; None if there are none.
    """
    kept = {
        lower: value
        for name, value in headers.items()
        if (lower := name.lower()) in _HINTS or lower.startswith(_PREFIXES)
    }
    return kept or None


def parse_http_date(text: str) -> datetime | None:
    """Read one of the three forms of an HTTP date as an aware time, None if it is none."""
    if _HTTP_DATE.match(text) is None:
        return None
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def parse_number(text: str) -> float | None:
    """Read a plain decimal number; None if it is none, negative or not finite."""
    return _finite(float(text)) if _NUMBER.fullmatch(text) else None


def parse_reset(text: str, now: datetime | None) -> float | None:
    """Read when a limit is reset.

    Args:
        text: Seconds, a duration such as "6m0s" or "20ms", a time in RFC 3339, or the seconds or
            milliseconds of an epoch.
        now: An aware time that points in time are measured from; None leaves those unread.

    Returns:
        Seconds from now, 0.0 for what has passed; None if unreadable.
    """
    text = text.strip()
    value = _seconds(text)
    if value is None:
        return _timestamp(text, now)
    if value < _EPOCH_SECONDS:
        return value
    if now is None:
        return None
    epoch = value / 1000 if value >= _EPOCH_MILLISECONDS else value
    return max(0.0, epoch - now.timestamp())


def _first(text: str | None, read: Callable[[str], float | None]) -> float | None:
    """Read a value that may be several header lines joined by commas: the first readable one."""
    if text is None:
        return None
    pieces = text.split(",")
    # A date has a comma of its own.
    for candidate in (text, pieces[0], ",".join(pieces[:2])):
        value = read(candidate.strip())
        if value is not None:
            return value
    return None


def _seconds(text: str) -> float | None:
    """Plain decimal seconds, or a duration such as "6m0s" or "20ms"."""
    if _DURATION.fullmatch(text) is None:
        return parse_number(text)
    parts = _DURATION_PART.findall(text)
    return _finite(sum(float(number) * _UNITS[unit] for number, unit in parts))


def _date(text: str, now: datetime | None) -> float | None:
    date = parse_http_date(text)
    return None if date is None else _until(date, now)


def _until(date: datetime, now: datetime | None) -> float | None:
    return None if now is None else max(0.0, (date - now).total_seconds())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _reset_of_exhausted(lower: Mapping[str, str], now: datetime | None) -> float | None:
    waits = [
        min(wait, _LONGEST_RESET)
        for remaining, reset in _limits(lower)
        if _is_used_up(remaining) and (wait := parse_reset(reset, now)) is not None
    ]
    return max(waits, default=None)


def _limits(lower: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Pairs of what remains and when it is reset, one for each limit that names both."""
    for name, remaining in lower.items():
        if name.startswith("x-ratelimit-remaining"):
            reset = lower.get(name.replace("remaining", "reset", 1))
        elif name.startswith("anthropic-ratelimit-") and name.endswith("-remaining"):
            reset = lower.get(name.removesuffix("remaining") + "reset")
        else:
            continue
        if reset is not None:
            yield remaining, reset


def _is_used_up(remaining: str) -> bool:
    value = parse_number(remaining.strip().removeprefix("-"))
    return value == 0 or (value is not None and remaining.strip().startswith("-"))


def _timestamp(text: str, now: datetime | None) -> float | None:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _until(date if date.tzinfo is not None else date.replace(tzinfo=UTC), now)
