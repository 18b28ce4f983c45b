"""Shapes of chat streams that differ from server to server, and the places in them."""

from typing import Any

import httpx2
import openai
import pytest

from chatrouting.testing.provider_server import Gate, ProviderServer, Reply, ToolCall
from chatrouting.usage import Usage

HELLO: Any = [{"role": "user", "content": "Hello"}]


async def read(reply: Reply) -> list[Any]:
    async with (
        ProviderServer(reply) as server,
        openai.AsyncOpenAI(
            base_url=server.openai_base_url,
            api_key="key",
            max_retries=0,
            # Loading the trusted certificates takes longer than a test.
            http_client=httpx2.AsyncClient(verify=False),
        ) as client,
        await client.chat.completions.create(
            model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
        ) as stream,
    ):
        return [chunk async for chunk in stream]


def text(chunks: list[Any]) -> str:
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    return "".join(delta.content or "" for delta in deltas)


@pytest.mark.parametrize(
    ("tool_index", "indexes"), [("each", [0, 0, 1, 1]), ("zero", [0] * 4), ("missing", [None] * 4)]
)
async def test_tool_deltas_can_lack_a_useful_index(anyio_backend, tool_index, indexes):
    """Servers leave it out or repeat it."""
    calls = [ToolCall(id="a", arguments="{}"), ToolCall(id="", arguments="{}")]

    chunks = await read(Reply(tool_calls=calls, tool_index=tool_index))

    deltas = [delta for chunk in chunks for delta in _tool_deltas(chunk)]
    assert [delta.index for delta in deltas] == indexes
    assert [delta.id for delta in deltas] == ["a", None, "", None]


def _tool_deltas(chunk: Any) -> list[Any]:
    return [delta for choice in chunk.choices for delta in choice.delta.tool_calls or ()]


@pytest.mark.parametrize(("style", "counts"), [("whole", [1, 1]), ("together", [2])])
async def test_tool_calls_can_come_whole(anyio_backend, style, counts):
    calls = [ToolCall(id="a", arguments='{"x": 1}'), ToolCall(id="b")]

    chunks = await read(Reply(tool_calls=calls, tool_chunks=style))

    assert [len(found) for chunk in chunks if (found := _tool_deltas(chunk))] == counts


async def test_azure_begins_with_a_chunk_without_choices(anyio_backend):
    """Its prompt filter speaks first."""
    chunks = await read(Reply("one", prompt_filter=True))

    first = chunks[0]
    assert (first.choices, first.id, first.model) == ([], "", "")
    assert text(chunks) == "one"


@pytest.mark.parametrize(
    ("style", "expected"),
    [("end", [None, None, None, None, 3]), ("null", [None] * 5), ("every_chunk", [0, 1, 2, 3])],
)
async def test_usage_comes_in_the_style_of_the_server(anyio_backend, style, expected):
    reply = Reply("one two", usage=Usage(input_tokens=5, output_tokens=3), usage_style=style)

    chunks = await read(reply)

    found = [chunk.usage and chunk.usage.completion_tokens for chunk in chunks]
    assert found == expected


async def test_finish_reason_can_be_missing(anyio_backend):
    """Text, null reasons, usage, [DONE]."""
    chunks = await read(Reply("one", omit=["finish"]))

    reasons = {choice.finish_reason for chunk in chunks for choice in chunk.choices}
    assert reasons == {None}


@pytest.mark.parametrize(
    ("end_at", "count"), [(0, 0), (2, 2), ("content", 1), ("after_content", 3)]
)
async def test_places_in_a_stream(anyio_backend, end_at, count):
    assert len(await read(Reply(["one", "two"], end_at=end_at))) == count


@pytest.mark.parametrize("at", ["content", "after_content", "terminal", 2, 99, "end"])
async def test_places_in_a_stream_without_output(anyio_backend, at):
    """Role chunk, finish reason, [DONE]; every place exists all the same."""
    gate = Gate()
    gate.open()

    chunks = await read(Reply("", gates={at: gate}))

    await gate.reached()
    assert (text(chunks), len(chunks)) == ("", 3)
