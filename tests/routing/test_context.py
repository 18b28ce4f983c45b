"""What a policy sees of a request."""

import math

import pytest

from chatrouting import (
    AttemptOutcome,
    ChatMessage,
    ChatOptions,
    Role,
    RoutingAttempt,
    RoutingContext,
    Tool,
    as_messages,
)
from chatrouting.errors import OverloadedError, QuotaExceededError
from chatrouting.testing import ScriptedChatClient


def refused(client):
    return RoutingAttempt(
        client=client,
        route="a",
        outcome=AttemptOutcome.REFUSED_LOCALLY,
        exception=QuotaExceededError("full"),
    )


def test_a_context_carries_the_messages_and_equal_options():
    """[routing 1] Assigning other options leaves the caller's as they were."""
    messages, options = [ChatMessage(Role.USER, "Hi")], ChatOptions(model="initial")
    context = RoutingContext(messages, options)

    assert context.messages == tuple(messages)
    assert context.options == options

    context.options = context.options.replace(model="other")
    assert options.model == "initial"


def test_messages_of_none_are_a_type_error():
    """[routing 2]"""
    with pytest.raises(TypeError, match="None"):
        RoutingContext(None)


def test_messages_are_a_tuple_also_of_a_one_shot_iterable():
    """[routing 3] A generator would be empty for the second client."""
    context = RoutingContext(message for message in as_messages("Hi"))

    assert context.messages == as_messages("Hi")


def test_messages_appended_by_the_caller_later_are_not_seen():
    """[routing 3]"""
    messages = list(as_messages("Hi"))
    context = RoutingContext(messages)
    messages.append(ChatMessage(Role.USER, "more"))

    assert context.messages == as_messages("Hi")


@pytest.mark.parametrize("given", ["at construction", "assigned"])
def test_options_are_never_none(given):
    """[routing 4]"""
    context = RoutingContext("Hi", None if given == "at construction" else ChatOptions(seed=1))
    context.options = None if given == "assigned" else context.options

    assert context.options == ChatOptions()


def test_options_of_another_type_are_a_type_error():
    context = RoutingContext("Hi")

    with pytest.raises(TypeError, match="dict"):
        context.options = {"model": "x"}


def test_nothing_that_the_caller_changes_later_is_seen():
    """[routing 5] [BR-76] Not even inside of a tool: options are frozen to their depths."""
    schema, properties = {"type": "object"}, {"a": []}
    tools = [Tool("first", parameters=schema)]
    context = RoutingContext("Hi", ChatOptions(tools=tools, additional_properties=properties))
    tools.append(Tool("second"))
    schema["title"] = "changed"
    properties["a"].append(1)
    properties["b"] = 2

    assert context.options.tools == (Tool("first", parameters={"type": "object"}),)
    assert context.options.additional_properties == {"a": []}


def test_state_is_kept_for_the_policy_and_for_one_context_only():
    """[routing 7] The bag is the extension point; contexts are not subclassed."""
    context, other = RoutingContext("Hi"), RoutingContext("Hi")
    context.state["tried"] = 1

    assert context.state == {"tried": 1}
    assert other.state == {}


def test_a_context_made_by_hand_knows_what_was_attempted():
    """So that a policy can be tested without a router."""
    attempt = RoutingAttempt(route="a", exception=OverloadedError("busy"))
    routes = {"a": ScriptedChatClient(), "b": ScriptedChatClient()}
    context = RoutingContext("Hi", routes=routes, attempts=[attempt])

    assert context.attempts == (attempt,)
    assert context.previous_attempt is attempt
    assert context.remaining == ("b",)
    assert context.next_route() == "b"


def test_a_new_context_has_no_attempts_and_all_routes_remaining():
    context = RoutingContext("Hi", routes={"a": ScriptedChatClient(), "b": ScriptedChatClient()})

    assert context.attempts == ()
    assert context.previous_attempt is None
    assert context.remaining == ("a", "b")
    assert context.parent is None


def test_an_attempt_that_was_no_route_takes_none():
    context = RoutingContext(
        "Hi", routes={"a": ScriptedChatClient()}, attempts=[RoutingAttempt(route="b")]
    )

    assert context.remaining == ("a",)


def test_all_positions_of_a_client_that_refused_leave_what_remains():
    client = ScriptedChatClient()
    routes = {"a": client, "b": ScriptedChatClient(), "again": client}
    context = RoutingContext("Hi", routes=routes, attempts=[refused(client)])

    assert context.remaining == ("b",)
    assert context.has_refused(client)


def test_nothing_remains_at_the_end_of_the_routes():
    context = RoutingContext(
        "Hi", routes={"a": ScriptedChatClient()}, attempts=[RoutingAttempt(route="a")]
    )

    assert context.remaining == ()
    assert context.next_route() is None


def test_a_policy_cannot_move_the_end_of_the_request():
    """The loop goes by it; what a policy wants to keep belongs into `state`."""
    context = RoutingContext("Hi")

    with pytest.raises(AttributeError):
        context.deadline = 0.0

    assert context.deadline == math.inf
