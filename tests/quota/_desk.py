"""What tests of the governor share: a provider that counts as we do, requests, and a clock."""

from dataclasses import replace
from typing import Any

from chatrouting import ChatMessage, ChatOptions, Principal, Role
from chatrouting.quota.deployments import QuotaDeployment
from chatrouting.quota.estimate import Estimator
from chatrouting.quota.governor import QuotaGovernor
from chatrouting.quota.limits import BucketLimits, ChargePolicy, ProviderScope, QuotaLimit
from chatrouting.quota.profiles import ProviderProfile, provider_profile
from chatrouting.quota.quote import Figure, Quote, Source
from chatrouting.quota.reservation import Reservation
from chatrouting.testing import ManualClock

#: Counts output as it was estimated and gives back what was not used.
PROFILE = provider_profile("self_hosted").replace(
    name="test", dimensions=("requests", "input_tokens", "output_tokens", "total_tokens")
)


def deployment(name: str = "a", *limits: QuotaLimit, **fields: Any) -> QuotaDeployment:
    """Make a deployment with these limits, a quota of its own unless `scope` says otherwise."""
    policy = fields.pop("policy", ChargePolicy())
    profile: ProviderProfile = fields.pop("profile", PROFILE)
    scope = fields.pop("scope", ProviderScope(profile.name, {"server": name}))
    return QuotaDeployment(
        name=name, scope=scope, profile=profile, limits=BucketLimits(limits, policy), **fields
    )


class Desk:
    """A governor with a clock of its own, and requests to it.

    Every request reads some 20 tokens, and writes as many as it says.
    """

    def __init__(self, *deployments: QuotaDeployment, **settings: Any) -> None:
        self.clock = settings.pop("clock", ManualClock())
        self.log: list[Any] = []
        self.governor = QuotaGovernor(
            deployments or [deployment("a", QuotaLimit("output_tokens", 1000))],
            clock=self.clock,
            estimator=Estimator(default_duration=10.0),
            **{"on_decision": self.log.append, **settings},
        )

    def ticket(self, tenant: str | None = "acme", request_class: str | None = None, **fields: Any):
        """Open a ticket; that nobody keeps, unless told so."""
        principal = Principal(tenant=tenant, **fields.pop("principal", {}))
        return self.governor.open_ticket(principal, request_class, **{"is_kept": False, **fields})

    def quote(self, output: int = 100, name: str = "a", *, is_streaming: bool = False) -> Quote:
        """Quote a request that writes so many tokens."""
        messages = [ChatMessage(Role.USER, "How are you?")]
        options = ChatOptions(max_output_tokens=output)
        quote = self.governor.quote(messages, options, name, is_streaming=is_streaming)
        return replace(quote, output=Figure(float(output), Source.CAP))

    def ask(self, tenant: str | None = "acme", output: int = 100, name: str = "a", **fields: Any):
        """Try to reserve; return a reservation or a denial."""
        return self.governor.try_reserve(self.quote(output, name), self.ticket(tenant, **fields))

    def take(self, *args: Any, **fields: Any) -> Reservation:
        """Reserve what there is room for."""
        found = self.ask(*args, **fields)
        assert isinstance(found, Reservation), found
        return found

    def fill(self, tenant: str | None = "acme", output: int = 100, **fields: Any):
        """Reserve until there is no room; return the reservations."""
        found = []
        while isinstance(each := self.ask(tenant, output, **fields), Reservation):
            found.append(each)
        return found

    def used(self, dimension: str = "output_tokens", level: str = "deployment") -> float:
        """Return what is used of a limit."""
        return sum(
            each.used
            for each in self.governor.snapshot().windows
            if (each.dimension, each.level) == (dimension, level)
        )
