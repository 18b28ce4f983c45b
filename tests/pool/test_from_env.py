"""Pools from the environment: what `discover` finds, with clients over the SDK."""

import pytest

from chatrouting.errors import ClientClosedError, ConfigurationError, PoolConfigError
from chatrouting.pool import (
    ApiKey,
    Diagnostics,
    EndpointPool,
    PooledChatClient,
    PoolPolicy,
    discover,
)
from chatrouting.testing import ProviderServer, ScriptedChatClient

ROOT = "AZURE_OPENAI_ENDPOINT"
NAMES = {"chat": "X", "embedding": "EMBEDDING_X", "image": "GPT_IMAGE_1_5"}


@pytest.fixture
async def server(anyio_backend, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with ProviderServer() as server:
        yield server


def variables(server, kind="chat", **more):
    word = NAMES[kind]
    url = f"{server.url}/openai/deployments/{{}}?api-version=2024-10-21"
    return {
        f"{ROOT}_{word}_UK": url.format("in-uk"),
        f"{ROOT}_{word}_EASTUS_PTU": url.format("in-east"),
        "AZURE_OPENAI_API_KEY": "k",
        **more,
    }


async def test_a_pool_has_the_endpoints_that_are_found_and_says_how(anyio_backend, server):
    env = variables(server, **{f"{ROOT}_X_MOON": "https://moon"})
    policy = PoolPolicy.resilient()

    async with EndpointPool.from_env("X", env=env, policy=policy) as pool:
        found = discover("X", env=env)
        assert pool.endpoints == found.endpoints
        assert pool.preferred.id == "X_EASTUS_PTU"
        assert pool.diagnostics == found.diagnostics
        assert pool.pinned("X_UK").diagnostics == found.diagnostics
        assert [each.variable for each in pool.diagnostics.skipped] == [f"{ROOT}_X_MOON"]
        assert (pool.name, pool.policy) == ("azure:X", policy)


async def test_its_members_are_asked_over_the_sdk(anyio_backend, server):
    """[pools 1, 20] By Azure's path, with the version and the key of the variables."""
    env = variables(server, AZURE_OPENAI_API_KEY_X_UK="own")
    async with EndpointPool.from_env("X", env=env) as pool:
        texts = [
            (await pool.client_for(endpoint).get_response("Hi")).text for endpoint in pool.endpoints
        ]
    assert texts == ["Hello from the provider."] * 2
    asked = [(each.path.partition("?")[0], each.headers["api-key"]) for each in server.requests]
    assert asked == [
        ("/openai/deployments/in-east/chat/completions", "k"),
        ("/openai/deployments/in-uk/chat/completions", "own"),
    ]


async def test_embeddings_and_images_have_clients_of_their_own(anyio_backend, server):
    """[pools 15, 16]"""
    env = variables(server, "embedding")
    async with EndpointPool.from_env("X", kind="embedding", env=env) as pool:
        vectors = await pool.client_for(pool.preferred).generate(["a", "b"])
        assert len(vectors) == 2
    env = variables(server, "image")
    async with EndpointPool.from_env(kind="image", env=env) as pool:
        images = await pool.client_for(pool.preferred).generate("a cat")
        assert images is not None


async def test_video_has_no_clients_but_those_of_the_caller(anyio_backend):
    env = {f"{ROOT}_SORA_2": "https://x"}
    async with EndpointPool.from_env(kind="video", env=env) as pool:
        with pytest.raises(ConfigurationError, match="has no client"):
            pool.client_for(pool.preferred)


async def test_the_caller_may_make_clients_and_put_something_around_them(anyio_backend, server):
    made = []

    def make(endpoint):
        made.append(endpoint.id)
        return ScriptedChatClient("scripted")

    def wrap(endpoint, client):
        made.append(client)
        return client

    env = variables(server)
    async with EndpointPool.from_env("X", env=env, client_factory=make, wrap=wrap) as pool:
        client = pool.client_for(pool.preferred)
        assert (await client.get_response("Hi")).text == "scripted"
    assert made == ["X_EASTUS_PTU", client]
    with pytest.raises(ClientClosedError):
        await client.get_response("Hi")


async def test_a_credential_gives_tokens_to_members_without_a_key(anyio_backend, server):
    """[pools 20, 21]"""
    tokens = iter(["one", "two"])

    async def credential():
        return next(tokens)

    env = variables(server)
    del env["AZURE_OPENAI_API_KEY"]
    async with EndpointPool.from_env("X", env=env, credential=credential) as pool:
        for endpoint in pool.endpoints:
            await pool.client_for(endpoint).get_response("Hi")
    assert [each.headers["authorization"] for each in server.requests] == [
        "Bearer one",
        "Bearer two",
    ]


async def test_openai_is_asked_by_its_own_path(anyio_backend, server):
    """[pools 17, 20]"""
    env = {
        "OPENAI_ENDPOINT_FOO_UK": f"{server.openai_base_url}/chat/completions",
        "OPENAI_API_KEY": "k",
        "OPENAI_MODEL_FOO": "foo-1",
    }
    async with EndpointPool.from_env("openai:FOO", env=env) as pool:
        await pool.client_for(pool.preferred).get_response("Hi")
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer k"
    assert request.body["model"] == "foo-1"


async def test_what_a_url_does_not_say_is_told_when_a_client_is_made(anyio_backend, server):
    """The deployment is not guessed from the name of the variable."""
    env = {f"{ROOT}_GPT_4_O": server.url, "AZURE_OPENAI_API_KEY": "k"}
    async with EndpointPool.from_env("GPT_4_O", env=env, api_version="v") as pool:
        with pytest.raises(ConfigurationError, match="has no deployment"):
            pool.client_for(pool.preferred)
    given = {"deployment": "mine", "api_version": "2024-10-21"}
    async with EndpointPool.from_env("GPT_4_O", env=env, **given) as pool:
        await pool.client_for(pool.preferred).get_response("Hi")
    assert server.requests[0].path.startswith("/openai/deployments/mine/chat/completions")


async def test_keys_are_changed_without_a_new_process(anyio_backend, server):
    """[pools B18, 44]"""
    env = variables(server)
    async with EndpointPool.from_env("X", env=env) as pool:
        await pool.client_for(pool.preferred).get_response("Hi")
        env["AZURE_OPENAI_API_KEY"] = "new"
        pool.replace_endpoints(discover("X", env=env).endpoints)
        await pool.client_for(pool.preferred).get_response("Hi")
        assert pool.preferred.auth == ApiKey("new")
    assert [each.headers["api-key"] for each in server.requests] == ["k", "new"]


def test_arguments_go_to_discovery():
    env = {f"{ROOT}_X_MOON": "https://x", f"{ROOT}": "https://y", f"{ROOT}_EMBEDDING_FLUX": ""}
    assert EndpointPool.from_env("X", env=env, regions=["moon"]).preferred.region == "moon"
    with pytest.raises(PoolConfigError, match="X_MOON"):
        EndpointPool.from_env("X", env=env)
    default = EndpointPool.from_env("Y", env=env, fallback_to_default=True)
    assert default.preferred.url == "https://y"
    with pytest.raises(PoolConfigError, match="it is empty"):
        EndpointPool.from_env("FLUX", kind="embedding", env=env, strict=True)
    with pytest.raises(ConfigurationError, match="FLUX"):
        EndpointPool.from_env(kind="image", image_model="flux", env=env)


def test_a_pool_that_was_made_otherwise_has_nothing_to_say():
    assert EndpointPool({"a": ScriptedChatClient("x")}).diagnostics == Diagnostics()


async def test_a_client_from_the_environment_closes_its_pool(anyio_backend, server):
    """The pool is nobody else's."""
    attempts, asked = [], []

    def wrap(endpoint, client):
        asked.append(endpoint.id)
        return client

    async with PooledChatClient.from_env(
        "X",
        env=variables(server, **{f"{ROOT}_X_MOON": "https://moon"}),
        policy=PoolPolicy.resilient(),
        wrap=wrap,
        on_routing_update=lambda context, attempt, is_terminal: attempts.append(attempt.route),
    ) as client:
        assert (await client.get_response("Hi")).text == "Hello from the provider."
        assert attempts == asked == ["X_EASTUS_PTU"]
        assert (client.name, client.pool.policy) == ("azure:X", PoolPolicy.resilient())
        assert client.pool.diagnostics.skipped
    with pytest.raises(ClientClosedError, match="the pool was used"):
        client.pool.client_for(client.pool.preferred)
    with pytest.raises(ClientClosedError, match="router 'azure:X'"):
        await client.get_response("Hi")


@pytest.mark.parametrize("strict", [False, True])
def test_a_client_from_an_environment_that_says_nothing_is_refused(strict):
    with pytest.raises(ConfigurationError, match="X"):
        PooledChatClient.from_env("X", env={}, strict=strict)
