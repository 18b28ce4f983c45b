"""What tests of semantic routing share: vectors in a plane, routers over it, and two modes."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from chatrouting import (
    ChatClient,
    ChatOptions,
    ChatResponse,
    MessagesInput,
    SemanticRoutingChatClient,
)
from chatrouting.testing import FakeEmbeddingGenerator, ScriptedChatClient

Build: TypeAlias = Callable[..., SemanticRoutingChatClient]
Ask: TypeAlias = Callable[..., Awaitable[ChatResponse]]

#: Directions in a plane, so that every cosine can be told by looking.
PLANE = {
    "east": [1.0, 0.0],
    "north": [0.0, 1.0],
    "west": [-1.0, 0.0],
    "south": [0.0, -1.0],
    "north-east": [1.0, 1.0],
    "far east": [1000.0, 0.0],
    "nearly east": [0.8, 0.6],  # cosine 0.8 to east, 0.6 to north
    "nearly east, southwards": [0.8, -0.6],
    "nowhere": [0.0, 0.0],
    "undefined": [float("nan"), 1.0],
    "endless": [float("inf"), 1.0],
}


@pytest.fixture
def plane() -> FakeEmbeddingGenerator:
    """Return a generator whose texts are directions."""
    return FakeEmbeddingGenerator(vectors=PLANE)


@pytest.fixture
def build(plane: FakeEmbeddingGenerator) -> Build:
    """Return `build(generator=None, code=["east"], chat=(["north"], 0.5), **settings)`.

    Every client answers with the name of its route.
    """

    def build_router(generator=None, *, score_threshold=0.0, routes=None, **keywords):
        settings = {key: keywords.pop(key) for key in list(keywords) if key in SETTINGS}
        profiles = {
            route: (
                (ScriptedChatClient(route), *given)
                if isinstance(given, tuple)
                else (ScriptedChatClient(route), given)
            )
            for route, given in (routes or keywords).items()
        }
        return SemanticRoutingChatClient(
            plane if generator is None else generator,
            profiles,
            ScriptedChatClient("default"),
            score_threshold=score_threshold,
            **settings,
        )

    return build_router


SETTINGS = {
    "batch_size",
    "embedding_timeout",
    "extract_text",
    "leave_open",
    "margin",
    "name",
    "on_embedding_error",
    "on_routing_update",
    "query_cache_size",
    "score_aggregation",
    "top_k",
}


@pytest.fixture(params=["whole", "streaming"])
def answer(request: pytest.FixtureRequest) -> Ask:
    """Return `answer(client, messages, options=None)`, which asks in either mode."""

    async def ask(
        client: ChatClient, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        if request.param == "whole":
            return await client.get_response(messages, options)
        async with client.get_streaming_response(messages, options) as stream:
            return await stream.get_final_response()

    return ask
