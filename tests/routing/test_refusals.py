"""Refusals that never reached a provider: they cost nothing and hold nobody up."""

import pytest

from chatrouting import (
    AttemptOutcome,
    DelegatingChatClient,
    FailoverChatClient,
    FailureKind,
    OrderedFailoverChatClient,
)
from chatrouting.errors import CircuitOpenError, OverloadedError, QuotaExceededError
from chatrouting.testing import ScriptedChatClient, fails


class Equal(DelegatingChatClient):
    """Equal to every other client of its class, as careless value types are."""

    def __eq__(self, other):
        return isinstance(other, Equal)

    __hash__ = None  # type: ignore[assignment]  # unhashable too


def refusing(error=QuotaExceededError):
    return ScriptedChatClient(fails(error))


async def test_after_a_refusal_the_walk_goes_on(answer, log):
    """None for `fallback_allowed` means yes."""
    router = OrderedFailoverChatClient(
        [refusing(QuotaExceededError("full", retry_after=3)), ScriptedChatClient("ok")],
        on_routing_update=log,
    )

    assert (await answer(router)).text == "ok"
    assert log.outcomes == [AttemptOutcome.REFUSED_LOCALLY, AttemptOutcome.COMPLETED]
    assert log.terminals == [False, True]
    failure = log.attempts[0].failure
    assert (failure.kind, failure.retry_after) == (FailureKind.REFUSED_LOCALLY, 3)


async def test_a_refusal_does_not_count_against_the_limit(answer):
    """One was refused, one failed, and two may fail: a third is asked."""
    router = OrderedFailoverChatClient(
        [refusing(), ScriptedChatClient(fails(OverloadedError)), ScriptedChatClient("ok")],
        maximum_attempts_per_request=2,
    )

    assert (await answer(router)).text == "ok"


async def test_a_walk_goes_on_after_a_refusal_where_the_limit_is_one(answer):
    router = OrderedFailoverChatClient(
        [refusing(), refusing(), ScriptedChatClient("ok")], maximum_attempts_per_request=1
    )

    assert (await answer(router)).text == "ok"


async def test_should_failover_is_not_asked_about_a_refusal(answer):
    asked = []
    router = OrderedFailoverChatClient(
        [refusing(), ScriptedChatClient("ok")], should_failover=lambda *_: asked.append(1)
    )

    assert (await answer(router)).text == "ok"
    assert asked == []


async def test_a_client_that_refused_is_skipped_at_its_other_positions(answer):
    first = refusing()
    router = OrderedFailoverChatClient([first, ScriptedChatClient(fails(OverloadedError)), first])

    with pytest.raises(OverloadedError):
        await answer(router)

    assert len(first.calls) == 1


async def test_a_client_that_equals_one_that_refused_is_asked(answer):
    """[routing 93] Identity counts, not equality."""
    clients = [Equal(refusing()), Equal(ScriptedChatClient("ok"))]

    assert (await answer(OrderedFailoverChatClient(clients))).text == "ok"


async def test_the_attempt_before_a_skipped_last_position_is_terminal(answer, log):
    first = refusing()
    router = OrderedFailoverChatClient(
        [first, ScriptedChatClient(fails(OverloadedError)), first], on_routing_update=log
    )

    with pytest.raises(OverloadedError):
        await answer(router)

    assert log.terminals == [False, True]


async def test_selecting_a_client_that_refused_means_stop(answer):
    """A policy that knows nothing of refusals does not spin on one."""
    client = refusing()

    with pytest.raises(QuotaExceededError):
        await answer(FailoverChatClient(lambda _: client))

    assert len(client.calls) == 1


async def test_a_refusal_that_allows_no_fallback_ends_the_walk(answer, log):
    refusal, second = QuotaExceededError("full", fallback_allowed=False), ScriptedChatClient()
    router = OrderedFailoverChatClient([refusing(refusal), second], on_routing_update=log)

    with pytest.raises(QuotaExceededError) as raised:
        await answer(router)

    assert raised.value is refusal
    assert second.calls == []
    assert log.terminals == [True]


async def test_a_refusal_that_allows_no_fallback_is_raised_also_after_a_providers_error(answer):
    refusal = QuotaExceededError("full", fallback_allowed=False)
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(OverloadedError)), refusing(refusal)]
    )

    with pytest.raises(QuotaExceededError) as raised:
        await answer(router)

    assert raised.value is refusal


async def test_a_refusal_that_allows_no_fallback_ends_outer_walks_too(answer):
    second = ScriptedChatClient("never")
    inner = OrderedFailoverChatClient([refusing(QuotaExceededError("x", fallback_allowed=False))])

    with pytest.raises(QuotaExceededError):
        await answer(OrderedFailoverChatClient([inner, second]))

    assert second.calls == []


async def test_the_last_providers_error_is_preferred_over_a_later_refusal(answer):
    error = OverloadedError("busy")
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(KeyError)), ScriptedChatClient(fails(error)), refusing()]
    )

    with pytest.raises(OverloadedError) as raised:
        await answer(router)

    assert raised.value is error


async def test_where_no_provider_was_asked_the_last_refusal_is_raised(answer):
    last = CircuitOpenError("open")

    with pytest.raises(CircuitOpenError) as raised:
        await answer(OrderedFailoverChatClient([refusing(), refusing(last)]))

    assert raised.value is last


async def test_an_inner_router_whose_clients_all_refused_has_refused(answer, log):
    inner = OrderedFailoverChatClient([refusing(), refusing()])
    router = OrderedFailoverChatClient(
        [inner, ScriptedChatClient("ok"), inner], on_routing_update=log
    )

    assert (await answer(router)).text == "ok"
    assert log.outcomes == [AttemptOutcome.REFUSED_LOCALLY, AttemptOutcome.COMPLETED]
    assert [child.outcome for child in log.attempts[0].children] == [
        AttemptOutcome.REFUSED_LOCALLY
    ] * 2
