"""What a strict type checker refuses, each mistake on a line of its own.

A line that a checker accepts has a comment too many, and is reported for that. Not run; checked
by tests/test_typing.py.
"""

# ruff: noqa: B018, D101  # mistakes stand by themselves, and name themselves

from collections.abc import Callable
from typing import Any

from chatrouting import (
    ChatClient,
    ChatMessage,
    ChatOptions,
    ChatResponse,
    ChatResponseUpdate,
    FailoverChatClient,
    MessagesInput,
    OrderedFailoverChatClient,
    ResponseStream,
    RetryChatClient,
    RoutingAttempt,
    RoutingChatClient,
    RoutingContext,
    RoutingHints,
    Selection,
    Tool,
    ToolCallContent,
    Usage,
)
from chatrouting.errors import RateLimitError
from chatrouting.sync import SyncChatClient


async def requests(client: ChatClient) -> None:
    client.get_response("Hi").text  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    await client.get_streaming_response("Hi")  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    for _ in client.get_streaming_response("Hi"):  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        break
    with client.get_streaming_response("Hi"):  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        await client.aclose()
    await client.get_response(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await client.get_response(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await client.get_response("Hi", {"model": "m"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await client.get_response("Hi", model="m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await client.get_response("Hi", stream=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def options(made: ChatOptions, call: ToolCallContent, tool: Tool) -> None:
    ChatOptions("m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ChatOptions(temprature=0.5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ChatOptions(temperature="hot")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ChatOptions(response_format="xml")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ChatOptions(tools=["f"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    ChatOptions(routing={"timeout": 5})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    RoutingHints(timeout="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Tool()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    made.replace(modle="m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    made.replace(temperature="hot")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    made.model = "m"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    if made.metadata and tool.parameters:
        made.metadata["a"] = "b"  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
        tool.parameters["type"] = "object"  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
    call.arguments["a"] = 1  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


def values() -> None:
    ChatMessage("user")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ChatMessage("user", 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Usage(1, 2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ChatResponseUpdate("a", text="b")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    RateLimitError("busy", retry="later")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def routers(client: ChatClient, router: RoutingChatClient) -> None:
    OrderedFailoverChatClient()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    OrderedFailoverChatClient(client)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    OrderedFailoverChatClient([object()])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    OrderedFailoverChatClient([client], 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    OrderedFailoverChatClient([client], attempt_timeout="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    OrderedFailoverChatClient([client], commit_on="token")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    OrderedFailoverChatClient([client], retries=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    OrderedFailoverChatClient({1: client})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    RetryChatClient([client])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    RoutingChatClient(lambda context: 7)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    RoutingChatClient(lambda: client)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
    RoutingChatClient(lambda context: context.mesages[0])  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
    FailoverChatClient(routes=[client], should_failover=lambda context: True)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
    FailoverChatClient(routes=[client], on_routing_update=lambda context, attempt: None)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
    router.routes["a"] = client  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
    router.name = "b"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    Selection(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    SyncChatClient(client, backend="curio")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class NotAwaited:
    def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        return ChatResponse("")

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        raise NotImplementedError

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        return None

    async def aclose(self) -> None:
        return None


class Incomplete:
    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        return ChatResponse("")


broken: ChatClient = NotAwaited()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
incomplete: ChatClient = Incomplete()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
stack: Callable[[], ChatClient] = NotAwaited  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


class OfFinal(RetryChatClient):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    """Subclasses are documented where they are meant."""


class OfStream(ResponseStream):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    """Its taps and maps are what it offers."""


class WrongAnswer(RoutingChatClient):
    async def select_client(self, context: RoutingContext) -> int:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return 1


class WrongHook(RoutingChatClient):
    async def on_routing_update(self, context: RoutingContext, attempt: RoutingAttempt) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


class NotAsync(RoutingChatClient):
    def on_request_ended(self, context: RoutingContext, exception: BaseException | None) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return None
