"""Run the programs that `docs/migrating/` quotes as "before", and compare what they print.

    pip install -e . -r benchmarks/requirements-peers.txt
    python benchmarks/try_migrating.py

A page shows one output for its two programs. The one after a migration runs in the test suite; the
one before it runs here, since it needs the library that is left. The provider is the one of the
test suite: `gpt-busy` is overloaded, `gpt-flaky` fails at its first request, all others answer.
"""

import difflib
import os
import re
import sys
from pathlib import Path

import anyio

from chatrouting.testing import ProviderServer, RecordedRequest, Reply

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "migrating"
PROGRAMS = sorted((ROOT / "benchmarks" / "migrating").glob("*.py"))


def shown_output(program: Path) -> str:
    """Return the first output on the page that quotes a program, behind the quotation."""
    page = PAGES / f"{program.stem.replace('_', '-')}.md"
    behind = page.read_text("utf-8").partition(f"```python before\n{program.read_text('utf-8')}")[2]
    found = re.search(r"^```output\n(.*?)^```$", behind, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"{page} does not quote {program.name} with an output behind it.")
    return found[1]


async def printed_by(program: Path) -> tuple[str, list[str]]:
    """Run a program; return what it prints, and the models that it asked, in order."""
    seen: set[str | None] = set()

    def answer(request: RecordedRequest) -> Reply:
        is_new = request.model not in seen
        seen.add(request.model)
        fails = request.model == "gpt-busy" or (request.model == "gpt-flaky" and is_new)
        return Reply.error(503) if fails else Reply()

    async with ProviderServer(answer) as server:
        environment = {
            **os.environ,
            "NO_PROXY": "127.0.0.1",
            "OPENAI_API_KEY": "unused",
            "OPENAI_BASE_URL": server.openai_base_url,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else its import fetches a table of prices
        }
        done = await anyio.run_process([sys.executable, str(program)], env=environment, stderr=None)
    return done.stdout.decode(), [request.model or "" for request in server.requests]


async def main() -> int:
    """Run all programs; return how many print something else than their page says."""
    wrong = 0
    for program in PROGRAMS:
        printed, asked = await printed_by(program)
        expected = shown_output(program)
        difference = difflib.unified_diff(expected.splitlines(), printed.splitlines(), lineterm="")
        print(f"{program.name}: {'as shown' if printed == expected else 'DIFFERS'}; asked {asked}")
        print(*difference, sep="\n", end="")
        wrong += printed != expected
    return wrong


if __name__ == "__main__":
    sys.exit(anyio.run(main))
