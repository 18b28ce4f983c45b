"""`RetryChatClient`: the same client again, with waits."""

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    ChatOptions,
    OrderedFailoverChatClient,
    RetryChatClient,
    RoutingAttempt,
    RoutingContext,
    RoutingHints,
)
from chatrouting.errors import (
    BadRequestError,
    ConfigurationError,
    OverloadedError,
    QuotaExceededError,
    RateLimitError,
    RequestTimeoutError,
)
from chatrouting.policies.backoff import ExponentialBackoff
from chatrouting.testing import ScriptedChatClient, fails, virtual_time_backends, waits_forever


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    """Time is virtual: waits take none."""
    return virtual_time_backends()[request.param]()


MODES = pytest.mark.parametrize("mode", ["whole", "streaming"])


async def answer(client, mode, timeout=None):
    options = ChatOptions(routing=RoutingHints(timeout=timeout))
    if mode == "whole":
        return await client.get_response("hi", options)
    async with client.get_streaming_response("hi", options) as stream:
        return await stream.get_final_response()


@MODES
async def test_the_same_client_is_asked_again_and_each_attempt_leaves_a_record(mode):
    client = ScriptedChatClient.per_call(fails(OverloadedError), fails(OverloadedError), "ok")

    response = await answer(RetryChatClient(client, rng=lambda: 1.0), mode)

    assert response.text == "ok"
    assert [attempt.outcome for attempt in response.attempts] == [
        AttemptOutcome.FAILED,
        AttemptOutcome.FAILED,
        AttemptOutcome.COMPLETED,
    ]
    assert anyio.current_time() == pytest.approx(0.5 + 1.0)


async def test_waits_grow_with_full_jitter():
    """[BR-31] Each wait is drawn between nothing and a bound that doubles."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    client = ScriptedChatClient(fails(OverloadedError))
    fractions = iter([0.5, 1.0, 0.0, 1.0, 1.0])
    router = RetryChatClient(
        client,
        maximum_attempts_per_request=6,
        rng=lambda: next(fractions),
        sleep=sleep,
        backoff=ExponentialBackoff(initial=1, maximum=5),
    )

    with pytest.raises(OverloadedError):
        await router.get_response("hi")

    assert waits == [0.5, 2.0, 0.0, 5.0, 5.0]


@MODES
async def test_the_providers_hint_is_honoured_and_never_cut_short(mode):
    """[BR-28]"""
    client = ScriptedChatClient.per_call(fails(RateLimitError("busy", retry_after=7.0)), "ok")

    await answer(RetryChatClient(client, rng=lambda: 0.0), mode)

    assert anyio.current_time() == pytest.approx(7)


@MODES
async def test_a_hint_past_the_requests_timeout_raises_at_once(mode):
    """[BR-28] With the hint attached, and the client asked once."""
    client = ScriptedChatClient(fails(RateLimitError("busy", retry_after=90.0)))

    with pytest.raises(RateLimitError) as caught:
        await answer(RetryChatClient(client, maximum_wait=600), mode, timeout=5)

    assert caught.value.retry_after == 90.0
    assert anyio.current_time() == 0
    assert len(client.calls) == 1


async def test_a_hint_past_the_callers_own_deadline_raises_at_once():
    client = ScriptedChatClient(fails(RateLimitError("busy", retry_after=20.0)))

    with pytest.raises(RateLimitError), anyio.fail_after(5):
        await RetryChatClient(client).get_response("hi")

    assert anyio.current_time() == 0


async def test_a_hint_longer_than_the_longest_wait_raises_at_once():
    """[BR-29]"""
    client = ScriptedChatClient(fails(RateLimitError("busy", retry_after=1800.0)))

    with pytest.raises(RateLimitError):
        await RetryChatClient(client).get_response("hi")

    assert anyio.current_time() == 0


async def test_an_outer_failover_turns_elsewhere_when_waiting_is_too_long():
    """[BR-28] A first, then B."""
    first = ScriptedChatClient(fails(RateLimitError("busy", retry_after=90.0)))
    router = OrderedFailoverChatClient([RetryChatClient(first), ScriptedChatClient("B")])

    response = await answer(router, "whole", timeout=5)

    assert response.text == "B"
    assert len(first.calls) == 1


async def test_the_last_attempt_is_told_to_be_terminal():
    told = []
    client = ScriptedChatClient(fails(OverloadedError))
    router = RetryChatClient(
        client,
        maximum_attempts_per_request=2,
        on_routing_update=lambda _, attempt, is_terminal: told.append(
            (attempt.number, is_terminal)
        ),
    )

    with pytest.raises(OverloadedError):
        await router.get_response("hi")

    assert told == [(1, False), (2, True)]


@MODES
async def test_what_does_not_pass_by_itself_is_not_retried(mode):
    """[BR-83] The same body is never sent again after a deterministic refusal."""
    client = ScriptedChatClient(fails(BadRequestError("wrong")))

    with pytest.raises(BadRequestError):
        await answer(RetryChatClient(client), mode)

    assert len(client.calls) == 1


async def test_a_local_refusal_is_raised_at_once():
    client = ScriptedChatClient(fails(QuotaExceededError("full", retry_after=0.1)))

    with pytest.raises(QuotaExceededError):
        await RetryChatClient(client).get_response("hi")

    assert len(client.calls) == 1


async def test_retries_of_nested_layers_add_up_to_what_was_configured():
    """[BR-30]"""
    client = ScriptedChatClient(fails(OverloadedError))
    router = OrderedFailoverChatClient(
        [
            RetryChatClient(client, maximum_attempts_per_request=2),
            RetryChatClient(client, maximum_attempts_per_request=3),
        ]
    )

    with pytest.raises(OverloadedError):
        await router.get_response("hi")

    assert len(client.calls) == 5


async def test_a_wait_is_cancellable():
    """[BR-29]"""
    client = ScriptedChatClient(fails(RateLimitError("busy", retry_after=20.0)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(RetryChatClient(client).get_response, "hi")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert len(client.calls) == 1
    assert anyio.current_time() < 1


async def test_the_requests_timeout_holds_while_the_client_is_asked_again():
    client = ScriptedChatClient.per_call(fails(OverloadedError), waits_forever())

    with pytest.raises(RequestTimeoutError):
        await answer(RetryChatClient(client, rng=lambda: 1.0), "whole", timeout=3)

    assert anyio.current_time() == pytest.approx(3)


def test_nonsense_is_refused_when_it_is_built():
    with pytest.raises(TypeError):
        RetryChatClient(None)
    with pytest.raises(ValueError, match="maximum_wait"):
        RetryChatClient(ScriptedChatClient("x"), maximum_wait=0)
    with pytest.raises(ConfigurationError, match="factor"):
        ExponentialBackoff(factor=0.5)
    with pytest.raises(ConfigurationError, match="maximum"):
        ExponentialBackoff(initial=3, maximum=1)


@pytest.mark.parametrize("parameter", ["backoff", "rng", "sleep"])
def test_none_is_refused_when_it_is_built(parameter):
    """Not at the first failure, which may be months later."""
    with pytest.raises(TypeError, match=f"{parameter} is None"):
        RetryChatClient(ScriptedChatClient("x"), **{parameter: None})


def test_the_bound_of_the_backoff_does_not_overflow():
    assert ExponentialBackoff().bound(10_000) == 8.0


async def test_the_policy_can_be_tested_without_a_router():
    """A context and an attempt are made by hand."""
    client = ScriptedChatClient("x")
    failed = RoutingAttempt(client=client, exception=RateLimitError("busy"))
    context = RoutingContext("hi", routes=[client], attempts=[failed])

    assert RetryChatClient(client).may_select_again(context)
