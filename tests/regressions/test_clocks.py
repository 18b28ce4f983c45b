"""Reports about clocks that run backwards, as far as they concern what routers measure."""

import itertools

import pytest

from chatrouting import OrderedFailoverChatClient
from chatrouting.errors import OverloadedError
from chatrouting.testing import ScriptedChatClient, fails, finishes, update

STEPS = {
    "back": [0.0, -11.0],
    "forth and back": [0.0, 11.0, -11.0, 5.0],
    "still": [0.0],
}


@pytest.mark.parametrize("source", ["object", "ready"])
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
async def test_a_clock_that_steps_back_gives_no_negative_times(answer, log, steps, source):
    """[BR-60] Durations are clamped at zero, and the fields of a record still agree."""
    readings = itertools.cycle(steps)
    client = ScriptedChatClient(update(), "a", "b", finishes("stop"), source=source)
    router = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(OverloadedError)), client],
        clock=lambda: next(readings),
        on_routing_update=log,
    )

    assert (await answer(router)).text == "ab"

    for attempt in log.attempts:
        assert attempt.duration >= (attempt.time_to_first_update or 0.0) >= 0.0
