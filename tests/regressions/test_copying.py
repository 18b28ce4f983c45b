"""What `copy`, `deepcopy` and `pickle` make of every public class.

[BR-75] Values are copied. A client is shared, so that a program may copy what holds one, and says
why it does not pickle. What belongs to one running request is refused.
"""

import copy
import pickle
from datetime import UTC, datetime

import pytest

import chatrouting
from chatrouting import (
    AttemptOutcome,
    ChatClientError,
    ChatMessage,
    ChatOptions,
    ChatResponse,
    ChatResponseUpdate,
    ChatRoutingError,
    ClientMetadata,
    ConfigureOptionsChatClient,
    DataContent,
    DelegatingChatClient,
    FailoverChatClient,
    Failure,
    FailureKind,
    FailureScope,
    FinishReason,
    JsonSchemaFormat,
    OrderedFailoverChatClient,
    Principal,
    ReasoningContent,
    RefusalContent,
    RefusedLocallyError,
    RetryChatClient,
    Role,
    RoutingAttempt,
    RoutingChatClient,
    RoutingContext,
    RoutingHints,
    Selection,
    SemanticRoutingChatClient,
    TextContent,
    Tool,
    ToolCallContent,
    ToolResultContent,
    UriContent,
    Usage,
)
from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.adapters.embeddings import OpenAIEmbeddingGenerator
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.adapters.openai_responses import OpenAIResponsesChatClient
from chatrouting.errors import OverloadedError
from chatrouting.sync import SyncChatClient
from chatrouting.testing import FakeEmbeddingGenerator, ScriptedChatClient, fails

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}}
CALL = ToolCallContent("c", "f", {"a": [1, {"b": 2}]}, '{"a": [1, {"b": 2}]}')
IMAGE = DataContent(b"png", "image/png", "a.png")

VALUES = [
    AttemptOutcome.ABANDONED,
    FailureKind.OVERLOADED,
    FailureScope.PROVIDER,
    FinishReason.STOP,
    Role.USER,
    Failure.of(FailureKind.RATE_LIMITED),
    Usage(input_tokens=1),
    TextContent("a"),
    ReasoningContent("a", "signature", "anthropic"),
    RefusalContent("no"),
    IMAGE,
    UriContent("https://example.com", "image/*"),
    CALL,
    ToolResultContent("c", (TextContent("text"), IMAGE)),
    ChatMessage("assistant", ["text", CALL], additional_properties={"a": [1]}),
    Tool("f", "does", SCHEMA, strict=True),
    JsonSchemaFormat("a", SCHEMA),
    Principal(tenant="acme"),
    RoutingHints(principal=Principal(tenant="acme"), timeout=5, tags={"a": "b"}),
    ChatOptions(tools=(Tool("f", parameters=SCHEMA),), metadata={"a": "b"}),
    ChatResponse("text", usage=Usage(output_tokens=1), rate_limit_headers={"retry-after": "1"}),
    ChatResponseUpdate("text", finish_reason="stop", created_at=datetime(2026, 1, 1, tzinfo=UTC)),
    ClientMetadata("openai", "gpt-x"),
    Selection("route", options=ChatOptions(model="m"), reason="cheap"),
    RoutingAttempt(usage=Usage(input_tokens=1), route="a"),
]

LEAF = ScriptedChatClient("hello")

CLIENTS = [
    DelegatingChatClient(LEAF),
    ConfigureOptionsChatClient(LEAF, lambda options: options),
    RoutingChatClient(lambda _: LEAF),
    FailoverChatClient(lambda _: LEAF),
    OrderedFailoverChatClient([LEAF]),
    RetryChatClient(LEAF),
    SemanticRoutingChatClient(FakeEmbeddingGenerator(), [(LEAF, ["hello"])], LEAF),
    SyncChatClient(LEAF),
    OpenAIChatClient(model="m"),
    OpenAIResponsesChatClient(model="m"),
    AnthropicChatClient(model="m"),
    OpenAIEmbeddingGenerator(model="m"),
    FakeEmbeddingGenerator(),
    LEAF,
]

FOR_ONE_REQUEST = [
    LEAF.get_streaming_response("hi"),
    RoutingContext("hi", routes=[LEAF]),
    SyncChatClient(LEAF).get_streaming_response("hi"),
]

ERRORS = [
    ChatRoutingError("a"),
    ChatClientError("a", status_code=500, retry_after=1.0),
    RefusedLocallyError("a", fallback_allowed=False),
]


def kind(value):
    return type(value).__name__


def pickled(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301  # our own bytes


COPIES = pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])


def test_every_public_class_has_its_place_here():
    public = {getattr(chatrouting, name) for name in chatrouting.__all__ if name != "Content"}
    classes = {each for each in public if isinstance(each, type)}
    protocols = {each for each in classes if getattr(each, "_is_protocol", False)}
    seen = {type(each) for each in [*VALUES, *CLIENTS, *FOR_ONE_REQUEST, *ERRORS]}

    assert {each.__name__ for each in classes - protocols - seen} == set()


@pytest.mark.parametrize("value", VALUES, ids=kind)
@COPIES
def test_a_value_is_copied(value, copied):
    again = copied(value)

    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize("client", CLIENTS, ids=kind)
def test_a_copy_of_a_client_is_the_client(client):
    """Whatever holds one can be copied, and its connections are not doubled."""
    assert copy.copy(client) is client
    assert copy.deepcopy({"agent": [client]})["agent"][0] is client


@pytest.mark.parametrize("client", CLIENTS, ids=kind)
def test_a_client_says_why_it_does_not_pickle(client):
    with pytest.raises(TypeError, match=f"{kind(client)} holds connections and running state"):
        pickle.dumps(client)


@pytest.mark.parametrize("value", FOR_ONE_REQUEST, ids=kind)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_belongs_to_one_request_is_refused(value, copied):
    with pytest.raises(TypeError, match=f"{kind(value)} belongs to one running request"):
        copied(value)


@pytest.mark.parametrize("error", ERRORS, ids=kind)
@COPIES
def test_an_error_is_copied_with_its_fields(error, copied):
    again = copied(error)

    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_options_and_messages_are_copied_without_touching_a_client():
    """What a deep copy of a request costs, and holds, is the request."""
    request = ([ChatMessage("user", "Hi")], ChatOptions(tools=[Tool("f", parameters=SCHEMA)]))

    again = copy.deepcopy(request)

    assert again == request
    assert again[1] is not request[1]


async def test_an_answer_of_a_router_is_copied_with_its_records():
    """An application keeps answers: in a cache, or in another process. Clients stay here."""
    failing = ScriptedChatClient(fails(OverloadedError))
    response = await OrderedFailoverChatClient([failing, LEAF]).get_response("hi")

    deep = copy.deepcopy(response)
    restored = pickled(response)

    assert deep == restored == response
    assert [attempt.client for attempt in deep.attempts] == [failing, LEAF]
    assert [attempt.client for attempt in restored.attempts] == [None, None]
    assert [attempt.outcome for attempt in restored.attempts] == ["failed", "completed"]
    assert isinstance(restored.attempts[0].exception, OverloadedError)
    assert restored.attempts[0].failure == response.attempts[0].failure
