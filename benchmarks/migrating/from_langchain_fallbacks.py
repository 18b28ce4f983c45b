import asyncio

from langchain_openai import ChatOpenAI

first = ChatOpenAI(model="gpt-busy", temperature=0, timeout=20, max_retries=0)
second = ChatOpenAI(model="gpt-4o-mini", temperature=0, timeout=20, max_retries=0)
model = first.with_fallbacks([second])


async def main() -> None:
    message = await model.ainvoke([("system", "Be brief."), ("user", "Hi")])
    print(message.content)

    async for chunk in model.astream("Hi"):
        print(chunk.content, end="")
    print()


asyncio.run(main())
