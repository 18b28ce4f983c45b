"""Options as the request body of Chat Completions. Pure: nothing is sent here.

Every field of `ChatOptions` is mapped, refused, or dropped with a log line. Refused is what would
change the meaning of the answer: a schema or a forced tool that the server does not obey, and a
conversation of the provider, which this API does not have. `additional_properties` have the last
word, see `merge_extras`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from chatrouting.adapters._json import as_object, as_text
from chatrouting.adapters._outbound import (
    ANY_OBJECT,
    Body,
    extras,
    json_format,
    log_dropped,
    merge_extras,
)
from chatrouting.adapters._schema import strict_schema
from chatrouting.adapters.dialects import Dialect
from chatrouting.errors import UnsupportedOptionError
from chatrouting.options import ChatOptions, JsonSchemaFormat, Tool

#: Fields of their own; only the seed is called otherwise by some servers.
_FIELDS: Final = (
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "reasoning_effort",
    "metadata",
    "seed",
)


def request_body(
    options: ChatOptions,
    dialect: Dialect,
    *,
    model: str,
    messages: Sequence[Mapping[str, Any]],
    is_streaming: bool,
) -> Body:
    """Write a request; whole and streamed bodies differ in `stream_options` only.

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
    extra = extras(options)
    dropped: list[str] = []
    body: Body = {"model": model, "messages": messages, **_fields(options, dialect, dropped)}
    _add_tools(body, options, dialect, dropped, has_tools=bool(options.tools or extra.get("tools")))
    if is_streaming and dialect.supports_stream_options:
        body["stream_options"] = {"include_usage": True}
    merge_extras(body, extra)
    if not is_streaming:
        # The same further fields serve both modes, and OpenAI refuses this one in the other.
        body.pop("stream_options", None)
    log_dropped(dialect.name, model, dropped)
    return body


def audio_media_type(body: Mapping[str, Any]) -> str:
    """Say what spoken answers to a request come as."""
    return f"audio/{as_text(as_object(body.get('audio')).get('format')) or 'wav'}"


def _fields(options: ChatOptions, dialect: Dialect, dropped: list[str]) -> Body:
    """Write what is a field of its own; the names of what is left out go into `dropped`."""
    fields: Body = {}
    for name in _FIELDS:
        value = getattr(options, name)
        if value is not None and name in dialect.dropped_options:
            dropped.append(name)
        elif value is not None:
            fields[dialect.seed_field if name == "seed" else name] = value
    if options.max_output_tokens is not None:
        fields[dialect.max_tokens_field] = options.max_output_tokens
    if options.stop_sequences:
        fields["stop"] = list(options.stop_sequences)
    if options.response_format is not None:
        fields["response_format"] = _response_format(options.response_format, dialect)
    return fields


def _response_format(value: str | JsonSchemaFormat, dialect: Dialect) -> Body:
    if not isinstance(value, JsonSchemaFormat):
        return json_format(value)
    if not dialect.supports_json_schema:
        raise UnsupportedOptionError(
            f"response_format is the schema {value.name!r}, but {dialect.name} holds no answer to "
            "a schema. Use response_format='json' and say the schema in the instructions."
        )
    is_strict = value.strict if dialect.supports_strict else None
    schema: Body = {"name": value.name, "schema": dict(value.schema)}
    if is_strict:
        schema["schema"] = strict_schema(value.schema)
    if is_strict is not None:
        schema["strict"] = is_strict
    return {"type": "json_schema", "json_schema": schema}


def _add_tools(
    body: Body, options: ChatOptions, dialect: Dialect, dropped: list[str], *, has_tools: bool
) -> None:
    """Add what concerns tools. Without any OpenAI refuses what is said about choosing them."""
    choice = options.tool_choice
    if choice not in (None, "auto", "none") and not dialect.supports_forced_tools:
        raise UnsupportedOptionError(
            f"tool_choice is {choice!r}, but {dialect.name} obeys no forced choice. "
            "Leave it out or ask a model that does."
        )
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
    is_strict = tool.strict if dialect.supports_strict else None
    parameters = tool.parameters or ANY_OBJECT
    function["parameters"] = strict_schema(parameters) if is_strict else dict(parameters)
    if is_strict is not None:
        function["strict"] = is_strict
    return {"type": "function", "function": function}


def _tool_choice(choice: str, dialect: Dialect) -> str | Body:
    if choice == "required":
        return dialect.required_tool_choice
    if choice in ("auto", "none"):
        return choice
    return {"type": "function", "function": {"name": choice}}
