"""`chatrouting pool check`: asks each member of a pool once, and shows how it went.

All are asked at the same time. The clients come in, so that the asking knows no SDK.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import anyio

from chatrouting.cli.terminal import Cell, Column, Table, Terminal, duration, shorten
from chatrouting.errors import APITimeoutError, ChatClientError, ChatRoutingError
from chatrouting.failure import FailureKind
from chatrouting.policies.classify import classify
from chatrouting.pool.diagnostics import Discovery
from chatrouting.pool.endpoint import ApiKey, Endpoint
from chatrouting.pool.sdk import chat_clients, embedding_generators

__all__ = ["CHECKED_KINDS", "Prepare", "asking", "check_pool"]

#: Makes the client of a member, and returns what asks it once.
Prepare: TypeAlias = "Callable[[Endpoint], Callable[[], Awaitable[object]]]"

#: What an answer of a word can be had from; a picture is no tiny call.
CHECKED_KINDS: Final = ("chat", "embedding")
_WORD: Final = "ok"
_COLUMNS: Final = (
    Column("tier", is_number=True),
    Column("member"),
    Column("region"),
    Column("latency", is_number=True),
    Column("result"),
)
_ABOUT_KEYS: Final = (FailureKind.AUTHENTICATION, FailureKind.PERMISSION)
_LONGEST: Final = 400
#: Which field of a member to look at, by what went wrong.
_SUSPECTS: Final[Mapping[FailureKind, tuple[str, ...]]] = {
    FailureKind.AUTHENTICATION: ("auth",),
    FailureKind.PERMISSION: ("auth",),
    FailureKind.NOT_FOUND: ("deployment", "model", "api_version"),
    FailureKind.CONNECTION: ("url",),
    FailureKind.CONFIGURATION: ("url",),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call went; without a time if there could be none."""

    endpoint: Endpoint
    seconds: float | None
    error: Exception | None


@asynccontextmanager
async def asking(kind: str) -> AsyncGenerator[Prepare]:
    """Give what asks members of a kind over the SDK; what it opens is closed at the end."""
    if kind == "embedding":
        async with aclosing(embedding_generators()) as generators:
            yield lambda endpoint: partial(generators(endpoint).generate, [_WORD])
        return
    # No limit of tokens: some models refuse a small one, and the answer is a word.
    question = f"Answer with the word {_WORD}."
    async with aclosing(chat_clients()) as clients:
        yield lambda endpoint: partial(clients(endpoint).get_response, question)


async def check_pool(
    found: Discovery,
    prepare: Prepare,
    out: Terminal,
    *,
    time_limit: float,
    clock: Callable[[], float] = time.perf_counter,
) -> bool:
    """Ask each member once, all at the same time, and show how it went.

    Args:
        found: The members.
        prepare: Makes the clients, all of them before the first one is asked, so that no latency
            holds the loading of the SDK.
        out: Where the result goes.
        time_limit: Seconds for a call.
        clock: Measures the latency.

    Returns:
        Whether all have answered.
    """
    outcomes: dict[str, Outcome] = {}

    async def one(endpoint: Endpoint, ask: Callable[[], Awaitable[object]]) -> None:
        start = clock()
        error: Exception | None = None
        try:
            with anyio.move_on_after(time_limit) as scope:
                await ask()
            if scope.cancelled_caught:
                error = APITimeoutError(f"No answer within {time_limit:g} s.")
        except Exception as raised:  # noqa: BLE001  # whatever it is, it is what is to be shown
            error = raised
        outcomes[endpoint.id] = Outcome(endpoint, clock() - start, error)
        out.status(f"asking: {len(outcomes)} of {len(found.endpoints)} are back")

    out.status("asking")
    calls: list[tuple[Endpoint, Callable[[], Awaitable[object]]]] = []
    for endpoint in found.endpoints:
        try:
            calls.append((endpoint, prepare(endpoint)))
        except ChatRoutingError as error:
            outcomes[endpoint.id] = Outcome(endpoint, None, error)
    try:
        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(one, *call)
    finally:
        out.status("")
    _show(found, [outcomes[endpoint.id] for endpoint in found.endpoints], out)
    return all(outcome.error is None for outcome in outcomes.values())


def _show(found: Discovery, outcomes: Sequence[Outcome], out: Terminal) -> None:
    out.print(out.paint(f"{found.name}: one call to each member", "bold"), "")
    out.table(Table(_COLUMNS, [_row(outcome) for outcome in outcomes]))
    failed = [(each.endpoint, each.error) for each in outcomes if each.error is not None]
    out.print("", f"{len(outcomes) - len(failed)} of {len(outcomes)} answered.")
    for endpoint, error in failed:
        out.print("", endpoint.id or found.name)
        out.prose(f"{_reason(found, endpoint, error)}", "bad")


def _row(outcome: Outcome) -> list[Cell]:
    endpoint, error = outcome.endpoint, outcome.error
    result = Cell("ok", "good") if error is None else Cell(_kind(error), "bad")
    return [
        Cell(str(endpoint.priority)),
        Cell(endpoint.id or "-"),
        Cell(endpoint.region or "-"),
        Cell(duration(outcome.seconds)),
        result,
    ]


def _kind(error: Exception) -> str:
    status = error.status_code if isinstance(error, ChatClientError) else None
    kind = str(classify(error).kind)
    return kind if status is None else f"{kind} ({status})"


def _reason(found: Discovery, endpoint: Endpoint, error: Exception) -> str:
    """Say what went wrong, and where to look."""
    kind = classify(error).kind
    fields = _SUSPECTS.get(kind, ())
    origins = found.diagnostics.origins[endpoint.id]
    variables = dict.fromkeys(origins[field] for field in fields if field in origins)
    hint = f" Look at {' and '.join(variables)}." if variables else ""
    if kind in _ABOUT_KEYS and isinstance(error, ChatClientError) and error.status_code:
        # The provider's words may hold parts of the key.
        return f"The provider refused the {'key' if variables else 'token'}.{hint}"
    return _message(endpoint, error) + hint


def _message(endpoint: Endpoint, error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(endpoint.auth, ApiKey):
        text = text.replace(endpoint.auth.value, "...")
    text = shorten(text, _LONGEST)
    return text if text.endswith((".", "!", "?")) else f"{text}."
