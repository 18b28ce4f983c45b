"""Which providers the environment offers, and the routes that `chatrouting chat` takes to them.

The environment comes in as a mapping. What is set half is told apart from what is not set at all.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from chatrouting.adapters import dialects
from chatrouting.adapters.anthropic import AnthropicChatClient
from chatrouting.adapters.openai import OpenAIChatClient
from chatrouting.cli import sdk_clients as sdk
from chatrouting.client import ChatClient

Environment: TypeAlias = Mapping[str, str]
#: Makes the client of a model; the stack closes what the client needs.
OpenClient: TypeAlias = Callable[[str, AsyncExitStack], ChatClient]

OPENAI_MODEL: Final = "gpt-5.4-mini"
ANTHROPIC_MODEL: Final = "claude-haiku-5-5"

#: Every provider that is known here.
_HOW_TO_SET: Final = {
    "openai": "Set OPENAI_API_KEY, or OPENAI_BASE_URL for a compatible server.",
    "azure": "Set AZURE_OPENAI_ENDPOINT, AZURE_OPENAI_API_KEY and OPENAI_API_VERSION.",
    "anthropic": "Set ANTHROPIC_API_KEY.",
}

WHAT_TO_SET: Final = """\
No provider is configured. Set at least one of these, then ask again:

  OpenAI       OPENAI_API_KEY
  Anthropic    ANTHROPIC_API_KEY
  Azure        AZURE_OPENAI_ENDPOINT, AZURE_OPENAI_API_KEY, OPENAI_API_VERSION,
               and --route azure/DEPLOYMENT
  Compatible   OPENAI_BASE_URL, such as http://localhost:11434/v1 for Ollama
  servers      (llama.cpp, vLLM and others alike), and --route openai/MODEL

Without any: 'chatrouting demo' shows routing and failover with simulated providers."""

#: Usage is not shown, so no server needs to know how it is asked for.
_COMPATIBLE: Final = replace(dialects.OPENAI, supports_stream_options=False)


class RouteError(Exception):
    """A route that cannot be taken; the message says what to set or to write instead."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A provider that the environment has settings for.

    Attributes:
        model: Asked for where a route names none; None if a route must name one.
        model_variable: Where the environment names one.
        missing: Variables that are still to be set.
        open: Makes the client.
    """

    model: str | None
    model_variable: str
    missing: tuple[str, ...]
    open: OpenClient


@dataclass(frozen=True, slots=True)
class Route:
    """One way to an answer."""

    name: str  #: Provider and model, such as "openai/gpt-x".
    model: str
    open: OpenClient


def offers(environment: Environment) -> dict[str, Offer]:
    """List the providers that are configured, wholly or in part, in the order they are asked."""
    found = {
        "openai": _openai(environment),
        "azure": _azure(environment),
        "anthropic": _anthropic(environment),
    }
    return {provider: offer for provider, offer in found.items() if offer is not None}


def _openai(environment: Environment) -> Offer | None:
    api_key = environment.get("OPENAI_API_KEY")
    base_url = environment.get("OPENAI_BASE_URL") or None
    if not api_key and base_url is None:
        return None
    is_openai = base_url is None or "api.openai.com" in base_url

    def open_client(model: str, stack: AsyncExitStack) -> ChatClient:
        client = sdk.openai_client(api_key=api_key, base_url=base_url)
        stack.push_async_exit(client)
        return OpenAIChatClient(client, model, dialect=None if is_openai else _COMPATIBLE)

    return Offer(
        model=environment.get("OPENAI_MODEL") or (OPENAI_MODEL if is_openai else None),
        model_variable="OPENAI_MODEL",
        missing=(),
        open=open_client,
    )


def _azure(environment: Environment) -> Offer | None:
    names = ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", "OPENAI_API_VERSION")
    endpoint, api_key, api_version = (environment.get(name, "") for name in names)
    if not (endpoint or api_key):
        return None

    def open_client(model: str, stack: AsyncExitStack) -> ChatClient:
        client = sdk.azure_client(endpoint=endpoint, api_key=api_key, api_version=api_version)
        stack.push_async_exit(client)
        return OpenAIChatClient(client, model)

    return Offer(
        model=environment.get("AZURE_OPENAI_DEPLOYMENT") or None,
        model_variable="AZURE_OPENAI_DEPLOYMENT",
        missing=tuple(name for name in names if not environment.get(name)),
        open=open_client,
    )


def _anthropic(environment: Environment) -> Offer | None:
    api_key = environment.get("ANTHROPIC_API_KEY")
    if not api_key:
        return None

    def open_client(model: str, stack: AsyncExitStack) -> ChatClient:
        base_url = environment.get("ANTHROPIC_BASE_URL") or None
        client = sdk.anthropic_client(api_key=api_key, base_url=base_url)
        stack.push_async_exit(client)
        return AnthropicChatClient(client, model)

    return Offer(
        model=environment.get("ANTHROPIC_MODEL") or ANTHROPIC_MODEL,
        model_variable="ANTHROPIC_MODEL",
        missing=(),
        open=open_client,
    )


def find_routes(wanted: Sequence[str], environment: Environment) -> tuple[list[Route], list[str]]:
    """Turn what the user wrote into routes; nothing means every provider that is configured.

    Args:
        wanted: Such as "anthropic" or "openai/gpt-x", in the order in which to ask.
        environment: Where keys and addresses are.

    Returns:
        The routes, and why a provider that is configured only in part was left out.

    Raises:
        RouteError: If a route cannot be taken, or there is none.
    """
    found = offers(environment)
    if not found:
        raise RouteError(WHAT_TO_SET)
    if not wanted:
        return _every_route(found)
    routes = [_route(one, found) for one in wanted]
    names = [route.name for route in routes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RouteError(f"Route {twice!r} is given twice; every route is asked once.")
    return routes, []


def _every_route(found: Mapping[str, Offer]) -> tuple[list[Route], list[str]]:
    routes: list[Route] = []
    left_out: list[str] = []
    for provider in found:
        try:
            routes.append(_route(provider, found))
        except RouteError as error:
            left_out.append(str(error))
    if not routes:
        raise RouteError("\n".join(left_out))
    return routes, left_out


def _route(wanted: str, found: Mapping[str, Offer]) -> Route:
    provider, _, model = wanted.partition("/")
    if provider not in _HOW_TO_SET:
        raise RouteError(
            f"Route {wanted!r}: expected openai, azure or anthropic, alone or with /MODEL."
        )
    offer = found.get(provider)
    if offer is None:
        raise RouteError(f"Route {wanted!r}: {provider} is not configured. {_HOW_TO_SET[provider]}")
    if offer.missing:
        raise RouteError(f"Route {wanted!r}: {provider} also needs {', '.join(offer.missing)}.")
    chosen = model or offer.model
    if not chosen:
        raise RouteError(
            f"Route {wanted!r} needs a model: use --route {provider}/MODEL or set "
            f"{offer.model_variable}."
        )
    return Route(f"{provider}/{chosen}", chosen, offer.open)
