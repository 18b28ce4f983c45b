"""Plays a load through a quota governor, before strict providers, in virtual time.

In come a load, a governor and what the providers grant; out comes what became of each request.
`provider` stands for the other side, `load` draws requests, `engine` plays them, `records` holds
what became of them. For trying limits before anybody is refused; a request is never sent.
"""

from chatrouting.simulation.engine import GovernorMaker, Knowledge, simulate
from chatrouting.simulation.load import LoadRequest, LoadStream
from chatrouting.simulation.provider import Admission, ProviderLimiter, Refusal
from chatrouting.simulation.provider_counting import Arrival
from chatrouting.simulation.records import Fate, RequestRecord, SimulationResult

__all__ = [
    "Admission",
    "Arrival",
    "Fate",
    "GovernorMaker",
    "Knowledge",
    "LoadRequest",
    "LoadStream",
    "ProviderLimiter",
    "Refusal",
    "RequestRecord",
    "SimulationResult",
    "simulate",
]
