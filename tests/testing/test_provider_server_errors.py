"""Errors of the provider server, wrong keys and paths, and Azure, as the SDK clients see them."""

import json
from contextlib import nullcontext
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from chatrouting.testing.provider_server import ProviderServer, Reply

HELLO: Any = [{"role": "user", "content": "Hello"}]


def http() -> httpx2.AsyncClient:
    """Loading the trusted certificates takes longer than a test."""
    return httpx2.AsyncClient(verify=False)


def openai_client(server: ProviderServer, key: str = "key") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=server.openai_base_url, api_key=key, max_retries=0, http_client=http()
    )


def anthropic_client(server: ProviderServer, key: str = "key") -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url=server.anthropic_base_url, api_key=key, max_retries=0, http_client=http()
    )


def azure_client(server: ProviderServer) -> openai.AsyncAzureOpenAI:
    return openai.AsyncAzureOpenAI(
        azure_endpoint=server.url,
        api_key="key",
        api_version="2026-01-01",
        max_retries=0,
        http_client=http(),
    )


async def ask_chat(server: ProviderServer, key: str = "key") -> Any:
    async with openai_client(server, key) as client:
        return await client.chat.completions.create(model="gpt-x", messages=HELLO)


async def ask_responses(server: ProviderServer, key: str = "key") -> Any:
    async with openai_client(server, key) as client:
        return await client.responses.create(model="gpt-x", input="Hello")


async def ask_messages(server: ProviderServer, key: str = "key") -> Any:
    async with anthropic_client(server, key) as client:
        return await client.messages.create(model="claude-x", messages=HELLO, max_tokens=9)


ASKS = [
    pytest.param(ask_chat, id="chat"),
    pytest.param(ask_responses, id="responses"),
    pytest.param(ask_messages, id="anthropic"),
]


@pytest.mark.parametrize("ask", [ask_chat, ask_responses])
@pytest.mark.parametrize(
    ("reply", "kind", "code"),
    [
        (Reply.error(400, code="bad"), openai.BadRequestError, "bad"),
        (Reply.error(401), openai.AuthenticationError, "invalid_api_key"),
        (Reply.error(403), openai.PermissionDeniedError, "unsupported_country_region_territory"),
        (Reply.error(404), openai.NotFoundError, "model_not_found"),
        (Reply.error(409), openai.ConflictError, None),
        (Reply.error(429), openai.RateLimitError, "rate_limit_exceeded"),
        (Reply.error(429, type="insufficient_quota"), openai.RateLimitError, None),
        (Reply.error(503), openai.InternalServerError, "server_overloaded"),
        (Reply.error(400, code=400), openai.BadRequestError, "400"),
        (Reply.azure_content_filter(), openai.BadRequestError, "content_filter"),
        (Reply(status=502, body="<html>"), openai.InternalServerError, None),
    ],
)
async def test_openai_errors(anyio_backend, ask, reply, kind, code):
    async with ProviderServer(reply) as server:
        with pytest.raises(kind) as caught:
            await ask(server)

    assert caught.value.code == code
    assert caught.value.request_id == "req_1"


@pytest.mark.parametrize(
    ("reply", "kind", "type_", "code"),
    [
        (Reply.error(400), anthropic.BadRequestError, "invalid_request_error", None),
        (Reply.error(401), anthropic.AuthenticationError, "authentication_error", None),
        (
            Reply.error(429, code="enforced_spend_limit_reached"),
            anthropic.RateLimitError,
            "rate_limit_error",
            "enforced_spend_limit_reached",
        ),
        (Reply.error(500), anthropic.InternalServerError, "api_error", None),
        (Reply.error(529), anthropic.OverloadedError, "overloaded_error", None),
        (Reply(status=502, body="<html>"), anthropic.InternalServerError, None, None),
    ],
)
async def test_anthropic_errors(anyio_backend, reply, kind, type_, code):
    async with ProviderServer(reply) as server:
        with pytest.raises(anthropic.APIStatusError) as caught:
            await ask_messages(server)

    error = caught.value
    assert isinstance(error, kind)
    assert (error.type, error.error_code, error.request_id) == (type_, code, "req_1")


@pytest.mark.parametrize("ask", ASKS)
async def test_headers_of_an_error(anyio_backend, ask):
    reply = Reply.error(429, retry_after=1.5, headers={"X-RateLimit-Reset-Tokens": "6m0s"})
    async with ProviderServer(reply) as server:
        with pytest.raises(Exception, match="429") as caught:
            await ask(server)

    error: Any = caught.value
    headers = error.response.headers
    assert (headers["retry-after"], headers["x-ratelimit-reset-tokens"]) == ("1.5", "6m0s")


async def test_header_lines_can_repeat(anyio_backend):
    """Two `retry-after` lines."""
    reply = Reply(headers=[("retry-after", "1"), ("retry-after", "2")])
    async with ProviderServer(reply) as server, openai_client(server) as client:
        answer = await client.chat.completions.with_raw_response.create(model="m", messages=HELLO)

    assert answer.headers.get_list("retry-after") == ["1", "2"]


@pytest.mark.parametrize("ask", ASKS)
async def test_fields_of_a_dialect_can_be_added(anyio_backend, ask):
    async with ProviderServer(Reply(extra_fields={"x_groq": {"id": 3}})) as server:
        assert (await ask(server)).x_groq == {"id": 3}


@pytest.mark.parametrize("ask", ASKS)
async def test_wrong_key_is_refused_and_uses_up_no_reply(anyio_backend, ask):
    async with ProviderServer(Reply(id="first"), api_key="right") as server:
        with pytest.raises((openai.AuthenticationError, anthropic.AuthenticationError)):
            await ask(server, "wrong")
        answer = await ask(server, "right")

    assert answer.id == "first"


async def test_unknown_path_is_404_and_is_recorded(anyio_backend):
    async with ProviderServer() as server:
        async with openai_client(server) as client:
            with pytest.raises(openai.NotFoundError, match="Invalid URL"):
                await client.models.list()
        async with anthropic_client(server) as other:
            with pytest.raises(anthropic.NotFoundError):
                await other.models.list()

    assert [request.path for request in server.requests] == ["/v1/models", "/v1/models"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", pytest.raises(json.JSONDecodeError)),
        (b"{", pytest.raises(json.JSONDecodeError)),
        ("<html>", nullcontext()),
        ([], nullcontext()),
        ({"error": {"message": "no"}}, nullcontext()),
    ],
)
async def test_body_can_be_anything(anyio_backend, body, expected):
    """A 200 is unproven: most of these pass the SDK."""
    async with ProviderServer(Reply(body=body)) as server:
        with expected:
            assert not getattr(await ask_chat(server), "choices", None)


# Azure


async def test_azure_paths(anyio_backend):
    async with ProviderServer(Reply("Hi")) as server, azure_client(server) as client:
        answer = await client.chat.completions.create(model="my-deployment", messages=HELLO)
        await client.responses.create(model="my-deployment", input="Hello")
        await client.embeddings.create(model="my-deployment", input="Hello")

    assert answer.choices[0].message.content == "Hi"
    assert [request.path for request in server.requests] == [
        "/openai/deployments/my-deployment/chat/completions",
        "/openai/responses",
        "/openai/deployments/my-deployment/embeddings",
    ]
    assert server.requests[0].query == {"api-version": "2026-01-01"}
    assert server.requests[0].headers["api-key"] == "key"


async def test_azure_wrong_key_has_a_body_of_its_own(anyio_backend):
    async with ProviderServer(api_key="right") as server, azure_client(server) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.chat.completions.create(model="d", messages=HELLO)

    assert caught.value.code is None
    assert caught.value.response.json()["statusCode"] == 401
    assert caught.value.request_id == "req_1"


async def test_azure_errors_have_the_usual_body(anyio_backend):
    reply = Reply.error(404, code="DeploymentNotFound")
    async with ProviderServer(reply) as server, azure_client(server) as client:
        with pytest.raises(openai.NotFoundError) as caught:
            await client.chat.completions.create(model="d", messages=HELLO)

    assert caught.value.code == "DeploymentNotFound"
