"""Sums over the last seconds: for the limits that an endpoint declares, and for further attempts.

Counted in slices, so that a busy minute costs no more memory than a quiet one. A slice counts until
its last moment is out of the window: the sum is never too small.
"""

from collections import deque
from typing import Final, final

_SLICES: Final = 20

_TOKENS_WINDOW: Final = 60.0
#: Azure looks at requests over 1 s or 10 s, not over a minute.
_REQUESTS_WINDOW: Final = 10.0

_RETRIES_WINDOW: Final = 10.0
_RETRIES_A_SECOND: Final = 10


@final
class SlidingSum:
    """What was added in the last so many seconds."""

    __slots__ = ("_length", "_slices", "_total", "_window")

    def __init__(self, window: float) -> None:
        """Begin with nothing; `window` is in seconds."""
        self._window = window
        self._length = window / _SLICES
        self._slices: deque[tuple[float, float]] = deque()  # the end of each, and its sum
        self._total = 0.0

    def add(self, amount: float, now: float) -> None:
        """Add at a time that is not earlier than any before."""
        self._total += amount
        if self._slices and now < self._slices[-1][0]:
            end, before = self._slices.pop()
            self._slices.append((end, before + amount))
        else:
            self._slices.append((now + self._length, amount))

    def total(self, now: float) -> float:
        """Return the sum, and forget what is too old."""
        while self._slices and self._slices[0][0] + self._window <= now:
            self._total -= self._slices.popleft()[1]
        return self._total


@final
class RateBudget:
    """What an endpoint may still be sent by the limits that it declares.

    The tokens of a request are an estimate, as Azure's own count of them is: prompt and the most
    that the answer may have.
    """

    __slots__ = ("_requests", "_requests_limit", "_tokens", "_tokens_limit")

    def __init__(self, *, tpm: int | None, rpm: int | None) -> None:
        """Begin with nothing sent."""
        self._tokens = SlidingSum(_TOKENS_WINDOW)
        self._tokens_limit = tpm
        self._requests = SlidingSum(_REQUESTS_WINDOW)
        self._requests_limit = None if rpm is None else max(1.0, rpm * _REQUESTS_WINDOW / 60)

    def has_room(self, tokens: int, now: float) -> bool:
        """Say whether one more request of so many tokens is within the limits."""
        if self._tokens_limit is not None and self._tokens.total(now) + tokens > self._tokens_limit:
            return False
        return self._requests_limit is None or self._requests.total(now) + 1 <= self._requests_limit

    def spend(self, tokens: int, now: float) -> None:
        """Count a request."""
        self._tokens.add(tokens, now)
        self._requests.add(1, now)


@final
class RetryBudget:
    """Keeps further attempts a small part of all, so that a failing service meets no storm of them.

    After Finagle's retry budgets: a part of the requests of the last 10 s, and 10 a second besides,
    without which a quiet client could never try again.
    """

    __slots__ = ("_calls", "_part", "_retries")

    def __init__(self, part: float) -> None:
        """Begin with nothing; `part` of the requests may be tried again."""
        self._part = part
        self._calls = SlidingSum(_RETRIES_WINDOW)
        self._retries = SlidingSum(_RETRIES_WINDOW)

    def note_request(self, now: float) -> None:
        """Count a first attempt."""
        self._calls.add(1, now)

    def take(self, now: float) -> bool:
        """Take one further attempt from the budget, if there is one."""
        limit = self._part * self._calls.total(now) + _RETRIES_A_SECOND * _RETRIES_WINDOW
        if self._retries.total(now) + 1 > limit:
            return False
        self._retries.add(1, now)
        return True
