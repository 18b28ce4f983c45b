"""A script, and the sources of updates that play it."""

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Self, cast, final

from chatrouting.responses import ChatResponse, ChatResponseUpdate
from chatrouting.testing._script_call import CallState, ScriptedCall
from chatrouting.testing._script_steps import (
    OnCall,
    OnClose,
    OnIter,
    Output,
    Part,
    Returns,
    Says,
    ScriptInput,
    Step,
)

#: What a stream is read from: an object; a plain async generator; an object with `take_ready`, as
#: adapters have it; an object without `aclose`.
SourceKind = Literal["object", "generator", "ready", "unclosable"]


@final
@dataclass(frozen=True, slots=True)
class Script:
    """What a client does in one call."""

    steps: tuple[Step, ...]
    on_call: tuple[OnCall, ...]
    on_iter: tuple[OnIter, ...]
    on_close: tuple[OnClose, ...]
    returns: tuple[Returns, ...]

    @classmethod
    def of(cls, script: ScriptInput) -> Self:
        """Sort the parts of a script by when they happen."""
        is_alone = isinstance(script, str) or not isinstance(script, Sequence)
        parts = cast("Sequence[Part]", (script,) if is_alone else script)
        return cls(
            steps=tuple(
                _step(part)
                for part in parts
                if not isinstance(part, OnCall | OnIter | OnClose | Returns)
            ),
            on_call=tuple(part for part in parts if isinstance(part, OnCall)),
            on_iter=tuple(part for part in parts if isinstance(part, OnIter)),
            on_close=tuple(part for part in parts if isinstance(part, OnClose)),
            returns=tuple(part for part in parts if isinstance(part, Returns)),
        )

    async def answer(self, call: ScriptedCall) -> ChatResponse:
        """Play the script to its end; the answer is the fold of its updates."""
        outputs: list[Output] = []
        with call.running():
            for each in self.on_iter:
                raise each.fails.exception()
            for step in self.steps:
                output = await step.run(call)
                if output is not None:
                    outputs.append(output)
        call.state = CallState.COMPLETED
        if len(outputs) == 1 and isinstance(outputs[0], ChatResponse):
            return outputs[0]  # the very object, so that a test can look for it
        return ChatResponse.from_updates(
            update for output in outputs for update in _updates(output)
        )


def _step(part: Output | Step) -> Step:
    return Says(part) if isinstance(part, str | ChatResponseUpdate | ChatResponse) else part


def _updates(output: Output) -> tuple[ChatResponseUpdate, ...]:
    if isinstance(output, str):
        return (ChatResponseUpdate(output),)
    return output.to_updates() if isinstance(output, ChatResponse) else (output,)


class UnclosableSource:
    """Plays a script, update by update. An async iterator that is no generator."""

    def __init__(self, script: Script, call: ScriptedCall) -> None:
        self._script = script
        self._call = call
        self._steps = deque(script.steps)
        self._queue: deque[ChatResponseUpdate] = deque()

    def __aiter__(self) -> Self:
        for each in self._script.on_iter:
            with self._call.running():
                raise each.fails.exception()
        return self

    async def __anext__(self) -> ChatResponseUpdate:
        call = self._call
        try:
            with call.running():
                while not self._queue and self._steps:
                    output = await self._steps.popleft().run(call)
                    if output is not None:
                        self._queue.extend(_updates(output))
        except BaseException:
            self._steps.clear()  # nothing comes after an error, as in a generator
            raise
        if self._queue:
            return self._hand_out()
        if call.state is CallState.RUNNING:
            call.state = CallState.COMPLETED
        raise StopAsyncIteration

    def _hand_out(self) -> ChatResponseUpdate:
        update = self._queue.popleft()
        self._call.updates.append(update)
        return update


class ObjectSource(UnclosableSource):
    """The same with an `aclose`."""

    async def aclose(self) -> None:
        """Count the closing, then do what the script says of it."""
        call = self._call
        call.close_count += 1
        if call.state is CallState.RUNNING:
            call.state = CallState.CLOSED
        self._steps.clear()
        self._queue.clear()
        for each in self._script.on_close:
            await each.step.run(call)


@final
class ReadySource(ObjectSource):
    """The same with a `take_ready`."""

    def take_ready(self) -> ChatResponseUpdate | None:
        """Return the next update if nothing has to happen before it."""
        said = self._steps[0] if self._steps and not self._queue else None
        if isinstance(said, Says):
            self._steps.popleft()
            with self._call.running():
                self._queue.extend(_updates(said.output))
        return self._hand_out() if self._queue else None


async def generate(source: ObjectSource) -> AsyncGenerator[ChatResponseUpdate, None]:
    """Play the same script as a plain async generator."""
    try:
        async for update in source:
            yield update
    finally:
        await source.aclose()
