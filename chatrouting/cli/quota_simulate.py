"""`chatrouting quota simulate`: how a load would fare under limits, beside one without a governor.

Nothing is sent: the load is played through the governor in virtual time, before providers as strict
as they may be. Results go to standard output, the progress to standard error.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from chatrouting.cli.arguments import FAILED
from chatrouting.cli.quota import amount, span
from chatrouting.cli.terminal import Cell, Column, Style, Table, Terminal, progress_bar
from chatrouting.cli.text_plots import Bar, area, bar, log_bar
from chatrouting.quota.classes import TrafficClass
from chatrouting.simulation.records import Fate, SimulationResult
from chatrouting.simulation.scenario import Scenario
from chatrouting.simulation.summary import Group, by_class, by_tenant, in_all, over_time

__all__ = ["play_both", "show_simulation"]

_TOTALS: Final = (
    Column("requests"),
    Column("governed", is_number=True),
    Column("without a governor", is_number=True),
)
_CLASSES: Final = (
    Column("class"),
    Column("offered", is_number=True),
    Column("served", is_number=True),
    Column("refused", is_number=True),
    Column("waiting", is_number=True),
    Column("p50", is_number=True),
    Column("p95", is_number=True),
    Column("p99", is_number=True),
)
_TENANTS: Final = (
    Column("tenant"),
    Column("weight", is_number=True),
    Column("own", is_number=True),
    Column("asked", is_number=True),
    Column("got", is_number=True),
    Column(""),
)
_SERVED: Final = (Fate.ANSWERED, Fate.RUNNING, Fate.CUT_OFF)
_HEIGHT: Final = 10
_NARROWEST: Final = 40
_WIDEST: Final = 120
_AXIS: Final = 10
_BAR: Final = 30
_NAME: Final = 20
_MOST_TENANTS: Final = 20
_LEAST_WAIT: Final = 0.01
_MINUTE: Final = 60.0


def play_both(scenario: Scenario, notes: Terminal) -> tuple[SimulationResult, SimulationResult]:
    """Play a scenario, and again without a governor.

    Args:
        scenario: What to play.
        notes: Where the progress goes.

    Raises:
        ConfigurationError: If the load does not fit to the limits.
    """
    try:
        governed = scenario.play(on_progress=_progress(notes, scenario, "governed"))
        without = scenario.play(
            is_governed=False, on_progress=_progress(notes, scenario, "without a governor")
        )
    finally:
        notes.status("")
    return governed, without


def show_simulation(
    scenario: Scenario, governed: SimulationResult, without: SimulationResult, out: Terminal
) -> int:
    """Show what became of a load.

    Returns:
        The exit code: 0, or 1 if a provider refused, or broke off, what the governor had let
        through.
    """
    load = "a made-up load" if scenario.is_default_load else "its load"
    out.print(
        out.paint(
            f"{scenario.limits.source}: {scenario.duration / _MINUTE:g} min of {load}, "
            f"seed {scenario.seed}",
            "bold",
        ),
        "",
    )
    out.table(_totals(governed, without))
    known = {each.name: each for each in scenario.limits.classes}
    classes = sorted(by_class(governed), key=lambda each: list(known).index(each.name))
    out.print("")
    out.table(Table(_CLASSES, [_class_row(each) for each in classes], "By class, governed"))
    _show_rates(governed, out)
    _show_waits(classes, known, out)
    _show_tenants(scenario, governed, out)
    has_failed = governed.provider_refusals or _broken_off(in_all(governed))
    return FAILED if has_failed else 0


def _progress(notes: Terminal, scenario: Scenario, what: str) -> Callable[[float], None]:
    whole = round(scenario.duration)

    def tell(now: float) -> None:
        notes.status(f"{progress_bar(min(round(now), whole), max(whole, 1))} s {what}")

    return tell


def _totals(governed: SimulationResult, without: SimulationResult) -> Table:
    ours, theirs = in_all(governed), in_all(without)

    def row(name: str, counted: Callable[[Group], int], style: Style | None = None) -> list[Cell]:
        return [
            Cell(name),
            Cell(f"{counted(ours):,}", style if counted(ours) else None),
            Cell(f"{counted(theirs):,}", style if counted(theirs) else None),
        ]

    rows = [
        row("offered", lambda each: each.offered),
        row("served", lambda each: each.count(*_SERVED)),
        row("  of them cut off", lambda each: each.count(Fate.CUT_OFF)),
        row("refused by the governor", lambda each: each.count(Fate.REFUSED)),
        row("given up after providers' refusals", _given_up),
        row("broken off by providers", _broken_off, "bad"),
        row("still waiting at the end", lambda each: each.count(Fate.WAITING)),
        row("refusals by providers (429)", lambda each: each.provider_refusals, "bad"),
    ]
    limiters = _names(governed)
    rows += [
        [
            Cell(f"used of {name}"),
            Cell(_share(governed.providers[first].utilisation(governed.duration))),
            Cell(_share(without.providers[first].utilisation(without.duration))),
        ]
        for first, name in limiters.items()
    ]
    return Table(_TOTALS, rows)


def _given_up(group: Group) -> int:
    return group.count(Fate.PROVIDER_REFUSED)


def _broken_off(group: Group) -> int:
    return group.count(Fate.BROKEN_OFF)


def _names(result: SimulationResult) -> Mapping[str, str]:
    """Return the quotas: for the first deployment of each, the names of all that share it."""
    sharing: dict[int, list[str]] = {}
    for name, limiter in result.providers.items():
        sharing.setdefault(id(limiter), []).append(name)
    return {names[0]: ", ".join(names) for names in sharing.values()}


def _class_row(group: Group) -> list[Cell]:
    waits = group.waits
    return [
        Cell(group.name),
        Cell(amount(group.offered)),
        Cell(amount(group.count(*_SERVED))),
        Cell(amount(group.count(Fate.REFUSED))),
        Cell(amount(group.count(Fate.WAITING))),
        *(Cell(span(wait)) for wait in (waits.p50, waits.p95, waits.p99)),
    ]


def _show_rates(result: SimulationResult, out: Terminal) -> None:
    dimension = result.tightest
    if not dimension:
        return
    columns = _WIDEST if out.width is None else out.width
    points = min(_WIDEST, max(_NARROWEST, columns)) - _AXIS
    series = over_time(result, points)
    said = f"{dimension}: offered (.), admitted (#), of what providers grant a minute"
    lines = area(
        series.admitted,
        series.offered,
        height=_HEIGHT,
        end=f"{result.duration / _MINUTE:g} min",
    )
    out.print("", out.paint(said, "bold"), *lines)


def _show_waits(classes: Sequence[Group], known: Mapping[str, TrafficClass], out: Terminal) -> None:
    longest = max(known[each.name].max_wait for each in classes)
    most = max(longest, 1.0)
    said = f"Waits from 10 ms to {span(most)}: half (#), 95 % (=), 99 % (-) of those served"
    out.print("", out.paint(said, "bold"))
    for each in classes:
        waits, limit = each.waits, known[each.name].max_wait
        drawn = log_bar(
            Bar((waits.p50, waits.p95, waits.p99), "#=-"),
            width=_BAR,
            least=_LEAST_WAIT,
            most=most,
        )
        said = f"99 % {span(waits.p99)} of {span(limit)}"
        style: Style = "good" if waits.p99 <= limit else "bad"
        out.print(f"{each.name:{_NAME}}|{drawn}| {out.paint(said, style)}")


def _show_tenants(scenario: Scenario, result: SimulationResult, out: Terminal) -> None:
    tenants = by_tenant(result)
    most = max(each.served_share for each in tenants)
    shown = sorted(tenants, key=lambda each: -each.served_share)[:_MOST_TENANTS]
    rows: list[list[Cell]] = []
    for each in shown:
        contract = scenario.limits.contracts.get(each.name)
        rows.append(
            [
                Cell(each.name or "(nobody)"),
                Cell("1" if contract is None else f"{contract.weight:g}"),
                Cell(_share(contract.share) if contract and contract.share else "-"),
                Cell(_share(each.offered_share)),
                Cell(_share(each.served_share)),
                Cell(bar(Bar((each.served_share,), "#"), width=_BAR, most=most or 1.0).rstrip()),
            ]
        )
    out.print("")
    out.table(Table(_TENANTS, rows, "By tenant: parts of all that was asked for, and served"))
    if len(tenants) > len(shown):
        out.print(f"and {len(tenants) - len(shown)} tenants more")


def _share(value: float) -> str:
    return f"{value * 100:.1f} %"
