"""The policies of `docs/recipes.md`, taken from the page, where its own short tests do not reach.

The page is the one source: its blocks are run, and nothing is copied.
"""

import gc
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    ChatMessage,
    ChatOptions,
    DataContent,
    OrderedFailoverChatClient,
    Principal,
    Role,
    RoutingAttempt,
    RoutingContext,
    RoutingHints,
    Tool,
    ToolCallContent,
    ToolResultContent,
    Usage,
)
from chatrouting.errors import (
    BadRequestError,
    CircuitOpenError,
    ContextLengthExceededError,
    FirstOutputTimeoutError,
    OverloadedError,
    QuotaExceededError,
    RateLimitError,
    UnsupportedOptionError,
)
from chatrouting.testing import (
    ManualClock,
    ScriptedChatClient,
    fails,
    finishes,
    runs,
    update,
    waits_for,
    waits_forever,
)

PAGE = Path(__file__).parent.parent / "docs" / "recipes.md"
MODES = pytest.mark.parametrize("mode", ["whole", "streaming"])


def recipes_of_the_page() -> Any:
    names: dict[str, Any] = {"__name__": "recipes"}
    for text in re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE.read_text("utf-8")):
        exec(compile(text, str(PAGE), "exec"), names)  # noqa: S102  # our own page
    return SimpleNamespace(**names)


R = recipes_of_the_page()


async def ask(client, mode="whole", options=None, messages="Hi"):
    if mode == "whole":
        return await client.get_response(messages, options)
    async with client.get_streaming_response(messages, options) as stream:
        return await stream.get_final_response()


def routes(response):
    return [attempt.route for attempt in response.attempts]


def session(name):
    return ChatOptions(routing=RoutingHints(session_id=name))


def tenant(name):
    return ChatOptions(routing=RoutingHints(principal=Principal(tenant=name)))


class TestStickySessions:
    """A session stays with the route that completed its last answer."""

    @MODES
    async def test_the_pin_moves_when_another_route_completes(self, mode):
        us = ScriptedChatClient.per_call("us", fails(OverloadedError), "us")
        router = R.StickySessions({"us": us, "eu": ScriptedChatClient("eu")})

        asked = [routes(await ask(router, mode, session("ann"))) for _ in range(3)]

        assert asked == [["us"], ["us", "eu"], ["eu"]]

    async def test_a_failed_stream_pins_nothing(self):
        us = ScriptedChatClient(update("Hel"), fails(OverloadedError))
        router = R.StickySessions({"us": us})

        with pytest.raises(OverloadedError):
            await ask(router, "streaming", session("ann"))

        assert router.pins == {}

    async def test_a_stream_left_after_its_finish_reason_pins(self):
        """The answer was complete; what the consumer did not wait for is bookkeeping."""
        router = R.StickySessions({"us": ScriptedChatClient("Hello", finishes(), update())})

        async with router.get_streaming_response("Hi", session("ann")) as stream:
            async for each in stream:
                if each.finish_reason:
                    break

        assert router.pins == {"ann": "us"}

    async def test_a_pin_to_a_route_that_is_gone_is_skipped(self):
        router = R.StickySessions({"us": ScriptedChatClient("us")})
        router.pins["ann"] = "retired"

        assert routes(await ask(router, options=session("ann"))) == ["us"]
        assert router.pins == {"ann": "us"}

    async def test_the_pin_of_longest_standing_makes_room(self):
        router = R.StickySessions({"us": ScriptedChatClient("us")}, maximum_sessions=2)

        for name in ("ann", "bob", "ann", "eve"):
            await ask(router, options=session(name))

        assert list(router.pins) == ["ann", "eve"]

    async def test_the_last_failure_is_known_to_be_the_last(self):
        told = []
        router = R.StickySessions(
            {"us": ScriptedChatClient(fails(OverloadedError)), "eu": ScriptedChatClient("eu")}
        )
        listen = OrderedFailoverChatClient(
            [router], on_routing_update=lambda context, attempt, last: told.append(last)
        )

        await ask(listen, options=session("ann"))

        assert told == [True]
        context = RoutingContext("Hi", routes=router.routes)
        assert router.may_select_again(context)
        tried = [RoutingAttempt(route=name) for name in router.routes]
        assert not router.may_select_again(
            RoutingContext("Hi", routes=router.routes, attempts=tried)
        )


def breaker_around(*scripts, threshold=1, **settings):
    clock = ManualClock()
    client = ScriptedChatClient.per_call(*scripts, repeat_last=True)
    return client, clock, R.CircuitBreaker(client, threshold=threshold, clock=clock, **settings)


async def fail(client, error, mode="whole"):
    with pytest.raises(error):
        await ask(client, mode)


class TestCircuitBreaker:
    """A client that failed several times in a row is left alone, then probed once."""

    @MODES
    async def test_it_opens_after_failures_in_a_row_and_then_asks_nobody(self, mode):
        broken = fails(OverloadedError)
        client, _, breaker = breaker_around(broken, "ok", broken, broken, "never", threshold=2)

        await fail(breaker, OverloadedError, mode)
        await ask(breaker, mode)
        await fail(breaker, OverloadedError, mode)
        await fail(breaker, OverloadedError, mode)
        await fail(breaker, CircuitOpenError, mode)

        assert len(client.calls) == 4

    async def test_a_stream_that_breaks_after_its_first_output_counts(self):
        _, _, breaker = breaker_around([update("Hel"), fails(OverloadedError)])

        await fail(breaker, OverloadedError, "streaming")

        assert breaker.open_until is not None

    @pytest.mark.parametrize("error", [BadRequestError, ContextLengthExceededError, ValueError])
    async def test_what_is_not_the_routes_fault_does_not_count(self, error):
        _, _, breaker = breaker_around(fails(error))

        await fail(breaker, error)

        assert breaker.open_until is None

    async def test_its_own_time_limit_counts(self):
        _, _, breaker = breaker_around(waits_forever(), first_output_timeout=0.01)

        await fail(breaker, FirstOutputTimeoutError)

        assert breaker.open_until is not None

    async def test_a_limit_of_a_router_around_it_does_not_count(self):
        """What the page warns of."""
        _, _, breaker = breaker_around(waits_forever())
        router = OrderedFailoverChatClient([breaker], first_output_timeout=0.01)

        await fail(router, FirstOutputTimeoutError)

        assert breaker.open_until is None

    async def test_a_longer_hint_of_the_provider_is_kept(self):
        _, clock, breaker = breaker_around(fails(RateLimitError("", retry_after=90.0)))
        await fail(breaker, RateLimitError)

        clock.advance(40)
        with pytest.raises(CircuitOpenError) as caught:
            await ask(breaker)

        assert caught.value.retry_after == 50

    @MODES
    async def test_while_one_request_probes_the_others_are_refused(self, mode):
        gate = anyio.Event()
        client, clock, breaker = breaker_around(fails(OverloadedError), [waits_for(gate), "back"])
        await fail(breaker, OverloadedError)
        clock.advance(30)
        refused = []

        async def one():
            try:
                await ask(breaker, mode)
            except CircuitOpenError:
                refused.append(1)
            if len(refused) == 9:
                gate.set()

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(one)

        assert len(client.calls) == 2
        assert breaker.open_until is None

    async def test_a_probe_that_fails_opens_for_another_cooldown(self):
        client, clock, breaker = breaker_around(fails(OverloadedError), threshold=3)
        for _ in range(3):
            await fail(breaker, OverloadedError)

        clock.advance(30)
        await fail(breaker, OverloadedError)
        clock.advance(29)
        await fail(breaker, CircuitOpenError)

        assert len(client.calls) == 4

    async def test_after_a_cancelled_probe_the_next_request_probes(self):
        client, clock, breaker = breaker_around(fails(OverloadedError), waits_forever(), "back")
        await fail(breaker, OverloadedError)
        clock.advance(30)

        with anyio.move_on_after(0.01):
            await ask(breaker)
        assert breaker.open_until is not None

        assert (await ask(breaker)).text == "back"
        assert len(client.calls) == 3

    async def test_after_a_probe_that_was_left_the_next_request_probes(self):
        _, clock, breaker = breaker_around(fails(OverloadedError), ["a", "b"], "back")
        await fail(breaker, OverloadedError)
        clock.advance(30)

        async with breaker.get_streaming_response("Hi") as stream:
            await anext(stream)

        assert (await ask(breaker)).text == "back"

    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    async def test_a_probe_that_is_never_heard_of_is_given_up_on(self):
        """A stream that is dropped leaves no record; another probe goes after the cooldown."""
        _, clock, breaker = breaker_around(fails(OverloadedError), ["a", "b"], "back")
        await fail(breaker, OverloadedError)
        clock.advance(30)
        stream = breaker.get_streaming_response("Hi")
        await anext(stream)
        del stream
        gc.collect()
        await fail(breaker, CircuitOpenError)

        clock.advance(30)

        assert (await ask(breaker)).text == "back"

    async def test_what_was_asked_before_it_opened_changes_nothing(self):
        _, _, breaker = breaker_around(["a", "b"], fails(OverloadedError))
        async with breaker.get_streaming_response("Hi") as early:
            await anext(early)
            await fail(breaker, OverloadedError)
            await early.get_final_response()

        assert breaker.open_until is not None


class TestFastestFirst:
    """Routes are asked in the order of how fast they were lately."""

    @MODES
    async def test_a_quick_failure_is_not_fast(self, mode):
        clock = ManualClock()
        broken = ScriptedChatClient(fails(OverloadedError))
        good = ScriptedChatClient(runs(lambda call: clock.advance(2)), "good")
        router = R.FastestFirst({"broken": broken, "good": good}, rng=lambda: 1.0, clock=clock)

        asked = [routes(await ask(router, mode)) for _ in range(2)]

        assert asked == [["broken", "good"], ["good"]]

    async def test_a_stream_counts_to_its_first_output(self):
        clock = ManualClock()
        long = ScriptedChatClient(
            runs(lambda call: clock.advance(0.1)), "a", runs(lambda call: clock.advance(60)), "b"
        )
        router = R.FastestFirst({"long": long}, weight=1.0, rng=lambda: 1.0, clock=clock)

        await ask(router, "streaming")
        await ask(router)

        assert router.seconds == {
            ("long", True): pytest.approx(0.1),
            ("long", False): pytest.approx(60.1),
        }

    async def test_a_request_that_is_wrong_measures_nothing(self):
        router = R.FastestFirst({"a": ScriptedChatClient(fails(BadRequestError))})

        await fail(router, BadRequestError)

        assert router.seconds == {}

    async def test_a_stream_that_was_left_is_measured_all_the_same(self):
        router = R.FastestFirst({"a": ScriptedChatClient("a", "b")})

        async with router.get_streaming_response("Hi") as stream:
            await anext(stream)

        assert ("a", True) in router.seconds

    async def test_when_all_have_failed_the_error_comes_out(self):
        bad = ScriptedChatClient(fails(OverloadedError))
        router = R.FastestFirst({"a": bad, "b": bad})

        await fail(router, OverloadedError)

        assert len(bad.calls) == 2
        assert not router.may_select_again(
            RoutingContext(
                "Hi",
                routes=router.routes,
                attempts=[RoutingAttempt(route=name) for name in router.routes],
            )
        )


USAGE = Usage(input_tokens=1_000_000, output_tokens=0)


def ceiling_over(clients, **settings):
    settings = {"ceiling_usd": 2.0, "clock": ManualClock(), **settings}
    prices = {"a": R.Price(input=1.0, output=0.0), "b": R.Price(input=1.0, output=0.0)}
    return R.TenantCeiling(clients, prices, **settings)


class TestTenantCeiling:
    """A tenant cannot spend more than its share."""

    @MODES
    async def test_a_tenant_is_refused_once_it_has_spent_enough_and_others_are_not(self, mode):
        client = ScriptedChatClient("x", finishes(usage=USAGE))
        router = ceiling_over({"a": client})

        await ask(router, mode, tenant("acme"))
        await ask(router, mode, tenant("acme"))
        with pytest.raises(QuotaExceededError):
            await ask(router, mode, tenant("acme"))
        await ask(router, mode, tenant("other"))

        assert len(client.calls) == 3

    async def test_a_failed_attempt_is_counted_with_what_it_used(self):
        broken = ScriptedChatClient(update("Hel", usage=USAGE), fails(OverloadedError))
        router = ceiling_over({"a": broken})

        await fail(router, OverloadedError, "streaming")

        assert router.spent_usd[None] == 1.0

    async def test_leaving_early_is_not_free_and_an_error_before_output_is(self):
        router = ceiling_over(
            {"a": ScriptedChatClient(fails(OverloadedError)), "b": ScriptedChatClient("x", "y")}
        )

        async with router.get_streaming_response("Hi") as stream:
            await anext(stream)

        assert router.spent_usd[None] == 0.01

    async def test_a_stream_that_breaks_without_a_word_on_usage_is_not_free(self):
        router = ceiling_over({"a": ScriptedChatClient(update("Hel"), fails(OverloadedError))})

        await fail(router, OverloadedError, "streaming")

        assert router.spent_usd[None] == 0.01

    async def test_leaves_inside_other_routers_are_counted_once_each(self):
        used = [finishes(usage=USAGE), fails(OverloadedError)]
        inner = OrderedFailoverChatClient(
            {"a": ScriptedChatClient(*used), "b": ScriptedChatClient("x", finishes(usage=USAGE))},
        )
        router = ceiling_over({"inner": inner})

        await ask(router, "streaming")

        assert router.spent_usd[None] == 2.0

    async def test_no_other_route_answers_in_its_place(self):
        spare = ScriptedChatClient("spare")
        router = OrderedFailoverChatClient(
            [ceiling_over({"a": ScriptedChatClient("x")}, ceiling_usd=0.0), spare]
        )

        await fail(router, QuotaExceededError)

        assert spare.calls == []

    async def test_a_new_period_begins_with_nothing_spent(self):
        clock = ManualClock()
        router = ceiling_over(
            {"a": ScriptedChatClient("x", finishes(usage=USAGE))},
            ceiling_usd=1.0,
            period=60.0,
            clock=clock,
        )

        await ask(router, options=tenant("acme"))
        await ask(router, options=tenant("other"))
        clock.advance(61)
        await ask(router, options=tenant("acme"))

        assert dict(router.spent_usd) == {"acme": 1.0}

    async def test_a_request_that_is_running_goes_on_past_the_ceiling(self):
        """It is asked at the first selection; a failover inside a request is not stopped."""
        used = [update(usage=USAGE), fails(OverloadedError)]
        router = ceiling_over(
            {"a": ScriptedChatClient(*used), "b": ScriptedChatClient("x")}, ceiling_usd=0.5
        )

        assert routes(await ask(router, "streaming")) == ["a", "b"]


class TestCapableRoutes:
    """A request goes to the routes that can take it."""

    @MODES
    async def test_tools_go_where_they_are_taken(self, mode):
        clients = {"seeing": ScriptedChatClient("x"), "large": ScriptedChatClient("y")}
        router = R.CapableRoutes(clients, R.ABILITIES)
        options = ChatOptions(tools=[Tool("weather", parameters={"type": "object"})])

        assert routes(await ask(router, mode, options)) == ["large"]

    async def test_an_image_in_a_tools_result_is_seen(self):
        call = ToolCallContent("1", "photo", {"of": "cat"})
        result = ToolResultContent("1", (DataContent(b"", "image/png"),))
        messages = [ChatMessage(Role.ASSISTANT, [call]), ChatMessage(Role.TOOL, [result])]

        needs = R.needs_of(RoutingContext(messages))

        assert needs.images
        assert needs.context_tokens > R.TOKENS_FOR_AN_IMAGE

    async def test_what_the_answer_may_take_counts(self):
        options = ChatOptions(instructions="Be brief.", max_output_tokens=9_000)
        router = R.CapableRoutes({"small": ScriptedChatClient("x")}, R.ABILITIES)

        with pytest.raises(UnsupportedOptionError, match="context_tokens=9004"):
            await ask(router, options=options)

    async def test_a_request_that_no_route_takes_goes_on_to_another_router(self):
        photo = ChatMessage(Role.USER, [DataContent(b"", "image/png")])
        blind = R.CapableRoutes({"small": ScriptedChatClient("x")}, R.ABILITIES)
        seeing = ScriptedChatClient("y")
        router = OrderedFailoverChatClient({"blind": blind, "seeing": seeing})

        response = await ask(router, messages=[photo])

        assert routes(response) == ["blind", "seeing"]
        assert response.attempts[0].outcome is AttemptOutcome.FAILED

    @MODES
    async def test_after_a_request_was_too_long_no_route_of_that_size_is_asked(self, mode):
        too_long = ScriptedChatClient(fails(ContextLengthExceededError))
        never = ScriptedChatClient("never")
        router = R.CapableRoutes(
            {"small": too_long, "same": never}, {**R.ABILITIES, "same": R.ABILITIES["small"]}
        )

        await fail(router, ContextLengthExceededError, mode)

        assert never.calls == []

    async def test_a_wrong_request_is_sent_once(self):
        never = ScriptedChatClient("never")
        router = R.CapableRoutes(
            {"small": ScriptedChatClient(fails(BadRequestError)), "large": never}, R.ABILITIES
        )

        await fail(router, BadRequestError)

        assert never.calls == []
