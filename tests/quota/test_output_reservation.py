"""What it is good for to reserve output apart from input: streams that end where they should."""

import pytest

from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.limits import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, QuotaLimit
from chatrouting.quota.profiles import provider_profile
from chatrouting.simulation import Fate, LoadStream, ProviderLimiter, simulate

GRANTED = {REQUESTS: 600, INPUT_TOKENS: 1_000_000, OUTPUT_TOKENS: 60_000}
#: Long contexts, answers of which some are long too; three times the output that there is.
LOAD = LoadStream(
    requests_per_minute=250,
    request_class="batch",
    input_tokens=3_000,
    output_tokens=600,
    max_output_tokens=2_000,
)


def broken_off(*counted, backend="asyncio"):
    """Play the load under limits on these dimensions; return the broken streams, and the sound."""
    profile = provider_profile("anthropic")
    deployment = QuotaDeployment(
        name="d",
        scope=profile.scope(**dict.fromkeys(profile.scope_parts, "x")),
        profile=profile,
        limits=profile.bucket(*(QuotaLimit(name, GRANTED[name]) for name in counted)),
    )
    result = simulate(
        [LOAD],
        {"d": ProviderLimiter("anthropic", GRANTED, breaks_streams=True)},
        make_governor=lambda clock, wall_clock: QuotaGovernor(
            [deployment], clock=clock, wall_clock=wall_clock
        ),
        duration=240.0,
        backend=backend,
    )
    fates = [each.fate for each in result.records]
    return fates.count(Fate.BROKEN_OFF), fates.count(Fate.ANSWERED)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_streams_break_off_where_only_input_was_checked(backend):
    """And not where output was reserved too. [quota R7] [quota R30]

    About as many are answered then; without it those that get through are the short ones.
    """
    checked = broken_off(REQUESTS, INPUT_TOKENS, backend=backend)
    reserved = broken_off(REQUESTS, INPUT_TOKENS, OUTPUT_TOKENS, backend=backend)
    print(f"streams broken off, and answered: {checked} checked, {reserved} reserved")  # noqa: T201
    assert checked[0] >= 20
    assert reserved[0] == 0
    assert reserved[1] >= 0.9 * checked[1]
