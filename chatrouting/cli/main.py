"""The command line: `chatrouting demo`, `chat`, `semantic`, `pool` and `quota`.

Here the environment of the process is read, and handed on as a mapping. It parses, opens the
terminal, and turns what happened into an exit code: 0 done, 1 failed, 2 asked for wrongly, 130
interrupted.
"""

import argparse
import io
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO, cast

import anyio

from chatrouting.cli.arguments import FAILED, INTERRUPTED, MISUSED, add_plain, positive
from chatrouting.cli.chat import chat
from chatrouting.cli.demo import DEFAULT_REQUESTS, DEFAULT_SEED, demo, demo_as_json
from chatrouting.cli.pool_command import describe_pool
from chatrouting.cli.quota_command import describe_quota
from chatrouting.cli.routes import ANTHROPIC_MODEL, OPENAI_MODEL, RouteError, find_routes
from chatrouting.cli.semantic import InputError, evaluate, try_question
from chatrouting.cli.terminal import Terminal
from chatrouting.errors import MissingExtraError
from chatrouting.semantic.wordllama import WordLlamaEmbeddingGenerator

__all__ = ["main"]

_DESCRIPTION = "Chat clients that wrap chat clients: routing and failover for LLM calls."
_EXAMPLES = """\
examples:
  chatrouting demo                      see failover at work; no key, no network
  chatrouting chat "What is a router?"  ask the providers that are configured
  chatrouting chat "Hello" --route anthropic --route openai/gpt-x
  chatrouting semantic try routes.toml "where is my invoice"
  chatrouting pool show GPT_4_O         what the environment makes of a pool
  chatrouting quota check limits.toml   what limits and guarantees come to
"""
_CHAT_ENVIRONMENT = f"""\
environment:
  OPENAI_API_KEY         OpenAI; the model is {OPENAI_MODEL} unless --route or
                         OPENAI_MODEL names another
  ANTHROPIC_API_KEY      Anthropic; the model is {ANTHROPIC_MODEL} unless
                         --route or ANTHROPIC_MODEL names another
  AZURE_OPENAI_ENDPOINT, AZURE_OPENAI_API_KEY, OPENAI_API_VERSION
                         Azure; --route azure/DEPLOYMENT or
                         AZURE_OPENAI_DEPLOYMENT names the deployment
  OPENAI_BASE_URL        any compatible server (Ollama, llama.cpp, vLLM); the
                         key is optional, --route openai/MODEL or
                         OPENAI_MODEL names the model
  NO_COLOR               no colours

The answer goes to standard output; attempts and errors go to standard error.
Exit codes: 0 answered, 1 not answered, 2 no route to ask, 130 interrupted.
"""
_SEMANTIC_FILES = """\
ROUTES.toml:
  score_aggregation = "blend"      optional, as score_threshold (0.4), top_k
                                   and margin
  [routes.billing]
  utterances = ["where is my invoice", "refund my last payment"]
  threshold = 0.5                  optional

DATA.tsv: a line "label<tab>text", then one for each query. The label is a
route, or "default" for what belongs to none.

Texts are compared offline, on this machine, by the encoder of the extra:
pip install 'chatrouting[wordllama]'
Exit codes: 0 done, 2 a file or the encoder cannot be used, 130 interrupted.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: Arguments without the program's name; None for those of the process.

    Returns:
        The exit code.

    Raises:
        SystemExit: After `--help` and `--version`, and for arguments that cannot be read.
    """
    arguments = _parser().parse_args(argv)
    _accept_any_character(sys.stdout)
    code = FAILED
    with _quiet_logging():
        try:
            code = arguments.run(arguments)
        except* KeyboardInterrupt:
            code = INTERRUPTED
        except* BrokenPipeError:
            # Whoever read the output has left, as `head` does. Python would complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), cast("TextIO", sys.stdout).fileno())
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="chatrouting",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    own_version = f"chatrouting {version('chatrouting')}"
    parser.add_argument("--version", action="version", version=own_version)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _describe_demo(
        commands.add_parser(
            "demo",
            help="see failover at work with simulated providers",
            description="Run simulated providers that fail on a schedule, and real SDK clients "
            "that ask them through a stack of routers and directly. It takes a few seconds; no "
            "key is needed and nothing leaves this machine.",
        )
    )
    _describe_chat(
        commands.add_parser(
            "chat",
            help="ask a question of real ones",
            description="Ask one question. The routes are asked in order until one answers.",
            epilog=_CHAT_ENVIRONMENT,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _describe_semantic(
        commands.add_parser(
            "semantic",
            help="see where texts would go by their meaning",
            description="Try routes of a semantic router, without asking a chat client.",
            epilog=_SEMANTIC_FILES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    describe_pool(
        commands.add_parser(
            "pool",
            help="see the endpoints of a model, and whether they answer",
            description="Look at a pool of endpoints, as the environment describes it.",
        )
    )
    describe_quota(
        commands.add_parser(
            "quota",
            help="see what limits come to, and how a load would fare under them",
            description="Look at limits that a file describes. Nothing is sent.",
        )
    )
    return parser


def _describe_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--requests",
        type=positive,
        default=DEFAULT_REQUESTS,
        metavar="N",
        help="questions to ask on each path (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=DEFAULT_SEED,
        metavar="S",
        help="draws the schedule of failures; the same seed gives the same one "
        "(default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as one JSON object")
    add_plain(parser)
    parser.set_defaults(run=_run_demo)


def _describe_chat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("question", help="what to ask")
    parser.add_argument(
        "--route",
        action="append",
        default=[],
        metavar="PROVIDER[/MODEL]",
        help="openai, azure or anthropic, with a model if need be; repeat it for the order in "
        "which to ask (default: every provider that is configured)",
    )
    add_plain(parser)
    parser.set_defaults(run=_run_chat)


def _describe_semantic(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    trying = commands.add_parser(
        "try",
        help="show the score of every route for a question",
        description="Show the score of every route for a question, which one wins, and why.",
    )
    _add_routes(trying)
    trying.add_argument("question", help="what a user might ask")
    trying.set_defaults(run=_run_try)
    evaluating = commands.add_parser(
        "evaluate",
        help="show how labelled queries are routed",
        description="Show how labelled queries are routed, which routes are confused, and which "
        "thresholds would be better.",
    )
    _add_routes(evaluating)
    evaluating.add_argument("data", type=Path, metavar="DATA.tsv", help="labelled queries")
    evaluating.set_defaults(run=_run_evaluate)


def _add_routes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("routes", type=Path, metavar="ROUTES.toml", help="routes and utterances")
    add_plain(parser)


def _run_demo(arguments: argparse.Namespace) -> int:
    requests, seed = arguments.requests, arguments.seed

    async def run() -> int:
        if arguments.json:
            return await demo_as_json(sys.stdout, requests=requests, seed=seed)
        terminal = Terminal.of(sys.stdout, os.environ, is_plain=arguments.plain)
        return await demo(terminal, requests=requests, seed=seed)

    return anyio.run(run)


def _run_chat(arguments: argparse.Namespace) -> int:
    notes = Terminal.of(sys.stderr, os.environ, is_plain=arguments.plain)
    try:
        routes, left_out = find_routes(arguments.route, os.environ)
    except RouteError as error:
        notes.print(str(error))
        return MISUSED
    notes.print(*(f"Left out: {reason}" for reason in left_out))

    async def run() -> int:
        return await chat(arguments.question, routes, answer=sys.stdout, notes=notes)

    return anyio.run(run)


def _run_try(arguments: argparse.Namespace) -> int:
    return _run_semantic(arguments, partial(_try, arguments))


async def _try(arguments: argparse.Namespace, out: Terminal) -> int:
    generator = WordLlamaEmbeddingGenerator()
    return await try_question(arguments.routes, arguments.question, generator=generator, out=out)


def _run_evaluate(arguments: argparse.Namespace) -> int:
    return _run_semantic(arguments, partial(_evaluate, arguments))


async def _evaluate(arguments: argparse.Namespace, out: Terminal) -> int:
    notes = Terminal.of(sys.stderr, os.environ, is_plain=arguments.plain)
    generator = WordLlamaEmbeddingGenerator()
    return await evaluate(
        arguments.routes, arguments.data, generator=generator, out=out, notes=notes
    )


def _run_semantic(
    arguments: argparse.Namespace, command: Callable[[Terminal], Coroutine[Any, Any, int]]
) -> int:
    try:
        return anyio.run(command, Terminal.of(sys.stdout, os.environ, is_plain=arguments.plain))
    except (InputError, MissingExtraError) as error:
        Terminal.of(sys.stderr, os.environ, is_plain=arguments.plain).print(str(error))
        return MISUSED


def _accept_any_character(stream: TextIO) -> None:
    """Let an answer hold characters that an old console cannot show."""
    if isinstance(stream, io.TextIOWrapper):
        cast("io.TextIOWrapper", stream).reconfigure(errors="replace")


@contextmanager
def _quiet_logging() -> Generator[None]:
    """Keep log records off the terminal: the commands tell of attempts themselves."""
    logger = logging.getLogger("chatrouting")
    handler = logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
