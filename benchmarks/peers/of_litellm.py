"""LiteLLM: `Router`, with its retries and cooldowns off and its logging silent."""

import os
from typing import Any

# Else the import fetches a table of prices.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import httpx
import litellm
from _canned import LONG, MESSAGES, MODEL, Provider

from peers import Call, Deployments, OverSDK

_BROKEN_PORT = 9


def over_sdk() -> OverSDK:
    """Make a router with a second model to fall back to."""
    client = _client()
    ok, falls_back = _failover(80), _failover(_BROKEN_PORT)

    async def stream() -> int:
        chunks = await ok.acompletion(model="first", messages=MESSAGES, stream=True)
        return len([chunk async for chunk in chunks])

    return OverSDK(
        label="LiteLLM Router",
        call=_asks(ok, MESSAGES),
        first_fails=_asks(falls_back, MESSAGES),
        stream=stream,
        long=_asks(ok, LONG),
        close=[client.aclose],
    )


def three_deployments() -> Deployments:
    """Make a router that chooses among three deployments of one model."""
    client = _client()
    router = _router([_deployment("first", 80, f"k-{place}") for place in range(3)])
    return Deployments("LiteLLM Router over 3", _asks(router, MESSAGES), client.aclose)


def _client() -> httpx.AsyncClient:
    """Make the HTTP client that all routers ask with from now on."""
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    good, broken = Provider(library=httpx), Provider(is_broken=True, library=httpx)
    client = httpx.AsyncClient(transport=_ByPort(good, broken).transport(), timeout=60)
    litellm.aclient_session = client
    return client


def _asks(router: Any, messages: Any) -> Call:
    async def call() -> object:
        answer = await router.acompletion(model="first", messages=messages)
        return answer.choices[0].message.content

    return call


def _deployment(name: str, port: int, key: str) -> dict[str, Any]:
    return {
        "model_name": name,
        "litellm_params": {
            "model": f"openai/{MODEL}",
            "api_base": f"http://127.0.0.1:{port}/v1",
            "api_key": key,
            "max_retries": 0,
        },
    }


def _failover(first_port: int) -> Any:
    models = [_deployment("first", first_port, "k-first"), _deployment("second", 80, "k-second")]
    return _router(models, fallbacks=[{"first": ["second"]}])


def _router(deployments: list[dict[str, Any]], **settings: Any) -> Any:
    return litellm.Router(model_list=deployments, num_retries=0, disable_cooldowns=True, **settings)


class _ByPort:
    """One client serves all deployments: the port says which is the broken one."""

    def __init__(self, good: Provider, broken: Provider) -> None:
        self._good = good
        self._broken = broken

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    async def _answer(self, request: httpx.Request) -> Any:
        provider = self._broken if request.url.port == _BROKEN_PORT else self._good
        return await provider.answer(request)
