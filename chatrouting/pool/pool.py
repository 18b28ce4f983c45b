"""A pool of endpoints: who is asked next, and what is remembered of how it went.

It knows nothing of chat. A client asks `pick` for a ticket, makes its attempt at the ticket's
endpoint, and gives the ticket back by exactly one of `succeeded`, `failed` and `released`. All of
these are plain functions under a lock without an await, so a pool serves any number of threads and
event loops at once; only waiting is asynchronous.
"""

import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from random import Random
from typing import Generic, Self

from chatrouting._copying import SharedWhenCopied
from chatrouting.errors import ConfigurationError
from chatrouting.pool._factories import factory_of
from chatrouting.pool._grammar import DEFAULT_IMAGE_MODEL, EndpointKind
from chatrouting.pool._regions import KNOWN_REGIONS
from chatrouting.pool.core import Core
from chatrouting.pool.diagnostics import Diagnostics
from chatrouting.pool.discovery import discover
from chatrouting.pool.endpoint import Endpoint, EndpointProvider, TokenProvider
from chatrouting.pool.events import EndpointState, PoolEvent, state_of
from chatrouting.pool.faults import Fault
from chatrouting.pool.given import MembersInput, endpoints_and_clients
from chatrouting.pool.loop_clients import ClientFactory, ClientT, LoopClients, Wrap
from chatrouting.pool.member import Cooling, Ticket
from chatrouting.pool.policy import PoolPolicy
from chatrouting.pool.selection import Filter
from chatrouting.pool.table import Table


class EndpointPool(SharedWhenCopied, Generic[ClientT]):
    """Endpoints that stand in for one another.

    A pool of one is never held back: there is nobody else to ask. Closing the pool closes its
    clients, those that were given as well.

    Attributes:
        diagnostics: What `from_env` made of the environment; empty for other pools.
    """

    __slots__ = ("_core", "_only", "diagnostics")

    def __init__(
        self,
        members: MembersInput[ClientT],
        *,
        policy: PoolPolicy | None = None,
        client_factory: ClientFactory[ClientT] | None = None,
        wrap: Wrap[ClientT] | None = None,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
        on_event: Callable[[PoolEvent], object] | None = None,
    ) -> None:
        """Build a pool.

        Args:
            members: Endpoints; or clients by endpoint or by the id of one, as a mapping or pairs.
            policy: How they are treated; None for the defaults.
            client_factory: Makes the client of an endpoint that was given without one; called when
                an event loop first needs it.
            wrap: Puts middleware around each client.
            name: For logs and errors.
            clock: A monotonic clock, in seconds.
            rng: Where chance comes from. None draws differently in each process.
            on_event: Called for what happens to members, in the thread and the moment where it
                happens; it must not wait. What it raises is logged.

        Raises:
            ConfigurationError: If there are no members, or two with one id.
        """
        policy = PoolPolicy() if policy is None else policy
        endpoints, given = endpoints_and_clients(members)
        # The module's own generator is seeded anew in a forked process, an object of ours is not.
        chance = random.random if rng is None else rng.random
        self._only: str | None = None
        self.diagnostics = Diagnostics()
        self._core: Core[ClientT] = Core(
            Table(endpoints, policy, chance),
            LoopClients(given, client_factory, wrap),
            policy=policy,
            name=name,
            clock=clock,
            chance=chance,
            on_event=on_event,
        )

    @classmethod
    def from_env(
        cls,
        name: str | None = None,
        *,
        kind: EndpointKind = "chat",
        provider: EndpointProvider = "azure",
        env: Mapping[str, str | None] | None = None,
        policy: PoolPolicy | None = None,
        regions: Iterable[str] = KNOWN_REGIONS,
        credential: TokenProvider | None = None,
        client_factory: ClientFactory[ClientT] | None = None,
        wrap: Wrap[ClientT] | None = None,
        strict: bool = False,
        deployment: str | None = None,
        api_version: str | None = None,
        image_model: str = DEFAULT_IMAGE_MODEL,
        fallback_to_default: bool = False,
        on_event: Callable[[PoolEvent], object] | None = None,
    ) -> Self:
        """Build a pool of the endpoints that environment variables describe.

        Args:
            name: The model, as variables call it; see `discover`.
            kind: What its clients are for.
            provider: As for `discover`.
            env: Variables; None takes a snapshot of the process's.
            policy: As for the pool itself.
            regions: As for `discover`.
            credential: As for `discover`.
            client_factory: Makes the clients; None makes them over the OpenAI SDK.
            wrap: As for the pool itself.
            strict: As for `discover`.
            deployment: As for `discover`.
            api_version: As for `discover`.
            image_model: As for `discover`.
            fallback_to_default: As for `discover`.
            on_event: As for the pool itself.

        Raises:
            ConfigurationError: As for `discover`.
        """
        found = discover(
            name,
            kind=kind,
            provider=provider,
            env=env,
            regions=regions,
            credential=credential,
            strict=strict,
            deployment=deployment,
            api_version=api_version,
            image_model=image_model,
            fallback_to_default=fallback_to_default,
        )
        pool = cls(
            found.endpoints,
            policy=policy,
            client_factory=client_factory or factory_of(kind, credential),
            wrap=wrap,
            name=found.name,
            on_event=on_event,
        )
        pool.diagnostics = found.diagnostics
        return pool

    @property
    def name(self) -> str:
        """What logs and errors call the pool."""
        return self._core.name

    @property
    def policy(self) -> PoolPolicy:
        """How members are treated."""
        return self._core.policy

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints: by priority, within it the bare ones first, else as they were given."""
        table = self._core.table
        return table.endpoints if self._only is None else table.only(self._only)

    @property
    def preferred(self) -> Endpoint:
        """The first of `endpoints`."""
        return self.endpoints[0]

    def snapshot(self) -> tuple[EndpointState, ...]:
        """Return how the members are doing, in the order of `endpoints`."""
        core = self._core
        with core.lock:
            now = core.clock()
            members = core.table.members
            return tuple(state_of(members[each.id], now) for each in self.endpoints)

    def pick(
        self,
        *,
        affinity_key: str | None = None,
        exclude: Collection[str] = (),
        regions: Collection[str] | None = None,
        tokens: int | None = None,
        is_retry: bool = False,
        patience: float = math.inf,
    ) -> Ticket | Cooling:
        """Choose whom to ask.

        Args:
            affinity_key: Requests with the same key are best asked of the same member.
            exclude: Ids of endpoints that are out of the question.
            regions: Where the endpoint must be, in lower case; None for anywhere.
            tokens: What the request is thought to take, prompt and answer.
            is_retry: The request was tried before.
            patience: Seconds that it can wait for reserved throughput, if the policy says so.

        Returns:
            A ticket, to be given back once; or who is ready first, and when.

        Raises:
            NoEndpointAvailableError: If no member fits, ready or not.
        """
        allows = None
        if exclude or regions is not None or self._only is not None:
            allows = Filter(exclude, regions, self._only)
        return self._core.pick(allows, affinity_key, tokens, is_retry, patience)

    async def acquire(
        self,
        *,
        limit: float = math.inf,
        affinity_key: str | None = None,
        exclude: Collection[str] = (),
        regions: Collection[str] | None = None,
        tokens: int | None = None,
        is_retry: bool = False,
    ) -> Ticket:
        """Choose whom to ask, and wait for it if the policy says so.

        Args:
            limit: The longest wait, in seconds.
            affinity_key: As for `pick`.
            exclude: As for `pick`.
            regions: As for `pick`.
            tokens: As for `pick`.
            is_retry: As for `pick`.

        Raises:
            PoolExhaustedError: If nobody is ready in time; at once if that is known.
            NoEndpointAvailableError: If no member fits, ready or not.
        """
        look = partial(
            self.pick,
            affinity_key=affinity_key,
            exclude=exclude,
            regions=regions,
            tokens=tokens,
            is_retry=is_retry,
        )
        return await self._core.acquire(look, Filter(exclude, regions, self._only), limit)

    def succeeded(self, ticket: Ticket, *, latency: float | None = None) -> None:
        """Give a ticket back after an answer.

        Args:
            ticket: From `pick`; does nothing if it was given back before.
            latency: Seconds to the first output, or to the whole answer where there is no first.
        """
        self._core.succeeded(ticket, latency)

    def failed(self, ticket: Ticket, error: BaseException) -> Fault:
        """Give a ticket back after a failure, and say how the policy judges it.

        Args:
            ticket: From `pick`; if it was given back before, the failure is only judged.
            error: What the attempt raised.
        """
        core = self._core
        member = ticket.member
        fault = core.policy.classify(error)
        if len(core.table.endpoints) == 1:
            self.released(ticket)
            return fault
        with core.lock:
            now = core.clock()
            event = core.table.health.fail(ticket, fault, now)
            opens_in = member.open_at - now
        if event is not None or ticket.holds_slot:
            core.tell(ticket, event, opens_in)
        return fault

    def released(self, ticket: Ticket) -> None:
        """Give a ticket back after an attempt that says nothing: cancelled, abandoned, refused.

        May be called by a destructor, in the middle of anything.

        Args:
            ticket: From `pick`; does nothing if it was given back before.
        """
        core = self._core
        member = ticket.member
        if core.lock.is_held_here():  # what was dropped is collected in the middle of something
            core.lock.later(partial(self.released, ticket))
            return
        with core.lock:
            core.table.health.release(ticket)
            opens_in = member.open_at - core.clock()
        if ticket.holds_slot:
            core.tell(ticket, None, opens_in)

    def may_retry(self) -> bool:
        """Take one further attempt from the retry budget; True if there is one, or no budget."""
        core = self._core
        if core.retries is None:
            return True
        with core.lock:
            return core.retries.take(core.clock())

    def client_for(self, endpoint: Endpoint) -> ClientT:
        """Return the client of an endpoint for the running event loop; made when first asked for.

        Raises:
            ClientClosedError: If the pool was closed.
            ConfigurationError: If the endpoint has no client and nothing can make one.
        """
        return self._core.clients.get(endpoint)

    def replace_endpoints(self, endpoints: Iterable[Endpoint]) -> None:
        """Put other endpoints in place, such as the same with new keys.

        What is known of those stays whose id and place are the same. Attempts that run end as they
        began. Clients that nobody needs any more are closed with the pool.

        Raises:
            ConfigurationError: If there are none, or two with one id.
        """
        core = self._core
        endpoints = tuple(endpoints)
        with core.lock:
            core.table = Table(endpoints, core.policy, core.chance, core.table.members)
        core.room.wake_all()

    def pinned(self, endpoint_id: str) -> Self:
        """Return a view of the pool that has only one endpoint, for what began there.

        It shares all that is known of the endpoint. Closing it closes nothing.

        Raises:
            ConfigurationError: If the pool has no such endpoint.
        """
        if endpoint_id not in self._core.table.members:
            known = ", ".join(repr(each.id) for each in self.endpoints)
            raise ConfigurationError(
                f"the pool has no endpoint {endpoint_id!r}; it has {known}. Ask for one of them."
            )
        view = type(self).__new__(type(self))
        view.diagnostics = self.diagnostics
        view._core = self._core  # noqa: SLF001  # a class makes its own
        view._only = endpoint_id  # noqa: SLF001
        return view

    async def aclose(self) -> None:
        """Close the clients of the pool: the given ones, and those made for the running loop.

        May be called more than once.

        Raises:
            Exception: What a client raised when it was closed.
            ExceptionGroup: If several did.
        """
        if self._only is None:
            await self._core.clients.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
