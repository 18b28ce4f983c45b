"""The forms in which callers give routes, their utterances and their thresholds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from chatrouting.client import ChatClient
from chatrouting.errors import ConfigurationError
from chatrouting.routing._routes import RouteTable
from chatrouting.semantic.decision import DEFAULT_ROUTE


class RouteProfile(NamedTuple):
    """A route: the client, what users say to it, and from which score on it is meant.

    A plain `(client, utterances)` or `(client, utterances, threshold)` will do as well.

    Attributes:
        client: Answers what sounds like the utterances.
        utterances: At least one; exact repetitions are dropped.
        threshold: The least score of this route; None for the router's `score_threshold`.
    """

    client: ChatClient
    utterances: Iterable[str]
    threshold: float | None = None


ProfileInput: TypeAlias = (
    RouteProfile | tuple[ChatClient, Iterable[str]] | tuple[ChatClient, Iterable[str], float | None]
)
ClientT = TypeVar("ClientT", bound=ChatClient)
#: Names to profiles, profiles, or clients to utterances, with a threshold if need be.
ProfilesInput: TypeAlias = (
    Mapping[str, ProfileInput]
    | Iterable[ProfileInput]
    | Mapping[ClientT, Iterable[str] | tuple[Iterable[str], float | None]]
)


@dataclass(frozen=True, slots=True)
class Profiles:
    """Checked profiles, in the order of their declaration.

    Attributes:
        names: One for each route.
        clients: Likewise; a client may stand here several times.
        utterances: Likewise; none of them empty.
        thresholds: Likewise; not checked yet.
    """

    names: tuple[str, ...]
    clients: tuple[ChatClient, ...]
    utterances: tuple[tuple[str, ...], ...]
    thresholds: tuple[float | None, ...]


def read_profiles(given: ProfilesInput[ClientT]) -> Profiles:
    """Check profiles and name those without a name, as routers name their routes.

    Raises:
        TypeError: If `given` is None, or no collection.
        ConfigurationError: If there are none, or one is not as it should be.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(
            f"profiles is {type(given).__name__}; expected a list of (client, utterances), "
            "a mapping of names to those, or a mapping of clients to utterances."
        )
    named, items = _spread(given)
    if not items:
        raise ConfigurationError("profiles is empty; give at least one client with utterances.")
    read = [_profile(item, _where(position, named)) for position, item in enumerate(items)]
    clients = [profile.client for profile in read]
    table = RouteTable(
        dict(zip(named, clients, strict=True)) if named else clients, parameter="profiles"
    )
    if DEFAULT_ROUTE in table.names:
        raise ConfigurationError(
            f"a profile has the name {DEFAULT_ROUTE!r}, by which the route of default_client "
            "goes. Give it another one."
        )
    return Profiles(
        table.names,
        table.clients,
        tuple(
            read_utterances(profile.utterances, name)
            for name, profile in zip(table.names, read, strict=True)
        ),
        tuple(profile.threshold for profile in read),
    )


def read_utterances(given: Iterable[str], route: str) -> tuple[str, ...]:
    """Check utterances, and drop those that stand there already.

    Repeating an utterance says nothing new, but would weigh in means and sums.

    Raises:
        ConfigurationError: If there is none, or one is blank or no text.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigurationError(
            f"the utterances of route {route!r} are {type(given).__name__}; "
            "expected a list of texts."
        )
    utterances = tuple(given)
    for number, text in enumerate(utterances, 1):
        if not isinstance(text, str) or not text.strip():
            raise ConfigurationError(
                f"utterance {number} of route {route!r} is "
                f"{'blank' if isinstance(text, str) else type(text).__name__}; "
                "expected a text that a user might send."
            )
    if not utterances:
        raise ConfigurationError(f"route {route!r} has no utterances; give at least one.")
    return tuple(dict.fromkeys(utterances))


def _spread(given: Iterable[Any]) -> tuple[tuple[str, ...], list[object]]:
    """Return the names, if there are any, and the items."""
    if not isinstance(given, Mapping):
        return (), list(given)
    mapping = cast("Mapping[object, object]", given)
    keys = list(mapping)
    if keys and all(isinstance(key, str) for key in keys):
        return tuple(cast("list[str]", keys)), list(mapping.values())
    return (), [(client, *_split(value)) for client, value in mapping.items()]


def _split(value: object) -> tuple[Any, ...]:
    """Tell `(utterances, threshold)` from the utterances alone."""
    parts = _parts(value)
    has_threshold = len(parts) == 2 and not isinstance(parts[1], str)  # noqa: PLR2004
    return parts if has_threshold else (value,)


def _parts(value: object) -> tuple[Any, ...]:
    return tuple(cast("Iterable[Any]", value)) if isinstance(value, tuple | list) else ()


def _where(position: int, names: Sequence[str]) -> str:
    return f"profile {names[position]!r}" if names else f"profile {position + 1}"


def _profile(item: object, where: str) -> RouteProfile:
    parts = _parts(item)
    if len(parts) not in (2, 3):
        found = f"of {len(parts)} items" if parts else f"{type(item).__name__}"
        raise ConfigurationError(
            f"{where} is {found}; expected (client, utterances) or (client, utterances, threshold)."
        )
    client, *rest = parts
    if not isinstance(client, ChatClient):
        raise ConfigurationError(
            f"{where} begins with {type(client).__name__}; expected a chat client, and after it "
            "the utterances."
        )
    return RouteProfile(client, *rest)
