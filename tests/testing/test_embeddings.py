"""The fake embedding generator: vectors given or made from words, and how it misbehaves."""

import math
import subprocess
import sys

import anyio
import numpy as np
import pytest

from chatrouting.errors import ClientClosedError, ConfigurationError, OverloadedError
from chatrouting.testing import FakeEmbeddingGenerator, Gate, fails, returns, waits, waits_for

pytestmark = pytest.mark.virtual_time


def cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_given_vectors_are_handed_out_as_they_are(anyio_backend):
    generator = FakeEmbeddingGenerator(vectors={"yes": (3, 4), "no": (0, 1)})

    vectors = await generator.generate(["no", "yes"])

    assert vectors == [[0, 1], [3, 4]]
    assert generator.calls == [("no", "yes")]


async def test_what_the_caller_does_to_a_vector_stays_with_the_caller(anyio_backend):
    generator = FakeEmbeddingGenerator(vectors={"yes": [3, 4]})

    (await generator.generate(["yes"]))[0].clear()

    assert await generator.generate(["yes"]) == [[3, 4]]


@pytest.mark.parametrize("dimension", [1, 2, 32, 1536])
async def test_other_texts_get_a_vector_of_length_one(anyio_backend, dimension):
    generator = FakeEmbeddingGenerator(dimension=dimension)

    array = np.asarray(await generator.generate(["fix my bug", "", "Ünï"]), dtype=np.float32)

    assert array.shape == (3, dimension)
    assert np.linalg.norm(array, axis=1) == pytest.approx(1)


async def test_the_dimension_is_that_of_the_given_vectors(anyio_backend):
    generator = FakeEmbeddingGenerator(vectors={"yes": (1, 0, 0)})

    assert [len(vector) for vector in await generator.generate(["yes", "unknown"])] == [3, 3]
    assert len((await FakeEmbeddingGenerator().generate(["unknown"]))[0]) == 32


async def test_texts_that_share_words_come_out_alike(anyio_backend):
    generator = FakeEmbeddingGenerator(dimension=256)

    bug, same, close, far = await generator.generate(
        ["fix my bug", "Fix  MY bug", "please fix this bug", "boil two eggs"]
    )

    assert bug == same
    assert cosine(bug, close) > 0.4
    assert math.fabs(cosine(bug, far)) < 0.25


def test_vectors_are_the_same_in_each_process():
    code = (
        "import anyio; from chatrouting.testing import FakeEmbeddingGenerator as Fake; "
        "print(anyio.run(Fake(dimension=4).generate, ['fix my bug']))"
    )

    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }

    assert len(outputs) == 1


async def test_failing_and_waiting_come_before_the_answer(anyio_backend):
    generator = FakeEmbeddingGenerator(waits(60), fails(OverloadedError))
    began = anyio.current_time()

    for _ in range(2):
        with pytest.raises(OverloadedError):
            await generator.generate(["a"])

    assert anyio.current_time() - began == pytest.approx(120)
    assert generator.calls == [("a",), ("a",)]


async def test_scripts_for_each_call_are_followed_by_answers(anyio_backend):
    generator = FakeEmbeddingGenerator.per_call(
        fails(OverloadedError), [waits(1), returns([[1.0], [2.0, 3.0]])], [], vectors={"a": [7.0]}
    )

    with pytest.raises(OverloadedError):
        await generator.generate(["a"])
    ragged = await generator.generate(["a"])
    answers = [await generator.generate(["a"]) for _ in range(2)]

    assert ragged == [[1.0], [2.0, 3.0]]
    assert answers == [[[7.0]], [[7.0]]]


async def test_a_gate_holds_the_answer_back(anyio_backend):
    gate = Gate()
    generator = FakeEmbeddingGenerator(waits_for(gate))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(generator.generate, ["a"])
        await gate.reached()
        gate.open()

    assert generator.calls == [("a",)]


async def test_one_text_is_not_a_list_of_texts(anyio_backend):
    with pytest.raises(TypeError, match="expected a list of texts"):
        await FakeEmbeddingGenerator().generate("abc")


async def test_no_text_is_refused_as_providers_do(anyio_backend):
    with pytest.raises(ValueError, match="expected one text or more"):
        await FakeEmbeddingGenerator().generate([])


@pytest.mark.parametrize("dimension", [None, 3])
def test_given_vectors_must_have_one_length(dimension):
    with pytest.raises(ConfigurationError, match="'no' is 1 long"):
        FakeEmbeddingGenerator(vectors={"yes": (1, 2, 3), "no": (1,)}, dimension=dimension)


async def test_a_closed_generator_refuses(anyio_backend):
    async with FakeEmbeddingGenerator() as generator:
        await generator.generate(["a"])
    await generator.aclose()

    with pytest.raises(ClientClosedError):
        await generator.generate(["a"])

    assert generator.close_count == 2
