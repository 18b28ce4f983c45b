"""The scripted chat client: what each word of a script does, and what is recorded."""

import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from types import AsyncGeneratorType
from typing import Any

import anyio
import pytest

from chatrouting import (
    ChatMessage,
    ChatOptions,
    ChatResponse,
    ChatResponseUpdate,
    ClientMetadata,
    FinishReason,
    OrderedFailoverChatClient,
    Role,
    TextContent,
    Usage,
)
from chatrouting.client import ChatClient
from chatrouting.errors import (
    APIConnectionError,
    ClientClosedError,
    ConfigurationError,
    OverloadedError,
    RateLimitError,
)
from chatrouting.testing import (
    CallState,
    Gate,
    ScriptedCall,
    ScriptedChatClient,
    cancels_itself,
    fails,
    finishes,
    raises_on_call,
    raises_on_close,
    raises_on_iter,
    returns,
    runs,
    update,
    waits,
    waits_for,
    waits_forever,
    waits_on_close,
)

pytestmark = pytest.mark.virtual_time

modes = pytest.mark.parametrize("mode", ["whole", "streaming"])
sources = pytest.mark.parametrize("source", ["object", "generator", "ready", "unclosable"])


async def collect(client: ChatClient, mode: str = "streaming", messages: Any = "Hi") -> str:
    if mode == "whole":
        return (await client.get_response(messages)).text
    async with client.get_streaming_response(messages) as stream:
        return "".join([each.text async for each in stream])


# What a script says.


async def test_text_and_updates_are_handed_out_one_by_one(anyio_backend):
    piece = update("lo", response_id="r1")
    client = ScriptedChatClient("Hel", piece, finishes())

    async with client.get_streaming_response("Hi") as stream:
        updates = [each async for each in stream]

    assert [each.text for each in updates] == ["Hel", "lo", ""]
    assert updates[1] is piece
    assert updates[2].finish_reason is FinishReason.STOP
    assert client.calls[0].updates == updates


async def test_the_whole_answer_is_the_fold_of_the_updates(anyio_backend):
    usage = Usage(input_tokens=3, output_tokens=2)
    client = ScriptedChatClient("Hel", update("lo", model="m"), finishes("length", usage))

    response = await client.get_response("Hi")

    assert response.text == "Hello"
    assert (response.model, response.finish_reason, response.usage) == ("m", "length", usage)
    assert response.messages == (ChatMessage(Role.ASSISTANT, [TextContent("Hello")]),)


async def test_a_response_is_answered_as_the_very_object_or_as_its_updates(anyio_backend):
    answer = ChatResponse("Hello", response_id="r1", finish_reason=FinishReason.STOP)
    client = ScriptedChatClient(answer)

    whole = await client.get_response("Hi")
    async with client.get_streaming_response("Hi") as stream:
        streamed = await stream.get_final_response()

    assert whole is answer
    assert streamed == answer


@modes
async def test_an_empty_script_is_an_empty_answer(anyio_backend, mode):
    client = ScriptedChatClient()

    text = await collect(client, mode)

    assert text == ""
    assert client.calls[0].state is CallState.COMPLETED


@modes
async def test_the_same_script_is_played_at_each_call(anyio_backend, mode):
    client = ScriptedChatClient("Hel", "lo")

    texts = [await collect(client, mode) for _ in range(3)]

    assert texts == ["Hello"] * 3
    assert [call.number for call in client.calls] == [1, 2, 3]


# Failing.


async def test_failure_after_first_update_is_not_retried(anyio_backend):
    """The example of the house style: output was seen, so no second client is asked."""
    first = ScriptedChatClient(update("Hel"), fails(OverloadedError))
    second = ScriptedChatClient(update("never"))

    with pytest.raises(OverloadedError):
        await collect(OrderedFailoverChatClient([first, second]))

    assert second.calls == []


@modes
async def test_a_class_is_made_anew_and_an_exception_raised_as_it_is(anyio_backend, mode):
    shared = RateLimitError("slow down", retry_after=2.0)
    client = ScriptedChatClient.per_call(
        fails(OverloadedError), fails(OverloadedError), fails(shared), fails(shared)
    )

    errors = []
    for _ in range(4):
        with pytest.raises((OverloadedError, RateLimitError)) as caught:
            await collect(client, mode)
        errors.append(caught.value)

    assert errors[0] is not errors[1]
    assert errors[2] is errors[3] is shared
    assert [call.error for call in client.calls] == errors
    assert {call.state for call in client.calls} == {CallState.FAILED}


@sources
async def test_nothing_comes_after_an_error(anyio_backend, source):
    client = ScriptedChatClient("Hel", fails(OverloadedError), "never", source=source, bare=True)
    iterator: Any = client.get_streaming_response("Hi")

    await anext(iterator)
    with pytest.raises(OverloadedError):
        await anext(iterator)

    assert await anext(iterator, None) is None
    assert client.calls[0].state is CallState.FAILED


@modes
async def test_the_method_itself_can_raise(anyio_backend, mode):
    client = ScriptedChatClient(raises_on_call(OverloadedError), "never")

    with pytest.raises(OverloadedError):
        if mode == "whole":
            await client.get_response("Hi")
        else:
            client.get_streaming_response("Hi")

    assert client.calls[0].state is CallState.FAILED


@modes
async def test_iterating_itself_can_raise(anyio_backend, mode):
    client = ScriptedChatClient(raises_on_iter(OverloadedError), "never")

    with pytest.raises(OverloadedError):
        await collect(client, mode)

    assert client.calls[0].state is CallState.FAILED
    assert client.streams_opened == client.streams_closed == (mode == "streaming")


async def test_closing_the_stream_can_raise_and_take_time(anyio_backend):
    client = ScriptedChatClient("Hel", "lo", waits_on_close(1.5), raises_on_close(OSError))
    stream = client.get_streaming_response("Hi")
    await anext(stream)
    began = anyio.current_time()

    with pytest.raises(OSError, match="scripted failure"):
        await stream.aclose()

    assert anyio.current_time() - began == pytest.approx(1.5)
    assert await collect(client, "whole") == "Hello"


@modes
async def test_an_object_that_is_no_answer_can_be_returned(anyio_backend, mode):
    client = ScriptedChatClient(returns(None))

    answer: object = (
        await client.get_response("Hi") if mode == "whole" else client.get_streaming_response("Hi")
    )

    assert answer is None
    assert client.calls[0].state is CallState.COMPLETED


@modes
async def test_a_cancellation_of_its_own_is_possible_on_asyncio_only(anyio_backend, mode):
    client = ScriptedChatClient(cancels_itself())
    router = OrderedFailoverChatClient([client, ScriptedChatClient("second")])

    if anyio_backend[0] == "asyncio":
        assert await collect(router, mode) == "second"
    else:
        with pytest.raises(ConfigurationError, match="only trio raises cancellations"):
            await collect(router, mode)


# Waiting.


@modes
async def test_waiting_is_on_the_time_of_the_loop(anyio_backend, mode):
    client = ScriptedChatClient("Hel", waits(3600), "lo")
    began = anyio.current_time()

    await collect(client, mode)

    assert anyio.current_time() - began == pytest.approx(3600)


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_a_wait_has_an_end(seconds):
    with pytest.raises(ConfigurationError, match="use waits_forever"):
        waits(seconds)


@modes
async def test_waiting_for_ever_ends_with_the_callers_cancellation(anyio_backend, mode):
    client = ScriptedChatClient(waits_forever())

    with anyio.move_on_after(5) as scope:
        await collect(client, mode)

    assert scope.cancelled_caught
    assert client.calls[0].state is CallState.CANCELLED
    assert client.pending == 0


@modes
async def test_a_gate_holds_the_client_until_it_is_opened(anyio_backend, mode):
    gate = Gate()
    client = ScriptedChatClient("Hel", waits_for(gate), "lo")
    texts: list[str] = []

    async def ask() -> None:
        texts.append(await collect(client, mode))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(ask)
        await gate.reached(2)
        pending = client.pending
        gate.open()

    assert pending == 2
    assert texts == ["Hello", "Hello"]
    assert client.pending == 0


@modes
async def test_an_event_can_stand_for_a_gate(anyio_backend, mode):
    event = anyio.Event()
    client = ScriptedChatClient(waits_for(event), "Hello")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, client, mode)
        await anyio.wait_all_tasks_blocked()
        assert client.pending == 1
        event.set()

    assert client.calls[0].state is CallState.COMPLETED


# Running code.


@modes
async def test_a_function_sees_the_call_and_may_say_something(anyio_backend, mode):
    options = ChatOptions(model="m")
    seen: list[ScriptedCall] = []

    def look(call: ScriptedCall) -> None:
        seen.append(call)

    client = ScriptedChatClient(runs(look), runs(lambda call: call.messages[0].text.upper()))

    response = (
        await client.get_response("hi", options)
        if mode == "whole"
        else await client.get_streaming_response("hi", options).get_final_response()
    )

    assert response.text == "HI"
    assert seen == client.calls
    assert seen[0].messages == (ChatMessage(Role.USER, "hi"),)
    assert seen[0].options is options
    assert seen[0].is_streaming == (mode == "streaming")


@modes
async def test_an_async_function_may_ask_another_client(anyio_backend, mode):
    inner = ScriptedChatClient(waits(1), "from inside")

    async def ask(call):
        return await inner.get_response(call.messages, call.options)

    text = await collect(ScriptedChatClient(runs(ask)), mode)

    assert text == "from inside"


# One script for each call.


@modes
async def test_each_call_has_its_own_script(anyio_backend, mode):
    client = ScriptedChatClient.per_call("first", [update("sec"), "ond"], fails(OverloadedError))

    texts = [await collect(client, mode), await collect(client, mode)]
    with pytest.raises(OverloadedError):
        await collect(client, mode)

    assert texts == ["first", "second"]


@modes
async def test_a_call_without_a_script_is_never_failed_over(anyio_backend, mode):
    client = ScriptedChatClient.per_call("first", name="short")
    router = OrderedFailoverChatClient([client, ScriptedChatClient("second")])
    await collect(router, mode)

    with pytest.raises(ConfigurationError, match="call 2 of client 'short' has no script"):
        await collect(router, mode)


@modes
async def test_the_last_script_can_be_repeated(anyio_backend, mode):
    client = ScriptedChatClient.per_call("first", "second", repeat_last=True)

    texts = [await collect(client, mode) for _ in range(4)]

    assert texts == ["first", "second", "second", "second"]


async def test_repeating_the_last_of_no_scripts_is_refused(anyio_backend):
    client = ScriptedChatClient.per_call(repeat_last=True)

    with pytest.raises(ConfigurationError, match="0 were given"):
        await client.get_response("Hi")


# Streams and their closing.


@sources
async def test_every_source_plays_the_same(anyio_backend, source):
    client = ScriptedChatClient("Hel", waits(1), ChatResponse("lo"), finishes(), source=source)

    async with client.get_streaming_response("Hi") as stream:
        response = await stream.get_final_response()

    assert response.text == "Hello"
    assert response.finish_reason == "stop"
    assert client.calls[0].state is CallState.COMPLETED
    assert [each.text for each in client.calls[0].updates] == ["Hel", "lo", "", ""]
    assert client.streams_opened == 1
    assert client.streams_closed == (source != "unclosable")


@pytest.mark.parametrize("source", ["object", "generator", "ready"])
async def test_an_early_close_is_counted_once(anyio_backend, source):
    client = ScriptedChatClient("Hel", "lo", source=source)

    async with client.get_streaming_response("Hi") as stream:
        await anext(stream)
        assert client.pending == 1

    assert client.calls[0].state is CallState.CLOSED
    assert client.calls[0].close_count == client.streams_opened == client.streams_closed == 1
    assert client.pending == 0


async def test_a_stream_that_is_never_read_has_not_begun(anyio_backend):
    client = ScriptedChatClient("Hello")

    await client.get_streaming_response("Hi").aclose()

    assert client.calls[0].state is CallState.NEW
    assert not client.calls[0].has_begun
    assert client.calls[0].close_count == 1
    assert (client.streams_opened, client.streams_closed) == (0, 0)


@sources
async def test_a_bare_source_is_what_it_says(anyio_backend, source):
    client = ScriptedChatClient("Hello", source=source, bare=True)

    iterator: object = client.get_streaming_response("Hi")

    assert isinstance(iterator, AsyncIterator)
    assert isinstance(iterator, AsyncGeneratorType) == (source == "generator")
    assert hasattr(iterator, "take_ready") == (source == "ready")
    assert hasattr(iterator, "aclose") == (source != "unclosable")


@sources
async def test_routers_take_a_bare_source(anyio_backend, source):
    client = ScriptedChatClient("Hel", "lo", source=source, bare=True)

    assert await collect(OrderedFailoverChatClient([client])) == "Hello"


async def test_what_is_ready_never_passes_a_step_that_has_to_happen(anyio_backend):
    client = ScriptedChatClient(
        "a", ChatResponse("b"), waits(1), "c", fails(OverloadedError), source="ready", bare=True
    )
    source: Any = client.get_streaming_response("Hi")

    ready = [source.take_ready().text for _ in range(3)]

    assert ready == ["a", "b", ""]
    assert source.take_ready() is None
    assert (await anext(source)).text == "c"
    assert source.take_ready() is None
    with pytest.raises(OverloadedError):
        await anext(source)
    assert source.take_ready() is None


# The client itself.


@modes
async def test_no_messages_is_a_type_error_and_no_call(anyio_backend, mode):
    client = ScriptedChatClient("Hello")

    with pytest.raises(TypeError, match="messages are NoneType"):
        await collect(client, mode, None)

    assert client.calls == []


@modes
async def test_a_one_shot_generator_is_read_once(anyio_backend, mode):
    client = ScriptedChatClient("Hello")

    await collect(client, mode, (text for text in ["a", "b"]))

    assert [message.text for message in client.calls[0].messages] == ["a", "b"]


@modes
async def test_a_closed_client_refuses(anyio_backend, mode):
    client = ScriptedChatClient("Hello", name="shut")
    async with client:
        await collect(client, mode)
    await client.aclose()

    with pytest.raises(ClientClosedError, match="'shut' was closed"):
        await collect(client, mode)

    assert client.close_count == 2
    assert len(client.calls) == 1


async def test_closing_the_client_can_raise(anyio_backend):
    client = ScriptedChatClient(close_error=APIConnectionError("gone"))

    with pytest.raises(APIConnectionError, match="gone"):
        await client.aclose()

    assert client.close_count == 1


def test_services_are_the_client_itself_and_its_metadata():
    metadata = ClientMetadata("acme", "m")
    client = ScriptedChatClient(metadata=metadata)

    assert client.get_service(ClientMetadata) is metadata
    assert client.get_service(ClientMetadata, "key") is None
    assert client.get_service(ScriptedChatClient) is client
    assert client.get_service(ChatClient) is client
    assert client.get_service(str) is None
    assert ScriptedChatClient().get_service(ClientMetadata) is None
    with pytest.raises(TypeError, match="service_type is None"):
        client.get_service(None)


async def test_a_client_shows_its_name_and_calls(anyio_backend):
    client = ScriptedChatClient(name="first")
    await client.get_response("Hi")

    assert repr(client) == "<ScriptedChatClient 'first', 1 calls>"


def test_update_is_the_class_of_updates():
    assert update("a") == ChatResponseUpdate("a")


def test_importing_the_kit_loads_neither_trio_nor_an_sdk():
    code = (
        "import sys, chatrouting.testing as kit; kit.virtual_time_backends(); "
        "print(sorted({'trio', 'openai', 'anthropic', 'numpy', 'pytest'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


async def test_an_exception_raised_again_does_not_keep_the_frames_of_earlier_calls():
    error = OverloadedError("busy")
    client = ScriptedChatClient(fails(error))
    depths = []
    for _ in range(3):
        with pytest.raises(OverloadedError):
            await client.get_response("hi")
        depths.append(len(list(traceback.walk_tb(error.__traceback__))))
    assert len(set(depths)) == 1
