"""Test doubles for applications built on chatrouting.

In memory: a scripted chat client, an embedding generator, clocks, and a contract that any chat
client can be checked against. On a loopback port: a server that speaks the providers' protocols,
for tests of real SDK clients. Importing this loads neither an SDK nor trio nor pytest.
"""

from chatrouting.testing.clock import ManualClock, VirtualTimeEventLoop, virtual_time_backends
from chatrouting.testing.contract import ContractViolation, check_chat_client
from chatrouting.testing.embeddings import FakeEmbeddingGenerator
from chatrouting.testing.provider_server import (
    MALFORMED_EVENT,
    Gate,
    ProviderServer,
    RecordedRequest,
    Reply,
    ToolCall,
)
from chatrouting.testing.scripted import (
    CallState,
    ScriptedCall,
    ScriptedChatClient,
    cancels_itself,
    fails,
    finishes,
    raises_on_call,
    raises_on_close,
    raises_on_iter,
    returns,
    runs,
    update,
    waits,
    waits_for,
    waits_forever,
    waits_on_close,
)

__all__ = [
    "MALFORMED_EVENT",
    "CallState",
    "ContractViolation",
    "FakeEmbeddingGenerator",
    "Gate",
    "ManualClock",
    "ProviderServer",
    "RecordedRequest",
    "Reply",
    "ScriptedCall",
    "ScriptedChatClient",
    "ToolCall",
    "VirtualTimeEventLoop",
    "cancels_itself",
    "check_chat_client",
    "fails",
    "finishes",
    "raises_on_call",
    "raises_on_close",
    "raises_on_iter",
    "returns",
    "runs",
    "update",
    "virtual_time_backends",
    "waits",
    "waits_for",
    "waits_forever",
    "waits_on_close",
]
