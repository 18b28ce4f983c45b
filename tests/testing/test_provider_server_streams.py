"""The fault table: what each misbehaviour of the server makes the real SDK streams do.

It proves the server: every row was first seen with the SDKs on hand-written servers. It also says
why the adapters decode streams themselves.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from chatrouting.testing.provider_server import (
    MALFORMED_EVENT,
    Gate,
    ProviderServer,
    Reply,
)

HELLO: Any = [{"role": "user", "content": "Hello"}]


def http() -> httpx2.AsyncClient:
    """Loading the trusted certificates takes longer than a test."""
    return httpx2.AsyncClient(verify=False)


def openai_client(server: ProviderServer, patience: float) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=server.openai_base_url,
        api_key="key",
        max_retries=0,
        timeout=patience,
        http_client=http(),
    )


async def chat(server: ProviderServer, patience: float) -> AsyncGenerator[Any, None]:
    async with (
        openai_client(server, patience) as client,
        await client.chat.completions.create(
            model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
        ) as stream,
    ):
        async for chunk in stream:
            yield chunk


async def responses(server: ProviderServer, patience: float) -> AsyncGenerator[Any, None]:
    async with (
        openai_client(server, patience) as client,
        await client.responses.create(model="m", input=HELLO, stream=True) as stream,
    ):
        async for event in stream:
            yield event


async def messages(server: ProviderServer, patience: float) -> AsyncGenerator[Any, None]:
    async with (
        anthropic.AsyncAnthropic(
            base_url=server.anthropic_base_url,
            api_key="key",
            max_retries=0,
            timeout=patience,
            http_client=http(),
        ) as client,
        await client.messages.create(
            model="m", messages=HELLO, max_tokens=9, stream=True
        ) as stream,
    ):
        async for event in stream:
            yield event


APIS: Mapping[str, Callable[[ProviderServer, float], AsyncGenerator[Any, None]]] = {
    "chat": chat,
    "responses": responses,
    "anthropic": messages,
}


@dataclass
class Outcome:
    """What the consumer of an SDK stream saw."""

    events: list[Any]
    error: Exception | None

    @property
    def text(self) -> str:
        return "".join(map(_text, self.events))


def _text(event: Any) -> str:
    if hasattr(event, "choices"):
        return "".join(choice.delta.content or "" for choice in event.choices or ())
    if event.type == "response.output_text.delta":
        return str(event.delta)
    return str(getattr(getattr(event, "delta", None), "text", ""))


async def consume(server: ProviderServer, api: str, patience: float = 5) -> Outcome:
    outcome = Outcome([], None)
    try:
        async for event in APIS[api](server, patience):
            outcome.events.append(event)
    except Exception as error:  # noqa: BLE001 - the outcome
        outcome.error = error
    return outcome


async def read(reply: Reply, api: str, patience: float = 5) -> Outcome:
    async with ProviderServer(reply) as server:
        return await consume(server, api, patience)


Check = Callable[[Outcome], None]


def silent(outcome: Outcome) -> None:
    """The stream ends as if all were well."""
    assert outcome.error is None
    assert outcome.events


def nothing(outcome: Outcome) -> None:
    assert outcome == Outcome([], None)


def raises(kind: type[Exception], cause: type[Exception] | None = None, **fields: Any) -> Check:
    def check(outcome: Outcome) -> None:
        error = outcome.error
        assert type(error) is kind
        if cause is not None:
            assert type(error.__cause__) is cause
        assert {name: getattr(error, name) for name in fields} == fields

    return check


def ends_with(kind: str, path: str, value: object) -> Check:
    """The fault is an ordinary event for the SDK."""

    def check(outcome: Outcome) -> None:
        assert outcome.error is None
        found = outcome.events[-1]
        assert found.type == kind
        for name in path.split("."):
            found = getattr(found, name)
        assert found == value

    return check


def text(value: str) -> Check:
    def check(outcome: Outcome) -> None:
        assert (outcome.error, outcome.text) == (None, value)

    return check


DROPPED = raises(openai.APIConnectionError, httpx2.RemoteProtocolError)
STALLED = raises(openai.APITimeoutError, httpx2.ReadTimeout)
BROKEN = raises(json.JSONDecodeError)
OVERLOADED = raises(openai.APIError, type="server_error", code="server_overloaded")


def same(check: Check) -> tuple[Check, Check, Check]:
    return (check, check, check)


def overload(shape: Any) -> Reply:
    return Reply.stream_error("one two", at="after_content", shape=shape)


STALL = Gate()  # Nobody opens it.

# What the server does; what the SDK makes of it: chat, Responses, Anthropic.
FAULTS: Sequence[tuple[str, Reply, tuple[Check | None, Check | None, Check | None]]] = [
    ("terminal-missing", Reply("one", omit=["terminal"]), same(silent)),
    ("end-amid-the-answer", Reply("one two", end_at="after_content"), same(silent)),
    ("end-before-any-event", Reply(end_at=0), same(nothing)),
    (
        "dropped",
        Reply("one two", drop_at="after_content"),
        (DROPPED, DROPPED, raises(httpx2.RemoteProtocolError)),
    ),
    (
        "dropped-before-the-last-chunk",
        Reply("one two", drop_at="end"),
        (silent, DROPPED, raises(httpx2.RemoteProtocolError)),
    ),
    (
        "reset",
        Reply("one two", drop_at="content", drop="reset"),
        (
            raises(openai.APIConnectionError, httpx2.ReadError),
            raises(openai.APIConnectionError, httpx2.ReadError),
            raises(httpx2.ReadError),
        ),
    ),
    (
        "dropped-before-headers",
        Reply(drop_at="headers"),
        (
            raises(openai.APIConnectionError),
            raises(openai.APIConnectionError),
            raises(anthropic.APIConnectionError),
        ),
    ),
    (
        "stalled",
        Reply("one two", gates={"content": STALL}),
        (STALLED, STALLED, raises(httpx2.ReadTimeout)),
    ),
    (
        "body-kept-open",
        Reply("one", keep_open=True),
        (text("one"), STALLED, raises(httpx2.ReadTimeout)),
    ),
    (
        "error-event",
        overload("event"),
        (
            OVERLOADED,
            OVERLOADED,
            raises(anthropic.APIStatusError, status_code=200, type="overloaded_error"),
        ),
    ),
    ("error-data", overload("data"), (OVERLOADED, OVERLOADED, silent)),
    ("error-flat", overload("flat"), (None, ends_with("error", "code", "server_overloaded"), None)),
    (
        "response-failed",
        overload("failed"),
        (None, ends_with("response.failed", "response.error.code", "server_overloaded"), None),
    ),
    (
        "error-without-object",
        overload("bare"),
        (silent, silent, raises(anthropic.APIStatusError, status_code=200, type=None)),
    ),
    ("error-chunk", overload("chunk"), (OVERLOADED, None, None)),
    ("error-choice", overload("finish"), (OVERLOADED, None, None)),
    ("malformed", Reply("one", insert={"content": MALFORMED_EVENT}), (BROKEN, BROKEN, silent)),
    (
        "malformed-with-a-name",
        Reply(insert={"content": f"event: content_block_delta\n{MALFORMED_EVENT}"}),
        same(BROKEN),
    ),
    ("html", Reply(body="<html>Gateway</html>"), same(nothing)),
    ("json-error-with-200", Reply(body={"error": {"message": "no"}}), same(nothing)),
    ("empty-body", Reply(body=b""), same(nothing)),
    ("no-event-names", Reply("one", event_names=False), (text("one"), text("one"), nothing)),
    ("crlf", Reply("one two", line_end="\r\n"), same(text("one two"))),
    ("cr", Reply("one two", line_end="\r"), same(text("one two"))),
    ("split-in-bytes", Reply("Grüße, 世界 🌍", write_size=1), same(text("Grüße, 世界 🌍"))),
    ("pings", Reply("one two", pings=True), same(text("one two"))),
    ("raw-events", Reply(sse=['data: {"choices": []}\n\n']), (silent, silent, nothing)),
]


@pytest.mark.parametrize(
    ("api", "reply", "check"),
    [
        pytest.param(api, reply, check, id=f"{name}-{api}")
        for name, reply, checks in FAULTS
        for api, check in zip(APIS, checks, strict=True)
        if check is not None
    ],
)
async def test_sdk_does_with_a_fault_what_the_table_says(anyio_backend, api, reply, check):
    patience = 0.2 if reply.keep_open or reply.gates else 5

    outcome = await read(reply, api, patience)

    check(outcome)


async def test_pings_go_on_for_ever_while_the_stream_waits(anyio_backend):
    """They reset the read timeout, so that no SDK timeout ever fires."""
    gate = Gate()
    reply = Reply("one", gates={"content": gate}, ping_period=0.02)
    async with (
        ProviderServer(reply) as server,
        http() as client,
        client.stream(
            "POST",
            f"{server.openai_base_url}/chat/completions",
            json={"model": "m", "messages": HELLO, "stream": True},
        ) as response,
    ):
        lines = response.aiter_lines()
        pings = 0
        while pings < 3:
            pings += await anext(lines) == ": ping"
        gate.open()
        rest = [line async for line in lines]

    assert rest[-2] == "data: [DONE]"


async def test_error_stands_where_it_was_put(anyio_backend):
    """`message_start`, then overloaded."""
    outcome = await read(Reply.stream_error(at=1), "anthropic")

    assert [event.type for event in outcome.events] == ["message_start"]
    raises(anthropic.APIStatusError, type="overloaded_error")(outcome)


async def test_usage_can_be_missing(anyio_backend):
    outcomes = [await read(Reply("one", usage=None), api) for api in APIS]

    assert not any(chunk.usage for chunk in outcomes[0].events)
    assert outcomes[1].events[-1].response.usage is None
    assert outcomes[2].events[0].message.usage is None


async def test_message_can_lack_its_stop_reason(anyio_backend):
    outcome = await read(Reply("one", omit=["finish"]), "anthropic")

    assert [event.type for event in outcome.events][-2:] == ["content_block_stop", "message_stop"]


async def test_hang_up_is_recorded_where_the_client_left(anyio_backend):
    gate = Gate()
    async with ProviderServer(Reply(["one", "two"], gates={"content": gate})) as server:
        stream = APIS["chat"](server, 5)
        await anext(stream)
        await stream.aclose()
        (request,) = server.requests
        await request.hung_up.wait()
        await request.done.wait()
        await server.wait_disconnected()

    assert (request.client_hung_up, request.replied, request.events_sent) == (True, False, 1)


async def test_client_that_reads_to_the_end_did_not_hang_up(anyio_backend):
    async with ProviderServer() as server:
        for api in APIS:
            await consume(server, api)
        for request in server.requests:
            await request.done.wait()

    assert [request.replied for request in server.requests] == [True] * 3
    assert not any(request.client_hung_up for request in server.requests)
