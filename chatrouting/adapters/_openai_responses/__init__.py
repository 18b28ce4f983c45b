"""The wire format of the Responses API. Pure: nothing is sent here.

`options` and `conversation` write a request; `events` reads what is answered, whole or streamed,
and `answer` the facts of one response object.
"""
