"""`chatrouting quota`: its arguments, and what they run."""

import argparse
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from chatrouting.cli.arguments import MISUSED, add_plain
from chatrouting.cli.quota import show_limits
from chatrouting.cli.quota_picture import check_picture, save_picture
from chatrouting.cli.quota_simulate import play_both, show_simulation
from chatrouting.cli.terminal import Terminal
from chatrouting.errors import ConfigurationError
from chatrouting.quota.limits_file import LimitsFile, read_limits_file
from chatrouting.simulation.scenario import Scenario, read_scenario

_FILE: Final = """\
LIMITS.toml:
  [deployments.sweden]
  profile = "azure"                        how the provider counts
  scope = { subscription = "main", region = "swedencentral",
            deployment = "gpt-4o" }        whose quota it is there
  limits = { requests = 600, total_tokens = 300_000 }     a minute

  [contracts.acme]                         optional: what tenants are promised
  weight = 3
  share = 0.4

  [[ceilings]]                             optional: what they may not exceed
  tenant = "acme"
  limits = { requests = 200 }

All keys: docs/quota.md
"""
_LOAD: Final = """\
LIMITS.toml may say what load is to be played:
  [simulation]
  duration = 600                           seconds

  [[simulation.load]]
  tenant = "acme"
  request_class = "batch"
  requests_per_minute = 300
  input_tokens = 2_000                     the middle of what requests have
  output_tokens = 400
  max_output_tokens = 1_000

Else four tenants ask for twice of what there is. All keys: docs/quota.md
"""


def describe_quota(parser: argparse.ArgumentParser) -> None:
    """Add the commands to a parser."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    checking = commands.add_parser(
        "check",
        help="see what limits come to, and what each tenant is guaranteed",
        description="Check a file of limits; show each bucket, each class and each guarantee.",
        epilog=f"{_FILE}\nExit codes: 0 all is valid, 2 something is not, 130 interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_file(checking)
    checking.set_defaults(run=_run_check)

    playing = commands.add_parser(
        "simulate",
        help="see how a load would fare, in virtual time",
        description="Play a load through the governor, in virtual time and before providers as\n"
        "strict as they may be, and again without a governor. Nothing is sent.",
        epilog=f"{_LOAD}\nExit codes: 0 no provider refused what the governor let through, 1 one "
        "did,\n2 something is not valid, 130 interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_file(playing)
    playing.add_argument("--minutes", type=_above_zero, metavar="N", help="how long (default: 10)")
    playing.add_argument("--seed", type=int, metavar="S", help="draws the requests (default: 1)")
    playing.add_argument(
        "--times",
        type=_above_zero,
        default=1.0,
        metavar="X",
        help="so many times the requests (default: %(default)g)",
    )
    playing.add_argument(
        "--exact", action="store_true", help="the governor knows what each request will need"
    )
    playing.add_argument(
        "--picture",
        type=Path,
        metavar="FILE",
        help="save plots as a .png, .svg or .pdf too; needs the extra 'plots'",
    )
    playing.set_defaults(run=_run_simulate)


def _above_zero(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return number


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("limits", type=Path, metavar="LIMITS.toml", help="limits and contracts")
    add_plain(parser)


def _run_check(arguments: argparse.Namespace) -> int:
    limits = _read(arguments)
    if limits is None:
        return MISUSED
    show_limits(limits, Terminal.of(sys.stdout, os.environ, is_plain=arguments.plain))
    return 0


def _run_simulate(arguments: argparse.Namespace) -> int:
    notes = Terminal.of(sys.stderr, os.environ, is_plain=arguments.plain)
    limits = _read(arguments)
    if limits is None:
        return MISUSED
    try:
        if arguments.picture is not None:
            check_picture(arguments.picture)
        scenario = _changed(read_scenario(limits), arguments)
        governed, without = play_both(scenario, notes)
    except ConfigurationError as error:
        notes.prose(str(error))
        return MISUSED
    out = Terminal.of(sys.stdout, os.environ, is_plain=arguments.plain)
    code = show_simulation(scenario, governed, without, out)
    if arguments.picture is not None:  # pragma: no cover  # needs the extra 'plots'
        save_picture(governed, arguments.picture)
        out.print("", f"The picture is in {arguments.picture}.")
    return code


def _changed(scenario: Scenario, arguments: argparse.Namespace) -> Scenario:
    """Let the options come before what the file says."""
    return replace(
        scenario.times(arguments.times),
        duration=scenario.duration if arguments.minutes is None else 60.0 * arguments.minutes,
        seed=scenario.seed if arguments.seed is None else arguments.seed,
        knowledge="exact" if arguments.exact else scenario.knowledge,
    )


def _read(arguments: argparse.Namespace) -> LimitsFile | None:
    """Read the file, or say what is wrong with it."""
    try:
        return read_limits_file(arguments.limits)
    except ConfigurationError as error:
        Terminal.of(sys.stderr, os.environ, is_plain=arguments.plain).prose(str(error))
        return None
