"""A request at one deployment, as the governor sees it while it decides. Values only."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

from chatrouting.quota._waiters import Waiter
from chatrouting.quota.assured import Funding
from chatrouting.quota.decisions import BucketLevel, FundingKind, Limiter
from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.ledger import Denial, Hold
from chatrouting.quota.limits import BucketKey
from chatrouting.quota.line import Waiting
from chatrouting.quota.quote import Quote
from chatrouting.quota.ticket import AdmissionTicket


class Grant(NamedTuple):
    """What an admitted request holds.

    Attributes:
        own: In the buckets of its principal and model profile; empty if its ticket has paid.
        ticket: Whose charge it uses until it is settled; None if it pays for itself.
        at_scope: In the deployment's; None if that is only watched, and has no room.
        funding: What pays for it there; None if nobody has a guarantee there.
        kind: The same, for records.
        unenforced: What a limit that is only watched would have said; None if it had room.
        before: What the windows counted before, if that is kept.
    """

    own: tuple[Hold, ...]
    ticket: AdmissionTicket | None
    at_scope: Hold | None
    funding: Funding | None
    kind: FundingKind
    unenforced: Denial | None
    before: tuple[BucketLevel, ...]

    def holds(self) -> tuple[Hold, ...]:
        """Return all of them."""
        return self.own if self.at_scope is None else (*self.own, self.at_scope)


@final
@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request does not fit.

    Attributes:
        limiter: What binds.
        wait: Seconds until it fits if nothing else happens; infinity if that cannot be told.
        key: The bucket that binds; None if it is no bucket's limit.
        is_too_large: It never fits.
        is_slot: It waits for something that is held, and not for time to pass.
        at: When that was found.
        is_whole: `wait` is the longest that anything asks for, and not only what was found first.
    """

    limiter: Limiter
    wait: float
    key: BucketKey | None = None
    is_too_large: bool = False
    is_slot: bool = False
    at: float = -math.inf
    is_whole: bool = False


@final
@dataclass(eq=False, slots=True, kw_only=True)
class Candidate(Waiting):
    """One request at one deployment.

    Attributes:
        deployment: Where it would go.
        quote: What it will probably need.
        charges: The same, as the deployment's bucket reads it.
        own_charges: The same, as the principal's buckets do.
        costs: What the deployment charges for it.
        own_keys: The principal's buckets, and the model profile's.
        watched_keys: Those of them that are only watched.
        ticket: The request that it is part of.
        max_output_tokens: A lower cap than its own; None if that stays.
        downgraded_from: The deployment whose place this one takes; None if it was asked for.
        grant: What it was given while it stood in the line.
        waiter: Who is told of that; None if nobody waits.
        refusal: Why it did not fit when it was looked at last.
        has_reclaimed: It has asked for a slot back.
    """

    deployment: QuotaDeployment
    quote: Quote
    charges: Mapping[str, float]
    own_charges: Mapping[str, float]
    costs: Mapping[str, float]
    own_keys: tuple[BucketKey, ...]
    watched_keys: tuple[BucketKey, ...]
    ticket: AdmissionTicket
    max_output_tokens: int | None = None
    downgraded_from: str | None = None
    grant: Grant | None = None
    waiter: Waiter | None = None
    refusal: Refusal | None = None
    has_reclaimed: bool = False

    def tell_apart(self, is_enforced: Callable[[BucketKey], bool]) -> None:
        """Find out anew which of its buckets are only watched."""
        keys = (*self.own_keys, *self.watched_keys)
        self.own_keys = tuple(key for key in keys if is_enforced(key))
        self.watched_keys = tuple(key for key in keys if not is_enforced(key))
