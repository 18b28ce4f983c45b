"""The desk of a governor: where routers wait for several of its deployments at once.

What is admitted while a router waits is kept in the request's tickets, under the desk, until the
client whose turn it is takes it; see `chatrouting.admission`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast, final

from chatrouting.client import ChatClient
from chatrouting.quota.quote import Quote
from chatrouting.quota.reservation import Reservation
from chatrouting.quota.ticket import AdmissionTicket
from chatrouting.scope import current_tickets

if TYPE_CHECKING:
    from chatrouting.quota.governor import QuotaGovernor


class Wanted(NamedTuple):
    """What a request would wait for.

    Attributes:
        client: Who would be called.
        quote: What it would need.
        ticket: Of the request.
        max_wait: Longest wait, seconds, below what the class allows; None for no other limit.
    """

    client: ChatClient
    quote: Quote
    ticket: AdmissionTicket
    max_wait: float | None


@final
class QuotaDesk:
    """Admits requests to the deployments of one governor."""

    def __init__(self, governor: "QuotaGovernor") -> None:
        self._governor = governor

    async def wait_for_admission(
        self,
        wanted: Sequence[object],
        tickets: dict[object, Any],
        timeout: float | None,  # noqa: ASYNC109  # what will not be in time is refused at once
    ) -> int:
        """Wait for the first of several deployments that has room, and reserve there.

        Args:
            wanted: `Wanted`s of one request.
            tickets: The request's; the reservation is kept there.
            timeout: Seconds that are left of the request.

        Returns:
            The position in `wanted`.

        Raises:
            QuotaExceededError: If there is no room in time.
        """
        asked = [cast("Wanted", each) for each in wanted]
        limits = [each.max_wait for each in asked if each.max_wait is not None]
        reservation = await self._governor.reserve(
            [each.quote for each in asked],
            asked[0].ticket,
            max_wait=max(limits) if len(limits) == len(asked) else None,
            timeout=timeout,
        )
        names = [each.quote.route.deployment for each in asked]
        decision = reservation.decision
        place = names.index(decision.downgraded_from or decision.deployment)
        # Beside others: parts of a request that race share its tickets.
        tickets.setdefault(self, []).append((asked[place].client, reservation))
        return place

    def take(self, client: ChatClient) -> Reservation | None:
        """Return what was admitted for a client's next call, once."""
        admitted = self._admitted(current_tickets() or {})
        place = next((place for place, each in enumerate(admitted) if each[0] is client), None)
        return None if place is None else admitted.pop(place)[1]

    def give_back(self, tickets: dict[object, Any]) -> None:
        """Give back what was admitted and not taken."""
        for _, reservation in self._admitted(tickets):
            reservation.fail(sent=False)
        tickets.pop(self, None)

    def _admitted(self, tickets: dict[object, Any]) -> list[tuple[ChatClient, Reservation]]:
        return cast("list[tuple[ChatClient, Reservation]]", tickets.get(self, []))
