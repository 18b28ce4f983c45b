"""Options and messages as a request of Anthropic's Messages API. Pure: nothing is sent here.

Every field of `ChatOptions` is mapped, refused or dropped with a log line:

- Sampling values go to the models that are known to take them, under the API version that still
  knows them, and never beside thinking. Seed and penalties do not exist.
- `reasoning_effort` becomes `output_config.effort` with adaptive thinking, a thinking budget for
  models before that, and "none" turns thinking off.
- A JSON schema becomes `output_config.format`; plain JSON, for which there is no field, an
  instruction at the end of the system text.
- Tool calls in the conversation need tools in the request: where the caller gives none, their
  names are declared and may not be called.
- `additional_properties` have the last word, see `merge_extras`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from chatrouting.adapters._anthropic.content import Block, text_block
from chatrouting.adapters._anthropic.conversation import Conversation, conversation
from chatrouting.adapters._anthropic.models import Target
from chatrouting.adapters._anthropic.schema import adapt_schema
from chatrouting.adapters._outbound import ANY_OBJECT, Body, extras, log_dropped, merge_extras
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, JsonSchemaFormat, Tool

#: The API wants a limit with every request. Thinking counts towards it and gets room of its own.
DEFAULT_MAX_TOKENS: Final = 4096

JSON_INSTRUCTION: Final = "Answer with one JSON object and nothing else."

#: The last API version that knows sampling values, by the provider's name where it differs.
_SAMPLING_VERSION: Final = "2023-06-01"
_SAMPLING_VERSIONS: Final[Mapping[str, str]] = {
    "bedrock": "bedrock-2023-05-31",
    "vertex": "vertex-2023-10-16",
}
_SAMPLING: Final = ("temperature", "top_p", "top_k")
_NOT_OFFERED: Final = ("seed", "frequency_penalty", "presence_penalty")

_EFFORTS: Final[Mapping[str, str]] = {"minimal": "low"}
#: Room for thought, in tokens; for older models the budget that they are told.
_BUDGETS: Final[Mapping[str, int]] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 24576,
    "max": 31999,
}
_LEAST_BUDGET: Final = 1024
_CHOICES: Final[Mapping[str, str]] = {"auto": "auto", "none": "none", "required": "any"}


@dataclass(slots=True)
class Request:
    """What is sent. Never changed; to freeze it costs each request.

    Attributes:
        body: The JSON body, without `stream`.
        headers: Further headers.
        trimmed: White space taken from the end of a final assistant text.
    """

    body: Body
    headers: dict[str, str]
    trimmed: str


def request(
    messages: Sequence[ChatMessage],
    options: ChatOptions,
    target: Target,
    *,
    limit: int | None = None,
) -> Request:
    """Write a request, whole and streamed alike.

    Args:
        messages: The conversation.
        options: What the caller asks for.
        target: Who is asked.
        limit: Sent as `max_tokens` where the options set no limit; None for the default, and room
            for thinking where it is asked for.

    Raises:
        UnsupportedOptionError: For an option or content that the API or the model lacks and that
            changes the answer.
        ConfigurationError: If `additional_properties` hold a field that the client fills in.
        BadRequestError: If nothing is left to be sent.
    """
    extra = extras(options)
    _refuse(options, target)
    said = conversation(messages, target)
    writer = _Writer(options, extra, target)
    limit = options.max_output_tokens or limit
    body: Body = {
        "model": target.model,
        "max_tokens": limit or DEFAULT_MAX_TOKENS,
        "messages": said.messages,
    }
    body |= writer.system(said.system)
    body |= writer.tools(said)
    body |= writer.output()
    body |= writer.thinking(body, limit)
    body |= writer.metadata()
    if options.stop_sequences:
        body["stop_sequences"] = list(options.stop_sequences)
    merge_extras(body, extra)
    if "thinking" in body:
        writer.mend_thinking(body, said)
    headers = writer.sampling(body)
    log_dropped(target.provider, target.model, writer.dropped)
    return Request(body, headers, said.trimmed)


def _refuse(options: ChatOptions, target: Target) -> None:
    if options.conversation_id is not None:
        raise target.unsupported(
            "conversation_id", "the API keeps no conversations: send the whole history."
        )
    if any(not text.strip() for text in options.stop_sequences or ()):
        raise target.unsupported("a blank stop sequence", "use one with visible characters.")


class _Writer:
    """Writes the fields of one body.

    Attributes:
        dropped: Names of the options that the answer does without.
    """

    def __init__(self, options: ChatOptions, extra: Mapping[str, Any], target: Target) -> None:
        self._options = options
        self._extra = extra
        self._target = target
        self.dropped = [name for name in _NOT_OFFERED if getattr(options, name) is not None]

    def system(self, blocks: list[Block]) -> Body:
        """Put the instructions before the system messages, and what stands for JSON after them."""
        first = text_block(self._options.instructions or "")
        found = [*blocks] if first is None else [first, *blocks]
        if self._options.response_format == "json":
            found.append({"type": "text", "text": JSON_INSTRUCTION})
        return {"system": found} if found else {}

    def output(self) -> Body:
        """Write the format and the effort of the answer."""
        config: Body = {}
        wanted = self._options.response_format
        if isinstance(wanted, JsonSchemaFormat):
            if self._target.refuses_schema:
                raise self._target.unsupported("a JSON schema", "use a newer model.")
            config["format"] = {"type": "json_schema", "schema": adapt_schema(wanted.schema)}
        elif wanted not in (None, "text", "json"):
            raise self._target.unsupported(
                f"response_format {wanted!r}", "use 'text', 'json' or a JsonSchemaFormat."
            )
        effort = self._options.reasoning_effort
        if effort not in (None, "none") and self._target.takes_effort:
            config["effort"] = _EFFORTS.get(effort, effort)
        return {"output_config": config} if config else {}

    def thinking(self, body: Body, limit: int | None) -> Body:
        """Write how to think, and make room for it where the caller has set no limit."""
        effort = self._options.reasoning_effort
        if effort is None:
            return {}
        if self._target.thinking == "none":
            if effort != "none":
                self.dropped.append("reasoning_effort")
            return {}
        if effort == "none":
            return {"thinking": {"type": "disabled"}}
        if body.get("tool_choice", {}).get("type") in ("any", "tool"):
            # The API refuses thinking beside a forced tool; which tool is called matters more.
            self.dropped.append("thinking")
            return {}
        room = _BUDGETS.get(effort, 0)
        max_tokens = limit or DEFAULT_MAX_TOKENS + room
        if self._target.thinking == "adaptive":
            return {"max_tokens": max_tokens, "thinking": {"type": "adaptive"}}
        if not room:
            raise self._target.unsupported(
                f"reasoning_effort {effort!r}", f"use one of {', '.join(_BUDGETS)} or none."
            )
        thinking = {"type": "enabled", "budget_tokens": min(room, max_tokens - 1)}
        return {"max_tokens": max_tokens, "thinking": thinking}

    def mend_thinking(self, body: Body, said: Conversation) -> None:
        """Keep a thinking budget from a request that the API would refuse it in.

        Raises:
            UnsupportedOptionError: If the budget does not fit into `max_tokens`.
        """
        thinking = _object(body.get("thinking"))
        if thinking.get("type") != "enabled":
            return
        if said.thinking_is_cut:
            body["thinking"] = {"type": "disabled"}
            self.dropped.append("thinking")
            return
        budget = thinking.get("budget_tokens")
        if isinstance(budget, int) and not _LEAST_BUDGET <= budget < body["max_tokens"]:
            raise self._target.unsupported(
                f"a thinking budget of {budget} tokens in max_tokens {body['max_tokens']}",
                f"leave room for {_LEAST_BUDGET} tokens of thought and an answer.",
            )

    def sampling(self, body: Body) -> dict[str, str]:
        """Write the sampling values into the body; return the headers that they need."""
        given = {
            name: value
            for name in _SAMPLING
            if (value := getattr(self._options, name)) is not None and name not in self._extra
        }
        if given:
            body |= self._taken(given, body)
        if body.keys().isdisjoint(_SAMPLING):
            return {}
        version = _SAMPLING_VERSIONS.get(self._target.provider)
        if version is None:
            return {"anthropic-version": _SAMPLING_VERSION}
        body.setdefault("anthropic_version", version)
        return {}

    def _taken(self, given: dict[str, Any], body: Body) -> dict[str, Any]:
        """Leave out the sampling values that the model does not take."""
        is_thinking = _object(body.get("thinking")).get("type", "disabled") != "disabled"
        if not self._target.takes_sampling or is_thinking:
            self.dropped.extend(given)
            return {}
        if self._target.takes_one_sampling_value and "temperature" in given and "top_p" in given:
            del given["top_p"]
            self.dropped.append("top_p")
        if given.get("temperature", 0) > 1:
            given["temperature"] = 1
            self.dropped.append("temperature above 1")
        return given

    def tools(self, said: Conversation) -> Body:
        """Write the tools and which of them may be called."""
        options = self._options
        if not options.tools and not self._extra.get("tools"):
            return self._no_tools(said)
        tools = [self._tool(tool) for tool in options.tools or ()]
        body: Body = {"tools": tools} if tools else {}
        choice: Body = {}
        if options.tool_choice is not None:
            kind = _CHOICES.get(options.tool_choice)
            choice = {"type": kind} if kind else {"type": "tool", "name": options.tool_choice}
        if options.allow_multiple_tool_calls is False and choice.get("type") != "none":
            choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
        return body | {"tool_choice": choice} if choice else body

    def _no_tools(self, said: Conversation) -> Body:
        options = self._options
        if options.tool_choice not in (None, "auto", "none"):
            raise self._target.unsupported(
                f"tool_choice {options.tool_choice!r} without tools", "give the tools."
            )
        if options.allow_multiple_tool_calls is not None:
            self.dropped.append("allow_multiple_tool_calls")
        if not said.has_calls:
            return {}
        names = dict.fromkeys(
            block["name"]
            for message in said.messages
            for block in message["content"]
            if block["type"] == "tool_use"
        )
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in names]
        return {"tools": tools, "tool_choice": {"type": "none"}}

    def _tool(self, tool: Tool) -> Body:
        schema: Body = {**ANY_OBJECT, **(tool.parameters or {})}
        if schema["type"] != "object":
            raise self._target.unsupported(
                f"tool {tool.name!r} with parameters of type {schema['type']!r}",
                "make them an object.",
            )
        body: Body = {
            "name": tool.name,
            "input_schema": adapt_schema(schema) if tool.strict else schema,
        }
        if tool.description:
            body["description"] = tool.description
        if tool.strict is not None:
            body["strict"] = tool.strict
        return body

    def metadata(self) -> Body:
        """Write the only key of metadata that the API has."""
        given = self._options.metadata or {}
        self.dropped.extend(f"metadata.{name}" for name in given if name != "user_id")
        return {"metadata": {"user_id": given["user_id"]}} if "user_id" in given else {}


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
