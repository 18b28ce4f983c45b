"""A tree of ordered failovers answers as the flat list of its clients would.

The expected answer comes from a loop of ten lines that knows nothing of routers.
"""

from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatrouting import ChatResponse, OrderedFailoverChatClient
from chatrouting.errors import OverloadedError, QuotaExceededError
from chatrouting.testing import ScriptedChatClient, fails, update

#: What a client does, and how it ends: handed out first, then said or raised.
BEHAVIOURS = {
    "answers": (["text"], None),
    "answers with nothing": ([update()], None),
    "fails": ([], OverloadedError),
    "fails after nothing": ([update()], ValueError),
    "fails after output": (["text"], OverloadedError),
    "refuses": ([], QuotaExceededError),
}

CLIENTS = st.sampled_from(sorted(BEHAVIOURS))
TREES: st.SearchStrategy[Any] = st.lists(st.deferred(lambda: NODES), min_size=1, max_size=3)
NODES: st.SearchStrategy[Any] = st.one_of(CLIENTS, CLIENTS, TREES)


def leaves(tree):
    """Return what the clients do, in the order of the walk."""
    return [name for node in tree for name in ([node] if isinstance(node, str) else leaves(node))]


def build(tree, clients):
    return OrderedFailoverChatClient(
        [clients.pop(0) if isinstance(node, str) else build(node, clients) for node in tree]
    )


def expected(names, mode):
    """Return how many are asked, and what comes out: the position of an answer, or of an error."""
    raised = None
    for position, name in enumerate(names):
        outputs, error = BEHAVIOURS[name]
        if error is None:
            return position + 1, ("answer", position)
        if mode == "streaming" and "text" in outputs:
            return position + 1, ("error", position)
        if raised is None or error is not QuotaExceededError or is_refusal(names[raised]):
            raised = position
    return len(names), ("error", raised)


def is_refusal(name):
    return BEHAVIOURS[name][1] is QuotaExceededError


def scripted(position, name):
    outputs, error = BEHAVIOURS[name]
    return ScriptedChatClient(*outputs, *([fails(error(f"{position}"))] if error else []))


async def ask(router, mode):
    try:
        if mode == "whole":
            return await router.get_response("hi")
        return await router.get_streaming_response("hi").get_final_response()
    except Exception as error:  # noqa: BLE001  # compared by the test
        return error


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("mode", ["whole", "streaming"])
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(tree=TREES)
def test_a_tree_is_its_flat_list(backend, mode, tree):
    names = leaves(tree)
    clients = [scripted(position, name) for position, name in enumerate(names)]
    router = build(tree, list(clients))

    outcome = anyio.run(ask, router, mode, backend=backend)

    asked, (kind, position) = expected(names, mode)
    assert [len(client.calls) for client in clients] == [1] * asked + [0] * (len(names) - asked)
    if kind == "answer":
        assert isinstance(outcome, ChatResponse)
        assert outcome.text == ("text" if names[position] == "answers" else "")
    else:
        assert str(outcome) == str(position)
