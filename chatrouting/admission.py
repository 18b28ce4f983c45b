"""The seam between routers and clients at which requests wait, such as those under a quota.

A failover asks each candidate without waiting. If all of them refuse, it enters the queues of those
that answer for `AdmissionQueue`, asks the one that offers admission first, and leaves the others.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from chatrouting.errors import RefusedLocallyError
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions

#: Called by a queue that can admit the request now. True: taken; the queue charges it, and the next
#: call that the request makes is admitted. False: another queue was first; nothing is charged.
Offer: TypeAlias = Callable[[], bool]


class QueuePlace(Protocol):
    """A request's place in a queue."""

    @property
    def deadline(self) -> float:
        """When the queue gives the request up, by the event loop's clock; infinity for never."""
        ...

    def refusal(self) -> RefusedLocallyError:
        """Make the error for a wait that was in vain."""
        ...

    def leave(self) -> None:
        """Give up the place, and an admission that no call has used. May be called repeatedly."""
        ...


@runtime_checkable
class AdmissionQueue(Protocol):
    """What a client answers for `get_service(AdmissionQueue)` if requests may wait for it.

    Such a client refuses at once, with a `RefusedLocallyError`, wherever
    `current_scope().waits_together` is set: somebody further out waits for all candidates.
    """

    def enter_queue(
        self,
        messages: tuple[ChatMessage, ...],
        options: ChatOptions,
        tickets: dict[object, Any],
        offer: Offer,
    ) -> QueuePlace | None:
        """Join the queue.

        Args:
            messages: Of the request.
            options: Of the request.
            tickets: The request's, as in its `RequestScope`: where an admission is kept until the
                client is called.
            offer: Called at most once with success, from the event loop that this is called in.

        Returns:
            The place; None if this request may not wait here.
        """
        ...
