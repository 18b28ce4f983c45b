"""How a result is told: tables that people read, and the same as JSON.

A script builds one `Report`, prints it, and with `--save` writes it into `results/`, whose README
is then written anew from all the files that lie there.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self, final

from _measure import Samples

RESULTS = Path(__file__).parent / "results"

_PACKAGES = (
    "chatrouting",
    "anyio",
    "trio",
    "openai",
    "anthropic",
    "httpx2",
    "pydantic-ai-slim",
    "langchain-core",
    "langchain-openai",
    "litellm",
    "numpy",
    "wordllama",
    "semantic-router",
    "limits",
    "throttled-py",
    "aiolimiter",
    "pyrate-limiter",
)


@dataclass(frozen=True, slots=True)
class Claim:
    """What is promised, and what was found.

    Attributes:
        text: The promise, without its number.
        measured: What was found; None if something was missing to measure it with.
        limit: What it must not exceed.
        unit: Of both, such as "µs".
        is_floor: It must not be less than the limit instead.
    """

    text: str
    measured: float | None
    limit: float
    unit: str
    is_floor: bool = False

    @property
    def verdict(self) -> str:
        """Whether the promise is kept."""
        if self.measured is None:
            return "not measured"
        is_kept = self.measured >= self.limit if self.is_floor else self.measured <= self.limit
        return "yes" if is_kept else "NO"

    def row(self) -> list[str]:
        """Return the line of the table of claims."""
        found = "-" if self.measured is None else f"{number(self.measured)} {self.unit}"
        sign = "≥" if self.is_floor else "≤"
        return [self.text, f"{sign} {number(self.limit)} {self.unit}", found, self.verdict]


@dataclass(frozen=True, slots=True)
class Table:
    """Lines under a heading."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table as text that is aligned, too."""
        return f"### {self.title}\n\n{_aligned(self.header, self.rows)}\n"


def _environment() -> dict[str, Any]:
    packages: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "packages": packages,
    }


@final
@dataclass(slots=True)
class Report:
    """All that one run of one script found."""

    name: str
    title: str
    is_quick: bool
    turns: int
    environment: dict[str, Any] = field(default_factory=_environment)
    tables: list[Table] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    samples: dict[str, Any] = field(default_factory=dict)

    def table(self, title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Add a table."""
        self.tables.append(Table(title, list(header), [list(row) for row in rows]))

    def claim(
        self, text: str, measured: float | None, limit: float, unit: str, *, is_floor: bool = False
    ) -> None:
        """Add a promise and what was found."""
        self.claims.append(Claim(text, measured, limit, unit, is_floor))

    def keep(self, group: str, samples: Samples) -> None:
        """Keep the numbers behind the tables, in microseconds unless `group` names a unit."""
        self.samples[group] = {
            case: {
                "median": round(samples.median(case), 4),
                "p95": round(samples.p95(case), 4),
                "n": len(values),
            }
            for case, values in samples.by_case.items()
        }

    def markdown(self) -> str:
        """Return everything as text."""
        facts = self.environment
        packages = ", ".join(f"{name} {number}" for name, number in facts["packages"].items())
        mode = "quick run, for a look only" if self.is_quick else f"{self.turns} turns"
        place = "Python {python} on {machine}, {cores} cores, load {load}".format_map(facts)
        parts = [
            f"## {self.title}\n",
            f"{place}; {mode}. {packages}.\n",
        ]
        parts += [f"{note}\n" for note in self.notes]
        parts += [table.markdown() for table in self.tables]
        if self.claims:
            header = ("claim", "target", "measured", "holds")
            parts.append(Table("Claims", header, [each.row() for each in self.claims]).markdown())
        return "\n".join(parts)

    def tell(self, *, save: bool) -> None:
        """Print everything, and write it down if wanted."""
        print(self.markdown())
        if save:
            RESULTS.mkdir(exist_ok=True)
            major, minor = sys.version_info[:2]
            path = RESULTS / f"{self.name}-py{major}{minor}.json"
            text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
            path.write_text(text + "\n", encoding="utf-8")
            _write_overview()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `tell` wrote."""
        found = json.loads(path.read_text(encoding="utf-8"))
        found["tables"] = [Table(**table) for table in found["tables"]]
        found["claims"] = [Claim(**claim) for claim in found["claims"]]
        return cls(**found)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Make the parser of the options that all scripts have."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few turns: for a look, not a claim")
    parser.add_argument("--save", action="store_true", help="write the result into results/")
    return parser


def number(value: float) -> str:
    """Write a number with as many digits as it deserves."""
    if abs(value) >= 100:  # noqa: PLR2004
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"  # noqa: PLR2004


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def _write_overview() -> None:
    reports = [Report.load(path) for path in sorted(RESULTS.glob("*.json"))]
    text = "# Results\n\nWritten by the scripts; the method is in [../README.md](../README.md).\n\n"
    text += "\n".join(report.markdown() for report in reports)
    (RESULTS / "README.md").write_text(text, encoding="utf-8")
