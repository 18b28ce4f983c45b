"""What a policy sees of a request, and what it may answer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from chatrouting._copying import NeverCopied
from chatrouting.attempt import AttemptOutcome, RoutingAttempt, identifier
from chatrouting.client import ChatClient
from chatrouting.messages import ChatMessage, MessagesInput, as_messages
from chatrouting.options import ChatOptions
from chatrouting.routing._routes import RoutesInput, RouteTable

_NO_OPTIONS: Final = ChatOptions()
_REFUSED: Final = AttemptOutcome.REFUSED_LOCALLY


@final
@dataclass(frozen=True, slots=True)
class Selection:
    """A chosen client, and what is special about this one attempt.

    Attributes:
        client: The client, or the name of a route.
        options: What the client gets instead of `context.options`, this time only.
        messages: What the client gets instead of `context.messages`, this time only.
        reason: Why, for whoever reads records and logs.
        detail: What else is to be known of the choice; handed on to the attempt's record.
    """

    client: ChatClient | str
    options: ChatOptions | None = None
    messages: MessagesInput | None = None
    reason: str | None = None
    detail: object = None


Selected: TypeAlias = ChatClient | str | Selection | None

#: What is about to be invoked: a client, its name, what it is given, and the choice of it.
Target: TypeAlias = tuple[ChatClient, str, tuple[ChatMessage, ...], ChatOptions, Selection | None]


class RoutingContext(NeverCopied):
    """What policies see of one request at one router.

    Made by the router; constructible, to test policies.

    Attributes:
        messages: The conversation, read once.
        is_streaming: The caller wants a stream.
        request_key: What `request_id` is written from.
        parent: The context of the router around this one, if there is one.
        selection: The `Selection` by which the attempt that runs, or ran last, was chosen; None if
            `select_client` returned no such.
    """

    messages: tuple[ChatMessage, ...]
    is_streaming: bool
    request_key: int | str
    parent: "RoutingContext | None"
    selection: Selection | None

    __slots__ = (
        "_attempts",
        "_deadline",
        "_is_tried",
        "_options",
        "_refused",
        "_routes",
        "_state",
        "is_streaming",
        "messages",
        "parent",
        "request_key",
        "selection",
    )

    def __init__(
        self,
        messages: MessagesInput,
        options: ChatOptions | None = None,
        *,
        is_streaming: bool = False,
        request_id: str = "",
        routes: RoutesInput | RouteTable = (),
        attempts: Sequence[RoutingAttempt] = (),
        parent: "RoutingContext | None" = None,
    ) -> None:
        """Make a context.

        Args:
            messages: The conversation.
            options: None means fresh ones.
            is_streaming: See the class.
            request_id: Shared by all routers that the request passes.
            routes: The clients of the router.
            attempts: What was tried before; their routes count as attempted.
            parent: See the class.

        Raises:
            TypeError: If `messages` is None, or `options` are no `ChatOptions`.
        """
        table = routes if isinstance(routes, RouteTable) else RouteTable(routes)
        self._start(messages, options, table, is_streaming)
        self.request_key = request_id
        self.parent = parent
        for attempt in attempts:
            self.add(attempt)
            if attempt.route in table.by_name:
                self.mark_tried(table.index_of_name(attempt.route))

    def _start(
        self,
        messages: MessagesInput,
        options: ChatOptions | None,
        routes: RouteTable,
        is_streaming: bool,  # noqa: FBT001  # by position: that is what the hot path is for
    ) -> None:
        if options is not None and not isinstance(options, ChatOptions):
            raise _no_options(options)
        self.messages = as_messages(messages)
        self.is_streaming = is_streaming
        self._deadline = math.inf
        self.selection = None
        self._options = _NO_OPTIONS if options is None else options
        self._routes = routes
        self._is_tried = routes.none_tried.copy()
        self._refused: tuple[ChatClient, ...] = ()
        self._attempts: tuple[RoutingAttempt, ...] = ()
        self._state: dict[Any, Any] | None = None

    @property
    def request_id(self) -> str:
        """Shared by all routers that the request passes."""
        return identifier(self.request_key)

    @property
    def deadline(self) -> float:
        """When the request ends, by the event loop's clock; infinity if it has no timeout."""
        return self._deadline

    @property
    def options(self) -> ChatOptions:
        """What the next client gets. May be assigned; that holds for the rest of the request."""
        return self._options

    @options.setter
    def options(self, value: ChatOptions | None) -> None:
        if value is not None and not isinstance(value, ChatOptions):
            raise _no_options(value)
        self._options = _NO_OPTIONS if value is None else value

    @property
    def attempts(self) -> tuple[RoutingAttempt, ...]:
        """What this router did so far, in order."""
        return self._attempts

    @property
    def previous_attempt(self) -> RoutingAttempt | None:
        """The last attempt; None at the first selection."""
        return self._attempts[-1] if self._attempts else None

    @property
    def remaining(self) -> tuple[str, ...]:
        """Names of the routes that were not attempted, and whose client did not refuse."""
        return tuple(
            name for index, name in enumerate(self._routes.names) if not self._is_tried[index]
        )

    @property
    def state(self) -> dict[Any, Any]:
        """Whatever a policy wants to keep with the request."""
        if self._state is None:
            self._state = {}
        return self._state

    def next_route(self) -> str | None:
        """Return the first of `remaining`, None if there is none."""
        return self._routes.names[self._is_tried.index(False)] if False in self._is_tried else None

    def take_next(self) -> Target | None:
        """Take the first of `remaining` out of it, and return what to invoke; None at the end."""
        is_tried, routes = self._is_tried, self._routes
        if False not in is_tried:
            return None
        index = is_tried.index(False)
        is_tried[index] = True
        return routes.clients[index], routes.names[index], self.messages, self._options, None

    def has_refused(self, client: ChatClient) -> bool:
        """Say whether this client refused the request without asking a provider."""
        return any(each is client for each in self._refused)

    def mark_tried(self, index: int) -> None:
        """Take a position out of `remaining`."""
        self._is_tried[index] = True

    def find_client(self, client: ChatClient) -> int | None:
        """Return the position that choosing this client means, None if it is no route."""
        return self._routes.index_of_client(client, self._is_tried)

    def add(self, attempt: RoutingAttempt) -> None:
        """Note an attempt, and whether its client refused."""
        self._attempts += (attempt,)
        if attempt.outcome is _REFUSED and attempt.client is not None:
            self._refused += (attempt.client,)
            for index, client in enumerate(self._routes.clients):
                if client is attempt.client:
                    self._is_tried[index] = True


def _no_options(value: object) -> TypeError:
    return TypeError(f"options are {type(value).__name__}; expected ChatOptions or None.")
