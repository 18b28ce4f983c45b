"""Which provider misbehaves at which question, and how. Pure: a function of seed and number.

A provider's answer to a question does not depend on when it is asked, by whom or how often. So
calling it directly and calling it through a router meet the same schedule.
"""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final

from chatrouting.testing.provider_server import At, Gate, RecordedRequest, Reply


class Fault(StrEnum):
    """What a provider does to a question."""

    NONE = "none"
    RATE_LIMITED = "rate_limited"  #: 429 with Retry-After.
    SERVER_ERROR = "server_error"  #: 500.
    OVERLOADED = "overloaded"  #: In streams an error event after status 200, else a 503.
    SLOW_START = "slow_start"  #: The first word comes late.
    DROPPED = "dropped"  #: The connection closes before the first word.
    STALLED = "stalled"  #: The answer stops half-way, and the connection stays open.
    CUT_OFF = "cut_off"  #: The connection closes half-way.


#: Providers in the order in which the router asks them; how many of 100 answers go wrong, and how.
_FAULTS: Final[Mapping[str, Mapping[Fault, int]]] = {
    "openai/us-east": {
        Fault.RATE_LIMITED: 10,
        Fault.SERVER_ERROR: 6,
        Fault.OVERLOADED: 8,
        Fault.SLOW_START: 8,
        Fault.DROPPED: 4,
        Fault.STALLED: 2,
        Fault.CUT_OFF: 2,
    },
    "openai/europe": {
        Fault.RATE_LIMITED: 7,
        Fault.SERVER_ERROR: 5,
        Fault.OVERLOADED: 5,
        Fault.SLOW_START: 5,
        Fault.DROPPED: 4,
        Fault.STALLED: 2,
        Fault.CUT_OFF: 2,
    },
    "anthropic": {
        Fault.RATE_LIMITED: 5,
        Fault.SERVER_ERROR: 4,
        Fault.OVERLOADED: 10,
        Fault.SLOW_START: 3,
        Fault.DROPPED: 2,
        Fault.STALLED: 2,
        Fault.CUT_OFF: 2,
    },
}
PROVIDERS: Final = tuple(_FAULTS)

#: Seconds.
FIRST_WORD_AFTER: Final = 0.02
WORD_AFTER: Final = 0.003
SLOW_START_AFTER: Final = 0.5
RETRY_AFTER: Final = 2

#: Before this event a stream stops half-way; some words have come by then.
_HALF: Final = 6
_BUSY: Final = "Overloaded."
_NUMBER: Final = re.compile(r"question (\d+)")


def question(number: int) -> str:
    """Write a question; its number is how a provider knows it again."""
    return f"This is question {number}. What do you answer?"


def answer(number: int) -> str:
    """Write the right answer to a question, the same from every provider."""
    return f"The answer to this question is that it was number {number}."


def question_number(text: str) -> int:
    """Find the number in a question, or in whatever contains one.

    Raises:
        ValueError: If there is none.
    """
    found = _NUMBER.search(text)
    if found is None:
        raise ValueError("a text without a question's number; expected one made by question().")
    return int(found[1])


def check_answer(number: int, text: str) -> None:
    """See that an answer is whole, and the one to this question.

    Raises:
        ValueError: If it is not; then the library has a bug.
    """
    if text != answer(number):
        raise ValueError(f"question {number} was answered by {text!r}.")


def is_streamed(number: int) -> bool:
    """Say whether a question is asked for a stream; every other one is."""
    return number % 2 == 0


def fault(seed: int, provider: str, number: int) -> Fault:
    """Draw what a provider does to a question. Question 0 always goes well."""
    faults = _FAULTS[provider]
    if number == 0:
        return Fault.NONE
    drawn = random.Random(f"{seed} {provider} {number}").randrange(100)  # noqa: S311  # no secret
    for kind, share in faults.items():
        if drawn < share:
            return kind
        drawn -= share
    return Fault.NONE


def replies(seed: int, provider: str) -> Callable[[RecordedRequest], Reply]:
    """Return what a provider server asks for its answers."""

    def reply(request: RecordedRequest) -> Reply:
        number = question_number(request.raw_body.decode())
        kind = fault(seed, provider, number)
        return make_reply(kind, answer(number), provider=provider, is_streamed=request.stream)

    return reply


def make_reply(kind: Fault, text: str, *, provider: str, is_streamed: bool) -> Reply:
    """Script one answer.

    Args:
        kind: What goes wrong.
        text: What is answered, or would be.
        provider: Who answers; overload has its own status at each.
        is_streamed: The request asks for a stream.
    """
    busy = 529 if provider == "anthropic" else 503
    half_way: At = _HALF if is_streamed else "content"
    usual = Reply(text, delay_before_first_chunk=FIRST_WORD_AFTER, delay_between_chunks=WORD_AFTER)
    answers = {
        Fault.NONE: usual,
        Fault.RATE_LIMITED: Reply.error(429, message="Too fast.", retry_after=RETRY_AFTER),
        Fault.SERVER_ERROR: Reply.error(500, message="Something went wrong."),
        Fault.OVERLOADED: (
            Reply.stream_error(text, message=_BUSY)
            if is_streamed
            else Reply.error(busy, message=_BUSY)
        ),
        Fault.SLOW_START: replace(usual, delay_before_first_chunk=SLOW_START_AFTER),
        Fault.DROPPED: replace(usual, drop_at="content" if is_streamed else "headers"),
        # Nobody opens this gate: the rest never comes.
        Fault.STALLED: replace(usual, gates={half_way: Gate()}),
        Fault.CUT_OFF: replace(usual, drop_at=half_way),
    }
    return answers[kind]
