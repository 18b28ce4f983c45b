"""Plays a load through a governor, or past it, before strict providers.

In virtual time: hours take as long as the work in them, and the same seed gives the same numbers.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, Literal, TypeAlias, final

import anyio
from anyio.abc import TaskGroup

from chatrouting.errors import ConfigurationError, QuotaExceededError, RateLimitError
from chatrouting.messages import as_messages
from chatrouting.options import ChatOptions, Principal, RoutingHints
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.quote import Figure, Quote, Source
from chatrouting.quota.reservation import Reservation
from chatrouting.quota.snapshot import QuotaSnapshot
from chatrouting.simulation.load import LoadRequest, LoadStream
from chatrouting.simulation.provider import Admission, ProviderLimiter, Refusal
from chatrouting.simulation.provider_headers import START
from chatrouting.simulation.records import Fate, RequestRecord, SimulationResult
from chatrouting.testing.clock import virtual_time_backends
from chatrouting.usage import Usage

#: Makes a governor for a clock and a time of day.
GovernorMaker: TypeAlias = Callable[[Callable[[], float], Callable[[], datetime]], QuotaGovernor]
#: What is known of a request before it is sent: all of it, or what its text and history tell.
Knowledge: TypeAlias = Literal["estimated", "exact"]

#: An answer is counted in so many pieces, or more: one each minute, so that no lease ends.
_PIECES: Final = 4
_PIECE: Final = 60.0
#: How SDKs try again: the first wait, the longest, and the longest that a provider may ask for.
_TRIES: Final = 3
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 8.0
_LONGEST_RETRY_AFTER: Final = 120.0
#: Progress is told so often.
_STEPS: Final = 200


def simulate(
    load: Iterable[LoadStream],
    providers: Mapping[str, ProviderLimiter],
    *,
    make_governor: GovernorMaker | None,
    duration: float,
    seed: int = 1,
    knowledge: Knowledge = "estimated",
    on_progress: Callable[[float], object] | None = None,
    backend: str = "asyncio",
) -> SimulationResult:
    """Play a load.

    Args:
        load: Who sends what.
        providers: What stands behind each deployment, unused; those that share a quota share one.
        make_governor: Makes the governor, of deployments of these names; None: nothing governs, and
            requests are tried again as SDKs do it, twice, with a backoff.
        duration: Seconds of virtual time.
        seed: Draws the requests.
        knowledge: What the governor is told of a request.
        on_progress: Called with the virtual time, now and then.
        backend: The event loop, "asyncio" or "trio".

    Raises:
        ConfigurationError: If the load names a deployment that does not exist, or a class that the
            governor does not know.
        RuntimeError: Inside an event loop, since it runs one of its own; call it in a thread.
    """
    streams = tuple(load)
    _check(streams, providers, duration)
    playing = _Playing(
        streams,
        providers,
        duration=duration,
        seed=seed,
        knowledge=knowledge,
        on_progress=on_progress,
    )
    name, options = virtual_time_backends()[backend]()
    anyio.run(playing.run, make_governor, backend=name, backend_options=options)
    return playing.result()


@final
class _Playing:
    """One load while it is played."""

    def __init__(
        self,
        streams: tuple[LoadStream, ...],
        providers: Mapping[str, ProviderLimiter],
        *,
        duration: float,
        seed: int,
        knowledge: Knowledge,
        on_progress: Callable[[float], object] | None,
    ) -> None:
        self._streams = streams
        self._providers = providers
        self._duration = duration
        self._seed = seed
        self._is_exact = knowledge == "exact"
        self._on_progress = on_progress
        self._records: list[RequestRecord] = []
        self._governor: QuotaGovernor | None = None
        self._governor_state: tuple[Mapping[str, Any], QuotaSnapshot | None] = {}, None
        self._rng = Random(f"{seed}/retries")  # noqa: S311  # seeded

    async def run(self, make_governor: GovernorMaker | None) -> None:
        """Play it, and break off at the end."""
        if make_governor is not None:
            self._governor = make_governor(
                anyio.current_time, lambda: START + timedelta(seconds=anyio.current_time())
            )
            self._check(self._governor)
        async with anyio.create_task_group() as group:
            for number, stream in enumerate(self._streams):
                rng = Random(f"{self._seed}/{number}")  # noqa: S311  # seeded
                group.start_soon(self._offer, stream, rng, group)
            for step in range(_STEPS):
                if self._on_progress is not None:
                    self._on_progress(anyio.current_time())
                await anyio.sleep_until(self._duration * (step + 1) / _STEPS)
            # What is known now is the result; what happens while tasks end is not.
            self._governor_state = self._state()
            self._records = [replace(each) for each in self._records]
            group.cancel_scope.cancel()

    def result(self) -> SimulationResult:
        """Return what became of it."""
        metrics, snapshot = self._governor_state
        return SimulationResult(
            duration=self._duration,
            records=tuple(self._records),
            providers=self._providers,
            metrics=metrics,
            snapshot=snapshot,
        )

    def _check(self, governor: QuotaGovernor) -> None:
        for stream in self._streams:
            governor.open_ticket(request_class=stream.request_class, is_kept=False)
        unknown = sorted(set(self._providers) - set(governor.deployments))
        if unknown:
            raise ConfigurationError(
                f"the governor does not know deployment {unknown[0]!r}, which has a provider; "
                f"it governs {', '.join(governor.deployments)}."
            )

    def _state(self) -> tuple[Mapping[str, Any], QuotaSnapshot | None]:
        if self._governor is None:
            return {}, None
        return self._governor.metrics.to_dict(), self._governor.snapshot()

    async def _offer(self, stream: LoadStream, rng: Random, group: TaskGroup) -> None:
        """Let the requests of a stream come."""
        for request in stream.requests(rng, self._duration):
            await anyio.sleep_until(request.at)
            record = self._record(request)
            self._records.append(record)
            group.start_soon(self._play, request, record)

    def _record(self, request: LoadRequest) -> RequestRecord:
        stream = request.stream
        first = self._deployments(stream)[0]
        return RequestRecord(
            at=request.at,
            tenant=stream.tenant,
            request_class=stream.request_class or "",
            deployment=first,
            shares=self._providers[first].shares(request.arrival, request.output),
            tokens=request.arrival.input_tokens + request.output,
        )

    def _deployments(self, stream: LoadStream) -> tuple[str, ...]:
        return stream.deployments or tuple(self._providers)

    async def _play(self, request: LoadRequest, record: RequestRecord) -> None:
        if self._governor is None:
            await self._without(request, record)
        else:
            await self._governed(self._governor, request, record)

    # Under a governor.

    async def _governed(
        self, governor: QuotaGovernor, request: LoadRequest, record: RequestRecord
    ) -> None:
        stream = request.stream
        principal = Principal(tenant=stream.tenant or None)
        ticket = governor.open_ticket(principal, stream.request_class, is_kept=False)
        record.request_class = ticket.request_class
        quotes = [self._quote(governor, request, name) for name in self._deployments(stream)]
        try:
            reservation = await governor.reserve(quotes, ticket)
        except QuotaExceededError as error:
            record.fate = Fate.REFUSED
            record.reason = str((error.details or {}).get("reason"))
            return
        async with reservation:
            record.funding = reservation.funding.value
            record.deployment = reservation.decision.deployment
            await self._send(request, record, reservation, governor)

    def _quote(self, governor: QuotaGovernor, request: LoadRequest, deployment: str) -> Quote:
        stream = request.stream
        options = ChatOptions(
            max_output_tokens=request.arrival.cap,
            routing=RoutingHints(
                principal=Principal(tenant=stream.tenant or None),
                request_class=stream.request_class,
            ),
        )
        text = "word" if self._is_exact else _text(request)
        quote = governor.quote(as_messages(text), options, deployment, is_streaming=True)
        return _exact(quote, request) if self._is_exact else quote

    async def _send(
        self,
        request: LoadRequest,
        record: RequestRecord,
        reservation: Reservation,
        governor: QuotaGovernor,
    ) -> None:
        provider = self._providers[record.deployment]
        admission = await _arrive(provider, request, record)
        if isinstance(admission, Refusal):
            record.fate = Fate.PROVIDER_REFUSED
            error = RateLimitError(
                f"limit of {admission.limiter} reached",
                status_code=admission.status,
                retry_after=admission.retry_after,
                rate_limit_headers=admission.headers,
            )
            reservation.fail(error)
            governor.observe(reservation, admission.headers)
            return
        record.fate = await self._answer(provider, admission, request, reservation)
        usage = Usage(
            input_tokens=request.arrival.input_tokens,
            output_tokens=admission.generated,
            cache_read_input_tokens=request.arrival.cached_tokens,
        )
        if record.fate is Fate.BROKEN_OFF:
            reservation.fail(RateLimitError("no output left", status_code=429), usage=usage)
        else:
            reservation.settle(usage, is_complete=record.fate is Fate.ANSWERED)
        governor.observe(reservation, admission.headers)

    # Without.

    async def _without(self, request: LoadRequest, record: RequestRecord) -> None:
        """Send at once, and again as SDKs do it."""
        record.deployment = self._rng.choice(self._deployments(request.stream))
        provider = self._providers[record.deployment]
        for number in range(_TRIES):
            admission = await _arrive(provider, request, record)
            if isinstance(admission, Admission):
                record.fate = await self._answer(provider, admission, request, None)
                return
            if number < _TRIES - 1:
                record.fate = Fate.WAITING
                await anyio.sleep(self._backoff(number, admission.retry_after))
        record.fate = Fate.PROVIDER_REFUSED

    def _backoff(self, number: int, retry_after: float | None) -> float:
        if retry_after is not None and retry_after <= _LONGEST_RETRY_AFTER:
            return retry_after
        wait = min(_FIRST_WAIT * 2.0**number, _LONGEST_WAIT)
        return wait * (1.0 - 0.25 * self._rng.random())

    async def _answer(
        self,
        provider: ProviderLimiter,
        admission: Admission,
        request: LoadRequest,
        reservation: Reservation | None,
    ) -> Fate:
        """Write the answer piece by piece; say how it ended."""
        pieces = max(_PIECES, math.ceil(request.seconds / _PIECE))
        try:
            for piece in range(pieces):
                await anyio.sleep(request.seconds / pieces)
                part = request.output * (piece + 1) // pieces - request.output * piece // pieces
                if not provider.generate(admission, part, anyio.current_time()):
                    return Fate.BROKEN_OFF
                if reservation is not None:
                    if reservation.must_stop:
                        return Fate.CUT_OFF
                    reservation.extend()
        finally:
            provider.finish(admission, anyio.current_time())
        return Fate.ANSWERED


async def _arrive(
    provider: ProviderLimiter, request: LoadRequest, record: RequestRecord
) -> Admission | Refusal:
    record.fate = Fate.RUNNING
    record.sent_at = anyio.current_time()
    await anyio.sleep(request.way)
    found = provider.arrive(request.arrival, anyio.current_time())
    if isinstance(found, Refusal):
        record.provider_refusals += 1
    return found


def _text(request: LoadRequest) -> str:
    """Return a text that the provider counts as said, or nearly: one looks longer than another."""
    pieces = 1.05 + 0.2 * (request.at * 7_919 % 1.0)
    return "word " * max(1, round((request.arrival.input_tokens - 12) / pieces))


def _exact(quote: Quote, request: LoadRequest) -> Quote:
    arrival = request.arrival

    def known(value: float) -> Figure:
        return Figure(float(value), Source.COUNTED)

    return replace(
        quote,
        input=known(arrival.input_tokens),
        expected_input=float(arrival.input_tokens),
        output=known(request.output),
        cache_read=known(arrival.cached_tokens),
        duration=known(request.way + request.seconds),
    )


def _check(
    streams: tuple[LoadStream, ...], providers: Mapping[str, ProviderLimiter], duration: float
) -> None:
    if not 0 < duration < math.inf:
        raise ConfigurationError(f"duration is {duration!r}; expected seconds, more than 0.")
    if not streams or not providers:
        raise ConfigurationError("a simulation needs a load, and a provider; give one of each.")
    named = {name for stream in streams for name in stream.deployments}
    unknown = sorted(named - set(providers))
    if unknown:
        raise ConfigurationError(
            f"the load names deployment {unknown[0]!r}; expected one of {', '.join(providers)}."
        )
