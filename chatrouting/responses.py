"""What a client answers: whole, or as a series of updates.

Plain slotted classes, made once and never changed after they are handed over. The fold from updates
to a response follows the rules of the .NET AI abstractions, with two differences: reports of usage
on one response replace each other instead of adding up, and a continuation token is kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

from chatrouting._folding import UsageFold, coalesce
from chatrouting.contents import Content, ContentsInput, TextContent, as_contents, content_is_output
from chatrouting.messages import ChatMessage, Role
from chatrouting.usage import Usage

if TYPE_CHECKING:
    from chatrouting.attempt import RoutingAttempt


class FinishReason(StrEnum):
    """Why the model stopped. A word that is not here passes through as plain text."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    PAUSE = "pause"  #: Call again with the answer appended; the same provider goes on.


@dataclass(slots=True, init=False)
class ChatResponseUpdate:
    """One piece of a streamed answer.

    Attributes:
        contents: What is new, as a tuple; empty for updates that carry only facts.
        role: Who speaks; None in updates that go on with the message before.
        author_name: Name of the speaker, where there are several.
        message_id: The message that this belongs to.
        response_id: The provider's id of the answer.
        model: The model that answers, as the provider names it.
        finish_reason: Set on the update that ends the answer; never invented.
        usage: Tokens so far. A later report on the same response replaces an earlier one.
        created_at: When the provider made the answer, an aware time.
        conversation_id: The conversation, where the provider keeps it.
        continuation_token: What a background answer is fetched again by.
        rate_limit_headers: `retry-after` and the rate-limit families, on the first update only.
        additional_properties: Whatever else the provider said.
        raw_representation: The provider's own event; None where an adapter does not keep it.
    """

    contents: tuple[Content, ...]
    role: Role | None
    author_name: str | None
    message_id: str | None
    response_id: str | None
    model: str | None
    finish_reason: FinishReason | str | None
    usage: Usage | None
    created_at: datetime | None
    conversation_id: str | None
    continuation_token: str | None
    rate_limit_headers: Mapping[str, str] | None
    additional_properties: Mapping[str, Any] | None
    raw_representation: object

    def __init__(
        self,
        contents: ContentsInput = (),
        *,
        role: Role | None = None,
        author_name: str | None = None,
        message_id: str | None = None,
        response_id: str | None = None,
        model: str | None = None,
        finish_reason: FinishReason | str | None = None,
        usage: Usage | None = None,
        created_at: datetime | None = None,
        conversation_id: str | None = None,
        continuation_token: str | None = None,
        rate_limit_headers: Mapping[str, str] | None = None,
        additional_properties: Mapping[str, Any] | None = None,
        raw_representation: object = None,
    ) -> None:
        self.contents = as_contents(contents)
        self.role = role
        self.author_name = author_name
        self.message_id = message_id
        self.response_id = response_id
        self.model = model
        self.finish_reason = finish_reason
        self.usage = usage
        self.created_at = created_at
        self.conversation_id = conversation_id
        self.continuation_token = continuation_token
        self.rate_limit_headers = rate_limit_headers
        self.additional_properties = additional_properties
        self.raw_representation = raw_representation

    @property
    def text(self) -> str:
        """The text contents, joined."""
        return "".join(item.text for item in self.contents if isinstance(item, TextContent))

    @property
    def has_output(self) -> bool:
        """Whether a consumer would miss this update: text, reasoning, refusal, data, a call."""
        return any(map(content_is_output, self.contents))


@dataclass(slots=True, init=False)
class ChatResponse:
    """A whole answer.

    Equality ignores `attempts`: the same answer by another way is the same answer.

    Attributes:
        messages: The messages of the answer, as a tuple; mostly one.
        response_id: The provider's id of the answer.
        model: The model that answered, as the provider names it.
        finish_reason: Why it stopped; None means that the provider did not say.
        usage: Tokens of this answer; None means unknown, not zero.
        created_at: When the provider made the answer, an aware time.
        conversation_id: The conversation, where the provider keeps it.
        continuation_token: What a background answer is fetched again by.
        attempts: What the outermost router did for it, in order; deeper routers' records are
            the `children` of these.
        rate_limit_headers: `retry-after` and the rate-limit families, lower case.
        additional_properties: Whatever else the provider said.
        raw_representation: The provider's own answer; None where an adapter does not keep it.
    """

    messages: tuple[ChatMessage, ...]
    response_id: str | None
    model: str | None
    finish_reason: FinishReason | str | None
    usage: Usage | None
    created_at: datetime | None
    conversation_id: str | None
    continuation_token: str | None
    attempts: "tuple[RoutingAttempt, ...]" = field(compare=False)
    rate_limit_headers: Mapping[str, str] | None
    additional_properties: Mapping[str, Any] | None
    raw_representation: object = field(compare=False, repr=False)

    def __init__(
        self,
        messages: str | ChatMessage | Iterable[ChatMessage] = (),
        *,
        response_id: str | None = None,
        model: str | None = None,
        finish_reason: FinishReason | str | None = None,
        usage: Usage | None = None,
        created_at: datetime | None = None,
        conversation_id: str | None = None,
        continuation_token: str | None = None,
        attempts: "Sequence[RoutingAttempt]" = (),
        rate_limit_headers: Mapping[str, str] | None = None,
        additional_properties: Mapping[str, Any] | None = None,
        raw_representation: object = None,
    ) -> None:
        """Make a response; text becomes one assistant message."""
        if isinstance(messages, str):
            messages = ChatMessage(Role.ASSISTANT, messages)
        self.messages = (messages,) if isinstance(messages, ChatMessage) else tuple(messages)
        self.response_id = response_id
        self.model = model
        self.finish_reason = finish_reason
        self.usage = usage
        self.created_at = created_at
        self.conversation_id = conversation_id
        self.continuation_token = continuation_token
        self.attempts = tuple(attempts)
        self.rate_limit_headers = rate_limit_headers
        self.additional_properties = additional_properties
        self.raw_representation = raw_representation

    @property
    def text(self) -> str:
        """The text of all messages, joined."""
        return "".join(message.text for message in self.messages)

    def with_attempts(self, attempts: "Sequence[RoutingAttempt]") -> Self:
        """Return an equal response that carries the records of a router."""
        response = type(self).__new__(type(self))
        # Field by field: `copy` goes through pickling and costs as much as a whole router.
        response.messages = self.messages
        response.response_id = self.response_id
        response.model = self.model
        response.finish_reason = self.finish_reason
        response.usage = self.usage
        response.created_at = self.created_at
        response.conversation_id = self.conversation_id
        response.continuation_token = self.continuation_token
        response.attempts = tuple(attempts)
        response.rate_limit_headers = self.rate_limit_headers
        response.additional_properties = self.additional_properties
        response.raw_representation = self.raw_representation
        return response

    @classmethod
    def from_updates(
        cls, updates: Iterable[ChatResponseUpdate], *, is_complete: bool = True
    ) -> "ChatResponse":
        """Fold the updates of one stream into the response that they describe.

        Args:
            updates: In the order of the stream; they are not changed.
            is_complete: False for a stream that broke off: tool calls that came in fragments
                then keep their text in `raw_arguments`, and their `arguments` stay empty, so
                that nobody runs half a call.
        """
        fold = _Fold()
        for update in updates:
            fold.add(update)
        return fold.response(is_complete=is_complete)

    def to_updates(self) -> tuple[ChatResponseUpdate, ...]:
        """Return updates that tell of this response: one for each message, and a last one.

        What came from a fold folds into an equal response again. Of one that was made otherwise
        the fold makes less, because updates are told apart by nothing else than what they say:
        neighbouring messages become one unless both have a role, an author name or an id in which
        they differ (so two assistant messages without ids do), neighbouring contents of one kind
        are joined, and properties of a message without an id become those of the response.
        `attempts` and `raw_representation` are in no update.
        """
        updates = [
            ChatResponseUpdate(
                message.contents,
                role=message.role,
                author_name=message.author_name,
                message_id=message.message_id,
                response_id=self.response_id,
                model=self.model,
                additional_properties=message.additional_properties,
            )
            for message in self.messages
        ]
        updates.append(
            ChatResponseUpdate(
                response_id=self.response_id,
                model=self.model,
                finish_reason=self.finish_reason,
                usage=self.usage,
                created_at=self.created_at,
                conversation_id=self.conversation_id,
                continuation_token=self.continuation_token,
                rate_limit_headers=self.rate_limit_headers,
                additional_properties=self.additional_properties,
            )
        )
        return tuple(updates)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Fold:
    __slots__ = ("drafts", "facts", "properties", "usage")

    def __init__(self) -> None:
        self.drafts: list[_Draft] = []
        self.usage = UsageFold()
        self.facts: dict[str, Any] = {}
        self.properties: dict[str, Any] = {}

    def add(self, update: ChatResponseUpdate) -> None:
        self._add_facts(update)
        self._add_message(update)

    def _add_facts(  # noqa: C901  # name by name: a loop takes three times as long
        self, update: ChatResponseUpdate
    ) -> None:
        facts = self.facts
        if update.usage is not None:
            self.usage.add(update.response_id, update.usage)
        if update.response_id:
            facts["response_id"] = update.response_id
        if update.created_at is not None and update.created_at > _EPOCH:
            facts.setdefault("created_at", update.created_at)
        # Of these the last one wins.
        if update.model is not None:
            facts["model"] = update.model
        if update.finish_reason is not None:
            facts["finish_reason"] = update.finish_reason
        if update.conversation_id is not None:
            facts["conversation_id"] = update.conversation_id
        if update.continuation_token is not None:
            facts["continuation_token"] = update.continuation_token
        if update.rate_limit_headers is not None:
            facts["rate_limit_headers"] = update.rate_limit_headers

    def _add_message(self, update: ChatResponseUpdate) -> None:
        properties = update.additional_properties
        if properties and not update.message_id:
            self.properties.update(properties)
            properties = None
        if not (update.contents or update.role or update.message_id or update.author_name):
            return
        if not self.drafts or self.drafts[-1].is_left_by(update):
            self.drafts.append(_Draft())
        draft = self.drafts[-1]
        draft.role = update.role or draft.role
        draft.author_name = update.author_name or draft.author_name
        draft.message_id = update.message_id or draft.message_id
        draft.contents.extend(update.contents)
        if properties:
            draft.properties.update(properties)

    def response(self, *, is_complete: bool) -> ChatResponse:
        return ChatResponse(
            [draft.message(is_complete=is_complete) for draft in self.drafts],
            usage=self.usage.total,
            additional_properties=self.properties or None,
            **self.facts,
        )


class _Draft:
    """A message under way."""

    __slots__ = ("author_name", "contents", "message_id", "properties", "role")

    def __init__(self) -> None:
        self.role: Role | None = None
        self.author_name: str | None = None
        self.message_id: str | None = None
        self.contents: list[Content] = []
        self.properties: dict[str, Any] = {}

    def is_left_by(self, update: ChatResponseUpdate) -> bool:
        """Say whether `update` begins another message. Going from absent to present never does."""
        return (
            _differ(self.author_name, update.author_name)
            or _differ(self.message_id, update.message_id)
            or _differ(self.role, update.role)
        )

    def message(self, *, is_complete: bool) -> ChatMessage:
        return ChatMessage(
            self.role or Role.ASSISTANT,
            tuple(coalesce(self.contents, is_complete=is_complete)),
            author_name=self.author_name,
            message_id=self.message_id,
            additional_properties=self.properties or None,
        )


def _differ(ours: str | None, theirs: str | None) -> bool:
    return bool(ours and theirs and ours != theirs)
