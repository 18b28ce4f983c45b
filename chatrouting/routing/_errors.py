"""What a router does to exceptions: notes, causes, and giving up their frames."""

import logging
from collections.abc import Sequence
from typing import cast

from chatrouting._exceptions import add_note, set_cause
from chatrouting.attempt import RoutingAttempt
from chatrouting.errors import RequestTimeoutError

logger = logging.getLogger("chatrouting.routing")

_MARK = "chatrouting request "
_MOST_IN_NOTE = 10


def with_cause(error: BaseException, cause: BaseException | None) -> BaseException:
    """Chain an error of a policy to the attempt's error, unless it has a cause or is that error."""
    if cause is not None and cause is not error and error.__cause__ is None:
        set_cause(error, cause)
    return error


def request_timeout(where: str) -> RequestTimeoutError:
    """Make the error for a request whose time ran out."""
    return RequestTimeoutError(f"the request's timeout ran out {where}.")


def annotate(
    error: BaseException, attempts: Sequence[RoutingAttempt], router: str | None, request_id: str
) -> None:
    """Write the other attempts of one router call into a note of the error that is raised.

    Notes that an earlier request left on the same exception object are taken away.
    """
    start = f"{_MARK}{request_id}"
    notes = getattr(error, "__notes__", [])
    notes[:] = [note for note in notes if not note.startswith(_MARK) or note.startswith(start)]
    raised = [attempt for attempt in attempts if attempt.exception is error][-1:]
    others = [attempt for attempt in attempts if all(attempt is not each for each in raised)]
    if not others:
        return
    where = f", router {router!r}" if router else ""
    shown = "; ".join(_summary(attempt) for attempt in others[:_MOST_IN_NOTE])
    more = f"; and {len(others) - _MOST_IN_NOTE} more" if len(others) > _MOST_IN_NOTE else ""
    add_note(error, f"{start}{where}: other attempts: {shown}{more}.")


def annotate_policy_error(
    error: BaseException | None, policy_error: BaseException, request_id: str
) -> None:
    """Say in a note, and in the log, that a policy failed while it judged `error`."""
    name = type(policy_error).__name__
    logger.error("routing.policy_failed error=%s", name, exc_info=policy_error)
    if error is not None:
        add_note(
            error, f"{_MARK}{request_id}: the failover policy raised {name}, so there was none."
        )


def _summary(attempt: RoutingAttempt) -> str:
    kind = attempt.failure.kind.value if attempt.failure else attempt.outcome.value
    status = getattr(attempt.exception, "status_code", None)
    return f"route {attempt.route!r}: {kind}" + (f", status {status}" if status else "")


def release_frames(
    attempts: Sequence[RoutingAttempt],
    raised: BaseException | None,
    caller: BaseException | None,
) -> None:
    """Take the tracebacks off exceptions that are kept, so that they keep no frames alive.

    A traceback holds the frames it passed, and these hold messages and clients. Everything that
    can be reached by cause, context and groups loses its traceback.

    Args:
        attempts: Their exceptions are kept, and those of the attempts inside them.
        raised: The exception that is on its way to the caller; it alone keeps its traceback.
        caller: What the caller was handling when it called; it and what lies behind it is
            not ours.
    """
    seen: set[int] = set()
    pending: list[BaseException] = []
    _collect(attempts, pending)
    if raised is not None:
        pending.append(raised)
    while pending:
        error = pending.pop()
        if error is caller or id(error) in seen:
            continue
        seen.add(id(error))
        if error is not raised:
            error.with_traceback(None)
        if error.__cause__ is not None:
            pending.append(error.__cause__)
        if error.__context__ is not None:
            pending.append(error.__context__)
        if isinstance(error, BaseExceptionGroup):
            pending.extend(cast("BaseExceptionGroup[BaseException]", error).exceptions)


def _collect(attempts: Sequence[RoutingAttempt], into: list[BaseException]) -> None:
    for attempt in attempts:
        if attempt.exception is not None:
            into.append(attempt.exception)
        if attempt.children:
            _collect(attempt.children, into)
