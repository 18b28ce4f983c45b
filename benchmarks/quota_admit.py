"""What admitting a request and settling it costs, beside rate limiters of one bucket each.

Six levels of four dimensions: requests, input and output tokens, and concurrency. Beside it stand
the same 24 counters as bare Python, which cannot give back where they were charged, and the
libraries, which would have to be asked 24 times and could not take back what they gave.
"""

import tracemalloc
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

import anyio
import peers
from _measure import Measure, Samples, clock, per_call, rotate
from _report import Report, arguments, number

from chatrouting.options import Principal
from chatrouting.quota.ledger import Denial, Hold, Ledger
from chatrouting.quota.limits import BucketKey, BucketLimits, ProviderScope, QuotaLimit, keys_of

#: Keys that are in use at once: the levels above them are shared.
KEYS = (1, 1_000, 100_000)
#: Requests that run at once.
OPEN = 200
#: Seconds from one request to the next.
STEP = 1 / 2_000
COUNTERS = 24
FLOOR = "bare Python, 24 counters"

LIMITS = BucketLimits(
    (
        QuotaLimit("requests", 1e9),
        QuotaLimit("input_tokens", 1e12),
        QuotaLimit("output_tokens", 1e12),
        QuotaLimit("concurrency", 1e6),
    )
)
CHARGES = {"requests": 1, "input_tokens": 1000, "output_tokens": 500, "concurrency": 1}
USED = {"input_tokens": 990, "output_tokens": 300}

Keys = tuple[BucketKey, ...]


def keys(count: int) -> list[Keys]:
    """Name the buckets of so many API keys."""
    scope = ProviderScope("openai", {"project": "p"})
    return [
        keys_of(
            Principal(organisation="acme", tenant="shop", team="search", api_key=f"key-{each}"),
            model_profile="large",
            scope=scope,
        )
        for each in range(count)
    ]


class Load:
    """Requests on many keys, of which some hundred always run."""

    def __init__(self, ledger: Ledger, names: Sequence[Keys]) -> None:
        self._ledger = ledger
        self._names = names
        self._next = 0
        self._now = 0.0
        self._running: deque[Hold] = deque()
        self.run(max(len(names), 2 * OPEN))

    def run(self, count: int) -> None:
        """Admit requests, and settle as many that began earlier."""
        ledger, names, running = self._ledger, self._names, self._running
        for _ in range(count):
            self._now += STEP
            path = ledger.path(names[self._next % len(names)])
            self._next += 1
            found = ledger.admit(path, CHARGES, self._now)
            if isinstance(found, Denial):
                raise AssertionError(found)  # noqa: TRY004  # no type is wrong
            running.append(found)
            if len(running) > OPEN:
                ledger.settle(running.popleft(), USED, self._now)

    def measure(self, repeat: int) -> Measure:
        """Measure one request of a row."""

        async def measured() -> float:
            started = clock()
            self.run(repeat)
            return (clock() - started) / repeat / 1000

        return measured


class Counter:
    """As little as a window can be: a level, a limit and a time."""

    __slots__ = ("level", "limit", "refill", "updated")

    def __init__(self) -> None:
        self.level = self.limit = 1e12
        self.refill = 1e9
        self.updated = 0.0


class Floor:
    """Admission over 24 counters, and the difference given back."""

    def __init__(self) -> None:
        costs = [1.0, 1000.0, 500.0, 1.0]
        backs = [0.0, 10.0, 200.0, 1.0]
        self._parts = [(Counter(), costs[n % 4], backs[n % 4]) for n in range(COUNTERS)]
        self._now = 0.0

    async def admit_and_settle(self) -> None:
        """Run one request."""
        self._now += STEP
        now = self._now
        for counter, cost, _ in self._parts:
            level = counter.level + (now - counter.updated) * counter.refill
            counter.level = min(level, counter.limit)
            counter.updated = now
            if cost > counter.level:
                raise AssertionError(cost)
        for counter, cost, _ in self._parts:
            counter.level -= cost
        for counter, _, back in self._parts:
            counter.level += back


def name_of(count: int) -> str:
    """Name the case of so many keys."""
    return f"ledger, {count:,} key{'s' if count > 1 else ''}"


def memory(count: int, seconds: int) -> tuple[float, int]:
    """Return the bytes of a key used in so many seconds, and the buckets left when idle."""
    names = keys(count)
    tracemalloc.start()
    ledger = Ledger(lambda _: LIMITS)
    for second in range(seconds):
        for each in names:
            hold = ledger.admit(ledger.path(each), CHARGES, float(second))
            if isinstance(hold, Hold):
                ledger.settle(hold, USED, float(second))
    taken = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()
    path = ledger.path(names[0])
    for _ in range(2 * count):
        ledger.headroom(path, CHARGES, 1000.0)
    return taken, ledger.bucket_count


async def measure(report: Report) -> tuple[Samples, Sequence[str]]:
    """Measure everything that takes time."""
    repeat = 200 if report.is_quick else 1000
    counts = KEYS[:2] if report.is_quick else KEYS
    cases: dict[str, Measure] = {
        name_of(count): Load(Ledger(lambda _: LIMITS), keys(count)).measure(repeat)
        for count in counts
    }
    cases[FLOOR] = per_call(Floor().admit_and_settle, repeat)
    theirs = peers.rate_limiters()
    for label, check in theirs.items():
        if not await check():
            raise AssertionError(label)
        cases[label] = per_call(check, repeat)
    return await rotate(cases, report.turns), list(theirs)


def tell(report: Report, found: Samples, theirs: Sequence[str]) -> None:
    """Write the table and the claims of time."""
    ours = [case for case in found.by_case if case not in theirs]
    rows = [(case, "-", number(found.median(case)), number(found.p95(case))) for case in ours]
    rows += [
        (
            case,
            number(found.median(case)),
            number(COUNTERS * found.median(case)),
            number(COUNTERS * found.p95(case)),
        )
        for case in theirs
    ]
    report.table(
        "One request, µs of CPU", ("case", "one bucket", "24 buckets", "24 buckets, p95"), rows
    )
    report.keep("one call", found)
    for case in ours:
        if case != FLOOR:
            report.claim(f"{case}: admit and settle", found.median(case), 30, "µs")
            rate = 1e6 / found.median(case)
            report.claim(f"{case}: requests a second", rate, 25_000, "/s", is_floor=True)
    for which, some in (("fastest library", theirs), ("fastest one with keys", _keyed(theirs))):
        fastest = min(some, key=found.median, default=None)
        share = found.ratio(name_of(1), fastest) / COUNTERS if fastest else None
        report.claim(f"one key: share of 24 calls of the {which}", share, 1 / 4, "x")


def _keyed(theirs: Sequence[str]) -> list[str]:
    """Leave out the library whose limiter is a single bucket, found by whoever holds it."""
    return [label for label in theirs if label != peers.BARE_LIMITER]


def tell_memory(report: Report) -> None:
    """Measure memory, and write its table and claims."""
    count = 200 if report.is_quick else 1_000
    uses: Mapping[int, tuple[float, int]] = {
        seconds: memory(count, seconds) for seconds in (1, 10, 60)
    }
    report.table(
        f"Memory of an active key, {count:,} keys",
        ("seconds of a minute in which it was used", "bytes", "buckets left when idle"),
        [(str(seconds), number(taken), number(left)) for seconds, (taken, left) in uses.items()],
    )
    taken, left = uses[1]
    report.claim("an active key, used once in a minute", taken / 1024, 2, "KB")
    report.claim("buckets left of idle keys, beside those in use", left - 6, 0, "")


def main() -> None:
    """Measure and tell."""
    asked = arguments(__doc__).parse_args()
    report = Report(
        "quota_admit",
        "What it costs to admit and settle a request",
        asked.quick,
        3 if asked.quick else 41,
    )
    report.notes.append(
        f"Six levels of four dimensions; {OPEN} requests are running, and each settles when as "
        "many have begun after it. One request is finding its path, admission over 24 windows and "
        "settling. The libraries' checks neither give back nor hold together; aiolimiter's has no "
        "keys either: it is a few additions on one object."
    )
    report.notes += peers.note(("rate_limiters",))
    found, theirs = anyio.run(partial(measure, report))
    tell(report, found, theirs)
    tell_memory(report)
    report.tell(save=asked.save)


if __name__ == "__main__":
    main()
