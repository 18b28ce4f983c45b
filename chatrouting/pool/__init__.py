"""The room of endpoint pools: many endpoints of one model, used as if they were one.

In comes a request for any of them; out goes an endpoint, and later how the attempt went. `endpoint`
is what a member is, `discovery` how the environment describes one, `policy` how the pool treats
them, `health` what it remembers of each, `pool` the object that holds it all together. Next room:
`routing`, which asks the chosen member.
"""

from chatrouting.pool._regions import KNOWN_REGIONS
from chatrouting.pool.affinity import stable_prefix
from chatrouting.pool.clients import PooledChatClient
from chatrouting.pool.diagnostics import Diagnostics, Discovery, Finding
from chatrouting.pool.discovery import discover, discover_models, env_name
from chatrouting.pool.embeddings import PooledEmbeddingGenerator
from chatrouting.pool.endpoint import ApiKey, Endpoint, EndpointMode, Identity
from chatrouting.pool.events import EndpointState, EndpointStatus, PoolEvent, PoolEventKind
from chatrouting.pool.faults import Fault, Verdict
from chatrouting.pool.images import PooledImageClient
from chatrouting.pool.member import Cooling, Ticket
from chatrouting.pool.members import endpoint_of
from chatrouting.pool.policy import PoolPolicy
from chatrouting.pool.pool import EndpointPool

__all__ = [
    "KNOWN_REGIONS",
    "ApiKey",
    "Cooling",
    "Diagnostics",
    "Discovery",
    "Endpoint",
    "EndpointMode",
    "EndpointPool",
    "EndpointState",
    "EndpointStatus",
    "Fault",
    "Finding",
    "Identity",
    "PoolEvent",
    "PoolEventKind",
    "PoolPolicy",
    "PooledChatClient",
    "PooledEmbeddingGenerator",
    "PooledImageClient",
    "Ticket",
    "Verdict",
    "discover",
    "discover_models",
    "endpoint_of",
    "env_name",
    "stable_prefix",
]
