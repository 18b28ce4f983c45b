"""Clients under a quota: whatever becomes of a request, it is settled once."""

import gc

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatrouting import (
    AttemptOutcome,
    ChatOptions,
    ChatResponse,
    DelegatingChatClient,
    FailoverChatClient,
    OrderedFailoverChatClient,
    Principal,
    RoutingHints,
    Usage,
)
from chatrouting.errors import (
    APIConnectionError,
    BadRequestError,
    ConfigurationError,
    InternalServerError,
    QuotaExceededError,
    QuotaExhaustedError,
    QuotaReclaimedError,
    RateLimitError,
    RequestTimeoutError,
)
from chatrouting.messages import as_messages
from chatrouting.quota.classes import Pressure, TrafficClass
from chatrouting.quota.clients import QuotaChatClient
from chatrouting.quota.decisions import DecisionOutcome
from chatrouting.quota.guarantees import TenantContract
from chatrouting.quota.limits import BucketKey, BucketLimits, Level, QuotaLimit
from chatrouting.quota.profiles import provider_profile
from chatrouting.quota.tenants import TenantQuotaClient
from chatrouting.scope import carrying_tickets
from chatrouting.testing import (
    ScriptedChatClient,
    fails,
    finishes,
    raises_on_call,
    returns,
    runs,
    update,
    waits_forever,
)
from tests.quota._desk import Desk, deployment

OPENAI = provider_profile("openai")
CONTRACT = TenantContract(share=0.5)
OUTPUT = QuotaLimit("output_tokens", 1000, headroom=0)
SLOTS = QuotaLimit("concurrency", 1)
ELSEWHERE = TrafficClass(name="elsewhere", on_pressure=(Pressure.REROUTE, Pressure.QUEUE))
STAYS = TrafficClass(name="stays", on_pressure=(Pressure.QUEUE,))
SHORT = TrafficClass(
    name="short", on_pressure=(Pressure.DOWNGRADE,), min_output_tokens=50, max_queue_items=0
)
CLASSES = (ELSEWHERE, STAYS, SHORT)
ASKED = ChatOptions(max_output_tokens=400)
USED = Usage(input_tokens=20, output_tokens=100)
ACME = Principal(tenant="acme")


def answering(text="yes", usage=USED, **fields):
    return ScriptedChatClient(returns(ChatResponse(text, usage=usage, **fields)))


def streaming(*steps):
    return ScriptedChatClient(*steps)


def desk_for(*deployments, **settings):
    settings = {"classes": CLASSES, "default_class": "elsewhere", **settings}
    return Desk(*(deployments or [deployment("a", OUTPUT)]), **settings)


def open_requests(desk):
    """Count the reservations that are not settled."""
    return sum(len(room.running) for room in desk.governor._core.rooms.values())


def settlements(desk):
    return [each.settlement for each in desk.log if each.settlement is not None]


async def test_an_answer_settles_what_was_reserved(anyio_backend):
    """[quota R25-R28] The estimate is held while the provider is asked, the usage stays."""
    desk, held = desk_for(), []
    asked = runs(lambda _: held.append(desk.used()))
    inner = ScriptedChatClient(asked, "yes", finishes(usage=USED))
    response = await QuotaChatClient(inner, desk.governor, "a").get_response("Hi", ASKED)

    assert response.text == "yes"
    assert held == [400]
    assert desk.used() == 100
    assert open_requests(desk) == 0
    [decision] = desk.log
    assert decision.outcome is DecisionOutcome.ADMITTED
    assert decision.settlement.usage == USED


@pytest.mark.parametrize(
    ("error", "left"),
    [
        pytest.param(InternalServerError("down", status_code=500), 0, id="answered with an error"),
        pytest.param(BadRequestError("cannot be written"), 0, id="never sent"),
        pytest.param(ConfigurationError("wrong"), 0, id="a configuration"),
        pytest.param(QuotaExceededError("inner"), 0, id="refused inside"),
        pytest.param(RequestTimeoutError("late"), 400, id="nobody knows"),
    ],
)
async def test_a_failure_gives_back_what_it_cannot_have_used(error, left, anyio_backend):
    """[quota R29, R31]"""
    desk = desk_for()
    client = QuotaChatClient(ScriptedChatClient(fails(error)), desk.governor, "a")
    with pytest.raises(type(error)) as raised:
        await client.get_response("Hi", ASKED)

    assert raised.value is error
    assert desk.used() == left
    assert open_requests(desk) == 0
    assert len(settlements(desk)) == 1


class Careless(DelegatingChatClient):
    """Answers with whatever it was given."""

    def __init__(self, answer):
        super().__init__(ScriptedChatClient())
        self._answer = answer

    async def get_response(self, messages, options=None):
        return self._answer


async def test_what_is_no_usage_leaves_the_estimate(anyio_backend):
    """[quota R27, R29] The caller gets the answer all the same, and nothing stays held."""
    desk, answer = desk_for(), ChatResponse("yes", usage={"output_tokens": 100})
    client = QuotaChatClient(Careless(answer), desk.governor, "a")

    assert await client.get_response("Hi", ASKED) is answer

    assert desk.used() == 400
    assert open_requests(desk) == 0
    assert [each.usage for each in settlements(desk)] == [None]


async def test_what_is_no_response_is_settled(anyio_backend):
    """[quota R29] The request was sent, whatever the client makes of the answer."""
    desk = desk_for()

    with pytest.raises(AttributeError):
        await QuotaChatClient(Careless(None), desk.governor, "a").get_response("Hi", ASKED)

    assert desk.used() == 400
    assert open_requests(desk) == 0


async def test_without_usage_the_estimate_stays_and_says_so(anyio_backend):
    """[quota R27]"""
    desk = desk_for()
    await QuotaChatClient(answering(usage=None), desk.governor, "a").get_response("Hi", ASKED)

    assert desk.used() == 400
    assert desk.log[0].settlement.usage_is_estimated


async def test_a_request_without_room_is_refused_and_asks_nobody(anyio_backend):
    """[quota R33, R53]"""
    desk = desk_for()
    inner = answering()
    client = QuotaChatClient(inner, desk.governor, "a", admission="immediate")
    desk.fill(output=500)
    with pytest.raises(QuotaExhaustedError) as raised:
        await client.get_response("Hi", ASKED)

    assert inner.calls == []
    assert raised.value.details["limiter"].startswith("deployment")
    assert raised.value.retry_after > 0


async def test_a_lower_cap_reaches_the_provider(anyio_backend):
    """[quota R52]"""
    desk = desk_for(default_class="short")
    inner = answering()
    client = QuotaChatClient(inner, desk.governor, "a")
    desk.take(output=900)
    await client.get_response("Hi", ASKED)

    assert inner.calls[0].options.max_output_tokens == 50
    assert desk.log[-1].outcome is DecisionOutcome.DOWNGRADED


async def test_principal_and_class_travel_in_the_hints(anyio_backend):
    """[quota R1, R47] They are known to the governor, and no provider sees them."""
    desk = desk_for()
    hints = RoutingHints(principal=ACME, request_class="stays")
    await QuotaChatClient(answering(), desk.governor, "a").get_response(
        "Hi", ASKED.replace(routing=hints)
    )

    assert desk.log[0].principal == ACME
    assert desk.log[0].request_class == "stays"


async def test_an_unknown_class_is_refused(anyio_backend):
    client = QuotaChatClient(answering(), desk_for().governor, "a")
    with pytest.raises(ConfigurationError, match="vip"):
        await client.get_response("Hi", ChatOptions(routing=RoutingHints(request_class="vip")))


async def test_headers_of_an_answer_and_of_a_failure_are_observed(anyio_backend):
    """[quota R58] Somebody else uses the quota too: belief is lowered."""
    headers = {"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": "100"}
    desk = desk_for(deployment("a", QuotaLimit("total_tokens", 1000, headroom=0), profile=OPENAI))
    answer = answering(rate_limit_headers=headers)
    await QuotaChatClient(answer, desk.governor, "a").get_response("Hi", ASKED)
    assert desk.used("total_tokens") > 400

    desk = desk_for(deployment("a", QuotaLimit("total_tokens", 1000, headroom=0), profile=OPENAI))
    error = InternalServerError("down", status_code=500, rate_limit_headers=headers)
    failing = QuotaChatClient(ScriptedChatClient(fails(error)), desk.governor, "a")
    with pytest.raises(InternalServerError):
        await failing.get_response("Hi", ASKED)
    assert desk.used("total_tokens") > 400


async def test_a_stream_holds_its_room_until_it_ends(anyio_backend):
    """[quota R21, R26]"""
    desk = desk_for()
    client = QuotaChatClient(streaming("ye", "s", update(usage=USED)), desk.governor, "a")
    stream = client.get_streaming_response("Hi", ASKED)
    assert desk.used() == 0
    async with stream:
        await anext(stream)
        assert desk.used() == 400
        assert (await stream.get_final_response()).text == "yes"

    assert desk.used() == 100
    assert len(settlements(desk)) == 1


async def test_a_stream_that_is_left_early_is_settled_by_what_is_known(anyio_backend):
    """[quota R29] The estimate stays, since nobody said what was used."""
    desk = desk_for()
    client = QuotaChatClient(streaming("ye", "s"), desk.governor, "a")
    async with client.get_streaming_response("Hi", ASKED) as stream:
        await anext(stream)

    assert desk.used() == 400
    assert open_requests(desk) == 0
    assert settlements(desk)[0].usage_is_estimated


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_stream_that_is_dropped_gives_its_slot_back(anyio_backend):
    """[quota R29]"""
    desk = desk_for(deployment("a", SLOTS))
    client = QuotaChatClient(streaming("ye", "s"), desk.governor, "a")
    stream = client.get_streaming_response("Hi", ASKED)
    await anext(stream)
    assert desk.used("concurrency") == 1
    del stream
    gc.collect()

    assert desk.used("concurrency") == 0


async def test_a_stream_that_breaks_keeps_its_error(anyio_backend):
    desk = desk_for()
    client = QuotaChatClient(
        streaming("ye", fails(InternalServerError("down", status_code=500))), desk.governor, "a"
    )
    with pytest.raises(InternalServerError):
        async for _ in client.get_streaming_response("Hi", ASKED):
            pass

    assert open_requests(desk) == 0
    assert settlements(desk)[0].has_failed


async def test_a_client_that_cannot_stream_holds_nothing(anyio_backend):
    desk = desk_for()
    broken = ScriptedChatClient(raises_on_call(TypeError("no streams")))
    stream = QuotaChatClient(broken, desk.governor, "a").get_streaming_response("Hi", ASKED)
    with pytest.raises(TypeError, match="no streams"):
        await anext(stream)

    assert open_requests(desk) == 0


async def test_cancellation_settles_too(anyio_backend):
    """[quota R29]"""
    desk, asked = desk_for(), anyio.Event()
    hanging = ScriptedChatClient(runs(lambda _: asked.set()), waits_forever())
    async with anyio.create_task_group() as group:
        group.start_soon(QuotaChatClient(hanging, desk.governor, "a").get_response, "Hi", ASKED)
        await asked.wait()
        assert open_requests(desk) == 1
        group.cancel_scope.cancel()

    assert open_requests(desk) == 0
    assert desk.used() == 400


async def test_a_refusal_costs_the_walk_nothing(anyio_backend):
    """[quota R38, R48, R55] The next deployment is asked; no attempt, no failure is counted."""
    desk = desk_for(deployment("a", OUTPUT), deployment("b", OUTPUT))
    desk.fill(output=500)
    first, second = answering("a"), answering("b")
    router = OrderedFailoverChatClient(
        {
            "a": QuotaChatClient(first, desk.governor, "a"),
            "b": QuotaChatClient(second, desk.governor, "b"),
        },
        maximum_attempts_per_request=1,
    )
    response = await router.get_response("Hi", ASKED)

    assert response.text == "b"
    assert first.calls == []
    assert [each.outcome for each in response.attempts] == [
        AttemptOutcome.REFUSED_LOCALLY,
        AttemptOutcome.COMPLETED,
    ]


async def test_a_provider_that_refuses_closes_its_scope_and_the_walk_goes_on(anyio_backend):
    """[quota R3, R58] The next request does not ask it before its hint is over."""
    desk = desk_for(deployment("a", OUTPUT), deployment("b", OUTPUT))
    busy = ScriptedChatClient(fails(RateLimitError("busy", status_code=429, retry_after=30.0)))
    router = OrderedFailoverChatClient(
        {
            "a": QuotaChatClient(busy, desk.governor, "a"),
            "b": QuotaChatClient(answering("b"), desk.governor, "b"),
        }
    )
    first = await router.get_response("Hi", ASKED)
    second = await router.get_response("Hi", ASKED)

    assert [first.text, second.text] == ["b", "b"]
    assert len(busy.calls) == 1
    outcomes = [each.outcome for each in desk.log]
    assert DecisionOutcome.ADMITTED_THEN_PROVIDER_REJECTED in outcomes


@pytest.mark.virtual_time
async def test_if_all_deny_the_request_waits_for_all_and_pays_once(anyio_backend):
    """[quota R43, R48] One ticket in all queues; the first grant wins."""
    desk = desk_for(deployment("a", OUTPUT), deployment("b", SLOTS), clock=anyio.current_time)
    desk.fill(output=500)
    held = desk.take(name="b")
    first, second = answering("a"), answering("b")
    router = OrderedFailoverChatClient(
        {
            "a": QuotaChatClient(first, desk.governor, "a"),
            "b": QuotaChatClient(second, desk.governor, "b"),
        }
    )
    answers = []

    async def ask():
        answers.append(await router.get_response("Hi", ASKED))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.sleep(1)
        assert answers == []
        held.settle(USED)

    assert answers[0].text == "b"
    assert first.calls == []
    assert open_requests(desk) == 2  # those that fill a
    assert [each.route for each in answers[0].attempts] == ["a", "b", "b"]


@pytest.mark.virtual_time
async def test_parts_of_a_request_that_race_do_not_drop_each_others_admission(anyio_backend):
    """They share its tickets; what nobody takes is given back. [quota R29]"""
    desk = desk_for(*(deployment(name, OUTPUT, SLOTS) for name in "abc"))
    clients = [QuotaChatClient(answering(), desk.governor, name) for name in "abc"]
    tickets = {}
    for client in clients:
        [asked] = client.admission_requests(as_messages("Hi"), ASKED, is_streaming=False)
        await asked.desk.wait_for_admission([asked.wanted], tickets, None)
    with carrying_tickets(tickets):
        for client in clients[:2]:
            await client.get_response("Hi", ASKED)
    assert len(desk.log) == 2
    assert open_requests(desk) == 1
    desk.governor.desk.give_back(tickets)
    desk.governor.desk.give_back(tickets)
    assert open_requests(desk) == 0
    assert desk.log[-1].settlement.was_sent is False
    assert tickets == {}


async def test_a_class_that_stays_waits_where_it_is(anyio_backend):
    desk = desk_for(deployment("a", SLOTS), deployment("b", SLOTS), clock=anyio.current_time)
    held = desk.take()
    hints = RoutingHints(request_class="stays")
    second = answering("b")
    router = OrderedFailoverChatClient(
        {
            "a": QuotaChatClient(answering("a"), desk.governor, "a"),
            "b": QuotaChatClient(second, desk.governor, "b"),
        }
    )
    answers = []

    async def ask():
        answers.append(await router.get_response("Hi", ASKED.replace(routing=hints)))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.sleep(1)
        held.settle(USED)

    assert answers[0].text == "a"
    assert second.calls == []


@pytest.mark.virtual_time
async def test_a_wait_that_will_be_too_long_is_refused_at_once(anyio_backend):
    """[quota R50] The deadline is the request's."""
    desk = desk_for(clock=anyio.current_time)
    desk.fill(output=500)
    client = QuotaChatClient(answering(), desk.governor, "a")
    started = anyio.current_time()
    hints = RoutingHints(timeout=2.0)
    with pytest.raises(QuotaExceededError):
        await client.get_response("Hi", ASKED.replace(routing=hints))

    assert anyio.current_time() == started


async def test_an_account_is_charged_once_however_many_are_tried(anyio_backend):
    """[quota R25, R32] Only the deployment's level moves."""
    acme = BucketKey(Level.TENANT, "acme")
    desk = desk_for(
        deployment("a", OUTPUT),
        deployment("b", OUTPUT),
        ceilings={acme: BucketLimits([QuotaLimit("requests", 10, headroom=0), OUTPUT])},
    )
    down = ScriptedChatClient(fails(InternalServerError("down", status_code=500)))
    router = OrderedFailoverChatClient(
        {
            "a": QuotaChatClient(down, desk.governor, "a"),
            "b": QuotaChatClient(answering("b"), desk.governor, "b"),
        }
    )
    client = TenantQuotaClient(router, desk.governor, principal=ACME)
    response = await client.get_response("Hi", ASKED)

    assert response.text == "b"
    assert len(response.attempts) == 2
    assert desk.used("requests", "tenant") == 1
    assert desk.used("output_tokens", "tenant") == 100
    assert open_requests(desk) == 0


async def test_an_account_is_charged_once_for_a_stream(anyio_backend):
    acme = BucketKey(Level.TENANT, "acme")
    desk = desk_for(
        deployment("a", OUTPUT),
        deployment("b", OUTPUT),
        ceilings={acme: BucketLimits([QuotaLimit("requests", 10, headroom=0)])},
    )
    down = ScriptedChatClient(fails(InternalServerError("down", status_code=500)))
    router = OrderedFailoverChatClient(
        {
            "a": QuotaChatClient(down, desk.governor, "a"),
            "b": QuotaChatClient(streaming("ye", "s", update(usage=USED)), desk.governor, "b"),
        }
    )
    client = TenantQuotaClient(router, desk.governor, principal=ACME)
    async with client.get_streaming_response("Hi", ASKED) as stream:
        response = await stream.get_final_response()

    assert response.text == "yes"
    assert desk.used("requests", "tenant") == 1
    assert open_requests(desk) == 0
    assert len(stream.attempts) == 2


REQUESTS = BucketLimits((QuotaLimit("requests", 50), QuotaLimit("output_tokens", 5000)))


def tenant_key(name):
    return BucketKey(Level.TENANT, name)


@pytest.mark.parametrize("outer", [ACME, None], ids=["that says", "that does not say"])
async def test_an_account_inside_another_one_changes_nothing_if_that_says(outer, anyio_backend):
    """And what comes after it is on the outer one again. [quota R33]"""
    ceilings = {tenant_key(name): REQUESTS for name in ("acme", "other")}
    desk = desk_for(ceilings=ceilings)

    def asking(*steps):
        return QuotaChatClient(ScriptedChatClient(*steps), desk.governor, "a")

    lost = asking(fails(APIConnectionError("lost")))
    inner = TenantQuotaClient(lost, desk.governor, principal=Principal(tenant="other"))
    both = OrderedFailoverChatClient([inner, asking("yes")])
    await TenantQuotaClient(both, desk.governor, principal=outer).get_response("Hi", ASKED)

    windows = desk.governor.snapshot().windows
    paid = {each.id for each in windows if (each.level, each.used) == ("tenant", 1)}
    assert paid == {"acme" if outer else "other"}
    assert [each.principal.tenant for each in desk.log] == (
        ["acme", "acme"] if outer else ["other", None]
    )
    assert open_requests(desk) == 0


async def test_an_account_below_a_failover_pays_also_when_that_waits_for_all(anyio_backend):
    """[quota R33, R54]"""
    slots = [deployment(name, SLOTS) for name in "ab"]
    desk = desk_for(*slots, ceilings={tenant_key("acme"): REQUESTS})
    busy = [desk.take("other", name=name) for name in "ab"]
    clients = [
        TenantQuotaClient(
            QuotaChatClient(answering(), desk.governor, name), desk.governor, principal=ACME
        )
        for name in "ab"
    ]
    async with anyio.create_task_group() as group:
        group.start_soon(OrderedFailoverChatClient(clients).get_response, "Hi", ASKED)
        await anyio.wait_all_tasks_blocked()
        busy[0].settle()
    [decision] = [each for each in desk.log if each.principal == ACME and each.settlement]
    assert decision.outcome is DecisionOutcome.QUEUED_THEN_ADMITTED
    assert desk.used("requests", "tenant") == 1
    assert open_requests(desk) == 1


async def test_estimates_are_learnt_for_the_account(anyio_backend):
    """[quota R19]"""
    desk = desk_for()
    client = QuotaChatClient(answering(), desk.governor, "a")
    await TenantQuotaClient(client, desk.governor, principal=ACME).get_response("Hi", ASKED)
    assert desk.log[-1].quote.route.tenant == "acme"


async def test_whoever_lost_a_race_keeps_its_estimate_and_the_winner_its_usage(anyio_backend):
    """Each pays for itself, and nobody for the other. [quota R27, G3]"""
    desk = desk_for(deployment("a"), ceilings={tenant_key("acme"): REQUESTS})

    async def race(messages, options):
        lost = QuotaChatClient(ScriptedChatClient(waits_forever()), desk.governor, "a")
        async with anyio.create_task_group() as group:
            group.start_soon(lost.get_response, messages, options)
            await anyio.wait_all_tasks_blocked()
            won = QuotaChatClient(answering(), desk.governor, "a")
            response = await won.get_response(messages, options)
            group.cancel_scope.cancel()
        return response

    client = TenantQuotaClient(answers_by(race), desk.governor, principal=ACME)
    await client.get_response("Hi", ASKED)
    assert desk.used(level="tenant") == 400 + 100
    assert desk.used("requests", "tenant") == 2


def answers_by(function):
    """Make a client of a function."""

    class Calls(DelegatingChatClient):
        async def get_response(self, messages, options=None):
            return await function(messages, options)

    return Calls(answering())


async def test_less_is_tried_once_there_is_nowhere_else_to_go(anyio_backend):
    """A class that goes elsewhere first, then takes less, and never waits. [quota R48, R52]"""
    modest = TrafficClass(
        name="modest",
        on_pressure=(Pressure.REROUTE, Pressure.DOWNGRADE),
        min_output_tokens=50,
    )
    pair = [deployment(name, OUTPUT) for name in "ab"]
    desk = desk_for(*pair, classes=(modest,), default_class="modest")
    for name in "ab":
        desk.take(output=900, name=name)
    clients = [QuotaChatClient(answering(), desk.governor, name) for name in "ab"]
    await OrderedFailoverChatClient(clients).get_response("Hi", ASKED)
    assert desk.log[-1].outcome is DecisionOutcome.DOWNGRADED
    assert desk.log[-1].deployment == "a"


async def test_the_outermost_router_still_tells_of_its_attempts_under_an_account(anyio_backend):
    desk = desk_for()
    router = FailoverChatClient(lambda _: QuotaChatClient(answering(), desk.governor, "a"))
    response = await TenantQuotaClient(router, desk.governor).get_response("Hi", ASKED)

    assert len(response.attempts) == 1


@pytest.mark.virtual_time
async def test_borrowed_capacity_that_is_needed_back_ends_a_stream(anyio_backend):
    """[quota R43]"""
    brief = TrafficClass(name="brief", borrowed_max_stream=5.0)
    contracts = {"owner": CONTRACT}
    desk = desk_for(
        deployment("a", QuotaLimit("output_tokens", 10_000, headroom=0)),
        classes=(brief,),
        default_class="brief",
        contracts=contracts,
        clock=anyio.current_time,
    )
    client = QuotaChatClient(streaming("ye", "s"), desk.governor, "a")
    stream = client.get_streaming_response("Hi", ASKED)
    await anext(stream)
    await anyio.sleep(6)
    with pytest.raises(QuotaReclaimedError):
        await anext(stream)

    assert open_requests(desk) == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"deployment": "z"}, ConfigurationError),
        ({"admission": "never"}, ConfigurationError),
        ({"max_wait": -1}, ConfigurationError),
        ({"governor": None}, TypeError),
        ({"inner": None}, TypeError),
    ],
)
def test_wrong_arguments_are_refused(arguments, error):
    given = {"inner": answering(), "governor": desk_for().governor, "deployment": "a", **arguments}
    with pytest.raises(error):
        QuotaChatClient(**given)


def test_wrong_arguments_of_an_account_are_refused():
    governor = desk_for().governor
    with pytest.raises(TypeError):
        TenantQuotaClient(answering(), None)
    with pytest.raises(ConfigurationError, match="vip"):
        TenantQuotaClient(answering(), governor, request_class="vip")


STEPS = st.sampled_from(["answer", "fail", "refuse", "cancel", "leave", "break", "drop"])


@given(steps=st.lists(STEPS, min_size=1, max_size=12))
@settings(max_examples=40)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_nothing_is_held_once_all_requests_are_over(backend, steps):
    """[quota R29, G3] Whatever becomes of them, each is settled once."""
    desk = desk_for(deployment("a", QuotaLimit("concurrency", 100)))

    async def play():
        for step in steps:
            await _SCRIPTS[step](desk)
        if "drop" in steps:
            gc.collect()

    anyio.run(play, backend=backend)
    assert open_requests(desk) == 0
    assert desk.used("concurrency") == 0
    assert len(settlements(desk)) == len(steps)


async def _answers(desk):
    await QuotaChatClient(answering(), desk.governor, "a").get_response("Hi")


async def _fails(desk, error=None):
    inner = ScriptedChatClient(fails(error or InternalServerError("down", status_code=500)))
    with pytest.raises(Exception, match=r"down|no room"):
        await QuotaChatClient(inner, desk.governor, "a").get_response("Hi")


async def _refuses(desk):
    await _fails(desk, QuotaExceededError("no room"))


async def _is_cancelled(desk):
    asked = anyio.Event()
    hanging = ScriptedChatClient(runs(lambda _: asked.set()), waits_forever())
    async with anyio.create_task_group() as group:
        group.start_soon(QuotaChatClient(hanging, desk.governor, "a").get_response, "Hi")
        await asked.wait()
        group.cancel_scope.cancel()


async def _is_left(desk):
    client = QuotaChatClient(streaming("ye", "s"), desk.governor, "a")
    async with client.get_streaming_response("Hi") as stream:
        await anext(stream)


async def _breaks(desk):
    steps = ["ye", fails(InternalServerError("down", status_code=500))]
    with pytest.raises(InternalServerError):
        async for _ in QuotaChatClient(
            streaming(*steps), desk.governor, "a"
        ).get_streaming_response("Hi"):
            pass


async def _is_dropped(desk):
    stream = QuotaChatClient(streaming("ye", "s"), desk.governor, "a").get_streaming_response("Hi")
    await anext(stream)


_SCRIPTS = {
    "answer": _answers,
    "fail": _fails,
    "refuse": _refuses,
    "cancel": _is_cancelled,
    "leave": _is_left,
    "break": _breaks,
    "drop": _is_dropped,
}
