"""[BR-76] What one client does to a request, no other client and no caller sees."""

import contextlib
import copy
import dataclasses

import pytest

from chatrouting import (
    ChatMessage,
    ChatOptions,
    JsonSchemaFormat,
    OrderedFailoverChatClient,
    RetryChatClient,
    RoutingHints,
    Tool,
    ToolCallContent,
    ToolResultContent,
    UriContent,
    as_messages,
)
from chatrouting.errors import OverloadedError
from chatrouting.testing import ScriptedChatClient, runs


def conversation():
    """Give the caller's own objects, with everything that could be changed at some depth."""
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        ChatMessage("user", [UriContent("https://example.com/a.png", "image/*")]),
        ChatMessage("assistant", [ToolCallContent("c", "f", {"list": [1, {"deep": True}]})]),
        ChatMessage("tool", [ToolResultContent("c", "done")], additional_properties={"a": [1]}),
    ]
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}}
    options = ChatOptions(
        tools=[Tool("f", parameters=schema)],
        stop_sequences=["END"],
        response_format=JsonSchemaFormat("answer", schema),
        metadata={"a": "b"},
        additional_properties={"extra": {"list": [1]}},
        routing=RoutingHints(tags={"t": "u"}),
    )
    return messages, options, schema


def vandalise(value, seen=None):
    """Change whatever can be changed in `value`, at any depth."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, str | bytes | int | float | None):
        return
    seen.add(id(value))
    for inside in parts(value):
        vandalise(inside, seen)
    for change in (
        lambda: value.clear(),  # noqa: PLW0108  # not every value has it
        lambda: value.update(broken=True),
        lambda: value.append("broken"),
        lambda: value.__setitem__(0, "broken"),
        lambda: value.__ior__({"broken": True}),
        lambda: value.__iadd__(["broken"]),
        lambda: setattr(value, dataclasses.fields(value)[0].name, "broken"),
    ):
        with contextlib.suppress(TypeError, AttributeError, KeyError, IndexError):
            change()


def parts(value):
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def test_the_vandal_breaks_what_is_not_frozen():
    plain = {"list": [1, {"deep": True}], "dict": {"a": "b"}}

    vandalise(plain)

    assert plain == {"broken": True, 0: "broken"}


@pytest.mark.parametrize(
    "wrap",
    [lambda client: client, lambda client: RetryChatClient(client, rng=lambda: 0.0)],
    ids=["plain", "nested"],
)
async def test_what_a_client_edits_reaches_neither_the_next_one_nor_the_caller(answer, wrap):
    messages, options, schema = conversation()
    before = copy.deepcopy((messages, options, schema))

    def edit(call):
        vandalise(call.messages)
        vandalise(call.options)
        raise OverloadedError("broken on purpose")

    first, second = ScriptedChatClient(runs(edit)), ScriptedChatClient("ok")
    router = OrderedFailoverChatClient([wrap(first), second])

    await answer(router, messages, options)

    (call,) = second.calls
    assert call.messages == as_messages(before[0])
    assert call.options == before[1]
    assert (messages, options, schema) == before
