"""What a provider server remembers of each request."""

from collections.abc import Mapping
from typing import Any, final

import anyio

from chatrouting.testing._json import as_object


@final
class RecordedRequest:
    """One request as it arrived, and what became of it."""

    def __init__(
        self,
        *,
        number: int,
        connection: int,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        raw_body: bytes,
        body: Any,
    ) -> None:
        self.number = number  #: From 1, in order of arrival.
        self.connection = connection  #: Number of the connection it came on, from 1.
        self.method = method
        self.path = path  #: Decoded, without the query.
        self.query = query
        self.headers = headers  #: Names in lower case; repeated ones joined by ", ".
        self.raw_body = raw_body
        #: The JSON of the body, or the fields of a form; None if there is none or it is neither.
        self.body = body
        self.refused: str | None = None  #: The rule it broke, if the server refused it by itself.
        self.replied = False  #: The answer was sent to its end.
        self.events_sent = 0  #: SSE events (inserted ones too) that were sent completely.
        self.hung_up = anyio.Event()  #: Set when the client leaves before the answer is complete.
        self.done = anyio.Event()  #: Set when the server has finished with it, however it ended.

    @property
    def client_hung_up(self) -> bool:
        """Whether the client left before the answer was complete."""
        return self.hung_up.is_set()

    @property
    def model(self) -> str | None:
        """The model asked for."""
        model: str | None = as_object(self.body).get("model")
        return model

    @property
    def stream(self) -> bool:
        """Whether SSE was asked for."""
        return bool(as_object(self.body).get("stream"))

    def __repr__(self) -> str:
        return f"<RecordedRequest {self.number} {self.method} {self.path} model={self.model!r}>"
