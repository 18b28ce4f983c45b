"""What `chatrouting semantic` reads: routes in TOML, labelled queries in a table with tabs.

Whatever is wrong with a file is an `InputError` that names the file, and the route or the line.
"""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from chatrouting.client import EmbeddingGenerator
from chatrouting.errors import ConfigurationError
from chatrouting.semantic.decision import DEFAULT_ROUTE
from chatrouting.semantic.profiles import RouteProfile
from chatrouting.semantic.router import SemanticRoutingChatClient
from chatrouting.testing.scripted import ScriptedChatClient

#: For the offline encoder. With "blend" this sends most of what belongs nowhere to the default.
_DEFAULTS: Final[Mapping[str, Any]] = {"score_aggregation": "blend", "score_threshold": 0.4}
_SETTINGS: Final = ("score_aggregation", "score_threshold", "top_k", "margin")
_ROUTE_KEYS: Final = ("utterances", "threshold")
_COLUMNS: Final = ("label", "text")


class InputError(Exception):
    """A file that cannot be used; the message says where, and what was expected."""


class LabelledQuery(NamedTuple):
    """A query, and the route that it belongs to; None if it belongs to none."""

    label: str | None
    text: str


@dataclass(frozen=True, slots=True)
class RoutesFile:
    """Routes as a file describes them.

    Attributes:
        path: For messages.
        settings: Of the router.
        routes: Utterances and thresholds by route; what is in them is not checked yet.
    """

    path: Path
    settings: Mapping[str, Any]
    routes: Mapping[str, Mapping[str, Any]]

    def make_router(self, generator: EmbeddingGenerator) -> SemanticRoutingChatClient:
        """Build a router whose clients are never asked.

        Raises:
            InputError: If a route or a setting is not as it should be.
        """
        profiles = {
            route: RouteProfile(
                ScriptedChatClient(route), given.get("utterances", ()), given.get("threshold")
            )
            for route, given in self.routes.items()
        }
        try:
            return SemanticRoutingChatClient(
                generator,
                profiles,
                ScriptedChatClient(DEFAULT_ROUTE),
                **{**_DEFAULTS, **self.settings},
            )
        except ConfigurationError as error:
            raise InputError(f"{self.path}: {error}") from error


def read_routes(path: Path) -> RoutesFile:
    """Read a file of routes.

    Raises:
        InputError: If it cannot be read, is no TOML, or holds something else than routes.
    """
    try:
        found = tomllib.loads(_read(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is no TOML: {error}") from error
    _refuse_unknown(found, (*_SETTINGS, "routes"), f"{path}")
    routes = found.pop("routes", {})
    if not isinstance(routes, dict) or not routes:
        raise InputError(
            f"{path} has no routes; expected a table [routes.NAME] with utterances for each."
        )
    checked: dict[str, Mapping[str, Any]] = {}
    for route, given in cast("dict[str, object]", routes).items():
        if not isinstance(given, dict):
            raise InputError(
                f"{path}: route {route!r} is {type(given).__name__}; expected a table "
                f"[routes.{route}] with utterances."
            )
        checked[route] = cast("dict[str, Any]", given)
        _refuse_unknown(checked[route], _ROUTE_KEYS, f"{path}: route {route!r}")
    return RoutesFile(path, found, checked)


def read_queries(path: Path, routes: Collection[str]) -> list[LabelledQuery]:
    """Read labelled queries.

    Args:
        path: A text file: a line with the names of the columns, "label" and "text" in any order,
            then a line for each query; columns are separated by tabs. The label "default" stands
            for what belongs to no route.
        routes: The labels that there may be.

    Raises:
        InputError: If it cannot be read, or a line is not as it should be.
    """
    heading, *lines = _read(path).rstrip("\n").split("\n")
    columns = heading.split("\t")
    if sorted(columns) != sorted(_COLUMNS):
        raise InputError(
            f"{path}, line 1: the columns are {_listed(columns)}; expected 'label' and 'text', "
            "separated by a tab."
        )
    queries = [
        _query(line.split("\t"), columns, routes, f"{path}, line {number}")
        for number, line in enumerate(lines, 2)
    ]
    if not queries:
        raise InputError(f"{path} has no queries below its first line; expected one for each line.")
    return queries


def _query(
    fields: list[str], columns: list[str], routes: Collection[str], where: str
) -> LabelledQuery:
    if len(fields) != len(columns):
        raise InputError(f"{where}: {len(fields)} columns; expected a label, a tab and a text.")
    row = dict(zip(columns, fields, strict=True))
    label, text = row["label"], row["text"]
    if not text.strip():
        raise InputError(f"{where}: the text is blank; expected what a user might send.")
    if label == DEFAULT_ROUTE:
        return LabelledQuery(None, text)
    if label not in routes:
        raise InputError(
            f"{where}: the label {label!r} is no route; expected one of {_listed(routes)}, or "
            f"{DEFAULT_ROUTE!r} for what belongs to none."
        )
    return LabelledQuery(label, text)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no UTF-8 text; save it as such.") from error


def _refuse_unknown(found: Mapping[str, object], known: Collection[str], where: str) -> None:
    unknown = [key for key in found if key not in known]
    if unknown:
        raise InputError(f"{where}: unknown {_listed(unknown)}; expected {_listed(known)}.")


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names))
