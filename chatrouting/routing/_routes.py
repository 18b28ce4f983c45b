"""The routes of a router: names, clients and positions."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from chatrouting.client import ChatClient, ClientMetadata
from chatrouting.errors import ConfigurationError

RoutesInput: TypeAlias = Iterable[ChatClient] | Mapping[str, ChatClient]


class RouteTable:
    """The clients that a router was given, each position under a name of its own.

    Attributes:
        names: In the order they were given.
        clients: Likewise; a client given twice stands here twice.
        none_tried: Whether each position was attempted, at the start of a request; to be copied.
        by_name: Read-only view from names to clients.
    """

    __slots__ = ("_index", "by_name", "clients", "names", "none_tried")

    def __init__(self, routes: RoutesInput, *, parameter: str = "routes") -> None:
        """Name and check the routes.

        Args:
            routes: Clients, or a mapping of names to clients; copied.
            parameter: What the caller calls them, for messages.

        Raises:
            TypeError: If `routes` is None or a single client or text.
            ConfigurationError: If an item is not a chat client or a name is empty.
        """
        if isinstance(routes, str | bytes) or not isinstance(routes, Iterable):
            raise TypeError(
                f"{parameter} is {type(routes).__name__}; "
                "expected a list of clients or a mapping of names to clients."
            )
        if isinstance(routes, Mapping):
            named = cast("Mapping[str, ChatClient]", routes)
            self.names = tuple(_checked_name(name, parameter) for name in named)
            self.clients = tuple(named.values())
        else:
            self.clients = tuple(routes)
            self.names = ()
        for position, client in enumerate(self.clients, 1):
            _check_client(client, f"{parameter}[{position}]")
        if not isinstance(routes, Mapping):
            self.names = _unique_names(self.clients)
        self.none_tried = [False] * len(self.names)
        self._index = {name: index for index, name in enumerate(self.names)}
        self.by_name: Mapping[str, ChatClient] = MappingProxyType(
            dict(zip(self.names, self.clients, strict=True))
        )

    def index_of_name(self, name: str) -> int:
        """Return the position of a name.

        Raises:
            ConfigurationError: If there is no such route.
        """
        index = self._index.get(name)
        if index is None:
            known = ", ".join(repr(each) for each in self.names) or "none"
            raise ConfigurationError(
                f"select_client returned the route {name!r}, which does not exist. "
                f"Return one of the routes ({known}), or a client."
            )
        return index

    def index_of_client(self, client: ChatClient, is_tried: "list[bool]") -> int | None:
        """Return the first position of a client that was not tried, else its first one."""
        positions = [index for index, each in enumerate(self.clients) if each is client]
        fresh = (index for index in positions if not is_tried[index])
        return next(fresh, positions[0] if positions else None)


def name_of(client: ChatClient) -> str:
    """Name a client that is no route: by its metadata, else by its class."""
    return _metadata_name(client) or type(client).__name__


def _metadata_name(client: ChatClient) -> str | None:
    metadata: Any = client.get_service(ClientMetadata)
    if not isinstance(metadata, ClientMetadata):
        return None
    return f"{metadata.provider}/{metadata.model}" if metadata.model else metadata.provider


def _unique_names(clients: tuple[ChatClient, ...]) -> tuple[str, ...]:
    names: list[str] = []
    for position, client in enumerate(clients, 1):
        name = base = _metadata_name(client) or f"route-{position}"
        count = 1
        while name in names:
            count += 1
            name = f"{base}-{count}"
        names.append(name)
    return tuple(names)


def _checked_name(name: object, parameter: str) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigurationError(
            f"{parameter} has the name {name!r}; names are texts and not empty."
        )
    return name


def _check_client(client: object, where: str) -> None:
    if not isinstance(client, ChatClient):
        raise ConfigurationError(
            f"{where} is {type(client).__name__}, which is not a chat client; it needs "
            "get_response, get_streaming_response, get_service and aclose."
        )
