"""What every test shares: the two event loops, in real time or in virtual time."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from chatrouting.testing.clock import virtual_time_backends

REAL_TIME: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {"use_uvloop": False}),
    "trio": ("trio", {}),
}

# How fast a shared machine is, or whether it draws its first text, says nothing about the library.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "virtual_time(autojump_threshold=0.0): run on event loops whose waits are over at once; "
        "the threshold is the real seconds of rest before time jumps.",
    )


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run each async test on asyncio and on trio.

    A test, class or module marked `pytest.mark.virtual_time` runs in virtual time.
    """
    marker = request.node.get_closest_marker("virtual_time")
    if marker is None:
        return REAL_TIME[request.param]
    return virtual_time_backends(**marker.kwargs)[request.param]()
