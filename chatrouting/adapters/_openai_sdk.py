"""The only file that imports the OpenAI SDK, and it does so when a client is first needed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, final

from chatrouting.adapters._connection import SDKConnection
from chatrouting.errors import ConfigurationError

if TYPE_CHECKING:
    from openai import AsyncOpenAI as AsyncOpenAI  # noqa: PLC0414  # the type, for the adapters

#: By these paths Azure's client knows that the model belongs into the URL.
CHAT_COMPLETIONS: Final = "/chat/completions"
EMBEDDINGS: Final = "/embeddings"
IMAGE_EDITS: Final = "/images/edits"
IMAGE_GENERATIONS: Final = "/images/generations"
RESPONSES: Final = "/responses"


@final
class OpenAIConnection(SDKConnection["AsyncOpenAI"]):
    """One adapter's way to OpenAI, Azure, or a server that imitates them."""

    def __init__(self, client: "AsyncOpenAI | None") -> None:
        """Wrap a client.

        Raises:
            TypeError: If `client` is neither None nor an `AsyncOpenAI`.
        """
        if client is not None:
            _check_client(client)
        is_azure = any(base.__name__ == "AsyncAzureOpenAI" for base in type(client).__mro__)
        super().__init__(client, "azure" if is_azure else "openai")

    def _options(self, headers: Mapping[str, str]) -> dict[str, Any]:
        return super()._options(headers) | {"security": {"bearer_auth": True}}

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


def _check_client(client: object) -> None:
    from openai import AsyncOpenAI  # noqa: PLC0415  # whoever has a client has loaded it

    if not isinstance(client, AsyncOpenAI):
        raise TypeError(
            f"client is {type(client).__name__}; expected an AsyncOpenAI or one of its subclasses, "
            "such as AsyncAzureOpenAI, or None."
        )
