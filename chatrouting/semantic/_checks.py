"""Checks of what constructors are given."""

from chatrouting.client import EmbeddingGenerator
from chatrouting.errors import ConfigurationError


def check_generator(name: str, value: object) -> None:
    """Refuse what is no embedding generator.

    Raises:
        TypeError: If it is None.
        ConfigurationError: If it is something else.
    """
    if value is None:
        raise TypeError(f"{name} is None; expected an embedding generator.")
    if not isinstance(value, EmbeddingGenerator):
        raise ConfigurationError(
            f"{name} is {type(value).__name__}, which is no embedding generator; it needs "
            "generate and aclose."
        )


def check_count(name: str, value: object, least: int = 1) -> None:
    """Refuse what is no whole number, or too small.

    Raises:
        ConfigurationError: If it is so.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{name} is {value!r}; expected a whole number, at least {least}.")
