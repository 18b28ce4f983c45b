"""`chatrouting quota check`: what a file of limits comes to.

Each bucket with its limits, the classes, what each tenant is guaranteed and how firmly, and what is
worth knowing besides.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from chatrouting.cli.quota_advice import advise
from chatrouting.cli.terminal import Cell, Column, Style, Table, Terminal, duration, shorten
from chatrouting.quota.classes import TrafficClass
from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.guarantees import GuaranteeKind, GuaranteePlan, Portion
from chatrouting.quota.limits import BucketKey, BucketLimits, ProviderScope, QuotaLimit
from chatrouting.quota.limits_file import LimitsFile

__all__ = ["amount", "show_limits", "span"]

_LIMITS: Final = (
    Column("bucket"),
    Column("dimension"),
    Column("limit", is_number=True),
    Column("window"),
    Column("headroom", is_number=True),
    Column("usable", is_number=True),
)
_CLASSES: Final = (
    Column("class"),
    Column("weight", is_number=True),
    Column("queue", is_number=True),
    Column("max wait", is_number=True),
    Column("guarantee"),
    Column("borrows"),
    Column("under pressure"),
)
_GUARANTEES: Final = (
    Column("tenant"),
    Column("weight", is_number=True),
    Column("guarantee"),
    Column("dimension"),
    Column("its own", is_number=True),
    Column("window"),
    Column("at once", is_number=True),
)
_KINDS: Final[Mapping[GuaranteeKind, tuple[str, Style]]] = {
    GuaranteeKind.INSTANT: ("instant", "good"),
    GuaranteeKind.LONG_RUN: ("long run", "odd"),
    GuaranteeKind.NONE: ("none", "dim"),
}
#: Columns that the other columns of a table need, about.
_OTHERS: Final = 62
_MOST_TENANTS: Final = 20
_LARGE: Final = 100
_MINUTE: Final = 60.0


def show_limits(limits: LimitsFile, out: Terminal) -> None:
    """Show what limits come to.

    Args:
        limits: Valid ones.
        out: Where it goes.
    """
    counts = (
        (len(limits.deployments), "deployment"),
        (len(limits.ceilings) + len(limits.default_ceilings), "ceiling"),
        (len(limits.contracts), "contract"),
        (len(limits.classes), "class"),
    )
    many = ", ".join(_many(count, word) for count, word in counts)
    out.print(out.paint(f"{limits.source}: {many}", "bold"), "")
    out.table(Table(_LIMITS, list(_limit_rows(limits, _room(out))), "Limits"))
    out.print("")
    out.table(Table(_CLASSES, [_class_row(each) for each in limits.classes], "Classes"))
    _show_guarantees(limits, out)
    advice = advise(limits)
    if advice:
        out.print("", out.paint("Good to know", "bold"))
        for told in advice:
            out.prose(f"- {told}", "odd", indent="  ")


def amount(value: float) -> str:
    """Write an amount for a reader."""
    return f"{value:,.0f}" if value >= _LARGE or value == int(value) else f"{value:.3g}"


def span(seconds: float) -> str:
    """Write a time for a reader, of any length."""
    return duration(seconds) if seconds < _MINUTE else f"{seconds / _MINUTE:.3g} min"


def _room(out: Terminal) -> int | None:
    """Return how wide a name may be for all columns to be seen."""
    return None if out.width is None else max(12, out.width - _OTHERS)


def _limit_rows(limits: LimitsFile, room: int | None) -> Iterator[list[Cell]]:
    scopes: dict[ProviderScope, list[QuotaDeployment]] = {}
    for each in limits.deployments:
        scopes.setdefault(each.scope, []).append(each)
    for sharing in scopes.values():
        names = ", ".join(each.name for each in sharing)
        yield from _bucket_rows(f"{names} ({sharing[0].profile.name})", sharing[0].limits, room)
    for key, bucket in limits.ceilings.items():
        yield from _bucket_rows(_key(key), bucket, room)
    for level, bucket in limits.default_ceilings.items():
        yield from _bucket_rows(f"any other {level.value}", bucket, room)


def _bucket_rows(name: str, bucket: BucketLimits, room: int | None) -> Iterator[list[Cell]]:
    for number, limit in enumerate(bucket.limits):
        yield [
            Cell("" if number else shorten(name, room)),
            Cell(limit.dimension),
            Cell(amount(limit.amount)),
            Cell(_window(limit)),
            Cell(f"{limit.headroom * 100:.3g} %" if limit.headroom else "-"),
            Cell(amount(limit.usable)),
        ]


def _key(key: BucketKey) -> str:
    within = [each for each in key.within if each is not None]
    return f"{key.level.value} {'/'.join([*within, key.id])}"


def _window(limit: QuotaLimit) -> str:
    return limit.span if limit.burst is None else f"{limit.span}, {limit.burst:g} s at once"


def _class_row(each: TrafficClass) -> list[Cell]:
    return [
        Cell(each.name),
        Cell("control" if each.is_control else f"{each.weight:g}"),
        Cell(amount(each.max_queue_items)),
        Cell(span(each.max_wait)),
        Cell("yes" if each.may_use_guarantee else "no"),
        Cell("yes" if each.may_borrow else "no"),
        Cell(", ".join(each.on_pressure) or "reject"),
    ]


def _show_guarantees(limits: LimitsFile, out: Terminal) -> None:
    if not limits.contracts:
        out.print("", "No tenant has a contract: all share what there is alike.")
        return
    governor = limits.make_governor()
    for each in limits.deployments:
        plan = governor.guarantees(each.name)
        rows = list(_guarantee_rows(plan, _room(out)))
        out.print("")
        out.table(Table(_GUARANTEES, rows, f"Guarantees at {each.name}"))
        if len(plan.guarantees) > _MOST_TENANTS:
            out.print(f"and {len(plan.guarantees) - _MOST_TENANTS} tenants more")
        out.print(f"{plan.pool_share * 100:.3g} % of each belong to nobody, for whoever comes.")


def _guarantee_rows(plan: GuaranteePlan, room: int | None) -> Iterator[list[Cell]]:
    for guarantee in list(plan.guarantees.values())[:_MOST_TENANTS]:
        text, style = _KINDS[guarantee.kind]
        first = [
            Cell(shorten(guarantee.tenant, room)),
            Cell(f"{guarantee.weight:g}"),
            Cell(text, style),
        ]
        if guarantee.kind is GuaranteeKind.NONE:
            yield [*first, *_blank(4)]
            continue
        for number, portion in enumerate(guarantee.portions):
            yield [*(_blank(3) if number else first), *_portion(portion)]


def _portion(portion: Portion) -> list[Cell]:
    return [
        Cell(portion.dimension),
        Cell(amount(portion.amount)),
        Cell(portion.span),
        Cell(amount(portion.burst), None if portion.is_instant else "odd"),
    ]


def _blank(count: int) -> list[Cell]:
    return [Cell("")] * count


def _many(count: int, word: str) -> str:
    plural = "classes" if word == "class" else f"{word}s"
    return f"{count} {word if count == 1 else plural}"
