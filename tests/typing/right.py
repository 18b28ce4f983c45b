"""What users of the library write, as strict type checkers see it: nothing to complain of.

Not run; checked by tests/test_typing.py.
"""

# ruff: noqa: D101, FBT001  # users' classes, and the hook's three arguments

from collections.abc import AsyncIterator, Mapping
from typing import Any, assert_type

from chatrouting import (
    AttemptOutcome,
    ChatClient,
    ChatMessage,
    ChatOptions,
    ChatResponse,
    ChatResponseUpdate,
    ConfigureOptionsChatClient,
    DelegatingChatClient,
    FailoverChatClient,
    FinishReason,
    JsonSchemaFormat,
    MessagesInput,
    OrderedFailoverChatClient,
    Principal,
    ResponseStream,
    RetryChatClient,
    Role,
    RoutingAttempt,
    RoutingChatClient,
    RoutingContext,
    RoutingHints,
    Selection,
    TextContent,
    Tool,
    ToolCallContent,
    Usage,
)
from chatrouting.errors import ChatClientError, RateLimitError
from chatrouting.policies.classify import failover_by_kind
from chatrouting.pool import (
    Diagnostics,
    EndpointPool,
    PooledChatClient,
    PooledEmbeddingGenerator,
    PooledImageClient,
    discover,
)
from chatrouting.sync import SyncChatClient
from chatrouting.testing import ScriptedChatClient, check_chat_client, fails, update


async def ask(client: ChatClient) -> str:
    response = await client.get_response("Hi")
    assert_type(response, ChatResponse)
    assert_type(response.finish_reason, FinishReason | str | None)
    assert_type(response.usage, Usage | None)
    for message in response.messages:
        for content in message.contents:
            match content:
                case TextContent(text):
                    assert_type(text, str)
                case ToolCallContent(name=name, arguments=arguments):
                    assert_type(name, str)
                    assert_type(arguments, Mapping[str, Any])
                case _:
                    continue
    return response.text


async def read(client: ChatClient) -> None:
    async with client.get_streaming_response([{"role": "user", "content": "Hi"}]) as stream:
        assert_type(stream, ResponseStream)
        async for each in stream:
            assert_type(each, ChatResponseUpdate)
        assert_type(await stream.get_final_response(), ChatResponse)
        assert_type(stream.attempts, tuple[RoutingAttempt, ...])


def forms_of_messages() -> list[MessagesInput]:
    message = ChatMessage(Role.USER, "Hi")
    mapping = {"role": "user", "content": "Hi"}
    return [
        "Hi",
        message,
        mapping,
        [message],
        (message, "Hi", mapping),
        [message, ChatMessage("assistant", ["Hello", TextContent("!")])],
        (each for each in [message]),
    ]


def options() -> ChatOptions:
    hints = RoutingHints(principal=Principal(tenant="acme"), timeout=5, tags={"purpose": "test"})
    made = ChatOptions(
        model="m",
        temperature=0.5,
        tools=(Tool("f", parameters={"type": "object"}),),
        response_format=JsonSchemaFormat("answer", {"type": "object"}),
        stop_sequences=("END",),
        metadata={"a": "b"},
        routing=hints,
    )
    changed = made.replace(model=None, stop_sequences=["END"], tools=[Tool("g")])
    assert_type(changed, ChatOptions)
    return changed.replace(response_format="json")


def wrap(first: ChatClient, second: ChatClient) -> ChatClient:
    routes = {"first": RetryChatClient(first), "second": second}
    failover = OrderedFailoverChatClient(
        routes,
        maximum_attempts_per_request=3,
        should_failover=failover_by_kind,
        first_output_timeout=5,
        on_routing_update=listen,
        name="main",
    )
    configured = ConfigureOptionsChatClient(failover, lambda given: given.replace(model="m"))
    assert_type(failover.routes, Mapping[str, ChatClient])
    by_name = RoutingChatClient(lambda context: context.remaining[0], routes={"a": configured})
    chosen = RoutingChatClient(choose, routes=[by_name, second], on_routing_update=listen_async)
    return DelegatingChatClient(chosen)


def choose(context: RoutingContext) -> Selection | None:
    assert_type(context.options, ChatOptions)
    if context.previous_attempt is not None:
        return None
    return Selection("route-1", options=context.options.replace(seed=1), reason="the first")


def listen(context: RoutingContext, attempt: RoutingAttempt, is_terminal: bool) -> None:
    if attempt.outcome is AttemptOutcome.FAILED:
        context.state["failures"] = attempt.number


async def listen_async(context: RoutingContext, attempt: RoutingAttempt, is_terminal: bool) -> None:
    assert_type(attempt.exception, BaseException | None)


class Fastest(FailoverChatClient):
    def __init__(self, routes: Mapping[str, ChatClient]) -> None:
        super().__init__(routes=routes)
        self.latency: dict[str, float] = {}

    async def select_client(self, context: RoutingContext) -> str | None:
        return min(context.remaining, key=lambda name: self.latency.get(name, 0.0), default=None)

    async def on_routing_update(
        self, context: RoutingContext, attempt: RoutingAttempt, is_terminal: bool
    ) -> None:
        if attempt.response_completed:
            self.latency[attempt.route] = attempt.duration


class Echo:
    """A client from scratch: the protocol is structural."""

    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        return ChatResponse("echo")

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            yield ChatResponseUpdate("echo")

        return ResponseStream(updates())

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        return None

    async def aclose(self) -> None:
        return None


class Shouting(DelegatingChatClient):
    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        return super().get_streaming_response(messages, options).map(shout)


def shout(each: ChatResponseUpdate) -> ChatResponseUpdate:
    return ChatResponseUpdate(each.text.upper())


async def everything() -> None:
    echo: ChatClient = Echo()
    async with Fastest({"echo": echo, "loud": Shouting(Echo())}) as router:
        assert_type(router, Fastest)
        try:
            await ask(wrap(router, echo))
        except RateLimitError as error:
            assert_type(error.retry_after, float | None)
        except ChatClientError as error:
            assert_type(error.status_code, int | None)
    await check_chat_client(Echo)
    await read(ScriptedChatClient(update("Hel"), "lo", fails(RateLimitError)))


def without_awaiting(client: ChatClient) -> str:
    with SyncChatClient(client, backend="trio") as sync:
        for each in sync.get_streaming_response("Hi", ChatOptions(seed=1)):
            assert_type(each, ChatResponseUpdate)
        return sync.get_response("Hi").text


async def token() -> str:
    return "token"


async def pools() -> None:
    async with EndpointPool.from_env("GPT_4_O", env={"A": None}, credential=token) as pool:
        await ask(PooledChatClient(pool))
    named: EndpointPool[ChatClient] = EndpointPool.from_env("GPT_4_O")
    assert_type(named.diagnostics, Diagnostics)
    PooledEmbeddingGenerator(EndpointPool.from_env("3_SMALL", kind="embedding"))
    PooledImageClient(EndpointPool.from_env(kind="image"))
    scripted = EndpointPool({"a": ScriptedChatClient("x"), "b": ScriptedChatClient("y")})
    await ask(PooledChatClient(scripted))
    made = EndpointPool(
        discover("GPT_4_O").endpoints, client_factory=lambda endpoint: ScriptedChatClient("x")
    )
    await ask(PooledChatClient(made))
