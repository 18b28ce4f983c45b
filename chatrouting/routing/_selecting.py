"""From what a policy returned to the client, name, options and messages of one attempt."""

from collections.abc import Awaitable
from typing import Any

from chatrouting._limits import LimitExpired, run_within
from chatrouting.client import ChatClient
from chatrouting.errors import ConfigurationError
from chatrouting.messages import as_messages
from chatrouting.routing._errors import request_timeout
from chatrouting.routing._routes import RouteTable, name_of
from chatrouting.routing._settings import CallSettings
from chatrouting.routing.context import RoutingContext, Selected, Selection, Target


async def select(
    settings: CallSettings,
    context: RoutingContext,
    selecting: Any,
    deadline: float | None,
    baseline: int,
) -> Target | None:
    """Find the client of the next attempt.

    A client that has refused the request already is not asked again: the policy is, as often as
    the router has routes.

    Args:
        settings: The router's.
        context: The request.
        selecting: What the policy answered first, awaitable or not.
        deadline: When the request ends, where this router is the one to enforce it.
        baseline: What `cancel_baseline` gave at the start of the call.

    Returns:
        None if there is nothing left to invoke.

    Raises:
        ConfigurationError: If the policy returned an unknown name or something else altogether.
        RequestTimeoutError: If the time of the request ran out meanwhile.
        BaseException: What the policy raised.
    """
    left = len(settings.routes.names)
    while True:
        if hasattr(selecting, "__await__"):
            if deadline is not None:
                selecting = _select_within(deadline, selecting, baseline)
            selecting = await selecting
        if selecting is None:
            return None
        target = resolve(selecting, context, settings.routes)
        if not context.has_refused(target[0]):
            return target
        if not left:
            return None
        left -= 1
        selecting = settings.select(context)


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
    messages, options = context.messages, context.options
    if not isinstance(selected, Selection):
        return *_find(selected, context, routes), messages, options, None
    if selected.messages is not None:
        messages = as_messages(selected.messages)
    if selected.options is not None:
        options = selected.options
    return *_find(selected.client, context, routes), messages, options, selected


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
