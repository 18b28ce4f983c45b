"""What the tests of pools share: provider servers that stand for regions, and a pool over them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import anyio
import httpx2
import pytest

from chatrouting import ChatClient, ChatOptions, ChatResponse, MessagesInput
from chatrouting.pool import ApiKey, Endpoint, EndpointPool, PoolPolicy
from chatrouting.pool.sdk import chat_clients
from chatrouting.testing.provider_server import ProviderServer

Ask: TypeAlias = Callable[..., Awaitable[ChatResponse]]

VERSION = "2025-04-01-preview"


def http_client(connections: int = 100) -> httpx2.AsyncClient:
    """Make an HTTP client without certificates to load, that waits for a connection for 5 s."""
    limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
    return httpx2.AsyncClient(verify=False, limits=limits, timeout=httpx2.Timeout(5.0))


def azure_endpoint(region: str, url: str, **facts: Any) -> Endpoint:
    """Describe a deployment in a region; its name is the region's, in capitals."""
    given = {"deployment": "gpt-4o", "api_version": VERSION, "auth": ApiKey(f"key of {region}")}
    return Endpoint(region.upper(), url, region=region, **{**given, **facts})


@dataclass
class Regions:
    """Servers by region, and a pool whose members are real SDK clients."""

    servers: Mapping[str, ProviderServer]
    pool: EndpointPool[Any]

    def __getitem__(self, region: str) -> ProviderServer:
        return self.servers[region]

    @property
    def counts(self) -> dict[str, int]:
        """How many requests each region got."""
        return {region: len(server.requests) for region, server in self.servers.items()}

    @property
    def in_flight(self) -> int:
        """Tickets that were not given back."""
        return sum(state.in_flight for state in self.pool.snapshot())


@asynccontextmanager
async def regions(
    replies: Mapping[str, Any],
    *,
    policy: PoolPolicy | None = None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
    clients: Callable[..., Any] = chat_clients,
    connections: int = 100,
    **settings: Any,
) -> AsyncIterator[Regions]:
    """Serve regions and pool them.

    Args:
        replies: What each region answers: a reply, a list of them, or a function.
        policy: The pool's.
        facts: What else there is to say of the endpoint of a region.
        clients: Makes the factory of the members' clients.
        connections: Of the HTTP client that all members share.
        settings: Further settings of the pool.
    """
    async with AsyncExitStack() as stack:
        servers: dict[str, ProviderServer] = {}
        for region, given in replies.items():
            listed = given if isinstance(given, list | tuple) else [given]
            servers[region] = await stack.enter_async_context(ProviderServer(*listed))
        endpoints = [
            azure_endpoint(region, server.url, **(facts or {}).get(region, {}))
            for region, server in servers.items()
        ]
        factory = clients(http_client=partial(http_client, connections))
        settings.setdefault("clock", anyio.current_time)
        pool = EndpointPool(endpoints, policy=policy, client_factory=factory, **settings)
        async with pool:
            yield Regions(servers, pool)


@pytest.fixture(params=["whole", "streaming"])
def mode(request: pytest.FixtureRequest) -> str:
    """Run a test once for `get_response` and once for a stream that is read to its end."""
    return str(request.param)


@pytest.fixture
def ask(mode: str) -> Ask:
    """Return `ask(client, messages="Hi", options=None)`, which asks in either mode."""

    async def asking(
        client: ChatClient, messages: MessagesInput = "Hi", options: ChatOptions | None = None
    ) -> ChatResponse:
        if mode == "whole":
            return await client.get_response(messages, options)
        async with client.get_streaming_response(messages, options) as stream:
            return await stream.get_final_response()

    return asking


@pytest.fixture
def serve() -> Callable[..., Any]:
    """Return `regions`."""
    return regions
