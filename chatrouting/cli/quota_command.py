"""`chatrouting quota`: its arguments, and what they run."""

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from chatrouting.cli.arguments import MISUSED, add_plain
from chatrouting.cli.quota import show_limits
from chatrouting.cli.terminal import Terminal
from chatrouting.errors import ConfigurationError
from chatrouting.quota.limits_file import LimitsFile, read_limits_file

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


def describe_quota(parser: argparse.ArgumentParser) -> None:
    """Add the commands to a parser."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    checking = commands.add_parser(
        "check",
        help="see what limits come to, and what each tenant is guaranteed",
        description="Check a file of limits, and show each bucket, each class and each guarantee.",
        epilog=f"{_FILE}\nExit codes: 0 all is valid, 2 something is not, 130 interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_file(checking)
    checking.set_defaults(run=_run_check)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("limits", type=Path, metavar="LIMITS.toml", help="limits and contracts")
    add_plain(parser)


def _run_check(arguments: argparse.Namespace) -> int:
    limits = _read(arguments)
    if limits is None:
        return MISUSED
    show_limits(limits, Terminal.of(sys.stdout, os.environ, is_plain=arguments.plain))
    return 0


def _read(arguments: argparse.Namespace) -> LimitsFile | None:
    """Read the file, or say what is wrong with it."""
    try:
        return read_limits_file(arguments.limits)
    except ConfigurationError as error:
        Terminal.of(sys.stderr, os.environ, is_plain=arguments.plain).prose(str(error))
        return None
