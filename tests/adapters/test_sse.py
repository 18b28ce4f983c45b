"""Splitting a body into server-sent events."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.adapters._sse import SSEDecoder

BODY = (
    ": comment\n\n"
    'event: first\ndata: {"a":\ndata: 1}\n\n'
    "data:no space\n\n"
    "data:  two spaces\r\n\r\n"
    "id: 7\nretry: 3\nunknown\ndata: grüße 🎈\r\r"
    "event: empty\n\n"
    "event: last\r\ndata: x:y\r\n\r\n"
    "data: cut off"
)
EVENTS = [
    ("first", '{"a":\n1}'),
    ("", "no space"),
    ("", " two spaces"),
    ("", "grüße 🎈"),
    ("last", "x:y"),
]


def decode(pieces: list[bytes]) -> list[tuple[str, str]]:
    decoder = SSEDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


def test_a_body_in_one_piece_gives_its_whole_events():
    """CRLF and CR, several data lines, comments, no space, and a tail without its blank line."""
    assert decode([BODY.encode()]) == EVENTS


def test_bytes_one_by_one_give_the_same_events():
    """Splits inside a line end and inside a UTF-8 character do not matter."""
    assert decode([bytes([byte]) for byte in BODY.encode()]) == EVENTS


@given(st.lists(st.integers(0, len(BODY.encode())), max_size=8))
def test_wherever_a_body_is_cut_the_events_are_the_same(cuts):
    raw = BODY.encode()
    edges = [0, *sorted(cuts), len(raw)]
    assert decode([raw[a:b] for a, b in pairwise(edges)]) == EVENTS


def test_a_byte_order_mark_is_skipped():
    assert decode(["\ufeffdata: 1\n\n".encode()]) == [("", "1")]


def test_a_carriage_return_at_the_end_of_a_piece_ends_its_line():
    decoder = SSEDecoder()
    assert decoder.feed(b"data: 1\r\n\r") == [("", "1")]
    assert decoder.feed(b"\ndata: 2\n\n") == [("", "2")]


@pytest.mark.parametrize("before", [[], [b"data: 1\n\n"]], ids=["at first", "after an event"])
def test_what_is_not_utf_8_raises(before):
    with pytest.raises(UnicodeDecodeError):
        decode([*before, b"data: \xff\n\n"])


@given(
    st.lists(
        st.sampled_from(
            [
                "data: 1\n\n",
                "event: named\ndata: grüße\n\n",
                "data: one\ndata: two\n\n",
                "event: empty\n\n",
                "data:\n\n",
                "event:named\ndata: 2\n\n",
                "data: cr\rin it\n\n",
                ": ping\n\n",
                "\n",
                "data: half",
            ]
        ),
        max_size=6,
    )
)
def test_events_that_come_together_are_the_same_as_byte_by_byte(blocks):
    """How many events a piece holds makes no difference, whatever their lines are."""
    raw = "".join(blocks).encode()
    assert decode([raw]) == decode([bytes([byte]) for byte in raw])
    assert decode([block.encode() for block in blocks]) == decode([raw])
