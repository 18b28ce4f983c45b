"""The governor while nobody waits: quotes, reservations, denials, settlements, records."""

import copy
import json
import math
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting import ChatMessage, ChatOptions, Principal, Role, RoutingHints, Usage
from chatrouting.errors import (
    APIConnectionError,
    BadRequestError,
    ConfigurationError,
    QuotaExceededError,
    QuotaExhaustedError,
    QuotaRequestTooLargeError,
    RateLimitError,
)
from chatrouting.quota.classes import DEFAULT_CLASSES, Pressure, TrafficClass
from chatrouting.quota.decisions import (
    REJECTION_SCHEMA,
    DecisionOutcome,
    DenialReason,
    FundingKind,
)
from chatrouting.quota.guarantees import GuaranteeKind, TenantContract
from chatrouting.quota.limits import (
    BucketKey,
    BucketLimits,
    ChargePolicy,
    Level,
    ProviderScope,
    QuotaLimit,
    keys_of,
)
from chatrouting.quota.metrics import Histogram, QuotaMetrics
from chatrouting.quota.profiles import provider_profile
from chatrouting.quota.quote import Figure, Source
from chatrouting.quota.reservation import Reservation
from tests.quota._desk import Desk, deployment

OUTPUT = QuotaLimit("output_tokens", 1000)
(ACME,) = keys_of(Principal(tenant="acme"))


def ceiling(amount, dimension="output_tokens"):
    return BucketLimits((QuotaLimit(dimension, amount),))


# Quote and reserve.


def test_a_quote_changes_nothing():
    """And can be made for several deployments. [quota R24]"""
    desk = Desk()
    before = desk.governor.snapshot()
    quotes = [desk.quote() for _ in range(3)]
    assert quotes[0] == quotes[2]
    assert desk.governor.snapshot() == before


def test_a_reservation_holds_what_was_quoted_until_it_is_settled():
    """[quota R25, R26, R28]"""
    desk = Desk()
    reservation = desk.take(output=400)
    assert desk.used() == 400
    assert reservation.quote.output.value == 400
    assert reservation.max_output_tokens is None
    assert not reservation.must_stop
    assert reservation.settle(Usage(input_tokens=20, output_tokens=50))
    assert desk.used() == 50


def test_over_use_is_charged_and_nothing_new_is_admitted_until_it_has_left():
    """[quota R28]"""
    desk = Desk()
    desk.take(output=900).settle(Usage(input_tokens=20, output_tokens=1500))
    assert desk.used() == 1500
    denial = desk.ask(output=1)
    desk.clock.advance(denial.wait)
    desk.take(output=1)


def test_the_provider_is_asked_no_more_than_it_gives():
    """A burst of fifty requests of 100 against 1,000: ten are admitted. [quota R2, R34], [BR-58]"""
    desk = Desk()
    assert len(desk.fill(output=100)) == 10


def test_a_deployment_is_not_overloaded_though_another_has_room():
    """[quota R38]"""
    desk = Desk(deployment("a", OUTPUT), deployment("b", OUTPUT))
    assert len(desk.fill(name="a")) == 10
    assert len(desk.fill(name="b")) == 10


def test_deployments_of_one_scope_share_one_bucket():
    """[quota R11]"""
    scope = ProviderScope("test", {"family": "opus"})
    desk = Desk(*(deployment(name, OUTPUT, scope=scope) for name in "ab"))
    assert len(desk.fill(name="a")) == 10
    assert desk.fill(name="b") == []


def test_the_same_request_is_charged_as_its_provider_counts():
    """[quota R4]"""
    azure = provider_profile("azure")
    desk = Desk(
        deployment("a", OUTPUT, policy=ChargePolicy(output_charge="generated")),
        deployment("b", QuotaLimit("total_tokens", 9000), policy=azure.policy, profile=azure),
    )
    desk.take(output=400, name="a")
    desk.take(output=400, name="b").settle(Usage(input_tokens=10, output_tokens=10))
    assert desk.used() == 1  # the rest when it has been written
    assert desk.used("total_tokens") > 400  # it gives nothing back


@pytest.mark.parametrize("name", ["b", ""])
def test_what_has_no_limits_is_not_unlimited(name):
    """[quota R13]"""
    desk = Desk()
    with pytest.raises(ConfigurationError, match="has no limits in this governor"):
        desk.quote(name=name)


def test_a_class_that_nobody_knows_is_refused():
    desk = Desk()
    with pytest.raises(ConfigurationError, match="request class 'x' is none of 'interactive'"):
        desk.ticket(request_class="x")


def test_a_governor_that_contradicts_itself_is_not_built():
    """[quota R46], [BR-63]"""
    scope = ProviderScope("test", {"family": "opus"})
    with pytest.raises(ConfigurationError, match="is given twice"):
        Desk(deployment("a", OUTPUT), deployment("a", OUTPUT))
    with pytest.raises(ConfigurationError, match="share the quota test:family=opus"):
        Desk(
            deployment("a", OUTPUT, scope=scope),
            deployment("b", QuotaLimit("output_tokens", 1), scope=scope),
        )
    with pytest.raises(ConfigurationError, match=r"add up to 1.2 of the capacity"):
        Desk(contracts={name: TenantContract(share=0.6) for name in "ab"})
    with pytest.raises(ConfigurationError, match="'interactive' is given twice"):
        Desk(classes=[DEFAULT_CLASSES["interactive"]] * 2)
    with pytest.raises(ConfigurationError, match="request class 'other'"):
        Desk(default_class="other")


def test_a_governor_of_nothing_is_not_built():
    from chatrouting.quota.governor import QuotaGovernor  # noqa: PLC0415

    with pytest.raises(ConfigurationError, match="no deployments"):
        QuotaGovernor([])


# Levels.


def test_a_request_must_clear_every_level_or_changes_none():
    """[quota R32, R33, R39]"""
    desk = Desk(
        ceilings={
            BucketKey(Level.ORGANISATION, "org"): ceiling(700),
            BucketKey(Level.TENANT, "acme", ("org",)): ceiling(500),
            BucketKey(Level.API_KEY, "key", ("org", "acme", None)): ceiling(300),
        }
    )
    principal = {"organisation": "org", "api_key": "key"}
    assert len(desk.fill(principal=principal)) == 3
    denial = desk.ask(principal=principal)
    assert (denial.limiter.key.level, denial.limiter.name) == (
        Level.API_KEY,
        "output_tokens per 60 s",
    )
    assert [desk.used(level=level.value) for level in Level] == [300, 300, 0, 300, 0, 300]
    assert len(desk.fill(principal={"organisation": "org"})) == 2
    assert len(desk.fill("other", principal={"organisation": "org"})) == 2
    assert desk.used() == 700


def test_a_limit_of_its_own_ends_the_walk_and_one_of_the_deployment_does_not():
    """Elsewhere the same ceiling holds. [quota R35, R36, R55]"""
    desk = Desk(ceilings={ACME: ceiling(500)})
    desk.fill()
    assert not desk.ask().fallback_allowed
    desk.fill("other")
    assert desk.ask("other").fallback_allowed


def test_a_closed_deployment_does_not_hide_a_limit_of_ones_own():
    """The own limit says where waiting is of no use. [quota R39]"""
    desk = Desk(ceilings={ACME: ceiling(200)})
    desk.fill()
    desk.take("other", 10).fail(RateLimitError("slow down", status_code=429, retry_after=7.0))
    denial = desk.ask()
    assert denial.limiter.key == ACME
    assert denial.wait > 7
    assert not denial.fallback_allowed


def test_a_ceiling_may_be_on_a_model_profile_and_on_every_tenant():
    """[quota R32, R37]"""
    desk = Desk(
        deployment("a", OUTPUT, model_profile="batch"),
        ceilings={BucketKey(Level.MODEL_PROFILE, "batch"): ceiling(600)},
        default_ceilings={Level.TENANT: ceiling(400)},
    )
    assert len(desk.fill("x")) == 4
    assert len(desk.fill("y")) == 2


def test_tenants_read_tokens_as_they_are_and_not_as_a_provider_weighs_them():
    """[quota R4]"""
    mantle = provider_profile("bedrock_mantle").replace(output_weight=5.0)
    desk = Desk(
        deployment(
            "a",
            QuotaLimit("input_tokens", 10_000),
            QuotaLimit("output_tokens", 10_000),
            profile=mantle,
            policy=mantle.policy,
        ),
        ceilings={ACME: BucketLimits((OUTPUT, QuotaLimit("input_tokens", 1000)))},
    )
    reservation = desk.take(output=400)
    read = reservation.quote.input.value
    assert (desk.used(), desk.used("input_tokens")) == (2000, read + 400)
    assert (desk.used(level="tenant"), desk.used("input_tokens", "tenant")) == (400, read)
    reservation.settle(Usage(input_tokens=30, output_tokens=100))
    assert (desk.used(), desk.used("input_tokens")) == (500, 30)
    assert (desk.used(level="tenant"), desk.used("input_tokens", "tenant")) == (100, 30)


# Denials.


def matches(schema, value):
    """Check a value against the parts of JSON schema that ours uses."""
    if "const" in schema:
        return value == schema["const"]
    if "enum" in schema:
        return value in schema["enum"]
    kinds = {
        "string": str,
        "integer": int,
        "boolean": bool,
        "null": type(None),
        "array": list,
        "object": dict,
    }
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(type(value) is kinds[name] for name in names):
        return False
    if isinstance(value, dict):
        properties = schema["properties"]
        return set(value) == set(schema["required"]) == set(properties) and all(
            matches(properties[name], each) for name, each in value.items()
        )
    if isinstance(value, list):
        return all(matches(schema["items"], each) for each in value)
    return not isinstance(value, int) or value >= schema.get("minimum", -math.inf)


def test_a_denial_is_a_json_object_of_its_schema_without_secrets_and_prompts():
    """It survives JSON, pickling and copying, as does its exception. [quota R53, R56]"""
    desk = Desk()
    desk.fill()
    denial = desk.ask(trace_id="trace-1")
    said = denial.to_dict()
    assert matches(REJECTION_SCHEMA, said)
    assert json.loads(json.dumps(said)) == said
    assert said["limiter"] == "deployment test:server=a: output_tokens per 60 s"
    assert (said["provider"], said["tenant_id"], said["trace_id"]) == ("test", "acme", "trace-1")
    assert (said["gateway_decision"], said["reason"]) == ("rejected_locally", "exhausted")
    assert said["retry_after_ms"] == math.ceil(denial.wait * 1000)
    assert "How are you" not in json.dumps(said)
    error = denial.to_error()
    assert type(error) is QuotaExhaustedError
    assert error.to_dict() == said
    assert (error.retry_after, error.fallback_allowed) == (denial.wait, True)
    for twin in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):  # noqa: S301
        assert twin.to_dict() == said
    assert str(error) == (
        "quota deployment test:server=a: output_tokens per 60 s has no room now: "
        "100 needed, 1000 of 1000 used. Try again in 61 s."
    )
    assert QuotaExceededError("x").to_dict() == {}


def test_a_request_larger_than_a_limit_is_refused_at_once_and_for_good():
    """[quota R53], [BR-63]"""
    desk = Desk()
    denial = desk.ask(output=1001)
    assert denial.reason is DenialReason.TOO_LARGE
    assert denial.wait == math.inf
    assert not denial.may_queue
    assert denial.to_dict()["retry_after_ms"] is None
    error = denial.to_error()
    assert type(error) is QuotaRequestTooLargeError
    assert error.retry_after is None
    assert str(error).endswith("Make the request smaller, or send it elsewhere.")


@given(seed=st.integers(0, 2**32))
def test_whoever_comes_back_when_told_is_admitted(seed):
    """If nobody else came. [quota R57, G8]"""
    rng = random.Random(seed)
    limits = [
        OUTPUT,
        QuotaLimit("requests", 60, burst=5),
        QuotaLimit("requests", 5, window=2),
    ]
    desk = Desk(
        deployment("a", *limits),
        ceilings={ACME: ceiling(700)},
        contracts={"rich": TenantContract(share=0.3)},
    )
    for _ in range(25):
        desk.clock.advance(rng.choice([0.0, 0.3, 5.0]))
        tenant, output = rng.choice(["acme", "rich", "other"]), rng.randint(1, 600)
        found = desk.ask(tenant, output)
        if isinstance(found, Reservation):
            if rng.random() < 0.5:
                found.settle(Usage(input_tokens=20, output_tokens=rng.randint(0, output)))
            continue
        assert found.wait < math.inf
        desk.clock.advance(found.wait)
        desk.take(tenant, output)


# The ends of a reservation.

ENDS = {
    "settled": lambda r: r.settle(Usage(input_tokens=20, output_tokens=40)),
    "no usage": lambda r: r.settle(),
    "broken off": lambda r: r.settle(is_complete=False),
    "never sent": lambda r: r.fail(sent=False),
    "refused": lambda r: r.fail(BadRequestError("no", status_code=400)),
    "connection lost": lambda r: r.fail(APIConnectionError("gone")),
    "partial": lambda r: r.fail(
        APIConnectionError("gone"), usage=Usage(input_tokens=20, output_tokens=40)
    ),
}
LEFT = {
    "settled": (40, 40),
    "no usage": (400, 400),
    "broken off": (400, 400),
    "never sent": (0, 0),
    "refused": (0, 0),
    "connection lost": (400, 400),
    "partial": (40, 40),
}


@pytest.mark.parametrize("end", ENDS)
def test_every_end_settles_once(end):
    """What is left is what was used, else the estimate. [quota R27, R29, R31], [BR-53]"""
    desk = Desk(
        deployment("a", OUTPUT, QuotaLimit("concurrency", 3)), ceilings={ACME: ceiling(900)}
    )
    reservation = desk.take(output=400)
    assert ENDS[end](reservation)
    after = desk.used(), desk.used(level="tenant"), desk.used("concurrency")
    assert after == (*LEFT[end], 0)
    for again in ENDS.values():
        assert not again(reservation)
    reservation.extend()
    assert (desk.used(), desk.used(level="tenant"), desk.used("concurrency")) == after
    assert len(desk.log) == 1
    assert not reservation.is_open


async def test_a_reservation_is_a_context(anyio_backend):
    """Settled at the end, failed if the block raises. [quota R29]"""
    desk = Desk()
    async with desk.take(output=400) as reservation:
        reservation.settle(Usage(input_tokens=1, output_tokens=1))
    async with desk.take(output=100):
        pass
    with pytest.raises(BadRequestError):
        async with desk.take(output=200):
            raise BadRequestError("no")
    assert desk.used() == 101


@given(seed=st.integers(0, 2**32))
def test_charged_is_settled_plus_open(seed):
    """Whatever ends, in whatever order. [quota R29, G3]"""
    rng = random.Random(seed)
    desk = Desk(
        deployment("a", QuotaLimit("output_tokens", 10_000), QuotaLimit("concurrency", 50)),
        contracts={"acme": TenantContract(share=0.5)},
    )
    running, settled = [], 0
    for _ in range(40):
        output = rng.randint(1, 300)
        found = desk.ask(rng.choice(["acme", "other"]), output)
        if isinstance(found, Reservation):
            running.append((found, output))
        if running and rng.random() < 0.7:
            reservation, output = running.pop(rng.randrange(len(running)))
            end = rng.choice(["settle", "sent", "unsent"])
            used = rng.randint(0, 2 * output)
            if end == "settle":
                reservation.settle(Usage(input_tokens=9, output_tokens=used))
            else:
                reservation.fail(sent=end == "sent")
            settled += {"settle": used, "sent": output, "unsent": 0}[end]
        assert desk.used() == pytest.approx(settled + sum(output for _, output in running))
        assert desk.used("concurrency") == len(running)


def test_a_hold_that_is_extended_keeps_its_slot():
    """One that is not does so for its lease. [quota R9, R10]"""
    desk = Desk(deployment("a", QuotaLimit("concurrency", 2)), lease=30.0)
    extended, _ = desk.take(), desk.take()
    desk.clock.advance(20)
    extended.extend()
    desk.clock.advance(20)
    assert desk.used("concurrency") == 1
    extended.settle()
    assert desk.used("concurrency") == 0


def test_a_reservation_that_is_forgotten_gives_its_slot_back_after_its_lease():
    """Also that of a guarantee; what it was charged stays. [quota R29]"""
    slots = QuotaLimit("concurrency", 4)
    desk = Desk(
        deployment("a", slots, OUTPUT), contracts={"rich": TenantContract(share=0.3)}, lease=30.0
    )
    forgotten, running = desk.take("rich", 10), desk.take("acme", 10)
    assert desk.take("rich", 10).funding is FundingKind.BORROWED
    desk.clock.advance(20)
    running.extend()
    desk.clock.advance(15)
    assert desk.take("rich", 10).funding is FundingKind.GUARANTEED
    (scope,) = desk.governor.snapshot().scopes
    assert scope.running == {"guaranteed": 1, "borrowed": 1}
    assert scope.oldest_running == 35
    forgotten.extend()
    assert desk.governor.snapshot().scopes[0].assured["rich"]["concurrency per at once"] == 0
    assert forgotten.settle(Usage(input_tokens=1, output_tokens=1))
    assert desk.used("concurrency") == 2


def test_what_is_collected_in_the_middle_of_something_is_settled_after_it():
    """A dropped stream is found wherever the collector happens to run. [quota R29], [BR-53]"""
    desk = Desk(ceilings={ACME: ceiling(900)})
    ticket = desk.ticket(is_kept=True)
    dropped, kept = desk.take(output=400), desk.governor.try_reserve(desk.quote(100), ticket)
    with desk.governor._core.lock:
        assert dropped.fail(sent=False)
        assert kept.fail(sent=False)
        desk.governor.close_ticket(ticket)
        assert dropped.is_open
    assert not dropped.is_open
    assert (desk.used(), desk.used(level="tenant")) == (0, 0)
    assert len(desk.log) == 2


def test_long_streams_exhaust_a_gauge_though_requests_are_unlimited():
    """[quota R10]"""
    desk = Desk(deployment("a", QuotaLimit("stream_seconds", 35)))

    def stream():
        return desk.governor.try_reserve(desk.quote(is_streaming=True), desk.ticket())

    streams = [stream() for _ in range(3)]
    assert all(isinstance(each, Reservation) for each in streams)
    assert not isinstance(stream(), Reservation)
    desk.take()  # no stream
    streams[0].settle()
    assert isinstance(stream(), Reservation)


# Tickets.


def test_a_kept_ticket_is_charged_once_for_all_deployments():
    """Only the deployment's level moves when the router tries another one. [quota R33]"""
    desk = Desk(*(deployment(name, OUTPUT) for name in "abc"), ceilings={ACME: ceiling(400)})
    ticket = desk.ticket(is_kept=True)
    for name in "ab":
        reservation = desk.governor.try_reserve(desk.quote(300, name), ticket)
        assert desk.used(level="tenant") == 300
        reservation.fail(APIConnectionError("gone"))
    last = desk.governor.try_reserve(desk.quote(300, "c"), ticket)
    last.settle(Usage(input_tokens=20, output_tokens=120))
    assert desk.used(level="tenant") == 300
    desk.governor.close_ticket(ticket)
    assert desk.used(level="tenant") == 120
    desk.governor.close_ticket(ticket, Usage(output_tokens=7))
    assert desk.used(level="tenant") == 120
    assert desk.used() == 720


def test_a_ticket_sums_what_its_attempts_used():
    desk = Desk(ceilings={ACME: ceiling(400)})
    ticket = desk.ticket(is_kept=True)
    for output in (30, 50):
        desk.governor.try_reserve(desk.quote(100), ticket).settle(
            Usage(input_tokens=1, output_tokens=output)
        )
    desk.governor.close_ticket(ticket)
    assert desk.used(level="tenant") == 80


def test_a_kept_ticket_that_never_ran_gives_all_back():
    desk = Desk(ceilings={ACME: ceiling(400)})
    ticket = desk.ticket(is_kept=True)
    desk.governor.close_ticket(ticket)
    desk.governor.try_reserve(desk.quote(100), ticket).fail(sent=False)
    desk.governor.close_ticket(ticket)
    assert desk.used(level="tenant") == 0


def test_a_ticket_that_has_paid_is_asked_for_the_deployment_alone():
    desk = Desk(deployment("a", OUTPUT), deployment("b", OUTPUT), ceilings={ACME: ceiling(100)})
    desk.fill("other", name="b")
    ticket = desk.ticket(is_kept=True)
    desk.governor.try_reserve(desk.quote(100), ticket).fail(APIConnectionError("gone"))
    denial = desk.governor.try_reserve(desk.quote(100, "b"), ticket)
    assert denial.limiter.key.level is Level.DEPLOYMENT
    assert desk.used(level="tenant") == 100


def test_a_ticket_pays_for_every_model_profile_that_it_tries():
    """Or a failover would pass by the ceiling of the second one. [quota R33, R37]"""
    large, small = (keys_of(model_profile=name)[0] for name in ("large", "small"))
    desk = Desk(
        deployment("a", OUTPUT, model_profile="large"),
        deployment("b", OUTPUT, model_profile="small"),
        ceilings={ACME: ceiling(400), large: ceiling(400), small: ceiling(150)},
    )
    ticket = desk.ticket(is_kept=True)
    for name in "ab":
        desk.governor.try_reserve(desk.quote(100, name), ticket).fail(APIConnectionError("gone"))
    assert desk.used(level="model_profile") == 200
    assert desk.used(level="tenant") == 100
    denial = desk.governor.try_reserve(desk.quote(100, "b"), desk.ticket(is_kept=True))
    assert denial.limiter.key == small
    assert isinstance(desk.governor.try_reserve(desk.quote(100, "b"), ticket), Reservation)
    desk.governor.close_ticket(ticket, Usage(input_tokens=1, output_tokens=10))
    assert desk.used(level="model_profile") == 20
    assert desk.used(level="tenant") == 10


def test_attempts_that_race_pay_for_themselves():
    """[quota R33]"""
    desk = Desk(ceilings={ACME: ceiling(400)})
    ticket = desk.ticket(is_kept=True)
    first, second = (desk.governor.try_reserve(desk.quote(100), ticket) for _ in range(2))
    assert desk.used(level="tenant") == 200
    second.settle(Usage(input_tokens=1, output_tokens=10))
    first.extend()
    first.settle(Usage(input_tokens=1, output_tokens=20))
    desk.governor.close_ticket(ticket)
    assert desk.used(level="tenant") == 30


def test_a_ticket_that_is_closed_early_is_settled_by_the_attempt_that_still_runs():
    """Also by one that begins only then. [quota R29]"""
    desk = Desk(ceilings={ACME: ceiling(400)})
    ticket = desk.ticket(is_kept=True)
    for used in (30, 80):
        attempt = desk.governor.try_reserve(desk.quote(100), ticket)
        desk.governor.close_ticket(ticket)
        assert desk.used(level="tenant") >= 100
        attempt.settle(Usage(input_tokens=1, output_tokens=30))
        assert desk.used(level="tenant") == pytest.approx(used, abs=20)
    assert not ticket.holds


def test_whoever_closes_a_ticket_may_say_what_was_used():
    desk = Desk(ceilings={ACME: ceiling(400)})
    ticket = desk.ticket(is_kept=True)
    desk.governor.try_reserve(desk.quote(100), ticket).fail(sent=False)
    desk.governor.close_ticket(ticket, Usage(input_tokens=1, output_tokens=7))
    assert desk.used(level="tenant") == 7


def test_a_ticket_of_a_request_says_whose_it_is():
    """Principal and class travel in the hints. [quota R1]"""
    governor = Desk().governor
    hints = RoutingHints(principal=Principal(tenant="acme"), request_class="batch")
    ticket = governor.ticket(ChatOptions(routing=hints))
    assert (ticket.principal.tenant, ticket.request_class, ticket.is_kept) == (
        "acme",
        "batch",
        False,
    )
    assert governor.ticket().principal == Principal()
    assert governor.ticket(ChatOptions()).request_class == "interactive"


# Records and metrics.


def test_a_record_answers_five_questions_before_anything_is_sent():
    """Where, how much, on whose account, what is done, and how it is settled. [quota R1]"""
    desk = Desk()
    decision = desk.take(trace_id="t").decision
    assert decision.deployment == "a"
    assert str(decision.scope) == "test:server=a"
    assert decision.charges["output_tokens"] == 100
    assert decision.principal.tenant == "acme"
    assert decision.request_class == "interactive"
    assert decision.outcome is DecisionOutcome.ADMITTED
    assert decision.policy == ChargePolicy()
    assert decision.settlement is None
    assert desk.log == []


def test_one_complete_record_for_each_decision():
    """With levels before and after, real use and the error of the estimate. [quota R60]"""
    desk = Desk(ceilings={ACME: ceiling(500)})
    reservation = desk.take(output=400, trace_id="t")
    denial = desk.ask(output=400)
    desk.clock.advance(2)
    reservation.settle(Usage(input_tokens=5, output_tokens=100))
    assert [each.id for each in desk.log] == [denial.id, reservation.id]
    record = desk.log[1]
    assert record == reservation.decision
    assert record.trace_id == "t"
    assert {each.limiter: (each.before, each.after, each.size) for each in record.levels} == {
        "tenant acme: output_tokens per 60 s": (0, 400, 500),
        "deployment test:server=a: output_tokens per 60 s": (0, 400, 1000),
    }
    ended = record.settlement
    assert (ended.seconds, ended.output_error, ended.usage.output_tokens) == (2, 300, 100)
    assert ended.input_error == reservation.quote.input.value - 5
    assert not ended.usage_is_estimated
    assert denial.trace_id == denial.id


def test_a_record_says_that_the_estimate_stayed():
    """[quota R27]"""
    desk = Desk()
    desk.take().settle()
    assert desk.log[0].settlement.usage_is_estimated
    assert desk.log[0].settlement.output_error is None


def test_a_listener_that_fails_costs_nothing(caplog):
    desk = Desk()

    def fail(decision):
        raise RuntimeError("broken")

    desk.governor._core._on_decision = fail
    assert desk.take().settle()
    assert "quota.listener_failed" in caplog.text


def test_without_a_listener_no_record_says_what_windows_counted():
    reservation = Desk(on_decision=None).take()
    assert reservation.settle()
    assert reservation.decision.levels == ()


def test_a_listener_may_ask_the_governor():
    desk = Desk()
    seen = []
    desk.governor._core._on_decision = lambda _: seen.append(desk.governor.snapshot())
    desk.take().settle()
    assert len(seen) == 1


def test_everything_is_counted():
    """Plain numbers, by class, tenant and limiter. [quota R61]"""
    desk = Desk()
    desk.take(output=400).settle(Usage(input_tokens=5, output_tokens=200))
    desk.fill(output=400)
    metrics = desk.governor.metrics
    assert metrics.total("decisions", "class", "admitted", "interactive") == 3
    assert metrics.total("decisions", "tenant", "rejected_locally", "acme") == 1
    limiter = "deployment: output_tokens per 60 s"
    assert metrics.total("decisions", "limiter", "rejected_locally", limiter) == 1
    assert metrics.total("reserved", "dimension", "output_tokens") == 400
    assert metrics.total("settled", "dimension", "output_tokens") == 200
    assert metrics.queue_waits["interactive"].count == 3
    assert metrics.output_ratios[""].quantile(0.5) == 2
    assert json.loads(json.dumps(metrics.to_dict()))["output_ratio"][""]["count"] == 1


def test_only_so_many_tenants_are_told_apart():
    """[quota R61]"""
    metrics = QuotaMetrics()
    names = {metrics.tenant(f"tenant-{number}") for number in range(1500)}
    assert len(names) == 1001
    assert metrics.tenant("tenant-1") == "tenant-1"
    assert metrics.tenant(None) == ""


def test_a_histogram_tells_quantiles_by_its_buckets():
    histogram = Histogram([1, 2, 5])
    assert histogram.quantile(0.5) == 0
    for value in (0.5, 1, 1.5, 1.7, 9):
        histogram.add(value)
    assert histogram.counts == [2, 2, 0, 1]
    assert [histogram.quantile(share) for share in (0.4, 0.5, 0.8, 1)] == [1, 2, 2, 5]
    assert (histogram.count, histogram.sum) == (5, pytest.approx(13.7))


def test_a_snapshot_shows_limits_use_and_guarantees():
    """[quota R45, R61]"""
    desk = Desk(contracts={"rich": TenantContract(share=0.5), "n": TenantContract()})
    desk.take("rich", 10)
    desk.take("acme", 10)
    desk.clock.advance(3)
    (scope,) = desk.governor.snapshot().scopes
    assert scope.scope == "test:server=a"
    assert scope.deployments == ("a",)
    assert scope.running == {"guaranteed": 1, "borrowed": 1}
    assert scope.oldest_running == 3
    assert scope.assured == {"rich": {"output_tokens per 60 s": 50}}
    assert (scope.waiting, scope.next_start, scope.closed_for) == ({}, math.inf, 0)
    (window,) = desk.governor.snapshot().windows
    assert (window.level, window.used, window.size) == ("deployment", 20, 1000)


# Guarantees.


def test_the_governor_says_which_guarantee_each_tenant_gets():
    """[quota R46]"""
    desk = Desk(
        contracts={"rich": TenantContract(share=0.5), "small": TenantContract(share=0.1)},
        largest_request={"output_tokens": 50},
    )
    kinds = {name: each.kind for name, each in desk.governor.guarantees("a").guarantees.items()}
    assert kinds == {"rich": GuaranteeKind.INSTANT, "small": GuaranteeKind.LONG_RUN}


def test_what_is_lent_leaves_room_for_whoever_it_belongs_to():
    """[quota R41, R44, G5]"""
    desk = Desk(contracts={"rich": TenantContract(share=0.5)})
    borrowed = desk.fill("acme", 10)
    assert {each.funding for each in borrowed} == {FundingKind.BORROWED}
    assert len(borrowed) < 50
    denial = desk.ask("acme", 10)
    assert denial.limiter.name == "kept for guarantees"
    assert denial.fallback_allowed
    mine = desk.take("rich", 50)
    assert mine.funding is FundingKind.GUARANTEED
    assert desk.governor.metrics.total("borrowed", "class", "interactive") == len(borrowed)


def test_batch_lives_on_what_is_left():
    """It never uses its tenant's guarantee. [quota R49]"""
    desk = Desk(contracts={"rich": TenantContract(share=0.5)})
    assert desk.take("rich", 10, request_class="batch").funding is FundingKind.BORROWED
    assert desk.take("rich", 10).funding is FundingKind.GUARANTEED


def test_a_class_may_live_on_guarantees_alone():
    """[quota R49]"""
    careful = TrafficClass(name="careful", may_borrow=False)
    desk = Desk(
        classes=[careful],
        default_class="careful",
        contracts={"rich": TenantContract(share=0.5)},
    )
    assert len(desk.fill("rich", 10)) == 5
    denial = desk.ask("rich", 10)
    assert denial.limiter.name == "guarantee of the tenant"
    desk.clock.advance(denial.wait)
    desk.take("rich", 10)
    assert desk.ask("stranger", 10).wait == math.inf


def test_a_stream_longer_than_the_pool_borrows_when_there_is_room_for_it():
    """And not never: the guarantees leave 30 of 600 seconds. [quota R42]"""
    desk = Desk(
        deployment("a", QuotaLimit("stream_seconds", 600)),
        contracts={"acme": TenantContract(share=0.95)},
    )
    quote = desk.quote(is_streaming=True)
    quote = replace(quote, duration=Figure(60.0, Source.DEFAULT))
    first, second = (
        desk.governor.try_reserve(quote, desk.ticket(tenant)) for tenant in ("other", "other")
    )
    assert first.funding is FundingKind.BORROWED
    assert second.limiter.name == "kept for guarantees"
    first.settle()
    assert isinstance(desk.governor.try_reserve(quote, desk.ticket("other")), Reservation)


def test_a_slot_is_asked_back_from_the_youngest_that_borrows():
    """[quota R43, R45, G7]"""
    gauge = QuotaLimit("concurrency", 4)
    desk = Desk(deployment("a", gauge), contracts={"rich": TenantContract(share=0.5)})
    batch = desk.fill("acme", request_class="batch")
    assert len(batch) == 2
    mine = [desk.take("rich") for _ in range(2)]
    desk.governor.update_limits(deployments={"a": BucketLimits((QuotaLimit("concurrency", 2),))})
    mine[0].settle()
    mine[1].settle()
    assert isinstance(desk.ask("rich"), type(desk.ask("acme")))
    assert [each.must_stop for each in batch] == [False, True]
    assert desk.ask("rich").wait == pytest.approx(0.1)  # it will stop in a moment
    batch[1].fail()
    assert desk.governor.metrics.total("reclaimed", "class", "batch") == 1
    desk.take("rich")


def test_only_who_may_be_cut_off_is():
    """[quota R49]"""
    desk = Desk(
        deployment("a", QuotaLimit("concurrency", 4)), contracts={"rich": TenantContract(share=0.5)}
    )
    firm = desk.fill("acme")
    mine = [desk.take("rich") for _ in range(2)]
    desk.governor.update_limits(deployments={"a": BucketLimits((QuotaLimit("concurrency", 2),))})
    for each in mine:
        each.settle()
    assert desk.ask("rich").limiter.name == "concurrency per at once"
    assert not any(each.must_stop for each in firm)


def test_a_borrowed_stream_ends_when_its_class_says():
    """[quota R49, G7]"""
    short = TrafficClass(name="short", borrowed_max_stream=5, may_use_guarantee=False)
    desk = Desk(
        classes=[short], default_class="short", contracts={"rich": TenantContract(share=0.5)}
    )
    reservation = desk.take(output=10)
    desk.clock.advance(5)
    assert not reservation.must_stop
    desk.clock.advance(1)
    assert reservation.must_stop


# Downgrade and reroute.


def test_a_lower_cap_is_tried_if_the_class_says_so():
    """And is visible in the result. [quota R48, R52, R54]"""
    modest = TrafficClass(
        name="modest",
        min_output_tokens=50,
        on_pressure=(Pressure.DOWNGRADE,),
        downgrade_profile="small",
    )
    desk = Desk(classes=[modest], default_class="modest")
    desk.take(output=900)
    reservation = desk.take(output=200)
    assert reservation.decision.outcome is DecisionOutcome.DOWNGRADED
    assert reservation.max_output_tokens == 50
    assert reservation.was_downgraded
    assert desk.used() == 950
    desk.take(output=50)
    denial = desk.ask(output=50)
    assert denial.downgrade_profile == "small"
    assert not denial.fallback_allowed


def test_a_lower_cap_helps_though_less_was_expected():
    """Where the provider charges the cap. [quota R52]"""
    modest = TrafficClass(name="modest", min_output_tokens=50, on_pressure=(Pressure.DOWNGRADE,))
    capped = deployment("a", OUTPUT, policy=ChargePolicy(output_charge="cap"))
    desk = Desk(capped, classes=[modest], default_class="modest")
    desk.take(output=900)
    quote = replace(desk.quote(500), output=Figure(20.0, Source.ROUTE))
    reservation = desk.governor.try_reserve(quote, desk.ticket())
    assert reservation.max_output_tokens == 50
    assert reservation.quote.output.value == 20
    assert desk.used() == 950


def test_an_admission_after_a_denial_elsewhere_is_a_reroute():
    """[quota R48, R54]"""
    desk = Desk(deployment("a", OUTPUT), deployment("b", OUTPUT))
    desk.fill()
    ticket = desk.ticket()
    assert desk.governor.try_reserve(desk.quote(100), ticket).may_queue is False
    reservation = desk.governor.try_reserve(desk.quote(100, "b"), ticket)
    assert reservation.decision.outcome is DecisionOutcome.REROUTED


# Providers that say something else.


def test_a_refusal_by_the_provider_closes_its_scope_as_long_as_it_says():
    """For all deployments that share it, and no other. [quota R3, R54, R58, R61]"""
    scope = ProviderScope("test", {"family": "opus"})
    desk = Desk(
        *(deployment(name, OUTPUT, scope=scope) for name in "ab"),
        deployment("c", OUTPUT),
    )
    reservation = desk.take(output=10)
    reservation.fail(RateLimitError("slow down", status_code=429, retry_after=7.0))
    outcome = DecisionOutcome.ADMITTED_THEN_PROVIDER_REJECTED
    assert reservation.decision.outcome is outcome
    assert desk.log[0].settlement.has_failed
    denial = desk.ask(output=10, name="b")
    assert (denial.wait, denial.limiter.name) == (7, "closed by the provider")
    desk.take(output=10, name="c")
    desk.clock.advance(7)
    desk.take(output=10, name="b")
    assert desk.governor.metrics.total("provider_rejections", "funding", "shared") == 1


def test_a_refusal_shrinks_what_is_used_and_time_brings_it_back():
    """[quota R58]"""
    desk = Desk()
    desk.take(output=10).fail(RateLimitError("slow down", status_code=429))
    assert len(desk.fill()) == 8
    assert desk.governor.snapshot().scopes[0].is_lowered
    assert desk.ask(output=900).wait == math.inf  # that may fit again, nobody knows when
    assert desk.ask(output=900).reason is DenialReason.EXHAUSTED
    desk.clock.advance(200)
    assert len(desk.fill()) == 10
    assert not desk.governor.snapshot().scopes[0].is_lowered


def test_a_cold_deployment_is_ramped_where_its_provider_minds():
    """[quota R15, R59]"""
    profile = provider_profile("anthropic").replace(short_windows={})
    desk = Desk(deployment("a", OUTPUT, profile=profile), cold_share=0.2)
    first = len(desk.fill(output=10))
    assert 20 <= first <= 30
    desk.clock.advance(61)
    second = desk.fill(output=10)
    assert first <= len(second) < 50
    second[-1].fail(RateLimitError("acceleration limit: ramp up slowly", status_code=429))
    desk.clock.advance(61)
    assert len(desk.fill(output=10)) <= 20


def test_what_others_used_today_was_not_all_used_in_this_minute():
    """After a restart, say: the provider tells of the day, a limit for a minute is there too."""
    limits = QuotaLimit("requests", 30), QuotaLimit("requests", 14_400, window=86_400.0)
    desk = Desk(deployment("a", *limits, profile=provider_profile("groq")))
    headers = {
        "x-ratelimit-limit-requests": "14400",
        "x-ratelimit-remaining-requests": "12959",
    }
    desk.governor.observe(desk.take(), headers)
    by_span = {each.span: each.used for each in desk.governor.snapshot().windows}
    assert by_span == {"60 s": pytest.approx(2), "86400 s": 1441}


@pytest.mark.parametrize("tokens", [10**400, -5, math.nan, "100", [1], 1j, True], ids=str)
def test_what_no_request_can_have_used_is_not_believed(tokens):
    """The estimate stays, and nothing breaks half-way. [quota R27, R29]"""
    desk = Desk(
        deployment("a", OUTPUT, QuotaLimit("concurrency", 1)), ceilings={ACME: ceiling(900)}
    )
    ticket = desk.ticket(is_kept=True)
    usage = Usage(input_tokens=tokens, output_tokens=tokens)
    assert desk.governor.try_reserve(desk.quote(100), ticket).settle(usage)
    desk.governor.close_ticket(ticket, usage)
    assert desk.used() == desk.used(level="tenant") == 100
    assert desk.used("concurrency") == 0


def test_numbers_of_other_kinds_are_numbers():
    """A client of one's own may count with an array library. [quota R27]"""
    desk = Desk()
    desk.take().settle(Usage(output_tokens=np.int64(70)))
    assert desk.used() == 70


def test_a_limit_too_low_for_any_request_is_not_believed_for_ever():
    """With no answer to correct it, nothing would ever go through again. [quota R58]"""
    profile = provider_profile("openai")
    desk = Desk(deployment("a", QuotaLimit("total_tokens", 1000), profile=profile))
    headers = {"x-ratelimit-limit-tokens": "12"}
    for _ in range(3):
        last = desk.take()
        desk.governor.observe(last, headers)
        desk.clock.advance(100)
    assert desk.ask().limiter.size == 12
    desk.governor.observe(last, {"date": "today"})  # confirms nothing
    assert desk.governor.snapshot().scopes[0].is_lowered
    desk.clock.advance(500)
    assert desk.take()
    assert not desk.governor.snapshot().scopes[0].is_lowered


def test_headers_lower_what_is_believed():
    """What somebody else has used of the key is charged. [quota R12, R58, R61]"""
    openai = provider_profile("openai")
    desk = Desk(deployment("a", QuotaLimit("requests", 100), profile=openai, policy=openai.policy))
    reservation = desk.take()
    desk.governor.observe(reservation, None)
    headers = {"x-ratelimit-limit-requests": "100", "x-ratelimit-remaining-requests": "60"}
    desk.governor.observe(reservation, headers)
    assert desk.used("requests") == 40
    assert desk.governor.metrics.total("external", "dimension", "requests") == 39
    lower = {"x-ratelimit-limit-requests": "50", "x-ratelimit-remaining-requests": "10"}
    for _ in range(3):
        desk.governor.observe(reservation, lower)
    (window,) = desk.governor.snapshot().windows
    assert window.size == 50


# Changes while requests run.


def test_limits_change_without_losing_holds():
    """Lower: nothing new until it drains. Higher: at once. [quota R63]"""
    desk = Desk()
    running = desk.fill()
    desk.governor.update_limits(deployments={"a": ceiling(500)})
    assert desk.used() == 1000
    running[0].settle(Usage(input_tokens=1, output_tokens=0))
    assert desk.ask(output=1).wait > 0
    desk.governor.update_limits(deployments={"a": ceiling(2000)})
    assert len(desk.fill()) == 11
    assert desk.governor.deployments["a"].limits == ceiling(2000)


def test_ceilings_and_contracts_change_too():
    """[quota R63]"""
    desk = Desk()
    governor = desk.governor
    governor.update_limits(ceilings={ACME: ceiling(200)})
    assert len(desk.fill()) == 2
    governor.update_limits(ceilings={ACME: None}, contracts={"rich": TenantContract(share=0.5)})
    assert desk.take(output=20).funding is FundingKind.BORROWED
    governor.update_limits(contracts={"rich": TenantContract(share=0.4)})
    assert desk.take("rich", 20).funding is FundingKind.GUARANTEED
    governor.update_limits(contracts={"rich": TenantContract()})
    assert desk.take("rich", 20).funding is FundingKind.SHARED


def test_a_promise_that_is_taken_back_leaves_no_trace():
    """What runs on it is settled all the same. [quota R63]"""
    limits = OUTPUT, QuotaLimit("concurrency", 10)
    promise = {"rich": TenantContract(share=0.5), "other": TenantContract(share=0.2)}
    desk = Desk(deployment("a", *limits), contracts=promise)
    first, second = desk.take("rich", 10), desk.take("rich", 10)
    desk.governor.update_limits(contracts={"rich": TenantContract()})
    first.settle(Usage(input_tokens=1, output_tokens=5))
    desk.governor.update_limits(contracts={"other": TenantContract()})
    desk.governor.update_limits(contracts=promise)
    second.settle(Usage(input_tokens=1, output_tokens=5))
    assert desk.governor.snapshot().scopes[0].assured["rich"] == {
        "output_tokens per 60 s": 50,
        "concurrency per at once": 5,
    }


def test_a_slot_is_not_asked_for_at_once_again():
    """Of a request that runs longer than expected nobody knows when it ends. [quota R57]"""
    desk = Desk(deployment("a", QuotaLimit("concurrency", 1)))
    desk.take()
    assert desk.ask().wait == pytest.approx(10)
    desk.clock.advance(30)
    assert desk.ask().wait == pytest.approx(0.1)


def test_wrong_changes_change_nothing():
    """[quota R46, R63]"""
    desk = Desk(contracts={"rich": TenantContract(share=0.5)})
    with pytest.raises(ConfigurationError, match=r"add up to 1.3"):
        desk.governor.update_limits(
            deployments={"a": ceiling(7)}, contracts={"poor": TenantContract(share=0.8)}
        )
    with pytest.raises(ConfigurationError, match="has no limits in this governor"):
        desk.governor.update_limits(deployments={"x": ceiling(7)})
    assert list(desk.governor.guarantees("a").guarantees) == ["rich"]
    assert len(desk.fill("rich", 10)) > 5


# Watching instead of enforcing.


def test_a_shadow_decides_and_counts_and_lets_everything_through():
    """[quota R62]"""
    desk = Desk(shadow=True, ceilings={ACME: ceiling(500)})
    reservations = [desk.take() for _ in range(12)]
    enforced = [each.decision.is_enforced for each in reservations]
    assert enforced == [True] * 5 + [False] * 7
    watched = reservations[-1].decision
    assert watched.outcome is DecisionOutcome.ADMITTED
    assert watched.reason is DenialReason.EXHAUSTED
    assert watched.wait > 0
    assert watched.limiter.key == ACME
    for each in reservations:
        assert each.settle(Usage(input_tokens=1, output_tokens=1))
    label = "tenant: output_tokens per 60 s"
    assert desk.governor.metrics.total("unenforced", "limiter", label) == 7


def test_a_shadow_keeps_no_part_of_a_guarantee():
    """Also of what a limit that is only watched had no room for. [quota R62, G3]"""
    desk = Desk(
        deployment("a", QuotaLimit("concurrency", 4)),
        contracts={"acme": TenantContract(share=0.5)},
        shadow=True,
    )
    others = [desk.take("other") for _ in range(4)]
    for each in [*others, desk.take("acme")]:
        each.settle()
    [scope] = desk.governor.snapshot().scopes
    assert scope.assured["acme"] == {"concurrency per at once": 2}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"watched": Level.TENANT}, id="a level that is no collection"),
        pytest.param({"watched": ACME}, id="a bucket that is no collection"),
        pytest.param({"watched": ["tenant"]}, id="a text"),
        pytest.param({"default_ceilings": {Level.DEPLOYMENT: ceiling(1)}}, id="a level's ceiling"),
        pytest.param({"ceilings": {BucketKey(Level.DEPLOYMENT, "a"): ceiling(1)}}, id="a ceiling"),
    ],
)
def test_what_would_silently_do_nothing_is_refused(settings):
    with pytest.raises(ConfigurationError):
        Desk(**settings)


def test_two_deployments_of_one_scope_cannot_be_given_limits_that_differ():
    """[quota R11, R63]"""
    shared = ProviderScope("test", {"server": "one"})
    desk = Desk(*(deployment(name, OUTPUT, scope=shared) for name in "ab"))
    with pytest.raises(ConfigurationError, match="share"):
        desk.governor.update_limits(deployments={"a": ceiling(500), "b": ceiling(600)})
    desk.governor.update_limits(deployments={"a": ceiling(500), "b": ceiling(500)})
    assert len(desk.fill()) == 5


@pytest.mark.parametrize("watched", [Level.TENANT, ACME], ids=["level", "bucket"])
def test_a_bucket_may_be_watched_alone(watched):
    """[quota R62]"""
    desk = Desk(watched=[watched], ceilings={ACME: ceiling(500)})
    assert len(desk.fill()) == 10
    desk.clock.advance(100)
    desk.governor.update_enforcement(shadow=False)
    assert len(desk.fill()) == 5
    desk.governor.update_enforcement(shadow=True)
    assert desk.take(output=900).decision.is_enforced is False
    desk.governor.update_enforcement(shadow=False, watched=[Level.DEPLOYMENT])
    assert desk.ask().limiter.key == ACME


# Choosing.


def test_headroom_says_how_full_a_deployment_is():
    """For policies that choose. [quota R45]"""
    desk = Desk()
    assert desk.governor.headroom(desk.quote(), desk.ticket()) == (1.0, 0.0)
    desk.take(output=400)
    assert desk.governor.headroom(desk.quote(), desk.ticket()) == (0.6, 0.0)
    share, wait = desk.governor.headroom(desk.quote(700), desk.ticket())
    assert (share, wait > 0) == (0.6, True)
    assert desk.governor.headroom(desk.quote(1001), desk.ticket()).wait == math.inf
    assert desk.used() == 400


def test_a_closed_deployment_has_no_headroom():
    """Or policies would prefer it to all others. [quota R58]"""
    desk = Desk()
    desk.take().fail(RateLimitError("no", status_code=429, retry_after=30))
    headroom = desk.governor.headroom(desk.quote(), desk.ticket())
    assert headroom == (0.0, 30.0)


def test_nothing_leaks():
    """[quota R29]"""
    desk = Desk(
        deployment("a", QuotaLimit("output_tokens", 10**6), QuotaLimit("concurrency", 9)),
        default_ceilings={Level.TENANT: ceiling(10**6)},
    )
    for number in range(1500):
        desk.clock.advance(1)
        desk.take(f"tenant-{number}", 10).settle(Usage(input_tokens=1, output_tokens=1))
    core = desk.governor._core
    assert core.ledger.bucket_count < 300
    assert len(core.room(core.deployments["a"]).running) == 0
    assert len(core.room(core.deployments["a"]).dispatcher.line) == 0


def test_messages_of_a_quote_are_not_kept():
    """[quota R56]"""
    desk = Desk()
    desk.fill()
    messages = [ChatMessage(Role.USER, "the secret word is plover")]
    options = ChatOptions(max_output_tokens=1_000)
    quote = desk.governor.quote(messages, options, "a", is_streaming=False)
    found = desk.governor.try_reserve(quote, desk.ticket())
    assert "plover" not in repr(found.to_dict()) + repr(quote) + repr(desk.log)
