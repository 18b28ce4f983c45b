"""Bearer tokens for Azure, by the default credential of `azure-identity`.

A token is kept until five minutes before its end. Whoever needs one while another task fetches it
waits for that one. The package asks in a thread: its asynchronous form knows asyncio only.
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol, final
from weakref import WeakKeyDictionary

import anyio
from anyio import to_thread
from anyio.lowlevel import current_token

from chatrouting.errors import MissingExtraError

SCOPE: Final = "https://cognitiveservices.azure.com/.default"

#: Seconds before its end at which a token is fetched anew.
_MARGIN: Final = 300.0


class AccessToken(Protocol):
    """What a credential gives."""

    @property
    def token(self) -> str: ...

    @property
    def expires_on(self) -> int: ...


def _now() -> float:
    return datetime.now(UTC).timestamp()


def default_credential() -> Callable[[str], AccessToken]:
    """Make what fetches a token for a scope; blocks.

    Raises:
        MissingExtraError: If `azure-identity` is not installed.
    """
    if find_spec("azure") is None or find_spec("azure.identity") is None:
        raise MissingExtraError(
            "a member of the pool has no key and no token provider, and azure-identity is not "
            "installed. Run `pip install 'chatrouting[azure]'`, or give a credential."
        )
    identity: Any = import_module("azure.identity")  # loaded when first used
    fetch: Callable[[str], AccessToken] = identity.DefaultAzureCredential().get_token
    return fetch


@final
class AzureIdentity:
    """A token provider: calling it gives a token that is good for some minutes more.

    Safe for many tasks, threads and event loops.
    """

    def __init__(
        self,
        make_credential: Callable[[], Callable[[str], AccessToken]] = default_credential,
        *,
        now: Callable[[], float] = _now,
    ) -> None:
        """Ask for nothing yet.

        Args:
            make_credential: Makes what fetches a token for a scope, when one is first needed.
            now: The time, in seconds since 1970.
        """
        self._make_credential = make_credential
        self._now = now
        self._fetch: Callable[[str], AccessToken] | None = None
        self._token: AccessToken | None = None
        self._fetching = threading.Lock()
        self._turns: WeakKeyDictionary[object, anyio.Lock] = WeakKeyDictionary()

    async def __call__(self) -> str:
        """Return a token.

        Raises:
            MissingExtraError: If `azure-identity` is not installed.
            Exception: Whatever the credential raises.
        """
        token = self._fresh()
        if token is None:
            loop = current_token().native_token
            async with self._turns.setdefault(loop, anyio.Lock()):
                token = self._fresh()
                if token is None:
                    token = await to_thread.run_sync(self._renew)
        return token.token

    def _fresh(self) -> AccessToken | None:
        token = self._token
        return token if token is not None and self._now() < token.expires_on - _MARGIN else None

    def _renew(self) -> AccessToken:
        with self._fetching:  # another event loop may be here
            token = self._fresh()
            if token is None:
                if self._fetch is None:
                    self._fetch = self._make_credential()
                token = self._token = self._fetch(SCOPE)
            return token
