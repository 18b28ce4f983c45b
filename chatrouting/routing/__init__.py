"""Routers: which client a request goes to, and what happens when it fails.

In come a conversation and options; out goes the answer of one client, and one record for each
client that was asked. `router.py` selects once and invokes once, `failover.py` selects again,
`ordered.py` walks a list. The loop behind all of them is `_call.py`, its one decision
`_decision.py`. What an exception means is in `policies/`; the wire is in `adapters/`.
"""
