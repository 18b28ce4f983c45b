"""What the routers cost before the first request: time and memory of their import.

Each import is one Python process. What bare Python takes is subtracted. CPU time is that of the
process; memory is what it holds at its end. Bytecode is written in a first round, which does not
count.
"""

import os
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from random import Random

from _measure import Samples
from _report import Report, arguments, number

OURS = "from chatrouting import OrderedFailoverChatClient"
OPENAI = "import openai"
BARE = "pass"
#: None of these may be loaded by the routers.
FOREIGN = ("openai", "anthropic", "numpy", "pydantic", "httpx2", "trio")
#: What is run, and the package without which it cannot be.
IMPORTS = {
    BARE: "sys",
    "import asyncio": "asyncio",
    "import anyio": "anyio",
    OURS: "chatrouting",
    OPENAI: "openai",
    "import anthropic": "anthropic",
    "import openai; openai.AsyncOpenAI(api_key='k').chat.completions": "openai",
    f"{OURS}; import openai; openai.AsyncOpenAI(api_key='k').chat.completions": "openai",
    "from pydantic_ai.models.fallback import FallbackModel": "pydantic_ai",
    "from langchain_openai import ChatOpenAI": "langchain_openai",
    "from litellm import Router": "litellm",
}
#: Appended to what is measured: tells the process's memory and what was loaded.
_TELL = """
import sys
loaded = list(sys.modules)
import resource
try:
    with open("/proc/self/status") as status:
        kib = int(status.read().split("VmRSS:")[1].split()[0])
except OSError:  # no Linux: the most it ever held
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(kib, len(loaded), *(name for name in %r if name in loaded))
"""


def run(code: str) -> tuple[float, float, int, list[str]]:
    """Run one process: CPU milliseconds, MiB, number of modules, and which foreign ones."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code + (_TELL % (FOREIGN,))],
        env=environment,
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    kib, modules, *foreign = done.stdout.splitlines()[-1].split()
    return spent * 1000, int(kib) / 1024, int(modules), foreign


def main() -> None:
    """Measure and tell."""
    asked = arguments(__doc__).parse_args()
    turns = 1 if asked.quick else 7
    imports = [code for code, package in IMPORTS.items() if find_spec(package) is not None]
    if asked.quick:
        imports = [BARE, OURS, OPENAI]
    cpu: dict[str, list[float]] = {code: [] for code in imports}
    memory: dict[str, list[float]] = {code: [] for code in imports}
    loaded: dict[str, tuple[int, list[str]]] = {}
    order = list(imports)
    for turn in range(-1, turns):
        Random(turn).shuffle(order)
        for code in order:
            spent, mib, modules, foreign = run(code)
            loaded[code] = modules, foreign
            if turn >= 0:
                cpu[code].append(spent)
                memory[code].append(mib)
    report = Report("imports", "What an import costs", asked.quick, turns)
    report.keep("milliseconds", Samples(cpu))
    report.keep("MiB", Samples(memory))
    tell(report, Samples(cpu), Samples(memory), loaded)
    report.tell(save=asked.save)


def tell(
    report: Report, cpu: Samples, memory: Samples, loaded: dict[str, tuple[int, list[str]]]
) -> None:
    """Write the table and the claims."""
    openai = cpu.added(OPENAI, BARE)
    rows = [
        (
            f"`{code}`",
            number(cpu.median(code)),
            number(cpu.added(code, BARE)),
            number(cpu.added(code, BARE) / openai),
            number(memory.added(code, BARE)),
            str(modules),
        )
        for code, (modules, _) in ((code, loaded[code]) for code in cpu.by_case)
    ]
    header = ("process", "CPU ms", "less bare Python", "x openai", "MiB over bare", "modules")
    report.table("Imports", header, rows)
    text = f"`{OURS}`, share of `{OPENAI}`, bare Python subtracted"
    report.claim(text, cpu.added(OURS, BARE) / openai, 0.15, "x")
    report.claim(f"`{OURS}`, over bare Python", memory.added(OURS, BARE), 12, "MiB")
    foreign = loaded[OURS][1]
    report.claim(f"of {', '.join(FOREIGN)} it loads", len(foreign), 0, "modules")


if __name__ == "__main__":
    main()
