"""[BR-76] What one client does to a request, no other client and no caller ever sees."""

import copy
import dataclasses
import pickle

import anyio
import pytest

from chatrouting import (
    ChatMessage,
    ChatOptions,
    JsonSchemaFormat,
    OrderedFailoverChatClient,
    RoutingHints,
    TextContent,
    Tool,
    ToolCallContent,
    UriContent,
)
from chatrouting.errors import OverloadedError
from chatrouting.testing import Gate, ScriptedChatClient, fails, runs, waits_for

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}}

#: What careless clients do to what they were given.
EDITS = {
    "replace a message": lambda call: call.messages.__setitem__(0, None),
    "append a message": lambda call: call.messages.append(None),
    "embed an image": lambda call: call.messages[0].contents.__setitem__(1, TextContent("bytes")),
    "change a text": lambda call: setattr(call.messages[0].contents[0], "text", "changed"),
    "replace contents": lambda call: setattr(call.messages[0], "contents", ()),
    "change arguments": lambda call: call.messages[1].contents[0].arguments.update(a=2),
    "deepen arguments": lambda call: call.messages[1].contents[0].arguments["b"].append(3),
    "change message extras": lambda call: call.messages[1].additional_properties.clear(),
    "set an option": lambda call: setattr(call.options, "model", "changed"),
    "change metadata": lambda call: call.options.metadata.pop("a"),
    "change extras": lambda call: call.options.additional_properties["extra"].append(3),
    "close a schema": lambda call: call.options.tools[0].parameters.__setitem__(
        "additionalProperties", False
    ),
    "change a property": lambda call: (
        call.options.tools[0].parameters["properties"]["a"].pop("enum")
    ),
    "change an enum": lambda call: (
        call.options.tools[0].parameters["properties"]["a"]["enum"].append("y")
    ),
    "drop a tool": lambda call: call.options.tools.clear(),
    "change the format": lambda call: call.options.response_format.schema.setdefault("x", 1),
    "change a hint": lambda call: call.options.routing.tags.update(t="v"),
}

REFUSED = (TypeError, AttributeError, dataclasses.FrozenInstanceError)


def request():
    """Return messages and options, and the caller's own objects that they were made of."""
    schema = copy.deepcopy(SCHEMA)
    arguments, extra, metadata = {"a": 1, "b": [2]}, {"extra": [1, 2]}, {"a": "b"}
    messages = [
        ChatMessage(
            "user", [TextContent("Look:"), UriContent("https://example.com/a.png", "image/png")]
        ),
        ChatMessage(
            "assistant", [ToolCallContent("c", "f", arguments)], additional_properties=extra
        ),
    ]
    options = ChatOptions(
        tools=[Tool("f", parameters=schema)],
        response_format=JsonSchemaFormat("answer", schema),
        metadata=metadata,
        additional_properties=extra,
        routing=RoutingHints(tags={"t": "u"}),
    )
    return messages, options, (messages, options, schema, arguments, extra, metadata)


def edits(refused):
    """Return a step that tries every edit and counts those that were refused."""

    def edit(call):
        for name, change in EDITS.items():
            try:
                change(call)
            except REFUSED:
                refused.append(name)

    return runs(edit)


@pytest.mark.parametrize("depth", [1, 3])
async def test_what_a_failing_client_edits_is_not_sent_to_the_next(answer, depth):
    """[BR-76] Each edit is refused; the second client gets the request as the caller wrote it."""
    refused = []
    first = ScriptedChatClient(edits(refused), fails(OverloadedError))
    second = ScriptedChatClient("ok")
    client = OrderedFailoverChatClient([first, second])
    for _ in range(depth - 1):
        client = OrderedFailoverChatClient([client])
    messages, options, owned = request()
    before = pickle.dumps(owned)

    assert (await answer(client, messages, options)).text == "ok"

    assert refused == list(EDITS)
    [received] = second.calls
    assert received.messages == tuple(messages)
    assert received.options == options
    assert pickle.dumps(owned) == before


async def test_two_clients_that_run_at_once_do_not_see_each_others_edits(answer):
    """[BR-76] As hedged attempts would: one request, two clients, the same moment."""
    messages, options, owned = request()
    before = pickle.dumps(owned)
    refused, gates = [], [Gate(), Gate()]
    clients = [
        ScriptedChatClient(edits(refused), waits_for(gate), edits(refused), "ok") for gate in gates
    ]

    async with anyio.create_task_group() as group:
        for client in clients:
            group.start_soon(answer, OrderedFailoverChatClient([client]), messages, options)
        for gate in gates:
            await gate.reached()
        for gate in gates:
            gate.open()

    assert sorted(refused) == sorted(list(EDITS) * 4)
    assert clients[0].calls[0].messages == clients[1].calls[0].messages == tuple(messages)
    assert clients[0].calls[0].options == clients[1].calls[0].options == options
    assert pickle.dumps(owned) == before


async def test_a_list_that_the_caller_goes_on_with_is_read_once(answer):
    """[BR-76] What is appended while a client fails belongs to the caller's next request."""
    messages = [{"role": "user", "content": [{"type": "text", "text": "one"}]}]

    def append(_):
        messages[0]["content"][0]["text"] = "changed"
        messages.append({"role": "user", "content": "two"})

    second = ScriptedChatClient("ok")
    await answer(
        OrderedFailoverChatClient(
            [ScriptedChatClient(runs(append), fails(OverloadedError)), second]
        ),
        messages,
    )

    assert second.calls[0].messages == (ChatMessage("user", "one"),)


async def test_options_that_the_context_is_given_stay_with_the_request(answer):
    """[BR-76] The one change that is meant: a policy assigns options for its own request."""

    class Cheaper(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            context.options = context.options.replace(model="small")

    first = ScriptedChatClient.per_call([fails(OverloadedError)], ["ok"])
    second = ScriptedChatClient("ok")
    router = Cheaper([first, second])
    options = ChatOptions(model="large")

    await answer(router, "Hi", options)
    await answer(router, "Hi", options)

    assert [call.options.model for call in first.calls] == ["large", "large"]
    assert [call.options.model for call in second.calls] == ["small"]
    assert options.model == "large"
