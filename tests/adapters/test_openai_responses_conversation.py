"""Messages as input items of the Responses API."""

import base64

import pytest

from chatrouting.adapters._openai_responses.conversation import input_items
from chatrouting.contents import (
    DataContent,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCallContent,
    ToolResultContent,
    UriContent,
)
from chatrouting.errors import UnsupportedOptionError
from chatrouting.failure import FailureKind
from chatrouting.messages import ChatMessage, as_messages

HERE = "openai https://api.openai.com/v1 gpt-x"


def items(*messages, **settings):
    return input_items(as_messages(messages), origin=HERE, **settings)


def said(role, *parts, **more):
    return {"type": "message", "role": role, "content": list(parts), **more}


def assistant(*contents, **facts):
    return ChatMessage("assistant", contents, **facts)


PIXEL = b"\x89PNG"
PIXEL_URL = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
CALL = ToolCallContent("call_1", "look", {"at": "sky"}, '{"at": "sky"}')
CALL_ITEM = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"at": "sky"}',
}
BLUE = {"type": "function_call_output", "call_id": "call_1", "output": "blue"}


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (TextContent("Hi"), {"type": "input_text", "text": "Hi"}),
        (RefusalContent("No."), {"type": "input_text", "text": "No."}),
        (
            UriContent("https://example.test/a.png", "image/*"),
            {
                "type": "input_image",
                "image_url": "https://example.test/a.png",
                "detail": "auto",
            },
        ),
        (
            DataContent(PIXEL, "image/png"),
            {"type": "input_image", "image_url": PIXEL_URL, "detail": "auto"},
        ),
        (
            UriContent("https://example.test/a.pdf", "application/pdf"),
            {"type": "input_file", "file_url": "https://example.test/a.pdf"},
        ),
        (
            DataContent(b"%PDF", "application/pdf", "a.pdf"),
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": "data:application/pdf;base64,JVBERg==",
            },
        ),
        (
            DataContent(b"%PDF", "application/pdf"),
            {
                "type": "input_file",
                "filename": "file.pdf",
                "file_data": "data:application/pdf;base64,JVBERg==",
            },
        ),
        (
            UriContent("data:text/csv;base64,YQ==", "text/csv"),
            {
                "type": "input_file",
                "filename": "file.csv",
                "file_data": "data:text/csv;base64,YQ==",
            },
        ),
    ],
    ids=["text", "refusal", "image-url", "image", "file-url", "file", "unnamed", "data-url"],
)
def test_user_content_is_mapped(content, part):
    assert items(ChatMessage("user", content)) == [said("user", part)]


@pytest.mark.parametrize(
    "message",
    [
        ChatMessage("user", DataContent(b"RIFF", "audio/wav")),
        ChatMessage("user", UriContent("https://example.test/a.mp4", "video/mp4")),
        ChatMessage("tool", ToolResultContent("call_1", (DataContent(b"", "audio/wav"),))),
        ChatMessage("tool", ToolResultContent("call_1", (CALL,))),
        assistant(DataContent(PIXEL, "image/png")),
    ],
    ids=["audio", "video", "audio-from-tool", "call-in-result", "image-of-assistant"],
)
def test_content_that_cannot_be_carried_is_refused(message):
    with pytest.raises(UnsupportedOptionError) as caught:
        items(message)

    assert caught.value.kind is FailureKind.UNSUPPORTED


def test_system_messages_stay_at_their_place():
    conversation = items(
        {"role": "system", "content": "Be brief."},
        "Hi",
        {"role": "developer", "content": "Now be long."},
    )

    assert [item["role"] for item in conversation] == ["system", "user", "system"]
    assert conversation[2]["content"] == [{"type": "input_text", "text": "Now be long."}]


def test_assistant_contents_become_items_in_their_order():
    """A tool call, its result, and what was said around them."""
    conversation = items(
        assistant(TextContent("Let me "), TextContent("look."), CALL, RefusalContent("No more.")),
        ChatMessage("tool", ToolResultContent("call_1", "blue")),
    )

    assert conversation == [
        said(
            "assistant",
            {"type": "output_text", "text": "Let me "},
            {"type": "output_text", "text": "look."},
        ),
        CALL_ITEM,
        said("assistant", {"type": "refusal", "refusal": "No more."}),
        BLUE,
    ]


def test_the_phase_of_an_assistant_message_is_kept():
    message = assistant(TextContent("Hm."), additional_properties={"phase": "commentary", "x": 1})

    part = {"type": "output_text", "text": "Hm."}
    assert items(message) == [said("assistant", part, phase="commentary")]


def test_ids_of_items_are_not_sent():
    message = assistant(TextContent("Hm."), message_id="msg_1")

    assert "id" not in items(message)[0]


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (ToolCallContent("a", "f", {"x": 1}, '{ "x": 1 }'), '{ "x": 1 }'),
        (ToolCallContent("a", "f", {"x": 1}), '{"x": 1}'),
        (ToolCallContent("a", "f", {"x": 2}, '{"x": 1}'), '{"x": 2}'),
        (ToolCallContent("a", "f", {}, '{"x": '), "{}"),
        (ToolCallContent("a", "f", {}, ""), "{}"),
        (ToolCallContent("a", "f", {"x": "é"}), '{"x": "é"}'),
    ],
    ids=["own-words", "parsed-only", "edited", "cut", "blank", "unicode"],
)
def test_arguments_are_always_the_text_of_an_object(call, arguments):
    assert items(assistant(call))[0]["arguments"] == arguments


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (ToolResultContent("call_1", "blue"), "blue"),
        (ToolResultContent("call_1", ""), ""),
        (ToolResultContent("call_1", "no sky", is_error=True), "Error: no sky"),
        (
            ToolResultContent("call_1", (TextContent("blue"), DataContent(PIXEL, "image/png"))),
            [
                {"type": "input_text", "text": "blue"},
                {"type": "input_image", "image_url": PIXEL_URL, "detail": "auto"},
            ],
        ),
        (
            ToolResultContent("call_1", (TextContent("no sky"),), is_error=True),
            [
                {"type": "input_text", "text": "Error:"},
                {"type": "input_text", "text": "no sky"},
            ],
        ),
        (ToolResultContent("call_1", (TextContent(" "), ReasoningContent("hm"))), ""),
    ],
    ids=["text", "empty", "error", "image", "error-parts", "nothing-left"],
)
def test_tool_results_are_mapped(result, output):
    assert items(assistant(CALL), ChatMessage("tool", result))[1]["output"] == output


def test_call_and_result_get_the_same_legal_id():
    """[BR-84]."""
    long = "x" * 65
    conversation = items(
        assistant(ToolCallContent(long, "f", {})),
        ChatMessage("tool", ToolResultContent(long, "done")),
    )

    assert conversation[0]["call_id"] == conversation[1]["call_id"]
    assert len(conversation[0]["call_id"]) <= 64


def test_an_unanswered_call_gets_an_output_before_the_next_message():
    """The API refuses a call without output, wherever the conversation was cut."""
    other = ToolCallContent("call_2", "look", {})
    conversation = items(
        assistant(CALL, other),
        ChatMessage("tool", ToolResultContent("call_1", "blue")),
        "And now?",
        assistant(ToolCallContent("call_3", "look", {})),
    )

    shape = [(item["type"], item.get("call_id")) for item in conversation]
    assert shape == [
        ("function_call", "call_1"),
        ("function_call", "call_2"),
        ("function_call_output", "call_1"),
        ("function_call_output", "call_2"),
        ("message", None),
        ("function_call", "call_3"),
        ("function_call_output", "call_3"),
    ]
    assert conversation[3]["output"] == "Error: the call was not carried out."


def test_a_result_without_its_call_becomes_text():
    """The beginning of a conversation may have been left out."""
    result = ChatMessage("tool", ToolResultContent("call_0", "blue"))

    label = {"type": "input_text", "text": "Result of an earlier tool call:"}
    assert items(result, "Go on.") == [
        said("user", label, {"type": "input_text", "text": "blue"}),
        said("user", {"type": "input_text", "text": "Go on."}),
    ]


def test_a_result_may_answer_a_call_that_the_provider_holds():
    result = ChatMessage("tool", ToolResultContent("call_1", "blue"))

    assert items(result, is_continued=True) == [BLUE]


def test_blank_texts_and_what_they_leave_empty_are_left_out():
    """[BR-86]."""
    conversation = items(
        ChatMessage("user", "  \n"),
        assistant(TextContent(""), CALL),
        ChatMessage("tool", ToolResultContent("call_1", "blue")),
        assistant(RefusalContent(" ")),
        ChatMessage("system", ""),
    )

    assert conversation == [CALL_ITEM, BLUE]


def test_text_beside_tool_results_is_said_by_the_user():
    conversation = items(
        assistant(CALL),
        ChatMessage("tool", (ToolResultContent("call_1", "blue"), TextContent("Go on."))),
    )

    assert conversation[2] == said("user", {"type": "input_text", "text": "Go on."})


OWN = ReasoningContent("Sky is blue.", "sealed", HERE)
OWN_ITEM = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Sky is blue."}],
    "encrypted_content": "sealed",
}
ANSWER = TextContent("Blue.")
ANSWER_ITEM = said("assistant", {"type": "output_text", "text": "Blue."})


def test_reasoning_goes_back_to_its_issuer():
    """[BR-81]."""
    hidden = ReasoningContent("", "more", HERE, is_redacted=True)
    conversation = items(assistant(OWN, hidden, ANSWER))

    hidden_item = {"type": "reasoning", "summary": [], "encrypted_content": "more"}
    assert conversation == [OWN_ITEM, hidden_item, ANSWER_ITEM]


@pytest.mark.parametrize(
    "reasoning",
    [
        ReasoningContent("Sky is blue.", "sealed", "openai https://elsewhere.test/v1 gpt-x"),
        ReasoningContent("Sky is blue.", "sealed"),
        ReasoningContent("Sky is blue.", None, HERE),
    ],
    ids=["foreign", "unknown-issuer", "unsealed"],
)
def test_other_reasoning_is_dropped_and_never_becomes_text(reasoning):
    """[BR-81]."""
    assert items(assistant(reasoning, ANSWER)) == [ANSWER_ITEM]


def test_reasoning_is_kept_before_a_tool_call():
    conversation = items(
        assistant(OWN, CALL), ChatMessage("tool", ToolResultContent("call_1", "blue"))
    )

    assert conversation == [OWN_ITEM, CALL_ITEM, BLUE]


@pytest.mark.parametrize(
    "rest", [[], ["Go on."], [assistant(TextContent(" "))]], ids=["end", "user", "blank-answer"]
)
def test_reasoning_that_led_to_nothing_is_dropped(rest):
    """The API refuses a reasoning item that its answer does not follow."""
    assert not any(item["type"] == "reasoning" for item in items("Hi", assistant(OWN), *rest))


def test_the_callers_values_are_not_changed():
    arguments = {"at": "sky"}
    message = assistant(ToolCallContent("call_1", "look", arguments))

    items(message)[0]["call_id"] = "changed"

    assert message == assistant(ToolCallContent("call_1", "look", {"at": "sky"}))
    assert arguments == {"at": "sky"}
