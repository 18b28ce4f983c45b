"""The stream of updates, and how the layers around it become one with it.

A stack of wrappers is one stream object. A layer awaits the inner stream as long as it may still
turn to another one; then the outer stream *adopts* the inner one: it takes over the source, what
was read ahead, and the layers. From then on an update costs no frame for each layer; measured,
a nested generator costs 0.1 to 0.3 microseconds. What a failure means, routers decide.
"""

import warnings
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias, cast, final

import anyio

from chatrouting._copying import NeverCopied
from chatrouting._layers import StreamLayer, StreamTimer, TapLayer
from chatrouting._stream_layers import LayerStack
from chatrouting._stream_source import LimitReachedError, StreamSource, TakeReady
from chatrouting._stream_state import Ending, StreamState, Transcript, closed_error, step_error
from chatrouting.errors import StreamClosedError
from chatrouting.responses import ChatResponse, ChatResponseUpdate, FinishReason
from chatrouting.scope import RequestScope, closing_deadline
from chatrouting.usage import Usage

if TYPE_CHECKING:
    from chatrouting.attempt import RoutingAttempt

__all__ = ["ResponseStream", "StreamLayer"]

#: Looked up once: reaching an enum's member costs as much as a call, for each update.
_OPEN: Final = StreamState.OPEN

Updates: TypeAlias = "ResponseStream | AsyncIterator[ChatResponseUpdate]"


@final
class ResponseStream(NeverCopied):
    """An answer, piece by piece: an async iterator and an async context manager.

    Read it to its end, or close it; `async with` does the latter. One that is dropped half-read
    keeps its connection until the garbage collector comes, and warns.

    A client of one's own writes an async generator and returns `ResponseStream(generator)`. A
    source may offer `take_ready() -> update | None`, which never waits; such a source is taken
    to call no routers itself.

    Attributes:
        close_error: What closing the source raised after a clean end; it has been logged.
    """

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_busy",
        "_error",
        "_heir",
        "_open",
        "_source",
        "_stack",
        "_state",
        "_surroundings",
        "_take_ready",
        "_timers",
        "_transcript",
        "close_error",
    )

    def __init__(self, iterator: AsyncIterator[ChatResponseUpdate]) -> None:
        """Wrap what a client makes.

        Args:
            iterator: Yields updates; owned by the stream from now on, which closes it.

        Raises:
            TypeError: If `iterator` is None or a coroutine.
        """
        self._set_up(StreamSource(iterator), None, None)

    @classmethod
    def deferred(
        cls, open: Callable[[], Awaitable[Updates]], layer: StreamLayer | None = None
    ) -> "ResponseStream":
        """Make a stream that is opened when it is first read.

        Args:
            open: Awaited once, at the first read; returns the stream to go on with, which is
                adopted. Until it returns it cleans up after itself.
            layer: What the caller wants to have to do with the stream from then on.
        """
        stream = cls.__new__(cls)
        stream._set_up(None, open, layer)
        return stream

    def _set_up(
        self,
        source: StreamSource | None,
        open: Callable[[], Awaitable[Updates]] | None,
        layer: StreamLayer | None,
    ) -> None:
        self._state = StreamState.NEW
        self._source = source
        self._open = open
        self._take_ready: TakeReady | None = None
        self._surroundings: tuple[RequestScope, Callable[[], float]] | None = None
        #: What was read ahead, with the number of layers that have seen it.
        self._buffer: deque[tuple[ChatResponseUpdate, int]] = deque()
        self._stack = LayerStack(layer)
        self._timers: list[StreamTimer] = []
        self._transcript = Transcript()
        self._busy = False
        self._error: BaseException | None = None
        self.close_error: BaseException | None = None
        self._heir: ResponseStream | None = None

    @property
    def attempts(self) -> "tuple[RoutingAttempt, ...]":
        """The records of the outermost router so far; the running attempt has none yet."""
        if self._heir is not None:
            return self._heir.attempts
        for layer in reversed(self._stack.layers):
            if layer.attempts is not None:
                return tuple(layer.attempts)
        return ()

    @property
    def partial_response(self) -> ChatResponse:
        """What was handed out so far, also after an error; half a tool call stays unparsed."""
        if self._heir is not None:
            return self._heir.partial_response
        response = self._transcript.response(is_complete=self._state is StreamState.ENDED)
        response.attempts = self.attempts
        return response

    async def get_final_response(self) -> ChatResponse:
        """Read what is left and return the whole answer.

        Raises:
            StreamClosedError: If the stream was closed early or cancelled.
            Exception: Whatever broke the stream, again.
        """
        if self._heir is not None:
            return await self._heir.get_final_response()
        if self._state is StreamState.CLOSED:
            raise closed_error(self._state)
        async for _ in self:
            continue
        return self.partial_response

    def __aiter__(self) -> Self:
        return self

    async def __anext__(  # noqa: C901, PLR0912  # a call saved here is saved for each update
        self,
    ) -> ChatResponseUpdate:
        if self._state is not _OPEN:
            await self._begin()
        level = stage = 0
        try:
            if self._buffer:
                update, level = self._buffer.popleft()
            elif self._take_ready is None or (ready := self._take_ready()) is None:
                update = await self._read()
            else:
                update = ready
            for stage, step, is_map in self._stack.steps:
                if stage >= level:
                    if is_map:
                        update = step(update)
                    else:
                        step(update)
            self._transcript.add(update)
        except BaseException as error:
            if self._state is not StreamState.OPEN or self._busy:
                raise  # `_read` has ended the stream, or another task is reading it
            ending = Ending(step_error(error), GeneratorExit(), stage)
        else:
            if self._timers and update.has_output:
                for timer in self._timers:
                    timer.saw_output()
            return update
        return await self._end(ending)

    async def aclose(self) -> None:
        """End the stream early; does nothing after its end or its adoption.

        Raises:
            anyio.BusyResourceError: If another task is waiting for an update.
            Exception: If closing failed and the answer had not ended.
        """
        if self._busy:
            raise anyio.BusyResourceError("closing")
        ending = Ending(GeneratorExit())
        if self._state is StreamState.NEW:
            # No request began: there is nobody to tell.
            self._state = StreamState.CLOSED
            self._open = None
            ending.error = None if self._source is None else await self._source.close()
        elif self._state is StreamState.OPEN:
            await self._finish(ending)
        await ending.raise_early()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def tap(
        self,
        on_update: Callable[[ChatResponseUpdate], None] | None = None,
        on_end: Callable[[BaseException | None], Awaitable[None]] | None = None,
        on_dropped: Callable[[], None] | None = None,
    ) -> Self:
        """Watch the stream; before it is first read. Exceptions are errors of the stream.

        Args:
            on_update: Called with each update on its way out; must not wait.
            on_end: Awaited once at the end, with None, a GeneratorExit for an early close, or
                the error.
            on_dropped: Called instead of `on_end` if the stream is dropped without being closed.

        Raises:
            StreamClosedError: If the stream was read already.
        """
        self._add(TapLayer(on_end, on_dropped), on_update, is_map=False)
        return self

    def map(self, function: Callable[[ChatResponseUpdate], ChatResponseUpdate]) -> Self:
        """Replace each update by what `function` makes of it; before the stream is first read.

        Raises:
            StreamClosedError: If the stream was read already.
        """
        self._add(TapLayer(None, None), function, is_map=True)
        return self

    def _add(self, layer: StreamLayer, step: Callable[..., Any] | None, *, is_map: bool) -> None:
        if self._state is not StreamState.NEW:
            raise StreamClosedError(
                "the stream was read already; call tap and map before the first update."
            )
        self._stack.add(layer, step, is_map=is_map)

    @property
    def waited(self) -> float:
        """Seconds waited for the source so far, by the outermost router's clock."""
        return 0.0 if self._source is None else self._source.waited

    @property
    def usage(self) -> Usage | None:
        """Usage reported by what was handed out so far."""
        return self._transcript.usage if self._heir is None else self._heir.usage

    @property
    def finish_reason(self) -> FinishReason | str | None:
        """The finish reason, once it was handed out."""
        return self._transcript.finish_reason if self._heir is None else self._heir.finish_reason

    @property
    def closing(self) -> float:
        """Seconds that closing the source took."""
        return 0.0 if self._source is None else self._source.closing

    def surround(self, scope: RequestScope, clock: Callable[[], float]) -> None:
        """Let the source run in `scope` and be measured by `clock`; the first caller's stay."""
        if self._source is None:
            self._surroundings = self._surroundings or (scope, clock)
        elif self._source.scope is None:
            self._source.scope, self._source.clock = scope, clock

    def put_back(self, updates: Iterable[ChatResponseUpdate]) -> None:
        """Give back, in order, what a layer read ahead before it returns the stream."""
        level = len(self._stack.layers)
        self._buffer.extendleft((update, level) for update in reversed(tuple(updates)))

    async def _begin(self) -> None:  # noqa: C901  # one refusal for each state, then the opening
        if self._state is StreamState.FAILED:
            raise cast("BaseException", self._error)
        if self._state in (StreamState.ENDED, StreamState.CLOSED) and not self._busy:
            raise StopAsyncIteration
        if self._busy:
            raise anyio.BusyResourceError("reading from")
        if self._state is not StreamState.NEW:
            raise closed_error(self._state)
        self._busy = True
        told = 0
        try:
            if self._source is not None:
                self._source.prepare()
                self._arrange(0)
            elif self._open is not None:
                # Until `open` has returned, the layer that brought it has nothing to end.
                told = self._stack.first_taps()
                inner = await self._open()
                told = 0
                await self._adopt(inner)
            self._state = StreamState.OPEN
            return
        except GeneratorExit:
            self._drop(told)
            raise
        except BaseException as error:  # noqa: BLE001  # raised by `_end`
            ending = Ending(error)
        finally:
            self._busy = False
        self._stack.told = told
        await self._end(ending)

    async def _adopt(self, inner: Updates) -> None:
        stream = inner if isinstance(inner, ResponseStream) else ResponseStream(inner)
        if stream._state is StreamState.NEW:
            await stream._begin()
        if stream._state not in (StreamState.OPEN, StreamState.ENDED):
            raise closed_error(stream._state)
        known = self._stack.absorb(stream._stack)
        self._buffer = stream._buffer
        self._source = stream._source
        stream._state = StreamState.ADOPTED
        stream._heir = self
        if self._surroundings is not None:
            self.surround(*self._surroundings)
        self._arrange(known)

    def _arrange(self, known: int) -> None:
        """Make the layers from index `known` on part of the stream."""
        source = cast("StreamSource", self._source)
        self._stack.arrange(known, source)
        self._timers = source.timers
        self._take_ready = source.take_ready
        for layer in self._stack.layers:
            layer.attach(self)

    async def _read(self) -> ChatResponseUpdate:
        """Wait for the source; at its end, or if it fails, end the stream and raise."""
        if self._busy:
            raise anyio.BusyResourceError("reading from")
        self._busy = True
        try:
            return await cast("StreamSource", self._source).read()
        except GeneratorExit:
            self._drop(self._stack.told)
            raise
        except StopAsyncIteration:
            ending = Ending(None)
        except LimitReachedError as limit:
            ending = Ending(limit.error, limit.cancellation, limit.index)
        except BaseException as error:  # noqa: BLE001  # raised by `_end`
            ending = Ending(error)
        finally:
            self._busy = False
        return await self._end(ending)

    async def _end(self, ending: Ending) -> NoReturn:
        await self._finish(ending)
        raise StopAsyncIteration if ending.error is None else ending.let_go(ending.error)

    async def _finish(self, ending: Ending) -> None:
        """Close the source, then tell the layers from the inside out."""
        self._state = StreamState.CLOSED  # nobody may come in while this runs
        self._busy = True
        try:
            scope = None if self._source is None else self._source.scope
            limit = closing_deadline(scope) if ending.is_cancellation else None
            close_error = None if self._source is None else await self._source.close(limit)
            if close_error is not None:
                ending.weigh(close_error, self._transcript)
            await ending.give_way()
            await self._stack.tell(ending, scope)
        except GeneratorExit:  # thrown away: nothing can be awaited
            self._stack.drop(self._stack.told)
            raise
        finally:
            self.close_error = ending.close_error
            self._error = ending.error if ending.state is StreamState.FAILED else None
            self._open = self._take_ready = None
            self._state = ending.state
            self._busy = False

    def _drop(self, told: int) -> None:
        """Give back what layers hold, where nothing can be awaited any more."""
        self._state = StreamState.CLOSED
        self._stack.drop(told)

    def __del__(self) -> None:
        # A constructor that raised leaves no state.
        if getattr(self, "_state", None) is StreamState.OPEN:
            shown = repr(self)
            self._drop(self._stack.told)  # before the warning, which may be an error
            warnings.warn(
                f"{shown} was dropped without being read to its end or closed; "
                "use 'async with' or call aclose().",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __repr__(self) -> str:
        state = self._state.name.lower()
        return f"<ResponseStream {state}, {len(self._transcript.updates)} updates>"
