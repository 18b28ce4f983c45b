"""From an answer to steps on the connection: pauses, writes, a drop. Pure; knows no provider.

Every kind of timing and misbehaviour of a stream is decided in `stream_steps`, on a list of events.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from chatrouting.testing._reply import At, Gate, Reply
from chatrouting.testing._turn import Event

_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Write:
    """Send bytes."""

    data: bytes
    events: int = 0  #: How many events are complete with these bytes.


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for a gate or for some seconds, with pings if there is a period."""

    gate: Gate | None = None
    seconds: float = 0.0
    ping: bytes = b""
    ping_period: float | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection, in the middle of the answer."""

    reset: bool


Step: TypeAlias = Write | Pause | Drop


def whole_steps(reply: Reply, head: bytes, body: bytes) -> list[Step]:
    """Plan an answer with a body of known length."""
    before = _before_headers(reply)
    if reply.drop_at == "headers":
        return [*before, _drop(reply)]
    between = [
        *_sleep(reply.delay_before_first_chunk),
        *(Pause(gate=gate) for at, gate in reply.gates.items() if at != "headers"),
    ]
    if reply.drop_at is not None:
        return [*before, Write(head), *between, Write(body[: len(body) // 2]), _drop(reply)]
    if between:
        return [*before, Write(head), *between, Write(body)]
    return [*before, Write(head + body)]


def stream_steps(
    reply: Reply,
    head: bytes,
    events: Sequence[Event],
    *,
    ping: bytes,
    error: Event | None,
) -> list[Step]:
    """Plan an answer in chunks, one event after the other.

    Args:
        reply: Where to pause, to insert, to fail and to end.
        head: Status line and headers.
        events: The events of a complete, well-behaved answer.
        ping: An event without meaning.
        error: What stands in place of the rest at `reply.error_at`.
    """
    before = _before_headers(reply)
    if reply.drop_at == "headers":
        return [*before, _drop(reply)]
    return [*before, Write(head), *_Walk(reply, events, ping, error).steps()]


class _Walk:
    """One pass over the events of a stream; a place is a number, `len(events)` is the end."""

    def __init__(
        self, reply: Reply, events: Sequence[Event], ping: bytes, error: Event | None
    ) -> None:
        self._reply = reply
        self._events = events
        self._places = _places(events)
        self._ping = frame(ping)
        self._error = error
        self._steps: list[Step] = []

    def steps(self) -> list[Step]:
        """Walk until something ends the stream."""
        reply = self._reply
        for place, event in enumerate(self._events):
            self._arrive(place)
            if self._is(reply.drop_at, place):
                return [*self._steps, _drop(reply)]
            if self._error is not None and self._is(reply.error_at, place):
                self._fail(self._error)
                break
            if self._is(reply.end_at, place):
                break
            if event.mark not in reply.omit:
                self._write(event)
        return self._end()

    def _arrive(self, place: int) -> None:
        """Do what comes before the event at a place."""
        reply = self._reply
        between = 0 < place < len(self._events)
        if place == 0:
            self._pause(_sleep(reply.delay_before_first_chunk))
        elif between:
            self._pause(_sleep(reply.delay_between_chunks))
        self._pause([Pause(gate=gate) for at, gate in reply.gates.items() if self._is(at, place)])
        if between and reply.pings:
            self._steps.append(Write(self._ping))
        for at, raw in reply.insert.items():
            if self._is(at, place):
                data = raw.encode() if isinstance(raw, str) else raw
                self._write(Event(None, "", raw=data))

    def _fail(self, error: Event) -> None:
        self._write(error)
        # Chat servers that put errors into chunks go on to [DONE]; elsewhere the error is the end.
        if self._reply.error_shape in {"chunk", "finish"}:
            self._write(self._events[-1])

    def _end(self) -> list[Step]:
        self._arrive(len(self._events))
        if self._is(self._reply.drop_at, len(self._events)):
            return [*self._steps, _drop(self._reply)]
        if self._reply.keep_open:
            self._pause([Pause(gate=Gate())])
        return _append_write(self._steps, _LAST_CHUNK)

    def _write(self, event: Event) -> None:
        data = event.encode(names=self._reply.event_names, line_end=self._reply.line_end)
        size = self._reply.write_size or len(data) or 1
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        self._steps.extend(
            Write(frame(piece), events=int(number == len(pieces)))
            for number, piece in enumerate(pieces, start=1)
        )

    def _pause(self, pauses: Sequence[Pause]) -> None:
        period = self._reply.ping_period
        self._steps.extend(Pause(one.gate, one.seconds, self._ping, period) for one in pauses)

    def _is(self, at: At | None, place: int) -> bool:
        if at is None or at == "headers":
            return False
        named = min(at, len(self._events)) if isinstance(at, int) else self._places[at]
        return named == place


def _places(events: Sequence[Event]) -> Mapping[str, int]:
    """Find the named places; without output the answer is "after content" before it finishes."""
    marks = [event.mark for event in events]
    first = {mark: place for place, mark in reversed(list(enumerate(marks)))}
    last = {mark: place for place, mark in enumerate(marks)}
    terminal = first.get("terminal", len(events))
    finish = first.get("finish", terminal)
    return {
        "content": first.get("content", finish),
        "after_content": last["content"] + 1 if "content" in last else finish,
        "terminal": terminal,
        "end": len(events),
    }


def frame(data: bytes) -> bytes:
    """Write one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _before_headers(reply: Reply) -> list[Pause]:
    gates = [Pause(gate=gate) for at, gate in reply.gates.items() if at == "headers"]
    return [*_sleep(reply.delay_before_headers), *gates]


def _sleep(seconds: float) -> list[Pause]:
    return [Pause(seconds=seconds)] if seconds else []


def _drop(reply: Reply) -> Drop:
    return Drop(reset=reply.drop == "reset")


def _append_write(steps: list[Step], data: bytes) -> list[Step]:
    """Send with the last write if nothing stands between.

    So a client that stops reading after the last event has always been sent the end of the body.
    """
    last = steps[-1] if steps else None
    if isinstance(last, Write):
        return [*steps[:-1], Write(last.data + data, last.events)]
    return [*steps, Write(data)]
