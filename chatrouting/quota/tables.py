"""Reading tables of a TOML file: what may stand in them, and of which type.

A complaint names the file, the table and the key. Ranges are not checked here: the values that are
made of them know theirs.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, cast, final

from chatrouting.errors import ConfigurationError
from chatrouting.quota._checks import is_number


@final
class Kind(NamedTuple):
    """A type of value.

    Attributes:
        name: As a person reads it.
        fits: Says whether a value is of it.
    """

    name: str
    fits: Callable[[object], bool]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, cast("list[object]", value)))


def _is_anything(_: object) -> bool:
    return True


NUMBER: Final = Kind("a number", is_number)
COUNT: Final = Kind("a whole number", _is_count)
TEXT: Final = Kind("a text", _is_text)
FLAG: Final = Kind("true or false", _is_flag)
TEXTS: Final = Kind("a list of texts", _are_texts)
TABLE: Final = Kind("a table", _is_table)
#: What is looked at later.
ANYTHING: Final = Kind("anything", _is_anything)


@final
class Tables:
    """One table of a file.

    Attributes:
        where: The file and the table, for complaints.
    """

    def __init__(self, found: Mapping[str, Any], source: str, path: str = "") -> None:
        self.where = f"{source}, [{path}]" if path else source
        self._found = found
        self._source = source
        self._path = path

    def values(
        self, kinds: Mapping[str, Kind], *, required: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return what stands in the table.

        Args:
            kinds: By key, all that may stand there.
            required: What must.

        Raises:
            ConfigurationError: If a key is unknown or missing, or a value of another type.
        """
        for key, value in self._found.items():
            if key not in kinds:
                raise ConfigurationError(f"{self.where}: {_unknown(key, kinds)}")
            if not kinds[key].fits(value):
                raise ConfigurationError(
                    f"{self.where}: {key} is {value!r}; expected {kinds[key].name}."
                )
        for key in required:
            if key not in self._found:
                raise ConfigurationError(
                    f"{self.where}: {key} is missing; expected {kinds[key].name}."
                )
        return dict(self._found)

    def table(self, key: str) -> "Tables":
        """Return a table inside this one; empty if there is none."""
        return Tables(self._found.get(key, {}), self._source, self._below(key))

    def tables(self, key: str) -> Iterator[tuple[str, "Tables"]]:
        """Return the tables in a table inside this one, by name.

        Raises:
            ConfigurationError: If something else stands between them.
        """
        outer = self.table(key)
        for name, value in outer.items():
            if not isinstance(value, dict):
                raise ConfigurationError(
                    f"{outer.where}: {name} is {value!r}; expected a table "
                    f"[{self._below(key)}.{name}]."
                )
            yield name, outer.table(name)

    def each(self, key: str) -> Iterator["Tables"]:
        """Return the tables of an array, `[[key]]`.

        Raises:
            ConfigurationError: If it is something else.
        """
        found = self._found.get(key, [])
        entries = cast("list[object]", found) if isinstance(found, list) else None
        if entries is None or not all(isinstance(each, dict) for each in entries):
            raise ConfigurationError(
                f"{self.where}: {key} is {found!r}; expected tables, each below a line "
                f"[[{self._below(key)}]]."
            )
        for number, entry in enumerate(entries, 1):
            source = f"{self._source}, [[{self._below(key)}]] no. {number}"
            yield Tables(cast("dict[str, Any]", entry), source)

    def items(self) -> Iterator[tuple[str, object]]:
        """Return keys and values, unchecked."""
        yield from self._found.items()

    @contextmanager
    def named(self, key: str = "") -> Generator[None]:
        """Say where it stands, if something inside complains."""
        try:
            yield
        except ConfigurationError as error:
            place = f"{self.where} {key}" if key else self.where
            raise ConfigurationError(f"{place}: {error}") from error

    def _below(self, key: str) -> str:
        quoted = key if key.replace("_", "").replace("-", "").isalnum() else f'"{key}"'
        return f"{self._path}.{quoted}" if self._path else quoted


def _unknown(key: str, known: Collection[str]) -> str:
    like = get_close_matches(key, known, n=1)
    hint = f" Is {like[0]!r} meant?" if like else ""
    return f"unknown key {key!r}; expected {', '.join(known)}.{hint}"
