"""The only file that imports the OpenAI SDK, and it does so when a client is first needed.

A connection wraps the SDK client of one adapter. Requests go through the SDK's public `post`, which
authenticates, builds URLs (Azure's too) and sends, but neither walks the messages against its type
unions nor builds objects of its own: both are done on the event loop, for milliseconds.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast, final
from weakref import WeakKeyDictionary

from anyio.lowlevel import current_token

from chatrouting.adapters._errors import Errors
from chatrouting.errors import ClientClosedError, ConfigurationError

if TYPE_CHECKING:
    from openai import AsyncOpenAI as AsyncOpenAI  # noqa: PLC0414  # the type, for the adapters
    from openai._types import RequestOptions

    from chatrouting.adapters._source import HTTPAnswer, SDKStream

#: Retries are the routers' business; those of the SDK would hide attempts from them. Set for each
#: request rather than on a derived client: that would go on using a key which the caller replaces.
_OPTIONS: Final["RequestOptions"] = {"max_retries": 0, "security": {"bearer_auth": True}}


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer with a success status."""

    status: int
    headers: Mapping[str, str]  #: Case-insensitive.
    content: bytes

    def decoded(self, errors: Errors) -> object:
        """Return the decoded body.

        Raises:
            ResponseValidationError: If it is no JSON, such as the page of a gateway.
        """
        try:
            return json.loads(self.content)
        except ValueError:
            content_type = self.headers.get("content-type", "no content type").partition(";")[0]
        found = f"{len(self.content)} bytes that are no JSON ({content_type})"
        raise errors.unreadable(found, status=self.status, headers=self.headers)


@final
class OpenAIConnection:
    """One adapter's way to the API.

    A client that was given stays the caller's. Without one, a client is made from the SDK's
    environment defaults at the first request, for each event loop: connections belong to a loop.
    """

    def __init__(self, client: "AsyncOpenAI | None") -> None:
        """Wrap a client.

        Raises:
            TypeError: If `client` is neither None nor an `AsyncOpenAI`.
        """
        if client is not None:
            _check_client(client)
        self._given = client
        self._made: WeakKeyDictionary[object, AsyncOpenAI] = WeakKeyDictionary()
        self._is_closed = False

    @property
    def is_azure(self) -> bool:
        """Whether the client is one for Azure."""
        return any(base.__name__ == "AsyncAzureOpenAI" for base in type(self._given).__mro__)

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

    async def post(self, path: str, body: dict[str, Any]) -> Answer:
        """Send a request and read the whole answer.

        Raises:
            Exception: Whatever the SDK raises; see `Errors.translating`.
        """
        import httpx2  # noqa: PLC0415  # loaded when first used

        answer = await self._client().post(
            path, cast_to=httpx2.Response, body=body, options=_OPTIONS
        )
        return Answer(answer.status_code, answer.headers, answer.content)

    async def stream(self, path: str, body: dict[str, Any]) -> "HTTPAnswer":
        """Send a request and return the answer with its body unread; raises as `post` does."""
        import httpx2  # noqa: PLC0415  # loaded when first used
        from openai import AsyncStream  # noqa: PLC0415

        answer = await self._client().post(
            path,
            cast_to=httpx2.Response,
            body=body,
            options=_OPTIONS,
            stream=True,
            stream_cls=AsyncStream[Any],
        )
        # The SDK's types know no streamed `httpx2.Response`; what comes back is one.
        return cast("HTTPAnswer", answer)

    async def sdk_stream(
        self, path: str, body: dict[str, Any], api: Literal["chat", "responses"]
    ) -> "SDKStream":
        """Send a request and return the SDK's own iteration; raises as `post` does."""
        event_class, stream_class = _stream_classes(api)
        stream = await self._client().post(
            path,
            cast_to=event_class,
            body=body,
            options=_OPTIONS,
            stream=True,
            stream_cls=stream_class,
        )
        return cast("SDKStream", stream)

    async def aclose(self) -> None:
        """Close the client if it was made here. May be called more than once.

        Clients made for other event loops cannot be closed from this one; they are let go.
        """
        self._is_closed = True
        mine = self._made.pop(current_token().native_token, None)
        self._made.clear()
        if mine is not None:
            await mine.close()

    def _client(self) -> "AsyncOpenAI":
        self.check_open()
        if self._given is not None:
            return self._given
        loop = current_token().native_token
        client = self._made.get(loop)
        if client is None:
            client = self._made[loop] = _client_from_environment()
        return client


def _check_client(client: object) -> None:
    from openai import AsyncOpenAI  # noqa: PLC0415  # whoever has a client has loaded it

    if not isinstance(client, AsyncOpenAI):
        raise TypeError(
            f"client is {type(client).__name__}; expected an AsyncOpenAI or one of its subclasses, "
            "such as AsyncAzureOpenAI, or None."
        )


def _client_from_environment() -> "AsyncOpenAI":
    from openai import AsyncOpenAI, OpenAIError  # noqa: PLC0415  # loaded when first used

    try:
        return AsyncOpenAI()
    except OpenAIError as error:
        raise ConfigurationError(
            "no client was given and the environment describes none: set OPENAI_API_KEY (and "
            "OPENAI_BASE_URL for a compatible server), or pass an AsyncOpenAI."
        ) from error


def _stream_classes(api: Literal["chat", "responses"]) -> tuple[Any, Any]:
    from openai import AsyncStream  # noqa: PLC0415  # loaded when first used

    if api == "chat":
        from openai.types.chat import ChatCompletionChunk  # noqa: PLC0415

        return ChatCompletionChunk, AsyncStream[ChatCompletionChunk]
    from openai.types.responses import ResponseStreamEvent  # noqa: PLC0415

    return ResponseStreamEvent, AsyncStream[ResponseStreamEvent]
