"""What a pool remembers of one endpoint while it runs, and what one attempt holds of it.

State only. `health.py` changes it, `selection.py` reads it, both under the pool's lock.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from chatrouting.failure import FailureKind
from chatrouting.pool.affinity import hash_text
from chatrouting.pool.endpoint import Endpoint
from chatrouting.pool.windows import RateBudget

#: Gives random numbers from 0 up to 1, as `random.random` does.
Chance: TypeAlias = Callable[[], float]

NEVER: Final = -math.inf
BLOCKED: Final = math.inf


@final
class Member:
    """One endpoint of a pool.

    Ends of rests are times of the pool's clock; `NEVER` for a rest that never was.

    Attributes:
        endpoint: What it is.
        share: Its weight beside the members of its tier.
        mates: The members that share its limits, itself included.
        budget: What it may still be sent by its declared limits; None if nobody counts.
        throttled_until: Rest after it refused for want of quota.
        faulted_until: Rest after it failed or could not be reached.
        parked_until: Rest for what only a person mends.
        hinted_until: Until when the server itself asked to be left alone.
        parked_for: Why it is parked.
        consecutive_429s: Refusals without a streak of successes since.
        consecutive_faults: Failures likewise.
        parkings: How often it was parked without a success since.
        success_streak: Successes without a failure since.
        epoch: Counts its failures: an attempt that began in an earlier epoch says little.
        in_flight: Attempts that run.
        probes: Those of them that try whether it is well again.
        needs_probe: It has to show that it is well again.
        on_trial: It failed again when it was tried, and has not answered since.
        set_aside_until: While it is on trial: others are asked first until then.
        turn: Likewise: the attempt of the pool, by number, with which it is to be tried again.
        seed: Tells it apart from others where keys are hashed.
        reopened_at: When it came or comes back, for slow start.
        open_at: When it may be asked; `BLOCKED` until an attempt gives back its slot. Kept by
            `refresh`, so that selection looks at one number.
        latency: Peak-sensitive moving average of what it takes to the first output, in seconds.
        latency_at: When `latency` was last changed.
    """

    __slots__ = (
        "_probe_limit",
        "budget",
        "consecutive_429s",
        "consecutive_faults",
        "endpoint",
        "epoch",
        "faulted_until",
        "hinted_until",
        "in_flight",
        "is_limited",
        "latency",
        "latency_at",
        "mates",
        "needs_probe",
        "on_trial",
        "open_at",
        "parked_for",
        "parked_until",
        "parkings",
        "probes",
        "reopened_at",
        "seed",
        "set_aside_until",
        "share",
        "success_streak",
        "throttled_until",
        "turn",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        probe_limit: int | None = None,
        budget: RateBudget | None = None,
    ) -> None:
        """Begin with a member that is well; `probe_limit` is how many may probe it at a time."""
        self.endpoint = endpoint
        self.seed = hash_text(endpoint.id)
        self._probe_limit = probe_limit
        self.budget = budget
        self.is_limited = endpoint.max_concurrency is not None
        self.share = 1.0
        self.mates: tuple[Member, ...] = (self,)
        self.throttled_until = self.faulted_until = NEVER
        self.parked_until = self.hinted_until = NEVER
        self.parked_for: FailureKind | None = None
        self.consecutive_429s = self.consecutive_faults = self.parkings = 0
        self.success_streak = self.epoch = 0
        self.in_flight = self.probes = 0
        self.needs_probe = self.on_trial = False
        self.set_aside_until = NEVER
        self.turn = 0
        self.reopened_at = self.open_at = NEVER
        self.latency: float | None = None
        self.latency_at = NEVER

    @property
    def cooldown_until(self) -> float:
        """When its rest ends, if parking is left out of account."""
        return max(self.throttled_until, self.faulted_until, self.hinted_until)

    @property
    def is_blocked(self) -> bool:
        """No slot is free: for attempts at all, or for those that probe."""
        limit = self.endpoint.max_concurrency
        if limit is not None and self.in_flight >= limit:
            return True
        return (
            self.needs_probe and self._probe_limit is not None and self.probes >= self._probe_limit
        )

    @property
    def free_at(self) -> float:
        """When it may be asked if there is nobody better; `BLOCKED` as for `open_at`."""
        return BLOCKED if self.is_blocked else max(self.cooldown_until, self.parked_until)

    def refresh(self) -> None:
        """Bring `open_at` up to date."""
        self.open_at = max(self.free_at, self.set_aside_until)


@final
class Ticket:
    """What one attempt holds of a member, from the choice until it is given back.

    Filled in by `Health.begin`: a constructor would be a twelfth of the choice.

    Attributes:
        endpoint: The chosen endpoint.
        member: Its state; the pool's business.
        epoch: The member's, when the attempt began.
        is_probe: It tries whether the member is well again.
        is_open: It was not given back yet.
    """

    endpoint: Endpoint
    member: Member
    epoch: int
    is_probe: bool
    is_open: bool

    __slots__ = ("endpoint", "epoch", "is_open", "is_probe", "member")

    @property
    def holds_slot(self) -> bool:
        """Somebody may wait for what it holds."""
        return self.is_probe or self.member.is_limited


@final
@dataclass(frozen=True, slots=True)
class Cooling:
    """No member is ready, or none that is worth asking.

    Attributes:
        endpoint: The one that is ready first.
        wait: Seconds until then; infinity if it takes an attempt that ends.
        is_busy: A member may be ready earlier, as soon as an attempt ends.
        is_choice: Others are ready, but waiting for this one is better.
        changes: Counts what waiters wait for, so that none of it is missed.
    """

    endpoint: Endpoint
    wait: float
    is_busy: bool
    is_choice: bool = False
    changes: int = 0
