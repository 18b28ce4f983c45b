"""`chatrouting chat`: one question, answered by the first route that can; the attempts at the end.

The answer goes to standard output as it comes, everything else to standard error, so that the
answer can be piped on.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, TextIO

from chatrouting.attempt import AttemptOutcome, RoutingAttempt
from chatrouting.cli.routes import Route
from chatrouting.cli.terminal import Cell, Column, Style, Table, Terminal, duration
from chatrouting.contents import RefusalContent, TextContent
from chatrouting.errors import ChatRoutingError
from chatrouting.responses import ChatResponseUpdate, FinishReason
from chatrouting.routing.ordered import OrderedFailoverChatClient
from chatrouting.stream import ResponseStream

_COLUMNS: Final = (
    Column("attempt", is_number=True),
    Column("route"),
    Column("outcome"),
    Column("kind"),
    Column("time", is_number=True),
)


async def chat(question: str, routes: Sequence[Route], *, answer: TextIO, notes: Terminal) -> int:
    """Ask a question and write what comes.

    Args:
        question: What the user asks.
        routes: Asked in this order until one answers.
        answer: Where the answer goes.
        notes: Where attempts and errors go.

    Returns:
        The exit code: 0 for an answer, 1 for none.
    """
    async with AsyncExitStack() as stack:
        clients = {route.name: route.open(route.model, stack) for route in routes}
        router = await stack.enter_async_context(OrderedFailoverChatClient(clients, name="chat"))
        stream = await stack.enter_async_context(router.get_streaming_response(question))
        error: ChatRoutingError | None = None
        try:
            await _write_answer(stream, answer)
        except ChatRoutingError as raised:
            error = raised
        finally:
            # Also where the user interrupts: what was tried is worth knowing then, too.
            if stream.attempts:
                notes.table(Table(_COLUMNS, [attempt_cells(each) for each in stream.attempts]))
    return _report(stream, error, notes)


async def _write_answer(stream: ResponseStream, answer: TextIO) -> None:
    last = "\n"
    try:
        async for update in stream:
            text = shown_text(update)
            if text:
                answer.write(text)
                answer.flush()
                last = text
    finally:
        if not last.endswith("\n"):
            answer.write("\n")
            answer.flush()


def shown_text(update: ChatResponseUpdate) -> str:
    """Return what a reader sees of an update: text, and the words of a refusal."""
    shown = (TextContent, RefusalContent)
    return "".join(content.text for content in update.contents if isinstance(content, shown))


def attempt_cells(attempt: RoutingAttempt) -> list[Cell]:
    """Lay out one attempt."""
    is_good = attempt.outcome is AttemptOutcome.COMPLETED
    style: Style = "good" if is_good else "bad"
    kind = "" if attempt.failure is None else attempt.failure.kind.value
    return [
        Cell(str(attempt.number)),
        Cell(attempt.route),
        Cell(attempt.outcome.value, style),
        Cell(kind),
        Cell(duration(attempt.duration)),
    ]


def _report(stream: ResponseStream, error: ChatRoutingError | None, notes: Terminal) -> int:
    if error is not None:
        notes.print(notes.paint(f"error: {error}", "bad"))
        return 1
    reason = stream.partial_response.finish_reason
    if reason not in (None, FinishReason.STOP):
        notes.print(notes.paint(f"note: the answer may not be complete ({reason}).", "odd"))
    return 0
