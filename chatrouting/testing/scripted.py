"""A chat client in memory that does what a script says, and records what was asked of it.

    client = ScriptedChatClient(update("Hel"), fails(OverloadedError))

hands out one update and fails; whole, it fails. A script is a list of steps: text and updates are
handed out; `fails`, `waits`, `waits_for`, `runs` and the other words below are what happens between
them. The whole answer is the fold of the updates. The same script is played at each call;
`ScriptedChatClient.per_call` takes one script for each.
"""

from collections.abc import AsyncIterator
from typing import Any, Self, cast, final

from typing_extensions import override

from chatrouting.client import ClientMetadata, ClosingClient, own_service
from chatrouting.errors import ClientClosedError, ConfigurationError
from chatrouting.messages import MessagesInput, as_messages
from chatrouting.options import ChatOptions
from chatrouting.responses import ChatResponse, ChatResponseUpdate
from chatrouting.stream import ResponseStream
from chatrouting.testing._script_call import CallState, ScriptedCall
from chatrouting.testing._script_source import (
    ObjectSource,
    ReadySource,
    Script,
    SourceKind,
    UnclosableSource,
    generate,
)
from chatrouting.testing._script_steps import (
    Fails,
    Part,
    Raisable,
    ScriptInput,
    cancels_itself,
    fails,
    finishes,
    raises_on_call,
    raises_on_close,
    raises_on_iter,
    returns,
    runs,
    update,
    waits,
    waits_for,
    waits_forever,
    waits_on_close,
)

__all__ = [
    "CallState",
    "ScriptedCall",
    "ScriptedChatClient",
    "cancels_itself",
    "fails",
    "finishes",
    "raises_on_call",
    "raises_on_close",
    "raises_on_iter",
    "returns",
    "runs",
    "update",
    "waits",
    "waits_for",
    "waits_forever",
    "waits_on_close",
]


@final
class ScriptedChatClient(ClosingClient):
    """A chat client that plays a script.

    Attributes:
        calls: What was asked, in order.
        close_count: How often the client was closed.
    """

    def __init__(
        self,
        *script: Part,
        name: str = "scripted",
        metadata: ClientMetadata | None = None,
        source: SourceKind = "object",
        bare: bool = False,
        close_error: Raisable | None = None,
    ) -> None:
        """Make a client that plays the same script at each call.

        Args:
            script: Text, updates, a response, and steps; nothing for an empty answer.
            name: For messages.
            metadata: What `get_service(ClientMetadata)` answers.
            source: What its streams are read from.
            bare: Return the source itself and no `ResponseStream`, as careless clients do.
            close_error: What closing the client raises.
        """
        self.calls: list[ScriptedCall] = []
        self.close_count = 0
        self._name = name
        self._metadata = metadata
        self._source: SourceKind = source
        self._is_bare = bare
        self._close_error = close_error
        self._scripts: tuple[Script, ...] = (Script.of(script),)
        self._repeats_last = True

    @classmethod
    def per_call(
        cls,
        *scripts: ScriptInput,
        repeat_last: bool = False,
        name: str = "scripted",
        metadata: ClientMetadata | None = None,
        source: SourceKind = "object",
        bare: bool = False,
        close_error: Raisable | None = None,
    ) -> Self:
        """Make a client that plays one script after the other.

        Args:
            scripts: One for each call; a script of several steps is a list.
            repeat_last: Play the last one again and again; else a further call is a
                `ConfigurationError`, over which nothing fails over.
            name: As for the class; so are the others.
            metadata: As for the class.
            source: As for the class.
            bare: As for the class.
            close_error: As for the class.
        """
        client = cls(
            name=name, metadata=metadata, source=source, bare=bare, close_error=close_error
        )
        client._scripts = tuple(Script.of(script) for script in scripts)
        client._repeats_last = repeat_last
        return client

    @property
    def pending(self) -> int:
        """Calls in flight now; streams from their first read to their end or closing."""
        return sum(call.state is CallState.RUNNING for call in self.calls)

    @property
    def streams_opened(self) -> int:
        """Streams that were read at least once."""
        return sum(call.is_streaming and call.has_begun for call in self.calls)

    @property
    def streams_closed(self) -> int:
        """Closings of streams that were read; equal to `streams_opened` if each had its one."""
        return sum(call.close_count for call in self.calls if call.has_begun)

    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Play a script to its end.

        Raises:
            ClientClosedError: If the client was closed.
            ConfigurationError: If there is no script left.
            BaseException: What the script raises.
        """
        script, call = self._begin(messages, options, is_streaming=False)
        for returned in script.returns:
            return cast("ChatResponse", returned.value)
        return await script.answer(call)

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Play a script, update by update.

        Raises:
            ClientClosedError: If the client was closed.
            ConfigurationError: If there is no script left.
            BaseException: What `raises_on_call` says.
        """
        script, call = self._begin(messages, options, is_streaming=True)
        for returned in script.returns:
            return cast("ResponseStream", returned.value)
        source = self._open(script, call)
        return cast("ResponseStream", source) if self._is_bare else ResponseStream(source)

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        """Answer for the client itself and for its metadata.

        Raises:
            TypeError: If `service_type` is None.
        """
        if service_type is ClientMetadata and service_key is None:
            return self._metadata
        return own_service(self, service_type, service_key)

    @override
    async def aclose(self) -> None:
        """Count the closing; calls are refused from now on."""
        self.close_count += 1
        if self._close_error is not None:
            raise Fails(self._close_error).exception()

    def _begin(
        self, messages: MessagesInput, options: ChatOptions | None, *, is_streaming: bool
    ) -> tuple[Script, ScriptedCall]:
        if self.close_count:
            raise ClientClosedError(f"client {self._name!r} was closed; ask before aclose.")
        call = ScriptedCall(len(self.calls) + 1, as_messages(messages), options, is_streaming)
        self.calls.append(call)
        script = self._script(call.number)
        with call.running():
            for each in script.on_call:
                raise each.fails.exception()
        call.state = CallState.NEW if not script.returns else CallState.COMPLETED
        return script, call

    def _script(self, number: int) -> Script:
        if number <= len(self._scripts):
            return self._scripts[number - 1]
        if self._repeats_last and self._scripts:
            return self._scripts[-1]
        raise ConfigurationError(
            f"call {number} of client {self._name!r} has no script; {len(self._scripts)} were "
            "given. Give more, or set repeat_last."
        )

    def _open(self, script: Script, call: ScriptedCall) -> AsyncIterator[ChatResponseUpdate]:
        if self._source == "unclosable":
            return UnclosableSource(script, call)
        if self._source == "ready":
            return ReadySource(script, call)
        source = ObjectSource(script, call)
        return generate(source) if self._source == "generator" else source

    def __repr__(self) -> str:
        return f"<ScriptedChatClient {self._name!r}, {len(self.calls)} calls>"
