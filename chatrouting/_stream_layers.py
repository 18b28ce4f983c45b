"""The layers around one stream: what they see, and how they are told of its end, each once."""

import logging
from collections.abc import Callable
from typing import Any, TypeAlias, final

import anyio

from chatrouting._exceptions import set_context
from chatrouting._layers import StreamLayer, StreamTimer, TapLayer, has_timer
from chatrouting._stream_source import StreamSource
from chatrouting._stream_state import Ending
from chatrouting.responses import ChatResponseUpdate
from chatrouting.scope import CLOSING_LIMIT, RequestScope, closing_deadline

logger = logging.getLogger("chatrouting.stream")

#: Index of the layer, its function, and whether the result replaces the update.
Step: TypeAlias = tuple[int, Callable[[ChatResponseUpdate], Any], bool]


@final
class LayerStack:
    """The layers around one stream, inside first.

    Attributes:
        layers: All of them.
        told: How many know of the end.
        steps: What sees each update on its way out, inside first.
    """

    __slots__ = ("layers", "steps", "told")

    def __init__(self, layer: StreamLayer | None) -> None:
        self.layers: list[StreamLayer] = [] if layer is None else [layer]
        self.steps: list[Step] = []
        self.told = 0

    def add(self, layer: StreamLayer, step: Callable[..., Any] | None, *, is_map: bool) -> None:
        """Put a layer outside of the others."""
        if step is not None:
            self.steps.append((len(self.layers), step, is_map))
        self.layers.append(layer)

    def first_taps(self) -> int:
        """Return how many layers stand before the first tap: the one that came with `open`."""
        return 1 if self.layers and not isinstance(self.layers[0], TapLayer) else 0

    def absorb(self, inner: "LayerStack") -> int:
        """Put the layers of an adopted stream inside of these; return how many they are."""
        known = len(inner.layers)
        self.steps[:] = [*inner.steps, *((i + known, step, m) for i, step, m in self.steps)]
        self.layers[:0] = inner.layers
        self.told = inner.told
        return known

    def arrange(self, known: int, source: StreamSource) -> None:
        """Make the layers from index `known` on part of the stream."""
        for index, layer in enumerate(self.layers[known:], known):
            if type(layer).on_update is not StreamLayer.on_update:
                self.steps.append((index, layer.on_update, False))
            if has_timer(layer):
                source.timers.append(StreamTimer(index, layer))
            if layer.clock is not None:
                source.clock = layer.clock
        self.steps.sort(key=lambda step: step[0])

    async def tell(self, ending: Ending, scope: RequestScope | None) -> None:
        """Tell those that do not know yet; shielded, and not for long, if the caller gave up."""
        while self.told < len(self.layers) and not ending.caller_gave_up:
            await self._tell_next(ending, None)
        if self.told == len(self.layers):
            return
        with anyio.CancelScope(deadline=closing_deadline(scope), shield=True) as shield:
            while self.told < len(self.layers):
                await self._tell_next(ending, shield)

    async def _tell_next(self, ending: Ending, shield: anyio.CancelScope | None) -> None:
        index = self.told
        # Count before awaiting: a layer is told once, also if it is cancelled meanwhile.
        self.told += 1
        is_inside = index < ending.stage
        told = ending.inner_error if is_inside else ending.error
        try:
            outcome = await self.layers[index].on_end(told)
        except BaseException as error:  # noqa: BLE001  # goes on outwards as the error
            if shield is not None and shield.cancel_called:
                logger.warning("stream.hook_timed_out limit_seconds=%s", CLOSING_LIMIT)
                return
            outcome = error
            if error.__context__ is None:
                set_context(error, told)
        if outcome is told:
            return
        if is_inside or ending.is_cancellation:
            logger.error("stream.hook_failed", exc_info=outcome)
        else:
            ending.error = outcome

    def drop(self, told: int) -> None:
        """Let the layers from index `told` on give back what they hold."""
        self.told = len(self.layers)
        for layer in self.layers[told:]:
            try:
                layer.on_dropped()
            except Exception:
                logger.exception("stream.hook_failed")  # the others still hold something
