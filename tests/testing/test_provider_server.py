"""Answers of the provider server as the real SDK clients see them, and scripts."""

import base64
import json
import struct
from dataclasses import replace
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from chatrouting.testing.provider_server import (
    ProviderServer,
    RecordedRequest,
    Reply,
    ToolCall,
)
from chatrouting.usage import Usage

HELLO: Any = [{"role": "user", "content": "Hello"}]
WEATHER = ToolCall(id="call_7", name="weather", arguments=['{"city"', ': "Oslo"}'])
COUNTS = Usage(
    input_tokens=100,
    output_tokens=20,
    cache_read_input_tokens=60,
    cache_write_input_tokens=10,
    reasoning_output_tokens=5,
)
RICH = Reply("Hi there", reasoning="Let me think.", tool_calls=[WEATHER], usage=COUNTS)


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


# Answers


async def test_chat_answer(anyio_backend):
    async with ProviderServer(RICH) as server:
        answer = await ask_chat(server)

    (choice,) = answer.choices
    (call,) = choice.message.tool_calls
    assert answer.model == "gpt-x"
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Hi there"
    assert choice.message.reasoning_content == "Let me think."
    assert (call.id, call.function.name) == ("call_7", "weather")
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    assert answer.usage.prompt_tokens == 100
    assert answer.usage.prompt_tokens_details.cached_tokens == 60
    assert answer.usage.completion_tokens_details.reasoning_tokens == 5
    assert answer._request_id == "req_1"


async def test_chat_stream(anyio_backend):
    async with (
        ProviderServer(RICH) as server,
        openai_client(server) as client,
        client.chat.completions.stream(
            model="gpt-x", messages=HELLO, stream_options={"include_usage": True}
        ) as stream,
    ):
        answer = await stream.get_final_completion()

    (choice,) = answer.choices
    assert choice.message.content == "Hi there"
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    assert choice.message.tool_calls[0].function.arguments == WEATHER.text
    assert answer.usage is not None
    assert answer.usage.total_tokens == 120


async def test_responses_answer(anyio_backend):
    async with ProviderServer(RICH) as server:
        answer = await ask_responses(server)

    reasoning, _, call = answer.output
    assert reasoning.summary[0].text == "Let me think."
    assert answer.output_text == "Hi there"
    assert (call.call_id, call.name, call.arguments) == ("call_7", "weather", WEATHER.text)
    assert answer.status == "completed"
    assert answer.usage.input_tokens_details.cached_tokens == 60
    assert answer.usage.total_tokens == 120


async def test_responses_stream(anyio_backend):
    async with (
        ProviderServer(RICH) as server,
        openai_client(server) as client,
        client.responses.stream(model="gpt-x", input="Hello") as stream,
    ):
        kinds = [event.type async for event in stream]
        answer = await stream.get_final_response()

    assert answer.output_text == "Hi there"
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.delta") == 2
    assert kinds.count("response.function_call_arguments.delta") == 2


async def test_responses_encrypt_reasoning_if_asked(anyio_backend):
    async with ProviderServer(RICH) as server, openai_client(server) as client:
        answer = await client.responses.create(
            model="gpt-x", input="Hello", include=["reasoning.encrypted_content"]
        )

    assert answer.output[0].type == "reasoning"
    assert answer.output[0].encrypted_content


async def test_messages_answer(anyio_backend):
    """`input_tokens` excludes what was read from and written to the cache."""
    async with ProviderServer(replace(RICH, redacted_reasoning="xyz")) as server:
        answer = await ask_messages(server)

    thinking, redacted, text, call = answer.content
    assert (thinking.thinking, redacted.data) == ("Let me think.", "xyz")
    assert thinking.signature
    assert text.text == "Hi there"
    assert (call.id, call.name, call.input) == ("call_7", "weather", {"city": "Oslo"})
    assert answer.stop_reason == "tool_use"
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == (30, 60)
    assert answer._request_id == "req_1"


async def test_messages_stream(anyio_backend):
    async with (
        ProviderServer(RICH) as server,
        anthropic_client(server) as client,
        client.messages.stream(model="claude-x", messages=HELLO, max_tokens=9) as stream,
    ):
        answer = await stream.get_final_message()

    thinking, text, call = answer.content
    assert thinking.type == "thinking"
    assert thinking.signature
    assert text.type == "text"
    assert text.text == "Hi there"
    assert call.type == "tool_use"
    assert call.input == {"city": "Oslo"}
    assert answer.usage.output_tokens == 20


async def test_usage_can_be_missing(anyio_backend):
    async with ProviderServer(default=Reply(usage=None)) as server:
        answers = [await ask(server) for ask in (ask_chat, ask_responses, ask_messages)]
        async with openai_client(server) as client:
            answers.append(await client.embeddings.create(model="e", input="one"))

    assert [answer.usage for answer in answers] == [None] * 4


@pytest.mark.parametrize("ask", ASKS)
async def test_model_and_id_can_be_set(anyio_backend, ask):
    async with ProviderServer(Reply(model="other", id="an-id")) as server:
        answer = await ask(server)

    assert (answer.model, answer.id) == ("other", "an-id")


@pytest.mark.parametrize(
    ("reason", "chat", "responses", "messages"),
    [
        ("length", "length", "max_output_tokens", "max_tokens"),
        ("content_filter", "content_filter", "content_filter", "refusal"),
        ("odd", "odd", "odd", "odd"),
    ],
)
async def test_finish_reasons_are_translated(anyio_backend, reason, chat, responses, messages):
    async with ProviderServer(default=Reply(finish_reason=reason)) as server:
        assert (await ask_chat(server)).choices[0].finish_reason == chat
        assert (await ask_responses(server)).incomplete_details.reason == responses
        assert (await ask_messages(server)).stop_reason == messages


async def test_response_can_fail(anyio_backend):
    async with ProviderServer(Reply(finish_reason="failed")) as server:
        assert (await ask_responses(server)).status == "failed"


async def test_arguments_need_not_be_json(anyio_backend):
    calls = [ToolCall(arguments='{"cut'), ToolCall(arguments="")]
    async with ProviderServer(default=Reply(tool_calls=calls)) as server:
        chat = await ask_chat(server)
        messages = await ask_messages(server)

    made = [call.function.arguments for call in chat.choices[0].message.tool_calls]
    assert made == ['{"cut', ""]
    assert [block.input for block in messages.content] == ['{"cut', {}]


async def test_refusals(anyio_backend):
    async with ProviderServer(default=Reply(refusal="I cannot.")) as server:
        assert (await ask_chat(server)).choices[0].message.refusal == "I cannot."
        assert (await ask_responses(server)).output[0].content[0].refusal == "I cannot."
        answer = await ask_messages(server)

    assert (answer.stop_reason, answer.stop_details.explanation) == ("refusal", "I cannot.")


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_embeddings_are_the_same_in_both_encodings(anyio_backend, encoding):
    async with ProviderServer() as server, openai_client(server) as client:
        answer = await client.embeddings.create(model="e", input=["one", "two", "one"])
        raw = await client.embeddings.create(
            model="e", input="one", encoding_format=encoding, dimensions=8
        )

    one, two, again = (item.embedding for item in answer.data)
    (found,) = (item.embedding for item in raw.data)
    if encoding == "base64":
        found = list(struct.unpack("<8f", base64.b64decode(str(found))))
    assert len(one) == 8
    assert one == again != two
    assert found == pytest.approx(one)
    assert sum(number**2 for number in one) == pytest.approx(1)
    assert answer.usage.prompt_tokens == 3


async def test_images_are_pictures_that_depend_on_the_prompt(anyio_backend):
    """Whole PNGs: one for each that was asked for."""
    async with ProviderServer() as server, openai_client(server) as client:
        answer = await client.images.generate(model="i", prompt="A cat", n=2)
        again = await client.images.generate(model="i", prompt="A cat")
        url = await client.images.generate(model="i", prompt="A cat", response_format="url")

    one, two = (base64.b64decode(item.b64_json or "") for item in answer.data or ())
    assert one.startswith(b"\x89PNG")
    assert one.endswith(b"IEND\xaeB`\x82")
    assert one != two
    assert [item.b64_json for item in again.data or ()] == [base64.b64encode(one).decode()]
    assert [(item.b64_json, str(item.url)[:8]) for item in url.data or ()] == [(None, "https://")]


async def test_the_form_of_an_edit_is_read_as_an_object(anyio_backend):
    pictures = [("a.png", b"\x89PNG\r\n--", "image/png"), ("b.png", b"b", "image/png")]
    async with ProviderServer() as server, openai_client(server) as client:
        answer = await client.images.edit(model="i", prompt="A höt", image=pictures, n=1)

    assert len(answer.data or ()) == 1
    (request,) = server.requests
    assert request.body == {
        "model": "i",
        "prompt": "A höt",
        "n": "1",
        "image": [
            {"filename": name, "content_type": kind, "data": data} for name, data, kind in pictures
        ],
    }


# Scripts


async def test_replies_are_used_up_in_order_then_the_default(anyio_backend):
    async with ProviderServer(Reply("1"), default=Reply("d")) as server:
        server.script(Reply("2"))
        texts = [(await ask_chat(server)).choices[0].message.content for _ in range(4)]

    assert texts == ["1", "2", "d", "d"]


async def test_function_answers_all_requests_from_its_turn_on(anyio_backend):
    def by_number(request: RecordedRequest) -> Reply:
        return Reply(f"{request.model} {request.number}")

    async with ProviderServer(Reply("1"), by_number) as server:
        texts = [(await ask_chat(server)).choices[0].message.content for _ in range(3)]

    assert texts == ["1", "gpt-x 2", "gpt-x 3"]


async def test_request_is_recorded(anyio_backend):
    async with ProviderServer() as server:
        await ask_messages(server)

    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.headers["content-type"] == "application/json"
    assert request.body == {"model": "claude-x", "messages": HELLO, "max_tokens": 9}
    assert json.loads(request.raw_body) == request.body
    assert (request.stream, request.replied, request.refused) == (False, True, None)
    assert repr(request) == "<RecordedRequest 1 POST /v1/messages model='claude-x'>"
