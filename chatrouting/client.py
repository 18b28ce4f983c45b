"""What a chat client is, and the smallest wrappers around one.

Everything that routes, fails over, meters or adapts is a `ChatClient`; that is why they nest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar, final, runtime_checkable

from chatrouting._copying import SharedWhenCopied
from chatrouting.messages import MessagesInput
from chatrouting.options import ChatOptions
from chatrouting.responses import ChatResponse
from chatrouting.stream import ResponseStream

ServiceT = TypeVar("ServiceT")


@runtime_checkable
class ChatClient(Protocol):
    """Something that answers conversations. Safe for many concurrent tasks."""

    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole.

        Args:
            messages: The conversation; never changed. An iterable is read once.
            options: What else the caller asks for; never changed.
        """
        ...

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece. Nothing is sent before the stream is first read.

        The caller reads the stream to its end or closes it: `async with` does.
        """
        ...

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        """Return a service of this client or of what it wraps, None if there is none.

        Args:
            service_type: Class of the service; the client itself answers for its own classes.
            service_key: Tells several services of one class apart.

        Raises:
            TypeError: If `service_type` is None.
        """
        ...

    async def aclose(self) -> None:
        """Give up what the client holds. May be called more than once."""
        ...


@runtime_checkable
class EmbeddingGenerator(Protocol):
    """Something that turns texts into vectors."""

    async def generate(self, texts: "list[str]") -> Any:
        """Return one vector for each text, in order.

        Args:
            texts: One or more texts.

        Returns:
            Anything that `numpy.asarray` takes, of shape (len(texts), dim), float32.
        """
        ...

    async def aclose(self) -> None:
        """Give up what the generator holds. May be called more than once."""
        ...


@final
@dataclass(frozen=True, slots=True)
class ClientMetadata:
    """What `get_service(ClientMetadata)` answers on a leaf.

    Attributes:
        provider: Such as "openai".
        model: The model it asks for by itself, None if each request names one.
    """

    provider: str
    model: str | None


def own_service(
    client: object, service_type: type[ServiceT], service_key: object
) -> ServiceT | None:
    """Answer `get_service` for a client itself: its own class, its bases, and the protocol.

    Raises:
        TypeError: If `service_type` is None.
    """
    if service_type is None:
        raise TypeError("service_type is None; expected a class.")
    if service_key is None and isinstance(client, service_type):
        return client
    return None


class ClosingClient(SharedWhenCopied):
    """An async context manager that closes itself. Base of all clients of ours."""

    async def aclose(self) -> None:
        """Give up what the client holds. May be called more than once."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class DelegatingChatClient(ClosingClient):
    """Base of middleware around one client: forwards every method by name, and owns `inner`.

    Override what the middleware is about and leave the rest. Closing closes `inner`.
    """

    def __init__(self, inner: ChatClient) -> None:
        """Wrap a client.

        Raises:
            TypeError: If `inner` is None.
        """
        if inner is None:
            raise TypeError("inner is None; expected a chat client.")
        self.inner = inner

    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole, by `inner`."""
        return await self.inner.get_response(messages, options)

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece, by `inner`."""
        return self.inner.get_streaming_response(messages, options)

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        """Answer for this client, else ask `inner`.

        Raises:
            TypeError: If `service_type` is None.
        """
        service = own_service(self, service_type, service_key)
        return self.inner.get_service(service_type, service_key) if service is None else service

    async def aclose(self) -> None:
        """Close `inner`."""
        await self.inner.aclose()


@final
class ConfigureOptionsChatClient(DelegatingChatClient):
    """Gives one client options of its own, such as the model of its route.

    `configure` gets the caller's options, or fresh ones, and returns those that `inner` gets.
    The caller's stay as they are: options are frozen.
    """

    def __init__(self, inner: ChatClient, configure: Callable[[ChatOptions], ChatOptions]) -> None:
        """Wrap a client.

        Raises:
            TypeError: If `inner` or `configure` is None.
        """
        super().__init__(inner)
        if configure is None:
            raise TypeError("configure is None; expected a function from options to options.")
        self._configure = configure

    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole, with the configured options."""
        return await self.inner.get_response(messages, self._configure(options or ChatOptions()))

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece, with the configured options."""
        return self.inner.get_streaming_response(
            messages, self._configure(options or ChatOptions())
        )
