"""What one call through failover costs, in memory, against other libraries' failover.

Nothing waits and no provider is asked, so the difference to the bare client is the wrapper alone:
records, identifiers, context and hook included. Each library wraps its own fake model.
"""

import logging
from collections.abc import Callable
from typing import Any

import anyio
import peers
from _measure import Measure, Samples, per_call, rotate
from _report import Report, arguments, number
from peers import InMemory
from typing_extensions import override

from chatrouting import (
    ChatMessage,
    ChatOptions,
    ChatResponse,
    OrderedFailoverChatClient,
    ResponseStream,
    Role,
    RoutingAttempt,
    RoutingContext,
)
from chatrouting.client import own_service
from chatrouting.errors import InternalServerError
from chatrouting.messages import MessagesInput

DEPTHS = (1, 2, 4, 8)
MESSAGES = [ChatMessage(Role.USER, "hi")]
ANSWER = ChatResponse("hello")


class Answering:
    """The least that is a chat client."""

    async def get_response(
        self,
        messages: MessagesInput,  # noqa: ARG002
        options: ChatOptions | None = None,  # noqa: ARG002
    ) -> ChatResponse:
        """Answer the same at once."""
        return ANSWER

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Refuse: only whole answers are measured here."""
        raise NotImplementedError

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        """Answer for itself."""
        return own_service(self, service_type, service_key)

    async def aclose(self) -> None:
        """Hold nothing."""


class Failing(Answering):
    """A provider that is down."""

    @override
    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Fail at once."""
        raise InternalServerError("boom", status_code=500)


class Watched(OrderedFailoverChatClient):
    """A failover whose policy learns of every attempt."""

    @override
    async def on_routing_update(
        self, context: RoutingContext, attempt: RoutingAttempt, is_terminal: bool
    ) -> None:
        """Do nothing, but be called."""


class FloorFailover:
    """What a failover costs at the least: a loop with `try`, and nothing kept of it."""

    def __init__(self, *clients: Answering) -> None:
        self._clients = clients

    async def get_response(self, messages: MessagesInput) -> ChatResponse:
        """Ask one after the other."""
        failure: Exception | None = None
        for client in self._clients:
            try:
                return await client.get_response(messages)
            except InternalServerError as error:
                failure = error
        assert failure is not None  # noqa: S101  # there is a client
        raise failure


def stack(depth: int, make: Callable[[list[Any]], Any]) -> Any:
    """Nest failovers, each with a second client that is not needed."""
    client: Any = Answering()
    for _ in range(depth):
        client = make([client, Answering()])
    return client


def our_cases(repeat: int) -> dict[str, Measure]:
    """Return what is measured of ours."""
    clients: dict[str, Any] = {
        "bare client": Answering(),
        "floor, first answers": FloorFailover(Answering(), Answering()),
        "floor, first fails": FloorFailover(Failing(), Answering()),
        "first fails": OrderedFailoverChatClient([Failing(), Answering()]),
        "first fails, with a hook": Watched([Failing(), Answering()]),
    }
    for depth in DEPTHS:
        clients[f"depth {depth}"] = stack(depth, OrderedFailoverChatClient)
        clients[f"depth {depth}, with a hook"] = stack(depth, Watched)

    def asks(client: Any) -> Measure:
        async def call() -> None:
            await client.get_response(MESSAGES)

        return per_call(call, repeat)

    return {name: asks(client) for name, client in clients.items()}


async def peer_cases(others: list[InMemory], repeat: int) -> dict[str, Measure]:
    """Return what is measured of others, after a look at their answers."""
    cases: dict[str, Measure] = {}
    for peer in others:
        calls = {
            "bare model": peer.direct,
            "first answers": peer.first_answers,
            "first fails": peer.first_fails,
            "depth 4": peer.nested,
        }
        for name, call in calls.items():
            said = await call()
            if said != "hello":
                raise RuntimeError(f"{peer.label}, {name}: answered {said!r}")
            cases[f"{peer.label}, {name}"] = per_call(call, repeat)
    return cases


def tell(report: Report, found: Samples, ours: list[str], others: list[str]) -> None:
    """Write the tables and the claims."""
    base = "bare client"
    rows = [
        (name, number(found.median(name)), number(found.p95(name)), number(found.added(name, base)))
        for name in ours
    ]
    header = ("one call, µs of CPU", "median", "p95", "added to the bare client")
    report.table("chatrouting", header, rows)
    first = found.added("depth 1, with a hook", base)
    fails = found.added("first fails, with a hook", base)
    report.claim("first layer, hook included", first, 8, "µs")
    slope = found.added("depth 8, with a hook", "depth 1, with a hook") / 7
    report.claim("each further layer, hook included", slope, 5, "µs")
    nested = found.added("depth 4, with a hook", base)
    lines = [("OrderedFailoverChatClient", *map(number, (first, fails, nested)))]
    for label in others:
        added = {
            name: found.added(f"{label}, {name}", f"{label}, bare model")
            for name in ("first answers", "first fails", "depth 4")
        }
        lines.append((label, *map(number, added.values())))
        share = first / added["first answers"]
        report.claim(f"first layer, as a share of what {label} adds", share, 1 / 20, "x")
        share = fails / added["first fails"]
        report.claim(f"first client fails, as a share of {label}", share, 1 / 15, "x")
    header = ("µs added to the bare model", "first answers", "first fails", "depth 4")
    report.table("Failover of several libraries, each over its own fake model", header, lines)


def main() -> None:
    """Measure and tell."""
    asked = arguments(__doc__).parse_args()
    turns, repeat, repeat_others = (5, 50, 3) if asked.quick else (61, 200, 40)
    # Failovers are logged. Here nobody listens, for none of the libraries.
    logging.disable(logging.CRITICAL)
    others = peers.in_memory()
    ours = our_cases(repeat)

    async def measure() -> Samples:
        return await rotate(ours | await peer_cases(others, repeat_others), turns)

    report = Report("calls", "One call through failover, in memory", asked.quick, turns)
    found = anyio.run(measure)
    report.keep("calls", found)
    report.notes += peers.note(peers.IN_MEMORY)
    tell(report, found, list(ours), [peer.label for peer in others])
    report.tell(save=asked.save)


if __name__ == "__main__":
    main()
