"""What one adapter sends by: an SDK's client, and how long it lives.

Requests go through the SDKs' public `post`. It authenticates, rewrites URLs and bodies for Azure,
Bedrock and Vertex, and sends. It neither walks messages against type unions nor builds objects of
what we read ourselves: the SDKs do both on the event loop, for milliseconds.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, cast, final
from weakref import WeakKeyDictionary

from anyio.lowlevel import current_token

from chatrouting.adapters._errors import Errors
from chatrouting.adapters._json import loads_bytes
from chatrouting.adapters._outbound import unwritable
from chatrouting.errors import BadRequestError, ClientClosedError

if TYPE_CHECKING:
    import httpx2

    from chatrouting.adapters._source import HTTPAnswer, SDKStream


FormFile: TypeAlias = tuple[str, tuple[str, bytes, str]]


@final
@dataclass(slots=True)
class Call:
    """One request, written and ready to be sent. Made once and never changed.

    Not frozen: to make it would take three times as long, for each request.

    Attributes:
        path: Behind the client's base URL.
        body: The JSON body, without `stream`.
        headers: Further headers; None for none.
        files: (field, (file name, bytes, media type)) of a form; the body is its other fields.
    """

    path: str
    body: dict[str, Any]
    headers: Mapping[str, str] | None = None
    files: "Sequence[FormFile] | None" = None


@final
@dataclass(slots=True)
class Answer:
    """A whole HTTP answer with a success status. Never changed, and not frozen as `Call` is not."""

    status: int
    headers: Mapping[str, str]  #: Case-insensitive.
    content: bytes

    def decoded(self, errors: Errors) -> object:
        """Return the decoded body.

        Raises:
            ResponseValidationError: If it is no JSON, such as the page of a gateway, or nested
                too deeply.
        """
        try:
            return loads_bytes(self.content)
        except (ValueError, RecursionError):
            content_type = self.headers.get("content-type", "no content type").partition(";")[0]
        found = f"{len(self.content)} bytes that cannot be read as JSON ({content_type})"
        raise errors.unreadable(found, status=self.status, headers=self.headers)


@final
class _Base:
    """What is made of the base URL of a client, which keeps it for many requests.

    Attributes:
        url: As the client has it.
        endpoint: Without credentials, query and final slash.
        prefix: What a path is appended to, without its final slash; empty where only the SDK
            knows how to join the two. It does so with four parsed URLs, 7 % of what sending costs.
    """

    __slots__ = ("endpoint", "prefix", "url")

    def __init__(self, url: "httpx2.URL") -> None:
        self.url = url
        bare = url.copy_with(username="", password="", query=None)
        self.endpoint = str(bare).rstrip("/")
        text = str(url)
        # A query or a fragment, also an empty one, stands in between; what names no host is joined
        # to a base URL of the HTTP client.
        is_joinable = url.is_absolute_url and not {"?", "#"} & {*text}
        # Where the path is nothing but a slash, the text lacks it.
        self.prefix = text.removesuffix("/") if is_joinable else ""


class SDK(Protocol):
    """What is used of an SDK's client."""

    @property
    def base_url(self) -> "httpx2.URL": ...

    async def post(
        self,
        path: str,
        *,
        cast_to: Any,
        body: Any,
        files: Any,
        options: Any,
        stream: bool,
        stream_cls: Any = None,
    ) -> Any:
        """Send a request."""
        ...

    async def close(self) -> None:
        """Close the HTTP client."""
        ...


SDKT = TypeVar("SDKT", bound=SDK)


class SDKConnection(ABC, Generic[SDKT]):
    """One adapter's way to an API.

    A client that was given stays the caller's. Without one, a client is made from the SDK's
    environment defaults at the first request, for each event loop: connections belong to a loop.
    """

    def __init__(self, client: SDKT | None, provider: str, *, takes_urls: bool) -> None:
        """Wrap a client.

        Args:
            client: None for one to be made.
            provider: What the one at its other end is called.
            takes_urls: Nobody looks at the path of a request before it is joined to the base URL.
        """
        self.provider = provider
        self._given = client
        self._takes_urls = takes_urls
        self._made: WeakKeyDictionary[object, SDKT] = WeakKeyDictionary()
        self._is_closed = False
        self._last_base: _Base | None = None

    @property
    def has_binary_streams(self) -> bool:
        """Whether only the SDK can read a stream of this provider."""
        return False

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
        return self._base(self._client()).endpoint

    async def post(self, call: Call) -> Answer:
        """Send a request and read the whole answer.

        Raises:
            BadRequestError: If the request holds what JSON or UTF-8 cannot.
            Exception: Whatever the SDK raises; see `Errors.translating`.
        """
        import httpx2  # noqa: PLC0415  # loaded when first used

        answer: httpx2.Response = await self._send(call, cast_to=httpx2.Response)
        return Answer(answer.status_code, answer.headers, answer.content)

    async def stream(self, call: Call) -> "HTTPAnswer":
        """Send a request and return the answer with its body unread; raises as `post` does."""
        import httpx2  # noqa: PLC0415  # loaded when first used

        answer = await self._send(call, cast_to=httpx2.Response, stream=True)
        return cast("HTTPAnswer", answer)

    async def sdk_stream(self, call: Call) -> "SDKStream":
        """Send a request and return the SDK's own iteration; raises as `post` does."""
        event_class, stream_class = self._stream_classes(call.path)
        stream = await self._send(call, cast_to=event_class, stream=True, stream_cls=stream_class)
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

    async def _send(
        self, call: Call, *, cast_to: Any, stream: bool = False, stream_cls: Any = None
    ) -> Any:
        options = self._options
        if call.headers:
            options = {**options, "headers": call.headers}
        client = self._client()
        path = self._base(client).prefix + call.path if self._takes_urls else call.path
        try:
            return await client.post(
                path,
                cast_to=cast_to,
                body=call.body | {"stream": True} if stream else call.body,
                files=call.files,
                options=options,
                stream=stream,
                stream_cls=stream_cls,
            )
        except (TypeError, ValueError, RecursionError):
            # Looked for only now: writing each body twice would cost every request.
            reason = unwritable(call.body)
            if reason is None:
                raise
        # Not from the encoder's error, which holds the prompt.
        raise BadRequestError(
            f"the request cannot be written as JSON: {reason}.",
            provider=self.provider,
            model=call.body.get("model"),
        )

    def _base(self, client: SDKT) -> "_Base":
        base, url = self._last_base, client.base_url
        if base is None or base.url is not url:
            base = self._last_base = _Base(url)
        return base

    def _client(self) -> SDKT:
        self.check_open()
        if self._given is not None:
            return self._given
        loop = current_token().native_token
        client = self._made.get(loop)
        if client is None:
            client = self._made[loop] = self._from_environment()
        return client

    @cached_property
    def _options(self) -> Mapping[str, Any]:
        """What is told to the SDK with each request."""
        return {
            # Retries are the routers' business; those of the SDK would hide attempts from them. Set
            # for each request rather than on a derived client, which would go on using a key that
            # the caller replaces.
            "max_retries": 0,
            # These say what holds anyway. The SDK makes what is left out anew for each request, by
            # `deepcopy` and `uuid4`: 5 % of what sending costs.
            "headers": {},
            "idempotency_key": "",  # for the SDK's own retries
            **self._sdk_options(),
        }

    @abstractmethod
    def _from_environment(self) -> SDKT:
        """Make a client.

        It takes an HTTP client that is closed by nobody else: the SDKs' own closes itself when it
        is collected, in whatever event loop runs then.

        Raises:
            ConfigurationError: If the environment describes none.
        """

    @abstractmethod
    def _sdk_options(self) -> dict[str, Any]:
        """Give the options of each request that are the SDK's own, `timeout` among them."""

    @abstractmethod
    def _stream_classes(self, path: str) -> tuple[Any, Any]:
        """Give the SDK's classes for the events of a path and for the stream of them."""
