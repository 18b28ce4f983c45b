"""The chat client over a pool, against real Azure clients on several regions at once."""

import gc
import logging
from functools import partial

import anyio
import pytest
from anyio.lowlevel import checkpoint

from chatrouting import (
    AttemptOutcome,
    ChatOptions,
    ClientMetadata,
    ConfigureOptionsChatClient,
    DelegatingChatClient,
    OrderedFailoverChatClient,
    ResponseStream,
    RoutingAttempt,
    RoutingContext,
    RoutingHints,
)
from chatrouting.errors import (
    AttemptTimeoutError,
    AuthenticationError,
    BadRequestError,
    ClientClosedError,
    ConfigurationError,
    ContentFilteredError,
    InternalServerError,
    NoEndpointAvailableError,
    NotFoundError,
    OverloadedError,
    PoolExhaustedError,
    RateLimitError,
    RequestTimeoutError,
    StallTimeoutError,
    StreamInterruptedError,
)
from chatrouting.failure import FailureKind
from chatrouting.pool import (
    ApiKey,
    Endpoint,
    EndpointPool,
    EndpointStatus,
    Identity,
    PooledChatClient,
    PoolPolicy,
    endpoint_of,
)
from chatrouting.testing import ManualClock
from chatrouting.testing.provider_server import Gate, ProviderServer, Reply
from chatrouting.testing.scripted import ScriptedChatClient, fails, update, waits_forever

RESILIENT = PoolPolicy.resilient()
#: Asked in order: one tier each.
TIERS = {"eastus": {"priority": 1}, "westus": {"priority": 2}, "sweden": {"priority": 3}}


def states(pool):
    return {state.id: state for state in pool.snapshot()}


def routes(response):
    return [attempt.route for attempt in response.attempts]


# Rotating


async def test_a_throttled_member_is_followed_by_the_next_tier(anyio_backend, ask, serve):
    """A 429 rotates at once, and the member rests.

    [pools 50] [pools 56] [pools section 4: PTU 429 ended the conversation]
    """
    replies = {"eastus": Reply.error(429), "westus": Reply("Hello")}
    async with serve(replies, facts=TIERS) as regions:
        response = await ask(PooledChatClient(regions.pool))

        assert response.text == "Hello"
        assert routes(response) == ["EASTUS", "WESTUS"]
        assert regions.counts == {"eastus": 1, "westus": 1}
        assert states(regions.pool)["EASTUS"].consecutive_429s == 1
        assert regions.in_flight == 0


async def test_three_tiers_are_visited_in_order(anyio_backend, ask, serve):
    """[pools 56]."""
    replies = {"eastus": Reply.error(429), "westus": Reply.error(502), "sweden": Reply("Hej")}
    async with serve(replies, facts=TIERS) as regions:
        response = await ask(PooledChatClient(regions.pool))

    assert routes(response) == ["EASTUS", "WESTUS", "SWEDEN"]


async def test_an_attempt_tells_endpoint_and_region(anyio_backend, ask, serve):
    replies = {"eastus": Reply.error(503), "westus": Reply()}
    async with serve(replies, facts=TIERS) as regions:
        response = await ask(PooledChatClient(regions.pool))

    endpoints = [endpoint_of(attempt) for attempt in response.attempts]
    assert [endpoint.region for endpoint in endpoints] == ["eastus", "westus"]
    client = response.attempts[0].client
    assert client.get_service(Endpoint) is endpoints[0]


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
async def test_what_may_pass_rotates(anyio_backend, ask, serve, status):
    """[pools 50] [pools 51] [pools B10]."""
    replies = {"eastus": Reply.error(status), "westus": Reply("Hello")}
    async with serve(replies, facts=TIERS) as regions:
        response = await ask(PooledChatClient(regions.pool))
        state = states(regions.pool)["EASTUS"]

    assert routes(response) == ["EASTUS", "WESTUS"]
    assert state.status in (EndpointStatus.THROTTLED, EndpointStatus.FAULTED)
    assert state.consecutive_429s == (status == 429)


async def test_a_dropped_connection_rotates(anyio_backend, ask, serve):
    """[pools 50] [pools 56]."""
    replies = {"eastus": Reply(drop_at="headers"), "westus": Reply("Hello")}
    async with serve(replies, facts=TIERS) as regions:
        response = await ask(PooledChatClient(regions.pool))
        assert states(regions.pool)["EASTUS"].consecutive_429s == 0

    assert routes(response) == ["EASTUS", "WESTUS"]


async def test_any_success_is_one(anyio_backend, ask, serve):
    """Not 200 and 201 alone.

    [pools 49]
    """
    async with serve({"eastus": Reply("Hello", status=202), "westus": Reply()}) as regions:
        pool = regions.pool.pinned("EASTUS")
        assert (await ask(PooledChatClient(pool))).text == "Hello"


async def test_a_request_fault_is_raised_and_hurts_nobody(anyio_backend, ask, serve):
    """One call, and the member stays as it was.

    [pools 51] [pools section 4: 4xx trips the breaker]
    """
    for status in (400, 413, 422):
        async with serve(
            {"eastus": Reply.error(status), "westus": Reply()}, facts=TIERS
        ) as regions:
            with pytest.raises(Exception) as caught:  # noqa: PT011  # its status says which
                await ask(PooledChatClient(regions.pool))

            assert caught.value.status_code == status
            assert regions.counts == {"eastus": 1, "westus": 0}
            assert states(regions.pool)["EASTUS"].status is EndpointStatus.READY


async def test_a_content_filter_is_a_request_fault(anyio_backend, ask, serve):
    """[pools 52]."""
    replies = {"eastus": Reply.azure_content_filter(), "westus": Reply()}
    async with serve(replies, facts=TIERS, policy=RESILIENT) as regions:
        with pytest.raises(ContentFilteredError):
            await ask(PooledChatClient(regions.pool))

        assert regions.counts == {"eastus": 1, "westus": 0}


@pytest.mark.parametrize(
    ("status", "error"), [(401, AuthenticationError), (404, NotFoundError)], ids=["401", "404"]
)
async def test_a_member_fault_is_raised_once_and_then_avoided(
    anyio_backend, ask, serve, status, error
):
    """The call that meets it raises, as the README says; later calls go elsewhere.

    [pools 51] [pools B9]
    """
    replies = {"eastus": Reply.error(status), "westus": [Reply("Hello"), Reply("Hello")]}
    async with serve(replies, facts=TIERS) as regions:
        client = PooledChatClient(regions.pool)
        with pytest.raises(error):
            await ask(client)
        answers = [await ask(client), await ask(client)]

        assert [routes(answer) for answer in answers] == [["WESTUS"], ["WESTUS"]]
        assert regions.counts == {"eastus": 1, "westus": 2}
        assert states(regions.pool)["EASTUS"].status is EndpointStatus.PARKED


@pytest.mark.parametrize("status", [401, 402, 403, 404])
async def test_a_member_fault_rotates_where_the_policy_says_so(anyio_backend, ask, serve, status):
    """[pools 51] [pools B9] [pools section 4: some 402 are member faults]."""
    replies = {"eastus": Reply.error(status), "westus": Reply("Hello")}
    async with serve(replies, facts=TIERS, policy=RESILIENT) as regions:
        response = await ask(PooledChatClient(regions.pool))

    assert routes(response) == ["EASTUS", "WESTUS"]


async def test_if_all_members_are_at_fault_each_is_asked_once(anyio_backend, ask, serve):
    """The last error is raised; parked members are asked again by the next request.

    [pools B9]
    """
    policy = PoolPolicy(member_fault="rotate")
    wrong = partial(Reply.error, 401)
    replies = {"eastus": [wrong(), wrong()], "westus": [wrong(), wrong()]}
    async with serve(replies, policy=policy) as regions:
        client = PooledChatClient(regions.pool)
        for calls in (1, 2):
            with pytest.raises(AuthenticationError):
                await ask(client)
            assert regions.counts == {"eastus": calls, "westus": calls}


async def test_a_credential_that_cannot_be_had_rotates(anyio_backend, ask, serve):
    """Nothing was sent; another member may have a key.

    [pools 53]
    """

    async def no_token():
        raise OSError("no route to the identity service")

    facts = {**TIERS, "eastus": {"priority": 1, "auth": Identity(no_token)}}
    async with serve({"eastus": Reply(), "westus": Reply("Hello")}, facts=facts) as regions:
        response = await ask(PooledChatClient(regions.pool))

        assert response.text == "Hello"
        assert regions.counts == {"eastus": 0, "westus": 1}
        assert states(regions.pool)["EASTUS"].parked_for is FailureKind.AUTHENTICATION


async def test_the_sdk_does_not_multiply_attempts(anyio_backend, ask, serve):
    """Three members, three attempts, three requests.

    [pools section 4: retries multiply]
    """
    replies = {name: Reply.error(500) for name in TIERS}
    policy = PoolPolicy(max_attempts=3)
    async with serve(replies, facts=TIERS, policy=policy) as regions:
        with pytest.raises(InternalServerError):
            await ask(PooledChatClient(regions.pool))

        assert regions.counts == {"eastus": 1, "westus": 1, "sweden": 1}


async def test_a_caller_may_say_what_moves_on(anyio_backend, ask, serve):
    async with serve({"eastus": Reply.error(500), "westus": Reply()}, facts=TIERS) as regions:
        client = PooledChatClient(regions.pool, should_failover=lambda context, attempt: False)
        with pytest.raises(InternalServerError):
            await ask(client)

        assert regions.counts == {"eastus": 1, "westus": 0}
        assert states(regions.pool)["EASTUS"].status is EndpointStatus.FAULTED


async def test_attempts_of_one_request_are_limited(anyio_backend, ask, serve):
    """[pools 54]."""
    replies = {name: Reply.error(500) for name in TIERS}
    async with serve(replies, facts=TIERS, policy=PoolPolicy(max_attempts=2)) as regions:
        with pytest.raises(InternalServerError):
            await ask(PooledChatClient(regions.pool))

        assert regions.counts == {"eastus": 1, "westus": 1, "sweden": 0}


# Streams


async def test_an_error_before_any_output_of_a_stream_rotates(anyio_backend, serve):
    """It comes inside a 200, from the iterator.

    [pools 63] [pools section 4: streaming, no failover]
    """
    replies = {"eastus": Reply.stream_error("Hello", at="content"), "westus": Reply("Hello")}
    async with serve(replies, facts=TIERS) as regions:
        client = PooledChatClient(regions.pool)
        async with client.get_streaming_response("Hi") as stream:
            response = await stream.get_final_response()

        assert response.text == "Hello"
        assert routes(response) == ["EASTUS", "WESTUS"]
        assert states(regions.pool)["EASTUS"].status is not EndpointStatus.READY


async def test_an_error_after_output_is_the_callers_and_marks_the_member(anyio_backend, serve):
    """Half an answer is never continued by another member.

    [pools 63] [pools section 4: unwanted continuation after partial output]
    """
    replies = {"eastus": Reply("Hello you", drop_at="after_content"), "westus": Reply()}
    async with serve(replies, facts=TIERS) as regions:
        client = PooledChatClient(regions.pool)
        async with client.get_streaming_response("Hi") as stream:
            with pytest.raises(StreamInterruptedError):
                await stream.get_final_response()
            assert stream.partial_response.text == "Hello you"

        assert regions.counts == {"eastus": 1, "westus": 0}
        assert states(regions.pool)["EASTUS"].status is EndpointStatus.FAULTED
        assert regions.in_flight == 0


@pytest.mark.virtual_time(autojump_threshold=0.02)
async def test_a_stream_that_stands_still_ends_and_marks_the_member(anyio_backend, serve):
    """[pools 63]."""
    policy = PoolPolicy(stream_idle_timeout=20)
    replies = {"eastus": Reply("Hello", gates={"after_content": Gate()}), "westus": Reply()}
    async with serve(replies, facts=TIERS, policy=policy) as regions:
        stream = PooledChatClient(regions.pool).get_streaming_response("Hi")
        async with stream:
            with pytest.raises(StallTimeoutError):
                await stream.get_final_response()

        assert states(regions.pool)["EASTUS"].status is EndpointStatus.FAULTED


@pytest.mark.parametrize("leaves", ["closes", "is cancelled"])
async def test_whoever_leaves_a_stream_gives_everything_back(anyio_backend, serve, leaves):
    """The only slot and the only connection; the member's health stays.

    [pools section 4: probe slot leaked by a neutral outcome]
    """
    gates = {"after_content": Gate()}
    replies = {"eastus": [Reply("Hello", gates=gates), Reply("Again")], "westus": Reply()}
    facts = {"eastus": {"max_concurrency": 1}, "westus": {"priority": 2}}
    async with serve(replies, facts=facts, connections=1) as regions:
        client = PooledChatClient(regions.pool)
        async with client.get_streaming_response("Hi") as stream:
            await anext(stream)
            assert regions.in_flight == 1
            if leaves == "is cancelled":
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await stream.get_final_response()
        response = await client.get_response("Hi")

        assert response.text == "Again"
        assert regions.in_flight == 0
        assert states(regions.pool)["EASTUS"].status is EndpointStatus.READY


async def test_a_dropped_stream_gives_its_slot_back(anyio_backend):
    """Nothing is awaited, nothing recorded; the event loop gives the slot to who waits for it."""
    pool = EndpointPool(
        {Endpoint("a", max_concurrency=1): ScriptedChatClient("Hel", "lo")},
        clock=anyio.current_time,
    )
    client = PooledChatClient(pool)
    stream = client.get_streaming_response("Hi")
    await anext(stream)
    assert pool.snapshot()[0].in_flight == 1

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(client.get_response, "Hi")
            await anyio.wait_all_tasks_blocked()
            with pytest.warns(ResourceWarning, match="without being read to its end"):
                del stream
                gc.collect()

    assert pool.snapshot()[0].in_flight == 0


# Time


@pytest.mark.virtual_time(autojump_threshold=0.02)
async def test_an_attempt_takes_no_longer_than_its_endpoint_allows(anyio_backend, ask, serve):
    """And the next member answers.

    [pools 54]
    """
    replies = {"eastus": Reply(gates={"headers": Gate()}), "westus": Reply("Hello")}
    facts = {"eastus": {"timeout": 3.0}, "westus": {"priority": 2}}
    async with serve(replies, facts=facts) as regions:
        response = await ask(PooledChatClient(regions.pool))

    assert routes(response) == ["EASTUS", "WESTUS"]
    (failed, _) = response.attempts
    assert failed.failure.kind is FailureKind.TIMEOUT
    assert failed.exception.args[0].startswith("endpoint 'EASTUS' did not answer in 3.0 s")


@pytest.mark.virtual_time(autojump_threshold=0.02)
async def test_the_budget_cuts_an_attempt_short_and_blames_nobody(anyio_backend, ask, serve):
    """[pools 54]."""
    replies = {"eastus": Reply(gates={"headers": Gate()}), "westus": Reply()}
    async with serve(replies, facts=TIERS, policy=PoolPolicy(total_budget=10)) as regions:
        began = anyio.current_time()
        with pytest.raises(AttemptTimeoutError, match="total_budget of 10 s ran out"):
            await ask(PooledChatClient(regions.pool))

        assert anyio.current_time() - began == pytest.approx(10, abs=1)
        assert states(regions.pool)["EASTUS"].status is EndpointStatus.READY
        assert regions.counts == {"eastus": 1, "westus": 0}


@pytest.mark.virtual_time(autojump_threshold=0.02)
async def test_the_budget_ends_a_request_with_the_last_error(anyio_backend, ask, serve):
    """[pools 54] [pools 56] [pools section 4: two stacked retry clocks restart the deadline]."""
    policy = PoolPolicy(total_budget=9, wake_jitter=0)
    refuse = partial(Reply.error, 429)
    async with serve(
        {"eastus": [refuse()] * 9, "westus": [refuse()] * 9}, policy=policy
    ) as regions:
        began = anyio.current_time()
        with pytest.raises(RateLimitError):
            await ask(PooledChatClient(regions.pool))

        # At 0, at 2 and at 6 s; the next would be at 14 s, which is not waited for.
        assert anyio.current_time() - began == pytest.approx(6, abs=0.5)
        assert sum(regions.counts.values()) == 6


@pytest.mark.virtual_time(autojump_threshold=0.02)
async def test_the_first_to_recover_is_waited_for(anyio_backend, ask, serve):
    """[pools 56]."""
    replies = {
        "eastus": [Reply.error(429, retry_after=8), Reply("Hello")],
        "westus": [Reply.error(429, retry_after=30)],
    }
    policy = PoolPolicy(wake_jitter=0)
    async with serve(replies, policy=policy) as regions:
        began = anyio.current_time()
        response = await ask(PooledChatClient(regions.pool))

        assert (response.text, response.attempts[-1].route) == ("Hello", "EASTUS")
        assert anyio.current_time() - began == pytest.approx(8, abs=0.5)


async def test_a_hopeless_wait_is_not_begun(anyio_backend, ask, serve):
    """The error of the provider is raised at once, with the hint.

    [pools 55] [pools B12]
    """
    policy = PoolPolicy(total_budget=5, max_retry_after=3600)
    refuse = Reply.error(429, retry_after=600)
    async with serve({"eastus": refuse, "westus": refuse}, policy=policy) as regions:
        client = PooledChatClient(regions.pool)
        with pytest.raises(RateLimitError) as caught:
            await ask(client)
        with pytest.raises(PoolExhaustedError) as refused:
            await ask(client)

        assert caught.value.retry_after == 600
        assert refused.value.retry_after == pytest.approx(600, abs=5)
        assert regions.counts == {"eastus": 1, "westus": 1}


async def test_the_requests_own_deadline_counts_too(anyio_backend, ask, serve):
    """A wait that would outlast it is not begun.

    [pools 55] [pools section 4: all cooling, fail or wait]
    """
    refuse = Reply.error(429, retry_after=60)
    async with serve({"eastus": refuse, "westus": refuse}) as regions:
        client = PooledChatClient(regions.pool)
        options = ChatOptions(routing=RoutingHints(timeout=20))
        with pytest.raises(RateLimitError):
            await ask(client, "Hi", options)
        with pytest.raises(PoolExhaustedError), anyio.fail_after(20):
            await ask(client)


@pytest.mark.virtual_time
async def test_the_requests_own_deadline_cuts_an_attempt_off(anyio_backend, ask):
    """It is the router's to tell, and says nothing about the member."""
    pool = EndpointPool({"a": ScriptedChatClient(waits_forever())})
    began = anyio.current_time()
    with pytest.raises(RequestTimeoutError):
        await ask(PooledChatClient(pool), "Hi", ChatOptions(routing=RoutingHints(timeout=5)))
    assert anyio.current_time() - began == pytest.approx(5, abs=0.1)
    assert pool.snapshot()[0].consecutive_faults == 0


@pytest.mark.virtual_time
async def test_an_endpoints_own_limit_holds_where_nobody_else_can_cut_off(anyio_backend):
    """Somebody may shield the pool from the deadline of the request."""

    class Shielding(DelegatingChatClient):
        async def get_response(self, messages, options=None):
            with anyio.CancelScope(shield=True):
                return await self.inner.get_response(messages, options)

    pool = EndpointPool({Endpoint("a", timeout=20): ScriptedChatClient(waits_forever())})
    router = OrderedFailoverChatClient([Shielding(PooledChatClient(pool))])
    began = anyio.current_time()
    with pytest.raises(RequestTimeoutError):
        await router.get_response("Hi", ChatOptions(routing=RoutingHints(timeout=5)))
    assert anyio.current_time() - began == pytest.approx(20, abs=0.1)


async def test_the_policy_may_forbid_waiting(anyio_backend, ask, serve):
    """[pools section 4: no machine-readable hint on exhaustion]."""
    policy = PoolPolicy(when_all_cooling="raise")
    async with serve({"eastus": Reply.error(429), "westus": Reply.error(429)}, policy=policy) as (
        regions
    ):
        client = PooledChatClient(regions.pool)
        with pytest.raises(RateLimitError):
            await ask(client)
        with pytest.raises(PoolExhaustedError) as caught:
            await ask(client)

        assert 0 < caught.value.retry_after <= 2
        assert regions.counts == {"eastus": 1, "westus": 1}


async def test_waiting_ends_at_once_when_the_caller_gives_up(anyio_backend, ask, serve, caplog):
    """[pools B11]."""
    caplog.set_level(logging.INFO, "chatrouting.pool")
    refuse = Reply.error(429, retry_after=60)
    async with serve({"eastus": refuse, "westus": refuse}) as regions:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, PooledChatClient(regions.pool))
            for server in regions.servers.values():
                await server.wait_for_requests(1)
            while "pool.throttled" not in caplog.text or regions.in_flight:
                await checkpoint()
            await anyio.wait_all_tasks_blocked()
            began = anyio.current_time()
            group.cancel_scope.cancel()

        assert anyio.current_time() - began < 1
        assert regions.in_flight == 0
        assert regions.counts == {"eastus": 1, "westus": 1}


@pytest.mark.virtual_time(autojump_threshold=0.02)
async def test_waiters_do_not_come_back_at_one_moment(anyio_backend, serve):
    """[pools 43] [pools B14]."""
    arrivals = []

    def answer(request):
        arrivals.append(anyio.current_time())
        return Reply()

    refuse = Reply.error(429, retry_after=10)
    async with serve(
        {"eastus": [refuse, answer], "westus": [refuse]}, facts={"westus": {"priority": 2}}
    ) as regions:
        client = PooledChatClient(regions.pool)
        async with anyio.create_task_group() as group:
            for _ in range(12):
                group.start_soon(client.get_response, "Hi")

    assert len(arrivals) >= 12
    assert max(arrivals) - min(arrivals) > 0.05


@pytest.mark.virtual_time(autojump_threshold=0.02)
async def test_time_in_the_queue_counts_and_the_member_is_looked_at_again(anyio_backend, serve):
    """Requests that queued for a slot of a member do not stampede it once it is throttled.

    [pools 23] [pools B13]
    """
    gate = Gate()
    replies = {
        "eastus": [
            Reply.error(
                429,
                retry_after=50,
            ),
            Reply("late"),
        ],
        "westus": [Reply("Hello", gates={"headers": gate})] + [Reply("Hello")] * 9,
    }
    facts = {"eastus": {"max_concurrency": 1}, "westus": {"priority": 2, "max_concurrency": 1}}
    async with serve(replies, facts=facts, policy=PoolPolicy(total_budget=30)) as regions:
        client = PooledChatClient(regions.pool)
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(client.get_response, "Hi")
            await gate.reached()
            gate.open()

        assert regions.counts["eastus"] == 1
        assert regions.counts["westus"] == 5
        assert regions.in_flight == 0


# A pool of one


@pytest.mark.virtual_time(autojump_threshold=0.02)
async def test_a_pool_of_one_asks_again_after_a_wait(anyio_backend, ask, serve, caplog):
    """No cooldown, no counters, and no line of the pool's in the log.

    [pools 57]
    """
    caplog.set_level(logging.DEBUG, "chatrouting")
    replies = [Reply.error(429, retry_after=7), Reply.error(503), Reply("Hello")]
    async with serve({"eastus": replies}) as regions:
        began = anyio.current_time()
        response = await ask(PooledChatClient(regions.pool))
        state = states(regions.pool)["EASTUS"]

        assert routes(response) == ["EASTUS", "EASTUS", "EASTUS"]
        assert 7 <= anyio.current_time() - began <= 7 + 2 + 4 + 1
        assert (state.status, state.consecutive_429s) == (EndpointStatus.READY, 0)
    names = {record.name for record in caplog.records}
    assert "chatrouting.retry" in names
    assert "chatrouting.pool" not in names


@pytest.mark.virtual_time(autojump_threshold=0.02)
async def test_a_pool_of_one_tries_as_often_as_its_endpoint_says(anyio_backend, ask, serve):
    """[pools 57]."""
    facts = {"eastus": {"max_retries": 2}}
    async with serve({"eastus": [Reply.error(500)] * 9}, facts=facts) as regions:
        with pytest.raises(InternalServerError):
            await ask(PooledChatClient(regions.pool, rng=lambda: 1.0))

        assert regions.counts == {"eastus": 3}


@pytest.mark.virtual_time(autojump_threshold=0.02)
async def test_a_pool_of_one_asks_again_after_a_broken_connection(anyio_backend, ask, serve):
    """The classification of a larger pool.

    [pools 58]
    """
    async with serve({"eastus": [Reply(drop_at="headers"), Reply("Hello")]}) as regions:
        response = await ask(PooledChatClient(regions.pool))

    assert routes(response) == ["EASTUS", "EASTUS"]


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_pool_of_one_does_not_ask_again_what_does_not_pass(
    anyio_backend, ask, serve, status
):
    """[pools 57]."""
    async with serve({"eastus": Reply.error(status)}, policy=RESILIENT) as regions:
        with pytest.raises((BadRequestError, AuthenticationError, NotFoundError)):
            await ask(PooledChatClient(regions.pool))

        assert regions.counts == {"eastus": 1}
        assert states(regions.pool)["EASTUS"].status is EndpointStatus.READY


async def test_a_pool_of_one_begins_no_wait_that_outlasts_the_budget(anyio_backend, ask, serve):
    """[pools 57] [pools B12]."""
    async with serve(
        {"eastus": Reply.error(429, retry_after=60)}, policy=PoolPolicy(total_budget=30)
    ) as regions:
        with pytest.raises(RateLimitError), anyio.fail_after(10):
            await ask(PooledChatClient(regions.pool))

        assert regions.counts == {"eastus": 1}


async def test_a_wait_in_a_pool_of_one_is_cancellable(anyio_backend, ask, serve, caplog):
    """[pools 57]."""
    caplog.set_level(logging.INFO, "chatrouting.retry")
    async with serve({"eastus": Reply.error(429, retry_after=60)}) as regions:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, PooledChatClient(regions.pool))
            while "retry.wait" not in caplog.text:
                await checkpoint()
            began = anyio.current_time()
            group.cancel_scope.cancel()

        assert anyio.current_time() - began < 1
        assert regions.in_flight == 0


# Members, names, nesting


async def test_a_member_may_be_any_chat_client(anyio_backend, ask):
    """Also a pool, and without a URL.

    [pools 59]
    """
    inner = EndpointPool(
        {"a": ScriptedChatClient(fails(OverloadedError("no"))), "b": ScriptedChatClient("Hello")},
        clock=anyio.current_time,
    )
    first = Endpoint("first", priority=1)
    second = Endpoint("second", priority=2)
    pool = EndpointPool(
        {first: ScriptedChatClient(fails(RateLimitError("no"))), second: PooledChatClient(inner)},
        clock=anyio.current_time,
    )
    response = await ask(PooledChatClient(pool))

    assert response.text == "Hello"
    assert routes(response) == ["first", "second"]
    assert {attempt.route for attempt in response.attempts[1].children} <= {"a", "b"}
    assert sum(state.in_flight for state in (*pool.snapshot(), *inner.snapshot())) == 0


async def test_an_exhausted_pool_is_a_refusal_that_a_failover_passes_by(anyio_backend, ask):
    """It cost nothing and says when to come back.

    [pools section 4: nested in the wrong order]
    """
    pool = EndpointPool(
        {
            "a": ScriptedChatClient(fails(RateLimitError("no", status_code=429, retry_after=50))),
            "b": ScriptedChatClient(fails(RateLimitError("no", status_code=429, retry_after=60))),
        },
        policy=PoolPolicy(when_all_cooling="raise"),
        clock=anyio.current_time,
    )
    pooled = PooledChatClient(pool)
    router = OrderedFailoverChatClient({"azure": pooled, "claude": ScriptedChatClient("Hi")})
    first, second = await ask(router), await ask(router)

    assert [attempt.outcome for attempt in first.attempts] == [
        AttemptOutcome.FAILED,
        AttemptOutcome.COMPLETED,
    ]
    assert [attempt.outcome for attempt in second.attempts] == [
        AttemptOutcome.REFUSED_LOCALLY,
        AttemptOutcome.COMPLETED,
    ]
    assert second.attempts[0].failure.retry_after == pytest.approx(50, abs=5)


async def test_a_client_may_be_wrapped(anyio_backend, ask, serve):
    def wrap(endpoint, client):
        return ConfigureOptionsChatClient(
            client, lambda options: options.replace(metadata={"endpoint": endpoint.id})
        )

    async with serve({"eastus": Reply(), "westus": Reply()}, wrap=wrap, facts=TIERS) as regions:
        await ask(PooledChatClient(regions.pool))

        assert regions["eastus"].requests[0].body["metadata"] == {"endpoint": "EASTUS"}


async def test_a_refusal_of_a_member_on_this_side_is_passed_by(anyio_backend, ask):
    """It is neither asked again by this request nor blamed."""
    refusing = ScriptedChatClient.per_call(fails(NoEndpointAvailableError("no")), "Hello")
    first = Endpoint("first", priority=1)
    second = Endpoint("second", priority=2)
    pool = EndpointPool(
        {first: refusing, second: ScriptedChatClient("Hi")}, clock=anyio.current_time
    )
    client = PooledChatClient(pool)
    response, again = await ask(client), await ask(client)

    assert [attempt.outcome for attempt in response.attempts] == [
        AttemptOutcome.REFUSED_LOCALLY,
        AttemptOutcome.COMPLETED,
    ]
    assert again.text == "Hello"


async def test_if_every_member_refuses_the_last_refusal_is_raised(anyio_backend, ask):
    refusal = NoEndpointAvailableError("last")
    first = Endpoint("first", priority=1)
    second = Endpoint("second", priority=2)
    pool = EndpointPool(
        {
            first: ScriptedChatClient(fails(NoEndpointAvailableError("no"))),
            second: ScriptedChatClient(fails(refusal)),
        },
        clock=anyio.current_time,
    )
    with pytest.raises(NoEndpointAvailableError) as caught:
        await ask(PooledChatClient(pool))

    assert caught.value is refusal


async def test_the_bare_endpoint_has_a_name(anyio_backend, ask):
    pool = EndpointPool({"": ScriptedChatClient("Hello"), "x": ScriptedChatClient("Hello")})
    client = PooledChatClient(pool)
    response = await ask(client)

    assert routes(response)[0] in ("bare", "x")
    assert set(client.routes) == {"bare", "x"}
    with pytest.raises(ConfigurationError, match="'bare'"):
        PooledChatClient(EndpointPool({"": ScriptedChatClient(), "bare": ScriptedChatClient()}))


async def test_new_keys_and_new_endpoints_are_used_at_once(anyio_backend, ask, serve):
    """[pools B18]."""
    async with serve({"eastus": [Reply(), Reply()]}) as regions, ProviderServer() as server:
        client = PooledChatClient(regions.pool)
        await ask(client)
        (old,) = regions.pool.endpoints
        new = Endpoint(
            "NEW", server.url, deployment="d", api_version="v", priority=0, auth=ApiKey("k")
        )
        regions.pool.replace_endpoints([old, new])
        response = await ask(client)

        assert routes(response) == ["NEW"]
        assert set(client.routes) == {"EASTUS", "NEW"}


async def test_an_endpoint_that_joins_during_a_request_is_not_asked_by_it(anyio_backend, ask):
    """A key that is replaced is used by it, though."""
    old = Endpoint("old", priority=1, auth=ApiKey("1"))

    def making(endpoint):
        return Replacing() if endpoint.auth == ApiKey("1") else ScriptedChatClient(endpoint.id)

    class Replacing:
        async def get_response(self, messages, options=None):
            replace()
            raise OverloadedError("no")

        def get_streaming_response(self, messages, options=None):
            async def updates():
                replace()
                raise OverloadedError("no")
                yield

            return updates()

        def get_service(self, service_type, service_key=None):
            return None

        async def aclose(self):
            pass

    def replace():
        pool.replace_endpoints(
            [
                Endpoint("old", priority=1, auth=ApiKey("2")),
                Endpoint("new", priority=0),
                Endpoint("older", priority=2),
            ]
        )

    pool = EndpointPool(
        [old, Endpoint("older", priority=2)], client_factory=making, clock=anyio.current_time
    )
    client = PooledChatClient(pool)
    response = await ask(client)

    assert routes(response) == ["old", "older"]
    assert routes(await ask(client)) == ["new"]


@pytest.mark.virtual_time
async def test_an_endpoint_that_joins_during_a_wait_is_not_asked_by_it(anyio_backend, ask):
    """The request goes on waiting for those that it knows."""
    late = Endpoint("new")
    members = {"a": ScriptedChatClient("a"), "b": ScriptedChatClient("b")}
    pool = EndpointPool(members, clock=anyio.current_time)
    for _ in range(2):
        pool.failed(pool.pick(), RateLimitError("slow down", status_code=429))
    client = PooledChatClient(pool)

    async with anyio.create_task_group() as group:

        async def join():
            pool.replace_endpoints([*pool.endpoints, late])

        group.start_soon(join)
        response = await ask(client)

    assert routes(response) in (["a"], ["b"])
    assert all(state.in_flight == 0 for state in pool.snapshot())


async def test_closing_the_client_leaves_the_pool_open(anyio_backend, ask, serve):
    """A pool is closed by who made it."""
    async with serve({"eastus": [Reply(), Reply()]}) as regions:
        client = PooledChatClient(regions.pool)
        await client.aclose()
        with pytest.raises(ClientClosedError):
            await ask(client)
        await ask(PooledChatClient(regions.pool))


async def test_a_member_can_be_asked_by_itself(anyio_backend, ask, serve):
    async with serve({"eastus": Reply("Hello"), "westus": Reply()}) as regions:
        client = PooledChatClient(regions.pool)
        response = await ask(client.routes["EASTUS"])

        assert response.text == "Hello"
        assert regions.in_flight == 0


def test_a_pool_is_wanted():
    with pytest.raises(TypeError, match="expected an EndpointPool"):
        PooledChatClient([ScriptedChatClient()])


# Slots, wherever a request ends


def test_a_stream_dropped_after_its_loop_gives_its_slot_back(backend):
    """There is no event loop left to do it."""
    pool = EndpointPool({Endpoint("a", max_concurrency=1): ScriptedChatClient("Hel", "lo")})

    async def leave():
        stream = PooledChatClient(pool).get_streaming_response("Hi")
        await anext(stream)
        return stream

    left = [anyio.run(leave, backend=backend)]
    assert pool.snapshot()[0].in_flight == 1
    with pytest.warns(ResourceWarning, match="without being read to its end"):
        left.clear()
        gc.collect()

    assert pool.snapshot()[0].in_flight == 0


@pytest.fixture(params=["asyncio", "trio"])
def backend(request):
    """Return the name of an event loop, for tests that start it themselves."""
    return request.param


@pytest.mark.parametrize("limit", [60.0, None])
async def test_a_coroutine_that_is_thrown_away_gives_its_slot_back(anyio_backend, limit):
    class Never:
        def __await__(self):
            yield

    class Waiting(DelegatingChatClient):
        async def get_response(self, messages, options=None):
            await Never()

        def get_streaming_response(self, messages, options=None):
            return ResponseStream(Updates())

    class Updates:
        def __aiter__(self):
            return self

        async def __anext__(self):
            await Never()

    pool = EndpointPool(
        {Endpoint("a", timeout=limit): Waiting(ScriptedChatClient())},
        policy=PoolPolicy(total_budget=None),
        clock=anyio.current_time,
    )
    client = PooledChatClient(pool)
    stream = client.get_streaming_response("Hi")
    for coroutine in (client.get_response("Hi"), stream.__anext__()):
        coroutine.send(None)
        assert pool.snapshot()[0].in_flight == 1
        coroutine.close()
        await anyio.sleep(0.01)
        assert pool.snapshot()[0].in_flight == 0


# What the policy looks at


async def test_the_same_key_finds_the_same_member(anyio_backend, ask):
    """Of a hint, or of what an agent's calls begin with.

    [pools section 4: balancing destroys prompt caching]
    """
    pool = EndpointPool(
        {f"m{number}": ScriptedChatClient("Hello") for number in range(5)},
        policy=PoolPolicy(strategy="affinity"),
    )
    client = PooledChatClient(pool)
    hinted = ChatOptions(routing=RoutingHints(affinity_key="session 7"))
    instructed = ChatOptions(instructions="You are an agent.")
    for options in (hinted, instructed):
        asked = {routes(await ask(client, "Hi", options))[0] for _ in range(8)}
        assert len(asked) == 1


async def test_a_member_whose_limit_is_used_up_is_passed_over(anyio_backend, ask):
    """By our own estimate of prompt and answer.

    [pools 31]
    """
    clients = {
        Endpoint("small", tpm=1000): ScriptedChatClient("Hello"),
        Endpoint("large", tpm=100_000): ScriptedChatClient("Hello"),
    }
    pool = EndpointPool(clients, policy=PoolPolicy(enforce_tpm=True), clock=anyio.current_time)
    client = PooledChatClient(pool)
    options = ChatOptions(max_output_tokens=900)
    asked = [routes(await ask(client, "a" * 800, options))[0] for _ in range(6)]

    assert set(asked) == {"large"}


async def test_the_selection_can_be_asked_by_itself(anyio_backend):
    pool = EndpointPool({"a": ScriptedChatClient(), "b": ScriptedChatClient()})
    client = PooledChatClient(pool)

    assert client.pool is pool
    assert await client.select_client(RoutingContext("Hi")) in ("a", "b")


async def test_a_member_answers_for_what_it_asks(anyio_backend):
    inner = ScriptedChatClient("Hello", metadata=ClientMetadata("azure", "gpt-4o"))
    pool = EndpointPool({"a": inner})
    (member,) = PooledChatClient(pool).routes.values()

    assert member.get_service(ClientMetadata) == ClientMetadata("azure", "gpt-4o")
    assert member.get_service(Endpoint).id == "a"
    assert member.get_service(type(member)) is member
    await member.aclose()
    assert inner.close_count == 0
    assert endpoint_of(RoutingAttempt(client=inner)) is None


async def test_commit_on_update_hands_out_the_first_update_of_any_kind(anyio_backend):
    pool = EndpointPool(
        {
            "a": ScriptedChatClient(update(), fails(OverloadedError("late"))),
            "b": ScriptedChatClient(update(), fails(OverloadedError("late"))),
        }
    )
    stream = PooledChatClient(pool, commit_on="update").get_streaming_response("Hi")
    async with stream:
        assert (await anext(stream)).text == ""
        with pytest.raises(OverloadedError):
            await anext(stream)

    assert len(stream.attempts) == 1


async def test_one_probe_reaches_a_member_that_failed_and_the_others_go_elsewhere(
    anyio_backend, serve
):
    """Judged by what the servers count, not by what the pool says of itself. [BR-45] [BR-46]"""
    clock, gate = ManualClock(), Gate()
    replies = {
        "eastus": [Reply(status=500), Reply(gates={"headers": gate}), Reply("back")],
        "westus": Reply("elsewhere"),
    }
    policy = PoolPolicy(probe_concurrency=1)
    async with serve(replies, facts=TIERS, policy=policy, clock=clock) as regions:
        client = PooledChatClient(regions.pool)
        assert (await client.get_response("Hi")).text == "elsewhere"
        clock.advance(60)
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(client.get_response, "Hi")
            await gate.reached()
            while regions.counts["westus"] < 50:
                await checkpoint()
            assert regions.counts == {"eastus": 2, "westus": 50}
            group.cancel_scope.cancel()

        assert (await client.get_response("Hi")).text == "back"
        assert regions.counts == {"eastus": 3, "westus": 50}
