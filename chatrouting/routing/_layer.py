"""A router's part in a stream: reading ahead to the commit, and the record when the stream ends."""

from collections.abc import Sequence
from typing import final

from typing_extensions import override

from chatrouting._layers import StreamLayer
from chatrouting.attempt import RoutingAttempt
from chatrouting.client import ChatClient
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions
from chatrouting.responses import ChatResponseUpdate
from chatrouting.routing._call import RouterCall
from chatrouting.routing._ending import outcome_of_stream, tell_of_end
from chatrouting.routing._running import RunningAttempt
from chatrouting.routing._time_limits import set_limits_after_commit
from chatrouting.stream import ResponseStream


@final
class RouterLayer(StreamLayer):
    """What a router keeps with a stream, from the moment that the call has opened it."""

    _attempt: (
        RunningAttempt  #: Set by `open_stream`; nothing else is called before it has returned.
    )

    def __init__(self, call: RouterCall) -> None:
        self._call = call
        self.caller_error: BaseException | None = None  #: What the reader handled when it began.
        self.clock = call.settings.clock
        self._stream: ResponseStream | None = None  #: What carries the layer, until it ends.

    async def open_stream(
        self,
        attempt: RunningAttempt,
        client: ChatClient,
        messages: tuple[ChatMessage, ...],
        options: ChatOptions,
    ) -> ResponseStream:
        """Invoke a client and read its stream up to the commit; what was read is put back."""
        self._attempt = attempt
        settings = self._call.settings
        source = client.get_streaming_response(messages, options)
        stream = source if isinstance(source, ResponseStream) else ResponseStream(source)
        stream.surround(attempt, settings.clock)
        attempt.read_from(stream, settings.clock)
        ahead: list[ChatResponseUpdate] = []
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
            if settings.commits(update):
                attempt.commit(has_update=True)
                break
        self.deadline = self._call.own_deadline
        has_output = any(each.has_output for each in ahead)
        set_limits_after_commit(self, settings.failover, attempt, has_output=has_output)
        stream.put_back(ahead)
        return stream

    @property
    @override
    def attempts(self) -> Sequence[RoutingAttempt]:
        return self._call.attempts

    @override
    def attach(self, stream: ResponseStream) -> None:
        self._stream = stream
        self._attempt.attach(stream)

    @override
    async def on_end(self, error: BaseException | None) -> BaseException | None:
        call, attempt = self._call, self._attempt
        attempt.stream, self._stream = self._stream, None
        record = attempt.finish(call, *outcome_of_stream(attempt, error))
        call.add(record)
        try:
            result, cut_off = await tell_of_end(call.settings, call, record, error, call.report_end)
        except GeneratorExit:  # thrown away: whatever else is raised, is returned
            call.release(None, self.caller_error)
            raise
        call.release(result, self.caller_error)
        self.caller_error = None
        if cut_off is not None:
            raise cut_off  # the stream knows whether its time limit did it
        return result

    @override
    def on_dropped(self) -> None:
        self._attempt.end()
        self._stream = None
