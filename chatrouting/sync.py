"""Chat clients for code that does not await: scripts, notebooks, worker threads.

An event loop runs in a thread of its own for each `SyncChatClient`, and every call is handed to
it. That works beside a loop that runs in the calling thread, but a coroutine must not call it: it
would stand still while it waits. For throughput use the async clients.
"""

import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Literal, Self, TypeVar, final
from weakref import WeakSet

import anyio
from anyio.from_thread import BlockingPortal

from chatrouting._copying import NeverCopied, SharedWhenCopied
from chatrouting.attempt import RoutingAttempt
from chatrouting.client import ChatClient
from chatrouting.errors import ClientClosedError
from chatrouting.messages import MessagesInput
from chatrouting.options import ChatOptions
from chatrouting.responses import ChatResponse, ChatResponseUpdate
from chatrouting.stream import ResponseStream

T = TypeVar("T")


@final
class _LoopThread:
    """An event loop in a thread of its own, to which calls are handed."""

    def __init__(self, backend: str) -> None:
        started: Future[BlockingPortal] = Future()

        async def serve() -> None:
            async with BlockingPortal() as portal:
                started.set_result(portal)
                await portal.sleep_until_stopped()

        def run() -> None:
            try:
                anyio.run(serve, backend=backend)
            except BaseException as error:
                if started.done():
                    raise
                started.set_exception(error)  # such as: trio is not installed

        # A daemon: a client that nobody closed does not keep the process from ending.
        self._thread = threading.Thread(target=run, name="chatrouting-sync", daemon=True)
        self._thread.start()
        self._portal = started.result()
        self.is_stopped = False

    def call(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Await `function` in the loop and return what it gives.

        Raises:
            ClientClosedError: If the loop was stopped.
            BaseException: What the function raised. An interrupt of the waiting thread cancels it.
        """
        if self.is_stopped:
            raise _closed()
        future = self._portal.start_task_soon(function, *args)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # does nothing if the function itself raised
            raise

    def stop(self) -> None:
        """End the loop and its thread."""
        self.is_stopped = True
        self._portal.call(self._portal.stop)
        self._thread.join()


@final
class _Reader:
    """A stream, as it is read and ended in the loop."""

    def __init__(self, stream: ResponseStream) -> None:
        self.stream = stream
        self._ends_after_read = False

    async def next(self) -> ChatResponseUpdate | None:
        # StopAsyncIteration cannot pass through a future.
        update = await anext(self.stream, None)
        if self._ends_after_read:
            await self.stream.aclose()
        return update

    async def end(self) -> None:
        """End the stream early; one that is being read now, after that read."""
        try:
            await self.stream.aclose()
        except anyio.BusyResourceError:
            self._ends_after_read = True


@final
class SyncResponseStream(NeverCopied):
    """A stream for code that does not await: an iterator and a context manager.

    Read it to its end or close it, as its async original.
    """

    def __init__(self, reader: _Reader, loop: _LoopThread) -> None:
        self._reader = reader
        self._stream = reader.stream
        self._loop = loop

    def __iter__(self) -> Iterator[ChatResponseUpdate]:
        return self

    def __next__(self) -> ChatResponseUpdate:
        update = self._loop.call(self._reader.next)
        if update is None:
            raise StopIteration
        return update

    def get_final_response(self) -> ChatResponse:
        """Read what is left and return the whole answer.

        Raises:
            StreamClosedError: If the stream was closed early.
            ClientClosedError: If its client was closed.
            Exception: Whatever broke the stream.
        """
        return self._loop.call(self._stream.get_final_response)

    @property
    def attempts(self) -> tuple[RoutingAttempt, ...]:
        """The records of the outermost router so far."""
        return self._stream.attempts

    @property
    def partial_response(self) -> ChatResponse:
        """What was handed out so far, also after an error."""
        return self._stream.partial_response

    def close(self) -> None:
        """End the stream early; does nothing after its end, or once its client was closed."""
        if not self._loop.is_stopped:
            self._loop.call(self._stream.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class SyncChatClient(SharedWhenCopied):
    """Puts a chat client behind plain functions, from any thread.

    Owns the client: closing closes it, in the loop that it has run in, and before it the streams
    that are still open. The loop's thread starts with the first call and does not keep the process
    from ending.
    """

    def __init__(
        self, client: ChatClient, *, backend: Literal["asyncio", "trio"] = "asyncio"
    ) -> None:
        """Wrap a client.

        Args:
            client: Must not have been used in another event loop if it keeps connections.
            backend: The event loop of the thread.

        Raises:
            TypeError: If `client` is None.
        """
        if client is None:
            raise TypeError("client is None; expected a chat client.")
        self._client = client
        self._backend = backend
        self._lock = threading.Lock()
        self._running: _LoopThread | None = None
        self._readers: WeakSet[_Reader] = WeakSet()
        self._is_closed = False

    def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole.

        Raises:
            ClientClosedError: If the client was closed.
            Exception: What the client raised.
        """
        return self._loop().call(self._client.get_response, messages, options)

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> SyncResponseStream:
        """Answer piece by piece. Nothing is sent before the stream is first read.

        Raises:
            ClientClosedError: If the client was closed.
        """
        loop = self._loop()
        reader = _Reader(self._client.get_streaming_response(messages, options))
        with self._lock:
            if self._is_closed:
                raise _closed()
            self._readers.add(reader)
        return SyncResponseStream(reader, loop)

    def close(self) -> None:
        """Close open streams and the client, and end the loop; may be called more than once.

        Raises:
            Exception: What closing raised; the rest is closed and the loop has ended all the same.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            loop = self._running or _LoopThread(self._backend)
        try:
            loop.call(self._close_all)
        finally:
            loop.stop()

    async def _close_all(self) -> None:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._client.aclose)
            for reader in self._readers:
                stack.push_async_callback(reader.end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _loop(self) -> _LoopThread:
        with self._lock:
            if self._is_closed:
                raise _closed()
            if self._running is None:
                self._running = _LoopThread(self._backend)
            return self._running


def _closed() -> ClientClosedError:
    return ClientClosedError("the client was closed; make requests before close.")
