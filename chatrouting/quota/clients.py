"""The chat client that holds a deployment to its quota: quote, reserve, ask, settle.

Whatever becomes of a request, it is settled once.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal, final

import anyio
from anyio.lowlevel import checkpoint_if_cancelled
from typing_extensions import override

from chatrouting._closing import close_all
from chatrouting._frozen import FrozenDict
from chatrouting._layers import StreamLayer
from chatrouting.admission import AdmissionRequest
from chatrouting.client import ChatClient, DelegatingChatClient
from chatrouting.errors import (
    BadRequestError,
    ChatClientError,
    ClientClosedError,
    ConfigurationError,
    QuotaReclaimedError,
    RefusedLocallyError,
)
from chatrouting.messages import ChatMessage, MessagesInput, as_messages
from chatrouting.options import ChatOptions, check_timeout
from chatrouting.quota._checks import check_kind
from chatrouting.quota._downgrades import Downgrades
from chatrouting.quota.admissions import Wanted
from chatrouting.quota.classes import Pressure
from chatrouting.quota.decisions import Decision
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.quote import Quote
from chatrouting.quota.reservation import Reservation
from chatrouting.quota.ticket import AdmissionTicket
from chatrouting.responses import ChatResponse, ChatResponseUpdate
from chatrouting.scope import current_scope
from chatrouting.stream import ResponseStream
from chatrouting.usage import Usage

#: What is raised before a provider could see the request.
_NEVER_SENT: Final = (ClientClosedError, ConfigurationError, RefusedLocallyError)

#: Seconds in which nobody can wait for anything.
_NO_TIME: Final = 1e-6

#: How often the lease of a stream is renewed before it would end.
_RENEWALS: Final = 4


@final
class QuotaChatClient(DelegatingChatClient):
    """Holds one deployment to its quota, and asks it only when there is room.

    Under a failover it refuses at once where its request's class would rather go elsewhere; the
    failover waits for all its clients together. Elsewhere it waits as the class allows. Safe for
    many concurrent tasks; one governor serves many clients.
    """

    def __init__(
        self,
        inner: ChatClient,
        governor: QuotaGovernor,
        deployment: str,
        *,
        admission: Literal["queue", "immediate"] = "queue",
        max_wait: float | None = None,
        downgrades: Mapping[str, ChatClient] = FrozenDict(),  # frozen
    ) -> None:
        """Wrap the client of a deployment.

        Args:
            inner: Asks the deployment. The SDK beneath it must not retry by itself, since each
                try is a request of its own; our adapters see to that.
            governor: Knows the deployment's limits; stays the caller's.
            deployment: Its name there.
            admission: "immediate" never waits.
            max_wait: Longest wait, seconds, below what the class allows.
            downgrades: Clients of other deployments of the governor, by their names, that are asked
                instead of `inner` where there is no room and the class may be downgraded to their
                model profile. They choose their model themselves: `ChatOptions.model` is not
                handed on to them. Closed with this client.

        Raises:
            TypeError: If `inner`, `governor` or `deployment` is None.
            ConfigurationError: If the governor knows no such deployment, a client inside holds the
                same quota already, no class may be downgraded so, or an argument is out of range.
        """
        super().__init__(inner)
        check_kind("governor", governor, QuotaGovernor, "a QuotaGovernor")
        check_kind("deployment", deployment, str, "the name of a deployment")
        if deployment not in governor.deployments:
            known = ", ".join(repr(name) for name in governor.deployments)
            raise ConfigurationError(
                f"deployment is {deployment!r}, which the governor does not know; "
                f"expected one of {known}."
            )
        if admission not in ("queue", "immediate"):
            raise ConfigurationError(
                f"admission is {admission!r}; expected 'queue' or 'immediate'."
            )
        check_timeout("max_wait", max_wait)
        _check_once(inner, governor, deployment)
        self._governor = governor
        self._deployment = deployment
        self._admission = admission
        self._max_wait = max_wait
        self._downgrades = Downgrades(downgrades, governor, deployment)
        for name, client in self._downgrades.clients.items():
            _check_once(client, governor, name)

    @property
    def deployment(self) -> str:
        """Name of the deployment in the governor."""
        return self._deployment

    def is_of(self, governor: QuotaGovernor) -> bool:
        """Say whether a governor is the one that is asked here."""
        return self._governor is governor

    @override
    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole, once there is room.

        Raises:
            QuotaExceededError: If there is no room; nobody was asked.
            Exception: What `inner` raised, unchanged.
        """
        said, options = as_messages(messages), options or ChatOptions()
        reservation = await self._reserve(said, options, is_streaming=False)
        client, options = self._asked(reservation, options)
        try:
            response = await client.get_response(said, options)
            usage = response.usage  # within: what a client returns may be no response
        except BaseException as error:
            _fail(self._governor, reservation, error)
            raise
        reservation.settle(usage)
        self._governor.observe(reservation, response.rate_limit_headers)
        return response

    @override
    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece.

        Room is taken when the stream is first read, and what is not used goes back at its end. What
        `get_response` raises comes then.
        """
        said, options = as_messages(messages), options or ChatOptions()
        layer = _QuotaLayer(self._governor)

        async def open_stream() -> ResponseStream:
            layer.reservation = reservation = await self._reserve(said, options, is_streaming=True)
            client, asked = self._asked(reservation, options)
            try:
                return client.get_streaming_response(said, asked)
            except BaseException as error:
                _fail(self._governor, reservation, error)
                raise

        return ResponseStream.deferred(open_stream, layer)

    def admission_requests(
        self, messages: tuple[ChatMessage, ...], options: ChatOptions, *, is_streaming: bool
    ) -> Sequence[AdmissionRequest]:
        """Say what a call would wait for; see `chatrouting.admission`. None if it would not.

        Args:
            messages: Of the request.
            options: Of the request.
            is_streaming: Whether it is for a stream.
        """
        governor = self._governor
        ticket = governor.ticket(options)
        traffic = governor.traffic_class(ticket)
        # A class may want less rather than to wait, once there is nowhere else to go.
        may_be_had = traffic.allows(Pressure.QUEUE) or traffic.allows(Pressure.DOWNGRADE)
        if self._admission == "immediate" or not may_be_had:
            return ()
        quote = self._quote(messages, options, ticket, is_streaming=is_streaming)
        return [AdmissionRequest(governor.desk, Wanted(self, quote, ticket, self._max_wait))]

    def headroom(
        self,
        messages: MessagesInput,
        options: ChatOptions | None = None,
        *,
        is_streaming: bool = False,
    ) -> float:
        """Return the part of the deployment's fullest window that is free, for policies.

        Args:
            messages: Of the request.
            options: Of the request.
            is_streaming: Whether it is for a stream.
        """
        options = options or ChatOptions()
        quote = self._governor.quote(
            as_messages(messages), options, self._deployment, is_streaming=is_streaming
        )
        return self._governor.headroom(quote, self._governor.ticket(options)).share

    @override
    async def aclose(self) -> None:
        """Close `inner`, and the clients of downgrades; each once.

        Raises:
            Exception: What closing a client raised; the others are closed all the same.
        """
        distinct = {id(each): each for each in (self.inner, *self._downgrades.clients.values())}
        await close_all([client.aclose for client in distinct.values()])

    async def _reserve(
        self, messages: tuple[ChatMessage, ...], options: ChatOptions, *, is_streaming: bool
    ) -> Reservation:
        governor = self._governor
        admitted = governor.desk.take(self)
        if admitted is not None:
            return admitted
        ticket = governor.ticket(options)
        quote = self._quote(messages, options, ticket, is_streaming=is_streaming)
        if self._admission == "immediate":
            found = governor.try_reserve(quote, ticket)
            if isinstance(found, Decision):
                raise found.to_error()
            return found
        scope = current_scope()
        time_left = _time_left(options)
        if time_left is not None and time_left <= 0:
            # Whoever is being cancelled is neither refused nor admitted.
            await checkpoint_if_cancelled()
            time_left = _NO_TIME
        return await governor.reserve(
            quote,
            ticket,
            max_wait=self._max_wait,
            timeout=time_left,
            can_reroute=scope is not None and scope.waits_together,
        )

    def _quote(
        self,
        messages: tuple[ChatMessage, ...],
        options: ChatOptions,
        ticket: AdmissionTicket,
        *,
        is_streaming: bool,
    ) -> Quote:
        governor = self._governor
        return governor.quote(
            messages,
            options,
            self._deployment,
            is_streaming=is_streaming,
            downgrades=self._downgrades.names(governor.traffic_class(ticket)),
        )

    def _asked(
        self, reservation: Reservation, options: ChatOptions
    ) -> tuple[ChatClient, ChatOptions]:
        """Return who is asked, and with what."""
        cap = reservation.max_output_tokens
        if cap is not None:
            options = options.replace(max_output_tokens=cap)
        instead = self._downgrades.instead(reservation)
        if instead is None:
            return self.inner, options
        return instead, options if options.model is None else options.replace(model=None)


@final
class _QuotaLayer(StreamLayer):
    """A reservation's part in a stream: kept alive by each update, settled by the end."""

    def __init__(self, governor: QuotaGovernor) -> None:
        self.reservation: Reservation | None = None
        self._governor = governor
        self._stream: ResponseStream | None = None
        self._extended_at = 0.0

    @override
    def attach(self, stream: ResponseStream) -> None:
        self._stream = stream
        self._extended_at = anyio.current_time()

    @override
    def on_update(self, update: ChatResponseUpdate) -> None:
        reservation = self.reservation
        if reservation is None:
            return
        if update.rate_limit_headers is not None:
            self._governor.observe(reservation, update.rate_limit_headers)
        if reservation.must_stop:
            raise QuotaReclaimedError(
                f"the stream ran on capacity borrowed of {reservation.decision.deployment!r}, "
                "which is needed back; try again later, or elsewhere.",
                details=reservation.decision.to_dict(),
            )
        now = anyio.current_time()
        if now - self._extended_at > self._governor.lease / _RENEWALS:
            self._extended_at = now
            reservation.extend()

    @override
    async def on_end(self, error: BaseException | None) -> BaseException | None:
        if self.reservation is None or self._stream is None:
            return error
        usage = self._stream.usage
        if error is None:
            self.reservation.settle(usage)
        elif isinstance(error, GeneratorExit):
            self.reservation.settle(usage, is_complete=self._stream.finish_reason is not None)
        else:
            _fail(self._governor, self.reservation, error, usage)
        return error

    @override
    def on_dropped(self) -> None:
        if self.reservation is not None:
            usage = None if self._stream is None else self._stream.usage
            self.reservation.settle(usage, is_complete=False)


def _check_once(inner: ChatClient, governor: QuotaGovernor, deployment: str) -> None:
    held = inner.get_service(QuotaChatClient)
    if held is None or not held.is_of(governor):
        return
    known = governor.deployments
    if known[held.deployment].scope == known[deployment].scope:
        raise ConfigurationError(
            f"the client inside holds deployment {held.deployment!r} to the quota of "
            f"{deployment!r} already; with its last slot a request would wait for itself. "
            "Wrap it once."
        )


def _time_left(options: ChatOptions) -> float | None:
    """Return the seconds that are left of the request, None if it may take for ever."""
    now, scope = anyio.current_time(), current_scope()
    ends = anyio.current_effective_deadline()
    if scope is not None and scope.deadline is not None:
        ends = min(ends, scope.deadline)
    elif scope is None and options.routing is not None and options.routing.timeout is not None:
        ends = min(ends, now + options.routing.timeout)
    return None if ends == math.inf else ends - now


def _fail(
    governor: QuotaGovernor,
    reservation: Reservation,
    error: BaseException,
    usage: Usage | None = None,
) -> None:
    was_sent = not isinstance(error, _NEVER_SENT) and not (
        # An adapter refuses what it cannot write; a provider's refusal has a status.
        isinstance(error, BadRequestError) and error.status_code is None
    )
    reservation.fail(error, sent=was_sent, usage=usage)
    if isinstance(error, ChatClientError):
        governor.observe(reservation, error.rate_limit_headers)
