"""What other limiters were reported to do wrong, by the reproductions given, with our clients."""

import gc
import math
from random import Random

import anyio
import pytest

from chatrouting import (
    ChatOptions,
    ChatResponse,
    DelegatingChatClient,
    Principal,
    RoutingHints,
    Usage,
)
from chatrouting.errors import ConfigurationError, QuotaDeadlineError, QuotaRequestTooLargeError
from chatrouting.quota.classes import TrafficClass
from chatrouting.quota.clients import QuotaChatClient
from chatrouting.quota.limits import BucketKey, BucketLimits, Level, ProviderScope, QuotaLimit
from chatrouting.quota.tenants import TenantQuotaClient
from chatrouting.testing import ScriptedChatClient, finishes, runs, waits, waits_forever
from tests.quota._desk import Desk, deployment

pytestmark = pytest.mark.virtual_time

PATIENT = TrafficClass(name="patient", max_wait=5_000, max_queue_items=1_000)
ONE_SLOT = QuotaLimit("concurrency", 1)
USED = Usage(input_tokens=20, output_tokens=100)


def desk_with(*limits, name="a"):
    return Desk(
        deployment(name, *limits),
        classes=[PATIENT],
        default_class="patient",
        clock=anyio.current_time,
    )


async def leave(client):
    async with client.get_streaming_response("Hi") as stream:
        await anext(stream)


async def cancel(client):
    with anyio.move_on_after(1):
        async with client.get_streaming_response("Hi") as stream:
            await stream.get_final_response()


async def drop(client):
    stream = client.get_streaming_response("Hi")
    await anext(stream)
    del stream
    gc.collect()


async def forget(client):
    client.get_streaming_response("Hi")
    gc.collect()


@pytest.mark.parametrize("end", [leave, cancel, drop, forget])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_the_only_slot_is_there_again_however_a_stream_ends(anyio_backend, end):
    """[BR-53] A call after that is answered at once."""
    desk = desk_with(ONE_SLOT)
    inner = ScriptedChatClient.per_call(["ye", waits_forever()], ["yes"], repeat_last=True)
    client = QuotaChatClient(inner, desk.governor, "a")
    if end is forget:
        inner = ScriptedChatClient("yes")
        client = QuotaChatClient(inner, desk.governor, "a")
    await end(client)
    start = anyio.current_time()
    assert (await client.get_response("Hi")).text == "yes"
    assert anyio.current_time() == start


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_of_a_hundred_that_wait_for_one_slot_none_is_lost(anyio_backend, seed):
    """[BR-54] Half of them are cancelled; the others are all answered, and the slot is free."""
    desk = desk_with(ONE_SLOT)
    client = QuotaChatClient(ScriptedChatClient(waits(0.5), "yes"), desk.governor, "a")
    answered = []

    async def ask(number, scope):
        with scope:
            await client.get_response("Hi")
            answered.append(number)

    async with anyio.create_task_group() as group:
        # Without a deadline: of one that is known, a request is refused at once.
        scopes = [anyio.CancelScope() for _ in range(100)]
        for number, scope in enumerate(scopes):
            group.start_soon(ask, number, scope)
        for scope in Random(seed).sample(scopes, 50):
            await anyio.sleep(0.13)
            scope.cancel()
    assert len(answered) >= 50
    assert desk.used("concurrency") == 0
    assert desk.governor.snapshot().scopes[0].waiting == {}


class ToolLoop(DelegatingChatClient):
    """Asks, runs a slow tool, asks again."""

    async def get_response(self, messages, options=None):
        await self.inner.get_response(messages, options)
        await anyio.sleep(10)
        return await self.inner.get_response(messages, options)


async def test_a_slot_is_held_for_a_call_and_not_for_the_session(anyio_backend):
    """[BR-56] Another session gets in between while a tool runs."""
    desk = desk_with(ONE_SLOT)
    client = QuotaChatClient(ScriptedChatClient(waits(1), "yes"), desk.governor, "a")
    session = TenantQuotaClient(ToolLoop(client), desk.governor)
    async with anyio.create_task_group() as group:
        group.start_soon(session.get_response, "Hi")
        await anyio.sleep(2)
        start = anyio.current_time()
        await client.get_response("Hi")
        assert anyio.current_time() == start + 1


async def test_fifty_at_once_do_not_all_see_the_same_room(anyio_backend):
    """[BR-58] 1,000 tokens a minute, an estimate of 100 each: ten are let through at once."""
    desk = desk_with(QuotaLimit("output_tokens", 1_000))
    asked = []
    inner = ScriptedChatClient(
        runs(lambda _: asked.append(anyio.current_time())), waits(5), "yes", finishes(usage=USED)
    )
    client = QuotaChatClient(inner, desk.governor, "a")
    options = ChatOptions(max_output_tokens=100)
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(client.get_response, "Hi", options)
        await anyio.sleep(55)
        assert len(asked) == 10
        group.cancel_scope.cancel()


async def test_twice_what_there_is_fails_at_once(anyio_backend):
    """[BR-63] And does not wait for ever."""
    desk = desk_with(QuotaLimit("input_tokens", 100))
    inner = ScriptedChatClient(ChatResponse("yes"))
    client = QuotaChatClient(inner, desk.governor, "a")
    start = anyio.current_time()
    with pytest.raises(QuotaRequestTooLargeError):
        await client.get_response("word " * 200)
    assert anyio.current_time() == start
    assert inner.calls == []


def test_a_governed_client_in_a_governed_client_would_wait_for_itself():
    """[BR-56] So it cannot be made, neither for the deployment nor for another of its quota."""
    scope = ProviderScope("test", {"family": "opus"})
    desk = Desk(
        *(deployment(name, ONE_SLOT, scope=scope) for name in "ab"), deployment("c", ONE_SLOT)
    )
    inner = QuotaChatClient(ScriptedChatClient("yes"), desk.governor, "a")
    with pytest.raises(ConfigurationError, match="would wait for itself"):
        QuotaChatClient(DelegatingChatClient(inner), desk.governor, "b")
    QuotaChatClient(inner, desk.governor, "c")


async def test_an_account_around_governed_clients_is_counted_once(anyio_backend):
    """[BR-56] Its one slot is not waited for by the clients inside, nor twice by two accounts."""
    tenant = BucketKey(Level.TENANT, "acme")
    desk = Desk(
        deployment("a", ONE_SLOT, QuotaLimit("requests", 10)),
        classes=[PATIENT],
        default_class="patient",
        clock=anyio.current_time,
        ceilings={tenant: BucketLimits((ONE_SLOT, QuotaLimit("requests", 10)))},
    )
    client = QuotaChatClient(ScriptedChatClient("yes"), desk.governor, "a")
    acme = Principal(tenant="acme")
    for _ in range(2):
        client = TenantQuotaClient(client, desk.governor, principal=acme)
    start = anyio.current_time()
    assert (await client.get_response("Hi")).text == "yes"
    assert anyio.current_time() == start
    assert desk.used("requests") == desk.used("requests", "tenant") == 1
    assert desk.used("concurrency") == desk.used("concurrency", "tenant") == 0


@pytest.mark.parametrize("cancels", [True, False], ids=["cancelled", "out of time"])
async def test_a_caller_without_time_is_told_so(anyio_backend, cancels):
    """One that is being cancelled gets its cancellation, and no complaint about settings."""
    desk = desk_with(ONE_SLOT)
    inner = ScriptedChatClient("yes")
    client = QuotaChatClient(inner, desk.governor, "a")
    held = desk.take()
    ended = []
    with anyio.CancelScope(deadline=-math.inf if cancels else math.inf) as scope:
        options = ChatOptions() if cancels else ChatOptions(routing=RoutingHints(timeout=1e-9))
        try:
            await client.get_response("Hi", options)
        except QuotaDeadlineError:
            ended.append("refused")
    assert (scope.cancelled_caught, ended) == ((True, []) if cancels else (False, ["refused"]))
    assert inner.calls == []
    held.settle()
