"""Reports about attempts that were judged too early, too late, or against the wrong party."""

import asyncio
import contextlib
import gc

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    FailoverChatClient,
    OrderedFailoverChatClient,
    RetryChatClient,
    RoutingChatClient,
)
from chatrouting.errors import NoClientSelectedError, OverloadedError
from chatrouting.failure import FailureKind, FailureScope
from chatrouting.testing import ScriptedChatClient, fails, waits_forever

FAILED, COMPLETED = AttemptOutcome.FAILED, AttemptOutcome.COMPLETED
CANCELLED, ABANDONED = AttemptOutcome.CANCELLED, AttemptOutcome.ABANDONED


@pytest.mark.parametrize("source", ["object", "generator", "ready", "unclosable"])
@pytest.mark.parametrize("bare", [False, True], ids=["stream", "iterator"])
async def test_an_error_of_the_first_pull_is_retried_and_then_failed_over(source, bare):
    """[BR-04] The attempt lasts until the stream ends, not until the generator is made."""
    first = ScriptedChatClient(fails(ConnectionError), source=source, bare=bare)
    second = ScriptedChatClient("ok", source=source, bare=bare)
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    retry = RetryChatClient(first, maximum_attempts_per_request=3, sleep=sleep)
    router = OrderedFailoverChatClient({"retry": retry, "second": second})

    async with router.get_streaming_response("Hi") as stream:
        response = await stream.get_final_response()

    assert response.text == "ok"
    assert len(first.calls) == 3
    assert len(waits) == 2
    assert [attempt.outcome for attempt in response.attempts] == [FAILED, COMPLETED]
    assert [child.outcome for child in response.attempts[0].children] == [FAILED] * 3


async def test_a_consumer_that_stops_after_one_update_leaves_one_record(log):
    """[BR-20]"""
    router = OrderedFailoverChatClient([ScriptedChatClient("a", "b")], on_routing_update=log)

    async with router.get_streaming_response("Hi") as stream:
        async for _ in stream:
            break
        assert log.attempts == []

    assert log.outcomes == [ABANDONED]
    assert log.terminals == [True]


async def test_a_consumer_that_stops_at_the_error_leaves_one_record_told_before_the_error():
    """[BR-20] The record is out before the error is handed over; closing adds none."""
    order = []
    router = OrderedFailoverChatClient(
        [ScriptedChatClient("a", fails(OverloadedError))],
        on_routing_update=lambda _, attempt, is_terminal: order.append(attempt.outcome),
    )

    async with router.get_streaming_response("Hi") as stream:
        try:
            async for _ in stream:
                pass
        except OverloadedError:
            order.append("error")

    assert order == [FAILED, "error"]


async def test_the_record_of_an_answer_is_told_before_its_end():
    """[BR-20]"""
    order = []
    router = OrderedFailoverChatClient(
        [ScriptedChatClient("a")],
        on_routing_update=lambda _, attempt, is_terminal: order.append(attempt.outcome),
    )

    async with router.get_streaming_response("Hi") as stream:
        async for update in stream:
            order.append(update.text)
        order.append("end")

    assert order == ["a", COMPLETED, "end"]


async def test_a_stream_that_nobody_reads_began_no_request(log):
    """[BR-20] Neither closed nor dropped: there was no attempt to record."""
    client = ScriptedChatClient("a")
    router = OrderedFailoverChatClient([client], on_routing_update=log)

    async with router.get_streaming_response("Hi"):
        pass
    router.get_streaming_response("Hi")
    gc.collect()

    assert log.attempts == []
    assert client.calls == []


@contextlib.asynccontextmanager
async def given_up_by_a_scope():
    with anyio.move_on_after(0.05) as scope:
        yield
    assert scope.cancelled_caught


@contextlib.asynccontextmanager
async def given_up_by_asyncio():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            yield


@pytest.mark.virtual_time
@pytest.mark.parametrize("depth", [1, 2])
async def test_an_impatient_caller_says_nothing_about_the_client(anyio_backend, answer, log, depth):
    """[BR-38] Ten callers give up after 50 ms; the next one finds the client as it was."""
    ways = [given_up_by_a_scope]
    if anyio_backend[0] == "asyncio":
        ways.append(given_up_by_asyncio)
    for give_up in ways:
        first = ScriptedChatClient.per_call(*[[waits_forever()]] * 10, "ok")
        second = ScriptedChatClient("never")
        router = OrderedFailoverChatClient({"a": first, "b": second}, on_routing_update=log)
        for _ in range(depth - 1):
            router = OrderedFailoverChatClient([router])
        log.attempts.clear()

        for _ in range(10):
            async with give_up():
                await answer(router)

        assert log.outcomes == [CANCELLED] * 10
        for attempt in log.attempts:
            assert attempt.failure.kind is FailureKind.CANCELLED
            assert attempt.failure.scope not in (FailureScope.DEPLOYMENT, FailureScope.PROVIDER)
        assert (await answer(router)).text == "ok"
        assert log.outcomes == [CANCELLED] * 10 + [COMPLETED]
        assert second.calls == []


class Ends:
    """Mixed into a router: remembers how its requests ended."""

    ended = None

    async def on_request_ended(self, context, exception):
        self.ended = [*(self.ended or []), exception]


async def test_a_request_without_any_client_is_nobodys_failure(answer, log):
    """[BR-37] An error of its own type, no record, and the end is told."""

    class Nobody(Ends, RoutingChatClient):
        async def select_client(self, context):
            return None

    router = Nobody(on_routing_update=log)
    with pytest.raises(NoClientSelectedError, match="select_client returned None") as caught:
        await answer(router)

    assert log.attempts == []
    assert router.ended == [caught.value]


async def test_running_out_of_clients_later_is_the_last_clients_error(answer, log):
    """[BR-37] Selecting nobody adds no record to those of the clients that were asked."""
    error = OverloadedError("busy")

    class OneOnly(Ends, FailoverChatClient):
        async def select_client(self, context):
            return None if context.attempts else context.remaining[0]

    router = OneOnly(routes=[ScriptedChatClient(fails(error))], on_routing_update=log)
    with pytest.raises(OverloadedError) as caught:
        await answer(router)

    assert caught.value is error
    assert log.outcomes == [FAILED]
    assert router.ended == [error]
