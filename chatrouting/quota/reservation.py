"""What a request holds from its admission to its end.

Settle it or let it fail, whatever becomes of the request; the first call counts and the others do
nothing. Both are plain functions: they can be called where nothing can be awaited, such as when a
stream is dropped.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from numbers import Real
from types import TracebackType
from typing import Final, Protocol, Self, cast, final

from chatrouting.quota._candidate import Candidate, Grant
from chatrouting.quota.decisions import Decision, DecisionOutcome, FundingKind
from chatrouting.quota.quote import Quote
from chatrouting.quota.reconcile import Belief, Place
from chatrouting.usage import Usage

#: More than this nobody reads or writes in one request.
_MOST_TOKENS: Final = 10**12
_NUMBERS: Final = tuple(each.name for each in fields(Usage))
#: The usual ones first: to ask `Real` takes five times as long.
_REAL: Final = (int, float, Real)


class Settler(Protocol):
    """What a reservation asks of its governor."""

    def settle(self, reservation: "Reservation", ending: "Ending", /) -> bool:
        """End it; say whether this call did."""
        ...

    def extend(self, reservation: "Reservation", /) -> None:
        """Renew its lease."""
        ...


@final
class Ending:
    """How a request ended.

    Attributes:
        usage: What the provider reported, as far as it can be believed.
        was_sent: A provider may have seen the request.
        error: What was raised; None at a good end.
        is_complete: The answer came to its end.
    """

    __slots__ = ("error", "is_complete", "usage", "was_sent")

    def __init__(
        self,
        usage: Usage | None,
        *,
        was_sent: bool = True,
        error: BaseException | None = None,
        is_complete: bool = True,
    ) -> None:
        self.usage = believable(usage)
        self.was_sent = was_sent
        self.error = error
        self.is_complete = is_complete


@final
class Reservation:
    """The holds of one admitted request. Made by a governor.

    As an async context manager it is settled at the end of the block, unless that has happened
    inside; if the block raises, it fails as sent.

    Attributes:
        decision: How it came about; complete when it is settled.
        started_at: When it was admitted, by the governor's clock.
        is_open: It is not settled yet.
        is_reclaimed: It runs on borrowed capacity, which a guarantee needs back: the client should
            stop and raise `QuotaReclaimedError`.
        expires: From when on it holds no slot unless it is extended.
        order: Its place among all that went to the scope, for what headers say.
        beliefs: What the deployment's windows counted when it was admitted.
    """

    __slots__ = (
        "_clock",
        "_settler",
        "beliefs",
        "candidate",
        "decision",
        "expires",
        "grant",
        "is_open",
        "is_reclaimed",
        "order",
        "started_at",
    )

    def __init__(
        self,
        candidate: Candidate,
        grant: Grant,
        decision: Decision,
        *,
        settler: Settler,
        clock: Callable[[], float],
        expires: float,
        order: int,
        beliefs: Mapping[Place, Belief],
    ) -> None:
        self.candidate = candidate
        self.grant = grant
        self.decision = decision
        self.started_at = decision.at
        self.is_open = True
        self.is_reclaimed = False
        self.expires = expires
        self.order = order
        self.beliefs = beliefs
        self._settler = settler
        self._clock = clock

    @property
    def id(self) -> str:
        """Of the decision."""
        return self.decision.id

    @property
    def quote(self) -> Quote:
        """What the request will probably need."""
        return self.candidate.quote

    @property
    def funding(self) -> FundingKind:
        """What pays for it."""
        return self.grant.kind

    @property
    def max_output_tokens(self) -> int | None:
        """The cap that the request must be sent with; None: its own."""
        return self.candidate.max_output_tokens

    @property
    def was_downgraded(self) -> bool:
        """Whether it was admitted with less than it asked for."""
        return self.decision.outcome is DecisionOutcome.DOWNGRADED

    @property
    def may_be_reclaimed(self) -> bool:
        """Whether it may be cut off, and has not been yet."""
        is_borrowed = self.grant.kind is FundingKind.BORROWED
        return is_borrowed and self.candidate.traffic.is_preemptible and not self.is_reclaimed

    @property
    def must_stop(self) -> bool:
        """Whether a stream must end now: reclaimed, or longer than its class may borrow for.

        To be looked at before each update.
        """
        if self.is_reclaimed:
            return True
        longest = self.candidate.traffic.borrowed_max_stream
        if longest is None or self.grant.kind is not FundingKind.BORROWED:
            return False
        return self._clock() - self.started_at > longest

    def settle(self, usage: Usage | None = None, *, is_complete: bool = True) -> bool:
        """Replace the estimate by what was used.

        Args:
            usage: What the provider reported. What it does not say stays estimated.
            is_complete: False if the answer was broken off; then its length teaches nothing.

        Returns:
            Whether this call settled it.
        """
        return self._settler.settle(self, Ending(usage, is_complete=is_complete))

    def fail(
        self,
        error: BaseException | None = None,
        *,
        sent: bool = True,
        usage: Usage | None = None,
    ) -> bool:
        """Give back what a failed request did not use.

        Args:
            error: What was raised. An answer of the provider's with an error status used no
                tokens; what a timeout or a broken connection used nobody knows, so that the
                estimate stays. A refusal for want of quota closes the scope as long as it says.
            sent: False if no provider has seen the request; then all of it is given back.
            usage: What was used all the same, as far as it is known.

        Returns:
            Whether this call settled it.
        """
        ending = Ending(usage, was_sent=sent, error=error, is_complete=False)
        return self._settler.settle(self, ending)

    def extend(self) -> None:
        """Say that the request still runs; to be called more often than the lease lasts."""
        self._settler.extend(self)

    def ends_in(self, now: float) -> float:
        """Return the seconds after which it will probably have ended; at least 0."""
        if self.is_reclaimed:
            return 0.0
        duration = self.candidate.quote.duration.value
        return max(0.0, self.started_at + duration - now) if duration < math.inf else math.inf

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.settle()
        else:
            self.fail(error)


def believable(usage: object) -> Usage | None:
    """Leave out what no request can use: what a provider or a client says may be anything."""
    if not isinstance(usage, Usage):
        return None
    wrong = {name: None for name in _NUMBERS if not _is_believable(getattr(usage, name))}
    return replace(usage, **wrong) if wrong else usage


def _is_believable(tokens: object) -> bool:
    if tokens is None:
        return True
    is_number = isinstance(tokens, _REAL) and not isinstance(tokens, bool)
    return is_number and 0 <= cast("float", tokens) <= _MOST_TOKENS
