"""What a request counts besides its text: messages, tools and media, by family of tokenizer.

Values only. The numbers are starting points: what a family really counts is learnt from the usage
that it reports.
"""

from dataclasses import dataclass
from typing import Final, final

from chatrouting.quota._checks import check_kind, check_number, check_text
from chatrouting.quota.media import MediaRule


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """How a family of models counts what surrounds the text.

    Attributes:
        family: Requests of one family share what is learnt about them.
        per_piece: Tokens of a word, number or sign, by `request_text`.
        per_message: Tokens of a message's frame and role.
        per_reply: Tokens that begin the answer.
        per_tool: Tokens of a tool's frame, its schema apart.
        with_tools: Tokens that come once, as soon as there are tools.
        media: Images, sounds and documents.
    """

    family: str
    per_piece: float = 1.0
    per_message: int = 4
    per_reply: int = 3
    per_tool: int = 8
    with_tools: int = 12
    media: MediaRule

    def __post_init__(self) -> None:
        check_text("family of token rules", self.family)
        of_this = f"of the token rules of {self.family!r}"
        check_number(f"per_piece {of_this}", self.per_piece, above=0)
        for name in ("per_message", "per_reply", "per_tool", "with_tools"):
            check_number(f"{name} {of_this}", getattr(self, name))
        check_kind(f"media {of_this}", self.media, MediaRule, "a MediaRule")


OPENAI: Final = TokenRules(
    family="openai",
    media=MediaRule(
        image_base=85,
        image_tile=512,
        tile_tokens=170,
        longest_edge=2048,
        shortest_edge=768,
        image_maximum=1445,
        audio_second=10,
        document_page=2_000,
    ),
)
ANTHROPIC: Final = TokenRules(
    family="anthropic",
    per_piece=1.2,
    # The system text that tells the model how to call tools.
    with_tools=346,
    media=MediaRule(
        image_base=0,
        image_tile=28,
        tile_tokens=1,
        longest_edge=1568,
        shortest_edge=1568,
        image_maximum=1_600,
        audio_second=32,
        document_page=3_000,
    ),
)
GEMINI: Final = TokenRules(
    family="gemini",
    media=MediaRule(
        image_base=0,
        image_tile=768,
        tile_tokens=258,
        longest_edge=3072,
        shortest_edge=3072,
        image_maximum=16 * 258,
        audio_second=32,
        document_page=258,
    ),
)
#: Of a family that nothing is known about; media are taken for large.
GENERIC: Final = TokenRules(
    family="generic",
    per_piece=1.1,
    media=MediaRule(
        image_base=85,
        image_tile=28,
        tile_tokens=1,
        longest_edge=2048,
        shortest_edge=2048,
        image_maximum=4_096,
        audio_second=32,
        document_page=3_000,
    ),
)
