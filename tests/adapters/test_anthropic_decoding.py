"""Streams read by the SDK's own iteration, and requests by its clients for other hosts."""

import json
import re
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anthropic
import httpx2
import pytest

from chatrouting.adapters._sse import SSEDecoder
from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.client import ClientMetadata
from chatrouting.errors import MissingExtraError, OverloadedError, StreamInterruptedError
from chatrouting.testing.provider_server import MALFORMED_EVENT, ProviderServer, Reply, ToolCall
from chatrouting.usage import Usage

MODEL = "claude-haiku-4-5"
RICH = Reply(
    "Grüße, 世界",
    reasoning="Let me think.",
    tool_calls=[ToolCall(arguments=['{"city"', ': "Oslo"}'])],
    usage=Usage(input_tokens=100, output_tokens=20, cache_read_input_tokens=60),
    pings=True,
)


@asynccontextmanager
async def serving(*replies):
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProviderServer(*replies))
        limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
        http = httpx2.AsyncClient(verify=False, limits=limits, timeout=5)
        sdk = anthropic.AsyncAnthropic(
            base_url=server.anthropic_base_url, api_key="key", http_client=http
        )
        await stack.enter_async_context(sdk)
        yield server, sdk


async def streamed(sdk, decode):
    client = AnthropicChatClient(sdk, MODEL, decode=decode)
    return await client.get_streaming_response("hi").get_final_response()


async def test_both_ways_read_the_same(anyio_backend):
    async with serving(RICH, RICH) as (_, sdk):
        own, sdks = await streamed(sdk, "own"), await streamed(sdk, "sdk")

        assert own.messages[0].contents == sdks.messages[0].contents
        assert (own.usage, own.finish_reason) == (sdks.usage, sdks.finish_reason)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply.stream_error(), OverloadedError),
        (Reply("a b c", end_at="after_content", omit=["finish"]), StreamInterruptedError),
        (Reply("a b c", drop_at="after_content"), StreamInterruptedError),
        (
            Reply(insert={"content": f"event: content_block_delta\n{MALFORMED_EVENT}"}),
            StreamInterruptedError,
        ),
        (Reply(body="<html></html>", content_type="text/html"), StreamInterruptedError),
        (Reply(event_names=False), StreamInterruptedError),
    ],
    ids=["overloaded", "ended early", "dropped", "malformed", "html", "no event names"],
)
async def test_faults_are_seen_through_the_sdks_iteration(anyio_backend, reply, error):
    """It reports neither an early end nor events without names; the proof of the end does."""
    async with serving(reply) as (_, sdk):
        with pytest.raises(error) as caught:
            await streamed(sdk, "sdk")

        assert caught.value.provider == "anthropic"
        assert (await streamed(sdk, "sdk")).text


async def test_body_that_is_kept_open_does_not_hold_up_the_end(anyio_backend):
    async with serving(Reply("done", keep_open=True)) as (_, sdk):
        started = time.perf_counter()

        assert (await streamed(sdk, "sdk")).text == "done"
        assert time.perf_counter() - started < 2


async def test_own_decoding_costs_a_fraction_of_the_sdks(anyio_backend):
    """At least five times less for each event; with updates made of them it is still cheaper."""
    if sys.gettrace() is not None:
        pytest.skip("times mean nothing while every line is traced")
    body = _long_body()
    decoding = []
    adapter = []
    iteration = []
    async with _from_memory(body) as sdk:
        client = AnthropicChatClient(sdk, MODEL)
        for _ in range(5):
            with _measured(decoding):
                assert sum(1 for _ in map(json.loads, _data(body))) == 2005
            async with client.get_streaming_response("hi") as updates:
                with _measured(adapter):
                    assert len([update async for update in updates]) == 2002
            stream = await sdk.messages.create(
                model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "q"}], stream=True
            )
            with _measured(iteration):
                assert len([event async for event in stream]) == 2005

    assert min(iteration) > 5 * min(decoding)
    assert min(iteration) > 1.5 * min(adapter)


def _data(body):
    return [data for _, data in SSEDecoder().feed(body)]


class _measured:  # noqa: N801  # reads as a statement
    """Appends the thread time of its block."""

    def __init__(self, times):
        self._times = times

    def __enter__(self):
        self._started = time.thread_time()

    def __exit__(self, *_):
        self._times.append(time.thread_time() - self._started)


def _long_body() -> bytes:
    delta = {"type": "text_delta", "text": "word "}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "model": MODEL, "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[{"type": "content_block_delta", "index": 0, "delta": delta}] * 2000,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    ]
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return "".join(lines).encode()


@asynccontextmanager
async def _from_memory(body):
    headers = {"content-type": "text/event-stream"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=body))
    http = httpx2.AsyncClient(transport=transport)
    async with anthropic.AsyncAnthropic(api_key="k", http_client=http) as sdk:
        yield sdk


# -- Bedrock and Vertex ----------------------------------------------------------------------------


VERTEX = "/v1/projects/p/locations/europe-west1/publishers/anthropic/models"


@asynccontextmanager
async def recorded(make):
    """Give an adapter over an SDK client whose requests are answered here, and the requests."""
    requests = []

    def answer(request):
        requests.append(request)
        body = {"type": "message", "id": "m", "content": [{"type": "text", "text": "ok"}]}
        return httpx2.Response(200, json=body | {"stop_reason": "end_turn"})

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    async with make(http) as sdk:
        yield AnthropicChatClient(sdk, "claude-sonnet-5"), requests


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


@pytest.mark.parametrize(
    ("make", "provider", "path", "names_model"),
    [
        (bedrock, "bedrock", "/model/claude-sonnet-5/invoke", False),
        (
            vertex,
            "vertex",
            f"{VERTEX}/claude-sonnet-5:rawPredict",
            False,
        ),
        (foundry, "foundry", "/anthropic/v1/messages", True),
        (mantle, "bedrock-mantle", "/anthropic/v1/messages", True),
    ],
    ids=["bedrock", "vertex", "foundry", "mantle"],
)
async def test_clients_of_other_hosts_rewrite_our_bodies(
    anyio_backend, make, provider, path, names_model
):
    """Model in the path, version in the body: the SDK sees the fields it rewrites."""
    async with recorded(make) as (client, requests):
        response = await client.get_response("hi")

        assert response.text == "ok"
        (request,) = requests
        body = json.loads(request.content)
        assert request.url.path == path
        assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
        assert body["max_tokens"] == 4096
        assert ("model" in body) is names_model
        assert ("anthropic_version" in body) is not names_model
        assert client.get_service(ClientMetadata).provider == provider


async def test_stream_of_bedrock_needs_botocore(anyio_backend):
    """It is binary and read by the SDK; nothing is sent whose answer could not be read."""
    async with recorded(bedrock) as (client, requests):
        with pytest.raises(MissingExtraError, match=re.escape("anthropic[bedrock]")):
            await client.get_streaming_response("hi").get_final_response()

        assert requests == []


async def test_stream_of_vertex_is_asked_for_in_path_and_body(anyio_backend):
    async with recorded(vertex) as (client, requests):
        with pytest.raises(StreamInterruptedError, match="application/json"):
            await client.get_streaming_response("hi").get_final_response()

        assert requests[0].url.path.endswith(":streamRawPredict")
        assert json.loads(requests[0].content)["stream"] is True
