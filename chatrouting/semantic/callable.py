"""An embedding generator out of any function."""

from collections.abc import Awaitable, Callable, Iterable
from inspect import iscoroutinefunction
from typing import Any, TypeAlias, cast, final

from anyio import to_thread
from typing_extensions import override

from chatrouting.client import ClosingClient
from chatrouting.errors import ClientClosedError, ConfigurationError

EmbeddingFunction: TypeAlias = Callable[[list[str]], object | Awaitable[object]]


@final
class CallableEmbeddingGenerator(ClosingClient):
    """Turns texts into vectors by a function.

        generator = CallableEmbeddingGenerator(SentenceTransformer("...").encode)

    An `async def` is awaited. Any other function runs in a worker thread, since a model that
    computes would hold up every stream of the process; several calls may run at once, and one that
    nobody waits for any more runs on to its end. If what it returns can be awaited, it is.
    """

    def __init__(self, function: EmbeddingFunction) -> None:
        """Wrap a function.

        Args:
            function: Given a list of texts, returns one vector for each, in order: anything that
                `numpy.asarray` takes.

        Raises:
            TypeError: If `function` is None.
            ConfigurationError: If it cannot be called.
        """
        if function is None:
            raise TypeError("function is None; expected a function from texts to vectors.")
        if not callable(function):
            raise ConfigurationError(
                f"function is {type(function).__name__}, which cannot be called; expected a "
                "function from texts to vectors."
            )
        self._function = function
        self._is_async = iscoroutinefunction(function) or iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # an object with an async __call__
        )
        self._is_closed = False

    async def generate(self, texts: Iterable[str]) -> Any:
        """Return what the function returns.

        Raises:
            ClientClosedError: If the generator was closed.
            Exception: What the function raises.
        """
        if self._is_closed:
            raise ClientClosedError("the embedding generator was closed; ask before aclose.")
        asked = list(texts)
        if self._is_async:
            answer = self._function(asked)
        else:
            # In a tuple: trio takes no coroutine from a thread.
            (answer,) = await to_thread.run_sync(
                lambda: (self._function(asked),), abandon_on_cancel=True
            )
        if hasattr(answer, "__await__"):
            answer = await cast("Awaitable[object]", answer)
        return answer

    @override
    async def aclose(self) -> None:
        """Refuse further calls; what the function uses stays the caller's."""
        self._is_closed = True
