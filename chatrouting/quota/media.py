"""What images, sounds and documents count in tokens, by each provider family's rule.

The size of an image is read from its first bytes; nothing is decoded. Where a size cannot be known,
a URI above all, the most that the family counts is taken.
"""

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from chatrouting.contents import DataContent, UriContent
from chatrouting.quota._checks import check_number

#: Bytes a second of compressed speech; less than common, so that no sound is taken for short.
_AUDIO_BYTES: Final = 4_000
_WAV_HEADER: Final = 32
_PAGE: Final = re.compile(rb"/Type\s*/Page\b(?!s)")
#: A document whose pages are packed shows none; so many bytes are one page then.
_PAGE_BYTES: Final = 20_000


class Size(NamedTuple):
    """Of an image, in pixels."""

    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRule:
    """How a provider family counts what is not text.

    An image is scaled down until it fits, cut into tiles, and counted by tile.

    Attributes:
        image_base: Tokens of any image.
        image_tile: Edge of a tile, pixels.
        tile_tokens: Tokens of a tile.
        longest_edge: An image is scaled down to this, pixels.
        shortest_edge: After that its shorter edge is scaled down to this.
        image_maximum: Tokens that no image exceeds.
        audio_second: Tokens of a second of sound.
        document_page: Tokens of a page, text and picture together.
    """

    image_base: int
    image_tile: float
    tile_tokens: int
    longest_edge: int
    shortest_edge: int
    image_maximum: int
    audio_second: float
    document_page: int

    def __post_init__(self) -> None:
        for name in ("image_tile", "longest_edge", "shortest_edge"):
            check_number(f"{name} of a media rule", getattr(self, name), above=0)
        for name in (
            "image_base",
            "tile_tokens",
            "image_maximum",
            "audio_second",
            "document_page",
        ):
            check_number(f"{name} of a media rule", getattr(self, name))

    def image(self, size: Size | None) -> int:
        """Return the tokens of an image; None for a size that is not known."""
        if size is None:
            return self.image_maximum
        scale = min(1.0, self.longest_edge / max(size))
        scale *= min(1.0, self.shortest_edge / (min(size) * scale))
        tiles = math.prod(math.ceil(edge * scale / self.image_tile) for edge in size)
        return min(self.image_maximum, self.image_base + tiles * self.tile_tokens)

    def tokens(self, content: DataContent | UriContent) -> int:
        """Return the tokens of a content, by its media type."""
        family = content.media_type.partition("/")[0]
        data = content.data if isinstance(content, DataContent) else None
        if family == "image":
            return self.image(image_size(data) if data is not None else None)
        if family == "audio":
            seconds = 60.0 if data is None else _audio_seconds(data)
            return math.ceil(seconds * self.audio_second)
        return self.document_page * (10 if data is None else _pages(data))


def image_size(data: bytes) -> Size | None:
    """Read the size of a PNG, GIF, JPEG or WebP; None if it is none of them or has no area."""
    for magic, read in _READERS:
        if data.startswith(magic):
            try:
                size = read(data)
            except (struct.error, IndexError):
                return None
            return size if size is not None and min(size) > 0 else None
    return None


def _png(data: bytes) -> Size:
    return Size(*struct.unpack_from(">II", data, 16))


def _gif(data: bytes) -> Size:
    return Size(*struct.unpack_from("<HH", data, 6))


def _jpeg(data: bytes) -> Size | None:
    """Walk the segments up to the one that begins the frame."""
    place = 2
    while place < len(data):
        marker = data[place + 1]
        if _is_frame(marker):
            height, width = struct.unpack_from(">HH", data, place + 5)
            return Size(width, height)
        (length,) = struct.unpack_from(">H", data, place + 2)
        place += 2 + length
    return None


def _is_frame(marker: int) -> bool:
    """Say whether a segment begins a frame: SOF0 to SOF15, without DHT, JPG and DAC."""
    return 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)  # noqa: PLR2004


def _webp(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return Size(width & 0x3FFF, height & 0x3FFF)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return Size((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8X":
        edges = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return Size(*edges) if len(data) >= 30 else None  # noqa: PLR2004  # the header's length
    return None


_READERS: Final[tuple[tuple[bytes, Callable[[bytes], Size | None]], ...]] = (
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"GIF8", _gif),
    (b"\xff\xd8", _jpeg),
    (b"RIFF", _webp),
)


def _audio_seconds(data: bytes) -> float:
    rate = _AUDIO_BYTES
    if data.startswith(b"RIFF") and len(data) >= _WAV_HEADER:
        (rate,) = struct.unpack_from("<I", data, 28)
    return len(data) / max(1, rate)


def _pages(data: bytes) -> int:
    return len(_PAGE.findall(data)) or max(1, math.ceil(len(data) / _PAGE_BYTES))
