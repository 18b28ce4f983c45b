"""The chat client that holds a request: all its attempts are on one account.

It stands above routers. The attempts of a request share one ticket, so that whoever pays pays once,
however many deployments are tried.
"""

from contextlib import AbstractContextManager
from typing import Any, Self, final

from typing_extensions import override

from chatrouting._layers import StreamLayer
from chatrouting.client import ChatClient, DelegatingChatClient
from chatrouting.messages import MessagesInput, as_messages
from chatrouting.options import ChatOptions, Principal
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.ticket import AdmissionTicket
from chatrouting.responses import ChatResponse
from chatrouting.scope import carrying_tickets, current_scope, current_tickets
from chatrouting.stream import ResponseStream
from chatrouting.usage import Usage


@final
class TenantQuotaClient(DelegatingChatClient):
    """Stands above routers: all attempts of a request are on one account, and paid for once.

    What limits there are for the account, the `QuotaChatClient`s of the same governor inside check,
    together with the deployment's; without one of them inside nothing is charged.
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
        if governor is None:
            raise TypeError("governor is None; expected a QuotaGovernor.")
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
        with _Account(self._governor, self._open(options)) as account:
            with account.carried():
                response = await self.inner.get_response(messages, options)
            account.usage = response.usage
            return response

    @override
    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece; what `get_response` raises comes when the stream is read."""
        said = as_messages(messages)
        layer = _AccountLayer()

        async def open_stream() -> ResponseStream:
            layer.account = account = _Account(self._governor, self._open(options))
            try:
                with account.carried():
                    return await _begun(self.inner.get_streaming_response(said, options))
            except BaseException:
                account.close()
                raise

        return ResponseStream.deferred(open_stream, layer)

    def _open(self, options: ChatOptions | None) -> AdmissionTicket:
        hints = None if options is None else options.routing
        scope = current_scope()
        return self._governor.open_ticket(
            (hints and hints.principal) or self._principal,
            (hints and hints.request_class) or self._request_class,
            trace_id="" if scope is None else scope.request_id,
        )


@final
class _Account:
    """One ticket while its request runs: found by what is called inside, closed at the end."""

    def __init__(self, governor: QuotaGovernor, ticket: AdmissionTicket) -> None:
        self.usage: Usage | None = None
        self._governor = governor
        self._ticket = ticket
        tickets = current_tickets()
        self._tickets: dict[object, Any] = {} if tickets is None else tickets
        self._tickets[governor] = ticket

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
        self._governor.close_ticket(self._ticket, self.usage)


@final
class _AccountLayer(StreamLayer):
    """An account's part in a stream."""

    account: _Account | None = None
    _stream: ResponseStream | None = None

    @override
    def attach(self, stream: ResponseStream) -> None:
        self._stream = stream

    @override
    async def on_end(self, error: BaseException | None) -> BaseException | None:
        self.on_dropped()
        return error

    @override
    def on_dropped(self) -> None:
        if self.account is not None:
            self.account.usage = None if self._stream is None else self._stream.usage
            self.account.close()


async def _begun(stream: ResponseStream) -> ResponseStream:
    """Read a stream up to its first update: routers inside select then, and need the ticket."""
    try:
        first = await anext(stream)
    except StopAsyncIteration:
        return stream
    stream.put_back([first])
    return stream
