"""pydantic-ai: `FallbackModel`."""

from collections.abc import Sequence
from typing import Any

from _canned import LONG, MESSAGE, MODEL, Provider
from openai import AsyncOpenAI
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from peers import Call, InMemory, OverSDK

_LABEL = "pydantic-ai FallbackModel"


async def _answer(_messages: object, _info: object) -> ModelResponse:
    return ModelResponse(parts=[TextPart("hello")])


async def _fail(_messages: object, _info: object) -> ModelResponse:
    raise ModelHTTPError(500, "model")


def in_memory() -> InMemory:
    """Wrap pydantic-ai's own fake model."""
    history = [ModelRequest.user_text_prompt("hi")]
    good, bad = FunctionModel(_answer), FunctionModel(_fail)

    def asks(model: Any) -> Call:
        async def call() -> object:
            return (await model_request(model, history)).parts[0].content

        return call

    nested: Any = good
    for _ in range(4):
        nested = FallbackModel(nested, good)
    return InMemory(
        label=_LABEL,
        direct=asks(good),
        first_answers=asks(FallbackModel(good, good)),
        first_fails=asks(FallbackModel(bad, good)),
        nested=asks(nested),
    )


def over_sdk() -> OverSDK:
    """Put `FallbackModel` over its OpenAI model."""
    closers: list[Call] = []

    def model(*, is_broken: bool = False) -> OpenAIChatModel:
        sdk = AsyncOpenAI(
            api_key="k", max_retries=0, http_client=Provider(is_broken=is_broken).http_client()
        )
        closers.append(sdk.close)
        return OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=sdk))

    good, falls_back = (
        FallbackModel(model(), model()),
        FallbackModel(model(is_broken=True), model()),
    )
    one, long = [ModelRequest.user_text_prompt(MESSAGE)], _history(LONG)

    def asks(asked: FallbackModel, history: Sequence[Any]) -> Call:
        async def call() -> object:
            return (await model_request(asked, history)).parts[0].content

        return call

    async def stream() -> int:
        async with model_request_stream(good, one) as events:
            return len([event async for event in events])

    return OverSDK(
        label=_LABEL,
        call=asks(good, one),
        first_fails=asks(falls_back, one),
        stream=stream,
        long=asks(good, long),
        close=closers,
    )


def _history(messages: Sequence[dict[str, str]]) -> list[Any]:
    return [
        ModelRequest.user_text_prompt(message["content"])
        if message["role"] == "user"
        else ModelResponse(parts=[TextPart(message["content"])])
        for message in messages
    ]
