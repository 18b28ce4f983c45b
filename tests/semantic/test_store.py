"""Vectors in a file: what is written is read, and nothing else is taken for it."""

import io
import pickle

import numpy as np
import pytest

from chatrouting.errors import ConfigurationError, RateLimitError
from chatrouting.semantic import CachedEmbeddingGenerator
from chatrouting.semantic.store import StoredVectors, read_vectors, write_vectors
from chatrouting.testing import FakeEmbeddingGenerator, fails

ROUTES = {"code": ["fix my bug", "it crashes"], "chat": ["good morning"]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "routes.vectors"


@pytest.fixture
async def saved(build, path):
    """Return a file that a router has written."""
    await build(FakeEmbeddingGenerator(), routes=ROUTES).save(path)
    return path


async def test_vectors_are_read_instead_of_made(build, path):
    """But for one, which shows that the encoder is the same."""
    first = build(FakeEmbeddingGenerator(), routes=ROUTES)
    await first.save(path)
    generator = FakeEmbeddingGenerator()
    second = build(generator, routes=ROUTES)

    await second.load(str(path))

    assert generator.calls == [("good morning",)]
    assert await second.explain("it crashes") == await first.explain("it crashes")
    assert generator.calls[1:] == [("it crashes",)]


async def test_saving_makes_the_vectors_if_need_be_and_replaces_the_file(build, plane, path):
    path.write_bytes(b"older")
    router = build(code=["east"])

    await router.save(path)
    await router.add_utterances("code", ["west"])
    await router.save(path)

    assert plane.calls == [("east",), ("west",)]
    assert list(read_vectors(path).routes["code"]) == ["east", "west"]
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_routes_and_utterances_may_stand_in_another_order(build, saved):
    router = build(
        FakeEmbeddingGenerator(),
        routes={"chat": ["good morning"], "code": ["it crashes", "fix my bug"]},
    )

    await router.load(saved)

    assert (await router.explain("fix my bug")).scores["code"] == pytest.approx(1.0)
    assert (await router.explain("good morning")).scores["chat"] == pytest.approx(1.0)


async def test_routes_that_are_not_configured_are_left_out(build, saved):
    """They take no place among the nearest."""
    router = build(FakeEmbeddingGenerator(), chat=["good morning"], top_k=2)

    await router.load(saved)

    decision = await router.explain("fix my bug")
    assert list(decision.scores) == ["chat"]
    assert decision.best == "chat"


async def test_another_class_may_make_the_same_vectors(build, saved):
    router = build(CachedEmbeddingGenerator(FakeEmbeddingGenerator()), routes=ROUTES)

    await router.load(saved)

    assert (await router.explain("fix my bug")).route == "code"


async def test_texts_without_a_direction_are_no_sign_of_another_encoder(build, plane, path):
    router = build(code=["nowhere", "east"])
    await router.save(path)

    await router.load(path)

    assert (await router.explain("east")).route == "code"


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        pytest.param({**ROUTES, "help": ["help"]}, "stale: it has no route 'help'", id="new route"),
        pytest.param(
            {**ROUTES, "code": [*ROUTES["code"], "it fails"]},
            "stale: of the utterances of route 'code', 1 are new and 0 are gone",
            id="new utterance",
        ),
        pytest.param(
            {**ROUTES, "code": ["fix my bug"]},
            "route 'code', 0 are new and 1 are gone",
            id="utterance gone",
        ),
        pytest.param(
            {"code": ROUTES["chat"], "chat": ROUTES["code"]}, "route 'code', 1 are new", id="moved"
        ),
    ],
)
async def test_a_stale_file_is_refused(build, saved, routes, message):
    router = build(FakeEmbeddingGenerator(), routes=routes)

    with pytest.raises(ConfigurationError, match=message):
        await router.load(saved)


async def test_a_file_of_another_dimension_is_refused(build, saved):
    router = build(FakeEmbeddingGenerator(dimension=64), routes=ROUTES)

    with pytest.raises(ConfigurationError, match="FakeEmbeddingGenerator, are 32 long; those of"):
        await router.load(saved)


async def test_a_file_of_another_encoder_is_refused(build, saved):
    """Of the same class and dimension: only its vectors tell."""
    other = FakeEmbeddingGenerator(vectors={"good morning": [1.0, *[0.0] * 31]})

    with pytest.raises(ConfigurationError, match="for one text their cosine is"):
        await build(other, routes=ROUTES).load(saved)


async def test_a_refused_file_leaves_the_index_that_was(build, saved):
    generator = FakeEmbeddingGenerator()
    router = build(generator, code=["fix my bug"], chat=["evening"])
    before = await router.explain("evening")

    with pytest.raises(ConfigurationError):
        await router.load(saved)

    assert await router.explain("evening") == before


async def test_what_the_encoder_raises_is_raised(build, saved):
    with pytest.raises(RateLimitError):
        await build(FakeEmbeddingGenerator(fails(RateLimitError)), routes=ROUTES).load(saved)


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


FOREIGN = [
    pytest.param(b"", id="empty"),
    pytest.param(b"split\tlabel\ttext\n", id="text"),
    pytest.param(pickle.dumps({"vectors": [1]}), id="pickle"),
    pytest.param(b"PK\x03\x04 and then nothing", id="broken zip"),
    pytest.param(npy(np.eye(2)), id="one array"),
    pytest.param(npz(other=np.eye(2)), id="other arrays"),
    pytest.param(npz(header=np.arange(3, dtype=np.uint8), vectors=np.eye(2)), id="no header"),
    pytest.param(npz(header=np.frombuffer(b"[]", np.uint8), vectors=np.eye(2)), id="a list"),
    pytest.param(
        npz(header=np.frombuffer(b'{"format": "x"}', np.uint8), vectors=np.eye(2)), id="no routes"
    ),
    pytest.param(
        npz(
            header=np.frombuffer(
                b'{"format": "x", "routes": {}, "encoder": "", "fingerprint": ""}', np.uint8
            ),
            vectors=np.eye(2),
        ),
        id="another format",
    ),
    pytest.param(npz(header=np.array([{}], object), vectors=np.eye(2)), id="objects"),
]


@pytest.mark.parametrize("content", FOREIGN)
async def test_a_foreign_file_is_refused(build, path, content):
    path.write_bytes(content)

    with pytest.raises(ConfigurationError, match="holds no utterance vectors of this library"):
        await build(code=["east"]).load(path)


async def test_a_damaged_file_is_refused(build, path):
    vectors = np.eye(2, dtype=np.float32)
    write_vectors(path, StoredVectors("x", {"code": ["east", "north"]}, vectors))
    content = path.read_bytes()
    path.write_bytes(content.replace(vectors.tobytes(), vectors[::-1].tobytes()))

    with pytest.raises(ConfigurationError):
        await build(code=["east", "north"]).load(path)


async def test_a_header_that_does_not_fit_is_refused(build, path):
    """Nobody counts rows that are not there."""
    write_vectors(path, StoredVectors("x", {"code": ["east"]}, np.eye(2, dtype=np.float32)))
    with np.load(path) as arrays:
        header = bytes(arrays["header"].tobytes()).replace(b'["east"]', b'["west"]')
        vectors = arrays["vectors"]
    path.write_bytes(npz(header=np.frombuffer(header, np.uint8), vectors=vectors))

    with pytest.raises(ConfigurationError, match="its fingerprint does not fit"):
        await build(code=["west"]).load(path)


async def test_a_file_that_is_not_there_is_an_os_error(build, tmp_path):
    with pytest.raises(FileNotFoundError):
        await build(code=["east"]).load(tmp_path / "missing")
    with pytest.raises(OSError, match="missing"):
        await build(code=["east"]).save(tmp_path / "missing" / "file")


def test_a_failed_write_leaves_nothing_behind(path):
    path.mkdir()

    with pytest.raises(OSError, match=path.name):
        write_vectors(path, StoredVectors("x", {"code": ["east"]}, np.eye(1, dtype=np.float32)))

    assert [each.name for each in path.parent.iterdir()] == [path.name]
