"""One call of a router: select, invoke, record, report; and again where that is allowed.

The same loop serves both modes. Whole: an attempt ends with its response. Streaming: an attempt is
invoked until its stream commits; what then stays with the stream is in `_layer.py`.
"""

import math
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from random import getrandbits
from typing import TYPE_CHECKING, Any, Final, Never, TypeVar, final, overload

import anyio

from chatrouting import _cancellation
from chatrouting._limits import LimitExpired, run_within
from chatrouting._stream_source import cancelled_by_client
from chatrouting.attempt import AttemptOutcome, RoutingAttempt
from chatrouting.errors import NoClientSelectedError, RefusedLocallyError
from chatrouting.messages import MessagesInput
from chatrouting.options import ChatOptions
from chatrouting.responses import ChatResponse
from chatrouting.routing import _reporting as reporting
from chatrouting.routing._decision import Verdict, check_answer, choose_error, decide
from chatrouting.routing._errors import (
    annotate,
    annotate_policy_error,
    release_frames,
    with_cause,
)
from chatrouting.routing._running import RunningAttempt
from chatrouting.routing._selecting import select
from chatrouting.routing._settings import CallSettings
from chatrouting.routing._time_limits import limit_before_commit, limit_error, over_time
from chatrouting.routing._waiting import JointWait, queues_behind
from chatrouting.routing.context import RoutingContext, Target
from chatrouting.scope import (
    MAXIMUM_DEPTH,
    RequestScope,
    closing_deadline,
    current,
    current_tickets,
    nested_too_deep,
)

if TYPE_CHECKING:
    from chatrouting.routing._layer import RouterLayer
    from chatrouting.stream import ResponseStream

T = TypeVar("T")

#: Looked up once, as in `attempt.py`.
_CANCELLED: Final = AttemptOutcome.CANCELLED
_COMPLETED: Final = AttemptOutcome.COMPLETED
_FAILED: Final = AttemptOutcome.FAILED
_REFUSED: Final = AttemptOutcome.REFUSED_LOCALLY


@final
class RouterCall(RoutingContext):
    """One request at one router, from its first selection to its end.

    Policies see it as its `RoutingContext`: one object for both, since each costs every call.

    Attributes:
        settings: The router's.
        outer: The scope that the request came in, None outside of every router.
        depth: 1 for the outermost router.
        key: A random number; with an attempt's own added, what that is identified by.
        attempt: The one that runs, or ran last.
        own_deadline: The deadline, where this router is the one to enforce it: the outermost.
        tickets: One mapping for the whole tree of routers; a copy once the call has waited.
        has_failed: An attempt of it, or of a router inside, has failed: exceptions are kept.
    """

    __slots__ = (
        "_baseline",
        "_is_exhausted",
        "_refused_targets",
        "_wait",
        "attempt",
        "depth",
        "has_failed",
        "key",
        "outer",
        "own_deadline",
        "settings",
        "tickets",
    )

    def __init__(
        self,
        settings: CallSettings,
        messages: MessagesInput,
        options: ChatOptions | None,
        *,
        is_streaming: bool,
    ) -> None:
        self._start(messages, options, settings.routes, is_streaming)
        self.settings = settings
        self._baseline = 0
        self.has_failed = False
        self._is_exhausted = False  # the policy has said that it has nothing left to select
        self._refused_targets: tuple[Target, ...] = ()
        self._wait: JointWait | None = None
        self.attempt: RunningAttempt | None = None

    @overload
    async def run(self) -> ChatResponse: ...

    @overload
    async def run(self, layer: "RouterLayer") -> "ResponseStream": ...

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
        caller_error = sys.exception()
        take = settings.take
        self._begin()
        result: Any  # a stream with a layer, else whatever the client answers
        try:
            if _cancellation.cancel_count():
                self._baseline = await _cancellation.cancel_baseline()
            while True:
                target = None if take is None else take(self)
                if target is None:
                    target = await self._select()
                if target is None:
                    target = await self._wait_or_end()
                client, route, messages, options, self.selection = target
                number = len(self._attempts) + 1
                self.attempt = attempt = RunningAttempt(self, client, route, number)
                token = current.set(attempt)
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
                        check_answer(result, route)
                except GeneratorExit:  # thrown away: nothing can be awaited
                    attempt.end()
                    raise
                except BaseException as error:  # noqa: BLE001  # judged below
                    failed_with = error
                else:
                    break
                finally:
                    try:  # noqa: SIM105  # as `leave` does; for each call of each router
                        current.reset(token)
                    except ValueError:
                        pass
                await self._fail_or_go_on(attempt, target, failed_with)
                if self._is_exhausted:
                    take = None  # the way is open for waiting only
                # Between two attempts a cancellation gets its chance.
                await _cancellation.deliver_cancellation()
            if layer is not None:
                layer.caller_error = caller_error
            else:
                record = attempt.finish(self, _COMPLETED, usage=result.usage)
                self._attempts += (record,)
                if settings.report is not None:
                    await settings.report(self, record, True)
                if self.outer is None:
                    result = result.with_attempts(self._attempts)
        except BaseException as error:  # noqa: BLE001  # raised there
            await self._end_failed(error, caller_error)
        try:
            if settings.on_ended is not None and layer is None:
                await reporting.report_end(settings, self, None)
        finally:
            if self.has_failed:
                self.release(None, caller_error)
            if self._wait is not None:
                self._wait.give_back()
        return result

    def _begin(self) -> None:
        outer = current.get()
        # For identifiers, no secret; `random` seeds itself anew in a forked process.
        self.key = key = getrandbits(63)
        self.own_deadline: float | None = None  # only the outermost router enforces it
        if outer is None or (call := outer.call) is None:  # None: its attempt is over
            self.outer: RequestScope | None = None
            self.request_key = key
            self.parent = None
            self.depth = 1
            tickets = current_tickets()
            self.tickets: dict[object, Any] = {} if tickets is None else tickets
            hints = self.options.routing
            if hints is not None and hints.timeout is not None:
                self._deadline = self.own_deadline = anyio.current_time() + hints.timeout
        else:
            self.outer = outer
            self.request_key = call.request_key
            self.parent = call
            self.depth = depth = call.depth + 1
            if depth > MAXIMUM_DEPTH:
                raise nested_too_deep(depth)
            self._deadline = call._deadline  # noqa: SLF001  # of its own class; a layer's cost
            self.tickets = call.tickets

    @property
    def ends_at(self) -> float | None:
        """When the request ends, by the event loop's clock; None if it may take for ever."""
        return None if self._deadline == math.inf else self._deadline

    @property
    def waits_together(self) -> bool:
        """This router, or one around it, waits for all candidates at once."""
        return self.settings.failover is not None or (
            self.outer is not None and self.outer.waits_together
        )

    async def _end_failed(self, error: BaseException, caller_error: BaseException | None) -> Never:
        """Tell of the end of a request that raises, and raise."""
        try:
            if self._wait is not None:
                self._wait.give_back()
            if _cancellation.is_foreign_cancellation(error, self._baseline):
                error = reporting.cancelled_by_policy(error)
            if isinstance(error, Exception):
                try:
                    await _cancellation.give_way(error, self._baseline)
                except BaseException as cancellation:  # noqa: BLE001  # it wins over the error
                    error = cancellation
            if isinstance(error, GeneratorExit):  # thrown away: nothing can be awaited
                self.release(error, caller_error)
                raise error
            try:
                await self.report_end(error)
            except BaseException as hook_error:  # noqa: BLE001  # raised below
                error = with_cause(hook_error, error)
            self.release(error, caller_error)
            raise error
        finally:
            del error  # else the exception and this frame keep each other alive

    async def report_end(self, error: BaseException | None) -> None:
        """Tell the hook of the end of the request; shielded, if it was cancelled."""
        report = partial(reporting.report_end, self.settings, self, error)
        is_cancelled = error is not None and _cancellation.is_cancellation(error)
        await (self._shielded(report) if is_cancelled else report())

    def release(self, raised: BaseException | None, caller_error: BaseException | None) -> None:
        """Take the tracebacks off the kept exceptions; the request is over.

        Args:
            raised: What the request raises keeps its own.
            caller_error: What the caller was handling when it called; so does that.
        """
        release_frames(self._attempts, raised, caller_error)

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
        error = over_time(attempt, error, self.own_deadline)
        outcome = self._outcome(error)
        record = attempt.finish(self, outcome, error)
        self.add(record)
        if outcome is _REFUSED:
            self._refused_targets += (target,)
        goes_on = self._goes_on(record)
        if outcome is _CANCELLED:
            await self._shielded(partial(reporting.report, self.settings, self, record, True))
            raise error
        if goes_on:
            reporting.log_failover(self.settings, record)
        try:
            if self.settings.report is not None:
                await self.settings.report(self, record, not goes_on)
        except BaseException as hook_error:
            with_cause(hook_error, error)
            raise
        if not goes_on:
            raise self._final_error(error)

    def _outcome(self, error: BaseException) -> AttemptOutcome:
        if not self._is_failure(error) or _cancellation.is_caller_cancelled(self._baseline):
            return _CANCELLED
        if isinstance(error, RefusedLocallyError):
            return _REFUSED
        return _FAILED

    def _is_failure(self, error: BaseException) -> bool:
        """Say whether an error is an ordinary one, or a cancellation that nobody asked for."""
        return isinstance(error, Exception) or _cancellation.is_foreign_cancellation(
            error, self._baseline
        )

    def _goes_on(self, record: RoutingAttempt) -> bool:
        failover = self.settings.failover
        if failover is None:
            return False
        verdict = decide(
            outcome=record.outcome,
            error=record.exception,
            is_committed=record.output_committed,
            attempts=self._attempts,
            maximum_attempts=failover.maximum_attempts,
            is_over_time=self._deadline < math.inf and anyio.current_time() >= self._deadline,
        )
        if verdict is Verdict.STOP:
            return False
        asked = failover.should_failover if verdict is Verdict.ASK else None
        try:
            self._is_exhausted = not failover.may_select_again(self)
            return (not self._is_exhausted or self._may_wait()) and (
                asked is None or reporting.as_answer(asked(self, record))
            )
        except BaseException as policy_error:
            if not self._is_failure(policy_error):
                raise
            # The attempt's error is raised instead.
            annotate_policy_error(record.exception, policy_error, self.request_id)
            return False

    def _final_error(self, current: BaseException | None) -> BaseException:
        """Return what the request raises, with a note on the other attempts."""
        chosen = choose_error(current, self.attempts)
        if _cancellation.is_cancellation(chosen):
            cause, chosen = chosen, cancelled_by_client()
            chosen.__cause__ = cause
        annotate(chosen, self.attempts, self.settings.name, self.request_id)
        return chosen

    async def _select(self) -> Target | None:
        if self._is_exhausted:
            return None
        settings = self.settings
        try:
            selecting = settings.select(self)
            return await select(settings, self, selecting, self.own_deadline, self._baseline)
        except BaseException as error:
            previous = self.previous_attempt
            if previous is not None and self._is_failure(error):
                with_cause(error, previous.exception)
            raise

    def _may_wait(self) -> bool:
        """Say whether all candidates have refused, and there is one that could be waited for."""
        if len(self._refused_targets) < len(self._attempts) or self._wait is not None:
            return False
        if self.outer is not None and self.outer.waits_together:
            return False
        return any(map(queues_behind, self._attempts))

    async def _wait_or_end(self) -> Target:
        """Wait for whoever has refused; with nobody to wait for, raise what the request raises."""
        if self._may_wait():
            # Another call of the same request may wait at the same desk.
            self.tickets = dict(self.tickets)
            refused = self._refused_targets, self._attempts
            self._wait = JointWait(*refused, self.tickets, is_streaming=self.is_streaming)
            target = await self._wait.admitted(self.ends_at, self.own_deadline, self._baseline)
            if target is not None:
                return target
        if self._attempts:
            raise self._final_error(None)
        raise NoClientSelectedError(
            "select_client returned None at the first selection; return a client, the name of a "
            "route or a Selection."
        )

    async def _shielded(self, call: Callable[[], Awaitable[None]]) -> None:
        ends = closing_deadline(self.attempt or self.outer)
        await reporting.shielded(call, ends, self.settings.name)
