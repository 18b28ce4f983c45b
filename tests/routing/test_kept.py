"""What whoever keeps a context, a record or a timer keeps alive with it, and what not."""

import gc
import weakref

import anyio
import pytest

from chatrouting import (
    ChatOptions,
    ChatResponse,
    ChatResponseUpdate,
    FailoverChatClient,
    OrderedFailoverChatClient,
    ResponseStream,
    RoutingHints,
)
from chatrouting.client import ClosingClient
from chatrouting.errors import OverloadedError
from chatrouting.testing import ScriptedChatClient, fails, runs


class Prompt:
    """Something that a request is about."""


class Source:
    """Two updates; sets timers as HTTP libraries do."""

    def __init__(self):
        self.left = ["a", "b"]

    async def __anext__(self):
        with anyio.fail_after(600):
            await anyio.lowlevel.checkpoint()
        if not self.left:
            raise StopAsyncIteration
        return ChatResponseUpdate(self.left.pop(0))


class Leaf(ClosingClient):
    """Remembers nothing of what it was asked, unlike a scripted client."""

    async def get_response(self, messages, options=None):
        return ChatResponse("a")

    def get_streaming_response(self, messages, options=None):
        return ResponseStream(Source())

    def get_service(self, service_type, service_key=None):
        return None


def keeping(kept, client):
    """Return a failover whose policy keeps every context that it sees."""

    def select(context):
        kept.append(context)
        return context.next_route()

    return FailoverChatClient(select, routes=[client])


@pytest.mark.parametrize("place", ["alone", "around", "inside"])
async def test_a_policy_that_keeps_its_context_keeps_no_dropped_stream_alive(place):
    """[routing 68] Else nothing warns, and what its layers hold is never given back."""
    kept = []
    router = keeping(kept, OrderedFailoverChatClient([Leaf()]) if place == "around" else Leaf())
    if place == "inside":
        router = OrderedFailoverChatClient([router])
    stream = router.get_streaming_response("Hi")
    await anext(stream)
    held = weakref.ref(stream)

    with pytest.warns(ResourceWarning, match="aclose"):
        del stream
        gc.collect()

    assert len(kept) == 1
    assert held() is None


@pytest.mark.parametrize("timeout", [None, 600])
async def test_a_timer_that_is_over_keeps_no_dropped_stream_alive(timeout):
    """[routing 68] asyncio keeps it, and the scope it was set in, until it would have gone off."""
    router = OrderedFailoverChatClient(
        [OrderedFailoverChatClient([Leaf()], attempt_timeout=600)], stall_timeout=timeout
    )
    hints = None if timeout is None else ChatOptions(routing=RoutingHints(timeout=timeout))
    stream = router.get_streaming_response("Hi", hints)
    await anext(stream)
    await anext(stream)
    held = weakref.ref(stream)

    with pytest.warns(ResourceWarning, match="aclose"):
        del stream
        gc.collect()

    assert held() is None


@pytest.mark.parametrize("way", ["read", "closed", "thrown away"])
async def test_a_stream_that_is_over_holds_no_messages(way):
    """[BR-73] Not even until the garbage collector comes."""
    prompt = Prompt()
    held = weakref.ref(prompt)
    router = OrderedFailoverChatClient([OrderedFailoverChatClient([Leaf()])])
    gc.collect()
    gc.disable()
    try:
        stream = router.get_streaming_response(
            "Hi", ChatOptions(additional_properties={"prompt": prompt})
        )
        await anext(stream)
        if way == "thrown away":
            reading = stream.__anext__()
            reading.send(None)
            reading.close()
            del reading
        else:
            await (stream.get_final_response() if way == "read" else stream.aclose())
        del stream, prompt
    finally:
        gc.enable()

    assert held() is None


async def test_records_of_a_request_that_is_thrown_away_keep_no_frames_alive(mode):
    """[BR-73] Whoever throws it away gets no error: none keeps its traceback."""
    kept = []

    class Router(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            kept.append(attempt)
            await anyio.sleep_forever()

    router = Router([ScriptedChatClient(fails(OverloadedError)), ScriptedChatClient("never")])
    request = (
        router.get_response("Hi")
        if mode == "whole"
        else router.get_streaming_response("Hi").__anext__()
    )
    request.send(None)
    request.close()

    assert [type(each.exception) for each in kept] == [OverloadedError]
    assert kept[0].exception.__traceback__ is None


class Unhurried(OrderedFailoverChatClient):
    """Its hook never returns."""

    def __init__(self, client):
        super().__init__([client])
        self.told = []

    async def on_routing_update(self, context, attempt, is_terminal):
        self.told.append(attempt)
        await anyio.sleep_forever()

    async def on_request_ended(self, context, exception):
        self.told.append(exception)


async def test_a_stream_that_is_thrown_away_in_a_hook_gives_back_what_layers_hold():
    """[BR-73] The hook's own layer has been told; those around it are dropped, and told nothing."""
    given_back = []
    inner = Unhurried(ScriptedChatClient("a", fails(OverloadedError)))
    outer = Unhurried(inner)
    stream = outer.get_streaming_response("Hi").tap(on_dropped=lambda: given_back.append("slot"))
    await anext(stream)
    request = stream.get_final_response()
    request.send(None)
    request.close()

    assert [type(each.exception) for each in inner.told] == [OverloadedError]
    assert inner.told[0].exception.__traceback__ is None
    assert outer.told == []
    assert given_back == ["slot"]


async def test_a_cancelled_request_that_is_thrown_away_tells_nobody_of_its_end(mode):
    """While it waits for its cancellation to be delivered; nothing can be awaited after that."""
    told = []

    class Router(OrderedFailoverChatClient):
        async def on_request_ended(self, context, exception):
            told.append(exception)

    def fail(_):
        scope.cancel()
        raise OverloadedError

    router = Router([ScriptedChatClient(runs(fail))])
    request = (
        router.get_response("Hi")
        if mode == "whole"
        else router.get_streaming_response("Hi").__anext__()
    )
    with anyio.CancelScope() as scope:  # noqa: ASYNC100  # the request is run by hand
        request.send(None)
        request.close()

    assert told == []
