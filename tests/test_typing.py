"""What type checkers say to code that uses the library: strict mypy and strict pyright.

`typing/right.py` must pass as it is. `typing/wrong.py` says on each line what is wrong with it, in
the words of both checkers: a mistake that is refused for another reason is reported, and one that
is accepted leaves a comment too many, which is reported as well.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

#: Shows that a line which is accepted would be found: the one complaint that is expected.
ACCEPTED = """from chatrouting import ChatOptions

ChatOptions(model="m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
"""

PYRIGHT = {
    "include": ["."],
    "typeCheckingMode": "strict",
    "enableTypeIgnoreComments": False,
    "reportUnnecessaryTypeIgnoreComment": "error",
    # Mistakes stand by themselves, nothing is done with the result.
    "reportUnusedCoroutine": "none",
    "reportUnusedExpression": "none",
}

# Both read the whole library; a cold start on a slow machine takes half a minute.
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def samples(tmp_path):
    """Return a folder of samples, away from the project's own settings."""
    for name in ("right.py", "wrong.py"):
        shutil.copy(HERE / "typing" / name, tmp_path)
    (tmp_path / "accepted.py").write_text(ACCEPTED, encoding="utf-8")
    return tmp_path


def run(folder, module, *arguments):
    """Run a checker and return what it prints."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    ).stdout


def test_mypy_takes_what_is_right_and_refuses_what_is_wrong(samples):
    (samples / "mypy.ini").write_text("[mypy]\nstrict = true\n", encoding="utf-8")
    # What it has read of the library is kept for the next run.
    cache = HERE.parent / ".mypy_cache" / "samples"

    said = run(samples, "mypy", "--no-error-summary", "--cache-dir", str(cache), ".")

    assert said.splitlines() == [
        'accepted.py:3: error: Unused "type: ignore" comment  [unused-ignore]'
    ]


def test_pyright_takes_what_is_right_and_refuses_what_is_wrong(samples):
    (samples / "pyrightconfig.json").write_text(json.dumps(PYRIGHT), encoding="utf-8")

    said = run(samples, "pyright", "--project", ".", "--pythonpath", sys.executable, "--outputjson")

    report = json.loads(said)
    assert report["summary"]["filesAnalyzed"] == 3
    complaints = [
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["rule"])
        for each in report["generalDiagnostics"]
    ]
    assert complaints == [("accepted.py", 3, "reportUnnecessaryTypeIgnoreComment")]
