"""Checks of numbers and words that endpoints and policies are made of."""

import math
from enum import StrEnum
from typing import TypeVar

from chatrouting.errors import ConfigurationError

WordT = TypeVar("WordT", bound=StrEnum)


def check_whole(name: str, value: object, *, least: int | None, optional: bool = False) -> None:
    """Refuse what is no whole number, or is too small.

    Args:
        name: What the message calls the value.
        value: What was given.
        least: The smallest that is allowed; None allows all.
        optional: None is allowed, too.

    Raises:
        ConfigurationError: If it is so.
    """
    if value is None and optional:
        return
    if isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least):
        return
    bound = "" if least is None else f", at least {least}"
    raise ConfigurationError(
        f"{name} is {value!r}; expected a whole number{bound}{_or_none(optional=optional)}."
    )


def check_number(
    name: str,
    value: object,
    *,
    least: float = 0.0,
    most: float = math.inf,
    above: bool = False,
    optional: bool = False,
) -> None:
    """Refuse what is no finite number, or outside of its range.

    Args:
        name: What the message calls the value.
        value: What was given.
        least: The smallest that is allowed.
        most: The largest that is allowed.
        above: `least` itself is refused.
        optional: None is allowed, too.

    Raises:
        ConfigurationError: If it is so.
    """
    if value is None and optional:
        return
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_enough = value > least if above else value >= least
        if is_enough and value <= most and math.isfinite(value):
            return
    bound = f"more than {least:g}" if above else f"at least {least:g}"
    ceiling = "" if most == math.inf else f" and at most {most:g}"
    raise ConfigurationError(
        f"{name} is {value!r}; expected a finite number, {bound}{ceiling}"
        f"{_or_none(optional=optional)}."
    )


def check_word(name: str, value: object, words: type[WordT]) -> WordT:
    """Return the member of an enumeration that a value means.

    Raises:
        ConfigurationError: If it means none.
    """
    for word in words:
        if word.value == value:
            return word
    known = ", ".join(repr(word.value) for word in words)
    raise ConfigurationError(f"{name} is {value!r}; expected one of {known}.")


def check_text(name: str, value: object) -> None:
    """Refuse what is neither None nor a text with something in it.

    Raises:
        ConfigurationError: If it is so.
    """
    if value is not None and not (isinstance(value, str) and value):
        raise ConfigurationError(f"{name} is {value!r}; expected a text with content, or None.")


def _or_none(*, optional: bool) -> str:
    return ", or None" if optional else ""
