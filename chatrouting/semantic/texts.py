"""Which text of a conversation a semantic router goes by."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from chatrouting.messages import ChatMessage, Role
from chatrouting.semantic._checks import check_count

#: Looking a member up takes Python 3.11 longer than the whole comparison.
_USER: Final = Role.USER

#: Returns the text to embed; None or blank text mean that there is none.
TextExtractor: TypeAlias = Callable[[Sequence[ChatMessage]], str | None]


def last_user_text(messages: Sequence[ChatMessage]) -> str | None:
    """Return the text of the last message of the user, None if the user said nothing."""
    for message in reversed(messages):
        if message.role is _USER:
            return message.text
    return None


def last_user_texts(count: int) -> TextExtractor:
    """Make an extractor of the texts of the user's last `count` messages, the oldest first.

    For conversations in which "and the second one?" says nothing by itself. Answers are left out:
    they are long, and would outweigh the questions.

    Raises:
        ConfigurationError: If `count` is less than 1.
    """
    check_count("count", count)

    def extract(messages: Sequence[ChatMessage]) -> str:
        said = [message.text for message in messages if message.role is Role.USER]
        return "\n".join(text for text in said[-count:] if text.strip())

    return extract
