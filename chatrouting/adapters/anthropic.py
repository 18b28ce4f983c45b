"""A chat client over Anthropic's Messages API and the SDK's clients for it.

    async with AsyncAnthropic() as sdk, AnthropicChatClient(sdk, "claude-haiku-4-5") as client:
        response = await client.get_response("Hello")

The wire format stands in `_anthropic`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, final

from chatrouting.adapters._anthropic.events import MessagesParser
from chatrouting.adapters._anthropic.models import Target
from chatrouting.adapters._anthropic.options import request
from chatrouting.adapters._anthropic_sdk import MESSAGES, AnthropicConnection
from chatrouting.adapters._client import SDKChatClient
from chatrouting.adapters._connection import Call
from chatrouting.adapters._errors import Errors
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, check_count

if TYPE_CHECKING:
    from chatrouting.adapters._anthropic_sdk import Client

__all__ = ["AnthropicChatClient"]


@final
class AnthropicChatClient(SDKChatClient):
    """Answers by Anthropic's Messages API. Safe for many concurrent tasks.

    It works over `AsyncAnthropic` and the SDK's clients for Bedrock, Vertex, Foundry and the rest.

    The SDK's own retries are off for what goes through here: routers retry, and see each attempt.
    """

    def __init__(
        self,
        client: "Client | None" = None,
        model: str | None = None,
        *,
        max_output_tokens: int | None = None,
        decode: Literal["own", "sdk"] = "own",
    ) -> None:
        """Put a client of the SDK behind the protocol.

        Args:
            client: An asynchronous client of the anthropic package; it stays the caller's. None
                makes one for each event loop at its first request, from the SDK's environment
                variables, which is closed with this client.
            model: Asked for where the options name none.
            max_output_tokens: Limit of an answer where the options set none, as the API wants one;
                thinking counts towards it. None for 4096, and room for thinking where the options
                ask for it.
            decode: Who reads streams. "sdk" for the SDK's own iteration, which is much slower; the
                binary streams of Bedrock are always read so.

        Raises:
            TypeError: If `client` is something else.
            ConfigurationError: If `max_output_tokens` or `decode` is none of the above.
        """
        if max_output_tokens is not None:
            check_count("max_output_tokens", max_output_tokens)
        connection = AnthropicConnection(client)
        super().__init__(connection, connection.provider, model, decode)
        self._max_output_tokens = max_output_tokens
        #: Whom the last request was for: mostly whom the next one is for.
        self._target: Target | None = None

    def _write(
        self,
        messages: Sequence[ChatMessage],
        options: ChatOptions,
        errors: Errors,
        *,
        is_streaming: bool,  # noqa: ARG002  # the body is the same
    ) -> tuple[Call, MessagesParser]:
        target = self._find_target(errors.model)
        sent = request(messages, options, target, limit=self._max_output_tokens)
        parser = MessagesParser(errors, origin=target.origin, trimmed=sent.trimmed)
        return Call(MESSAGES, sent.body, sent.headers), parser

    def _find_target(self, model: str) -> Target:
        target, endpoint = self._target, self._connection.endpoint()
        if target is None or target.model != model or target.endpoint != endpoint:
            target = self._target = Target(self._connection.provider, model, endpoint)
        return target
