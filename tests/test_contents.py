"""Contents: how they are written down by callers, and which of them a consumer would miss."""

import dataclasses

import pytest

from chatrouting import (
    DataContent,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCallContent,
    ToolResultContent,
    UriContent,
)
from chatrouting.contents import as_contents, content_is_output

IMAGE = DataContent(b"\x89PNG", "image/png")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param("Hi", (TextContent("Hi"),), id="text"),
        pytest.param("", (TextContent(""),), id="empty-text"),
        pytest.param(IMAGE, (IMAGE,), id="one"),
        pytest.param([], (), id="none"),
        pytest.param(["Look:", IMAGE], (TextContent("Look:"), IMAGE), id="mixed"),
        pytest.param((part for part in ["a", "b"]), (TextContent("a"), TextContent("b")), id="gen"),
    ],
)
def test_contents_are_a_tuple_however_they_are_given(given, expected):
    assert as_contents(given) == expected


@pytest.mark.parametrize("wrong", [None, 7, [None], ["a", {"type": "text"}], [b"raw"], b"raw"])
def test_anything_else_is_refused_by_its_type(wrong):
    with pytest.raises(TypeError, match="a message holds text or content, not "):
        as_contents(wrong)


def test_bytes_are_refused_as_bytes():
    with pytest.raises(TypeError, match="not bytes"):
        as_contents(b"raw")


def test_a_call_without_arguments_has_an_empty_mapping_of_them():
    with pytest.raises(TypeError, match="arguments is None"):
        ToolCallContent("1", "f", None)


@pytest.mark.parametrize(
    "content",
    [
        TextContent("a"),
        ReasoningContent("hm"),
        RefusalContent("no"),
        RefusalContent(""),
        IMAGE,
        UriContent("https://example.com/a.png", "image/png"),
        ToolResultContent("c", ""),
        ToolCallContent("c", "f", {}, '{"'),
        ToolCallContent("c", "f", {}),
        ToolCallContent("c", "f", {"a": 1}, ""),
    ],
    ids=repr,
)
def test_output_is_what_a_consumer_would_miss(content):
    assert content_is_output(content)


@pytest.mark.parametrize(
    "content",
    [
        TextContent(""),
        ReasoningContent(""),
        ReasoningContent("", "signature"),
        ToolCallContent("c", "f", {}, ""),
    ],
    ids=repr,
)
def test_empty_text_and_the_mere_name_of_a_tool_are_no_output(content):
    """Another provider may still answer instead."""
    assert not content_is_output(content)


def test_a_tool_result_takes_text_or_contents():
    assert ToolResultContent("c", "21 °C").text == "21 °C"
    seen = ToolResultContent("c", ["It shows ", IMAGE, "a cat"])
    assert seen.result == (TextContent("It shows "), IMAGE, TextContent("a cat"))
    assert seen.text == "It shows a cat"


def test_contents_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TextContent("a").text = "b"
