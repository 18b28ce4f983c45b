"""What the regressions share: a request in either mode, and a listener that remembers."""

import pytest


@pytest.fixture(params=["whole", "streaming"])
def answer(request):
    """Return `answer(client, messages="Hi", options=None)`, which asks in either mode."""

    async def ask(client, messages="Hi", options=None):
        if request.param == "whole":
            return await client.get_response(messages, options)
        async with client.get_streaming_response(messages, options) as stream:
            return await stream.get_final_response()

    return ask


class Log:
    """A listener for `on_routing_update`."""

    def __init__(self):
        self.attempts = []
        self.terminals = []

    def __call__(self, context, attempt, is_terminal):
        self.attempts.append(attempt)
        self.terminals.append(is_terminal)

    @property
    def outcomes(self):
        return [attempt.outcome for attempt in self.attempts]


@pytest.fixture
def log():
    """Return a listener that keeps what it hears."""
    return Log()
