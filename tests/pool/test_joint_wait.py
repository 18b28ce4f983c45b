"""A pool whose members are under a quota: if all refuse, the request waits for whoever has room."""

import anyio
import pytest

from chatrouting import AttemptOutcome, DelegatingChatClient
from chatrouting.admission import AdmissionRequest
from chatrouting.errors import OverloadedError, QuotaExceededError
from chatrouting.pool import Endpoint, EndpointPool, PooledChatClient, PoolPolicy
from chatrouting.testing import ScriptedChatClient, fails

MEMBERS = pytest.mark.parametrize("members", [1, 2])


class Desk:
    """Lets nobody in at once, and everybody who waits."""

    def __init__(self, meanwhile=lambda: None):
        self.is_open = False
        self.meanwhile = meanwhile

    async def wait_for_admission(self, wanted, tickets, timeout):
        self.is_open = True
        self.meanwhile()
        return 0

    def give_back(self, tickets):
        """Nothing is kept."""


class Queued(DelegatingChatClient):
    """A client that refuses while its desk is closed."""

    def __init__(self, inner, desk):
        super().__init__(inner)
        self.desk = desk

    def admission_requests(self, messages, options, *, is_streaming):
        return [AdmissionRequest(self.desk, self)]

    def _check(self):
        if not self.desk.is_open:
            raise QuotaExceededError("full", retry_after=1.0)

    async def get_response(self, messages, options=None):
        self._check()
        return await super().get_response(messages, options)

    def get_streaming_response(self, messages, options=None):
        self._check()
        return super().get_streaming_response(messages, options)


def pool_of(members, desk, *script):
    return EndpointPool(
        {f"m{place}": Queued(ScriptedChatClient(*script), desk) for place in range(members)},
        policy=PoolPolicy(total_budget=None),
        clock=anyio.current_time,
    )


def in_flight(pool):
    return [state.in_flight for state in pool.snapshot()]


@MEMBERS
async def test_a_member_that_has_room_after_all_is_asked(anyio_backend, ask, members):
    """It is in flight meanwhile, as every member is."""
    pool = pool_of(members, Desk(), "Hello")
    response = await ask(PooledChatClient(pool))

    refused, answered = AttemptOutcome.REFUSED_LOCALLY, AttemptOutcome.COMPLETED
    assert [each.outcome for each in response.attempts] == [*[refused] * members, answered]
    assert not any(in_flight(pool))


async def test_its_failure_counts(anyio_backend, ask):
    pool = pool_of(2, Desk(), fails(OverloadedError("no", status_code=503)))
    with pytest.raises(OverloadedError):
        await ask(PooledChatClient(pool))

    assert sum(state.consecutive_faults for state in pool.snapshot()) == 1
    assert not any(in_flight(pool))


async def test_a_member_that_went_to_rest_meanwhile_is_asked_all_the_same(anyio_backend, ask):
    """The room that was waited for is kept for this request."""

    def rest():
        for _ in range(2):
            pool.failed(pool.pick(), OverloadedError("no", status_code=503))

    pool = pool_of(2, Desk(rest), "Hello")
    response = await ask(PooledChatClient(pool))

    assert response.text == "Hello"
    assert not any(in_flight(pool))


async def test_a_member_that_left_the_pool_meanwhile_is_asked_all_the_same(anyio_backend, ask):
    pool = pool_of(2, Desk(lambda: pool.replace_endpoints([Endpoint("new")])), "Hello")
    response = await ask(PooledChatClient(pool))

    assert response.text == "Hello"


async def test_a_member_asked_by_itself_inside_of_another_pool_is_its_own(anyio_backend, ask):
    """The other pool's request is not taken for one of this pool."""
    inner = EndpointPool({"inner": ScriptedChatClient("Hello")})
    (route,) = PooledChatClient(inner).routes.values()
    outer = EndpointPool({"outer": DelegatingChatClient(route)})

    assert (await ask(PooledChatClient(outer))).text == "Hello"
    assert in_flight(outer) == in_flight(inner) == [0]
