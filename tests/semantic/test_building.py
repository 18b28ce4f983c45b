"""Making the vectors: once, whoever asks, and only usable ones."""

import threading
from array import array
from functools import partial

import anyio
import anyio.to_thread
import numpy as np
import pytest

from chatrouting.errors import EmbeddingError, EmbeddingTimeoutError, RateLimitError
from chatrouting.failure import FailureKind
from chatrouting.policies.classify import classify
from chatrouting.semantic import CallableEmbeddingGenerator
from chatrouting.semantic._one_at_a_time import Turns
from chatrouting.testing import (
    FakeEmbeddingGenerator,
    Gate,
    cancels_itself,
    fails,
    returns,
    waits,
    waits_for,
)

NORTH = [0.0, 1.0]
EAST = [1.0, 0.0]


async def ask_together(router, count, text="east"):
    """Return what `count` requests at once got: the text of the answer, or the error."""
    results = []

    async def ask():
        try:
            results.append((await router.get_response(text)).text)
        except Exception as error:  # noqa: BLE001  # what the caller gets
            results.append(error)

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(ask)
    return results


# --- when -----------------------------------------------------------------------------------------


async def test_vectors_are_made_at_the_first_request_with_text(build, plane):
    """[routing 106] All in one call, in the order of declaration; then one for each request."""
    router = build(code=["north-east", "east"], chat=["north"])
    assert plane.calls == []

    await router.get_response("east")
    await router.get_response("west")

    assert plane.calls == [("north-east", "east", "north"), ("east",), ("west",)]


async def test_vectors_may_be_made_before(build, plane):
    router = build(code=["east"])

    await router.warm_up()
    await router.warm_up()
    await router.get_response("north")

    assert plane.calls == [("east",), ("north",)]


async def test_batches_are_as_large_as_the_provider_takes(build, plane):
    router = build(code=["east", "north", "west"], chat=["south", "north-east"], batch_size=2)

    decision = await router.explain("south")

    assert decision.route == "chat"
    assert plane.calls[:3] == [("east", "north"), ("west", "south"), ("north-east",)]


async def test_vectors_are_copied(build):
    """[routing 106] What the generator does with its array later is harmless."""
    kept = np.array([EAST, NORTH], np.float32)

    class Reusing:
        async def generate(self, texts):
            if len(texts) == 2:
                return kept
            kept[:] = NORTH
            return [EAST]

        async def aclose(self):
            return

    router = build(Reusing(), code=["east"], chat=["north"])

    assert (await router.explain("x")).route == "code"
    assert (await router.explain("x")).route == "code"


@pytest.mark.parametrize("length", [1.0, 3.0, 1e30])
async def test_the_generators_own_array_is_left_as_it_is(build, length):
    """[routing 106] Also where it is the vector of a query, and whatever its length."""
    kept = np.array([EAST, NORTH], np.float32) * np.float32(length)

    class Lending:
        async def generate(self, texts):
            return kept[: len(texts)]

        async def aclose(self):
            return

    router = build(Lending(), code=["east"], chat=["north"])

    assert (await router.explain("east")).score == pytest.approx(1.0)
    assert kept.tolist() == (np.array([EAST, NORTH], np.float32) * np.float32(length)).tolist()


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda rows: rows, id="lists"),
        pytest.param(lambda rows: tuple(tuple(row) for row in rows), id="tuples"),
        pytest.param(lambda rows: [array("f", row) for row in rows], id="arrays"),
        pytest.param(np.array, id="float64"),
        pytest.param(lambda rows: np.array(rows, np.float16), id="float16"),
        pytest.param(lambda rows: np.array(rows, np.int8), id="int8"),
        pytest.param(lambda rows: [np.array(row) for row in rows], id="rows"),
        pytest.param(lambda rows: np.asfortranarray(np.array(rows, np.float32)), id="columns"),
    ],
)
async def test_every_form_of_vectors_is_taken(build, plane, form):
    class Forming:
        async def generate(self, texts):
            return form(await plane.generate(texts))

        async def aclose(self):
            return

    router = build(Forming(), code=["east"], chat=["north"])

    assert (await router.explain("east")).scores == {"code": 1.0, "chat": 0.0}


async def test_many_utterances_are_converted_beside_the_event_loop(build):
    texts = [f"text {number}" for number in range(2000)]
    router = build(FakeEmbeddingGenerator(), code=texts[:1500], chat=texts[1500:])

    decision = await router.explain("text 1700")

    assert decision.route == "chat"


# --- once -----------------------------------------------------------------------------------------


async def test_many_first_requests_make_one_call(build):
    """[routing 107, BR-88]"""
    gate = Gate()
    generator = FakeEmbeddingGenerator.per_call([waits_for(gate)], vectors={"east": EAST})
    router = build(generator, code=["east"])
    answers = []
    async with anyio.create_task_group() as tasks:

        async def ask():
            answers.extend(await ask_together(router, 20))

        tasks.start_soon(ask)
        await gate.reached()
        await anyio.wait_all_tasks_blocked()
        assert len(generator.calls) == 1
        gate.open()

    assert answers == ["code"] * 20
    assert len(generator.calls) == 1 + 20


async def test_a_failed_build_is_not_kept_and_the_next_in_line_builds(build):
    """[routing 107, BR-88] Only the one whose build it was fails."""
    generator = FakeEmbeddingGenerator.per_call(fails(RateLimitError), vectors={"east": EAST})
    router = build(generator, code=["east"])

    answers = await ask_together(router, 5)

    assert sorted(map(str, answers)) == ["code"] * 4 + ["scripted failure"]
    assert len(generator.calls) == 2 + 4


async def test_unusable_vectors_are_not_kept(build):
    """[routing 108]"""
    generator = FakeEmbeddingGenerator.per_call(returns([[1.0], [1.0]]), vectors={"east": EAST})
    router = build(generator, code=["east"])

    with pytest.raises(EmbeddingError):
        await router.warm_up()

    assert (await router.explain("east")).route == "code"


async def test_whoever_waits_goes_on_when_the_builder_is_cancelled(build):
    """[routing 107, BR-88]"""
    gate = Gate()
    generator = FakeEmbeddingGenerator.per_call([waits_for(gate)], vectors={"east": EAST})
    router = build(generator, code=["east"])
    building, answers = anyio.CancelScope(), []

    async def build_and_be_cancelled():
        with building:
            await router.get_response("east")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(build_and_be_cancelled)
        await gate.reached()

        async def ask():
            answers.extend(await ask_together(router, 3))

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        building.cancel()

    assert building.cancelled_caught
    assert answers == ["code"] * 3
    assert generator.calls.count(("east",)) == 2 + 3


async def test_whoever_waits_may_be_cancelled_without_harm(build):
    """[routing 107]"""
    gate = Gate()
    generator = FakeEmbeddingGenerator.per_call([waits_for(gate)], vectors={"east": EAST})
    router = build(generator, code=["east"])
    waiting, answers = anyio.CancelScope(), []

    async def wait_and_be_cancelled():
        with waiting:
            await router.get_response("east")

    async with anyio.create_task_group() as tasks:

        async def ask():
            answers.extend(await ask_together(router, 1))

        tasks.start_soon(ask)
        await gate.reached()
        tasks.start_soon(wait_and_be_cancelled)
        await anyio.wait_all_tasks_blocked()
        waiting.cancel()
        await anyio.wait_all_tasks_blocked()
        gate.open()

    assert waiting.cancelled_caught
    assert answers == ["code"]
    assert len(generator.calls) == 2


async def test_the_event_loop_goes_on_while_a_model_computes(build):
    """[BR-88] It is the loop that lets the model finish."""
    began, may_end = threading.Event(), threading.Event()

    def encode(texts):
        began.set()
        assert may_end.wait(10)
        return [EAST for _ in texts]

    async with anyio.create_task_group() as tasks:
        router = build(CallableEmbeddingGenerator(encode), code=["east"])
        tasks.start_soon(router.get_response, "x")
        while not began.is_set():
            await anyio.lowlevel.checkpoint()
        may_end.set()


# --- several event loops --------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["asyncio", "trio"])
async def test_another_event_loop_waits_for_its_turn_and_stands_not_still(other):
    """[routing 107] Its other tasks go on, and nobody has the turn at the same time."""
    turns, is_waiting, order = Turns(), threading.Event(), []

    async def wait_for_turn():
        async with turns.turn():
            order.append("other")

    async def in_other_loop():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_turn)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            is_waiting.set()

    run_other = partial(anyio.run, in_other_loop, backend=other)
    async with anyio.create_task_group() as tasks, turns.turn():
        tasks.start_soon(anyio.to_thread.run_sync, run_other)
        await anyio.to_thread.run_sync(is_waiting.wait)
        order.append("this")

    assert order == ["this", "other"]


@pytest.mark.parametrize("other", ["asyncio", "trio"])
async def test_another_event_loop_may_stop_waiting(other):
    turns, stopped = Turns(), threading.Event()

    async def wait_for_turn(scope):
        with scope:
            async with turns.turn():
                raise AssertionError("the turn was not given back")

    async def in_other_loop():
        scope = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_turn, scope)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            scope.cancel()
        stopped.set()

    run_other = partial(anyio.run, in_other_loop, backend=other)
    async with anyio.create_task_group() as tasks, turns.turn():
        tasks.start_soon(anyio.to_thread.run_sync, run_other)
        await anyio.to_thread.run_sync(stopped.wait)
    async with turns.turn():
        assert stopped.is_set()


def test_requests_of_several_event_loops_make_one_build(build):
    """[routing 107] asyncio and trio at once."""
    builds, both = [], threading.Barrier(4)

    def encode(texts):
        if len(texts) > 1:
            builds.append(texts)
        return [EAST if text == "east" else NORTH for text in texts]

    router = build(CallableEmbeddingGenerator(encode), code=["east"], chat=["north"])
    answers = []

    async def ask():
        await anyio.to_thread.run_sync(both.wait)
        answers.extend(await ask_together(router, 3))

    backends = ["asyncio", "trio"] * 2
    threads = [
        threading.Thread(target=anyio.run, args=(ask,), kwargs={"backend": backend})
        for backend in backends
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert answers == ["code"] * 12
    assert len(builds) == 1


def test_a_router_outlives_an_event_loop(build, plane):
    """One after the other, of either kind."""
    router = build(code=["east"])

    for backend in ["asyncio", "trio", "asyncio"]:
        assert anyio.run(router.explain, "east", backend=backend).route == "code"

    assert plane.calls.count(("east",)) == 4


# --- usable ---------------------------------------------------------------------------------------


UNUSABLE = [
    pytest.param(None, "NoneType", id="none"),
    pytest.param([[1.0, 0.0]] * 3, "3 vectors for 2 texts", id="too many"),
    pytest.param([[1.0, 0.0]], "1 vectors for 2 texts", id="too few"),
    pytest.param([[], []], r"shape \(2, 0\)", id="empty vectors"),
    pytest.param([], r"shape \(0,\)", id="nothing"),
    pytest.param([[1.0, 0.0], [1.0]], "list for 2 texts", id="several lengths"),
    pytest.param([[1.0, 0.0], None], "list for 2 texts", id="a missing vector"),
    pytest.param([1.0, 0.0], r"shape \(2,\)", id="one vector"),
    pytest.param([[[1.0]], [[1.0]]], r"shape \(2, 1, 1\)", id="nested too deep"),
    pytest.param([["1", "0"], ["0", "1"]], r"shape \(2, 2\)", id="texts"),
    pytest.param([[1j, 0], [0, 1]], r"shape \(2, 2\)", id="complex numbers"),
]


@pytest.mark.parametrize(("value", "message"), UNUSABLE)
async def test_what_is_not_a_vector_for_each_text_is_an_error(build, value, message):
    """[routing 108]"""
    router = build(FakeEmbeddingGenerator(returns(value)), code=["a", "b"])

    with pytest.raises(EmbeddingError, match=message) as raised:
        await router.warm_up()

    assert isinstance(raised.value, RuntimeError)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(None, "NoneType", id="none"),
        pytest.param([], "1 texts", id="nothing"),
        pytest.param([EAST, EAST], "2 vectors for 1 texts", id="two"),
        pytest.param(
            [[1.0, 0.0, 0.0]], "length 3, but those of the index have 2", id="another length"
        ),
    ],
)
async def test_an_unusable_query_is_an_error_and_the_index_stays(build, value, message):
    """[routing 108]"""
    generator = FakeEmbeddingGenerator.per_call([], returns(value), vectors={"east": EAST})
    router = build(generator, code=["east"])

    with pytest.raises(EmbeddingError, match=message):
        await router.get_response("east")

    assert (await router.explain("east")).route == "code"
    assert len(generator.calls) == 3


async def test_many_queries_are_checked_as_one_is(build):
    generator = FakeEmbeddingGenerator.per_call([], returns([[1.0]]), vectors={"east": EAST})

    with pytest.raises(EmbeddingError, match="length 1"):
        await build(generator, code=["east"]).explain_many(["east"])


async def test_batches_of_several_lengths_are_an_error(build):
    """[routing 108]"""
    generator = FakeEmbeddingGenerator.per_call([], returns([[1.0]]), vectors={"a": EAST})

    with pytest.raises(EmbeddingError, match=r"lengths \[1, 2\]"):
        await build(generator, code=["a", "b"], batch_size=1).warm_up()


@pytest.mark.virtual_time
async def test_a_generator_that_takes_too_long_is_an_error(build):
    router = build(
        FakeEmbeddingGenerator.per_call([], waits(60), vectors={"east": EAST}),
        code=["east"],
        embedding_timeout=5,
    )

    with pytest.raises(EmbeddingTimeoutError, match=r"within 5 s for 1 texts") as raised:
        await router.get_response("east")

    assert anyio.current_time() < 6
    assert isinstance(raised.value, TimeoutError)
    assert classify(raised.value).kind is FailureKind.TIMEOUT
    assert (await router.explain("east")).route == "code"


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("timeout", [None, 5])
async def test_a_generator_that_cancels_itself_has_failed(build, timeout):
    """As any client would have: the caller did not give up. Only asyncio lets it happen."""
    router = build(FakeEmbeddingGenerator(cancels_itself()), code=["x"], embedding_timeout=timeout)

    with pytest.raises(EmbeddingError, match="cancelled from inside"):
        await router.get_response("x")


# --- remembering queries --------------------------------------------------------------------------


async def test_queries_are_not_remembered_by_default(build, plane):
    router = build(code=["east"])

    for _ in range(2):
        await router.explain("north")

    assert plane.calls.count(("north",)) == 2


async def test_a_few_queries_can_be_remembered(build, plane):
    router = build(code=["east"], chat=["north"], query_cache_size=2)

    routes = [(await router.explain(text)).route for text in ["north", "east", "north", "west"]]
    again = [(await router.explain(text)).route for text in ["north", "east"]]

    assert routes == ["chat", "code", "chat", "chat"]
    assert again == ["chat", "code"]
    assert plane.calls[1:] == [("north",), ("east",), ("west",), ("east",)]
