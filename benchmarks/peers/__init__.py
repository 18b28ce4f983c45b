"""Other libraries, each in the module that imports it; those not installed are left out."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

Call: TypeAlias = Callable[[], Awaitable[Any]]

#: What is measured in memory, and what is measured over the SDK too.
IN_MEMORY = ("pydantic_ai", "langchain")
ALL = (*IN_MEMORY, "litellm")
#: The rate limiter that has one bucket and no keys.
BARE_LIMITER = "aiolimiter"
#: What their modules import; anything else that is missing is an error.
_THEIRS = (
    *ALL,
    "langchain_core",
    "langchain_openai",
    "httpx",
    "semantic_router",
    "limits",
    "throttled",
    "aiolimiter",
    "pyrate_limiter",
)


@dataclass(frozen=True, slots=True)
class InMemory:
    """A library's failover over its own fake model: what the wrapper itself costs.

    Attributes:
        label: What the wrapper is called.
        direct: One call of the fake alone.
        first_answers: One call of the failover.
        first_fails: The same where the first model raises.
        nested: The failover of a failover of a failover of a failover.
    """

    label: str
    direct: Call
    first_answers: Call
    first_fails: Call
    nested: Call


@dataclass(frozen=True, slots=True)
class OverSDK:
    """A library over the OpenAI API, in process.

    Attributes:
        label: What it is called.
        call: One message, answered whole; returns the text.
        first_fails: The same where the first endpoint answers 500.
        stream: One message; reads the whole stream and returns the number of its pieces.
        long: A long conversation, answered whole.
        close: Ends it.
        burst: As `stream`, where many events come in one piece; None where that is not measured.
    """

    label: str
    call: Call
    first_fails: Call
    stream: Call
    long: Call
    close: list[Call] = field(default_factory=list[Call])
    burst: Call | None = None


@dataclass(frozen=True, slots=True)
class Deployments:
    """A library's choice among deployments of one model, over the OpenAI API in process.

    Attributes:
        label: What it is called.
        call: One message, answered whole; returns the text.
        close: Ends it.
    """

    label: str
    call: Call
    close: Call


def in_memory() -> list[InMemory]:
    """Return the failovers of the libraries that are installed."""
    return [module.in_memory() for module in _installed(IN_MEMORY)]


def over_sdk() -> list[OverSDK]:
    """Return the libraries that are installed, over the OpenAI API."""
    return [module.over_sdk() for module in _installed(ALL)]


def three_deployments() -> Deployments | None:
    """Return LiteLLM's router over three deployments, None if that is not installed."""
    module = _load("litellm")
    return None if module is None else module.three_deployments()


def semantic_router() -> Any:
    """Return the module for semantic-router, None if that is not installed."""
    return _load("semantic_router")


def rate_limiters() -> dict[str, Call]:
    """Return one check of one bucket for each rate limiter, nothing if they are not installed."""
    module = _load("rate_limiters")
    return {} if module is None else module.buckets()


def note(names: tuple[str, ...]) -> list[str]:
    """Say which of some libraries are not installed, if any."""
    missing = [name for name in names if _load(name) is None]
    return [f"Not installed, so not measured: {', '.join(missing)}."] if missing else []


def _installed(names: tuple[str, ...]) -> list[Any]:
    return [module for module in map(_load, names) if module is not None]


def _load(name: str) -> Any:
    try:
        return import_module(f"peers.of_{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _THEIRS:
            raise
        return None
