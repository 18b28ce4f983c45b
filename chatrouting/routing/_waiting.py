"""Waiting for all candidates at once, after each of them has refused."""

import math
from collections.abc import Sequence
from typing import Any, final

import anyio

from chatrouting._limits import LimitExpired, run_within
from chatrouting.admission import AdmissionQueue, Offer, QueuePlace
from chatrouting.client import ChatClient
from chatrouting.errors import RefusedLocallyError
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions
from chatrouting.routing._errors import request_timeout
from chatrouting.routing.context import Target


def queue_of(client: ChatClient) -> AdmissionQueue | None:
    """Return the queue of a client at which requests may wait."""
    queue: Any = client.get_service(AdmissionQueue)
    return queue if isinstance(queue, AdmissionQueue) else None


@final
class Places:
    """One request's places in several queues, as one place."""

    def __init__(self, places: Sequence[QueuePlace]) -> None:
        self._places = places

    @property
    def deadline(self) -> float:
        """When the last queue gives the request up."""
        return max(place.deadline for place in self._places)

    def refusal(self) -> RefusedLocallyError:
        """Make the error of the queue that was entered first."""
        return self._places[0].refusal()

    def leave(self) -> None:
        """Leave all queues."""
        for place in self._places:
            place.leave()


def enter_queues(
    clients: Sequence[ChatClient],
    messages: tuple[ChatMessage, ...],
    options: ChatOptions,
    tickets: dict[object, Any],
    offer: Offer,
) -> Places | None:
    """Enter the queues of all clients that have one; None if there is none that may be entered."""
    queues = [queue for queue in map(queue_of, clients) if queue is not None]
    entered = [queue.enter_queue(messages, options, tickets, offer) for queue in queues]
    places = [place for place in entered if place is not None]
    return Places(places) if places else None


@final
class JointWait:
    """The wait of one request at the clients that have refused it."""

    def __init__(self, targets: Sequence[Target], tickets: dict[object, Any]) -> None:
        """Enter the queues.

        Args:
            targets: What was refused: clients, and what each was given.
            tickets: The request's.
        """
        self._granted: Target | None = None
        self._offered = anyio.Event()
        self._places: list[tuple[Target, QueuePlace]] = []
        for target in {id(each[0]): each for each in targets}.values():
            queue = queue_of(target[0])
            if self._granted is None and queue is not None:
                place = queue.enter_queue(target[2], target[3], tickets, self._offer_to(target))
                if place is not None:
                    self._places.append((target, place))

    def _offer_to(self, target: Target) -> Offer:
        def offer() -> bool:
            if self._granted is not None:
                return False
            self._granted = target
            self._offered.set()
            return True

        return offer

    async def granted(self, deadline: float | None, baseline: int) -> Target | None:
        """Wait for the first admission, and return whose it is; None if there is no queue.

        Args:
            deadline: When the request ends, where this router is the one to enforce it.
            baseline: What `cancel_baseline` gave at the start of the call.

        Raises:
            RequestTimeoutError: If the time of the request ran out.
            RefusedLocallyError: If all queues have given the request up.
        """
        if not self._places:
            return None
        places = Places([place for _, place in self._places])
        ends = min(places.deadline, math.inf if deadline is None else deadline)
        try:
            await run_within(ends, self._offered.wait, baseline)
        except LimitExpired as expired:
            is_over = deadline is not None and ends >= deadline
            error = expired.caused(
                request_timeout("while it waited") if is_over else places.refusal()
            )
            if self._granted is None:  # else it came at the last moment
                raise error from error.__cause__
        for target, place in self._places:
            if target is not self._granted:
                place.leave()
        return self._granted

    def leave(self) -> None:
        """Leave all queues; an admission that was used stays."""
        for _, place in self._places:
            place.leave()
