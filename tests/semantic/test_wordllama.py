"""The encoder that works offline: from the installed package's files, and nothing else."""

import os
import subprocess
import sys
from importlib.util import find_spec

import anyio
import numpy as np
import pytest

from chatrouting.errors import ClientClosedError, MissingExtraError
from chatrouting.semantic import WordLlamaEmbeddingGenerator
from chatrouting.semantic.wordllama import _open_model

needs_package = pytest.mark.skipif(
    find_spec("wordllama") is None,
    reason="the package wordllama is not installed: pip install 'chatrouting[wordllama]'",
)

TEXTS = [
    "how do i transfer money to another account",
    "Send 50 euros to Anna, please!",
    "what is the weather like in Oslo",
    "",
    "ärgerlich 漢字 🙂 " * 40,
]

#: No network, as Linux has it if it lets us, and none in Python whatever the system.
UNPLUGGED = """
import ctypes, sys

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
if sys.platform == "linux":
    libc = ctypes.CDLL(None)
    libc.unshare(NEW_NETWORK) == 0 or libc.unshare(NEW_USER | NEW_NETWORK)

def forbid(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"):
        raise RuntimeError(f"network: {event} {args}")

sys.addaudithook(forbid)
"""


def run(script, backend="asyncio"):
    """Run a script in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, backend],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


@needs_package
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_it_routes_with_the_network_unplugged(backend):
    """And loads neither the package itself, nor what it would download with."""
    script = f"""{UNPLUGGED}
import anyio
from chatrouting import SemanticRoutingChatClient
from chatrouting.semantic import WordLlamaEmbeddingGenerator
from chatrouting.testing import ScriptedChatClient

async def main():
    clients = {{name: ScriptedChatClient(name) for name in ("bank", "weather", "default")}}
    router = SemanticRoutingChatClient(
        WordLlamaEmbeddingGenerator(),
        {{
            "bank": (clients["bank"], ["transfer money", "what is my balance"]),
            "weather": (clients["weather"], ["will it rain", "how warm is it today"]),
        }},
        clients["default"],
        score_aggregation="blend",
        score_threshold=0.4,
    )
    async with router:
        for text in ("send money to my brother", "is it going to rain today", "sing me a song"):
            print((await router.get_response(text)).text)

anyio.run(main, backend=sys.argv[1])
print(sorted(sys.modules.keys() & {{"wordllama", "requests", "pydantic", "torch", "safetensors"}}))
"""
    assert run(script, backend)[:4] == ["bank", "weather", "default", "[]"]


@needs_package
def test_the_network_would_be_missed():
    """The audit sees a connection that is tried."""
    script = f"""{UNPLUGGED}
import socket
try:
    socket.create_connection(("192.0.2.1", 9), timeout=1)
except RuntimeError as error:
    print("forbidden")
"""
    assert run(script)[0] == "forbidden"


@needs_package
def test_the_vectors_are_those_of_the_package_itself():
    """Its own loader finds its own tokenizer only if it is told where."""
    script = f"""
import anyio, json, sys
from pathlib import Path
import numpy as np
import wordllama
from chatrouting.semantic import WordLlamaEmbeddingGenerator

texts = {TEXTS!r}
theirs = wordllama.WordLlama.load(
    cache_dir=Path(wordllama.__file__).parent, disable_download=True
).embed(texts)
ours = anyio.run(WordLlamaEmbeddingGenerator().generate, texts)
print(np.abs(ours - theirs).max() < 1e-6, ours.shape, ours.dtype)
"""
    assert run(script)[0] == "True (5, 256) float32"


@needs_package
async def test_related_texts_come_near_to_one_another():
    async with WordLlamaEmbeddingGenerator() as generator:
        vectors = await generator.generate(TEXTS[:3])

    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert units[0] @ units[1] > units[0] @ units[2] + 0.1


@needs_package
async def test_texts_are_embedded_alike_alone_and_among_many():
    """Many, and long ones, in a worker thread."""
    generator = WordLlamaEmbeddingGenerator()

    alone = [(await generator.generate([text]))[0] for text in TEXTS]
    many = await generator.generate(iter(TEXTS * 10))
    (long,) = await generator.generate(["transfer money " * 2000])
    (short,) = await generator.generate(["transfer money"])

    np.testing.assert_array_equal(many, np.array(alone * 10))
    assert long @ short > 0.99 * np.linalg.norm(long) * np.linalg.norm(short)


@needs_package
async def test_first_calls_at_once_open_the_files_once():
    generator = WordLlamaEmbeddingGenerator()
    vectors = []

    async def ask():
        vectors.append(await generator.generate(["transfer money"]))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)

    assert len(vectors) == 3
    np.testing.assert_array_equal(vectors[0], vectors[2])


@needs_package
async def test_a_text_without_tokens_has_no_direction():
    (vector,) = await WordLlamaEmbeddingGenerator().generate([""])

    assert not vector.any()


@needs_package
async def test_a_closed_generator_is_not_used():
    generator = WordLlamaEmbeddingGenerator()
    await generator.generate(["a"])
    await generator.aclose()
    await generator.aclose()

    with pytest.raises(ClientClosedError):
        await generator.generate(["a"])


@pytest.mark.parametrize("module", ["wordllama", "tokenizers"])
def test_without_the_package_the_message_says_how_to_get_it(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)  # how Python notes that there is none

    with pytest.raises(MissingExtraError, match=r"pip install 'chatrouting\[wordllama\]'"):
        WordLlamaEmbeddingGenerator()


HEADER = b'{"embedding.weight": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]}}'


@pytest.mark.parametrize(
    "weights",
    [
        pytest.param(None, id="no file"),
        pytest.param(b"", id="empty"),
        pytest.param((2).to_bytes(8, "little") + b"{}", id="other weights"),
        pytest.param(len(HEADER).to_bytes(8, "little") + HEADER + bytes(4), id="other numbers"),
    ],
)
def test_files_that_are_not_those_expected_are_refused(tmp_path, weights):
    """Such as a later release with other names in it."""
    pytest.importorskip("tokenizers")
    if weights is not None:
        (tmp_path / "weights").mkdir()
        (tmp_path / "weights" / "l2_supercat_256.safetensors").write_bytes(weights)

    with pytest.raises(MissingExtraError, match="holds no readable weights"):
        _open_model(tmp_path)
