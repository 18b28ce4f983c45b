"""Tokens of images, sounds and documents."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.contents import DataContent, UriContent
from chatrouting.quota.media import MediaRule, Size, image_size

RULE = MediaRule(
    image_base=85,
    image_tile=512,
    tile_tokens=170,
    longest_edge=2048,
    shortest_edge=768,
    image_maximum=1445,
    audio_second=10,
    document_page=2_000,
)
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480)
GIF = b"GIF89a" + struct.pack("<HH", 640, 480)
JPEG = (
    b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"\0" * 14
    + b"\xff\xc4" + struct.pack(">H", 4) + b"\0\0"
    + b"\xff\xc2" + struct.pack(">HBHH", 17, 8, 480, 640)
)  # fmt: skip
WEBP = b"RIFF\0\0\0\0WEBP"
LOSSY = WEBP + b"VP8 " + b"\0" * 10 + struct.pack("<HH", 640, 480)
LOSSLESS = WEBP + b"VP8L" + b"\0" * 5 + struct.pack("<I", 639 | 479 << 14)
EXTENDED = WEBP + b"VP8X" + b"\0" * 8 + b"\x7f\x02\0\xdf\x01\0"


@pytest.mark.parametrize(
    "data",
    [PNG, GIF, JPEG, LOSSY, LOSSLESS, EXTENDED],
    ids=["png", "gif", "jpeg", "webp", "webp lossless", "webp extended"],
)
def test_the_size_of_an_image_is_in_its_first_bytes(data):
    """[quota R17] Nothing is decoded."""
    assert image_size(data + b"rest" * 9) == Size(640, 480)


@pytest.mark.parametrize(
    "data",
    [b"", b"BM..", PNG[:20], JPEG[:24], b"\xff\xd8", WEBP, WEBP + b"ABCD" + b"\0" * 20, PNG[:16]
     + b"\0" * 8, EXTENDED[:25]],
)  # fmt: skip
def test_an_image_that_cannot_be_read_has_no_size(data):
    assert image_size(data) is None


@given(st.sampled_from([PNG[:8], GIF[:6], JPEG[:2], WEBP + b"VP8X", b""]), st.binary(max_size=60))
def test_no_image_makes_the_reader_raise(magic, rest):
    size = image_size(magic + rest)
    assert size is None or min(size) > 0
    assert 0 < RULE.image(size) <= RULE.image_maximum


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        pytest.param(Size(512, 512), 85 + 170, id="one tile"),
        pytest.param(Size(1024, 1024), 85 + 4 * 170, id="down to 768 by 768"),
        pytest.param(Size(2048, 4096), 85 + 6 * 170, id="down to 1024 by 2048, then 768 by 1536"),
        pytest.param(Size(1, 1), 85 + 170, id="a pixel"),
        pytest.param(None, 1445, id="unknown is the most"),
    ],
)
def test_an_image_is_counted_by_tile(size, tokens):
    """[quota R17]"""
    assert RULE.image(size) == tokens


def test_contents_are_counted_by_their_kind():
    """[quota R17] What cannot be looked at is taken for large."""
    wav = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHII", 16, 1, 1, 8_000, 16_000)
    wav += b"\0" * (32_000 - len(wav))
    pdf = b"%PDF /Type /Pages /Type /Page /Type/Page >>"
    contents = [
        (DataContent(PNG, "image/png"), 85 + 2 * 170),
        (UriContent("https://example.org/a.png", "image/*"), 1445),
        (DataContent(wav, "audio/wav"), 20),
        (DataContent(b"\0" * 8_000, "audio/mpeg"), 20),
        (UriContent("https://example.org/a.mp3", "audio/mpeg"), 600),
        (DataContent(pdf, "application/pdf"), 4_000),
        (DataContent(b"\0" * 50_000, "application/pdf"), 6_000),
        (DataContent(b"", "application/pdf"), 2_000),
        (UriContent("https://example.org/a.pdf", "application/pdf"), 20_000),
    ]
    assert [RULE.tokens(content) for content, _ in contents] == [most for _, most in contents]
