"""The scripts in `benchmarks/` run and tell what they found; what they find is not judged here.

A shared machine decides no claim. Run for a look, each prints its tables and its claims.
"""

import subprocess
import sys
from pathlib import Path

import pytest

#: Each is a process that imports both SDKs, which takes long where others compute too.
pytestmark = pytest.mark.timeout(120)

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "name",
    [
        "calls",
        "streams",
        "imports",
        "sdk",
        "pool_calls",
        "pool_selection",
        "pool_simulation",
        "quota_admit",
        "quota_simulation",
        "semantic_accuracy",
        "semantic_speed",
    ],
)
def test_a_quick_run_tells_each_claim_with_its_target_and_what_was_measured(name):
    told = run(f"{name}.py", "--quick")
    claims = told.partition("### Claims")[2]
    assert "| claim" in claims
    assert "≤" in claims or "≥" in claims


@pytest.mark.parametrize("name", ["soak", "pool_soak"])
def test_a_short_soak_leaves_nothing_over(name):
    """Every request ends in a known way, and no connection, task or stream is left."""
    told = run(f"{name}.py", "--requests", "80")
    assert "NO" not in told.partition("### Claims")[2]


def test_a_saved_result_is_read_again_for_the_overview(tmp_path):
    script = (
        "import _report, pathlib, sys\n"
        "_report.RESULTS = pathlib.Path(sys.argv[1])\n"
        "report = _report.Report('one', 'One claim', False, 3)\n"
        "report.table('Numbers', ('case', 'value'), [('a', '1')])\n"
        "report.claim('kept', 1.0, 2.0, 'x')\n"
        "report.claim('broken', 3.0, 2.0, 'x')\n"
        "report.claim('unknown', None, 2.0, 'x')\n"
        "report.claim('reached', 2.0, 2.0, 'x', is_floor=True)\n"
        "report.claim('missed', 1.0, 2.0, 'x', is_floor=True)\n"
        "report.tell(save=True)\n"
    )
    run("-c", script, str(tmp_path))
    overview = (tmp_path / "README.md").read_text(encoding="utf-8")
    verdicts = [line.split("|")[4].strip() for line in overview.splitlines() if " x |" in line]
    assert verdicts == ["yes", "NO", "not measured", "yes", "NO"]
