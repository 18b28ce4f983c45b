"""A conversation as turns of Anthropic's Messages API. Pure: nothing is sent here.

The API takes user and assistant turns that alternate, the user first; every tool call is answered
at the very beginning of the next user turn; no text is blank. What is neither is put right on the
copy that goes out:

- System messages at the beginning become the `system` field. A later one stays at its place, as
  text between `<system>` tags in a user turn.
- Messages of one role in a row become one turn. Blank texts are left out, and a message of which
  nothing is left; where the API needs a user turn there, it says `PLACEHOLDER`.
- Results go to the beginning of the turn after their calls. A call without a result gets one that
  says so; a result without its call becomes text.
- Reasoning of another issuer is left out, and reasoning that nothing follows.
- A final assistant text loses its trailing white space; `Seam` gives it back when the answer goes
  on from there.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from chatrouting.adapters._anthropic.content import (
    Block,
    assistant_block,
    call_block,
    result_block,
    text_block,
    user_block,
)
from chatrouting.adapters._anthropic.models import Target
from chatrouting.adapters._anthropic.raw import kept_blocks
from chatrouting.adapters._call_ids import CallIds
from chatrouting.adapters._outbound import NOT_CARRIED_OUT, ORPHAN, nothing_to_send
from chatrouting.contents import (
    Content,
    TextContent,
    ToolCallContent,
    ToolResultContent,
)
from chatrouting.messages import ChatMessage, Role

PLACEHOLDER: Final = "(no text)"

_LEGAL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})


@dataclass(slots=True)
class Conversation:
    """What the API is given of the messages. Never changed; to freeze it costs each request.

    Attributes:
        system: Text blocks of the `system` field, without the options' instructions.
        messages: The turns.
        trimmed: White space taken from the end of a final assistant text.
        has_calls: Tools are called in the turns.
        thinking_is_cut: A tool loop is under way whose last assistant turn does not begin with
            reasoning, which the API refuses while a thinking budget is set.
    """

    system: list[Block]
    messages: list[dict[str, Any]]
    trimmed: str
    has_calls: bool
    thinking_is_cut: bool


def conversation(messages: Sequence[ChatMessage], target: Target) -> Conversation:
    """Write messages as turns.

    Raises:
        BadRequestError: If nothing is left to be answered.
        UnsupportedOptionError: If a content has no place in the API, or the model takes no
            conversation that ends with the assistant.
    """
    leading = 0
    while leading < len(messages) and messages[leading].role is Role.SYSTEM:
        leading += 1
    system = [block for message in messages[:leading] for block in _system_blocks(message, target)]
    writer = _Writer(target)
    for message in messages[leading:]:
        writer.add(message)
    turns = _joined(writer.turns)
    if writer.has_calls:
        turns = _joined(_answered(turns))
    _complete(turns, messages[-1].role if messages else None)
    if not turns:
        raise nothing_to_send()
    cut = writer.has_calls and _thinking_is_cut(turns)
    trimmed = _trim_prefill(turns[-1], target)
    said = [{"role": turn.role, "content": turn.blocks} for turn in turns]
    return Conversation(system, said, trimmed, writer.has_calls, cut)


def _system_blocks(message: ChatMessage, target: Target) -> Iterable[Block]:
    for content in message.contents:
        if not isinstance(content, TextContent):
            raise target.unsupported(
                f"{type(content).__name__} in a system message", "put it into a user message."
            )
        block = text_block(content.text)
        if block is not None:
            yield block


class _Call:
    """A call that was sent, and the block that answers it."""

    __slots__ = ("call_id", "result")

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.result: Block | None = None


class _Turn:
    __slots__ = ("answers", "blocks", "calls", "is_raw", "role")

    def __init__(self, role: str, blocks: list[Block] | None = None) -> None:
        self.role = role
        self.blocks = [] if blocks is None else blocks
        self.calls: list[_Call] = []
        self.answers = False  #: Results stood here, which are still to be put to their calls.
        self.is_raw = False  #: Ends with blocks as the provider gave them.

    def take(self, other: "_Turn") -> None:
        self.blocks += other.blocks
        self.calls += other.calls
        self.answers = self.answers or other.answers
        self.is_raw = other.is_raw

    def drop_dangling_reasoning(self) -> None:
        """Leave out reasoning that ends the turn: the API refuses it where nothing follows."""
        while not self.is_raw and self.blocks and self.blocks[-1]["type"] in _THINKING:
            self.blocks.pop()


class _Writer:
    def __init__(self, target: Target) -> None:
        self.turns: list[_Turn] = []
        self._target = target
        self._ids = CallIds(_is_legal_id)
        self._calls: dict[str, _Call] = {}

    @property
    def has_calls(self) -> bool:
        """Whether a tool was called."""
        return bool(self._calls)

    def add(self, message: ChatMessage) -> None:
        """Append the turn of one message, which may be empty."""
        is_assistant = message.role is Role.ASSISTANT
        turn = _Turn("assistant" if is_assistant else "user")
        if message.role is Role.SYSTEM:
            turn.blocks += (_tagged(block) for block in _system_blocks(message, self._target))
        elif is_assistant and (raw := kept_blocks(message, self._target.origin)) is not None:
            self._add_raw(raw, turn)
        else:
            for content in message.contents:
                self._add(content, turn)
        self.turns.append(turn)

    def _add(self, content: Content, turn: _Turn) -> None:
        if isinstance(content, ToolResultContent) and turn.role == "user":
            self._add_result(content, turn)
        elif isinstance(content, ToolCallContent) and turn.role == "assistant":
            turn.blocks.append(call_block(content, self._open(content.call_id, turn)))
        else:
            write = assistant_block if turn.role == "assistant" else user_block
            block = write(content, self._target)
            if block is not None:
                turn.blocks.append(block)

    def _add_raw(self, blocks: Sequence[Mapping[str, Any]], turn: _Turn) -> None:
        turn.is_raw = True
        for block in blocks:
            if block.get("type") == "tool_use":
                block = {**block, "id": self._open(str(block.get("id")), turn)}  # noqa: PLW2901
            turn.blocks.append(dict(block))

    def _open(self, call_id: str, turn: _Turn) -> str:
        call = _Call(self._ids.of_call(call_id))
        self._calls[call.call_id] = call
        turn.calls.append(call)
        return call.call_id

    def _add_result(self, content: ToolResultContent, turn: _Turn) -> None:
        call_id = self._ids.of_result(content.call_id)
        call = self._calls.get(call_id)
        block = result_block(content, call_id, self._target)
        if call is None:
            turn.blocks += _orphaned(block)
        else:
            turn.answers = True
            call.result = call.result or block


def _is_legal_id(call_id: str) -> bool:
    return _LEGAL_ID.fullmatch(call_id) is not None


def _tagged(block: Block) -> Block:
    return {"type": "text", "text": f"<system>\n{block['text']}\n</system>"}


def _orphaned(result: Block) -> list[Block]:
    """Write a result whose call is gone as what it says; the API takes it as a result no more."""
    content = result.get("content", [])
    if isinstance(content, str):
        return [{"type": "text", "text": f"{ORPHAN}\n{content}"}]
    return [{"type": "text", "text": ORPHAN}, *content] if content else []


def _joined(turns: Iterable[_Turn]) -> list[_Turn]:
    """Leave out empty turns, and make one of those of a role that then stand side by side."""
    joined: list[_Turn] = []
    for turn in turns:
        if turn.role == "assistant":
            turn.drop_dangling_reasoning()
        if not (turn.blocks or turn.answers):
            continue
        if joined and joined[-1].role == turn.role:
            joined[-1].take(turn)
        else:
            joined.append(turn)
    return joined


def _answered(turns: Iterable[_Turn]) -> list[_Turn]:
    """Put the results of each turn's calls first into the user turn that follows."""
    complete: list[_Turn] = []
    results: list[Block] = []
    for turn in turns:
        turn.answers = False
        turn.blocks[:0] = results
        complete.append(turn)
        results = [call.result or _not_answered(call) for call in turn.calls]
    if results:
        complete.append(_Turn("user", results))
    return complete


def _not_answered(call: _Call) -> Block:
    return {
        "type": "tool_result",
        "tool_use_id": call.call_id,
        "content": NOT_CARRIED_OUT,
        "is_error": True,
    }


def _complete(turns: list[_Turn], last_role: Role | None) -> None:
    """Let the user speak first, and last unless the caller wants an answer gone on with."""
    if turns and turns[0].role == "assistant":
        turns.insert(0, _placeholder())
    if turns and turns[-1].role == "assistant" and last_role is not Role.ASSISTANT:
        turns.append(_placeholder())


def _placeholder() -> _Turn:
    return _Turn("user", [{"type": "text", "text": PLACEHOLDER}])


def _thinking_is_cut(turns: Sequence[_Turn]) -> bool:
    """Say whether the turns end in a tool loop that lost its reasoning."""
    last = next((turn for turn in reversed(turns) if turn.role == "assistant"), None)
    return last is not None and bool(last.calls) and last.blocks[0]["type"] not in _THINKING


def _trim_prefill(turn: _Turn, target: Target) -> str:
    if turn.role != "assistant" or turn.is_raw or turn.blocks[-1]["type"] != "text":
        return ""
    if target.refuses_prefill:
        raise target.unsupported(
            "a conversation that ends with the assistant",
            "end it with a user message, or use another model.",
        )
    text = cast("str", turn.blocks[-1]["text"])
    kept = text.rstrip()
    turn.blocks[-1] = {"type": "text", "text": kept}
    return text[len(kept) :]
