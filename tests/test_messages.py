"""Messages in all the forms in which callers write them."""

import base64
import pickle
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting import (
    ChatMessage,
    DataContent,
    ReasoningContent,
    RefusalContent,
    Role,
    TextContent,
    ToolCallContent,
    ToolResultContent,
    UriContent,
    as_messages,
)
from chatrouting.messages import parse_arguments

PNG = b"\x89PNG"
PNG_TEXT = base64.b64encode(PNG).decode()
USER = ChatMessage(Role.USER, "Hi")


def test_a_message_joins_its_texts_and_nothing_else():
    message = ChatMessage("user", ["Look: ", DataContent(PNG, "image/png"), "a cat"])
    assert message.role is Role.USER
    assert message.text == "Look: a cat"


def test_a_message_survives_a_pickle():
    message = ChatMessage(Role.TOOL, ToolResultContent("c", "21"), author_name="w", message_id="m")
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301  # our own bytes


# Forms of a conversation.


@pytest.mark.parametrize(
    "given",
    [
        pytest.param("Hi", id="text"),
        pytest.param(USER, id="message"),
        pytest.param({"role": "user", "content": "Hi"}, id="mapping"),
        pytest.param(["Hi"], id="texts"),
        pytest.param([USER], id="list"),
        pytest.param((USER,), id="tuple"),
        pytest.param([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], id="parts"),
        pytest.param(iter([USER]), id="iterator"),
    ],
)
def test_a_conversation_may_be_written_in_any_form(given):
    assert as_messages(given) == (USER,)


def test_messages_that_were_read_are_taken_as_they_are():
    """No copy, and no look at each of them, on the way through nested routers."""
    messages = as_messages((USER, USER))
    assert as_messages(messages) is messages


def test_an_iterable_is_read_once():
    reads = []

    def conversation() -> Iterator[str]:
        reads.append("read")
        yield "Hi"

    assert as_messages(conversation()) == (USER,)
    assert reads == ["read"]


def test_an_empty_conversation_stays_empty():
    assert as_messages([]) == ()


@pytest.mark.parametrize("wrong", [None, 7, [None], ["Hi", 7], b"Hi", [["Hi"]]])
def test_anything_else_is_refused_with_what_was_expected(wrong):
    with pytest.raises(TypeError, match="expected text, a ChatMessage, a mapping with 'role'"):
        as_messages(wrong)


def test_bytes_are_refused_as_bytes():
    with pytest.raises(TypeError, match="messages are bytes"):
        as_messages(b"Hi")


# Mappings as the SDKs spell them.

OPENAI_CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
}
OUR_CALL = ToolCallContent("c1", "weather", {"city": "Oslo"}, '{"city": "Oslo"}')

MAPPINGS = [
    ({"role": "developer", "content": "Be kind"}, ChatMessage("system", "Be kind")),
    (
        {"role": "user", "content": "Hi", "name": "Ann"},
        ChatMessage("user", "Hi", author_name="Ann"),
    ),
    ({"role": "assistant", "content": None}, ChatMessage("assistant", [])),
    (
        {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
        ChatMessage("assistant", [OUR_CALL]),
    ),
    (
        {"role": "assistant", "content": "Let me see.", "tool_calls": [OPENAI_CALL]},
        ChatMessage("assistant", ["Let me see.", OUR_CALL]),
    ),
    (
        {"role": "assistant", "content": "", "refusal": "I will not."},
        ChatMessage("assistant", ["", RefusalContent("I will not.")]),
    ),
    (
        {"role": "tool", "tool_call_id": "c1", "content": "21"},
        ChatMessage("tool", ToolResultContent("c1", "21")),
    ),
    (
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": [{"type": "text", "text": "2"}, {"type": "text", "text": "1"}],
        },
        ChatMessage("tool", ToolResultContent("c1", (TextContent("2"), TextContent("1")))),
    ),
    (
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
            ],
        },
        ChatMessage(
            "assistant",
            [
                ReasoningContent("Hm.", "s"),
                ReasoningContent("", "xyz", is_redacted=True),
                ToolCallContent("c1", "weather", {"city": "Oslo"}),
            ],
        ),
    ),
    (
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "21"}],
        },
        ChatMessage("tool", ToolResultContent("c1", "21")),
    ),
    (
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "is_error": True,
                    "content": [{"type": "text", "text": "down"}],
                },
                {"type": "text", "text": "Well?"},
            ],
        },
        ChatMessage("user", [ToolResultContent("c1", (TextContent("down"),), True), "Well?"]),
    ),
]


@pytest.mark.parametrize(("mapping", "message"), MAPPINGS)
def test_a_mapping_means_what_it_means_to_its_sdk(mapping, message):
    assert as_messages(mapping) == (message,)


PARTS = [
    ({"type": "input_text", "text": "a"}, TextContent("a")),
    ({"type": "output_text", "text": "a"}, TextContent("a")),
    ({"type": "refusal", "refusal": "no"}, RefusalContent("no")),
    (
        {"type": "image_url", "image_url": {"url": "https://e.com/a.png"}},
        UriContent("https://e.com/a.png", "image/*"),
    ),
    (
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG_TEXT}"}},
        DataContent(PNG, "image/png"),
    ),
    (
        {"type": "input_image", "image_url": f"data:;base64,{PNG_TEXT}"},
        DataContent(PNG, "image/*"),
    ),
    (
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PNG_TEXT},
        },
        DataContent(PNG, "image/png"),
    ),
    (
        {"type": "image", "source": {"type": "url", "url": "https://e.com/a"}},
        UriContent("https://e.com/a", "image/*"),
    ),
    (
        {"type": "document", "title": "a.pdf", "source": {"type": "base64", "data": PNG_TEXT}},
        DataContent(PNG, "application/pdf", "a.pdf"),
    ),
    (
        {
            "type": "file",
            "file": {"file_data": f"data:text/csv;base64,{PNG_TEXT}", "filename": "a.csv"},
        },
        DataContent(PNG, "text/csv", "a.csv"),
    ),
    (
        {"type": "input_file", "file_data": "https://e.com/a.pdf"},
        UriContent("https://e.com/a.pdf", "application/pdf"),
    ),
    (
        {"type": "input_audio", "input_audio": {"data": PNG_TEXT, "format": "wav"}},
        DataContent(PNG, "audio/wav"),
    ),
]


@pytest.mark.parametrize(("part", "content"), PARTS)
def test_a_part_means_what_it_means_to_its_sdk(part, content):
    assert as_messages({"role": "user", "content": [part]})[0].contents == (content,)


def test_contents_and_text_may_stand_among_parts():
    image = DataContent(PNG, "image/png")
    messages = as_messages({"role": "user", "content": ["Look", image]})
    assert messages[0].contents == (TextContent("Look"), image)


@pytest.mark.parametrize(
    ("mapping", "complaint"),
    [
        ({"content": "Hi"}, r"needs 'role'; got the keys \['content'\]"),
        ({"role": "robot", "content": "Hi"}, "role 'robot' is not known; use one of system"),
        ({"role": "user", "content": [{"type": "video"}]}, "part of type 'video' is not known"),
        ({"role": "user", "content": [{"text": "Hi"}]}, "part of type 'None' is not known"),
        ({"role": "user", "content": [{"type": "text"}]}, "part of type 'text' lacks 'text'"),
        (
            {"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]},
            "source of type 'file' is not known",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "data:text/plain,a"}]},
            "a data URL must be base64-encoded",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "data:;base64,%"}]},
            "is not base64",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "c1", "type": "custom"}]},
            "tool call lacks 'function'",
        ),
    ],
)
def test_a_mapping_that_cannot_be_read_says_what_is_wrong(mapping, complaint):
    with pytest.raises(ValueError, match=complaint):
        as_messages(mapping)


@pytest.mark.parametrize("content", [7, {"type": "text", "text": "Hi"}])
def test_the_content_of_a_mapping_is_text_or_parts(content):
    with pytest.raises(TypeError, match="expected text, None or a list of parts"):
        as_messages({"role": "user", "content": content})


# Arguments of tool calls.


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ('{"a": ', {}),
        ("[1]", {}),
        ("null", {}),
        ("[" * 99999, {}),
    ],
    ids=lambda value: str(value)[:9],
)
def test_arguments_are_a_json_object_or_nothing(raw, arguments):
    """Models write anything; whoever runs a tool compares with `raw_arguments`."""
    assert parse_arguments(raw) == arguments


@given(st.text())
def test_parsing_arguments_never_raises(raw):
    assert isinstance(parse_arguments(raw), dict)
