"""What is lent of a window: kept up to date in steps, and equal to what is worked out anew."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.quota.assured import AssuredShares, Funding
from chatrouting.quota.guarantees import TenantContract, plan
from chatrouting.quota.limits import QuotaLimit
from chatrouting.quota.timeline import Timeline

LIMIT = QuotaLimit("requests", 1000, window=60.0, slots=12)
STEPS = st.lists(
    st.tuples(
        st.floats(0, 9),  # seconds that pass
        st.floats(0, 40),  # how long ago it was
        st.floats(-50, 100),
        st.booleans(),  # whether somebody asks
    ),
    max_size=60,
)


def anew(timeline, now):
    """Return a timeline of the same amounts that has kept nothing."""
    fresh = Timeline(LIMIT, 100.0, 5.0)
    for at, amount in timeline.entries():
        # From the middle of its slot, so that rounding takes it to no other.
        fresh.add(amount, at + 2.5, now)
    return fresh


@given(STEPS)
def test_what_is_lent_is_what_a_new_look_would_lend(steps):
    """[quota R42, R44] In whatever order amounts come, go back and leave."""
    timeline, now = Timeline(LIMIT, 100.0, 5.0), 0.0
    for passed, ago, amount, is_asked in steps:
        now += passed
        timeline.add(amount, now - ago if amount < 0 else now, now)
        if not is_asked:
            continue
        fresh = anew(timeline, now)
        for levels in (0.0, 100.0):
            lent = timeline.borrowable(levels, now)
            assert lent == pytest.approx(fresh.borrowable(levels, now), abs=1e-6)
        for asked in (1.0, 200.0, timeline.largest):
            at = timeline.borrowable_at(asked, now)
            assert at == pytest.approx(fresh.borrowable_at(asked, now), abs=1e-3)


@given(STEPS, st.sampled_from([None, 5.0]))
def test_what_was_worked_out_for_one_request_holds_for_the_next(steps, burst):
    """[quota R42, R44] An answer is kept while nothing changes and no time passes."""
    limits = [QuotaLimit("requests", 1000, burst=burst, slots=60)]
    promised = plan(limits, {"acme": TenantContract(share=0.3)})
    shares, now, paid = AssuredShares(promised, 0.0), 0.0, list[Funding]()
    for passed, _, amount, is_asked in steps:
        now += passed
        if amount >= 0:
            tenant = "acme" if is_asked else None
            paid.append(shares.take(tenant, {"requests": amount}, now))
        elif paid:
            shares.settle(paid.pop(), {"requests": 0.0}, now)
        for asked in (1.0, 40.0, 40.0, 5000.0):
            kept = shares.lent_in(None, {"requests": asked}, now)
            for rate in shares._rates:
                rate._lendable = None
            assert kept == shares.lent_in(None, {"requests": asked}, now)
            assert math.isfinite(kept)
