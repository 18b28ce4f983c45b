"""Options as the request body of Chat Completions. Pure: nothing is sent here.

Every field of `ChatOptions` is mapped, refused, or dropped with a log line. Refused is what would
change the meaning of the answer: a schema or a forced tool that the server does not obey, and a
conversation of the provider, which this API does not have. `additional_properties` have the last
word, except on the conversation, the model and the mode.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from chatrouting.adapters.dialects import Dialect
from chatrouting.errors import UnsupportedOptionError
from chatrouting.options import ChatOptions, JsonSchemaFormat, Tool

_log = logging.getLogger("chatrouting.adapters")

Body: TypeAlias = dict[str, Any]

_SAME_NAME: Final = (
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "reasoning_effort",
    "metadata",
)
_FORMATS: Final[Mapping[str, str]] = {"text": "text", "json": "json_object"}
#: Filled in by the adapter whatever `additional_properties` say.
_RESERVED: Final = ("messages", "model", "stream")


def request_body(
    options: ChatOptions,
    dialect: Dialect,
    *,
    model: str,
    messages: Sequence[Mapping[str, Any]],
    is_streaming: bool,
) -> Body:
    """Write a request; whole and streamed bodies differ in `stream` and `stream_options` only.

    Args:
        options: What the caller asks for.
        dialect: Whom it goes to.
        model: Model, or Azure's deployment.
        messages: The conversation as it is sent.
        is_streaming: Whether updates are wanted.

    Raises:
        UnsupportedOptionError: For an option that the server lacks and that must not be dropped.
    """
    if options.conversation_id is not None:
        raise UnsupportedOptionError(
            "conversation_id is set, but Chat Completions keeps no conversations. Send the whole "
            "history without it, or use the Responses API."
        )
    dropped: list[str] = []
    body: Body = {"model": model, "messages": messages, **_fields(options, dialect, dropped)}
    _add_tools(body, options, dialect, dropped)
    if is_streaming and dialect.supports_stream_options:
        body["stream_options"] = {"include_usage": True}
    _add_extras(body, options, dropped)
    if is_streaming:
        body["stream"] = True
    if dropped:
        _log.warning(
            "adapters.options_dropped provider=%s options=%s", dialect.name, ",".join(dropped)
        )
    return body


def _fields(options: ChatOptions, dialect: Dialect, dropped: list[str]) -> Body:
    """Write what is a field of its own; the names of what is left out go into `dropped`."""
    fields: Body = {}
    for name, field in (*((name, name) for name in _SAME_NAME), ("seed", dialect.seed_field)):
        value = getattr(options, name)
        if value is not None and name in dialect.dropped_options:
            dropped.append(name)
        elif value is not None:
            fields[field] = value
    if options.max_output_tokens is not None:
        fields[dialect.max_tokens_field] = options.max_output_tokens
    if options.stop_sequences:
        fields["stop"] = list(options.stop_sequences)
    if options.response_format is not None:
        fields["response_format"] = _response_format(options.response_format, dialect)
    return fields


def _response_format(value: str | JsonSchemaFormat, dialect: Dialect) -> Body:
    if not isinstance(value, JsonSchemaFormat):
        if value not in _FORMATS:
            raise UnsupportedOptionError(
                f"response_format is {value!r}; expected 'text', 'json' or a JsonSchemaFormat."
            )
        return {"type": _FORMATS[value]}
    if not dialect.supports_json_schema:
        raise UnsupportedOptionError(
            f"response_format is the schema {value.name!r}, but {dialect.name} holds no answer to "
            "a schema. Use response_format='json' and say the schema in the instructions."
        )
    schema: Body = {"name": value.name, "schema": dict(value.schema)}
    if value.strict is not None and dialect.supports_strict:
        schema["strict"] = value.strict
    return {"type": "json_schema", "json_schema": schema}


def _add_tools(body: Body, options: ChatOptions, dialect: Dialect, dropped: list[str]) -> None:
    choice = options.tool_choice
    if choice not in (None, "auto", "none") and not dialect.supports_forced_tools:
        raise UnsupportedOptionError(
            f"tool_choice is {choice!r}, but {dialect.name} obeys no forced choice. "
            "Leave it out or ask a model that does."
        )
    # Without tools there is nothing to choose or allow, and OpenAI refuses either field alone.
    has_tools = bool(options.tools or (options.additional_properties or {}).get("tools"))
    if options.tools:
        body["tools"] = [_tool(tool, dialect) for tool in options.tools]
    if choice is not None and (has_tools or choice not in ("auto", "none")):
        body["tool_choice"] = _tool_choice(choice, dialect)
    if options.allow_multiple_tool_calls is not None:
        if has_tools and dialect.supports_parallel_tool_calls:
            body["parallel_tool_calls"] = options.allow_multiple_tool_calls
        else:
            dropped.append("allow_multiple_tool_calls")


def _tool(tool: Tool, dialect: Dialect) -> Body:
    function: Body = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = dict(tool.parameters or {"type": "object", "properties": {}})
    if tool.strict is not None and dialect.supports_strict:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool_choice(choice: str, dialect: Dialect) -> str | Body:
    if choice == "required":
        return dialect.required_tool_choice
    if choice in ("auto", "none"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _add_extras(body: Body, options: ChatOptions, dropped: list[str]) -> None:
    """Let the caller's own fields replace ours; None takes a field out."""
    for name, value in (options.additional_properties or {}).items():
        if name in _RESERVED:
            dropped.append(f"additional_properties.{name}")
        elif value is None:
            body.pop(name, None)
        else:
            body[name] = value
