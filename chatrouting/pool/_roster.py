"""Whom requests may ask: the members of a pool at one moment, and what a client calls them."""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, final

import anyio

from chatrouting.errors import ConfigurationError
from chatrouting.pool.core import Core
from chatrouting.pool.endpoint import Endpoint
from chatrouting.pool.pool import EndpointPool


@final
class Roster:
    """What all requests of a client at a pool have in common, until the pool's endpoints change.

    Attributes:
        pool: The pool.
        core: What is behind it.
        table: What its core had when the roster was made.
        only: The id of the only endpoint that may be asked, None for any.
        endpoints: Those that may be asked. One that joins the pool later is not.
        names: What to call them, by their ids.
        rng: Returns random numbers in 0..1, for the waits of a pool of one.
        sleep: Waits for a number of seconds there.
        budget: Seconds that a request may take, None for no limit.
    """

    __slots__ = (
        "budget",
        "core",
        "endpoints",
        "names",
        "only",
        "pool",
        "rng",
        "sleep",
        "table",
    )

    def __init__(
        self,
        pool: EndpointPool[Any],
        *,
        bare: str = "",
        rng: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """Write down whom the pool has now.

        Args:
            pool: The pool.
            bare: What to call an endpoint whose id is empty.
            rng: See the class.
            sleep: See the class.

        Raises:
            ConfigurationError: If another endpoint is called so.
        """
        self.pool = pool
        # Each call goes there directly: the pool's own methods take keywords, which cost as much as
        # a tenth of what a pool adds.
        self.core: Core[Any] = pool._core  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self.only = pool._only  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self.table = table = self.core.table
        self.endpoints = table.endpoints if self.only is None else table.only(self.only)
        self.names = _names(self.endpoints, bare)
        self.rng = rng
        self.sleep = sleep
        self.budget = pool.policy.total_budget


def _names(endpoints: Sequence[Endpoint], bare: str) -> dict[str, str]:
    names = {endpoint.id: endpoint.id or bare for endpoint in endpoints}
    if "" in names and bare in names and bare:
        raise ConfigurationError(
            f"one endpoint has an empty id and another one {bare!r}, which attempts call the "
            "former. Rename one of them."
        )
    return names
