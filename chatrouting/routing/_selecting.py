"""From what a policy returned to the client, name, options and messages of one attempt."""

from typing import NamedTuple

from chatrouting.client import ChatClient
from chatrouting.errors import ConfigurationError
from chatrouting.messages import ChatMessage, as_messages
from chatrouting.options import ChatOptions
from chatrouting.routing._routes import RouteTable, name_of
from chatrouting.routing.context import RoutingContext, Selected, Selection


class Target(NamedTuple):
    """What is about to be invoked."""

    client: ChatClient
    route: str
    messages: tuple[ChatMessage, ...]
    options: ChatOptions


def resolve(selected: Selected, context: RoutingContext, routes: RouteTable) -> Target | None:
    """Find the client that a policy means, and mark its position as attempted.

    Returns:
        None if there is nothing to invoke: the policy said so, or the client has refused already.

    Raises:
        ConfigurationError: If the policy returned an unknown name or something else altogether.
    """
    if isinstance(selected, str):  # the common case, with nothing to look into
        index = routes.index_of_name(selected)
        context.mark_tried(index)
        context.selection = None
        client, route = routes.clients[index], selected
        target = Target(client, route, context.messages, context.options)
    elif selected is None:
        return None
    else:
        target = _look_into(selected, context, routes)
    return None if context.has_refused(target.client) else target


def _look_into(
    selected: ChatClient | Selection, context: RoutingContext, routes: RouteTable
) -> Target:
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
