"""A governed load against providers as strict as they may be, in virtual time."""

import anyio
import pytest

from chatrouting import ChatMessage, ChatOptions, Principal, Role, Usage
from chatrouting.quota.classes import TrafficClass
from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.profiles import provider_profile
from tests.quota._provider_limiter import Admission, Arrival, ProviderLimiter

pytestmark = pytest.mark.virtual_time

PATIENT = TrafficClass(name="patient", max_wait=3600, max_queue_items=10_000)
LIMITS = {
    "openai": {"requests": 600.0, "total_tokens": 60_000.0},
    "azure_ptu": {"total_tokens": 60_000.0},
    "anthropic": {"requests": 600.0, "input_tokens": 30_000.0, "output_tokens": 30_000.0},
    "bedrock_runtime": {"requests": 600.0, "total_tokens": 60_000.0},
    "gemini": {"requests": 300.0, "input_tokens": 60_000.0},
}
DURATION = 400.0
OUTPUT = 250
WORDS = "the quick brown fox jumps over the lazy dog " * 10


def governed(name):
    """Make a provider, and a governor that has been told its limits."""
    profile = provider_profile(name)
    limits = [QuotaLimit(dimension, amount) for dimension, amount in LIMITS[name].items()]
    deployment = QuotaDeployment(
        name="a",
        scope=profile.scope(**dict.fromkeys(profile.scope_parts, "x")),
        profile=profile,
        limits=profile.bucket(*limits, headroom=0.001),
    )
    governor = QuotaGovernor(
        [deployment], classes=[PATIENT], default_class="patient", clock=anyio.current_time
    )
    return ProviderLimiter(name, LIMITS[name]), governor


async def send(provider, governor, tenant):
    """Send one request under the governor, and tell it how it went."""
    options = ChatOptions(max_output_tokens=OUTPUT)
    messages = [ChatMessage(Role.USER, WORDS)]
    quote = governor.quote(messages, options, "a", is_streaming=False)
    ticket = governor.open_ticket(Principal(tenant=tenant), is_kept=False)
    async with await governor.reserve(quote, ticket) as reservation:
        read = 100
        found = provider.arrive(Arrival(input_tokens=read, cap=OUTPUT), anyio.current_time())
        assert isinstance(found, Admission), found
        await anyio.sleep(2)
        provider.generate(found, OUTPUT, anyio.current_time())
        provider.finish(found, anyio.current_time())
        reservation.settle(Usage(input_tokens=read, output_tokens=OUTPUT))
        governor.observe(reservation, found.headers)


@pytest.mark.parametrize("name", LIMITS)
async def test_at_three_times_the_load_nothing_is_refused_and_little_is_left(anyio_backend, name):
    """With estimates that become accurate. [quota R2, R23, R44]"""
    provider, governor = governed(name)

    async def work(tenant):
        while anyio.current_time() < DURATION:
            await send(provider, governor, tenant)

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(work, f"tenant-{number % 4}")
        await anyio.sleep(DURATION)
        group.cancel_scope.cancel()
    assert provider.refused == 0
    assert provider.utilisation(DURATION) >= 0.93
