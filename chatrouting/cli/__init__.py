"""The command line: a door into the library.

In come arguments and environment variables; out go text and an exit code. `main.py` parses,
`routes.py` finds out which providers are configured, `chat.py` asks them; `demo.py` and the files
beside it simulate providers that fail and show what a stack of routers makes of them;
`semantic.py` tries the routes of a semantic router; `pool.py` shows a pool of endpoints, and
`pool_check.py` asks each of them.
"""

from chatrouting.cli.main import main

__all__ = ["main"]
