"""A chat client over an SDK: what is the same whichever API it speaks.

Both modes prepare a request in one way, send it once, and read the answer with one parser. How a
request is written and what an answer means, the subclasses know: one for each API.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

from chatrouting.adapters._connection import Answer, Call, SDKConnection
from chatrouting.adapters._errors import Errors
from chatrouting.adapters._json import Json, as_object
from chatrouting.adapters._source import HTTPAnswer, SDKSource, SDKStream, SSESource, StreamParser
from chatrouting.client import ClientMetadata, ClosingClient, own_service
from chatrouting.errors import ChatClientError, ConfigurationError
from chatrouting.messages import ChatMessage, MessagesInput, as_messages
from chatrouting.options import ChatOptions
from chatrouting.policies.error_body import holds_error
from chatrouting.policies.retry_after import rate_limit_headers
from chatrouting.responses import ChatResponse, ChatResponseUpdate
from chatrouting.stream import ResponseStream

#: Made once: it is as dear as everything else that is done before a request is written.
_NO_OPTIONS: Final = ChatOptions()


class AnswerParser(StreamParser, Protocol):
    """What one API's answers mean, streamed or whole. Pure; one for each request."""

    def read_whole(self, body: Json) -> Sequence[ChatResponseUpdate]:
        """Take the decoded body of a success, as updates.

        Raises:
            ChatClientError: If it tells of a failure.
            ValueError: If it is no answer; the words go on from "X answered 200 with".
        """
        ...


class SDKChatClient(ClosingClient):
    """Base of the chat clients over SDKs. Safe for many concurrent tasks.

    A given client stays the caller's: it is neither changed nor closed. The retries that it is set
    to are not used, since retrying is the work of the clients around this one.
    """

    def __init__(
        self,
        connection: SDKConnection[Any],
        provider: str,
        model: str | None,
        decode: Literal["own", "sdk"],
    ) -> None:
        if decode not in ("own", "sdk"):
            raise ConfigurationError(f"decode is {decode!r}; expected 'own' or 'sdk'.")
        self._connection = connection
        self._metadata = ClientMetadata(provider, model)
        self._decodes = decode == "own" and not connection.has_binary_streams

    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole.

        Raises:
            ChatClientError: If the provider refuses, cannot be reached, or gives no answer, or if
                the request cannot be carried.
            LocalSaturationError: If the SDK client's connection pool is full.
            ConfigurationError: If no model is named.
            ClientClosedError: If this client was closed.
        """
        said, options, errors = self._begin(messages, options)
        call, parser = self._written(said, options, errors, is_streaming=False)
        with errors.translating():
            answer = await self._connection.post(call)
        return read_answer(answer, parser, errors)

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece. Nothing is sent before the stream is first read.

        Raises:
            ConfigurationError: If no model is named.
            ClientClosedError: If this client was closed. The other errors of `get_response` come
                when the stream is read.
        """
        said, options, errors = self._begin(messages, options)

        async def open_bytes() -> tuple[HTTPAnswer, StreamParser]:
            call, parser = self._written(said, options, errors, is_streaming=True)
            return await self._connection.stream(call), parser

        async def open_objects() -> tuple[SDKStream, StreamParser]:
            call, parser = self._written(said, options, errors, is_streaming=True)
            return await self._connection.sdk_stream(call), parser

        if self._decodes:
            return ResponseStream(SSESource(open_bytes, errors))
        return ResponseStream(SDKSource(open_objects, errors))

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        """Answer for this client, its `ClientMetadata`, and the SDK client by its class.

        Raises:
            TypeError: If `service_type` is None.
        """
        service: Any = own_service(self, service_type, service_key)
        if service is not None or service_key is not None:
            return service
        if service_type is ClientMetadata:
            return self._metadata
        return self._connection.service(service_type)

    async def aclose(self) -> None:
        """Refuse further requests, and close the SDK client if it was made here."""
        await self._connection.aclose()

    def _begin(
        self, messages: MessagesInput, options: ChatOptions | None
    ) -> tuple[tuple[ChatMessage, ...], ChatOptions, Errors]:
        """Check what can be checked before the request is written."""
        self._connection.check_open()
        said = as_messages(messages)
        options = options or _NO_OPTIONS
        model = options.model or self._metadata.model
        if not model:
            raise ConfigurationError(
                f"no model is named for {self._metadata.provider}: give one to "
                f"{type(self).__name__}(client, model), or set ChatOptions.model."
            )
        return said, options, Errors(self._metadata.provider, model)

    def _written(
        self,
        messages: Sequence[ChatMessage],
        options: ChatOptions,
        errors: Errors,
        *,
        is_streaming: bool,
    ) -> tuple[Call, AnswerParser]:
        try:
            return self._write(messages, options, errors, is_streaming=is_streaming)
        except ChatClientError as error:
            errors.complete(error)
            raise

    @abstractmethod
    def _write(
        self,
        messages: Sequence[ChatMessage],
        options: ChatOptions,
        errors: Errors,
        *,
        is_streaming: bool,
    ) -> tuple[Call, AnswerParser]:
        """Write a request, and make who reads its answer. The one way for both modes."""


def read_answer(answer: Answer, parser: AnswerParser, errors: Errors) -> ChatResponse:
    """Read a whole answer, which a status of success does not prove to be one.

    Raises:
        ChatClientError: If it is an error, or no answer.
    """
    body = answer.decoded(errors)
    try:
        if holds_error(body):
            raise errors.of_answer(status=200, headers=answer.headers, body=body)
        response = ChatResponse.from_updates(parser.read_whole(as_object(body)))
    except ChatClientError as error:
        errors.complete(error, answer.headers)
        raise
    except ValueError as error:
        raise errors.unreadable(str(error), headers=answer.headers) from None
    except RecursionError:
        raise errors.unreadable("JSON nested too deeply", headers=answer.headers) from None
    response.rate_limit_headers = rate_limit_headers(answer.headers)
    return response
