"""A pool that prefers members with room: what its clients say of it, and what that decides."""

from chatrouting import ChatOptions, DelegatingChatClient
from chatrouting.admission import HeadroomSource
from chatrouting.errors import RateLimitError
from chatrouting.pool import Endpoint, EndpointPool, PooledChatClient, PoolPolicy
from chatrouting.quota import QuotaChatClient, parse_limits
from chatrouting.testing import ScriptedChatClient, fails

PREFERS = PoolPolicy(prefer_headroom=True)


class Roomy(DelegatingChatClient):
    """A client that says how much room it has."""

    def __init__(self, share, *script):
        super().__init__(ScriptedChatClient(*(script or ["ok"] * 40)))
        self.share = share
        self.asked = []

    def headroom(self, messages, options=None, *, is_streaming=False):
        self.asked.append((messages, options, is_streaming))
        return self.share


async def asked(ask, members, policy=PREFERS, calls=30):
    """Return the ids of the members that were asked."""
    client = PooledChatClient(EndpointPool(members, policy=policy))
    return {(await ask(client)).attempts[-1].route for _ in range(calls)}


async def test_who_has_much_less_room_is_passed_over(ask):
    """Half as much is enough: the strategy chooses among those."""
    members = {Endpoint("a"): Roomy(0.8), Endpoint("b"): Roomy(0.4), Endpoint("c"): Roomy(0.39)}
    assert await asked(ask, members) == {"a", "b"}


async def test_nobody_is_passed_over_where_nobody_has_room(ask):
    members = {Endpoint("a"): Roomy(0.0), Endpoint("b"): Roomy(0.0)}
    assert await asked(ask, members) == {"a", "b"}


async def test_who_does_not_know_is_not_passed_over(ask):
    members = {
        Endpoint("a"): Roomy(0.8),
        Endpoint("b"): ScriptedChatClient(*["ok"] * 40),
        Endpoint("c"): Roomy(0.1),
    }
    assert await asked(ask, members) == {"a", "b"}


async def test_a_pool_looks_at_room_on_request_only(ask):
    roomy = Roomy(0.8)
    assert await asked(ask, {Endpoint("a"): roomy, Endpoint("b"): Roomy(0.0)}, PoolPolicy()) == {
        "a",
        "b",
    }
    assert roomy.asked == []


async def test_room_does_not_reach_over_tiers_or_regions(ask):
    """They are the caller's order; room decides among members that are alike."""
    tiers = {Endpoint("a"): Roomy(0.1), Endpoint("b", priority=2): Roomy(1.0)}
    assert await asked(ask, tiers) == {"a"}
    regions = {Endpoint("a", region="near"): Roomy(0.1), Endpoint("b", region="far"): Roomy(1.0)}
    near = PoolPolicy(prefer_headroom=True, prefer_regions=["near"])
    assert await asked(ask, regions, near) == {"a"}


async def test_only_the_room_of_ready_members_counts(ask):
    """The roomiest rests, and the others are asked as if it were not there."""
    refusing = Roomy(1.0, fails(RateLimitError("busy", status_code=429, retry_after=100.0)))
    members = {Endpoint("a"): refusing, Endpoint("b"): Roomy(0.2), Endpoint("c"): Roomy(0.15)}
    client = PooledChatClient(EndpointPool(members, policy=PREFERS))

    routes = [[each.route for each in (await ask(client)).attempts] for _ in range(30)]

    assert routes[0][0] == "a"
    assert {route for later in routes[1:] for route in later} == {"b", "c"}
    assert len(refusing.inner.calls) == 1


async def test_a_client_is_told_what_it_would_be_asked(ask, mode):
    roomy = Roomy(1.0)
    options = ChatOptions(max_output_tokens=5)
    client = PooledChatClient(EndpointPool({Endpoint("a"): roomy}, policy=PREFERS))

    await ask(client, "Hi", options)

    [(messages, given, is_streaming)] = roomy.asked
    assert [message.text for message in messages] == ["Hi"]
    assert given == options
    assert is_streaming is (mode != "whole")


async def test_a_quota_says_how_much_room_it_has(ask):
    """[quota R33] A local denial costs nothing, and it is not even met here."""
    governor = parse_limits(
        """
        [deployments.small]
        profile = "azure"
        scope = { subscription = "main", region = "small", deployment = "gpt" }
        limits = { requests = 20 }

        [deployments.large]
        profile = "azure"
        scope = { subscription = "main", region = "large", deployment = "gpt" }
        limits = { requests = 1000 }
        """
    ).make_governor()
    clients = {name: ScriptedChatClient(*["ok"] * 40) for name in ("small", "large")}
    members = {
        Endpoint(name): QuotaChatClient(client, governor, name) for name, client in clients.items()
    }
    assert all(isinstance(each, HeadroomSource) for each in members.values())
    client = PooledChatClient(EndpointPool(members, policy=PREFERS))

    attempts = [(await ask(client)).attempts for _ in range(40)]

    assert all(len(each) == 1 for each in attempts)
    assert 0 < len(clients["small"].calls) <= 3
