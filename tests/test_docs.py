"""Every code block of the README and of `docs/` is run, and every link leads somewhere.

What writers of pages need to know:

- `python` blocks of one page share their names and run in order, on asyncio and on trio. They may
  `await` at the top level. A block that starts an event loop of its own, by `anyio.run` or
  `asyncio.run`, runs in a thread. Functions named `test_...` without parameters are called.
- A `python before` block quotes a file of `benchmarks/migrating/`, word for word. It needs what a
  reader leaves behind, so it is not run here but by `benchmarks/try_migrating.py`.
- An `output` block is what the `python` block before it prints; `...` stands for anything.
- The prelude: the environment variables of the SDKs point at a `ProviderServer` on loopback, which
  answers "Hello from the provider." to everything, so `AsyncOpenAI()` works as it stands. There are
  two exceptions: `gpt-busy` is overloaded, `gpt-flaky` fails at its first request.
- Commands in `sh` blocks must exist. Any other block needs another language, such as `text`.
"""

import ast
import contextlib
import doctest
import inspect
import io
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from chatrouting.testing import ProviderServer, RecordedRequest, Reply

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PAGES_OF_THE_PROJECT = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
PROGRAMS_BEFORE = ROOT / "benchmarks" / "migrating"
WRAPPER_PAGES = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "routing",
        "ordered-failover",
        "failover",
        "retry",
        "semantic-routing",
        "endpoint-pools",
        "quota",
        "adapters",
        "sync",
    )
]
#: What the page of a wrapper tells, in this order; its own chapters stand between.
FORM = [
    "Usage",
    "Defaults",
    "What it guarantees, and what not",
    "Telemetry",
    "All well, and failing",
    "What goes around and inside it",
    "Patterns",
    "Anti-patterns",
    "Tests to copy",
    "Origin",
]
LANGUAGES = {"python", "python before", "output", "sh", "text"}

DEMO = "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/chatrouting demo"
TESTS = "python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' && .venv/bin/pytest"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^( *)```([^\n]*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, match.start(3)) + 1
        found.append(Block(match[2], textwrap.dedent(match[3]), line))
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Running Python.


async def run(block: Block, page: Path, names: dict[str, Any]) -> str:
    """Run a block and return what it prints."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    # Blank lines before, so that a traceback shows the line of the page.
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, str(page), "exec", flags=flags, dont_inherit=True)
    printed = io.StringIO()
    before = set(names)
    with contextlib.redirect_stdout(printed):
        if re.search(r"^(anyio|asyncio)\.run\(", block.text, re.MULTILINE):
            await anyio.to_thread.run_sync(eval, code, names)
        else:
            await _finish(eval(code, names))  # noqa: S307  # the block of our own page
        for name in sorted(set(names) - before):
            if name.startswith("test_") and not inspect.signature(names[name]).parameters:
                await _finish(names[name]())
    return printed.getvalue()


async def _finish(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


@pytest.fixture
async def _prelude(anyio_backend: object, monkeypatch: pytest.MonkeyPatch) -> Any:
    seen: set[str | None] = set()

    def answer(request: RecordedRequest) -> Reply:
        is_new = request.model not in seen
        seen.add(request.model)
        fails = request.model == "gpt-busy" or (request.model == "gpt-flaky" and is_new)
        return Reply.error(503) if fails else Reply()

    async with ProviderServer(answer) as server:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY"):
            monkeypatch.setenv(name, "unused")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_base_url)
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("OPENAI_API_VERSION", "2026-01-01")
        yield


@pytest.mark.usefixtures("_prelude")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
async def test_every_block_of_a_page_runs(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    checker = doctest.OutputChecker()
    for block in blocks(page):
        if block.language == "python":
            printed = await run(block, page, names)
        elif block.language == "output":
            is_same = checker.check_output(block.text, printed, doctest.ELLIPSIS)
            assert is_same, f"{name_of(page)}:{block.line} prints:\n{printed}"


# Languages, commands and links.


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    unknown = [(block.line, block.language) for block in blocks(page)]
    assert [each for each in unknown if each[1] not in LANGUAGES] == []


def test_every_program_before_a_migration_is_quoted_from_its_file() -> None:
    """What is not run here must be the very program that is run elsewhere."""
    quoted = {
        block.text for page in PAGES for block in blocks(page) if block.language == "python before"
    }
    assert quoted == {path.read_text("utf-8") for path in PROGRAMS_BEFORE.glob("*.py")}


def test_the_readme_shows_the_two_commands_first() -> None:
    """One line each does all of its set-up; the second is what the checks run, word for word."""
    first = blocks(ROOT / "README.md")[0]
    assert first.text.splitlines() == [DEMO, TESTS]
    assert TESTS in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES_OF_THE_PROJECT:
        for block in blocks(page):
            if block.language == "sh":
                for line in block.text.splitlines():
                    yield from ((name_of(page), each.strip()) for each in line.split("&&"))


@pytest.mark.parametrize(("page", "command"), list(commands()))
def test_every_command_exists(page: str, command: str) -> None:
    program, *arguments = command.split()
    installed = Path(sys.executable).parent
    if program.startswith(".venv/bin/"):
        assert (installed / program.removeprefix(".venv/bin/")).exists()
    elif program == "chatrouting":
        assert (installed / program).exists()
    else:
        assert program in {"export", "git", "pip", "python3"} or (ROOT / program).exists()
    if program.endswith("chatrouting"):
        assert arguments[0] in {"chat", "demo", "pool", "quota", "semantic"}
    paths = [each for each in arguments if each.startswith("tests/")]
    assert all((ROOT / each).exists() for each in paths)


def links(page: Path) -> Iterator[str]:
    text = re.sub(
        r"^( *)```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    yield from re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES_OF_THE_PROJECT, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken: list[str] = []
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", WRAPPER_PAGES, ids=name_of)
def test_every_page_of_a_wrapper_has_one_form(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text("utf-8"), re.MULTILINE)
    assert [each for each in headings if each in FORM] == FORM


def in_reading_order() -> list[tuple[str, str]]:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    return re.findall(r"^\d+\. \[([^\]]+)\]\(([^)]+)\)", index, re.MULTILINE)


def test_the_index_lists_every_page() -> None:
    listed = {ROOT / "docs" / path for _, path in in_reading_order()}
    assert listed == {*PAGES} - {ROOT / "README.md", ROOT / "docs" / "index.md"}


def test_every_page_ends_with_the_next_one() -> None:
    """Whoever reads from the index on meets every page, in the order of its list."""
    order = in_reading_order()
    wrong: list[str] = []
    for (_, path), (title, following) in pairwise(order):
        page = ROOT / "docs" / path
        last = page.read_text("utf-8").splitlines()[-1]
        link = os.path.relpath(ROOT / "docs" / following, page.parent)
        if last != f"Next: [{title}]({link}).":
            wrong.append(f"{path}: {last}")
    assert wrong == []


# The runner itself.


async def _printed(text: str) -> str:
    return await run(Block("python", text, 1), ROOT / "README.md", {})


async def test_a_block_may_await_and_print() -> None:
    code = "import anyio\nawait anyio.lowlevel.checkpoint()\nprint('done')"
    assert await _printed(code) == "done\n"


async def test_a_block_may_start_a_loop_of_its_own() -> None:
    code = "import anyio\nasync def main():\n    print('done')\nanyio.run(main)"
    assert await _printed(code) == "done\n"


async def test_tests_of_a_block_are_run() -> None:
    with pytest.raises(ZeroDivisionError):
        await _printed("async def test_nothing():\n    1 / 0")
