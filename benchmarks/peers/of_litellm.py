"""LiteLLM: `Router`, with its retries and cooldowns off and its logging silent."""

import os
from typing import Any

# Else the import fetches a table of prices.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import httpx
import litellm
from _canned import LONG, MESSAGES, MODEL, Provider

from peers import Call, OverSDK

_BROKEN_PORT = 9


def over_sdk() -> OverSDK:
    """Make a router with a second model to fall back to."""
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    good, broken = Provider(library=httpx), Provider(is_broken=True, library=httpx)
    client = httpx.AsyncClient(transport=_ByPort(good, broken).transport(), timeout=60)
    litellm.aclient_session = client
    ok, falls_back = _router(80), _router(_BROKEN_PORT)

    def asks(router: Any, messages: Any) -> Call:
        async def call() -> object:
            answer = await router.acompletion(model="first", messages=messages)
            return answer.choices[0].message.content

        return call

    async def stream() -> int:
        chunks = await ok.acompletion(model="first", messages=MESSAGES, stream=True)
        return len([chunk async for chunk in chunks])

    return OverSDK(
        label="LiteLLM Router",
        call=asks(ok, MESSAGES),
        first_fails=asks(falls_back, MESSAGES),
        stream=stream,
        long=asks(ok, LONG),
        close=[client.aclose],
    )


def _router(first_port: int) -> Any:
    def deployment(name: str, port: int) -> dict[str, Any]:
        return {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/{MODEL}",
                "api_base": f"http://127.0.0.1:{port}/v1",
                "api_key": f"k-{name}",
                "max_retries": 0,
            },
        }

    return litellm.Router(
        model_list=[deployment("first", first_port), deployment("second", 80)],
        fallbacks=[{"first": ["second"]}],
        num_retries=0,
        disable_cooldowns=True,
    )


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
