"""A member of a pool as a route of its router: a chat client that asks the member's own.

It stands for the endpoint, whichever event loop runs: so it can be a route, and be read from an
attempt's record.
"""

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from chatrouting._cancellation import cancel_count
from chatrouting._limits import LimitExpired, run_within
from chatrouting.client import ChatClient, ClosingClient, own_service
from chatrouting.messages import MessagesInput
from chatrouting.options import ChatOptions
from chatrouting.pool._attempt import run_attempt, timeout_error
from chatrouting.pool._request import PooledRequest
from chatrouting.pool.endpoint import Endpoint
from chatrouting.pool.pool import EndpointPool
from chatrouting.responses import ChatResponse, ChatResponseUpdate
from chatrouting.scope import current
from chatrouting.stream import ResponseStream

if TYPE_CHECKING:
    from chatrouting.attempt import RoutingAttempt

#: Where the state of a request lies on its context.
REQUEST: Final = "chatrouting.pool.request"


def endpoint_of(attempt: "RoutingAttempt") -> Endpoint | None:
    """Return the endpoint that an attempt of a pooled client asked.

    Returns:
        None for attempts of other routers, and for records that were pickled.
    """
    client = attempt.client
    return client.endpoint if isinstance(client, PoolMember) else None


@final
class PoolMember(ClosingClient):
    """One endpoint of a pool as a chat client. The pool's client makes it, and selects it.

    Attributes:
        endpoint: What it is: its id, its region.
    """

    def __init__(
        self, pool: EndpointPool[ChatClient], endpoint: Endpoint, *, commits_at_once: bool
    ) -> None:
        """Stand for an endpoint.

        Args:
            pool: Its pool.
            endpoint: The endpoint.
            commits_at_once: No other member is asked once the first update is there, be it empty.
        """
        self.endpoint = endpoint
        self._pool = pool
        self._commits_at_once = commits_at_once

    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole.

        Raises:
            AttemptTimeoutError: If the endpoint took longer than it is given.
            Exception: What the endpoint's client raised, unchanged.
        """
        request = self._current_request()
        if request is None or request.ticket is None:
            return await self._pool.client_for(self.endpoint).get_response(messages, options)
        endpoint = request.ticket.endpoint  # with a new key, if it was replaced meanwhile
        client: ChatClient = request.roster.core.clients.get(endpoint)
        ends = request.ends_attempt(endpoint)
        if ends == math.inf:
            return await client.get_response(messages, options)
        # What `run_attempt` does; here each coroutine is one that every call pays for.
        try:
            ask = partial(client.get_response, messages, options)
            return await run_within(ends, ask, cancel_count())
        except LimitExpired as expired:
            error = expired.caused(timeout_error(request, endpoint))
        raise error

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece; the time limit is for the first output."""
        request = self._current_request()
        ticket = None if request is None else request.ticket
        client = self._pool.client_for(self.endpoint if ticket is None else ticket.endpoint)
        source = client.get_streaming_response(messages, options)
        stream = source if isinstance(source, ResponseStream) else ResponseStream(source)
        if request is None or ticket is None:
            return stream
        opened = ResponseStream.deferred(partial(self._read_ahead, request, stream))
        return opened.tap(on_dropped=partial(self._pool.released, ticket))

    async def _read_ahead(self, request: PooledRequest, stream: ResponseStream) -> ResponseStream:
        """Read up to the first output, while the time for that runs."""
        ahead: list[ChatResponseUpdate] = []

        async def read() -> None:
            async for update in stream:
                ahead.append(update)
                if self._commits_at_once or update.has_output:
                    return

        await run_attempt(request, self.endpoint, read)
        stream.put_back(ahead)
        return stream

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        """Answer for this client and its `Endpoint`, else ask the endpoint's client.

        Raises:
            TypeError: If `service_type` is None.
        """
        service: Any = own_service(self, service_type, service_key)
        if service is not None:
            return service
        if service_type is Endpoint and service_key is None:
            return self.endpoint
        return self._pool.client_for(self.endpoint).get_service(service_type, service_key)

    async def aclose(self) -> None:
        """Do nothing: the pool closes its clients."""

    def _current_request(self) -> PooledRequest | None:
        """Return the request of the attempt that runs; None where this is asked by itself."""
        scope = current.get()
        if scope is None or scope.call is None:
            return None
        request: PooledRequest | None = scope.call.state.get(REQUEST)
        if request is None or request.roster.pool is not self._pool:
            return None
        if request.ticket is None:
            request.admit(self.endpoint)
        return request
