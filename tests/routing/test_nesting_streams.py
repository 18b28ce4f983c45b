"""Routers in routers: one stream object, a tree of records, scopes for clients that route."""

import gc

import anyio
import pytest
from anyio.lowlevel import checkpoint

from chatrouting import (
    AttemptOutcome,
    ChatResponseUpdate,
    OrderedFailoverChatClient,
    ResponseStream,
    RoutingChatClient,
)
from chatrouting.client import DelegatingChatClient
from chatrouting.errors import OverloadedError
from chatrouting.scope import current_scope
from chatrouting.stream import StreamLayer
from chatrouting.testing import ScriptedChatClient, fails, finishes, runs, update

MODES = pytest.mark.parametrize("mode", ["whole", "streaming"])


async def answer(client, mode):
    if mode == "whole":
        return await client.get_response("hi")
    async with client.get_streaming_response("hi") as stream:
        return await stream.get_final_response()


def nest(client, depth):
    for number in range(depth):
        client = OrderedFailoverChatClient([client], name=f"level-{number + 1}")
    return client


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("source", ["object", "generator", "ready"])
async def test_a_stack_of_routers_is_one_stream(depth, source):
    """[routing 90] Whatever the depth, the leaf's updates come through as they are."""
    leaf = ScriptedChatClient("a", "b", finishes("stop"), source=source)

    async with nest(leaf, depth).get_streaming_response("hi") as stream:
        updates = [each async for each in stream]

    assert updates == leaf.calls[0].updates
    assert all(ours is theirs for ours, theirs in zip(updates, leaf.calls[0].updates, strict=True))


@MODES
async def test_records_form_a_tree(mode):
    """Each router's records carry the request's id, their parent, and their children."""
    first, second = ScriptedChatClient(fails(OverloadedError)), ScriptedChatClient("ok")
    inner = OrderedFailoverChatClient({"first": first, "second": second})
    outer = OrderedFailoverChatClient({"inner": inner})

    response = await answer(outer, mode)

    [top] = response.attempts
    assert (top.route, top.parent_id, top.outcome) == ("inner", None, AttemptOutcome.COMPLETED)
    assert [child.route for child in top.children] == ["first", "second"]
    assert {child.parent_id for child in top.children} == {top.attempt_id}
    assert {child.request_id for child in top.children} == {top.request_id}
    assert len({a.attempt_id for a in (top, *top.children)}) == 3


@MODES
async def test_a_failing_inner_router_is_one_failure_of_the_outer_one(mode):
    error = OverloadedError("all busy")
    inner = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(OverloadedError)), ScriptedChatClient(fails(error))]
    )
    outer = OrderedFailoverChatClient({"inner": inner, "last": ScriptedChatClient("ok")})

    response = await answer(outer, mode)

    assert response.text == "ok"
    assert [a.outcome for a in response.attempts] == [
        AttemptOutcome.FAILED,
        AttemptOutcome.COMPLETED,
    ]
    assert response.attempts[0].exception is error
    assert len(response.attempts[0].children) == 2


@MODES
async def test_a_client_that_calls_a_router_of_its_own_is_part_of_the_tree(mode):
    """The scope is set around a client's calls and around each read of its stream."""
    inner = OrderedFailoverChatClient({"leaf": ScriptedChatClient("inner")})

    async def ask(_):
        return (await inner.get_response("question")).text

    for source in ("object", "generator"):
        outer = OrderedFailoverChatClient(
            {"outer": ScriptedChatClient("before ", runs(ask), source=source)}
        )

        response = await answer(outer, mode)

        assert response.text == "before inner"
        [top] = response.attempts
        assert [child.parent_id for child in top.children] == [top.attempt_id]


async def test_the_scope_is_not_left_set_for_the_consumer():
    """[BR-70] Nothing stays current over a return to the consumer."""
    router = nest(ScriptedChatClient("a", "b", source="generator"), 2)

    async with router.get_streaming_response("hi") as stream:
        async for _ in stream:
            assert current_scope() is None

    assert current_scope() is None


async def test_a_background_task_of_an_ended_request_begins_one_of_its_own():
    leaf = OrderedFailoverChatClient({"leaf": ScriptedChatClient("late")})
    gate = anyio.Event()
    responses = []

    async def later():
        await gate.wait()
        responses.append(await leaf.get_response("hi"))

    async with anyio.create_task_group() as tasks:

        async def start(_):
            tasks.start_soon(later)
            await checkpoint()

        outer = OrderedFailoverChatClient([ScriptedChatClient(runs(start), "done")])
        response = await outer.get_response("hi")
        gate.set()

    [attempt] = responses[0].attempts
    assert attempt.parent_id is None
    assert attempt.request_id != response.attempts[0].request_id
    assert response.attempts[0].children == ()


async def test_a_stream_opened_in_one_task_may_be_closed_in_another():
    """[routing 70]"""
    leaf = ScriptedChatClient("a", "b", source="object")
    stream = nest(leaf, 3).get_streaming_response("hi")
    await stream.__anext__()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.aclose)

    assert leaf.streams_closed == 1
    assert stream.attempts[0].outcome is AttemptOutcome.ABANDONED


async def test_the_outer_router_may_hold_back_what_the_inner_one_committed():
    """An inner "update" commit is no output for an outer "content" commit."""
    broken = ScriptedChatClient(update(message_id="m"), fails(OverloadedError))
    inner = OrderedFailoverChatClient([broken], commit_on="update")
    outer = OrderedFailoverChatClient([inner, ScriptedChatClient("ok")])

    async with outer.get_streaming_response("hi") as stream:
        updates = [each async for each in stream]

    assert [each.text for each in updates] == ["ok"]
    [inner_record] = stream.attempts[0].children
    assert inner_record.output_committed
    assert inner_record.outcome is AttemptOutcome.FAILED
    assert not stream.attempts[0].output_committed


async def test_a_middleware_between_routers_may_tap_and_map():
    class Shouting(DelegatingChatClient):
        def get_streaming_response(self, messages, options=None):
            stream = self.inner.get_streaming_response(messages, options)
            return stream.map(lambda each: ChatResponseUpdate(each.text.upper()))

    router = OrderedFailoverChatClient(
        [Shouting(OrderedFailoverChatClient([Shouting(ScriptedChatClient("a", "b"))]))]
    )

    assert (await answer(router, "streaming")).text == "AB"


async def test_a_wrapper_that_opens_later_is_adopted_with_its_layer():
    ends = []

    class Admission(StreamLayer):
        async def on_end(self, error):
            ends.append(error)
            return error

    class Admitting(DelegatingChatClient):
        def get_streaming_response(self, messages, options=None):
            async def open_it():
                await checkpoint()
                return self.inner.get_streaming_response(messages, options)

            return ResponseStream.deferred(open_it, Admission())

    leaf = ScriptedChatClient("a", finishes("stop"))
    router = OrderedFailoverChatClient([Admitting(OrderedFailoverChatClient([Admitting(leaf)]))])

    response = await answer(router, "streaming")

    assert response.text == "a"
    assert ends == [None, None]
    assert len(response.attempts[0].children) == 1


async def test_an_abandoned_stream_is_recorded_at_every_level_inside_first():
    log = []

    def note(name):
        return lambda _, attempt, is_terminal: log.append((name, attempt.outcome, is_terminal))

    inner = OrderedFailoverChatClient([ScriptedChatClient("a", "b")], on_routing_update=note("in"))
    outer = RoutingChatClient(lambda _: inner, on_routing_update=note("out"))

    async with outer.get_streaming_response("hi") as stream:
        await stream.__anext__()

    assert log == [
        ("in", AttemptOutcome.ABANDONED, True),
        ("out", AttemptOutcome.ABANDONED, True),
    ]


async def test_a_stream_closed_after_its_finish_reason_is_completed():
    router = nest(ScriptedChatClient("a", finishes("stop")), 2)

    async with router.get_streaming_response("hi") as stream:
        await stream.__anext__()
        await stream.__anext__()

    assert stream.attempts[0].outcome is AttemptOutcome.COMPLETED
    assert stream.attempts[0].children[0].outcome is AttemptOutcome.COMPLETED


async def test_a_dropped_stream_writes_no_record_and_warns():
    """[routing 68]"""
    log = []
    router = OrderedFailoverChatClient(
        [ScriptedChatClient("a", "b")], on_routing_update=lambda *told: log.append(told)
    )
    stream = router.get_streaming_response("hi")
    await stream.__anext__()

    with pytest.warns(ResourceWarning):
        del stream
        gc.collect()

    assert log == []
