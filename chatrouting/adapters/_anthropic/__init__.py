"""The wire format of Anthropic's Messages API. Pure: nothing is sent here.

`options` (with `models` and `schema`) and `conversation` (with `content` and `raw`) write a
request; `events` reads what is answered, whole or streamed, and `answer` the facts of a message.
"""
