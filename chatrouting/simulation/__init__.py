"""Plays a load through a quota governor, before strict providers, in virtual time.

In come a load, a governor and what the providers grant; out comes what became of each request.
`provider` stands for the other side, `load` draws requests, `engine` plays them, `records` and
`summary` hold what became of them, `scenario` reads all of it from a file of limits. For trying
limits before anybody is refused; a request is never sent.
"""

from chatrouting.simulation.engine import GovernorMaker, Knowledge, simulate
from chatrouting.simulation.load import LoadRequest, LoadStream
from chatrouting.simulation.provider import Admission, ProviderLimiter, Refusal
from chatrouting.simulation.provider_counting import Arrival
from chatrouting.simulation.records import Fate, RequestRecord, SimulationResult
from chatrouting.simulation.scenario import Scenario, read_scenario
from chatrouting.simulation.summary import Group, Series, Waits, by_class, by_tenant, over_time

__all__ = [
    "Admission",
    "Arrival",
    "Fate",
    "GovernorMaker",
    "Group",
    "Knowledge",
    "LoadRequest",
    "LoadStream",
    "ProviderLimiter",
    "Refusal",
    "RequestRecord",
    "Scenario",
    "Series",
    "SimulationResult",
    "Waits",
    "by_class",
    "by_tenant",
    "over_time",
    "read_scenario",
    "simulate",
]
