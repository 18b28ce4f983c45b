"""Waiting for all candidates at once, after each of them has refused the request."""

import math

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    ChatOptions,
    DelegatingChatClient,
    FailoverChatClient,
    OrderedFailoverChatClient,
    RetryChatClient,
    RoutingChatClient,
    RoutingHints,
    Selection,
)
from chatrouting.errors import (
    InternalServerError,
    QuotaExceededError,
    RefusedLocallyError,
    RequestTimeoutError,
)
from chatrouting.scope import current_scope
from chatrouting.testing import ScriptedChatClient, fails

REFUSED = AttemptOutcome.REFUSED_LOCALLY
COMPLETED = AttemptOutcome.COMPLETED
FAILED = AttemptOutcome.FAILED


class Place:
    """A place in the queue of a `Gated` client."""

    def __init__(self, gated, request, tickets, offer):
        self.gated, self.request, self.tickets, self.offer = gated, request, tickets, offer
        self.deadline = gated.deadline
        self.has_left = False

    def refusal(self):
        return QuotaExceededError(f"{self.gated.name} has no room", retry_after=9.0)

    def leave(self):
        self.has_left = True
        self.tickets.pop(self.gated, None)


class Gated(DelegatingChatClient):
    """Admits a request only if it was offered admission, by `open`."""

    def __init__(self, name, inner=None, *, deadline=math.inf, takes=True):
        super().__init__(inner or ScriptedChatClient(name))
        self.name, self.deadline, self.takes = name, deadline, takes
        self.places = []
        self.charged = 0
        self.saw_others_wait = []

    def enter_queue(self, messages, options, tickets, offer):
        if not self.takes:
            return None
        self.places.append(Place(self, (messages, options), tickets, offer))
        return self.places[-1]

    def open(self):
        """Offer admission to the first that waits; say whether it was taken."""
        place = next(place for place in self.places if not place.has_left)
        if taken := place.offer():
            self.charged += 1
            place.tickets[self] = True
        return taken

    def _check(self):
        scope = current_scope()
        self.saw_others_wait.append(scope is not None and scope.waits_together)
        if scope is None or not scope.tickets.pop(self, False):
            raise QuotaExceededError(f"{self.name} has no room", retry_after=1.0)

    async def get_response(self, messages, options=None):
        self._check()
        return await super().get_response(messages, options)

    def get_streaming_response(self, messages, options=None):
        self._check()
        return super().get_streaming_response(messages, options)


async def waiting_for(*clients):
    """Wait until each client has a request in its queue."""
    while not all(client.places for client in clients):
        await anyio.lowlevel.checkpoint()


async def test_a_refused_request_is_invoked_again_where_it_is_admitted_first(answer, log):
    """Rule 15: the refusals are not terminal, the granted client gets a record of its own."""
    a, b = Gated("a"), Gated("b")
    router = OrderedFailoverChatClient({"a": a, "b": b}, on_routing_update=log)
    answers = []

    async def ask():
        answers.append(await answer(router))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await waiting_for(a, b)
        assert b.open()
        assert not a.open()

    assert answers[0].text == "b"
    assert [(each.route, each.outcome) for each in log.attempts] == [
        ("a", REFUSED),
        ("b", REFUSED),
        ("b", COMPLETED),
    ]
    assert log.terminals == [False, False, True]
    assert [each.number for each in log.attempts] == [1, 2, 3]
    assert (a.charged, b.charged) == (0, 1)
    assert a.places[0].has_left
    assert a.saw_others_wait == [True]


async def test_an_admission_taken_by_nobody_is_given_back(mode, answer):
    """The caller gives up in the moment in which it is admitted."""
    a = Gated("a")
    router = OrderedFailoverChatClient([a])
    async with anyio.create_task_group() as group:
        group.start_soon(answer, router)
        await waiting_for(a)
        assert a.open()
        group.cancel_scope.cancel()

    assert a.places[0].has_left
    assert a.places[0].tickets == {}


async def test_a_cancelled_wait_leaves_all_queues(answer):
    a, b = Gated("a"), Gated("b")
    async with anyio.create_task_group() as group:
        group.start_soon(answer, OrderedFailoverChatClient([a, b]))
        await waiting_for(a, b)
        group.cancel_scope.cancel()

    assert a.places[0].has_left
    assert b.places[0].has_left


@pytest.mark.virtual_time
async def test_a_wait_in_vain_raises_what_the_queue_says(answer, log):
    a = Gated("a", deadline=anyio.current_time() + 5)
    b = Gated("b", deadline=anyio.current_time() + 7)
    started = anyio.current_time()
    with pytest.raises(QuotaExceededError) as raised:
        await answer(OrderedFailoverChatClient([a, b], on_routing_update=log))

    assert anyio.current_time() - started == pytest.approx(7)
    assert raised.value.retry_after == 9.0
    assert log.outcomes == [REFUSED, REFUSED]
    assert log.terminals == [False, False]


@pytest.mark.virtual_time
async def test_the_deadline_of_the_request_bounds_the_wait(answer):
    a = Gated("a")
    options = ChatOptions(routing=RoutingHints(timeout=3.0))
    started = anyio.current_time()
    with pytest.raises(RequestTimeoutError):
        await answer(OrderedFailoverChatClient([a]), "Hi", options)

    assert anyio.current_time() - started == pytest.approx(3)
    assert a.places[0].has_left


async def test_without_a_queue_the_last_refusal_is_raised(answer, log):
    refused = ScriptedChatClient(fails(RefusedLocallyError("full", retry_after=2.0)))
    a = Gated("a", takes=False)
    with pytest.raises(RefusedLocallyError, match="full"):
        await answer(OrderedFailoverChatClient([a, refused], on_routing_update=log))

    assert log.terminals == [False, False]


async def test_nobody_waits_once_a_provider_was_asked(answer, log):
    a, failing = Gated("a"), ScriptedChatClient(fails(InternalServerError("down")))
    with pytest.raises(InternalServerError):
        await answer(OrderedFailoverChatClient([failing, a], on_routing_update=log))

    assert a.places == []
    assert log.terminals == [False, True]


async def test_a_router_that_selects_once_leaves_waiting_to_its_client(answer):
    a = Gated("a")
    with pytest.raises(QuotaExceededError):
        await answer(RoutingChatClient(lambda _: a))

    assert a.places == []
    assert a.saw_others_wait == [False]


async def test_a_router_within_refuses_and_the_outermost_waits_for_all(answer, log):
    a, b, c = Gated("a"), Gated("b"), Gated("c")
    inner = OrderedFailoverChatClient({"a": a, "b": b})
    router = OrderedFailoverChatClient({"inner": inner, "c": c}, on_routing_update=log)
    answers = []

    async def ask():
        answers.append(await answer(router))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await waiting_for(a, b, c)
        assert b.open()

    assert answers[0].text == "b"
    assert [(each.route, each.outcome) for each in log.attempts] == [
        ("inner", REFUSED),
        ("c", REFUSED),
        ("inner", COMPLETED),
    ]
    assert (a.charged, b.charged, c.charged) == (0, 1, 0)


async def test_the_granted_client_gets_what_its_refused_call_was_given(answer):
    a = Gated("a", ScriptedChatClient("late"))
    shaped = ChatOptions(model="shaped")
    choices = iter([Selection(a, shaped, "shorter"), None])
    router = FailoverChatClient(lambda _: next(choices))
    async with anyio.create_task_group() as group:
        group.start_soon(answer, router)
        await waiting_for(a)
        assert a.places[0].request[1] is shaped
        a.open()

    [call] = a.inner.calls
    assert (call.options, call.messages[0].text) == (shaped, "shorter")


async def test_a_client_that_fails_after_its_admission_ends_the_request(answer, log):
    a = Gated("a", ScriptedChatClient(fails(InternalServerError("down"))))
    router = OrderedFailoverChatClient([a], on_routing_update=log)
    errors = []

    async def ask():
        with pytest.raises(InternalServerError) as raised:
            await answer(router)
        errors.append(raised.value)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await waiting_for(a)
        a.open()

    assert len(errors) == 1
    assert log.outcomes == [REFUSED, FAILED]
    assert log.terminals == [False, True]


async def test_a_client_that_refuses_after_its_offer_is_not_waited_for_again(answer, log):
    class Forgetful(Gated):
        def open(self):
            return self.places[0].offer()

    a = Forgetful("a")
    errors = []

    async def ask():
        with pytest.raises(QuotaExceededError) as raised:
            await answer(OrderedFailoverChatClient([a], on_routing_update=log))
        errors.append(raised.value)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await waiting_for(a)
        a.open()

    assert len(errors) == 1
    assert log.outcomes == [REFUSED, REFUSED]
    assert log.terminals == [False, True]


async def test_a_retry_waits_for_its_client(answer):
    a = Gated("a", ScriptedChatClient("yes"))
    answers = []

    async def ask():
        answers.append(await answer(RetryChatClient(a)))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await waiting_for(a)
        a.open()

    assert answers[0].text == "yes"
