"""Pools without clients, by a clock that is set by hand."""

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import pytest

from chatrouting.pool import Cooling, Endpoint, EndpointPool, EndpointState, PoolPolicy, Ticket
from chatrouting.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """Return the clock of the pools that `build` makes."""
    return ManualClock()


class Pool(EndpointPool[Any]):
    """A pool with short cuts."""

    def names(self, picks: int) -> list[str]:
        """Pick so often, giving each ticket back at once, and return whom."""
        found = []
        for _ in range(picks):
            ticket = self.take()
            found.append(ticket.endpoint.id)
            self.released(ticket)
        return found

    def take(self, name: str | None = None, **wishes: Any) -> Ticket:
        """Pick a ready member, the one of that name if one is given."""
        others = [each.id for each in self.endpoints if name is not None and each.id != name]
        found = self.pick(exclude=others, **wishes)
        assert isinstance(found, Ticket), found
        return found

    def cooling(self, **wishes: Any) -> Cooling:
        """Pick, and expect that nobody is ready."""
        found = self.pick(**wishes)
        assert isinstance(found, Cooling), found
        return found

    def fail(self, name: str, *errors: BaseException) -> None:
        """Let attempts at a member fail, each begun before any has failed."""
        tickets = [self.take(name) for _ in errors]
        for ticket, error in zip(tickets, errors, strict=True):
            self.failed(ticket, error)

    def answer(self, name: str, times: int = 1) -> None:
        """Let attempts at a member succeed."""
        for _ in range(times):
            self.succeeded(self.take(name))

    def state(self, name: str) -> EndpointState:
        """Return how a member is doing."""
        return next(state for state in self.snapshot() if state.id == name)

    def rest(self, name: str) -> float:
        """Return how long a member still rests."""
        return self.state(name).ready_in


Build: TypeAlias = Callable[..., Pool]


@pytest.fixture
def build(clock: ManualClock) -> Build:
    """Return `build(*members, fields of the policy)`; a text stands for an endpoint of that id."""

    def make(
        *members: Endpoint | str,
        policy: PoolPolicy | None = None,
        seed: int = 0,
        on_event: Any = None,
        **fields: Any,
    ) -> Pool:
        return Pool(
            [Endpoint(each) if isinstance(each, str) else each for each in members],
            policy=policy or PoolPolicy(**fields),
            name="test",
            clock=clock,
            rng=Random(seed),
            on_event=on_event,
        )

    return make
