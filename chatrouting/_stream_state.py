"""The states of a stream: what it has handed out, and how it ends."""

import logging
import sys
from enum import Enum, auto
from typing import final

from chatrouting import _cancellation
from chatrouting._exceptions import add_note
from chatrouting._folding import UsageFold
from chatrouting.errors import StreamClosedError
from chatrouting.responses import ChatResponse, ChatResponseUpdate, FinishReason
from chatrouting.usage import Usage

logger = logging.getLogger("chatrouting.stream")


class StreamState(Enum):
    NEW = auto()
    OPEN = auto()
    ENDED = auto()  # cleanly
    CLOSED = auto()  # by the consumer
    FAILED = auto()
    CANCELLED = auto()
    ADOPTED = auto()


@final
class Transcript:
    """What a stream has handed out so far."""

    __slots__ = ("_usage", "finish_reason", "updates")

    def __init__(self) -> None:
        self.updates: list[ChatResponseUpdate] = []
        self.finish_reason: FinishReason | str | None = None
        self._usage: UsageFold | None = None

    def add(self, update: ChatResponseUpdate) -> None:
        """Note an update that is on its way to the consumer.

        Raises:
            TypeError: If it is none.
        """
        try:
            if update.finish_reason is not None:
                self.finish_reason = update.finish_reason
            usage = update.usage
        except AttributeError:
            kind = type(update).__name__
            raise TypeError(f"a stream gave {kind}; expected a ChatResponseUpdate.") from None
        self.updates.append(update)
        if usage is not None:
            self._usage = self._usage or UsageFold()
            self._usage.add(update.response_id, usage)

    @property
    def usage(self) -> Usage | None:
        """Usage reported so far."""
        return None if self._usage is None else self._usage.total

    def response(self, *, is_complete: bool) -> ChatResponse:
        """Fold what was handed out."""
        return ChatResponse.from_updates(self.updates, is_complete=is_complete)


@final
class Ending:
    """How a stream ends, on its way from the source outwards.

    Attributes:
        error: None at a clean end; what the layers from `stage` on are told.
        inner_error: What the layers before `stage` are told instead.
        stage: Index of the first layer that is told `error`.
        close_error: What closing raised, where it is not `error` and must not be.
    """

    __slots__ = ("_baseline", "close_error", "error", "inner_error", "stage")

    def __init__(
        self,
        error: BaseException | None,
        inner_error: BaseException | None = None,
        stage: int = 0,
    ) -> None:
        self.error = error
        self.inner_error = inner_error
        self.stage = stage
        self.close_error: BaseException | None = None
        self._baseline = _cancellation.cancel_count()

    @property
    def caller_gave_up(self) -> bool:
        """Whether the consumer closed early or is being cancelled."""
        return isinstance(self.error, GeneratorExit) or self.is_cancellation

    @property
    def is_cancellation(self) -> bool:
        """Whether the caller is being cancelled."""
        return self.error is not None and _cancellation.is_cancellation(self.error)

    @property
    def state(self) -> StreamState:
        """The state that the stream is in afterwards."""
        if self.error is None:
            return StreamState.ENDED
        if isinstance(self.error, GeneratorExit):
            return StreamState.CLOSED
        return StreamState.CANCELLED if self.is_cancellation else StreamState.FAILED

    async def give_way(self) -> None:
        """Let a cancellation that came during the closing take the place of an ordinary error."""
        if isinstance(self.error, Exception):
            try:
                await _cancellation.give_way(self.error, self._baseline)
            except BaseException as cancellation:  # noqa: BLE001  # raised by the stream
                self.error = cancellation

    def let_go(self, error: BaseException) -> BaseException:
        """Return `error`; else it and the frames that know of this ending keep each other alive."""
        self.error = self.inner_error = None
        return error

    async def raise_early(self) -> None:
        """Raise what went wrong at an early close, unless the caller is handling a cancellation.

        Then that one goes on, and the error is logged.
        """
        if self.error is None or isinstance(self.error, GeneratorExit):
            return
        handled = sys.exception()
        if handled is None or not _cancellation.is_cancellation(handled):
            raise self.error
        logger.error("stream.close_failed", exc_info=self.error)

    def _consumer_is_cancelled(self) -> bool:
        handled = sys.exception()
        is_handling = handled is not None and _cancellation.is_cancellation(handled)
        return is_handling or _cancellation.is_caller_cancelled(self._baseline)

    def weigh(self, close_error: BaseException, transcript: Transcript) -> None:
        """Decide what an error of closing means beside what ended the stream.

        It is the error where nothing was handed out, so that a router may turn elsewhere, and
        where the consumer closes an answer that has not ended, unless the consumer is being
        cancelled. It never replaces an error, and it never spoils an answer that is whole.
        """
        if _cancellation.is_cancellation(close_error):
            # A shield keeps scopes out, but not `Task.cancel`: the caller gave up meanwhile.
            if not self.caller_gave_up:
                close_error.__cause__ = self.error
            self.error = close_error
            return
        was_early = isinstance(self.error, GeneratorExit)
        nothing_out = self.error is None and not transcript.updates
        is_wanted = was_early and transcript.finish_reason is None
        if nothing_out or (is_wanted and not self._consumer_is_cancelled()):
            self.error = close_error
        elif self.error is None or was_early or self.is_cancellation:
            self.close_error = close_error
            logger.warning("stream.close_failed", exc_info=close_error)
        else:
            name = type(close_error).__name__
            add_note(self.error, f"closing the stream failed as well: {name}.")


def closed_error(state: StreamState) -> StreamClosedError:
    """Make the error for a stream that is read in this state."""
    reasons = {
        StreamState.CLOSED: "it was closed before its end",
        StreamState.CANCELLED: "it was cancelled",
        StreamState.ADOPTED: "an outer stream has taken it over",
        StreamState.FAILED: "it has failed already",
    }
    return StreamClosedError(f"the stream cannot be read: {reasons[state]}.")


def step_error(error: BaseException) -> BaseException:
    """Return what a failing tap or map ends the stream with."""
    if isinstance(error, StopAsyncIteration):
        # It would look like a clean end to whoever reads the stream.
        replaced = RuntimeError("a tap or map of the stream raised StopAsyncIteration.")
        replaced.__cause__ = error
        return replaced
    return error
