"""The only file that imports the Anthropic SDK, and it does so when a client is first needed."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from chatrouting.adapters._connection import SDKConnection
from chatrouting.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.lib.bedrock import AsyncAnthropicBedrock, AsyncAnthropicBedrockMantle
    from anthropic.lib.vertex import AsyncAnthropicVertex

    #: AsyncAnthropicAWS, -GoogleCloud and -Foundry are AsyncAnthropic.
    Client: TypeAlias = (
        AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicBedrockMantle | AsyncAnthropicVertex
    )

#: By this path the clients for Bedrock and Vertex know what to rewrite.
MESSAGES: Final = "/v1/messages"

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
class AnthropicConnection(SDKConnection["Client"]):
    """One adapter's way to Anthropic, or to its models at another host."""

    def __init__(self, client: "Client | None") -> None:
        """Wrap a client.

        Raises:
            TypeError: If `client` is neither None nor an asynchronous client of the SDK.
        """
        provider = "anthropic" if client is None else _provider(client)
        super().__init__(client, provider, takes_urls=client is None or _is_plain(client))

    @property
    def has_binary_streams(self) -> bool:
        """Whether only the SDK can read a stream of this provider."""
        return self.provider in _BINARY

    def _from_environment(self) -> "Client":
        from anthropic import (  # noqa: PLC0415  # loaded when first used
            AsyncAnthropic,
            DefaultAsyncHttpxClient,
        )

        client = AsyncAnthropic(http_client=DefaultAsyncHttpxClient())
        # The SDK itself complains about a missing credential only when a request is built.
        if client.api_key is None and client.auth_token is None and client.credentials is None:
            raise ConfigurationError(
                "no client was given and the environment describes none: set ANTHROPIC_API_KEY, or "
                "pass an AsyncAnthropic."
            )
        return client

    def _sdk_options(self) -> dict[str, Any]:
        from anthropic import not_given  # noqa: PLC0415  # loaded when first used

        return {"timeout": not_given}

    def _stream_classes(self, path: str) -> tuple[Any, Any]:  # noqa: ARG002  # there is one
        """Give the SDK's classes for the events of a message.

        Raises:
            MissingExtraError: If the SDK lacks what it decodes the stream with.
        """
        if self.has_binary_streams and find_spec("botocore") is None:
            raise MissingExtraError(
                "streams of Bedrock are decoded with botocore, which is not installed. "
                "Install anthropic[bedrock], or ask for whole answers."
            )
        from anthropic import AsyncStream  # noqa: PLC0415  # loaded when first used
        from anthropic.types import Message, RawMessageStreamEvent  # noqa: PLC0415

        return Message, AsyncStream[RawMessageStreamEvent]


def _is_plain(client: "Client") -> bool:
    """Say whether nobody looks at paths: other clients rewrite them, middleware is told them."""
    from anthropic import AsyncAnthropic  # noqa: PLC0415  # whoever has a client has loaded it

    return type(client) is AsyncAnthropic and not client.middleware


def _provider(client: object) -> str:
    import anthropic  # noqa: PLC0415  # whoever has a client has loaded it

    for class_name, provider in _PROVIDERS:
        if isinstance(client, getattr(anthropic, class_name)):
            return provider
    raise TypeError(
        f"client is {type(client).__name__}; expected AsyncAnthropic or another asynchronous "
        "client of the anthropic package, or None."
    )
