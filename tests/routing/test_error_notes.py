"""What a router does to exceptions: notes, causes, tracebacks."""

import gc
import logging
import weakref
from dataclasses import dataclass

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    FailoverChatClient,
    OrderedFailoverChatClient,
    ResponseStream,
    RoutingChatClient,
)
from chatrouting.client import ClosingClient
from chatrouting.errors import (
    AuthenticationError,
    OverloadedError,
    QuotaExceededError,
    RateLimitError,
)
from chatrouting.testing import ScriptedChatClient, fails, runs

MODES = pytest.mark.parametrize("mode", ["whole", "streaming"])


async def answer(client, mode):
    if mode == "whole":
        return await client.get_response("hi")
    async with client.get_streaming_response("hi") as stream:
        return await stream.get_final_response()


@MODES
async def test_the_last_error_is_raised_as_itself_with_a_note_on_the_others(mode):
    """[routing 79] [BR-36] Route, kind and status of each; never the text of another error."""
    last = OverloadedError("last", status_code=529)
    router = OrderedFailoverChatClient(
        {
            "a": ScriptedChatClient(fails(RateLimitError("secret text", status_code=429))),
            "b": ScriptedChatClient(fails(KeyError("secret key"))),
            "c": ScriptedChatClient(fails(last)),
        },
        name="main",
    )

    with pytest.raises(OverloadedError) as caught:
        await answer(router, mode)

    assert caught.value is last
    [note] = last.__notes__
    assert note.endswith(
        ", router 'main': other attempts: route 'a': rate_limited, status 429; route 'b': unknown."
    )
    assert "secret" not in note


async def test_notes_of_an_earlier_request_are_replaced():
    shared = OverloadedError("same object each time")
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(RateLimitError)), ScriptedChatClient(fails(shared))]
    )
    for _ in range(3):
        with pytest.raises(OverloadedError):
            await router.get_response("hi")

    assert len(shared.__notes__) == 1


async def test_each_router_call_of_a_request_adds_one_note():
    shared = OverloadedError("leaf")

    def level(inner):
        return OrderedFailoverChatClient([ScriptedChatClient(fails(RateLimitError)), inner])

    with pytest.raises(OverloadedError):
        await level(level(ScriptedChatClient(fails(shared)))).get_response("hi")

    assert len(shared.__notes__) == 2


@MODES
async def test_error_text_stays_short_at_any_depth(mode):
    """[BR-35] Ten levels, all failing: a few KB, and each client is asked once."""
    leaf = ScriptedChatClient(fails(OverloadedError("leaf")))
    client = leaf
    for _ in range(10):
        client = OrderedFailoverChatClient([ScriptedChatClient(fails(RateLimitError)), client])

    with pytest.raises(OverloadedError) as caught:
        await answer(client, mode)

    assert len(leaf.calls) == 1
    assert len("".join(caught.value.__notes__)) < 4000


@MODES
async def test_a_failing_predicate_leaves_the_attempts_error_and_is_named(mode, caplog):
    """[BR-36] The router's own bug does not hide the provider's error."""
    error = RateLimitError("busy", status_code=429)
    second = ScriptedChatClient("never")

    def predicate(context, attempt):
        raise KeyError("bug")

    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(error)), second], should_failover=predicate
    )
    with pytest.raises(RateLimitError) as caught:
        await answer(router, mode)

    assert caught.value is error
    assert "the failover policy raised KeyError" in error.__notes__[0]
    assert "routing.policy_failed" in caplog.text
    assert second.calls == []


@MODES
async def test_a_selector_error_has_the_attempts_error_as_its_cause(mode):
    """[routing 31] [BR-36]"""
    error = RateLimitError("busy")

    def select(context):
        if context.attempts:
            raise KeyError("bug")
        return context.remaining[0]

    log = []
    router = FailoverChatClient(
        select,
        routes=[ScriptedChatClient(fails(error))],
        on_routing_update=lambda _, attempt, is_terminal: log.append(
            (attempt.outcome, is_terminal)
        ),
    )
    with pytest.raises(KeyError) as caught:
        await answer(router, mode)

    assert caught.value.__cause__ is error
    assert log == [(AttemptOutcome.FAILED, False)]


@MODES
async def test_a_provider_error_is_preferred_to_a_later_refusal(mode):
    provider = OverloadedError("busy")
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(provider)), ScriptedChatClient(fails(QuotaExceededError))]
    )

    with pytest.raises(OverloadedError) as caught:
        await answer(router, mode)

    assert caught.value is provider


@MODES
async def test_kept_exceptions_keep_no_frames_alive(mode):
    """[BR-73] A record may live long; what the failing call held must not."""

    class Big:
        pass

    kept = []

    def grab(_):
        big = Big()
        kept.append(weakref.ref(big))
        raise OverloadedError("busy") from ValueError("cause")

    router = OrderedFailoverChatClient([ScriptedChatClient(runs(grab)), ScriptedChatClient("ok")])
    response = await answer(router, mode)
    gc.collect()

    error = response.attempts[0].exception
    assert error.__traceback__ is None
    assert error.__cause__.__traceback__ is None
    assert kept[0]() is None


@MODES
async def test_what_the_caller_was_handling_keeps_its_traceback(mode):
    """The walk stops at the caller's own exception."""
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(OverloadedError)), ScriptedChatClient("ok")]
    )
    with pytest.raises(KeyError) as caught:
        {}["caller's own"]
    callers = caught.value

    try:
        raise callers
    except KeyError:
        await answer(router, mode)

    assert callers.__traceback__ is not None


@MODES
async def test_of_a_failed_requests_exceptions_the_raised_one_alone_keeps_its_traceback(mode, log):
    def fail_last(_):
        raise OverloadedError("busy") from ValueError("cause")

    first, last = ScriptedChatClient(fails(RateLimitError)), ScriptedChatClient(runs(fail_last))
    with pytest.raises(OverloadedError) as caught:
        await answer(OrderedFailoverChatClient([first, last], on_routing_update=log), mode)

    assert log.exceptions[1] is caught.value
    assert caught.value.__traceback__ is not None
    assert caught.value.__cause__.__traceback__ is None
    assert log.exceptions[0].__traceback__ is None


async def test_failover_is_logged_without_content(caplog):
    """One record for each time that another client is asked."""
    router = OrderedFailoverChatClient(
        {
            "a": ScriptedChatClient(fails(AuthenticationError("secret", status_code=401))),
            "b": ScriptedChatClient("ok"),
        },
        name="main",
    )
    with caplog.at_level(logging.DEBUG, logger="chatrouting"):
        await router.get_response("the prompt")

    [record] = [each for each in caplog.records if each.name == "chatrouting.routing"]
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(
        "routing.failover router=main route=a number=1 kind=authentication"
    )
    assert "secret" not in caplog.text
    assert "the prompt" not in caplog.text


@MODES
async def test_a_plain_router_adds_no_note(mode):
    """[routing 12] There is nothing to say: nobody else was asked."""
    error = OverloadedError("busy")
    client = ScriptedChatClient(fails(error))
    with pytest.raises(OverloadedError) as caught:
        await answer(RoutingChatClient(lambda _: client), mode)

    assert caught.value is error
    assert not getattr(error, "__notes__", [])


@dataclass(frozen=True)
class FrozenError(Exception):
    """Refuses to be changed, notes, cause and traceback included."""

    code: int = 1


class FailingFrozen(ClosingClient):
    """No scripted client: before 3.11.8 context managers of `contextlib` cannot pass it on."""

    async def get_response(self, messages, options=None):
        raise FrozenError

    async def generate(self):
        raise FrozenError
        yield

    def get_streaming_response(self, messages, options=None):
        return ResponseStream(self.generate())

    def get_service(self, service_type, service_key=None):
        return None


@MODES
async def test_an_exception_that_refuses_to_be_changed_is_a_failure_like_any_other(mode):
    """[BR-73] It fails over, it reaches the caller unchanged, and its frames go as well."""
    failing = FailingFrozen()
    response = await answer(OrderedFailoverChatClient([failing, ScriptedChatClient("ok")]), mode)
    with pytest.raises(FrozenError) as raised:
        await answer(OrderedFailoverChatClient([failing, failing]), mode)

    assert response.text == "ok"
    assert response.attempts[0].exception.__traceback__ is None
    assert "route 'route-1': unknown" in raised.value.__notes__[0]


@MODES
async def test_a_policys_exception_that_refuses_to_be_changed_has_its_cause(mode):
    """A selector's; a hook's, once the stream is out; a predicate's, of which a note tells."""
    failing = ScriptedChatClient(fails(OverloadedError))

    def select(context):
        if context.previous_attempt is not None:
            raise FrozenError
        return failing

    class Hooked(OrderedFailoverChatClient):
        async def on_request_ended(self, context, exception):
            raise FrozenError

    with pytest.raises(FrozenError) as of_selector:
        await answer(FailoverChatClient(select), mode)
    with pytest.raises(FrozenError) as of_hook:
        await answer(Hooked([ScriptedChatClient("a", fails(OverloadedError))]), mode)

    assert isinstance(of_selector.value.__cause__, OverloadedError)
    assert isinstance(of_hook.value.__cause__, OverloadedError)


@MODES
async def test_a_policy_that_fails_notes_so_on_an_exception_that_refuses_to_be_changed(mode):
    def never(context, attempt):
        raise KeyError

    router = OrderedFailoverChatClient(
        [FailingFrozen(), ScriptedChatClient("never")],
        should_failover=never,
    )
    with pytest.raises(FrozenError) as raised:
        await answer(router, mode)

    assert "the failover policy raised KeyError" in raised.value.__notes__[0]


@MODES
async def test_what_lies_behind_a_policys_error_keeps_no_frames_alive(mode):
    """[BR-73] The raised one alone keeps its traceback, also where no attempt raised it."""

    def select(context):
        try:
            int("no number")
        except ValueError as error:
            raise KeyError from error

    with pytest.raises(KeyError) as caught:
        await answer(FailoverChatClient(select), mode)

    assert caught.value.__traceback__ is not None
    assert caught.value.__cause__.__traceback__ is None


@MODES
async def test_the_members_of_a_kept_group_keep_no_frames_alive(mode):
    """[BR-73]"""

    async def fail(_):
        async with anyio.create_task_group():
            raise OverloadedError

    router = OrderedFailoverChatClient([ScriptedChatClient(runs(fail)), ScriptedChatClient("ok")])
    response = await answer(router, mode)

    [member] = response.attempts[0].exception.exceptions
    assert member.__traceback__ is None
