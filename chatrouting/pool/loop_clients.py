"""The clients of a pool's members, one for each endpoint and event loop.

Connections belong to the event loop that opened them, and a pool may outlive many. So clients are
made when a loop first needs them, and forgotten with the loop.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, final, runtime_checkable
from weakref import WeakKeyDictionary

from anyio.lowlevel import current_token
from typing_extensions import TypeVar

from chatrouting._closing import close_all
from chatrouting.errors import ClientClosedError, ConfigurationError
from chatrouting.pool.endpoint import Endpoint


@runtime_checkable
class Closable(Protocol):
    """What is asked of whatever calls an endpoint."""

    async def aclose(self) -> None:
        """Give up what it holds. May be called more than once."""
        ...


# The default is for pools from the environment, whose kind is a matter of values. Covariant, since
# a pool gives clients out: one of scripted clients is one of chat clients.
ClientT = TypeVar("ClientT", bound=Closable, default=Any, covariant=True)  # noqa: PLC0105

#: Makes the client of an endpoint.
ClientFactory = Callable[[Endpoint], ClientT]
#: Puts something around the client of an endpoint.
Wrap = Callable[[Endpoint, ClientT], ClientT]


@final
class LoopClients(Generic[ClientT]):
    """Makes, keeps and closes the clients of one pool."""

    __slots__ = ("_factory", "_given", "_is_closed", "_lock", "_made", "_ready", "_wrap")

    def __init__(
        self,
        given: Mapping[str, ClientT],
        factory: ClientFactory[ClientT] | None,
        wrap: Wrap[ClientT] | None,
    ) -> None:
        """Begin without clients but those that are given, by the ids of their endpoints."""
        self._given = given
        self._factory = factory
        self._wrap = wrap
        #: What serves every event loop.
        self._ready: Mapping[str, ClientT] = given if wrap is None else {}
        self._lock = threading.Lock()
        # By the identity of the endpoint, which is quicker than its equality and kept alive here.
        self._made: WeakKeyDictionary[object, dict[int, tuple[Endpoint, ClientT]]] = (
            WeakKeyDictionary()
        )
        self._is_closed = False

    def get(self, endpoint: Endpoint) -> ClientT:
        """Return the client of an endpoint for the running event loop.

        Raises:
            ClientClosedError: If the pool was closed.
            ConfigurationError: If the endpoint has no client and nothing can make one.
        """
        if self._is_closed:
            raise ClientClosedError("the pool was used after aclose; make a new one.")
        client = self._ready.get(endpoint.id)
        if client is not None:
            return client
        loop = current_token().native_token
        mine = self._made.get(loop)
        if mine is None:
            with self._lock:
                mine = self._made.setdefault(loop, {})
        # No other loop looks into this one's clients, and none of its own tasks can come between.
        found = mine.get(id(endpoint))
        if found is None:
            found = mine[id(endpoint)] = endpoint, self._make(endpoint)
        return found[1]

    async def aclose(self) -> None:
        """Close what was given, what was made for the running event loop, and the factory.

        What was made for another loop cannot be closed from this one; it is let go.

        Raises:
            Exception: What a client raised when it was closed.
            ExceptionGroup: If several did.
        """
        if self._is_closed:
            return
        self._is_closed = True
        with self._lock:
            mine = self._made.pop(current_token().native_token, {})
            self._made.clear()
        wrapped = {endpoint.id for endpoint, _ in mine.values()}
        closing: list[Closable] = [client for _, client in mine.values()]
        closing += [client for name, client in self._given.items() if name not in wrapped]
        if isinstance(self._factory, Closable):
            closing.append(self._factory)  # what its clients share
        distinct = {id(each): each for each in closing}
        await close_all(each.aclose for each in distinct.values())

    def _make(self, endpoint: Endpoint) -> ClientT:
        client = self._given.get(endpoint.id)
        if client is None:
            if self._factory is None:
                raise ConfigurationError(
                    f"endpoint {endpoint.id!r} has no client. Give the pool pairs of endpoint and "
                    "client, or a client_factory."
                )
            client = self._factory(endpoint)
        return client if self._wrap is None else self._wrap(endpoint, client)
