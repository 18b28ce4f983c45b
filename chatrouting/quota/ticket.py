"""One request, whatever number of deployments it tries.

The buckets of its organisation, tenant, team, key and model profile are charged once. A ticket
that somebody keeps for the whole request holds that charge from one attempt to the next; one that
nobody keeps leaves it to the attempt. It travels in `RequestScope.tickets`, under the governor.
"""

from typing import final

from chatrouting.options import Principal
from chatrouting.quota.ledger import Hold
from chatrouting.usage import Usage


@final
class AdmissionTicket:
    """What the attempts of one request share. Made by `QuotaGovernor.open_ticket`.

    Attributes:
        principal: On whose account.
        request_class: Name of its traffic class.
        trace_id: What the application calls the request; empty if it does not say.
        is_kept: Somebody closes it when the request is over.
        was_denied: A deployment had no room for it.
        is_lent: An attempt is running that uses its charge. Another one beside it, which races
            with that, pays for itself.
        holds: The charge; empty before the first attempt.
        usage: What its attempts have used; None if nobody said.
        has_run: An attempt may have reached a provider.
    """

    __slots__ = (
        "has_run",
        "holds",
        "is_kept",
        "is_lent",
        "principal",
        "request_class",
        "trace_id",
        "usage",
        "was_denied",
    )

    def __init__(
        self, *, principal: Principal, request_class: str, trace_id: str, is_kept: bool
    ) -> None:
        self.principal = principal
        self.request_class = request_class
        self.trace_id = trace_id
        self.is_kept = is_kept
        self.was_denied = False
        self.is_lent = False
        self.holds: tuple[Hold, ...] = ()
        self.usage: Usage | None = None
        self.has_run = False

    @property
    def has_paid(self) -> bool:
        """Whether the next attempt need not pay the principal's buckets."""
        return bool(self.holds) and not self.is_lent
