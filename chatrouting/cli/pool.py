"""`chatrouting pool show`: what the environment makes of a model's endpoints, and why.

Names of variables, addresses and reasons are shown; keys never are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from chatrouting.cli.terminal import Cell, Column, Style, Table, Terminal, wrap
from chatrouting.pool.diagnostics import Discovery, Finding
from chatrouting.pool.endpoint import ApiKey, Endpoint, EndpointMode

__all__ = ["MODES", "show_pool"]

#: Modes, as people write them.
MODES: Final[Mapping[EndpointMode, str]] = {
    EndpointMode.PTU: "PTU",
    EndpointMode.PAYG: "PAYG",
    EndpointMode.UNKNOWN: "-",
}
_MEMBERS: Final = (
    Column("tier", is_number=True),
    Column("member"),
    Column("mode"),
    Column("region"),
    Column("auth"),
    Column("address"),
)
#: Fields of an endpoint that are shown with where they are from, and what they are called.
_FIELDS: Final[Mapping[str, str]] = {
    "url": "address",
    "deployment": "deployment",
    "model": "model",
    "api_version": "version",
    "auth": "auth",
    "priority": "tier",
    "mode": "mode",
    "region": "region",
    "weight": "weight",
    "tpm": "tokens a minute",
    "rpm": "requests a minute",
    "capacity": "capacity",
    "timeout": "time limit",
    "max_retries": "retries",
    "max_concurrency": "",
}
#: Shown also where no variable sets them.
_ALWAYS: Final = ("auth", "timeout", "max_retries", "max_concurrency")
_NOBODY: Final = "not set"
_INDENT: Final = "  "


def show_pool(found: Discovery, out: Terminal) -> bool:
    """Show the members of a pool, where each value is from, and what was passed over.

    Args:
        found: What discovery found.
        out: Where it goes.

    Returns:
        Whether all is as it should be.
    """
    tiers = len({endpoint.priority for endpoint in found.endpoints})
    size = len(found.endpoints)
    title = f"{found.name}: {_many(size, 'member')} in {_many(tiers, 'tier')}"
    out.print(out.paint(title, "bold"), "")
    out.table(Table(_MEMBERS, [_row(endpoint) for endpoint in found.endpoints]))
    _pairs(out, "Where values are from", _sources(found), "dim")
    problems = found.diagnostics.problems
    _pairs(out, "Problems", map(_told, problems), "bad")
    remarks = (_told(each) for each in found.diagnostics.remarks if not each.is_problem)
    _pairs(out, "Good to know", remarks, "odd")
    passed_over = (_told(each) for each in found.diagnostics.skipped if not each.is_problem)
    _pairs(out, "Passed over", passed_over, "dim")
    return not problems


def _row(endpoint: Endpoint) -> list[Cell]:
    return [
        Cell(str(endpoint.priority)),
        Cell(endpoint.id or "-"),
        Cell(MODES[endpoint.mode]),
        Cell(endpoint.region or "-"),
        Cell(_auth(endpoint)),
        Cell(endpoint.url or "-"),
    ]


def _auth(endpoint: Endpoint) -> str:
    return "key" if isinstance(endpoint.auth, ApiKey) else "token"


def _sources(found: Discovery) -> list[tuple[str, str]]:
    """Give each variable with what is from it, and last what is from none."""
    members: dict[tuple[str, str], list[str]] = {}
    for endpoint in found.endpoints:
        origins = found.diagnostics.origins[endpoint.id]
        values: dict[str, list[str]] = {}
        for field in _FIELDS:
            variable = origins.get(field, _NOBODY if field in _ALWAYS else None)
            if variable is not None:
                values.setdefault(variable, []).append(_value(endpoint, field))
        for variable, texts in values.items():
            members.setdefault((variable, ", ".join(texts)), []).append(endpoint.id or "-")
    shown = [(each, _shown(*each, ids, found)) for each, ids in members.items()]
    shown.sort(key=lambda each: each[0][0] == _NOBODY)
    return [(variable, text) for (variable, _), text in shown]


def _shown(variable: str, values: str, ids: Sequence[str], found: Discovery) -> str:
    """Say for whom values are, unless the name of the variable does."""
    is_plain = len(ids) == 1 and variable.endswith(f"_{ids[0]}")
    if is_plain or len(found.endpoints) == 1:
        return values
    whom = "all members" if len(ids) == len(found.endpoints) else ", ".join(ids)
    return f"{values} (for {whom})"


def _value(endpoint: Endpoint, field: str) -> str:
    value: object = getattr(endpoint, field)
    match field:
        case "auth":
            return f"a {_auth(endpoint)}"
        case "mode":
            shown = MODES[endpoint.mode]
        case "timeout":
            shown = "none" if endpoint.timeout is None else f"{endpoint.timeout:g} s"
        case "max_concurrency":
            return f"{'any number' if value is None else value} at once"
        case _:
            shown = str(value)
    return f"{_FIELDS[field]} {shown}"


def _told(finding: Finding) -> tuple[str, str]:
    return finding.variable, finding.reason


def _pairs(out: Terminal, title: str, pairs: Iterable[tuple[str, str]], style: Style) -> None:
    """Show names with a text each: side by side where there is room, else below one another."""
    rows = list(pairs)
    if not rows:
        return
    out.print("", out.paint(title, "bold"))
    widest = max(len(name) for name, _ in rows)
    longest = max(len(text) for _, text in rows)
    margin = _INDENT * 2
    if out.width is None or len(margin) + widest + longest <= out.width:
        out.print(
            *(f"{_INDENT}{name:{widest}}{_INDENT}{out.paint(text, style)}" for name, text in rows)
        )
        return
    for name, text in rows:
        lines = wrap(text, max(out.width - len(margin), 1))
        out.print(_INDENT + name, *(margin + out.paint(line, style) for line in lines))


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
