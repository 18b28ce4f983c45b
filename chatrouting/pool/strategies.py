"""Who of the ready members of a tier is asked.

Each strategy is a function of the ready members, the time and the key of the request. Random and
weighted are what TypeAgent and most balancers do; "p2c" takes the better of two at random, by
latency and load ("the power of two choices", Mitzenmacher 2001), with Finagle's peak-sensitive
average of latencies.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from chatrouting.pool.affinity import affinity_rank, hash_text
from chatrouting.pool.member import Chance, Member
from chatrouting.pool.policy import PoolPolicy

#: Of at least one ready member, the time, and the key of the request if it has one.
Choose: TypeAlias = Callable[[Sequence[Member], float, str | None], Member]

#: What a member costs about which nothing is known, beside others of which nothing is known.
_UNKNOWN_LATENCY: Final = 1.0


def strategy_for(policy: PoolPolicy, chance: Chance) -> Choose:
    """Return the strategy that a policy names."""
    if policy.strategy == "p2c":
        return _better_of_two(policy, chance)
    if policy.strategy == "affinity":
        return _by_affinity(policy, _any(chance))
    if policy.strategy == "weighted":
        return _in_proportion(policy, chance, by_weight=True)
    return _in_proportion(policy, chance, by_weight=False) if policy.slow_start else _any(chance)


def assign_shares(tiers: Sequence[Sequence[Member]]) -> None:
    """Give each member its weight: its own, else what it declares, else the mean of its tier."""
    for tier in tiers:
        known = [weight for member in tier if (weight := _declared(member)) is not None]
        mean = statistics.fmean(known) if known else 1.0
        for member in tier:
            member.share = _declared(member) or mean


def observe_latency(member: Member, seconds: float, now: float, decay: float) -> None:
    """Take a latency into the average: at once if it is a peak, by and by if it is lower."""
    before = member.latency
    if before is not None and seconds < before:
        keep = math.exp((member.latency_at - now) / decay)
        before *= keep
        if seconds < before:
            seconds = before + seconds * (1 - keep)
    member.latency = seconds
    member.latency_at = now


def _declared(member: Member) -> float | None:
    endpoint = member.endpoint
    return endpoint.weight or endpoint.tpm or endpoint.capacity


def _any(chance: Chance) -> Choose:
    def choose(ready: Sequence[Member], now: float, key: str | None) -> Member:  # noqa: ARG001
        return ready[int(chance() * len(ready))]

    return choose


def _in_proportion(policy: PoolPolicy, chance: Chance, *, by_weight: bool) -> Choose:
    def choose(ready: Sequence[Member], now: float, key: str | None) -> Member:  # noqa: ARG001
        if len(ready) == 1:
            return ready[0]
        shares = [
            (member.share if by_weight else 1.0) * _ramp(member, now, policy) for member in ready
        ]
        point = chance() * sum(shares)
        # The last one takes what is left, also of a sum that was rounded.
        for member, reached in zip(ready[:-1], accumulate(shares), strict=False):
            if point < reached:
                return member
        return ready[-1]

    return choose


def _better_of_two(policy: PoolPolicy, chance: Chance) -> Choose:
    decay = policy.latency_decay

    def choose(ready: Sequence[Member], now: float, key: str | None) -> Member:  # noqa: ARG001
        count = len(ready)
        if count == 1:
            return ready[0]
        first = int(chance() * count)
        second = int(chance() * (count - 1))
        second += second >= first
        one, other = ready[first], ready[second]
        return one if cost(one, ready, now) <= cost(other, ready, now) else other

    def cost(member: Member, ready: Sequence[Member], now: float) -> float:
        latency = member.latency
        if latency is None:
            latency = _median(ready, now, decay)
        else:
            latency *= math.exp((member.latency_at - now) / decay)
        load = latency * (member.in_flight + 1) / member.share
        return load / _ramp(member, now, policy) if policy.slow_start else load

    return choose


def _by_affinity(policy: PoolPolicy, otherwise: Choose) -> Choose:
    def choose(ready: Sequence[Member], now: float, key: str | None) -> Member:
        if key is None:
            return otherwise(ready, now, key)
        load = sum(member.in_flight for member in ready) + 1
        limit = math.ceil(policy.affinity_bound * load / len(ready))
        hashed = hash_text(key)
        # The bound is above the mean, so somebody is below it.
        return max(
            (member for member in ready if member.in_flight < limit),
            key=lambda member: affinity_rank(hashed, member.seed),
        )

    return choose


def _ramp(member: Member, now: float, policy: PoolPolicy) -> float:
    """Return the part of its share that a member gets so long after it came back."""
    window = policy.slow_start
    age = now - member.reopened_at
    if age >= window:
        return 1.0
    return max(policy.slow_start_min, age / window)


def _decayed(member: Member, now: float, decay: float) -> float | None:
    """Return the latency that a member is thought to have; old news count for less and less."""
    if member.latency is None:
        return None
    return member.latency * math.exp((member.latency_at - now) / decay)


def _median(ready: Sequence[Member], now: float, decay: float) -> float:
    known = [one for member in ready if (one := _decayed(member, now, decay)) is not None]
    return statistics.median(known) if known else _UNKNOWN_LATENCY
