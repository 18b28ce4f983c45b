"""One call of a router: select, invoke, record, report; and again where that is allowed.

The same loop serves both modes. Whole: an attempt ends with its response. Streaming: an attempt is
invoked until its stream commits; what then stays with the stream is in `_layer.py`.
"""

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from random import getrandbits
from typing import TYPE_CHECKING, Any, Final, Never, TypeVar, final

import anyio

from chatrouting import _cancellation
from chatrouting._limits import LimitExpired, run_within
from chatrouting._stream_source import cancelled_by_client
from chatrouting.attempt import AttemptOutcome, RoutingAttempt
from chatrouting.errors import NoClientSelectedError, RefusedLocallyError, RequestTimeoutError
from chatrouting.responses import ChatResponse
from chatrouting.routing import _reporting as reporting
from chatrouting.routing._decision import Verdict, choose_error, decide
from chatrouting.routing._errors import (
    annotate,
    annotate_policy_error,
    exceptions_of,
    release_frames,
    request_timeout,
    with_cause,
)
from chatrouting.routing._running import RunningAttempt
from chatrouting.routing._selecting import select
from chatrouting.routing._settings import CallSettings
from chatrouting.routing._time_limits import limit_before_commit, limit_error
from chatrouting.routing._waiting import JointWait, queue_of
from chatrouting.routing.context import RoutingContext, Target
from chatrouting.scope import check_depth, closing_deadline, current_scope, current_tickets, leave

if TYPE_CHECKING:
    from chatrouting.routing._layer import RouterLayer

T = TypeVar("T")

_COMPLETED: Final = AttemptOutcome.COMPLETED

#: Gives all identifiers 16 digits, in half the time that formatting takes.
_HIGH_BIT: Final = 1 << 64


@final
class RouterCall:
    """One request at one router, from its first selection to its end.

    Attributes:
        settings: The router's.
        context: What policies see of the request.
        parent: The scope that the request came in, None outside of every router.
        call_id: What the attempts' identifiers begin with.
        number: Of the last attempt.
        attempt: The one that runs, or ran last.
        ends_at: When the request ends, by the event loop's clock, None if it may take for ever.
        own_deadline: The same, where this router is the one to enforce it: the outermost.
        tickets: One mapping for the whole tree of routers; a copy once the call has waited.
        caller_error: What the caller was handling when it called.
        waits_together: This router, or one around it, waits for all candidates at once.
    """

    __slots__ = (
        "_baseline",
        "_counted",
        "_has_failed",
        "_is_exhausted",
        "_refused",
        "_wait",
        "attempt",
        "call_id",
        "caller_error",
        "context",
        "ends_at",
        "number",
        "own_deadline",
        "parent",
        "settings",
        "tickets",
        "waits_together",
    )

    def __init__(self, settings: CallSettings, context: RoutingContext) -> None:
        self.settings = settings
        self.context = context
        self._baseline = 0
        self._counted = 0
        self._has_failed = False
        self._is_exhausted = False  # the policy has said that it has nothing left to select
        self._refused: tuple[Target, ...] = ()
        self._wait: JointWait | None = None
        self.number = 0
        self.attempt: RunningAttempt | None = None

    async def run(  # noqa: C901, PLR0912, PLR0915  # one coroutine, for the reason below
        self, layer: "RouterLayer | None" = None
    ) -> Any:
        """Run the request: return the answer, or the stream of the client that committed.

        One coroutine from the first selection to the end: each further one would cost every call
        at every layer.

        Args:
            layer: What becomes the router's part in the stream; None for a whole answer.
        """
        settings = self.settings
        self.caller_error = sys.exception()
        context = self.context
        take = settings.take
        self._begin()
        result: Any  # a stream with a layer, else whatever the client answers
        try:
            if _cancellation.cancel_count():
                self._baseline = await _cancellation.cancel_baseline()
            while True:
                target = None if take is None else take(context)
                if target is None:
                    target = await self._select()
                if target is None:
                    target = await self._wait_or_end()
                client, route, messages, options, context.selection = target
                self.number += 1
                self.attempt = attempt = RunningAttempt(self, client, route)
                token = attempt.enter()
                try:
                    if layer is not None:
                        open_stream = partial(layer.open_stream, attempt, client, messages, options)
                        result = await self._within_limits(attempt, open_stream)
                    elif self.own_deadline is not None or settings.has_early_limit:
                        get_response = partial(client.get_response, messages, options)
                        result = await self._within_limits(attempt, get_response)
                    else:
                        result = await client.get_response(messages, options)
                    if layer is None and type(result) is not ChatResponse:
                        _check_answer(result, route)
                except GeneratorExit:  # thrown away: nothing can be awaited
                    attempt.end()
                    raise
                except BaseException as error:  # noqa: BLE001  # judged below
                    failed_with = error
                else:
                    break
                finally:
                    leave(token)
                await self._fail_or_go_on(attempt, target, failed_with)
                if self._is_exhausted:
                    take = None  # the way is open for waiting only
                # Between two attempts a cancellation gets its chance.
                await _cancellation.deliver_cancellation()
            if layer is None:
                record = attempt.record(_COMPLETED, usage=result.usage)
                context.add(record)
                if settings.report is not None:
                    await settings.report(context, record, True)
                if self.parent is None:
                    result = result.with_attempts(context.attempts)
                    # A client between may have swallowed what an inner router met.
                    self._has_failed = self._has_failed or bool(record.children)
        except BaseException as error:  # noqa: BLE001  # raised there
            await self._end_failed(error)
        try:
            if settings.on_ended is not None and layer is None:
                await reporting.report_end(settings, context, None)
        finally:
            if self._has_failed:
                self.release(None)
            if self._wait is not None:
                self._wait.give_back()
        return result

    def _begin(self) -> None:
        self.parent = parent = current_scope()
        # An id, no secret; `random` seeds itself anew in a forked process.
        self.call_id = call_id = hex(_HIGH_BIT | getrandbits(64))[3:]
        context = self.context
        self.own_deadline: float | None = None  # only the outermost router enforces it
        if parent is None:
            context.request_id = call_id
            self.ends_at = None
            tickets = current_tickets()
            self.tickets: dict[object, Any] = {} if tickets is None else tickets
            hints = context.options.routing
            if hints is not None and hints.timeout is not None:
                self.ends_at = self.own_deadline = anyio.current_time() + hints.timeout
        else:
            check_depth(parent)
            context.request_id = parent.request_id
            context.parent = parent.context
            self.ends_at = parent.deadline
            self.tickets = parent.tickets
        self.waits_together = self.settings.failover is not None or (
            parent is not None and parent.waits_together
        )
        if self.ends_at is not None:
            context.deadline = self.ends_at

    async def _end_failed(self, error: BaseException) -> Never:
        """Tell of the end of a request that raises, and raise."""
        try:
            if self._wait is not None:
                self._wait.give_back()
            if isinstance(error, GeneratorExit):  # thrown away: nothing can be awaited
                raise error
            if _cancellation.is_foreign_cancellation(error, self._baseline):
                error = reporting.cancelled_by_policy(error)
            if isinstance(error, Exception):
                try:
                    await _cancellation.give_way(error, self._baseline)
                except BaseException as cancellation:  # noqa: BLE001  # it wins over the error
                    error = cancellation
            try:
                await self.report_end(error)
            except BaseException as hook_error:  # noqa: BLE001  # raised below
                error = with_cause(hook_error, error)
            self.release(error)
            raise error
        finally:
            del error  # else the exception and this frame keep each other alive

    async def report_end(self, error: BaseException | None) -> None:
        """Tell the hook of the end of the request; shielded, if it was cancelled."""
        report = partial(reporting.report_end, self.settings, self.context, error)
        is_cancelled = error is not None and _cancellation.is_cancellation(error)
        await (self._shielded(report) if is_cancelled else report())

    def release(self, raised: BaseException | None) -> None:
        """Take the tracebacks off the kept exceptions; the request is over."""
        release_frames(exceptions_of(self.context.attempts), raised, self.caller_error)

    async def _within_limits(
        self, attempt: RunningAttempt, invoke: Callable[[], Awaitable[T]]
    ) -> T:
        failover = self.settings.failover
        limit = limit_before_commit(failover, attempt, self.own_deadline)
        if limit is None:
            return await invoke()
        try:
            return await run_within(limit, invoke, self._baseline)
        except LimitExpired as expired:
            error = expired.caused(limit_error(failover, attempt, limit))
        raise error

    async def _fail_or_go_on(
        self, attempt: RunningAttempt, target: Target, error: BaseException
    ) -> None:
        """Record and report a failed attempt; return if another client may be selected."""
        self._has_failed = True
        error = self._over_time(attempt, error)
        outcome = self._outcome(error)
        record = attempt.record(outcome, error)
        self.context.add(record)
        if outcome is AttemptOutcome.REFUSED_LOCALLY:
            self._refused += (target,)
        goes_on = self._goes_on(record)
        if outcome is AttemptOutcome.CANCELLED:
            await self._shielded(
                partial(reporting.report, self.settings, self.context, record, True)
            )
            raise error
        if goes_on:
            reporting.log_failover(self.settings, record)
        try:
            await reporting.report(self.settings, self.context, record, not goes_on)
        except BaseException as hook_error:
            with_cause(hook_error, error)
            raise
        if not goes_on:
            raise self._final_error(error)

    def _over_time(self, attempt: RunningAttempt, error: BaseException) -> BaseException:
        """Return what a failure is once the time of the request has run out."""
        deadline = self.own_deadline
        if deadline is None or not isinstance(error, Exception) or anyio.current_time() < deadline:
            return error
        if isinstance(error, RequestTimeoutError):
            return error
        timeout = request_timeout(f"while route {attempt.route!r} was asked")
        timeout.__cause__ = error
        return timeout

    def _outcome(self, error: BaseException) -> AttemptOutcome:
        if not self._is_failure(error) or _cancellation.is_caller_cancelled(self._baseline):
            return AttemptOutcome.CANCELLED
        if isinstance(error, RefusedLocallyError):
            return AttemptOutcome.REFUSED_LOCALLY
        return AttemptOutcome.FAILED

    def _is_failure(self, error: BaseException) -> bool:
        """Say whether an error is an ordinary one, or a cancellation that nobody asked for."""
        return isinstance(error, Exception) or _cancellation.is_foreign_cancellation(
            error, self._baseline
        )

    def _goes_on(self, record: RoutingAttempt) -> bool:
        failover = self.settings.failover
        if failover is None:
            return False
        self._counted += record.outcome is not AttemptOutcome.REFUSED_LOCALLY
        verdict = decide(
            outcome=record.outcome,
            error=record.exception,
            is_committed=record.output_committed,
            attempts_counted=self._counted,
            maximum_attempts=failover.maximum_attempts,
            is_over_time=self.ends_at is not None and anyio.current_time() >= self.ends_at,
        )
        if verdict is Verdict.STOP:
            return False
        asked = failover.should_failover if verdict is Verdict.ASK else None
        try:
            self._is_exhausted = not failover.may_select_again(self.context)
            return (not self._is_exhausted or self._may_wait()) and (
                asked is None or reporting.as_answer(asked(self.context, record))
            )
        except BaseException as policy_error:
            if not self._is_failure(policy_error):
                raise
            # The attempt's error is raised instead.
            annotate_policy_error(record.exception, policy_error, self.context.request_id)
            return False

    def _final_error(self, current: BaseException | None) -> BaseException:
        """Return what the request raises, with a note on the other attempts."""
        chosen = choose_error(current, self.context.attempts)
        if _cancellation.is_cancellation(chosen):
            cause, chosen = chosen, cancelled_by_client()
            chosen.__cause__ = cause
        annotate(chosen, self.context.attempts, self.settings.name, self.context.request_id)
        return chosen

    async def _select(self) -> Target | None:
        if self._is_exhausted:
            return None
        settings, context = self.settings, self.context
        try:
            selecting = settings.select(context)
            return await select(settings, context, selecting, self.own_deadline, self._baseline)
        except BaseException as error:
            previous = context.previous_attempt
            if previous is not None and self._is_failure(error):
                with_cause(error, previous.exception)
            raise

    def _may_wait(self) -> bool:
        """Say whether all candidates have refused, and there is one that could be waited for."""
        if len(self._refused) < self.number or self._wait is not None:
            return False
        if self.parent is not None and self.parent.waits_together:
            return False
        return any(queue_of(client) is not None for client, *_ in self._refused)

    async def _wait_or_end(self) -> Target:
        """Wait for whoever has refused; with nobody to wait for, raise what the request raises."""
        if self._may_wait():
            # Another call of the same request may wait at the same desk.
            self.tickets = dict(self.tickets)
            self._wait = JointWait(
                self._refused, self.tickets, is_streaming=self.context.is_streaming
            )
            target = await self._wait.admitted(self.ends_at, self.own_deadline, self._baseline)
            if target is not None:
                return target
        if self.number:
            raise self._final_error(None)
        raise NoClientSelectedError(
            "select_client returned None at the first selection; return a client, the name of a "
            "route or a Selection."
        )

    async def _shielded(self, call: Callable[[], Awaitable[None]]) -> None:
        """Await a hook on a cancelled request; whatever it does, the cancellation goes on."""
        scope = self.attempt or self.parent
        with anyio.CancelScope(deadline=closing_deadline(scope), shield=True) as shield:
            try:
                await call()
            except Exception:  # noqa: BLE001  # logged; nothing may replace the cancellation
                reporting.logger.exception("routing.hook_failed router=%s", self.settings.name)
        if shield.cancelled_caught:
            reporting.logger.warning("routing.hook_timed_out router=%s", self.settings.name)


def _check_answer(answer: object, route: str) -> None:
    if not isinstance(answer, ChatResponse):
        raise TypeError(
            f"route {route!r} answered {type(answer).__name__}; "
            "get_response must return a ChatResponse."
        )
