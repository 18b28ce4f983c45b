"""Failover: who is asked next, how often, and what is raised in the end."""

import pytest

from chatrouting import (
    AttemptOutcome,
    ChatOptions,
    ConfigureOptionsChatClient,
    FailoverChatClient,
    OrderedFailoverChatClient,
    Selection,
    as_messages,
)
from chatrouting.errors import (
    BadRequestError,
    ConfigurationError,
    NoClientSelectedError,
    OverloadedError,
    RequestTimeoutError,
)
from chatrouting.policies.classify import failover_by_kind
from chatrouting.testing import ScriptedChatClient, fails, returns


def first_remaining(context):
    return next(iter(context.remaining), None)


def failing(error=OverloadedError):
    return ScriptedChatClient(fails(error))


def test_there_is_no_limit_by_default():
    """[routing 21]"""
    assert FailoverChatClient(first_remaining).maximum_attempts_per_request is None


@pytest.mark.parametrize("limit", [None, 1, 5])
def test_the_limit_is_a_positive_number_or_none(limit):
    """[routing 21]"""
    router = FailoverChatClient(first_remaining, maximum_attempts_per_request=limit)

    assert router.maximum_attempts_per_request == limit


@pytest.mark.parametrize("limit", [0, -1, 1.5, "2"])
def test_another_limit_is_a_value_error(limit):
    """[routing 21]"""
    with pytest.raises(ValueError, match="maximum_attempts_per_request") as raised:
        FailoverChatClient(first_remaining, maximum_attempts_per_request=limit)

    assert isinstance(raised.value, ConfigurationError)


def test_the_limit_cannot_be_changed_afterwards():
    """[routing 22] So no request can be disturbed by it."""
    router = FailoverChatClient(first_remaining, maximum_attempts_per_request=2)

    with pytest.raises(AttributeError):
        router.maximum_attempts_per_request = 1


@pytest.mark.parametrize("commit_on", ["output", None])
def test_commit_on_is_one_of_two_words(commit_on):
    with pytest.raises(ConfigurationError, match="commit_on"):
        FailoverChatClient(first_remaining, commit_on=commit_on)


async def test_a_success_within_the_limit_is_returned(answer):
    """[routing 23]"""
    first, second = failing(), ScriptedChatClient("ok")
    router = FailoverChatClient(
        first_remaining, routes=[first, second], maximum_attempts_per_request=2
    )

    assert (await answer(router)).text == "ok"
    assert (len(first.calls), len(second.calls)) == (1, 1)


async def test_the_error_that_met_the_limit_is_raised(answer, log):
    """[routing 24]"""
    client = ScriptedChatClient.per_call(
        *(fails(ValueError(f"failure {number}")) for number in (1, 2, 3))
    )
    router = FailoverChatClient(
        lambda _: client, maximum_attempts_per_request=2, on_routing_update=log
    )

    with pytest.raises(ValueError, match="failure 2"):
        await answer(router)

    assert len(client.calls) == 2
    assert log.terminals == [False, True]


async def test_with_a_limit_of_one_the_first_error_is_raised_as_it_is(answer, log):
    """[routing 25]"""
    error = OverloadedError("busy")
    client = failing(error)
    router = FailoverChatClient(
        lambda _: client, maximum_attempts_per_request=1, on_routing_update=log
    )

    with pytest.raises(OverloadedError) as raised:
        await answer(router)

    assert raised.value is error
    [attempt] = log.attempts
    assert (attempt.client, attempt.exception) == (client, error)
    assert not attempt.response_completed
    assert log.terminals == [True]


async def test_messages_of_none_are_a_type_error(mode):
    """[routing 26]"""
    router = FailoverChatClient(first_remaining, routes=[ScriptedChatClient()])
    ask = router.get_response if mode == "whole" else router.get_streaming_response

    with pytest.raises(TypeError, match="None"):
        await ask(None)


async def test_the_same_client_may_be_asked_again(answer):
    """[routing 27]"""
    client = ScriptedChatClient.per_call(fails(OverloadedError), "ok")

    response = await answer(FailoverChatClient(lambda _: client))

    assert response.text == "ok"
    assert [attempt.client for attempt in response.attempts] == [client, client]


async def test_a_route_that_is_returned_as_an_object_is_its_first_untried_position(answer):
    """Once all its positions are tried it is the first one again."""
    client = ScriptedChatClient.per_call(*[fails(OverloadedError)] * 3, "ok")
    router = FailoverChatClient(lambda _: client, routes={"a": client, "b": client})

    response = await answer(router)

    assert [attempt.route for attempt in response.attempts] == ["a", "b", "a", "a"]


async def test_an_error_of_the_first_selection_propagates_without_an_attempt(answer, log):
    """[routing 28]"""
    error, contexts = KeyError("policy"), []

    def select(context):
        contexts.append(context)
        raise error

    with pytest.raises(KeyError) as raised:
        await answer(FailoverChatClient(select, on_routing_update=log))

    assert raised.value is error
    assert len(contexts) == 1
    assert log.attempts == []


async def test_none_at_the_first_selection_is_an_error_without_an_attempt(answer, log):
    """[routing 30]"""
    router = FailoverChatClient(lambda _: None, on_routing_update=log)

    with pytest.raises(NoClientSelectedError, match="select_client"):
        await answer(router)

    assert log.attempts == []


async def test_an_error_of_a_later_selection_is_caused_by_the_attempts_error(answer, log):
    """[routing 31] [BR-36] The provider's error is not lost, and the hook knew of one attempt."""
    error, busy, contexts = KeyError("policy"), OverloadedError("busy"), []

    def select(context):
        contexts.append(context)
        if context.attempts:
            raise error
        return failing(busy)

    with pytest.raises(KeyError) as raised:
        await answer(FailoverChatClient(select, on_routing_update=log))

    assert raised.value is error
    assert error.__cause__ is busy
    assert len(contexts) == 2
    assert log.exceptions == [busy]
    assert log.terminals == [False]


async def test_a_selector_that_raises_the_attempts_own_error_gives_it_no_cause(answer):
    def select(context):
        if context.previous_attempt:
            raise context.previous_attempt.exception
        return failing()

    with pytest.raises(OverloadedError) as raised:
        await answer(FailoverChatClient(select))

    assert raised.value.__cause__ is None


async def test_a_cause_that_the_selectors_error_has_already_stays(answer):
    cause = ValueError("of its own")

    def select(context):
        if context.attempts:
            raise KeyError("policy") from cause
        return failing()

    with pytest.raises(KeyError) as raised:
        await answer(FailoverChatClient(select))

    assert raised.value.__cause__ is cause


async def test_none_at_a_later_selection_means_stop(answer, log):
    """[routing 32] The last provider's error is raised, and no further update comes."""
    error = OverloadedError("busy")
    router = FailoverChatClient(first_remaining, routes=[failing(error)], on_routing_update=log)

    with pytest.raises(OverloadedError) as raised:
        await answer(router)

    assert raised.value is error
    assert log.terminals == [False]


@pytest.mark.parametrize("chosen", ["nobody", Selection("nobody")], ids=["name", "selection"])
async def test_an_unknown_name_is_a_configuration_error(answer, log, chosen):
    client = ScriptedChatClient()
    router = FailoverChatClient(lambda _: chosen, routes={"a": client}, on_routing_update=log)

    with pytest.raises(ConfigurationError, match=r"'nobody'.*'a'"):
        await answer(router)

    assert client.calls == []
    assert log.attempts == []


async def test_an_unknown_name_in_an_inner_router_never_fails_over(answer, log):
    """The stack is built wrongly: that must not hide behind the next client."""
    inner, second = FailoverChatClient(lambda _: "nobody"), ScriptedChatClient("never")
    router = OrderedFailoverChatClient([inner, second], on_routing_update=log)

    with pytest.raises(ConfigurationError, match="nobody"):
        await answer(router)

    assert second.calls == []
    assert log.outcomes == [AttemptOutcome.FAILED]
    assert log.terminals == [True]


async def test_a_policy_sees_what_was_tried_and_what_remains(answer):
    seen = []

    def select(context):
        seen.append((context.previous_attempt, context.remaining))
        return first_remaining(context)

    routes = {"a": failing(), "b": failing(), "c": ScriptedChatClient("ok")}
    response = await answer(FailoverChatClient(select, routes=routes))

    first, second, _ = response.attempts
    assert seen == [(None, ("a", "b", "c")), (first, ("b", "c")), (second, ("c",))]


async def test_a_policy_sees_the_context_of_the_router_around_it(answer):
    contexts = []

    def remember(selected):
        def select(context):
            contexts.append(context)
            return selected

        return select

    inner = FailoverChatClient(remember(ScriptedChatClient("ok")))
    await answer(FailoverChatClient(remember(inner)))

    outermost, innermost = contexts
    assert (outermost.parent, innermost.parent) == (None, outermost)
    assert innermost.request_id == outermost.request_id


async def test_state_is_kept_between_the_selections_of_one_request(answer):
    def select(context):
        context.state["count"] = context.state.get("count", 0) + 1
        return failing() if context.state["count"] < 3 else ScriptedChatClient("ok")

    router = FailoverChatClient(select)

    assert len((await answer(router)).attempts) == 3
    assert len((await answer(router)).attempts) == 3


async def test_a_policy_that_implements_the_selector_only_works(answer):
    """[routing 40]"""

    class Router(FailoverChatClient):
        async def select_client(self, context):
            return first_remaining(context)

    response = await answer(Router(routes=[failing(), ScriptedChatClient("ok")]))

    assert response.text == "ok"


async def test_each_client_gets_options_equal_to_the_callers(answer):
    """[routing 42] They are frozen, so that no attempt can change what the next one gets."""
    first, second, options = failing(), ScriptedChatClient("ok"), ChatOptions(temperature=0.5)

    await answer(OrderedFailoverChatClient([first, second]), "Hi", options)

    assert first.calls[0].options == second.calls[0].options == options
    assert options == ChatOptions(temperature=0.5)


async def test_a_client_gets_the_options_that_the_selector_saw_and_changed(answer):
    """[routing 43]"""
    client, seen, options = ScriptedChatClient("ok"), [], ChatOptions(model="m")

    def select(context):
        context.options = context.options.replace(temperature=0.7)
        seen.append(context.options)
        return client

    await answer(FailoverChatClient(select), "Hi", options)

    assert client.calls[0].options is seen[0]
    assert client.calls[0].options == ChatOptions(model="m", temperature=0.7)
    assert options.temperature is None


async def test_options_that_are_assigned_hold_for_the_rest_of_the_request(answer):
    clients = [failing(), ScriptedChatClient("ok")]

    def select(context):
        if not context.attempts:
            context.options = context.options.replace(model="assigned")
        return clients[len(context.attempts)]

    await answer(FailoverChatClient(select))

    assert [client.calls[0].options.model for client in clients] == ["assigned", "assigned"]


async def test_a_selections_options_and_messages_hold_for_one_attempt(answer):
    first, second, options = failing(), ScriptedChatClient("ok"), ChatOptions(model="request")

    def select(context):
        if context.attempts:
            return second
        return Selection(first, context.options.replace(model="shaped"), "shorter")

    await answer(FailoverChatClient(select), "Hi", options)

    assert first.calls[0].options.model == "shaped"
    assert first.calls[0].messages == as_messages("shorter")
    assert second.calls[0].options == options
    assert second.calls[0].messages == as_messages("Hi")


async def test_a_client_wrapped_in_its_own_options_gets_them(answer):
    """[routing 44]"""
    client, options = ScriptedChatClient("ok"), ChatOptions(model="request", instructions="Be kind")
    route = ConfigureOptionsChatClient(client, lambda options: options.replace(model="route"))

    await answer(FailoverChatClient(lambda _: route), "Hi", options)

    assert client.calls[0].options == ChatOptions(model="route", instructions="Be kind")
    assert options.model == "request"


async def test_a_one_shot_iterable_of_messages_reaches_every_client(answer):
    """[routing 3]"""
    first, second = failing(), ScriptedChatClient("ok")

    await answer(
        OrderedFailoverChatClient([first, second]), (message for message in as_messages("Hi"))
    )

    assert first.calls[0].messages == second.calls[0].messages == as_messages("Hi")


@pytest.mark.parametrize(
    "error", [OverloadedError, BadRequestError, KeyError, ExceptionGroup("g", [ValueError()])]
)
async def test_every_exception_fails_over_by_default(answer, error):
    """As in the reference; what narrows it is `should_failover`."""
    router = OrderedFailoverChatClient([failing(error), ScriptedChatClient("ok")])

    assert (await answer(router)).text == "ok"


async def test_none_in_place_of_an_answer_is_a_failure(answer):
    """[routing 41]"""
    first = ScriptedChatClient(returns(None))

    response = await answer(OrderedFailoverChatClient([first, ScriptedChatClient("ok")]))

    assert response.text == "ok"
    assert isinstance(response.attempts[0].exception, TypeError)


async def test_should_failover_is_asked_about_the_attempt_and_may_say_no(answer, log):
    asked, second = [], ScriptedChatClient("never")

    def should_failover(context, attempt):
        asked.append((context, attempt))
        return False

    router = OrderedFailoverChatClient(
        [failing(), second], should_failover=should_failover, on_routing_update=log
    )

    with pytest.raises(OverloadedError):
        await answer(router)

    assert second.calls == []
    assert asked == [(log.contexts[0], log.attempts[0])]
    assert log.terminals == [True]


async def test_should_failover_may_say_yes(answer):
    router = OrderedFailoverChatClient(
        [failing(), ScriptedChatClient("ok")], should_failover=lambda *_: True
    )

    assert (await answer(router)).text == "ok"


async def test_a_failing_should_failover_ends_the_walk_with_the_attempts_error(answer, log, caplog):
    """[BR-36] A bug in the policy never hides what the provider said."""
    error, second = OverloadedError("busy"), ScriptedChatClient("never")

    def should_failover(context, attempt):
        raise KeyError("policy")

    router = OrderedFailoverChatClient(
        [failing(error), second], should_failover=should_failover, on_routing_update=log
    )

    with pytest.raises(OverloadedError) as raised:
        await answer(router)

    assert raised.value is error
    assert ["KeyError" in note for note in error.__notes__] == [True]
    assert "routing.policy_failed" in caplog.text
    assert second.calls == []
    assert log.terminals == [True]


@pytest.mark.parametrize("error", [ConfigurationError("wrong"), RequestTimeoutError("over")])
async def test_should_failover_is_not_asked_where_nothing_can_fail_over(answer, error):
    asked, second = [], ScriptedChatClient("never")
    router = OrderedFailoverChatClient(
        [failing(error), second], should_failover=lambda *_: asked.append(1) or True
    )

    with pytest.raises(type(error)) as raised:
        await answer(router)

    assert raised.value is error
    assert asked == []
    assert second.calls == []


async def test_failover_by_kind_moves_on_where_another_target_can_differ(answer):
    router = OrderedFailoverChatClient(
        [failing(OverloadedError), failing(BadRequestError), ScriptedChatClient("never")],
        should_failover=failover_by_kind,
    )

    with pytest.raises(BadRequestError):
        await answer(router)


async def test_may_select_again_tells_the_hook_of_the_last_attempt(answer, log):
    """And spares the selection that would say so."""

    class Twice(FailoverChatClient):
        def may_select_again(self, context):
            return len(context.attempts) < 2

    router = Twice(lambda _: failing(), on_routing_update=log)

    with pytest.raises(OverloadedError):
        await answer(router)

    assert log.terminals == [False, True]


async def test_a_last_failure_is_raised_and_not_logged(answer, caplog):
    with pytest.raises(OverloadedError):
        await answer(OrderedFailoverChatClient([failing()]))

    assert caplog.records == []


async def test_a_failing_may_select_again_ends_the_walk_with_the_attempts_error(answer, log):
    """[BR-36] The attempt is reported all the same."""

    class Router(FailoverChatClient):
        def may_select_again(self, context):
            raise KeyError("policy")

    with pytest.raises(OverloadedError):
        await answer(Router(lambda _: failing(), on_routing_update=log))

    assert log.terminals == [True]


async def test_each_request_has_a_context_and_an_id_of_its_own(answer):
    contexts = []

    def select(context):
        contexts.append(context)
        return ScriptedChatClient("ok")

    router = FailoverChatClient(select)
    await answer(router)
    await answer(router)

    assert contexts[0] is not contexts[1]
    assert contexts[0].request_id != contexts[1].request_id


async def test_a_record_repeats_what_the_policy_said_of_its_own_choice(answer, log):
    choices = iter([Selection("a", reason="nearest", detail=7), "b"])
    routes = {"a": ScriptedChatClient(fails(OverloadedError())), "b": ScriptedChatClient()}
    router = FailoverChatClient(lambda _: next(choices), routes=routes, on_routing_update=log)
    await answer(router)
    assert [(each.route, each.reason, each.detail) for each in log.attempts] == [
        ("a", "nearest", 7),
        ("b", None, None),
    ]
