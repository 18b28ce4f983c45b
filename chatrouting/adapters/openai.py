"""Chat Completions over the OpenAI SDK's client: OpenAI, Azure, and the servers that imitate them.

    async with AsyncOpenAI() as sdk, OpenAIChatClient(sdk, "gpt-4o") as client:
        response = await client.get_response("Hello")

What differs from server to server is a `Dialect`. The wire format stands in `_openai_chat`. The
Responses API has an adapter of its own, `chatrouting.adapters.openai_responses`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, final

from chatrouting.adapters import dialects
from chatrouting.adapters._client import SDKChatClient
from chatrouting.adapters._connection import Call
from chatrouting.adapters._errors import Errors
from chatrouting.adapters._openai_chat.conversation import chat_messages
from chatrouting.adapters._openai_chat.events import ChatParser
from chatrouting.adapters._openai_chat.options import audio_media_type, request_body
from chatrouting.adapters._openai_sdk import CHAT_COMPLETIONS, OpenAIConnection
from chatrouting.adapters.dialects import Dialect
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions

if TYPE_CHECKING:
    from chatrouting.adapters._openai_sdk import AsyncOpenAI

__all__ = ["Dialect", "OpenAIChatClient"]


@final
class OpenAIChatClient(SDKChatClient):
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
        """Put a client of the SDK behind the protocol.

        Args:
            client: An `AsyncOpenAI` or a subclass such as `AsyncAzureOpenAI`; it stays the
                caller's. None makes one for each event loop at its first request, from the SDK's
                environment variables, which is closed with this client.
            model: Model, or Azure's deployment; `ChatOptions.model` overrides it.
            dialect: What the server takes. None: Azure's for an `AsyncAzureOpenAI`, else OpenAI's.
            decode: Who reads streams. "sdk" for the SDK's own iteration, which is much slower, and
                cannot see the end of a stream that has no finish reason.

        Raises:
            TypeError: If `client` is something else.
            ConfigurationError: If `decode` is none of the above.
        """
        connection = OpenAIConnection(client)
        if dialect is None:
            dialect = dialects.AZURE if connection.provider == "azure" else dialects.OPENAI
        super().__init__(connection, dialect.name, model, decode)
        self._dialect = dialect

    def _write(
        self,
        messages: Sequence[ChatMessage],
        options: ChatOptions,
        errors: Errors,
        *,
        is_streaming: bool,
    ) -> tuple[Call, ChatParser]:
        dialect = self._dialect
        written = chat_messages(messages, dialect, instructions=options.instructions)
        body = request_body(
            options, dialect, model=errors.model, messages=written, is_streaming=is_streaming
        )
        parser = ChatParser(errors, dialect, audio_media_type=audio_media_type(body))
        return Call(CHAT_COMPLETIONS, body), parser
