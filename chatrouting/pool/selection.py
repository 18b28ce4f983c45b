"""Which member is asked next: filters, tiers, and what to do if nobody is ready.

The lowest tier with a ready member is asked; which of its members, a strategy says. Pure: it reads
the members and changes none.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, final

from typing_extensions import override

from chatrouting.errors import NoEndpointAvailableError
from chatrouting.pool.endpoint import Endpoint, EndpointMode
from chatrouting.pool.member import BLOCKED, NEVER, Chance, Cooling, Member
from chatrouting.pool.policy import PoolPolicy
from chatrouting.pool.strategies import strategy_for

#: Members by ascending priority.
Tiers: TypeAlias = Sequence[Sequence[Member]]


@final
@dataclass(frozen=True, slots=True)
class Filter:
    """Which endpoints a request may be sent to.

    Attributes:
        exclude: Ids of those that are out of the question.
        regions: Where they must be, in lower case; None for anywhere. An endpoint whose region is
            not known is nowhere.
        only: The id of the only one.
        room: The parts of limits that are free, from 0 to 1, by id, where the policy looks at them.
            Who has much less than the best is passed over.
    """

    exclude: Collection[str] = ()
    regions: Collection[str] | None = None
    only: str | None = None
    room: Mapping[str, float] | None = None

    def __call__(self, endpoint: Endpoint) -> bool:
        """Say whether an endpoint may be asked."""
        if self.only is not None and endpoint.id != self.only:
            return False
        if self.regions is not None and endpoint.region not in self.regions:
            return False
        return endpoint.id not in self.exclude

    @override
    def __str__(self) -> str:
        only = "any" if self.only is None else repr(self.only)
        regions = "any" if self.regions is None else ", ".join(sorted(self.regions)) or "none"
        excluded = ", ".join(map(repr, sorted(self.exclude))) or "none"
        return f"regions allowed: {regions}; endpoints allowed: {only}, excluded: {excluded}"


@final
class _Ready:
    """Who is ready, in the lowest tier where anybody is.

    Attributes:
        members: May be empty.
        above: The tiers below which they are.
        until: The time up to which this holds, if nothing happens.
    """

    __slots__ = ("above", "members", "until")

    def __init__(self, members: list[Member], above: Tiers, until: float) -> None:
        self.members = members
        self.above = above
        self.until = until


@final
class Selection:
    """The choice among the members of one pool.

    Attributes:
        choose: The strategy.
        is_random: It is a draw among those that are ready, and no more.
        ready: Whom it has to choose among for a request like any other, before
        until: this time; from then on `select` has to be asked.
    """

    __slots__ = (
        "_has_preferences",
        "_known",
        "_policy",
        "_tiers",
        "choose",
        "is_random",
        "ready",
        "until",
    )

    def __init__(self, tiers: Tiers, policy: PoolPolicy, chance: Chance) -> None:
        """Prepare the choice.

        Args:
            tiers: All members that the policy lets be asked at all.
            policy: Says how.
            chance: Random numbers from 0 to 1.
        """
        self._tiers = tiers
        self._policy = policy
        self.choose = strategy_for(policy, chance)
        self.is_random = policy.strategy == "random" and not policy.slow_start
        self._has_preferences = bool(
            policy.prefer_regions or policy.enforce_tpm or policy.ptu_grace
        )
        self.ready: list[Member] = []
        self.forget()

    def forget(self) -> None:
        """Look at all members again: one of them opens at another time than before."""
        self._known = _Ready([], (), NEVER)
        self.until = NEVER

    def select(
        self,
        now: float,
        key: str | None,
        tokens: int | None,
        allows: Filter | None,
        patience: float,
    ) -> Member | Cooling:
        """Choose a member, of any that are ready now.

        Args:
            now: The time.
            key: Of the conversation, for affinity.
            tokens: What the request is thought to take.
            allows: Says whether an endpoint may be asked; None lets all be asked.
            patience: Seconds that the request can wait for reserved throughput.

        Raises:
            NoEndpointAvailableError: If `allows` leaves nobody.
        """
        if allows is None:
            found = self._known
            if now >= found.until:
                # Looking at a hundred members costs more than all the rest.
                found = self._known = _look(self._tiers, now)
                if found.members and not self._has_preferences:
                    self.ready, self.until = found.members, found.until
        else:
            found = _look(_narrowed(self._tiers, allows), now)
        ready = found.members
        if not ready:
            return self._when_nobody_is_ready(found.above, now)
        if self._has_preferences:
            reserved = self._reserved_soon(found.above, now, patience)
            if reserved is not None:
                return reserved
            ready = self._preferred(ready, now, tokens or 0)
        if allows is not None and allows.room is not None:
            ready = _roomiest(ready, allows.room)
        return self.choose(ready, now, key)

    def _preferred(self, ready: list[Member], now: float, tokens: int) -> list[Member]:
        """Leave those that are within their declared limits, and of these the nearest."""
        if self._policy.enforce_tpm:
            ready = _those(ready, lambda member: _has_room(member, tokens, now)) or ready
        for region in self._policy.prefer_regions:
            near = [member for member in ready if member.endpoint.region == region]
            if near:
                return near
        return ready

    def _reserved_soon(self, tiers: Tiers, now: float, patience: float) -> Cooling | None:
        """Return the reserved member that is back so soon that waiting is better than paying."""
        soon = now + min(self._policy.ptu_grace, patience)
        reserved = [
            member
            for tier in tiers
            for member in tier
            if member.endpoint.mode is EndpointMode.PTU and member.open_at <= soon
        ]
        return replace(_cooling(reserved, now, _open_at), is_choice=True) if reserved else None

    def _when_nobody_is_ready(self, tiers: Tiers, now: float) -> Member | Cooling:
        """Turn to those that were left out for the sake of better ones, or say who is back first.

        That are those set aside; and parked ones if there are no others, since somebody may have
        mended one of them.
        """
        everybody = [member for tier in tiers for member in tier]
        are_parked = all(member.parked_until > now for member in everybody)
        ready_at = _unparked_at if are_parked else _free_at
        for tier in tiers:
            ready = _those(tier, lambda member: ready_at(member) <= now)
            if ready:
                return self.choose(ready, now, None)
        if not are_parked and self._may_ask_anyway(everybody, now):
            free = [
                member
                for member in everybody
                if member.hinted_until <= now
                and member.parked_until <= now
                and not member.is_blocked
            ]
            if free:
                return min(free, key=_cooldown_until)
        return _cooling(everybody, now, ready_at)

    def _may_ask_anyway(self, everybody: list[Member], now: float) -> bool:
        if self._policy.when_all_cooling == "try_soonest":
            return True
        return self._policy.panic and all(
            member.faulted_until > now and member.throttled_until <= now for member in everybody
        )


def _look(tiers: Tiers, now: float) -> _Ready:
    until = BLOCKED
    for depth, tier in enumerate(tiers):
        ready = [member for member in tier if member.open_at <= now]
        if len(ready) < len(tier):
            until = min(until, *(member.open_at for member in tier if member.open_at > now))
        if ready:
            return _Ready(ready, tiers[:depth], until)
    return _Ready([], tiers, until)


def _narrowed(tiers: Tiers, allows: Filter) -> Tiers:
    found = [_those(tier, lambda member: allows(member.endpoint)) for tier in tiers]
    narrowed = [tier for tier in found if tier]
    if not narrowed:
        raise NoEndpointAvailableError(f"no endpoint of the pool may be asked: {allows}.")
    return narrowed


def _those(members: Sequence[Member], fits: Callable[[Member], bool]) -> list[Member]:
    return [member for member in members if fits(member)]


def _roomiest(ready: list[Member], room: Mapping[str, float]) -> list[Member]:
    """Leave those with at least half of the most room, and those of which nothing is known."""
    most = max((room.get(member.endpoint.id, 0.0) for member in ready), default=0.0)
    return _those(ready, lambda member: room.get(member.endpoint.id, most) >= most / 2)


def _has_room(member: Member, tokens: int, now: float) -> bool:
    return member.budget is None or member.budget.has_room(tokens, now)


def _open_at(member: Member) -> float:
    return member.open_at


def _free_at(member: Member) -> float:
    return member.free_at


def _cooldown_until(member: Member) -> float:
    return member.cooldown_until


def _unparked_at(member: Member) -> float:
    return BLOCKED if member.is_blocked else member.cooldown_until


def _cooling(members: Sequence[Member], now: float, ready_at: Callable[[Member], float]) -> Cooling:
    """Name the member that is ready first; of several, the first in the list."""
    first = min(members, key=ready_at)
    is_busy = any(ready_at(member) == BLOCKED for member in members)
    return Cooling(first.endpoint, max(0.0, ready_at(first) - now), is_busy)
