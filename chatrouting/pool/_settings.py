"""Values of one pool's variables: where each is inherited from, and numbers that are numbers."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, final

from chatrouting.pool._grammar import Naming

#: Variables hold milliseconds where endpoints have seconds.
_NUMBERS: Final[Mapping[str, str]] = {
    "timeout": "MAX_TIMEOUT",
    "max_retries": "MAX_RETRYATTEMPTS",
    "max_concurrency": "MAX_CONCURRENCY",
}
#: Seconds that TypeAgent waits for a chat model; for other kinds it sets no limit.
_CHAT_TIMEOUT: Final = 60.0
_LONGEST: Final = 60


class Setting(NamedTuple):
    """A value, and the variable that holds it."""

    variable: str
    value: str


class SettingError(Exception):
    """A variable that holds what it cannot; its member cannot be built."""

    def __init__(self, variable: str, reason: str) -> None:
        super().__init__(variable, reason)
        self.variable = variable
        self.reason = reason


@final
class Environment:
    """A snapshot of variables. What is blank counts as not set.

    Attributes:
        names: All that were given, in their order, the blank ones too.
        values: By name, without spaces around them.
    """

    __slots__ = ("names", "values")

    def __init__(self, given: Mapping[str, str | None]) -> None:
        texts = {name: value.strip() for name, value in given.items() if value is not None}
        self.names = tuple(texts)
        self.values = {name: value for name, value in texts.items() if value}

    def first(self, names: Iterable[str]) -> Setting | None:
        """Return the first of these variables that is set."""
        return next(
            (Setting(name, self.values[name]) for name in names if name in self.values), None
        )


class Tuning(NamedTuple):
    """Numbers of a member, by field, and the variables that they are from."""

    fields: dict[str, Any]
    origins: dict[str, str]


def read_tuning(env: Environment, naming: Naming, suffix: str) -> Tuning:
    """Read the numbers of a member, each from the variable that is nearest to it.

    Raises:
        SettingError: If one is no number.
    """
    fields: dict[str, Any] = {"timeout": _CHAT_TIMEOUT if naming.kind == "chat" else None}
    origins: dict[str, str] = {}
    for field, setting in _NUMBERS.items():
        found = env.first(naming.variables(setting, suffix))
        if found is not None:
            number = _whole_number(found)
            fields[field] = number / 1000 if field == "timeout" else number
            origins[field] = found.variable
    return Tuning(fields, origins)


def _whole_number(setting: Setting) -> int:
    # So many digits at most that it is a float of seconds, too.
    if not re.fullmatch(r"[1-9][0-9]{0,17}", setting.value, re.ASCII):
        raise SettingError(
            setting.variable,
            f"invalid value {show(setting.value)}; expected a whole number above 0, in digits",
        )
    return int(setting.value)


def show(value: object) -> str:
    """Write a value into a message, so much of it that it can be recognised."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]}...{text[-1]}"
