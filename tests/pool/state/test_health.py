"""How members rest, recover and are left out."""

import logging
from itertools import pairwise

import pytest

from chatrouting.errors import (
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    NotFoundError,
    OverloadedError,
    RateLimitError,
)
from chatrouting.failure import FailureKind
from chatrouting.pool import (
    ApiKey,
    Endpoint,
    EndpointMode,
    EndpointStatus,
    PoolEvent,
    PoolEventKind,
    PoolPolicy,
)


def throttled(seconds: float | None = None) -> RateLimitError:
    return RateLimitError("slow down", status_code=429, retry_after=seconds)


def failed(status: int = 500, seconds: float | None = None) -> InternalServerError:
    return InternalServerError("broken", status_code=status, retry_after=seconds)


def denied() -> AuthenticationError:
    return AuthenticationError("bad key", status_code=401)


# Throttling.


def test_each_refusal_in_a_row_doubles_the_rest_up_to_two_minutes(build, clock):
    """[pools 39]"""
    pool = build("a", "b")
    rests = []
    for _ in range(8):
        pool.fail("a", throttled())
        rests.append(pool.rest("a"))
        clock.advance(pool.rest("a"))
    assert rests == [2, 4, 8, 16, 32, 64, 120, 120]


def test_the_servers_hint_counts_if_it_is_longer(build, clock):
    """[pools 40]"""
    pool = build("a", "b")
    clock.advance(10)
    pool.fail("a", throttled(15))
    assert (pool.rest("a"), pool.state("a").consecutive_429s) == (15, 1)
    clock.advance(15)
    pool.fail("a", throttled(0.5))
    assert pool.rest("a") == 4


def test_the_hint_is_cut_at_two_minutes_by_the_readme(build):
    """[pools 40] [BR-29]"""
    pool = build("a", "b")
    pool.fail("a", throttled(600))
    assert pool.rest("a") == 120


def test_a_longer_hint_may_be_believed(build):
    """[pools 40] [pools B16] [BR-28]: a plan that is used up for the day is not probed all day."""
    pool = build("a", "b", max_retry_after=3600.0)
    pool.fail("a", throttled(1800))
    assert pool.rest("a") == 1800
    pool.fail("b", throttled(86_400))
    assert pool.rest("b") == 3600


def test_a_burst_of_refusals_counts_once(build):
    """[pools B7]"""
    pool = build("a", "b")
    pool.fail("a", *[throttled()] * 8)
    assert (pool.rest("a"), pool.state("a").consecutive_429s) == (2, 1)


def test_a_late_refusal_of_a_burst_may_extend_the_rest(build, clock):
    """[pools B7] [pools B8] [BR-39]"""
    pool = build("a", "b")
    early, late = pool.take("a"), pool.take("a")
    pool.failed(early, throttled())
    clock.advance(1)
    pool.failed(late, throttled(60))
    assert (pool.rest("a"), pool.state("a").consecutive_429s) == (60, 1)


def test_no_rest_is_shortened_by_a_later_refusal(build, clock):
    """[pools B8] [BR-39]: litellm 40130 kept the first, shorter end; TypeAgent takes the last."""
    pool = build("a", "b")
    pool.fail("a", throttled(60), throttled(1), failed())
    assert pool.rest("a") == 60


def test_typeagent_shortens_and_counts_each_refusal_of_a_burst(build):
    """[pools B7] [pools B8]"""
    pool = build("a", "b", policy=PoolPolicy.typeagent())
    pool.fail("a", throttled(60), throttled())
    assert (pool.rest("a"), pool.state("a").consecutive_429s) == (4, 2)


def test_three_answers_in_a_row_make_the_next_rest_short_again(build, clock):
    """[pools 42]"""
    pool = build("a", "b")
    for _ in range(2):
        pool.fail("a", throttled())
        clock.advance(pool.rest("a"))
    pool.answer("a", 2)
    assert pool.state("a").consecutive_429s == 2
    pool.answer("a")
    assert (pool.state("a").consecutive_429s, pool.state("a").success_streak) == (0, 3)


def test_an_answer_does_not_end_a_rest(build):
    """[pools 42]"""
    pool = build("a", "b")
    ticket = pool.take("a")
    pool.fail("a", throttled())
    pool.succeeded(ticket)
    assert pool.rest("a") == 2


def test_a_refusal_breaks_the_streak(build, clock):
    """[pools 39]"""
    pool = build("a", "b")
    pool.answer("a", 2)
    pool.fail("a", throttled())
    clock.advance(2)
    pool.answer("a", 2)
    assert (pool.state("a").consecutive_429s, pool.state("a").success_streak) == (1, 2)


def test_an_answer_to_what_was_sent_before_a_refusal_is_no_recovery(build, clock):
    """[pools B17]"""
    pool = build("a", "b")
    before = [pool.take("a") for _ in range(3)]
    pool.fail("a", throttled())
    for ticket in before:
        pool.succeeded(ticket)
    assert (pool.state("a").consecutive_429s, pool.state("a").success_streak) == (1, 0)


def test_typeagent_takes_old_answers_for_recovery(build):
    """[pools B17]"""
    pool = build("a", "b", policy=PoolPolicy.typeagent())
    before = [pool.take("a") for _ in range(3)]
    pool.fail("a", throttled())
    for ticket in before:
        pool.succeeded(ticket)
    assert pool.state("a").consecutive_429s == 0


# Failures.


def test_a_failure_lets_a_member_rest_five_seconds_and_counts_no_refusal(build):
    """[pools 41] [pools 56]"""
    pool = build("a", "b")
    pool.answer("a", 2)
    pool.fail("a", failed(503))
    state = pool.state("a")
    assert (state.ready_in, state.consecutive_429s, state.success_streak) == (5, 0, 0)


def test_who_rests_is_left_out_at_once_and_asked_again_at_once_afterwards(build, clock):
    """[BR-43]: one source of truth, read before every attempt."""
    pool = build("a", Endpoint("b", priority=2))
    asked = []
    for _ in range(2):
        ticket = pool.take()
        asked.append(ticket.endpoint.id)
        pool.failed(ticket, failed())
    clock.advance(5)
    assert [*asked, *pool.names(1)] == ["a", "b", "a"]


def test_a_failure_does_not_shorten_a_longer_rest(build):
    """[pools 41]"""
    pool = build("a", "b")
    pool.fail("a", throttled(60), failed())
    assert pool.rest("a") == 60


@pytest.mark.parametrize(("status", "rest"), [(503, 30), (529, 30), (500, 5), (502, 5)])
def test_the_hint_of_an_overloaded_server_counts_too(build, status, rest):
    """[pools 48]"""
    pool = build("a", "b")
    pool.fail("a", OverloadedError("full", status_code=status, retry_after=30))
    assert pool.rest("a") == rest


def test_typeagent_hears_hints_on_429_only(build):
    """[pools 48]"""
    pool = build("a", "b", policy=PoolPolicy.typeagent())
    pool.fail("a", failed(503, 30))
    assert pool.rest("a") == 5


def test_failures_may_rest_longer_each_time_up_to_a_limit(build, clock):
    """A region that is down for an hour is not asked every five seconds."""
    pool = build("a", "b", max_transient_cooldown=20.0)
    rests = []
    for _ in range(5):
        pool.fail("a", failed(), failed())
        rests.append(pool.rest("a"))
        clock.advance(pool.rest("a"))
    assert rests == [5, 10, 20, 20, 20]
    pool.answer("a", 3)
    pool.fail("a", failed())
    assert pool.rest("a") == 5


def test_a_wrong_request_changes_nothing(build):
    """[pools 51] [BR-34]"""
    pool = build("a", "b")
    pool.answer("a", 2)
    before = pool.state("a")
    pool.fail("a", BadRequestError("no", status_code=400))
    assert pool.state("a") == before


def test_a_released_ticket_changes_nothing(build):
    """[BR-38]"""
    pool = build("a", "b")
    before = pool.state("a")
    for _ in range(10):
        pool.released(pool.take("a"))
    assert pool.state("a") == before


def test_failed_says_how_it_judges(build):
    pool = build("a", "b")
    fault = pool.failed(pool.take("a"), throttled(3))
    assert (fault.failure.kind, fault.failure.retry_after) == (FailureKind.RATE_LIMITED, 3)


# Jitter.


def test_rests_are_exact_unless_jitter_is_asked_for(build):
    """[pools 43]"""
    exact, spread = build("a", "b"), build("a", "b", cooldown_jitter=0.1)
    for pool in (exact, spread):
        pool.fail("a", throttled(15))
    assert exact.rest("a") == 15
    assert 15 < spread.rest("a") <= 16.5


def test_chance_shortens_no_rest_either(build):
    """[pools B8]"""
    heard: list[PoolEvent] = []
    pool = build("a", "b", cooldown_jitter=0.5, on_event=heard.append)
    pool.fail("a", *[throttled()] * 8)
    seconds = [event.seconds for event in heard]
    assert pool.rest("a") == max(seconds) > seconds[-1]


# Reserved throughput.


@pytest.mark.parametrize(("hint", "rest"), [(0.25, 0.25), (0.01, 0.1), (7.0, 7.0)])
def test_reserved_throughput_rests_as_long_as_the_server_says(build, hint, rest):
    """[pools B15]; openai-priority-loadbalancer issue 14, azure-docs 122587."""
    pool = build(
        Endpoint("ptu", mode=EndpointMode.PTU), "b", ptu_exact_hint=True, cooldown_jitter=0.1
    )
    pool.fail("ptu", throttled(hint))
    assert pool.rest("ptu") == pytest.approx(rest)
    assert pool.state("ptu").consecutive_429s == 0


def test_reserved_throughput_without_a_hint_rests_as_others_do(build):
    """[pools B15]"""
    pool = build(Endpoint("ptu", mode=EndpointMode.PTU), "b", ptu_exact_hint=True)
    pool.fail("ptu", throttled())
    assert (pool.rest("ptu"), pool.state("ptu").consecutive_429s) == (2, 1)


def test_by_the_readme_reserved_throughput_is_no_exception(build):
    """[pools B15]"""
    pool = build(Endpoint("ptu", mode=EndpointMode.PTU), "b")
    pool.fail("ptu", throttled(0.25))
    assert pool.rest("ptu") == 2


# Members that a person has to mend.


def test_a_bad_key_leaves_a_member_out_for_ever_longer_times(build, clock):
    """[pools B9] [pools 51]"""
    pool = build("a", "b")
    rests = []
    for _ in range(6):
        pool.fail("a", denied(), denied())
        rests.append(pool.rest("a"))
        clock.advance(pool.rest("a"))
    assert rests == [300, 600, 1200, 2400, 3600, 3600]


def test_an_answer_brings_a_parked_member_back(build):
    """[pools B9]"""
    pool = build("a", "b")
    pool.fail("a", denied())
    assert pool.state("a").parked_for is FailureKind.AUTHENTICATION
    pool.fail("b", denied())
    pool.answer("a")
    assert (pool.rest("a"), pool.state("a").parked_for) == (0, None)
    assert set(pool.names(20)) == {"a"}


def test_an_answer_to_what_was_sent_before_brings_nobody_back(build):
    """[pools B17]"""
    pool = build("a", "b")
    before = pool.take("a")
    pool.fail("a", denied())
    pool.succeeded(before)
    assert pool.rest("a") == 300


def test_a_policy_may_leave_a_bad_key_in_the_choice(build):
    """[pools 51]: as upstream."""
    pool = build("a", "b", member_fault="raise")
    pool.fail("a", denied())
    assert pool.rest("a") == 0


def test_a_missing_deployment_is_told_once_with_its_variables(build, caplog):
    """[pools B9] [pools 62]"""
    caplog.set_level(logging.INFO, "chatrouting.pool")
    source = ("AZURE_OPENAI_ENDPOINT_A", "AZURE_OPENAI_API_KEY_A")
    pool = build(Endpoint("a", source=source, auth=ApiKey("sk-secret")), "b")
    missing = NotFoundError("DeploymentNotFound", status_code=404)
    pool.fail("a", missing, missing, missing)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "pool.parked pool=test endpoint=a seconds=300.000 kind=not_found "
        "variables=AZURE_OPENAI_ENDPOINT_A,AZURE_OPENAI_API_KEY_A"
    )


# Quota groups.


def shared(name: str, **fields: object) -> Endpoint:
    return Endpoint(name, quota_group="one", **fields)  # type: ignore[arg-type]


def test_members_with_one_quota_rest_together_when_throttled(build):
    """Asking the next one with the same quota burns the budget (litellm 34399, 7669)."""
    pool = build(shared("a"), shared("b"), "c")
    pool.fail("a", throttled(9))
    assert [pool.rest(name) for name in "abc"] == [9, 9, 0]


def test_members_with_one_quota_do_not_fail_together(build):
    pool = build(shared("a"), shared("b"))
    pool.fail("a", failed())
    assert [pool.rest(name) for name in "ab"] == [5, 0]


def test_a_burst_at_members_with_one_quota_counts_once(build, clock):
    """[pools B7]"""
    pool = build(shared("a"), shared("b"), "c")
    tickets = [pool.take("a"), pool.take("b")]
    for ticket in tickets:
        pool.failed(ticket, throttled())
    assert [pool.state(name).consecutive_429s for name in "ab"] == [1, 1]
    clock.advance(2)
    pool.fail("b", throttled())
    assert [pool.rest(name) for name in "ab"] == [4, 4]


HOST = "https://host.openai.azure.com"
KEY, OTHER_KEY = ApiKey("k1"), ApiKey("k2")


@pytest.mark.parametrize(
    ("one", "other", "is_shared"),
    [
        ({"url": HOST, "deployment": "d"}, {"url": HOST + "/", "deployment": "d"}, True),
        (
            {"url": HOST, "deployment": "d", "auth": KEY},
            {"url": HOST.upper().replace("HTTPS", "https"), "deployment": "d", "auth": OTHER_KEY},
            True,
        ),
        ({"url": HOST, "deployment": "d"}, {"url": HOST, "deployment": "e"}, False),
        ({"url": HOST, "deployment": "d"}, {"url": "https://else", "deployment": "d"}, False),
        ({"provider": "openai", "auth": KEY}, {"provider": "openai", "auth": KEY}, True),
        ({"provider": "openai", "auth": KEY}, {"provider": "openai", "auth": OTHER_KEY}, False),
        (
            {"provider": "openai", "auth": KEY, "url": "https://eu.api"},
            {"provider": "openai", "auth": KEY, "url": "https://us.api"},
            False,
        ),
        ({}, {}, False),
    ],
)
def test_who_shares_a_quota_shows_in_the_endpoint(build, one, other, is_shared):
    pool = build(Endpoint("a", **one), Endpoint("b", **other))
    pool.fail("a", throttled())
    assert pool.rest("b") == (2 if is_shared else 0)


def test_quota_groups_can_be_switched_off(build):
    pool = build(shared("a"), shared("b"), quota_groups=False)
    pool.fail("a", throttled())
    assert pool.rest("b") == 0


# Probes.


def test_one_attempt_at_a_time_asks_whether_a_failed_member_is_well(build, clock):
    """[pools B14] [BR-45]"""
    pool = build("a", "b", probe_concurrency=1)
    pool.fail("a", failed())
    clock.advance(5)
    probe = pool.take("a")
    assert probe.is_probe
    assert pool.state("a").status is EndpointStatus.PROBING
    assert set(pool.names(50)) == {"b"}
    pool.succeeded(probe)
    assert pool.state("a").status is EndpointStatus.READY
    assert set(pool.names(50)) == {"a", "b"}


def test_a_first_refusal_needs_no_probe_a_second_one_does(build, clock):
    pool = build("a", "b", probe_concurrency=1)
    pool.fail("a", throttled())
    clock.advance(2)
    assert not pool.take("a").is_probe
    pool.fail("a", throttled())
    clock.advance(4)
    assert pool.take("a").is_probe


def test_a_probe_that_fails_lets_the_member_rest_again(build, clock):
    """[BR-45]"""
    pool = build("a", "b", probe_concurrency=1)
    pool.fail("a", failed())
    clock.advance(5)
    pool.failed(pool.take("a"), failed())
    assert pool.rest("a") == 5
    clock.advance(5)
    assert pool.take("a").is_probe


@pytest.mark.parametrize("end", ["released", "wrong request"])
def test_a_probe_that_says_nothing_gives_its_slot_to_the_next(build, clock, end):
    """[BR-45]; voidllm 184: a slot that leaked kept a member out for ever."""
    pool = build("a", "b", probe_concurrency=1)
    pool.fail("a", failed())
    clock.advance(5)
    for _ in range(3):
        probe = pool.take("a")
        assert probe.is_probe
        if end == "released":
            pool.released(probe)
        else:
            pool.failed(probe, BadRequestError("no", status_code=400))


def test_several_may_probe_at_a_time_if_the_policy_says_so(build, clock):
    pool = build("a", "b", probe_concurrency=2)
    pool.fail("a", failed())
    clock.advance(5)
    pool.take("a")
    pool.take("a")
    assert set(pool.names(20)) == {"b"}


def test_an_answer_to_an_old_request_is_no_successful_probe(build, clock):
    pool = build("a", "b", probe_concurrency=1)
    old = pool.take("a")
    pool.fail("a", failed())
    clock.advance(5)
    pool.succeeded(old)
    assert pool.take("a").is_probe


def test_a_successful_probe_in_a_panic_ends_the_rest(build):
    """The only way in which a rest ends early."""
    pool = build("a", "b", probe_concurrency=1, panic=True)
    pool.fail("a", failed())
    pool.fail("b", failed())
    ticket = pool.take()
    assert ticket.is_probe
    pool.succeeded(ticket)
    assert pool.rest(ticket.endpoint.id) == 0


def test_a_panic_sends_one_probe_to_each(build):
    """[BR-45]"""
    pool = build("a", "b", probe_concurrency=1, panic=True)
    pool.fail("a", failed())
    pool.fail("b", failed())
    assert {pool.take().endpoint.id, pool.take().endpoint.id} == {"a", "b"}
    assert pool.cooling().is_busy


# Ejection.


def test_failures_leave_out_at_most_a_part_of_the_members(build):
    pool = build("a", "b", "c", "d", max_ejection=0.5)
    for name in "abc":
        pool.fail(name, failed())
    assert [pool.rest(name) for name in "abcd"] == [5, 5, 0, 0]


def test_one_member_may_always_be_left_out(build):
    pool = build("a", "b", max_ejection=0.1)
    pool.fail("a", failed())
    pool.fail("b", failed())
    assert [pool.rest(name) for name in "ab"] == [5, 0]


def test_the_ceiling_is_for_failures_and_not_for_what_servers_ask(build):
    pool = build("a", "b", "c", max_ejection=0.0)
    pool.fail("a", throttled())
    pool.fail("b", denied())
    pool.fail("c", failed())
    assert [pool.rest(name) for name in "abc"] == [2, 300, 5]


def test_a_hint_counts_also_where_the_ceiling_is_reached(build):
    pool = build("a", "b", "c", max_ejection=0.0)
    pool.fail("a", failed())
    pool.fail("b", OverloadedError("full", status_code=503, retry_after=8))
    assert pool.rest("b") == 8


# Members set aside.


def test_a_member_that_failed_twice_running_is_tried_by_a_part_of_the_requests(build, clock):
    """However seldom a process asks, and however long the member is down."""
    pool = build("a", "b", trial_share=0.1)
    pool.fail("a", failed())
    clock.advance(5)
    pool.fail("a", failed())
    waste = []
    for number in range(60):
        clock.advance(60)
        ticket = pool.take()
        if ticket.endpoint.id == "a":
            waste.append(number)
            pool.failed(ticket, failed())
        else:
            pool.succeeded(ticket)
    assert 3 <= len(waste) <= 6
    assert all(later - before >= 10 for before, later in pairwise(waste))


def test_who_is_set_aside_is_asked_where_nobody_else_is_ready(build, clock):
    pool = build("a", "b", Endpoint("c", priority=2), trial_share=0.1)
    for _ in range(2):
        pool.fail("a", failed())
        clock.advance(5)
    assert pool.state("a").status is EndpointStatus.SET_ASIDE
    assert set(pool.names(5)) == {"b"}
    pool.fail("b", throttled(60))
    assert set(pool.names(1)) == {"c"}
    pool.fail("c", throttled(60))
    assert set(pool.names(20)) == {"a"}
    pool.fail("a", failed())
    assert (pool.cooling().endpoint.id, pool.cooling().wait) == ("a", 5)


def test_an_answer_brings_back_who_was_set_aside(build, clock):
    pool = build("a", "b", trial_share=0.1)
    for _ in range(2):
        pool.fail("a", failed())
        clock.advance(5)
    pool.answer("a")
    assert set(pool.names(20)) == {"a", "b"}


def test_a_trial_that_says_nothing_leaves_the_turn_to_the_next(build, clock):
    """[BR-45]"""
    pool = build("a", "b", trial_share=0.1)
    for _ in range(2):
        pool.fail("a", failed())
        clock.advance(5)
    trial = pool.take("a")
    assert set(pool.names(5)) == {"b"}
    pool.released(trial)
    assert set(pool.names(20)) == {"a", "b"}


def test_a_quiet_process_tries_once_an_hour_all_the_same(build, clock):
    pool = build("a", "b", trial_share=0.0001)
    for _ in range(2):
        pool.fail("a", failed())
        clock.advance(5)
    clock.advance(3590)
    assert set(pool.names(20)) == {"b"}
    clock.advance(5)
    assert set(pool.names(20)) == {"a", "b"}


def test_who_fails_above_the_ceiling_is_set_aside_at_once(build):
    """Else a member that fails fast, and so is never busy, would draw requests from good ones."""
    pool = build("a", "b", "c", max_ejection=0.5, trial_share=0.1)
    pool.fail("a", failed())
    pool.fail("b", failed())
    assert (pool.rest("b"), set(pool.names(5))) == (0, {"c"})


def test_turns_are_counted_for_each_member(build, clock):
    pool = build("a", "b", "c", trial_share=0.1)
    for name in "aab":
        pool.fail(name, failed())
        clock.advance(5)
    assert set(pool.names(5)) == {"b", "c"}
    pool.fail("b", failed())
    clock.advance(5)
    assert set(pool.names(2)) == {"c"}
    assert set(pool.names(8)) == {"a", "c"}
    assert set(pool.names(20)) == {"a", "b", "c"}


# Events.


def test_a_listener_hears_what_happens_to_members(build, clock):
    heard = []
    pool = build("a", "b", probe_concurrency=1, on_event=heard.append)
    pool.fail("a", throttled(3))
    pool.fail("b", failed())
    clock.advance(5)
    pool.answer("b")
    pool.answer("a")
    told = [(each.kind, each.endpoint.id, each.seconds, each.failure) for each in heard]
    assert told == [
        (PoolEventKind.THROTTLED, "a", 3, FailureKind.RATE_LIMITED),
        (PoolEventKind.FAULTED, "b", 5, FailureKind.SERVER_ERROR),
        (PoolEventKind.REOPENED, "b", 0, None),
    ]


def test_a_listener_that_fails_is_logged_and_changes_nothing(build, caplog):
    def listen(event: object) -> None:
        raise RuntimeError("of the listener")

    pool = build("a", "b", on_event=listen)
    pool.fail("a", throttled())
    assert pool.rest("a") == 2
    assert "pool.listener_failed pool=test" in caplog.text


def test_the_log_has_an_event_for_each_rest(build, caplog):
    """[pools 62]"""
    caplog.set_level(logging.INFO, "chatrouting.pool")
    pool = build("a", "b")
    pool.fail("a", throttled(3))
    assert caplog.messages == [
        "pool.throttled pool=test endpoint=a seconds=3.000 kind=rate_limited variables="
    ]


# A pool of one.


@pytest.mark.parametrize("error", [throttled(60), failed(), denied()])
def test_a_pool_of_one_is_never_held_back(build, error):
    """[pools 57]"""
    pool = build("a")
    before = pool.state("a")
    pool.fail("a", error)
    assert pool.names(1) == ["a"]
    assert pool.state("a") == before


# Tickets.


def test_a_ticket_is_given_back_once(build):
    """[BR-47]"""
    pool = build("a", "b")
    ticket = pool.take("a")
    pool.succeeded(ticket)
    pool.succeeded(ticket)
    pool.failed(ticket, throttled())
    pool.released(ticket)
    state = pool.state("a")
    assert (state.in_flight, state.success_streak, state.ready_in) == (0, 1, 0)


def test_a_snapshot_tells_of_every_member_in_order(build):
    pool = build(Endpoint("b", priority=2), Endpoint("a", max_concurrency=1))
    pool.take("a")
    pool.fail("b", throttled(3))
    statuses = [(state.id, state.status, state.in_flight) for state in pool.snapshot()]
    assert statuses == [("a", EndpointStatus.BUSY, 1), ("b", EndpointStatus.THROTTLED, 0)]


def test_a_snapshot_tells_why_somebody_is_left_out(build):
    pool = build("a", "b", "c")
    pool.fail("a", failed())
    pool.fail("b", denied())
    statuses = [state.status for state in pool.snapshot()]
    assert statuses == [EndpointStatus.FAULTED, EndpointStatus.PARKED, EndpointStatus.READY]
