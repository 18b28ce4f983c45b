"""A chat client over Anthropic's Messages API and the SDK's clients for it.

Writes a request, sends it once, and hands out what came. The parts are pure and stand beside it:
in `_anthropic`. Retrying, failing over
and time limits belong to the clients around this one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, final

from chatrouting.adapters._anthropic.events import EventReader, read_message
from chatrouting.adapters._anthropic.models import Target
from chatrouting.adapters._anthropic.options import Request, request
from chatrouting.adapters._anthropic_sdk import AnthropicConnection
from chatrouting.adapters._client import SDKClient
from chatrouting.adapters._errors import Errors
from chatrouting.adapters._source import SDKSource, SSESource
from chatrouting.errors import ConfigurationError
from chatrouting.messages import ChatMessage, MessagesInput, as_messages
from chatrouting.options import ChatOptions
from chatrouting.policies.error_body import holds_error
from chatrouting.policies.retry_after import rate_limit_headers
from chatrouting.responses import ChatResponse, ChatResponseUpdate
from chatrouting.stream import ResponseStream

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncStream

    from chatrouting.adapters._anthropic_sdk import Client
    from chatrouting.adapters._source import HTTPAnswer

__all__ = ["AnthropicChatClient"]


@final
class AnthropicChatClient(SDKClient):
    """Answers by Anthropic's Messages API. Safe for many concurrent tasks.

    It works over `AsyncAnthropic` and the SDK's clients for Bedrock, Vertex, Foundry and the rest.
    The given client stays the caller's: it is neither changed nor closed. The retries that it is
    set to are not used, since retrying is the work of the clients around this one.
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
            client: An asynchronous client of the anthropic package. None makes one for each event
                loop at its first request, from the SDK's environment variables, which is closed
                with this client.
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
        if max_output_tokens is not None and max_output_tokens < 1:
            raise ConfigurationError(
                f"max_output_tokens is {max_output_tokens}; expected at least 1."
            )
        if decode not in ("own", "sdk"):
            raise ConfigurationError(f"decode is {decode!r}; expected 'own' or 'sdk'.")
        self._anthropic = AnthropicConnection(client)
        super().__init__(self._anthropic, self._anthropic.provider, model)
        self._max_output_tokens = max_output_tokens
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
        call = self._begin(as_messages(messages), options or ChatOptions())
        errors = self._errors(options)
        with errors.translating():
            answer = await self._anthropic.post(call.sent.body, call.sent.headers)
        return _read(answer, call, errors)

    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece. Nothing is sent before the stream is first read.

        Raises:
            ClientClosedError: If this client was closed. The errors of `get_response` come when
                the stream is read.
        """
        self._anthropic.check_open()
        said = as_messages(messages)
        errors = self._errors(options)
        parser = _Parser(errors)

        def written() -> Request:
            call = self._begin(said, options or ChatOptions())
            parser.reader = EventReader(origin=call.origin, trimmed=call.sent.trimmed)
            return call.sent

        async def open_answer() -> "HTTPAnswer":
            sent = written()
            return await self._anthropic.stream(sent.body, sent.headers)

        async def open_sdk_stream() -> "AsyncStream[Any]":
            sent = written()
            return await self._anthropic.sdk_stream(sent.body, sent.headers)

        if self._decode == "sdk" or self._anthropic.has_binary_streams:
            return ResponseStream(SDKSource(open_sdk_stream, parser, errors))
        return ResponseStream(SSESource(open_answer, parser, errors))

    def _begin(self, messages: Sequence[ChatMessage], options: ChatOptions) -> "_Call":
        model = self._model(options)
        target = Target(self._metadata.provider, model, self._anthropic.endpoint())
        sent = request(messages, options, target, limit=self._max_output_tokens)
        return _Call(sent, target.origin)

    def _errors(self, options: ChatOptions | None) -> Errors:
        model = (options and options.model) or self._metadata.model
        return Errors(self._metadata.provider, model)


@dataclass(frozen=True, slots=True)
class _Call:
    """One request, ready to be sent."""

    sent: Request
    origin: str


def _read(answer: "httpx2.Response", call: _Call, errors: Errors) -> ChatResponse:
    """Read a whole answer, which a status of success does not prove to be one."""
    message = _json(answer.content)
    if holds_error(message):
        raise errors.of_answer(status=200, headers=answer.headers, body=message)
    if not isinstance(message, dict) or not _is_message(cast("Mapping[str, Any]", message)):
        kind = answer.headers.get("content-type", "no content type")
        raise errors.unreadable(f"a body that is no message ({kind})", headers=answer.headers)
    response = read_message(
        cast("Mapping[str, Any]", message), origin=call.origin, trimmed=call.sent.trimmed
    )
    response.rate_limit_headers = rate_limit_headers(answer.headers)
    return response


def _json(content: bytes) -> object:
    """Decode a body; None if it is no JSON. The decoder's error would keep the body."""
    try:
        return cast("object", json.loads(content))
    except ValueError:
        return None


def _is_message(body: Mapping[str, Any]) -> bool:
    content = body.get("content")
    return isinstance(content, list) or (content is None and body.get("type") == "message")


class _Parser:
    """The events of one stream, errors included."""

    def __init__(self, errors: Errors) -> None:
        self.is_complete = False
        self.is_terminal = False
        self.reader: EventReader  #: Set when the request is written.
        self._errors = errors

    def feed(self, event: str, data: str) -> Sequence[ChatResponseUpdate]:
        """Read one server-sent event."""
        if event == "ping" or data == "[DONE]":
            return ()
        decoded = json.loads(data)
        if not isinstance(decoded, dict):
            return ()
        return self._read(cast("Mapping[str, Any]", decoded), event)

    def feed_object(self, data: Mapping[str, Any]) -> Sequence[ChatResponseUpdate]:
        """Read one event that the SDK has decoded."""
        return self._read(data, "")

    def _read(self, data: Mapping[str, Any], event: str) -> Sequence[ChatResponseUpdate]:
        kind = data.get("type") or event
        if kind == "content_block_delta":
            return self.reader.read_delta(data)
        if kind == "error" or event == "error" or holds_error(data):
            self.is_terminal = True
            raise self._errors.of_answer(status=200, headers={}, body=data)
        updates = self.reader.read(data, event)
        self.is_terminal = self.reader.has_ended
        self.is_complete = self.reader.has_ended or self.reader.has_finished
        return updates
