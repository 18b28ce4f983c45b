"""Chat clients that wrap chat clients: route, fail over, pool and meter LLM calls.

The names below are loaded when they are first used: importing the package, or a router, loads no
provider SDK. Adapters, the test kit and further rooms are imported from their own modules, such
as `chatrouting.adapters.openai`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatrouting.attempt import AttemptOutcome, RoutingAttempt
    from chatrouting.client import (
        ChatClient,
        ClientMetadata,
        ConfigureOptionsChatClient,
        DelegatingChatClient,
        EmbeddingGenerator,
    )
    from chatrouting.contents import (
        Content,
        DataContent,
        ReasoningContent,
        RefusalContent,
        TextContent,
        ToolCallContent,
        ToolResultContent,
        UriContent,
    )
    from chatrouting.errors import ChatClientError, ChatRoutingError, RefusedLocallyError
    from chatrouting.failure import Failure, FailureKind, FailureScope
    from chatrouting.messages import ChatMessage, MessagesInput, Role, as_messages
    from chatrouting.options import ChatOptions, JsonSchemaFormat, Principal, RoutingHints, Tool
    from chatrouting.responses import ChatResponse, ChatResponseUpdate, FinishReason
    from chatrouting.routing.context import RoutingContext, Selection
    from chatrouting.routing.failover import FailoverChatClient
    from chatrouting.routing.ordered import OrderedFailoverChatClient
    from chatrouting.routing.retry import RetryChatClient
    from chatrouting.routing.router import RoutingChatClient
    from chatrouting.semantic.router import SemanticRoutingChatClient
    from chatrouting.stream import ResponseStream
    from chatrouting.usage import Usage

_HOMES = {
    "AttemptOutcome": "attempt",
    "ChatClient": "client",
    "ChatClientError": "errors",
    "ChatMessage": "messages",
    "ChatOptions": "options",
    "ChatResponse": "responses",
    "ChatResponseUpdate": "responses",
    "ChatRoutingError": "errors",
    "ClientMetadata": "client",
    "ConfigureOptionsChatClient": "client",
    "Content": "contents",
    "DataContent": "contents",
    "DelegatingChatClient": "client",
    "EmbeddingGenerator": "client",
    "Failure": "failure",
    "FailureKind": "failure",
    "FailureScope": "failure",
    "FailoverChatClient": "routing.failover",
    "FinishReason": "responses",
    "JsonSchemaFormat": "options",
    "MessagesInput": "messages",
    "OrderedFailoverChatClient": "routing.ordered",
    "Principal": "options",
    "ReasoningContent": "contents",
    "RefusalContent": "contents",
    "RefusedLocallyError": "errors",
    "ResponseStream": "stream",
    "RetryChatClient": "routing.retry",
    "Role": "messages",
    "RoutingAttempt": "attempt",
    "RoutingChatClient": "routing.router",
    "RoutingContext": "routing.context",
    "RoutingHints": "options",
    "Selection": "routing.context",
    "SemanticRoutingChatClient": "semantic.router",
    "TextContent": "contents",
    "Tool": "options",
    "ToolCallContent": "contents",
    "ToolResultContent": "contents",
    "UriContent": "contents",
    "Usage": "usage",
    "as_messages": "messages",
}

__all__ = [
    "AttemptOutcome",
    "ChatClient",
    "ChatClientError",
    "ChatMessage",
    "ChatOptions",
    "ChatResponse",
    "ChatResponseUpdate",
    "ChatRoutingError",
    "ClientMetadata",
    "ConfigureOptionsChatClient",
    "Content",
    "DataContent",
    "DelegatingChatClient",
    "EmbeddingGenerator",
    "FailoverChatClient",
    "Failure",
    "FailureKind",
    "FailureScope",
    "FinishReason",
    "JsonSchemaFormat",
    "MessagesInput",
    "OrderedFailoverChatClient",
    "Principal",
    "ReasoningContent",
    "RefusalContent",
    "RefusedLocallyError",
    "ResponseStream",
    "RetryChatClient",
    "Role",
    "RoutingAttempt",
    "RoutingChatClient",
    "RoutingContext",
    "RoutingHints",
    "Selection",
    "SemanticRoutingChatClient",
    "TextContent",
    "Tool",
    "ToolCallContent",
    "ToolResultContent",
    "UriContent",
    "Usage",
    "as_messages",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'chatrouting' has no attribute {name!r}")
    value: object = getattr(import_module(f"chatrouting.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
