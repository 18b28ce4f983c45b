"""What all chat clients over an SDK have in common: a connection, metadata, a model, an end."""

from typing import Any, Protocol

from chatrouting.client import ClientMetadata, ClosingClient, own_service
from chatrouting.errors import ConfigurationError
from chatrouting.options import ChatOptions


class Connection(Protocol):
    """One adapter's way to an SDK client."""

    def service(self, service_type: type[Any]) -> object | None:
        """Return the SDK client if it is one of `service_type` and there is one already."""
        ...

    def check_open(self) -> None:
        """Raise `ClientClosedError` after `aclose`."""
        ...

    async def aclose(self) -> None:
        """Close the SDK client if it was made here."""
        ...


class SDKClient(ClosingClient):
    """Base of the adapters' clients."""

    def __init__(self, connection: Connection, provider: str, model: str | None) -> None:
        self._connection = connection
        self._metadata = ClientMetadata(provider, model)

    def get_service(self, service_type: type[Any], service_key: object = None) -> Any:
        """Answer for this client, its `ClientMetadata`, and the SDK client by its class.

        Raises:
            TypeError: If `service_type` is None.
        """
        service: Any = own_service(self, service_type, service_key)
        if service is not None or service_key is not None:
            return service
        if service_type is ClientMetadata:
            return self._metadata
        return self._connection.service(service_type)

    async def aclose(self) -> None:
        """Close the SDK client if it was made here; one that was given stays open."""
        await self._connection.aclose()

    def _model(self, options: ChatOptions) -> str:
        model = options.model or self._metadata.model
        if not model:
            raise ConfigurationError(
                f"no model is named for {self._metadata.provider}: give one to "
                f"{type(self).__name__}(client, model), or set ChatOptions.model."
            )
        return model
