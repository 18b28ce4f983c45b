"""What became of the requests of a simulated load."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, final

from chatrouting.quota.snapshot import QuotaSnapshot
from chatrouting.simulation.provider import ProviderLimiter


class Fate(StrEnum):
    """What became of a request."""

    WAITING = "waiting"  #: At the end it still waited to be sent.
    RUNNING = "running"  #: At the end it was still being answered.
    ANSWERED = "answered"
    REFUSED = "refused"  #: The governor had no room for it.
    PROVIDER_REFUSED = "provider_refused"  #: The provider had none, and it was given up.
    BROKEN_OFF = "broken_off"  #: The provider broke its stream off, having no output left.
    CUT_OFF = "cut_off"  #: Its stream ran on what was borrowed, and was needed back.


@final
@dataclass(eq=False, slots=True, kw_only=True)
class RequestRecord:
    """One request.

    Attributes:
        at: When it came, seconds.
        tenant: Whose.
        request_class: Its traffic class.
        deployment: Where it went, or would have gone first.
        shares: What it comes to: minutes of what the provider grants there, by dimension.
        tokens: Input and output.
        fate: What became of it.
        sent_at: When it went to the provider, the last time; None if never.
        provider_refusals: How often the provider refused it.
        funding: What paid for it; empty if nothing was asked.
        reason: Why the governor refused it; empty if it did not.
    """

    at: float
    tenant: str
    request_class: str
    deployment: str
    shares: Mapping[str, float]
    tokens: int
    fate: Fate = Fate.WAITING
    sent_at: float | None = None
    provider_refusals: int = 0
    funding: str = ""
    reason: str = ""

    @property
    def share(self) -> float:
        """What it takes of the limit that it takes most of, in minutes of it."""
        return max(self.shares.values(), default=0.0)

    @property
    def was_served(self) -> bool:
        """Whether the provider worked for it."""
        return self.fate in (Fate.ANSWERED, Fate.RUNNING, Fate.CUT_OFF)

    @property
    def wait(self) -> float:
        """Seconds from its coming to its being sent for good; 0 if it never was."""
        return 0.0 if self.sent_at is None else self.sent_at - self.at


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """A load that was played.

    Attributes:
        duration: Seconds of virtual time.
        records: One for each request, in the order in which they came.
        providers: By deployment, as they were left.
        metrics: The governor's counters; empty if nothing governed.
        snapshot: The governor at the end; None if nothing governed.
    """

    duration: float
    records: tuple[RequestRecord, ...]
    providers: Mapping[str, ProviderLimiter]
    metrics: Mapping[str, Any]
    snapshot: QuotaSnapshot | None

    @property
    def provider_refusals(self) -> int:
        """How often a provider refused a request, a request that was tried again included."""
        return sum(limiter.refused for limiter in self.limiters())

    @property
    def utilisation(self) -> float:
        """Part of the fullest limit of a quota that served requests, the mean over the quotas."""
        limiters = self.limiters()
        return sum(each.utilisation(self.duration) for each in limiters) / len(limiters)

    @property
    def tightest(self) -> str:
        """The dimension that the load asks most of; empty where no rate is limited."""
        asked = Counter[str]()
        for record in self.records:
            asked.update(record.shares)
        return max(asked, key=lambda name: asked[name], default="")

    def limiters(self) -> list[ProviderLimiter]:
        """Return the quotas, each once."""
        return list({id(each): each for each in self.providers.values()}.values())
