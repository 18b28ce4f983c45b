"""What the rules of the contract work with: fresh clients, the ways to ask them, comparisons."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from inspect import iscoroutine
from typing import Final, TypeAlias, TypeVar, final

import anyio

from chatrouting.client import ChatClient
from chatrouting.contents import Content, ReasoningContent, ToolCallContent
from chatrouting.messages import MessagesInput
from chatrouting.options import ChatOptions
from chatrouting.responses import ChatResponse
from chatrouting.scope import CLOSING_LIMIT
from chatrouting.stream import ResponseStream

ClientT = TypeVar("ClientT", bound=ChatClient)

#: Seconds between two looks at something that has no event.
_PERIOD: Final = 0.01

#: What two answers to the same question have in common: roles, contents, and the finish reason.
Gist: TypeAlias = tuple[object, ...]


class RuleBrokenError(AssertionError):
    """A rule does not hold; the message says what was seen instead."""


def require(condition: object, seen: str) -> None:
    """Hold the client to something.

    Raises:
        RuleBrokenError: If `condition` is false.
    """
    if not condition:
        raise RuleBrokenError(seen)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One client under test, and what the test knows about it. See `check_chat_client`."""

    make_client: Callable[[], ChatClient]
    make_waiting_client: Callable[[], ChatClient] | None
    count_requests: Callable[[ChatClient], int] | None
    count_open: Callable[[ChatClient], int] | None
    prompt: str
    options: ChatOptions

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[ChatClient]:
        """Make a client, and close it in the end."""
        client = self.make_client()
        try:
            yield client
        finally:
            await close(client)

    async def whole(self, client: ChatClient, messages: MessagesInput | None = None) -> Gist:
        """Ask for a whole answer; for the prompt if there are no messages."""
        return gist(await client.get_response(self.prompt if messages is None else messages))

    async def streamed(self, client: ChatClient, messages: MessagesInput | None = None) -> Gist:
        """Ask for a stream and read it."""
        async with open_stream(client, self.prompt if messages is None else messages) as stream:
            return gist(await stream.get_final_response())

    async def require_nothing_open(self, client: ChatClient) -> None:
        """Wait until the client has no request open, if that can be counted."""
        if self.count_open is not None:
            count = self.count_open
            await until(lambda: count(client) == 0)


async def close(client: ChatClient) -> None:
    """Close a client, also where the check is being cancelled or its time is over."""
    with anyio.fail_after(CLOSING_LIMIT, shield=True):
        await client.aclose()


def open_stream(
    client: ChatClient, messages: MessagesInput, options: ChatOptions | None = None
) -> ResponseStream:
    """Ask for a stream, and see that it is one."""
    stream: object = client.get_streaming_response(messages, options)
    if iscoroutine(stream):
        stream.close()  # else Python warns that it was never awaited
    if not isinstance(stream, ResponseStream):
        raise RuleBrokenError(
            f"get_streaming_response returned {_a(stream)}; expected a ResponseStream"
        )
    return stream


def require_response(response: object) -> ChatResponse:
    """See that a whole answer is one."""
    if not isinstance(response, ChatResponse):
        raise RuleBrokenError(f"get_response returned {_a(response)}; expected a ChatResponse")
    return response


def _a(value: object) -> str:
    return "None" if value is None else f"an object of class {type(value).__name__}"


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that tells nobody when it happens."""
    while not condition():  # noqa: ASYNC110  # a client of somebody else sets no event
        await anyio.sleep(_PERIOD)


def gist(response: ChatResponse) -> Gist:
    """Return what must be equal in two answers: ids and counts of tokens need not."""
    # Whole answers may hold text in pieces; folding joins it as it does for streams.
    folded = ChatResponse.from_updates(response.to_updates())
    said = [
        (message.role.value, tuple(_what(content) for content in message.contents))
        for message in folded.messages
    ]
    return (*said, folded.finish_reason)


def _what(content: Content) -> object:
    if isinstance(content, ToolCallContent):
        return ("calls", content.name, content.arguments or content.raw_arguments)
    return ("thinks", content.text) if isinstance(content, ReasoningContent) else content
