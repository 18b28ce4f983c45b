"""Folding updates into a response, and taking a response apart again.

The nine rules are those of the .NET AI abstractions, with the two decisions that were left open:
later usage replaces earlier usage, and a continuation token is kept.
"""

import copy
import dataclasses
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting import (
    ChatMessage,
    ChatResponse,
    ChatResponseUpdate,
    DataContent,
    FinishReason,
    ReasoningContent,
    RefusalContent,
    Role,
    RoutingAttempt,
    TextContent,
    ToolCallContent,
    UriContent,
    Usage,
)

Update = ChatResponseUpdate
ASSISTANT = Role.ASSISTANT
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def fold(*updates: ChatResponseUpdate) -> ChatResponse:
    return ChatResponse.from_updates(updates)


def contents_of(*contents: object) -> tuple[object, ...]:
    """Fold one update for each content and return those of the one message that comes out."""
    (message,) = fold(*(Update(each) for each in contents)).messages  # type: ignore[arg-type]
    return message.contents


# Values.


def test_text_is_one_assistant_message():
    response = ChatResponse("Hi")
    assert response.messages == (ChatMessage(ASSISTANT, "Hi"),)
    assert response.text == "Hi"


def test_text_is_joined_over_messages_and_contents():
    first = ChatMessage(ASSISTANT, ["Hel", ReasoningContent("hm"), "lo"])
    assert ChatResponse([first, ChatMessage(ASSISTANT, "!")]).text == "Hello!"
    assert Update(["Hel", ReasoningContent("hm"), "lo"]).text == "Hello"


def test_equality_ignores_attempts_and_what_the_provider_sent():
    attempt = RoutingAttempt(route="gpt")
    assert ChatResponse("Hi", attempts=[attempt], raw_representation=1) == ChatResponse("Hi")
    assert ChatResponse("Hi") != ChatResponse("Ho")


def test_with_attempts_leaves_the_response_as_it_is():
    names = [field.name for field in dataclasses.fields(ChatResponse)]
    response = ChatResponse("Hi")
    for name in names[1:]:
        setattr(response, name, object())
    attempt = RoutingAttempt(route="gpt")
    routed = response.with_attempts([attempt])
    assert routed.attempts == (attempt,)
    assert routed is not response
    names.remove("attempts")
    assert all(getattr(routed, name) is getattr(response, name) for name in names)


@pytest.mark.parametrize(
    ("update", "has_output"),
    [
        (Update(), False),
        (Update(role=ASSISTANT), False),
        (Update(""), False),
        (Update(usage=Usage(input_tokens=1), finish_reason="stop"), False),
        (Update("a"), True),
        (Update(["", RefusalContent("no")]), True),
    ],
)
def test_an_update_knows_whether_it_would_be_missed(update, has_output):
    assert update.has_output is has_output


# Rule 1: where a message begins.


def test_updates_of_one_message_fold_into_one():
    response = fold(Update(role=ASSISTANT), Update("Hel"), Update("lo"))
    assert response.messages == (ChatMessage(ASSISTANT, "Hello"),)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"role": ASSISTANT}, {"role": Role.TOOL}),
        ({"message_id": "a"}, {"message_id": "b"}),
        ({"author_name": "a"}, {"author_name": "b"}),
        ({"role": ASSISTANT, "message_id": "a"}, {"role": ASSISTANT, "message_id": "b"}),
    ],
)
def test_a_message_begins_where_role_id_or_author_differ(first, second):
    response = fold(Update("x", **first), Update("y", **second))
    assert [message.text for message in response.messages] == ["x", "y"]


@pytest.mark.parametrize(
    "second", [{"role": ASSISTANT}, {"message_id": "a"}, {"author_name": "a"}, {"message_id": ""}]
)
def test_going_from_absent_to_present_begins_nothing(second):
    assert [each.text for each in fold(Update("x"), Update("y", **second)).messages] == ["xy"]
    assert [each.text for each in fold(Update("x", **second), Update("y")).messages] == ["xy"]


def test_the_role_is_the_assistants_unless_somebody_says_otherwise():
    assert fold(Update("x")).messages[0].role is ASSISTANT
    assert fold(Update("x"), Update(role=Role.TOOL)).messages[0].role is Role.TOOL


def test_updates_that_carry_only_facts_make_no_message():
    response = fold(Update(model="m"), Update(usage=Usage(input_tokens=1)))
    assert response.messages == ()


def test_no_updates_are_an_empty_response():
    assert fold() == ChatResponse()


# Rule 2: which value a message takes.


def test_a_message_takes_id_and_author_when_they_come():
    response = fold(Update("x"), Update(author_name="w"), Update("y", message_id="m"))
    assert response.messages == (ChatMessage(ASSISTANT, "xy", author_name="w", message_id="m"),)


def test_the_first_valid_creation_time_wins():
    """Some servers send zero, which is the epoch."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    later = NOON.replace(hour=13)
    updates = [Update(created_at=each) for each in (None, epoch, NOON, later)]
    assert fold(*updates).created_at == NOON


# Rule 3: usage, and the first decision.


def test_usage_goes_to_the_response_and_nowhere_else():
    response = fold(Update("x", usage=Usage(input_tokens=3, output_tokens=4)))
    assert response.usage == Usage(input_tokens=3, output_tokens=4)
    assert response.messages[0].contents == (TextContent("x"),)


def test_absent_usage_stays_absent():
    assert fold(Update("x")).usage is None


def test_cumulative_usage_replaces_what_was_said_before():
    """A provider that reports on each update is not counted several times over."""
    response = fold(
        Update(response_id="r", usage=Usage(input_tokens=10, output_tokens=1)),
        Update(response_id="r", usage=Usage(output_tokens=5)),
        Update(usage=Usage(output_tokens=7, reasoning_output_tokens=2)),
    )
    assert response.usage == Usage(input_tokens=10, output_tokens=7, reasoning_output_tokens=2)


def test_usage_before_the_id_is_known_is_of_the_same_response():
    response = fold(
        Update(usage=Usage(input_tokens=10, output_tokens=1)),
        Update(response_id="r", usage=Usage(input_tokens=10, output_tokens=5)),
    )
    assert response.usage == Usage(input_tokens=10, output_tokens=5)


def test_usage_of_several_responses_adds_up():
    """A client that runs a loop of its own inside puts several responses into one stream."""
    response = fold(
        Update(response_id="a", usage=Usage(input_tokens=10, output_tokens=1)),
        Update(response_id="a", usage=Usage(output_tokens=2)),
        Update(response_id="b", usage=Usage(input_tokens=20, output_tokens=3)),
    )
    assert response.usage == Usage(input_tokens=30, output_tokens=5)


# Rule 4: facts of the response, and the second decision.


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("response_id", ("a", "b")),
        ("model", ("a", "b")),
        ("finish_reason", (FinishReason.LENGTH, "as the provider says")),
        ("conversation_id", ("a", "b")),
        ("continuation_token", ("a", "b")),
        ("rate_limit_headers", ({"retry-after": "1"}, {"retry-after": "2"})),
    ],
)
def test_the_last_fact_that_was_given_wins(name, values):
    """The continuation token is kept: a background answer can be fetched again."""
    updates = [Update("x", **{name: value}) for value in (None, *values, None)]
    assert getattr(fold(*updates), name) == values[-1]


def test_an_empty_response_id_is_none():
    assert fold(Update("x", response_id="r"), Update(response_id="")).response_id == "r"


# Rule 5: whatever else was said.


def test_properties_go_to_the_message_that_is_named_else_to_the_response():
    response = fold(
        Update("x", message_id="m", additional_properties={"a": 1, "b": 1}),
        Update(message_id="m", additional_properties={"b": 2}),
        Update(additional_properties={"c": 1}),
        Update(additional_properties={"c": 2, "d": 3}),
    )
    assert response.messages[0].additional_properties == {"a": 1, "b": 2}
    assert response.additional_properties == {"c": 2, "d": 3}


# Rule 6: what is joined.

PLAIN = DataContent(b"a", "text/csv", "t.csv")
IMAGE = DataContent(b"\x89", "image/png")
LINK = UriContent("https://example.com/a.png", "image/png")


@pytest.mark.parametrize(
    ("contents", "joined"),
    [
        pytest.param(["Hel", "lo"], ["Hello"], id="text"),
        pytest.param(["a", "", "b"], ["ab"], id="empty-text"),
        pytest.param(["a", IMAGE, "b"], ["a", IMAGE, "b"], id="text-around-an-image"),
        pytest.param(
            [RefusalContent("I "), RefusalContent("won't")],
            [RefusalContent("I won't")],
            id="refusal",
        ),
        pytest.param(
            [ReasoningContent("a"), ReasoningContent("b"), "c"],
            [ReasoningContent("ab"), "c"],
            id="reasoning",
        ),
        pytest.param(
            [ReasoningContent("a"), ReasoningContent("", "sig"), ReasoningContent("b")],
            [ReasoningContent("a", "sig"), ReasoningContent("b")],
            id="a-signature-closes-reasoning",
        ),
        pytest.param(
            [ReasoningContent("a", origin="x"), ReasoningContent("b", origin="y")],
            [ReasoningContent("a", origin="x"), ReasoningContent("b", origin="y")],
            id="reasoning-of-two-issuers",
        ),
        pytest.param(
            [ReasoningContent("a"), ReasoningContent("", "x", is_redacted=True)],
            [ReasoningContent("a"), ReasoningContent("", "x", is_redacted=True)],
            id="redacted-reasoning-stands-alone",
        ),
        pytest.param(
            [PLAIN, DataContent(b"b", "text/csv", "t.csv")],
            [DataContent(b"ab", "text/csv", "t.csv")],
            id="text-data",
        ),
        pytest.param(
            [PLAIN, DataContent(b"b", "text/csv", "u.csv")],
            [PLAIN, DataContent(b"b", "text/csv", "u.csv")],
            id="text-data-of-two-files",
        ),
        pytest.param([IMAGE, IMAGE], [IMAGE, IMAGE], id="images"),
        pytest.param([LINK, LINK], [LINK, LINK], id="links"),
    ],
)
def test_runs_of_one_kind_are_joined(contents, joined):
    assert contents_of(*contents) == ChatMessage(ASSISTANT, joined).contents


# Tool calls in fragments.


def test_fragments_of_a_call_are_joined_and_parsed_once():
    assert contents_of(
        ToolCallContent("c", "weather", {}, ""),
        ToolCallContent("c", "", {}, '{"city": '),
        ToolCallContent("c", "", {}, '"Oslo"}'),
    ) == (ToolCallContent("c", "weather", {"city": "Oslo"}, '{"city": "Oslo"}'),)


def test_parallel_calls_keep_the_place_of_their_first_fragment():
    assert contents_of(
        "Let me see. ",
        ToolCallContent("a", "f", {}, '{"x": '),
        ToolCallContent("b", "g", {}, "{"),
        "One ",
        ToolCallContent("a", "", {}, "1}"),
        "moment.",
        ToolCallContent("b", "", {}, "}"),
    ) == (
        TextContent("Let me see. "),
        ToolCallContent("a", "f", {"x": 1}, '{"x": 1}'),
        ToolCallContent("b", "g", {}, "{}"),
        TextContent("One moment."),
    )


def test_a_call_id_means_one_call_within_a_message_only():
    call = ToolCallContent("c", "f", {"x": 1})
    response = fold(Update(call, message_id="a"), Update(call, message_id="b"))
    assert [message.contents for message in response.messages] == [(call,), (call,)]


def test_a_whole_call_replaces_its_fragments():
    """Some providers send the call again when it is finished; the last word counts."""
    whole = ToolCallContent("c", "f", {"x": 1}, '{"x": 1}')
    final = ToolCallContent("c", "f", {"x": 2})
    assert contents_of(ToolCallContent("c", "f", {}, '{"x": '), whole) == (whole,)
    assert contents_of(whole, final) == (final,)


def test_extras_of_a_call_survive_the_join():
    """Without its thought signature, Gemini refuses the call in the next turn."""
    extras = {"thought_signature": "s"}
    assert contents_of(
        ToolCallContent("c", "f", {}, "{", extras), ToolCallContent("c", "", {}, "}")
    ) == (ToolCallContent("c", "f", {}, "{}", extras),)


@pytest.mark.parametrize("raw", ['{"x": ', '{"x": 1}'])
def test_nobody_runs_a_call_of_a_stream_that_broke(raw):
    """Text that happens to parse may still be the beginning of a longer one."""
    updates = [Update(ToolCallContent("c", "f", {}, raw))]
    (message,) = ChatResponse.from_updates(updates, is_complete=False).messages
    assert message.contents == (ToolCallContent("c", "f", {}, raw),)


def test_a_call_that_came_whole_can_be_run_whatever_broke_later():
    whole = ToolCallContent("c", "f", {"x": 1}, '{"x": 1}')
    response = ChatResponse.from_updates([Update(whole), Update("Th")], is_complete=False)
    assert response.messages[0].contents == (whole, TextContent("Th"))


# Rule 7: the updates stay as they are.


def test_folding_changes_no_update():
    """Inner and outer layers fold the same updates."""
    updates = [
        Update("Hel", role=ASSISTANT, additional_properties={"a": 1}),
        Update("lo", additional_properties={"a": 2}),
        Update(ToolCallContent("c", "f", {}, "{")),
        Update(ToolCallContent("c", "", {}, "}")),
    ]
    before = copy.deepcopy(updates)
    first = fold(*updates)
    assert updates == before
    assert fold(*updates) == first


# Rule 8: taking a response apart.


def test_a_response_comes_apart_into_its_messages_and_the_rest():
    response = ChatResponse(
        [ChatMessage(ASSISTANT, "a"), ChatMessage(Role.TOOL, "b")],
        response_id="r",
        model="m",
        usage=Usage(input_tokens=1),
        finish_reason=FinishReason.STOP,
    )
    updates = response.to_updates()
    assert [update.text for update in updates] == ["a", "b", ""]
    assert [update.finish_reason for update in updates] == [None, None, FinishReason.STOP]
    assert [update.usage for update in updates] == [None, None, Usage(input_tokens=1)]


def test_a_call_comes_apart_whole():
    """Never in fragments: each update can be used as it is."""
    call = ToolCallContent("c", "f", {"x": 1}, '{"x": 1}')
    assert ChatResponse([ChatMessage(ASSISTANT, call)]).to_updates()[0].contents == (call,)


WORD = st.none() | st.sampled_from(["a", "b"])
TEXT = st.sampled_from(["", "a", "Hello", '{"x": ', "1}"])
CONTENT = st.one_of(
    TEXT.map(TextContent),
    TEXT.map(RefusalContent),
    st.builds(ReasoningContent, TEXT, signature=WORD, origin=WORD, is_redacted=st.booleans()),
    st.builds(
        DataContent, TEXT.map(str.encode), st.sampled_from(["text/csv", "image/png"]), name=WORD
    ),
    st.builds(
        ToolCallContent,
        st.sampled_from(["c1", "c2"]),
        st.sampled_from(["", "f"]),
        st.sampled_from([{}, {"x": 1}]),
        raw_arguments=st.none() | TEXT,
        additional_properties=st.none() | st.just({"s": 1}),
    ),
)
PROPERTIES = st.none() | st.dictionaries(st.sampled_from("xyz"), st.integers(0, 3))
UPDATES = st.lists(
    st.builds(
        ChatResponseUpdate,
        st.lists(CONTENT, max_size=3),
        role=st.none() | st.sampled_from(Role),
        author_name=WORD,
        message_id=WORD,
        response_id=WORD,
        model=WORD,
        finish_reason=st.none() | st.sampled_from([FinishReason.STOP, "other"]),
        usage=st.none() | st.builds(Usage, input_tokens=st.none() | st.integers(0, 9)),
        created_at=st.none() | st.just(NOON),
        conversation_id=WORD,
        continuation_token=WORD,
        rate_limit_headers=st.none() | st.just({"retry-after": "1"}),
        additional_properties=PROPERTIES,
    ),
    max_size=8,
)


@given(UPDATES)
def test_what_was_folded_comes_apart_and_folds_again(updates):
    response = fold(*updates)
    assert fold(*response.to_updates()) == response


def test_what_no_update_can_tell_is_lost_when_a_response_comes_apart():
    """Two messages without ids look like one, and its properties like those of the response."""
    first = ChatMessage(ASSISTANT, "a", additional_properties={"x": 1})
    response = ChatResponse([first, ChatMessage(ASSISTANT, "b")])
    folded = fold(*response.to_updates())
    assert folded.messages == (ChatMessage(ASSISTANT, "ab"),)
    assert folded.additional_properties == {"x": 1}


@given(UPDATES, st.data())
def test_a_fold_of_a_fold_is_the_same_as_one_fold(updates, data):
    """Whoever folds a part of a stream and passes on the result loses no text and no call."""
    cut = data.draw(st.integers(0, len(updates)))
    in_two_steps = fold(*fold(*updates[:cut]).to_updates(), *updates[cut:])
    assert in_two_steps.text == fold(*updates).text
