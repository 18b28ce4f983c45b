"""Waiting for all candidates at once, after each of them has refused the request."""

import asyncio
import contextlib
import math
from dataclasses import dataclass

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    ChatMessage,
    ChatOptions,
    DelegatingChatClient,
    FailoverChatClient,
    OrderedFailoverChatClient,
    RetryChatClient,
    RoutingChatClient,
    RoutingHints,
    Selection,
)
from chatrouting.admission import AdmissionRequest
from chatrouting.errors import (
    InternalServerError,
    OverloadedError,
    QuotaExceededError,
    RefusedLocallyError,
    RequestTimeoutError,
)
from chatrouting.scope import current_scope
from chatrouting.testing import ScriptedChatClient, fails, runs

REFUSED = AttemptOutcome.REFUSED_LOCALLY
COMPLETED = AttemptOutcome.COMPLETED
FAILED = AttemptOutcome.FAILED


class Desk:
    """Admits one request at a time, when it is opened."""

    def __init__(self, patience=math.inf):
        self.patience = patience
        self.opened = anyio.Event()
        self.admits = None
        self.waiting = []
        self.timeouts = []
        self.charged = []
        self.given_back = 0
        self.was_cancelled = False

    async def wait_for_admission(self, wanted, tickets, timeout):
        self.waiting.append(list(wanted))
        self.timeouts.append(timeout)
        try:
            with anyio.move_on_after(self.patience):
                await self.opened.wait()
        except BaseException:
            self.was_cancelled = True
            raise
        if self.admits is None:
            raise QuotaExceededError("waited in vain", retry_after=9.0)
        self.charged.append(self.admits.name)
        tickets[self.admits] = self
        return [each.client for each in wanted].index(self.admits)

    def give_back(self, tickets):
        for client in [client for client, desk in tickets.items() if desk is self]:
            self.given_back += 1
            del tickets[client]

    def open(self, client):
        """Let the request that waits in, at one client."""
        self.admits = client
        self.opened.set()


class Odd(Desk):
    """A desk that raises something of its own."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    async def wait_for_admission(self, wanted, tickets, timeout):
        self.waiting.append(list(wanted))
        await anyio.lowlevel.checkpoint()
        raise self.error

    def give_back(self, tickets):
        raise KeyError("given back")


@dataclass
class Wanted:
    """What a `Gated` client would wait for."""

    client: "Gated"
    messages: tuple[ChatMessage, ...]
    options: ChatOptions
    is_streaming: bool


class Gated(DelegatingChatClient):
    """Admits a request only if its desk has."""

    def __init__(self, name, desk, inner=None, *, takes=True):
        super().__init__(inner or ScriptedChatClient(name))
        self.name, self.desk, self.takes = name, desk, takes
        self.saw_others_wait = []

    def admission_requests(self, messages, options, *, is_streaming):
        wanted = Wanted(self, messages, options, is_streaming)
        return [AdmissionRequest(self.desk, wanted)] if self.takes else []

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


async def waiting_at(*desks):
    """Wait until a request waits at each desk."""
    while not all(desk.waiting for desk in desks):
        await anyio.lowlevel.checkpoint()


async def asked_while(answer, router, desks, act):
    """Ask a router, act once the request waits, and return the answer or the error."""
    results = []

    async def ask():
        try:
            results.append(await answer(router))
        except Exception as error:  # noqa: BLE001  # for the test to look at
            results.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await waiting_at(*desks)
        act(group)
    return results[0] if results else None


async def test_a_refused_request_is_invoked_again_where_it_is_admitted_first(answer, log, mode):
    """Rule 15: the refusals are not terminal, the admitted client gets a record of its own."""
    desk = Desk()
    a, b = Gated("a", desk), Gated("b", desk)
    router = OrderedFailoverChatClient({"a": a, "b": b}, on_routing_update=log)
    response = await asked_while(answer, router, [desk], lambda _: desk.open(b))

    assert response.text == "b"
    assert [(each.route, each.outcome, each.number) for each in log.attempts] == [
        ("a", REFUSED, 1),
        ("b", REFUSED, 2),
        ("b", COMPLETED, 3),
    ]
    assert log.terminals == [False, False, True]
    [wanted] = desk.waiting
    assert [each.client for each in wanted] == [a, b]
    assert {each.is_streaming for each in wanted} == {mode == "streaming"}
    assert desk.charged == ["b"]
    assert desk.given_back == 0
    assert a.saw_others_wait == [True]


async def test_at_one_desk_a_request_waits_itself(answer):
    """Rule 18: no task for a request that does not race."""
    tasks = []

    class Noting(Desk):
        async def wait_for_admission(self, wanted, tickets, timeout):
            tasks.append(anyio.get_current_task().id)
            return await super().wait_for_admission(wanted, tickets, timeout)

    desk = Noting()
    router = OrderedFailoverChatClient(
        [a := Gated("a", desk), Gated("b", desk)],
        on_routing_update=lambda *_: tasks.append(anyio.get_current_task().id),
    )
    await asked_while(answer, router, [desk], lambda _: desk.open(a))

    assert len(tasks) == 4
    assert len(set(tasks)) == 1


async def test_several_desks_race_and_one_charges(answer):
    first, second = Desk(), Desk()
    router = OrderedFailoverChatClient([Gated("a", first), b := Gated("b", second)])
    response = await asked_while(answer, router, [first, second], lambda _: second.open(b))

    assert response.text == "b"
    assert (first.charged, second.charged) == ([], ["b"])
    assert first.was_cancelled


async def test_what_a_second_desk_admits_in_the_same_moment_is_given_back_at_once(answer):
    first, second = Desk(), Desk()
    held = []

    def look(_):
        held.append([len(desk.charged) - desk.given_back for desk in (first, second)])

    a = Gated("a", first, ScriptedChatClient(runs(look), "a"))
    b = Gated("b", second, ScriptedChatClient(runs(look), "b"))

    def open_both(_):
        first.open(a)
        second.open(b)

    router = OrderedFailoverChatClient([a, b])
    response = await asked_while(answer, router, [first, second], open_both)

    assert (first.charged, second.charged) == (["a"], ["b"])
    assert held == [[1, 0] if response.text == "a" else [0, 1]]


async def test_a_desk_that_refuses_leaves_the_others_waiting(answer):
    first, second = Desk(patience=0), Desk()
    router = OrderedFailoverChatClient([Gated("a", first), b := Gated("b", second)])
    response = await asked_while(answer, router, [first, second], lambda _: second.open(b))

    assert response.text == "b"


async def test_an_admission_is_used_or_given_back(answer):
    """The caller gives up in the moment in which the request is admitted."""
    desk = Desk()
    a = Gated("a", desk)

    def admit_and_cancel(group):
        desk.open(a)
        group.cancel_scope.cancel()

    await asked_while(answer, OrderedFailoverChatClient([a]), [desk], admit_and_cancel)
    assert len(desk.charged) == desk.given_back + len(a.inner.calls)


async def test_a_cancelled_wait_charges_nothing(answer):
    desk = Desk()
    router = OrderedFailoverChatClient([Gated("a", desk), Gated("b", desk)])
    await asked_while(answer, router, [desk], lambda group: group.cancel_scope.cancel())

    assert desk.was_cancelled
    assert desk.charged == []


@pytest.mark.virtual_time
@pytest.mark.parametrize("patience", [(5, 5), (5, 7)])
async def test_a_wait_in_vain_raises_what_the_first_desk_says(patience, answer, log):
    desks = [Desk(each) for each in patience]
    router = OrderedFailoverChatClient(
        [Gated("a", desks[0]), Gated("b", desks[1])], on_routing_update=log
    )
    started = anyio.current_time()
    with pytest.raises(QuotaExceededError, match="in vain") as raised:
        await answer(router)

    assert anyio.current_time() - started == pytest.approx(max(patience))
    assert raised.value.retry_after == 9.0
    assert log.outcomes == [REFUSED, REFUSED]
    assert log.terminals == [False, False]


@pytest.mark.virtual_time
async def test_the_deadline_of_the_request_bounds_the_wait(answer):
    desk = Desk()
    options = ChatOptions(routing=RoutingHints(timeout=3.0))
    started = anyio.current_time()
    with pytest.raises(RequestTimeoutError):
        await answer(OrderedFailoverChatClient([Gated("a", desk)]), "Hi", options)

    assert anyio.current_time() - started == pytest.approx(3)
    assert desk.timeouts == [pytest.approx(3)]
    assert desk.was_cancelled


@pytest.mark.virtual_time
async def test_no_time_is_left_where_a_hook_has_used_it_up(answer):
    class Slow(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            await anyio.sleep(5)

    desk = Desk()
    options = ChatOptions(routing=RoutingHints(timeout=3.0))
    with pytest.raises(RequestTimeoutError):
        await answer(Slow([Gated("a", desk)]), "Hi", options)

    assert desk.timeouts == [0]


async def test_without_a_queue_the_last_refusal_is_raised(answer, log):
    refused = ScriptedChatClient(fails(RefusedLocallyError("full", retry_after=2.0)))
    a = Gated("a", Desk(), takes=False)
    with pytest.raises(RefusedLocallyError, match="full"):
        await answer(OrderedFailoverChatClient([a, refused], on_routing_update=log))

    assert log.terminals == [False, False]


async def test_nobody_waits_once_a_provider_was_asked(answer, log):
    desk, failing = Desk(), ScriptedChatClient(fails(InternalServerError("down")))
    with pytest.raises(InternalServerError):
        await answer(OrderedFailoverChatClient([failing, Gated("a", desk)], on_routing_update=log))

    assert desk.waiting == []
    assert log.terminals == [False, True]


async def test_a_router_that_selects_once_leaves_waiting_to_its_client(answer):
    a = Gated("a", Desk())
    with pytest.raises(QuotaExceededError):
        await answer(RoutingChatClient(lambda _: a))

    assert a.desk.waiting == []
    assert a.saw_others_wait == [False]


async def test_a_router_that_selects_once_passes_on_that_others_are_waited_for(answer):
    a = Gated("a", Desk())
    router = OrderedFailoverChatClient([RoutingChatClient(lambda _: a), ScriptedChatClient("b")])

    assert (await answer(router)).text == "b"
    assert a.saw_others_wait == [True]


class Layered(DelegatingChatClient):
    """Middleware of a user's own, which knows nothing of queues."""

    def get_service(self, service_type, service_key=None):
        return self if isinstance(self, service_type) else None


@pytest.mark.parametrize("wrap", [lambda each: each, Layered], ids=["bare", "wrapped"])
async def test_a_client_is_waited_for_through_routers_that_select_once(answer, log, wrap):
    """Rule 15: where a request may wait it does, however deep its client stands."""
    desk = Desk()
    a, b, c = (Gated(name, desk) for name in "abc")
    inner = RoutingChatClient(lambda _: b, routes={"a": a, "b": b})
    deeper = wrap(RoutingChatClient(lambda _: inner))
    router = OrderedFailoverChatClient({"once": deeper, "c": c}, on_routing_update=log)
    response = await asked_while(answer, router, [desk], lambda _: desk.open(b))

    assert response.text == "b"
    assert [(each.route, each.outcome) for each in log.attempts] == [
        ("once", REFUSED),
        ("c", REFUSED),
        ("once", COMPLETED),
    ]
    assert [each.client for each in desk.waiting[0]] == [b, c]
    assert desk.given_back == 0


async def test_a_client_inside_that_was_asked_and_failed_is_not_waited_for(log):
    """Rule 15: it had room. The middleware between has turned to a client that has none."""
    desk = Desk()

    class Failing(Gated):
        async def get_response(self, messages, options=None):
            raise OverloadedError

    class Turning(Layered):
        async def get_response(self, messages, options=None):
            with contextlib.suppress(OverloadedError):
                await RoutingChatClient(lambda _: failing).get_response(messages, options)
            return await super().get_response(messages, options)

    failing, refusing = Failing("a", desk), Gated("b", desk)
    router = OrderedFailoverChatClient(
        [Turning(RoutingChatClient(lambda _: refusing))], on_routing_update=log
    )
    async with anyio.create_task_group() as group:
        group.start_soon(router.get_response, "Hi")
        await waiting_at(desk)
        desk.open(refusing)

    assert [each.client for each in desk.waiting[0]] == [refusing]
    assert log.outcomes == [REFUSED, COMPLETED]


async def test_an_admission_that_another_choice_leaves_unused_is_given_back(answer):
    """The policy of a router that selects once is asked anew, and may choose otherwise."""
    desk, other = Desk(), ScriptedChatClient("other")
    a = Gated("a", desk)
    choices = iter([a, other])
    router = OrderedFailoverChatClient([RoutingChatClient(lambda _: next(choices))])

    response = await asked_while(answer, router, [desk], lambda _: desk.open(a))

    assert (response.text, desk.charged, desk.given_back) == ("other", ["a"], 1)


async def test_two_calls_of_one_request_may_be_admitted_at_one_desk():
    """What one of them was granted is not mistaken for the other's, nor lost."""
    desk, other = Desk(), Desk()
    inner = OrderedFailoverChatClient([a := Gated("a", desk), Gated("b", other)])
    answers = []

    class Twice(DelegatingChatClient):
        async def get_response(self, messages, options=None):
            async def ask():
                answers.append(await self.inner.get_response(messages, options))

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                group.start_soon(ask)
                while len(desk.waiting) < 2:
                    await anyio.lowlevel.checkpoint()
                desk.open(a)
            return answers[0]

    await RoutingChatClient(lambda _: Twice(inner)).get_response("Hi")

    assert [each.text for each in answers] == ["a", "a"]
    assert (len(desk.charged), desk.given_back) == (2, 0)


async def test_a_router_within_refuses_and_the_outermost_waits_for_all(answer, log):
    desk = Desk()
    a, b, c = (Gated(name, desk) for name in "abc")
    inner = OrderedFailoverChatClient({"a": a, "b": b})
    router = OrderedFailoverChatClient({"inner": inner, "c": c}, on_routing_update=log)
    response = await asked_while(answer, router, [desk], lambda _: desk.open(b))

    assert response.text == "b"
    assert [(each.route, each.outcome) for each in log.attempts] == [
        ("inner", REFUSED),
        ("c", REFUSED),
        ("inner", COMPLETED),
    ]
    assert [each.client for each in desk.waiting[0]] == [a, b, c]
    assert desk.charged == ["b"]


async def test_the_admitted_client_gets_what_its_refused_call_was_given(answer):
    desk = Desk()
    a = Gated("a", desk, ScriptedChatClient("late"))
    shaped = ChatOptions(model="shaped")
    choices = iter([Selection(a, shaped, "shorter"), None])
    router = FailoverChatClient(lambda _: next(choices))
    await asked_while(answer, router, [desk], lambda _: desk.open(a))

    assert desk.waiting[0][0].options is shaped
    [call] = a.inner.calls
    assert (call.options, call.messages[0].text) == (shaped, "shorter")


async def test_a_client_that_fails_after_its_admission_ends_the_request(answer, log):
    desk = Desk()
    a = Gated("a", desk, ScriptedChatClient(fails(InternalServerError("down"))))
    router = OrderedFailoverChatClient([a], on_routing_update=log)
    error = await asked_while(answer, router, [desk], lambda _: desk.open(a))

    assert isinstance(error, InternalServerError)
    assert log.outcomes == [REFUSED, FAILED]
    assert log.terminals == [False, True]


async def test_a_client_that_refuses_after_its_admission_is_not_waited_for_again(answer, log):
    class Forgetful(Gated):
        def _check(self):
            raise QuotaExceededError("forgotten")

    desk = Desk()
    a = Forgetful("a", desk)
    router = OrderedFailoverChatClient([a], on_routing_update=log)
    error = await asked_while(answer, router, [desk], lambda _: desk.open(a))

    assert isinstance(error, QuotaExceededError)
    assert log.outcomes == [REFUSED, REFUSED]
    assert log.terminals == [False, True]
    assert desk.given_back == 1


async def test_a_retry_waits_for_its_client(answer):
    desk = Desk()
    a = Gated("a", desk)
    response = await asked_while(answer, RetryChatClient(a), [desk], lambda _: desk.open(a))

    assert response.text == "a"


async def test_a_record_after_a_wait_tells_of_the_choice_that_was_admitted(answer, log):
    """The reason of another client's choice is none of the admitted one's."""
    desk = Desk()
    a, b = Gated("a", desk), Gated("b", desk)
    choices = iter([Selection(a, reason="near", detail=1), Selection(b, reason="cheap", detail=2)])
    seen = []

    class Router(FailoverChatClient):
        async def select_client(self, context):
            return next(choices, None)

        async def on_routing_update(self, context, attempt, is_terminal):
            seen.append(context.selection and context.selection.reason)

    router = Router(on_routing_update=log)
    await asked_while(answer, router, [desk], lambda _: desk.open(a))

    assert [(each.reason, each.detail) for each in log.attempts] == [
        ("near", 1),
        ("cheap", 2),
        ("near", 1),
    ]
    assert seen == ["near", "cheap", "near"]


async def test_a_list_with_a_say_of_its_own_is_not_walked_to_its_end(answer):
    """`may_select_again` has ended the walk; that somebody may be waited for does not go on."""

    class FirstOnly(OrderedFailoverChatClient):
        def may_select_again(self, context):
            return False

    desk = Desk()
    a, b = Gated("a", desk), ScriptedChatClient("b")
    response = await asked_while(answer, FirstOnly([a, b]), [desk], lambda _: desk.open(a))

    assert response.text == "a"
    assert b.calls == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_desks_own_cancellation_leaves_the_others_waiting(anyio_backend, answer):
    odd, desk = Odd(asyncio.CancelledError()), Desk()
    router = OrderedFailoverChatClient([Gated("a", odd), b := Gated("b", desk)])
    response = await asked_while(answer, router, [odd, desk], lambda _: desk.open(b))

    assert response.text == "b"


@pytest.mark.parametrize("desks", [1, 2])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_where_all_desks_cancel_themselves_that_is_an_error(anyio_backend, answer, desks):
    router = OrderedFailoverChatClient(
        [Gated(str(each), Odd(asyncio.CancelledError())) for each in range(desks)]
    )
    with pytest.raises(RuntimeError, match="policy raised a cancellation"):
        await answer(router)


async def test_an_error_of_a_desk_is_not_hidden_by_anothers_refusal(answer, caplog):
    refusing = Desk(patience=0)
    router = OrderedFailoverChatClient([Gated("a", refusing), Gated("b", Odd(KeyError("desk")))])
    with pytest.raises(KeyError, match="desk"):
        await answer(router)

    assert [each.message for each in caplog.records].count("routing.desk_failed") == 1


async def test_a_desk_that_cannot_give_back_costs_no_answer(answer, caplog):
    odd, desk = Odd(KeyError("desk")), Desk()
    router = OrderedFailoverChatClient([Gated("a", odd), b := Gated("b", desk)])
    response = await asked_while(answer, router, [odd, desk], lambda _: desk.open(b))

    assert response.text == "b"
    assert "routing.give_back_failed" in caplog.text


@pytest.mark.virtual_time
async def test_a_desk_learns_how_long_the_request_has_whoever_enforces_it(answer):
    """The deadline is the outermost router's to enforce; the desk of an inner one sees it too."""
    desk = Desk(patience=1)
    inner = OrderedFailoverChatClient([Gated("a", desk)])
    with pytest.raises(QuotaExceededError):
        await answer(
            RoutingChatClient(lambda _: inner),
            "Hi",
            ChatOptions(routing=RoutingHints(timeout=3.0)),
        )

    assert desk.timeouts == [pytest.approx(3)]


@pytest.mark.virtual_time
async def test_a_desk_learns_that_a_request_may_take_for_ever(answer):
    desk = Desk(patience=1)
    with pytest.raises(QuotaExceededError):
        await answer(OrderedFailoverChatClient([Gated("a", desk)]))

    assert desk.timeouts == [None]
