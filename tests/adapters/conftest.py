"""What the tests of adapters share: the three chat APIs, and provider servers that speak them.

A test that takes `api` or `serve` runs for each of the three. A file about one of them says which:

    @pytest.fixture
    def api(apis):
        return apis["chat"]
"""

import gc
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anthropic
import anyio
import httpx2
import openai
import pytest

from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.adapters.openai_responses import OpenAIResponsesChatClient
from chatrouting.errors import ChatClientError
from chatrouting.testing.provider_server import Gate, ProviderServer

#: Neither may turn up in an error.
KEY = "sk-proj-a-very-secret-key"
PROMPT = "a very secret prompt"


@dataclass(frozen=True)
class Api:
    """One chat API: its adapter, and the SDK client that the adapter goes over."""

    name: str
    provider: str
    model: str
    client_class: type[Any]
    sdk_class: type[Any]
    status_error: type[Exception]
    base_url: Callable[[ProviderServer], str]
    variables: tuple[str, str]  #: Of the environment: for the base URL and for the key.

    def sdk(self, server: ProviderServer, http: httpx2.AsyncClient) -> Any:
        return self.sdk_class(base_url=self.base_url(server), api_key=KEY, http_client=http)


CHAT = Api(
    "chat",
    "openai",
    "gpt-x",
    OpenAIChatClient,
    openai.AsyncOpenAI,
    openai.APIStatusError,
    lambda server: server.openai_base_url,
    ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
)
RESPONSES = Api(
    "responses",
    "openai",
    "gpt-x",
    OpenAIResponsesChatClient,
    openai.AsyncOpenAI,
    openai.APIStatusError,
    lambda server: server.openai_base_url,
    ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
)
ANTHROPIC = Api(
    "anthropic",
    "anthropic",
    "claude-haiku-4-5",
    AnthropicChatClient,
    anthropic.AsyncAnthropic,
    anthropic.APIStatusError,
    lambda server: server.anthropic_base_url,
    ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
)
APIS = {api.name: api for api in (CHAT, RESPONSES, ANTHROPIC)}


def http_client(*, connections: int = 1, transport: Any = None, **timeouts: float) -> Any:
    """Make an HTTP client without certificates to load.

    It has one connection unless told otherwise: whoever keeps it makes the next call time out.
    """
    limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
    timeout = httpx2.Timeout(5.0, **timeouts)
    return httpx2.AsyncClient(verify=False, limits=limits, timeout=timeout, transport=transport)


@asynccontextmanager
async def serving(
    api: Api,
    *replies: Any,
    make_sdk: Callable[[ProviderServer, Any], Any] | None = None,
    http: dict[str, Any] | None = None,
    decode: str = "own",
    client: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[ProviderServer, Any]]:
    """Give a provider server and an adapter that asks it.

    Args:
        api: Which adapter.
        replies: What the server answers.
        make_sdk: Makes the SDK client; None for the API's own.
        http: Settings of `http_client`.
        decode: Who reads streams.
        client: Further settings of the adapter.
        settings: Further settings of the server.
    """
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProviderServer(*replies, **settings))
        sdk = (make_sdk or api.sdk)(server, http_client(**(http or {})))
        await stack.enter_async_context(sdk)
        arguments = {"model": api.model, "decode": decode, **(client or {})}
        yield server, api.client_class(sdk, **arguments)


async def whole(client: Any, messages: Any = PROMPT, options: Any = None) -> Any:
    return await client.get_response(messages, options)


async def streamed(client: Any, messages: Any = PROMPT, options: Any = None) -> Any:
    return await client.get_streaming_response(messages, options).get_final_response()


def azure(server: ProviderServer, http: httpx2.AsyncClient) -> openai.AsyncAzureOpenAI:
    return openai.AsyncAzureOpenAI(
        azure_endpoint=server.url,
        api_key=KEY,
        api_version="2025-04-01-preview",
        http_client=http,
    )


@pytest.fixture
def apis() -> dict[str, Api]:
    """Give the APIs by name."""
    return APIS


@pytest.fixture(params=list(APIS))
def api(request: pytest.FixtureRequest) -> Api:
    """Give one chat API after the other."""
    return APIS[request.param]


@pytest.fixture(params=[whole, streamed], ids=["whole", "streaming"])
def ask(request: pytest.FixtureRequest) -> Any:
    """Give a function that asks in one mode, for each mode."""
    return request.param


@pytest.fixture
def modes() -> Any:
    """Give the functions that ask in each mode, for a test that needs no name for each."""
    return whole, streamed


@pytest.fixture
def cancel_at() -> Any:
    """Give a function that cancels a call when the server has come to a gate."""

    async def cancel(gate: Gate, call: Callable[..., Any], *arguments: Any) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(call, *arguments)
            with anyio.fail_after(5):
                await gate.reached()
            group.cancel_scope.cancel()

    return cancel


@pytest.fixture(params=["own", "sdk"])
def decode(request: pytest.FixtureRequest) -> Any:
    """Give each way to read a stream."""
    return request.param


@pytest.fixture
def serve(api: Api) -> Any:
    """Give `serving` for the API of the test."""
    return partial(serving, api)


@pytest.fixture(params=[None, azure], ids=["openai", "azure"])
def make_sdk(request: pytest.FixtureRequest) -> Any:
    """Give a function that makes an SDK client: None for the API's own, and one for Azure."""
    return request.param


@pytest.fixture
def make_azure() -> Any:
    """Give a function that makes the SDK's client for Azure."""
    return azure


@pytest.fixture
def make_http_client() -> Any:
    """Give `http_client`."""
    return http_client


@pytest.fixture
def broken() -> Any:
    """Give a function that reads a stream which breaks.

    It returns the error, the updates that were handed out before it, and the stream.
    """

    async def read(client: Any, messages: Any = PROMPT) -> tuple[ChatClientError, list[Any], Any]:
        updates = []
        stream = client.get_streaming_response(messages)
        with pytest.raises(ChatClientError) as caught:
            async for update in stream:
                updates.append(update)
        return caught.value, updates, stream

    return read


@pytest.fixture
def reachable() -> Any:
    """Give a function that writes out all that hangs on an exception and its causes."""
    return _reachable


#: What is not followed: the modules and classes of the whole program.
_LIBRARIES = ("anthropic", "httpx2", "httpcore2", "openai")


def _reachable(error: BaseException) -> str:
    written = []
    seen = set()
    left: list[Any] = [error]
    while left:
        value = left.pop()
        if id(value) in seen or inspect.isroutine(value) or inspect.isclass(value):
            continue
        seen.add(id(value))
        if isinstance(value, str | bytes):
            written.append(str(value))
        elif isinstance(value, BaseException):
            left += [str(value), value.__cause__, value.__context__, value.args, vars(value)]
        elif isinstance(value, dict | list | tuple | set) or (
            type(value).__module__.partition(".")[0] in _LIBRARIES
        ):
            left += gc.get_referents(value)
    return "\n".join(written)
