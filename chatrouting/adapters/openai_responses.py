"""A chat client over OpenAI's Responses API, and servers that speak it.

    async with AsyncOpenAI() as sdk, OpenAIResponsesChatClient(sdk, "gpt-4o") as client:
        response = await client.get_response("Hello")

The wire format stands in `_openai_responses`.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, final

from chatrouting.adapters._client import SDKChatClient
from chatrouting.adapters._connection import Call
from chatrouting.adapters._errors import Errors
from chatrouting.adapters._openai_responses.conversation import input_items
from chatrouting.adapters._openai_responses.events import ResponsesParser
from chatrouting.adapters._openai_responses.options import is_continued, is_stored, request_body
from chatrouting.adapters._openai_sdk import RESPONSES, OpenAIConnection
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions

if TYPE_CHECKING:
    from chatrouting.adapters._openai_sdk import AsyncOpenAI

__all__ = ["OpenAIResponsesChatClient"]

#: The date at the end of a model's name; without it the name is that of the family.
_SNAPSHOT: Final = re.compile(r"-20\d\d-\d\d-\d\d$")


@final
class OpenAIResponsesChatClient(SDKChatClient):
    """Answers by the Responses API. Safe for many concurrent tasks.

    Stateless unless a conversation is named: responses are not stored, and reasoning travels
    encrypted with the messages, back to the endpoint and model family that issued it.
    `conversation_id` continues a response ("resp_...") or a conversation object (anything else).
    The answer's `conversation_id` is what the next request may continue: the conversation object,
    or the response where the provider stored it, else None. `additional_properties={"store": True}`
    stores.

    The SDK's own retries are off for what goes through here: routers retry, and see each attempt.
    """

    def __init__(
        self,
        client: "AsyncOpenAI | None" = None,
        model: str | None = None,
        *,
        decode: Literal["own", "sdk"] = "own",
    ) -> None:
        """Put a client of the SDK behind the protocol.

        Args:
            client: An `AsyncOpenAI` or a subclass such as `AsyncAzureOpenAI`; it stays the
                caller's. None makes one for each event loop at its first request, from the SDK's
                environment variables, which is closed with this client.
            model: Model, or Azure's deployment; `ChatOptions.model` overrides it.
            decode: Who reads streams. "sdk" for the SDK's own iteration, which is much slower.

        Raises:
            TypeError: If `client` is something else.
            ConfigurationError: If `decode` is none of the above.
        """
        connection = OpenAIConnection(client)
        super().__init__(connection, connection.provider, model, decode)

    def _write(
        self,
        messages: Sequence[ChatMessage],
        options: ChatOptions,
        errors: Errors,
        *,
        is_streaming: bool,  # noqa: ARG002  # the body is the same
    ) -> tuple[Call, ResponsesParser]:
        family = _SNAPSHOT.sub("", errors.model)
        origin = f"{errors.provider} {self._connection.endpoint()} {family}"
        items = input_items(messages, origin=origin, is_continued=is_continued(options))
        body = request_body(options, provider=errors.provider, model=errors.model, items=items)
        return Call(RESPONSES, body), ResponsesParser(errors, origin, is_stored=is_stored(body))
