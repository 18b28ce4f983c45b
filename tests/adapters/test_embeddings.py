"""The embeddings adapter over the real SDK, against a provider server."""

import base64
import struct
import subprocess
import sys
from array import array
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import numpy as np
import openai
import pytest

from chatrouting.adapters.embeddings import OpenAIEmbeddingGenerator
from chatrouting.errors import (
    AuthenticationError,
    ClientClosedError,
    ConfigurationError,
    RateLimitError,
    ResponseValidationError,
)
from chatrouting.testing.provider_server import ProviderServer, Reply

MODEL = "embed-x"


def plain(server):
    return openai.AsyncOpenAI(
        base_url=server.openai_base_url,
        api_key="k",
        http_client=httpx2.AsyncClient(verify=False, timeout=5),
    )


def azure(server):
    return openai.AsyncAzureOpenAI(
        azure_endpoint=server.url,
        api_key="k",
        api_version="2025-04-01-preview",
        http_client=httpx2.AsyncClient(verify=False, timeout=5),
    )


@asynccontextmanager
async def serving(*replies, sdk=plain, **settings):
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProviderServer(*replies, **settings))
        client = await stack.enter_async_context(sdk(server))
        yield server, OpenAIEmbeddingGenerator(client, MODEL), client


@pytest.mark.parametrize("sdk", [plain, azure])
async def test_texts_become_vectors_in_order(anyio_backend, sdk):
    """The same numbers as the SDK gives, as float32."""
    texts = ["one", "two", "one"]
    async with serving(sdk=sdk) as (server, generator, client):
        vectors = await generator.generate(texts)
        theirs = await client.embeddings.create(model=MODEL, input=texts)

    assert np.asarray(vectors).dtype == np.float32
    assert np.asarray(vectors).shape == (3, 8)
    np.testing.assert_allclose(vectors, [each.embedding for each in theirs.data], rtol=1e-6)
    assert vectors[0] == vectors[2] != vectors[1]
    ours, by_hand = server.requests
    assert (ours.path, ours.query, ours.body) == (by_hand.path, by_hand.query, by_hand.body)


async def test_more_texts_than_the_api_takes_are_sent_in_turn(anyio_backend):
    texts = [f"text {number}" for number in range(2049)]
    async with serving() as (server, generator, _):
        vectors = await generator.generate(iter(texts))
        last = await generator.generate(texts[-1:])

    assert [len(request.body["input"]) for request in server.requests] == [2048, 1, 1]
    assert len(vectors) == 2049
    assert vectors[-1] == last[0]


async def test_no_texts_are_no_request(anyio_backend):
    async with serving() as (server, generator, _):
        assert await generator.generate([]) == []

    assert server.requests == []


def answer(*embeddings, **facts):
    items = [{"index": index, "embedding": each} for index, each in enumerate(embeddings)]
    return {"object": "list", "data": items, **facts}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(answer([1.0, 2.0], [3, 4]), id="numbers instead of base64"),
        pytest.param(
            {"data": [{"embedding": [1.0, 2.0]}, {"embedding": [3.0, 4.0]}]}, id="no index"
        ),
        pytest.param(
            {
                "data": [
                    {"index": 1, "embedding": [3.0, 4.0]},
                    {"index": 0, "embedding": [1.0, 2.0]},
                ]
            },
            id="another order",
        ),
        pytest.param(
            answer(*(base64.b64encode(struct.pack("<2f", *v)).decode() for v in [(1, 2), (3, 4)])),
            id="base64",
        ),
    ],
)
async def test_every_way_to_write_a_vector_is_read(anyio_backend, body):
    async with serving(Reply(body=body)) as (_, generator, _):
        vectors = await generator.generate(["a", "b"])

    assert vectors == [array("f", [1, 2]), array("f", [3, 4])]


async def test_a_large_answer_is_decoded_beside_the_event_loop(anyio_backend):
    large = base64.b64encode(struct.pack("<300000f", *range(300_000))).decode()
    async with serving(Reply(body=answer(large))) as (_, generator, _):
        (vector,) = await generator.generate(["a"])

    assert vector[299_999] == 299_999.0


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("<html>", id="HTML"),
        pytest.param([], id="empty list"),
        pytest.param({}, id="empty object"),
        pytest.param(answer([1.0]), id="too few"),
        pytest.param(answer([1.0], []), id="empty vector"),
        pytest.param(answer([1.0], None), id="null vector"),
        pytest.param(answer([1.0], ["x"]), id="words in a vector"),
        pytest.param(answer([1.0], "!!!"), id="no base64"),
        pytest.param(answer([1.0], "YWJj"), id="half a number"),
        pytest.param(answer([1.0], [1.0, 2.0]), id="several lengths"),
        pytest.param({"data": [{"index": {}, "embedding": [1.0]}] * 2}, id="odd index"),
    ],
)
async def test_an_answer_without_vectors_is_unreadable(anyio_backend, body):
    async with serving(Reply(body=body)) as (_, generator, _):
        with pytest.raises(ResponseValidationError):
            await generator.generate(["a", "b"])


async def test_errors_are_ours_and_nothing_is_retried(anyio_backend):
    """[BR-30]"""
    replies = [Reply.error(401), Reply(body={"error": {"code": 429}}), Reply.error(429)]
    async with serving(*replies) as (server, generator, _):
        with pytest.raises(AuthenticationError, match="openai model 'embed-x'"):
            await generator.generate(["a"])
        with pytest.raises(RateLimitError):
            await generator.generate(["a"])
        with pytest.raises(RateLimitError):
            await generator.generate(["a"])

    assert len(server.requests) == 3


@pytest.mark.parametrize("texts", [None, "one text"])
async def test_what_is_no_list_of_texts_is_refused(anyio_backend, texts):
    with pytest.raises(TypeError, match="expected a list of texts"):
        await OpenAIEmbeddingGenerator(model=MODEL).generate(texts)


async def test_a_model_must_be_named(anyio_backend):
    async with serving() as (_, _, client):
        with pytest.raises(ConfigurationError, match="no model is named"):
            await OpenAIEmbeddingGenerator(client).generate(["a"])


async def test_closing_leaves_a_given_client_open(anyio_backend):
    async with serving() as (_, generator, client):
        async with generator:
            await generator.generate(["a"])
        await generator.aclose()
        with pytest.raises(ClientClosedError):
            await generator.generate(["a"])
        assert not client.is_closed()


async def test_a_client_of_its_own_is_closed_with_it(anyio_backend, monkeypatch):
    async with ProviderServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        async with OpenAIEmbeddingGenerator(model=MODEL) as generator:
            assert len(await generator.generate(["a"])) == 1
        await server.wait_disconnected()


def test_numpy_is_not_loaded_here():
    code = (
        "import sys, chatrouting.adapters.embeddings as e; e.OpenAIEmbeddingGenerator(model='m');"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'openai', 'httpx2')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)
