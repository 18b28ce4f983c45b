"""How a request of a router chooses among the members of a pool, which are the router's routes."""

from typing import Any, Final, final

from chatrouting.admission import HeadroomSource
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions
from chatrouting.pool._request import PooledRequest
from chatrouting.pool._roster import Roster
from chatrouting.pool.affinity import stable_prefix
from chatrouting.pool.members import REQUEST
from chatrouting.routing._routes import RouteTable
from chatrouting.routing.context import RoutingContext, Target

_LETTERS_PER_TOKEN: Final = 4
_DEFAULT_ANSWER: Final = 256  # tokens, where the request sets no limit


@final
class MemberChoice:
    """The choice among the members that are on a roster, for all requests that find it so."""

    __slots__ = ("_has_facts", "_places", "_roster", "_weighs_room")

    def __init__(self, roster: Roster, routes: RouteTable) -> None:
        """Choose among `routes`, which are named as in the roster."""
        policy = roster.pool.policy
        self._roster = roster
        self._places = dict(zip(routes.names, enumerate(routes.clients), strict=True))
        self._has_facts = policy.strategy == "affinity" or policy.enforce_tpm
        self._weighs_room = policy.prefer_headroom

    def take(self, context: RoutingContext) -> Target | None:
        """Return the member to invoke; None if none is ready."""
        state = context.state
        request: PooledRequest | None = state.get(REQUEST)
        if request is None:
            request = state[REQUEST] = PooledRequest(self._roster, context.deadline)
        key = tokens = None
        if self._has_facts:
            key, tokens = self._facts(context)
        room = self._room(context) if self._weighs_room else None
        name = request.pick(key, tokens, room)
        if name is None:
            return None
        index, client = self._places[name]
        context.mark_tried(index)
        return client, name, context.messages, context.options, None

    async def wait(self, context: RoutingContext) -> str | None:
        """Return the name of a member, once one is ready; None if none is in time.

        Raises:
            PoolExhaustedError: If nothing was sent yet and no member is back in time.
        """
        state = context.state
        if REQUEST not in state:
            state[REQUEST] = PooledRequest(self._roster, context.deadline)
        request: PooledRequest = state[REQUEST]
        key, tokens = self._facts(context)
        return await request.acquire(key=key, tokens=tokens, deadline=context.deadline)

    def _room(self, context: RoutingContext) -> dict[str, float]:
        """Ask the members' clients how much room they have, those that know."""
        room: dict[str, float] = {}
        for endpoint_id, name in self._roster.names.items():
            _, member = self._places[name]
            source: Any = member.get_service(HeadroomSource)
            if isinstance(source, HeadroomSource):
                room[endpoint_id] = source.headroom(
                    context.messages, context.options, is_streaming=context.is_streaming
                )
        return room

    def _facts(self, context: RoutingContext) -> tuple[str | None, int | None]:
        """Find out what the policy looks at: a key for affinity, and the size of the request."""
        policy = self._roster.pool.policy
        hints = context.options.routing
        key = None if hints is None else hints.affinity_key
        if key is None and policy.strategy == "affinity":
            key = stable_prefix(context.messages, context.options)
        if not policy.enforce_tpm:
            return key, None
        return key, _estimated_tokens(context.messages, context.options)


def _estimated_tokens(messages: tuple[ChatMessage, ...], options: ChatOptions) -> int:
    letters = len(options.instructions or "") + sum(len(message.text) for message in messages)
    return letters // _LETTERS_PER_TOKEN + (options.max_output_tokens or _DEFAULT_ANSWER)
