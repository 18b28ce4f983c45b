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
    from chatrouting.routing._call import RouterCall

#: Routers inside routers; more means that a client is nested in itself.
MAXIMUM_DEPTH: Final = 64

#: Seconds for closing and for hooks once the caller has given up.
CLOSING_LIMIT: Final = 2.0

#: For `enter`, `leave` and `current_scope`; routers, for which each call counts, use it directly.
current: ContextVar["RequestScope | None"] = ContextVar("chatrouting_scope", default=None)

#: The tickets of a request that has met no router yet.
_tickets: ContextVar[dict[object, Any] | None] = ContextVar("chatrouting_tickets", default=None)


class RequestScope:
    """The surroundings of one attempt, as the clients inside it see them. Made by routers.

    Attributes:
        key: Of the attempt that runs; parent of what routers inside it record.
        call: The router call that made the attempt, which knows the rest; None once the attempt is
            over. A task left behind by it starts a request of its own.
        parent: The scope that the router call came in.
        record: Of the attempt, not yet whole; it collects those of the routers inside.
    """

    key: int
    call: "RouterCall | None"
    parent: "RequestScope | None"
    record: "RoutingAttempt"
    _closing_deadline: float  #: Not there until somebody asks.

    __slots__ = ("_closing_deadline", "call", "key", "parent", "record")

    @property
    def request_id(self) -> str:
        """Shared by the whole tree of routers; empty once the attempt is over."""
        return "" if self.call is None else self.call.request_id

    @property
    def deadline(self) -> float | None:
        """When the request ends, by the event loop's clock; None if it may take for ever."""
        return None if self.call is None else self.call.ends_at

    @property
    def tickets(self) -> dict[object, Any]:
        """What layers keep for the whole request, by layer.

        One mapping for the tree of routers, or a copy below a router that has waited.
        """
        return {} if self.call is None else self.call.tickets

    @property
    def waits_together(self) -> bool:
        """Whether a router further out waits for all candidates at once if all refuse.

        A client that could make the request wait refuses it instead (see `admission`).
        """
        return self.call is not None and self.call.waits_together

    def enter(self) -> Token["RequestScope | None"]:
        """Make this the current scope until `leave` is called, in the same context."""
        return current.set(self)

    def closing_deadline(self) -> float:
        """Return the one time limit, absolute, that a cancelled request has for cleaning up."""
        if self.parent is not None and self.parent.call is not None:
            return self.parent.closing_deadline()
        try:
            return self._closing_deadline
        except AttributeError:
            self._closing_deadline = anyio.current_time() + CLOSING_LIMIT
            return self._closing_deadline


def leave(token: Token[RequestScope | None]) -> None:
    """Undo `enter`."""
    try:
        current.reset(token)
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
    scope = current.get()
    return None if scope is None or scope.call is None else scope


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


def nested_too_deep(depth: int) -> ConfigurationError:
    """Make the error for a router call that more than 64 others enclose.

    Args:
        depth: Of the call; 1 for the outermost.
    """
    return ConfigurationError(
        f"{depth - 1} router calls are nested in one another; at most {MAXIMUM_DEPTH} are "
        "allowed. Look for a client that is one of its own routes."
    )
