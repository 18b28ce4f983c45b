"""`chatrouting quota`: what limits come to, and how a load fares under them."""

import contextlib
import io
import re
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from chatrouting.cli import main
from chatrouting.cli.quota import show_limits, span
from chatrouting.cli.quota_picture import check_picture
from chatrouting.cli.quota_simulate import play_both, show_simulation
from chatrouting.cli.terminal import Terminal
from chatrouting.cli.text_plots import Bar, area, bar, log_bar
from chatrouting.errors import ConfigurationError, MissingExtraError
from chatrouting.quota import QuotaLimit, parse_limits
from chatrouting.simulation import read_scenario

LIMITS = """
pool_share = 0.1

[largest_request]
total_tokens = 4_000

[deployments.sweden]
profile = "azure"
scope = { subscription = "main", region = "swedencentral", deployment = "gpt-4o" }
maximum_output_tokens = 16_384
limits = { requests = 600, total_tokens = 300_000 }

[deployments.claude]
profile = "anthropic"
scope = { organisation = "contoso", workspace = "default", model_class = "sonnet" }
[deployments.claude.limits]
requests = 300
input_tokens = { amount = 150_000, burst = 5 }
output_tokens = 60_000
concurrency = 40

[contracts.acme]
weight = 3
share = 0.4
[contracts.globex]

[[ceilings]]
tenant = "acme"
team = "research"
limits = { total_tokens = 40_000 }
[[ceilings]]
level = "api_key"
limits = { concurrency = 20 }
"""
SMALL = """
[deployments.a]
profile = "openai"
scope = { organisation = "o", project = "p", model_group = "m" }
limits = { requests = 120, total_tokens = 120_000 }
"""
PLAYED = f"""{SMALL}
[simulation]
duration = 60
[[simulation.load]]
tenant = "acme"
requests_per_minute = 200
output_tokens = 200
max_output_tokens = 400
[[simulation.load]]
requests_per_minute = 20
request_class = "batch"
"""


def checked(text: str, *, width: int | None = None) -> str:
    out = io.StringIO()
    show_limits(
        parse_limits(text, source="limits.toml"),
        Terminal(out, width=width, has_colours=False, is_live=False),
    )
    return out.getvalue()


def advice(text: str) -> str:
    """Return what is good to know, as one line."""
    return " ".join(checked(text).partition("Good to know")[2].split())


# Checking.


def test_every_bucket_is_shown_with_its_limits():
    """[quota R12] Also those that a profile adds."""
    shown = checked(LIMITS)
    assert shown.startswith("limits.toml: 2 deployments, 2 ceilings, 2 contracts, 4 classes\n")
    rows = [re.split(r"  +", line) for line in shown.splitlines()]
    assert ["sweden (azure)", "requests", "600", "60 s", "5 %", "570"] in rows
    assert ["", "requests", "100", "10.1 s", "-", "100"] in rows
    assert ["", "input_tokens", "150,000", "60 s, 5 s at once", "5 %", "142,500"] in rows
    assert ["", "concurrency", "40", "at once", "-", "40"] in rows
    assert ["team acme/research", "total_tokens", "40,000", "60 s", "-", "40,000"] in rows
    assert ["any other api_key", "concurrency", "20", "at once", "-", "20"] in rows


def test_each_class_is_shown_with_what_it_may():
    """[quota R49-R50]"""
    rows = [re.split(r"  +", line) for line in checked(LIMITS).splitlines()]
    assert ["batch", "1", "10,000", "10 min", "no", "yes", "queue"] in rows
    control = SMALL + "[classes.alarm]\nis_control = true\non_pressure = []"
    rows = [re.split(r"  +", line) for line in checked(control).splitlines()]
    assert ["alarm", "control", "100", "10.00 s", "yes", "yes", "reject"] in rows


def test_each_tenant_is_told_its_guarantee_and_of_which_kind():
    """[quota R41] [quota R46]"""
    shown = checked(LIMITS)
    sweden = shown.partition("Guarantees at sweden")[2].partition("Guarantees at claude")[0]
    rows = [re.split(r"  +", line) for line in sweden.splitlines()]
    assert ["acme", "3", "instant", "requests", "228", "60 s", "22.8"] in rows
    assert ["", "total_tokens", "114,000", "60 s", "11,400"] in rows
    assert ["globex", "1", "none"] in rows
    assert "60 % of each belong to nobody, for whoever comes." in sweden
    assert "acme" in shown.partition("Guarantees at claude")[2]
    assert "long run" in shown.partition("Guarantees at claude")[2]


def test_where_nobody_has_a_contract_that_is_said():
    assert "No tenant has a contract: all share what there is alike." in checked(SMALL)


def test_of_many_tenants_the_first_are_shown():
    many = SMALL + "".join(f"[contracts.t{number}]\nshare = 0.01\n" for number in range(30))
    shown = checked(many)
    assert "and 10 tenants more" in shown
    assert "t19 " in shown
    assert "t20 " not in shown
    assert "25 more tenants have no instant guarantee at a either." in advice(
        many + "[largest_request]\ntotal_tokens = 10_000\n"
    )


SCOPE = 'scope = { subscription = "s", region = "r", deployment = "d" }'
ADVICE = {
    "shadow": ("shadow = true\n" + SMALL, "shadow is true: everything is decided"),
    "watched": ('watched = ["tenant"]\n' + SMALL, "buckets of tenant refuse nothing"),
    "not paced": (SMALL, "a: requests and total_tokens may be used up in a moment, and whoever"),
    "no tokens": (
        SMALL.replace(", total_tokens = 120_000", ""),
        "a: openai counts total_tokens, and there is no limit on that here",
    ),
    "no requests": (SMALL.replace("requests = 120,", ""), "a: openai counts requests, and"),
    "one of two": (
        LIMITS.replace("output_tokens = 60_000", ""),
        "claude: anthropic counts output_tokens, and there is no limit",
    ),
    "no maximum": (
        LIMITS.replace("maximum_output_tokens = 16_384", ""),
        "maximum_output_tokens does not say how long that is",
    ),
    "a long maximum": (
        LIMITS.replace("16_384", "400_000"),
        "charged 400,000 tokens and never fits into 285,000 total_tokens; send caps",
    ),
    "a high ceiling": (
        SMALL + '[[ceilings]]\ntenant = "x"\nlimits = { requests = 500 }',
        "tenant x: its ceiling of 500 requests is above what all deployments have, 114; it never",
    ),
    "not stated": (LIMITS, "largest_request does not say how many input_tokens and output_tokens"),
    "long run": (
        LIMITS,
        "claude: a request takes up to 1 of requests over 1.1 s, and it may spend 0.2 at once.",
    ),
}


@pytest.mark.parametrize("name", ADVICE)
def test_what_is_worth_knowing_is_told(name):
    text, said = ADVICE[name]
    assert said in advice(text)


def test_limits_without_a_catch_have_nothing_to_tell():
    paced = (
        "{ requests = { amount = 120, burst = 5 }, total_tokens = { amount = 9_000, burst = 5 } }"
    )
    text = SMALL.replace("{ requests = 120, total_tokens = 120_000 }", paced)
    text += '[[ceilings]]\ntenant = "x"\nlimits = { requests = 50, concurrency = 3 }'
    assert "Good to know" not in checked(text)


@pytest.mark.parametrize("width", [80, 160])
def test_a_table_of_limits_fits_into_a_terminal(width):
    long = LIMITS.replace("sweden", "a-deployment-in-the-middle-of-sweden")
    lines = checked(long, width=width).splitlines()
    assert max(map(len, lines)) <= width
    headings = [line for line in lines if line.startswith(("bucket", "class ", "tenant "))]
    assert [re.split(r"  +", each)[-1] for each in headings] == [
        "usable",
        "under pressure",
        "at once",
        "at once",
    ]


# Simulating.


def played(text: str, *, width: int | None = 80) -> tuple[int, str]:
    """Play what a file says, and return the exit code and what is shown."""
    out = io.StringIO()
    notes = Terminal(io.StringIO(), width=width, has_colours=False, is_live=False)
    scenario = read_scenario(parse_limits(text, source="limits.toml"))
    governed, without = play_both(scenario, notes)
    terminal = Terminal(out, width=width, has_colours=False, is_live=False)
    return show_simulation(scenario, governed, without, terminal), out.getvalue()


def test_a_load_is_shown_beside_one_without_a_governor():
    """[quota R2] [quota R61] Totals, waits by class, shares by tenant, the rate over time."""
    code, shown = played(PLAYED)
    assert code == 0
    assert shown.startswith("limits.toml: 1 min of its load, seed 1\n")
    (refusals,) = re.findall(r"^refusals by providers \(429\) +(\S+) +(\S+)$", shown, re.MULTILINE)
    assert refusals[0] == "0"
    assert refusals[1] != "0"
    assert re.search(r"^used of a +\d+\.\d % +\d+\.\d %$", shown, re.MULTILINE)
    by_class = shown.partition("By class, governed")[2].splitlines()
    assert [line.split()[0] for line in by_class[2:4]] == ["interactive", "batch"]
    assert "100 % |" in shown
    by_tenant = shown.partition("By tenant:")[2]
    assert "(nobody)" in by_tenant
    assert re.search(r"^acme +1 +- +\d", by_tenant, re.MULTILINE)
    assert max(map(len, shown.splitlines())) <= 80


def test_of_a_provider_that_limits_no_rate_there_is_no_plot():
    slots = """
    [deployments.a]
    profile = "self_hosted"
    scope = { server = "s" }
    limits = { concurrency = 2 }
    [contracts.acme]
    share = 0.4
    [simulation]
    duration = 20
    """
    code, shown = played(slots, width=None)
    assert code == 0
    assert "a made-up load" in shown
    assert "100 % |" not in shown


def test_of_many_tenants_those_with_most_are_shown():
    loads = "".join(
        f'[[simulation.load]]\ntenant = "t{number}"\nrequests_per_minute = 6\n'
        for number in range(22)
    )
    _, shown = played(f"{SMALL}[simulation]\nduration = 30\n{loads}")
    assert "and 2 tenants more" in shown


def test_a_refusal_by_a_provider_fails():
    """[quota R3] It grants less than the file says."""
    bedrock = 'profile = "bedrock_runtime"\nscope = { account = "a", region = "r", model = "m" }'
    text = PLAYED.replace(SMALL.partition("limits")[0], f"[deployments.a]\n{bedrock}\n")
    scenario = read_scenario(parse_limits(text))
    fewer = replace(scenario.limits, granted={"a": (QuotaLimit("total_tokens", 30_000),)})
    out = Terminal(io.StringIO(), width=80, has_colours=False, is_live=False)
    results = play_both(replace(scenario, limits=fewer), out)
    assert show_simulation(scenario, *results, out) == 1


def test_progress_goes_to_the_notes_and_is_removed():
    notes = io.StringIO()
    scenario = read_scenario(parse_limits(PLAYED))
    play_both(scenario, Terminal(notes, width=80, has_colours=False, is_live=True))
    shown = notes.getvalue().split("\r\x1b[2K")
    assert "[............] 0/60 s governed".replace("............", "." * 24) in shown
    assert any("s without a governor" in each for each in shown)
    assert shown[-1] == ""


# The commands.


def run(*arguments: str) -> tuple[int, str, str]:
    out, notes = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(notes):
        code = main(["quota", *arguments])
    return code, out.getvalue(), notes.getvalue()


@pytest.fixture
def limits(tmp_path: Path) -> Path:
    path = tmp_path / "limits.toml"
    path.write_text(PLAYED, encoding="utf-8")
    return path


def test_check_shows_the_file(limits):
    code, shown, notes = run("check", str(limits))
    assert (code, notes) == (0, "")
    assert "a (openai)" in shown


@pytest.mark.parametrize("command", ["check", "simulate"])
def test_a_file_that_is_not_valid_is_refused(command, limits):
    limits.write_text(SMALL.replace("120_000", "-1"), encoding="utf-8")
    code, shown, notes = run(command, str(limits))
    assert (code, shown) == (2, "")
    assert "[deployments.a.limits] total_tokens: amount" in " ".join(notes.split())


def test_simulate_lets_options_come_before_the_file(limits):
    arguments = ("--minutes", "0.5", "--seed", "3", "--times", "0.5", "--exact")
    code, shown, notes = run("simulate", str(limits), *arguments)
    assert (code, notes) == (0, "")
    assert f"{limits}: 0.5 min of its load, seed 3" in shown
    offered = re.search(r"^offered +(\d+)", shown, re.MULTILINE)
    assert offered is not None
    assert 30 < int(offered[1]) < 80


def test_simulate_refuses_a_load_that_is_not_valid(limits):
    limits.write_text(SMALL + "[simulation]\nduration = 0\n", encoding="utf-8")
    code, _, notes = run("simulate", str(limits))
    assert code == 2
    assert "duration is 0" in " ".join(notes.split())


@pytest.mark.parametrize("value", ["0", "nan", "-1", "inf"])
def test_times_is_more_than_nothing(limits, value, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["quota", "simulate", str(limits), "--times", value])
    assert caught.value.code == 2
    assert f"{value} is not more than 0" in capsys.readouterr().err


def test_a_picture_is_refused_before_the_work(limits, tmp_path, monkeypatch):
    code, shown, notes = run("simulate", str(limits), "--picture", str(tmp_path / "x.gif"))
    assert (code, shown) == (2, "")
    assert "expected a name in .png, .svg, .pdf" in " ".join(notes.split())
    with pytest.raises(ConfigurationError, match="no folder"):
        check_picture(tmp_path / "none" / "x.png")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    with pytest.raises(MissingExtraError, match=r"chatrouting\[plots\]"):
        check_picture(tmp_path / "x.png")


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs the extra 'plots'")
def test_a_picture_is_saved(limits, tmp_path):
    path = tmp_path / "x.svg"
    code, shown, _ = run("simulate", str(limits), "--picture", str(path))
    assert code == 0
    assert shown.endswith(f"The picture is in {path}.\n")
    assert path.read_text(encoding="utf-8").startswith("<?xml")


# Plots.


def test_an_area_has_a_line_where_all_is_used():
    assert area([0.5, 1.0, 0.0], [2.0, 0.0, 0.0], height=4, end="1") == [
        "  200 % |.  ",
        "        |.  ",
        "  100 % |.#-",
        "        |##.".replace(".", " "),
        "    0 % +---",
        "         0 1",
    ]


def test_a_bar_has_parts_up_to_the_most():
    assert bar(Bar((1, 2), "#="), width=8, most=4) == "##==    "
    assert bar(Bar((9,), "#"), width=4, most=3) == "####"


def test_a_bar_of_powers_begins_at_the_least():
    assert log_bar(Bar((0.0, 1.0), "#="), width=4, least=0.01, most=100) == "==  "


def test_a_long_time_is_told_in_minutes():
    assert [span(each) for each in (0.5, 59, 60, 5_400)] == [
        "500 ms",
        "59.00 s",
        "1 min",
        "90 min",
    ]
