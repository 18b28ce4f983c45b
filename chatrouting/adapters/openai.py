"""Chat Completions over the OpenAI SDK's client: OpenAI, Azure, and the servers that imitate them.

    async with AsyncOpenAI() as sdk, OpenAIChatClient(sdk, "gpt-4o") as client:
        response = await client.get_response("Hello")

What differs from server to server is a `Dialect`. The Responses API has an adapter of its own,
`chatrouting.adapters.openai_responses`.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, final

from chatrouting.adapters import dialects
from chatrouting.adapters._client import SDKClient
from chatrouting.adapters._errors import Errors
from chatrouting.adapters._json import as_object, as_text
from chatrouting.adapters._openai_chat.conversation import chat_messages
from chatrouting.adapters._openai_chat.events import ChatParser, read_completion
from chatrouting.adapters._openai_chat.options import request_body
from chatrouting.adapters._openai_sdk import OpenAIConnection
from chatrouting.adapters._source import SDKSource, SSESource
from chatrouting.adapters.dialects import Dialect
from chatrouting.messages import MessagesInput, as_messages
from chatrouting.options import ChatOptions
from chatrouting.policies.retry_after import rate_limit_headers
from chatrouting.responses import ChatResponse
from chatrouting.stream import ResponseStream

if TYPE_CHECKING:
    from chatrouting.adapters._openai_sdk import AsyncOpenAI

__all__ = ["Dialect", "OpenAIChatClient"]

#: Also how Azure's client knows that the model belongs into the path.
_PATH: Final = "/chat/completions"


@final
class OpenAIChatClient(SDKClient):
    """A chat client over Chat Completions. Safe for many concurrent tasks.

    The SDK's own retries are off for what goes through here: routers retry, and see each attempt.
    """

    def __init__(
        self,
        client: "AsyncOpenAI | None" = None,
        model: str | None = None,
        *,
        dialect: Dialect | None = None,
        decode: Literal["own", "sdk"] = "own",
    ) -> None:
        """Wrap an SDK client.

        Args:
            client: An `AsyncOpenAI` or a subclass; it stays the caller's. None: one is made from
                the environment at the first request, and closed with this client.
            model: Model, or Azure's deployment; `ChatOptions.model` overrides it.
            dialect: What the server takes. None: Azure's for an `AsyncAzureOpenAI`, else OpenAI's.
            decode: "own" reads event streams here, many times faster; "sdk" lets the SDK do it,
                which cannot see the end of a stream that has no finish reason.

        Raises:
            TypeError: If `client` is something else.
            ValueError: If `decode` is neither.
        """
        if decode not in ("own", "sdk"):
            raise ValueError(f"decode is {decode!r}; expected 'own' or 'sdk'.")
        self._openai = OpenAIConnection(client)
        if dialect is None:
            dialect = dialects.AZURE if self._openai.is_azure else dialects.OPENAI
        super().__init__(self._openai, dialect.name, model)
        self._dialect = dialect
        self._decode = decode

    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole.

        Raises:
            ChatClientError: If the provider refuses, cannot be reached, or gives no answer.
            LocalSaturationError: If the SDK client's connection pool is full.
            ConfigurationError: If no model is named.
        """
        body, errors = self._prepare(messages, options, is_streaming=False)
        with errors.translating():
            answer = await self._openai.post(_PATH, body)
        response = read_completion(
            answer.decoded(errors), self._parser(body, errors), errors, answer.headers
        )
        response.rate_limit_headers = rate_limit_headers(answer.headers)
        return response

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece. Nothing is sent before the stream is first read.

        Raises as `get_response` does: for the arguments at once, for the rest while it is read.
        """
        body, errors = self._prepare(messages, options, is_streaming=True)
        parser = self._parser(body, errors)
        if self._decode == "sdk":
            send = partial(self._openai.sdk_stream, _PATH, body, "chat")
            return ResponseStream(SDKSource(send, parser, errors))
        return ResponseStream(SSESource(partial(self._openai.stream, _PATH, body), parser, errors))

    def _prepare(
        self, messages: MessagesInput, options: ChatOptions | None, *, is_streaming: bool
    ) -> tuple[dict[str, Any], Errors]:
        """Write the request; the one way for both modes."""
        self._connection.check_open()
        options = options or ChatOptions()
        model = self._model(options)
        written = chat_messages(
            as_messages(messages), self._dialect, instructions=options.instructions
        )
        body = request_body(
            options, self._dialect, model=model, messages=written, is_streaming=is_streaming
        )
        return body, Errors(self._dialect.name, model)

    def _parser(self, body: dict[str, Any], errors: Errors) -> ChatParser:
        audio_format = as_text(as_object(body.get("audio")).get("format")) or "wav"
        return ChatParser(errors, self._dialect, audio_media_type=f"audio/{audio_format}")
