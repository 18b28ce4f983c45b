"""The images adapter over the real SDK, against a provider server."""

import base64
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import openai
import pytest

from chatrouting import DataContent, UriContent, Usage
from chatrouting.adapters.images import ImageOptions, OpenAIImageClient
from chatrouting.errors import (
    BadRequestError,
    ClientClosedError,
    ConfigurationError,
    ContentFilteredError,
    RateLimitError,
    ResponseValidationError,
)
from chatrouting.testing.provider_server import ProviderServer, Reply

MODEL = "image-x"
CAT = DataContent(b"\x89PNG cat", "image/png", name="cat.png")
DOG = DataContent(b"\x89PNG dog", "image/webp")


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
async def serving(*replies, sdk=plain):
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProviderServer(*replies))
        client = await stack.enter_async_context(sdk(server))
        yield server, OpenAIImageClient(client, MODEL), client


@pytest.mark.parametrize("sdk", [plain, azure])
async def test_words_become_pictures(anyio_backend, sdk):
    """The same request and the same bytes as by the SDK."""
    options = ImageOptions(count=2, size="1024x1024", quality="high", background="opaque")
    async with serving(sdk=sdk) as (server, images, client):
        answer = await images.generate("A cat", options)
        theirs = await client.images.generate(
            model=MODEL, prompt="A cat", n=2, size="1024x1024", quality="high", background="opaque"
        )

    expected = [base64.b64decode(each.b64_json or "") for each in theirs.data or ()]
    assert answer.images == tuple(DataContent(data, "image/png") for data in expected)
    assert answer.usage == Usage(input_tokens=9, output_tokens=3)
    ours, by_hand = server.requests
    assert (ours.path, ours.query, ours.body) == (by_hand.path, by_hand.query, by_hand.body)


@pytest.mark.parametrize("sdk", [plain, azure])
async def test_pictures_are_edited(anyio_backend, sdk):
    async with serving(sdk=sdk) as (server, images, client):
        one = await images.edit("A hat", [CAT], ImageOptions(count=1))
        await images.edit("Both", [CAT, DOG], mask=DOG)
        await client.images.edit(
            model=MODEL, prompt="A hat", image=(CAT.name, CAT.data, CAT.media_type), n=1
        )

    assert isinstance(one.images[0], DataContent)
    ours, both, by_hand = server.requests
    assert (ours.path, ours.query, ours.body) == (by_hand.path, by_hand.query, by_hand.body)
    assert [each["filename"] for each in both.body["image"]] == ["cat.png", "2.png"]
    assert [each["content_type"] for each in both.body["image"]] == ["image/png", "image/webp"]
    assert both.body["mask"] == {
        "filename": "3.png",
        "content_type": "image/webp",
        "data": DOG.data,
    }


async def test_an_address_and_other_fields_are_handed_through(anyio_backend):
    options = ImageOptions(additional_properties={"response_format": "url"}, output_format="webp")
    reply = Reply(extra_fields={"output_format": "webp"}, usage=None)
    async with serving(reply) as (server, images, _):
        answer = await images.generate("A cat", options)

    (picture,) = answer.images
    assert isinstance(picture, UriContent)
    assert picture.media_type == "image/webp"
    assert answer.usage is None
    assert server.requests[0].body["output_format"] == "webp"


async def test_a_large_answer_is_decoded_too(anyio_backend):
    data = bytes(1_000_000)
    body = {"data": [{"b64_json": base64.b64encode(data).decode()}]}
    async with serving(Reply(body=body)) as (_, images, _):
        answer = await images.generate("A cat")

    assert answer.images == (DataContent(data, "image/png"),)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"data": []}, id="no images"),
        pytest.param({"data": [{"b64_json": "?"}]}, id="no base64"),
        pytest.param({"data": [{"revised_prompt": "A dog"}]}, id="neither bytes nor address"),
        pytest.param([], id="a list"),
    ],
)
async def test_an_answer_without_pictures_is_an_error(anyio_backend, body):
    async with serving(Reply(body=body)) as (_, images, _):
        with pytest.raises(ResponseValidationError, match="answered 200 with"):
            await images.generate("A cat")


async def test_errors_of_the_provider_are_ours(anyio_backend):
    overloaded = {"error": {"message": "The server is overloaded.", "code": "rate_limit_exceeded"}}
    replies = [
        Reply.error(429, retry_after=7),
        Reply.error(400, code="moderation_blocked"),
        Reply(body=overloaded),
    ]
    async with serving(*replies) as (server, images, _):
        with pytest.raises(RateLimitError) as caught:
            await images.generate("A cat")
        with pytest.raises(ContentFilteredError):
            await images.edit("A hat", [CAT])
        with pytest.raises(RateLimitError):
            await images.generate("A cat")

    assert (caught.value.retry_after, len(server.requests)) == (7.0, 3)


async def test_what_cannot_be_asked_is_not_sent(anyio_backend):
    async with serving() as (server, images, client):
        with pytest.raises(ConfigurationError, match="at least one picture"):
            await images.edit("A hat", [])
        with pytest.raises(TypeError, match="expected DataContent"):
            await images.edit("A hat", ["cat.png"])
        with pytest.raises(ConfigurationError, match="no model is named"):
            await OpenAIImageClient(client).generate("A cat")
        with pytest.raises(ConfigurationError, match="count is 0"):
            ImageOptions(count=0)
        with pytest.raises(BadRequestError, match="cannot be written"):
            await images.generate("\ud800")
        await images.aclose()
        with pytest.raises(ClientClosedError):
            await images.generate("A cat")

    assert server.requests == []
