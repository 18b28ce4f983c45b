"""One call of a router: select, invoke, record, report; and again where that is allowed.

The same loop serves both modes. Whole: an attempt ends with its response. Streaming: an attempt is
invoked until its stream commits; then this object stays with the stream as its layer, and records
the attempt when the stream ends.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import getrandbits
from typing import Any, Final, TypeVar, cast, final

import anyio
from typing_extensions import override

from chatrouting import _cancellation
from chatrouting._layers import StreamLayer
from chatrouting._limits import LimitExpired, run_within
from chatrouting._stream_source import cancelled_by_client
from chatrouting.attempt import AttemptOutcome, RoutingAttempt
from chatrouting.errors import NoClientSelectedError, RefusedLocallyError, RequestTimeoutError
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions
from chatrouting.responses import ChatResponse, ChatResponseUpdate
from chatrouting.routing import _reporting as reporting
from chatrouting.routing._decision import Verdict, choose_error, decide
from chatrouting.routing._ending import outcome_of_stream, tell_of_end
from chatrouting.routing._errors import (
    annotate,
    annotate_policy_error,
    exceptions_of,
    release_frames,
    request_timeout,
    with_cause,
)
from chatrouting.routing._running import RunningAttempt
from chatrouting.routing._selecting import Target, select
from chatrouting.routing._settings import CallSettings
from chatrouting.routing._time_limits import (
    Limit,
    limit_before_commit,
    set_limits_after_commit,
)
from chatrouting.routing.context import RoutingContext
from chatrouting.scope import RequestScope, check_depth, closing_deadline, current_scope, leave
from chatrouting.stream import ResponseStream

T = TypeVar("T")

_COMPLETED: Final = AttemptOutcome.COMPLETED


@final
class RouterCall(StreamLayer):
    """One request at one router, from its first selection to its end."""

    def __init__(
        self,
        settings: CallSettings,
        messages: tuple[ChatMessage, ...],
        options: ChatOptions | None,
        *,
        is_streaming: bool,
    ) -> None:
        self._settings = settings
        self._messages = messages
        self._options = options
        self._is_streaming = is_streaming
        self._baseline = 0
        self._number = 0
        self._counted = 0
        self._has_failed = False
        self._attempt: RunningAttempt | None = None
        self._caller_error: BaseException | None = None

    async def get_whole(self) -> ChatResponse:
        """Run the request and return the response of the client that answered."""
        response = await self._run(self._invoke_whole)
        if self._parent is None:
            response = response.with_attempts(self._context.attempts)
        try:
            if self._settings.on_ended is not None:
                await reporting.report_end(self._settings, self._context, None)
        finally:
            # A client between may have swallowed what an inner router met.
            if self._has_failed or (response.attempts and response.attempts[-1].children):
                self._release(None)
        return response

    async def open(self) -> ResponseStream:
        """Run the request up to the commit and return the stream of the client that answers."""
        stream = await self._run(self._invoke_stream)
        if self._has_failed:
            self._release(None)
        return stream

    async def _run(self, invoke: "Callable[[RunningAttempt], Awaitable[T]]") -> T:
        self._caller_error = sys.exception()
        self._begin()
        try:
            self._baseline = _cancellation.cancel_count()
            if self._baseline:
                self._baseline = await _cancellation.cancel_baseline()
            return await self._loop(invoke)
        except GeneratorExit:  # the coroutine is thrown away: nothing can be awaited
            raise
        except BaseException as error:  # noqa: BLE001  # raised below
            raised = await self._end_failed(error)
        try:
            raise raised
        finally:
            del raised  # else the exception and this frame keep each other alive

    def _begin(self) -> None:
        self._parent = parent = current_scope()
        if parent is not None:
            check_depth(parent)
        # An id, no secret; `random` seeds itself anew in a forked process.
        self._call_id = call_id = f"{getrandbits(64):016x}"
        self._context = context = RoutingContext.of_call(
            self._messages,
            self._options,
            self._settings.routes,
            None if parent is None else parent.context,
        )
        context.is_streaming = self._is_streaming
        context.request_id = call_id if parent is None else parent.request_id
        self._own_deadline: float | None = None  # only the outermost router enforces it
        self._deadline = None if parent is None else parent.deadline
        self._tickets: dict[object, Any] = {} if parent is None else parent.tickets
        hints = None if self._options is None else self._options.routing
        if parent is None and hints is not None and hints.timeout is not None:
            self._deadline = self._own_deadline = anyio.current_time() + hints.timeout
        if self._deadline is not None:
            context.deadline = self._deadline

    async def _end_failed(self, error: BaseException) -> BaseException:
        """Tell of the end of a request that raises, and return what it raises."""
        if isinstance(error, Exception):
            try:
                await _cancellation.give_way(error, self._baseline)
            except BaseException as cancellation:  # noqa: BLE001  # it wins over the error
                error = cancellation
        try:
            await self._report_end(error)
        except BaseException as hook_error:  # noqa: BLE001  # raised by `_run`
            error = with_cause(hook_error, error)
        self._release(error)
        self._caller_error = None
        return error

    async def _report_end(self, error: BaseException | None) -> None:
        report = partial(reporting.report_end, self._settings, self._context, error)
        is_cancelled = error is not None and _cancellation.is_cancellation(error)
        await (self._shielded(report) if is_cancelled else report())

    def _release(self, raised: BaseException | None) -> None:
        release_frames(exceptions_of(self._context.attempts), raised, self._caller_error)

    async def _loop(self, invoke: "Callable[[RunningAttempt], Awaitable[T]]") -> T:
        settings = self._settings
        while True:
            self._attempt = attempt = self._begin_attempt(await self._select())
            limit = limit_before_commit(settings.failover, attempt, self._own_deadline)
            try:
                token = attempt.scope.enter()
                try:
                    if limit is None:
                        result = await invoke(attempt)
                    else:
                        result = await self._invoke_within(limit, invoke, attempt)
                finally:
                    leave(token)
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001  # judged below
                failed_with = error
            else:
                if isinstance(result, ChatResponse):
                    record = attempt.record(_COMPLETED, usage=result.usage)
                    self._context.add(record)
                    if settings.is_watched:
                        await reporting.report(settings, self._context, record, True)
                return result
            try:
                await self._fail_or_go_on(attempt, failed_with)
            finally:
                del failed_with  # else the exception and this frame keep each other alive
            # Between two attempts a cancellation gets its chance.
            await _cancellation.deliver_cancellation()

    def _begin_attempt(self, target: Target) -> RunningAttempt:
        self._number += 1
        scope = RequestScope(
            request_id=self._context.request_id,
            attempt_id=f"{self._call_id}-{self._number}",
            context=self._context,
            parent=self._parent,
            deadline=self._deadline,
            tickets=self._tickets,
        )
        return RunningAttempt(target, self._number, scope, self._settings.clock)

    async def _invoke_within(
        self,
        limit: Limit,
        invoke: "Callable[[RunningAttempt], Awaitable[T]]",
        attempt: RunningAttempt,
    ) -> T:
        try:
            return await run_within(limit[0], partial(invoke, attempt), self._baseline)
        except LimitExpired as expired:
            error = expired.caused(limit[1]())
        raise error

    async def _fail_or_go_on(self, attempt: RunningAttempt, error: BaseException) -> None:
        """Record and report a failed attempt; return if another client may be selected."""
        self._has_failed = True
        error = self._over_time(attempt, error)
        outcome = self._outcome(error)
        record = attempt.record(outcome, error)
        self._context.add(record)
        goes_on = self._goes_on(record)
        if outcome is AttemptOutcome.CANCELLED:
            await self._shielded(
                partial(reporting.report, self._settings, self._context, record, True)
            )
            raise error
        if goes_on:
            reporting.log_failover(self._settings, record)
        try:
            await reporting.report(self._settings, self._context, record, not goes_on)
        except BaseException as hook_error:
            with_cause(hook_error, error)
            raise
        if not goes_on:
            raise self._final_error(error)

    def _over_time(self, attempt: RunningAttempt, error: BaseException) -> BaseException:
        """Return what a failure is once the time of the request has run out."""
        deadline = self._own_deadline
        if deadline is None or not isinstance(error, Exception) or anyio.current_time() < deadline:
            return error
        if isinstance(error, RequestTimeoutError):
            return error
        timeout = request_timeout(f"while route {attempt.target.route!r} was asked")
        timeout.__cause__ = error
        return timeout

    def _outcome(self, error: BaseException) -> AttemptOutcome:
        if not isinstance(error, Exception):
            is_foreign = _cancellation.is_foreign_cancellation(error, self._baseline)
            return AttemptOutcome.FAILED if is_foreign else AttemptOutcome.CANCELLED
        if _cancellation.is_caller_cancelled(self._baseline):
            return AttemptOutcome.CANCELLED
        if isinstance(error, RefusedLocallyError):
            return AttemptOutcome.REFUSED_LOCALLY
        return AttemptOutcome.FAILED

    def _goes_on(self, record: RoutingAttempt) -> bool:
        failover = self._settings.failover
        if failover is None:
            return False
        self._counted += record.outcome is not AttemptOutcome.REFUSED_LOCALLY
        verdict = decide(
            outcome=record.outcome,
            error=record.exception,
            is_committed=record.output_committed,
            attempts_counted=self._counted,
            maximum_attempts=failover.maximum_attempts,
            is_over_time=self._deadline is not None and anyio.current_time() >= self._deadline,
        )
        if verdict is Verdict.STOP:
            return False
        asked = failover.should_failover if verdict is Verdict.ASK else None
        try:
            return failover.may_select_again(self._context) and (
                asked is None or reporting.as_answer(asked(self._context, record))
            )
        except Exception as policy_error:  # noqa: BLE001  # the attempt's error is raised instead
            annotate_policy_error(record.exception, policy_error, self._context.request_id)
            return False

    def _final_error(self, current: BaseException | None) -> BaseException:
        """Return what the request raises, with a note on the other attempts."""
        chosen = choose_error(current, self._context.attempts)
        if _cancellation.is_cancellation(chosen):
            cause, chosen = chosen, cancelled_by_client()
            chosen.__cause__ = cause
        annotate(chosen, self._context.attempts, self._settings.name, self._context.request_id)
        return chosen

    async def _select(self) -> Target:
        context = self._context
        previous = context.previous_attempt if self._number else None
        try:
            target = await select(self._settings, context, self._own_deadline, self._baseline)
        except BaseException as error:
            cause = None if previous is None else previous.exception
            if _cancellation.is_foreign_cancellation(error, self._baseline):
                raise reporting.cancelled_by_policy() from (cause or error)
            if isinstance(error, Exception):
                with_cause(error, cause)
            raise
        if target is not None:
            return target
        if previous is not None:
            raise self._final_error(None)
        raise NoClientSelectedError(
            "select_client returned None at the first selection; return a client, the name of a "
            "route or a Selection."
        )

    async def _invoke_whole(self, attempt: RunningAttempt) -> ChatResponse:
        target = attempt.target
        response = await target.client.get_response(target.messages, target.options)
        if not isinstance(response, ChatResponse):
            raise TypeError(
                f"route {target.route!r} answered {type(response).__name__}; "
                "get_response must return a ChatResponse."
            )
        return response

    async def _invoke_stream(self, attempt: RunningAttempt) -> ResponseStream:
        target = attempt.target
        source = target.client.get_streaming_response(target.messages, target.options)
        stream = source if isinstance(source, ResponseStream) else ResponseStream(source)
        stream.surround(attempt.scope, self._settings.clock)
        attempt.stream = stream
        ahead: list[ChatResponseUpdate] = []
        commits = self._settings.commits
        while True:
            try:
                update = await stream.__anext__()
            except StopAsyncIteration:
                # Nothing is out yet: what spoilt the end may be mended by another client.
                if stream.close_error is not None:
                    raise stream.close_error from None
                attempt.commit(has_update=False)
                break
            ahead.append(update)
            if commits(update):
                attempt.commit(has_update=True)
                break
        self.clock = self._settings.clock
        self.deadline = self._own_deadline
        set_limits_after_commit(
            self,
            self._settings.failover,
            attempt,
            has_output=any(each.has_output for each in ahead),
        )
        stream.put_back(ahead)
        return stream

    async def _shielded(self, call: Callable[[], Awaitable[None]]) -> None:
        """Await a hook on a cancelled request; whatever it does, the cancellation goes on."""
        scope = self._attempt.scope if self._attempt is not None else self._parent
        with anyio.CancelScope(deadline=closing_deadline(scope), shield=True) as shield:
            try:
                await call()
            except Exception:  # noqa: BLE001  # logged; nothing may replace the cancellation
                reporting.logger.exception("routing.hook_failed router=%s", self._settings.name)
        if shield.cancelled_caught:
            reporting.logger.warning("routing.hook_timed_out router=%s", self._settings.name)

    @property
    @override
    def attempts(self) -> Sequence[RoutingAttempt]:
        return self._context.attempts if hasattr(self, "_context") else ()

    @override
    def attach(self, stream: ResponseStream) -> None:
        if self._attempt is not None:
            self._attempt.attach(stream)

    @override
    async def on_end(self, error: BaseException | None) -> BaseException | None:
        attempt = cast("RunningAttempt", self._attempt)  # a layer counts once `open` has returned
        record = attempt.record(*outcome_of_stream(attempt, error))
        self._context.add(record)
        result, cut_off = await tell_of_end(
            self._settings, self._context, record, error, self._report_end
        )
        self._release(result)
        self._caller_error = None
        if cut_off is not None:
            raise cut_off  # the stream knows whether its time limit did it
        return result

    @override
    def on_dropped(self) -> None:
        if self._attempt is not None:
            self._attempt.scope.end()
