"""What a stream calls on the layers around it, and the layers that streams make themselves."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, final

from chatrouting.errors import (
    AttemptTimeoutError,
    ChatClientError,
    FirstOutputTimeoutError,
    RequestTimeoutError,
    StallTimeoutError,
)
from chatrouting.responses import ChatResponseUpdate

if TYPE_CHECKING:
    from chatrouting.attempt import RoutingAttempt
    from chatrouting.stream import ResponseStream


class StreamLayer(Protocol):
    """One wrapper's part in a stream, from the moment its `open` has returned.

    Subclass it to get the defaults. A layer is told of every update that passes if it overrides
    `on_update`, and exactly once of the end: by `on_end`, or by `on_dropped` where nobody is left
    who could await anything.

    Attributes:
        clock: What the stream measures waiting with; the outermost layer that has one decides.
        attempt_timeout: Seconds of waiting that are left for this layer's attempt.
        first_output_timeout: Seconds of waiting left until the first output; None once it is out.
        stall_timeout: Seconds of waiting allowed since the last output.
        deadline: Absolute time of the event loop's clock at which the request ends.
        has_output: The stream has had output when the layer is attached.
        attempts: The records of a router, None if the layer keeps none.
    """

    clock: Callable[[], float] | None = None
    attempt_timeout: float | None = None
    first_output_timeout: float | None = None
    stall_timeout: float | None = None
    deadline: float | None = None
    has_output: bool = True

    @property
    def attempts(self) -> "Sequence[RoutingAttempt] | None":
        """The records of a router, None if the layer keeps none."""
        return None

    def attach(self, stream: "ResponseStream") -> None:
        """Learn the stream that carries this layer now; once again at each adoption."""
        return

    def on_update(self, update: ChatResponseUpdate) -> None:
        """See an update on its way out. An exception is an error of the stream."""
        return

    async def on_end(self, error: BaseException | None) -> BaseException | None:
        """Learn how the stream ended, after its source was closed.

        Args:
            error: None at a clean end, a `GeneratorExit` where the consumer closed early, a
                cancellation only if the caller is being cancelled; else what went wrong so far.

        Returns:
            What layers further out are told: mostly `error` as it came.
        """
        return error

    def on_dropped(self) -> None:
        """Give back what is held: the stream was dropped without being closed."""
        return


@final
class TapLayer(StreamLayer):
    """The callables given to `ResponseStream.tap`."""

    def __init__(
        self,
        on_end: "Callable[[BaseException | None], Awaitable[None]] | None",
        on_dropped: Callable[[], None] | None,
    ) -> None:
        self._on_end = on_end
        self._on_dropped = on_dropped

    async def on_end(self, error: BaseException | None) -> BaseException | None:
        if self._on_end is not None:
            await self._on_end(error)
        return error

    def on_dropped(self) -> None:
        if self._on_dropped is not None:
            self._on_dropped()


@final
class StreamTimer:
    """The time limits of one layer, counted down by what was waited."""

    __slots__ = (
        "_attempt",
        "_deadline",
        "_first_output",
        "_layer",
        "_since_output",
        "_stall",
        "index",
    )

    def __init__(self, index: int, layer: StreamLayer) -> None:
        self.index = index
        self._layer = layer
        self._attempt = layer.attempt_timeout
        self._first_output = layer.first_output_timeout
        self._stall = layer.stall_timeout
        self._deadline = layer.deadline
        # A stall is counted from the last output; with no output yet there is none.
        self._since_output = 0.0 if layer.has_output else None

    def nearest(self, now: float) -> tuple[float, type[ChatClientError]] | None:
        """Return the seconds that are left at `now`, and the error for when they are over."""
        limits: list[tuple[float, type[ChatClientError]]] = []
        if self._attempt is not None:
            limits.append((self._attempt, AttemptTimeoutError))
        if self._first_output is not None:
            limits.append((self._first_output, FirstOutputTimeoutError))
        if self._stall is not None and self._since_output is not None:
            limits.append((self._stall - self._since_output, StallTimeoutError))
        if self._deadline is not None:
            limits.append((self._deadline - now, RequestTimeoutError))
        return min(limits, key=lambda limit: limit[0], default=None)

    def waited(self, seconds: float) -> None:
        """Count what was waited for one update."""
        if self._attempt is not None:
            self._attempt -= seconds
        if self._first_output is not None:
            self._first_output -= seconds
        if self._since_output is not None:
            self._since_output += seconds

    def saw_output(self) -> None:
        """Begin to count the next stall."""
        self._first_output = None
        self._since_output = 0.0

    def error(self, kind: type[ChatClientError]) -> ChatClientError:
        """Make the error for a limit of this layer that ran out."""
        layer = self._layer
        limits: dict[type[ChatClientError], str] = {
            AttemptTimeoutError: "attempt_timeout ran out while the stream was read.",
            FirstOutputTimeoutError: "first_output_timeout ran out before the first output.",
            StallTimeoutError: f"no output for {layer.stall_timeout} s (stall_timeout).",
            RequestTimeoutError: "the request's timeout ran out while its stream was read.",
        }
        return kind(limits[kind])


def has_timer(layer: StreamLayer) -> bool:
    """Say whether a layer sets any limit of time."""
    return (
        layer.attempt_timeout is not None
        or layer.first_output_timeout is not None
        or layer.stall_timeout is not None
        or layer.deadline is not None
    )
