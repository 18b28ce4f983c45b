"""What a scripted client records of one call."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import final

from chatrouting._cancellation import is_cancellation
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions
from chatrouting.responses import ChatResponseUpdate


class CallState(StrEnum):
    """How far a call has come."""

    NEW = "new"  #: A stream that nobody has read yet: nothing was "sent".
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CLOSED = "closed"  #: A stream that was closed before its end.


@final
@dataclass(slots=True, eq=False)
class ScriptedCall:
    """One call of a scripted client.

    Attributes:
        number: 1 for the client's first call.
        messages: What was asked, as a tuple.
        options: The very object that was given.
        is_streaming: Which method was called.
        state: How far it has come.
        error: What the script raised.
        updates: What the stream has handed out; empty in whole mode.
        close_count: How often the stream's source was closed.
    """

    number: int
    messages: tuple[ChatMessage, ...]
    options: ChatOptions | None
    is_streaming: bool
    state: CallState = CallState.NEW
    error: BaseException | None = None
    updates: list[ChatResponseUpdate] = field(default_factory=list[ChatResponseUpdate])
    close_count: int = 0

    @property
    def has_begun(self) -> bool:
        """Whether anything was "sent"; a stream begins when it is first read."""
        return self.state is not CallState.NEW

    @contextmanager
    def running(self) -> Generator[None]:
        """Note that the call runs, and what is raised inside."""
        if self.state is CallState.NEW:
            self.state = CallState.RUNNING
        try:
            yield
        except BaseException as error:
            self.error = error
            self.state = CallState.CANCELLED if is_cancellation(error) else CallState.FAILED
            raise
