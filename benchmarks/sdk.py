"""What a call costs over the real SDKs, in process: adapter and failover against the bare SDK.

The SDKs' own HTTP clients run over a transport that answers from memory, so everything is measured
but the socket. Failover is compared with a bare `try` over two SDK clients. Other libraries stand
in the same table, measured in the same turns.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import peers
from _canned import LONG, MESSAGES, MODEL, TEXT, UPDATES, Provider
from _measure import Measure, Samples, clock, per_call, rotate
from _report import Report, arguments, number
from anthropic import APIStatusError as AnthropicStatusError
from anthropic import AsyncAnthropic
from anyio.lowlevel import checkpoint
from openai import APIStatusError, AsyncOpenAI
from peers import Call, OverSDK

from chatrouting import OrderedFailoverChatClient
from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.adapters.openai_responses import OpenAIResponsesChatClient

OURS = "adapter and failover"
BARE = "bare SDK"
COLUMNS = {
    "call": "one message",
    "fails": "first answers 500",
    "stream": f"stream of {UPDATES}",
    "long": f"{len(LONG)} messages: loop blocked",
}


def blocks_loop(call: Call) -> Measure:
    """Measure the longest time for which one call keeps every other task waiting."""

    async def measure() -> float:
        longest = 0
        is_done = False

        async def watch() -> None:
            nonlocal longest
            before = clock()
            while not is_done:
                await checkpoint()
                now = clock()
                longest = max(longest, now - before)
                before = now

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await checkpoint()
            await call()
            is_done = True
        return longest / 1000

    return measure


def openai(*, is_broken: bool = False, burst: int = 1) -> AsyncOpenAI:
    """Make an OpenAI client whose provider is in memory."""
    provider = Provider(is_broken=is_broken, burst=burst)
    return AsyncOpenAI(api_key="k", max_retries=0, http_client=provider.http_client())


def anthropic(*, is_broken: bool = False, burst: int = 1) -> AsyncAnthropic:
    """Make an Anthropic client whose provider is in memory."""
    provider = Provider(is_broken=is_broken, burst=burst)
    return AsyncAnthropic(api_key="k", max_retries=0, http_client=provider.http_client())


Ask = Callable[[Any, Any], Awaitable[str]]
Stream = Callable[[Any], Awaitable[int]]


def bare(label: str, make: Callable[..., Any], ask: Ask, stream: Stream) -> OverSDK:
    """Use the SDK alone; two clients and a `try` where the first one fails."""
    good, broken = make(), make(is_broken=True)

    async def falls_back() -> str:
        try:
            return await ask(broken, MESSAGES)
        except (APIStatusError, AnthropicStatusError):
            return await ask(good, MESSAGES)

    return OverSDK(
        label=f"{label}, {BARE}",
        call=lambda: ask(good, MESSAGES),
        first_fails=falls_back,
        stream=lambda: stream(good),
        long=lambda: ask(good, LONG),
        close=[good.close, broken.close],
    )


def ours(label: str, make: Callable[..., Any], adapter: Callable[..., Any], depth: int) -> OverSDK:
    """Use `depth` failovers over adapters; with 0 the adapter alone."""
    sdks = [make(), make(is_broken=True), make(burst=16)]
    good, broken, bursting = (adapter(sdk, MODEL) for sdk in sdks)

    def stacked(client: Any) -> Any:
        for _ in range(depth):
            client = OrderedFailoverChatClient([client, good])
        return client

    async def ask(client: Any, messages: Any) -> str:
        text: str = (await client.get_response(messages)).text
        return text

    async def read(client: Any) -> int:
        async with client.get_streaming_response(MESSAGES) as stream:
            return len([update async for update in stream])

    answers = stacked(good)
    falls_back = stacked(OrderedFailoverChatClient([broken, good]) if not depth else broken)
    return OverSDK(
        label=label,
        call=lambda: ask(answers, MESSAGES),
        first_fails=lambda: ask(falls_back, MESSAGES),
        stream=lambda: read(answers),
        long=lambda: ask(answers, LONG),
        close=[sdk.close for sdk in sdks],
        burst=lambda: read(stacked(bursting)),
    )


async def ask_chat(sdk: AsyncOpenAI, messages: Any) -> str:
    """Ask by Chat Completions."""
    answer = await sdk.chat.completions.create(model=MODEL, messages=messages)
    return answer.choices[0].message.content or ""


async def stream_chat(sdk: AsyncOpenAI) -> int:
    """Stream by Chat Completions."""
    messages: Any = MESSAGES
    chunks = await sdk.chat.completions.create(model=MODEL, messages=messages, stream=True)
    return len([chunk async for chunk in chunks])


async def ask_responses(sdk: AsyncOpenAI, messages: Any) -> str:
    """Ask by the Responses API."""
    return (await sdk.responses.create(model=MODEL, input=messages, store=False)).output_text


async def stream_responses(sdk: AsyncOpenAI) -> int:
    """Stream by the Responses API."""
    messages: Any = MESSAGES
    events = await sdk.responses.create(model=MODEL, input=messages, store=False, stream=True)
    return len([event async for event in events])


async def ask_anthropic(sdk: AsyncAnthropic, messages: Any) -> str:
    """Ask by the Messages API."""
    answer = await sdk.messages.create(model=MODEL, max_tokens=4096, messages=messages)
    return "".join(block.text for block in answer.content if block.type == "text")


async def stream_anthropic(sdk: AsyncAnthropic) -> int:
    """Stream by the Messages API."""
    messages: Any = MESSAGES
    events = await sdk.messages.create(model=MODEL, max_tokens=4096, messages=messages, stream=True)
    return len([event async for event in events])


APIS: dict[str, tuple[Callable[..., Any], Ask, Stream, Callable[..., Any]]] = {
    "OpenAI": (openai, ask_chat, stream_chat, OpenAIChatClient),
    "Responses": (openai, ask_responses, stream_responses, OpenAIResponsesChatClient),
    "Anthropic": (anthropic, ask_anthropic, stream_anthropic, AnthropicChatClient),
}
#: At most this share of the bare SDK: a call, a first failure, a stream, a long request.
TARGETS = {
    "OpenAI": (0.6, 0.7, 0.15, 0.1),
    "Responses": (0.6, 0.7, 0.15, 0.1),
    "Anthropic": (0.7, None, 0.5, None),
}


def libraries() -> list[OverSDK]:
    """Return all that stands in the table, in its order."""
    found: list[OverSDK] = []
    for api, (make, ask, stream, adapter) in APIS.items():
        found.append(bare(api, make, ask, stream))
        found.append(ours(f"{api}, {OURS}", make, adapter, 1))
    make, _, _, adapter = APIS["OpenAI"]
    found.append(ours("OpenAI, adapter alone", make, adapter, 0))
    found.append(ours("OpenAI, adapter and 8 failovers", make, adapter, 8))
    return found + peers.over_sdk()


async def checked(library: OverSDK) -> None:
    """Look at the answers once, so that what is measured is what is meant."""
    for call in (library.call, library.first_fails, library.long):
        said = await call()
        if said != TEXT:
            raise RuntimeError(f"{library.label}: answered {said!r}")
    count = await library.stream()
    if not UPDATES <= count <= UPDATES + 20:
        raise RuntimeError(f"{library.label}: streamed {count} pieces")


def cases(library: OverSDK, repeat: int) -> dict[str, Measure]:
    """Return what is measured of one library."""
    found = {
        "call": per_call(library.call, repeat),
        "fails": per_call(library.first_fails, repeat),
        "stream": per_call(library.stream, 1),
        "long": blocks_loop(library.long),
    }
    if library.burst is not None:
        found["burst"] = per_call(library.burst, 1)
    return {f"{library.label}: {kind}": measure for kind, measure in found.items()}


async def measure(turns: int, repeat: int) -> tuple[list[str], Samples]:
    """Measure everything; returns the labels of the table's lines too."""
    async with AsyncExitStack() as closers:
        measured: dict[str, Measure] = {}
        labels: list[str] = []
        for library in libraries():
            for close in library.close:
                closers.push_async_callback(close)
            await checked(library)
            labels.append(library.label)
            measured |= cases(library, repeat)
        return labels, await rotate(measured, turns)


def tell(report: Report, labels: list[str], found: Samples) -> None:
    """Write the tables and the claims."""
    rows: list[list[str]] = []
    for label in labels:
        api = label.partition(",")[0]
        base = f"{api if api in APIS else 'OpenAI'}, {BARE}"
        cells: list[str] = []
        for kind in COLUMNS:
            case = f"{label}: {kind}"
            ratio = found.ratio(case, f"{base}: {kind}")
            cells.append(f"{number(found.median(case))} ({number(ratio)} x)")
        rows.append([label, *cells])
    header = ("µs of CPU (x the bare SDK)", *COLUMNS.values())
    report.table("Over the real SDKs, in process", header, rows)
    for api, targets in TARGETS.items():
        for kind, target in zip(COLUMNS, targets, strict=True):
            if target is not None:
                share = found.ratio(f"{api}, {OURS}: {kind}", f"{api}, {BARE}: {kind}")
                text = f"{api}, {OURS}: {COLUMNS[kind]}, share of the bare SDK"
                report.claim(text, share, target, "x")
    bursts = [(label, f"{label}: burst") for label in labels if f"{label}: burst" in found]
    rows = [
        [label, number(found.median(f"{label}: stream")), number(found.median(case))]
        for label, case in bursts
    ]
    header = (f"stream of {UPDATES}, µs of CPU", "each piece one event", "each piece 16 events")
    report.table("What the pieces of the body are", header, rows)


def main() -> None:
    """Measure and tell."""
    asked = arguments(__doc__).parse_args()
    turns, repeat = (3, 1) if asked.quick else (41, 6)
    # Nobody listens to logs here, for none of the libraries.
    logging.disable(logging.CRITICAL)
    report = Report("sdk", "Calls over the real SDKs, in process", asked.quick, turns)
    labels, found = anyio.run(measure, turns, repeat)
    report.keep("sdk", found)
    tell(report, labels, found)
    report.notes += peers.note(peers.ALL)
    report.tell(save=asked.save)


if __name__ == "__main__":
    main()
