"""Providers in memory: canned bytes from a transport, read by the SDKs' real HTTP clients.

No socket, so nothing but the work of the libraries is measured. An event of a stream is a piece of
the body of its own, as from a model that is slower than the network; `burst` joins 16 of them, as
from one that is faster.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from types import ModuleType
from typing import Any, Final, final

import httpx2
from anyio.lowlevel import checkpoint

#: LiteLLM does extra work on each call for a model whose price it does not know.
MODEL: Final = "gpt-4o-mini"
TEXT: Final = "The quick brown fox jumps over the lazy dog. " * 6
UPDATES: Final = 200
MESSAGE: Final = "Say hello in five words. " * 8
MESSAGES: Final = [{"role": "user", "content": MESSAGE}]
LONG: Final = [
    {"role": ("user", "assistant")[turn % 2], "content": f"Turn {turn}. {MESSAGE}"}
    for turn in range(199)
]
LONG.append({"role": "user", "content": MESSAGE})

_CREATED: Final = 1_760_000_000
_JSON: Final = {"content-type": "application/json"}
_SSE: Final = {"content-type": "text/event-stream"}
_ERROR: Final = json.dumps(
    {"error": {"message": "boom", "type": "server_error", "code": None, "param": None}}
).encode()


def _words() -> list[str]:
    return [f"word{number} " for number in range(UPDATES)]


def _event(data: Mapping[str, Any], *, is_named: bool) -> bytes:
    name = f"event: {data['type']}\n" if is_named else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def _chat() -> tuple[bytes, list[bytes]]:
    facts = {"id": "chatcmpl-1", "created": _CREATED, "model": MODEL}
    whole = {
        **facts,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": TEXT, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 20, "completion_tokens": 60, "total_tokens": 80},
    }

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        data = {**facts, "object": "chat.completion.chunk", "choices": [choice]}
        return _event(data, is_named=False)

    first = chunk({"role": "assistant", "content": ""})
    deltas = [chunk({"content": word}) for word in _words()]
    return json.dumps(whole).encode(), [first, *deltas, chunk({}, "stop"), b"data: [DONE]\n\n"]


def _responses() -> tuple[bytes, list[bytes]]:
    part = {"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}
    item = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    whole: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": _CREATED,
        "status": "completed",
        "model": MODEL,
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 20,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 60,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 80,
        },
    }
    text = "".join(_words())
    place = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}
    said = {**part, "text": text}
    done = {**item, "content": [said]}
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *(
            {"type": "response.output_text.delta", **place, "delta": word, "logprobs": []}
            for word in _words()
        ),
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": said},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {**whole, "output": [done]}},
    ]
    numbered = ({**event, "sequence_number": number} for number, event in enumerate(events))
    return json.dumps(whole).encode(), [_event(event, is_named=True) for event in numbered]


def _anthropic() -> tuple[bytes, list[bytes]]:
    begun: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 20, "output_tokens": 1},
    }
    whole = {
        **begun,
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 20, "output_tokens": 60},
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": word},
            }
            for word in _words()
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 60},
        },
        {"type": "message_stop"},
    ]
    return json.dumps(whole).encode(), [_event(event, is_named=True) for event in events]


_APIS: Final = {
    "/chat/completions": _chat(),
    "/responses": _responses(),
    "/messages": _anthropic(),
}


@final
class Provider:
    """One endpoint.

    Attributes:
        requests: How many came, by the end of their paths.
    """

    def __init__(
        self, *, is_broken: bool = False, burst: int = 1, library: ModuleType = httpx2
    ) -> None:
        """Make an endpoint.

        Args:
            is_broken: Answer 500.
            burst: Events in a piece of the body of a stream.
            library: Whose clients ask: `httpx2`, or `httpx` for libraries that still use that.
        """
        self.requests: Counter[str] = Counter()
        self._is_broken = is_broken
        self._burst = burst
        self._library: Any = library

    def http_client(self) -> Any:
        """Make an HTTP client whose requests come here, whatever their host."""
        transport = self._library.MockTransport(self.answer)
        return self._library.AsyncClient(transport=transport, timeout=60)

    async def answer(self, request: Any) -> Any:
        """Answer a request of the HTTP library."""
        path = next(path for path in _APIS if request.url.path.endswith(path))
        self.requests[path] += 1
        # Where a socket would be waited for, the event loop turns.
        await checkpoint()
        respond = self._library.Response
        if self._is_broken:
            return respond(500, headers=_JSON, content=_ERROR)
        whole, events = _APIS[path]
        if json.loads(request.content).get("stream"):
            return respond(200, headers=_SSE, content=self._pieces(events))
        return respond(200, headers=_JSON, content=whole)

    async def _pieces(self, events: list[bytes]) -> AsyncIterator[bytes]:
        for start in range(0, len(events), self._burst):
            yield b"".join(events[start : start + self._burst])
