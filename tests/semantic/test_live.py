"""Utterances that come and go while requests run."""

import anyio
import pytest

from chatrouting.errors import ConfigurationError, EmbeddingError, RateLimitError
from chatrouting.testing import FakeEmbeddingGenerator, Gate, fails, returns, waits_for

PLANE = {"east": [1.0, 0.0], "north": [0.0, 1.0], "west": [-1.0, 0.0], "north-east": [1.0, 1.0]}


async def test_utterances_can_be_added(build, plane):
    """Only the new ones are embedded; they stand behind the route's own."""
    router = build(code=["east"], chat=["north"])
    assert (await router.explain("west")).route == "chat"

    await router.add_utterances("code", ["west", "west", "east"])

    assert (await router.explain("west")).route == "code"
    assert router.utterances == {"code": ("east", "west"), "chat": ("north",)}
    assert plane.calls == [("east", "north"), ("west",), ("west",), ("west",)]


async def test_utterances_added_before_the_first_request_wait_for_it(build, plane):
    router = build(code=["east"], chat=["north"])

    await router.add_utterances("code", ["west"])
    assert plane.calls == []

    await router.warm_up()
    assert plane.calls == [("east", "west", "north")]


async def test_utterances_that_are_there_already_need_no_vectors(build, plane):
    router = build(code=["east"])
    await router.warm_up()

    await router.add_utterances("code", ["east"])

    assert plane.calls == [("east",)]


@pytest.mark.parametrize("is_warm", [True, False])
async def test_utterances_can_be_removed(build, plane, is_warm):
    """Nothing is embedded for it."""
    router = build(code=["east", "north", "west"], chat=["north-east"])
    if is_warm:
        await router.warm_up()

    await router.remove_utterances("code", ["north", "east"])

    assert router.utterances == {"code": ("west",), "chat": ("north-east",)}
    assert (await router.explain("north")).route == "chat"
    assert (await router.explain("west")).scores["code"] == pytest.approx(1.0)
    assert len(plane.calls) == 3


@pytest.mark.parametrize(
    ("route", "utterances", "message"),
    [
        ("coding", ["x"], "there is no route 'coding'; expected one of 'code', 'chat'"),
        ("default", ["x"], "there is no route 'default'"),
        ("code", [" "], "utterance 1 of route 'code' is blank"),
        ("code", [], "route 'code' has no utterances"),
        ("code", "text", "utterances of route 'code' are str"),
    ],
)
@pytest.mark.parametrize("change", ["add_utterances", "remove_utterances"])
async def test_changes_that_make_no_sense_are_refused(build, change, route, utterances, message):
    router = build(code=["east", "west"], chat=["north"])

    with pytest.raises(ConfigurationError, match=message):
        await getattr(router, change)(route, utterances)


@pytest.mark.parametrize(
    ("utterances", "message"),
    [
        (["east", "south"], "route 'code' has no utterance 'south'"),
        (["east", "west"], "route 'code' would have no utterances left"),
    ],
)
async def test_only_what_is_there_is_removed_and_not_all_of_it(build, utterances, message):
    router = build(code=["east", "west"])

    with pytest.raises(ConfigurationError, match=message):
        await router.remove_utterances("code", utterances)

    assert router.utterances == {"code": ("east", "west")}


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (fails(RateLimitError), RateLimitError),
        (returns([[1.0]]), EmbeddingError),
        (returns(None), EmbeddingError),
    ],
)
async def test_a_failed_change_changes_nothing(build, step, error):
    generator = FakeEmbeddingGenerator.per_call([], step, vectors=PLANE)
    router = build(generator, code=["east"], chat=["north"])
    await router.warm_up()

    with pytest.raises(error):
        await router.add_utterances("code", ["west"])

    assert router.utterances == {"code": ("east",), "chat": ("north",)}
    assert (await router.explain("west")).route == "chat"


async def test_requests_see_all_of_a_change_or_nothing(build):
    """The old index serves until the new one is there."""
    gate = Gate()
    generator = FakeEmbeddingGenerator.per_call([], [waits_for(gate)], vectors=PLANE)
    router = build(generator, code=["east"], chat=["north"])
    await router.warm_up()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(router.add_utterances, "code", ["west", "north-east"])
        await gate.reached()
        during = await router.explain("west")
        assert router.utterances["code"] == ("east",)
        gate.open()
    after = await router.explain("west")

    assert during.scores == {"code": -1.0, "chat": 0.0}
    assert after.scores == {"code": 1.0, "chat": 0.0}


async def test_a_request_that_began_before_a_change_ends_with_the_old_index(build):
    gate = Gate()
    generator = FakeEmbeddingGenerator.per_call([], [waits_for(gate)], vectors=PLANE)
    router = build(generator, code=["east", "west"], chat=["north"])
    await router.warm_up()
    decisions = []

    async def ask():
        decisions.append(await router.explain("west"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await gate.reached()
        await router.remove_utterances("code", ["west"])
        gate.open()

    assert decisions[0].scores == {"code": 1.0, "chat": 0.0}
    assert (await router.explain("west")).scores == {"code": -1.0, "chat": 0.0}


async def test_changes_at_once_are_all_kept(build):
    router = build(FakeEmbeddingGenerator(), code=["one"], chat=["other"])
    await router.warm_up()

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(router.add_utterances, "code", [f"text {number}"])
            tasks.start_soon(router.add_utterances, "chat", [f"word {number}"])

    assert set(router.utterances["code"]) == {"one", *(f"text {number}" for number in range(10))}
    assert (await router.explain("word 7")).route == "chat"
    assert (await router.explain("text 7")).score == pytest.approx(1.0)


async def test_large_changes_are_made_beside_the_event_loop(build):
    texts = [f"text {number}" for number in range(1500)]
    router = build(FakeEmbeddingGenerator(), code=texts, chat=["other"])
    await router.warm_up()

    await router.add_utterances("chat", ["another"])
    await router.remove_utterances("code", texts[:1000])

    assert (await router.explain("another")).route == "chat"
    assert (await router.explain("text 1200")).score == pytest.approx(1.0)
    assert len(router.utterances["code"]) == 500
