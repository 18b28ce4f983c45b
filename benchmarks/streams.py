"""What one streamed update costs in each layer around it, in memory.

Timed are the reads after the first update and before the end, so that opening, committing and
ending do not count: what is left is what each update costs. The slope from one layer to eight is
the cost of a layer. Layers that only decide are failovers; layers that observe are taps.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Self, final

import anyio
from _measure import Measure, Samples, clock, rotate
from _report import Report, arguments, number
from typing_extensions import override

from chatrouting import (
    ChatOptions,
    ChatResponse,
    ChatResponseUpdate,
    DelegatingChatClient,
    OrderedFailoverChatClient,
    ResponseStream,
)
from chatrouting.client import own_service
from chatrouting.messages import MessagesInput

DEPTHS = (0, 1, 2, 4, 8)
UPDATES = 400
WORD = ChatResponseUpdate("word ")


class Source:
    """Updates that are there already, each behind an `await`."""

    def __init__(self) -> None:
        self.left = UPDATES

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatResponseUpdate:
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        return WORD

    async def aclose(self) -> None:
        """Hold nothing."""


@final
class ReadySource(Source):
    """The same, which hands out without an `await` what it has decoded, as the adapters do."""

    def take_ready(self) -> ChatResponseUpdate | None:
        """Return the next update."""
        if not self.left:
            return None
        self.left -= 1
        return WORD


@final
class Streaming:
    """The least that is a chat client and streams."""

    def __init__(self, source: Callable[[], Source]) -> None:
        self._source = source

    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Refuse: only streams are measured here."""
        raise NotImplementedError

    def get_streaming_response(
        self,
        messages: MessagesInput,  # noqa: ARG002
        options: ChatOptions | None = None,  # noqa: ARG002
    ) -> ResponseStream:
        """Stream the same word many times."""
        return ResponseStream(self._source())

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        """Answer for itself."""
        return own_service(self, service_type, service_key)

    async def aclose(self) -> None:
        """Hold nothing."""


class Observing(DelegatingChatClient):
    """Counts the updates that pass."""

    @override
    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer by the inner client, watched."""
        count = 0

        def see(update: ChatResponseUpdate) -> None:  # noqa: ARG001
            nonlocal count
            count += 1

        return super().get_streaming_response(messages, options).tap(see)


def deciding(client: Any) -> Any:
    """Wrap a client in a failover, which has a second one that is not needed."""
    return OrderedFailoverChatClient([client, Streaming(Source)])


def observing_and_deciding(client: Any) -> Any:
    """Wrap a client in a failover that is watched: two layers."""
    return Observing(deciding(client))


LAYERS = {"decides": deciding, "observes": Observing, "both": observing_and_deciding}
SOURCES = {"plain": Source, "ready": ReadySource}


async def reads(stream: AsyncIterator[ChatResponseUpdate], rounds: int) -> float:
    """Return the CPU time of reads in the middle of a stream, in microseconds for each."""
    await anext(stream)
    started = clock()
    for _ in range(rounds):
        await anext(stream)
    spent = clock() - started
    async for _ in stream:
        continue
    return spent / rounds / 1000


def through(wrap: Callable[[Any], Any], depth: int, source: Callable[[], Source]) -> Measure:
    """Measure a stream through `depth` wrappers."""
    client: Any = Streaming(source)
    for _ in range(depth):
        client = wrap(client)

    async def measure() -> float:
        return await reads(client.get_streaming_response("hi"), UPDATES - 2)

    return measure


def through_generators(depth: int) -> Measure:
    """Measure what is not done here: one asynchronous generator for each layer."""

    async def layer(inner: AsyncIterator[ChatResponseUpdate]) -> AsyncIterator[ChatResponseUpdate]:
        async for update in inner:
            yield update

    async def measure() -> float:
        stream: AsyncIterator[ChatResponseUpdate] = Source()
        for _ in range(depth):
            stream = layer(stream)
        return await reads(stream, UPDATES - 2)

    return measure


def cases() -> dict[str, Measure]:
    """Return all kinds of layers and sources, at all depths."""
    found: dict[str, Measure] = {}
    for depth in DEPTHS:
        for source_name, source in SOURCES.items():
            for layer_name, wrap in LAYERS.items():
                found[f"{layer_name}, {source_name}, {depth}"] = through(wrap, depth, source)
        found[f"generators, plain, {depth}"] = through_generators(depth)
    return found


def slope(found: Samples, kind: str) -> float:
    """Return what a layer adds to each update, in nanoseconds, from depth 1 to depth 8."""
    return found.added(f"{kind}, 8", f"{kind}, 1") / 7 * 1000


def tell(report: Report, backend: str, found: Samples) -> None:
    """Write the table and the claims of one event loop."""
    names = {
        "decides": "layers that only decide",
        "observes": "layers that observe",
        "both": "pairs of both",
        "generators": "a generator for each layer, for comparison",
    }
    rows: list[list[str]] = []
    for layer_name, label in names.items():
        for source_name in SOURCES:
            kind = f"{layer_name}, {source_name}"
            if f"{kind}, 0" in found:
                by_depth = [number(found.median(f"{kind}, {depth}") * 1000) for depth in DEPTHS]
                rows.append([label, source_name, *by_depth, number(slope(found, kind))])
    header = ("ns of CPU an update", "source", *(f"depth {depth}" for depth in DEPTHS), "a layer")
    report.table(f"On {backend}", header, rows)
    for source_name in SOURCES:
        place = f"{backend}, {source_name} source"
        # "Nothing" within what two medians differ by themselves.
        deciding_ns = slope(found, f"decides, {source_name}")
        report.claim(f"a layer that only decides: nothing ({place})", deciding_ns, 20, "ns")
        observing_ns = slope(found, f"observes, {source_name}")
        report.claim(f"a layer that observes ({place})", observing_ns, 150, "ns")


def main() -> None:
    """Measure and tell."""
    asked = arguments(__doc__).parse_args()
    turns = 3 if asked.quick else 81
    report = Report("streams", "One streamed update through layers", asked.quick, turns)
    for backend in ("asyncio", "trio"):
        found = anyio.run(rotate, cases(), turns, backend=backend)
        report.keep(backend, found)
        tell(report, backend, found)
    report.tell(save=asked.save)


if __name__ == "__main__":
    main()
