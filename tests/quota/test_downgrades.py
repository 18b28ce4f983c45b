"""Downgrade and reroute, from the class that allows them to the client that is asked."""

from dataclasses import replace

import anyio
import pytest

from chatrouting import (
    ChatOptions,
    ChatResponse,
    OrderedFailoverChatClient,
    Principal,
    RoutingHints,
    Usage,
)
from chatrouting.errors import ConfigurationError, OverloadedError, QuotaExceededError
from chatrouting.quota import (
    BucketKey,
    BucketLimits,
    DecisionOutcome,
    Level,
    Pressure,
    QuotaChatClient,
    QuotaLimit,
    TenantQuotaClient,
    TrafficClass,
)
from chatrouting.testing import (
    ScriptedChatClient,
    fails,
    finishes,
    returns,
    update,
)
from tests.quota._desk import Desk, deployment

OUTPUT = QuotaLimit("output_tokens", 1000)
USED = Usage(input_tokens=20, output_tokens=100)
ASKED = ChatOptions(model="gpt-big", max_output_tokens=400)
DOWN = TrafficClass(name="down", on_pressure=(Pressure.DOWNGRADE,), downgrade_profile="small")
STAYS = TrafficClass(name="stays", on_pressure=(Pressure.REROUTE,))


def answering(text="yes", **fields):
    return ScriptedChatClient(returns(ChatResponse(text, usage=USED, **fields)))


def desk_of(traffic=DOWN, *, big=OUTPUT, small=OUTPUT, **settings):
    return Desk(
        deployment("big", big, model_profile="large"),
        deployment("small", small, model_profile="small"),
        classes=[traffic, STAYS, replace(DOWN, name="other")],
        **{"default_class": traffic.name, **settings},
    )


def both(desk, big=None, small=None, **fields):
    """Return a client of "big" that may go to "small", and the clients of both."""
    big, small = big or answering("big"), small or answering("small")
    client = QuotaChatClient(big, desk.governor, "big", downgrades={"small": small}, **fields)
    return client, big, small


def used_of(desk, name):
    [key] = [str(each.scope) for each in desk.governor.deployments.values() if each.name == name]
    return sum(
        each.used
        for each in desk.governor.snapshot().windows
        if each.id == key and each.dimension == "output_tokens"
    )


async def test_without_room_a_lesser_deployment_is_asked_and_pays(anyio_backend):
    """[quota R48, R52] The profile is replaced: another client is asked, and its quota charged."""
    desk = desk_of()
    client, big, _ = both(desk)
    desk.take(name="big", output=900)

    response = await client.get_response("Hi", ASKED)

    assert response.text == "small"
    assert big.calls == []
    assert used_of(desk, "big") == 900
    assert used_of(desk, "small") == USED.output_tokens
    decision = desk.log[-1]
    assert decision.outcome is DecisionOutcome.DOWNGRADED
    assert (decision.deployment, decision.downgraded_from) == ("small", "big")
    assert decision.model_profile == "small"
    assert decision.settlement.usage == USED
    assert desk.governor.metrics.total("decisions", "class", "downgraded", "down") == 1


async def test_the_lesser_client_chooses_its_model(anyio_backend):
    """[quota R52] The model that was asked for is not handed on; the rest of the options is."""
    desk = desk_of()
    client, _, small = both(desk)
    desk.take(name="big", output=900)

    await client.get_response("Hi", ASKED)

    assert small.calls[0].options == ASKED.replace(model=None)


async def test_with_room_nothing_is_downgraded(anyio_backend):
    """[quota R52] Only under pressure."""
    desk = desk_of()
    client, big, small = both(desk)

    response = await client.get_response("Hi", ASKED)

    assert (response.text, response.attempts) == ("big", ())
    assert small.calls == []
    assert big.calls[0].options == ASKED
    assert desk.log[-1].downgraded_from is None


@pytest.mark.parametrize("is_routed", [False, True], ids=["alone", "in a router"])
async def test_the_attempt_shows_the_downgrade(anyio_backend, is_routed):
    """[quota R52] Visible in the result: the record of the attempt says whose place was taken."""
    desk = desk_of()
    client, _, small = both(desk)
    desk.take(name="big", output=900)
    asked = OrderedFailoverChatClient({"first": client}) if is_routed else client

    response = await asked.get_response("Hi", ASKED)

    [attempt] = response.attempts
    if is_routed:
        assert attempt.route == "first"
        [attempt] = attempt.children
    assert (attempt.route, attempt.client) == ("small", small)
    assert attempt.reason == "downgraded from big"
    assert attempt.detail["decision_id"] == desk.log[-1].id
    assert attempt.usage == USED


async def test_a_stream_is_downgraded_alike(anyio_backend):
    """[quota R52] One decision for both modes; the stream settles at its end."""
    desk = desk_of()
    small = ScriptedChatClient(update("sm"), update("all"), finishes(usage=USED))
    client, big, _ = both(desk, small=small)
    desk.take(name="big", output=900)

    stream = client.get_streaming_response("Hi", ASKED)
    async with stream:
        text = "".join([each.text async for each in stream])

    assert text == "small"
    assert [each.reason for each in stream.attempts] == ["downgraded from big"]
    assert big.calls == []
    assert used_of(desk, "small") == USED.output_tokens
    assert desk.log[-1].settlement.usage == USED


async def test_a_lower_cap_is_preferred_to_a_lesser_model(anyio_backend):
    """[quota R52] Both may be allowed: then the model stays as long as the cap helps."""
    traffic = replace(DOWN, min_output_tokens=50)
    desk = desk_of(traffic)
    client, big, small = both(desk)
    desk.take(name="big", output=900)

    assert (await client.get_response("Hi", ASKED)).text == "big"
    assert big.calls[0].options.max_output_tokens == 50
    assert desk.log[-1].downgraded_from is None

    # Whatever is generated counts: no room is left, and at the other one little.
    desk.take(name="small", output=900)
    assert (await client.get_response("Hi", ASKED)).text == "small"
    assert small.calls[0].options.max_output_tokens == 50
    assert desk.log[-1].max_output_tokens == 50


@pytest.mark.parametrize("traffic", ["stays", "other"])
async def test_only_a_class_that_allows_it_is_downgraded(anyio_backend, traffic):
    """[quota R48, R52] A policy of each class, which the request names."""
    desk = desk_of()
    client, _, small = both(desk)
    desk.take(name="big", output=900)
    options = ASKED.replace(routing=RoutingHints(request_class=traffic))

    if traffic == "stays":
        with pytest.raises(QuotaExceededError):
            await client.get_response("Hi", options)
        assert small.calls == []
    else:
        assert (await client.get_response("Hi", options)).text == "small"


async def test_without_room_at_the_lesser_one_it_is_refused(anyio_backend):
    """[quota R39, R53] The refusal is about what was asked for, and nothing is charged."""
    desk = desk_of()
    client, big, small = both(desk)
    desk.take(name="big", output=900)
    desk.take(name="small", output=900)

    with pytest.raises(QuotaExceededError) as refused:
        await client.get_response("Hi", ASKED)

    details = refused.value.to_dict()
    assert details["deployment"] == "big"
    assert details["downgrade_profile"] == "small"
    assert big.calls == small.calls == []
    assert used_of(desk, "small") == 900


async def test_a_request_too_large_for_its_own_goes_to_the_lesser_one(anyio_backend):
    """[quota R48] Waiting never helps it, and another model does."""
    desk = desk_of(big=QuotaLimit("output_tokens", 100))
    client, _, _ = both(desk)

    assert (await client.get_response("Hi", ASKED)).text == "small"


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("steps", "waited"),
    [
        pytest.param((Pressure.QUEUE, Pressure.DOWNGRADE), 30.0, id="queue first"),
        pytest.param((Pressure.DOWNGRADE, Pressure.QUEUE), 0.0, id="downgrade first"),
    ],
)
async def test_the_steps_are_tried_in_order(anyio_backend, steps, waited):
    """[quota R48, R49] One that has waited for nothing is downgraded before it is refused."""
    traffic = replace(DOWN, on_pressure=steps, max_wait=30.0)
    slots = QuotaLimit("concurrency", 1)
    desk = desk_of(traffic, big=slots, clock=anyio.current_time)
    client, _, _ = both(desk)
    desk.take(name="big")

    response = await client.get_response("Hi", ASKED)

    assert response.text == "small"
    assert desk.log[-1].outcome is DecisionOutcome.DOWNGRADED
    assert desk.log[-1].queued == pytest.approx(waited, abs=0.1)


async def test_a_router_turns_elsewhere_before_it_downgrades(anyio_backend):
    """[quota R48] With reroute in front of it the downgrade is for when nobody has room."""
    traffic = replace(DOWN, on_pressure=(Pressure.REROUTE, Pressure.DOWNGRADE))
    desk = Desk(
        deployment("big", OUTPUT, model_profile="large"),
        deployment("twin", OUTPUT, model_profile="large"),
        deployment("small", OUTPUT, model_profile="small"),
        classes=[traffic],
        default_class="down",
    )
    client, _, _ = both(desk)
    twin = QuotaChatClient(answering("twin"), desk.governor, "twin")
    router = OrderedFailoverChatClient({"big": client, "twin": twin})
    desk.take(name="big", output=900)

    assert (await router.get_response("Hi", ASKED)).text == "twin"
    desk.take(name="twin", output=900)
    response = await router.get_response("Hi", ASKED)

    assert response.text == "small"
    last = response.attempts[-1]
    assert last.route == "big"
    assert [each.reason for each in last.children] == ["downgraded from big"]


async def test_what_a_lesser_client_raises_is_raised(anyio_backend):
    """[quota R29, R31] Settled where it was charged, and the error is the client's own."""
    desk = desk_of()
    error = OverloadedError("busy", status_code=529)
    client, _, _ = both(desk, small=ScriptedChatClient(fails(error)))
    desk.take(name="big", output=900)

    with pytest.raises(OverloadedError) as raised:
        await client.get_response("Hi", ASKED)

    assert raised.value is error
    assert used_of(desk, "small") == 0
    assert desk.log[-1].settlement.has_failed


async def test_the_tenant_pays_once_and_the_profile_of_the_lesser_model_too(anyio_backend):
    """[quota R32, R37] The ceilings on the path are those of the model that is asked."""
    key = BucketKey(Level.MODEL_PROFILE, "small")
    ceiling = BucketLimits((QuotaLimit("requests", 1),))
    desk = desk_of(
        ceilings={key: ceiling, BucketKey(Level.TENANT, "acme"): BucketLimits((OUTPUT,))}
    )
    small = ScriptedChatClient.per_call(*[returns(ChatResponse("small", usage=USED))] * 2)
    client, _, _ = both(desk, small=small)
    outer = TenantQuotaClient(client, desk.governor, principal=Principal(tenant="acme"))
    desk.take(None, name="big", output=900)

    await outer.get_response("Hi", ASKED)

    assert desk.used(level="tenant") == USED.output_tokens
    with pytest.raises(QuotaExceededError):
        await outer.get_response("Hi", ASKED)
    assert len(small.calls) == 1


async def test_closing_closes_each_client_once(anyio_backend):
    """Also where one client stands for several deployments."""
    desk = desk_of()
    inner = answering()
    client, _, _ = both(desk, big=inner, small=inner)

    await client.aclose()

    assert inner.close_count == 1


@pytest.mark.parametrize(
    ("downgrades", "error"),
    [
        pytest.param({"tiny": answering()}, ConfigurationError, id="not governed"),
        pytest.param({"big": answering()}, ConfigurationError, id="itself"),
        pytest.param({"small": "small"}, ConfigurationError, id="no client"),
        pytest.param({1: answering()}, ConfigurationError, id="no name"),
        pytest.param([answering()], ConfigurationError, id="no mapping"),
        pytest.param(None, TypeError, id="None"),
    ],
)
def test_wrong_downgrades_are_refused(downgrades, error):
    """What can never be asked is a mistake, and told when the client is made."""
    with pytest.raises(error, match=r"expected"):
        QuotaChatClient(answering(), desk_of().governor, "big", downgrades=downgrades)


def test_a_lesser_deployment_that_no_class_allows_is_refused():
    """A profile that is written otherwise here and there would never be used."""
    desk = desk_of(replace(DOWN, downgrade_profile="small"))
    known = Desk(
        deployment("big", OUTPUT),
        deployment("small", OUTPUT, model_profile="smal"),
        classes=[DOWN],
        default_class="down",
    )
    held = QuotaChatClient(answering(), desk.governor, "small")

    with pytest.raises(ConfigurationError, match="profile is 'smal', and no class may"):
        QuotaChatClient(answering(), known.governor, "big", downgrades={"small": answering()})
    with pytest.raises(ConfigurationError, match="Wrap it once"):
        QuotaChatClient(answering(), desk.governor, "big", downgrades={"small": held})


@pytest.mark.parametrize("is_kept", [False, True], ids=["no ticket", "one ticket"])
async def test_a_reroute_shows_in_the_decision(anyio_backend, is_kept):
    """[quota R48, R54] With and without somebody who keeps the request's ticket."""
    desk = desk_of(default_class="stays")
    router = OrderedFailoverChatClient(
        {
            "big": QuotaChatClient(answering("big"), desk.governor, "big"),
            "small": QuotaChatClient(answering("small"), desk.governor, "small"),
        }
    )
    client = TenantQuotaClient(router, desk.governor) if is_kept else router
    desk.take(name="big", output=900)

    response = await client.get_response("Hi", ASKED)

    assert response.text == "small"
    outcomes = [each.outcome for each in desk.log]
    assert outcomes == [DecisionOutcome.REJECTED_LOCALLY, DecisionOutcome.REROUTED]


def test_asking_the_same_deployment_again_is_no_reroute():
    """[quota R54] It was refused there itself, and turned to nobody else."""
    desk = desk_of(default_class="stays")
    ticket = desk.ticket(is_kept=True)
    held = desk.take(name="big", output=900)
    desk.governor.try_reserve(desk.quote(400, "big"), ticket)
    held.fail(sent=False)

    reservation = desk.governor.try_reserve(desk.quote(400, "big"), ticket)

    assert reservation.decision.outcome is DecisionOutcome.ADMITTED
