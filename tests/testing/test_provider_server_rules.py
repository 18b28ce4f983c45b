"""What a strict server refuses: bodies that a client must not send, and the rule each breaks."""

from typing import Any

import anthropic
import httpx2
import openai
import pytest

from chatrouting.testing.provider_server import ProviderServer, Reply, ToolCall

USER: Any = {"role": "user", "content": "Hello"}
JsonObject = dict[str, Any]
Good = list[JsonObject]
Bad = list[tuple[str, Any]]  #: The rule, and a body that breaks it.


def chat(*messages: JsonObject, **fields: Any) -> JsonObject:
    return {"model": "m", "messages": [USER, *messages], **fields}


def calls(*ids: str) -> JsonObject:
    function = {"name": "f", "arguments": "{}"}
    made = [{"id": one, "type": "function", "function": function} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def tool(call_id: str, content: Any = "4") -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def said(content: Any) -> JsonObject:
    return {"role": "assistant", "content": content}


CHAT_GOOD: Good = [
    chat(),
    chat(said("Hi"), USER),
    chat(calls("a", "b"), tool("b"), tool("a"), USER),
    chat(calls("a"), tool("a", [{"type": "text", "text": "4"}]), said("4")),
    chat({"role": "assistant", "content": None, "refusal": "No."}),
    chat(top_k=3, temperature=1, unheard_of=True),
]
CHAT_BAD: Bad = [
    ("model_required", {"messages": [USER]}),
    ("messages_required", {"model": "m", "messages": []}),
    ("unknown_field", chat(routing={"session_id": "s"})),
    ("unknown_field", chat(max_output_tokens=3)),
    ("call_id", chat(calls("a" * 41), tool("a" * 41))),
    ("call_id", chat(calls(""), tool(""))),
    (
        "call_arguments",
        chat(
            said(None)
            | {"tool_calls": [{"id": "a", "type": "function", "function": {"arguments": {}}}]},
            tool("a"),
        ),
    ),
    ("assistant_content", chat(said(None))),
    ("assistant_content", chat(said(""))),
    ("tool_without_call", chat(tool("a"))),
    ("tool_without_call", chat(calls("a"), tool("a"), USER, tool("a"))),
    ("calls_answered", chat(calls("a", "b"), tool("a"), USER)),
    ("calls_answered", chat(calls("a"))),
    ("tool_text", chat(calls("a"), tool("a", [{"type": "image_url"}]))),
    ("tool_text", chat(calls("a"), tool("a", None))),
]


def respond(*items: JsonObject, **fields: Any) -> JsonObject:
    return {"model": "m", "input": [USER, *items], **fields}


def call(call_id: str = "a") -> JsonObject:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


def output(call_id: str = "a") -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": "4"}


RESPONSES_GOOD: Good = [
    {"model": "m", "input": "Hello"},
    respond(call(), output(), said([{"type": "output_text", "text": "4"}])),
    {"model": "m", "input": [output()], "previous_response_id": "resp_1"},
    {"model": "m", "conversation": "conv_1"},
    respond({"type": "reasoning", "summary": []}, {"type": "item_reference", "id": "x"}),
]
RESPONSES_BAD: Bad = [
    ("model_required", {"input": "Hello"}),
    ("input_required", {"model": "m", "input": []}),
    ("unknown_field", respond(routing={})),
    ("item_type", respond({"type": "tool_result"})),
    ("item_type", respond({"content": "no role"})),
    ("part_type", respond({"role": "user", "content": [{"type": "text", "text": "x"}]})),
    ("part_type", respond(said([{"type": "input_text", "text": "x"}]))),
    ("call_id", respond(call("a" * 65), output("a" * 65))),
    ("tool_without_call", respond(output())),
    ("calls_answered", respond(call())),
    (
        "encrypted_content",
        respond({"type": "reasoning", "summary": [], "encrypted_content": "foreign"}),
    ),
]

EMBEDDINGS_GOOD: Good = [
    {"model": "m", "input": "x"},
    {"model": "m", "input": [0, 1]},
    {"model": "m", "input": [[0, 1], [2]]},
]
EMBEDDINGS_BAD: Bad = [
    ("model_required", {"input": "x"}),
    ("unknown_field", {"model": "m", "input": "x", "routing": {}}),
    ("input_required", {"model": "m", "input": []}),
    ("input_required", {"model": "m", "input": ["x", ""]}),
    ("input_required", {"model": "m"}),
]


def ask(*messages: JsonObject, **fields: Any) -> JsonObject:
    return {"model": "m", "max_tokens": 9, "messages": [USER, *messages], **fields}


def text(value: str) -> JsonObject:
    return {"type": "text", "text": value}


def use(*ids: str) -> JsonObject:
    return said([{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in ids])


def result(call_id: str, content: Any = "4") -> JsonObject:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def user(*blocks: JsonObject) -> JsonObject:
    return {"role": "user", "content": list(blocks)}


ANTHROPIC_GOOD: Good = [
    ask(),
    ask(said("Hi"), USER, system="Be brief.", temperature=0.5, top_k=3),
    ask(use("a", "b"), user(result("b"), result("a", [text("4")]), text("And?"))),
    ask(use("a"), user(result("a", "")), said("4"), {"role": "system", "content": "Now"}, USER),
    ask(tools=[{"name": "f", "input_schema": {"type": "object"}}, {"type": "web_search_1"}]),
]
ANTHROPIC_BAD: Bad = [
    ("model_required", {"max_tokens": 9, "messages": [USER]}),
    ("max_tokens_required", {"model": "m", "messages": [USER]}),
    ("max_tokens_required", ask(max_tokens=0)),
    ("unknown_field", ask(routing={})),
    ("unknown_field", ask(seed=3)),
    ("sampling_numbers", ask(temperature="hot")),
    ("sampling_numbers", ask(top_k=None)),
    ("tool_schema", ask(tools=[{"name": "f", "input_schema": {}}])),
    ("messages_required", {"model": "m", "max_tokens": 9, "messages": []}),
    ("role", ask(tool("a"))),
    ("first_turn_user", {"model": "m", "max_tokens": 9, "messages": [said("Hi")]}),
    ("roles_alternate", ask(USER)),
    ("roles_alternate", ask(said("a"), said("b"), USER)),
    ("content_required", ask(said([]), USER)),
    ("blank_text", ask(said(" "), USER)),
    ("blank_text", ask(said([text("x"), text("")]), USER)),
    ("blank_text", ask(system=[text("\n")])),
    ("blank_text", ask(use("a"), user(result("a", [text("")])))),
    ("trailing_whitespace", ask(said("So "))),
    ("tool_id", ask(use("a.b"), user(result("a.b")))),
    ("tool_input", ask(said([{"type": "tool_use", "id": "a", "name": "f", "input": "{}"}]), USER)),
    ("results_follow", ask(use("a"))),
    ("results_follow", ask(use("a", "b"), user(result("a")))),
    ("results_follow", ask(use("a", "b"), user(result("a")), said("x"), user(result("b")))),
    ("results_belong", ask(said("x"), user(result("a")))),
    ("results_belong", ask(use("a"), user(result("a"), result("a")))),
    ("results_first", ask(use("a"), user(text("So:"), result("a")))),
    ("signature", ask(said([{"type": "thinking", "thinking": "x"}, text("y")]), USER)),
    (
        "signature",
        ask(said([{"type": "thinking", "thinking": "x", "signature": "no"}, text("y")]), USER),
    ),
    ("signature", ask(said([{"type": "redacted_thinking", "data": "x"}, text("y")]), USER)),
]

IMAGES_GOOD: Good = [{"model": "i", "prompt": "A cat"}]
IMAGES_BAD: Bad = [
    ("json_body", "text"),
    ("model_required", {"prompt": "A cat"}),
    ("unknown_field", {"model": "i", "prompt": "A cat", "routing": {}}),
    ("prompt_required", {"model": "i", "prompt": ""}),
]

APIS: dict[str, tuple[Good, Bad]] = {
    "/v1/chat/completions": (CHAT_GOOD, CHAT_BAD),
    "/v1/responses": (RESPONSES_GOOD, RESPONSES_BAD),
    "/v1/embeddings": (EMBEDDINGS_GOOD, EMBEDDINGS_BAD),
    "/v1/images/generations": (IMAGES_GOOD, IMAGES_BAD),
    "/v1/messages": (ANTHROPIC_GOOD, ANTHROPIC_BAD),
}


def http() -> httpx2.AsyncClient:
    """Loading the trusted certificates takes longer than a test."""
    return httpx2.AsyncClient(verify=False)


@pytest.mark.parametrize("path", APIS)
async def test_broken_rule_is_a_400_that_names_it(anyio_backend, path):
    _, bad = APIS[path]
    async with ProviderServer() as server, http() as client:
        for rule, body in bad:
            answer = await client.post(server.url + path, json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
            assert error["message"].endswith(f"(rule: {rule})")

    assert [request.refused for request in server.requests] == [rule for rule, _ in bad]


@pytest.mark.parametrize("path", APIS)
async def test_good_bodies_pass(anyio_backend, path):
    good, _ = APIS[path]
    async with ProviderServer() as server, http() as client:
        for body in good:
            answer = await client.post(server.url + path, json=body)
            assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", APIS)
async def test_server_that_is_not_strict_takes_anything(anyio_backend, path):
    async with ProviderServer(strict=False) as server, http() as client:
        for body in ({}, {"messages": "what?"}, [1]):
            assert (await client.post(server.url + path, json=body)).status_code == 200


async def test_body_that_is_no_json_is_refused(anyio_backend):
    async with ProviderServer() as server, http() as client:
        answer = await client.post(server.url + "/v1/messages", content=b"{")

    assert (answer.status_code, server.requests[0].refused) == (400, "json_body")


async def test_refused_request_uses_up_no_reply(anyio_backend):
    async with ProviderServer(Reply(id="first")) as server, http() as client:
        await client.post(server.url + "/v1/chat/completions", json={})
        answer = await client.post(server.url + "/v1/chat/completions", json=chat())

    assert answer.json()["id"] == "first"


async def think(client: anthropic.AsyncAnthropic, history: list[Any]) -> Any:
    return await client.messages.create(model="m", max_tokens=9, messages=history)


async def test_thinking_is_valid_only_on_the_server_that_signed_it(anyio_backend):
    """A conversation that moves to another server must leave its thinking behind."""
    reply = Reply("So", reasoning="Let me think.", redacted_reasoning="xyz")
    async with (
        ProviderServer(default=reply) as first,
        ProviderServer(default=reply) as second,
        anthropic.AsyncAnthropic(
            base_url=first.url, api_key="k", max_retries=0, http_client=http()
        ) as client,
        anthropic.AsyncAnthropic(
            base_url=second.url, api_key="k", max_retries=0, http_client=http()
        ) as other,
    ):
        answer = await think(client, [USER])
        history = [USER, {"role": "assistant", "content": answer.content}, USER]
        await think(client, history)
        with pytest.raises(anthropic.BadRequestError, match="Invalid signature in thinking block"):
            await think(other, history)
        answer.content[0].thinking = "Edited."
        with pytest.raises(anthropic.BadRequestError, match="Invalid signature in thinking block"):
            await think(client, history)


async def test_encrypted_reasoning_is_valid_only_on_the_server_that_issued_it(anyio_backend):
    reply = Reply(reasoning="Let me think.", tool_calls=[ToolCall()])
    async with (
        ProviderServer(default=reply) as first,
        ProviderServer(default=reply) as second,
        openai.AsyncOpenAI(
            base_url=first.openai_base_url, api_key="k", max_retries=0, http_client=http()
        ) as client,
    ):
        answer = await client.responses.create(
            model="m", input="Hello", include=["reasoning.encrypted_content"]
        )
        history: Any = [USER, *(item.to_dict() for item in answer.output), output("call_1")]
        await client.responses.create(model="m", input=history)
        with pytest.raises(openai.BadRequestError, match="encrypted content"):
            await client.with_options(base_url=second.openai_base_url).responses.create(
                model="m", input=history
            )
