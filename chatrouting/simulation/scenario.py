"""A simulation as a file of limits describes it, in its table `[simulation]`.

What the file does not say is made up: a load of four tenants that asks twice what there is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, final

from chatrouting.errors import ConfigurationError
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.limits import CONCURRENCY, ProviderScope
from chatrouting.quota.limits_file import LimitsFile
from chatrouting.quota.tables import ANYTHING, COUNT, NUMBER, TEXT, TEXTS, Kind, Tables
from chatrouting.simulation.engine import Knowledge, simulate
from chatrouting.simulation.load import LoadStream
from chatrouting.simulation.provider import ProviderLimiter
from chatrouting.simulation.provider_counting import Arrival
from chatrouting.simulation.records import SimulationResult

_SCENARIO: Final[Mapping[str, Kind]] = {
    "duration": NUMBER,
    "seed": COUNT,
    "knowledge": TEXT,
    "load": ANYTHING,
}
_STREAM: Final[Mapping[str, Kind]] = {
    "tenant": TEXT,
    "requests_per_minute": NUMBER,
    "request_class": TEXT,
    "deployments": TEXTS,
    "input_tokens": NUMBER,
    "output_tokens": NUMBER,
    "spread": NUMBER,
    "max_output_tokens": COUNT,
    "cached_share": NUMBER,
    "first_output": NUMBER,
    "tokens_per_second": NUMBER,
    "start": NUMBER,
    "stop": NUMBER,
}
_DURATION: Final = 600.0
_MINUTE: Final = 60.0
#: Longest answer of a model whose file does not say it.
_MAXIMUM_OUTPUT: Final = 16_384

# The load of a file that describes none.
_TENANTS: Final = ("acme", "globex", "initech", "umbrella")
_INPUT: Final = 1_000.0
_OUTPUT: Final = 250.0
_CAP: Final = 1_000
#: Requests that a quota has room for in a minute, at least; they are made smaller for that.
_LEAST_REQUESTS: Final = 60.0
#: What each class asks for, of all that there is.
_ASKED: Final = (("interactive", 0.4), ("streaming-agent", 0.6), ("batch", 1.0))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is to be played.

    Attributes:
        limits: Under which limits.
        load: Who sends what.
        is_default_load: The file says nothing of a load.
        duration: Seconds.
        seed: Draws the requests.
        knowledge: What the governor is told of a request.
    """

    limits: LimitsFile
    load: tuple[LoadStream, ...]
    is_default_load: bool
    duration: float
    seed: int
    knowledge: Knowledge

    def times(self, factor: float) -> "Scenario":
        """Return it with so many times the requests."""
        more = tuple(
            replace(each, requests_per_minute=each.requests_per_minute * factor)
            for each in self.load
        )
        return replace(self, load=more)

    def providers(self) -> dict[str, ProviderLimiter]:
        """Make what stands behind each deployment: one limiter for each quota."""
        return providers_of(self.limits)

    def play(
        self,
        *,
        is_governed: bool = True,
        on_progress: Callable[[float], object] | None = None,
        backend: Literal["asyncio", "trio"] = "asyncio",
    ) -> SimulationResult:
        """Play it.

        Args:
            is_governed: By the file's governor; else requests go out at once.
            on_progress: Called with the virtual time, now and then.
            backend: The event loop.

        Raises:
            ConfigurationError: If the load does not fit to the limits.
            RuntimeError: Inside an event loop; call it in a thread.
        """
        return simulate(
            self.load,
            self.providers(),
            make_governor=self._governor if is_governed else None,
            duration=self.duration,
            seed=self.seed,
            knowledge=self.knowledge,
            on_progress=on_progress,
            backend=backend,
        )

    def _governor(
        self, clock: Callable[[], float], wall_clock: Callable[[], datetime]
    ) -> QuotaGovernor:
        return self.limits.make_governor(clock=clock, wall_clock=wall_clock)


def read_scenario(limits: LimitsFile) -> Scenario:
    """Read what a file of limits says of a simulation.

    Raises:
        ConfigurationError: If something in it is wrong.
    """
    table = Tables(limits.simulation, limits.source, "simulation")
    values = table.values(_SCENARIO)
    knowledge: Knowledge = values.get("knowledge", "estimated")
    with table.named():
        if knowledge not in ("estimated", "exact"):
            raise ConfigurationError(
                f"knowledge is {knowledge!r}; expected 'estimated' or 'exact'."
            )
    load = tuple(_stream(each, limits) for each in table.each("load"))
    return Scenario(
        limits=limits,
        load=load or default_load(limits),
        is_default_load=not load,
        duration=_duration(values, table),
        seed=values.get("seed", 1),
        knowledge=knowledge,
    )


def providers_of(limits: LimitsFile) -> dict[str, ProviderLimiter]:
    """Make a strict provider for each deployment; those of one scope share one."""
    scopes: dict[ProviderScope, ProviderLimiter] = {}
    found: dict[str, ProviderLimiter] = {}
    for each in limits.deployments:
        if each.scope not in scopes:
            scopes[each.scope] = ProviderLimiter.granting(
                each.profile.name,
                limits.granted[each.name],
                maximum_output=each.maximum_output_tokens or _MAXIMUM_OUTPUT,
            )
        found[each.name] = scopes[each.scope]
    return found


def default_load(limits: LimitsFile) -> tuple[LoadStream, ...]:
    """Make up a load: each tenant sends requests of three classes, twice what there is in all.

    What people wait for alone would have room.
    """
    tenants = tuple(limits.contracts) or _TENANTS
    providers = {id(each): each for each in providers_of(limits).values()}.values()
    scale = min(1.0, *(_scale(each) for each in providers))
    usual = _sized(scale, "", 1.0)
    capacity = sum(_requests_per_minute(each, usual) for each in providers)
    return tuple(
        replace(_sized(scale, tenant, capacity * asked / len(tenants)), request_class=request_class)
        for request_class, asked in _ASKED
        for tenant in tenants
    )


def _sized(scale: float, tenant: str, requests_per_minute: float) -> LoadStream:
    return LoadStream(
        tenant=tenant,
        requests_per_minute=requests_per_minute,
        input_tokens=max(1.0, _INPUT * scale),
        output_tokens=max(1.0, _OUTPUT * scale),
        max_output_tokens=max(1, int(_CAP * scale)),
    )


def _scale(provider: ProviderLimiter) -> float:
    """Return how much smaller than usual requests must be, for enough of them to have room."""
    usual = provider.shares(Arrival(input_tokens=int(_INPUT), cap=_CAP), int(_OUTPUT))
    tokens = [share for name, share in usual.items() if name.endswith("tokens")]
    return 1.0 / (_LEAST_REQUESTS * max(tokens)) if tokens else 1.0


def _requests_per_minute(provider: ProviderLimiter, each: LoadStream) -> float:
    arrival = Arrival(input_tokens=int(each.input_tokens), cap=each.max_output_tokens)
    share = max(provider.shares(arrival, int(each.output_tokens)).values(), default=0.0)
    if share > 0:
        return 1.0 / share
    seconds = each.first_output + each.output_tokens / each.tokens_per_second
    return provider.limits.get(CONCURRENCY, 1.0) * _MINUTE / seconds


def _stream(table: Tables, limits: LimitsFile) -> LoadStream:
    values = table.values(_STREAM, required=("requests_per_minute",))
    values["deployments"] = tuple(values.get("deployments", ()))
    _check_known(table, "deployments", values["deployments"], [e.name for e in limits.deployments])
    if "request_class" in values:
        names = [each.name for each in limits.classes]
        _check_known(table, "request_class", (values["request_class"],), names)
    with table.named():
        return LoadStream(**values)


def _check_known(table: Tables, key: str, names: tuple[str, ...], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"{table.where}: {key} says {name!r}; expected one of {', '.join(known)}."
            )


def _duration(values: dict[str, Any], table: Tables) -> float:
    duration: float = values.get("duration", _DURATION)
    if not 0 < duration < float("inf"):
        raise ConfigurationError(
            f"{table.where}: duration is {duration!r}; expected seconds, more than 0."
        )
    return duration
