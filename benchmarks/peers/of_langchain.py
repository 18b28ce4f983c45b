"""LangChain: `with_fallbacks`."""

from typing import Any

from _canned import LONG, MESSAGES, MODEL, Provider
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, convert_to_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI

from peers import Call, InMemory, OverSDK

_LABEL = "LangChain with_fallbacks"


class _Answers(FakeListChatModel):
    """The fake model, without the thread that its own asynchronous call uses."""

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:  # noqa: ARG002
        return ChatResult(generations=[ChatGeneration(message=AIMessage("hello"))])


class _Fails(FakeListChatModel):
    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:  # noqa: ARG002
        raise ValueError("boom")


def _asks(model: Any, messages: Any) -> Call:
    async def call() -> object:
        return (await model.ainvoke(messages)).content

    return call


def in_memory() -> InMemory:
    """Wrap LangChain's own fake model."""
    good, bad = _Answers(responses=["hello"]), _Fails(responses=["hello"])
    messages = [HumanMessage("hi")]
    nested: Any = good
    for _ in range(4):
        nested = nested.with_fallbacks([good])
    return InMemory(
        label=_LABEL,
        direct=_asks(good, messages),
        first_answers=_asks(good.with_fallbacks([good]), messages),
        first_fails=_asks(bad.with_fallbacks([good]), messages),
        nested=_asks(nested, messages),
    )


def over_sdk() -> OverSDK:
    """Put `with_fallbacks` over its OpenAI model."""
    closers: list[Call] = []

    def model(*, is_broken: bool = False) -> Any:
        http_client = Provider(is_broken=is_broken).http_client()
        closers.append(http_client.aclose)
        return ChatOpenAI(model=MODEL, api_key="k", max_retries=0, http_async_client=http_client)

    good = model().with_fallbacks([model()])
    falls_back = model(is_broken=True).with_fallbacks([model()])
    one, long = convert_to_messages(MESSAGES), convert_to_messages(LONG)

    async def stream() -> int:
        return len([chunk async for chunk in good.astream(one)])

    return OverSDK(
        label=_LABEL,
        call=_asks(good, one),
        first_fails=_asks(falls_back, one),
        stream=stream,
        long=_asks(good, long),
        close=closers,
    )
