"""Chat clients over the SDKs: the wire.

In come messages and options, out go one HTTP request and what was answered, as a response, updates,
or an error of ours with everything that a router decides by. Nothing is retried here and nothing is
decided here. Pure `_wire` modules write requests and read answers; `_openai_sdk.py` and
`_anthropic_sdk.py` alone import the SDKs, when a client is first used. There is no next room.
"""
