import asyncio

from litellm import Router

router = Router(
    model_list=[
        {"model_name": "chat", "litellm_params": {"model": "openai/gpt-busy"}},
        {"model_name": "spare", "litellm_params": {"model": "openai/gpt-4o-mini"}},
    ],
    fallbacks=[{"chat": ["spare"]}],
    num_retries=1,
    timeout=20,
    allowed_fails=1,
    cooldown_time=30,
)


async def main() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    response = await router.acompletion(model="chat", messages=messages)
    print(response.choices[0].message.content)

    stream = await router.acompletion(model="chat", messages=messages, stream=True)
    async for chunk in stream:
        print(chunk.choices[0].delta.content or "", end="")
    print()


asyncio.run(main())
