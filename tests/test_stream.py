"""`ResponseStream` by itself: reading, taps, adoption, ends, being dropped."""

import asyncio
import dataclasses
import gc
import warnings

import anyio
import pytest
from anyio.lowlevel import checkpoint

from chatrouting import ChatResponseUpdate, ResponseStream, Usage
from chatrouting.errors import APIConnectionError, OverloadedError, StreamClosedError
from chatrouting.stream import StreamLayer
from chatrouting.testing import (
    ScriptedChatClient,
    fails,
    finishes,
    update,
    waits_forever,
    waits_on_close,
)
from chatrouting.testing.scripted import raises_on_close


def stream_of(*script, **kwargs):
    client = ScriptedChatClient(*script, **kwargs)
    return client, client.get_streaming_response("hi")


class Watcher(StreamLayer):
    """A layer that writes down what it is told."""

    def __init__(self, *, raises=None):
        self.seen = []
        self.ends = []
        self.dropped = 0
        self.streams = []
        self._raises = raises

    def attach(self, stream):
        self.streams.append(stream)

    def on_update(self, update):
        self.seen.append(update.text)

    async def on_end(self, error):
        self.ends.append(error)
        if self._raises is not None:
            raise self._raises
        return error

    def on_dropped(self):
        self.dropped += 1


def deferred(stream, layer=None):
    async def open_it():
        await checkpoint()
        return stream

    return ResponseStream.deferred(open_it, layer)


async def texts(stream):
    return [each.text async for each in stream]


async def test_a_stream_hands_out_updates_in_order_and_then_ends_for_good():
    """After a clean end each further read says so again."""
    client, stream = stream_of("a", "b")

    assert await texts(stream) == ["a", "b"]

    with pytest.raises(StopAsyncIteration):
        await stream.__anext__()
    assert client.streams_closed == 1


@pytest.mark.parametrize("source", ["object", "generator", "ready", "unclosable"])
async def test_every_kind_of_source_is_read_alike(source):
    client, stream = stream_of("a", "b", finishes("stop"), source=source)

    response = await stream.get_final_response()

    assert (response.text, response.finish_reason) == ("ab", "stop")
    assert client.pending == 0


async def test_an_error_is_raised_again_and_the_partial_response_stays():
    """[BR-01] What came before the break can still be read."""
    error = OverloadedError("busy")
    client, stream = stream_of("half", fails(error))
    with pytest.raises(OverloadedError) as first:
        await stream.get_final_response()

    with pytest.raises(OverloadedError) as second:
        await stream.__anext__()

    assert first.value is second.value is error
    assert stream.partial_response.text == "half"
    assert client.streams_closed == 1


async def test_closing_early_closes_the_source_once_and_ends_the_iteration():
    client, stream = stream_of("a", "b")
    async with stream:
        await stream.__anext__()

    await stream.aclose()

    assert client.streams_closed == 1
    with pytest.raises(StopAsyncIteration):
        await stream.__anext__()
    with pytest.raises(StreamClosedError, match="closed before its end"):
        await stream.get_final_response()


async def test_a_stream_that_was_never_read_closes_without_telling_anybody():
    """[routing 68] No request began."""
    client, stream = stream_of("a")
    watcher = Watcher()
    outer = deferred(stream, watcher)

    await outer.aclose()

    assert (watcher.ends, client.calls[0].has_begun) == ([], False)


async def test_cancellation_closes_the_stream_and_later_reads_are_refused():
    client, stream = stream_of("a", waits_forever())
    await stream.__anext__()
    with anyio.move_on_after(0):
        await stream.__anext__()

    with pytest.raises(StreamClosedError, match="cancelled"):
        await stream.__anext__()
    with pytest.raises(StreamClosedError):
        await stream.get_final_response()
    assert client.streams_closed == 1


async def test_two_tasks_cannot_read_or_close_one_stream_at_the_same_time():
    _, stream = stream_of("a", waits_forever())
    await stream.__anext__()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.__anext__)
        await anyio.wait_all_tasks_blocked()

        with pytest.raises(anyio.BusyResourceError):
            await stream.__anext__()
        with pytest.raises(anyio.BusyResourceError):
            await stream.aclose()

        tasks.cancel_scope.cancel()


async def test_taps_and_maps_run_in_call_order():
    _, stream = stream_of("a")
    seen = []
    stream.tap(lambda each: seen.append(each.text)).map(
        lambda each: ChatResponseUpdate(each.text.upper())
    ).tap(lambda each: seen.append(each.text))

    assert await texts(stream) == ["A"]
    assert seen == ["a", "A"]


async def test_taps_come_before_reading():
    _, stream = stream_of("a")
    await stream.__anext__()

    with pytest.raises(StreamClosedError, match="before the first update"):
        stream.tap(print)
    with pytest.raises(StreamClosedError):
        stream.map(lambda each: each)
    await stream.aclose()


async def test_a_raising_tap_fails_the_stream_and_layers_below_see_an_early_close():
    client, stream = stream_of("a")
    below, above = Watcher(), Watcher()
    error = ValueError("tap")

    def fail(_):
        raise error

    outer = deferred(deferred(stream, below).tap(fail), above)
    with pytest.raises(ValueError, match="tap"):
        await texts(outer)

    assert isinstance(below.ends[0], GeneratorExit)
    assert above.ends == [error]
    assert client.streams_closed == 1


async def test_a_tap_that_raises_stop_async_iteration_does_not_end_the_stream_cleanly():
    _, stream = stream_of("a")

    def stop(_):
        raise StopAsyncIteration

    stream.tap(stop)
    with pytest.raises(RuntimeError, match="StopAsyncIteration"):
        await texts(stream)


async def test_on_end_of_a_tap_is_awaited_once_with_what_ended_the_stream():
    ends = []

    async def on_end(error):
        await checkpoint()
        ends.append(error)

    error = OverloadedError()
    _, clean = stream_of("a")
    _, broken = stream_of(fails(error))
    _, early = stream_of("a", "b")

    await texts(clean.tap(on_end=on_end))
    with pytest.raises(OverloadedError):
        await texts(broken.tap(on_end=on_end))
    await early.tap(on_end=on_end).__anext__()
    await early.aclose()

    assert ends[:2] == [None, error]
    assert isinstance(ends[2], GeneratorExit)
    assert len(ends) == 3


async def test_an_adopted_stream_is_read_through_the_outer_one_only():
    client, inner = stream_of("a", "b")
    inner_layer, outer_layer = Watcher(), Watcher()
    middle = deferred(inner, inner_layer)
    outer = deferred(middle, outer_layer)

    assert (await outer.__anext__()).text == "a"

    with pytest.raises(StreamClosedError, match="outer stream"):
        await inner.__anext__()
    with pytest.raises(StreamClosedError):
        await middle.__anext__()
    await middle.aclose()  # does nothing
    assert await texts(outer) == ["b"]
    assert (await inner.get_final_response()).text == "ab"
    assert (await middle.get_final_response()).text == "ab"
    assert inner_layer.seen == outer_layer.seen == ["a", "b"]
    assert inner_layer.ends == outer_layer.ends == [None]
    assert inner_layer.streams[-1] is outer_layer.streams[-1] is outer
    assert client.streams_closed == 1


async def test_a_tap_of_an_adopted_stream_learns_usage_and_finish_reason_at_the_end():
    """Middleware keeps the handle that it tapped, and a router around it takes the stream over."""
    told = []
    usage = Usage(output_tokens=3)
    _, inner = stream_of("a", finishes(usage=usage))

    async def on_end(error):
        told.append((inner.usage, inner.finish_reason))

    outer = deferred(deferred(inner.tap(on_end=on_end)))

    await texts(outer)
    assert told == [(usage, "stop")]


async def test_what_was_read_ahead_passes_only_the_layers_that_have_not_seen_it():
    _, inner = stream_of("a", "b", "c")
    below, above = Watcher(), Watcher()
    middle = deferred(inner, below)

    async def open_it():
        ahead = [await middle.__anext__(), await middle.__anext__()]
        middle.put_back(ahead)
        return middle

    outer = ResponseStream.deferred(open_it, above)

    assert await texts(outer) == ["a", "b", "c"]
    assert below.seen == above.seen == ["a", "b", "c"]


async def test_an_inner_stream_that_ended_while_it_was_read_ahead_tells_each_layer_once():
    client, inner = stream_of("a")
    below, above = Watcher(), Watcher()
    middle = deferred(inner, below)

    async def open_it():
        middle.put_back([each async for each in middle])
        return middle

    outer = ResponseStream.deferred(open_it, above)

    assert await texts(outer) == ["a"]
    assert (below.ends, above.ends) == ([None], [None])
    assert client.streams_closed == 1


async def test_an_error_of_an_inner_hook_is_the_outer_layers_failure():
    error = ValueError("hook")
    _, stream = stream_of("a")
    below, above = Watcher(raises=error), Watcher()

    with pytest.raises(ValueError, match="hook"):
        await texts(deferred(deferred(stream, below), above))

    assert (below.ends, above.ends) == ([None], [error])


async def test_an_open_that_raises_leaves_its_own_layer_alone_and_tells_the_taps():
    error = OverloadedError("busy")
    layer = Watcher()
    ends = []

    async def open_it():
        raise error

    async def on_end(told):
        ends.append(told)

    stream = ResponseStream.deferred(open_it, layer).tap(on_end=on_end)

    with pytest.raises(OverloadedError):
        await texts(stream)
    assert (layer.ends, ends) == ([], [error])


async def test_close_error_is_raised_only_where_nothing_was_handed_out():
    """[routing 57, 63] A finished answer is not spoilt by a failing close."""
    _, empty = stream_of(raises_on_close(OSError("close")))
    _, full = stream_of("a", raises_on_close(OSError("close")))

    with pytest.raises(OSError, match="close"):
        await texts(empty)
    assert await texts(full) == ["a"]
    assert isinstance(full.close_error, OSError)


async def test_close_error_beside_an_error_becomes_a_note():
    """[routing 64] The primary error stays the primary one."""
    _, stream = stream_of("a", fails(OverloadedError), raises_on_close(OSError("secret")))

    with pytest.raises(OverloadedError) as caught:
        await texts(stream)

    assert caught.value.__notes__ == ["closing the stream failed as well: OSError."]


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """Refuses to be changed, notes and context included."""

    code: int = 1


async def test_a_taps_exception_that_refuses_to_be_changed_has_its_context():
    async def on_end(error):
        raise FrozenError

    _, stream = stream_of("a", fails(OverloadedError))
    with pytest.raises(FrozenError) as caught:
        await texts(stream.tap(on_end=on_end))

    assert isinstance(caught.value.__context__, OverloadedError)


async def test_close_error_is_noted_on_an_exception_that_refuses_to_be_changed():
    class Source:
        async def __anext__(self):
            raise FrozenError

        async def aclose(self):
            raise OSError

    with pytest.raises(FrozenError) as caught:
        await ResponseStream(Source()).get_final_response()

    assert caught.value.__notes__ == ["closing the stream failed as well: OSError."]


async def test_close_error_of_an_early_close_is_raised_unless_the_answer_had_ended():
    """[routing 65]"""
    _, unfinished = stream_of("a", "b", raises_on_close(OSError("close")))
    _, finished = stream_of("a", finishes("stop"), "late", raises_on_close(OSError("close")))
    await unfinished.__anext__()
    await finished.__anext__()
    await finished.__anext__()

    with pytest.raises(OSError, match="close"):
        await unfinished.aclose()
    await finished.aclose()


async def test_a_dropped_stream_warns_and_gives_back_what_layers_hold():
    """[routing 68] [BR-53] No record can be written, but slots are returned."""
    _, inner = stream_of("a", "b")
    layer = Watcher()
    stream = deferred(inner, layer)
    await stream.__anext__()

    with pytest.warns(ResourceWarning, match="without being read to its end"):
        del stream, inner
        layer.streams.clear()
        gc.collect()

    assert (layer.dropped, layer.ends) == (1, [])


async def test_an_unread_stream_is_dropped_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, stream = stream_of("a")
        del stream
        gc.collect()


def test_a_stream_of_nothing_is_refused():
    with pytest.raises(TypeError, match="None"):
        ResponseStream(None)


async def test_a_stream_of_a_coroutine_is_refused_with_a_hint():
    async def get_streaming_response():
        yield update("a")

    async def wrong():
        return get_streaming_response()

    with pytest.raises(TypeError, match="plain function"):
        ResponseStream(wrong())


async def test_usage_and_finish_reason_are_known_as_they_pass():
    _, stream = stream_of("a", finishes("stop"), "b")

    await stream.__anext__()
    assert stream.finish_reason is None
    await stream.__anext__()
    assert stream.finish_reason == "stop"
    await stream.aclose()


async def fail(*_):
    raise LookupError("hook")


async def test_a_failing_end_does_not_replace_the_cancellation_that_led_to_it(caplog):
    """A consumer cancelled in its own code leaves `async with` cancelled."""
    _, stream = stream_of("a", "b")
    with anyio.CancelScope() as scope:
        async with stream.tap(on_end=fail):
            await stream.__anext__()
            scope.cancel()
            await checkpoint()

    assert scope.cancelled_caught
    assert "stream.close_failed" in caplog.text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_failing_end_does_not_replace_a_native_cancellation(anyio_backend):
    _, stream = stream_of("a", "b")

    async def consume():
        async with stream.tap(on_end=fail):
            await stream.__anext__()
            await anyio.sleep_forever()

    task = asyncio.create_task(consume())
    await anyio.wait_all_tasks_blocked()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_that_comes_while_a_broken_stream_is_closed_wins():
    """The source is closed all the same; the layers are told of the cancellation."""
    client, stream = stream_of("a", fails(OverloadedError), waits_on_close(0.05))
    watcher, scope = Watcher(), anyio.CancelScope()
    outer = deferred(stream, watcher)
    await outer.__anext__()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_in, scope, outer)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()

    assert scope.cancelled_caught
    [told] = watcher.ends
    assert isinstance(told, anyio.get_cancelled_exc_class())
    assert isinstance(told.__cause__, OverloadedError)
    assert client.streams_closed == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("script", [["a", fails(OverloadedError)], ["a"]], ids=["broken", "ended"])
async def test_a_native_cancellation_that_interrupts_closing_wins(anyio_backend, script):
    """A shield does not keep `Task.cancel` out, so that closing itself meets it."""
    client, stream = stream_of(*script, waits_on_close(10))
    await stream.__anext__()
    task = asyncio.create_task(read_in(anyio.CancelScope(), stream))
    await anyio.wait_all_tasks_blocked()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.streams_closed == 1


async def read_in(scope, stream):
    with scope:
        await stream.__anext__()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_close_that_cancels_itself_is_no_cancellation_of_the_consumer(anyio_backend):
    """[routing 48]"""
    _, stream = stream_of("a", raises_on_close(asyncio.CancelledError))
    await stream.__anext__()

    with pytest.raises(APIConnectionError) as caught:
        await stream.aclose()

    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_close_that_cancels_itself_does_not_stand_for_the_consumers_own(anyio_backend):
    """It would not be known to the scope that was cancelled, and would leave it."""
    _, stream = stream_of(waits_on_close(0.05), raises_on_close(asyncio.CancelledError))
    scope = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_in, scope, stream)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()

    assert scope.cancelled_caught
