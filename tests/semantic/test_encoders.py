"""Generators out of functions, generators that remember, and what both refuse."""

import threading
from functools import partial

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np
import pytest

from chatrouting import EmbeddingGenerator
from chatrouting.errors import (
    ClientClosedError,
    ConfigurationError,
    EmbeddingError,
    RateLimitError,
)
from chatrouting.semantic import CachedEmbeddingGenerator, CallableEmbeddingGenerator
from chatrouting.testing import FakeEmbeddingGenerator, fails, returns


def lengths(texts):
    return [[float(len(text)), 1.0] for text in texts]


async def lengths_later(texts):
    await anyio.lowlevel.checkpoint()
    return lengths(texts)


class Encoder:
    """An object with methods, as models are."""

    def encode(self, texts):
        return lengths(texts)

    async def encode_later(self, texts):
        return await lengths_later(texts)


class AsyncCall:
    """An object that is called, and awaited."""

    async def __call__(self, texts):
        return await lengths_later(texts)


class Call:
    """An object that is called."""

    def __call__(self, texts):
        return np.array(lengths(texts))


def scaled(texts, factor):
    return [[factor * part for part in vector] for vector in lengths(texts)]


# --- functions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lengths, id="function"),
        pytest.param(lengths_later, id="async function"),
        pytest.param(lambda texts: lengths_later(list(texts)), id="lambda of an async function"),
        pytest.param(Encoder().encode, id="method"),
        pytest.param(Encoder().encode_later, id="async method"),
        pytest.param(partial(scaled, factor=1.0), id="partial"),
        pytest.param(Call(), id="object"),
        pytest.param(AsyncCall(), id="async object"),
    ],
)
async def test_any_function_is_a_generator(function):
    async with CallableEmbeddingGenerator(function) as generator:
        assert isinstance(generator, EmbeddingGenerator)
        vectors = await generator.generate(iter(["a", "abc"]))

    assert np.asarray(vectors).tolist() == [[1.0, 1.0], [3.0, 1.0]]


async def test_a_function_runs_in_a_worker_thread_and_an_async_one_in_the_loop():
    """[BR-88]"""
    threads = {}

    def compute(texts):
        threads["sync"] = threading.current_thread()
        return lengths(texts)

    async def ask(texts):
        threads["async"] = threading.current_thread()
        return lengths(texts)

    await CallableEmbeddingGenerator(compute).generate(["a"])
    await CallableEmbeddingGenerator(ask).generate(["a"])

    assert threads["sync"] is not threading.current_thread()
    assert threads["async"] is threading.current_thread()


async def test_nobody_waits_for_a_function_that_nobody_waits_for():
    """[BR-88] A caller that gives up gets away at once."""
    began, may_end = threading.Event(), threading.Event()

    def compute(texts):
        began.set()
        assert may_end.wait(10)
        return lengths(texts)

    generator = CallableEmbeddingGenerator(compute)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(generator.generate, ["a"])
        await anyio.to_thread.run_sync(began.wait)
        tasks.cancel_scope.cancel()
    assert not may_end.is_set()
    may_end.set()


async def test_what_a_function_raises_is_raised():
    def compute(texts):
        raise RateLimitError("busy")

    with pytest.raises(RateLimitError):
        await CallableEmbeddingGenerator(compute).generate(["a"])


async def test_a_closed_generator_is_not_used():
    generator = CallableEmbeddingGenerator(lengths)
    await generator.aclose()
    await generator.aclose()

    with pytest.raises(ClientClosedError):
        await generator.generate(["a"])


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="function is None"):
        CallableEmbeddingGenerator(None)
    with pytest.raises(ConfigurationError, match="function is list"):
        CallableEmbeddingGenerator([])


# --- remembering ----------------------------------------------------------------------------------


async def test_only_what_is_not_known_is_asked_for():
    inner = FakeEmbeddingGenerator()
    generator = CachedEmbeddingGenerator(inner)

    first = await generator.generate(["a", "b", "a"])
    second = await generator.generate(iter(["c", "b", "c"]))
    third = await generator.generate(["c", "a"])

    assert inner.calls == [("a", "b"), ("c",)]
    plain = np.asarray(await inner.generate(["a", "b", "c"]), np.float32)
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, plain[[0, 1, 0]])
    np.testing.assert_array_equal(second, plain[[2, 1, 2]])
    np.testing.assert_array_equal(third, plain[[2, 0]])


async def test_the_longest_unused_is_forgotten():
    inner = FakeEmbeddingGenerator()
    generator = CachedEmbeddingGenerator(inner, maximum_size=2)

    for text in ["a", "b", "a", "c", "a", "b"]:
        await generator.generate([text])

    assert inner.calls == [("a",), ("b",), ("c",), ("b",)]


async def test_more_texts_than_are_kept_are_answered():
    inner = FakeEmbeddingGenerator()
    generator = CachedEmbeddingGenerator(inner, maximum_size=2)

    assert len(await generator.generate(["a", "b", "c", "d"])) == 4
    assert len(await generator.generate(["c", "d"])) == 2
    assert len(inner.calls) == 1


async def test_what_is_handed_out_is_a_copy():
    inner = FakeEmbeddingGenerator()
    generator = CachedEmbeddingGenerator(inner)

    vectors = await generator.generate(["a"])
    before = vectors.copy()
    vectors[:] = 0

    np.testing.assert_array_equal(await generator.generate(["a"]), before)


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
async def test_vectors_that_are_not_finite_are_not_kept(odd):
    inner = FakeEmbeddingGenerator.per_call(returns([[odd, 1.0]]), vectors={"a": [1.0, 0.0]})
    generator = CachedEmbeddingGenerator(inner)

    assert not np.isfinite(await generator.generate(["a"])).all()
    assert np.isfinite(await generator.generate(["a"])).all()
    assert len(inner.calls) == 2


async def test_a_failure_is_not_kept():
    inner = FakeEmbeddingGenerator.per_call(fails(RateLimitError))
    generator = CachedEmbeddingGenerator(inner)

    with pytest.raises(RateLimitError):
        await generator.generate(["a"])

    assert len(await generator.generate(["a"])) == 1


async def test_unusable_vectors_are_not_kept():
    inner = FakeEmbeddingGenerator.per_call(returns([[1.0], [1.0]]))
    generator = CachedEmbeddingGenerator(inner)

    with pytest.raises(EmbeddingError, match="2 vectors for 1 texts"):
        await generator.generate(["a"])

    assert len(await generator.generate(["a"])) == 1


async def test_vectors_of_another_length_than_before_are_an_error():
    inner = FakeEmbeddingGenerator.per_call([], returns([[1.0]]))
    generator = CachedEmbeddingGenerator(inner)
    await generator.generate(["a"])

    with pytest.raises(EmbeddingError, match=r"lengths \[1, 32\]"):
        await generator.generate(["a", "b"])


async def test_no_texts_ask_nobody():
    inner = FakeEmbeddingGenerator()

    assert len(await CachedEmbeddingGenerator(inner).generate([])) == 0
    assert inner.calls == []


async def test_closing_it_closes_what_it_asks():
    inner = FakeEmbeddingGenerator()

    async with CachedEmbeddingGenerator(inner):
        assert inner.close_count == 0

    assert inner.close_count == 1


@pytest.mark.parametrize(
    ("inner", "settings", "error", "message"),
    [
        (None, {}, TypeError, "inner is None"),
        (lengths, {}, ConfigurationError, "inner is function, which is no embedding generator"),
        (FakeEmbeddingGenerator(), {"maximum_size": 0}, ConfigurationError, "maximum_size is 0"),
    ],
)
def test_what_makes_no_sense_is_refused(inner, settings, error, message):
    with pytest.raises(error, match=message):
        CachedEmbeddingGenerator(inner, **settings)
