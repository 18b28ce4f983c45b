"""Pictures of a simulated load, by matplotlib, which comes with the extra `plots`."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from chatrouting.errors import ConfigurationError, MissingExtraError
from chatrouting.simulation.records import SimulationResult
from chatrouting.simulation.summary import Group, by_class, by_tenant, over_time

__all__ = ["check_picture", "save_picture"]

# What draws is tested where the extra is installed, which development does not ask for.

_POINTS: Final = 400
_MINUTE: Final = 60.0
_SIZE: Final = (9.0, 9.0)
#: Told apart by the colour-blind, too (Okabe and Ito).
_ASKED: Final = "#cccccc"
_GOT: Final = "#0072b2"
_LIMIT: Final = "#d55e00"
_FORMATS: Final = (".png", ".svg", ".pdf")


def check_picture(path: Path) -> None:
    """See whether a picture can be saved, before the work is done.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        ConfigurationError: If it is no kind of picture, or its folder does not exist.
    """
    if path.suffix not in _FORMATS:
        raise ConfigurationError(
            f"{path} is no picture that can be drawn; expected a name in {', '.join(_FORMATS)}."
        )
    if not path.parent.is_dir():
        raise ConfigurationError(f"{path} cannot be saved: {path.parent} is no folder.")
    if find_spec("matplotlib") is None:
        raise MissingExtraError(
            "the package matplotlib, which draws, is not installed. "
            "Run: pip install 'chatrouting[plots]'"
        )


def save_picture(result: SimulationResult, path: Path) -> None:  # pragma: no cover
    """Draw offered and admitted load, waits by class and shares by tenant."""
    # By name, since the package has no types.
    figure: Any = import_module("matplotlib.figure").Figure(figsize=_SIZE, layout="constrained")
    rates, waits, shares = figure.subplots(3, 1)
    _draw_rates(result, rates)
    _draw_waits(by_class(result), waits)
    _draw_shares(by_tenant(result), shares)
    figure.savefig(path)


def _draw_rates(result: SimulationResult, axes: Any) -> None:  # pragma: no cover
    series = over_time(result, _POINTS)
    minutes = [time / _MINUTE for time in series.times]
    axes.fill_between(minutes, _percent(series.offered), color=_ASKED, label="offered")
    axes.plot(minutes, _percent(series.admitted), color=_GOT, label="admitted")
    axes.axhline(100, color=_LIMIT, linestyle="--", label="what providers grant")
    axes.set(
        title=result.tightest, xlabel="minutes", ylabel="% of a minute's limit", ylim=(0, None)
    )
    axes.legend(loc="lower right")


def _draw_waits(groups: Sequence[Group], axes: Any) -> None:  # pragma: no cover
    names = [each.name for each in groups]
    for label, marker, waits in (
        ("half", "o", [each.waits.p50 for each in groups]),
        ("95 %", "s", [each.waits.p95 for each in groups]),
        ("99 %", "D", [each.waits.p99 for each in groups]),
    ):
        axes.plot([max(wait, 0.001) for wait in waits], names, marker, label=label)
    axes.set(title="waits of those served, by class", xlabel="seconds", xscale="log")
    axes.margins(y=0.3)
    axes.legend()


def _draw_shares(groups: Sequence[Group], axes: Any) -> None:  # pragma: no cover
    names = [each.name or "(nobody)" for each in groups]
    axes.bar(names, _percent([each.offered_share for each in groups]), color=_ASKED, label="asked")
    got = _percent([each.served_share for each in groups])
    axes.bar(names, got, color=_GOT, width=0.4, label="got")
    axes.set(title="shares, by tenant", ylabel="% of all")
    axes.legend()


def _percent(values: Sequence[float]) -> list[float]:  # pragma: no cover
    return [100 * value for value in values]
