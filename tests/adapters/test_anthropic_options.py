"""How options become a request of the Messages API."""

import logging
from typing import Any

import pytest

from chatrouting.adapters._anthropic.models import Target
from chatrouting.adapters._anthropic.options import JSON_INSTRUCTION, Request, request
from chatrouting.adapters._anthropic.schema import adapt_schema
from chatrouting.contents import ReasoningContent, ToolCallContent, ToolResultContent
from chatrouting.errors import UnsupportedOptionError
from chatrouting.messages import ChatMessage, as_messages
from chatrouting.options import ChatOptions, JsonSchemaFormat, Principal, RoutingHints, Tool

OLD = "claude-haiku-4-5"
NEW = "claude-sonnet-5"
TOOL = Tool("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
CALLED = (
    "q",
    ChatMessage("assistant", ToolCallContent("call_1", "look", {})),
    ChatMessage("tool", ToolResultContent("call_1", "42")),
)


def write(*messages, model=NEW, provider="anthropic", limit=None, **options) -> Request:
    target = Target(provider, model, "https://api.anthropic.com")
    said = as_messages(messages or "hi")
    return request(said, ChatOptions(**options), target, limit=limit)


def body(*messages, **settings) -> dict[str, Any]:
    return write(*messages, **settings).body


def dropped(caplog):
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.startswith("adapters.options_dropped provider=anthropic model=")
    return record.message.partition("options=")[2]


def test_nothing_but_the_required_fields_is_sent_by_default():
    written = write("hi")

    assert written.body == {
        "model": NEW,
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    }
    assert written.headers == {}


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"max_output_tokens": 7}, {"max_tokens": 7}),
        ({"stop_sequences": "END"}, {"stop_sequences": ["END"]}),
        ({"stop_sequences": ()}, {}),
        ({"instructions": "be kind"}, {"system": [{"type": "text", "text": "be kind"}]}),
        ({"instructions": " "}, {}),
        ({"response_format": "text"}, {}),
        ({"response_format": "json"}, {"system": [{"type": "text", "text": JSON_INSTRUCTION}]}),
        ({"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        (
            {"reasoning_effort": "high"},
            {
                "thinking": {"type": "adaptive"},
                "output_config": {"effort": "high"},
                "max_tokens": 4096 + 16384,
            },
        ),
        (
            {"reasoning_effort": "minimal"},
            {
                "thinking": {"type": "adaptive"},
                "output_config": {"effort": "low"},
                "max_tokens": 4096 + 1024,
            },
        ),
        ({"metadata": {"user_id": "u1"}}, {"metadata": {"user_id": "u1"}}),
        ({"metadata": {}}, {}),
        ({"routing": RoutingHints(principal=Principal(tenant="acme"), tags={"a": "b"})}, {}),
        ({"tool_choice": "auto"}, {}),
        ({"tool_choice": "none"}, {}),
    ],
)
def test_option_is_mapped(options, fields):
    assert body(**options) == body() | fields


def test_instructions_come_before_system_messages():
    written = body(ChatMessage("system", "be brief"), "hi", instructions="be kind")

    assert [block["text"] for block in written["system"]] == ["be kind", "be brief"]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"seed": 1, "frequency_penalty": 0.1, "presence_penalty": 0.1}, None),
        ({"temperature": 0.5, "top_p": 0.9, "top_k": 5}, None),
        ({"allow_multiple_tool_calls": False}, None),
        ({"metadata": {"secret": "value"}}, "metadata.secret"),
    ],
)
def test_option_without_a_counterpart_is_dropped_with_a_log_line(options, names, caplog):
    """The line names options, never their values."""
    assert body(**options) == body()
    assert dropped(caplog) == (names or ",".join(options))


def test_all_that_is_honoured_is_not_logged(caplog):
    write(temperature=0.5, top_k=5, model=OLD, stop_sequences=["END"], tools=[TOOL])

    assert not caplog.records


@pytest.mark.parametrize(
    "options",
    [
        {"conversation_id": "conv_1"},
        {"stop_sequences": ["END", " "]},
        {"response_format": "xml"},
        {"tool_choice": "required"},
        {"tool_choice": "look"},
        {"tools": [Tool("look", parameters={"type": "array"})]},
    ],
    ids=str,
)
def test_option_that_changes_the_answer_is_refused(options):
    """Refused before anything is sent, in a way that another provider may still answer."""
    with pytest.raises(UnsupportedOptionError) as caught:
        write(**options)

    assert caught.value.kind == "unsupported"
    assert caught.value.model == NEW


# -- sampling --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "headers", "fields"),
    [
        ("anthropic", {"anthropic-version": "2023-06-01"}, {}),
        ("foundry", {"anthropic-version": "2023-06-01"}, {}),
        ("bedrock", {}, {"anthropic_version": "bedrock-2023-05-31"}),
        ("vertex", {}, {"anthropic_version": "vertex-2023-10-16"}),
    ],
)
def test_sampling_values_go_with_the_api_version_that_knows_them(provider, headers, fields):
    """The version that the SDK sends by itself refuses them for every model."""
    written = write(temperature=0.5, top_k=5, model=OLD, provider=provider)

    assert written.body == body(model=OLD) | {"temperature": 0.5, "top_k": 5} | fields
    assert written.headers == headers


def test_sampling_values_of_ones_own_are_sent_as_they_are():
    written = write(additional_properties={"temperature": 0.3}, temperature=0.5, model=OLD)

    assert written.body["temperature"] == 0.3
    assert written.headers == {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("options", "sent", "names"),
    [
        ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5}, "top_p"),
        ({"temperature": 1.5}, {"temperature": 1}, "temperature above 1"),
        ({"top_p": 0.9}, {"top_p": 0.9}, None),
    ],
)
def test_sampling_values_are_made_to_fit(options, sent, names, caplog):
    assert body(model=OLD, **options) == body(model=OLD) | sent
    assert names is None or dropped(caplog) == names


def test_sampling_values_do_not_go_beside_thinking(caplog):
    written = write(temperature=0.5, reasoning_effort="low", model="claude-sonnet-4-6")

    assert "temperature" not in written.body
    assert written.headers == {}
    assert dropped(caplog) == "temperature"


# -- reasoning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effort", "limit", "max_tokens", "budget"),
    [
        ("low", None, 4096 + 2048, 2048),
        ("high", None, 4096 + 16384, 16384),
        ("high", 20000, 20000, 16384),
        ("high", 2000, 2000, 1999),
    ],
)
def test_older_model_is_told_a_budget(effort, limit, max_tokens, budget):
    written = body(model=OLD, reasoning_effort=effort, max_output_tokens=limit)

    assert written["max_tokens"] == max_tokens
    assert written["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert "output_config" not in written


@pytest.mark.parametrize(
    "options",
    [
        {"reasoning_effort": "high", "max_output_tokens": 1024},
        {"reasoning_effort": "extreme"},
        {"additional_properties": {"thinking": {"type": "enabled", "budget_tokens": 5000}}},
        {"additional_properties": {"thinking": {"type": "enabled", "budget_tokens": 10}}},
    ],
    ids=str,
)
def test_budget_that_does_not_fit_is_refused_locally(options):
    with pytest.raises(UnsupportedOptionError):
        write(model=OLD, **options)


def test_model_that_cannot_think_answers_without(caplog):
    assert body(model="claude-3-5-haiku-latest", reasoning_effort="high") == body(
        model="claude-3-5-haiku-latest"
    )
    assert dropped(caplog) == "reasoning_effort"
    assert body(model="claude-3-5-haiku-latest", reasoning_effort="none") == body(
        model="claude-3-5-haiku-latest"
    )


def test_forced_tool_goes_before_thinking(caplog):
    """The API refuses both together; the effort still holds."""
    written = body(tools=[TOOL], tool_choice="look", reasoning_effort="high")

    assert "thinking" not in written
    assert written["output_config"] == {"effort": "high"}
    assert dropped(caplog) == "thinking"


def test_budget_is_off_where_a_tool_loop_lost_its_reasoning(caplog):
    """A hand-over in the loop: the last assistant turn would have to begin with reasoning."""
    written = body(*CALLED, tools=[TOOL], model=OLD, reasoning_effort="high")

    assert written["thinking"] == {"type": "disabled"}
    assert dropped(caplog) == "thinking"


def test_budget_stays_where_the_loop_has_its_reasoning():
    origin = Target("anthropic", OLD, "https://api.anthropic.com").origin
    thought = ReasoningContent("hm", "sig", origin)
    message = ChatMessage("assistant", [thought, ToolCallContent("call_1", "look", {})])

    written = body(CALLED[0], message, CALLED[2], tools=[TOOL], model=OLD, reasoning_effort="low")

    assert written["thinking"]["type"] == "enabled"


@pytest.mark.parametrize(
    ("options", "limit", "max_tokens"),
    [
        ({}, None, 4096),
        ({}, 64_000, 64_000),
        ({"max_output_tokens": 7}, 64_000, 7),
        ({"reasoning_effort": "high"}, 64_000, 64_000),
        ({"reasoning_effort": "high", "max_output_tokens": 7}, None, 7),
        ({"reasoning_effort": "none"}, None, 4096),
        ({"reasoning_effort": "word of the provider"}, None, 4096),
    ],
)
def test_limit_that_was_set_is_never_exceeded(options, limit, max_tokens):
    """Room for thinking is added to the default only: a set limit may be all a model has."""
    assert body(limit=limit, **options)["max_tokens"] == max_tokens


# -- tools -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "choice"),
    [
        ({}, None),
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none"}, {"type": "none"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "look"}, {"type": "tool", "name": "look"}),
        ({"allow_multiple_tool_calls": True}, None),
        (
            {"allow_multiple_tool_calls": False},
            {"type": "auto", "disable_parallel_tool_use": True},
        ),
        (
            {"tool_choice": "required", "allow_multiple_tool_calls": False},
            {"type": "any", "disable_parallel_tool_use": True},
        ),
        ({"tool_choice": "none", "allow_multiple_tool_calls": False}, {"type": "none"}),
    ],
)
def test_tool_choice(options, choice):
    assert body(tools=[TOOL], **options).get("tool_choice") == choice


@pytest.mark.parametrize(
    ("tool", "written"),
    [
        (TOOL, {"name": "look", "description": "Looks.", "input_schema": TOOL.parameters}),
        (Tool("go"), {"name": "go", "input_schema": {"type": "object", "properties": {}}}),
        (
            Tool("go", parameters={"properties": {"to": {"type": "string"}}}),
            {
                "name": "go",
                "input_schema": {"type": "object", "properties": {"to": {"type": "string"}}},
            },
        ),
        (
            Tool("go", strict=True),
            {
                "name": "go",
                "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
                "strict": True,
            },
        ),
    ],
)
def test_tool(tool, written):
    assert body(tools=[tool])["tools"] == [written]


def test_calls_in_the_history_are_declared_where_no_tools_are_given():
    """The API wants tools where it finds calls; none may be called, as the caller gave none."""
    written = body(*CALLED)

    assert written["tools"] == [{"name": "look", "input_schema": {"type": "object"}}]
    assert written["tool_choice"] == {"type": "none"}


# -- structured output -----------------------------------------------------------------------------


def test_schema_is_sent_as_output_format():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}

    written = body(response_format=JsonSchemaFormat("answer", schema), reasoning_effort="low")

    assert written["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"a": {"type": "integer", "description": "minimum: 1"}},
                "additionalProperties": False,
            },
        },
    }


def test_model_without_schemas_is_not_eligible():
    with pytest.raises(UnsupportedOptionError, match="a JSON schema"):
        write(response_format=JsonSchemaFormat("answer", {}), model="claude-3-7-sonnet-latest")


@pytest.mark.parametrize(
    ("schema", "adapted"),
    [
        ({}, {}),
        ({"$schema": "x", "type": "string"}, {"type": "string"}),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        (
            {"type": "string", "format": "iban", "pattern": "A", "description": "An account."},
            {"type": "string", "description": "An account.\n\nformat: iban, pattern: A"},
        ),
        (
            {"type": "array", "items": {"type": "object"}, "minItems": 1},
            {
                "type": "array",
                "items": {"type": "object", "additionalProperties": False},
                "minItems": 1,
            },
        ),
        (
            {"type": "array", "items": True, "minItems": 2},
            {"type": "array", "items": True, "description": "minItems: 2"},
        ),
        (
            {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"enum": [1]}}},
            {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"enum": [1]}}},
        ),
        (
            {"type": ["object", "null"], "required": ["a"], "properties": {"a": False}},
            {
                "type": ["object", "null"],
                "required": ["a"],
                "properties": {"a": False},
                "additionalProperties": False,
            },
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"type": "object", "additionalProperties": False},
        ),
    ],
)
def test_schema_is_adapted(schema, adapted):
    assert adapt_schema(schema) == adapted


# -- further fields --------------------------------------------------------------------------------


def test_options_and_tools_are_not_changed():
    """[BR-76] The caller's own schemas and properties stay as they are."""
    schema = {"type": "object", "properties": {"a": {"type": "object"}}}
    extra = {"tools": [{"type": "x", "name": "x"}], "metadata": {"user_id": "u2"}}
    options = ChatOptions(
        tools=[Tool("go", parameters=schema, strict=True)],
        metadata={"user_id": "u1"},
        additional_properties=extra,
    )
    target = Target("anthropic", NEW, "https://api.anthropic.com")

    first = request(as_messages("hi"), options, target).body
    first["tools"].append("mine")
    again = request(as_messages("hi"), options, target).body

    assert len(again["tools"]) == 2
    assert schema == {"type": "object", "properties": {"a": {"type": "object"}}}
    assert extra == {"tools": [{"type": "x", "name": "x"}], "metadata": {"user_id": "u2"}}
