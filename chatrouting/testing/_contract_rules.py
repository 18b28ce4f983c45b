"""The rules of the contract: a sentence each, and how to see whether it holds."""

from collections.abc import AsyncIterator, Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast, final

import anyio

from chatrouting.client import ChatClient
from chatrouting.errors import ClientClosedError
from chatrouting.messages import ChatMessage, MessagesInput, Role
from chatrouting.responses import ChatResponse, ChatResponseUpdate
from chatrouting.testing._contract_trial import (
    Gist,
    RuleBrokenError,
    Trial,
    close,
    gist,
    open_stream,
    require,
    require_response,
    until,
)

#: What a rule needs of the test before it can be checked.
Need: TypeAlias = Literal["make_waiting_client", "count_requests", "count_open"]

#: Tasks that ask at once, in each mode.
_CONCURRENT: Final = 10

#: Seconds after which a waiting client is cancelled.
_PATIENCE: Final = 0.05


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the contract."""

    sentence: str
    check: Callable[[Trial], Awaitable[None]]
    needs: Need | None = None

    def applies(self, trial: Trial) -> bool:
        """Say whether the test gave what is needed."""
        return self.needs is None or getattr(trial, self.needs) is not None


# What comes back.


async def _whole_is_a_response(trial: Trial) -> None:
    async with trial.client() as client:
        require_response(await client.get_response(trial.prompt))


async def _stream_yields_updates(trial: Trial) -> None:
    async with trial.client() as client, open_stream(client, trial.prompt) as stream:
        stream.tap(_require_update)
        async for _ in stream:
            continue


def _require_update(update: object) -> None:
    kind = type(update).__name__
    require(isinstance(update, ChatResponseUpdate), f"the stream yielded an object of class {kind}")


async def _modes_agree(trial: Trial) -> None:
    async with trial.client() as client:
        whole, streamed = await trial.whole(client), await trial.streamed(client)
    require(whole == streamed, f"whole: {whole}; streamed: {streamed}")


# What goes in.


def _message_forms(prompt: str) -> dict[str, Callable[[], MessagesInput]]:
    message = ChatMessage(Role.USER, prompt)
    mapping = {"role": "user", "content": prompt}
    return {
        "a str": lambda: prompt,
        "a ChatMessage": lambda: message,
        "a mapping": lambda: mapping,
        "a list of messages": lambda: [message],
        "a list of mappings": lambda: [mapping],
        "a tuple of messages": lambda: (message,),
        "a one-shot generator": lambda: (each for each in [message]),
    }


async def _message_forms_are_equal(trial: Trial) -> None:
    async with trial.client() as client:
        for mode in (trial.whole, trial.streamed):
            expected = await mode(client)
            for form, make in _message_forms(trial.prompt).items():
                try:
                    answer = await mode(client, make())
                except Exception as error:
                    raise RuleBrokenError(f"{form}, {mode.__name__}: {error!r}") from error
                require(answer == expected, f"{form}, {mode.__name__}: {answer}, not {expected}")


async def _arguments_stay_as_they_are(trial: Trial) -> None:
    messages: list[ChatMessage | dict[str, Any] | str] = [
        {"role": "system", "content": "Be brief."},
        ChatMessage(Role.USER, trial.prompt),
        {"role": "user", "content": [{"type": "text", "text": trial.prompt}]},
    ]
    options = deepcopy(trial.options)  # a broken client must not change those of the next check
    before = deepcopy((messages, options))
    async with trial.client() as client:
        await client.get_response(messages, options)
        require((messages, options) == before, "changed by get_response")
        async with open_stream(client, messages, options) as stream:
            await stream.get_final_response()
        require((messages, options) == before, "changed by get_streaming_response")


async def _no_messages_is_a_type_error(trial: Trial) -> None:
    nothing = cast("str", None)
    async with trial.client() as client:
        await _must_raise(TypeError, lambda: client.get_response(nothing))
        await _must_raise(TypeError, lambda: _read(client, nothing))


async def _read(client: ChatClient, messages: MessagesInput) -> ChatResponse:
    async with open_stream(client, messages) as stream:
        return await stream.get_final_response()


async def _must_raise(kind: type[Exception], ask: Callable[[], Awaitable[ChatResponse]]) -> None:
    try:
        await ask()
    except kind:
        return
    raise RuleBrokenError(f"nothing was raised; expected a {kind.__name__}")


# Streams.


async def _nothing_is_sent_before_reading(trial: Trial) -> None:
    count = cast("Callable[[ChatClient], int]", trial.count_requests)
    async with trial.client() as client:
        stream = open_stream(client, trial.prompt)
        require(count(client) == 0, "a request was sent before the stream was read")
        await stream.aclose()
        require(count(client) == 0, "a request was sent for a stream that was never read")
        await trial.streamed(client)
        require(count(client) > 0, "count_requests is 0 after a stream was read; it must count")


async def _closing_early_closes_everything(trial: Trial) -> None:
    async with trial.client() as client:
        expected = await trial.whole(client)
        async with open_stream(client, trial.prompt) as stream:
            await anext(stream, None)
        await trial.require_nothing_open(client)
        again = await trial.whole(client)
        require(again == expected, f"asked again afterwards it answered {again}, not {expected}")


async def _reading_to_the_end_closes_everything(trial: Trial) -> None:
    async with trial.client() as client:
        await trial.streamed(client)
        await trial.require_nothing_open(client)


async def _streams_are_independent(trial: Trial) -> None:
    async with trial.client() as client:
        expected = await trial.streamed(client)
        first, second = open_stream(client, trial.prompt), open_stream(client, trial.prompt)
        async with first, second:
            await _read_in_turns([first, second])
            answers = [gist(each.partial_response) for each in (first, second)]
    require(answers == [expected, expected], f"{answers}, not {expected} twice")


async def _read_in_turns(streams: list[AsyncIterator[ChatResponseUpdate]]) -> None:
    while streams:
        for stream in tuple(streams):
            if await anext(stream, None) is None:
                streams.remove(stream)


async def _many_can_ask_at_once(trial: Trial) -> None:
    strange: list[object] = []
    async with trial.client() as client:
        asked = [(mode, await mode(client)) for mode in (trial.whole, trial.streamed)]

        async def ask(mode: Callable[[ChatClient], Awaitable[Gist]], expected: Gist) -> None:
            answer = await mode(client)
            if answer != expected:
                strange.append(answer)

        async with anyio.create_task_group() as tasks:
            for mode, expected in asked * _CONCURRENT:
                tasks.start_soon(ask, mode, expected)
    require(not strange, f"{len(strange)} of {2 * _CONCURRENT} differ, such as {strange[:1]}")


# Cancellation and tasks.


async def _cancelling_ends_a_whole_answer(trial: Trial) -> None:
    await _cancel_while_waiting(trial, lambda client: client.get_response(trial.prompt))


async def _cancelling_ends_a_stream(trial: Trial) -> None:
    await _cancel_while_waiting(trial, lambda client: _read(client, trial.prompt))


async def _cancel_while_waiting(
    trial: Trial, ask: Callable[[ChatClient], Awaitable[ChatResponse]]
) -> None:
    make = cast("Callable[[], ChatClient]", trial.make_waiting_client)
    client = make()
    try:
        with anyio.move_on_after(_PATIENCE) as scope:
            await ask(client)
        require(scope.cancel_called, f"the waiting client answered within {_PATIENCE} s")
        require(scope.cancelled_caught, "the cancellation was swallowed")
        await trial.require_nothing_open(client)
    finally:
        await close(client)


async def _no_task_is_left(trial: Trial) -> None:
    before = {task.id for task in anyio.get_running_tasks()}
    async with trial.client() as client:
        await trial.whole(client)
        async with open_stream(client, trial.prompt) as stream:
            await anext(stream, None)
    await until(lambda: before.issuperset(task.id for task in anyio.get_running_tasks()))


# Services and closing.


async def _answers_for_itself(trial: Trial) -> None:
    async with trial.client() as client:
        for kind in (type(client), ChatClient):
            service = client.get_service(cast("type[object]", kind))
            require(service is client, f"get_service({kind.__name__}) is {service!r}")


async def _other_services_are_none(trial: Trial) -> None:
    class Unknown: ...

    async with trial.client() as client:
        require(client.get_service(Unknown) is None, "an unknown class was answered")
        service = client.get_service(type(client), "some key")
        require(service is None, f"with an unknown key it answered {service!r}")


async def _no_service_type_is_a_type_error(trial: Trial) -> None:
    async with trial.client() as client:
        try:
            service = client.get_service(cast("type[object]", None))
        except TypeError:
            return
        raise RuleBrokenError(f"it answered {service!r}")


async def _closing_twice_is_allowed(trial: Trial) -> None:
    async with trial.client() as client:
        await trial.whole(client)
        await client.aclose()


async def _a_closed_client_refuses(trial: Trial) -> None:
    client = trial.make_client()
    await client.aclose()
    await _must_raise(ClientClosedError, lambda: client.get_response(trial.prompt))
    await _must_raise(ClientClosedError, lambda: _read(client, trial.prompt))


#: Without these nothing else can be judged.
BASIC_RULES: Final = (
    Rule("get_response returns a ChatResponse.", _whole_is_a_response),
    Rule(
        "get_streaming_response returns a ResponseStream of ChatResponseUpdate.",
        _stream_yields_updates,
    ),
)

RULES: Final = (
    Rule("The whole answer and the folded stream say the same.", _modes_agree),
    Rule("Messages may be given in every form of MessagesInput.", _message_forms_are_equal),
    Rule("The caller's messages and options are never changed.", _arguments_stay_as_they_are),
    Rule("None for messages is a TypeError in both modes.", _no_messages_is_a_type_error),
    Rule(
        "A stream sends nothing before it is first read.",
        _nothing_is_sent_before_reading,
        needs="count_requests",
    ),
    Rule(
        "A stream that is read to its end leaves no request open.",
        _reading_to_the_end_closes_everything,
        needs="count_open",
    ),
    Rule(
        "A stream that is closed early leaves no request open, and the client works on.",
        _closing_early_closes_everything,
    ),
    Rule("Two streams read in turns do not disturb each other.", _streams_are_independent),
    Rule("Many tasks may ask one client at once.", _many_can_ask_at_once),
    Rule(
        "A cancelled get_response ends, raises the cancellation and leaves no request open.",
        _cancelling_ends_a_whole_answer,
        needs="make_waiting_client",
    ),
    Rule(
        "A cancelled stream ends, raises the cancellation and leaves no request open.",
        _cancelling_ends_a_stream,
        needs="make_waiting_client",
    ),
    Rule("No task is left once the client is closed.", _no_task_is_left),
    Rule("get_service answers for the client's own class and for ChatClient.", _answers_for_itself),
    Rule("get_service is None for other classes and other keys.", _other_services_are_none),
    Rule("get_service(None) is a TypeError.", _no_service_type_is_a_type_error),
    Rule("aclose may be called more than once.", _closing_twice_is_allowed),
    Rule("A closed client raises ClientClosedError in both modes.", _a_closed_client_refuses),
)
