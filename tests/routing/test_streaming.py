"""Streams through routers: where they commit, how they end, and what is said of it."""

import asyncio
import gc
from contextlib import aclosing

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    DataContent,
    FailoverChatClient,
    OrderedFailoverChatClient,
    ReasoningContent,
    RefusalContent,
    Role,
    RoutingChatClient,
    ToolCallContent,
    ToolResultContent,
    UriContent,
    Usage,
)
from chatrouting.errors import OverloadedError, StreamClosedError
from chatrouting.testing import (
    ManualClock,
    ScriptedChatClient,
    fails,
    finishes,
    raises_on_call,
    raises_on_close,
    raises_on_iter,
    runs,
    update,
    waits_forever,
)

ROLE = update(role=Role.ASSISTANT)
TOOL_NAME = update(ToolCallContent("call-1", "search", {}, raw_arguments=""))
QUIET = {
    "role": ROLE,
    "message id": update(message_id="m"),
    "usage": update(usage=Usage(input_tokens=3)),
    "empty text": update(""),
    "empty reasoning": update(ReasoningContent("")),
    "tool name": TOOL_NAME,
    "finish reason": update(finish_reason="stop"),
}
OUTPUT = {
    "text": update("a"),
    "reasoning": update(ReasoningContent("hm")),
    "refusal": update(RefusalContent("no")),
    "data": update(DataContent(b"x", "image/png")),
    "link": update(UriContent("https://example.org", "image/png")),
    "tool result": update(ToolResultContent("call-1", "42")),
    "tool arguments": update(ToolCallContent("call-1", "", {}, raw_arguments='{"q"')),
    "whole tool call": update(ToolCallContent("call-1", "search", {"q": "x"})),
    "whole tool call without arguments": update(ToolCallContent("call-1", "now", {})),
}
each_quiet = pytest.mark.parametrize("quiet", QUIET.values(), ids=QUIET.keys())
each_output = pytest.mark.parametrize("output", OUTPUT.values(), ids=OUTPUT.keys())


async def read(client):
    async with client.get_streaming_response("Hi") as stream:
        return [each async for each in stream]


async def texts(client):
    return [each.text for each in await read(client)]


async def read_until_it_breaks(client, error):
    """Return what was handed out before `error`, which must be that very object."""
    seen = []
    async with client.get_streaming_response("Hi") as stream:
        with pytest.raises(type(error)) as raised:
            async for each in stream:
                seen.append(each)
    assert raised.value is error
    return seen


async def test_a_failure_before_output_is_raised_where_the_limit_is_one(log):
    """[routing 51]"""
    error = OverloadedError("busy")
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(error)), ScriptedChatClient("never")],
        maximum_attempts_per_request=1,
        on_routing_update=log,
    )

    assert await read_until_it_breaks(router, error) == []
    [attempt] = log.attempts
    assert attempt.exception is error
    assert not attempt.output_committed
    assert not attempt.response_completed


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param([fails(OverloadedError)], id="first read"),
        pytest.param([raises_on_call(OverloadedError)], id="the method"),
        pytest.param([raises_on_iter(OverloadedError)], id="aiter"),
        pytest.param([ROLE, fails(OverloadedError)], id="after an update without output"),
        pytest.param([raises_on_close(OverloadedError)], id="close of an empty stream"),
        pytest.param([ROLE, raises_on_close(OverloadedError)], id="close without output"),
    ],
)
async def test_a_stream_that_fails_before_output_fails_over(log, failure):
    """[routing 52-55, 57] Only the updates of the client that answers are seen."""
    first, second = ScriptedChatClient(*failure), ScriptedChatClient("a", "b")
    router = OrderedFailoverChatClient([first, second], on_routing_update=log)

    assert await texts(router) == ["a", "b"]
    assert first.pending == 0
    assert log.outcomes == [AttemptOutcome.FAILED, AttemptOutcome.COMPLETED]
    failed = log.attempts[0]
    assert isinstance(failed.exception, OverloadedError)
    assert (failed.output_committed, failed.time_to_first_update) == (False, None)


async def test_a_stream_whose_first_read_fails_is_closed_once():
    """[routing 55]"""
    first = ScriptedChatClient(fails(OverloadedError))

    await read(OrderedFailoverChatClient([first, ScriptedChatClient("ok")]))

    assert (first.streams_opened, first.streams_closed) == (1, 1)


async def test_an_empty_stream_that_ends_cleanly_is_a_success(log):
    """[routing 56]"""
    second = ScriptedChatClient("never")
    router = OrderedFailoverChatClient([ScriptedChatClient(), second], on_routing_update=log)

    assert await read(router) == []
    [attempt] = log.attempts
    assert (attempt.outcome, attempt.exception) == (AttemptOutcome.COMPLETED, None)
    assert attempt.response_completed
    assert not attempt.output_committed
    assert log.terminals == [True]
    assert second.calls == []


async def test_a_stream_of_updates_without_output_is_a_success(log):
    """[routing 56] What was held back is handed out at the clean end; nothing was committed."""
    given = [ROLE, update(finish_reason="stop")]
    router = OrderedFailoverChatClient([ScriptedChatClient(*given)], on_routing_update=log)

    assert await read(router) == given
    [attempt] = log.attempts
    assert attempt.response_completed
    assert (attempt.output_committed, attempt.time_to_first_update) == (False, None)


@pytest.mark.parametrize("source", ["object", "generator", "ready", "unclosable"])
async def test_a_client_may_return_any_async_iterator(source):
    """[routing 71] It is wrapped once, and closed if it can be."""
    client = ScriptedChatClient("a", "b", source=source, bare=True)

    assert await texts(OrderedFailoverChatClient([client])) == ["a", "b"]
    assert client.streams_closed == (0 if source == "unclosable" else 1)


async def test_an_iterator_without_aclose_can_be_closed_early(log):
    """[routing 71]"""
    client = ScriptedChatClient("a", "b", source="unclosable")
    router = OrderedFailoverChatClient([client], on_routing_update=log)

    async with router.get_streaming_response("Hi") as stream:
        await anext(stream)

    assert log.outcomes == [AttemptOutcome.ABANDONED]


@each_quiet
async def test_an_update_without_output_is_held_back(quiet):
    """[routing 61] Another client may still answer."""
    first = ScriptedChatClient(quiet, fails(OverloadedError))

    assert await texts(OrderedFailoverChatClient([first, ScriptedChatClient("ok")])) == ["ok"]


@each_output
async def test_output_commits(log, output):
    """[routing 61, 62] Whatever the limit says, nobody else is asked."""
    error, second = OverloadedError("busy"), ScriptedChatClient("never")
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(output, fails(error)), second],
        maximum_attempts_per_request=9,
        on_routing_update=log,
    )

    assert await read_until_it_breaks(router, error) == [output]
    assert second.calls == []
    assert log.attempts[0].output_committed
    assert log.terminals == [True]


@each_quiet
async def test_with_commit_on_update_any_update_commits(log, quiet):
    """[routing 61] As in the reference."""
    error, second = OverloadedError("busy"), ScriptedChatClient("never")
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(quiet, fails(error)), second],
        commit_on="update",
        on_routing_update=log,
    )

    assert await read_until_it_breaks(router, error) == [quiet]
    assert second.calls == []
    assert log.attempts[0].output_committed


@pytest.mark.parametrize("commit_on", ["content", "update"])
async def test_updates_come_in_order_whatever_was_held_back(commit_on):
    given = [ROLE, TOOL_NAME, update("a"), update(""), update("b"), update(finish_reason="stop")]
    router = OrderedFailoverChatClient([ScriptedChatClient(*given)], commit_on=commit_on)

    seen = await read(router)

    assert [id(each) for each in seen] == [id(each) for each in given]


async def test_nothing_that_a_failed_client_sent_is_seen():
    first = ScriptedChatClient(ROLE, update(message_id="m-1"), fails(OverloadedError))
    second = ScriptedChatClient(ROLE, "ok")

    assert await read(OrderedFailoverChatClient([first, second])) == [ROLE, update("ok")]


async def test_a_plain_router_commits_on_the_first_update(log):
    """It cannot turn to anybody else, so that it has no reason to hold anything back."""
    error = OverloadedError("busy")
    router = RoutingChatClient(
        lambda _: ScriptedChatClient(ROLE, fails(error)), on_routing_update=log
    )

    assert await read_until_it_breaks(router, error) == [ROLE]
    assert log.attempts[0].output_committed


@pytest.mark.parametrize(("commit_on", "seconds"), [("content", 3), ("update", 1)])
async def test_the_time_to_the_first_update_is_the_moment_of_commit(log, commit_on, seconds):
    clock = ManualClock()

    def pass_time(_):
        clock.advance(1)

    client = ScriptedChatClient(runs(pass_time), ROLE, *[runs(pass_time)] * 2, "a")
    router = OrderedFailoverChatClient(
        [client], commit_on=commit_on, clock=clock, on_routing_update=log
    )
    await read(router)

    assert log.attempts[0].time_to_first_update == seconds


async def test_a_failure_after_output_reaches_the_consumer(log):
    """[routing 58, 62]"""
    error = OverloadedError("busy")
    first, second = ScriptedChatClient("a", fails(error)), ScriptedChatClient("never")
    router = OrderedFailoverChatClient([first, second], on_routing_update=log)

    assert await read_until_it_breaks(router, error) == [update("a")]
    assert second.calls == []
    assert first.streams_closed == 1
    [attempt] = log.attempts
    assert (attempt.outcome, attempt.exception) == (AttemptOutcome.FAILED, error)
    assert attempt.output_committed
    assert not attempt.response_completed
    assert 0 <= attempt.time_to_first_update <= attempt.duration
    assert log.terminals == [True]


async def test_a_stream_read_to_its_end_is_completed(log):
    """[routing 59]"""
    router = OrderedFailoverChatClient([ScriptedChatClient("a", "b")], on_routing_update=log)

    assert await texts(router) == ["a", "b"]
    [attempt] = log.attempts
    assert (attempt.outcome, attempt.exception) == (AttemptOutcome.COMPLETED, None)
    assert attempt.output_committed
    assert attempt.response_completed
    assert attempt.time_to_first_update is not None
    assert log.terminals == [True]


async def test_a_stream_closed_after_one_update_is_abandoned(log):
    """[routing 60]"""
    client = ScriptedChatClient("a", "b")
    router = OrderedFailoverChatClient([client], on_routing_update=log)

    async with router.get_streaming_response("Hi") as stream:
        await anext(stream)

    [attempt] = log.attempts
    assert (attempt.outcome, attempt.exception) == (AttemptOutcome.ABANDONED, None)
    assert attempt.output_committed
    assert not attempt.response_completed
    assert log.terminals == [True]
    assert client.streams_closed == 1


async def test_a_stream_closed_after_its_finish_reason_is_completed(log):
    """[routing 60] Its end was handed out; what follows are facts."""
    client = ScriptedChatClient("a", finishes(), update(usage=Usage(input_tokens=3)))
    router = OrderedFailoverChatClient([client], on_routing_update=log)

    async with router.get_streaming_response("Hi") as stream:
        await anext(stream)
        await anext(stream)

    assert log.outcomes == [AttemptOutcome.COMPLETED]


async def test_a_finish_reason_that_was_held_back_and_not_handed_out_completes_nothing(log):
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(ROLE, finishes())], on_routing_update=log
    )

    async with router.get_streaming_response("Hi") as stream:
        assert await anext(stream) == ROLE

    assert log.outcomes == [AttemptOutcome.ABANDONED]


async def test_an_exception_in_the_consumers_loop_abandons_the_stream(log):
    """[routing 71] The client did not fail."""
    router = OrderedFailoverChatClient([ScriptedChatClient("a", "b")], on_routing_update=log)

    with pytest.raises(KeyError):
        async with router.get_streaming_response("Hi") as stream:
            async for _ in stream:
                raise KeyError("consumer")

    assert (log.outcomes, log.exceptions) == ([AttemptOutcome.ABANDONED], [None])


async def test_the_hook_has_run_when_the_block_exits(log):
    """[routing 69] Also by `aclosing`, after a break."""
    router = OrderedFailoverChatClient([ScriptedChatClient("a", "b")], on_routing_update=log)

    async with aclosing(router.get_streaming_response("Hi")) as stream:
        async for _ in stream:
            break
        assert log.outcomes == []

    assert log.outcomes == [AttemptOutcome.ABANDONED]


async def test_a_stream_dropped_without_closing_warns_and_reports_nothing(log):
    """[routing 68]"""
    client = ScriptedChatClient("a", "b")
    router = OrderedFailoverChatClient([client], on_routing_update=log)
    stream = router.get_streaming_response("Hi")
    await anext(stream)

    with pytest.warns(ResourceWarning, match="aclose"):
        del stream
        gc.collect()

    assert log.attempts == []
    assert client.streams_closed == 0


async def test_what_came_can_be_read_after_an_error():
    client = ScriptedChatClient("Hel", fails(OverloadedError))
    stream = OrderedFailoverChatClient([client]).get_streaming_response("Hi")
    with pytest.raises(OverloadedError):
        await stream.get_final_response()

    assert stream.partial_response.text == "Hel"
    assert stream.partial_response.attempts == stream.attempts
    assert [attempt.outcome for attempt in stream.attempts] == [AttemptOutcome.FAILED]


async def test_a_stream_knows_its_attempts_while_it_runs():
    """The failed ones; the running one has no record yet."""
    routes = {"a": ScriptedChatClient(fails(OverloadedError)), "b": ScriptedChatClient("x", "y")}

    async with OrderedFailoverChatClient(routes).get_streaming_response("Hi") as stream:
        assert stream.attempts == ()
        await anext(stream)
        assert [attempt.route for attempt in stream.attempts] == ["a"]

    assert [attempt.route for attempt in stream.attempts] == ["a", "b"]


async def test_usage_of_a_stream_that_broke_is_kept(log):
    client = ScriptedChatClient("a", update(usage=Usage(input_tokens=3)), fails(OverloadedError))

    with pytest.raises(OverloadedError):
        await read(OrderedFailoverChatClient([client], on_routing_update=log))

    assert log.attempts[0].usage == Usage(input_tokens=3)


async def test_the_consumers_time_is_not_counted(log):
    """[routing 67]"""
    clock = ManualClock()

    def pass_time(_):
        clock.advance(1)

    client = ScriptedChatClient(*[runs(pass_time), "x"] * 3)
    router = OrderedFailoverChatClient([client], clock=clock, on_routing_update=log)
    async with router.get_streaming_response("Hi") as stream:
        async for _ in stream:
            clock.advance(50)

    [attempt] = log.attempts
    assert (attempt.time_to_first_update, attempt.duration) == (1, 3)


async def test_a_stream_that_was_begun_in_one_task_can_be_closed_in_another(log):
    """[routing 70] No scope is open while the consumer has the turn, also where limits are set."""
    router = FailoverChatClient(
        lambda _: ScriptedChatClient("a", waits_forever()),
        attempt_timeout=60,
        stall_timeout=60,
        on_routing_update=log,
    )
    stream = router.get_streaming_response("Hi")
    await anext(stream)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.aclose)

    assert log.outcomes == [AttemptOutcome.ABANDONED]


async def test_a_failing_close_of_a_whole_answer_is_logged(log, caplog):
    """[routing 63] A delivered answer is not spoilt."""
    client = ScriptedChatClient("a", "b", raises_on_close(OSError("close")))

    assert await texts(OrderedFailoverChatClient([client], on_routing_update=log)) == ["a", "b"]
    assert log.outcomes == [AttemptOutcome.COMPLETED]
    assert "stream.close_failed" in caplog.text


async def test_a_failing_close_never_replaces_the_error_of_a_stream(log):
    """[routing 64] It becomes a note."""
    error = OverloadedError("busy")
    client = ScriptedChatClient("a", fails(error), raises_on_close(OSError("close")))

    await read_until_it_breaks(OrderedFailoverChatClient([client], on_routing_update=log), error)

    assert log.exceptions == [error]
    assert ["OSError" in note for note in error.__notes__] == [True]


async def test_a_failing_close_of_an_abandoned_stream_is_raised_from_aclose(log):
    """[routing 65] And the terminal update carries it."""
    error = OSError("close")
    client = ScriptedChatClient("a", "b", raises_on_close(error))
    stream = OrderedFailoverChatClient([client], on_routing_update=log).get_streaming_response("Hi")
    await anext(stream)

    with pytest.raises(OSError, match="close") as raised:
        await stream.aclose()

    assert raised.value is error
    assert (log.outcomes, log.exceptions) == ([AttemptOutcome.FAILED], [error])
    assert log.terminals == [True]


async def test_a_failing_close_after_the_finish_reason_is_logged(log, caplog):
    client = ScriptedChatClient("a", finishes(), raises_on_close(OSError("close")))
    router = OrderedFailoverChatClient([client], on_routing_update=log)

    async with router.get_streaming_response("Hi") as stream:
        await anext(stream)
        await anext(stream)

    assert log.outcomes == [AttemptOutcome.COMPLETED]
    assert "stream.close_failed" in caplog.text


async def test_a_failing_close_beside_a_failing_read_fails_over_once(log):
    """[routing 64] Before output the read's error is the attempt's."""
    error = OverloadedError("busy")
    first = ScriptedChatClient(fails(error), raises_on_close(OSError("close")))
    router = OrderedFailoverChatClient([first, ScriptedChatClient("ok")], on_routing_update=log)

    assert await texts(router) == ["ok"]
    assert log.exceptions == [error, None]


class Waiting(OrderedFailoverChatClient):
    """Its hook waits, as one that writes to a database does."""

    async def on_routing_update(self, context, attempt, is_terminal):
        await anyio.lowlevel.checkpoint()
        context.state["attempt"] = attempt

    async def on_request_ended(self, context, exception):
        await anyio.lowlevel.checkpoint()
        self.ended = (context.state["attempt"], exception)


async def test_an_error_that_a_client_makes_of_the_cancellation_is_recorded():
    """[routing 45, 50] The caller is cancelled all the same, and the hooks are shielded."""

    async def translate(_):
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            raise OverloadedError("translated") from None

    router = Waiting([ScriptedChatClient("a", runs(translate))])
    with anyio.CancelScope() as scope:
        await read(router)

    assert scope.cancelled_caught
    attempt, ended_with = router.ended
    assert attempt.outcome is AttemptOutcome.CANCELLED
    assert isinstance(attempt.exception, OverloadedError)
    assert isinstance(ended_with, anyio.get_cancelled_exc_class())


async def test_a_failing_close_does_not_hide_the_cancellation_of_a_consumer(caplog):
    """[routing 50, 65] The consumer was cancelled in its own code; the hooks are shielded."""
    router = Waiting([ScriptedChatClient("a", "b", raises_on_close(OSError("close")))])
    with anyio.CancelScope() as scope:
        async with router.get_streaming_response("Hi") as stream:
            await anext(stream)
            scope.cancel()
            await anyio.sleep_forever()

    assert scope.cancelled_caught
    attempt, ended_with = router.ended
    assert (attempt.outcome, ended_with) == (AttemptOutcome.ABANDONED, None)
    assert "stream.close_failed" in caplog.text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_failing_close_does_not_hide_a_native_cancellation(anyio_backend):
    """[routing 50]"""
    client = ScriptedChatClient("a", "b", raises_on_close(OSError("close")))

    async def consume():
        async with OrderedFailoverChatClient([client]).get_streaming_response("Hi") as stream:
            await anext(stream)
            await anyio.sleep_forever()

    task = asyncio.create_task(consume())
    await anyio.wait_all_tasks_blocked()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_end_is_told_where_the_last_update_is_cancelled(mode):
    """[routing 50] The hook was interrupted; the request ends all the same, under a shield."""
    ended = []

    class Interrupted(Waiting):
        async def on_routing_update(self, context, attempt, is_terminal):
            scope.cancel()
            await super().on_routing_update(context, attempt, is_terminal)

        async def on_request_ended(self, context, exception):
            await anyio.lowlevel.checkpoint()
            ended.append(exception)

    router = Interrupted([ScriptedChatClient("a")])
    with anyio.CancelScope() as scope:
        await (read(router) if mode == "streaming" else router.get_response("Hi"))

    assert scope.cancelled_caught
    [exception] = ended
    assert isinstance(exception, anyio.get_cancelled_exc_class())


async def test_a_cancelled_stream_is_closed_and_cannot_be_read_on(log):
    client = ScriptedChatClient("a", waits_forever())
    router = OrderedFailoverChatClient([client], on_routing_update=log)
    stream = router.get_streaming_response("Hi")
    await anext(stream)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await anext(stream)

    with pytest.raises(StreamClosedError):
        await anext(stream)
    assert log.outcomes == [AttemptOutcome.CANCELLED]
    assert client.streams_closed == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_of_the_clients_own_after_output_is_a_failure(log, anyio_backend):
    """[routing 47] Nobody cancels the caller; output is out, so that nobody else is asked."""
    client = ScriptedChatClient("a", fails(asyncio.CancelledError()))
    router = OrderedFailoverChatClient([client], on_routing_update=log)

    async with router.get_streaming_response("Hi") as stream:
        with pytest.raises(Exception, match="cancel"):
            await stream.get_final_response()

    assert log.outcomes == [AttemptOutcome.FAILED]
