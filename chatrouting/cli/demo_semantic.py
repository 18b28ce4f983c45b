"""The demo's semantic layer: texts that go where similar ones belong, in front of failovers.

Each route is a failover of its own, in an order that suits it. The encoder works offline, with the
extra `wordllama`; without it nothing of this runs, and the report says what is missing.
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from chatrouting.attempt import RoutingAttempt
from chatrouting.cli.demo_schedule import check_answer, question
from chatrouting.client import ChatClient, EmbeddingGenerator
from chatrouting.messages import ChatMessage, Role
from chatrouting.routing.context import RoutingContext
from chatrouting.routing.ordered import OrderedFailoverChatClient
from chatrouting.semantic.decision import DEFAULT_ROUTE, SemanticDecision, decision_of
from chatrouting.semantic.router import SemanticRoutingChatClient

#: What users say to each route.
UTTERANCES: Final[Mapping[str, tuple[str, ...]]] = {
    "code": (
        "fix the bug in my function",
        "why does this unit test fail",
        "explain this stack trace",
        "refactor this class",
    ),
    "billing": (
        "where is my invoice",
        "refund my last payment",
        "why was I charged twice",
        "cancel my subscription",
    ),
    "travel": (
        "book a flight to Paris",
        "find a hotel near the station",
        "when does the train leave",
        "what can I see in Rome",
    ),
}
#: Whom each route asks, in this order.
PROVIDERS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "code": ("anthropic", "openai/europe"),
    "billing": ("openai/europe", "openai/us-east"),
    "travel": ("openai/us-east", "openai/europe"),
    DEFAULT_ROUTE: ("openai/us-east", "anthropic"),
}
#: What is said in the demo; the last two belong to no route.
TEXTS: Final = (
    "my tests fail since this morning",
    "there is a bug in this class",
    "you charged my card twice",
    "I want my money back",
    "I want to book a flight to Oslo",
    "which hotel is near the airport",
    "tell me a joke about cats",
    "who painted the Mona Lisa",
)
#: For this encoder, with a handful of utterances for each route.
SCORE_THRESHOLD: Final = 0.3
#: Seconds that a provider has for its whole answer.
_ANSWER_TIMEOUT: Final = 1.0
#: Number of the first text in the providers' schedule, beyond those of the other questions.
_FIRST_NUMBER: Final = 36_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """One text, where it went, and who was asked."""

    text: str
    route: str
    best: str | None  #: The route with the highest score, whether or not that was enough.
    score: float | None
    asked: tuple[str, ...]  #: Providers, in order; if one answered, it is the last.
    error: Exception | None


async def route_texts(
    providers: Mapping[str, ChatClient], generator: EmbeddingGenerator
) -> list[Routed]:
    """Say each of `TEXTS` to a semantic router over failovers over the providers.

    Args:
        providers: Clients by name; they stay open.
        generator: The encoder; closed at the end.

    Raises:
        MissingExtraError: If the encoder's files are not those that are expected.
    """
    seen: list[tuple[SemanticDecision | None, RoutingAttempt]] = []

    def note(context: RoutingContext, attempt: RoutingAttempt, _: bool) -> None:  # noqa: FBT001  # a hook's argument
        seen.append((decision_of(context), attempt))

    failovers = {
        route: OrderedFailoverChatClient(
            {name: providers[name] for name in names}, first_output_timeout=_ANSWER_TIMEOUT
        )
        for route, names in PROVIDERS_OF.items()
    }
    async with aclosing(generator):
        router = SemanticRoutingChatClient(
            generator,
            {route: (failovers[route], texts) for route, texts in UTTERANCES.items()},
            failovers[DEFAULT_ROUTE],
            score_aggregation="blend",
            score_threshold=SCORE_THRESHOLD,
            on_routing_update=note,
            leave_open=True,
        )
        await router.warm_up()
        errors = [
            await _say(router, number, text) for number, text in enumerate(TEXTS, _FIRST_NUMBER)
        ]
    return [
        Routed(
            text=text,
            route=attempt.route,
            best=None if decision is None else decision.best,
            score=None if decision is None else decision.score,
            asked=tuple(child.route for child in attempt.children),
            error=error,
        )
        for text, error, (decision, attempt) in zip(TEXTS, errors, seen, strict=True)
    ]


async def _say(router: ChatClient, number: int, text: str) -> Exception | None:
    # The number is for the providers' schedule; the router goes by what the user says.
    messages = [ChatMessage(Role.SYSTEM, question(number)), ChatMessage(Role.USER, text)]
    try:
        check_answer(number, (await router.get_response(messages)).text)
    except Exception as raised:  # noqa: BLE001  # told in the report, and decides the exit code
        return raised
    return None
