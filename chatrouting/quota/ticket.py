"""One request, whatever number of deployments it tries.

Each bucket of its organisation, tenant, team, key and model profiles is charged once. A ticket
that somebody keeps for the whole request holds that charge from one attempt to the next; one that
nobody keeps leaves it to the attempt. It travels in `RequestScope.tickets`, under the governor.
"""

from typing import Any, Protocol, final

from chatrouting.options import ChatOptions, Principal
from chatrouting.quota._checks import check_kind
from chatrouting.quota.ledger import Hold
from chatrouting.quota.limits import BucketKey
from chatrouting.scope import current_scope, current_tickets
from chatrouting.usage import Usage


@final
class AdmissionTicket:
    """What the attempts of one request share. Made by `QuotaGovernor.open_ticket`.

    Attributes:
        principal: On whose account.
        request_class: Name of its traffic class.
        trace_id: What the application calls the request; empty if it does not say.
        is_kept: Somebody closes it when the request is over.
        is_lent: An attempt runs that uses its charge, or is about to. Another one beside it, which
            races with that, pays for itself.
        holds: The charge; empty before the first attempt.
        usage: What its attempts have used; None if nobody said.
        has_run: An attempt may have reached a provider.
        is_over: It was closed. An attempt that still runs settles it at its own end.
    """

    __slots__ = (
        "_denied",
        "has_run",
        "holds",
        "is_kept",
        "is_lent",
        "is_over",
        "principal",
        "request_class",
        "trace_id",
        "usage",
    )

    def __init__(
        self, *, principal: Principal, request_class: str, trace_id: str, is_kept: bool
    ) -> None:
        self.principal = principal
        self.request_class = request_class
        self.trace_id = trace_id
        self.is_kept = is_kept
        self.is_lent = False
        self.holds: tuple[Hold, ...] = ()
        self.usage: Usage | None = None
        self.has_run = False
        self.is_over = False
        self._denied: set[str] = set()

    def note_denial(self, deployment: str) -> None:
        """Remember that a deployment had no room, also for the tickets of later attempts."""
        self._denied.add(deployment)

    def was_denied_before(self, deployment: str) -> bool:
        """Say whether the request comes to a deployment because another one had no room."""
        return bool(self._denied) and any(name != deployment for name in self._denied)

    def has_paid(self, key: BucketKey) -> bool:
        """Say whether the next attempt need not pay a bucket."""
        return not self.is_lent and any(key in hold.path.keys for hold in self.holds)

    def is_of_account(self, other: "AdmissionTicket") -> bool:
        """Say whether another ticket is on the same account, and of the same class."""
        same_class = self.request_class == other.request_class
        return same_class and self.principal == other.principal

    def lend(self, paid: tuple[Hold, ...]) -> bool:
        """Let an attempt use the charge, unless another one does; say whether it may.

        Args:
            paid: By the attempt: all of the charge, or for the profile of another model.
        """
        if not self.is_kept or self.is_lent:
            return False
        self.is_lent = True
        self.holds += paid
        return True

    def take_back(self, paid: tuple[Hold, ...]) -> None:
        """Undo `lend`, for an attempt that never began."""
        self.is_lent = False
        self.holds = tuple(hold for hold in self.holds if hold not in paid)

    def share_denials(self, tickets: dict[object, Any], owner: object) -> None:
        """Have one memory of denials for all attempts of a request for which nobody keeps a ticket.

        Args:
            tickets: All that the request carries.
            owner: Whose tickets these are.
        """
        self._denied = tickets.setdefault((AdmissionTicket, owner), self._denied)


class _OpenTicket(Protocol):
    def __call__(
        self,
        principal: Principal | None,
        request_class: str | None,
        /,
        *,
        trace_id: str,
        is_kept: bool,
    ) -> AdmissionTicket: ...


def ticket_of_request(
    owner: object, options: ChatOptions | None, open_ticket: _OpenTicket
) -> AdmissionTicket:
    """Return the ticket that is kept for the request that runs, or a new one that nobody keeps.

    Args:
        owner: Under which it is kept.
        options: Of the request; principal and class travel in their hints.
        open_ticket: Makes one.
    """
    tickets = current_tickets()
    kept = None if tickets is None else tickets.get(owner)
    if isinstance(kept, AdmissionTicket):
        return kept
    if options is not None:
        check_kind("options", options, ChatOptions, "ChatOptions")
    hints = None if options is None else options.routing
    scope = current_scope()
    ticket = open_ticket(
        None if hints is None else hints.principal,
        None if hints is None else hints.request_class,
        trace_id="" if scope is None else scope.request_id,
        is_kept=False,
    )
    if tickets is not None:
        ticket.share_denials(tickets, owner)
    return ticket
