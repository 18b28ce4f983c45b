"""The provider of the soak: a process of its own, with faults by a seed.

`python benchmarks/_soak_provider.py SEED` prints its URL, then answers each line with what it saw.
"""

import json
import sys
from collections.abc import Callable
from random import Random
from typing import Final

import anyio

from chatrouting.testing import MALFORMED_EVENT, ProviderServer, RecordedRequest, Reply

TEXT: Final = "The quick brown fox jumps over the lazy dog. " * 3
FIRST_OUTPUT_TIMEOUT: Final = 3.0

_SHARE_OF_FAULTS: Final = 1 / 3
_SHARE_OF_SLOW_ONES: Final = 1 / 50
_SLOW: Final = Reply(TEXT, delay_before_headers=FIRST_OUTPUT_TIMEOUT + 1)
_FAULTS: Final = (
    Reply.error(500),
    Reply.error(503, retry_after=1),
    Reply.error(429, retry_after=0.5),
    Reply.error(400),
    Reply.error(401),
    Reply.stream_error(TEXT, at="content"),
    Reply.stream_error(TEXT, at=6),
    Reply(TEXT, drop_at="headers", drop="reset"),
    Reply(TEXT, drop_at="content"),
    Reply(TEXT, drop_at=5, drop="reset"),
    Reply(TEXT, end_at=5),
    Reply(TEXT, insert={4: MALFORMED_EVENT}),
    Reply(body="<html><body>Bad gateway</body></html>"),
    Reply(TEXT, pings=True, delay_between_chunks=0.002),
)


def reply_to(seed: int) -> Callable[[RecordedRequest], Reply]:
    """Return what decides on a request, by its words and the API that it came to."""

    def reply(request: RecordedRequest) -> Reply:
        rng = Random(f"{seed} {request.path} {request.raw_body!r}")
        if rng.random() >= _SHARE_OF_FAULTS:
            return Reply(TEXT)
        return _SLOW if rng.random() < _SHARE_OF_SLOW_ONES else rng.choice(_FAULTS)

    return reply


async def serve(seed: int) -> None:
    """Answer requests until there are no more questions about them."""
    async with ProviderServer(reply_to(seed)) as server:
        print(server.url, flush=True)
        while await anyio.to_thread.run_sync(sys.stdin.readline):
            seen = {
                "requests": len(server.requests),
                "connections": server.connection_count,
                "open": server.open_connections,
                "errors": [repr(error) for error in server.errors],
            }
            print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    anyio.run(serve, int(sys.argv[1]))
