"""Every chat client of ours keeps the contract that `check_chat_client` holds others to.

Adapters are held to it in tests/adapters.
"""

import pytest

from chatrouting import (
    ConfigureOptionsChatClient,
    DelegatingChatClient,
    FailoverChatClient,
    OrderedFailoverChatClient,
    RetryChatClient,
    RoutingChatClient,
)
from chatrouting.errors import OverloadedError
from chatrouting.testing import (
    ScriptedChatClient,
    check_chat_client,
    fails,
    finishes,
    waits_forever,
)
from chatrouting.testing._contract_rules import BASIC_RULES, RULES

BUSY = fails(OverloadedError)


def ordered(leaf):
    """Let the first client fail, so that each answer is one of a failover."""
    return OrderedFailoverChatClient({"busy": ScriptedChatClient(BUSY), "leaf": leaf})


def routing(leaf):
    return RoutingChatClient(lambda context: "leaf", routes={"leaf": leaf})


WRAPPERS = {
    "scripted": lambda leaf: leaf,
    "delegating": DelegatingChatClient,
    "configure options": lambda leaf: ConfigureOptionsChatClient(
        leaf, lambda options: options.replace(model="m")
    ),
    "routing": routing,
    "failover": lambda leaf: FailoverChatClient(
        lambda context: context.next_route(), routes=[ScriptedChatClient(BUSY), leaf]
    ),
    "ordered": ordered,
    "ordered with timers": lambda leaf: OrderedFailoverChatClient(
        [leaf], attempt_timeout=60.0, first_output_timeout=30.0, stall_timeout=20.0
    ),
    "retry": RetryChatClient,
    "ordered in ordered in ordered": lambda leaf: ordered(ordered(ordered(leaf))),
    "retry of ordered of routing": lambda leaf: RetryChatClient(ordered(routing(leaf))),
    "routing to wrapped retry": lambda leaf: routing(
        DelegatingChatClient(RetryChatClient(ordered(leaf)))
    ),
}


def leaf_of(client):
    """Find the client that answers, by whatever way it is wrapped."""
    while not isinstance(client, ScriptedChatClient):
        inner = getattr(client, "inner", None)
        client = list(client.routes.values())[-1] if inner is None else inner
    return client


@pytest.mark.parametrize("source", ["object", "generator", "ready"])
@pytest.mark.parametrize("name", WRAPPERS)
async def test_a_client_of_ours_keeps_the_contract(name, source):
    """All rules hold, also those about cancellation and about what is left open."""
    wrap = WRAPPERS[name]

    checked = await check_chat_client(
        lambda: wrap(ScriptedChatClient("Hel", "lo.", finishes(), source=source)),
        make_waiting_client=lambda: wrap(ScriptedChatClient("Hel", waits_forever(), source=source)),
        count_requests=lambda client: sum(call.has_begun for call in leaf_of(client).calls),
        count_open=lambda client: leaf_of(client).pending,
    )

    assert checked == tuple(rule.sentence for rule in BASIC_RULES + RULES)
