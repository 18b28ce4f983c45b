"""Whatever members and callers do, nothing of a pool is held when all of them are done.

Hypothesis draws the members' scripts, the policy, and what each of several callers does at the same
time: reads to the end, gives up, closes early, drops the stream. Time is virtual.
"""

import gc
import logging
import warnings
from random import Random

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatrouting import RoutingHints
from chatrouting.errors import (
    AuthenticationError,
    BadRequestError,
    ChatRoutingError,
    ConfigurationError,
    LocalSaturationError,
    OverloadedError,
    RateLimitError,
    StreamInterruptedError,
)
from chatrouting.options import ChatOptions
from chatrouting.pool import (
    Endpoint,
    EndpointPool,
    EndpointStatus,
    PooledChatClient,
    PooledEmbeddingGenerator,
    PoolPolicy,
)
from chatrouting.testing import (
    ScriptedChatClient,
    fails,
    raises_on_call,
    raises_on_close,
    raises_on_iter,
    update,
    virtual_time_backends,
    waits,
    waits_forever,
)

ERRORS = st.sampled_from(
    [
        RateLimitError("busy", status_code=429),
        RateLimitError("busy", status_code=429, retry_after=3.0),
        OverloadedError("down", status_code=503),
        AuthenticationError("wrong key", status_code=401),
        BadRequestError("wrong", status_code=400),
        LocalSaturationError("full"),
        ConfigurationError("built wrongly"),
        ZeroDivisionError("a bug"),
    ]
)

SCRIPTS = st.one_of(
    st.just(["Hello", " you"]),
    st.builds(lambda error: [fails(error)], ERRORS),
    st.builds(lambda error: [raises_on_call(error)], ERRORS),
    st.builds(lambda error: [raises_on_iter(error), "Hello"], ERRORS),
    st.builds(lambda error: [update(), waits(1), fails(error)], ERRORS),
    st.just(["Hel", fails(StreamInterruptedError("cut"))]),
    st.just([waits(2), "Hel", waits(3), "lo"]),
    st.just([waits_forever()]),
    st.just(["Hel", waits_forever()]),
    st.just(["Hel", "lo", raises_on_close(OSError("stuck"))]),
    st.just([]),
)

MEMBERS = st.lists(
    st.tuples(
        st.lists(SCRIPTS, min_size=1, max_size=4),
        st.integers(1, 2),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, 4.0, 60.0]),
    ),
    min_size=1,
    max_size=4,
)

POLICIES = st.builds(
    PoolPolicy,
    member_fault=st.sampled_from(["raise", "raise_and_park", "rotate"]),
    when_all_cooling=st.sampled_from(["wait", "raise", "try_soonest"]),
    probe_concurrency=st.sampled_from([None, 1]),
    max_ejection=st.sampled_from([None, 0.5]),
    panic=st.booleans(),
    total_budget=st.sampled_from([None, 7.0, 30.0]),
    max_attempts=st.just(6),
    stream_idle_timeout=st.sampled_from([None, 5.0]),
    strategy=st.sampled_from(["random", "p2c"]),
)

CALLERS = st.lists(
    st.tuples(
        st.sampled_from(["whole", "reads", "closes", "drops"]),
        st.sampled_from([None, 0.0, 0.5, 2.5, 6.0]),  # when the caller gives up
        st.sampled_from([None, 4.0]),  # the request's own timeout
        st.integers(0, 2),  # updates that are read before the stream is left
    ),
    min_size=1,
    max_size=6,
)


async def call(client, how, gives_up, timeout, updates):
    """Make one request, and leave it in one of the ways."""
    options = ChatOptions(routing=RoutingHints(timeout=timeout))
    with anyio.move_on_after(gives_up):
        try:
            if how == "whole":
                await client.get_response("Hi", options)
                return
            stream = client.get_streaming_response("Hi", options)
            if how == "reads":
                async with stream:
                    await stream.get_final_response()
                return
            for _ in range(updates):
                await anext(stream, None)
            if how == "closes":
                await stream.aclose()
        except (ChatRoutingError, ZeroDivisionError, OSError):
            return


def pool_of(members, policy, seed):
    clients = {}
    for number, (scripts, priority, slots, timeout) in enumerate(members):
        endpoint = Endpoint(
            f"m{number}", priority=priority, max_concurrency=slots, timeout=timeout, max_retries=1
        )
        clients[endpoint] = ScriptedChatClient.per_call(*scripts, repeat_last=True)
    return EndpointPool(clients, policy=policy, clock=anyio.current_time, rng=Random(seed))


async def settle(pool):
    """Collect what was dropped, let the event loop give it back, and look at what is left."""
    for _ in range(2):
        gc.collect()
        for _ in range(5):
            await checkpoint()
    return [state for state in pool.snapshot() if state.in_flight or state.status in HELD]


@pytest.fixture(autouse=True, scope="module")
def quick_collections():
    """Leave out of each collection what was there before: it takes most of the time.

    And log nothing: pytest keeps the records of all examples.
    """
    logger = logging.getLogger("chatrouting")
    logger.setLevel(logging.CRITICAL + 1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    logger.setLevel(logging.NOTSET)


HELD = (EndpointStatus.BUSY, EndpointStatus.PROBING)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(members=MEMBERS, policy=POLICIES, callers=CALLERS, seed=st.integers(0, 99))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_nothing_is_held_when_all_are_done(backend, members, policy, callers, seed):
    """Slots in flight and slots of probes, after any mix of ends.

    [pools section 4: probe slot leaked by a neutral outcome] [pools B14]
    """

    async def main():
        pool = pool_of(members, policy, seed)
        client = PooledChatClient(pool, rng=Random(seed).random)
        # Whoever waits for a slot that somebody keeps for ever gives up some time, too.
        with anyio.move_on_after(500):
            async with anyio.create_task_group() as group:
                for caller in callers:
                    group.start_soon(call, client, *caller)
        assert await settle(pool) == []

    run(main, backend)


def run(main, backend):
    """Run in virtual time; streams that are dropped warn, which is not what is asked here."""
    name, options = virtual_time_backends()[backend]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        anyio.run(main, backend=name, backend_options=options)


class Vectors:
    """An embedding generator that does one thing after the other."""

    def __init__(self, steps):
        self._steps = steps

    async def generate(self, texts):
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if isinstance(step, Exception):
            raise step
        await anyio.sleep(step)
        return [[1.0] for _ in texts]

    async def aclose(self):
        self._steps.clear()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(
    members=st.lists(
        st.lists(st.one_of(ERRORS, st.sampled_from([0.0, 1.0, 90.0])), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ),
    policy=POLICIES,
    callers=st.lists(st.sampled_from([None, 0.0, 0.5, 2.5, 6.0]), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_held_when_all_embeddings_are_made(backend, members, policy, callers, seed):
    async def ask(generator, gives_up):
        with anyio.move_on_after(gives_up):
            try:
                await generator.generate(["text"])
            except (ChatRoutingError, ZeroDivisionError):
                return

    async def main():
        endpoints = {
            Endpoint(f"m{number}", max_concurrency=1, max_retries=1): Vectors(list(steps))
            for number, steps in enumerate(members)
        }
        pool = EndpointPool(endpoints, policy=policy, clock=anyio.current_time, rng=Random(seed))
        generator = PooledEmbeddingGenerator(pool)
        with anyio.move_on_after(500):
            async with anyio.create_task_group() as group:
                for gives_up in callers:
                    group.start_soon(ask, generator, gives_up)
        assert await settle(pool) == []

    run(main, backend)
