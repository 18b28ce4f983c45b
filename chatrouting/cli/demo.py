"""`chatrouting demo`: what a router does when providers fail, without a key and off the network.

Provider servers of the test kit speak the real protocols on loopback and misbehave on a seeded
schedule (`demo_schedule`). `demo_run` asks them, `demo_report` counts, `demo_view` shows.
"""

import json
from typing import TextIO

from chatrouting.cli.demo_report import make_report
from chatrouting.cli.demo_run import DemoView, run_demo
from chatrouting.cli.demo_view import TerminalView
from chatrouting.cli.terminal import Terminal

__all__ = ["DEFAULT_REQUESTS", "DEFAULT_SEED", "demo", "demo_as_json"]

DEFAULT_REQUESTS = 60
DEFAULT_SEED = 27


async def demo(terminal: Terminal, *, requests: int, seed: int) -> int:
    """Run the demo and show it.

    Returns:
        The exit code: 0 if every request through the router was answered or failed with an error
        of the library, else 1.
    """
    view = TerminalView(terminal, requests=requests, seed=seed)
    view.open()
    try:
        report = make_report(await run_demo(requests=requests, seed=seed, view=view))
    finally:
        terminal.status("")
    view.close(report)
    return 0 if report.is_sound else 1


async def demo_as_json(stream: TextIO, *, requests: int, seed: int) -> int:
    """Run the demo and write its report as one JSON object; the exit code is as for `demo`."""
    report = make_report(await run_demo(requests=requests, seed=seed, view=DemoView()))
    stream.write(json.dumps(report.as_json(), indent=2) + "\n")
    return 0 if report.is_sound else 1
