"""What a member of a pool is: where it is, how to get in, and how the pool is to use it.

Values only. How an endpoint is doing is kept by `health.py`; how the environment describes one is
`discovery.py`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Final, Literal, NoReturn, Self, TypeAlias, final

from typing_extensions import override

from chatrouting.errors import ConfigurationError
from chatrouting.pool._checks import check_number, check_text, check_whole, check_word

#: Whose API an endpoint speaks.
EndpointProvider: TypeAlias = Literal["azure", "openai"]

#: Gives a bearer token whenever it is asked; it keeps and refreshes the token itself.
TokenProvider: TypeAlias = Callable[[], Awaitable[str]]

_PROVIDERS: Final = ("azure", "openai")


class EndpointMode(StrEnum):
    """How the capacity of an endpoint is paid."""

    PTU = "ptu"  #: Reserved throughput, paid whether used or not.
    PAYG = "payg"  #: By use.
    UNKNOWN = "unknown"


@final
class ApiKey:
    """A secret. It shows neither in texts nor in logs, and cannot be pickled.

    Attributes:
        value: The key itself.
    """

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        """Keep a key.

        Raises:
            ConfigurationError: If it is no text, or empty.
        """
        if not isinstance(value, str) or not value.strip():
            # Not shown, not even in part: whatever stands here was meant to be a key.
            raise ConfigurationError(
                f"an API key is {type(value).__name__} and holds nothing readable; "
                "expected a text that is not empty."
            )
        self.value = value

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiKey) and self.value == other.value

    @override
    def __hash__(self) -> int:
        return hash((ApiKey, self.value))

    @override
    def __repr__(self) -> str:
        return "ApiKey(...)"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError("an ApiKey cannot be pickled: the pickle would show the secret.")


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """Ask a token provider instead of sending a key.

    Attributes:
        token_provider: Awaited for each request. None means that of the pool, and without one
            that of the `azure-identity` package.
    """

    token_provider: TokenProvider | None = field(default=None, repr=False)


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    """One member of a pool.

    Attributes:
        id: Its name, unique in the pool. From the environment, the part of the variable's name
            that follows the root; empty for the bare variable.
        url: Where it is, without deployment and query. None for a client of one's own.
        model: The model it serves, as the caller calls it.
        deployment: What Azure calls the deployment.
        api_version: Of Azure's API; None for its newer form without versions.
        provider: Whose API it speaks.
        region: In lower case, such as "swedencentral"; None if it is not known.
        mode: How it is paid.
        priority: The tier, any whole number; members of the lowest one that has a ready member
            are asked.
        weight: Its share among the members of its tier, where the strategy looks at weights.
        tpm: Tokens that it takes in a minute, as declared.
        rpm: Requests that it takes in a minute, as declared.
        capacity: Units of capacity, as declared; counts where neither `weight` nor `tpm` is set.
        timeout: Seconds for one attempt; None for no limit.
        max_concurrency: Attempts at the same time; None for no limit.
        max_retries: Further tries in a pool of one; a larger pool turns to another member.
        quota_group: Members with the same one share a limit: if one is throttled, all are. None
            groups by host and deployment (Azure), or by host, key and model.
        auth: How to get in.
        source: Names of the environment variables that it was made from.
    """

    id: str
    url: str | None = None
    _: KW_ONLY
    model: str | None = None
    deployment: str | None = None
    api_version: str | None = None
    provider: EndpointProvider = "azure"
    region: str | None = None
    mode: EndpointMode = EndpointMode.UNKNOWN
    priority: int = 1
    weight: float | None = None
    tpm: int | None = None
    rpm: int | None = None
    capacity: int | None = None
    timeout: float | None = 60.0
    max_concurrency: int | None = None
    max_retries: int = 3
    quota_group: str | None = None
    auth: ApiKey | Identity | None = None
    source: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ConfigurationError: If one of them holds what it cannot.
        """
        if not isinstance(self.id, str):
            raise ConfigurationError(f"an endpoint's id is {self.id!r}; expected a text.")
        name = f"endpoint {self.id!r}: "
        self._check_url(name)
        for text in ("model", "deployment", "api_version", "region", "quota_group"):
            check_text(name + text, getattr(self, text))
        if self.provider not in _PROVIDERS:
            raise ConfigurationError(
                f"{name}provider is {self.provider!r}; expected 'azure' or 'openai'."
            )
        check_whole(name + "priority", self.priority, least=None)
        check_number(name + "weight", self.weight, above=True, optional=True)
        for count in ("tpm", "rpm", "capacity", "max_concurrency"):
            check_whole(name + count, getattr(self, count), least=1, optional=True)
        check_number(name + "timeout", self.timeout, above=True, optional=True)
        check_whole(name + "max_retries", self.max_retries, least=0)
        if not isinstance(self.auth, ApiKey | Identity | None):
            # The type only: this may be the key itself.
            raise ConfigurationError(
                f"{name}auth is {type(self.auth).__name__}; expected ApiKey(...) or Identity(...)."
            )
        object.__setattr__(self, "mode", check_word(name + "mode", self.mode, EndpointMode))
        object.__setattr__(self, "source", tuple(self.source))
        if self.region is not None:
            object.__setattr__(self, "region", self.region.lower())

    def _check_url(self, name: str) -> None:
        if self.url is None:
            return
        scheme, found, rest = str(self.url).partition("://")
        host = rest.partition("/")[0]
        if not found or scheme.lower() not in ("http", "https") or not host:
            raise ConfigurationError(
                f"{name}url is {self.url!r}; expected one that begins with https:// and a host."
            )
