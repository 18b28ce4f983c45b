"""The only file that imports the OpenAI SDK, and it does so when a client is first needed."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from chatrouting.adapters._connection import SDKConnection
from chatrouting.errors import ConfigurationError

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI as AsyncOpenAI  # noqa: PLC0414  # the type, for the adapters

#: By these paths Azure's client knows that the model belongs into the URL.
CHAT_COMPLETIONS: Final = "/chat/completions"
EMBEDDINGS: Final = "/embeddings"
IMAGE_EDITS: Final = "/images/edits"
IMAGE_GENERATIONS: Final = "/images/generations"
RESPONSES: Final = "/responses"

#: A key, or what gives a bearer token for each request.
Credential: TypeAlias = str | Callable[[], Awaitable[str]]

OPENAI_URL: Final = "https://api.openai.com/v1"

#: Seconds for making a connection, where the whole is allowed longer; the SDK's own default.
_CONNECT_TIMEOUT: Final = 5.0


@final
class OpenAIConnection(SDKConnection["AsyncOpenAI"]):
    """One adapter's way to OpenAI, Azure, or a server that imitates them."""

    def __init__(self, client: "AsyncOpenAI | None") -> None:
        """Wrap a client.

        Raises:
            TypeError: If `client` is neither None nor an `AsyncOpenAI`.
        """
        takes_urls = client is None or _is_plain(client)
        is_azure = any(base.__name__ == "AsyncAzureOpenAI" for base in type(client).__mro__)
        super().__init__(client, "azure" if is_azure else "openai", takes_urls=takes_urls)

    def _sdk_options(self) -> dict[str, Any]:
        from openai import not_given  # noqa: PLC0415  # loaded when first used

        return {"timeout": not_given, "security": {"bearer_auth": True}}

    def _from_environment(self) -> "AsyncOpenAI":
        from openai import (  # noqa: PLC0415  # loaded when first used
            AsyncOpenAI,
            DefaultAsyncHttpx2Client,
            OpenAIError,
        )

        try:
            return AsyncOpenAI(http_client=DefaultAsyncHttpx2Client())
        except OpenAIError as error:
            raise ConfigurationError(
                "no client was given and the environment describes none: set OPENAI_API_KEY (and "
                "OPENAI_BASE_URL for a compatible server), or pass an AsyncOpenAI."
            ) from error

    def _stream_classes(self, path: str) -> tuple[Any, Any]:
        from openai import AsyncStream  # noqa: PLC0415  # loaded when first used

        if path == RESPONSES:
            from openai.types.responses import ResponseStreamEvent  # noqa: PLC0415

            return ResponseStreamEvent, AsyncStream[ResponseStreamEvent]
        from openai.types.chat import ChatCompletionChunk  # noqa: PLC0415

        return ChatCompletionChunk, AsyncStream[ChatCompletionChunk]


def _is_plain(client: object) -> bool:
    """Say whether a client is the SDK's own for OpenAI, and nothing derived from it.

    Raises:
        TypeError: If it is neither.
    """
    from openai import AsyncOpenAI  # noqa: PLC0415  # whoever has a client has loaded it

    if not isinstance(client, AsyncOpenAI):
        raise TypeError(
            f"client is {type(client).__name__}; expected an AsyncOpenAI or one of its subclasses, "
            "such as AsyncAzureOpenAI, or None."
        )
    return type(client) is AsyncOpenAI


def make_http_client() -> "httpx2.AsyncClient":
    """Make an HTTP client with the SDK's own limits, which many SDK clients can share.

    Other than the SDK's own one it does not close itself when it is collected.
    """
    from openai import DefaultAsyncHttpx2Client  # noqa: PLC0415  # loaded when first used

    return DefaultAsyncHttpx2Client()


def make_azure_client(
    *,
    url: str,
    deployment: str,
    api_version: str,
    credential: Credential,
    timeout: float | None,
    http_client: "httpx2.AsyncClient",
) -> "AsyncOpenAI":
    """Make a client of one Azure deployment; the model of a request does not change its URL."""
    from openai import AsyncAzureOpenAI  # noqa: PLC0415  # loaded when first used

    client = AsyncAzureOpenAI(
        # What the SDK makes of endpoint and deployment; given so, it parses two URLs less.
        base_url=f"{url.rstrip('/')}/openai/deployments/{deployment}/",
        api_version=api_version,
        api_key=credential if isinstance(credential, str) else None,
        azure_ad_token_provider=None if isinstance(credential, str) else credential,
        timeout=_timeout(timeout),
        max_retries=0,
        http_client=http_client,
    )
    return _without_environment(client)


def make_openai_client(
    *,
    url: str | None,
    api_version: str | None,
    credential: Credential,
    timeout: float | None,
    http_client: "httpx2.AsyncClient",
) -> "AsyncOpenAI":
    """Make a client of OpenAI, of a server that imitates it, or of Azure's newer form."""
    from openai import AsyncOpenAI  # noqa: PLC0415  # loaded when first used

    client = AsyncOpenAI(
        base_url=OPENAI_URL if url is None else url,  # None would read the environment
        api_key=credential,
        default_query=None if api_version is None else {"api-version": api_version},
        timeout=_timeout(timeout),
        max_retries=0,
        http_client=http_client,
    )
    return _without_environment(client)


def _without_environment(client: "AsyncOpenAI") -> "AsyncOpenAI":
    """Take back what the SDK read of the environment: a key belongs to a project of its own."""
    client.organization = client.project = None
    return client


def _timeout(seconds: float | None) -> Any:
    from openai import Timeout  # noqa: PLC0415  # loaded when first used

    connect = _CONNECT_TIMEOUT if seconds is None else min(seconds, _CONNECT_TIMEOUT)
    return Timeout(seconds, connect=connect)
