"""The governor: asks, before anything is sent, whether a request fits all its quotas.

Quote, reserve, send, settle. `try_reserve` never waits; `reserve` may queue. One governor serves a
process: several event loops, asyncio's and trio's, and threads may use it.

The seam for chat clients:

    ticket = governor.ticket(options)                       # whose request, and which class
    quote = governor.quote(messages, options, "eu-1", is_streaming=False)
    async with await governor.reserve(quote, ticket) as reservation:
        response = await inner.get_response(messages, options)    # reservation.max_output_tokens
        reservation.settle(response.usage)
        governor.observe(reservation, response.rate_limit_headers)

A client above a router keeps one ticket for the whole request, puts it under the governor into
`RequestScope.tickets`, and closes it with `close_ticket`: then the principal's buckets are charged
once, however many deployments are tried. A router asks each deployment by `try_reserve`; if all
deny and `Decision.may_queue`, it gives all quotes to one `reserve`, and the first grant wins.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, final

from chatrouting.errors import ConfigurationError
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, Principal, check_timeout
from chatrouting.quota import classes as traffic_classes
from chatrouting.quota import deployments as known_deployments
from chatrouting.quota._checks import (
    check_each,
    check_function,
    check_kind,
    check_number,
    check_principal,
    check_request,
)
from chatrouting.quota._core import DecisionListener, GovernorCore
from chatrouting.quota._deciding import Deciding
from chatrouting.quota._reserving import Reserving
from chatrouting.quota._settling import Settling
from chatrouting.quota.admissions import QuotaDesk
from chatrouting.quota.capacity import AdaptiveSettings
from chatrouting.quota.classes import DEFAULT_CLASSES, TrafficClass
from chatrouting.quota.decisions import Decision
from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.estimate import Estimator
from chatrouting.quota.guarantees import GuaranteePlan, TenantContract
from chatrouting.quota.ledger import Headroom
from chatrouting.quota.limits import BucketKey, BucketLimits, Level
from chatrouting.quota.metrics import QuotaMetrics
from chatrouting.quota.quote import Quote
from chatrouting.quota.reservation import Reservation
from chatrouting.quota.snapshot import QuotaSnapshot, take_snapshot
from chatrouting.quota.ticket import AdmissionTicket, ticket_of_request
from chatrouting.usage import Usage

_NOBODY: Final = Principal()


@final
class QuotaGovernor:
    """Quotas of all deployments, and of all who use them."""

    def __init__(
        self,
        deployments: Iterable[QuotaDeployment],
        *,
        ceilings: Mapping[BucketKey, BucketLimits] | None = None,
        default_ceilings: Mapping[Level, BucketLimits] | None = None,
        contracts: Mapping[str, TenantContract] | None = None,
        classes: Iterable[TrafficClass] = tuple(DEFAULT_CLASSES.values()),
        default_class: str = "interactive",
        estimator: Estimator | None = None,
        pool_share: float = 0.05,
        largest_request: Mapping[str, float] | None = None,
        shadow: bool = False,
        watched: Collection[Level | BucketKey] = (),
        adaptive: AdaptiveSettings = AdaptiveSettings(),  # noqa: B008  # frozen
        cold_share: float = 1.0,
        on_decision: DecisionListener | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        lease: float = 600.0,
    ) -> None:
        """Check all limits and guarantees.

        Args:
            deployments: What is governed; at least one.
            ceilings: Limits of organisations, tenants, teams, keys and model profiles, by bucket.
            default_ceilings: Those of a level where there is none by name.
            contracts: What tenants are promised of every deployment, by tenant.
            classes: Kinds of traffic.
            default_class: The one of a request that names none.
            estimator: Makes the quotes, and learns. Not to be shared with another governor.
            pool_share: Part of each limit that no contract may claim; see `guarantees`.
            largest_request: The most that one request takes, by dimension; for the check of what
                each tenant is promised.
            shadow: Decide and count, and let everything through.
            watched: Buckets, or whole levels, that are only watched: they refuse nothing.
            adaptive: How refusals by a provider count.
            cold_share: Part of its limits that a deployment without traffic may be used for at
                once, where its provider minds a sharp rise; 1: all.
            on_decision: Called with each decision when it is complete: denials at once, others
                when they are settled. What it raises is logged.
            clock: Seconds that never go back, for all event loops.
            wall_clock: The time of day, for headers and calendars.
            lease: Seconds after which what is neither settled nor extended holds no slot.

        Raises:
            ConfigurationError: If something contradicts itself, or guarantees exceed the limits.
        """
        found = known_deployments.by_name(deployments)
        if not found:
            raise ConfigurationError("a governor has no deployments; give it at least one.")
        check_number("lease", lease, above=0)
        check_function("clock", clock)
        check_function("wall_clock", wall_clock)
        if on_decision is not None:
            check_function("on_decision", on_decision)
        if estimator is not None:
            check_kind("estimator", estimator, Estimator, "an Estimator")
        self._default_class = default_class
        self._wall_clock = wall_clock
        self._clock = clock
        self._core = GovernorCore(
            found,
            traffic_classes.by_name(classes),
            ceilings={} if ceilings is None else ceilings,
            default_ceilings={} if default_ceilings is None else default_ceilings,
            contracts={} if contracts is None else contracts,
            pool_share=pool_share,
            largest_request={} if largest_request is None else largest_request,
            watched=watched,
            is_shadow=shadow,
            adaptive=adaptive,
            cold_share=cold_share,
            on_decision=on_decision,
            clock=clock,
            lease=lease,
            wall_clock=wall_clock,
        )
        self._core.traffic(default_class)
        self._estimator = Estimator() if estimator is None else estimator
        self._settling = Settling(self._core, self._estimator)
        self._deciding = Deciding(self._core, self._settling)
        self._reserving = Reserving(self._core, self._deciding)
        self._lease = lease
        self._desk = QuotaDesk(self)

    @property
    def metrics(self) -> QuotaMetrics:
        """What was counted since the governor was made."""
        return self._core.metrics

    @property
    def desk(self) -> QuotaDesk:
        """Where routers wait for several deployments at once."""
        return self._desk

    @property
    def lease(self) -> float:
        """Seconds after which what is neither settled nor extended holds no slot."""
        return self._lease

    @property
    def deployments(self) -> Mapping[str, QuotaDeployment]:
        """What is governed, by name."""
        return dict(self._core.deployments)

    @property
    def classes(self) -> Mapping[str, TrafficClass]:
        """Kinds of traffic, by name."""
        return self._core.classes

    def ticket(self, options: ChatOptions | None = None) -> AdmissionTicket:
        """Return the ticket of the request that runs, or a new one that nobody keeps.

        Args:
            options: Of the request; principal and class travel in their hints.
        """
        return ticket_of_request(self, options, self.open_ticket)

    def traffic_class(self, ticket: AdmissionTicket) -> TrafficClass:
        """Return the class that a request belongs to."""
        check_kind("ticket", ticket, AdmissionTicket, "an AdmissionTicket")
        return self._core.traffic(ticket.request_class)

    def open_ticket(
        self,
        principal: Principal | None = None,
        request_class: str | None = None,
        *,
        trace_id: str = "",
        is_kept: bool = True,
    ) -> AdmissionTicket:
        """Open a ticket for one request.

        Args:
            principal: On whose account.
            request_class: Its traffic class; None: the default.
            trace_id: What the application calls the request.
            is_kept: The caller will `close_ticket` it when the request is over, whatever happens.

        Raises:
            ConfigurationError: If there is no such class, or an id of the principal is no text.
        """
        name = self._default_class if request_class is None else request_class
        self._core.traffic(name)
        if principal is not None:
            check_principal(principal)
        return AdmissionTicket(
            principal=principal or _NOBODY, request_class=name, trace_id=trace_id, is_kept=is_kept
        )

    def close_ticket(self, ticket: AdmissionTicket, usage: Usage | None = None) -> None:
        """Settle what a kept ticket holds. A second call changes nothing.

        Args:
            ticket: Of the request that is over.
            usage: What it used; None: what its attempts have reported, and one that still runs
                will report at its end.
        """
        check_kind("ticket", ticket, AdmissionTicket, "an AdmissionTicket")
        if usage is not None:
            check_kind("usage", usage, Usage, "Usage")
        self._settling.close(ticket, usage)

    def quote(
        self,
        messages: Sequence[ChatMessage],
        options: ChatOptions,
        deployment: str,
        *,
        is_streaming: bool,
        downgrades: Iterable[str] = (),
    ) -> Quote:
        """Estimate what a request will need. Changes nothing; several deployments may be asked.

        Args:
            messages: Of the request.
            options: Of the request.
            deployment: Where it would go.
            is_streaming: Whether it is for a stream.
            downgrades: Deployments that it may be sent to instead, best first, if its class may be
                downgraded to their model profiles; `Decision.deployment` says to which.

        Raises:
            ConfigurationError: If a deployment is not governed here.
        """
        core = self._core
        check_request(messages, options)
        targets = [core.deployment(deployment).target]
        if downgrades:
            names = check_each("downgrades", downgrades, str, "names of deployments")
            targets += [core.deployment(name).target for name in names]
        with core.lock:
            now = core.clock()
            quote, *lesser = (
                self._estimator.quote(messages, options, target, is_streaming=is_streaming, now=now)
                for target in targets
            )
        return replace(quote, downgrades=tuple(lesser)) if lesser else quote

    def try_reserve(self, quote: Quote, ticket: AdmissionTicket) -> Reservation | Decision:
        """Reserve without waiting.

        Returns:
            The denial, if there is no room; `to_error` makes an exception of it.

        Raises:
            ConfigurationError: If the deployment is not governed here.
        """
        found = self._reserving.try_now(quote, ticket)
        self._core.tell()
        return found

    async def reserve(
        self,
        quotes: Quote | Sequence[Quote],
        ticket: AdmissionTicket,
        *,
        max_wait: float | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # what is left of the request's time
        can_reroute: bool = False,
    ) -> Reservation:
        """Reserve, and wait for room as the class of the request allows.

        Cancelled while it waits it has taken nothing, also if it has just been granted.

        Args:
            quotes: Of one deployment, or of several: then the first that has room wins.
            ticket: Of the request.
            max_wait: Longest wait, seconds, below what the class allows.
            timeout: Seconds that are left of the request; it is refused at once if it will
                probably wait longer.
            can_reroute: The caller has other deployments to turn to.

        Raises:
            QuotaExceededError: If there is no room.
            ConfigurationError: If there is no quote, a deployment is not governed here, or a time
                is out of range.
        """
        check_timeout("max_wait", max_wait)
        check_timeout("timeout", timeout)
        found = await self._reserving.reserve(
            quotes,
            ticket,
            max_wait=max_wait,
            time_left=timeout,
            can_reroute=can_reroute,
        )
        self._core.tell()
        if isinstance(found, Decision):
            raise found.to_error()
        return found

    def observe(self, reservation: Reservation, headers: Mapping[str, str] | None) -> None:
        """Learn from the rate-limit headers of an answer; belief is only ever lowered.

        Args:
            reservation: With which the request was sent; it may be settled.
            headers: None if there were none.
        """
        if headers is None:
            return
        check_kind("headers", headers, Mapping, "a mapping of texts")
        check_kind("reservation", reservation, Reservation, "a Reservation")
        self._settling.observe(reservation, headers, self._wall_clock())

    def headroom(self, quote: Quote, ticket: AdmissionTicket) -> Headroom:
        """Say how much room there is for a request, for policies that choose. Changes nothing.

        Returns:
            What is free of the deployment's fullest window, nothing while its provider has closed
            it; and the seconds that the request would probably wait, those before it included;
            infinity if it never fits.
        """
        core = self._core
        with core.lock:
            return self._deciding.headroom(quote, ticket, core.clock())

    def guarantees(self, deployment: str) -> GuaranteePlan:
        """Say which guarantee each tenant gets of a deployment, by its configured limits."""
        core = self._core
        return core.guarantees(core.deployment(deployment).limits)

    def update_limits(
        self,
        *,
        deployments: Mapping[str, BucketLimits] | None = None,
        ceilings: Mapping[BucketKey, BucketLimits | None] | None = None,
        contracts: Mapping[str, TenantContract] | None = None,
    ) -> None:
        """Change limits while requests run. What is held stays held.

        More room is there at once; with less, nothing is admitted until enough has left. If
        something is wrong, nothing changes.

        Args:
            deployments: New limits by deployment; others of the same scope follow.
            ceilings: New ceilings by bucket; None takes one away.
            contracts: New contracts by tenant.

        Raises:
            ConfigurationError: If guarantees exceed what there is.
        """
        core = self._core
        with core.lock:
            core.configure(
                limits={} if deployments is None else deployments,
                ceilings={} if ceilings is None else ceilings,
                contracts={} if contracts is None else contracts,
                now=core.clock(),
            )
        core.tell()

    def update_enforcement(
        self, *, shadow: bool, watched: Collection[Level | BucketKey] = ()
    ) -> None:
        """Change which buckets may refuse, also for those who wait.

        Args:
            shadow: None may.
            watched: These may not: buckets, or whole levels.

        Raises:
            ConfigurationError: If something watched is neither a level nor a bucket.
        """
        core = self._core
        with core.lock:
            core.enforce(is_shadow=shadow, watched=watched, now=core.clock())
        core.tell()

    def snapshot(self) -> QuotaSnapshot:
        """Return what there is, what is used and who waits, for a dashboard."""
        with self._core.lock:
            return take_snapshot(self._core)
