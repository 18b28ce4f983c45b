"""Options as the request body of the Responses API. Pure: nothing is sent here.

Every field of `ChatOptions` is mapped, refused or dropped with a log line. Without a conversation
id the request is stateless: nothing is stored, and reasoning comes back encrypted so that the next
request can carry it. `additional_properties` have the last word, see `merge_extras`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from chatrouting.adapters._outbound import (
    ANY_OBJECT,
    Body,
    extras,
    json_format,
    log_dropped,
    merge_extras,
    nothing_to_send,
)
from chatrouting.adapters._schema import strict_schema
from chatrouting.errors import UnsupportedOptionError
from chatrouting.options import ChatOptions, JsonSchemaFormat, Tool

_ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"

_SAME_NAME: Final = ("instructions", "temperature", "top_p", "max_output_tokens", "metadata")

_DROPPED: Final = ("top_k", "seed", "frequency_penalty", "presence_penalty")

#: Without one of these there is nothing to answer, unless the input says something.
_HELD_BY_PROVIDER: Final = ("previous_response_id", "conversation", "prompt")


def request_body(
    options: ChatOptions, *, provider: str, model: str, items: Sequence[Mapping[str, Any]]
) -> Body:
    """Write a request, whole and streamed alike.

    `{"store": True}` among the additional properties stores a response that has no conversation
    yet, and `{"store": None}` says nothing to a server that does not know the field; encrypted
    reasoning is asked for only where `store` stays False.

    Args:
        options: What the caller asks for.
        provider: Who is asked, for the log.
        model: Model or deployment.
        items: The conversation, see `input_items`.

    Raises:
        UnsupportedOptionError: For an option that the API lacks and that changes the answer.
        BadRequestError: If nothing is left to be sent.
        ConfigurationError: If `additional_properties` hold a field that the client fills in.
    """
    extra = extras(options)
    dropped = [name for name in _DROPPED if getattr(options, name) is not None]
    body: Body = {"model": model, "input": list(items), **_fields(options)}
    _add_tools(body, options, dropped, has_tools=bool(options.tools or extra.get("tools")))
    body |= _state(options, extra)
    merge_extras(body, extra)
    log_dropped(provider, model, dropped)
    if not items and not any(body.get(name) for name in _HELD_BY_PROVIDER):
        raise nothing_to_send()
    return body


def is_continued(options: ChatOptions) -> bool:
    """Say whether the provider holds what came before the messages."""
    extra = options.additional_properties or {}
    return options.conversation_id is not None or any(map(extra.get, _HELD_BY_PROVIDER))


def is_stored(body: Mapping[str, Any]) -> bool:
    """Say whether the provider keeps the answer to a request, as far as the request decides."""
    return body.get("store") is not False


def _fields(options: ChatOptions) -> Body:
    if options.stop_sequences:
        raise UnsupportedOptionError(
            f"stop_sequences has {len(options.stop_sequences)} entries; the Responses API has no "
            "such option. Leave it out, or use a client of the Chat Completions API."
        )
    body: Body = {}
    for name in _SAME_NAME:
        value = getattr(options, name)
        if value is not None:
            body[name] = value
    if options.reasoning_effort is not None:
        body["reasoning"] = {"effort": options.reasoning_effort}
    if options.response_format is not None:
        body["text"] = {"format": _format(options.response_format)}
    return body


def _format(value: str | JsonSchemaFormat) -> Body:
    if isinstance(value, JsonSchemaFormat):
        schema = strict_schema(value.schema) if value.strict else dict(value.schema)
        body: Body = {"type": "json_schema", "name": value.name, "schema": schema}
        if value.strict is not None:
            body["strict"] = value.strict
        return body
    return json_format(value)


def _add_tools(body: Body, options: ChatOptions, dropped: list[str], *, has_tools: bool) -> None:
    """Add what concerns tools. Without any there is nothing to choose or to allow."""
    if options.tools:
        body["tools"] = [_tool(tool) for tool in options.tools]
    choice = options.tool_choice
    if choice == "required" or (choice in ("auto", "none") and has_tools):
        body["tool_choice"] = choice
    elif choice not in (None, "auto", "none"):
        body["tool_choice"] = {"type": "function", "name": choice}
    if options.allow_multiple_tool_calls is not None:
        if has_tools:
            body["parallel_tool_calls"] = options.allow_multiple_tool_calls
        else:
            dropped.append("allow_multiple_tool_calls")


def _tool(tool: Tool) -> Body:
    parameters = tool.parameters or ANY_OBJECT
    body: Body = {
        "type": "function",
        "name": tool.name,
        "parameters": strict_schema(parameters) if tool.strict else dict(parameters),
    }
    if tool.description is not None:
        body["description"] = tool.description
    if tool.strict is not None:
        body["strict"] = tool.strict
    return body


def _state(options: ChatOptions, extra: Mapping[str, Any]) -> Body:
    conversation = options.conversation_id
    store = extra.get("store", False if conversation is None else None)
    body: Body = {} if store is None else {"store": store}
    if store is False:
        body["include"] = [_ENCRYPTED_REASONING]
    if conversation is not None:
        # A response continues a response; anything else names a conversation object.
        is_response = conversation.startswith("resp_")
        body["previous_response_id" if is_response else "conversation"] = conversation
    return body
