"""What tests of routers share: a request in either mode, and a listener that remembers."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from chatrouting import (
    AttemptOutcome,
    ChatClient,
    ChatOptions,
    ChatResponse,
    MessagesInput,
    RoutingAttempt,
    RoutingContext,
)

Ask: TypeAlias = Callable[..., Awaitable[ChatResponse]]


@pytest.fixture(params=["whole", "streaming"])
def mode(request: pytest.FixtureRequest) -> str:
    """Run a test once for `get_response` and once for a stream that is read to its end."""
    return str(request.param)


@pytest.fixture
def answer(mode: str) -> Ask:
    """Return `answer(client, messages="Hi", options=None)`, which asks in either mode."""

    async def ask(
        client: ChatClient, messages: MessagesInput = "Hi", options: ChatOptions | None = None
    ) -> ChatResponse:
        if mode == "whole":
            return await client.get_response(messages, options)
        async with client.get_streaming_response(messages, options) as stream:
            return await stream.get_final_response()

    return ask


class Log:
    """A listener for `on_routing_update`."""

    def __init__(self) -> None:
        self.contexts: list[RoutingContext] = []
        self.attempts: list[RoutingAttempt] = []
        self.terminals: list[bool] = []

    def __call__(self, context: RoutingContext, attempt: RoutingAttempt, is_terminal: Any) -> None:
        """Keep an update."""
        self.contexts.append(context)
        self.attempts.append(attempt)
        self.terminals.append(is_terminal)

    @property
    def outcomes(self) -> list[AttemptOutcome]:
        """How the attempts ended."""
        return [attempt.outcome for attempt in self.attempts]

    @property
    def routes(self) -> list[str]:
        """Whom they asked."""
        return [attempt.route for attempt in self.attempts]

    @property
    def exceptions(self) -> list[BaseException | None]:
        """What they raised."""
        return [attempt.exception for attempt in self.attempts]


@pytest.fixture
def log() -> Log:
    """Return a listener that keeps what it hears."""
    return Log()
