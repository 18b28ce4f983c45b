"""The strict providers, for the tests of this room."""

from chatrouting.simulation.provider import Admission, ProviderLimiter, Refusal
from chatrouting.simulation.provider_counting import COUNTING, Arrival
from chatrouting.simulation.provider_headers import START
from chatrouting.simulation.provider_log import Log

__all__ = ["COUNTING", "START", "Admission", "Arrival", "Log", "ProviderLimiter", "Refusal"]
