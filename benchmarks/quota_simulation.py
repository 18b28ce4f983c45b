"""What a quota governor does with a load that is too much, in virtual time, by a seed.

Strict providers, each counting in its own way, and the scenarios in which limiters go wrong:
refunds, cold bursts, a tenant that comes back, long streams, estimates that drift. The governor,
the limiter and the load are the library's own; only time is not real.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from _quota_worlds import (
    BURST,
    GRANTED,
    MINUTE,
    PATIENT,
    SHARED,
    Limiter,
    Points,
    Ring,
    TokenBucket,
    binned,
    deployment,
    flow,
    governing,
    greedy,
    play,
    quantile,
    rate_of,
    rolling,
    share_of,
    waits,
    worst,
)
from _report import Report, arguments, number

from chatrouting.quota import DEFAULT_CLASSES, TenantContract
from chatrouting.simulation import Fate, LoadStream, ProviderLimiter, SimulationResult, simulate

#: Offered for each one that there is room for.
OVERLOAD: Final = 3.0
#: A request of the usual load.
USUAL: Final = LoadStream(
    requests_per_minute=1.0, input_tokens=600, output_tokens=150, max_output_tokens=400
)
#: A lone tenant's neighbour, and an owner of slots, are assured of it.
ASSURED: Final = 0.3


def asking(
    profile: str,
    of_capacity: float,
    tenant: str = "",
    request_class: str = PATIENT.name,
    *,
    granted: Mapping[str, float] | None = None,
    **changes: Any,
) -> LoadStream:
    """Return a load that asks for so much of what there is."""
    stream = replace(USUAL, tenant=tenant, request_class=request_class, **changes)
    return replace(stream, requests_per_minute=of_capacity * rate_of(profile, stream, granted))


def percent(part: float) -> str:
    """Write a part as a percentage."""
    return f"{100 * part:.1f} %"


def answered(result: SimulationResult) -> int:
    """Count the answers."""
    return sum(each.fate is Fate.ANSWERED for each in result.records)


# The load that is too much.


def overload(report: Report, *, is_quick: bool) -> None:
    """Send three times the limits to every kind of provider: exact, estimated, and ungoverned."""
    duration = 60.0 if is_quick else 120.0
    rows: list[list[str]] = []
    used: dict[str, list[float]] = {"exact": [], "estimated": []}
    refused = {"governed": 0, "not": 0}
    for profile in ("openai", "anthropic") if is_quick else GRANTED:
        load = [asking(profile, OVERLOAD)]
        exact = play(profile, load, duration=duration, knowledge="exact")
        estimated = play(profile, load, duration=duration)
        bare = play(profile, load, duration=duration, is_governed=False)
        used["exact"].append(exact.utilisation)
        used["estimated"].append(estimated.utilisation)
        refused["governed"] += exact.provider_refusals + estimated.provider_refusals
        refused["not"] += bare.provider_refusals
        results = (exact, estimated, bare)
        rows.append(
            [
                profile,
                f"{len(exact.records):,}",
                *(percent(each.utilisation) for each in results),
                *(f"{answered(each):,}" for each in results),
                *(f"{each.provider_refusals:,}" for each in results),
            ]
        )
        if profile in ("openai", "anthropic"):
            width = duration / 60
            report.samples[f"overload: {profile}"] = {
                "width": width,
                "governed": flow(estimated, width),
                "not": _answers(bare, width),
            }
    report.table(
        f"Three times the limits for {duration:g} s: exact estimates, learnt ones, and no governor "
        "but the SDK's two retries",
        [
            "provider",
            "offered",
            *("used: exact", "learnt", "SDK retries"),
            *("answered: exact", "learnt", "SDK retries"),
            *("refused by it: exact", "learnt", "SDK retries"),
        ],
        rows,
    )
    if not is_quick:
        _pacing(report, duration)
    report.claim("requests that a provider refused, of all admitted", refused["governed"], 0, "")
    report.claim(
        "least use of a provider's limit, estimates exact",
        100 * min(used["exact"]),
        95,
        "%",
        is_floor=True,
    )
    report.claim(
        "the same, estimates learnt, at their 95th percentile",
        100 * min(used["estimated"]),
        85,
        "%",
        is_floor=True,
    )


def _pacing(report: Report, duration: float) -> None:
    """Tell what it costs that a paced limit cannot give back what was estimated too high."""
    rows: list[list[str]] = []
    for profile in ("openai", "anthropic"):
        load = [asking(profile, OVERLOAD)]
        found = [play(profile, load, duration=duration, burst=each) for each in (None, BURST)]
        rows.append([profile, *(percent(each.utilisation) for each in found)])
    report.table(
        "Use of the limit with learnt estimates, by how much may be sent at once",
        ["provider", "a window's worth", f"{BURST:g} s' worth"],
        rows,
    )


def _answers(result: SimulationResult, width: float) -> dict[str, Points]:
    """Return what was offered, and what was answered, by the time that it was first sent."""
    offered = binned(result, width, by=lambda _: "offered", at=lambda each: each.at)
    got = binned(
        result,
        width,
        by=lambda each: "answered" if each.fate is Fate.ANSWERED else None,
        at=lambda each: each.sent_at,
    )
    return {**offered, **got}


# Limiters that give back.


def refunds(report: Report) -> None:
    """Estimate 4,000; answers have 100 tokens for 200 s, and then all of the 4,000."""
    limit, until = 60_000.0, 500.0
    kinds: Mapping[str, Callable[[], Limiter]] = {
        "token bucket, gives back": lambda: TokenBucket(limit, refunds=True),
        "token bucket, gives nothing back": lambda: TokenBucket(limit, refunds=False),
        "ring of this library": lambda: Ring(limit),
    }
    rows, most = list[list[str]](), 0.0
    series: dict[str, Points] = {}
    for kind, make in kinds.items():
        cells = list[str]()
        for seconds in (5.0, 30.0, 90.0):
            times, amounts = greedy(
                make(),
                estimate=4_000,
                output=lambda at: 100 if at < 200 else 4_000,  # noqa: PLR2004
                seconds=seconds,
                start=0.0,
                until=until,
            )
            over = worst(times, amounts) / limit
            cells.append(f"{over:.2f}")
            if kind.startswith("ring"):
                most = max(most, over)
            if seconds == 30.0:  # noqa: PLR2004
                minute = rolling(times, amounts, step=5.0, until=until)
                series[kind] = [round(each / limit, 3) for each in minute]
        rows.append([kind, *cells])
    report.samples["refunds"] = {"width": 5.0, "series": series}
    report.table(
        "Refunds: tokens of the worst minute, by when their requests came, in limits",
        ["limiter", "answers of 5 s", "30 s", "90 s"],
        rows,
    )
    report.claim("worst minute of the ring, in limits", most, 1.0, "")


def cold_burst(report: Report, *, is_quick: bool) -> None:
    """Nothing for a minute, and then everybody at once; Azure judges ten seconds."""
    bucket, ring = (
        greedy(each, estimate=1, output=lambda _: 1, seconds=0.0, start=60.0, until=240.0)
        for each in (TokenBucket(1_200, refunds=False), Ring(1_200))
    )
    over = {"token bucket": worst(*bucket) / 1_200, "ring": worst(*ring) / 1_200}
    granted = {"requests": 600.0, "total_tokens": 3_000_000.0}
    stream = replace(USUAL, request_class=PATIENT.name, start=60.0)
    load = [replace(stream, requests_per_minute=OVERLOAD * 600)]
    duration = 80.0 if is_quick else 150.0
    governed = play("azure", load, duration=duration, granted=granted)
    bare = play("azure", load, duration=duration, granted=granted, is_governed=False)
    report.samples["cold burst"] = {
        "width": 2.0,
        "governed": flow(governed, 2.0),
        "not": _answers(bare, 2.0),
    }
    rows = [[f"{kind}: worst minute, in limits", f"{value:.2f}"] for kind, value in over.items()]
    rows += [
        [f"Azure, {how}: refused by it", f"{each.provider_refusals:,}"]
        for how, each in (("governed", governed), ("SDK retries", bare))
    ]
    report.table("A cold burst: nothing for a minute, then three times the limit", ["", ""], rows)
    report.claim("worst minute after a cold start, in limits", over["ring"], 1.0, "")
    report.claim("refused by Azure in a cold burst", governed.provider_refusals, 0, "")


# Tenants.


def returning(report: Report, *, is_quick: bool) -> None:
    """One tenant has everything for some minutes; then another comes back for its guarantee."""
    back, duration = (60.0, 120.0) if is_quick else (180.0, 300.0)
    contract = TenantContract(share=ASSURED, burst_share=0.05)
    load = [
        asking("openai", OVERLOAD / 2, "alone", granted=SHARED),
        asking("openai", 0.6 * ASSURED, "returning", "interactive", granted=SHARED, start=back),
    ]
    contracts = dict.fromkeys(("alone", "returning"), contract)
    result = play(
        "openai",
        load,
        duration=duration,
        granted=SHARED,
        contracts=contracts,
        knowledge="exact",
    )
    mine = [each for each in result.records if each.tenant == "returning"]
    waited = waits(mine)
    at_once = sum(each.wait <= 0.001 for each in mine if each.sent_at is not None)  # noqa: PLR2004
    alone = sum(
        share_of(each, result.tightest)
        for each in result.records
        if each.sent_at is not None and each.sent_at < back
    )
    used = alone / (back / MINUTE)
    report.samples["returning"] = {
        "width": 10.0,
        "back": back,
        "shares": binned(result, 10.0, by=lambda each: each.tenant, at=lambda each: each.sent_at),
    }
    report.table(
        "A tenant comes back for its guarantee of 30 %, which another has borrowed",
        ["", ""],
        [
            ["use of the limit by one tenant alone", percent(used)],
            ["requests of the one that came back", f"{len(mine):,}"],
            ["of those, let go at once", percent(at_once / max(1, len(mine)))],
            ["longest wait of those, s", f"{max(waited, default=0.0):.3f}"],
            ["refused by the provider", f"{result.provider_refusals}"],
        ],
    )
    report.claim("use by a tenant that is alone", 100 * used, 90, "%", is_floor=True)
    report.claim(
        "longest wait of a tenant within its guarantee", max(waited, default=0.0), 0.001, "s"
    )


def weighted(report: Report, *, is_quick: bool) -> None:
    """Three tenants in a backlog, of weights 1, 3 and 6."""
    duration = 90.0 if is_quick else 300.0
    weights = {"weight 1": 1.0, "weight 3": 3.0, "weight 6": 6.0}
    contracts = {name: TenantContract(weight=weight) for name, weight in weights.items()}
    load = [asking("openai", 0.8, name, granted=SHARED) for name in weights]
    result = play(
        "openai",
        load,
        duration=duration,
        granted=SHARED,
        contracts=contracts,
        knowledge="exact",
        burst=BURST,
    )
    given = Counter[str]()
    for each in result.records:
        if each.sent_at is not None and each.sent_at >= MINUTE:
            given[each.tenant] += share_of(each, result.tightest)  # type: ignore[assignment]
    whole, all_weights = sum(given.values()), sum(weights.values())
    off = max(abs(given[name] / whole - each / all_weights) for name, each in weights.items())
    width = 10.0
    report.samples["weighted"] = {
        "width": width,
        "shares": binned(result, width, by=lambda each: each.tenant, at=lambda each: each.sent_at),
    }
    report.table(
        "Shares of three tenants in a backlog",
        ["tenant", "promised", "got"],
        [
            [name, percent(each / all_weights), percent(given[name] / whole)]
            for name, each in weights.items()
        ],
    )
    report.claim("largest distance from the promised share", 100 * off, 1.0, "points")


def flood(report: Report, *, is_quick: bool) -> None:
    """People chat and agents stream all the time; then batch asks for more than all there is."""
    begins, ends, duration = (20.0, 60.0, 60.0) if is_quick else (60.0, 180.0, 240.0)
    granted = {name: 4 * amount for name, amount in SHARED.items()}
    load = [
        asking("openai", 0.3, "people", "interactive", granted=granted),
        asking("openai", 0.2, "agents", "streaming-agent", granted=granted),
        asking("openai", 1.2, "jobs", "batch", granted=granted, start=begins, stop=ends),
    ]
    result = play("openai", load, duration=duration, granted=granted, burst=BURST)
    by_class = {
        name: [each for each in result.records if each.request_class == name]
        for name in ("interactive", "streaming-agent", "batch")
    }
    rows: list[list[str]] = []
    for name, records in by_class.items():
        waited = waits(records)
        gone = sum(each.fate is Fate.REFUSED for each in records)
        rows.append(
            [
                name,
                f"{len(records):,}",
                *(f"{quantile(waited, part):.2f}" for part in (0.5, 0.95, 0.99)),
                f"{DEFAULT_CLASSES[name].max_wait:g}",
                f"{gone:,}",
            ]
        )
    report.samples["flood"] = {
        "width": 10.0,
        "begins": begins,
        "ends": ends,
        "waits": {
            name: _wait_series(records, 10.0, duration) for name, records in by_class.items()
        },
        "shares": binned(
            result, 10.0, by=lambda each: each.request_class, at=lambda each: each.sent_at
        ),
    }
    report.table(
        "A flood of batch: waits by class, s",
        ["class", "requests", "p50", "p95", "p99", "longest allowed", "turned away"],
        rows,
    )
    report.claim(
        "99th percentile of interactive waits in a flood of batch",
        quantile(waits(by_class["interactive"]), 0.99),
        DEFAULT_CLASSES["interactive"].max_wait,
        "s",
    )
    lost = sum(each.fate is Fate.REFUSED for each in by_class["interactive"])
    report.claim(
        "interactive requests turned away meanwhile",
        100 * lost / max(1, len(by_class["interactive"])),
        1.0,
        "%",
    )


def _wait_series(records: list[Any], width: float, until: float) -> Points:
    """Return the 95th percentile of waits, by when the requests came."""
    bins: list[list[float]] = [[] for _ in range(int(until / width))]
    for each in records:
        if each.sent_at is not None and each.at < until:
            bins[int(each.at / width)].append(each.wait)
    return [round(quantile(sorted(each), 0.95), 3) for each in bins]


# What is held, and what is guessed.


def long_streams(report: Report, *, is_quick: bool) -> None:
    """Twenty slots, streams of a minute and more, and an owner of six slots who comes back."""
    back, duration = (200.0, 400.0) if is_quick else (600.0, 1200.0)
    contracts = {"owner": TenantContract(share=ASSURED)}
    granted = {"concurrency": 20.0}
    common: dict[str, Any] = {"input_tokens": 300, "tokens_per_second": 20.0, "spread": 0.3}
    load = [
        LoadStream(
            tenant="borrower",
            requests_per_minute=40.0,
            request_class="batch",
            output_tokens=1_500,
            **common,
        ),
        LoadStream(
            tenant="owner",
            requests_per_minute=10.0,
            request_class="interactive",
            output_tokens=200,
            start=back,
            **common,
        ),
    ]
    result = play("self_hosted", load, duration=duration, granted=granted, contracts=contracts)
    mine = [each for each in result.records if each.tenant == "owner"]
    lost = sum(each.fate is Fate.REFUSED for each in mine)
    waited = waits(mine)
    cut = sum(each.fate is Fate.CUT_OFF for each in result.records)
    report.table(
        "Long streams: twenty slots, and an owner of six who comes back",
        ["", ""],
        [
            ["requests of the owner", f"{len(mine):,}"],
            ["turned away", f"{lost:,}"],
            ["p99 of their waits, s", f"{quantile(waited, 0.99):.2f}"],
            ["borrowed streams that ended at their class's two minutes", f"{cut:,}"],
        ],
    )
    report.claim("99th percentile of the owner's waits", quantile(waited, 0.99), 2.0, "s")


def drift(report: Report, *, is_quick: bool) -> None:
    """Answers become four times as long, and later short again; nobody says so."""
    first, second, duration = (30.0, 60.0, 90.0) if is_quick else (120.0, 240.0, 360.0)
    short: dict[str, Any] = {"output_tokens": 100, "max_output_tokens": 2_000}
    long: dict[str, Any] = {"output_tokens": 400, "max_output_tokens": 2_000}
    load = [
        asking("anthropic", OVERLOAD, stop=first, **short),
        asking("anthropic", OVERLOAD, start=first, stop=second, **long),
        asking("anthropic", OVERLOAD, start=second, **short),
    ]
    result = play("anthropic", load, duration=duration)
    width = 10.0
    report.samples["drift"] = {
        "width": width,
        "changes": [first, second],
        "governed": flow(result, width),
    }
    report.table(
        "Estimates drift: answers four times as long, and short again",
        ["", ""],
        [
            ["requests", f"{len(result.records):,}"],
            ["answered", f"{answered(result):,}"],
            ["use of the limit", percent(result.utilisation)],
            ["refused by the provider", f"{result.provider_refusals:,}"],
        ],
    )
    report.claim(
        "refused by the provider while estimates drift, of those sent",
        100 * result.provider_refusals / max(1, answered(result) + result.provider_refusals),
        1.0,
        "%",
    )


def output_apart(report: Report, *, is_quick: bool) -> None:
    """Reserve output, or check only requests and input; streams break off without output left."""
    granted = {"requests": 600.0, "input_tokens": 1_000_000.0, "output_tokens": 60_000.0}
    load = [
        LoadStream(
            requests_per_minute=250,
            request_class=PATIENT.name,
            input_tokens=3_000,
            output_tokens=600,
            max_output_tokens=2_000,
        )
    ]
    duration = 60.0 if is_quick else 240.0
    rows, broken = list[list[str]](), dict[str, int]()
    for name, unchecked in (("requests and input", ("output_tokens",)), ("output too", ())):
        result = play(
            "anthropic",
            load,
            duration=duration,
            granted=granted,
            unchecked=unchecked,
            breaks_streams=True,
        )
        fates = Counter(each.fate for each in result.records)
        broken[name] = fates[Fate.BROKEN_OFF]
        rows.append(
            [
                name,
                f"{fates[Fate.ANSWERED]:,}",
                f"{broken[name]:,}",
                f"{result.provider_refusals:,}",
                percent(result.utilisation),
            ]
        )
    report.table(
        "Long contexts before a provider that breaks streams off when it has no output left",
        ["checked", "answered", "broken off", "refused by it", "use of its limit"],
        rows,
    )
    report.claim("streams broken off if output is reserved too", broken["output too"], 0, "")


# Size.


def many(report: Report, *, is_quick: bool) -> None:
    """Play ten thousand tenants before a hundred deployments, of which each asks three."""
    tenants, places, duration = (100, 3, 60.0) if is_quick else (10_000, 100, 60.0)
    granted = {"requests": 40.0, "input_tokens": 100_000.0}
    names = [f"d{number}" for number in range(places)]
    capacity = places * rate_of("gemini", USUAL, granted)
    load = [
        replace(
            USUAL,
            tenant=f"t{number}",
            requests_per_minute=1.2 * capacity / tenants,
            request_class=("interactive", "streaming-agent", "batch")[number % 3],
            deployments=tuple(names[(number * 7 + step) % places] for step in (0, 1, 3)),
        )
        for number in range(tenants)
    ]
    providers = {name: ProviderLimiter("gemini", granted) for name in names}
    make = governing(*(deployment(name, "gemini", granted, scope=name) for name in names))
    began = time.process_time()
    result = simulate(load, providers, make_governor=make, duration=duration)
    spent = time.process_time() - began
    fates = Counter(each.fate for each in result.records)
    report.table(
        f"{tenants:,} tenants, {places} deployments, 1.2 times their limits for {duration:g} s",
        ["", ""],
        [
            ["requests", f"{len(result.records):,}"],
            ["answered", f"{fates[Fate.ANSWERED]:,}"],
            ["turned away by the governor", f"{fates[Fate.REFUSED]:,}"],
            ["mean use of a limit", percent(result.utilisation)],
            ["refused by a provider", f"{result.provider_refusals:,}"],
            ["CPU for each request, ms", number(1000 * spent / len(result.records))],
        ],
    )
    report.claim(
        f"refused by a provider, of {len(result.records):,} requests of {tenants:,} tenants",
        result.provider_refusals,
        0,
        "",
    )


def main() -> None:
    """Play all scenarios and tell of them."""
    options = arguments(__doc__).parse_args()
    # Each refusal by a provider would be a line.
    logging.getLogger("chatrouting").setLevel(logging.CRITICAL)
    title = "A quota governor under loads that are too much, in virtual time"
    report = Report("quota_simulation", title, options.quick, turns=1)
    overload(report, is_quick=options.quick)
    refunds(report)
    cold_burst(report, is_quick=options.quick)
    returning(report, is_quick=options.quick)
    weighted(report, is_quick=options.quick)
    flood(report, is_quick=options.quick)
    long_streams(report, is_quick=options.quick)
    drift(report, is_quick=options.quick)
    output_apart(report, is_quick=options.quick)
    many(report, is_quick=options.quick)
    report.tell(save=options.save)


if __name__ == "__main__":
    main()
