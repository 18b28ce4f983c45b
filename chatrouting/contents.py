"""What a message holds: text, reasoning, refusals, data, tool calls and their results.

Frozen values, safe to share between requests and tasks. Adapters turn them into what a provider
expects; nothing here knows a provider.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from chatrouting._frozen import FrozenDict, frozen


@dataclass(frozen=True, slots=True)
class TextContent:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningContent:
    """What a model thought before it answered.

    Attributes:
        text: The reasoning or its summary; empty where the provider hides it.
        signature: Opaque proof or encrypted form that the issuer wants back unchanged.
        origin: Who issued it, as the adapter names itself. An adapter sends reasoning back only
            to the provider that issued it and drops the rest.
        is_redacted: The provider hides the text; `signature` is all there is.
    """

    text: str
    signature: str | None = None
    origin: str | None = None
    is_redacted: bool = False


@dataclass(frozen=True, slots=True)
class RefusalContent:
    """The model's own words for declining."""

    text: str


@dataclass(frozen=True, slots=True)
class DataContent:
    """Bytes such as an image, a sound or a document.

    Attributes:
        data: The bytes themselves, not base64.
        media_type: Such as "image/png".
        name: File name, where the provider wants one.
    """

    data: bytes
    media_type: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class UriContent:
    """Something to be fetched by the provider.

    Attributes:
        uri: An absolute URI.
        media_type: Such as "image/png"; "image/*" if only the family is known.
    """

    uri: str
    media_type: str


@dataclass(frozen=True, slots=True)
class ToolCallContent:
    """A tool that the model wants called.

    In updates it may be a fragment: `call_id` always, `name` on the first one and "" later,
    `raw_arguments` the new text, `arguments` empty. Folding joins the fragments of one `call_id`.

    Attributes:
        call_id: Ties the call to its result.
        name: Name of the tool.
        arguments: The parsed arguments; empty when the raw text is not a JSON object.
        raw_arguments: The text as the model wrote it; None if there was none. A call whose
            `raw_arguments` is not a JSON object was cut or malformed: do not run it.
        additional_properties: Provider extras that must be sent back with the call.
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    raw_arguments: str | None = None
    additional_properties: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        # Made for each fragment of a stream: what is frozen already costs no call.
        if type(self.arguments) is not FrozenDict:
            if self.arguments is None:
                raise TypeError("arguments is None; expected a mapping, {} for no arguments.")
            object.__setattr__(self, "arguments", frozen(self.arguments))
        if self.additional_properties is not None:
            object.__setattr__(self, "additional_properties", frozen(self.additional_properties))


@dataclass(frozen=True, slots=True)
class ToolResultContent:
    """What a tool answered.

    Attributes:
        call_id: The call it answers.
        result: Text, or a tuple of contents for providers that take images and files from tools.
        is_error: The tool failed; `result` says how.
    """

    call_id: str
    result: "str | Sequence[Content]"
    is_error: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.result, str):
            object.__setattr__(self, "result", as_contents(self.result))

    @property
    def text(self) -> str:
        """The result's text parts, joined."""
        if isinstance(self.result, str):
            return self.result
        return "".join(part.text for part in self.result if isinstance(part, TextContent))


Content: TypeAlias = (
    TextContent
    | ReasoningContent
    | RefusalContent
    | DataContent
    | UriContent
    | ToolCallContent
    | ToolResultContent
)

ContentsInput: TypeAlias = str | Content | Iterable[Content | str]

_CONTENT_TYPES = (
    TextContent,
    ReasoningContent,
    RefusalContent,
    DataContent,
    UriContent,
    ToolCallContent,
    ToolResultContent,
)


def as_contents(value: ContentsInput) -> tuple[Content, ...]:
    """Return contents as a tuple: text becomes a `TextContent`, one content a tuple of one.

    Raises:
        TypeError: If `value`, or an item of it, is neither text nor content.
    """
    items: Any = value
    if type(value) is tuple:
        # The common case, for each update of each stream: nothing to convert.
        for item in items:
            if type(item) not in _CONTENT_TYPES:
                break
        else:
            return items  # type: ignore[no-any-return]  # each item was looked at
    if isinstance(value, str):
        return (TextContent(value),)
    if isinstance(value, _CONTENT_TYPES):
        return (value,)
    if not isinstance(value, Iterable) or isinstance(value, bytes):
        raise TypeError(_not_content(value))
    return tuple(_as_content(item) for item in items)


def _as_content(item: "Content | str") -> Content:
    if isinstance(item, str):
        return TextContent(item)
    if isinstance(item, _CONTENT_TYPES):
        return item
    raise TypeError(_not_content(item))


def _not_content(value: object) -> str:
    return (
        f"a message holds text or content, not {type(value).__name__}; "
        "wrap it in one of the content types of chatrouting."
    )


def content_is_output(content: Content) -> bool:
    """Say whether the consumer of a stream would miss this content.

    Empty text and empty reasoning are not output, nor is a tool call of which only the name is
    known so far: another provider may still answer instead.
    """
    if isinstance(content, TextContent | ReasoningContent):
        return content.text != ""
    if isinstance(content, ToolCallContent):
        return content.raw_arguments != "" or bool(content.arguments)
    return True
