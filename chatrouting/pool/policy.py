"""How a pool treats its members, as one frozen value.

Three presets. `PoolPolicy()` does what the README of TypeAgent's `aiclient` says, without the
faults that nobody would miss; `PoolPolicy.resilient()` adds what contradicts that README's words
and is better for it; `PoolPolicy.typeagent()` has the faults as well, to compare with.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias, final, get_args

from chatrouting.errors import ConfigurationError
from chatrouting.policies.backoff import ExponentialBackoff
from chatrouting.pool._checks import check_number, check_whole
from chatrouting.pool.faults import FaultClassifier, judge, judge_as_typeagent

Strategy: TypeAlias = Literal["random", "weighted", "p2c", "affinity"]
MemberFault: TypeAlias = Literal["raise", "raise_and_park", "rotate"]
WhenAllCooling: TypeAlias = Literal["wait", "raise", "try_soonest"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """What is done with members that fail, and which of the others is asked.

    Times are seconds. None switches a limit or a feature off.

    Attributes:
        base_cooldown: A throttled member rests this long, and
        backoff_factor: so many times longer after each further time, up to
        max_backoff: this. The server's hint counts if it is longer, up to
        max_retry_after: this.
        success_streak: So many successes in a row make the next rest short again.
        transient_cooldown: A member that failed rests this long.
        max_transient_cooldown: It rests `backoff_factor` times longer after each further failure
            without a streak of successes between, up to this. None: always the same.
        trial_share: A member that failed twice running, or that `max_ejection` keeps from resting,
            is tried again by at most this part of the requests, as long as others are ready.
        cooldown_jitter: Rests are longer by a random part, up to this one.
        honour_retry_after_on: Statuses whose hints count.
        epochs: What began before a member's last failure neither counts as another failure nor as
            a success since, and no rest is shortened by a later one.
        quota_groups: Members that share a limit rest together when one of them is throttled.
        member_fault: What a wrong key, right or deployment does. "raise": only fail the request.
            "raise_and_park": also leave the member out for a while. "rotate": leave it out, and
            ask another member.
        member_fault_cooldown: How long it is left out; doubled each time, up to
        member_fault_max: this.
        ptu_exact_hint: Members with reserved throughput rest as long as the server's hint says.
        ptu_grace: Rather than turn to a lower tier, wait this long for reserved throughput.
        strategy: Who of the ready members of a tier is asked. "random": any. "weighted": any, in
            proportion. "p2c": the better of two, by latency and load. "affinity": always the same
            for the same key.
        affinity_bound: By affinity, a member carries at most so many times the mean load.
        latency_decay: Latencies older than this count little.
        prefer_regions: Regions whose members are asked first, in order, within a tier.
        allow_regions: Members of other regions, or of an unknown one, are never asked.
        enforce_tpm: Pass over a member whose declared limit is used up by our own estimates, as
            long as there is another one in the tier.
        prefer_headroom: Pass over members whose clients say that they have less than half as much
            room as another one that is ready, such as clients under a quota; see
            `chatrouting.admission.HeadroomSource`. For chats.
        slow_start: A member that comes back gets its full share only after this time.
        slow_start_min: The part of its share that it gets at first.
        probe_concurrency: A member that comes back from a failure is asked by so many at a time
            until one attempt succeeded.
        max_ejection: Failures may leave out at most this part of the members, but always one.
        panic: If failures left out all members, ask the one that would be back first.
        total_budget: How long one request may try, waits included.
        max_attempts: How often one request may try.
        max_attempts_per_member: Likewise, times the number of members.
        when_all_cooling: What a request does if no member is ready. "try_soonest" asks the one
            that would be back first, unless the server itself said when to come back.
        wake_jitter: Requests that wait for one member ask it spread over this time for each of
            them, or as its answers come: two for each.
        retry_budget: Further attempts may be this part of the recent requests, plus 10 a second.
        stream_idle_timeout: The longest pause between two pieces of a stream.
        classify: Judges what an attempt raised.
    """

    base_cooldown: float = 2.0
    backoff_factor: float = 2.0
    max_backoff: float = 120.0
    max_retry_after: float = 120.0
    success_streak: int = 3
    transient_cooldown: float = 5.0
    max_transient_cooldown: float | None = None
    trial_share: float | None = None
    cooldown_jitter: float = 0.0
    honour_retry_after_on: Collection[int] = (429, 503, 529)
    epochs: bool = True
    quota_groups: bool = True
    member_fault: MemberFault = "raise_and_park"
    member_fault_cooldown: float = 300.0
    member_fault_max: float = 3600.0
    ptu_exact_hint: bool = False
    ptu_grace: float = 0.0
    strategy: Strategy = "random"
    affinity_bound: float = 1.25
    latency_decay: float = 10.0
    prefer_regions: Sequence[str] = ()
    allow_regions: Collection[str] | None = None
    enforce_tpm: bool = False
    prefer_headroom: bool = False
    slow_start: float = 0.0
    slow_start_min: float = 0.1
    probe_concurrency: int | None = None
    max_ejection: float | None = None
    panic: bool = False
    total_budget: float | None = 180.0
    max_attempts: int | None = None
    max_attempts_per_member: int | None = None
    when_all_cooling: WhenAllCooling = "wait"
    wake_jitter: float = 0.25
    retry_budget: float | None = None
    stream_idle_timeout: float | None = 60.0
    classify: FaultClassifier = judge

    def __post_init__(self) -> None:
        """Check the fields, and take regions in any letter case.

        Raises:
            ConfigurationError: If one of them holds what it cannot.
        """
        self._check_numbers()
        for name, words in (
            ("strategy", Strategy),
            ("member_fault", MemberFault),
            ("when_all_cooling", WhenAllCooling),
        ):
            if getattr(self, name) not in get_args(words):
                known = ", ".join(repr(word) for word in get_args(words))
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}; expected one of {known}."
                )
        for status in self.honour_retry_after_on:
            check_whole("a status in honour_retry_after_on", status, least=400)
        self._set("honour_retry_after_on", frozenset(self.honour_retry_after_on))
        self._set("prefer_regions", tuple(_regions("prefer_regions", self.prefer_regions)))
        if self.allow_regions is not None:
            self._set("allow_regions", frozenset(_regions("allow_regions", self.allow_regions)))

    @classmethod
    def resilient(cls) -> Self:
        """Return the policy for a service that has to answer: all that helps and costs nothing."""
        return cls(
            max_retry_after=3600.0,
            max_transient_cooldown=60.0,
            trial_share=0.01,
            cooldown_jitter=0.1,
            member_fault="rotate",
            ptu_exact_hint=True,
            strategy="p2c",
            slow_start=30.0,
            probe_concurrency=1,
            max_ejection=0.5,
            panic=True,
            max_attempts_per_member=3,
            retry_budget=0.2,
        )

    @classmethod
    def typeagent(cls) -> Self:
        """Return what TypeAgent does, faults included: for comparison, not for use."""
        return cls(
            honour_retry_after_on=(429,),
            epochs=False,
            quota_groups=False,
            member_fault="raise",
            wake_jitter=0.0,
            stream_idle_timeout=None,
            classify=judge_as_typeagent,
        )

    @property
    def backoff(self) -> ExponentialBackoff:
        """How the rest of a throttled member grows."""
        return ExponentialBackoff(
            initial=self.base_cooldown, factor=self.backoff_factor, maximum=self.max_backoff
        )

    def attempts_for(self, members: int) -> int | None:
        """Return how often one request may try in a pool of this size; None for no limit."""
        limits: list[int] = []
        if self.max_attempts is not None:
            limits.append(self.max_attempts)
        if self.max_attempts_per_member is not None:
            limits.append(self.max_attempts_per_member * members)
        return min(limits, default=None)

    def _check_numbers(self) -> None:
        for name in (
            "base_cooldown",
            "max_retry_after",
            "transient_cooldown",
            "cooldown_jitter",
            "member_fault_cooldown",
            "ptu_grace",
            "slow_start",
            "wake_jitter",
        ):
            check_number(name, getattr(self, name))
        check_number("backoff_factor", self.backoff_factor, least=1.0)
        check_number("max_backoff", self.max_backoff, least=self.base_cooldown)
        check_number(
            "max_transient_cooldown",
            self.max_transient_cooldown,
            least=self.transient_cooldown,
            optional=True,
        )
        check_number("member_fault_max", self.member_fault_max, least=self.member_fault_cooldown)
        check_number("affinity_bound", self.affinity_bound, least=1.0)
        check_number("latency_decay", self.latency_decay, above=True)
        check_number("slow_start_min", self.slow_start_min, most=1.0, above=True)
        check_number("max_ejection", self.max_ejection, most=1.0, optional=True)
        check_number("trial_share", self.trial_share, most=1.0, above=True, optional=True)
        check_number("retry_budget", self.retry_budget, optional=True)
        for name in ("total_budget", "stream_idle_timeout"):
            check_number(name, getattr(self, name), above=True, optional=True)
        for name in ("probe_concurrency", "max_attempts", "max_attempts_per_member"):
            check_whole(name, getattr(self, name), least=1, optional=True)
        check_whole("success_streak", self.success_streak, least=1)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _regions(name: str, regions: Iterable[str]) -> list[str]:
    given = [] if isinstance(regions, str) else list(regions)
    if isinstance(regions, str) or not all(isinstance(each, str) for each in given):
        raise ConfigurationError(f"{name} is {regions!r}; expected a collection of region names.")
    return [each.lower() for each in given]
