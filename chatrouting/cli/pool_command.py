"""`chatrouting pool`: its arguments, and what they run."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

import anyio

from chatrouting.cli.arguments import FAILED, MISUSED, add_plain, seconds
from chatrouting.cli.pool import show_pool
from chatrouting.cli.pool_check import CHECKED_KINDS, asking, check_pool
from chatrouting.cli.terminal import Terminal
from chatrouting.errors import ConfigurationError
from chatrouting.pool import Discovery, discover

_KINDS: Final = ("chat", "embedding", "image", "video")
_PROVIDERS: Final = ("azure", "openai")
_VARIABLES: Final = """\
environment, for a model that is called GPT_4_O there:
  AZURE_OPENAI_ENDPOINT_GPT_4_O[_REGION][_PTU]   a member: the URL of a request
  AZURE_OPENAI_API_KEY_...                       its key, that of the model, or
  AZURE_OPENAI_API_KEY                           that of all
  AZURE_OPENAI_POOL_GPT_4_O                      corrections, a JSON array
  OPENAI_ENDPOINT_..., OPENAI_API_KEY_..., OPENAI_MODEL_...
                                                 likewise, --provider openai

Keys are never shown.
Exit codes: 0 all is well, 1 something is not, 2 there is no such pool,
130 interrupted.
"""


def describe_pool(parser: argparse.ArgumentParser) -> None:
    """Add the commands to a parser."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    showing = commands.add_parser(
        "show",
        help="show members, where each value is from, and what was passed over",
        epilog=_VARIABLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_pool(showing)
    showing.set_defaults(run=_run_pool_show)
    checking = commands.add_parser(
        "check",
        help="ask each member once, and show how long it took or what failed",
        epilog=_VARIABLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_pool(checking, kinds=CHECKED_KINDS)
    checking.add_argument(
        "--time-limit",
        type=seconds,
        default=30.0,
        metavar="SECONDS",
        help="for a member (default: %(default)g)",
    )
    checking.set_defaults(run=_run_pool_check)


def _add_pool(parser: argparse.ArgumentParser, *, kinds: Sequence[str] = _KINDS) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="the model, such as GPT_4_O (default: without one)"
    )
    parser.add_argument("--kind", choices=kinds, default=kinds[0], help="(default: %(default)s)")
    parser.add_argument(
        "--provider", choices=_PROVIDERS, default=_PROVIDERS[0], help="(default: %(default)s)"
    )
    parser.add_argument(
        "--deployment", metavar="NAME", help="for addresses of Azure that name no deployment"
    )
    add_plain(parser)


def _run_pool_show(arguments: argparse.Namespace) -> int:
    found = _find_pool(arguments)
    if found is None:
        return MISUSED
    out = Terminal.of(sys.stdout, os.environ, is_plain=arguments.plain)
    return 0 if show_pool(found, out) else FAILED


def _run_pool_check(arguments: argparse.Namespace) -> int:
    found = _find_pool(arguments)
    if found is None:
        return MISUSED
    out = Terminal.of(sys.stdout, os.environ, is_plain=arguments.plain)

    async def run() -> int:
        async with asking(arguments.kind) as prepare:
            is_well = await check_pool(found, prepare, out, time_limit=arguments.time_limit)
        return 0 if is_well else FAILED

    return anyio.run(run)


def _find_pool(arguments: argparse.Namespace) -> Discovery | None:
    """Find the pool that is asked for, or say why there is none."""
    try:
        return discover(
            arguments.name,
            kind=arguments.kind,
            provider=arguments.provider,
            env=os.environ,
            deployment=arguments.deployment,
        )
    except ConfigurationError as error:
        Terminal.of(sys.stderr, os.environ, is_plain=arguments.plain).print(str(error))
        return None
