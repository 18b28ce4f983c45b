"""What rate-limit headers say, read by pattern.

A header is known by the words in its name and not by a list of names: providers add families, such
as the project's tokens beside the organisation's. Out come readings that name the provider's own
limiter and, where it is one of ours, the dimension. Nothing here raises: a header is foreign text.

Readings are hints. What follows from them is decided in `reconcile.py`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple, cast

from chatrouting.policies.retry_after import parse_number, parse_reset

MINUTE: Final = 60.0
DAY: Final = 86_400.0

_FIELDS: Final = {
    "limit": "limit",
    "remaining": "remaining",
    "reset": "reset",
    "utilization": "utilisation",
}
#: Words that say no more than that the header is about a rate limit.
_MARKERS: Final = frozenset({"x", "anthropic", "ratelimit", "ratelimitbysize"})
_WINDOWS: Final = {
    "second": 1.0,
    "minute": MINUTE,
    "hour": 3600.0,
    "day": DAY,
    "month": 30 * DAY,
}
_SHORT_WINDOW: Final = re.compile(r"(\d{1,3})([smhd])", re.ASCII)
_UNITS: Final = {"s": 1.0, "m": MINUTE, "h": 3600.0, "d": DAY}
#: An item of the IETF's fields: a name and parameters, such as `"default";q=100;w=60`.
_ITEM: Final = re.compile(r"\s*\"?([\w.-]*)\"?((?:\s*;\s*\w+=[\w.]+)+)", re.ASCII)
_PARAMETER: Final = re.compile(r"(\w+)=([\w.]+)", re.ASCII)
_PARAMETERS: Final = {"q": "limit", "r": "remaining", "t": "reset", "w": "window"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReading:
    """What one response said about one limit.

    Attributes:
        limiter: The provider's own name of the limit, such as "project-tokens".
        dimension: What it counts, in our terms; None if the name does not say.
        scope: Words that narrow it, such as "project" or "priority"; empty for the usual limit.
        window: Seconds the limit is for; None if unknown.
        limit: The limit itself; None if it was missing, negative or unreadable. So are the next.
        remaining: What is left of it.
        reset: Seconds until it is back to its *initial* state, which is no time to wait.
        utilisation: The used share, where a provider says that instead; more than 1 is over it.
    """

    limiter: str
    dimension: str | None = None
    scope: str = ""
    window: float | None = None
    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None
    utilisation: float | None = None

    def wait_for(self, amount: float) -> float | None:
        """Return the seconds until `amount` fits, by the rate at which the limit comes back.

        Returns:
            0.0 if it fits now; None if the header says too little, or if it never fits.
        """
        if self.limit is None or self.remaining is None or not self.window:
            return None
        if amount <= self.remaining:
            return 0.0
        return None if amount > self.limit else (amount - self.remaining) * self.window / self.limit


def read_limits(
    headers: Mapping[str, str],
    *,
    now: datetime | None = None,
    windows: Mapping[str, float | None] = MappingProxyType({}),
) -> tuple[LimitReading, ...]:
    """Read every rate limit that is named in headers.

    Args:
        headers: Of an answer or a refusal, in any case, others among them.
        now: An aware time that resets given as points in time are measured from.
        windows: Seconds of a limit whose name does not tell, by dimension, as a provider profile
            has them. A minute for the rest; None for unknown.

    Returns:
        One for each limit, in the order of the headers. Never raises.
    """
    found: dict[str, dict[str, float | None]] = {}
    for name, value in cast("Mapping[object, object]", headers).items():
        if not (isinstance(name, str) and isinstance(value, str)):
            continue  # whatever a client of one's own may have put there
        for limiter, field, number in _numbers(name.lower(), value, now):
            found.setdefault(limiter, {}).setdefault(field, number)
    return tuple(_reading(limiter, fields, windows) for limiter, fields in found.items())


class _Number(NamedTuple):
    limiter: str
    field: str
    value: float | None  #: None if unreadable: that there is such a limit is worth knowing.


def _numbers(name: str, value: str, now: datetime | None) -> Iterator[_Number]:
    if name in ("ratelimit", "ratelimit-policy"):
        yield from _of_items(value)
        return
    place = _place(name)
    if place is None:
        return
    limiter, field = place
    text = re.split("[,;]", value, maxsplit=1)[0].strip()
    number = parse_reset(value, now) if field == "reset" else parse_number(text)
    yield _Number(limiter, field, number)


def _place(name: str) -> tuple[str, str] | None:
    """Return the limiter and the field that a header's name speaks of."""
    words = re.split("[-_]", name.replace("rate-limit", "ratelimit"))
    if words[0] != "anthropic" and not any(word.startswith("ratelimit") for word in words):
        return None
    field = next((word for word in words if word in _FIELDS), None)
    if field is None:
        return None
    rest = [word for word in words if word != field and word not in _MARKERS]
    if "ratelimitbysize" in words:
        rest.insert(0, "tokens")
    return "-".join(rest), _FIELDS[field]


def _of_items(value: str) -> Iterator[_Number]:
    for name, parameters in _ITEM.findall(value):
        for key, text in _PARAMETER.findall(parameters):
            number = parse_number(text)
            if key in _PARAMETERS and number is not None:
                yield _Number(name, _PARAMETERS[key], number)


def _reading(
    limiter: str, fields: Mapping[str, float | None], windows: Mapping[str, float | None]
) -> LimitReading:
    words = limiter.split("-")
    dimension, counted = _dimension(words)
    named = next((word for word in words if _window(word) is not None), None)
    if named is not None:
        window = _window(named)
    else:
        window = fields.get("window", windows.get(dimension or "", MINUTE))
    return LimitReading(
        limiter=limiter,
        dimension=dimension,
        scope="-".join(word for word in words if word not in counted and word != named),
        window=window,
        limit=fields.get("limit"),
        remaining=fields.get("remaining"),
        reset=fields.get("reset"),
        utilisation=fields.get("utilisation"),
    )


def _dimension(words: list[str]) -> tuple[str | None, frozenset[str]]:
    """Return what a limiter counts, and the words that said so."""
    for dimension, names in _DIMENSIONS:
        if names.issubset(words):
            return dimension, names
    return None, frozenset()


_DIMENSIONS: Final = (
    ("input_tokens", frozenset({"input", "tokens"})),
    ("output_tokens", frozenset({"output", "tokens"})),
    ("total_tokens", frozenset({"tokens"})),
    ("concurrency", frozenset({"concurrent", "requests"})),
    ("concurrency", frozenset({"concurrency"})),
    ("requests", frozenset({"requests"})),
)


def _window(word: str) -> float | None:
    if word in _WINDOWS:
        return _WINDOWS[word]
    found = _SHORT_WINDOW.fullmatch(word)
    return None if found is None else int(found[1]) * _UNITS[found[2]]
