"""The members of a pool at one time, with all that decides about them.

A pool has one table; `EndpointPool.replace_endpoints` puts another one in its place, which takes
over what is known of the members that stay.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import final

from chatrouting.errors import ConfigurationError
from chatrouting.pool.endpoint import Endpoint, EndpointMode
from chatrouting.pool.health import Health
from chatrouting.pool.member import NEVER, Chance, Member
from chatrouting.pool.policy import PoolPolicy
from chatrouting.pool.selection import Selection
from chatrouting.pool.strategies import assign_shares
from chatrouting.pool.windows import RateBudget


@final
class Table:
    """Members, and the rules that they are asked by.

    Attributes:
        endpoints: Sorted: by priority, bare ones first, else as given.
        members: Their states, by id, in the same order.
        selection: Who is asked.
        health: What follows from how it went.
    """

    __slots__ = ("_ones", "endpoints", "health", "members", "selection")

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        policy: PoolPolicy,
        chance: Chance,
        known: Mapping[str, Member] | None = None,
    ) -> None:
        """Sort and check the endpoints; `known` are the states of those that may stay.

        Raises:
            ConfigurationError: If there are none, two have one id, or the policy allows none.
        """
        ordered = sorted(endpoints, key=_rank)
        _check(ordered)
        # A single member is never held back, so that nothing of a larger pool may stay with it.
        known = known if known is not None and len(ordered) > 1 else {}
        members = [
            _kept(known.get(endpoint.id), endpoint, policy) or _fresh(endpoint, policy)
            for endpoint in ordered
        ]
        self.members = {member.endpoint.id: member for member in members}
        self.endpoints = tuple(member.endpoint for member in members)
        allowed = policy.allow_regions
        candidates = [
            member for member in members if allowed is None or member.endpoint.region in allowed
        ]
        if not candidates:
            raise ConfigurationError(
                f"allow_regions allows {', '.join(sorted(allowed or ())) or 'none'}; no endpoint "
                "of the pool is in one of them. Allow more, or say where the endpoints are."
            )
        tiers = [list(tier) for _, tier in groupby(candidates, lambda each: each.endpoint.priority)]
        assign_shares(tiers)
        self.selection = Selection(tiers, policy, chance)
        self.health = Health(members, policy, chance, self.selection)
        self._ones: dict[str, tuple[Endpoint, ...]] = {}

    def only(self, endpoint_id: str) -> tuple[Endpoint, ...]:
        """Return one endpoint alone, always the same object; empty if it has gone."""
        if endpoint_id not in self._ones:
            member = self.members.get(endpoint_id)
            self._ones[endpoint_id] = () if member is None else (member.endpoint,)
        return self._ones[endpoint_id]


def _rank(endpoint: Endpoint) -> tuple[int, bool]:
    is_bare = endpoint.region is None and endpoint.mode is EndpointMode.UNKNOWN
    return endpoint.priority, not is_bare


def _check(endpoints: Sequence[Endpoint]) -> None:
    if not endpoints:
        raise ConfigurationError("the pool has no endpoints; give it one or more.")
    for name, count in Counter(endpoint.id for endpoint in endpoints).items():
        if count > 1:
            raise ConfigurationError(
                f"endpoint {name!r} stands in the pool {count} times; ids must be unique in a "
                "pool. Rename one of them."
            )


def _fresh(endpoint: Endpoint, policy: PoolPolicy) -> Member:
    budget = _budget(endpoint, policy)
    return Member(endpoint, probe_limit=policy.probe_concurrency, budget=budget)


def _kept(member: Member | None, endpoint: Endpoint, policy: PoolPolicy) -> Member | None:
    """Return the state of a member that stays where it is, else None."""
    if member is None or _place(member.endpoint) != _place(endpoint):
        return None
    if member.endpoint != endpoint:  # else its clients stay, too, which go by identity
        before, member.endpoint = member.endpoint, endpoint
        member.is_limited = endpoint.max_concurrency is not None
        if (before.tpm, before.rpm) != (endpoint.tpm, endpoint.rpm):
            member.budget = _budget(endpoint, policy)
        # Mended, perhaps: a key was replaced.
        member.parked_until = NEVER
        member.parkings = 0
    member.mates = (member,)
    member.set_aside_until = NEVER  # its turn was counted in the table before
    member.refresh()
    return member


def _budget(endpoint: Endpoint, policy: PoolPolicy) -> RateBudget | None:
    if not policy.enforce_tpm or (endpoint.tpm is None and endpoint.rpm is None):
        return None
    return RateBudget(tpm=endpoint.tpm, rpm=endpoint.rpm)


def _place(endpoint: Endpoint) -> tuple[object, ...]:
    return endpoint.provider, endpoint.url, endpoint.deployment, endpoint.model
