"""What a provider server is told to do with one request, in words that fit every protocol.

A `Reply` holds no bytes of a protocol: the renderers turn it into JSON or SSE events, and `_plan`
turns its timing and its misbehaviour into steps on the connection.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from chatrouting.testing._changes import Changes
from chatrouting.usage import Usage

#: A place in an answer: before event n (so after n events), or a name that fits every protocol:
#: before the status line, before the first output, after the last output, before the event that
#: ends the answer, after all events.
At = int | Literal["headers", "content", "after_content", "terminal", "end"]

#: How an error is put into a stream that began with status 200:
#: - "event": an event named error, with the provider's error body;
#: - "data": the error body as data, without an event name;
#: - "flat": the Responses `error` event, code and message at the top level;
#: - "failed": `response.failed`;
#: - "bare": an event named error, without an error object;
#: - "chunk": a chat chunk with `error` and no choices, then `[DONE]`;
#: - "finish": a chat chunk with `error` and a choice that finished with "error", then `[DONE]`.
ErrorShape = Literal["event", "data", "flat", "failed", "bare", "chunk", "finish"]

#: A complete SSE event whose data is not JSON, for `Reply(insert=...)`.
MALFORMED_EVENT = 'data: {"id": "broken\n\n'

DEFAULT_TEXT = "Hello from the provider."
DEFAULT_USAGE = Usage(input_tokens=9, output_tokens=3)


class Gate:
    """A place where the server stands until the test opens it. Once open, it stays open."""

    def __init__(self) -> None:
        self._changes = Changes()
        self._open = False
        self._arrivals = 0

    def open(self) -> None:
        """Let the requests that stand here, and all later ones, go on."""
        self._open = True
        self._changes.notify()

    async def reached(self, count: int = 1) -> None:
        """Wait until `count` requests have arrived here; they may have gone on since."""
        await self._changes.until(lambda: self._arrivals >= count)

    def arrive(self) -> None:
        """Count a request that has come to this place. For the server."""
        self._arrivals += 1
        self._changes.notify()

    async def opened(self) -> None:
        """Wait until the gate is open. For the server."""
        await self._changes.until(lambda: self._open)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call that the model makes."""

    id: str = "call_1"
    name: str = "get_weather"
    #: JSON text, also invalid; a sequence is streamed in these fragments, a string in one.
    arguments: str | Sequence[str] = "{}"
    #: Further fields of the call object (chat completions only), such as `extra_content`.
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def fragments(self) -> tuple[str, ...]:
        """The pieces of the arguments as they are streamed."""
        return (self.arguments,) if isinstance(self.arguments, str) else tuple(self.arguments)

    @property
    def text(self) -> str:
        """The arguments in one piece."""
        return "".join(self.fragments)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """The error object of a provider. What is None is filled in by status."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None  #: OpenAI's `code`; Anthropic's `details.error_code`.
    param: str | None = None
    extra: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  #: Further fields of the object.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted answer. `Reply()` is an ordinary, well-behaved one.

    It is rendered in the protocol of the request, and whole or as SSE as the request asks. Places
    are given as `At`; a number counts the rendered events, without inserted ones.
    """

    # The answer.
    #: Text. Streamed word by word; a sequence chunk by chunk. None: a default, if there is no other
    #: output.
    content: str | Sequence[str] | None = field(default=None, kw_only=False)
    reasoning: str | Sequence[str] | None = None  #: With Anthropic it is signed by the server.
    redacted_reasoning: str | None = None  #: Anthropic's `redacted_thinking.data`.
    reasoning_field: str = "reasoning_content"  #: Where chat dialects put it.
    refusal: str | None = None
    tool_calls: Sequence[ToolCall] = ()
    #: stop, length, tool_calls, content_filter, pause or any raw value. None: what fits the rest.
    finish_reason: str | None = None
    usage: Usage | None = DEFAULT_USAGE  #: None: the server says nothing about usage.
    model: str | None = None  #: None: the one that was asked for.
    id: str | None = None  #: None: one made from the number of the request.
    #: Further fields at the top level of a whole answer, and of each chat chunk.
    extra_fields: Mapping[str, Any] = field(default_factory=dict[str, Any])

    # The transport.
    status: int = 200
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()  #: Pairs allow repetition.
    #: Bytes, text or JSON sent instead of the rendered answer, also to a stream request.
    body: Any = None
    content_type: str | None = None
    #: Complete SSE events, blank line included, sent instead of the rendered ones.
    sse: Sequence[str | bytes] | None = None
    error_body: ErrorBody | None = None  #: See `Reply.error` and `Reply.stream_error`.
    error_at: At | None = None
    error_shape: ErrorShape | None = None  #: None: as that API does it.

    # Time, in seconds. A test that must not wait opens gates instead.
    delay_before_headers: float = 0.0
    delay_before_first_chunk: float = 0.0
    delay_between_chunks: float = 0.0
    gates: Mapping[At, Gate] = field(default_factory=dict[At, Gate])

    # Bad manners.
    drop_at: At | None = None  #: Drop the connection here; in a whole answer: amid the body.
    drop: Literal["close", "reset"] = "close"
    end_at: At | None = None  #: Streams: end the body cleanly here.
    keep_open: bool = False  #: Streams: do not end the body until the client hangs up.
    #: Leave out these events; "finish" blanks the finish reason of a whole answer too.
    omit: Sequence[Literal["start", "finish", "usage", "terminal"]] = ()
    #: Raw text sent before the event at a place. See `MALFORMED_EVENT`.
    insert: Mapping[At, str | bytes] = field(default_factory=dict[At, str | bytes])
    write_size: int | None = None  #: Cut each event into HTTP chunks of so many bytes.
    line_end: Literal["\n", "\r\n", "\r"] = "\n"
    event_names: bool = True  #: False: no `event:` lines.
    pings: bool = False  #: A ping (OpenAI: a comment) between any two events.
    ping_period: float | None = None  #: Seconds between pings while a stream waits anywhere.
    prompt_filter: bool = False  #: Chat: Azure's first chunk, without choices, id and model.
    #: Chat: usage in its own chunk (if asked for), or that chunk with null, or growing in each.
    usage_style: Literal["end", "null", "every_chunk"] = "end"
    tool_index: Literal["each", "zero", "missing"] = "each"  #: Chat: `index` of tool deltas.
    #: Chat: calls in fragments, or each whole in one chunk, or all of them in one chunk.
    tool_chunks: Literal["fragments", "whole", "together"] = "fragments"

    @classmethod
    def error(
        cls,
        status: int,
        *,
        message: str | None = None,
        type: str | None = None,
        code: str | int | None = None,
        param: str | None = None,
        retry_after: float | str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Self:
        """Answer with an error status and the provider's own error body.

        Args:
            status: HTTP status.
            message: Text; None for one made from the status.
            type: The provider's error type; None for the usual one of that status.
            code: OpenAI's `code`, Anthropic's `details.error_code`; None for the usual one.
            param: OpenAI only.
            retry_after: Value of the `retry-after` header.
            headers: Further headers.
            extra: Further fields of the error object, such as Azure's `innererror`.
        """
        all_headers = dict(headers or {})
        if retry_after is not None:
            all_headers["retry-after"] = str(retry_after)
        body = ErrorBody(message=message, type=type, code=code, param=param, extra=extra or {})
        return cls(status=status, headers=all_headers, error_body=body)

    @classmethod
    def stream_error(
        cls,
        content: str | Sequence[str] | None = None,
        *,
        at: At = "content",
        shape: ErrorShape | None = None,
        message: str | None = None,
        type: str | None = None,
        code: str | int | None = None,
    ) -> Self:
        """Answer 200, and put an error into the stream. A whole answer is not affected.

        Args:
            content: What would have been answered.
            at: Where the error stands in place of the rest; "after_content": behind all output.
            shape: How it is written; None for the provider's own way.
            message: Text of the error.
            type: Error type; None for "server is overloaded" as that provider calls it.
            code: Error code.
        """
        body = ErrorBody(message=message, type=type, code=code)
        return cls(content, error_body=body, error_at=at, error_shape=shape)

    @classmethod
    def azure_content_filter(cls) -> Self:
        """Answer as Azure does when its filter refuses the prompt."""
        extra = {
            "status": 400,
            "innererror": {
                "code": "ResponsibleAIPolicyViolation",
                "content_filter_result": {"violence": {"filtered": True, "severity": "high"}},
            },
        }
        message = "The response was filtered due to the prompt triggering the content policy."
        return cls.error(400, message=message, code="content_filter", param="prompt", extra=extra)
