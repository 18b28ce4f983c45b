"""The wire format of Chat Completions. Pure: nothing is sent here.

`options` and `conversation` (with `alternation` for narrow chat templates) write a request;
`events` (with `tool_calls` and `reasoning`) reads what is answered, whole or streamed, and `answer`
the facts of it.
"""
