"""What no adapter can read or write: JSON nested too deeply, and values that JSON does not have."""

import contextlib
import json

import httpx2
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from chatrouting import ChatMessage, ChatOptions, ToolCallContent
from chatrouting.adapters._outbound import arguments_text, unwritable
from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.adapters.embeddings import OpenAIEmbeddingGenerator
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.adapters.openai_responses import OpenAIResponsesChatClient
from chatrouting.errors import BadRequestError, ResponseValidationError, StreamInterruptedError
from chatrouting.testing import ProviderServer, Reply

DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
ADAPTERS = [OpenAIChatClient, OpenAIResponsesChatClient, AnthropicChatClient]
each_adapter = pytest.mark.parametrize("adapter", ADAPTERS)
each_decoder = pytest.mark.parametrize("decode", ["own", "sdk"])


@contextlib.asynccontextmanager
async def asking(adapter, *replies, **settings):
    """Give a server, and an adapter that asks it."""
    is_anthropic = adapter is AnthropicChatClient
    sdk_class = AsyncAnthropic if is_anthropic else AsyncOpenAI
    async with ProviderServer(*replies) as server, httpx2.AsyncClient(verify=False) as http:
        url = server.anthropic_base_url if is_anthropic else server.openai_base_url
        sdk = sdk_class(base_url=url, api_key="unused", http_client=http)
        yield server, adapter(sdk, "some-model", **settings)


async def whole(client, messages, options=None):
    return await client.get_response(messages, options)


async def streamed(client, messages, options=None):
    return await client.get_streaming_response(messages, options).get_final_response()


each_mode = pytest.mark.parametrize("ask", [whole, streamed])


@each_adapter
async def test_a_whole_answer_that_is_nested_too_deeply_cannot_be_read(adapter):
    """A provider must not be able to break a program with brackets."""
    reply = Reply(body=DEEP, headers={"content-type": "application/json"})
    async with asking(adapter, reply) as (_, client):
        with pytest.raises(ResponseValidationError, match="cannot be read as JSON"):
            await client.get_response("hi")


@each_adapter
@pytest.mark.parametrize("depth", [200, 800, 900, 930, 950, 970, 990])
async def test_what_is_just_not_too_deep_for_the_decoder_ends_in_no_other_error(adapter, depth):
    """Freezing and writing out what was decoded goes as deep again."""
    deep = '{"a":' * depth + "1" + "}" * depth
    call = f'{{"id": "t", "function": {{"name": "f", "arguments": {deep}}}}}'
    body = (
        f'{{"content": [{{"type": "tool_use", "id": "t", "name": "f", "input": {deep}}}], '
        f'"stop_reason": "tool_use", "choices": [{{"message": {{"tool_calls": [{call}]}}, '
        f'"finish_reason": "tool_calls"}}], "status": "completed", "output": [{deep}]}}'
    )
    reply = Reply(body=body, headers={"content-type": "application/json"})
    async with asking(adapter, reply) as (_, client):
        with contextlib.suppress(ResponseValidationError):
            await client.get_response("hi")


@each_adapter
@each_decoder
async def test_an_event_that_is_nested_too_deeply_interrupts_the_stream(adapter, decode):
    name = "event: message_start\n" if adapter is AnthropicChatClient else ""
    body = f"{name}data: {DEEP}\n\n"
    reply = Reply(body=body, headers={"content-type": "text/event-stream"})
    async with asking(adapter, reply, decode=decode) as (_, client):
        with pytest.raises(StreamInterruptedError, match="cannot be read") as caught:
            await streamed(client, "hi")
    assert isinstance(caught.value.__cause__, RecursionError)


@each_adapter
async def test_what_came_instead_of_a_stream_may_be_nested_too_deeply_as_well(adapter):
    body = '{"a":' * 3000  # all of it is looked at
    reply = Reply(body=body, headers={"content-type": "application/json"})
    async with asking(adapter, reply) as (_, client):
        with pytest.raises(StreamInterruptedError, match="application/json instead of"):
            await streamed(client, "hi")


@each_adapter
@each_mode
async def test_half_of_a_surrogate_pair_is_refused_by_its_place(adapter, ask):
    """What is said there is the prompt, which is in no error and not around it either."""
    async with asking(adapter) as (server, client):
        with pytest.raises(BadRequestError, match="half of a surrogate pair") as caught:
            await ask(client, "a secret \ud83d")
    error = caught.value
    assert "secret" not in str(error)
    assert error.__cause__ is error.__context__ is None
    assert (error.provider, error.model) == (client._metadata.provider, "some-model")
    assert server.requests == []


@each_adapter
@each_decoder
async def test_a_stream_that_the_sdk_reads_refuses_the_same(adapter, decode):
    options = ChatOptions(additional_properties={"metadata": {"a": float("inf")}})
    async with asking(adapter, decode=decode) as (_, client):
        with pytest.raises(BadRequestError, match=r"\['metadata'\]\['a'\] is inf"):
            await streamed(client, "hi", options)


@each_adapter
@each_mode
@pytest.mark.parametrize(
    ("value", "complaint"), [(b"raw", r"\['a'\] is of the type bytes"), (float("nan"), "is nan")]
)
async def test_arguments_that_json_does_not_have_are_refused(adapter, ask, value, complaint):
    call = ToolCallContent("call_1", "f", {"a": value})
    messages = [ChatMessage("user", "hi"), ChatMessage("assistant", call)]
    async with asking(adapter) as (server, client):
        with pytest.raises(BadRequestError, match=complaint) as caught:
            await ask(client, messages)
    assert caught.value.provider == client._metadata.provider
    assert server.requests == []


async def test_a_text_to_embed_is_refused_alike():
    async with ProviderServer() as server, httpx2.AsyncClient(verify=False) as http:
        sdk = AsyncOpenAI(base_url=server.openai_base_url, api_key="unused", http_client=http)
        with pytest.raises(BadRequestError, match=r"\['input'\]\[1\] holds half"):
            await OpenAIEmbeddingGenerator(sdk, "some-model").generate(["a", "\udc00"])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": [1, 2.5, "x", None, True, ("y",)]}, None),
        ({"a": [1, float("nan")]}, "['a'][1] is nan"),
        ({"a\ud800": 1}, "the key of ['a\\ud800'] holds half of a surrogate pair"),
        ({b"a": 1}, "the key of [b'a'] is of the type bytes"),
        ({"a": {"b": {1, 2}}}, "['a']['b'] is of the type set"),
    ],
)
def test_what_cannot_be_written_is_told_by_its_place(value, reason):
    assert unwritable(value) == reason


def test_what_is_nested_too_deeply_cannot_be_written():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert unwritable(deep) == "it is nested too deeply"


def test_raw_arguments_nested_too_deeply_give_way_to_the_parsed_ones():
    call = ToolCallContent("c", "f", {"a": 1}, DEEP)
    assert json.loads(arguments_text(call)) == {"a": 1}


async def test_what_the_sdk_refuses_for_another_reason_is_raised_as_it_is():
    """A client without a credential: nothing of the request is at fault."""
    async with httpx2.AsyncClient(verify=False) as http:
        sdk = AsyncOpenAI(base_url="http://localhost", api_key="unused", http_client=http)
        sdk.api_key = ""
        with pytest.raises(TypeError, match="authentication"):
            await OpenAIChatClient(sdk, "some-model").get_response("hi")
