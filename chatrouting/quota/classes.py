"""Classes of traffic: how a kind of request is treated when there is no room for it.

A class says how much of a shared deployment its requests get beside other classes, how long and
how deep they may queue, whether they may use what others leave, and what is tried under pressure,
in which order. Values only; the defaults are those of the four kinds that most services have.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, final

from chatrouting.errors import ConfigurationError
from chatrouting.options import check_count
from chatrouting.quota._checks import check_each, check_flag, check_number, check_text


class Pressure(StrEnum):
    """What may be done with a request for which there is no room now."""

    QUEUE = "queue"  #: Wait for room, within the bounds of the class.
    REROUTE = "reroute"  #: Let a router try another deployment.
    DOWNGRADE = "downgrade"  #: Lower the output cap, or name a cheaper model profile.
    REJECT = "reject"  #: Give up. What stands behind it is never tried.


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficClass:
    """One kind of traffic.

    Attributes:
        name: What `RoutingHints.request_class` says.
        weight: Share of a deployment beside other classes that wait, more than 0.
        is_control: Served before all other classes. For the few requests that keep a service
            alive; a control class that floods starves the others.
        max_queue_items: Requests that may wait at one deployment; 0 turns queueing off.
        max_queue_tokens: Sum of the tokens that those ask for; None: no limit.
        max_wait: Longest wait, seconds. A request that will wait longer is refused at once.
        may_use_guarantee: It may use its tenant's guarantee; False for what shall only use what is
            left.
        may_borrow: It may use capacity beyond its tenant's guarantee.
        borrowed_max_stream: Longest stream, seconds, of a request on borrowed capacity; None: no
            limit.
        is_preemptible: A request on borrowed capacity may be cut off when a guarantee needs its
            slot.
        on_pressure: What is tried when there is no room, in this order.
        downgrade_profile: Model profile to use instead, for `Pressure.DOWNGRADE`.
        min_output_tokens: Output cap down to which the governor may go for `Pressure.DOWNGRADE`;
            None: the cap stays.
    """

    name: str
    weight: float = 1.0
    is_control: bool = False
    max_queue_items: int = 100
    max_queue_tokens: int | None = None
    max_wait: float = 10.0
    may_use_guarantee: bool = True
    may_borrow: bool = True
    borrowed_max_stream: float | None = None
    is_preemptible: bool = False
    on_pressure: tuple[Pressure, ...] = (Pressure.QUEUE, Pressure.REROUTE, Pressure.REJECT)
    downgrade_profile: str | None = None
    min_output_tokens: int | None = None

    def __post_init__(self) -> None:
        check_text("name of a traffic class", self.name)
        of_this = f"of traffic class {self.name!r}"
        check_number(f"weight {of_this}", self.weight, above=0)
        check_number(f"max_wait {of_this}", self.max_wait)
        check_number(f"max_queue_items {of_this}", self.max_queue_items)
        for name in ("is_control", "may_use_guarantee", "may_borrow", "is_preemptible"):
            check_flag(f"{name} {of_this}", getattr(self, name))
        if self.max_queue_tokens is not None:
            check_count("max_queue_tokens", self.max_queue_tokens)
        if self.min_output_tokens is not None:
            check_count("min_output_tokens", self.min_output_tokens)
        if self.borrowed_max_stream is not None:
            check_number(f"borrowed_max_stream {of_this}", self.borrowed_max_stream, above=0)
        if self.downgrade_profile is not None:
            check_text(f"downgrade_profile {of_this}", self.downgrade_profile)
        object.__setattr__(self, "on_pressure", self._steps(of_this))

    def allows(self, step: Pressure) -> bool:
        """Say whether a step may be tried at all."""
        return step in self.on_pressure

    def _steps(self, of_this: str) -> tuple[Pressure, ...]:
        name, expected = f"on_pressure {of_this}", f"some of {', '.join(Pressure)}"
        given = check_each(name, self.on_pressure, str, expected)
        try:
            steps = tuple(Pressure(step) for step in given)
        except ValueError as error:
            raise ConfigurationError(
                f"{name} is {self.on_pressure!r}; expected {expected}."
            ) from error
        if Pressure.REJECT in steps:
            steps = steps[: steps.index(Pressure.REJECT)]
        if Pressure.DOWNGRADE in steps and not (self.downgrade_profile or self.min_output_tokens):
            raise ConfigurationError(
                f"traffic class {self.name!r} may be downgraded, but not to what; set "
                "downgrade_profile or min_output_tokens."
            )
        return steps


#: A person waits: a short queue, then elsewhere.
INTERACTIVE: Final = TrafficClass(
    name="interactive",
    weight=8.0,
    max_queue_items=100,
    max_wait=2.0,
    on_pressure=(Pressure.REROUTE, Pressure.QUEUE),
)

#: An agent streams: it waits a while, and holds a connection for long.
STREAMING_AGENT: Final = TrafficClass(
    name="streaming-agent",
    weight=4.0,
    max_queue_items=200,
    max_wait=15.0,
    borrowed_max_stream=300.0,
    on_pressure=(Pressure.QUEUE, Pressure.REROUTE),
)

#: Nobody waits: a deep queue, for long.
BATCH: Final = TrafficClass(
    name="batch",
    weight=1.0,
    max_queue_items=10_000,
    max_wait=600.0,
    may_use_guarantee=False,
    borrowed_max_stream=120.0,
    is_preemptible=True,
    on_pressure=(Pressure.QUEUE,),
)

#: Evaluation and backfill: what is left.
BACKFILL: Final = TrafficClass(
    name="backfill",
    weight=0.25,
    max_queue_items=10_000,
    max_wait=3600.0,
    may_use_guarantee=False,
    borrowed_max_stream=120.0,
    is_preemptible=True,
    on_pressure=(Pressure.QUEUE,),
)

DEFAULT_CLASSES: Final[Mapping[str, TrafficClass]] = MappingProxyType(
    {each.name: each for each in (INTERACTIVE, STREAMING_AGENT, BATCH, BACKFILL)}
)


def by_name(classes: Iterable[TrafficClass]) -> Mapping[str, TrafficClass]:
    """Return the classes by their names.

    Raises:
        ConfigurationError: If two have one name, or something is no class.
    """
    found: dict[str, TrafficClass] = {}
    for each in check_each("classes", classes, TrafficClass, "TrafficClass objects"):
        if each.name in found:
            raise ConfigurationError(
                f"traffic class {each.name!r} is given twice; names must be unique."
            )
        found[each.name] = each
    return MappingProxyType(found)
