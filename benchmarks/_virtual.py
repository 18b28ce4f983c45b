"""A world for pools in virtual time: processes that ask, regions that answer, and what is counted.

No event loop and no wall clock: a task is a generator that yields how many seconds it waits. A
whole service of a thousand processes lives through twenty minutes in seconds, and twice alike.
"""

import heapq
import math
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final, TypeAlias, final

from chatrouting.errors import (
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    ChatClientError,
    InternalServerError,
    RateLimitError,
)

#: What a task does: it yields the seconds until it goes on.
Steps: TypeAlias = Generator[float, None, None]
#: How an attempt goes: it yields likewise, and ends with an error or with None for an answer.
Attempt: TypeAlias = Generator[float, None, ChatClientError | None]

#: Seconds of one bin of the counters.
BIN: Final = 5.0
#: Azure looks at requests over ten seconds, so that a quiet region can take a small burst.
_BURST_SECONDS: Final = 10.0
_REFUSED_AFTER: Final = 0.05
_FAILED_AFTER: Final = 0.2
_SILENT_FOR: Final = 30.0
#: Of the time to an answer, as logarithms: a median of one second.
_ANSWERED_AFTER: Final = (0.0, 0.4)


@final
class Task:
    """A generator that runs in virtual time; goes on when `due`, unless that is changed."""

    __slots__ = ("due", "steps")

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.due = 0.0


@final
class Time:
    """The clock, and who goes on when.

    Attributes:
        now: Seconds since the beginning.
        current: The task that runs.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.current: Task
        self._order = count()
        self._queue: list[tuple[float, int, Task]] = []

    def clock(self) -> float:
        """Return the time."""
        return self.now

    def start(self, steps: Steps) -> None:
        """Let a task begin now."""
        self.wake(Task(steps), self.now)

    def wake(self, task: Task, due: float) -> None:
        """Let a task go on at another time than it said."""
        task.due = due
        heapq.heappush(self._queue, (due, next(self._order), task))

    def run(self, until: float) -> None:
        """Let everything happen that happens up to a time."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            due, _, task = heapq.heappop(queue)
            if due != task.due:  # it was woken for another time
                continue
            self.now, self.current = due, task
            seconds = next(task.steps, None)
            if seconds is not None:
                self.wake(task, due + seconds)


@final
@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with some regions for some time.

    Attributes:
        kind: "down": fails at once. "silent": never answers. "brownout": fails now and then.
            "key": refuses the key.
        regions: Their positions.
        begins: In seconds.
        ends: In seconds.
        share: The part of the calls that it happens to.
    """

    kind: str
    regions: Sequence[int]
    begins: float
    ends: float
    share: float = 1.0


@final
class Counts:
    """What happened, by bins of time."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[int, bool]] = Counter()
        self._calls: Counter[tuple[int, int, str]] = Counter()
        self._added: list[tuple[float, float]] = []

    def request(self, began: float, added: float | None) -> None:
        """Count a request by when it began; `added` are seconds, None if it was lost."""
        self._requests[int(began / BIN), added is not None] += 1
        if added is not None:
            self._added.append((began, added))

    def call(self, began: float, region: int, outcome: str) -> None:
        """Count a call to a region by when it was sent."""
        self._calls[int(began / BIN), region, outcome] += 1

    def requests(self, start: float, end: float, *, lost: bool = False) -> int:
        """Return how many requests began in a time, or how many of them were lost."""
        return sum(
            found
            for (at, is_answered), found in self._requests.items()
            if start <= at * BIN < end and not (lost and is_answered)
        )

    def calls(
        self,
        start: float = 0.0,
        end: float = math.inf,
        *,
        outcome: str | None = None,
        region: int | None = None,
    ) -> int:
        """Return how many calls were sent in a time, of an outcome, to a region."""
        return sum(
            found
            for (at, place, how), found in self._calls.items()
            if start <= at * BIN < end and outcome in (None, how) and region in (None, place)
        )

    def added(self, start: float, end: float, part: float) -> float:
        """Return the seconds that this part of the answered requests did not exceed."""
        found = sorted(seconds for began, seconds in self._added if start <= began < end)
        return found[min(len(found) - 1, int(part * len(found)))] if found else math.nan


@final
class Region:
    """A deployment: a bucket of calls that refills, and troubles.

    Attributes:
        place: Its position among all.
        rate: Calls a second that it takes in the long run.
        is_reserved: Its refusals say to the millisecond when to come back.
    """

    def __init__(
        self,
        place: int,
        rate: float,
        *,
        time: Time,
        counts: Counts,
        rng: Random,
        troubles: Sequence[Trouble],
        is_reserved: bool,
    ) -> None:
        self.place = place
        self.rate = rate
        self.is_reserved = is_reserved
        self._time = time
        self._counts = counts
        self._rng = rng
        self._troubles = [each for each in troubles if place in each.regions]
        self._most = max(1.0, rate * (1.0 if is_reserved else _BURST_SECONDS))
        self._left = self._most
        self._filled_at = 0.0

    def ask(self) -> Attempt:
        """Take a call: wait as long as it takes, return what went wrong if anything did."""
        began = self._time.now
        seconds, error, outcome = self._answer(began)
        yield seconds
        self._counts.call(began, self.place, outcome)
        return error

    def _answer(self, now: float) -> tuple[float, ChatClientError | None, str]:
        for trouble in self._troubles:
            if trouble.begins <= now < trouble.ends and self._rng.random() < trouble.share:
                return self._failure(trouble)
        self._left = min(self._most, self._left + (now - self._filled_at) * self.rate)
        self._filled_at = now
        if self._left < 1.0:
            back = (1.0 - self._left) / self.rate
            hint = back if self.is_reserved else float(max(1, math.ceil(back)))
            error = RateLimitError("slow down", status_code=429, retry_after=hint)
            return _REFUSED_AFTER, error, "429"
        self._left -= 1.0
        return self._rng.lognormvariate(*_ANSWERED_AFTER), None, "answer"

    @staticmethod
    def _failure(trouble: Trouble) -> tuple[float, ChatClientError, str]:
        if trouble.kind == "silent":
            return _SILENT_FOR, APITimeoutError("no answer in time"), "fault"
        error: APIStatusError = InternalServerError("out of order", status_code=503)
        if trouble.kind == "key":
            error = AuthenticationError("no such key", status_code=401)
        return _FAILED_AFTER, error, "fault"
