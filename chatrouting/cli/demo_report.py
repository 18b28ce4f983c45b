"""Numbers of a demo run. Pure: a record in, a report out; the report is also the JSON."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chatrouting.cli.demo_run import ROUTER, Call, DemoRecord, SeenAttempt
from chatrouting.cli.demo_schedule import PROVIDERS
from chatrouting.cli.demo_semantic import Routed
from chatrouting.errors import ChatRoutingError


@dataclass(frozen=True, slots=True)
class Spread:
    """Some durations. The 95th percentile is the nearest rank: one that was measured."""

    count: int
    median_seconds: float
    p95_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PathResult:
    """What became of the questions on one path.

    Attributes:
        path: A provider's name, or "router".
        requests: Questions asked; the next three add up to it.
        answered: Answered whole.
        broke_off: The caller had read some output when the stream failed.
        failed: Failed with nothing handed out.
        first_output: Time to the first output, of streams that had any.
    """

    path: str
    requests: int
    answered: int
    broke_off: int
    failed: int
    first_output: Spread | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCount:
    """How many attempts of the routers ended alike."""

    route: str
    outcome: str
    kind: str | None  #: Of the failure.
    after_output: bool
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedLatency:
    """How much longer answered requests took than the attempt that answered them.

    Measured by the caller. Providers, routers and callers share one process and one event loop,
    so waiting for one another is part of it.

    Attributes:
        first_attempt: Requests that the first provider answered: what the routers cost.
        after_failover: The others: the failed attempts before, and what the routers cost.
        routers_only: All of them, without the time in failed attempts.
    """

    first_attempt: Spread | None
    after_failover: Spread | None
    routers_only: Spread | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A request that the router did not answer."""

    number: int
    streaming: bool
    after_output: bool
    error: str  #: Class of what was raised.
    typed: bool  #: It is one of the library's errors.
    routes: tuple[str, ...]  #: The providers asked, in order.


@dataclass(frozen=True, slots=True, kw_only=True)
class ByMeaning:
    """What became of a text that was routed by meaning."""

    text: str
    route: str
    nearest: str | None  #: The route with the highest score, also if that was not enough.
    score: float | None
    asked: tuple[str, ...]  #: The providers, in order; the last one answered, if one did.
    error: str | None  #: Class of what was raised.
    typed: bool  #: Nothing was, or it is one of the library's errors.


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """Everything that is shown at the end of a demo."""

    simulated: bool
    seed: int
    requests: int
    duration_seconds: float
    paths: tuple[PathResult, ...]  #: The providers in their order, then the router.
    attempts: tuple[AttemptCount, ...]  #: By route, most frequent first.
    added_latency: AddedLatency
    unanswered: tuple[Unanswered, ...]
    by_meaning: tuple[ByMeaning, ...]
    by_meaning_missing: str | None  #: Why nothing was routed by meaning.

    @property
    def router(self) -> PathResult:
        """The router's result."""
        return self.paths[-1]

    @property
    def best_provider(self) -> PathResult:
        """The provider that answered most of the questions put to it directly."""
        return max(self.paths[:-1], key=lambda result: result.answered)

    @property
    def is_sound(self) -> bool:
        """Whether every request was answered or failed with an error of the library."""
        asked = all(each.typed for each in self.unanswered)
        return asked and all(each.typed for each in self.by_meaning)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def make_report(record: DemoRecord) -> DemoReport:
    """Count and measure."""
    tried = _attempts_by_number(record.attempts)
    routed = [call for call in record.calls if call.path == ROUTER]
    return DemoReport(
        simulated=True,
        seed=record.seed,
        requests=record.requests,
        duration_seconds=record.duration,
        paths=tuple(_path_result(path, record.calls) for path in (*PROVIDERS, ROUTER)),
        attempts=_count_attempts(record.attempts),
        added_latency=_added_latency(routed, tried),
        unanswered=tuple(
            _unanswered(call, tried.get(call.number, ()))
            for call in sorted(routed, key=lambda call: call.number)
            if call.error is not None
        ),
        by_meaning=tuple(map(_by_meaning, record.routed)),
        by_meaning_missing=record.missing,
    )


def spread(durations: Iterable[float]) -> Spread | None:
    """Summarise durations; None if there are none."""
    ordered = sorted(durations)
    if not ordered:
        return None
    rank = math.ceil(0.95 * len(ordered))
    return Spread(len(ordered), statistics.median(ordered), ordered[rank - 1])


def _attempts_by_number(attempts: Iterable[SeenAttempt]) -> Mapping[int, Sequence[SeenAttempt]]:
    found: dict[int, list[SeenAttempt]] = {}
    for seen in attempts:
        found.setdefault(seen.number, []).append(seen)
    return found


def _path_result(path: str, calls: Iterable[Call]) -> PathResult:
    own = [call for call in calls if call.path == path]
    failures = [call for call in own if call.error is not None]
    broke_off = sum(call.first_output is not None for call in failures)
    return PathResult(
        path=path,
        requests=len(own),
        answered=len(own) - len(failures),
        broke_off=broke_off,
        failed=len(failures) - broke_off,
        first_output=spread(call.first_output for call in own if call.first_output is not None),
    )


def _count_attempts(attempts: Iterable[SeenAttempt]) -> tuple[AttemptCount, ...]:
    counts = Counter(
        (seen.route, seen.attempt.outcome, failure_kind(seen), broke_off(seen)) for seen in attempts
    )
    found = [
        AttemptCount(route=route, outcome=outcome.value, kind=kind, after_output=after, count=count)
        for (route, outcome, kind, after), count in counts.items()
    ]
    found.sort(key=lambda each: (PROVIDERS.index(each.route), -each.count, each.kind or ""))
    return tuple(found)


def failure_kind(seen: SeenAttempt) -> str | None:
    """Return the kind of an attempt's failure, None if it has none."""
    failure = seen.attempt.failure
    return None if failure is None else failure.kind.value


def broke_off(seen: SeenAttempt) -> bool:
    """Say whether an attempt failed with output handed out already."""
    return seen.attempt.output_committed and not seen.attempt.response_completed


def _added_latency(
    routed: Iterable[Call], tried: Mapping[int, Sequence[SeenAttempt]]
) -> AddedLatency:
    first: list[float] = []
    later: list[float] = []
    routers: list[float] = []
    for call in routed:
        if call.error is not None:
            continue
        durations = [seen.attempt.duration for seen in tried[call.number]]
        added = first if len(durations) == 1 else later
        added.append(call.duration - durations[-1])
        routers.append(call.duration - sum(durations))
    return AddedLatency(
        first_attempt=spread(first), after_failover=spread(later), routers_only=spread(routers)
    )


def _unanswered(call: Call, tried: Sequence[SeenAttempt]) -> Unanswered:
    return Unanswered(
        number=call.number,
        streaming=call.is_streamed,
        after_output=call.first_output is not None,
        error=type(call.error).__name__,
        typed=isinstance(call.error, ChatRoutingError),
        routes=tuple(seen.route for seen in tried),
    )


def _by_meaning(routed: Routed) -> ByMeaning:
    return ByMeaning(
        text=routed.text,
        route=routed.route,
        nearest=routed.best,
        score=routed.score,
        asked=routed.asked,
        error=None if routed.error is None else type(routed.error).__name__,
        typed=routed.error is None or isinstance(routed.error, ChatRoutingError),
    )
