"""What a caller asks for besides the messages.

Frozen, at every depth; changed by `options.replace(...)`. None means "not sent": the provider's
own default holds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypedDict, Unpack

from chatrouting._frozen import frozen
from chatrouting.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may ask to have called.

    Attributes:
        name: 1 to 64 letters, digits, underscores or hyphens, as every provider takes them.
        description: What it does, for the model.
        parameters: JSON schema of its arguments, an object schema. None: no arguments.
        strict: Ask the provider to hold the arguments to the schema.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", frozen(self.parameters))


@dataclass(frozen=True, slots=True)
class JsonSchemaFormat:
    """Ask for an answer that is JSON of this schema.

    Attributes:
        name: Name of the schema, for providers that want one.
        schema: The JSON schema.
        strict: Ask the provider to hold the answer to the schema.
    """

    name: str
    schema: Mapping[str, Any]
    strict: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", frozen(self.schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """On whose account a request runs. Ids, never secrets."""

    organisation: str | None = None
    tenant: str | None = None
    team: str | None = None
    api_key: str | None = None  #: Id of a key, not the key.


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingHints:
    """What routers, pools and quotas may know of a request. Never sent to a provider.

    Attributes:
        session_id: The application's own id of a conversation, for sticky routing.
        principal: Whose quota the request counts against.
        request_class: Such as "interactive" or "batch".
        region: Where the request comes from.
        timeout: Seconds for the whole request, the consumer's time included; more than 0.
        affinity_key: Requests with the same key prefer the same endpoint.
        tags: Free text pairs for policies of one's own.
    """

    session_id: str | None = None
    principal: Principal | None = None
    request_class: str | None = None
    region: str | None = None
    timeout: float | None = None
    affinity_key: str | None = None
    tags: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        check_timeout("timeout", self.timeout)
        object.__setattr__(self, "tags", frozen(self.tags))


def check_timeout(name: str, value: float | None) -> None:
    """Refuse a timeout that can never be met or never ends.

    Raises:
        ConfigurationError: If `value` is neither None nor a positive, finite number of seconds.
    """
    if value is None:
        return
    # True is a number to Python, and a slip of whoever wrote it.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and value > 0 and math.isfinite(value)):
        raise ConfigurationError(
            f"{name} is {value!r}; expected seconds, more than 0 and finite. "
            "Leave it out for no limit."
        )


def check_count(name: str, value: int) -> None:
    """Refuse what is no whole number from 1 on.

    Raises:
        ConfigurationError: If `value` is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(
            f"{name} is {value!r}; expected a whole number, at least 1. "
            "Leave it out for the default."
        )


class ChatOptionsChanges(TypedDict, total=False):
    """The keyword arguments of `ChatOptions.replace`."""

    model: str | None
    instructions: str | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    max_output_tokens: int | None
    stop_sequences: Sequence[str] | None
    seed: int | None
    frequency_penalty: float | None
    presence_penalty: float | None
    reasoning_effort: str | None
    response_format: Literal["text", "json"] | JsonSchemaFormat | None
    tools: Sequence[Tool] | None
    tool_choice: str | None
    allow_multiple_tool_calls: bool | None
    conversation_id: str | None
    metadata: Mapping[str, str] | None
    additional_properties: Mapping[str, Any] | None
    routing: RoutingHints | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """What a caller asks for.

    Attributes:
        model: Overrides the adapter's own model. To fix a route's model put a
            `ConfigureOptionsChatClient` around its client.
        instructions: System text, put before the system messages of the conversation.
        temperature: Randomness; the range is the provider's.
        top_p: Nucleus sampling, 0..1.
        top_k: Sample from the k likeliest tokens only.
        max_output_tokens: Limit of the answer, reasoning included; at least 1.
        stop_sequences: Texts that end the answer, as a tuple.
        seed: Ask for repeatable sampling.
        frequency_penalty: Discourage repetition by frequency.
        presence_penalty: Discourage repetition of what has been said at all.
        reasoning_effort: Such as "low" or "high"; the words are the provider's.
        response_format: "text", "json", or a schema.
        tools: Functions the model may ask for, as a tuple.
        tool_choice: "auto", "none", "required", or the name of one tool.
        allow_multiple_tool_calls: Several calls in one turn; None leaves it to the provider.
        conversation_id: A conversation that the provider keeps.
        metadata: Text pairs stored with the request by providers that do.
        additional_properties: Further fields of the provider's own request body.
        routing: Hints for routers and quotas; never sent.
    """

    model: str | None = None
    instructions: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_output_tokens: int | None = None
    stop_sequences: Sequence[str] | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    response_format: Literal["text", "json"] | JsonSchemaFormat | None = None
    tools: Sequence[Tool] | None = None
    tool_choice: str | None = None
    allow_multiple_tool_calls: bool | None = None
    conversation_id: str | None = None
    metadata: Mapping[str, str] | None = None
    additional_properties: Mapping[str, Any] | None = None
    routing: RoutingHints | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        if isinstance(self.stop_sequences, str):
            put(self, "stop_sequences", (self.stop_sequences,))
        elif self.stop_sequences is not None:
            put(self, "stop_sequences", tuple(self.stop_sequences))
        if self.tools is not None:
            put(self, "tools", tuple(self.tools))
        if self.metadata is not None:
            put(self, "metadata", frozen(self.metadata))
        if self.additional_properties is not None:
            put(self, "additional_properties", frozen(self.additional_properties))
        if self.max_output_tokens is not None:
            check_count("max_output_tokens", self.max_output_tokens)

    def replace(self, **changes: Unpack[ChatOptionsChanges]) -> Self:
        """Return a copy with some fields changed."""
        return replace(self, **changes)
