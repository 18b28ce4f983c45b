"""Pieces of the command line that several commands share: exit codes, options, kinds of values."""

import argparse
import math
from typing import Final

FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130


def add_plain(parser: argparse.ArgumentParser) -> None:
    """Add what turns colours off."""
    parser.add_argument(
        "--plain", action="store_true", help="no colours and no rewritten lines, as in a pipe"
    )


def positive(text: str) -> int:
    """Read a number of requests."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} requests; expected at least 1")
    return number


def seconds(text: str) -> float:
    """Read a duration."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} seconds; expected more than 0")
    return number
