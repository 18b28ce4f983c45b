"""The chat client over a pool of endpoints: a failover whose selection the pool makes.

    async with EndpointPool.from_env("GPT_4_O") as pool:
        client = PooledChatClient(pool)
        response = await client.get_response("Hello")

Attempts, streams and nesting are those of every router; the pool learns of each attempt, and says
whom to ask, and whether to wait.
"""

import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Self, final

import anyio
from typing_extensions import override

from chatrouting.attempt import AttemptOutcome, RoutingAttempt
from chatrouting.client import ChatClient
from chatrouting.messages import MessagesInput
from chatrouting.options import ChatOptions
from chatrouting.pool._choice import MemberChoice
from chatrouting.pool._regions import KNOWN_REGIONS
from chatrouting.pool._request import PooledRequest
from chatrouting.pool._roster import Roster
from chatrouting.pool.endpoint import EndpointProvider, TokenProvider
from chatrouting.pool.events import PoolEvent
from chatrouting.pool.loop_clients import ClientFactory, Wrap
from chatrouting.pool.members import REQUEST, PoolMember
from chatrouting.pool.policy import PoolPolicy
from chatrouting.pool.pool import EndpointPool
from chatrouting.responses import ChatResponse
from chatrouting.routing._call import RouterCall
from chatrouting.routing._routes import RouteTable
from chatrouting.routing._settings import CommitOn, Listener, ShouldFailover
from chatrouting.routing.context import RoutingContext, Selected
from chatrouting.routing.failover import FailoverChatClient
from chatrouting.stream import ResponseStream

#: The name of a route must not be empty, which the id of a bare endpoint may be.
BARE_ROUTE: Final = "bare"

_COMPLETED: Final = AttemptOutcome.COMPLETED
_FAILED: Final = AttemptOutcome.FAILED
_REFUSED: Final = AttemptOutcome.REFUSED_LOCALLY


@final
class PooledChatClient(FailoverChatClient):
    """Asks the members of a pool until one answers.

    Which failures move on to another member, how often and how long, the pool's policy says. Each
    attempt is named after its endpoint; `endpoint_of(attempt)` gives the endpoint. A pool of one
    asks its member again, after a wait, as often as the endpoint's `max_retries` allows.

    The pool stays the caller's: closing the client leaves it open, since several may share one.
    That of `from_env` is the client's own, and is closed with it.
    """

    _routes_parameter = "pool"

    def __init__(
        self,
        pool: EndpointPool[ChatClient],
        *,
        rng: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        maximum_attempts_per_request: int | None = None,
        should_failover: ShouldFailover | None = None,
        commit_on: CommitOn = "content",
        attempt_timeout: float | None = None,
        first_output_timeout: float | None = None,
        stall_timeout: float | None = None,
        on_routing_update: Listener | None = None,
        name: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Put a chat client over a pool.

        Args:
            pool: The pool; may serve other clients as well.
            rng: Returns random numbers in 0..1, for the waits in a pool of one.
            sleep: Waits for a number of seconds, in a pool of one; must be cancellable.
            maximum_attempts_per_request: As for `FailoverChatClient`; besides the policy's limits.
            should_failover: As for `FailoverChatClient`. None: what the policy says.
            commit_on: As for `FailoverChatClient`.
            attempt_timeout: As for `FailoverChatClient`; besides each endpoint's own `timeout`,
                which bounds an answer, or the wait for the first output of a stream.
            first_output_timeout: Likewise.
            stall_timeout: As for `FailoverChatClient`. None: the policy's `stream_idle_timeout`.
            on_routing_update: As for `RoutingChatClient`.
            name: As for `RoutingChatClient`; None for the pool's.
            clock: As for `RoutingChatClient`.

        Raises:
            TypeError: If `pool` is no pool.
            ConfigurationError: If a number is out of range.
        """
        if not isinstance(pool, EndpointPool):
            raise TypeError(f"pool is {type(pool).__name__}; expected an EndpointPool.")
        self._pool = pool
        self._owns_pool = False
        self._rng = rng
        self._sleep = sleep
        self._says = should_failover
        self._commits_at_once = commit_on == "update"
        policy = pool.policy
        super().__init__(
            maximum_attempts_per_request=maximum_attempts_per_request,
            should_failover=self._moves_on,
            commit_on=commit_on,
            attempt_timeout=attempt_timeout,
            first_output_timeout=first_output_timeout,
            stall_timeout=policy.stream_idle_timeout if stall_timeout is None else stall_timeout,
            leave_open=True,
            on_routing_update=on_routing_update,
            name=name or pool.name or None,
            clock=clock,
        )
        self._follow_pool()

    @classmethod
    def from_env(
        cls,
        name: str | None = None,
        *,
        provider: EndpointProvider = "azure",
        env: Mapping[str, str | None] | None = None,
        policy: PoolPolicy | None = None,
        regions: Iterable[str] = KNOWN_REGIONS,
        credential: TokenProvider | None = None,
        client_factory: ClientFactory[ChatClient] | None = None,
        wrap: Wrap[ChatClient] | None = None,
        strict: bool = False,
        fallback_to_default: bool = False,
        on_event: Callable[[PoolEvent], object] | None = None,
        on_routing_update: Listener | None = None,
    ) -> Self:
        """Build a client over a pool of its own, of what environment variables describe.

        For what cannot be said here, make the pool, and the client over it.

        Args:
            name: The model, as variables call it; see `discover`.
            provider: As for `EndpointPool.from_env`, as all further ones but the last.
            env: Likewise.
            policy: Likewise.
            regions: Likewise.
            credential: Likewise.
            client_factory: Likewise.
            wrap: Likewise.
            strict: Likewise.
            fallback_to_default: Likewise.
            on_event: Likewise.
            on_routing_update: As for `RoutingChatClient`.

        Raises:
            ConfigurationError: As for `discover`.
        """
        pool: EndpointPool[ChatClient] = EndpointPool.from_env(
            name,
            provider=provider,
            env=env,
            policy=policy,
            regions=regions,
            credential=credential,
            client_factory=client_factory,
            wrap=wrap,
            strict=strict,
            fallback_to_default=fallback_to_default,
            on_event=on_event,
        )
        client = cls(pool, on_routing_update=on_routing_update)
        client._owns_pool = True
        return client

    @override
    async def aclose(self) -> None:
        """Refuse further requests; a pool of one's own is closed.

        Raises:
            Exception: What closing a client of that pool raised.
            ExceptionGroup: If several did.
        """
        await super().aclose()
        if self._owns_pool:
            await self._pool.aclose()

    @property
    def pool(self) -> EndpointPool[ChatClient]:
        """The pool."""
        return self._pool

    @override
    async def get_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ChatResponse:
        """Answer whole, by a member of the pool.

        Raises:
            PoolExhaustedError: If all members are held back, and none is back in time.
            ClientClosedError: If this client or the pool was closed.
            Exception: The last member's error, unchanged.
        """
        if self._is_closed:
            raise self._closed_error()
        roster = self._roster
        if roster.core.table is not roster.table:
            self._follow_pool()
        call = RouterCall(self._settings, messages, options, is_streaming=False)
        try:
            return await call.run()
        except BaseException:
            # An attempt gives back what it holds where it is judged. Of a coroutine that is thrown
            # away nobody judges it.
            request: PooledRequest | None = call.state.get(REQUEST)
            if request is not None and request.ticket is not None:
                request.neutral()
            raise

    @override
    def get_streaming_response(
        self, messages: MessagesInput, options: ChatOptions | None = None
    ) -> ResponseStream:
        """Answer piece by piece, by the member that is selected when the stream is first read.

        Raises:
            ClientClosedError: If this client was closed. The other errors of `get_response` come
                when the stream is read.
        """
        roster = self._roster
        if roster.core.table is not roster.table:
            self._follow_pool()
        return super().get_streaming_response(messages, options)

    @override
    async def select_client(self, context: RoutingContext) -> Selected:
        """Return a member that the pool chooses, once one is ready.

        Raises:
            PoolExhaustedError: If nothing was sent yet and no member is back in time.
        """
        return await self._choice.wait(context)

    @override
    async def on_routing_update(
        self, context: RoutingContext, attempt: RoutingAttempt, is_terminal: bool
    ) -> None:
        """Tell the pool how an attempt went."""
        request: PooledRequest = context.state[REQUEST]
        ticket = request.ticket
        if ticket is None:  # asked although it was not ready, see `PooledRequest.admit`
            return
        outcome, error = attempt.outcome, attempt.exception
        if outcome is _COMPLETED:
            first = attempt.time_to_first_update
            request.ticket = None
            request.roster.core.succeeded(ticket, attempt.duration if first is None else first)
        elif outcome is _FAILED and error is not None:
            request.failed(error)
        elif outcome is _REFUSED:
            request.refused()
        else:
            request.neutral()

    @override
    def may_select_again(self, context: RoutingContext) -> bool:
        """Say whether the policy leaves attempts and time, and in a pool of one a wait is short."""
        request: PooledRequest = context.state[REQUEST]
        attempt = context.previous_attempt
        if attempt is None or attempt.outcome is _REFUSED:
            return not request.is_single
        hint = None if attempt.failure is None else attempt.failure.retry_after
        # The failure of this attempt is told to the request afterwards.
        failures = request.failures + 1
        return request.may_try_again(failures, hint, context.deadline)

    def _moves_on(self, context: RoutingContext, attempt: RoutingAttempt) -> bool:
        request: PooledRequest = context.state[REQUEST]
        error = attempt.exception
        if self._says is not None:
            moves_on = self._says(context, attempt)
        else:
            moves_on = error is not None and request.moves_on(error)
        return moves_on and self._pool.may_retry()

    def _follow_pool(self) -> None:
        """Make a route of each endpoint that the pool has now."""
        roster = Roster(self._pool, bare=BARE_ROUTE, rng=self._rng, sleep=self._sleep)
        members: dict[str, ChatClient] = {
            roster.names[endpoint.id]: PoolMember(
                self._pool, endpoint, commits_at_once=self._commits_at_once
            )
            for endpoint in roster.endpoints
        }
        self._routes = routes = RouteTable(members, parameter=self._routes_parameter)
        # The same roster for both: another thread may follow the pool meanwhile.
        self._choice = choice = MemberChoice(roster, routes)
        self._settings = replace(
            self._settings, routes=routes, take=choice.take, select=choice.wait
        )
        self._roster = roster
