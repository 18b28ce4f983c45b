"""What holds of every request, whatever its clients, its caller and its clock do.

Hypothesis draws a stack of routers, what its clients do at each call, how the caller reads and when
somebody cancels. Each example runs in a fresh event loop in virtual time. Everything that happens
is written into one diary, and the rules at the end are checked against it.
"""

import asyncio
import gc
import logging
import re
import warnings
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
import trio._core._run
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, given, register_random, settings
from hypothesis import strategies as st

from chatrouting import (
    AttemptOutcome,
    ChatMessage,
    ChatOptions,
    ConfigureOptionsChatClient,
    DelegatingChatClient,
    FailoverChatClient,
    OrderedFailoverChatClient,
    RetryChatClient,
    Role,
    RoutingChatClient,
    RoutingHints,
    Selection,
    TextContent,
    ToolCallContent,
    Usage,
)
from chatrouting._cancellation import cancel_count
from chatrouting.errors import (
    BadRequestError,
    ConfigurationError,
    OverloadedError,
    QuotaExceededError,
    RefusedLocallyError,
    RequestTimeoutError,
)
from chatrouting.policies.classify import failover_by_kind
from chatrouting.testing import (
    CallState,
    ScriptedChatClient,
    cancels_itself,
    fails,
    finishes,
    raises_on_call,
    raises_on_close,
    raises_on_iter,
    returns,
    runs,
    update,
    virtual_time_backends,
    waits,
    waits_forever,
    waits_on_close,
)

# trio shuffles its tasks with a generator of its own; now a failing example can be repeated.
register_random(trio._core._run._r)

CANCELLATIONS = (asyncio.CancelledError, trio.Cancelled)

#: Virtual seconds after which the caller of a stuck request gives up.
PATIENCE = 500.0


def say(call):
    """Hand out text that names the call, so that the answers of two calls can be told apart."""
    return update(f"<{id(call)}>")


async def swallow(_):
    """Make an ordinary error of a cancellation, as careless clients do."""
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        raise OverloadedError("cancelled, but it does not say so") from None


def fail_twice(_):
    raise ExceptionGroup("both", [OverloadedError("a"), ValueError("b")])


def refuse_for_good(_):
    raise QuotaExceededError("full", fallback_allowed=False)


STEPS = {
    "says": lambda: runs(say),
    "text": lambda: "text",
    "empty": update,
    "role": lambda: update(role=Role.ASSISTANT),
    "blank": lambda: update([TextContent("")]),
    "tool name": lambda: update([ToolCallContent("c", "f", {}, "")]),
    "tool call": lambda: update([ToolCallContent("c", "f", {}, '{"a": 1}')]),
    "usage": lambda: update(usage=Usage(input_tokens=3), response_id="r"),
    "finish": lambda: finishes("stop", Usage(input_tokens=3, output_tokens=1)),
    "checkpoint": lambda: runs(lambda _: checkpoint()),
    "wait 0.2": lambda: waits(0.2),
    "wait 2": lambda: waits(2),
    "hang": waits_forever,
    "swallow": lambda: runs(swallow),
    "overloaded": lambda: fails(OverloadedError),
    "bug": lambda: fails(ValueError),
    "bad request": lambda: fails(BadRequestError),
    "group": lambda: runs(fail_twice),
    "misconfigured": lambda: fails(ConfigurationError),
    "refusal": lambda: fails(QuotaExceededError),
    "last refusal": lambda: runs(refuse_for_good),
    "call fails": lambda: raises_on_call(OverloadedError),
    "iter fails": lambda: raises_on_iter(OverloadedError),
    "no answer": lambda: returns(None),
    "close fails": lambda: raises_on_close(OSError),
    "close is slow": lambda: waits_on_close(0.3),
    "close hangs": lambda: waits_on_close(60),
    "own cancellation": cancels_itself,
    "close cancels itself": lambda: raises_on_close(asyncio.CancelledError),
}
ON_ASYNCIO = ["own cancellation", "close cancels itself"]
WITHOUT_SOURCE = {"call fails", "no answer"}


@dataclass(frozen=True)
class Leaf:
    """A client in memory: a script for each call, the last one for all further ones."""

    scripts: tuple[tuple[str, ...], ...]
    source: str
    bare: bool


@dataclass(frozen=True)
class Wrapper:
    """Middleware that does not select."""

    kind: str
    inner: object


@dataclass(frozen=True)
class Router:
    """A router of any kind; `trouble` is what its policy does wrong, and at which attempt."""

    kind: str
    children: tuple[object, ...]
    timeouts: tuple[float | None, ...]
    maximum: int | None
    commit_on: str
    should_failover: str
    trouble: tuple[str, int]


@dataclass(frozen=True)
class Caller:
    """How the request is made, read and cancelled."""

    mode: str
    reads: int
    pause: float
    timeout: float | None
    cancel: str
    cancel_after: int | float


ENDS = ["finish", "overloaded", "bug", "says", "hang"]
SOURCES = ["object", "generator", "ready", "unclosable"]
KINDS = ["plain", "failover", "ordered", "ordered", "retry"]
TROUBLES = ["select raises", "select is none", "update raises", "update waits"]
MODES = ["whole", "read", "close", "drop", "final", "never", "cancel in body"]


def one_of(draw, choices):
    return draw(st.sampled_from(choices))


@st.composite
def scripts(draw, names):
    """Draw a script, of which many are sound, so that requests get somewhere."""
    form = draw(st.integers(0, 4))
    if form == 0:
        return ("says", "finish")
    if form == 1:
        return ("overloaded",)
    some = draw(st.lists(st.sampled_from(names), max_size=3))
    return (*(["says"] if form == 2 else []), *some, one_of(draw, ENDS))


@st.composite
def leaves(draw, names):
    script = scripts(names)
    several = (draw(script), draw(script)) if draw(st.booleans()) else (draw(script),)
    return Leaf(several, one_of(draw, SOURCES), draw(st.booleans()))


@st.composite
def routers(draw, names, depth):
    """Draw a router with at most `depth` routers below one another, and wrappers between them."""
    children = []
    for _ in range(draw(st.integers(1, 3))):
        is_leaf = depth == 1 or draw(st.booleans())
        child = draw(leaves(names) if is_leaf else routers(names, depth - 1))
        if draw(st.integers(0, 3)) == 0:
            child = Wrapper(one_of(draw, ["delegating", "configuring"]), child)
        children.append(child)
    has_trouble = draw(st.integers(0, 2)) == 0
    is_watchful = draw(st.booleans())
    timeout = st.sampled_from([None, 0.2, 1.0] if is_watchful else [None])
    return Router(
        kind=one_of(draw, KINDS),
        children=tuple(children),
        timeouts=(draw(timeout), draw(timeout), draw(timeout)),
        maximum=one_of(draw, [None, None, 1, 2]),
        commit_on=one_of(draw, ["content", "content", "update"]),
        should_failover=one_of(draw, ["none", "none", "by kind", "raises"]),
        trouble=draw(troubles()) if has_trouble else ("none", 0),
    )


@st.composite
def troubles(draw):
    what = one_of(draw, [*TROUBLES, "end raises", "end waits"])
    return what, draw(st.integers(0, 2)) if what in TROUBLES else 0


@st.composite
def stacks(draw, names):
    return draw(routers(names, draw(st.integers(1, 5))))


@st.composite
def callers(draw, cancels):
    turns = st.integers(0, 30)
    seconds = st.sampled_from([0.1, 0.2, 1.0, 2.0])
    return Caller(
        mode=one_of(draw, MODES),
        reads=draw(st.integers(0, 4)),
        pause=one_of(draw, [0.0, 0.0, 0.7]),
        timeout=one_of(draw, [None, None, None, 0.5, 3.0]),
        cancel=one_of(draw, cancels),
        cancel_after=draw(turns if draw(st.booleans()) else seconds),
    )


@dataclass
class Diary:
    """Everything that happened, in order; and the clients that it happened to."""

    events: list[Any] = field(default_factory=list)
    invocations: Counter[Any] = field(default_factory=Counter)
    leaves: list[Any] = field(default_factory=list)
    is_cancelled: bool = False

    def write(self, kind, context, *what):
        self.events.append((kind, context, what))

    def of(self, kind):
        return [(context, *what) for each, context, what in self.events if each == kind]

    @property
    def contexts(self):
        return list({id(context): context for _, context, _ in self.events}.values())

    @property
    def records(self):
        return [record for _, record, _ in self.of("update")]


class Counted(DelegatingChatClient):
    """Counts invocations in both modes."""

    def __init__(self, inner, diary):
        super().__init__(inner)
        self.diary = diary

    async def get_response(self, messages, options=None):
        self.diary.invocations[self] += 1
        return await super().get_response(messages, options)

    def get_streaming_response(self, messages, options=None):
        self.diary.invocations[self] += 1
        return super().get_streaming_response(messages, options)


class Watching:
    """Part of a router class: writes into the diary, and fails where the drawn router says so."""

    diary: Diary
    node: Router
    choose: Any  # None: the router's own policy

    def troubles(self, what, number):
        """Say whether the trouble is `what`, and its time has come."""
        return self.node.trouble[0] == what and number >= self.node.trouble[1]

    async def select_client(self, context):
        number = len(context.attempts)
        self.diary.write("select", context, self.node, self.diary.is_cancelled)
        if self.troubles("select raises", number):
            raise KeyError("policy")
        if self.troubles("select is none", number):
            return None
        if self.choose is None:
            return await super().select_client(context)
        return await self.choose(context)

    async def on_routing_update(self, context, attempt, is_terminal):
        self.diary.write("update", context, attempt, is_terminal)
        if self.troubles("update waits", attempt.number - 1):
            await anyio.sleep(0.1)
        if self.troubles("update raises", attempt.number - 1):
            raise LookupError("hook")

    async def on_request_ended(self, context, exception):
        self.diary.write("end", context, exception, self.diary.is_cancelled)
        if self.troubles("end waits", 0):
            await anyio.sleep(0.1)
        if self.troubles("end raises", 0):
            raise LookupError("hook")


def watched(kind, diary, node, choose=None):
    """Make a class of routers that writes into the diary."""
    return type("Watched", (Watching, kind), {"diary": diary, "node": node, "choose": choose})


async def select_first(router, context):
    return next(iter(router.routes))


async def select_in_turn(router, context):
    """Name routes and hand out selections, in turn; give up after two rounds."""
    names, number = tuple(router.routes), len(context.attempts)
    if number >= 2 * len(names):
        return None
    name = names[number % len(names)]
    return Selection(name, reason="in turn") if number % 2 else router.routes[name]


def raise_always(context, attempt):
    raise ArithmeticError("predicate")


PREDICATES = {"none": None, "by kind": failover_by_kind, "raises": raise_always}


def build(node, diary):
    """Make the clients of a drawn stack."""
    if isinstance(node, Leaf):
        client = ScriptedChatClient.per_call(
            *([STEPS[name]() for name in script] for script in node.scripts),
            repeat_last=True,
            source=node.source,
            bare=node.bare,
        )
        diary.leaves.append((node, client))
        return client
    if isinstance(node, Wrapper):
        inner = build(node.inner, diary)
        if node.kind == "delegating":
            return DelegatingChatClient(inner)
        return ConfigureOptionsChatClient(inner, lambda options: options.replace(model="m"))
    children = [Counted(build(child, diary), diary) for child in node.children]
    return build_router(node, children, diary)


def build_router(node, children, diary):
    common = {
        "clock": anyio.current_time,
        "on_routing_update": lambda *told: diary.write("heard", *told),
    }
    if node.kind == "plain":
        return watched(RoutingChatClient, diary, node, select_first)(routes=children, **common)
    attempt, first_output, stall = node.timeouts
    common |= {
        "maximum_attempts_per_request": node.maximum,
        "should_failover": PREDICATES[node.should_failover],
        "commit_on": node.commit_on,
        "attempt_timeout": attempt,
        "first_output_timeout": first_output,
        "stall_timeout": stall,
    }
    if node.kind == "failover":
        make = watched(FailoverChatClient, diary, node, select_in_turn)
        return make(routes=children, **common)
    if node.kind == "ordered":
        return watched(OrderedFailoverChatClient, diary, node)(children, **common)
    common["maximum_attempts_per_request"] = node.maximum or 3
    return watched(RetryChatClient, diary, node)(children[0], **common)


@dataclass
class Result:
    """What the caller got."""

    error: BaseException | None = None
    response: object = None
    updates: list[Any] = field(default_factory=list)
    stream: object = None
    again: object = None
    is_dropped: bool = False
    elapsed: float = 0.0
    paused: float = 0.0
    was_cancelled: bool = False


def arguments_of(caller):
    """Make what a caller owns: messages and options with mappings and lists inside."""
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        ChatMessage("assistant", [ToolCallContent("c", "f", {"a": [1]})]),
    ]
    return messages, ChatOptions(
        additional_properties={"deep": {"list": [1, {"x": 2}]}},
        metadata={"a": "b"},
        routing=RoutingHints(timeout=caller.timeout, tags={"t": "u"}),
    )


async def ask(client, caller, result, messages, options):
    """Make the request as the caller would."""
    if caller.mode == "whole":
        result.response = await client.get_response(messages, options)
        return
    stream = result.stream = client.get_streaming_response(messages, options)
    if caller.mode == "drop":
        result.is_dropped = await read(stream, caller, result, caller.reads)
        return
    async with stream:
        if caller.mode == "final":
            result.response = await stream.get_final_response()
        elif caller.mode == "read":
            await read(stream, caller, result, 1000)
        elif caller.mode != "never":
            await read(stream, caller, result, caller.reads)
        if caller.mode == "cancel in body":
            with anyio.CancelScope() as scope:
                scope.cancel()
                await checkpoint()


async def read(stream, caller, result, most):
    """Read some updates; return whether the stream is left half-read."""
    while len(result.updates) < most:
        try:
            result.updates.append(await stream.__anext__())
        except StopAsyncIteration:
            return False
        if caller.pause:
            started = anyio.current_time()
            result.is_dropped = True  # if the pause is interrupted
            await anyio.sleep(caller.pause)
            result.is_dropped = False
            result.paused += anyio.current_time() - started
    return most > 0


async def run_request(stack, caller):
    """Run one request to its end, and return what everybody saw of it."""
    diary, result = Diary(), Result()
    client = build(stack, diary)
    messages, options = arguments_of(caller)
    before = deepcopy((messages, options))
    tasks = len(anyio.get_running_tasks())

    async def request():
        began = anyio.current_time()
        try:
            await ask(client, caller, result, messages, options)
        except BaseException as error:
            result.error = error
            raise
        finally:
            result.was_cancelled = diary.is_cancelled
            result.elapsed = anyio.current_time() - began

    await (run_in_task if caller.cancel == "task" else run_in_scope)(caller, request, diary)
    if caller.mode == "drop":
        result.stream = None
        if result.error is not None:
            result.error.__traceback__ = None  # its frames hold the stream
        gc.collect()
    else:
        result.is_dropped = False
        result.again = await read_again(result.stream)
        assert len(anyio.get_running_tasks()) == tasks
    assert (messages, options) == before, "the caller's own objects were changed"
    return diary, result


async def run_in_scope(caller, request, diary):
    """Cancel the request by a scope around it, as anyio and trio do."""

    def cancel():
        diary.is_cancelled = True
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()
        tasks.start_soon(cancel_soon, caller, cancel)
        with scope, suppress(Exception):
            await request()
        tasks.cancel_scope.cancel()
    assert cancel_count() == 0


async def run_in_task(caller, request, diary):
    """Cancel the request as asyncio does, by its task."""

    async def run():
        try:
            await request()
        finally:
            assert cancel_count() == diary.is_cancelled

    def cancel():
        diary.is_cancelled = True
        task.cancel()

    async with anyio.create_task_group() as tasks:
        task = asyncio.create_task(run())
        tasks.start_soon(cancel_soon, caller, cancel)
        await asyncio.wait([task])
        tasks.cancel_scope.cancel()
    assert task.cancelled() or not isinstance(task.exception(), AssertionError)


async def cancel_soon(caller, cancel):
    """Cancel after some turns of the loop or some time; or at last, if the request is stuck."""
    if caller.cancel == "none":
        await anyio.sleep(PATIENCE)
    elif isinstance(caller.cancel_after, float):
        await anyio.sleep(caller.cancel_after)
    else:
        for _ in range(caller.cancel_after):
            await checkpoint()
    cancel()


async def read_again(stream):
    """Return what a read after the end raises."""
    if stream is None:
        return None
    try:
        await stream.__anext__()
    except BaseException as error:  # noqa: BLE001  # looked at by the test
        return error
    raise AssertionError("an update after the end")


LETTERS = {"select": "s", "update": "u", "heard": "h", "end": "e"}


def check_story_of_each_router_call(diary, result):
    """Select, update, select, update, ..., end: in this order, each once."""
    unended = 0
    for context in diary.contexts:
        events = [event for event in diary.events if event[1] is context]
        story = "".join(LETTERS[kind] for kind, *_ in events)
        assert re.fullmatch("(suh)*s?e?", story), story
        unended += not story.endswith("e")
        selects = [what for kind, _, what in events if kind == "select"]
        updates = [what for kind, _, what in events if kind == "update"]
        assert [what for kind, _, what in events if kind == "heard"] == updates
        assert context.attempts == tuple(record for record, _ in updates)
        check_updates_of_one_call(selects, updates)
    assert result.is_dropped or unended == 0
    invoked = sum(diary.invocations.values())
    assert invoked - len(diary.records) == unended, "an invocation without its one record"
    assert Counter(record.client for record in diary.records) <= diary.invocations


def check_updates_of_one_call(selects, updates):
    assert [record.number for record, _ in updates] == list(range(1, len(updates) + 1))
    assert not any(is_terminal for _, is_terminal in updates[:-1])
    if updates and updates[-1][1]:
        assert len(selects) == len(updates), "selected again after the last update"
    for (node, _), (record, is_terminal) in zip(selects, updates, strict=False):
        check_terminal(node, record, is_terminal)
    # A caller who gave up gets no second client.
    assert not any(is_cancelled for _, is_cancelled in selects[1:])
    counted = [each for each, _ in updates if each.outcome is not AttemptOutcome.REFUSED_LOCALLY]
    assert len(counted) <= most_attempts(selects)


def most_attempts(selects):
    """Return how many attempts that count the router may make."""
    node = selects[0][0] if selects else None
    if node is None or node.kind == "plain":
        return 1
    return node.maximum or (3 if node.kind == "retry" else 1000)


def check_terminal(node, record, is_terminal):
    if record.output_committed or record.outcome not in (
        AttemptOutcome.FAILED,
        AttemptOutcome.REFUSED_LOCALLY,
    ):
        assert is_terminal
    if isinstance(record.exception, ConfigurationError | RequestTimeoutError):
        assert is_terminal
    assert is_terminal or node.kind != "plain"


def check_fields_of_records(diary, caller):
    """[routing 72] [routing 73] [routing 74]"""
    for record in diary.records:
        error, outcome = record.exception, record.outcome
        assert record.response_completed == (outcome is AttemptOutcome.COMPLETED)
        assert record.output_committed == (record.time_to_first_update is not None)
        assert 0 <= (record.time_to_first_update or 0) <= record.duration
        assert (error is None) == (outcome in (AttemptOutcome.COMPLETED, AttemptOutcome.ABANDONED))
        assert (record.failure is None) == (error is None)
        if outcome is AttemptOutcome.REFUSED_LOCALLY:
            assert isinstance(error, RefusedLocallyError)
        if outcome is AttemptOutcome.FAILED:
            # After output a refusal is a broken answer like any other.
            assert record.output_committed or not isinstance(error, RefusedLocallyError)
        if caller.mode == "whole":
            assert not record.output_committed
            assert outcome is not AttemptOutcome.ABANDONED


def check_tree_of_records(diary, result):
    """Parents hold their children, each once, and all share the request's id."""
    by_id = {record.attempt_id: record for record in diary.records}
    assert len(by_id) == len(diary.records)
    assert len({context.request_id for context in diary.contexts}) <= 1
    for context, record, _ in diary.of("update"):
        assert record.request_id == context.request_id
        assert (record.parent_id is None) == (context.parent is None)
        if record.parent_id is not None and not result.is_dropped:
            assert sum(child is record for child in by_id[record.parent_id].children) == 1
        for child in record.children:
            assert child.parent_id == record.attempt_id
            assert by_id[child.attempt_id] is child


def check_one_answer(diary, result):
    """All that the caller got came from one call of one client, in order and without a gap."""
    calls = [call for _, client in diary.leaves for call in client.calls]
    if result.updates:
        number = len(result.updates)
        assert any(
            list(map(id, call.updates[:number])) == list(map(id, result.updates)) for call in calls
        )
    if result.response is not None:
        assert len(set(re.findall("<[0-9]+>", result.response.text))) <= 1


def check_nothing_is_left_open(diary, result):
    closable = [client for leaf, client in diary.leaves if leaf.source != "unclosable"]
    pending = sum(client.pending for client in closable)
    assert pending <= result.is_dropped
    for leaf, client in diary.leaves:
        for call in client.calls:
            script = leaf.scripts[min(call.number, len(leaf.scripts)) - 1]
            has_source = call.is_streaming and call.has_begun and WITHOUT_SOURCE.isdisjoint(script)
            if has_source and leaf.source != "unclosable" and call.state is not CallState.RUNNING:
                assert call.close_count == 1
            else:
                assert call.close_count == 0 or not call.has_begun


def check_what_the_caller_got(diary, caller, result):
    error = result.error
    outermost = [context for context in diary.contexts if context.parent is None]
    assert len(outermost) <= 1
    for context in outermost:
        waited = sum(each.duration for each in context.attempts)
        assert waited <= result.elapsed - result.paused + 1e-6
        if result.response is not None:
            assert result.response.attempts == context.attempts
            assert context.attempts[-1].outcome is AttemptOutcome.COMPLETED
        if caller.mode == "whole":
            (ended_with,) = [told for each, told, _ in diary.of("end") if each is context]
            # The hook itself may have raised, or may have been cancelled.
            assert ended_with is error or isinstance(error, (LookupError, *CANCELLATIONS))


def check_cancellation(diary, caller, result):
    """It wins over every error; and nobody else's is taken for it."""
    in_time = [is_cancelled for context, _, is_cancelled in diary.of("end") if not context.parent]
    if not result.was_cancelled:
        assert not isinstance(result.error, CANCELLATIONS)
    elif in_time == [False] or isinstance(result.error, LookupError):
        return  # it came when the request had ended, but for its last hook
    elif caller.cancel == "task":
        # asyncio delivers a cancellation once; a client may take it for itself.
        assert result.error is None or was_cancellation(result.error)
    else:
        assert result.error is None or isinstance(result.error, CANCELLATIONS)


def check_second_read(result):
    """A stream that has ended says so again and again."""
    if result.again is None or isinstance(result.error, CANCELLATIONS):
        return
    if result.error is None:
        assert isinstance(result.again, StopAsyncIteration)
    else:
        assert result.again is result.error


def was_cancellation(error, seen=()):
    """Say whether somebody made `error` of a cancellation, so that nothing is left to deliver."""
    if error is None or error in seen:
        return False
    behind = (error.__cause__, error.__context__)
    return isinstance(error, CANCELLATIONS) or any(
        was_cancellation(each, (*seen, error)) for each in behind
    )


def check_all(diary, caller, result):
    check_story_of_each_router_call(diary, result)
    check_fields_of_records(diary, caller)
    check_tree_of_records(diary, result)
    check_one_answer(diary, result)
    check_nothing_is_left_open(diary, result)
    check_what_the_caller_got(diary, caller, result)
    check_cancellation(diary, caller, result)
    check_second_read(result)


def run(backend, main):
    name, options = virtual_time_backends()[backend]()
    return anyio.run(main, backend=name, backend_options=options)


def one_example(backend, stack, caller):
    with warnings.catch_warnings():
        if caller.mode == "drop":
            warnings.simplefilter("ignore", ResourceWarning)
        diary, result = run(backend, lambda: run_request(stack, caller))
        check_all(diary, caller, result)
        if caller.mode == "drop":
            # What a task held, loops may hold until their run is over: warn here, in no later test.
            del diary, result
            gc.collect()


SETTINGS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(autouse=True)
def quick(caplog):
    """Do without what takes longer than the rest: logging faults, looking through old objects."""
    caplog.set_level(logging.CRITICAL + 1, "chatrouting")
    gc.freeze()
    yield
    gc.unfreeze()


def test_every_request_keeps_the_rules_on_asyncio():
    """[routing 72-74] [BR-64]"""

    @settings(SETTINGS, max_examples=250)
    @given(stacks(list(STEPS)), callers(["none", "scope", "task"]))
    def check(stack, caller):
        one_example("asyncio", stack, caller)

    check()


def test_every_request_keeps_the_rules_on_trio():
    """[routing 72-74] [BR-64]"""
    names = [name for name in STEPS if name not in ON_ASYNCIO]

    @settings(SETTINGS, max_examples=200)
    @given(stacks(names), callers(["none", "scope"]))
    def check(stack, caller):
        one_example("trio", stack, caller)

    check()
