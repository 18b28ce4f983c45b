"""The steps that a script is made of, and the words that make them."""

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final

import anyio
from typing_extensions import override

from chatrouting.errors import ConfigurationError
from chatrouting.responses import ChatResponse, ChatResponseUpdate, FinishReason
from chatrouting.testing._reply import Gate
from chatrouting.testing._script_call import ScriptedCall
from chatrouting.usage import Usage

#: What a step may answer: text is one update; a response is whole, or all the updates it is.
Output: TypeAlias = str | ChatResponseUpdate | ChatResponse

#: An exception to raise as it is, or a class of which a new one is made each time.
Raisable: TypeAlias = BaseException | type[BaseException]

#: One update of the answer, with all the fields of `ChatResponseUpdate`: `update("Hel")`.
update = ChatResponseUpdate


class Step(Protocol):
    """Something that happens while an answer is made."""

    async def run(self, call: ScriptedCall) -> Output | None:
        """Do it; return what the client says, if anything."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Says(Step):
    """Hand something out."""

    output: Output

    @override
    async def run(self, call: ScriptedCall) -> Output | None:
        return self.output


@final
@dataclass(frozen=True, slots=True)
class Fails(Step):
    """Raise."""

    error: Raisable

    @override
    async def run(self, call: object) -> Output | None:
        raise self.exception()

    def exception(self) -> BaseException:
        """Return the exception: a new one if a class was given, else the given one as if new.

        Python adds to a traceback at each raise, and a script may be played thousands of times.
        """
        if isinstance(self.error, type):
            return self.error("scripted failure")
        return self.error.with_traceback(None)


@final
@dataclass(frozen=True, slots=True)
class Waits(Step):
    """Let time pass; None means for ever."""

    seconds: float | None

    @override
    async def run(self, call: object) -> Output | None:
        if self.seconds is None:
            await anyio.sleep_forever()
        else:
            await anyio.sleep(self.seconds)
        return None


@final
@dataclass(frozen=True, slots=True)
class WaitsFor(Step):
    """Wait for the test."""

    gate: Gate | anyio.Event

    @override
    async def run(self, call: object) -> Output | None:
        if isinstance(self.gate, Gate):
            self.gate.arrive()
            await self.gate.opened()
        else:
            await self.gate.wait()
        return None


@final
@dataclass(frozen=True, slots=True)
class Runs(Step):
    """Call a function."""

    function: "Callable[[ScriptedCall], Output | Awaitable[Output | None] | None]"

    @override
    async def run(self, call: ScriptedCall) -> Output | None:
        result = self.function(call)
        return await result if inspect.isawaitable(result) else result


@final
@dataclass(frozen=True, slots=True)
class CancelsItself(Step):
    """Raise a cancellation that nobody asked for."""

    @override
    async def run(self, call: ScriptedCall) -> Output | None:
        try:
            cancellation = anyio.get_cancelled_exc_class()()
        except TypeError as error:
            raise ConfigurationError(
                "cancels_itself() ran on trio, where only trio raises cancellations. "
                "Use it in tests for asyncio only."
            ) from error
        raise cancellation


@final
@dataclass(frozen=True, slots=True)
class OnCall:
    """Raise from the method itself, before there is a stream."""

    fails: Fails


@final
@dataclass(frozen=True, slots=True)
class OnIter:
    """Raise where the stream is first iterated."""

    fails: Fails


@final
@dataclass(frozen=True, slots=True)
class OnClose:
    """Something that happens when the stream is closed."""

    step: Step


@final
@dataclass(frozen=True, slots=True)
class Returns:
    """Return an object that is no answer."""

    value: object


Part: TypeAlias = Output | Step | OnCall | OnIter | OnClose | Returns
ScriptInput: TypeAlias = Part | Sequence[Part]


def fails(error: Raisable) -> Fails:
    """Raise `error`; of a class a new one each time."""
    return Fails(error)


def finishes(reason: FinishReason | str = FinishReason.STOP, usage: Usage | None = None) -> Step:
    """Hand out a last update without text, with a finish reason."""
    return Says(ChatResponseUpdate(finish_reason=reason, usage=usage))


def waits(seconds: float) -> Waits:
    """Wait, in the time of the event loop: virtual time passes at once.

    Raises:
        ConfigurationError: If `seconds` is less than 0 or not finite.
    """
    if not 0 <= seconds < math.inf:
        raise ConfigurationError(
            f"waits was given {seconds}; expected seconds, at least 0. To wait without an end "
            "use waits_forever()."
        )
    return Waits(seconds)


def waits_forever() -> Waits:
    """Wait until the caller gives up."""
    return Waits(None)


def waits_for(gate: Gate | anyio.Event) -> WaitsFor:
    """Wait until the test opens the gate or sets the event; `gate.reached()` tells the test."""
    return WaitsFor(gate)


def runs(
    function: "Callable[[ScriptedCall], Output | Awaitable[Output | None] | None]",
) -> Step:
    """Call `function(call)`, sync or async; what it returns is handed out, None is nothing."""
    return Runs(function)


def cancels_itself() -> Step:
    """Raise `asyncio.CancelledError` although nobody cancels; on trio it is not possible."""
    return CancelsItself()


def raises_on_call(error: Raisable) -> OnCall:
    """Raise from `get_streaming_response` itself, before there is a stream, or whole."""
    return OnCall(Fails(error))


def raises_on_iter(error: Raisable) -> OnIter:
    """Raise from the stream's `__aiter__`; in whole mode like `raises_on_call`."""
    return OnIter(Fails(error))


def raises_on_close(error: Raisable) -> OnClose:
    """Raise when the stream is closed; nothing in whole mode. A generator closes at its end."""
    return OnClose(Fails(error))


def waits_on_close(seconds: float) -> OnClose:
    """Take some time to close the stream; nothing in whole mode."""
    return OnClose(Waits(seconds))


def returns(value: object) -> Returns:
    """Return `value`, such as None, in place of a response or a stream."""
    return Returns(value)
