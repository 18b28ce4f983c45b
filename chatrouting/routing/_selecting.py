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
    if selected is None:
        return None
    if isinstance(selected, Selection):
        selection, chosen = selected, selected.client
    else:
        selection, chosen = None, selected
    context.selection = selection
    client, route = _find(chosen, context, routes)
    if context.has_refused(client):
        return None
    if selection is None:
        return Target(client, route, context.messages, context.options)
    return Target(
        client,
        route,
        context.messages if selection.messages is None else as_messages(selection.messages),
        context.options if selection.options is None else selection.options,
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
