"""The events of the Responses API, and the whole answer as the last of them."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.adapters._errors import Errors
from chatrouting.adapters._openai_responses.events import ResponsesParser
from chatrouting.contents import ReasoningContent, RefusalContent, TextContent, ToolCallContent
from chatrouting.errors import InternalServerError
from chatrouting.messages import Role
from chatrouting.responses import ChatResponse, FinishReason
from chatrouting.usage import Usage

HERE = "openai https://api.openai.com/v1 gpt-x"


def parser(*, is_stored=False):
    return ResponsesParser(Errors("openai", "gpt-x"), HERE, is_stored=is_stored)


def event(kind, **fields):
    return {"type": f"response.{kind}", **fields}


def read(*events, by=None):
    """Feed events, and return the updates; to a new parser also as objects: they are the same."""
    reader = by or parser()
    found = [update for one in events for update in reader.feed("", json.dumps(one))]
    if by is None:
        other = parser()
        assert found == [update for one in events for update in other.feed_object(one)]
    return found


def fold(*events):
    return ChatResponse.from_updates(read(*events))


def response(*output, **fields):
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": "gpt-x-1",
        "status": "completed",
        "output": list(output),
        **fields,
    }


def message(*texts, item_id="msg_1", **fields):
    content = [{"type": "output_text", "text": text} for text in texts]
    return {"id": item_id, "type": "message", "content": content, **fields}


def call(arguments, **fields):
    return {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_1",
        "name": "look",
        "arguments": arguments,
        **fields,
    }


def reasoning(*summary, **fields):
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": "rs_1", "type": "reasoning", "summary": parts, **fields}


def added(item, index=0):
    return event("output_item.added", item=item, output_index=index)


def done(item, index=0):
    return event("output_item.done", item=item, output_index=index)


def delta(kind, text, index=0, **fields):
    return event(f"{kind}.delta", delta=text, output_index=index, **fields)


CREATED = event("created", response=response(status="in_progress"))


def completed(*output, **fields):
    return event("completed", response=response(*output, **fields))


# -- the whole answer ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "contents"),
    [
        ([], ()),
        ([message("Hi")], (TextContent("Hi"),)),
        ([message("Hi", " there")], (TextContent("Hi there"),)),
        (
            [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}],
            (RefusalContent("No."),),
        ),
        (
            [call('{"at": "sky"}')],
            (ToolCallContent("call_1", "look", {"at": "sky"}, '{"at": "sky"}'),),
        ),
        ([call("")], (ToolCallContent("call_1", "look", {}, "{}"),)),
        ([call("", status="incomplete")], (ToolCallContent("call_1", "look", {}, ""),)),
        ([call('{"at": ')], (ToolCallContent("call_1", "look", {}, '{"at": '),)),
        ([call("{}", call_id=None)], (ToolCallContent("fc_1", "look", {}, "{}"),)),
        ([call("{}", call_id="", id=None)], (ToolCallContent("call_0", "look", {}, "{}"),)),
        (
            [call('{"a": 1}'), call('{"b": 2}')],
            (
                ToolCallContent("call_1", "look", {"a": 1}, '{"a": 1}'),
                ToolCallContent("call_1-2", "look", {"b": 2}, '{"b": 2}'),
            ),
        ),
        (
            [reasoning("One.", "Two.", encrypted_content="sealed"), message("Hi")],
            (ReasoningContent("One.\n\nTwo.", "sealed", HERE), TextContent("Hi")),
        ),
        (
            [reasoning(encrypted_content="sealed"), message("Hi")],
            (ReasoningContent("", "sealed", HERE, is_redacted=True), TextContent("Hi")),
        ),
        (
            [reasoning(content=[{"type": "reasoning_text", "text": "Hm."}])],
            (ReasoningContent("Hm.", None, HERE),),
        ),
        (
            [reasoning("A.", encrypted_content="1"), reasoning("B.", encrypted_content="2")],
            (ReasoningContent("A.", "1", HERE), ReasoningContent("B.", "2", HERE)),
        ),
    ],
    ids=[
        "nothing",
        "text",
        "two-parts",
        "refusal",
        "call",
        "call-without-arguments",
        "cut-call",
        "malformed-call",
        "no-call-id",
        "no-ids",
        "same-ids",
        "reasoning",
        "hidden-reasoning",
        "reasoning-text",
        "two-seals",
    ],
)
def test_output_items_become_contents(output, contents):
    answer = fold(completed(*output))

    [said] = answer.messages
    assert said.role is Role.ASSISTANT
    assert said.contents == contents


def test_facts_of_the_response_are_kept():
    answer = fold(completed(message("Hi"), service_tier="flex"))

    assert answer.response_id == "resp_1"
    assert answer.model == "gpt-x-1"
    assert answer.created_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert answer.finish_reason is FinishReason.STOP
    assert answer.additional_properties == {"service_tier": "flex"}
    assert answer.messages[0].message_id == "msg_1"


def test_messages_of_different_phases_stay_apart():
    answer = fold(
        completed(
            message("Let me look.", phase="commentary"),
            message("Blue.", item_id="msg_2", phase="final_answer"),
        )
    )

    phases = [(one.text, one.additional_properties) for one in answer.messages]
    assert phases == [
        ("Let me look.", {"phase": "commentary"}),
        ("Blue.", {"phase": "final_answer"}),
    ]


def test_items_that_only_the_provider_knows_are_kept_as_they_came():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    answer = fold(completed(search, message("Blue.")))

    assert answer.text == "Blue."
    assert answer.additional_properties == {"other_output": [search]}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, FinishReason.STOP),
        ({"status": None}, FinishReason.STOP),
        ({"output": [call("{}")]}, FinishReason.TOOL_CALLS),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            FinishReason.LENGTH,
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            FinishReason.CONTENT_FILTER,
        ),
        ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "steered"),
        ({"status": "incomplete", "incomplete_details": None}, "incomplete"),
        ({"status": "cancelled"}, "cancelled"),
        ({"status": "queued"}, None),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_finish_reasons_are_mapped_and_unknown_ones_pass_through(facts, reason):
    assert fold(completed(**facts)).finish_reason == reason


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (None, None),
        ({}, None),
        (
            {
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                "output_tokens": 5,
                "output_tokens_details": {"reasoning_tokens": 3},
                "total_tokens": 14,
            },
            Usage(
                input_tokens=9,
                output_tokens=5,
                cache_read_input_tokens=4,
                cache_write_input_tokens=2,
                reasoning_output_tokens=3,
            ),
        ),
        (
            {"input_tokens": 9, "output_tokens": None, "input_tokens_details": None},
            Usage(input_tokens=9),
        ),
        ({"input_tokens": "9", "output_tokens": True}, Usage()),
    ],
    ids=["absent", "empty", "full", "nulls", "wrong-types"],
)
def test_usage_is_what_was_reported_and_unknown_is_not_zero(reported, usage):
    assert fold(completed(usage=reported)).usage == usage


@pytest.mark.parametrize(
    ("is_stored", "facts", "conversation_id"),
    [
        (True, {}, "resp_1"),
        (False, {}, None),
        (True, {"store": False}, None),
        (False, {"store": True}, "resp_1"),
        (True, {"conversation": {"id": "conv_1"}}, "conv_1"),
        (True, {"id": None}, None),
    ],
    ids=["asked", "not-asked", "refused", "stored-anyway", "conversation", "no-id"],
)
def test_conversation_id_is_what_the_next_request_may_go_on_from(is_stored, facts, conversation_id):
    updates = read(completed(message("Hi"), **facts), by=parser(is_stored=is_stored))

    assert ChatResponse.from_updates(updates).conversation_id == conversation_id


@pytest.mark.parametrize("created", [None, "now", float("nan"), 1e300, -1e300, True])
def test_an_unreadable_time_is_unknown(created):
    assert fold(completed(created_at=created)).created_at in (None, datetime.fromtimestamp(1, UTC))


# -- the stream ------------------------------------------------------------------------------------


def test_a_stream_gives_its_text_as_it_comes():
    updates = read(
        CREATED,
        event("in_progress", response=response(status="in_progress")),
        added(message()),
        event("content_part.added", output_index=0, content_index=0, part={"text": ""}),
        delta("output_text", "Hel", item_id="msg_1", content_index=0),
        delta("output_text", "lo", item_id="msg_1", content_index=0),
        event("output_text.done", text="Hello", output_index=0, content_index=0),
        done(message("Hello")),
        completed(message("Hello"), usage={"input_tokens": 1, "output_tokens": 2}),
    )

    assert [update.text for update in updates] == ["", "", "Hel", "lo", ""]
    assert [update.has_output for update in updates] == [False, False, True, True, False]
    assert updates[0].role is Role.ASSISTANT
    assert updates[2].message_id == "msg_1"
    assert updates[-1].finish_reason is FinishReason.STOP
    assert updates[-1].usage == Usage(input_tokens=1, output_tokens=2)
    assert {update.response_id for update in updates} == {"resp_1"}


@pytest.mark.parametrize(
    "events",
    [
        [
            added(call("")),
            delta("function_call_arguments", '{"at":'),
            delta("function_call_arguments", ' "sky"}'),
            event("function_call_arguments.done", arguments='{"at": "sky"}', output_index=0),
            done(call('{"at": "sky"}')),
        ],
        [added(call('{"at": "sky"}')), done(call('{"at": "sky"}'))],
        [
            added(call("")),
            event("function_call_arguments.done", arguments='{"at": "sky"}', output_index=0),
        ],
        [added(call("")), delta("function_call_arguments", '{"at":'), done(call('{"at": "sky"}'))],
        [added(call("")), delta("function_call_arguments", "junk"), done(call('{"at": "sky"}'))],
        [delta("function_call_arguments", '{"at": "sky"}'), done(call('{"at": "sky"}'))],
        [done(call('{"at": "sky"}'))],
        [added(call(""))],
        [],
    ],
    ids=[
        "deltas",
        "all-at-once",
        "done-only",
        "rest-with-item",
        "wrong-deltas",
        "unannounced",
        "item-only",
        "response-has-rest",
        "response-only",
    ],
)
def test_a_tool_call_is_whole_however_it_was_streamed(events):
    answer = fold(CREATED, *events, completed(call('{"at": "sky"}')))

    assert answer.messages[0].contents == (
        ToolCallContent("call_1", "look", {"at": "sky"}, '{"at": "sky"}'),
    )
    assert answer.finish_reason is FinishReason.TOOL_CALLS


def test_the_name_of_a_call_alone_is_not_output():
    """[BR-05]."""
    updates = read(CREATED, added(call("")), delta("function_call_arguments", ""))

    assert not any(update.has_output for update in updates)


def test_a_call_without_arguments_is_output_once_it_is_done():
    updates = read(CREATED, added(call("")), done(call("")))

    assert updates[-1].has_output
    assert ChatResponse.from_updates(updates).messages[0].contents == (
        ToolCallContent("call_1", "look", {}, "{}"),
    )


def test_a_call_that_was_cut_is_not_made_to_look_whole():
    """[BR-12]."""
    updates = read(CREATED, added(call("")), delta("function_call_arguments", '{"at": "s'))

    [cut] = ChatResponse.from_updates(updates, is_complete=False).messages[0].contents
    assert cut == ToolCallContent("call_1", "look", {}, '{"at": "s')


@pytest.mark.parametrize(
    "events",
    [
        [
            added(message()),
            delta("output_text", "Hello", content_index=0),
            event("output_text.done", text="Hello", content_index=0, output_index=0),
            done(message("Hello")),
        ],
        [added(message()), event("output_text.done", text="Hello", output_index=0)],
        [event("output_text.done", text="Hello", output_index=0)],
        [added(message()), done(message("Hello"))],
        [done(message("Hello"))],
        [delta("output_text", "Hello", item_id="msg_1")],
        [delta("output_text", "Hel", item_id="msg_1"), delta("output_text", "lo")],
        [added(message())],
        [],
    ],
    ids=[
        "deltas",
        "part-only",
        "unannounced-part",
        "item-only",
        "unannounced-item",
        "unannounced-delta",
        "unannounced-deltas",
        "response-has-rest",
        "response-only",
    ],
)
def test_text_is_whole_and_given_once_however_it_was_streamed(events):
    answer = fold(CREATED, *events, completed(message("Hello")))

    [said] = answer.messages
    assert said.contents == (TextContent("Hello"),)
    assert said.message_id == "msg_1"


def test_items_are_told_apart_by_id_where_places_are_missing():
    events = [
        event("output_item.added", item=message(item_id="msg_1")),
        event("output_text.delta", item_id="msg_1", delta="Hel"),
        event("output_item.added", item=call("")),
        event("output_text.delta", item_id="msg_1", delta="lo"),
        event("function_call_arguments.delta", item_id="fc_1", delta="{}"),
    ]

    answer = fold(CREATED, *events, completed(message("Hello"), call("{}")))

    assert answer.messages[0].contents == (
        TextContent("Hel"),
        ToolCallContent("call_1", "look", {}, "{}"),
        TextContent("lo"),
    )


def test_reasoning_is_streamed_sealed_and_stamped():
    updates = read(
        CREATED,
        added(reasoning()),
        delta("reasoning_summary_text", "", summary_index=0),
        delta("reasoning_summary_text", "One", summary_index=0),
        delta("reasoning_summary_text", ".", summary_index=0),
        delta("reasoning_summary_text", "Two.", summary_index=1),
        done(reasoning("One.", "Two.", encrypted_content="sealed")),
        completed(reasoning("One.", "Two.", encrypted_content="sealed")),
    )

    assert ChatResponse.from_updates(updates).messages[0].contents == (
        ReasoningContent("One.\n\nTwo.", "sealed", HERE),
    )


@pytest.mark.parametrize(
    "events",
    [
        [delta("reasoning_text", "Hm.", content_index=0, item_id="rs_1")],
        [added(reasoning()), delta("reasoning_text", "Hm.", content_index=0)],
    ],
    ids=["unannounced", "announced"],
)
def test_reasoning_text_of_open_models_is_read(events):
    item = reasoning(content=[{"type": "reasoning_text", "text": "Hm."}])

    answer = fold(CREATED, *events, completed(item))

    assert answer.messages[0].contents == (ReasoningContent("Hm.", None, HERE),)


def test_a_refusal_is_streamed():
    item = {"id": "msg_1", "type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
    answer = fold(
        CREATED,
        added(message()),
        delta("refusal", "N"),
        delta("refusal", "o."),
        event("refusal.done", refusal="No.", output_index=0),
        completed(item),
    )

    assert answer.messages[0].contents == (RefusalContent("No."),)


@pytest.mark.parametrize("end", ["completed", "incomplete"])
def test_a_stream_is_complete_once_its_end_was_seen(end):
    """[BR-10]."""
    by = parser()
    read(CREATED, added(message()), delta("output_text", "Hi"), done(message("Hi")), by=by)
    assert not by.is_complete

    read(event(end, response=response(message("Hi"))), by=by)
    assert by.is_complete


def test_an_honestly_empty_stream_is_complete():
    """[BR-08]."""
    answer = fold(CREATED, completed())

    assert answer.text == ""
    assert answer.finish_reason is FinishReason.STOP


ERROR = {"code": "server_error", "message": "Boom."}


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("error", {"type": "error", **ERROR, "param": None}, "server_error"),
        ("error", {"type": "error", "error": ERROR}, "server_error"),
        ("error", {"error": ERROR}, "server_error"),
        ("error", {"message": "Boom."}, None),
        ("", {"error": ERROR}, "server_error"),
        ("", {"type": "error", **ERROR}, "server_error"),
        ("", {"error": "Boom."}, "Boom."),
        ("response.failed", event("failed", response={"error": ERROR}), "server_error"),
        ("", event("failed", response={"error": ERROR}), "server_error"),
        ("response.failed", event("failed", response=None), None),
    ],
    ids=[
        "flat",
        "nested",
        "untyped",
        "bare",
        "data",
        "flat-unnamed",
        "text",
        "failed",
        "failed-unnamed",
        "failed-bare",
    ],
)
def test_an_error_in_the_stream_is_raised(name, data, code):
    """[BR-02] [BR-13] [BR-14]."""
    by = parser()

    with pytest.raises(InternalServerError) as caught:
        by.feed(name, json.dumps(data))

    assert caught.value.code == code
    assert caught.value.status_code == 200
    assert not by.is_complete


def test_events_that_an_sdk_has_decoded_are_read_alike():
    by = parser()

    updates = [update for one in COMPLETE for update in by.feed_object(one)]

    assert by.is_terminal
    assert ChatResponse.from_updates(updates) == fold(*COMPLETE)


def test_unknown_events_and_a_last_word_of_other_apis_are_ignored():
    assert read(event("web_search_call.searching", output_index=0), {"type": "ping"}) == []
    assert parser().feed("", "[DONE]") == []


def test_the_kind_of_an_event_may_stand_in_its_name_only():
    updates = parser().feed("response.output_text.delta", '{"delta": "Hi", "output_index": 0}')

    assert "".join(update.text for update in updates) == "Hi"


def test_broken_json_is_a_value_error():
    with pytest.raises(ValueError, match="Unterminated"):
        parser().feed("", '{"id": "broken')


# -- anything may be missing -----------------------------------------------------------------------

COMPLETE = [
    CREATED,
    added(reasoning()),
    delta("reasoning_summary_text", "Hm.", summary_index=0, item_id="rs_1"),
    event("reasoning_summary_text.done", text="Hm.", output_index=0),
    done(reasoning("Hm.", encrypted_content="sealed")),
    added(message(), 1),
    event("content_part.added", output_index=1, content_index=0, part={"type": "output_text"}),
    delta("output_text", "Hello", 1, item_id="msg_1", content_index=0),
    event("output_text.done", text="Hello", output_index=1, content_index=0),
    delta("refusal", "No.", 1, item_id="msg_1", content_index=1),
    event("refusal.done", refusal="No.", output_index=1, content_index=1),
    done(message("Hello"), 1),
    added(call(""), 2),
    delta("function_call_arguments", "{}", 2, item_id="fc_1"),
    event("function_call_arguments.done", arguments="{}", output_index=2),
    done(call("{}"), 2),
    completed(
        reasoning("Hm.", encrypted_content="sealed"),
        message("Hello"),
        call("{}"),
        usage={"input_tokens": 1},
    ),
]


def paths(value, prefix=()):
    """Every place in a JSON value."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*prefix, key)
            yield from paths(value[key], (*prefix, key))


def damaged(events, path, wrong):
    """A copy in which one place is missing, or holds something else."""
    copied = json.loads(json.dumps(events))
    *parents, last = path
    place = copied
    for key in parents:
        place = place[key]
    if wrong is None:
        del place[last]
    else:
        place[last] = wrong[0]
    return [one for one in copied if isinstance(one, dict)]


@given(
    st.sampled_from(sorted(paths(COMPLETE), key=str)),
    st.sampled_from([None, [None], [{}], [[]], [""], [7], ["x"], [[None]]]),
)
def test_any_field_may_be_missing_or_odd(path, wrong):
    """[BR-22]."""
    updates = read(*damaged(COMPLETE, path, wrong))

    assert ChatResponse.from_updates(updates) is not None


def test_a_whole_answer_and_its_stream_give_the_same_response():
    """[BR-77]."""
    streamed = [one for one in COMPLETE if "refusal" not in one["type"]]

    assert fold(*streamed) == fold(COMPLETE[-1])
