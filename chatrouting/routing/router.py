"""The router: selects one client for a request and passes the request on to it."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from chatrouting._closing import close_all
from chatrouting.attempt import RoutingAttempt
from chatrouting.client import ChatClient, ClosingClient, own_service
from chatrouting.errors import ClientClosedError, ConfigurationError
from chatrouting.messages import MessagesInput
from chatrouting.options import ChatOptions
from chatrouting.responses import ChatResponse
from chatrouting.routing._call import RouterCall
from chatrouting.routing._layer import RouterLayer
from chatrouting.routing._reporting import reporter
from chatrouting.routing._routes import RoutesInput, RouteTable
from chatrouting.routing._settings import CallSettings, FailoverSettings, Listener, Selector, Taker
from chatrouting.routing.context import RoutingContext, Selected
from chatrouting.stream import ResponseStream


class RoutingChatClient(ClosingClient):
    """Selects a client for each request, and passes the request on to it.

    Give it a `select_client` callable, or override the method. It is a chat client itself, so
    routers nest. Safe for many concurrent tasks: what belongs to a request lives on its context.

    Subclasses may override `select_client`, `on_routing_update` and `on_request_ended`. These are
    policy: what they raise reaches the caller. A callable given as `on_routing_update` listens
    only: what it raises is logged.
    """

    #: What the constructor calls the routes, for messages.
    _routes_parameter = "routes"

    def __init__(
        self,
        select_client: Selector | None = None,
        *,
        routes: RoutesInput = (),
        leave_open: bool = False,
        on_routing_update: Listener | None = None,
        name: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Build a router.

        Args:
            select_client: Given the `RoutingContext`, returns a client, the name of a route, a
                `Selection`, or None; or an awaitable of those.
            routes: Clients, or a mapping of names to clients. The router closes them.
            leave_open: Closing the router leaves the routes open.
            on_routing_update: Called, and awaited if need be, with (context, attempt,
                is_terminal) after each attempt; its exceptions are logged.
            name: Shown in logs and notes.
            clock: Measures durations, in seconds.

        Raises:
            TypeError: If there is neither a callable nor an overridden method, or `routes` is
                not a collection of clients.
            ConfigurationError: If there are both, or a route is not a chat client.
        """
        self._routes = RouteTable(routes, parameter=self._routes_parameter)
        self._leave_open = leave_open
        self._name = name
        self._is_closed = False
        overrides = self._overrides("select_client")
        if select_client is None and not overrides:
            raise TypeError(
                "select_client is None and not overridden; give a callable that selects a client."
            )
        if select_client is not None and overrides:
            raise ConfigurationError(
                f"{type(self).__name__} overrides select_client and was given one as well; "
                "leave one of them out."
            )
        self._selector = select_client
        watches = self._overrides("on_routing_update")
        failover = self._failover_settings()
        self._settings = CallSettings(
            name=name,
            clock=clock,
            routes=self._routes,
            select=self.select_client if select_client is None else select_client,
            take=self._taker(),
            report=reporter(self.on_routing_update if watches else None, on_routing_update, name),
            on_ended=self.on_request_ended if self._overrides("on_request_ended") else None,
            failover=failover,
            has_early_limit=failover is not None and failover.early_limit is not None,
        )

    def _taker(self) -> Taker | None:
        """Return what finds the next target before `select_client` is asked, if anything does."""
        return None

    def _overrides(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(RoutingChatClient, method)

    def _failover_settings(self) -> FailoverSettings | None:
        return None

    @property
    def routes(self) -> Mapping[str, ChatClient]:
        """The routes, by name; read-only."""
        return self._routes.by_name

    @property
    def name(self) -> str | None:
        """The name given at construction."""
        return self._name

    async def select_client(self, context: RoutingContext) -> Selected:
        """Choose the client of the next attempt. Override it, or give a callable instead.

        Args:
            context: The request. Its `options` may be assigned, `state` is the policy's.

        Returns:
            A client, the name of a route, or a `Selection`. None at the first selection is an
            error; later it means that there is nothing left to try.
        """
        raise NotImplementedError  # the constructor insists on a callable or an override

    async def on_routing_update(
        self,
        context: RoutingContext,
        attempt: RoutingAttempt,
        is_terminal: bool,  # noqa: FBT001  # the hook's three arguments come by position
    ) -> None:
        """Learn of an attempt, before anything else is selected. Override it.

        Args:
            context: The request; the same object for all its attempts.
            attempt: What happened.
            is_terminal: No further client will be selected.
        """

    async def on_request_ended(
        self, context: RoutingContext, exception: BaseException | None
    ) -> None:
        """Learn of the end of a request, once, after its last attempt. Override it.

        Args:
            context: The request.
            exception: What the caller gets; None for an answer or a stream closed early.
        """

    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole, by the selected client.

        Raises:
            NoClientSelectedError: If `select_client` returned None.
            ClientClosedError: If the router was closed.
            Exception: What the client raised, unchanged.
        """
        if self._is_closed:
            raise self._closed_error()
        return await RouterCall(self._settings, messages, options, is_streaming=False).run()

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece, by the client that is selected when the stream is first read.

        Raises:
            ClientClosedError: If the router was closed.
        """
        if self._is_closed:
            raise self._closed_error()
        call = RouterCall(self._settings, messages, options, is_streaming=True)
        layer = RouterLayer(call)

        async def open_stream() -> ResponseStream:
            if self._is_closed:  # since the stream was made
                raise self._closed_error()
            return await call.run(layer)

        return ResponseStream.deferred(open_stream, layer)

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        """Answer for the router itself; a candidate is never asked.

        Raises:
            TypeError: If `service_type` is None.
        """
        return own_service(self, service_type, service_key)

    async def aclose(self) -> None:
        """Close each client that was given, once; with `leave_open` none.

        Raises:
            Exception: What closing a client raised; the others are closed all the same.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if not self._leave_open:
            distinct = {id(client): client for client in self._routes.clients}
            await close_all([client.aclose for client in distinct.values()])

    def _closed_error(self) -> ClientClosedError:
        return ClientClosedError(
            f"router {self._name or type(self).__name__!r} was closed; make requests before aclose."
        )
