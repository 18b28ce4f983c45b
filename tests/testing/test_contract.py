"""The contract of chat clients: sound clients keep it, each broken one is caught by its rule."""

# ruff: noqa: D101  # the name of a broken client says what is wrong with it

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from chatrouting import (
    ChatClient,
    ChatMessage,
    ChatOptions,
    ChatResponse,
    ChatResponseUpdate,
    ConfigureOptionsChatClient,
    DelegatingChatClient,
    OrderedFailoverChatClient,
    ReasoningContent,
    ResponseStream,
    RoutingChatClient,
    ToolCallContent,
)
from chatrouting.errors import OverloadedError
from chatrouting.testing import (
    CallState,
    ContractViolation,
    ScriptedChatClient,
    cancels_itself,
    check_chat_client,
    fails,
    finishes,
    runs,
    update,
    waits,
    waits_forever,
)
from chatrouting.testing._contract_rules import BASIC_RULES, RULES

pytestmark = pytest.mark.virtual_time

WHOLE = "get_response returns a ChatResponse."
STREAM = "get_streaming_response returns a ResponseStream of ChatResponseUpdate."
AGREE = "The whole answer and the folded stream say the same."
FORMS = "Messages may be given in every form of MessagesInput."
ARGUMENTS = "The caller's messages and options are never changed."
NONE = "None for messages is a TypeError in both modes."
LAZY = "A stream sends nothing before it is first read."
READ = "A stream that is read to its end leaves no request open."
EARLY = "A stream that is closed early leaves no request open, and the client works on."
TURNS = "Two streams read in turns do not disturb each other."
MANY = "Many tasks may ask one client at once."
CANCEL_WHOLE = "A cancelled get_response ends, raises the cancellation and leaves no request open."
CANCEL_STREAM = "A cancelled stream ends, raises the cancellation and leaves no request open."
TASKS = "No task is left once the client is closed."
ITSELF = "get_service answers for the client's own class and for ChatClient."
OTHERS = "get_service is None for other classes and other keys."
NO_TYPE = "get_service(None) is a TypeError."
TWICE = "aclose may be called more than once."
CLOSED = "A closed client raises ClientClosedError in both modes."


def sound() -> ScriptedChatClient:
    return ScriptedChatClient("Hel", waits(0), "lo", finishes())


def waiting() -> ScriptedChatClient:
    return ScriptedChatClient("Hel", waits_forever())


def leaves(client: ChatClient) -> Iterator[ScriptedChatClient]:
    """Find the scripted clients at the bottom of a stack."""
    if isinstance(client, ScriptedChatClient):
        yield client
    elif isinstance(client, DelegatingChatClient):
        yield from leaves(client.inner)
    elif isinstance(client, RoutingChatClient):
        for route in client.routes.values():
            yield from leaves(route)


def requests(client: ChatClient) -> int:
    return sum(call.has_begun for leaf in leaves(client) for call in leaf.calls)


def pending(client: ChatClient) -> int:
    return sum(leaf.pending for leaf in leaves(client))


Wrapper = Callable[[ChatClient], ChatClient]


async def broken_rules(wrapper: Wrapper, make: Callable[[], ChatClient] = sound) -> set[str]:
    with pytest.raises(ContractViolation) as caught:
        await check_chat_client(
            lambda: wrapper(make()),
            make_waiting_client=lambda: wrapper(waiting()),
            count_requests=requests,
            count_open=pending,
        )
    return set(caught.value.broken)


# Sound clients.


def delegating(client: ChatClient) -> ChatClient:
    return DelegatingChatClient(client)


def configured(client: ChatClient) -> ChatClient:
    return ConfigureOptionsChatClient(client, lambda options: options.replace(model="m"))


def failing_over(client: ChatClient) -> ChatClient:
    return OrderedFailoverChatClient([ScriptedChatClient(fails(OverloadedError)), client])


def routing(client: ChatClient) -> ChatClient:
    return RoutingChatClient(lambda _: "only", routes={"only": client})


def nesting(client: ChatClient) -> ChatClient:
    return failing_over(routing(delegating(failing_over(configured(client)))))


@pytest.mark.parametrize(
    "wrapper", [lambda client: client, delegating, configured, failing_over, routing, nesting]
)
async def test_a_sound_client_keeps_every_rule(anyio_backend, wrapper):
    checked = await check_chat_client(
        lambda: wrapper(sound()),
        make_waiting_client=lambda: wrapper(waiting()),
        count_requests=requests,
        count_open=pending,
    )

    assert checked == tuple(rule.sentence for rule in (*BASIC_RULES, *RULES))
    assert len(checked) == 19


@pytest.mark.parametrize("source", ["object", "generator", "ready"])
async def test_scripted_clients_keep_it_whatever_their_source(anyio_backend, source):
    await check_chat_client(
        lambda: ScriptedChatClient("Hel", waits(0), "lo", finishes(), source=source),
        make_waiting_client=lambda: ScriptedChatClient("Hel", waits_forever(), source=source),
        count_requests=requests,
        count_open=pending,
    )


async def test_what_cannot_be_seen_is_not_checked(anyio_backend):
    checked = await check_chat_client(sound)

    assert {LAZY, READ, CANCEL_WHOLE, CANCEL_STREAM}.isdisjoint(checked)
    assert len(checked) == 15


async def test_ids_and_pieces_of_text_may_differ_between_the_modes(anyio_backend):
    def answer(call: Any) -> ChatResponse:
        call_id = f"call_{call.number}"
        thought = ReasoningContent("hm", signature=call_id)
        tool = ToolCallContent(call_id, "weather", {"city": "Oslo"}, '{"city": "Oslo"}')
        text = ["Hel", "lo"] if call.number % 2 else ["Hello"]
        return ChatResponse([ChatMessage("assistant", [thought, *text, tool])])

    await check_chat_client(lambda: ScriptedChatClient(runs(answer)))


# Broken clients, what comes back.


class AnswersNothing(DelegatingChatClient):
    async def get_response(self, messages: Any, options: Any = None) -> Any:
        return None


class StreamsFromACoroutine(DelegatingChatClient):
    async def get_streaming_response(  # type: ignore[override]  # the mistake
        self, messages: Any, options: Any = None
    ) -> ResponseStream:
        return self.inner.get_streaming_response(messages, options)


class YieldsText(DelegatingChatClient):
    def get_streaming_response(self, messages: Any, options: Any = None) -> ResponseStream:
        async def pieces() -> AsyncIterator[Any]:
            yield "Hello"

        return ResponseStream(pieces())


@pytest.mark.parametrize(
    ("wrapper", "rule"),
    [
        pytest.param(AnswersNothing, WHOLE, id="whole is None"),
        pytest.param(StreamsFromACoroutine, STREAM, id="async def"),
        pytest.param(YieldsText, STREAM, id="stream of text"),
    ],
)
async def test_without_the_basics_nothing_else_is_judged(anyio_backend, wrapper, rule):
    assert await broken_rules(wrapper) == {rule}


async def test_a_stream_that_is_no_response_stream_is_caught(anyio_backend):
    with pytest.raises(ContractViolation, match="an object of class ObjectSource"):
        await check_chat_client(lambda: ScriptedChatClient("Hello", bare=True))


async def test_a_client_that_cancels_itself_does_not_end_the_check(anyio_backend):
    with pytest.raises(ContractViolation) as caught:
        await check_chat_client(lambda: ScriptedChatClient(cancels_itself()))

    assert set(caught.value.broken) == {WHOLE, STREAM}


async def test_a_client_that_never_answers_is_given_up(anyio_backend):
    with pytest.raises(ContractViolation, match=r"it was not done after 5\.0 s"):
        await check_chat_client(lambda: ScriptedChatClient(waits_forever()))


async def test_a_client_that_never_closes_is_given_up(anyio_backend):
    class NeverCloses(DelegatingChatClient):
        async def aclose(self) -> None:
            await anyio.sleep_forever()

    with pytest.raises(ContractViolation, match="TimeoutError"):
        await check_chat_client(lambda: NeverCloses(sound()))


# Broken clients, what goes in.


class TakesNoGenerators(DelegatingChatClient):
    async def get_response(self, messages: Any, options: Any = None) -> ChatResponse:
        if not isinstance(messages, str | ChatMessage | Mapping):
            len(messages)
        return await super().get_response(messages, options)


class AddsAMessage(DelegatingChatClient):
    async def get_response(self, messages: Any, options: Any = None) -> ChatResponse:
        if isinstance(messages, list):
            messages.append("Be kind.")
        return await super().get_response(messages, options)


class ChangesAMapping(DelegatingChatClient):
    def get_streaming_response(self, messages: Any, options: Any = None) -> ResponseStream:
        stream = super().get_streaming_response(messages, options)
        if isinstance(messages, list) and len(messages) > 1:
            messages[2]["content"][0]["text"] = "changed"
        return stream


class ChangesOptions(DelegatingChatClient):
    async def get_response(self, messages: Any, options: ChatOptions | None = None) -> ChatResponse:
        if options is not None:
            cast("dict[str, str]", options.metadata).pop("user_id", None)
        return await super().get_response(messages, options)


class TakesNone(DelegatingChatClient):
    def get_streaming_response(self, messages: Any, options: Any = None) -> ResponseStream:
        return super().get_streaming_response(messages or "Hi", options)


# Broken clients, streams.


class SendsAtOnce(DelegatingChatClient):
    def get_streaming_response(self, messages: Any, options: Any = None) -> ResponseStream:
        stream = super().get_streaming_response(messages, options)
        for leaf in leaves(self.inner):
            leaf.calls[-1].state = CallState.RUNNING
        return stream


class Tee:
    """Passes on what it reads, and nothing of closing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __aiter__(self) -> AsyncIterator[ChatResponseUpdate]:
        return self

    async def __anext__(self) -> ChatResponseUpdate:
        update: ChatResponseUpdate = await anext(self.stream)
        return update


class ForgetsToClose(DelegatingChatClient):
    def get_streaming_response(self, messages: Any, options: Any = None) -> ResponseStream:
        return ResponseStream(Tee(self.inner.get_streaming_response(messages, options)))


class SharesOnePosition(DelegatingChatClient):
    pieces: Iterator[str]

    def get_streaming_response(self, messages: Any, options: Any = None) -> ResponseStream:
        stream = super().get_streaming_response(messages, options)
        self.pieces = iter(["Hel", "lo"])
        return ResponseStream(self.read(stream))

    async def read(self, stream: ResponseStream) -> AsyncIterator[ChatResponseUpdate]:
        await stream.get_final_response()
        for piece in self.pieces:
            yield update(piece)
        yield update(finish_reason="stop")


class TakesOneAtATime(DelegatingChatClient):
    is_busy = False

    async def get_response(self, messages: Any, options: Any = None) -> ChatResponse:
        if self.is_busy:
            raise RuntimeError("busy")
        self.is_busy = True
        try:
            await checkpoint()
            return await super().get_response(messages, options)
        finally:
            self.is_busy = False


class MixesUpAnswers(DelegatingChatClient):
    number = 0

    async def get_response(self, messages: Any, options: Any = None) -> ChatResponse:
        self.number += 1
        mine = self.number
        response = await super().get_response(messages, options)
        await checkpoint()
        return response if mine == self.number else ChatResponse("of somebody else")


# Broken clients, cancellation and tasks.


class AnswersTheCancelled(DelegatingChatClient):
    async def get_response(self, messages: Any, options: Any = None) -> ChatResponse:
        try:
            return await super().get_response(messages, options)
        except anyio.get_cancelled_exc_class():
            return ChatResponse("too late")


class EndsWhereItIsCancelled(DelegatingChatClient):
    def get_streaming_response(self, messages: Any, options: Any = None) -> ResponseStream:
        return ResponseStream(self.read(super().get_streaming_response(messages, options)))

    async def read(self, stream: ResponseStream) -> AsyncIterator[ChatResponseUpdate]:
        async with stream:
            try:
                async for each in stream:
                    yield each
            except anyio.get_cancelled_exc_class():
                return


class LeavesATask(DelegatingChatClient):
    async def get_response(self, messages: Any, options: Any = None) -> ChatResponse:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            trio: Any = pytest.importorskip("trio")
            trio.lowlevel.spawn_system_task(anyio.sleep_forever)
        else:
            self.task = asyncio.create_task(anyio.sleep_forever())
        return await super().get_response(messages, options)


# Broken clients, services and closing.


class HidesItself(DelegatingChatClient):
    def get_service(self, service_type: Any, service_key: object = None) -> Any:
        if service_type is None:
            raise TypeError
        return None


class IgnoresTheKey(DelegatingChatClient):
    def get_service(self, service_type: Any, service_key: object = None) -> Any:
        return super().get_service(service_type)


class IsEverything(DelegatingChatClient):
    def get_service(self, service_type: Any, service_key: object = None) -> Any:
        if service_type is None:
            raise TypeError
        return None if service_key else self


class AllowsNoType(DelegatingChatClient):
    def get_service(self, service_type: Any, service_key: object = None) -> Any:
        return None if service_type is None else super().get_service(service_type, service_key)


class ClosesOnce(DelegatingChatClient):
    is_closed = False

    async def aclose(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed already")
        self.is_closed = True
        await super().aclose()


class WorksOnAfterClosing(DelegatingChatClient):
    async def aclose(self) -> None:
        return


@pytest.mark.parametrize(
    ("wrapper", "rule"),
    [
        (TakesNoGenerators, FORMS),
        (AddsAMessage, ARGUMENTS),
        (ChangesAMapping, ARGUMENTS),
        (ChangesOptions, ARGUMENTS),
        (TakesNone, NONE),
        (SendsAtOnce, LAZY),
        (TakesOneAtATime, MANY),
        (MixesUpAnswers, MANY),
        (AnswersTheCancelled, CANCEL_WHOLE),
        (EndsWhereItIsCancelled, CANCEL_STREAM),
        (LeavesATask, TASKS),
        (HidesItself, ITSELF),
        (IgnoresTheKey, OTHERS),
        (IsEverything, OTHERS),
        (AllowsNoType, NO_TYPE),
        (ClosesOnce, TWICE),
        (WorksOnAfterClosing, CLOSED),
    ],
)
async def test_a_broken_client_is_caught_by_its_rule(anyio_backend, wrapper, rule):
    assert await broken_rules(wrapper) == {rule}


async def test_modes_that_differ_are_caught(anyio_backend):
    def answer(call: Any) -> str:
        return "Hel" if call.is_streaming else "Hello"

    def make() -> ChatClient:
        return ScriptedChatClient(runs(answer))

    assert await broken_rules(lambda client: client, make) == {AGREE}


async def test_a_position_that_streams_share_is_caught(anyio_backend):
    def make() -> ChatClient:
        return ScriptedChatClient("Hello", finishes())

    assert await broken_rules(SharesOnePosition, make) == {TURNS}


async def test_a_stream_left_open_by_its_reader_is_caught(anyio_backend):
    def make() -> ChatClient:
        return ScriptedChatClient("Hel", waits(0), "lo", finishes(), bare=True)

    assert await broken_rules(ForgetsToClose, make) == {EARLY}


async def test_a_stream_that_stays_open_after_its_end_is_caught(anyio_backend):
    with pytest.raises(ContractViolation) as caught:
        await check_chat_client(sound, count_open=lambda client: len(client.calls))

    assert set(caught.value.broken) == {READ, EARLY}


# The check itself.


async def test_every_broken_rule_is_named_with_what_was_seen(anyio_backend):
    with pytest.raises(ContractViolation) as caught:
        await check_chat_client(lambda: AllowsNoType(TakesNone(ClosesOnce(sound()))))

    assert set(caught.value.broken) == {NONE, NO_TYPE, TWICE}
    assert str(caught.value).startswith("the chat client breaks its contract:\n- ")
    assert f"- {NO_TYPE} Here: it answered None" in str(caught.value)
    assert f"- {TWICE} Here: it raised RuntimeError('closed already')" in str(caught.value)


async def test_a_waiting_client_has_to_wait(anyio_backend):
    with pytest.raises(ContractViolation, match="the waiting client answered within"):
        await check_chat_client(sound, make_waiting_client=sound)


async def test_requests_have_to_be_counted(anyio_backend):
    with pytest.raises(ContractViolation, match="count_requests is 0 after a stream was read"):
        await check_chat_client(sound, count_requests=lambda _: 0)


async def test_who_cancels_the_check_ends_it(anyio_backend):
    with anyio.move_on_after(2) as scope:
        await check_chat_client(lambda: ScriptedChatClient(waits_forever()))

    assert scope.cancelled_caught


def test_each_rule_is_one_sentence():
    for rule in (*BASIC_RULES, *RULES):
        assert rule.sentence.endswith(".")
        assert rule.sentence.count(".") == 1
