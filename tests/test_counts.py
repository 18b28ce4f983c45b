"""What a request costs in scopes, tasks and locks: counted, not measured.

The interpreter's profiler tells of each call of the constructors that matter, whoever makes it.
"""

import asyncio
import math
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from typing import Any

import anyio
import anyio._backends._asyncio as on_asyncio
import anyio._backends._trio as on_trio
import pytest
import trio
from anyio.lowlevel import checkpoint

from chatrouting import (
    ChatOptions,
    ConfigureOptionsChatClient,
    DelegatingChatClient,
    OrderedFailoverChatClient,
    RetryChatClient,
    RoutingChatClient,
    RoutingHints,
)
from chatrouting.errors import OverloadedError
from chatrouting.testing import ScriptedChatClient, fails, runs

#: One call of any of these is one thing made.
CONSTRUCTORS: dict[str, list[Any]] = {
    # Not `__init__`: Python calls it twice, because `anyio.CancelScope` returns a subclass.
    "scope": [on_asyncio.CancelScope.__new__, on_trio.CancelScope.__new__],
    "task group": [
        on_asyncio.TaskGroup.__init__,
        on_trio.TaskGroup.__init__,
        asyncio.TaskGroup.__init__,
    ],
    "task": [asyncio.BaseEventLoop.create_task, trio._core._run.Runner.spawn_impl],
    "thread": [threading.Thread.__init__],
    "lock": [
        anyio.Lock.__new__,
        anyio.Semaphore.__new__,
        anyio.CapacityLimiter.__new__,
        anyio.Condition.__init__,
        asyncio.Lock.__init__,
        threading.Condition.__init__,
    ],
    "queue": [anyio.create_memory_object_stream.__new__, asyncio.Queue.__init__],
}
KINDS = {
    function.__code__: kind for kind, functions in CONSTRUCTORS.items() for function in functions
}


def scope_kind(frame):
    """Tell a timer from a shield for closing, by what the constructor was given and who calls it.

    A limit of ours makes its scope by `move_on_after`, and sets the time afterwards.
    """
    given = {**frame.f_locals, **frame.f_locals.get("kwargs", {})}
    if given.get("shield"):
        return "closing scope"
    is_limit = frame.f_back.f_back.f_code is anyio.move_on_after.__code__
    return "timer scope" if is_limit or given.get("deadline", math.inf) < math.inf else "scope"


@contextmanager
def counting():
    """Count what is made in this thread inside of the block."""
    made = Counter()

    def profile(frame, event, _):
        kind = KINDS.get(frame.f_code) if event == "call" else None
        if kind == "scope":
            kind = scope_kind(frame)
        if kind is not None:
            made[kind] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield made
    finally:
        sys.setprofile(before)


async def test_the_counter_sees_everything_that_it_is_there_to_see():
    with counting() as made:
        with anyio.move_on_after(5), anyio.CancelScope(shield=True):
            await checkpoint()
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0)
        anyio.Lock()
        threading.Thread()
        for stream in anyio.create_memory_object_stream(1):
            stream.close()

    assert made.pop("scope") >= 1
    assert set(made) >= {"timer scope", "closing scope", "task group", "task", "lock"}
    assert {"thread", "queue"} <= set(made)
    assert (made["timer scope"], made["closing scope"]) == (1, 1)


def plain_stack(leaf):
    """Five wrappers, without a timer; at each failover the first client fails."""
    for _ in range(2):
        busy = ScriptedChatClient(fails(OverloadedError), source="unclosable")
        leaf = OrderedFailoverChatClient([busy, DelegatingChatClient(leaf)])
    leaf = RetryChatClient(ConfigureOptionsChatClient(leaf, lambda options: options))
    return RoutingChatClient(lambda context: context.next_route(), routes=[leaf])


async def ask(client, mode, options=None):
    if mode == "whole":
        return (await client.get_response("Hi", options)).text
    async with client.get_streaming_response("Hi", options) as stream:
        return "".join([update.text async for update in stream])


@pytest.mark.parametrize("mode", ["whole", "streaming"])
@pytest.mark.parametrize("source", ["generator", "ready", "unclosable"])
async def test_without_a_timer_nothing_is_made(mode, source):
    """No scope, task group, task, lock, thread or queue, at any depth."""
    router = plain_stack(ScriptedChatClient(*"abcdefgh", source=source))
    await ask(router, mode)

    with counting() as made:
        assert await ask(router, mode) == "abcdefgh"

    # A source that can be closed is closed under one shield; a generator has ended by itself.
    is_closed = mode == "streaming" and source == "ready"
    assert made == Counter({"closing scope": 1} if is_closed else {})


@pytest.mark.parametrize("mode", ["whole", "streaming"])
@pytest.mark.parametrize("timed", [1, 2, 4])
async def test_before_output_each_attempt_of_a_layer_with_a_timer_opens_one_scope(mode, timed):
    """However many of its timers a layer sets."""
    client = ScriptedChatClient("a", source="unclosable")
    for number in range(4):
        limits = {"attempt_timeout": 60.0, "first_output_timeout": 60.0} if number < timed else {}
        client = OrderedFailoverChatClient([client], **limits)

    with counting() as made:
        if mode == "whole":
            await client.get_response("Hi")
        else:
            stream = client.get_streaming_response("Hi")
            await anext(stream)
    if mode == "streaming":
        await stream.aclose()

    assert made == Counter({"timer scope": timed})


async def test_each_further_attempt_opens_one_more_scope():
    busy = [ScriptedChatClient(fails(OverloadedError)) for _ in range(3)]
    router = OrderedFailoverChatClient([*busy, ScriptedChatClient("a")], attempt_timeout=60.0)

    with counting() as made:
        await router.get_response("Hi")

    assert made == Counter({"timer scope": 4})


@pytest.mark.parametrize("depth", [1, 3])
async def test_the_requests_timeout_opens_scopes_at_the_outermost_router_only(depth):
    """One for the attempt, and one for a selection that is awaited."""
    plain = ScriptedChatClient("a")
    for _ in range(depth):
        plain = OrderedFailoverChatClient([plain])

    async def select(context):
        return context.next_route()

    options = ChatOptions(routing=RoutingHints(timeout=60.0))
    with counting() as by_list:
        await plain.get_response("Hi", options)
    with counting() as by_policy:
        await RoutingChatClient(select, routes=[plain]).get_response("Hi", options)

    assert by_list == Counter({"timer scope": 1})
    assert by_policy == Counter({"timer scope": 2})


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("source", ["generator", "unclosable"])
async def test_after_output_each_read_opens_one_scope_for_all_layers(depth, source):
    """The nearest limit of all of them; nothing else is made for an update."""
    client = ScriptedChatClient(*["x"] * 100, source=source)
    for _ in range(depth):
        client = OrderedFailoverChatClient([client], attempt_timeout=60.0, stall_timeout=60.0)

    async with client.get_streaming_response("Hi") as stream:
        await anext(stream)
        with counting() as made:
            number = len([update async for update in stream])

    assert number == 99
    # The last read finds the end.
    assert made == Counter({"timer scope": 100})


@pytest.mark.parametrize("depth", [1, 4])
async def test_a_read_for_which_something_is_ready_opens_none(depth):
    """Of 100 further updates, every tenth has to be waited for."""
    script = ([runs(lambda _: None)] + ["x"] * 10) * 10
    client = ScriptedChatClient("first", *script, source="ready")
    for _ in range(depth):
        client = OrderedFailoverChatClient([client], attempt_timeout=60.0, stall_timeout=60.0)

    async with client.get_streaming_response("Hi") as stream:
        await anext(stream)
        with counting() as made:
            number = len([update async for update in stream])

    assert number == 100
    # Ten waits, and the read that finds the end; then the source is closed.
    assert made == Counter({"timer scope": 11, "closing scope": 1})


@pytest.mark.parametrize("source", ["generator", "ready", "unclosable"])
async def test_an_update_without_a_timer_makes_nothing(source):
    client = plain_stack(ScriptedChatClient(*["x"] * 1000, source=source))

    async with client.get_streaming_response("Hi") as stream:
        await anext(stream)
        with counting() as made:
            for _ in range(999):
                await anext(stream)

    assert made == Counter()
