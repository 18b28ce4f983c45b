"""The contract of a client, and the smallest wrappers around one."""

import pytest

from chatrouting import (
    ChatClient,
    ChatOptions,
    ClientMetadata,
    ConfigureOptionsChatClient,
    DelegatingChatClient,
    EmbeddingGenerator,
    as_messages,
)
from chatrouting.client import ClosingClient
from chatrouting.errors import OverloadedError
from chatrouting.testing import FakeEmbeddingGenerator, ScriptedChatClient, fails

GPT = ClientMetadata("openai", "gpt-x")


@pytest.fixture(params=["whole", "streaming"])
def answer(request):
    """Return `answer(client, messages="Hi", options=None)`, which asks in either mode."""

    async def ask(client, messages="Hi", options=None):
        if request.param == "whole":
            return await client.get_response(messages, options)
        async with client.get_streaming_response(messages, options) as stream:
            return await stream.get_final_response()

    return ask


def hotter(options):
    return options.replace(temperature=1.0)


@pytest.mark.parametrize(
    "wrap", [DelegatingChatClient, lambda c: ConfigureOptionsChatClient(c, hotter)]
)
def test_a_wrapper_is_a_chat_client(wrap):
    assert isinstance(wrap(ScriptedChatClient()), ChatClient)


def test_something_without_the_four_methods_is_no_chat_client():
    assert not isinstance(object(), ChatClient)


def test_an_embedding_generator_is_told_from_a_chat_client():
    assert isinstance(FakeEmbeddingGenerator(), EmbeddingGenerator)
    assert not isinstance(ScriptedChatClient(), EmbeddingGenerator)


async def test_a_delegating_client_hands_on_the_very_messages_and_options(answer):
    client, options = ScriptedChatClient("hello"), ChatOptions(seed=1)

    response = await answer(DelegatingChatClient(client), "Hi", options)

    assert response.text == "hello"
    assert client.calls[0].messages == as_messages("Hi")
    assert client.calls[0].options is options


async def test_a_delegating_client_hands_the_response_object_through():
    class Watching(DelegatingChatClient):
        async def get_response(self, messages, options=None):
            self.seen = await super().get_response(messages, options)
            return self.seen

    client = Watching(ScriptedChatClient("hello"))

    assert await DelegatingChatClient(client).get_response("Hi") is client.seen


def test_a_delegating_client_hands_the_stream_object_through():
    class Watching(DelegatingChatClient):
        def get_streaming_response(self, messages, options=None):
            self.seen = super().get_streaming_response(messages, options)
            return self.seen

    client = Watching(ScriptedChatClient("hello"))

    assert DelegatingChatClient(client).get_streaming_response("Hi") is client.seen


async def test_errors_pass_through_unchanged(answer):
    error = OverloadedError("busy")

    with pytest.raises(OverloadedError) as raised:
        await answer(DelegatingChatClient(ScriptedChatClient(fails(error))))

    assert raised.value is error


async def test_closing_a_wrapper_closes_what_it_wraps():
    client = ScriptedChatClient()

    await DelegatingChatClient(DelegatingChatClient(client)).aclose()

    assert client.close_count == 1


async def test_a_wrapper_closes_at_the_end_of_its_block():
    client = ScriptedChatClient()

    async with DelegatingChatClient(client) as wrapper:
        assert wrapper.inner is client
        assert client.close_count == 0

    assert client.close_count == 1


async def test_a_client_without_aclose_says_that_it_is_missing():
    with pytest.raises(NotImplementedError):
        await ClosingClient().aclose()


def test_a_wrapper_of_none_is_a_type_error():
    with pytest.raises(TypeError, match="inner"):
        DelegatingChatClient(None)


@pytest.mark.parametrize("service", [DelegatingChatClient, ClosingClient, ChatClient])
def test_a_wrapper_answers_for_its_own_classes(service):
    wrapper = DelegatingChatClient(DelegatingChatClient(ScriptedChatClient()))

    assert wrapper.get_service(service) is wrapper


def test_a_wrapper_asks_what_it_wraps_for_everything_else():
    client = ScriptedChatClient(metadata=GPT)
    wrapper = DelegatingChatClient(client)

    assert wrapper.get_service(ScriptedChatClient) is client
    assert wrapper.get_service(ClientMetadata) is GPT


@pytest.mark.parametrize("service", [dict, EmbeddingGenerator, ConfigureOptionsChatClient])
def test_a_service_that_nobody_has_is_none(service):
    assert DelegatingChatClient(ScriptedChatClient()).get_service(service) is None


def test_a_service_under_a_key_is_asked_of_what_is_wrapped():
    class Keyed(DelegatingChatClient):
        def get_service(self, service_type, service_key=None):
            return (service_type, service_key)

    wrapper = DelegatingChatClient(Keyed(ScriptedChatClient()))

    assert wrapper.get_service(DelegatingChatClient, "key") == (DelegatingChatClient, "key")


def test_a_service_of_none_is_a_type_error():
    with pytest.raises(TypeError, match="service_type"):
        DelegatingChatClient(ScriptedChatClient()).get_service(None)


async def test_configured_options_reach_the_client_and_the_callers_stay(answer):
    """[routing 44]"""
    client, options = ScriptedChatClient("hello"), ChatOptions(model="request", instructions="Hm")
    wrapper = ConfigureOptionsChatClient(client, lambda given: given.replace(model="route"))

    await answer(wrapper, "Hi", options)

    assert client.calls[0].options == ChatOptions(model="route", instructions="Hm")
    assert options.model == "request"


async def test_where_the_caller_gives_no_options_fresh_ones_are_configured(answer):
    client = ScriptedChatClient("hello")

    await answer(ConfigureOptionsChatClient(client, hotter))

    assert client.calls[0].options == ChatOptions(temperature=1.0)


async def test_the_very_options_that_were_configured_reach_the_client(answer):
    client, configured = ScriptedChatClient("hello"), ChatOptions(seed=7)

    await answer(ConfigureOptionsChatClient(client, lambda _: configured))

    assert client.calls[0].options is configured


async def test_the_outermost_configuration_comes_first(answer):
    client = ScriptedChatClient("hello")
    inner = ConfigureOptionsChatClient(client, lambda options: options.replace(model="inner"))
    outer = ConfigureOptionsChatClient(inner, lambda options: options.replace(model="o", seed=1))

    await answer(outer)

    assert client.calls[0].options == ChatOptions(model="inner", seed=1)


async def test_an_error_of_the_configuration_reaches_the_caller_and_nothing_is_asked(answer):
    def fail(_):
        raise KeyError("configure")

    client = ScriptedChatClient("never")

    with pytest.raises(KeyError):
        await answer(ConfigureOptionsChatClient(client, fail))

    assert client.calls == []


def test_a_configuration_of_none_is_a_type_error():
    with pytest.raises(TypeError, match="configure"):
        ConfigureOptionsChatClient(ScriptedChatClient(), None)
