"""`SyncChatClient`: plain functions over an async client."""

import gc
import subprocess
import sys
import threading
import weakref

import anyio
import pytest

from chatrouting import DelegatingChatClient, OrderedFailoverChatClient
from chatrouting.errors import ClientClosedError, OverloadedError, StreamClosedError
from chatrouting.sync import SyncChatClient
from chatrouting.testing import (
    Gate,
    ScriptedChatClient,
    fails,
    finishes,
    raises_on_close,
    runs,
    waits,
    waits_for,
)

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def stack(*script):
    leaf = ScriptedChatClient(*script)
    first = ScriptedChatClient(fails(OverloadedError))
    return leaf, OrderedFailoverChatClient({"first": first, "leaf": leaf})


@BACKENDS
def test_a_whole_answer_carries_its_attempts(backend):
    _, router = stack("hello")

    with SyncChatClient(router, backend=backend) as client:
        response = client.get_response("hi")

    assert response.text == "hello"
    assert [attempt.route for attempt in response.attempts] == ["first", "leaf"]


@BACKENDS
def test_a_stream_is_an_iterator(backend):
    _, router = stack("a", waits(0.001), "b", finishes("stop"))

    with (
        SyncChatClient(router, backend=backend) as client,
        client.get_streaming_response("hi") as stream,
    ):
        assert [update.text for update in stream] == ["a", "b", ""]
        assert list(stream) == []
        assert stream.get_final_response().text == "ab"
        assert len(stream.attempts) == 2


@BACKENDS
def test_leaving_a_stream_early_closes_it(backend):
    leaf, router = stack("a", "b")
    with SyncChatClient(router, backend=backend) as client:
        with client.get_streaming_response("hi") as stream:
            assert next(stream).text == "a"

        assert leaf.streams_closed == 1
        assert stream.partial_response.text == "a"
        with pytest.raises(StreamClosedError):
            stream.get_final_response()


@BACKENDS
def test_errors_come_out_as_they_are(backend):
    error = OverloadedError("busy")
    with (
        SyncChatClient(ScriptedChatClient(fails(error)), backend=backend) as client,
        pytest.raises(OverloadedError) as caught,
    ):
        client.get_response("hi")

    assert caught.value is error


@BACKENDS
def test_closing_closes_the_client_and_ends_the_thread(backend):
    leaf, router = stack("hello")
    client = SyncChatClient(router, backend=backend)
    client.get_response("hi")
    before = set(threading.enumerate())

    client.close()
    client.close()

    [ended] = before - set(threading.enumerate())
    assert ended.name == "chatrouting-sync"
    assert leaf.close_count == 1
    with pytest.raises(ClientClosedError):
        client.get_response("hi")


def test_closing_an_unused_client_closes_what_it_wraps():
    leaf = ScriptedChatClient("never")

    SyncChatClient(leaf).close()

    assert leaf.close_count == 1


def test_many_threads_share_one_loop():
    leaf = ScriptedChatClient(waits(0.001), "hello")
    texts = []
    with SyncChatClient(leaf) as client:
        threads = [
            threading.Thread(target=lambda: texts.append(client.get_response("hi").text))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert texts == ["hello"] * 20


async def test_it_works_beside_a_running_loop():
    """A worker thread of an async program may use it."""
    with SyncChatClient(ScriptedChatClient("hello")) as client:
        response = await anyio.to_thread.run_sync(client.get_response, "hi")

    assert response.text == "hello"


def test_a_client_that_nobody_closed_lets_the_process_end():
    program = (
        "from chatrouting.sync import SyncChatClient\n"
        "from chatrouting.testing import ScriptedChatClient\n"
        "print(SyncChatClient(ScriptedChatClient('hello')).get_response('hi').text)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True
    )

    assert done.stdout == "hello\n"


def test_none_and_unknown_backends_are_refused():
    with pytest.raises(TypeError):
        SyncChatClient(None)
    with pytest.raises(LookupError):
        SyncChatClient(ScriptedChatClient("x"), backend="nope").get_response("hi")


def test_a_stream_outlived_by_nothing_says_that_its_client_was_closed():
    client = SyncChatClient(ScriptedChatClient("a", "b"))
    stream = client.get_streaming_response("hi")
    next(stream)
    stream.close()
    client.close()

    with pytest.raises(ClientClosedError):
        next(stream)
    stream.close()


@BACKENDS
def test_closing_closes_the_streams_that_are_half_read(backend):
    """As leaving the block does on the async side, and before what they read from is closed."""
    order = []
    leaf = ScriptedChatClient("a", "b")
    client = SyncChatClient(Ordered(leaf, order), backend=backend)
    half_read = client.get_streaming_response("hi")
    next(half_read)
    never_read = client.get_streaming_response("hi")

    client.close()

    assert order == ["stream", "client"]
    assert (leaf.streams_opened, leaf.streams_closed) == (1, 1)
    assert half_read.partial_response.text == "a"
    for stream in (half_read, never_read):
        with pytest.raises(ClientClosedError):
            next(stream)


class Ordered(DelegatingChatClient):
    """Writes down in which order it and its streams are closed."""

    def __init__(self, inner, order):
        super().__init__(inner)
        self.order = order

    def get_streaming_response(self, messages, options=None):
        async def on_end(error):
            self.order.append("stream")

        return super().get_streaming_response(messages, options).tap(on_end=on_end)

    async def aclose(self):
        self.order.append("client")
        await super().aclose()


def test_a_stream_that_fails_to_close_keeps_nothing_else_open():
    leaf = ScriptedChatClient("a", raises_on_close(OverloadedError), "b")
    client = SyncChatClient(leaf)
    streams = [client.get_streaming_response("hi") for _ in range(2)]
    for stream in streams:
        next(stream)
    before = set(threading.enumerate())

    with pytest.raises(OverloadedError):
        client.close()

    assert leaf.streams_closed == 2
    assert leaf.close_count == 1
    [ended] = before - set(threading.enumerate())
    assert ended.name == "chatrouting-sync"


@BACKENDS
def test_a_stream_that_another_thread_reads_is_closed_after_that_read(backend):
    reading, closing = threading.Event(), Gate()
    leaf = ScriptedChatClient("a", runs(lambda call: reading.set()), waits_for(closing), "b", "c")
    client = SyncChatClient(Opening(leaf, closing), backend=backend)
    stream = client.get_streaming_response("hi")
    texts = [next(stream).text]
    reader = threading.Thread(target=lambda: texts.append(next(stream).text))
    reader.start()
    reading.wait()

    client.close()
    reader.join()

    assert texts == ["a", "b"]
    assert leaf.streams_closed == 1


class Opening(DelegatingChatClient):
    """Opens a gate when it is closed, so after its streams."""

    def __init__(self, inner, gate):
        super().__init__(inner)
        self.gate = gate

    async def aclose(self):
        self.gate.open()
        await super().aclose()


def test_a_stream_that_is_dropped_is_forgotten():
    client = SyncChatClient(ScriptedChatClient("a"))
    dropped = weakref.ref(client.get_streaming_response("hi"))
    gc.collect()
    assert dropped() is None
    client.close()


def test_a_stream_asked_for_while_the_client_is_closed_is_refused():
    def close(call):
        client.close()

    client = SyncChatClient(CallingClient(close))
    with pytest.raises(ClientClosedError):
        client.get_streaming_response("hi")


class CallingClient(DelegatingChatClient):
    """Calls a function while it is asked for a stream."""

    def __init__(self, function):
        super().__init__(ScriptedChatClient("a"))
        self.function = function

    def get_streaming_response(self, messages, options=None):
        self.function(messages)
        return super().get_streaming_response(messages, options)


def test_an_interrupt_cancels_the_request_and_does_not_wait_for_it():
    """Ctrl-C in the waiting thread ends the call in the loop's thread too."""
    program = (
        "import os, signal, threading\n"
        "from chatrouting.sync import SyncChatClient\n"
        "from chatrouting.testing import ScriptedChatClient, waits_forever\n"
        "leaf = ScriptedChatClient(waits_forever())\n"
        "threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
        "try:\n"
        "    with SyncChatClient(leaf) as client:\n"
        "        client.get_response('hi')\n"
        "except KeyboardInterrupt:\n"
        "    print(leaf.calls[0].state.value)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True
    )

    assert done.stdout == "cancelled\n"
