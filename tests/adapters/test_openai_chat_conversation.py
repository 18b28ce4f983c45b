"""Messages as Chat Completions wants them: tables of what goes in and what is sent."""

import json
from dataclasses import replace

import pytest

from chatrouting.adapters import dialects
from chatrouting.adapters._openai_chat.conversation import chat_messages
from chatrouting.contents import (
    DataContent,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCallContent,
    ToolResultContent,
    UriContent,
)
from chatrouting.errors import BadRequestError, UnsupportedOptionError
from chatrouting.messages import ChatMessage

OPENAI = dialects.OPENAI


def message(role, *contents, **facts):
    return ChatMessage(role, contents, **facts)


def write(*messages, dialect=OPENAI, **facts):
    return chat_messages(messages, dialect, **facts)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        pytest.param(
            message("user", "Hi"), {"role": "user", "content": "Hi"}, id="one text is text"
        ),
        pytest.param(
            message("user", "a", "b"),
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            id="two texts are parts",
        ),
        pytest.param(
            message("system", "Be brief"), {"role": "system", "content": "Be brief"}, id="system"
        ),
        pytest.param(
            message("user", "Hi", author_name="ann_1"),
            {"role": "user", "content": "Hi", "name": "ann_1"},
            id="name",
        ),
        pytest.param(
            message("user", "Hi", author_name="Ann Other"),
            {"role": "user", "content": "Hi"},
            id="a name outside the pattern is left out",
        ),
        pytest.param(
            message("user", UriContent("https://x/y.png", "image/*")),
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}],
            },
            id="image URL",
        ),
        pytest.param(
            message("user", DataContent(b"abc", "image/png")),
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}}
                ],
            },
            id="image bytes",
        ),
        pytest.param(
            message("user", DataContent(b"abc", "audio/mpeg")),
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "mp3"}}
                ],
            },
            id="audio",
        ),
        pytest.param(
            message("user", DataContent(b"abc", "application/pdf", "a.pdf")),
            {
                "role": "user",
                "content": [
                    {
                        "type": "file",
                        "file": {
                            "filename": "a.pdf",
                            "file_data": "data:application/pdf;base64,YWJj",
                        },
                    }
                ],
            },
            id="file",
        ),
        pytest.param(
            message("user", DataContent(b"abc", "text/plain")),
            {"role": "user", "content": "abc"},
            id="a text file is text",
        ),
        pytest.param(
            message("assistant", "a", ReasoningContent("hm", origin="openai"), "b"),
            {"role": "assistant", "content": "ab"},
            id="assistant text is joined, reasoning stays here",
        ),
        pytest.param(
            message("assistant", RefusalContent("No.")),
            {"role": "assistant", "content": None, "refusal": "No."},
            id="refusal",
        ),
    ],
)
def test_each_content_has_its_place(given, sent):
    """The outbound column of the message table for Chat Completions."""
    assert write(given) == [sent]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (message("user", DataContent(b"x", "video/mp4")), "video/mp4"),
        (message("user", DataContent(b"x", "audio/flac")), "audio/flac"),
        (message("user", UriContent("https://x/y.pdf", "application/pdf")), "application/pdf"),
        (message("assistant", DataContent(b"x", "image/png")), "DataContent"),
        (message("user", ToolCallContent("c", "f", {})), "ToolCallContent"),
    ],
)
def test_a_content_that_cannot_be_carried_is_refused_here(given, words):
    """Audio, video and files by URL are the capability filter's business, not a 400's."""
    with pytest.raises(UnsupportedOptionError, match=words):
        write(given)


def test_instructions_stand_before_the_systems_of_the_conversation():
    sent = write(message("system", "B"), message("user", "Hi"), instructions="A")
    assert [item["content"] for item in sent] == ["A", "B", "Hi"]
    assert [item["role"] for item in sent] == ["system", "system", "user"]


def test_blanks_are_left_out_and_the_order_stays():
    """[BR-86] Blank texts go, a message of which nothing is left goes, the rest keeps its order."""
    sent = write(
        message("user", "   "),
        message("user", "a", "  ", "b"),
        message("assistant", "", ToolCallContent("c", "f", {})),
        message("tool", ToolResultContent("c", "r")),
        message("assistant", " \n"),
        message("user", "end"),
        instructions="  ",
    )
    assert [item["role"] for item in sent] == ["user", "assistant", "tool", "user"]
    assert sent[1]["content"] is None


def test_a_conversation_of_blanks_is_refused_here():
    """[BR-86] A clear local error instead of the provider's 400."""
    with pytest.raises(BadRequestError, match="no message holds anything"):
        write(message("user", "  "), message("assistant", ""))


def test_a_trailing_space_of_a_partial_answer_is_sent_as_it_is():
    """[BR-87] This API takes it, so what is continued joins without a second or a lost space."""
    sent = write(message("user", "Say it"), message("assistant", "Hello "))
    assert sent[-1] == {"role": "assistant", "content": "Hello "}


CALL = ToolCallContent("call-1", "f", {"x": 1}, '{"x": 1}')


def test_calls_and_results_go_out_in_step():
    sent = write(
        message("assistant", "Let me see.", CALL, ToolCallContent("call-2", "g", {"y": "ü"})),
        message("tool", ToolResultContent("call-2", "two", is_error=True)),
        message("tool", ToolResultContent("call-1", "one")),
        message("user", "Go on"),
    )
    assert sent == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {
                    "id": "call-1",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"x": 1}'},
                },
                {
                    "id": "call-2",
                    "type": "function",
                    "function": {"name": "g", "arguments": '{"y": "ü"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call-2", "content": "Error: two"},
        {"role": "tool", "tool_call_id": "call-1", "content": "one"},
        {"role": "user", "content": "Go on"},
    ]


def test_raw_arguments_that_do_not_say_the_same_are_replaced():
    cut = ToolCallContent("c", "f", {}, '{"x": 1')
    sent = write(message("assistant", cut))
    assert sent[0]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_call_without_a_result_gets_one_that_says_so():
    sent = write(message("assistant", CALL), message("user", "Never mind"))
    assert sent[1] == {
        "role": "tool",
        "tool_call_id": "call-1",
        "content": "Error: the call was not carried out.",
    }
    assert sent[2] == {"role": "user", "content": "Never mind"}


def test_a_result_behind_something_else_moves_behind_its_call():
    """Every call is answered before the next message that is no result."""
    sent = write(
        message("assistant", CALL),
        message("user", "Hurry"),
        message("user", ToolResultContent("call-1", "late"), "and this"),
    )
    assert [item["role"] for item in sent] == ["assistant", "tool", "user", "user"]
    assert [item["content"] for item in sent] == [None, "late", "Hurry", "and this"]


def test_a_result_without_its_call_becomes_text():
    sent = write(
        message("tool", ToolResultContent("gone", "42")),
        message("assistant", CALL),
        message("tool", ToolResultContent("call-1", "1"), ToolResultContent("call-1", " ")),
    )
    label = {"type": "text", "text": "Result of an earlier tool call:"}
    assert sent[0] == {"role": "user", "content": [label, {"type": "text", "text": "42"}]}
    assert sent[3] == {"role": "user", "content": label["text"]}


def test_an_image_of_a_result_follows_the_results_in_a_user_message():
    """A tool message holds text only: a placeholder there, the image behind all results."""
    image = DataContent(b"abc", "image/png")
    sent = write(
        message("assistant", CALL, ToolCallContent("call-2", "g", {})),
        message("tool", ToolResultContent("call-1", (TextContent("see "), image))),
        message("tool", ToolResultContent("call-2", (ReasoningContent("hm"),))),
    )
    assert [item["role"] for item in sent] == ["assistant", "tool", "tool", "user"]
    assert sent[1]["content"] == "see [image/png, see the next message]"
    assert sent[2]["content"] == ""
    assert sent[3]["content"] == [
        {"type": "text", "text": "Content of the result of call-1:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}},
    ]


def ids(sent):
    calls = [call["id"] for item in sent for call in item.get("tool_calls", ())]
    results = [item["tool_call_id"] for item in sent if item["role"] == "tool"]
    return calls, results


@pytest.mark.parametrize(
    ("dialect", "is_legal"),
    [
        pytest.param(OPENAI, lambda one: 0 < len(one) <= 40, id="openai"),
        pytest.param(dialects.MISTRAL, lambda one: len(one) == 9 and one.isalnum(), id="mistral"),
    ],
)
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(("toolu_01ABCDEFG_1", "toolu_01ABCDEFG_2"), id="same beginning"),
        pytest.param(("c" * 100, "c" * 99 + "d"), id="long"),
        pytest.param(("", ""), id="empty"),
        pytest.param(("same", "same"), id="repeated"),
        pytest.param(("a-b.c/d", "a_b+c=d"), id="alphabet"),
    ],
)
def test_ids_are_mapped_in_step_for_call_and_result(dialect, is_legal, given):
    """[BR-84] Legal, distinct, the same in every run; the caller's own stay as they are."""
    first, second = (ToolCallContent(one, "f", {}) for one in given)
    messages = (
        message("user", "Hi"),
        message("assistant", first, second),
        message("tool", ToolResultContent(given[0], "1")),
        message("tool", ToolResultContent(given[1], "2")),
    )
    sent = chat_messages(messages, dialect)
    calls, results = ids(sent)
    assert calls == results
    assert len(set(calls)) == 2
    assert all(map(is_legal, calls))
    assert [item["content"] for item in sent if item["role"] == "tool"] == ["1", "2"]
    assert chat_messages(messages, dialect) == sent
    assert (first.call_id, second.call_id) == given


def test_legal_ids_pass_unchanged():
    call = ToolCallContent("abcDEF123", "f", {})
    sent = write(message("assistant", call), dialect=dialects.MISTRAL)
    assert ids(sent)[0] == ["abcDEF123"]


def reasoned(*contents):
    return message(
        "assistant",
        ReasoningContent("mine", origin="deepseek"),
        ReasoningContent("foreign", "sig", origin="anthropic"),
        ReasoningContent("unknown"),
        *contents,
    )


@pytest.mark.parametrize(
    ("policy", "with_calls", "without_calls"),
    [("never", None, None), ("with_tools", "mine", None), ("always", "mine", "mine")],
)
def test_reasoning_goes_back_only_to_its_issuer(policy, with_calls, without_calls):
    """[BR-81] By dialect: never, with tool calls, always; foreign reasoning becomes no text."""
    dialect = replace(dialects.DEEPSEEK, replay_reasoning=policy)
    call, said = (
        write(reasoned("a", CALL), dialect=dialect)[0],
        write(reasoned("b"), dialect=dialect),
    )
    assert call.get("reasoning_content") == with_calls
    assert said[0].get("reasoning_content") == without_calls
    assert "foreign" not in json.dumps([call, *said])


def test_reasoning_of_another_issuer_leaves_no_field():
    sent = write(
        message("assistant", ReasoningContent("x", origin="anthropic"), "a"),
        dialect=dialects.OPENROUTER,
    )
    assert sent == [{"role": "assistant", "content": "a"}]


def test_reasoning_details_go_back_as_they_came():
    details = [{"type": "reasoning.encrypted", "data": "xyz", "index": 0}]
    given = message(
        "assistant",
        ReasoningContent("hm", json.dumps(details), "openrouter"),
        ReasoningContent("plain", origin="openrouter"),
        "a",
    )
    assert write(given, dialect=dialects.OPENROUTER)[0]["reasoning_details"] == [
        *details,
        {"type": "reasoning.text", "text": "plain"},
    ]


@pytest.mark.parametrize("signature", ["not JSON", "{}", "7"])
def test_reasoning_details_that_nobody_can_read_are_left_out(signature):
    given = message("assistant", ReasoningContent("hm", signature, "openrouter"), "a")
    assert write(given, dialect=dialects.OPENROUTER)[0].get("reasoning_details", []) == []


def test_extras_of_calls_go_back_where_they_are_wanted():
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    call = ToolCallContent("c", "f", {}, additional_properties=extra)
    wanted = write(message("assistant", call), dialect=dialects.GEMINI)[0]["tool_calls"][0]
    unwanted = write(message("assistant", call))[0]["tool_calls"][0]
    assert wanted["extra_content"] == extra["extra_content"]
    assert "extra_content" not in unwanted


def test_what_a_dialect_does_not_take_goes_another_way():
    given = message("assistant", "a", RefusalContent("b"), author_name="bot")
    assert write(given, dialect=dialects.MISTRAL) == [{"role": "assistant", "content": "ab"}]
    developer = replace(OPENAI, system_role="developer")
    sent = write(message("system", "B"), instructions="A", dialect=developer)
    assert [item["role"] for item in sent] == ["developer", "developer"]


def test_a_server_that_fetches_nothing_gets_bytes_only():
    url = message("user", UriContent("https://x/y.png", "image/png"))
    with pytest.raises(UnsupportedOptionError, match="ollama"):
        write(url, dialect=dialects.OLLAMA)
    inline = message("user", UriContent("data:image/png;base64,YWJj", "image/png"))
    assert write(inline, dialect=dialects.OLLAMA)[0]["content"][0]["type"] == "image_url"


def test_narrow_templates_get_one_system_text_and_alternating_roles():
    """System text in the middle goes into the user's turn, in its place; nothing is dropped."""
    sent = write(
        message("system", "A"),
        message("system", "B"),
        message("user", "1"),
        message("user", DataContent(b"abc", "image/png")),
        message("assistant", "2"),
        message("assistant", "3"),
        message("system", "C"),
        message("user", "4"),
        message("assistant", CALL),
        message("tool", ToolResultContent("call-1", "r")),
        message("assistant", "5"),
        dialect=replace(dialects.VLLM, supports_names=False),
    )
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}}
    assert [(item["role"], item["content"]) for item in sent] == [
        ("system", "A\n\nB"),
        ("user", [{"type": "text", "text": "1"}, image]),
        ("assistant", "2\n\n3"),
        ("user", "C\n\n4"),
        ("assistant", None),
        ("tool", "r"),
        ("assistant", "5"),
    ]


def test_a_message_before_calls_is_joined_to_them():
    sent = write(
        message("assistant", RefusalContent("x")),
        message("assistant", "Let me see."),
        message("assistant", CALL),
        dialect=replace(dialects.VLLM, supports_refusals=True),
    )
    assert [item["role"] for item in sent] == ["assistant", "tool"]
    assert sent[0]["content"] == "Let me see."
    assert sent[0]["refusal"] == "x"
    assert sent[0]["tool_calls"]


def test_the_callers_messages_stay_as_they_are():
    """[BR-76] What goes out is a copy; the same messages give the same text again."""
    given = (message("assistant", CALL), message("tool", ToolResultContent("call-1", "r")))
    before = repr(given)
    first = chat_messages(given, dialects.MISTRAL)
    first[0]["tool_calls"].clear()
    assert repr(given) == before
    assert chat_messages(given, dialects.MISTRAL)[0]["tool_calls"]
