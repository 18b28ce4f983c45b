"""How events and whole messages of the Messages API become updates and responses."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatrouting.adapters._anthropic.events import MessagesParser
from chatrouting.adapters._anthropic.raw import KEY
from chatrouting.adapters._errors import Errors
from chatrouting.contents import (
    Content,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCallContent,
)
from chatrouting.messages import ChatMessage
from chatrouting.responses import ChatResponse, ChatResponseUpdate, FinishReason
from chatrouting.usage import Usage

ERRORS = Errors("anthropic", "claude-x")
HERE = "anthropic https://api.anthropic.com claude-x"


def start(**usage) -> dict[str, Any]:
    message = {"id": "msg_1", "model": "claude-x-1", "role": "assistant", "content": []}
    return {"type": "message_start", "message": message | ({"usage": usage} if usage else {})}


def block(index, **content) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": content}


def delta(index, kind, **fields) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def finish(reason="end_turn", usage=None, **fields) -> dict[str, Any]:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, **fields},
        "usage": usage or {"output_tokens": 3},
    }


END = {"type": "message_stop"}


def text(index, *pieces) -> list[dict[str, Any]]:
    deltas = [delta(index, "text_delta", text=piece) for piece in pieces]
    return [block(index, type="text", text=""), *deltas, stop(index)]


def updates(*events, trimmed="") -> list[ChatResponseUpdate]:
    """Read events as text and as objects, which must come to the same."""
    reader, other = (MessagesParser(ERRORS, origin=HERE, trimmed=trimmed) for _ in range(2))
    found = [update for event in events for update in reader.feed("", json.dumps(event))]
    assert found == [update for event in events for update in other.feed_object(event)]
    return found


def folded(*events, trimmed="") -> ChatResponse:
    return ChatResponse.from_updates(updates(*events, trimmed=trimmed))


def contents(*events, trimmed="") -> tuple[Content, ...]:
    (message,) = folded(*events, trimmed=trimmed).messages
    return message.contents


def test_events_become_a_response():
    response = folded(start(input_tokens=10, output_tokens=1), *text(0, "Hel", "lo"), finish(), END)

    assert response == ChatResponse(
        ChatMessage("assistant", "Hello", message_id="msg_1"),
        response_id="msg_1",
        model="claude-x-1",
        finish_reason=FinishReason.STOP,
        usage=Usage(input_tokens=10, output_tokens=3),
    )


def test_only_output_counts_as_output():
    """[BR-05] Nothing before the first text, or the first arguments, commits a stream."""
    before = updates(
        start(input_tokens=1),
        block(0, type="thinking", thinking="", signature=""),
        delta(0, "signature_delta", signature="sig"),
        stop(0),
        block(1, type="text", text=""),
        delta(1, "text_delta", text=""),
        stop(1),
        block(2, type="tool_use", id="call_1", name="look", input={}),
        delta(2, "input_json_delta", partial_json=""),
        {"type": "ping"},
    )
    first = updates(
        block(2, type="tool_use", id="call_1", name="look", input={}),
        delta(2, "input_json_delta", partial_json='{"a"'),
    )

    assert not any(update.has_output for update in before)
    assert [update.has_output for update in first] == [False, True]


# -- tool calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "pieces", "arguments", "raw"),
    [
        ({}, ["", '{"a":', " 1}"], {"a": 1}, '{"a": 1}'),
        ({}, [], {}, "{}"),
        ({}, [""], {}, "{}"),
        (None, [], {}, "{}"),
        ({"a": 1}, [], {"a": 1}, '{"a": 1}'),
        ('{"a"', [], {}, '{"a"'),
        ({}, ['{"a":'], {}, '{"a":'),
        ({}, ["[1]"], {}, "[1]"),
    ],
    ids=["fragments", "none", "empty", "null", "all at the start", "text", "cut", "no object"],
)
def test_arguments_of_a_call(given, pieces, arguments, raw):
    """Invalid arguments keep their text and never raise; none at all are an empty object."""
    assert contents(
        start(),
        block(0, type="tool_use", id="call_1", name="look", input=given),
        *[delta(0, "input_json_delta", partial_json=piece) for piece in pieces],
        stop(0),
        finish("tool_use"),
        END,
    ) == (ToolCallContent("call_1", "look", arguments, raw),)


def test_cut_call_is_not_executable():
    """[BR-12] Folded as the partial response of a stream that broke off."""
    partial = updates(
        start(),
        block(0, type="tool_use", id="call_1", name="look", input={}),
        delta(0, "input_json_delta", partial_json='{"path": "/tm'),
    )

    (call,) = ChatResponse.from_updates(partial, is_complete=False).messages[0].contents

    assert call == ToolCallContent("call_1", "look", {}, '{"path": "/tm')


def test_interleaved_calls_are_kept_apart():
    def use(index, call_id):
        return block(index, type="tool_use", id=call_id, name="look", input={})

    assert contents(
        start(),
        use(0, "a"),
        use(1, "b"),
        delta(1, "input_json_delta", partial_json='{"n": 1}'),
        delta(0, "input_json_delta", partial_json='{"n": 0}'),
        stop(1),
        stop(0),
        finish("tool_use"),
    ) == (
        ToolCallContent("a", "look", {"n": 0}, '{"n": 0}'),
        ToolCallContent("b", "look", {"n": 1}, '{"n": 1}'),
    )


def test_empty_and_repeated_ids_are_told_apart():
    calls = [block(n, type="tool_use", id=i, name="look") for n, i in enumerate(["", "a", "a", ""])]

    ids = [call.call_id for call in contents(start(), *calls, finish("tool_use"))]

    assert len(set(ids)) == 4
    assert ids[1] == "a"


# -- reasoning -------------------------------------------------------------------------------------


def test_reasoning_keeps_its_proof_and_its_origin():
    """[BR-81] Stamped with the issuer; each block with its own signature."""
    assert contents(
        start(),
        block(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm "),
        delta(0, "thinking_delta", thinking="so"),
        delta(0, "signature_delta", signature="sig1"),
        stop(0),
        block(1, type="redacted_thinking", data="opaque"),
        stop(1),
        block(2, type="thinking", thinking="", signature=""),
        delta(2, "signature_delta", signature="sig2"),
        stop(2),
        *text(3, "42"),
        finish(),
    ) == (
        ReasoningContent("hm so", "sig1", HERE),
        ReasoningContent("", "opaque", HERE, is_redacted=True),
        ReasoningContent("", "sig2", HERE),
        TextContent("42"),
    )


def test_reasoning_that_was_cut_has_no_proof():
    assert contents(
        start(),
        block(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
    ) == (ReasoningContent("hm", None, HERE),)


# -- usage and finish ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "usage"),
    [
        (
            {
                "input_tokens": 10,
                "cache_read_input_tokens": 5,
                "cache_creation_input_tokens": 3,
                "output_tokens": 1,
            },
            {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 2}},
            Usage(
                input_tokens=18,
                output_tokens=7,
                cache_read_input_tokens=5,
                cache_write_input_tokens=3,
                reasoning_output_tokens=2,
            ),
        ),
        (
            {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1},
            {"input_tokens": 12, "cache_read_input_tokens": None, "output_tokens": 7},
            Usage(input_tokens=17, output_tokens=7, cache_read_input_tokens=5),
        ),
        (
            {"input_tokens": 0, "output_tokens": 0},
            {"input_tokens": 10, "output_tokens": 7},
            Usage(input_tokens=10, output_tokens=7),
        ),
        ({"input_tokens": None}, {"output_tokens": None, "x": 1}, None),
        ({"input_tokens": True}, {"output_tokens": "7"}, None),
        ({}, {"output_tokens": 7}, Usage(output_tokens=7)),
    ],
    ids=["cache", "cumulative", "zero at first", "unknown", "wrong types", "output only"],
)
def test_usage_counts_all_input_and_is_replaced_not_added(first, last, usage):
    assert folded(start(**first), finish(usage=last), END).usage == usage


def test_usage_is_known_from_the_first_event_on():
    """[BR-17] What a broken stream used is in its updates."""
    (first,) = updates(start(input_tokens=10, cache_read_input_tokens=5))

    assert first.usage == Usage(input_tokens=15, cache_read_input_tokens=5)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("tool_use", FinishReason.TOOL_CALLS),
        ("refusal", FinishReason.CONTENT_FILTER),
        ("pause_turn", FinishReason.PAUSE),
        ("something_new", "something_new"),
        (None, None),
    ],
)
def test_finish_reason(word, reason):
    assert folded(start(), finish(word), END).finish_reason == reason
    assert whole(stop_reason=word).finish_reason == reason


def test_finish_reason_is_never_invented():
    """[BR-10] Not by the end of the events, and not by `message_stop`."""
    reader = MessagesParser(ERRORS, origin=HERE, trimmed="")

    for event in (start(), *text(0, "a")):
        reader.feed_object(event)
    assert not reader.is_complete

    assert all(update.finish_reason is None for update in reader.feed_object(END))
    assert reader.is_terminal


def test_refusal_is_an_answer_with_its_explanation():
    details = {"type": "refusal", "category": "bio", "explanation": "No."}

    response = folded(start(), *text(0, "Well"), finish("refusal", stop_details=details), END)

    assert response.finish_reason is FinishReason.CONTENT_FILTER
    assert response.messages[0].contents == (TextContent("Well"), RefusalContent("No."))
    assert response.additional_properties == {"stop_details": details}


def test_stop_sequence_and_tier_are_kept():
    usage = {"output_tokens": 3, "service_tier": "priority"}

    response = folded(start(), finish("stop_sequence", usage, stop_sequence="END"), END)

    assert response.additional_properties == {"stop_sequence": "END", "service_tier": "priority"}


# -- whole messages --------------------------------------------------------------------------------


def whole(*blocks, trimmed="", **fields) -> ChatResponse:
    message = {"id": "msg_1", "type": "message", "model": "claude-x-1", "content": list(blocks)}
    message |= fields
    reader = MessagesParser(ERRORS, origin=HERE, trimmed=trimmed)
    return ChatResponse.from_updates(reader.read_whole(message))


def test_whole_message_reads_like_its_stream():
    """One reader for both modes."""
    usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 3}
    streamed = folded(
        start(**usage),
        block(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="sig"),
        stop(0),
        *text(1, "He", "llo"),
        block(2, type="tool_use", id="call_1", name="look", input={}),
        delta(2, "input_json_delta", partial_json='{"a": 1}'),
        stop(2),
        finish("tool_use"),
        END,
    )

    assert streamed == whole(
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "Hello", "citations": None},
        {"type": "tool_use", "id": "call_1", "name": "look", "input": {"a": 1}},
        stop_reason="tool_use",
        usage=usage,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"content": None},
        {"content": [None, 1, {}, {"type": None}, {"type": "text"}, {"type": "tool_use"}]},
        {"usage": None, "stop_reason": None, "id": None, "model": None},
        {"usage": {"output_tokens_details": None}, "stop_details": 1},
    ],
)
def test_missing_and_null_fields_are_tolerated(fields):
    """[BR-22] Any field may be missing or null."""
    response = whole(**fields)

    assert response.text == ""
    assert response.usage is None


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([delta(0, "text_delta", text="Hello")], "Hello"),
        ([block(0, type="text", text="Hel"), delta(0, "text_delta", text="lo")], "Hello"),
        ([block(0, type="text"), delta(None, "text_delta", text="Hello")], "Hello"),
        ([block(None, type="text"), delta(None, "text_delta", text="Hello"), stop(None)], "Hello"),
        ([delta(0, "input_json_delta", partial_json="{}"), stop(0)], ""),
        ([delta(0, "something_delta", text="x"), block(1, type="something")], ""),
        ([stop(7), {"type": "something"}, {}, {"type": None}], ""),
    ],
)
def test_blocks_without_beginning_index_or_end(events, said):
    """[BR-22] What compatible servers leave out."""
    response = folded(start(), *events, finish(), END)

    assert response.text == said
    assert response.finish_reason is FinishReason.STOP


def test_name_of_the_event_is_used_where_the_data_has_no_type():
    reader = MessagesParser(ERRORS, origin=HERE, trimmed="")

    (update,) = reader.feed("message_delta", '{"delta": {"stop_reason": "end_turn"}}')

    assert update.finish_reason is FinishReason.STOP


# -- answers that hold more than contents ----------------------------------------------------------


def test_server_tools_and_citations_are_kept_as_they_came():
    citation = {"url": "https://example.com"}
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "text": "found", "citations": [citation]},
    ]

    streamed = folded(
        start(),
        block(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="sig"),
        stop(0),
        block(1, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        delta(1, "input_json_delta", partial_json='{"q": "x"}'),
        stop(1),
        block(2, **blocks[2]),
        stop(2),
        block(3, type="text", text="", citations=[]),
        delta(3, "text_delta", text="found"),
        delta(3, "citations_delta", citation=citation),
        stop(3),
        finish("pause_turn"),
        END,
    )

    assert streamed == whole(*blocks, stop_reason="pause_turn", usage={"output_tokens": 3})
    (message,) = streamed.messages
    assert message.contents == (ReasoningContent("hm", "sig", HERE), TextContent("found"))
    assert message.additional_properties == {KEY: {"origin": HERE, "content": blocks}}


def test_input_of_a_server_tool_that_was_cut_is_kept_empty():
    response = folded(
        start(),
        block(0, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"q"'),
        finish("max_tokens"),
    )

    (kept,) = response.messages[0].additional_properties[KEY]["content"]
    assert kept["input"] == {}


# -- the seam of a continued answer ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "said"),
    [([" world"], "world"), ([" ", "world"], "world"), (["world"], "world"), ([" "], "")],
)
def test_continued_answer_does_not_repeat_the_white_space(pieces, said):
    """[BR-87] In both modes."""
    assert folded(start(), *text(0, *pieces), finish(), END, trimmed=" ").text == said
    block = {"type": "text", "text": "".join(pieces)}
    assert whole(block, trimmed=" ").text == said


# -- anything at all -------------------------------------------------------------------------------

NAMES = [
    *("type", "index", "message", "content_block", "delta", "usage", "id", "name", "input"),
    *("text", "thinking", "signature", "partial_json", "stop_reason", "citation", "content"),
]
WORDS = [
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
    *("message_delta", "message_stop", "text", "thinking", "tool_use", "redacted_thinking"),
    *("text_delta", "input_json_delta", "thinking_delta", "signature_delta", "citations_delta"),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(WORDS) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=12,
)
EVENTS = st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6), max_size=8)
WELL_FORMED = [
    start(input_tokens=1),
    block(0, type="tool_use", id="a", name="n", input={}),
    delta(0, "input_json_delta", partial_json="{}"),
    delta(0, "citations_delta", citation={}),
    stop(0),
    *text(1, "a"),
    finish(),
    END,
]


@settings(max_examples=40)
@given(events=EVENTS)
def test_no_event_crashes_the_reader(events):
    """[BR-22] Whatever a server sends, it is read or ignored."""
    folded(*events)


@given(data=st.data())
def test_no_missing_field_crashes_the_reader(data):
    """[BR-22] Chunk lists from which any field may be missing or null."""
    events = [_worn(data, event) for event in WELL_FORMED if data.draw(st.booleans())]

    folded(*events)
    whole(**_worn(data, WELL_FORMED[0]["message"]) | {"type": "message"})


def _worn(data, value):
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, inner in json.loads(json.dumps(value)).items():
        fate = data.draw(st.sampled_from(["keep", "keep", "null", "drop", "list"]))
        if fate == "keep":
            kept[name] = _worn(data, inner)
        elif fate != "drop":
            kept[name] = None if fate == "null" else []
    return kept
