"""The plain router: selects one client, passes the request on, and its routes have names."""

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    ChatClient,
    ChatOptions,
    ChatResponse,
    ClientMetadata,
    DelegatingChatClient,
    EmbeddingGenerator,
    FailoverChatClient,
    OrderedFailoverChatClient,
    Role,
    RoutingChatClient,
    RoutingContext,
    Selection,
    as_messages,
)
from chatrouting.client import ClosingClient
from chatrouting.errors import ConfigurationError, NoClientSelectedError, OverloadedError
from chatrouting.routing._routes import RouteTable
from chatrouting.testing import ScriptedChatClient, fails, returns, update

GPT = ClientMetadata("openai", "gpt-x")


async def texts(stream):
    async with stream:
        return [each.text async for each in stream]


def test_a_router_without_a_selector_is_a_type_error():
    """[routing 8]"""
    with pytest.raises(TypeError, match="select_client"):
        RoutingChatClient(None)


def test_a_callable_and_an_override_together_are_a_configuration_error():
    class Both(RoutingChatClient):
        async def select_client(self, context):
            return None

    with pytest.raises(ConfigurationError, match="Both"):
        Both(lambda _: None)


async def test_the_selector_runs_once_and_sees_messages_and_equal_options(answer):
    """[routing 9]"""
    client, seen, options = ScriptedChatClient("hello"), [], ChatOptions(model="request")

    def select(context):
        seen.append((context.messages, context.options))
        return client

    response = await answer(RoutingChatClient(select), "Hi", options)

    assert response.text == "hello"
    assert seen == [(as_messages("Hi"), options)]


async def test_the_response_is_the_selected_clients_with_the_attempts_added():
    """[routing 9] The outermost router returns an equal copy, so that the client's own stays."""
    given = ChatResponse("hello", response_id="r-1")
    router = RoutingChatClient(lambda _: ScriptedChatClient(given))

    response = await router.get_response("Hi")

    assert response == given
    assert [attempt.outcome for attempt in response.attempts] == [AttemptOutcome.COMPLETED]
    assert given.attempts == ()


@pytest.mark.parametrize(
    "select",
    [
        pytest.param(lambda client: lambda _: client, id="client"),
        pytest.param(lambda _: lambda _: "a", id="name"),
        pytest.param(lambda client: lambda _: Selection(client), id="selection of a client"),
        pytest.param(lambda _: lambda _: Selection("a"), id="selection of a name"),
    ],
)
async def test_a_selector_may_return_a_client_a_name_or_a_selection(answer, select):
    client = ScriptedChatClient("hello")
    router = RoutingChatClient(select(client), routes={"a": client})

    response = await answer(router)

    assert response.text == "hello"
    assert response.attempts[0].client is client
    assert response.attempts[0].route == "a"


async def test_a_selector_may_be_async(answer):
    async def select(_):
        await anyio.lowlevel.checkpoint()
        return ScriptedChatClient("hello")

    assert (await answer(RoutingChatClient(select))).text == "hello"


async def test_a_selector_may_be_a_method(answer):
    class Router(RoutingChatClient):
        async def select_client(self, context):
            return self.routes["a"]

    assert (await answer(Router(routes={"a": ScriptedChatClient("hello")}))).text == "hello"


async def test_the_method_is_nobodys_where_a_callable_was_given():
    router = RoutingChatClient(lambda _: ScriptedChatClient())

    with pytest.raises(NotImplementedError):
        await router.select_client(RoutingContext("Hi"))


async def test_the_client_gets_the_options_that_the_selector_assigned(answer):
    """[routing 10]"""
    client, contexts, options = ScriptedChatClient("hello"), [], ChatOptions(model="request")

    def select(context):
        contexts.append(context)
        context.options = context.options.replace(model="selected")
        return client

    await answer(RoutingChatClient(select), "Hi", options)

    [call] = client.calls
    assert call.options is contexts[0].options
    assert call.options.model == "selected"
    assert options.model == "request"


async def test_the_clients_exception_reaches_the_caller_and_nothing_is_selected_again(answer):
    """[routing 12]"""
    error, selections = OverloadedError("busy"), []

    def select(context):
        selections.append(context)
        return ScriptedChatClient(fails(error))

    with pytest.raises(OverloadedError) as raised:
        await answer(RoutingChatClient(select))

    assert raised.value is error
    assert len(selections) == 1


async def test_selecting_none_is_a_runtime_error_that_names_the_selector(answer):
    """[routing 13]"""
    with pytest.raises(NoClientSelectedError, match="select_client") as raised:
        await answer(RoutingChatClient(lambda _: None))

    assert isinstance(raised.value, RuntimeError)


async def test_selecting_something_else_is_a_configuration_error(answer):
    with pytest.raises(ConfigurationError, match="int"):
        await answer(RoutingChatClient(lambda _: 7))


async def test_messages_of_none_are_a_type_error():
    """[routing 14]"""
    router = RoutingChatClient(lambda _: ScriptedChatClient())

    with pytest.raises(TypeError, match="None"):
        await router.get_response(None)


def test_messages_of_none_are_a_type_error_where_the_stream_is_asked_for():
    """[routing 14] At the call, where the mistake is, and not at the first read."""
    router = RoutingChatClient(lambda _: ScriptedChatClient())

    with pytest.raises(TypeError, match="None"):
        router.get_streaming_response(None)


async def test_an_exception_of_the_selector_reaches_the_caller_unchanged(answer):
    """[routing 18]"""
    error = KeyError("policy")

    def select(_):
        raise error

    with pytest.raises(KeyError) as raised:
        await answer(RoutingChatClient(select))

    assert raised.value is error
    assert error.__cause__ is None


async def test_updates_pass_unchanged_and_in_order():
    """[routing 19]"""
    given = [update("Hel", role=Role.ASSISTANT), update(), update("lo"), update(finish_reason="x")]
    router = RoutingChatClient(lambda _: ScriptedChatClient(*given))

    async with router.get_streaming_response("Hi") as stream:
        seen = [each async for each in stream]

    assert [id(each) for each in seen] == [id(each) for each in given]


async def test_nothing_is_selected_before_a_stream_is_read():
    """[routing 6, 19] Each call is a request of its own, and begins with its first read."""
    client, contexts = ScriptedChatClient("hello"), []

    def select(context):
        contexts.append(context)
        return client

    router = RoutingChatClient(select)
    first, second = router.get_streaming_response("1"), router.get_streaming_response("2")
    assert contexts == []

    assert await texts(first) == ["hello"]
    assert await texts(second) == ["hello"]
    assert [context.messages for context in contexts] == [as_messages("1"), as_messages("2")]
    assert all(context.is_streaming for context in contexts)


async def test_a_stream_that_was_read_makes_no_second_context():
    """[routing 6] A stream is read once; reading on gives nothing."""
    contexts = []

    def select(context):
        contexts.append(context)
        return ScriptedChatClient("hello")

    stream = RoutingChatClient(select).get_streaming_response("Hi")

    assert await texts(stream) == ["hello"]
    assert await texts(stream) == []
    assert len(contexts) == 1


async def test_a_whole_response_has_one_context():
    """[routing 6]"""
    contexts = []

    def select(context):
        contexts.append(context)
        return ScriptedChatClient("hello")

    await RoutingChatClient(select).get_response("Hi")

    assert [context.is_streaming for context in contexts] == [False]


async def test_a_selection_replaces_options_and_messages(answer):
    client, options = ScriptedChatClient("hello"), ChatOptions(model="shaped")
    router = RoutingChatClient(lambda _: Selection(client, options, (m for m in as_messages("S"))))

    await answer(router, "Hi", ChatOptions(model="request"))

    [call] = client.calls
    assert call.options is options
    assert call.messages == as_messages("S")


async def test_the_context_keeps_the_selection_and_its_reason(log):
    selection = Selection(ScriptedChatClient(), reason="cheapest")
    await RoutingChatClient(lambda _: selection, on_routing_update=log).get_response("Hi")

    assert log.contexts[0].selection is selection


@pytest.mark.parametrize("service", [FailoverChatClient, RoutingChatClient, ClosingClient, object])
def test_a_router_answers_for_its_class_and_its_bases(service):
    """[routing 16]"""
    router = FailoverChatClient(lambda _: None)

    assert router.get_service(service) is router


def test_a_router_answers_for_the_client_protocol():
    """[routing 16]"""
    router = RoutingChatClient(lambda _: None)

    assert router.get_service(ChatClient) is router
    assert isinstance(router, ChatClient)


@pytest.mark.parametrize("service", [dict, OrderedFailoverChatClient, EmbeddingGenerator])
def test_a_router_has_no_service_of_another_class(service):
    """[routing 16]"""
    assert RoutingChatClient(lambda _: None).get_service(service) is None


def test_a_router_has_no_service_under_a_key():
    """[routing 16]"""
    assert RoutingChatClient(lambda _: None).get_service(RoutingChatClient, "key") is None


def test_a_router_never_asks_a_candidate_for_a_service():
    """[routing 16]"""
    router = RoutingChatClient(lambda _: None, routes=[ScriptedChatClient(metadata=GPT)])

    assert router.get_service(ScriptedChatClient) is None
    assert router.get_service(ClientMetadata) is None


def test_a_service_of_none_is_a_type_error():
    """[routing 17]"""
    with pytest.raises(TypeError, match="service_type"):
        RoutingChatClient(lambda _: None).get_service(None)


def test_a_mapping_names_its_routes():
    first, second = ScriptedChatClient(), ScriptedChatClient(metadata=GPT)
    router = RoutingChatClient(lambda _: None, routes={"fast": first, "good": second})

    assert dict(router.routes) == {"fast": first, "good": second}


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        pytest.param([None, None], ["route-1", "route-2"], id="by position"),
        pytest.param([GPT, None], ["openai/gpt-x", "route-2"], id="by metadata"),
        pytest.param([ClientMetadata("openai", None)], ["openai"], id="without a model"),
        pytest.param([GPT] * 3, ["openai/gpt-x", "openai/gpt-x-2", "openai/gpt-x-3"], id="unique"),
        pytest.param(
            [GPT, ClientMetadata("openai", "gpt-x-2"), GPT],
            ["openai/gpt-x", "openai/gpt-x-2", "openai/gpt-x-3"],
            id="unique where a suffix is taken",
        ),
    ],
)
def test_routes_of_a_sequence_are_named(metadata, names):
    routes = [ScriptedChatClient(metadata=each) for each in metadata]

    assert list(RoutingChatClient(lambda _: None, routes=routes).routes) == names


def test_a_client_given_twice_is_two_routes():
    client = ScriptedChatClient()

    assert dict(RoutingChatClient(lambda _: None, routes=[client, client]).routes) == {
        "route-1": client,
        "route-2": client,
    }


def test_routes_cannot_be_changed_from_outside():
    given = {"a": ScriptedChatClient()}
    router = RoutingChatClient(lambda _: None, routes=given, name="front")
    given.clear()

    assert list(router.routes) == ["a"]
    assert router.name == "front"
    with pytest.raises(TypeError):
        router.routes["b"] = ScriptedChatClient()


@pytest.mark.parametrize("routes", [None, "gpt", ScriptedChatClient()], ids=["None", "text", "one"])
def test_routes_that_are_no_collection_are_a_type_error(routes):
    with pytest.raises(TypeError, match="routes"):
        RoutingChatClient(lambda _: None, routes=routes)


@pytest.mark.parametrize("routes", [[None], ["gpt"], {"": ScriptedChatClient()}, {"a": 1}, {1: 2}])
def test_a_route_that_is_no_client_or_has_no_name_is_a_configuration_error(routes):
    with pytest.raises(ConfigurationError, match="routes"):
        RoutingChatClient(lambda _: None, routes=routes)


@pytest.mark.parametrize(
    ("metadata", "name"), [(GPT, "openai/gpt-x"), (None, "ScriptedChatClient")], ids=["md", "class"]
)
async def test_a_client_that_was_not_given_is_named_by_metadata_else_by_class(
    answer, metadata, name
):
    router = RoutingChatClient(lambda _: ScriptedChatClient(metadata=metadata))

    assert [attempt.route for attempt in (await answer(router)).attempts] == [name]


async def test_a_client_is_told_from_one_that_equals_it(answer):
    """[routing 93] Identity counts, not equality."""

    class Equal(DelegatingChatClient):
        def __eq__(self, other):
            return isinstance(other, Equal)

        __hash__ = None  # unhashable, as careless value types are

    routes = {"a": Equal(ScriptedChatClient("a")), "b": Equal(ScriptedChatClient("b"))}

    response = await answer(RoutingChatClient(lambda _: routes["b"], routes=routes))

    assert response.text == "b"
    assert response.attempts[0].route == "b"


async def test_a_client_that_was_not_given_takes_no_route_of_the_same_name(answer):
    """Its metadata may say the same as a route's; the route is still there to be tried."""
    given = ScriptedChatClient("given", metadata=GPT)
    other = ScriptedChatClient(fails(OverloadedError), metadata=GPT)
    remaining = []

    def select(context):
        remaining.append(context.remaining)
        return given if context.attempts else other

    await answer(FailoverChatClient(select, routes=[given]))

    assert remaining == [("openai/gpt-x",)] * 2


async def test_the_metadata_of_a_wrapped_client_names_the_route():
    routes = [DelegatingChatClient(ScriptedChatClient(metadata=GPT))]

    assert RouteTable(routes).names == ("openai/gpt-x",)


@pytest.mark.parametrize("cls", [RoutingChatClient, FailoverChatClient])
async def test_a_client_nested_in_itself_is_a_configuration_error(answer, cls):
    """[BR-35] It is found at a fixed depth, and no level tries anybody else."""
    selections = []

    def select(context):
        selections.append(context)
        return router

    router = cls(select)

    with pytest.raises(ConfigurationError, match="nested") as raised:
        await answer(router)

    assert len(selections) == 64
    assert len(str(raised.value)) < 300


async def test_a_coroutine_in_place_of_a_stream_is_a_type_error():
    """A client whose method is `async def` by mistake answers a coroutine."""

    class Careless(DelegatingChatClient):
        async def get_streaming_response(self, messages, options=None):
            return self.inner.get_streaming_response(messages, options)

    router = RoutingChatClient(lambda _: Careless(ScriptedChatClient()))

    with pytest.raises(TypeError, match="coroutine"):
        await texts(router.get_streaming_response("Hi"))


async def test_a_client_that_answers_none_is_a_type_error(answer):
    """[routing 41]"""
    with pytest.raises(TypeError, match="None"):
        await answer(RoutingChatClient(lambda _: ScriptedChatClient(returns(None))))
