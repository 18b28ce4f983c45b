"""Chat clients over the SDKs: the wire.

In come messages and options; out go one HTTP request, and what was answered: a response, updates,
or an error of ours with all that a router decides by. Nothing is retried here; no room is next.
Clients: `openai.py` (with `dialects.py`), `openai_responses.py`, `anthropic.py`, `embeddings.py`,
over `_client.py`, and over `_connection.py`, which sends; `_*_sdk.py` alone import the SDKs.
Wire formats, pure: `_openai_chat`, `_openai_responses`, `_anthropic`; for all: `_outbound.py`,
`_call_ids.py`, `_schema.py`, `_json.py`. Reading: `_source.py` (streams) and `_sse.py`;
`_errors.py` makes our errors of theirs, `_redaction.py` takes prompts and keys out of those.
"""
