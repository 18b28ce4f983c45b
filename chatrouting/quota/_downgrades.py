"""The clients of lesser deployments, which a request may be sent to instead of its own.

Such a request takes a turn as through a router: its attempt is on record, with whose place it
took, and hooks and traces see it.
"""

from collections.abc import Mapping
from typing import final

from chatrouting._frozen import FrozenDict
from chatrouting.client import ChatClient
from chatrouting.errors import ConfigurationError
from chatrouting.quota._checks import check_mapping
from chatrouting.quota.classes import Pressure, TrafficClass
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.reservation import Reservation
from chatrouting.routing.context import RoutingContext, Selection
from chatrouting.routing.router import RoutingChatClient


@final
class Downgrades:
    """Clients by deployment, in the order in which they are tried."""

    def __init__(
        self, clients: Mapping[str, ChatClient], governor: QuotaGovernor, deployment: str
    ) -> None:
        """Check them against the governor.

        Args:
            clients: By names of deployments in the governor.
            governor: The one that is asked.
            deployment: Whose place they take.

        Raises:
            TypeError: If it is None.
            ConfigurationError: If the governor does not know a deployment, no class may be
                downgraded to its model profile, or it is the very deployment whose place it would
                take.
        """
        check_mapping("downgrades", clients, str, ChatClient, "a chat client for each deployment")
        self.clients: Mapping[str, ChatClient] = FrozenDict(clients)
        known = governor.deployments
        allowed = {each.downgrade_profile for each in governor.classes.values()} - {None}
        self._profiles = dict.fromkeys(clients, "")
        for name in clients:
            if name not in known or name == deployment:
                others = ", ".join(repr(other) for other in known if other != deployment)
                raise ConfigurationError(
                    f"{deployment!r} may be downgraded to {name!r}; expected another deployment "
                    f"of the governor: {others or 'there is none'}."
                )
            profile = self._profiles[name] = known[name].model_profile
            if profile not in allowed:
                raise ConfigurationError(
                    f"{deployment!r} may be downgraded to {name!r}, whose model profile is "
                    f"{profile!r}, and no class may; expected one whose downgrade_profile it is."
                )

    def names(self, traffic: TrafficClass) -> tuple[str, ...]:
        """Return the deployments that a request of a class may be sent to instead."""
        if not self._profiles or not traffic.allows(Pressure.DOWNGRADE):
            return ()
        wanted = traffic.downgrade_profile
        return tuple(name for name, profile in self._profiles.items() if profile == wanted)

    def instead(self, reservation: Reservation) -> ChatClient | None:
        """Return who is to be asked instead of the client's own; None if it is that one."""
        decision = reservation.decision
        if decision.downgraded_from is None:
            return None
        route = decision.deployment
        choice = Selection(
            route,
            reason=f"downgraded from {decision.downgraded_from}",
            detail={"downgraded_from": decision.downgraded_from, "decision_id": decision.id},
        )

        async def select(_: RoutingContext) -> Selection:
            return choice

        return RoutingChatClient(select, routes={route: self.clients[route]}, leave_open=True)
