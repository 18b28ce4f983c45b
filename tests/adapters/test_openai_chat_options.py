"""Options as the body of Chat Completions: mapped, refused, or dropped with a log line."""

from dataclasses import fields, replace

import pytest

from chatrouting.adapters import dialects
from chatrouting.adapters._openai_chat.options import request_body
from chatrouting.errors import UnsupportedOptionError
from chatrouting.options import ChatOptions, JsonSchemaFormat, RoutingHints, Tool

MESSAGES = [{"role": "user", "content": "Hi"}]
OPENAI = dialects.OPENAI
SCHEMA = JsonSchemaFormat("answer", {"type": "object"}, strict=True)
CLOSED = {"type": "object", "additionalProperties": False, "required": []}
TOOL = Tool("f", "does f", {"type": "object", "properties": {"x": {}}}, strict=True)


def write(dialect=OPENAI, *, is_streaming=False, **options):
    body = request_body(
        ChatOptions(**options),
        dialect,
        model="gpt-x",
        messages=MESSAGES,
        is_streaming=is_streaming,
    )
    assert body.pop("model") == "gpt-x"
    assert body.pop("messages") == MESSAGES
    return body


@pytest.mark.parametrize(
    ("options", "body"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param(
            {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}, id="sampling"
        ),
        pytest.param({"max_output_tokens": 5}, {"max_completion_tokens": 5}, id="length"),
        pytest.param({"stop_sequences": ["a", "b"]}, {"stop": ["a", "b"]}, id="stop"),
        pytest.param({"seed": 1}, {"seed": 1}, id="seed"),
        pytest.param(
            {"frequency_penalty": 1.0, "presence_penalty": 2.0},
            {"frequency_penalty": 1.0, "presence_penalty": 2.0},
            id="penalties",
        ),
        pytest.param({"reasoning_effort": "low"}, {"reasoning_effort": "low"}, id="effort"),
        pytest.param(
            {"response_format": "text"}, {"response_format": {"type": "text"}}, id="text format"
        ),
        pytest.param(
            {"response_format": "json"}, {"response_format": {"type": "json_object"}}, id="json"
        ),
        pytest.param(
            {"response_format": SCHEMA},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "answer",
                        "schema": CLOSED,
                        "strict": True,
                    },
                }
            },
            id="schema",
        ),
        pytest.param(
            {"tools": [TOOL, Tool("g")], "tool_choice": "auto"},
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": "f",
                            "description": "does f",
                            "parameters": {
                                "type": "object",
                                "properties": {"x": {}},
                                "additionalProperties": False,
                                "required": ["x"],
                            },
                            "strict": True,
                        },
                    },
                    {
                        "type": "function",
                        "function": {
                            "name": "g",
                            "parameters": {"type": "object", "properties": {}},
                        },
                    },
                ],
                "tool_choice": "auto",
            },
            id="tools",
        ),
        pytest.param({"tool_choice": "none"}, {}, id="nothing to choose from"),
        pytest.param({"tool_choice": "required"}, {"tool_choice": "required"}, id="required"),
        pytest.param(
            {"tool_choice": "f"},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            id="named",
        ),
        pytest.param({"metadata": {"a": "b"}}, {"metadata": {"a": "b"}}, id="metadata"),
        pytest.param({"routing": RoutingHints(session_id="s")}, {}, id="hints stay here"),
        pytest.param({"instructions": "x", "model": "y"}, {}, id="written elsewhere"),
        pytest.param(
            {"additional_properties": {"n": 2, "verbosity": "low"}},
            {"n": 2, "verbosity": "low"},
            id="further fields",
        ),
    ],
)
def test_each_option_has_its_place(options, body):
    """The option table's column for Chat Completions."""
    assert write(**options) == body


def test_every_option_is_known_here():
    """A new field of the options must be mapped, refused or dropped before this passes."""
    known = {
        *("model", "instructions", "temperature", "top_p", "top_k", "max_output_tokens"),
        *("stop_sequences", "seed", "frequency_penalty", "presence_penalty", "reasoning_effort"),
        *("response_format", "tools", "tool_choice", "allow_multiple_tool_calls"),
        *("conversation_id", "metadata", "additional_properties", "routing"),
    }
    assert {field.name for field in fields(ChatOptions)} == known


def test_several_calls_are_allowed_or_not_where_there_are_tools(caplog):
    assert write(tools=[Tool("f")], allow_multiple_tool_calls=False)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in write(allow_multiple_tool_calls=True)
    extra = {"tools": [{"type": "custom"}]}
    assert write(allow_multiple_tool_calls=True, additional_properties=extra)["parallel_tool_calls"]
    assert "options=allow_multiple_tool_calls" in caplog.text


def test_streams_ask_for_usage_and_nothing_else_differs():
    """[BR-77] One way to write a request for both modes."""
    options = {"temperature": 0.5, "tools": [TOOL], "additional_properties": {"n": 1}}
    streamed = write(is_streaming=True, **options)
    assert streamed.pop("stream_options") == {"include_usage": True}
    assert streamed == write(**options)


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ({"include_usage": False}, {"include_usage": False}),
        ({"include_obfuscation": False}, {"include_usage": True, "include_obfuscation": False}),
    ],
)
def test_the_caller_may_say_otherwise_about_streams(said, sent):
    """The same further fields serve both modes; whole answers have no such options."""
    extra = {"stream_options": said}
    assert write(is_streaming=True, additional_properties=extra)["stream_options"] == sent
    assert write(additional_properties=extra) == {}


@pytest.mark.parametrize(
    ("dialect", "options", "words"),
    [
        (OPENAI, {"conversation_id": "c"}, "keeps no conversations"),
        (OPENAI, {"response_format": "xml"}, "expected 'text', 'json' or a JsonSchemaFormat"),
        (dialects.DEEPSEEK, {"response_format": SCHEMA}, "deepseek holds no answer to a schema"),
        (dialects.OLLAMA, {"tool_choice": "required"}, "ollama obeys no forced choice"),
        (dialects.OLLAMA, {"tool_choice": "f"}, "ollama obeys no forced choice"),
    ],
)
def test_what_would_change_the_answer_is_refused(dialect, options, words):
    """Schema, forced tool and conversation are refused where the server lacks them."""
    with pytest.raises(UnsupportedOptionError, match=words):
        write(dialect, **options)


def test_sampling_that_a_server_does_not_take_is_dropped_with_a_log_line(caplog):
    assert write(top_k=5, temperature=1.0) == {"temperature": 1.0}
    assert "adapters.options_dropped provider=openai model=gpt-x options=top_k" in caplog.text


EVERYTHING = {
    "temperature": 0.5,
    "top_k": 5,
    "seed": 7,
    "max_output_tokens": 9,
    "reasoning_effort": "low",
    "metadata": {"a": "b"},
    "tools": [Tool("f", strict=True)],
    "tool_choice": "auto",
    "allow_multiple_tool_calls": False,
}


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [
        ("OPENAI", {"max_completion_tokens", "seed", "metadata", "stream_options"}, {"top_k"}),
        ("AZURE", {"max_completion_tokens", "seed", "metadata", "stream_options"}, {"top_k"}),
        ("GEMINI", {"max_tokens", "stream_options"}, {"top_k", "metadata"}),
        (
            "MISTRAL",
            {"max_tokens", "random_seed", "parallel_tool_calls"},
            {"top_k", "seed", "stream_options", "reasoning_effort", "metadata"},
        ),
        ("GROQ", {"max_completion_tokens", "seed"}, {"top_k", "metadata"}),
        ("DEEPSEEK", {"max_tokens"}, {"top_k", "seed", "parallel_tool_calls", "metadata"}),
        ("OPENROUTER", {"max_tokens", "top_k", "reasoning_effort"}, {"metadata"}),
        ("VLLM", {"max_tokens", "top_k"}, {"max_completion_tokens", "metadata"}),
        ("OLLAMA", {"max_tokens", "stream_options"}, {"parallel_tool_calls"}),
        ("LLAMA_CPP", {"max_tokens", "top_k"}, {"metadata"}),
    ],
)
def test_each_preset_gets_the_fields_it_knows(name, has, lacks):
    """[BR-79] One neutral option, another field for each server."""
    body = write(getattr(dialects, name), is_streaming=True, **EVERYTHING)
    assert has <= body.keys()
    assert not lacks & body.keys()


def test_strict_goes_only_where_it_is_known():
    plain = replace(OPENAI, supports_strict=False)
    body = write(plain, tools=[TOOL], response_format=SCHEMA)
    assert "strict" not in body["tools"][0]["function"]
    assert body["tools"][0]["function"]["parameters"] == TOOL.parameters
    assert body["response_format"]["json_schema"] == {"name": "answer", "schema": SCHEMA.schema}


def test_mistral_says_any_for_required():
    assert write(dialects.MISTRAL, tools=[TOOL], tool_choice="required")["tool_choice"] == "any"
