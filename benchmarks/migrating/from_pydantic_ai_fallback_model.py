import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel

model = FallbackModel(OpenAIChatModel("gpt-busy"), OpenAIChatModel("gpt-4o-mini"))
agent = Agent(model, instructions="Be brief.")


async def main() -> None:
    result = await agent.run("Hi")
    print(result.output, result.usage.output_tokens)

    async with agent.run_stream("Hi") as stream:
        async for text in stream.stream_text(delta=True):
            print(text, end="")
    print()


asyncio.run(main())
