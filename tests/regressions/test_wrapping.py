"""Reports about wrappers that lost something of the client inside, or let something slip past."""

import inspect
from datetime import UTC, datetime

import pytest

import chatrouting
from chatrouting import (
    ChatClient,
    ChatMessage,
    ChatOptions,
    ChatResponseUpdate,
    ClientMetadata,
    ConfigureOptionsChatClient,
    DelegatingChatClient,
    FailoverChatClient,
    FinishReason,
    JsonSchemaFormat,
    OrderedFailoverChatClient,
    ReasoningContent,
    RetryChatClient,
    RoutingChatClient,
    RoutingHints,
    TextContent,
    Tool,
    ToolCallContent,
    ToolResultContent,
    Usage,
)
from chatrouting.errors import OverloadedError
from chatrouting.testing import ScriptedChatClient, fails

#: Wrappers around one client: the very options and messages go through.
WRAPPERS = {
    "Delegating": DelegatingChatClient,
    "ConfigureOptions": lambda inner: ConfigureOptionsChatClient(inner, lambda options: options),
    "Routing": lambda inner: RoutingChatClient(lambda _: inner, routes=[inner]),
    "Failover": lambda inner: FailoverChatClient(
        lambda context: context.next_route(), routes=[inner]
    ),
    "OrderedFailover": lambda inner: OrderedFailoverChatClient([inner]),
    "Retry": RetryChatClient,
}


def nested(inner):
    """Put five wrappers around a client."""
    for name in ("Retry", "Delegating", "Routing", "ConfigureOptions", "OrderedFailover"):
        inner = WRAPPERS[name](inner)
    return inner


@pytest.fixture(params=["bare", "nested"])
def wrap(request):
    """Return a client as it is, or inside of five wrappers."""
    return nested if request.param == "nested" else lambda inner: inner


def public(thing):
    return {name for name, _ in inspect.getmembers(thing) if not name.startswith("_")}


def test_a_chat_client_is_its_four_methods():
    """[BR-57] Whoever adds one to the protocol meets the tests below."""
    assert public(ChatClient) == {
        "aclose",
        "get_response",
        "get_service",
        "get_streaming_response",
    }


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_forwards_by_name_and_nothing_else(name):
    """[BR-57] A method that the wrapper does not know cannot be reached past it."""

    class Richer(DelegatingChatClient):
        async def count_tokens(self, messages):
            raise AssertionError

        raw = "a handle of the SDK"

    wrapper = WRAPPERS[name](Richer(ScriptedChatClient("ok")))

    assert "__getattr__" not in dir(type(wrapper))
    assert "__getattribute__" not in vars(type(wrapper))
    for attribute in ("count_tokens", "raw"):
        with pytest.raises(AttributeError):
            getattr(wrapper, attribute)


def test_every_wrapper_of_ours_is_among_those_tested():
    """[BR-57]"""
    exported = (getattr(chatrouting, name) for name in chatrouting.__all__)
    ours = {
        each.__name__.removesuffix("ChatClient")
        for each in exported
        if inspect.isclass(each) and public(ChatClient) <= public(each) and each is not ChatClient
    }
    # The semantic router is a RoutingChatClient that needs vectors; see tests/semantic.
    assert ours == {*WRAPPERS, "SemanticRouting"}


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("method", sorted(public(ChatClient) - {"get_service"}))
async def test_every_method_that_reaches_the_network_goes_through_the_wrapper(name, method):
    """[BR-57] Called once on the wrapper, each arrives once inside."""
    calls = []

    class Inside(DelegatingChatClient):
        async def get_response(self, messages, options=None):
            calls.append("get_response")
            return await super().get_response(messages, options)

        def get_streaming_response(self, messages, options=None):
            calls.append("get_streaming_response")
            return super().get_streaming_response(messages, options)

        async def aclose(self):
            calls.append("aclose")
            await super().aclose()

    wrapper = WRAPPERS[name](Inside(ScriptedChatClient("ok")))
    if method == "aclose":
        await wrapper.aclose()
    elif method == "get_response":
        await wrapper.get_response("Hi")
    else:
        async with wrapper.get_streaming_response("Hi") as stream:
            await stream.get_final_response()

    assert calls == [method]


@pytest.mark.parametrize("name", sorted(set(WRAPPERS) - {"Delegating", "ConfigureOptions"}))
async def test_every_answer_of_a_router_leaves_a_record(answer, name):
    """[BR-57] Neither way of asking slips past the routers."""
    client = WRAPPERS[name](ScriptedChatClient("ok"))
    assert len((await answer(client)).attempts) == 1


# The same suite on a bare client and on five nested wrappers.

OPTIONS = ChatOptions(
    model="m",
    instructions="Be brief.",
    temperature=0.1,
    stop_sequences=["END"],
    tools=[Tool("weather", "Tells it.", {"type": "object"}, strict=True)],
    tool_choice="weather",
    allow_multiple_tool_calls=False,
    response_format=JsonSchemaFormat("answer", {"type": "object"}),
    conversation_id="conv",
    metadata={"a": "b"},
    additional_properties={"x": [1]},
    routing=RoutingHints(session_id="s"),
)


async def test_tools_formats_and_metadata_reach_the_client(wrap, answer):
    """[BR-80] The very object: wrapping takes away nothing that options can say."""
    leaf = ScriptedChatClient("ok")
    await answer(wrap(leaf), "Hi", OPTIONS)
    assert leaf.calls[0].options is OPTIONS


async def test_every_kind_of_message_reaches_the_client(wrap, answer):
    """[BR-80]"""
    leaf = ScriptedChatClient("ok")
    messages = (
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "Weather?", author_name="ann"),
        ChatMessage(
            "assistant",
            [ReasoningContent("hm", "sig", "origin"), ToolCallContent("c", "weather", {"a": 1})],
            message_id="m-1",
            additional_properties={"phase": "answer"},
        ),
        ChatMessage("tool", [ToolResultContent("c", "fine")]),
    )
    await answer(wrap(leaf), messages)
    assert leaf.calls[0].messages == messages


async def test_tool_calls_and_reasoning_come_back(wrap, answer):
    """[BR-80]"""
    call = ToolCallContent("c", "weather", {"a": 1}, '{"a": 1}')
    response = await answer(
        wrap(
            ScriptedChatClient(
                ChatResponseUpdate([ReasoningContent("hm", "sig", "origin")]),
                ChatResponseUpdate([call]),
                ChatResponseUpdate(finish_reason=FinishReason.TOOL_CALLS),
            )
        )
    )
    assert response.messages[0].contents == (ReasoningContent("hm", "sig", "origin"), call)
    assert response.finish_reason is FinishReason.TOOL_CALLS


async def test_every_fact_about_an_answer_comes_back(wrap, answer):
    """[BR-80] Also a model other than the one that was asked for: nobody puts it right."""
    created = datetime(2026, 1, 2, tzinfo=UTC)
    facts = {
        "response_id": "r-1",
        "model": "m-2026-01-02",
        "finish_reason": "an unknown word",
        "usage": Usage(input_tokens=3, output_tokens=2),
        "created_at": created,
        "conversation_id": "conv-2",
        "rate_limit_headers": {"x-ratelimit-remaining-requests": "9"},
    }
    update = ChatResponseUpdate([TextContent("ok")], message_id="m-1", **facts)
    response = await answer(wrap(ScriptedChatClient(update)), "Hi", ChatOptions(model="m"))
    assert {name: getattr(response, name) for name in facts} == facts
    assert response.messages[0].message_id == "m-1"


async def test_errors_come_out_as_they_are(wrap, answer):
    """[BR-80] Identity, type, fields and hint."""
    error = OverloadedError("busy", status_code=529, retry_after=3600.0)
    with pytest.raises(OverloadedError) as caught:
        await answer(wrap(ScriptedChatClient(fails(error))))
    assert caught.value is error


async def test_updates_come_out_as_they_are(wrap):
    """[BR-80] Each the very object, in order."""
    leaf = ScriptedChatClient("a", "b", "c")
    async with wrap(leaf).get_streaming_response("Hi") as stream:
        updates = [each async for each in stream]
    assert [id(each) for each in updates] == [id(each) for each in leaf.calls[0].updates]


async def test_taps_and_maps_work(wrap):
    """[BR-80]"""
    seen = []
    stream = wrap(ScriptedChatClient("a", "b")).get_streaming_response("Hi")
    stream.tap(lambda update: seen.append(update.text)).map(
        lambda update: ChatResponseUpdate([TextContent(update.text.upper())])
    )
    async with stream:
        assert (await stream.get_final_response()).text == "AB"
    assert seen == ["a", "b"]


async def test_closing_reaches_the_client(wrap):
    """[BR-80]"""
    leaf = ScriptedChatClient("ok")
    async with wrap(leaf):
        pass
    assert leaf.close_count == 1


async def test_a_lookup_walks_inwards_up_to_the_first_router():
    """[BR-80] A wrapper of one client asks it; a router speaks for itself and for no candidate."""
    metadata = ClientMetadata("provider", "m")
    leaf = ScriptedChatClient("ok", metadata=metadata)
    client = leaf
    for _ in range(5):
        client = ConfigureOptionsChatClient(DelegatingChatClient(client), lambda options: options)
    router = OrderedFailoverChatClient([client])

    assert client.get_service(ClientMetadata) is metadata
    assert client.get_service(ScriptedChatClient) is leaf
    assert router.routes.keys() == {"provider/m"}
    assert DelegatingChatClient(router).get_service(OrderedFailoverChatClient) is router
    assert router.get_service(ClientMetadata) is None
