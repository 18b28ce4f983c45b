"""Options as the request body of the Responses API."""

import logging
from dataclasses import fields

import pytest

from chatrouting.adapters._openai_responses.options import is_continued, is_stored, request_body
from chatrouting.errors import BadRequestError, UnsupportedOptionError
from chatrouting.failure import FailureKind
from chatrouting.options import ChatOptions, JsonSchemaFormat, RoutingHints, Tool

ITEM = {"type": "message", "role": "user", "content": []}
STATELESS = {
    "model": "gpt-x",
    "input": [ITEM],
    "store": False,
    "include": ["reasoning.encrypted_content"],
}
LOOK = Tool("look", "Look up.", {"type": "object", "properties": {"at": {"type": "string"}}}, True)
LOOK_BODY = {
    "type": "function",
    "name": "look",
    "description": "Look up.",
    "parameters": {
        "type": "object",
        "properties": {"at": {"type": "string"}},
        "additionalProperties": False,
        "required": ["at"],
    },
    "strict": True,
}
SCHEMA = {"type": "object", "properties": {}}


def body(*, items=(ITEM,), **options):
    return request_body(ChatOptions(**options), provider="openai", model="gpt-x", items=items)


def test_without_options_a_request_is_stateless():
    assert body() == STATELESS


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"instructions": "Be brief."}, {"instructions": "Be brief."}),
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"top_p": 0.5}, {"top_p": 0.5}),
        ({"max_output_tokens": 9}, {"max_output_tokens": 9}),
        ({"metadata": {"a": "b"}}, {"metadata": {"a": "b"}}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        ({"response_format": "text"}, {"text": {"format": {"type": "text"}}}),
        ({"response_format": "json"}, {"text": {"format": {"type": "json_object"}}}),
        (
            {"response_format": JsonSchemaFormat("answer", SCHEMA)},
            {"text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}}},
        ),
        (
            {"response_format": JsonSchemaFormat("answer", SCHEMA, strict=True)},
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "answer",
                        "schema": {**SCHEMA, "additionalProperties": False, "required": []},
                        "strict": True,
                    }
                }
            },
        ),
        ({"tools": [LOOK]}, {"tools": [LOOK_BODY]}),
        (
            {"tools": [Tool("now")]},
            {"tools": [{"type": "function", "name": "now", "parameters": SCHEMA}]},
        ),
        ({"tools": ()}, {}),
        ({"tool_choice": "auto"}, {}),
        ({"tool_choice": "none"}, {}),
        (
            {"tools": [LOOK], "tool_choice": "none"},
            {"tools": [LOOK_BODY], "tool_choice": "none"},
        ),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        ({"tool_choice": "look"}, {"tool_choice": {"type": "function", "name": "look"}}),
        (
            {"tools": [LOOK], "allow_multiple_tool_calls": False},
            {"tools": [LOOK_BODY], "parallel_tool_calls": False},
        ),
        ({"stop_sequences": ()}, {}),
        ({"routing": RoutingHints(session_id="s")}, {}),
        ({"model": "elsewhere-decided"}, {}),
    ],
    ids=lambda value: "-".join(value) or "nothing",
)
def test_options_are_mapped(options, expected):
    assert body(**options) == STATELESS | expected


def test_stop_sequences_are_refused():
    """[BR-78]."""
    with pytest.raises(UnsupportedOptionError, match="stop_sequences") as caught:
        body(stop_sequences=["END"])

    assert caught.value.kind is FailureKind.UNSUPPORTED


def test_an_unknown_response_format_is_refused():
    with pytest.raises(UnsupportedOptionError, match="'yaml'"):
        body(response_format="yaml")


def test_sampling_options_that_the_api_lacks_are_dropped_with_a_log_line(caplog):
    sent = body(
        top_k=3,
        seed=1,
        frequency_penalty=0.5,
        presence_penalty=0.5,
        allow_multiple_tool_calls=True,
    )

    assert sent == STATELESS
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    for name in (
        "top_k",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "allow_multiple_tool_calls",
    ):
        assert name in record.getMessage()


def test_nothing_is_logged_where_nothing_is_dropped(caplog):
    body(temperature=1.0, tools=[LOOK], allow_multiple_tool_calls=True)

    assert caplog.records == []


def test_every_field_of_the_options_is_accounted_for():
    """A new option must be mapped, refused or dropped here."""
    mapped = {
        "model",
        "instructions",
        "temperature",
        "top_p",
        "max_output_tokens",
        "reasoning_effort",
        "response_format",
        "tools",
        "tool_choice",
        "allow_multiple_tool_calls",
        "conversation_id",
        "metadata",
        "additional_properties",
    }
    refused = {"stop_sequences"}
    dropped = {"top_k", "seed", "frequency_penalty", "presence_penalty", "routing"}

    assert {field.name for field in fields(ChatOptions)} == mapped | refused | dropped


@pytest.mark.parametrize(
    ("conversation_id", "field"),
    [("resp_1", "previous_response_id"), ("conv_1", "conversation")],
    ids=["response", "conversation"],
)
def test_a_conversation_id_goes_on_from_where_it_points(conversation_id, field):
    assert body(conversation_id=conversation_id) == {
        "model": "gpt-x",
        "input": [ITEM],
        field: conversation_id,
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"store": True}, {"store": True}),
        ({"store": None}, {}),
        ({"include": None}, {"store": False}),
        (
            {"include": ["message.output_text.logprobs"]},
            {
                "store": False,
                "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
            },
        ),
        (
            {"store": True, "include": ["reasoning.encrypted_content"]},
            {"store": True, "include": ["reasoning.encrypted_content"]},
        ),
    ],
    ids=["stored", "unsaid", "not-included", "more-included", "stored-and-included"],
)
def test_additional_properties_decide_on_storing(options, expected):
    sent = body(additional_properties=options)

    assert sent == {"model": "gpt-x", "input": [ITEM]} | expected
    assert is_stored(sent) is (expected.get("store") is not False)


def test_a_stateless_request_may_go_on_from_a_response():
    sent = body(conversation_id="resp_1", additional_properties={"store": False})

    assert sent["store"] is False
    assert sent["include"] == ["reasoning.encrypted_content"]


def test_tools_of_the_caller_alone_are_tools_too():
    extra = {"tools": [{"type": "web_search"}]}
    sent = body(allow_multiple_tool_calls=False, additional_properties=extra)
    assert sent == STATELESS | extra | {"parallel_tool_calls": False}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"conversation_id": "resp_1"}, True),
        ({"additional_properties": {"previous_response_id": "resp_1"}}, True),
        ({"additional_properties": {"store": True}}, False),
    ],
    ids=["alone", "conversation", "by-hand", "stored"],
)
def test_a_request_may_go_on_from_what_the_provider_holds(options, expected):
    assert is_continued(ChatOptions(**options)) is expected


def test_a_request_without_anything_to_say_is_refused_here():
    """[BR-86]."""
    with pytest.raises(BadRequestError, match="no message holds anything"):
        body(items=())


@pytest.mark.parametrize(
    "options",
    [
        {"conversation_id": "resp_1"},
        {"conversation_id": "conv_1"},
        {"additional_properties": {"prompt": {"id": "pmpt_1"}}},
    ],
    ids=["response", "conversation", "prompt"],
)
def test_the_provider_may_hold_what_is_to_be_answered(options):
    assert body(items=(), **options)["input"] == []


def test_the_callers_values_are_not_changed():
    """[BR-76]."""
    extra = {"include": ["x"], "reasoning": {"summary": "auto"}}
    options = ChatOptions(additional_properties=extra, reasoning_effort="low", tools=[LOOK])

    sent = request_body(options, provider="openai", model="gpt-x", items=[ITEM])
    sent["include"].append("y")

    assert extra == {"include": ["x"], "reasoning": {"summary": "auto"}}
    assert options == ChatOptions(additional_properties=extra, reasoning_effort="low", tools=[LOOK])
