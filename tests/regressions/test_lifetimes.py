"""Reports about what a router keeps: loops, globals, failures, threads and tasks."""

import gc
import logging
import resource
import sys
import threading
import weakref

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    ConfigureOptionsChatClient,
    DelegatingChatClient,
    FailoverChatClient,
    OrderedFailoverChatClient,
    RetryChatClient,
    RoutingChatClient,
)
from chatrouting.errors import OverloadedError
from chatrouting.testing import ScriptedChatClient, fails, finishes, runs, update

LOOPS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def stack():
    """A failing client and a sound one, below every kind of router."""
    first = ScriptedChatClient(fails(OverloadedError))
    second = ScriptedChatClient("hel", "lo", finishes("stop"))
    inner = FailoverChatClient(
        lambda context: next(iter(context.remaining), None), routes=[first, second]
    )
    retry = RetryChatClient(DelegatingChatClient(inner), name="retry")
    return RoutingChatClient(
        lambda _: "all",
        routes={"all": OrderedFailoverChatClient([retry], attempt_timeout=60, stall_timeout=60)},
    )


async def ask_both_ways(router):
    whole = await router.get_response("hi")
    async with router.get_streaming_response("hi") as stream:
        streamed = await stream.get_final_response()
    return whole.text, streamed.text


@LOOPS
def test_one_router_lives_through_several_event_loops(backend):
    """[BR-71] Three consecutive runs; nothing is bound to the first loop."""
    router = stack()

    answers = [anyio.run(ask_both_ways, router, backend=backend) for _ in range(3)]

    assert answers == [("hello", "hello")] * 3


@LOOPS
def test_one_router_serves_two_loops_at_once(backend):
    """[BR-71] Two threads, both in the middle of a request when they meet."""
    meeting = threading.Barrier(2, timeout=10)
    answers = []

    def meet(_):
        meeting.wait()
        return update("hello")

    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(OverloadedError)), ScriptedChatClient(runs(meet))],
        attempt_timeout=60,
    )

    def run():
        answers.append(anyio.run(ask_both_ways, router, backend=backend))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [("hello", "hello")] * 2


async def test_ten_thousand_routers_leave_nothing(anyio_backend):
    """[BR-72] No registry, no hook in anything global; used or not, closed or not."""
    gc.freeze()  # what was there before need not be looked through again and again
    objects = []
    for _ in range(10):
        parts = []
        for number in range(250):
            leaf = ScriptedChatClient("hello")
            retry = RetryChatClient(ConfigureOptionsChatClient(leaf, lambda options: options))
            failover = OrderedFailoverChatClient([leaf, DelegatingChatClient(retry)])
            router = RoutingChatClient(lambda _, failover=failover: failover, routes=[failover])
            wrappers = (retry, retry.routes["route-1"], failover, router)
            parts += [weakref.ref(each) for each in (leaf, *wrappers)]
            if number % 25 == 0:
                assert (await router.get_response("hi")).text == "hello"
            if number % 50 == 0:
                await router.aclose()
        del leaf, retry, failover, router, wrappers
        gc.collect()
        assert [part() for part in parts if part() is not None] == []
        objects.append(len(gc.get_objects()))

    gc.unfreeze()
    assert objects[-1] - objects[2] < 100


def peak_memory():
    """Return the largest memory of the process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@pytest.mark.timeout(120)  # 41,000 calls, on a busy machine
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.timeout(120)
async def test_twenty_thousand_failures_are_forgotten(anyio_backend, caplog):
    """[BR-73] 2 GB of prompts go through; not one is kept, nor an error that knows one."""
    caplog.set_level(logging.CRITICAL, "chatrouting")  # pytest would keep each line
    records = []

    def listen(_, attempt, is_terminal):
        # What an application may keep: the record of a client that was left for another one.
        if not is_terminal:
            records.append(attempt)

    failing = ScriptedChatClient(fails(OverloadedError))
    router = OrderedFailoverChatClient([failing, failing], on_routing_update=listen)

    async def fail(times):
        for _ in range(times):
            with pytest.raises(OverloadedError):
                await router.get_response("x" * 100_000)
            failing.calls.clear()

    await fail(500)
    before = peak_memory()
    await fail(20_000)

    assert len(records) == 20_500
    assert {attempt.outcome for attempt in records} == {AttemptOutcome.FAILED}
    assert peak_memory() - before < 60_000_000


async def test_ten_thousand_updates_need_no_thread_and_no_task(anyio_backend):
    """[BR-74]"""

    def counts():
        return threading.active_count(), len(anyio.get_running_tasks())

    leaf = ScriptedChatClient(*["x"] * 10_000)
    router = RoutingChatClient(lambda _: OrderedFailoverChatClient([RetryChatClient(leaf)]))
    before, seen, number = counts(), set(), 0
    async with router.get_streaming_response("hi") as stream:
        async for _ in stream:
            number += 1
            seen.add(counts())

    assert number == 10_000
    assert seen == {before}
