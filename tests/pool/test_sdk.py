"""SDK-backed members of a pool: real SDK clients made from endpoints, against provider servers."""

import gc
import sys
import threading
import tracemalloc
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import pytest
from openai import AsyncOpenAI

from chatrouting import ChatOptions
from chatrouting.errors import (
    AuthenticationError,
    ConfigurationError,
    MissingExtraError,
    RateLimitError,
)
from chatrouting.pool import ApiKey, Endpoint, Identity
from chatrouting.pool._identity import SCOPE, AzureIdentity
from chatrouting.pool.sdk import chat_clients, embedding_generators, image_clients
from chatrouting.testing.provider_server import ProviderServer, Reply

VERSION = "2025-04-01-preview"


def azure(server, id="EASTUS", **changes):
    given = {"deployment": "gpt-4o", "api_version": VERSION, "auth": ApiKey("secret-key")}
    return Endpoint(id, server.url, **{**given, **changes})


@asynccontextmanager
async def closing(factory):
    try:
        yield factory
    finally:
        await factory.aclose()


async def test_an_azure_member_asks_its_deployment_with_its_key(anyio_backend):
    """The deployment stands in the path, the version in the query, the key in its header.

    [pools 20]
    """
    async with ProviderServer() as server, closing(chat_clients()) as make:
        client = make(azure(server))
        # Another model is the caller's wish; the deployment is what the pool chose.
        await client.get_response("Hi", ChatOptions(model="gpt-5"))

    (request,) = server.requests
    assert request.path == "/openai/deployments/gpt-4o/chat/completions"
    assert request.query == {"api-version": VERSION}
    assert request.headers["api-key"] == "secret-key"
    assert "authorization" not in request.headers


@pytest.mark.parametrize("version", [None, "preview"])
async def test_a_member_of_azures_newer_form_asks_its_model(anyio_backend, version):
    async with ProviderServer() as server, closing(chat_clients()) as make:
        endpoint = Endpoint(
            "SWEDEN",
            f"{server.url}/openai/v1",
            deployment="gpt-4o",
            api_version=version,
            auth=ApiKey("k"),
        )
        await make(endpoint).get_response("Hi")

    (request,) = server.requests
    assert (request.path, request.model) == ("/openai/v1/chat/completions", "gpt-4o")
    assert request.query == ({} if version is None else {"api-version": version})
    assert request.headers["authorization"] == "Bearer k"


async def test_an_openai_member_sends_a_bearer_key(anyio_backend):
    """[pools 20]."""
    async with ProviderServer() as server, closing(chat_clients()) as make:
        endpoint = Endpoint(
            "", server.openai_base_url, provider="openai", model="gpt-x", auth=ApiKey("k")
        )
        await make(endpoint).get_response("Hi")

    (request,) = server.requests
    assert (request.path, request.model) == ("/v1/chat/completions", "gpt-x")
    assert request.headers["authorization"] == "Bearer k"


async def test_embeddings_and_images_use_the_same_way_in(anyio_backend):
    async with (
        ProviderServer() as server,
        closing(embedding_generators()) as embed,
        closing(image_clients()) as draw,
    ):
        await embed(azure(server, deployment="e3")).generate(["text"])
        await draw(azure(server, deployment="image")).generate("A cat")

    assert [request.path for request in server.requests] == [
        "/openai/deployments/e3/embeddings",
        "/openai/deployments/image/images/generations",
    ]


async def test_the_sdk_does_not_retry(anyio_backend):
    """One call, one request: a pool turns to another member instead."""
    async with ProviderServer(Reply.error(429)) as server, closing(chat_clients()) as make:
        with pytest.raises(RateLimitError):
            await make(azure(server)).get_response("Hi")

        assert len(server.requests) == 1


async def test_members_share_one_http_client(anyio_backend):
    """A connection that one member opened carries the next one's request."""
    async with ProviderServer() as server, closing(chat_clients()) as make:
        for number in range(3):
            member = make(azure(server, id=f"{number}", deployment=f"gpt-{number}"))
            await member.get_response("Hi")

        assert (len(server.requests), server.connection_count) == (3, 1)


async def test_closing_closes_the_connections(anyio_backend):
    async with ProviderServer() as server:
        make = chat_clients()
        await make(azure(server)).get_response("Hi")
        assert server.open_connections == 1
        await make.aclose()
        await make.aclose()
        await server.wait_disconnected()


def test_each_event_loop_has_its_own_http_client(anyio_backend_name_of_two):
    """One factory in loops that follow one another; connections belong to a loop.

    [pools section 4: event-loop binding]
    """
    make = chat_clients()

    async def ask() -> int:
        async with ProviderServer() as server:
            await make(azure(server)).get_response("Hi")
            await make.aclose()
        return len(server.requests)

    for backend in anyio_backend_name_of_two:
        assert anyio.run(ask, backend=backend) == 1


@pytest.fixture(params=[("asyncio", "asyncio"), ("trio", "trio"), ("asyncio", "trio")])
def anyio_backend_name_of_two(request):
    """Return the backends of two loops."""
    return request.param


async def test_a_hundred_members_hold_little_memory(anyio_backend):
    async with closing(chat_clients()) as make:
        make(azure_endpoint(0))
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            members = [make(azure_endpoint(number)) for number in range(100)]
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert len(members) == 100
    assert (after - before) / 2**20 < 5


def azure_endpoint(number):
    return Endpoint(
        f"R{number}",
        f"https://r{number}.openai.azure.com",
        deployment="gpt-4o",
        api_version=VERSION,
        auth=ApiKey("k"),
    )


# Tokens


async def test_a_member_without_a_key_asks_for_a_token_each_time(anyio_backend):
    """[pools 20, 21]."""
    tokens = iter(["one", "two"])

    async def provider():
        return next(tokens)

    async with ProviderServer() as server, closing(chat_clients()) as make:
        client = make(azure(server, auth=Identity(provider)))
        await client.get_response("Hi")
        await client.get_response("Hi")

    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer one", "Bearer two"]
    assert all("api-key" not in request.headers for request in server.requests)


@pytest.mark.parametrize("form", ["versions", "newer"])
@pytest.mark.parametrize("auth", [None, Identity()])
async def test_the_token_of_the_pool_serves_members_without_their_own(anyio_backend, form, auth):
    """[pools 20]."""

    async def provider():
        return "shared"

    async with ProviderServer() as server, closing(chat_clients(credential=provider)) as make:
        endpoint = azure(server, auth=auth)
        if form == "newer":
            endpoint = Endpoint("B", f"{server.url}/openai/v1", deployment="gpt-4o", auth=auth)
        await make(endpoint).get_response("Hi")

    assert server.requests[0].headers["authorization"] == "Bearer shared"


async def test_a_token_that_cannot_be_had_is_a_failure_of_the_member(anyio_backend):
    """Nothing is sent, and the error shows nothing of what the provider said.

    [pools 53]
    """

    async def provider():
        raise OSError("secret tenant")

    async with ProviderServer() as server, closing(chat_clients()) as make:
        with pytest.raises(AuthenticationError, match=r"'EASTUS' got no token: OSError") as caught:
            await make(azure(server, auth=Identity(provider))).get_response("Hi")

    assert server.requests == []
    assert "secret" not in str(caught.value)


async def test_without_azure_identity_only_its_members_fail(anyio_backend):
    """The others have keys.

    [pools 20]
    """
    async with ProviderServer() as server, closing(chat_clients()) as make:
        with pytest.raises(AuthenticationError, match=r"chatrouting\[azure\]") as caught:
            await make(azure(server, auth=Identity())).get_response("Hi")
        await make(azure(server)).get_response("Hi")

    assert isinstance(caught.value.__cause__, MissingExtraError)
    assert len(server.requests) == 1


async def test_azure_identity_gives_the_token(anyio_backend, monkeypatch, tmp_path):
    """A package of that shape stands in for it: its default credential, asked for the scope."""
    package = tmp_path / "azure" / "identity"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from types import SimpleNamespace\n"
        "class DefaultAzureCredential:\n"
        "    def get_token(self, scope):\n"
        "        return SimpleNamespace(token='for ' + scope, expires_on=2**40)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("azure", "azure.identity"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    token = AzureIdentity()
    assert [await token(), await token()] == [f"for {SCOPE}"] * 2
    for name in ("azure", "azure.identity"):
        monkeypatch.delitem(sys.modules, name)


@dataclass
class Token:
    """What a credential gives."""

    token: str
    expires_on: int


class Credentials:
    """Gives tokens that are good for an hour, and counts."""

    def __init__(self):
        self.time = 1000.0
        self.fetched = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def make(self):
        return self.fetch

    def fetch(self, scope):
        assert scope == SCOPE
        assert self.may_answer.wait(5)
        self.fetched += 1
        return Token(f"token {self.fetched}", int(self.time) + 3600)

    def identity(self):
        return AzureIdentity(self.make, now=lambda: self.time)


async def test_a_token_is_renewed_five_minutes_before_its_end(anyio_backend):
    """[pools 20]."""
    credentials = Credentials()
    token = credentials.identity()

    assert await token() == "token 1"
    credentials.time += 3299
    assert await token() == "token 1"
    credentials.time += 1
    assert await token() == "token 2"


async def test_many_tasks_fetch_one_token(anyio_backend):
    """[pools 20]."""
    credentials = Credentials()
    token = credentials.identity()
    found = []
    credentials.may_answer.clear()

    async def ask():
        found.append(await token())

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        credentials.may_answer.set()

    assert found == ["token 1"] * 20
    assert credentials.fetched == 1


# What an endpoint must say


@pytest.mark.parametrize(
    ("endpoint", "missing"),
    [
        (Endpoint("A", deployment="d", api_version="v"), "url"),
        (Endpoint("A", "https://host", api_version="v"), "deployment"),
        (Endpoint("A", "https://host", model="m", api_version="v"), "deployment"),
        (Endpoint("A", "https://host", deployment="d"), "api_version"),
        (Endpoint("A", "https://host/openai/v1"), "deployment"),
        (Endpoint("A", provider="openai", auth=ApiKey("k")), "model"),
        (Endpoint("A", provider="openai", model="m"), "auth"),
    ],
)
async def test_what_is_missing_is_named(anyio_backend, endpoint, missing):
    with pytest.raises(ConfigurationError, match=f"endpoint 'A' has no {missing}"):
        chat_clients()(endpoint)


async def test_openai_itself_needs_no_url_and_no_timeout_is_allowed(anyio_backend, monkeypatch):
    """The environment is not read for it."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere")
    endpoint = Endpoint("", provider="openai", model="m", auth=ApiKey("k"), timeout=None)
    async with closing(chat_clients()) as make:
        client = make(endpoint)

    sdk = client.get_service(AsyncOpenAI)
    assert str(sdk.base_url) == "https://api.openai.com/v1/"
    assert sdk.timeout.read is None
    assert sdk.max_retries == 0


async def test_members_belong_to_no_project_of_the_environment(anyio_backend, monkeypatch):
    """Another project's name beside a member's key would be refused by the provider."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-another-key")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-of-another-key")
    async with ProviderServer() as server, closing(chat_clients()) as make:
        openai = Endpoint("", server.url, provider="openai", model="m", auth=ApiKey("k"))
        for endpoint in (openai, azure(server)):
            await make(endpoint).get_response("Hi")

    assert len(server.requests) == 2
    for request in server.requests:
        assert not {"openai-organization", "openai-project"} & set(request.headers)
