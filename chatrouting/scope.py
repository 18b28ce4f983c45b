"""What one request carries through all layers, out of band of messages and options.

A context variable holds the scope of the attempt that is running. Routers read it to find their
parent, deadline and depth; quotas keep tickets in it. It is set only around calls into a client
and around reads and closes of a source that may call routers itself, never across a return to
the consumer.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Final

import anyio

from chatrouting.errors import ConfigurationError

if TYPE_CHECKING:
    from chatrouting.attempt import RoutingAttempt
    from chatrouting.routing.context import RoutingContext

#: Routers inside routers; more means that a client is nested in itself.
MAXIMUM_DEPTH: Final = 64

#: Seconds for closing and for hooks once the caller has given up.
CLOSING_LIMIT: Final = 2.0

_current: ContextVar["RequestScope | None"] = ContextVar("chatrouting_scope", default=None)

#: The tickets of a request that has met no router yet.
_tickets: ContextVar[dict[object, Any] | None] = ContextVar("chatrouting_tickets", default=None)


class RequestScope:
    """The surroundings of one attempt, as the clients inside it see them. Made by routers.

    Attributes:
        request_id: Shared by the whole tree of routers.
        attempt_id: The attempt that runs; parent of what routers inside it record.
        context: The context of the router that made the attempt; None once it is over.
        depth: 1 inside the outermost router.
        deadline: Absolute time of the event loop's clock at which the request ends, or None.
        children: Records of the routers inside, in the order of their ends.
        tickets: What layers keep for the whole request, by layer; one mapping for the tree, or a
            copy below a router that has waited.
        waits_together: A router further out waits for all candidates at once if all refuse: a
            client that could make the request wait refuses it instead (see `admission`).
        is_ended: The attempt is over. A task left behind by it starts a request of its own.
    """

    request_id: str
    attempt_id: str
    context: "RoutingContext | None"
    parent: "RequestScope | None"
    depth: int
    deadline: float | None
    children: "list[RoutingAttempt]"
    tickets: dict[object, Any]
    waits_together: bool
    is_ended: bool
    _closing_deadline: float | None

    __slots__ = (
        "_closing_deadline",
        "attempt_id",
        "children",
        "context",
        "deadline",
        "depth",
        "is_ended",
        "parent",
        "request_id",
        "tickets",
        "waits_together",
    )

    def enter(self) -> Token["RequestScope | None"]:
        """Make this the current scope until `leave` is called, in the same context."""
        return _current.set(self)

    def closing_deadline(self) -> float:
        """Return the one time limit, absolute, that a cancelled request has for cleaning up."""
        if self.parent is not None and not self.parent.is_ended:
            return self.parent.closing_deadline()
        if self._closing_deadline is None:
            self._closing_deadline = anyio.current_time() + CLOSING_LIMIT
        return self._closing_deadline


def leave(token: Token[RequestScope | None]) -> None:
    """Undo `enter`."""
    try:
        _current.reset(token)
    except ValueError:
        # The coroutine is thrown away from another context; the variable of its own went with it.
        return


def closing_deadline(scope: RequestScope | None) -> float:
    """Return when closing and hooks must be done once the caller has given up, absolute.

    Args:
        scope: Of the request; all its parts share one limit. None: a limit from now on.
    """
    return anyio.current_time() + CLOSING_LIMIT if scope is None else scope.closing_deadline()


def current_scope() -> RequestScope | None:
    """Return the scope of the attempt that this code runs in, None outside of every router."""
    scope = _current.get()
    return None if scope is None or scope.is_ended else scope


def current_tickets() -> dict[object, Any] | None:
    """Return the tickets of the request that this code runs in, None where there is no request."""
    scope = current_scope()
    return _tickets.get() if scope is None else scope.tickets


@contextmanager
def carrying_tickets(tickets: dict[object, Any]) -> Generator[None]:
    """Let routers and clients called in the block find these tickets.

    For a client outside of every router; inside of one the scope has tickets already.
    """
    token = _tickets.set(tickets)
    try:
        yield
    finally:
        with suppress(ValueError):  # thrown away from another context, as in `leave`
            _tickets.reset(token)


def check_depth(scope: RequestScope | None) -> None:
    """Refuse a router call that is nested too deep.

    Raises:
        ConfigurationError: If more than 64 router calls enclose this one.
    """
    if scope is not None and scope.depth >= MAXIMUM_DEPTH:
        raise ConfigurationError(
            f"{scope.depth} router calls are nested in one another; at most {MAXIMUM_DEPTH} are "
            "allowed. Look for a client that is one of its own routes."
        )
