"""The ways to call several regions that `pool_simulation.py` sets side by side.

Each is one process of a service. The pools are the library's own, asked through `pick` and told by
`succeeded` and `failed`; what `PooledChatClient` does around these is done here without an event
loop. The list asks like `OrderedFailoverChatClient`, the single endpoint like the OpenAI SDK.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from random import Random
from typing import Any, Final, TypeAlias, final

from _virtual import Counts, Region, Steps, Task, Time

from chatrouting.errors import AuthenticationError, ChatClientError, NoEndpointAvailableError
from chatrouting.pool import (
    Cooling,
    Endpoint,
    EndpointMode,
    EndpointPool,
    PoolPolicy,
    Ticket,
    Verdict,
)

#: The SDK's own numbers: openai 3.57, `_constants.py`.
_SDK_RETRIES: Final = 2
_SDK_FIRST_WAIT: Final = 0.5
_SDK_LONGEST_WAIT: Final = 8.0
_SDK_LONGEST_HINT: Final = 120.0

#: Who waits for a running attempt looks again after so many seconds, as in the pool's own wait.
_LOOK_AGAIN: Final = 5.0

#: Ends with the time when the call was sent that got the answer; with None if the request is lost.
Answer: TypeAlias = Generator[float, None, float | None]
#: Ends with a ticket; with None if nobody is ready in time.
Acquiring: TypeAlias = Generator[float, None, Ticket | None]


class Caller(ABC):
    """One process that sends requests."""

    def __init__(
        self, place: int, regions: Sequence[Region], *, time: Time, counts: Counts, rng: Random
    ) -> None:
        """Prepare; `place` is its position among all processes."""
        self.place = place
        self.regions = regions
        self.time = time
        self.counts = counts
        self.rng = rng

    def requests(self, rate: float) -> Steps:
        """Send requests for ever, so many a second on average."""
        while True:
            yield self.rng.expovariate(rate)
            self.time.start(self._request())

    def _request(self) -> Steps:
        began = self.time.now
        sent = yield from self._answer()
        self.counts.request(began, None if sent is None else sent - began)

    @abstractmethod
    def _answer(self) -> Answer:
        """Call until there is an answer, or no hope of one."""


@final
class SingleEndpoint(Caller):
    """Each process has its own region, and the SDK tries that one again."""

    def _answer(self) -> Answer:
        region = self.regions[self.place % len(self.regions)]
        for retry in range(_SDK_RETRIES + 1):
            sent = self.time.now
            error = yield from region.ask()
            if error is None:
                return sent
            if retry == _SDK_RETRIES or isinstance(error, AuthenticationError):
                return None
            yield self._wait(error, retry)
        return None

    def _wait(self, error: ChatClientError, retry: int) -> float:
        hint = error.retry_after
        if hint is not None and 0 < hint <= _SDK_LONGEST_HINT:
            return hint
        longest = min(_SDK_FIRST_WAIT * 2.0**retry, _SDK_LONGEST_WAIT)
        return longest * (1 - 0.25 * self.rng.random())


@final
class OrderedList(Caller):
    """Asks one region after the other, reserved ones first, each process from another one on."""

    def _answer(self) -> Answer:
        count = len(self.regions)
        turned = [self.regions[(self.place + step) % count] for step in range(count)]
        for region in sorted(turned, key=lambda each: not each.is_reserved):
            sent = self.time.now
            if (yield from region.ask()) is None:
                return sent
        return None


@final
class Pooled(Caller):
    """Asks the members of an `EndpointPool`."""

    def __init__(
        self, policy: PoolPolicy, place: int, regions: Sequence[Region], **world: Any
    ) -> None:
        super().__init__(place, regions, **world)
        self.pool: EndpointPool[Any] = EndpointPool(
            [_endpoint(region) for region in regions],
            policy=policy,
            clock=self.time.clock,
            rng=self.rng,
        )
        self._by_id = {str(region.place): region for region in regions}
        #: Who waits, the longest first.
        self._waiting: dict[Task, None] = {}

    def _answer(self) -> Answer:
        pool, policy = self.pool, self.pool.policy
        ends = self.time.now + (policy.total_budget or 0.0)
        most = policy.attempts_for(len(pool.endpoints))
        left_out: set[str] = set()
        failures = 0
        while True:
            ticket = yield from self._acquire(ends, left_out, is_retry=failures > 0)
            if ticket is None:
                return None
            sent = self.time.now
            error = yield from self._by_id[ticket.endpoint.id].ask()
            if error is None:
                pool.succeeded(ticket, latency=self.time.now - sent)
                self._wake(islice(self._waiting, 2), at_once=True)
                return sent
            failures += 1
            fault = pool.failed(ticket, error)
            if ticket.is_probe:  # they look at when it is to be tried again
                self._wake(self._waiting, at_once=False)
            if fault.verdict is Verdict.MEMBER:
                left_out.add(ticket.endpoint.id)
                if policy.member_fault != "rotate":
                    return None
            if self.time.now >= ends or failures == most or not pool.may_retry():
                return None

    def _acquire(self, ends: float, left_out: set[str], *, is_retry: bool) -> Acquiring:
        while True:
            left = ends - self.time.now
            try:
                found = self.pool.pick(exclude=left_out, is_retry=is_retry, patience=left)
            except NoEndpointAvailableError:
                return None
            if not isinstance(found, Cooling):
                return found
            if left <= 0 or (found.wait > left and not found.is_busy):
                return None
            wait = min(found.wait, _LOOK_AGAIN) if found.is_busy else found.wait
            task = self.time.current
            spread = self._stagger() * (1 + len(self._waiting))
            self._waiting[task] = None
            yield min(wait + spread, left)
            self._waiting.pop(task, None)

    def _wake(self, tasks: Iterable[Task], *, at_once: bool) -> None:
        for task in tuple(tasks):
            del self._waiting[task]
            self.time.wake(task, self.time.now + (0.0 if at_once else self._stagger()))

    def _stagger(self) -> float:
        return self.rng.random() * self.pool.policy.wake_jitter


def _endpoint(region: Region) -> Endpoint:
    if region.is_reserved:
        return Endpoint(str(region.place), mode=EndpointMode.PTU)
    return Endpoint(str(region.place), mode=EndpointMode.PAYG, priority=2)
