"""Looks at what is given from outside: what is wrong is told at once, by name, with its value.

A value of the wrong type is a `ConfigurationError`, which no router takes for a reason to try
another client; None where something is needed is a `TypeError`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar, cast

from chatrouting.errors import ConfigurationError
from chatrouting.messages import ChatMessage
from chatrouting.options import ChatOptions, Principal

_Kind: TypeAlias = type | tuple[type, ...]
T = TypeVar("T")
K = TypeVar("K")
_NUMBERS: Final = (int, float)  # a union would be made anew each time
_IDS: Final = ("organisation", "tenant", "team", "api_key")


def is_number(value: object) -> bool:
    """Say whether a value is a number. True is one to Python, and a slip of whoever wrote it."""
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def check_kind(name: str, value: object, kind: _Kind, expected: str) -> None:
    """Refuse a value of another type.

    Args:
        name: As the caller calls it.
        value: What was given.
        kind: What it has to be.
        expected: The same for a person, such as "a Quote".

    Raises:
        TypeError: If it is None.
        ConfigurationError: If it is anything else.
    """
    if isinstance(value, kind):
        return
    if value is None:
        raise TypeError(f"{name} is None; expected {expected}.")
    raise ConfigurationError(f"{name} is {value!r}; expected {expected}.")


def check_text(name: str, value: object) -> None:
    """Refuse what is no text, or an empty one.

    Raises:
        ConfigurationError: If it is.
    """
    if not (isinstance(value, str) and value):
        raise ConfigurationError(f"{name} is {value!r}; expected a text that is not empty.")


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False; "false", the text, is true to Python.

    Raises:
        ConfigurationError: If it is something else.
    """
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} is {value!r}; expected True or False.")


def check_number(
    name: str, value: object, *, above: float | None = None, most: float = math.inf
) -> None:
    """Refuse what is no finite number in a range.

    Args:
        name: As the caller calls it.
        value: What was given.
        above: It has to be more than this; None: at least 0.
        most: It may be this at most.

    Raises:
        ConfigurationError: If it is something else.
    """
    if is_number(value):
        number = cast("float", value)
        is_enough = number >= 0 if above is None else number > above
        if is_enough and number <= most and number < math.inf:
            return
    least = "at least 0" if above is None else f"more than {above:g}"
    range_ = least if most == math.inf else f"{least}, at most {most:g}"
    raise ConfigurationError(f"{name} is {value!r}; expected a finite number, {range_}.")


def check_each(name: str, values: Iterable[T], kind: _Kind, expected: str) -> tuple[T, ...]:
    """Return values as a tuple, if all of them are of a type.

    Args:
        name: As the caller calls all of them.
        values: What was given.
        kind: What each has to be.
        expected: All of them for a person, such as "texts".

    Raises:
        TypeError: If there is None instead of them.
        ConfigurationError: If it is no iterable, or of something else. A text is one value, not
            its letters.
    """
    check_kind(name, values, Iterable, expected)
    found = () if isinstance(values, str | bytes) else tuple(values)
    if isinstance(values, str | bytes) or not all(isinstance(each, kind) for each in found):
        raise ConfigurationError(f"{name} is {values!r}; expected {expected}.")
    return found


def check_mapping(
    name: str, values: Mapping[K, object], keys: type[K], kind: _Kind, expected: str
) -> None:
    """Refuse what is no mapping of these types.

    Args:
        name: As the caller calls it.
        values: What was given.
        keys: What each key has to be.
        kind: What each value has to be.
        expected: All of it for a person.

    Raises:
        TypeError: If it is None.
        ConfigurationError: If it is something else.
    """
    check_kind(name, values, Mapping, expected)
    for key, value in values.items():
        if not (isinstance(key, keys) and isinstance(value, kind)):
            raise ConfigurationError(f"{name} has {key!r}: {value!r}; expected {expected}.")


def check_function(name: str, value: object) -> None:
    """Refuse what cannot be called.

    Raises:
        ConfigurationError: If it cannot.
    """
    if not callable(value):
        raise ConfigurationError(f"{name} is {value!r}; expected a function.")


def check_request(messages: Sequence[ChatMessage], options: ChatOptions) -> None:
    """Refuse what is no request.

    Raises:
        TypeError: If one of them is None.
        ConfigurationError: If they are something else.
    """
    check_kind("options", options, ChatOptions, "ChatOptions")
    is_usual = isinstance(messages, tuple) and all(map(_is_message, messages))
    if not is_usual:
        check_each("messages", messages, ChatMessage, "ChatMessages; `as_messages` makes them")


def _is_message(value: object) -> bool:
    return isinstance(value, ChatMessage)


def check_principal(principal: Principal) -> None:
    """Refuse ids that are no texts: the number 7 is not the tenant "7" whom a ceiling is for.

    Raises:
        ConfigurationError: If one is none.
    """
    check_kind("principal", principal, Principal, "a Principal")
    ids: tuple[object, ...] = (
        principal.organisation,
        principal.tenant,
        principal.team,
        principal.api_key,
    )
    for name, own in zip(_IDS, ids, strict=True):
        if own is not None and not isinstance(own, str):
            raise ConfigurationError(f"{name} of a principal is {own!r}; expected a text.")
