"""A chat client over OpenAI's Responses API, and servers that speak it.

Writes a request, sends it once, and hands out what came. The parts are pure and stand beside it:
in `_openai_responses`.
Retrying, failing over and time limits belong to the clients around this one.
"""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, final

from chatrouting.adapters._errors import Errors
from chatrouting.adapters._openai_responses.answer import as_answer
from chatrouting.adapters._openai_responses.conversation import input_items
from chatrouting.adapters._openai_responses.events import ResponsesParser
from chatrouting.adapters._openai_responses.options import is_continued, is_stored, request_body
from chatrouting.adapters._openai_sdk import Answer, OpenAIConnection
from chatrouting.adapters._source import SDKSource, SSESource
from chatrouting.client import ClientMetadata, ClosingClient, own_service
from chatrouting.errors import ConfigurationError
from chatrouting.messages import ChatMessage, MessagesInput, as_messages
from chatrouting.options import ChatOptions
from chatrouting.policies.retry_after import rate_limit_headers
from chatrouting.responses import ChatResponse
from chatrouting.stream import ResponseStream

if TYPE_CHECKING:
    from chatrouting.adapters._openai_sdk import AsyncOpenAI
    from chatrouting.adapters._source import HTTPAnswer, SDKStream

__all__ = ["OpenAIResponsesChatClient"]

_PATH: Final = "/responses"

#: The date at the end of a model's name; without it the name is that of the family.
_SNAPSHOT: Final = re.compile(r"-20\d\d-\d\d-\d\d$")


@final
class OpenAIResponsesChatClient(ClosingClient):
    """Answers by the Responses API. Safe for many concurrent tasks.

    Stateless unless a conversation is named: responses are not stored, and reasoning travels
    encrypted with the messages, back to the endpoint and model family that issued it.
    `conversation_id` continues a response ("resp_...") or a conversation object (anything else).
    The answer's `conversation_id` is what the next request may continue: the conversation object,
    or the response where the provider stored it, else None. `additional_properties` are fields of
    the request and have the last word: `{"store": True}` stores, `{"reasoning": {"summary":
    "auto"}}` is merged with the effort, None leaves a field out.

    The given client stays the caller's: it is neither changed nor closed. The retries that it is
    set to are not used, since retrying is the work of the clients around this one.
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
            client: An `AsyncOpenAI` or a subclass such as `AsyncAzureOpenAI`. None makes one for
                each event loop at its first request, from the SDK's environment variables, which
                is closed with this client.
            model: Asked for where the options name none; with Azure the deployment.
            decode: Who reads streams. "sdk" for the SDK's own iteration, which is much slower.

        Raises:
            TypeError: If `client` is something else.
            ConfigurationError: If `decode` is none of the above.
        """
        if decode not in ("own", "sdk"):
            raise ConfigurationError(f"decode is {decode!r}; expected 'own' or 'sdk'.")
        self._connection = OpenAIConnection(client)
        self._provider = "azure" if self._connection.is_azure else "openai"
        self._model = model
        self._decode = decode

    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole.

        Raises:
            ChatClientError: If the provider failed, or cannot carry the request.
            ConfigurationError: If no model is named.
            ClientClosedError: If this client was closed.
        """
        self._connection.check_open()
        errors = self._errors(options)
        parser = ResponsesParser(errors)
        body = self._written(as_messages(messages), options or ChatOptions(), parser)
        with errors.translating():
            answer = await self._connection.post(_PATH, body)
        return _read(answer, parser, errors)

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece. Nothing is sent before the stream is first read.

        Raises:
            ClientClosedError: If this client was closed. The errors of `get_response` come when
                the stream is read.
        """
        self._connection.check_open()
        said = as_messages(messages)
        errors = self._errors(options)
        parser = ResponsesParser(errors)

        def written() -> dict[str, Any]:
            return self._written(said, options or ChatOptions(), parser) | {"stream": True}

        async def open_answer() -> "HTTPAnswer":
            return await self._connection.stream(_PATH, written())

        async def open_sdk_stream() -> "SDKStream":
            return await self._connection.sdk_stream(_PATH, written(), "responses")

        if self._decode == "sdk":
            return ResponseStream(SDKSource(open_sdk_stream, parser, errors))
        return ResponseStream(SSESource(open_answer, parser, errors))

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        """Answer for this client, its metadata, and the SDK's client.

        Raises:
            TypeError: If `service_type` is None.
        """
        service = own_service(self, service_type, service_key)
        if service is not None or service_key is not None:
            return service
        if service_type is ClientMetadata:
            return ClientMetadata(self._provider, self._model)
        return self._connection.service(service_type)

    async def aclose(self) -> None:
        """Refuse further requests, and close the SDK's client if it was made here."""
        await self._connection.aclose()

    def _errors(self, options: ChatOptions | None) -> Errors:
        return Errors(self._provider, (options and options.model) or self._model)

    def _written(
        self, messages: Sequence[ChatMessage], options: ChatOptions, parser: ResponsesParser
    ) -> dict[str, Any]:
        """Write a request, and tell the parser what is asked."""
        model = options.model or self._model
        if not model:
            raise ConfigurationError(
                "no model to ask OpenAI for. Name one when the client is made, or in the options."
            )
        origin = f"{self._provider} {self._connection.endpoint()} {_SNAPSHOT.sub('', model)}"
        items = input_items(messages, origin=origin, is_continued=is_continued(options))
        body = request_body(options, provider=self._provider, model=model, items=items)
        parser.origin = origin
        parser.is_stored = is_stored(body)
        return body


def _read(answer: Answer, parser: ResponsesParser, errors: Errors) -> ChatResponse:
    """Read a whole answer, which a status of success does not prove to be one."""
    try:
        body: object = json.loads(answer.content)
    except ValueError:
        kind = answer.headers.get("content-type", "no content type")
        raise errors.unreadable(
            f"a body that is no JSON ({kind})", headers=answer.headers
        ) from None
    response = ChatResponse.from_updates(parser.finish(as_answer(body, errors, answer.headers)))
    response.rate_limit_headers = rate_limit_headers(answer.headers)
    return response
