"""The seam between routers and clients for which requests wait, such as those under a quota.

A failover asks each candidate without waiting. If all of them refuse, it asks those that answer for
`AdmissionQueue` what they would wait for, and lets their desks wait for all of it at once. The
client that is admitted first is asked again; the others are charged nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions


class AdmissionDesk(Protocol):
    """Who admits requests; one desk may serve many clients."""

    async def wait_for_admission(
        self,
        wanted: Sequence[object],
        tickets: dict[object, Any],
        timeout: float | None,  # noqa: ASYNC109  # for desks that refuse what will not be in time
    ) -> int:
        """Wait until a request is admitted at one of several clients, and charge it there.

        Cancelled, it has charged nothing.

        Args:
            wanted: What the clients put into their `AdmissionRequest`s, at least one.
            tickets: The request's, as in its `RequestScope`: where the admission is kept until the
                client is called.
            timeout: Seconds that are left of the request; None for no limit.

        Returns:
            Which of them admitted the request.

        Raises:
            RefusedLocallyError: If none will in time.
        """
        ...

    def give_back(self, tickets: dict[object, Any]) -> None:
        """Give back an admission that no call has used, if there is one."""
        ...


@final
@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A request that may wait at a desk.

    Attributes:
        desk: Who admits it.
        wanted: What for, in the desk's own terms.
    """

    desk: AdmissionDesk
    wanted: object


@runtime_checkable
class AdmissionQueue(Protocol):
    """What a client answers for `get_service(AdmissionQueue)` if requests may wait for it.

    Such a client refuses at once, with a `RefusedLocallyError`, wherever
    `current_scope().waits_together` is set: somebody further out waits for all candidates. It finds
    this client through routers that select once, too, by the record of the refusal.
    """

    def admission_requests(
        self, messages: tuple[ChatMessage, ...], options: ChatOptions, *, is_streaming: bool
    ) -> Sequence[AdmissionRequest]:
        """Say what a call of this client would have to wait for.

        Args:
            messages: What it would be called with.
            options: Likewise.
            is_streaming: How it would be called.

        Returns:
            One request for each client inside that could answer; none if the call may not wait.
        """
        ...


@runtime_checkable
class HeadroomSource(Protocol):
    """What a client answers for `get_service(HeadroomSource)` if it knows how much room it has.

    A pool may prefer members that have more, see `PoolPolicy.prefer_headroom`.
    """

    def headroom(
        self,
        messages: tuple[ChatMessage, ...],
        options: ChatOptions | None = None,
        *,
        is_streaming: bool = False,
    ) -> float:
        """Return the part of its fullest limit that is free, from 0 to 1.

        Args:
            messages: What it would be called with.
            options: Likewise.
            is_streaming: How it would be called.
        """
        ...
