"""The clients of a pool's members over the OpenAI SDK, made from what an endpoint says.

All members of a pool share one HTTP client in each event loop: connections belong to a loop, and
the certificates that an HTTP client loads cost more than a hundred SDK clients. The SDK's own
retries are off; the pool turns to another member instead.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, final
from weakref import WeakKeyDictionary

from anyio.lowlevel import current_token

from chatrouting.adapters import dialects
from chatrouting.adapters._openai_sdk import (
    Credential,
    make_azure_client,
    make_http_client,
    make_openai_client,
)
from chatrouting.adapters.embeddings import OpenAIEmbeddingGenerator
from chatrouting.adapters.images import OpenAIImageClient
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.errors import AuthenticationError, ChatRoutingError, ConfigurationError
from chatrouting.pool._identity import AzureIdentity
from chatrouting.pool.endpoint import ApiKey, Endpoint, Identity, TokenProvider

if TYPE_CHECKING:
    import httpx2

    from chatrouting.adapters._openai_sdk import AsyncOpenAI

__all__ = ["SDKClients", "chat_clients", "embedding_generators", "image_clients"]

_NEWER_FORM: Final = "/openai/v1"

ClientT = TypeVar("ClientT")
MakeHTTPClient: TypeAlias = "Callable[[], httpx2.AsyncClient]"


@final
class SDKClients(Generic[ClientT]):
    """Makes the client of an endpoint, for the event loop that runs: a `client_factory`.

    Owns the HTTP clients beneath: close it when no client that it made is in use.
    """

    def __init__(
        self,
        make: "Callable[[AsyncOpenAI, Endpoint], ClientT]",
        *,
        credential: TokenProvider | None = None,
        http_client: "MakeHTTPClient" = make_http_client,
    ) -> None:
        """Make nothing yet.

        Args:
            make: Makes a member's client over an SDK client.
            credential: Gives bearer tokens for members that have none of their own. None: that of
                `azure-identity`.
            http_client: Makes the HTTP client of an event loop, for limits, proxies and
                certificates of one's own; closed with this factory.
        """
        self._make = make
        self._make_http_client = http_client
        self._credential: TokenProvider = credential or AzureIdentity()
        self._http: WeakKeyDictionary[object, httpx2.AsyncClient] = WeakKeyDictionary()

    def __call__(self, endpoint: Endpoint) -> ClientT:
        """Make the client of an endpoint.

        Raises:
            ConfigurationError: If the endpoint does not say what is needed for that.
        """
        check_endpoint(endpoint)
        return self._make(self._sdk_client(endpoint), endpoint)

    async def aclose(self) -> None:
        """Close the HTTP client of this event loop, and let those of others go."""
        mine = self._http.pop(current_token().native_token, None)
        self._http.clear()
        if mine is not None:
            await mine.aclose()

    def _sdk_client(self, endpoint: Endpoint) -> "AsyncOpenAI":
        loop = current_token().native_token
        http_client = self._http.get(loop)
        if http_client is None:
            http_client = self._http[loop] = self._make_http_client()
        credential = self._credential_of(endpoint)
        if endpoint.provider == "azure" and not _is_newer_form(endpoint):
            return make_azure_client(
                url=endpoint.url or "",
                deployment=endpoint.deployment or "",
                api_version=endpoint.api_version or "",
                credential=credential,
                timeout=endpoint.timeout,
                http_client=http_client,
            )
        return make_openai_client(
            url=endpoint.url,
            api_version=endpoint.api_version,
            credential=credential,
            timeout=endpoint.timeout,
            http_client=http_client,
        )

    def _credential_of(self, endpoint: Endpoint) -> Credential:
        auth = endpoint.auth
        if isinstance(auth, ApiKey):
            return auth.value
        own = auth.token_provider if isinstance(auth, Identity) else None
        provider = own or self._credential

        async def token() -> str:
            try:
                return await provider()
            except Exception as error:
                raise AuthenticationError(
                    f"endpoint {endpoint.id!r} got no token: {_said(error)}",
                    provider=endpoint.provider,
                    model=_model_of(endpoint),
                ) from error

        return token


def chat_clients(
    *, credential: TokenProvider | None = None, http_client: MakeHTTPClient = make_http_client
) -> SDKClients[OpenAIChatClient]:
    """Return what makes the chat clients of a pool's members; the arguments are `SDKClients`'."""

    def make(client: "AsyncOpenAI", endpoint: Endpoint) -> OpenAIChatClient:
        dialect = dialects.AZURE if endpoint.provider == "azure" else dialects.OPENAI
        return OpenAIChatClient(client, _model_of(endpoint), dialect=dialect)

    return SDKClients(make, credential=credential, http_client=http_client)


def embedding_generators(
    *, credential: TokenProvider | None = None, http_client: MakeHTTPClient = make_http_client
) -> SDKClients[OpenAIEmbeddingGenerator]:
    """Return what makes the embedding generators of a pool's members."""

    def make(client: "AsyncOpenAI", endpoint: Endpoint) -> OpenAIEmbeddingGenerator:
        return OpenAIEmbeddingGenerator(client, _model_of(endpoint))

    return SDKClients(make, credential=credential, http_client=http_client)


def image_clients(
    *, credential: TokenProvider | None = None, http_client: MakeHTTPClient = make_http_client
) -> SDKClients[OpenAIImageClient]:
    """Return what makes the image clients of a pool's members."""

    def make(client: "AsyncOpenAI", endpoint: Endpoint) -> OpenAIImageClient:
        return OpenAIImageClient(client, _model_of(endpoint))

    return SDKClients(make, credential=credential, http_client=http_client)


def check_endpoint(endpoint: Endpoint) -> None:
    """Refuse an endpoint that an SDK client cannot be made from.

    Raises:
        ConfigurationError: If it does not say what is needed.
    """
    model = _model_of(endpoint)
    if endpoint.provider == "openai":
        needed: dict[str, object] = {"model": model, "auth": endpoint.auth}
    elif _is_newer_form(endpoint):
        needed = {"deployment": model}
    else:
        needed = {
            "url": endpoint.url,
            "deployment": endpoint.deployment,
            "api_version": endpoint.api_version,
        }
    missing = next((name for name, value in needed.items() if value is None), None)
    if missing is not None:
        raise ConfigurationError(
            f"endpoint {endpoint.id!r} has no {missing}, which a client of "
            f"{endpoint.provider} needs. Give it, or give the pool a client of your own."
        )


def _is_newer_form(endpoint: Endpoint) -> bool:
    return endpoint.url is not None and endpoint.url.rstrip("/").endswith(_NEWER_FORM)


def _model_of(endpoint: Endpoint) -> str | None:
    return endpoint.deployment or endpoint.model


def _said(error: Exception) -> str:
    # An error of ours holds no secret; what others write into theirs is not known.
    return str(error) if isinstance(error, ChatRoutingError) else type(error).__name__
