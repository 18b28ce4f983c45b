"""What nobody has reported yet and somebody would: hooks that meddle, nesting, forks, names."""

import subprocess
import sys
import textwrap

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    ChatOptions,
    ChatResponseUpdate,
    FailoverChatClient,
    OrderedFailoverChatClient,
    TextContent,
)
from chatrouting.errors import OverloadedError
from chatrouting.testing import Gate, ScriptedChatClient, fails

FAILED, COMPLETED = AttemptOutcome.FAILED, AttemptOutcome.COMPLETED


def recorded(entries, name):
    """Return a listener that writes down whose update it is."""
    return lambda _, attempt, is_terminal: entries.append((name, attempt.outcome, is_terminal))


async def test_each_of_two_nested_failovers_has_one_terminal_update_of_its_own(answer):
    """The inner one knows no more clients; the outer one goes on, and ends the request."""
    entries = []
    inner = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(OverloadedError)), ScriptedChatClient(fails(OverloadedError))],
        on_routing_update=recorded(entries, "inner"),
    )
    outer = OrderedFailoverChatClient(
        [inner, ScriptedChatClient("ok")], on_routing_update=recorded(entries, "outer")
    )

    assert (await answer(outer)).text == "ok"

    assert entries == [
        ("inner", FAILED, False),
        ("inner", FAILED, True),
        ("outer", FAILED, False),
        ("outer", COMPLETED, True),
    ]


async def test_a_hook_may_ask_the_same_router_again(answer):
    """It is a request of its own, not a part of the one that it was told of."""

    class Asks(OrderedFailoverChatClient):
        def __init__(self, clients):
            super().__init__(clients)
            self.ids = []
            self.inner_text = None

        async def on_routing_update(self, context, attempt, is_terminal):
            self.ids.append((context.request_id, attempt.parent_id, len(context.attempts)))
            if len(self.ids) == 1:
                self.inner_text = (await self.get_response("again")).text

    first = ScriptedChatClient.per_call([fails(OverloadedError)], ["inside"], repeat_last=True)
    router = Asks([first, ScriptedChatClient("ok")])

    response = await answer(router)

    assert (response.text, router.inner_text) == ("ok", "inside")
    outer, inner, outer_again = router.ids
    assert outer[0] == outer_again[0] != inner[0]
    assert (outer[1], inner[1]) == (None, None)
    assert [count for _, _, count in router.ids] == [1, 1, 2]
    assert [attempt.children for attempt in response.attempts] == [(), ()]


async def test_a_hook_that_waits_holds_up_its_own_request_only(answer):
    gate, waited = Gate(), []

    class Waits(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            if not waited:
                waited.append(context.request_id)
                gate.arrive()
                await gate.opened()

    router = Waits([ScriptedChatClient("ok")])
    texts = []

    async def slow():
        texts.append((await answer(router)).text + " late")

    async with anyio.create_task_group() as group:
        group.start_soon(slow)
        await gate.reached()
        texts.append((await answer(router)).text)
        gate.open()

    assert texts == ["ok", "ok late"]


async def test_a_waiting_hook_does_not_keep_the_caller_from_being_cancelled(answer):
    gate, second = Gate(), ScriptedChatClient("never")

    class Waits(OrderedFailoverChatClient):
        async def on_routing_update(self, context, attempt, is_terminal):
            gate.arrive()
            await gate.opened()

    router = Waits([ScriptedChatClient(fails(OverloadedError)), second])

    async with anyio.create_task_group() as group:
        group.start_soon(answer, router)
        await gate.reached()
        group.cancel_scope.cancel()

    assert second.calls == []


async def test_an_answer_keeps_the_model_that_gave_it(answer):
    """Providers answer with dated names; who asked for what is in the options."""
    said = ChatResponseUpdate([TextContent("ok")], model="m-2026-01-02")
    client = ScriptedChatClient(said)
    router = OrderedFailoverChatClient([ScriptedChatClient(fails(OverloadedError)), client])

    response = await answer(router, "Hi", ChatOptions(model="m"))

    assert response.model == "m-2026-01-02"
    assert client.calls[0].options.model == "m"


async def test_a_client_on_two_routes_is_judged_by_its_route(answer):
    """As targets of a pool that share one SDK client: the record says which of them it was."""
    shared = ScriptedChatClient.per_call([fails(OverloadedError)], ["ok"])
    router = FailoverChatClient(
        lambda context: next(iter(context.remaining), None),
        routes={"east": shared, "west": shared},
    )

    response = await answer(router)

    assert [(a.route, a.outcome) for a in response.attempts] == [
        ("east", FAILED),
        ("west", COMPLETED),
    ]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_router_that_was_used_before_a_fork_works_after_it(backend):
    """In a program of its own: parent and child go on, and their ids differ."""
    program = f"""
        import os
        import anyio
        from chatrouting import OrderedFailoverChatClient
        from chatrouting.testing import ScriptedChatClient

        ids = []
        router = OrderedFailoverChatClient(
            [ScriptedChatClient("ok")],
            on_routing_update=lambda context, *_: ids.append(context.request_id),
        )

        def ask():
            text = anyio.run(router.get_response, "Hi", backend={backend!r}).text
            os.write(1, f"{{text}} {{ids[-1]}}\\n".encode())

        ask()
        child = os.fork()
        ask()
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=25,
    )

    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [text for text, _ in lines] == ["ok"] * 3
    assert len({request_id for _, request_id in lines}) == 3
