"""The only file that imports the Anthropic SDK, and it does so when a client is first needed.

A connection wraps the SDK client of one adapter. Requests go through the SDK's public `post`, which
authenticates, rewrites bodies and URLs for Bedrock and Vertex, and sends. Unlike `messages.create`
it builds no models of what we decode ourselves, and does not refuse a long whole answer before it
is sent.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, final
from weakref import WeakKeyDictionary

from anyio.lowlevel import current_token

from chatrouting.errors import ClientClosedError, ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic, AsyncStream, RequestOptions
    from anthropic.lib.bedrock import AsyncAnthropicBedrock, AsyncAnthropicBedrockMantle
    from anthropic.lib.vertex import AsyncAnthropicVertex

    from chatrouting.adapters._source import HTTPAnswer

    #: AsyncAnthropicAWS, -GoogleCloud and -Foundry are AsyncAnthropic.
    Client: TypeAlias = (
        AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicBedrockMantle | AsyncAnthropicVertex
    )

_PATH: Final = "/v1/messages"

#: What a provider is called by the class of its client; a subclass before what it derives from.
_PROVIDERS: Final = (
    ("AsyncAnthropicBedrock", "bedrock"),
    ("AsyncAnthropicBedrockMantle", "bedrock-mantle"),
    ("AsyncAnthropicVertex", "vertex"),
    ("AsyncAnthropicAWS", "anthropic-aws"),
    ("AsyncAnthropicGoogleCloud", "anthropic-google-cloud"),
    ("AsyncAnthropicFoundry", "foundry"),
    ("AsyncAnthropic", "anthropic"),
)
#: Streams of these providers are no text/event-stream; the SDK decodes them.
_BINARY: Final = frozenset({"bedrock"})


@final
class AnthropicConnection:
    """One adapter's way to the API.

    A client that was given stays the caller's. Without one, a client is made from the SDK's
    environment defaults at the first request, for each event loop: connections belong to a loop.
    """

    def __init__(self, client: "Client | None") -> None:
        """Wrap a client.

        Raises:
            TypeError: If `client` is neither None nor an asynchronous client of the SDK.
        """
        self.provider = "anthropic" if client is None else _provider(client)
        self._given = client
        self._made: WeakKeyDictionary[object, AsyncAnthropic] = WeakKeyDictionary()
        self._is_closed = False

    @property
    def has_binary_streams(self) -> bool:
        """Whether only the SDK can read a stream of this provider."""
        return self.provider in _BINARY

    def service(self, service_type: type[Any]) -> object | None:
        """Return the SDK client if it is one of `service_type` and there is one already."""
        clients = [self._given, *reversed(list(self._made.values()))]
        return next((one for one in clients if isinstance(one, service_type)), None)

    def check_open(self) -> None:
        """Refuse to go on after closing.

        Raises:
            ClientClosedError: If `aclose` was called.
        """
        if self._is_closed:
            raise ClientClosedError("the client was used after aclose; make a new one.")

    def endpoint(self) -> str:
        """Give the base URL that requests go to, without credentials and query.

        Raises:
            ClientClosedError: If `aclose` was called.
            ConfigurationError: If a client is to be made and the environment holds no credential.
        """
        url = self._client().base_url
        return str(url.copy_with(username="", password="", query=None)).rstrip("/")

    async def post(self, body: dict[str, Any], headers: dict[str, str]) -> "httpx2.Response":
        """Send a request and read the whole answer.

        Raises:
            Exception: Whatever the SDK raises; see `Errors.translating`.
        """
        import httpx2  # noqa: PLC0415  # loaded when first used

        return await self._client().post(
            _PATH, cast_to=httpx2.Response, body=body, options=_options(headers)
        )

    async def sdk_stream(self, body: dict[str, Any], headers: dict[str, str]) -> "AsyncStream[Any]":
        """Send a request and return the SDK's own iteration; raises as `post` does.

        Raises:
            MissingExtraError: If the SDK lacks what it decodes the stream with; nothing is sent.
        """
        if self.has_binary_streams and find_spec("botocore") is None:
            raise MissingExtraError(
                "streams of Bedrock are decoded with botocore, which is not installed. "
                "Install anthropic[bedrock], or ask for whole answers."
            )
        from anthropic import AsyncStream  # noqa: PLC0415  # loaded when first used
        from anthropic.types import Message, RawMessageStreamEvent  # noqa: PLC0415

        return await self._client().post(
            _PATH,
            cast_to=cast("type[Any]", Message),
            body=body | {"stream": True},
            options=_options(headers),
            stream=True,
            stream_cls=AsyncStream[RawMessageStreamEvent],
        )

    async def stream(self, body: dict[str, Any], headers: dict[str, str]) -> "HTTPAnswer":
        """Send a request and return the answer with its body unread; raises as `post` does."""
        return (await self.sdk_stream(body, headers)).response

    async def aclose(self) -> None:
        """Close the client if it was made here. May be called more than once.

        Clients made for other event loops cannot be closed from this one; they are let go.
        """
        self._is_closed = True
        mine = self._made.pop(current_token().native_token, None)
        self._made.clear()
        if mine is not None:
            await mine.close()

    def _client(self) -> "Client":
        self.check_open()
        if self._given is not None:
            return self._given
        loop = current_token().native_token
        client = self._made.get(loop)
        if client is None:
            client = self._made[loop] = _client_from_environment()
        return client


def _provider(client: object) -> str:
    import anthropic  # noqa: PLC0415  # whoever has a client has loaded it

    for class_name, provider in _PROVIDERS:
        if isinstance(client, getattr(anthropic, class_name)):
            return provider
    raise TypeError(
        f"client is {type(client).__name__}; expected AsyncAnthropic or another asynchronous "
        "client of the anthropic package, or None."
    )


def _client_from_environment() -> "AsyncAnthropic":
    from anthropic import (  # noqa: PLC0415  # loaded when first used
        AsyncAnthropic,
        DefaultAsyncHttpxClient,
    )

    # Left to itself, the SDK takes an HTTP client that closes itself when it is collected, in
    # whatever event loop runs then.
    client = AsyncAnthropic(http_client=DefaultAsyncHttpxClient())
    # The SDK itself complains about a missing credential only when a request is built.
    if client.api_key is None and client.auth_token is None and client.credentials is None:
        raise ConfigurationError(
            "no client was given and the environment describes none: set ANTHROPIC_API_KEY, or "
            "pass an AsyncAnthropic."
        )
    return client


def _options(headers: dict[str, str]) -> "RequestOptions":
    # Retries are the routers' business; those of the SDK would hide attempts from them. Set for
    # each request rather than on a derived client, which would go on using a key that the caller
    # replaces.
    return {"max_retries": 0, "headers": headers}
