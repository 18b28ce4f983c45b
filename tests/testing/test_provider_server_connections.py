"""Connections of the provider server: reuse, gates, drops, hang-ups; and the server's own life."""

from typing import Any

import anthropic
import anyio
import httpx2
import openai
import pytest

from chatrouting.testing._http import BadRequestError
from chatrouting.testing.provider_server import Gate, ProviderServer, RecordedRequest, Reply

HELLO: Any = [{"role": "user", "content": "Hello"}]


def http() -> httpx2.AsyncClient:
    """Loading the trusted certificates takes longer than a test."""
    return httpx2.AsyncClient(verify=False)


def openai_client(server: ProviderServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=server.openai_base_url, api_key="key", max_retries=0, http_client=http()
    )


def anthropic_client(server: ProviderServer) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url=server.anthropic_base_url, api_key="key", max_retries=0, http_client=http()
    )


async def ask_chat(server: ProviderServer) -> Any:
    async with openai_client(server) as client:
        return await client.chat.completions.create(model="gpt-x", messages=HELLO)


async def ask_responses(server: ProviderServer) -> Any:
    async with openai_client(server) as client:
        return await client.responses.create(model="gpt-x", input="Hello")


async def ask_messages(server: ProviderServer) -> Any:
    async with anthropic_client(server) as client:
        return await client.messages.create(model="claude-x", messages=HELLO, max_tokens=9)


ASKS = [
    pytest.param(ask_chat, id="chat"),
    pytest.param(ask_responses, id="responses"),
    pytest.param(ask_messages, id="anthropic"),
]


async def test_connection_is_reused(anyio_backend):
    async with ProviderServer() as server:
        async with openai_client(server) as client:
            for stream in (False, True, False):
                answer: Any = await client.chat.completions.create(
                    model="m", messages=HELLO, stream=stream
                )
                if stream:
                    assert [chunk async for chunk in answer]
            assert server.open_connections == 1
        await server.wait_disconnected()

    assert [request.connection for request in server.requests] == [1, 1, 1]
    assert server.connection_count == 1


async def test_chunked_request_bodies_are_read(anyio_backend):
    async def body():
        yield b'{"model": "m", '
        yield b'"messages": [{"role": "user", "content": "Hello"}]}'

    async with ProviderServer() as server, http() as client:
        for _ in range(2):
            answer = await client.post(f"{server.url}/chat/completions", content=body())

    assert answer.status_code == 200
    assert server.requests[0].body == {"model": "m", "messages": HELLO}
    assert server.connection_count == 1


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("at", ["headers", "content"])
async def test_gate_holds_a_whole_answer(anyio_backend, ask, at):
    gate = Gate()
    async with ProviderServer(Reply("Hi", gates={at: gate})) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, server)
            await gate.reached()
            (request,) = server.requests
            assert not request.replied
            gate.open()

        assert request.replied


@pytest.mark.parametrize("ask", ASKS)
async def test_gate_counts_arrivals(anyio_backend, ask):
    gate = Gate()
    async with (
        ProviderServer(default=Reply(gates={"headers": gate})) as server,
        anyio.create_task_group() as group,
    ):
        for _ in range(3):
            group.start_soon(ask, server)
        await gate.reached(3)
        await server.wait_for_requests(3)
        gate.open()


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("at", ["headers", "content"])
async def test_dropped_whole_answer_is_a_connection_error(anyio_backend, ask, at):
    async with ProviderServer(Reply(drop_at=at)) as server:
        with pytest.raises((openai.APIConnectionError, anthropic.APIConnectionError)):
            await ask(server)

    (request,) = server.requests
    assert (request.replied, request.client_hung_up) == (False, False)


@pytest.mark.parametrize("ask", ASKS)
async def test_cancelled_call_hangs_up(anyio_backend, ask):
    gate = Gate()
    async with ProviderServer(Reply(gates={"headers": gate})) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, server)
            await gate.reached()
            group.cancel_scope.cancel()
        (request,) = server.requests
        await request.hung_up.wait()
        await server.wait_disconnected()

    assert not request.replied


async def test_delays_pass(anyio_backend):
    delays = Reply(
        delay_before_headers=0.01, delay_before_first_chunk=0.01, delay_between_chunks=0.01
    )
    async with ProviderServer(default=delays) as server, openai_client(server) as client:
        started = anyio.current_time()
        await client.chat.completions.create(model="m", messages=HELLO)
        assert anyio.current_time() - started >= 0.02
        async with await client.chat.completions.create(
            model="m", messages=HELLO, stream=True
        ) as stream:
            assert [chunk async for chunk in stream]


# The server's own life


async def fail_to_ask(server: ProviderServer) -> None:
    with pytest.raises(openai.APIConnectionError):
        await ask_chat(server)


async def test_exit_closes_what_is_still_open(anyio_backend):
    gate = Gate()
    async with (
        anyio.create_task_group() as group,
        ProviderServer(Reply(gates={"headers": gate})) as server,
    ):
        group.start_soon(fail_to_ask, server)
        await gate.reached()

    assert server.open_connections == 0
    with pytest.raises(OSError):  # noqa: PT011 - one of several, wrapped by the backend
        await anyio.connect_tcp("127.0.0.1", int(server.url.rpartition(":")[2]))


def broken(request: RecordedRequest) -> Reply:
    raise LookupError(request.number)


async def ask_broken(requests: int, then: Exception | None = None) -> None:
    async with ProviderServer(broken) as server:
        for _ in range(requests):
            with pytest.raises(openai.InternalServerError):
                await ask_chat(server)
        if then is not None:
            raise then


async def test_error_of_the_script_reaches_the_test(anyio_backend):
    with pytest.raises(LookupError):
        await ask_broken(1)


async def test_several_errors_are_a_group(anyio_backend):
    with pytest.raises(ExceptionGroup) as caught:
        await ask_broken(2)

    assert [type(error) for error in caught.value.exceptions] == [LookupError] * 2


async def test_own_error_of_the_body_wins(anyio_backend):
    with pytest.raises(ZeroDivisionError) as caught:
        await ask_broken(1, ZeroDivisionError())

    assert caught.value.__notes__ == ["The provider server failed too: LookupError(1)"]


async def send(data: bytes) -> None:
    async with ProviderServer() as server:
        port = int(server.url.rpartition(":")[2])
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(data)
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nnocolon\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
    ],
)
async def test_bytes_that_are_no_request_are_an_error(anyio_backend, data):
    with pytest.raises(BadRequestError, match=r"Not a|cannot be read"):
        await send(data)


async def test_connection_is_closed_if_the_client_asks_for_it(anyio_backend):
    await_close = b"POST /nowhere HTTP/1.1\r\nconnection: close\r\n\r\n"
    async with ProviderServer() as server:
        port = int(server.url.rpartition(":")[2])
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(await_close)
            await server.wait_for_requests(1)
            await server.wait_disconnected()


async def test_cancelled_body_leaves_at_once(anyio_backend):
    with anyio.move_on_after(0.05) as scope:
        async with ProviderServer(Reply(gates={"headers": Gate()})) as server:
            await ask_chat(server)

    assert scope.cancelled_caught
    assert server.open_connections == 0
