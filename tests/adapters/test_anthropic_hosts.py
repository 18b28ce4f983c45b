"""Requests by the SDK's clients for Anthropic's models at other hosts, recorded in memory."""

import json
import re
from contextlib import asynccontextmanager

import anthropic
import httpx2
import pytest

from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.client import ClientMetadata
from chatrouting.contents import DataContent, ToolCallContent, ToolResultContent
from chatrouting.errors import MissingExtraError, StreamInterruptedError
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, JsonSchemaFormat, Tool

MODEL = "claude-sonnet-5"
VERTEX = "/v1/projects/p/locations/europe-west1/publishers/anthropic/models"


def direct(http):
    return anthropic.AsyncAnthropic(api_key="key", http_client=http)


def bedrock(http):
    return anthropic.AsyncAnthropicBedrock(
        aws_region="eu-west-1", api_key="bedrock-key", http_client=http
    )


def mantle(http):
    return anthropic.AsyncAnthropicBedrockMantle(
        aws_region="eu-west-1", api_key="bedrock-key", http_client=http
    )


def vertex(http):
    return anthropic.AsyncAnthropicVertex(
        region="europe-west1",
        project_id="p",
        access_token="t",  # noqa: S106  # none
        http_client=http,
    )


def foundry(http):
    return anthropic.AsyncAnthropicFoundry(resource="r", api_key="azure-key", http_client=http)


@asynccontextmanager
async def recorded(make):
    """Give an adapter, the SDK client that it goes over, and the requests, answered here."""
    requests = []

    def answer(request):
        requests.append(request)
        body = {"type": "message", "id": "m", "content": [{"type": "text", "text": "ok"}]}
        return httpx2.Response(200, json=body | {"stop_reason": "end_turn"})

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    async with make(http) as sdk:
        yield AnthropicChatClient(sdk, MODEL), sdk, requests


CONVERSATION = (
    ChatMessage("system", "Be brief."),
    ChatMessage("user", ["Look", DataContent(b"abc", "image/png")]),
    ChatMessage("assistant", ["Calling.", ToolCallContent("call_1", "f", {"x": 1})]),
    ChatMessage("tool", ToolResultContent("call_1", "42")),
    ChatMessage("user", "And?"),
)
OPTIONS = ChatOptions(
    max_output_tokens=50,
    stop_sequences=("END",),
    response_format=JsonSchemaFormat("answer", {"type": "object"}),
    tools=(Tool("f", "does f", {"type": "object", "properties": {"x": {"type": "integer"}}}),),
    tool_choice="auto",
    metadata={"user_id": "u"},
)
#: The same request in the words of the SDK.
ARGUMENTS = {
    "model": MODEL,
    "max_tokens": 50,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "YWJj"},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Calling."},
                {"type": "tool_use", "id": "call_1", "name": "f", "input": {"x": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "42"},
                {"type": "text", "text": "And?"},
            ],
        },
    ],
    "stop_sequences": ["END"],
    "output_config": {
        "format": {
            "type": "json_schema",
            "schema": {"type": "object", "additionalProperties": False},
        }
    },
    "tools": [
        {
            "name": "f",
            "description": "does f",
            "input_schema": {"type": "object", "properties": {"x": {"type": "integer"}}},
        }
    ],
    "tool_choice": {"type": "auto"},
    "metadata": {"user_id": "u"},
}


@pytest.mark.parametrize("make", [direct, bedrock, mantle, vertex, foundry])
async def test_what_is_sent_is_what_the_sdk_would_send(anyio_backend, make):
    """The same URL, body and credentials as named arguments give, whole and streamed."""
    async with recorded(make) as (client, sdk, requests):
        await client.get_response(CONVERSATION, OPTIONS)
        await sdk.messages.create(**ARGUMENTS)
        if make is not bedrock:
            with pytest.raises(StreamInterruptedError, match="application/json"):
                await client.get_streaming_response(CONVERSATION, OPTIONS).get_final_response()
            await (await sdk.messages.create(**ARGUMENTS, stream=True)).close()

    assert len(requests) == (2 if make is bedrock else 4)
    for ours, theirs in zip(requests[::2], requests[1::2], strict=True):
        assert json.loads(ours.content) == json.loads(theirs.content)
        assert (ours.method, ours.url) == (theirs.method, theirs.url)
        for name in ("authorization", "x-api-key", "api-key", "anthropic-version", "accept"):
            assert ours.headers.get(name) == theirs.headers.get(name)


@pytest.mark.parametrize(
    ("make", "provider", "path", "names_model"),
    [
        (direct, "anthropic", "/v1/messages", True),
        (bedrock, "bedrock", f"/model/{MODEL}/invoke", False),
        (vertex, "vertex", f"{VERTEX}/{MODEL}:rawPredict", False),
        (foundry, "foundry", "/anthropic/v1/messages", True),
        (mantle, "bedrock-mantle", "/anthropic/v1/messages", True),
    ],
)
async def test_hosts_are_told_apart(anyio_backend, make, provider, path, names_model):
    """Model in the path or in the body: the SDK sees the fields that it rewrites."""
    async with recorded(make) as (client, _, requests):
        response = await client.get_response("hi")

    (request,) = requests
    body = json.loads(request.content)
    assert response.text == "ok"
    assert request.url.path == path
    assert ("model" in body) is names_model
    assert ("anthropic_version" in body) is not names_model
    assert client.get_service(ClientMetadata) == ClientMetadata(provider, MODEL)


async def test_stream_of_bedrock_needs_botocore(anyio_backend):
    """It is binary and read by the SDK; nothing is sent whose answer could not be read."""
    async with recorded(bedrock) as (client, _, requests):
        with pytest.raises(MissingExtraError, match=re.escape("anthropic[bedrock]")):
            await client.get_streaming_response("hi").get_final_response()

    assert requests == []


async def test_stream_of_vertex_is_asked_for_in_path_and_body(anyio_backend):
    async with recorded(vertex) as (client, _, requests):
        with pytest.raises(StreamInterruptedError, match="application/json"):
            await client.get_streaming_response("hi").get_final_response()

    assert requests[0].url.path.endswith(":streamRawPredict")
    assert json.loads(requests[0].content)["stream"] is True
