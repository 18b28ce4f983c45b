"""Which clients a pool from the environment makes, by what its endpoints do."""

from typing import Any

from chatrouting.pool._grammar import EndpointKind
from chatrouting.pool.endpoint import TokenProvider
from chatrouting.pool.loop_clients import ClientFactory
from chatrouting.pool.sdk import chat_clients, embedding_generators, image_clients


def factory_of(kind: EndpointKind, credential: TokenProvider | None) -> ClientFactory[Any] | None:
    """Return what makes the clients of a kind over the SDK; None where there are none."""
    if kind == "chat":
        return chat_clients(credential=credential)
    if kind == "embedding":
        return embedding_generators(credential=credential)
    return image_clients(credential=credential) if kind == "image" else None
