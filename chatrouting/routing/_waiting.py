"""Waiting for all candidates at once, after each of them has refused."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import anyio

from chatrouting._limits import LimitExpired, run_within
from chatrouting.admission import AdmissionDesk, AdmissionQueue, AdmissionRequest
from chatrouting.attempt import AttemptOutcome, RoutingAttempt
from chatrouting.client import ChatClient
from chatrouting.errors import RefusedLocallyError
from chatrouting.routing._errors import request_timeout
from chatrouting.routing._reporting import as_policy
from chatrouting.routing.context import Target

logger = logging.getLogger("chatrouting.routing")

_NOBODY: Final = -1
_REFUSED: Final = AttemptOutcome.REFUSED_LOCALLY


def queue_of(client: ChatClient) -> AdmissionQueue | None:
    """Return the queue of a client for which requests may wait."""
    queue: Any = client.get_service(AdmissionQueue)
    return queue if isinstance(queue, AdmissionQueue) else None


def queues_behind(refusal: RoutingAttempt) -> list[AdmissionQueue]:
    """Return for whom a refused request may wait: its client, or what routers inside it asked.

    A router that selects once answers for no queue, since only its policy knows whose it would be.
    What it asked is in the records.
    """
    queue = None if refusal.client is None else queue_of(refusal.client)
    if queue is not None:
        return [queue]
    refused = (child for child in refusal.children if child.outcome is _REFUSED)
    return [queue for child in refused for queue in queues_behind(child)]


class JointWait:
    """The wait of one request for the clients that have refused it."""

    def __init__(
        self,
        targets: Sequence[Target],
        refusals: Sequence[RoutingAttempt],
        tickets: dict[object, Any],
        *,
        is_streaming: bool,
    ) -> None:
        """Ask the clients what they would wait for.

        Args:
            targets: What was refused: clients, and what each was given.
            refusals: The records of that, likewise.
            tickets: The request's.
            is_streaming: The request is for a stream.
        """
        self._targets: list[Target] = []
        self._requests: list[AdmissionRequest] = []
        self._tickets = tickets
        for target, refusal in zip(targets, refusals, strict=True):
            for queue in queues_behind(refusal):
                asked = queue.admission_requests(target[2], target[3], is_streaming=is_streaming)
                self._requests += asked
                self._targets += [target] * len(asked)

    async def admitted(
        self, ends_at: float | None, deadline: float | None, baseline: int
    ) -> Target | None:
        """Wait for the first admission, and return whose it is; None if nobody may be waited for.

        Args:
            ends_at: When the request ends, for the desks to know.
            deadline: The same, where this router is the one to enforce it.
            baseline: What `cancel_baseline` gave at the start of the call.

        Raises:
            RequestTimeoutError: If the time of the request ran out.
            RefusedLocallyError: If no desk will admit the request.
        """
        if not self._requests:
            return None
        left = None if ends_at is None else max(0.0, ends_at - anyio.current_time())
        if deadline is None:
            return self._targets[await self._wait(left)]
        try:
            return self._targets[await run_within(deadline, partial(self._wait, left), baseline)]
        except LimitExpired as expired:
            error = expired.caused(request_timeout("while it waited for room"))
        raise error

    def give_back(self) -> None:
        """Give back what was admitted and not used."""
        for desk in self._desks().values():
            self._give_back(desk)

    def _give_back(self, desk: AdmissionDesk) -> None:
        try:
            desk.give_back(self._tickets)
        except Exception:  # the others still hold something, and an answer may be there
            logger.exception("routing.give_back_failed")

    def _desks(self) -> dict[int, AdmissionDesk]:
        return {id(request.desk): request.desk for request in self._requests}

    async def _wait(self, timeout: float | None) -> int:  # noqa: ASYNC109  # for the desk to see
        desks = list(self._desks().values())
        if len(desks) == 1:
            return await self._wait_at(desks[0], timeout)
        return await self._race(desks, timeout)

    async def _wait_at(self, desk: AdmissionDesk, timeout: float | None) -> int:  # noqa: ASYNC109
        here = [index for index, request in enumerate(self._requests) if request.desk is desk]
        wanted = [self._requests[index].wanted for index in here]
        return here[await desk.wait_for_admission(wanted, self._tickets, timeout)]

    async def _race(self, desks: Sequence[AdmissionDesk], timeout: float | None) -> int:  # noqa: ASYNC109
        """Wait at several desks; the first wins, and what a second admits is given back."""
        winner = _NOBODY
        errors: list[Exception] = []

        async def wait(desk: AdmissionDesk) -> None:
            nonlocal winner
            try:
                index = await as_policy(self._wait_at(desk, timeout))
            except Exception as error:  # raised if nobody admits
                if not isinstance(error, RefusedLocallyError):
                    logger.exception("routing.desk_failed")
                errors.append(error)
                return
            if winner == _NOBODY:
                winner = index
                group.cancel_scope.cancel()
            else:
                self._give_back(desk)

        async with anyio.create_task_group() as group:
            for desk in desks:
                group.start_soon(wait, desk)
        if winner == _NOBODY:
            # What is no refusal is a mistake, which a refusal must not hide.
            errors.sort(key=lambda error: isinstance(error, RefusedLocallyError))
            raise errors.pop(0)
        return winner
