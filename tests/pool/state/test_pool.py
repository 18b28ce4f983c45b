"""The pool as an object: its members, their clients, and its life."""

import copy
import pickle
import threading
from typing import Any

import anyio
import pytest

from chatrouting.errors import (
    AuthenticationError,
    ClientClosedError,
    ConfigurationError,
    InternalServerError,
    NoEndpointAvailableError,
    RateLimitError,
)
from chatrouting.pool import ApiKey, Cooling, Endpoint, EndpointPool, PoolPolicy, Ticket


class Client:
    """Something that can be closed."""

    def __init__(self, name: str = "", *, fails: bool = False) -> None:
        self.name = name
        self.closed = 0
        self._fails = fails

    async def aclose(self) -> None:
        self.closed += 1
        if self._fails:
            raise RuntimeError(f"{self.name} does not close")


class Wrapper(Client):
    """Something around a client, which it owns."""

    def __init__(self, endpoint: Endpoint, inner: Client) -> None:
        super().__init__(f"around {endpoint.id}")
        self.inner = inner

    async def aclose(self) -> None:
        self.closed += 1
        await self.inner.aclose()


class Factory(Client):
    """Makes clients and keeps them, to look at."""

    def __init__(self) -> None:
        super().__init__("factory")
        self.made: list[Client] = []

    def __call__(self, endpoint: Endpoint) -> Client:
        client = Client(endpoint.id)
        self.made.append(client)
        return client


# Members.


def test_a_pool_is_made_from_endpoints_or_from_clients_by_endpoint_or_id():
    one, other = Client("one"), Client("other")
    endpoint = Endpoint("b", priority=2)
    for members in (
        {"a": one, "b": other},
        [("a", one), (endpoint, other)],
        {Endpoint("a"): one, endpoint: other},
        iter([("a", one), ("b", other)]),
        [("a", one), endpoint],
    ):
        pool: EndpointPool[Client] = EndpointPool(members)
        assert [each.id for each in pool.endpoints] == ["a", "b"]


@pytest.mark.parametrize("members", [["a"], [("a",)], [()], [("a", None)], [(1, Client())], [3]])
def test_what_is_no_member_is_refused(members):
    with pytest.raises(ConfigurationError, match=r"a member is .*; expected an Endpoint"):
        EndpointPool(members)


@pytest.mark.parametrize("members", [None, "abc", 3])
def test_what_is_no_collection_is_refused(members):
    with pytest.raises(TypeError, match="expected endpoints, or clients by endpoint"):
        EndpointPool(members)


def test_two_members_of_one_id_are_refused():
    with pytest.raises(ConfigurationError, match="endpoint 'eu' stands in the pool 2 times"):
        EndpointPool([Endpoint("eu"), Endpoint("us"), Endpoint("eu")])


def test_pools_share_nothing(build):
    """[pools 44]: state lives in the object, and no cache hands the same object out twice."""
    one, other = build("a", "b"), build("a", "b")
    one.fail("a", RateLimitError("slow down", status_code=429))
    assert (one.rest("a"), other.rest("a")) == (2, 0)


def test_what_an_endpoint_says_is_read_from_itself(build):
    """[pools 61]: a mixed pool asks each member by its own facts."""
    pool = build(Endpoint("a", model="m", timeout=1.0), Endpoint("b", model="n", timeout=9.0))
    facts = {ticket.endpoint.id: ticket.endpoint for ticket in (pool.take("a"), pool.take("b"))}
    assert [(facts[name].model, facts[name].timeout) for name in "ab"] == [("m", 1.0), ("n", 9.0)]


def test_the_preferred_endpoint_cannot_be_changed_by_accident(build):
    """[pools 60]"""
    with pytest.raises(AttributeError):
        build("a").preferred.timeout = 9.0


# Clients.


async def test_a_client_is_made_when_it_is_first_needed_and_once(anyio_backend):
    factory = Factory()
    pool = EndpointPool([Endpoint("a"), Endpoint("b")], client_factory=factory)
    assert factory.made == []
    first = pool.client_for(pool.endpoints[0])
    assert pool.client_for(pool.endpoints[0]) is first
    assert [client.name for client in factory.made] == ["a"]


def test_each_event_loop_has_clients_of_its_own():
    """[BR-71]; Guardrails 1840: one HTTP client in two loops breaks."""
    factory = Factory()
    pool = EndpointPool([Endpoint("a")], client_factory=factory)

    async def use() -> object:
        return pool.client_for(pool.preferred)

    clients = [anyio.run(use, backend=backend) for backend in ("asyncio", "asyncio", "trio")]
    assert len({id(client) for client in clients}) == 3
    assert len(pool._core.clients._made) <= 1  # what was made for a loop goes with it


async def test_something_is_put_around_each_client(anyio_backend):
    inner = Client("inner")
    pool = EndpointPool({"a": inner}, wrap=Wrapper)
    client = pool.client_for(pool.preferred)
    assert isinstance(client, Wrapper)
    assert (client.name, client.inner) == ("around a", inner)


async def test_an_endpoint_without_a_client_is_an_error_that_says_what_to_do(anyio_backend):
    pool: EndpointPool[Client] = EndpointPool([Endpoint("a")])
    with pytest.raises(ConfigurationError, match=r"endpoint 'a' has no client\. Give the pool"):
        pool.client_for(pool.preferred)


# Closing.


async def test_closing_closes_what_was_given_and_what_was_made_once(anyio_backend):
    """openai-priority-loadbalancer issue 36: a pool that nobody could close."""
    factory, given, unused = Factory(), Client("given"), Client("unused")
    members = [("given", given), ("unused", unused), ("again", unused), Endpoint("made")]
    pool: EndpointPool[Client] = EndpointPool(members, client_factory=factory)
    async with pool:
        for endpoint in pool.endpoints[:1] + pool.endpoints[3:]:
            pool.client_for(endpoint)
    await pool.aclose()
    closed = [each.closed for each in (given, unused, *factory.made, factory)]
    assert closed == [1, 1, 1, 1]


async def test_closing_a_wrapper_closes_what_is_in_it_once(anyio_backend):
    used, unused = Client(), Client()
    pool = EndpointPool({"used": used, "unused": unused}, wrap=Wrapper)
    wrapper = pool.client_for(pool.endpoints[0])
    await pool.aclose()
    assert [wrapper.closed, used.closed, unused.closed] == [1, 1, 1]


async def test_all_are_closed_also_if_one_does_not(anyio_backend):
    clients = [Client("one", fails=True), Client("other")]
    with pytest.raises(RuntimeError, match="one does not close"):
        await EndpointPool({client.name: client for client in clients}).aclose()
    assert [client.closed for client in clients] == [1, 1]


async def test_a_closed_pool_gives_out_no_clients(anyio_backend):
    pool = EndpointPool({"a": Client()})
    await pool.aclose()
    with pytest.raises(ClientClosedError, match="the pool was used after aclose"):
        pool.client_for(pool.preferred)


# Views.


def test_a_pinned_view_has_one_member_and_the_same_state(build):
    """[pools 64]: what was begun at a member goes on there."""
    pool = build("a", "b")
    view = pool.pinned("b")
    assert [each.id for each in view.endpoints] == ["b"]
    assert {view.take().endpoint.id for _ in range(10)} == {"b"}
    pool.fail("b", RateLimitError("slow down", status_code=429, retry_after=7))
    assert view.cooling().wait == 7
    assert [state.id for state in view.snapshot()] == ["b"]
    assert view.endpoints is view.endpoints


def test_a_pinned_view_of_an_endpoint_that_has_gone_is_empty(build):
    pool = build("a", "b")
    view = pool.pinned("b")
    pool.replace_endpoints([Endpoint("a"), Endpoint("c")])
    assert (view.endpoints, view.snapshot()) == ((), ())
    with pytest.raises(NoEndpointAvailableError, match="endpoints allowed: 'b'"):
        view.pick()


async def test_closing_a_pinned_view_closes_nothing(anyio_backend):
    client = Client()
    pool = EndpointPool({"a": client})
    await pool.pinned("a").aclose()
    assert client.closed == 0


def test_only_a_member_can_be_pinned(build):
    with pytest.raises(ConfigurationError, match="no endpoint 'c'; it has 'a', 'b'"):
        build("a", "b").pinned("c")


# Other endpoints.


def test_members_that_stay_keep_what_is_known_of_them(build):
    pool = build("a", "b")
    pool.fail("a", RateLimitError("slow down", status_code=429, retry_after=7))
    pool.take("b")
    pool.replace_endpoints([Endpoint("a", weight=2.0), Endpoint("b"), Endpoint("c")])
    assert [state.ready_in for state in pool.snapshot()] == [7, 0, 0]
    assert pool.state("b").in_flight == 1


def test_other_limits_count_from_now_on_and_leave_the_rest_as_it_is(build):
    pool = build(Endpoint("a", tpm=100), Endpoint("b", tpm=100), enforce_tpm=True)
    pool.take("b", tokens=100)
    pool.fail("b", RateLimitError("slow down", status_code=429, retry_after=7))
    pool.replace_endpoints([Endpoint("a", tpm=1), Endpoint("b", tpm=1000)])
    assert [state.ready_in for state in pool.snapshot()] == [0, 7]
    budget = pool._core.table.members["b"].budget
    assert budget is not None
    assert budget.has_room(1000, 0.0)


def test_a_new_key_brings_a_parked_member_back(build):
    """[pools B18]: rotated keys need no restart."""
    pool = build(Endpoint("a", auth=ApiKey("old")), "b")
    pool.fail("a", AuthenticationError("bad key", status_code=401))
    pool.replace_endpoints([Endpoint("a", auth=ApiKey("new")), Endpoint("b")])
    assert pool.rest("a") == 0
    assert pool.take("a").endpoint.auth == ApiKey("new")


def test_a_member_that_stays_as_it_is_stays_parked(build):
    pool = build("a", "b")
    pool.fail("a", AuthenticationError("bad key", status_code=401))
    pool.replace_endpoints([Endpoint("a"), Endpoint("b")])
    assert pool.rest("a") == 300


def test_a_member_that_was_set_aside_is_tried_among_the_new_ones(build, clock):
    """Whoever replaced them may have mended it."""
    pool = build("a", "b", trial_share=0.01)
    for _ in range(2):
        pool.fail("a", InternalServerError("broken", status_code=500))
        clock.advance(5)
    assert set(pool.names(20)) == {"b"}
    pool.replace_endpoints([Endpoint("a"), Endpoint("b")])
    assert set(pool.names(20)) == {"a", "b"}


def test_another_place_under_the_same_id_begins_anew(build):
    pool = build(Endpoint("a", "https://one"), "b")
    pool.fail("a", RateLimitError("slow down", status_code=429))
    pool.replace_endpoints([Endpoint("a", "https://other"), Endpoint("b")])
    assert pool.rest("a") == 0


def test_attempts_end_as_they_began_whatever_was_replaced(build):
    pool = build("a", "b")
    tickets = [pool.take("a"), pool.take("b")]
    pool.replace_endpoints([Endpoint("b"), Endpoint("c")])
    pool.failed(tickets[0], RateLimitError("slow down", status_code=429))
    pool.succeeded(tickets[1])
    assert [(state.in_flight, state.ready_in) for state in pool.snapshot()] == [(0, 0), (0, 0)]


def test_the_last_member_of_a_larger_pool_is_not_held_back(build):
    """[pools 57]"""
    pool = build("a", "b")
    pool.fail("a", RateLimitError("slow down", status_code=429, retry_after=60))
    pool.replace_endpoints([Endpoint("a")])
    assert pool.names(1) == ["a"]


def test_other_endpoints_are_checked_before_they_take_the_place(build):
    pool = build("a", "b")
    with pytest.raises(ConfigurationError, match="the pool has no endpoints"):
        pool.replace_endpoints([])
    assert [each.id for each in pool.endpoints] == ["a", "b"]


async def test_an_endpoint_that_is_given_again_keeps_its_client(anyio_backend):
    factory = Factory()
    pool = EndpointPool([Endpoint("a"), Endpoint("b")], client_factory=factory)
    client = pool.client_for(pool.endpoints[0])
    pool.replace_endpoints([Endpoint("a"), Endpoint("b", weight=2.0)])
    assert pool.client_for(pool.endpoints[0]) is client
    pool.client_for(pool.endpoints[1])
    await pool.aclose()
    assert [client.closed for client in factory.made] == [1, 1]


# Copies, names and defaults.


def test_a_copy_of_a_pool_is_the_pool(build):
    """[BR-75]"""
    pool = build("a")
    assert copy.copy(pool) is pool
    assert copy.deepcopy([pool])[0] is pool
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(pool)


def test_a_pool_has_a_name_and_a_policy(build):
    pool = build("a")
    assert pool.name == "test"
    assert EndpointPool([Endpoint("a")]).policy == PoolPolicy()


def test_without_a_seed_each_pool_draws_for_itself():
    names = "abcdefghij"
    drawn = []
    for _ in range(2):
        pool: EndpointPool[Client] = EndpointPool([Endpoint(name) for name in names])
        tickets = [pool.pick() for _ in range(20)]
        drawn.append([ticket.endpoint.id for ticket in tickets])
    assert drawn[0] != drawn[1]


# Threads.


def test_many_threads_may_use_one_pool(build):
    """[BR-47]: counters are right also where threads race."""
    pool = build("a", "b", Endpoint("c", max_concurrency=3))
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(300):
                found = pool.pick()
                if isinstance(found, Cooling):
                    continue
                give_back(pool, found, (number + turn) % 3)
        except BaseException as error:  # noqa: BLE001  # told by the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [state.in_flight for state in pool.snapshot()] == [0, 0, 0]


def give_back(pool: EndpointPool[Any], ticket: Ticket, way: int) -> None:
    if way == 0:
        pool.succeeded(ticket, latency=0.1)
    elif way == 1:
        pool.failed(ticket, RateLimitError("slow down", status_code=429, retry_after=0.0))
    else:
        pool.released(ticket)


async def test_a_slot_given_back_in_another_thread_wakes_a_request_here(anyio_backend):
    pool: EndpointPool[Client] = EndpointPool([Endpoint("a", max_concurrency=1)])
    held = await pool.acquire()
    thread = threading.Timer(0.02, pool.released, [held])
    thread.start()
    ticket = await pool.acquire(limit=20)
    assert ticket.endpoint.id == "a"
    thread.join()


def test_requests_of_several_event_loops_share_the_slots_of_one_member():
    """[BR-71] [BR-54]: nobody is forgotten, whoever gives a slot back."""
    pool: EndpointPool[Client] = EndpointPool([Endpoint("a", max_concurrency=3)])
    done: list[int] = []
    in_flight: set[int] = set()

    async def ask(number: int) -> None:
        for _ in range(5):
            ticket = await pool.acquire(limit=20)
            in_flight.add(pool.snapshot()[0].in_flight)
            await anyio.sleep(0.001)
            pool.succeeded(ticket)
        done.append(number)

    async def crowd() -> None:
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(ask, number)

    threads = [
        threading.Thread(target=anyio.run, args=(crowd,), kwargs={"backend": backend})
        for backend in ("asyncio", "trio", "asyncio", "trio")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == sorted([*range(20)] * 4)
    assert max(in_flight) == 3
    assert pool.snapshot()[0].in_flight == 0


def test_what_is_collected_in_the_middle_of_something_is_given_back_after_it():
    """A stream may be dropped, its loop closed, while this thread chooses a member. [BR-53]"""
    pool = EndpointPool([Endpoint("a"), Endpoint("b")])
    ticket = pool.pick()
    assert isinstance(ticket, Ticket)
    with pool._core.lock:
        pool.released(ticket)
        assert ticket.is_open
    assert not ticket.is_open
    assert sum(state.in_flight for state in pool.snapshot()) == 0


@pytest.mark.parametrize("work", ["pick", "succeeded"])
def test_what_is_dropped_in_the_middle_is_given_back_afterwards(work):
    """A destructor may run anywhere, also while the pool's lock is held by the same thread."""
    dropped = []

    def clock():
        while dropped:
            pool.released(dropped.pop())
        return 0.0

    pool = EndpointPool([Endpoint("a"), Endpoint("b")], clock=clock)
    kept = pool.pick()
    dropped.append(pool.pick())

    if work == "pick":
        pool.pick()
    else:
        pool.succeeded(kept)

    assert sum(each.in_flight for each in pool.snapshot()) == (2 if work == "pick" else 0)
