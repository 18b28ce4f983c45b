"""Images by the members of a pool: made, and edited.

A picture costs much, and one that was not waited for is often billed all the same. So after a
timeout no other member is asked, unless that is wanted.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import final

from chatrouting.adapters.images import ImageClient, ImageOptions, ImageResponse
from chatrouting.client import ClosingClient
from chatrouting.contents import DataContent
from chatrouting.errors import ClientClosedError
from chatrouting.failure import FailureKind
from chatrouting.policies.classify import classify
from chatrouting.pool._run import always, run
from chatrouting.pool.endpoint import Endpoint
from chatrouting.pool.pool import EndpointPool


@final
class PooledImageClient(ClosingClient):
    """Makes and edits pictures, by whichever member of a pool answers.

    Safe for many concurrent tasks. The pool stays the caller's: closing the client leaves it open.
    """

    def __init__(self, pool: EndpointPool[ImageClient], *, retry_on_timeout: bool = False) -> None:
        """Put an image client over a pool.

        Args:
            pool: The pool; its clients are image clients.
            retry_on_timeout: Ask another member also where one took too long, which may cost the
                picture twice.

        Raises:
            TypeError: If `pool` is no pool.
        """
        if not isinstance(pool, EndpointPool):
            raise TypeError(f"pool is {type(pool).__name__}; expected an EndpointPool.")
        self._pool = pool
        self._is_closed = False
        self._may_repeat = always if retry_on_timeout else _is_no_timeout

    @property
    def pool(self) -> EndpointPool[ImageClient]:
        """The pool."""
        return self._pool

    async def generate(self, prompt: str, options: ImageOptions | None = None) -> ImageResponse:
        """Make pictures from words.

        Raises:
            PoolExhaustedError: If all members are held back, and none is back in time.
            ClientClosedError: If this client or the pool was closed.
            Exception: The last member's error, unchanged.
        """
        return await self._run(lambda client, _: client.generate(prompt, options))

    async def edit(
        self,
        prompt: str,
        images: Sequence[DataContent],
        options: ImageOptions | None = None,
        *,
        mask: DataContent | None = None,
    ) -> ImageResponse:
        """Make pictures from words and pictures; raises as `generate` does."""
        given = tuple(images)
        return await self._run(lambda client, _: client.edit(prompt, given, options, mask=mask))

    async def aclose(self) -> None:
        """Refuse further calls; the pool stays open."""
        self._is_closed = True

    async def _run(
        self, call: Callable[[ImageClient, Endpoint], Awaitable[ImageResponse]]
    ) -> ImageResponse:
        if self._is_closed:
            raise ClientClosedError("the client was used after aclose; make a new one.")
        return await run(self._pool, call, may_repeat=self._may_repeat)


def _is_no_timeout(error: Exception) -> bool:
    return classify(error).kind is not FailureKind.TIMEOUT
