"""What Chat Completions answers: every shape of chunk that servers send, and a fuzzer."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.adapters import dialects
from chatrouting.adapters._client import read_answer
from chatrouting.adapters._connection import Answer
from chatrouting.adapters._errors import Errors
from chatrouting.adapters._openai_chat.events import ChatParser
from chatrouting.contents import (
    DataContent,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCallContent,
)
from chatrouting.errors import (
    ChatClientError,
    InternalServerError,
    OverloadedError,
    RateLimitError,
    ResponseValidationError,
)
from chatrouting.messages import Role
from chatrouting.responses import ChatResponse, FinishReason
from chatrouting.usage import Usage

ERRORS = Errors("openai", "gpt-x")


def chunk(delta=None, finish_reason=None, **facts):
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "c1", "model": "gpt-x-1", "created": 1_800_000_000, "choices": [choice], **facts}


def parser(dialect=dialects.OPENAI, **facts):
    return ChatParser(ERRORS, dialect, **facts)


def stream(*chunks, dialect=dialects.OPENAI):
    """Parse chunks and the terminal marker; return the updates and the response they fold into."""
    reader = parser(dialect)
    updates = []
    for one in chunks:
        updates += reader.feed("", json.dumps(one))
    updates += reader.feed("", "[DONE]")
    assert reader.is_terminal
    return updates, ChatResponse.from_updates(updates)


def contents(*chunks, dialect=dialects.OPENAI):
    response = stream(*chunks, dialect=dialect)[1]
    return [content for message in response.messages for content in message.contents]


def test_an_ordinary_stream():
    updates, response = stream(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
        {**chunk(), "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    )
    assert [update.text for update in updates] == ["", "Hel", "lo", "", ""]
    assert not updates[0].has_output
    assert response.text == "Hello"
    assert response.messages[0].role is Role.ASSISTANT
    assert response.finish_reason is FinishReason.STOP
    assert response.usage == Usage(input_tokens=3, output_tokens=2)
    assert (response.response_id, response.model) == ("c1", "gpt-x-1")
    assert response.created_at == datetime.fromtimestamp(1_800_000_000, UTC)


AZURE_FIRST = {
    "id": "",
    "model": "",
    "created": 0,
    "object": "",
    "choices": [],
    "prompt_filter_results": [{"prompt_index": 0}],
}


def test_the_first_chunk_of_azure_has_no_choices():
    """[BR-21] No output, no error; its annotations are kept, and its empty facts are none."""
    updates, response = stream(
        AZURE_FIRST,
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hi"}),
        chunk({}, "stop"),
    )
    assert not updates[0].has_output
    assert updates[0].response_id is None
    assert response.text == "Hi"
    assert response.model == "gpt-x-1"
    assert response.additional_properties == {"prompt_filter_results": [{"prompt_index": 0}]}


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"id": "c1", "choices": None}, id="null choices"),
        pytest.param({"id": "c1"}, id="no choices"),
        pytest.param({}, id="nothing at all"),
        pytest.param(chunk(None), id="null delta"),
        pytest.param(chunk({"content": None}), id="null content"),
        pytest.param({"choices": [{"index": 0}]}, id="missing delta"),
        pytest.param({"choices": [None]}, id="null choice"),
        pytest.param({"choices": [{"delta": {"content": ""}}]}, id="no index"),
        pytest.param({"choices": [{"index": 1, "delta": {"content": "x"}}]}, id="another choice"),
        pytest.param(chunk({"tool_calls": None}), id="null calls"),
        pytest.param(chunk({"tool_calls": [None]}), id="null call"),
        pytest.param({"choices": [], "usage": {}}, id="empty usage"),
        pytest.param({"choices": [], "usage": {"prompt_tokens": None}}, id="usage of nulls"),
        pytest.param({"obfuscation": "abc", "choices": []}, id="obfuscation"),
    ],
)
def test_a_chunk_that_carries_nothing_is_no_output_and_no_error(odd):
    """[BR-21] [BR-22] Null and missing choices, deltas and contents."""
    updates, response = stream(
        chunk({"content": "a"}), odd, chunk({"content": "b"}), chunk({}, "stop")
    )
    assert response.text == "ab"
    assert [update.text for update in updates if update.has_output] == ["a", "b"]


@pytest.mark.parametrize(
    ("reason", "neutral"),
    [
        ("stop", FinishReason.STOP),
        ("eos", FinishReason.STOP),
        ("end_turn", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("model_length", FinishReason.LENGTH),
        ("tool_calls", FinishReason.TOOL_CALLS),
        ("function_call", FinishReason.TOOL_CALLS),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("brand_new", "brand_new"),
    ],
)
def test_finish_reasons_are_mapped_and_unknown_ones_pass(reason, neutral):
    """The finish reason table's column for Chat Completions."""
    assert stream(chunk({"content": "a"}, reason))[1].finish_reason == (
        # No call came, whatever the reason says.
        FinishReason.TOOL_CALLS if neutral is FinishReason.TOOL_CALLS else neutral
    )


def test_a_stop_beside_calls_is_a_stop_for_calls():
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    assert stream(chunk({"tool_calls": [call]}, "stop"))[1].finish_reason is FinishReason.TOOL_CALLS
    assert stream(chunk({"tool_calls": [call]}, "length"))[1].finish_reason is FinishReason.LENGTH


def test_the_marker_with_a_null_finish_reason_is_an_end():
    """[BR-11] The reason stays unknown; none is made up."""
    reader = parser()
    reader.feed("", json.dumps(chunk({"content": "a"})))
    assert not reader.is_complete
    reader.feed("", "[DONE]")
    assert reader.is_complete
    assert stream(chunk({"content": "a"}))[1].finish_reason is None


def test_the_marker_alone_proves_no_answer():
    reader = parser()
    reader.feed("", json.dumps(AZURE_FIRST))
    reader.feed("", "[DONE]")
    assert reader.is_terminal
    assert not reader.is_complete


def test_a_finish_reason_without_the_marker_is_an_end():
    """[BR-08] Also of an answer without output."""
    reader = parser()
    updates = [
        *reader.feed("", json.dumps(chunk({"role": "assistant"}))),
        *reader.feed("", json.dumps(chunk({}, "stop"))),
    ]
    assert reader.is_complete
    assert not reader.is_terminal
    response = ChatResponse.from_updates(updates)
    assert (response.text, response.finish_reason) == ("", FinishReason.STOP)


def deltas(*calls):
    return [chunk({"tool_calls": [call]}) for call in calls]


def fragment(arguments, *, index=None, id=None, name=None):
    call = {"function": {"arguments": arguments}}
    if index is not None:
        call["index"] = index
    if id is not None:
        call["id"] = id
    if name is not None:
        call["function"]["name"] = name
    return call


TWO = [("f", {"x": 1}), ("g", {"y": 2})]


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(
            [
                fragment("", index=0, id="a", name="f"),
                fragment('{"x"', index=0),
                fragment(": 1}", index=0),
                fragment("", index=1, id="b", name="g"),
                fragment('{"y": 2}', index=1),
            ],
            id="by the book",
        ),
        pytest.param(
            [
                fragment("", index=0, id="a", name="f"),
                fragment("", index=1, id="b", name="g"),
                fragment('{"x"', index=0),
                fragment('{"y"', index=1),
                fragment(": 1}", index=0),
                fragment(": 2}", index=1),
            ],
            id="interleaved",
        ),
        pytest.param(
            [
                fragment('{"x": 1}', index=0, id="a", name="f"),
                fragment('{"y": 2}', index=0, id="b", name="g"),
            ],
            id="one index for all, whole",
        ),
        pytest.param(
            [
                fragment('{"x"', index=0, id="a", name="f"),
                fragment(": 1}", index=0),
                fragment('{"y"', index=0, id="b", name="g"),
                fragment(": 2}", index=0),
            ],
            id="one index for all, in fragments",
        ),
        pytest.param(
            [
                fragment('{"x": 1}', index=0, name="f"),
                fragment('{"y": 2}', index=0, name="g"),
            ],
            id="one index for all, no ids",
        ),
        pytest.param(
            [
                fragment('{"x": 1}', id="a", name="f"),
                fragment('{"y": 2}', id="b", name="g"),
            ],
            id="no index",
        ),
        pytest.param(
            [
                fragment('{"x"', id="a", name="f"),
                fragment(": 1}"),
                fragment('{"y"', id="b", name="g"),
                fragment(": 2}"),
            ],
            id="no index, in fragments",
        ),
        pytest.param(
            [
                fragment('{"x"', id="a", name="f"),
                fragment(": 1}", id="a"),
                fragment('{"y": 2}', id="b", name="g"),
            ],
            id="no index, id repeated",
        ),
        pytest.param(
            [
                fragment('{"x"', index=0, id="a", name="f"),
                fragment(": 1}"),
                fragment('{"y": 2}', id="b", name="g"),
            ],
            id="index on some",
        ),
        pytest.param(
            [
                fragment('{"x"', index=0, id="", name="f"),
                fragment(": 1}", index=0, id="", name="f"),
                fragment("", index=0, id="", name="f"),
                fragment('{"y": 2}', index=1, id="", name="g"),
            ],
            id="empty ids, name repeated",
        ),
        pytest.param(
            [
                fragment("", index=0, id="a"),
                fragment('{"x": 1}', index=0, name="f"),
                fragment({"y": 2}, index=1, id="b", name="g"),
            ],
            id="name behind the id, arguments as an object",
        ),
    ],
)
@pytest.mark.parametrize("together", [False, True], ids=["apart", "in one chunk"])
def test_two_calls_are_two_calls_however_they_are_numbered(calls, together):
    """[BR-23] [BR-24] Same index, no index, mixed, several in one chunk."""
    chunks = [chunk({"tool_calls": calls})] if together else deltas(*calls)
    found = contents(*chunks, chunk({}, "tool_calls"))
    assert all(isinstance(call, ToolCallContent) for call in found)
    assert [(call.name, dict(call.arguments)) for call in found] == TWO
    assert len({call.call_id for call in found}) == 2
    assert all(call.call_id for call in found)


def test_two_calls_of_one_tool_without_ids_are_two():
    found = contents(
        *deltas(fragment('{"x": 1}', index=0, name="f"), fragment('{"x": 2}', index=0, name="f")),
        chunk({}, "stop"),
    )
    assert [call.arguments for call in found] == [{"x": 1}, {"x": 2}]


def test_an_id_that_comes_late_begins_no_other_call():
    found = contents(
        *deltas(fragment('{"x"', index=0, name="f"), fragment(": 1}", index=0, id="late")),
        chunk({}, "stop"),
    )
    assert [call.arguments for call in found] == [{"x": 1}]


def test_a_call_without_arguments_is_whole_at_the_end():
    """A tool that takes none is called with an empty object, not with half a call."""
    found = contents(*deltas(fragment("", index=0, id="a", name="f")), chunk({}, "tool_calls"))
    assert found == [ToolCallContent("a", "f", {}, "{}")]
    found = contents(*deltas(fragment("", index=0, id="a", name="f")))
    assert found == [ToolCallContent("a", "f", {}, "{}")]


def test_a_call_cut_by_the_length_limit_stays_cut():
    """[BR-12] What is no JSON object is never presented as arguments."""
    found = contents(*deltas(fragment('{"x": ', index=0, id="a", name="f")), chunk({}, "length"))
    assert found == [ToolCallContent("a", "f", {}, '{"x": ')]


def test_extras_of_a_call_are_kept():
    call = fragment("{}", index=0, id="a", name="f") | {"extra_content": {"google": 1}}
    assert contents(*deltas(call))[0].additional_properties == {"extra_content": {"google": 1}}


def test_older_and_custom_calls_are_calls():
    older = contents(chunk({"function_call": {"name": "f", "arguments": "{}"}}))
    assert (older[0].name, older[0].raw_arguments) == ("f", "{}")
    custom = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": "free"}}
    assert contents(*deltas(custom)) == [ToolCallContent("a", "f", {}, "free")]


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm", "content": None},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"content": [{"type": "thinking", "thinking": "hm"}]},
    ],
)
def test_reasoning_is_found_wherever_a_server_puts_it(delta):
    assert contents(chunk(delta), chunk({"content": "a"})) == [
        ReasoningContent("hm", origin="openai"),
        TextContent("a"),
    ]


def test_reasoning_details_are_kept_for_the_way_back():
    details = [
        [{"type": "reasoning.text", "text": "h", "index": 0, "id": "r"}],
        [{"type": "reasoning.text", "text": "m", "index": 0, "signature": "s", "id": None}],
        [{"type": "reasoning.encrypted", "data": "x", "index": 1}],
    ]
    found = contents(
        *(chunk({"reasoning": "~", "reasoning_details": one}) for one in details),
        chunk({"content": "a"}),
        chunk({}, "stop"),
        dialect=dialects.OPENROUTER,
    )
    assert [type(content) for content in found] == [ReasoningContent, TextContent]
    assert found[0].text == "~~~"
    assert json.loads(found[0].signature) == [
        {"type": "reasoning.text", "text": "hm", "index": 0, "id": "r", "signature": "s"},
        {"type": "reasoning.encrypted", "data": "x", "index": 1},
    ]


def test_a_content_that_is_a_list_is_read():
    parts = [{"type": "text", "text": "a"}, {"type": "reference"}, {"refusal": "no"}]
    assert contents(chunk({"content": parts})) == [TextContent("a"), RefusalContent("no")]


def test_refusals_are_output():
    updates, response = stream(
        chunk({"refusal": "I "}), chunk({"refusal": "won't"}), chunk({}, "stop")
    )
    assert updates[0].has_output
    assert response.messages[0].contents == (RefusalContent("I won't"),)


def test_spoken_answers_are_data_and_their_transcript_is_text():
    reader = parser(audio_media_type="audio/mp3")
    updates = reader.feed("", json.dumps(chunk({"audio": {"data": "YWJj", "transcript": "Hi"}})))
    assert updates[0].contents == (TextContent("Hi"), DataContent(b"abc", "audio/mp3"))
    with pytest.raises(ValueError, match="base64"):
        reader.feed("", json.dumps(chunk({"audio": {"data": "YWJ"}})))


@pytest.mark.parametrize(
    ("report", "usage"),
    [
        pytest.param(
            {
                "prompt_tokens": 9,
                "completion_tokens": 8,
                "prompt_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 6},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(
                input_tokens=9,
                output_tokens=8,
                cache_read_input_tokens=7,
                cache_write_input_tokens=6,
                reasoning_output_tokens=5,
            ),
            id="OpenAI",
        ),
        pytest.param(
            {"prompt_tokens": 9, "completion_tokens": 8, "prompt_cache_hit_tokens": 7},
            Usage(input_tokens=9, output_tokens=8, cache_read_input_tokens=7),
            id="DeepSeek",
        ),
        pytest.param(
            {"prompt_tokens": 9, "completion_tokens": None, "prompt_tokens_details": None},
            Usage(input_tokens=9),
            id="nulls",
        ),
    ],
)
def test_usage_is_read_from_what_there_is(report, usage):
    """Unknown is None, never zero."""
    assert stream({**chunk({"content": "a"}, "stop"), "usage": report})[1].usage == usage


def test_usage_of_groq_stands_elsewhere_and_growing_usage_replaces_itself():
    groq = {**chunk({}, "stop"), "x_groq": {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}}
    assert stream(groq)[1].usage == Usage(input_tokens=1, output_tokens=2)
    growing = [
        {**chunk({"content": "a"}), "usage": {"prompt_tokens": 1, "completion_tokens": n}}
        for n in (1, 2, 3)
    ]
    assert stream(*growing)[1].usage == Usage(input_tokens=1, output_tokens=3)


def test_usage_before_the_finish_is_usage():
    assert stream(
        {"id": "c1", "choices": [], "usage": {"prompt_tokens": 1}}, chunk({"content": "a"}, "stop")
    )[1].usage == Usage(input_tokens=1)


def choice_with(**fields):
    return {"choices": [{"index": 0, "finish_reason": None, **fields}]}


def test_what_else_a_server_says_is_kept_once():
    facts = {"system_fingerprint": "fp", "service_tier": "default"}
    updates, response = stream(
        {**chunk({"content": "a"}), **facts},
        {**chunk({"content": "b"}), **facts},
        {**chunk({"content": ""}), **facts, "service_tier": "flex"},
        {**chunk({"content": "B"}), **facts, "service_tier": "default"},
        chunk({"content": "c", "annotations": [{"type": "url_citation"}]}),
        {
            "choices": [
                {"index": 0, "delta": {}, "logprobs": None, "content_filter_results": {"x": 1}}
            ]
        },
        choice_with(logprobs={"content": []}, delta={"content": "d"}),
        choice_with(token_ids=[7], delta={"content": "e"}),
    )
    assert [update.additional_properties for update in updates] == [
        facts,
        None,
        {"service_tier": "flex"},
        {"service_tier": "default"},
        {"annotations": [{"type": "url_citation"}]},
        {"content_filter_results": {"x": 1}},
        {"logprobs": {"content": []}},
        {"token_ids": [7]},
    ]
    assert response.text == "abBcde"


@pytest.mark.parametrize(
    ("event", "data", "error_class"),
    [
        pytest.param(
            "", {"error": {"code": "rate_limit_exceeded"}}, RateLimitError, id="error object"
        ),
        pytest.param("error", {"error": {"code": 529}}, OverloadedError, id="error event"),
        pytest.param(
            "error", {"message": "x"}, InternalServerError, id="error event without object"
        ),
        pytest.param("error", "words", InternalServerError, id="error event with text"),
        pytest.param("", [{"error": {"code": 429}}], RateLimitError, id="list"),
        pytest.param(
            "", {"error": {"code": 502}, "choices": []}, InternalServerError, id="empty choices"
        ),
        pytest.param(
            "",
            chunk({"content": ""}, "error", error={"code": 502, "message": "x"}),
            InternalServerError,
            id="error beside a choice",
        ),
        pytest.param("", chunk({}, "error"), InternalServerError, id="only the finish says it"),
        pytest.param(
            "",
            {"choices": [{"index": 0, "finish_reason": "error", "error": {"code": 429}}]},
            RateLimitError,
            id="error inside the choice",
        ),
    ],
)
def test_an_error_in_any_shape_ends_the_attempt(event, data, error_class):
    """[BR-14] A top-level error, also with empty choices, and `finish_reason: error`."""
    reader = parser()
    reader.feed("", json.dumps(chunk({"content": ""})))
    with pytest.raises(error_class) as caught:
        reader.feed(event, json.dumps(data))
    assert caught.value.status_code == 200


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("[]", "no JSON object"),
        ("7", "no JSON object"),
        ("null", "no JSON object"),
        ('"text"', "no JSON object"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
    ],
)
def test_what_is_no_chunk_is_a_value_error(data, words):
    with pytest.raises(ValueError, match=words):
        parser().feed("", data)


def whole(message, finish_reason="stop", **facts):
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"id": "c1", "model": "m", "created": 1_800_000_000, "choices": [choice], **facts}


def read(body):
    answer = Answer(200, {"x-request-id": "r"}, json.dumps(body).encode())
    return read_answer(answer, parser(), ERRORS)


def test_a_whole_answer_is_read_like_a_stream():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    response = read(
        whole(
            {"role": "assistant", "content": "Hi", "tool_calls": [call], "refusal": None},
            "tool_calls",
            usage={"prompt_tokens": 3},
            system_fingerprint="fp",
        )
    )
    assert response.messages[0].contents == (
        TextContent("Hi"),
        ToolCallContent("a", "f", {"x": 1}, '{"x": 1}'),
    )
    assert response.finish_reason is FinishReason.TOOL_CALLS
    assert response.usage == Usage(input_tokens=3)
    assert response.additional_properties == {"system_fingerprint": "fp"}


@pytest.mark.parametrize(
    "message",
    [{"content": ""}, {"content": None}, {}, {"role": "assistant"}],
)
def test_an_honestly_empty_whole_answer_is_an_answer(message):
    """[BR-08]"""
    response = read(whole(message))
    assert (response.text, response.finish_reason) == ("", FinishReason.STOP)
    assert response.messages[0].role is Role.ASSISTANT


def test_a_finish_reason_that_is_missing_stays_unknown():
    """[BR-10]"""
    assert read(whole({"content": "a"}, None)).finish_reason is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([], id="empty list"),
        pytest.param({}, id="empty object"),
        pytest.param({"choices": []}, id="no choices"),
        pytest.param({"choices": None}, id="null choices"),
        pytest.param({"choices": [{"index": 0, "message": None}]}, id="null message"),
        pytest.param("words", id="text"),
        pytest.param(None, id="null"),
    ],
)
def test_a_success_that_is_no_answer_is_an_error(body):
    with pytest.raises(ResponseValidationError, match="no chat completion") as caught:
        read(body)
    assert caught.value.request_id == "r"


def test_an_error_dressed_as_success_is_an_error():
    with pytest.raises(RateLimitError) as caught:
        read({"error": {"code": 429, "message": "slow down"}})
    assert caught.value.request_id == "r"


MAYBE: st.SearchStrategy[Any] = (
    st.none() | st.integers() | st.text(max_size=3) | st.just([]) | st.just({})
)
FUNCTION = st.fixed_dictionaries(
    {}, optional={"name": MAYBE, "arguments": MAYBE | st.just('{"x": 1}')}
)
CALLS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "index": st.integers(0, 2) | st.none(),
            "id": MAYBE | st.sampled_from(["a", "b"]),
            "function": FUNCTION | MAYBE,
            "type": MAYBE,
        },
    ),
    max_size=3,
)
DELTA = st.fixed_dictionaries(
    {},
    optional={
        "role": MAYBE,
        "content": MAYBE | st.just([{"type": "text", "text": "x"}]),
        "refusal": MAYBE,
        "tool_calls": CALLS | MAYBE,
        "reasoning_content": MAYBE,
        "reasoning_details": MAYBE | st.just([{"type": "t", "text": "x"}]),
        "function_call": FUNCTION | MAYBE,
        "audio": MAYBE | st.just({"transcript": "x"}),
        "annotations": MAYBE,
    },
)
CHOICE = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from([0, 0, 0, 1, None]),
        "delta": DELTA | MAYBE,
        "finish_reason": st.none() | st.sampled_from(["stop", "length", "x", "error"]),
        "logprobs": MAYBE,
    },
)
USAGE = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": MAYBE,
        "completion_tokens": MAYBE,
        "prompt_tokens_details": MAYBE | st.just({"cached_tokens": 1}),
    },
)
CHUNK = st.fixed_dictionaries(
    {},
    optional={
        "id": MAYBE,
        "model": MAYBE,
        "created": MAYBE,
        "choices": st.lists(CHOICE | MAYBE, max_size=2) | MAYBE,
        "usage": USAGE | MAYBE,
        "error": st.none(),
        "x": MAYBE,
    },
)


@given(st.lists(CHUNK, max_size=6))
def test_any_field_of_a_chunk_may_be_missing_or_null_or_odd(chunks):
    """[BR-22] One parsing routine, fuzzed: nothing crashes it, no text is lost or doubled."""
    reader = parser(dialects.OPENROUTER)
    updates = []
    try:
        for one in chunks:
            updates += reader.feed("", json.dumps(one))
        updates += reader.feed("", "[DONE]")
    except ChatClientError:
        assert '"error"' in json.dumps(chunks)
        return
    assert ChatResponse.from_updates(updates).text == "".join(map(text_of, chunks))


def text_of(one):
    choices = one.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index") in (0, None):
            delta = choice.get("delta")
            return text_of_delta(delta) if isinstance(delta, dict) else ""
    return ""


def text_of_delta(delta):
    content, audio = delta.get("content"), delta.get("audio")
    said = content if isinstance(content, str) else ""
    if isinstance(content, list):
        said = "".join(part["text"] for part in content)
    return said + (audio.get("transcript", "") if isinstance(audio, dict) else "")


@given(CHUNK, CHOICE, DELTA)
def test_any_field_of_a_whole_answer_may_be_missing_or_null_or_odd(body, choice, message):
    """[BR-22] The same routine reads whole answers."""
    body = {**body, "choices": [{**choice, "index": 0, "message": message, "delta": None}]}
    if choice.get("finish_reason") == "error":
        with pytest.raises(ChatClientError):
            read(body)
    else:
        assert read(body).text == text_of_delta(message)
