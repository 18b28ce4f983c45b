"""From what a policy returned to the client, name, options and messages of one attempt."""

from collections.abc import Awaitable
from typing import Any, NamedTuple

from chatrouting._limits import LimitExpired, run_within
from chatrouting.client import ChatClient
from chatrouting.errors import ConfigurationError
from chatrouting.messages import ChatMessage, as_messages
from chatrouting.options import ChatOptions
from chatrouting.routing._errors import request_timeout
from chatrouting.routing._routes import RouteTable, name_of
from chatrouting.routing._settings import CallSettings
from chatrouting.routing.context import RoutingContext, Selected, Selection


class Target(NamedTuple):
    """What is about to be invoked."""

    client: ChatClient
    route: str
    messages: tuple[ChatMessage, ...]
    options: ChatOptions


async def select(
    settings: CallSettings, context: RoutingContext, deadline: float | None, baseline: int
) -> Target | None:
    """Ask the policy for the client of the next attempt.

    A client that has refused the request already is not asked again: the policy is, as often as
    the router has routes.

    Args:
        settings: The router's.
        context: The request.
        deadline: When the request ends, where this router is the one to enforce it.
        baseline: What `cancel_baseline` gave at the start of the call.

    Returns:
        None if there is nothing left to invoke.

    Raises:
        ConfigurationError: If the policy returned an unknown name or something else altogether.
        RequestTimeoutError: If the time of the request ran out meanwhile.
        BaseException: What the policy raised.
    """
    for _ in range(len(settings.routes.names) + 1):
        selecting: Any = settings.select(context)
        if hasattr(selecting, "__await__"):
            if deadline is not None:
                selecting = _select_within(deadline, selecting, baseline)
            selecting = await selecting
        if selecting is None:
            break
        target = resolve(selecting, context, settings.routes)
        if not context.has_refused(target.client):
            return target
    return None


async def _select_within(
    deadline: float, selecting: Awaitable[Selected], baseline: int
) -> Selected:
    try:
        return await run_within(deadline, lambda: selecting, baseline)
    except LimitExpired as expired:
        error = expired.caused(request_timeout("while a client was selected"))
    raise error


def resolve(
    selected: ChatClient | Selection | str, context: RoutingContext, routes: RouteTable
) -> Target:
    """Find the client that a policy means, and mark its position as attempted.

    Raises:
        ConfigurationError: If the policy returned an unknown name or something else altogether.
    """
    if isinstance(selected, str):  # the common case, with nothing to look into
        index = routes.index_of_name(selected)
        context.mark_tried(index)
        context.selection = None
        return Target(routes.clients[index], selected, context.messages, context.options)
    if not isinstance(selected, Selection):
        context.selection = None
        client, route = _find(selected, context, routes)
        return Target(client, route, context.messages, context.options)
    context.selection = selected
    client, route = _find(selected.client, context, routes)
    return Target(
        client,
        route,
        context.messages if selected.messages is None else as_messages(selected.messages),
        context.options if selected.options is None else selected.options,
    )


def _find(
    chosen: ChatClient | str, context: RoutingContext, routes: RouteTable
) -> tuple[ChatClient, str]:
    if isinstance(chosen, str):
        index = routes.index_of_name(chosen)
    else:
        found = context.find_client(chosen)
        if found is None:
            if not isinstance(chosen, ChatClient):
                raise ConfigurationError(
                    f"select_client returned {type(chosen).__name__}; expected a chat client, "
                    "the name of a route, a Selection or None."
                )
            return chosen, name_of(chosen)
        index = found
    context.mark_tried(index)
    return routes.clients[index], routes.names[index]
