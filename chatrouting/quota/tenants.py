"""The chat client that holds a request: all its attempts are on one account.

It stands above routers. The attempts of a request share one ticket, so that whoever pays pays once,
however many deployments are tried.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self, final

from typing_extensions import override

from chatrouting._layers import StreamLayer
from chatrouting.admission import AdmissionQueue, AdmissionRequest
from chatrouting.client import ChatClient, DelegatingChatClient
from chatrouting.messages import ChatMessage, MessagesInput, as_messages
from chatrouting.options import ChatOptions, Principal, RoutingHints
from chatrouting.quota._checks import check_kind
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.ticket import AdmissionTicket
from chatrouting.responses import ChatResponse
from chatrouting.scope import carrying_tickets, current_scope, current_tickets
from chatrouting.stream import ResponseStream


@final
class TenantQuotaClient(DelegatingChatClient):
    """Stands above routers: all attempts of a request are on one account, and paid for once.

    What limits there are for the account, the `QuotaChatClient`s of the same governor inside check,
    together with the deployment's; without one of them inside nothing is charged. Inside another
    one that has named the account it changes nothing.
    """

    def __init__(
        self,
        inner: ChatClient,
        governor: QuotaGovernor,
        *,
        principal: Principal | None = None,
        request_class: str | None = None,
    ) -> None:
        """Wrap a router, or a client.

        Args:
            inner: Asks deployments by `QuotaChatClient`s.
            governor: Stays the caller's.
            principal: On whose account requests run that do not say (`RoutingHints.principal`).
            request_class: Traffic class of requests that name none; None: the governor's default.

        Raises:
            TypeError: If `inner` or `governor` is None.
            ConfigurationError: If the governor knows no such class.
        """
        super().__init__(inner)
        check_kind("governor", governor, QuotaGovernor, "a QuotaGovernor")
        governor.open_ticket(principal, request_class, is_kept=False)  # complains of the class
        self._governor = governor
        self._principal = principal
        self._request_class = request_class

    @override
    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole.

        Raises:
            ConfigurationError: If the request names a class that the governor does not know.
            Exception: What `inner` raised, unchanged.
        """
        options = self._on_account(options)
        with _Account(self._governor, options) as account, account.carried():
            return await self.inner.get_response(messages, options)

    @override
    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece; what `get_response` raises comes when the stream is read."""
        said = as_messages(messages)
        asked = self._on_account(options)
        layer = _AccountLayer()

        async def open_stream() -> ResponseStream:
            layer.account = account = _Account(self._governor, asked)
            try:
                with account.carried():
                    return await _begun(self.inner.get_streaming_response(said, asked))
            except BaseException:
                account.close()
                raise

        return ResponseStream.deferred(open_stream, layer)

    @override
    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        """Answer as `inner` does; a router that waits for it waits on the account.

        Raises:
            TypeError: If `service_type` is None.
        """
        found = super().get_service(service_type, service_key)
        is_queue = service_type is AdmissionQueue and isinstance(found, AdmissionQueue)
        return _AccountQueue(found, self._on_account) if is_queue else found

    def _on_account(self, options: ChatOptions | None) -> ChatOptions:
        """Write the account into the hints, where quotas, estimates and policies read it."""
        options = options or ChatOptions()
        hints = options.routing or RoutingHints()
        return options.replace(
            routing=replace(
                hints,
                principal=hints.principal or self._principal,
                request_class=hints.request_class or self._request_class,
            )
        )


@final
class _Account:
    """One ticket while its request runs: found by what is called inside, closed at the end."""

    def __init__(self, governor: QuotaGovernor, options: ChatOptions) -> None:
        hints, scope = options.routing or RoutingHints(), current_scope()
        self._governor = governor
        self._ticket = governor.open_ticket(
            hints.principal,
            hints.request_class,
            trace_id="" if scope is None else scope.request_id,
        )
        tickets = current_tickets()
        self._tickets: dict[object, Any] = {} if tickets is None else tickets
        self._outer: AdmissionTicket | None = self._tickets.get(governor)
        if self._outer is None or not self._outer.is_of_account(self._ticket):
            self._tickets[governor] = self._ticket

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def carried(self) -> AbstractContextManager[None]:
        """Let what is called in the block find the ticket."""
        return carrying_tickets(self._tickets)

    def close(self) -> None:
        """Settle what the ticket holds; once."""
        if self._tickets.get(self._governor) is self._ticket:
            del self._tickets[self._governor]
            if self._outer is not None and not self._outer.is_over:
                self._tickets[self._governor] = self._outer
        self._governor.close_ticket(self._ticket)


@final
class _AccountLayer(StreamLayer):
    """An account's part in a stream."""

    account: _Account | None = None

    @override
    async def on_end(self, error: BaseException | None) -> BaseException | None:
        self.on_dropped()
        return error

    @override
    def on_dropped(self) -> None:
        if self.account is not None:
            self.account.close()


@final
class _AccountQueue:
    """What stands inside an account as a router sees it that waits for it."""

    def __init__(
        self, inner: AdmissionQueue, on_account: Callable[[ChatOptions], ChatOptions]
    ) -> None:
        self._inner = inner
        self._on_account = on_account

    def admission_requests(
        self, messages: tuple[ChatMessage, ...], options: ChatOptions, *, is_streaming: bool
    ) -> Sequence[AdmissionRequest]:
        return self._inner.admission_requests(
            messages, self._on_account(options), is_streaming=is_streaming
        )


async def _begun(stream: ResponseStream) -> ResponseStream:
    """Read a stream up to its first update: routers inside select then, and need the ticket."""
    try:
        first = await anext(stream)
    except StopAsyncIteration:
        return stream
    stream.put_back([first])
    return stream
