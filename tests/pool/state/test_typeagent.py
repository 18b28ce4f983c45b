"""`PoolPolicy.typeagent()` against a model of what TypeAgent does, step by step.

The model is written from the numbered lines of the reference alone: one cooldown end, one counter
and one streak for each member. Hypothesis draws members, attempts, their ends and the time between;
after every step both must agree on everything that shows.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chatrouting.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    ConflictError,
    InsufficientQuotaError,
    InternalServerError,
    NotFoundError,
    OverloadedError,
    RateLimitError,
    StreamInterruptedError,
)
from chatrouting.pool import Cooling, Endpoint, EndpointPool, PoolPolicy, Ticket
from chatrouting.testing import ManualClock


@dataclass
class ModelMember:
    """One member as upstream knows it."""

    name: str
    priority: int
    cooldown_end: float = 0.0
    refusals: int = 0
    streak: int = 0


@dataclass
class Model:
    """Upstream, as section 1 of the reference has it."""

    members: list[ModelMember]
    random: Random
    now: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)

    def pick(self) -> tuple[str, float | None]:
        """Return whom to ask and None, or who is ready first and the wait."""
        for priority in sorted({member.priority for member in self.members}):
            ready = [
                member
                for member in self.members
                if member.priority == priority and member.cooldown_end <= self.now
            ]
            if ready:
                return ready[int(self.random.random() * len(ready))].name, None
        first = min(self.members, key=lambda member: member.cooldown_end)
        return first.name, max(0.0, first.cooldown_end - self.now)

    def end(self, name: str, status: int | None, retry_after: float | None) -> None:
        """Take in how an attempt ended; no status: no answer came."""
        member = next(each for each in self.members if each.name == name)
        if status == 200:
            member.streak += 1
            if member.streak >= 3:
                member.refusals = 0
        elif status == 429:
            grown = min(120.0, 2.0 * 2.0**member.refusals)
            delay = min(120.0, max(retry_after or 0.0, grown))
            member.cooldown_end = self.now + delay
            member.refusals += 1
            member.streak = 0
        elif status in (None, 500, 502, 503, 504):
            member.cooldown_end = max(member.cooldown_end, self.now + 5.0)
            member.streak = 0


def error_of(status: int | None, retry_after: float | None) -> Exception:
    classes: dict[int | None, type[APIStatusError]] = {
        400: BadRequestError,
        401: AuthenticationError,
        404: NotFoundError,
        409: ConflictError,
        429: RateLimitError,
        503: OverloadedError,
        529: OverloadedError,
    }
    if status is None:
        return APIConnectionError("no route to host")
    error = classes.get(status, InternalServerError)
    return error(f"status {status}", status_code=status, retry_after=retry_after)


STATUSES = [None, 200, 200, 200, 400, 401, 404, 409, 429, 429, 429, 500, 502, 503, 504, 501, 529]
HINTS = [None, None, 0.0, 0.5, 7.0, 60.0, 600.0]
PAUSES = [0.0, 0.25, 1.0, 2.0, 4.0, 5.0, 30.0, 120.0]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pick"), st.just(0), st.just(0.0)),
        st.tuples(st.just("pick"), st.just(0), st.just(0.0)),
        st.tuples(st.just("end"), st.sampled_from(STATUSES), st.sampled_from(HINTS)),
        st.tuples(st.just("end"), st.sampled_from(STATUSES), st.sampled_from(HINTS)),
        st.tuples(st.just("cancel"), st.just(0), st.just(0.0)),
        st.tuples(st.just("pass"), st.just(0), st.sampled_from(PAUSES)),
    ),
    min_size=30,
    max_size=120,
)


@given(
    priorities=st.lists(st.integers(1, 3), min_size=2, max_size=5),
    seed=st.integers(0, 1000),
    order=st.randoms(use_true_random=False),
    steps=STEPS,
)
def test_the_preset_does_what_the_model_does(priorities, seed, order, steps):
    """[pools 33-36] [pools 38-42] [pools 48] [pools 50] [pools 51]"""
    priorities.sort()
    clock = ManualClock()
    names = [f"m{number}" for number in range(len(priorities))]
    pool: EndpointPool[Any] = EndpointPool(
        [Endpoint(name, priority=tier) for name, tier in zip(names, priorities, strict=True)],
        policy=PoolPolicy.typeagent(),
        clock=clock,
        rng=Random(seed),
    )
    model = Model(
        [ModelMember(name, tier) for name, tier in zip(names, priorities, strict=True)],
        Random(seed),
    )
    running: list[Ticket] = []
    for kind, status, number in steps:
        if kind == "pass":
            clock.advance(number)
            model.now += number
        elif kind == "pick":
            name, wait = model.pick()
            found = pool.pick()
            assert found.endpoint.id == name
            assert (found.wait if isinstance(found, Cooling) else None) == wait
            if isinstance(found, Ticket):
                running.append(found)
        elif running:
            ticket = running.pop(order.randrange(len(running)))
            if kind == "cancel":
                pool.released(ticket)
            elif status == 200:
                pool.succeeded(ticket)
                model.end(ticket.endpoint.id, status, None)
            else:
                pool.failed(ticket, error_of(status, number))
                model.end(ticket.endpoint.id, status, number)
        assert [
            (state.ready_in, state.consecutive_429s, state.success_streak)
            for state in pool.snapshot()
        ] == [
            (max(0.0, member.cooldown_end - model.now), member.refusals, member.streak)
            for member in model.members
        ]


def test_the_preset_takes_every_missing_answer_for_a_fault_and_every_429_for_a_refusal():
    """[pools 50]: timeouts, broken streams and used-up plans, which the model knows by status."""
    classify = PoolPolicy.typeagent().classify
    missing = [APITimeoutError(), StreamInterruptedError(), ConnectionResetError()]
    assert {classify(error).verdict.value for error in missing} == {"transient"}
    assert classify(InsufficientQuotaError(status_code=429)).verdict.value == "throttled"
