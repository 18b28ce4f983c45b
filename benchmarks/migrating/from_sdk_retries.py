import asyncio

from openai import APIConnectionError, APIStatusError, AsyncOpenAI


async def answer(openai: AsyncOpenAI, question: str) -> str | None:
    for model in ("gpt-busy", "gpt-flaky"):
        try:
            completion = await openai.chat.completions.create(
                model=model, messages=[{"role": "user", "content": question}]
            )
        except (APIConnectionError, APIStatusError):
            continue  # the next model
        return completion.choices[0].message.content
    raise RuntimeError("no model answered")


async def main() -> None:
    async with AsyncOpenAI(max_retries=1, timeout=20) as openai:
        print(await answer(openai, "Hi"))


asyncio.run(main())
