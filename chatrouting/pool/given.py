"""What a pool can be made from: endpoints, or clients by endpoint."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

from chatrouting.errors import ConfigurationError
from chatrouting.pool.endpoint import Endpoint

T = TypeVar("T")

MembersInput: TypeAlias = (
    Iterable[Endpoint | tuple[Endpoint | str, T]] | Mapping[Endpoint, T] | Mapping[str, T]
)


def endpoints_and_clients(members: MembersInput[T]) -> tuple[list[Endpoint], dict[str, T]]:
    """Tell apart the endpoints and the clients, these by the ids of their endpoints.

    Raises:
        TypeError: If `members` is no collection.
        ConfigurationError: If something in it is neither an endpoint nor a pair.
    """
    if isinstance(members, str | bytes) or not isinstance(members, Iterable):
        raise TypeError(
            f"members is {type(members).__name__}; expected endpoints, or clients by endpoint."
        )
    pairs = cast("Mapping[object, object]", members) if isinstance(members, Mapping) else None
    items = cast("Iterable[object]", members) if pairs is None else pairs.items()
    endpoints: list[Endpoint] = []
    clients: dict[str, T] = {}
    for item in items:
        if isinstance(item, Endpoint):
            endpoints.append(item)
            continue
        endpoint, client = _pair(item)
        endpoints.append(endpoint)
        clients[endpoint.id] = client
    return endpoints, clients


def _pair(item: object) -> tuple[Endpoint, Any]:
    kind = type(item).__name__
    if isinstance(item, tuple):
        first, *rest = cast("tuple[object, ...]", item) or (None,)
        if isinstance(first, Endpoint | str) and len(rest) == 1 and rest[0] is not None:
            return (Endpoint(first) if isinstance(first, str) else first), rest[0]
    raise ConfigurationError(
        f"a member is {kind}; expected an Endpoint, or a pair of an Endpoint or the id of one and "
        "its client."
    )
