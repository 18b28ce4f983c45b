"""How a conversation becomes turns of the Messages API."""

import base64
from copy import deepcopy
from typing import Any

import pytest

from chatrouting.adapters._anthropic.answer import Seam
from chatrouting.adapters._anthropic.conversation import (
    PLACEHOLDER,
    Conversation,
    conversation,
)
from chatrouting.adapters._anthropic.models import Target
from chatrouting.adapters._anthropic.raw import keep
from chatrouting.adapters._outbound import NOT_CARRIED_OUT, ORPHAN
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
from chatrouting.messages import ChatMessage, as_messages
from chatrouting.testing._rules import Subject, first_complaint
from chatrouting.testing._rules_messages import MESSAGES

TARGET = Target("anthropic", "claude-haiku-4-5", "https://api.anthropic.com")
OTHER = "openai https://api.openai.com/v1 gpt-x"


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def user(*contents) -> ChatMessage:
    return ChatMessage("user", contents)


def assistant(*contents) -> ChatMessage:
    return ChatMessage("assistant", contents)


def tool(*contents) -> ChatMessage:
    return ChatMessage("tool", contents)


def system(*contents) -> ChatMessage:
    return ChatMessage("system", contents)


def call(call_id="call_1", name="look", **arguments) -> ToolCallContent:
    return ToolCallContent(call_id, name, arguments)


def use(call_id="call_1", name="look", **arguments) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id="call_1", content="42", **more) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def not_answered(call_id="call_1") -> dict[str, Any]:
    return result(call_id, NOT_CARRIED_OUT, is_error=True)


def turns(*messages, target=TARGET) -> list[tuple[str, list[dict[str, Any]]]]:
    said = write(*messages, target=target)
    return [(turn["role"], turn["content"]) for turn in said.messages]


def write(*messages, target=TARGET) -> Conversation:
    """Write messages, and hold the outcome to the rules of the strict server."""
    said = conversation(as_messages(messages), target)
    body = {"model": target.model, "max_tokens": 1, "messages": said.messages}
    assert first_complaint(MESSAGES, Subject(body, issued={"sig": "hm"})) is None
    return said


# -- roles -----------------------------------------------------------------------------------------


def test_messages_of_one_role_in_a_row_are_one_turn():
    """[BR-85] Roles alternate."""
    assert turns(user("a"), user("b"), assistant("c"), assistant("d"), user("e")) == [
        ("user", [text("a"), text("b")]),
        ("assistant", [text("c"), text("d")]),
        ("user", [text("e")]),
    ]


def test_leading_system_messages_are_lifted_as_blocks():
    """[BR-85] System messages are lifted, in their order."""
    said = write(system("be kind"), system("be brief", " "), user("hi"))

    assert said.system == [text("be kind"), text("be brief")]
    assert said.messages == [{"role": "user", "content": [text("hi")]}]


def test_later_system_message_stays_at_its_place_in_a_user_turn():
    """[BR-85] Mid-history ones follow a stated rule: tagged text, never moved to the front."""
    tagged = text("<system>\nnow in French\n</system>")

    assert turns(user("hi"), assistant("hello"), system("now in French"), user("again")) == [
        ("user", [text("hi")]),
        ("assistant", [text("hello")]),
        ("user", [tagged, text("again")]),
    ]


def test_first_turn_is_the_users():
    assert turns(assistant("hello"), user("hi"))[0] == ("user", [text(PLACEHOLDER)])


def test_content_that_a_system_message_cannot_carry_is_refused():
    with pytest.raises(UnsupportedOptionError, match="DataContent in a system message"):
        write(system(DataContent(b"", "image/png")), user("hi"))


# -- blank texts -----------------------------------------------------------------------------------


def test_blank_text_beside_a_tool_call_is_left_out():
    """[BR-86] An assistant turn with a tool call and empty text."""
    assert turns(user("q"), assistant("", call(), " \n"), tool(ToolResultContent("call_1", "42")))[
        1
    ] == ("assistant", [use()])


@pytest.mark.parametrize("blank", ["", "  ", "\n\t"])
def test_blank_message_is_left_out(blank):
    """[BR-86] Nothing is reordered: what stands around it is joined."""
    assert turns(user("a"), assistant(blank), user("b")) == [("user", [text("a"), text("b")])]


def test_blank_last_user_message_does_not_become_a_prefill():
    """[BR-86] The documented placeholder."""
    assert turns(user("a"), assistant("b"), user("  "))[-1] == ("user", [text(PLACEHOLDER)])


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (user(""),),
        (user(" "), assistant("\n"), user("\t")),
        (system("be kind"),),
        (system("be kind"), user(ReasoningContent("hm"))),
    ],
    ids=["none", "empty", "blanks", "system", "reasoning"],
)
def test_history_without_anything_to_answer_is_a_clear_local_error(messages):
    """[BR-86] A whole history of blanks."""
    with pytest.raises(BadRequestError, match="no message holds anything"):
        conversation(messages, TARGET)


# -- tools -----------------------------------------------------------------------------------------


def test_parallel_results_come_first_and_in_one_turn():
    """[BR-85] Three parallel results, one with an image, then the user's text."""
    image = DataContent(b"png", "image/png")
    source = {"type": "base64", "media_type": "image/png", "data": "cG5n"}

    assert turns(
        user("q"),
        assistant(call("a"), call("b"), call("c")),
        tool(ToolResultContent("a", "1")),
        user("by the way"),
        tool(ToolResultContent("c", ["see", image])),
        tool(ToolResultContent("b", "2", is_error=True)),
        user("and?"),
    )[-1] == (
        "user",
        [
            result("a", "1"),
            result("b", "2", is_error=True),
            result("c", [text("see"), {"type": "image", "source": source}]),
            text("by the way"),
            text("and?"),
        ],
    )


def test_result_that_comes_late_moves_to_the_turn_after_its_call():
    assert turns(
        user("q"),
        assistant(call()),
        user("wait"),
        assistant("waiting"),
        tool(ToolResultContent("call_1", "42")),
        assistant("done"),
        user("thanks"),
    ) == [
        ("user", [text("q")]),
        ("assistant", [use()]),
        ("user", [result(), text("wait")]),
        ("assistant", [text("waiting"), text("done")]),
        ("user", [text("thanks")]),
    ]


def test_late_result_at_the_end_leaves_a_user_turn_behind():
    assert turns(
        user("q"),
        assistant(call()),
        user("wait"),
        assistant("waiting"),
        tool(ToolResultContent("call_1", "42")),
    )[-2:] == [("assistant", [text("waiting")]), ("user", [text(PLACEHOLDER)])]


def test_result_stands_between_two_assistant_messages():
    assert [
        role
        for role, _ in turns(
            user("q"),
            assistant(call()),
            tool(ToolResultContent("call_1", "42")),
            assistant("so"),
            user("?"),
        )
    ] == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("after", "last"),
    [
        ((), [not_answered()]),
        ((user("never mind"),), [not_answered(), text("never mind")]),
        ((tool(ToolResultContent("call_2", "x")),), None),
    ],
    ids=["at the end", "before text", "another's result"],
)
def test_unanswered_call_gets_an_error_as_its_result(after, last):
    written = turns(user("q"), assistant(call()), *after)

    assert written[2][1][0] == not_answered()
    assert last is None or written[2] == ("user", last)


def test_result_without_its_call_becomes_text():
    image = UriContent("https://example.com/a.png", "image/png")

    assert turns(
        tool(ToolResultContent("gone", "42")),
        tool(ToolResultContent("gone", [image])),
        tool(ToolResultContent("gone", "")),
    ) == [
        (
            "user",
            [
                text(f"{ORPHAN}\n42"),
                text(ORPHAN),
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            ],
        )
    ]


def test_second_result_of_a_call_is_left_out():
    assert turns(
        user("q"),
        assistant(call()),
        tool(ToolResultContent("call_1", "42"), ToolResultContent("call_1", "43")),
    )[-1] == ("user", [result()])


def test_blank_result_has_no_content():
    assert turns(user("q"), assistant(call()), tool(ToolResultContent("call_1", " ")))[-1] == (
        "user",
        [{"type": "tool_result", "tool_use_id": "call_1"}],
    )


@pytest.mark.parametrize(
    "call_id",
    ["call 1", "functions.look:0", "", "ä", "x" * 64 + "!"],
)
def test_illegal_call_id_is_mapped_in_step_for_call_and_result(call_id):
    """[BR-84] Deterministic, on the outgoing copy only."""
    messages = (user("q"), assistant(call(call_id)), tool(ToolResultContent(call_id, "42")))
    before = deepcopy(messages)

    first, again = turns(*messages), turns(*messages)

    assert first == again
    assert first[1][1][0]["id"] == first[2][1][0]["tool_use_id"] != call_id
    assert messages == before


def test_mapped_ids_do_not_collide():
    """[BR-84] Two calls whose ids share their first nine characters, and a repeated id."""
    written = turns(
        user("q"),
        assistant(call("call.0000.1"), call("call.0000.2")),
        tool(ToolResultContent("call.0000.1", "1"), ToolResultContent("call.0000.2", "2")),
        assistant(call("call.0000.1"), call("same")),
        tool(ToolResultContent("call.0000.1", "3"), ToolResultContent("same", "4")),
        assistant(call("same")),
        tool(ToolResultContent("same", "5")),
    )
    ids = [block["id"] for _, blocks in written for block in blocks if "id" in block]
    answers = [
        (block["tool_use_id"], block["content"])
        for _, blocks in written
        for block in blocks
        if block["type"] == "tool_result"
    ]

    assert len(set(ids)) == len(ids)
    assert answers == list(zip(ids, ["1", "2", "3", "4", "5"], strict=True))


@pytest.mark.parametrize(
    ("arguments", "raw", "sent"),
    [
        ({"a": 1}, '{"a": 1}', {"a": 1}),
        ({"a": 1}, None, {"a": 1}),
        ({}, None, {}),
        ({}, "", {}),
        ({}, " ", {}),
        ({}, "{}", {}),
        ({}, '{"a": 1}', {"a": 1}),
        ({}, '{"a": ', {"raw_arguments": '{"a": '}),
        ({}, "[1]", {"raw_arguments": "[1]"}),
    ],
)
def test_arguments_are_sent_as_an_object(arguments, raw, sent):
    said = turns(user("q"), assistant(ToolCallContent("call_1", "look", arguments, raw)))

    assert said[1][1][0]["input"] == sent


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (user(call()), "ToolCallContent in a user message"),
        (assistant(ToolResultContent("call_1", "42")), "ToolResultContent in an assistant message"),
        (assistant(DataContent(b"", "image/png")), "DataContent in an assistant message"),
    ],
)
def test_content_out_of_place_is_refused(message, what):
    with pytest.raises(UnsupportedOptionError, match=what):
        write(user("q"), message)


# -- reasoning -------------------------------------------------------------------------------------


def test_own_reasoning_is_replayed_byte_for_byte():
    """[BR-81] The issuer gets its blocks back, in their order."""
    origin = TARGET.origin
    messages = (
        user("q"),
        assistant(
            ReasoningContent(" hm\n", "sig", origin),
            ReasoningContent("", "opaque", origin, is_redacted=True),
            ReasoningContent("", "sig", origin),
            call(),
        ),
        tool(ToolResultContent("call_1", "42")),
    )

    said = conversation(messages, TARGET)

    assert said.messages[1]["content"] == [
        {"type": "thinking", "thinking": " hm\n", "signature": "sig"},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "thinking", "thinking": "", "signature": "sig"},
        use(),
    ]
    assert not said.thinking_is_cut


@pytest.mark.parametrize(
    "reasoning",
    [
        ReasoningContent("hm", "sig", OTHER),
        ReasoningContent("hm", "sig", None),
        ReasoningContent("hm", None, TARGET.origin),
        ReasoningContent("", "opaque", OTHER, is_redacted=True),
        ReasoningContent(
            "hm", "sig", Target("anthropic", "claude-opus-4-5", TARGET.endpoint).origin
        ),
    ],
    ids=["foreign", "unset", "unsigned", "foreign redacted", "another family"],
)
def test_other_reasoning_is_dropped_never_turned_into_text(reasoning):
    """[BR-81] Stripped on the request copy, also from the latest turn."""
    message = assistant(reasoning, "so", call())

    said = write(user("q"), message, tool(ToolResultContent("call_1", "42")))

    assert said.messages[1]["content"] == [text("so"), use()]
    assert said.thinking_is_cut
    assert message.contents[0] is reasoning


def test_reasoning_that_nothing_follows_is_left_out():
    origin = TARGET.origin

    assert turns(
        user("q"),
        assistant(ReasoningContent("hm", "sig", origin)),
        user("?"),
    ) == [("user", [text("q"), text("?")])]


def test_thinking_is_not_cut_outside_a_tool_loop():
    assert not write(user("q"), assistant("so"), user("?")).thinking_is_cut


# -- the end of a conversation ---------------------------------------------------------------------


def test_final_assistant_text_loses_its_trailing_white_space():
    """[BR-87] Trimmed on the copy only."""
    message = assistant("Once upon ", "a time \n")

    said = write(user("q"), message)

    assert said.messages[-1]["content"] == [text("Once upon "), text("a time")]
    assert said.trimmed == " \n"
    assert message.text == "Once upon a time \n"


def test_model_without_prefill_is_not_eligible():
    """[BR-87] A clear local error, by which a router tries another model."""
    with pytest.raises(UnsupportedOptionError, match="ends with the assistant"):
        write(user("q"), assistant("so"), target=Target("anthropic", "claude-sonnet-5", "h"))


@pytest.mark.parametrize(
    ("trimmed", "pieces", "joined"),
    [
        (" ", [" world"], "world"),
        (" ", ["world"], "world"),
        (" ", [" ", " ", "world"], " world"),
        ("", [" world"], " world"),
        ("\n\n", ["\n", "\n", "world"], "world"),
        (" \n", ["\nworld"], "world"),
        (" ", ["\n\nworld"], "\n\nworld"),
        ("  ", [" ", "world"], "world"),
        ("  ", [" "], ""),
        (" ", [""], ""),
    ],
)
def test_seam_gives_back_the_white_space_once(trimmed, pieces, joined):
    """[BR-87] The joined text has it exactly once, however the answer was cut into pieces."""
    seam = Seam(trimmed)

    assert "".join([*map(seam.take, pieces), seam.take("", is_last=True)]) == joined


# -- media -----------------------------------------------------------------------------------------


def source(data: bytes, media_type: str) -> dict[str, str]:
    encoded = base64.b64encode(data).decode()
    return {"type": "base64", "media_type": media_type, "data": encoded}


@pytest.mark.parametrize(
    ("content", "block"),
    [
        (DataContent(b"x", "image/PNG"), {"type": "image", "source": source(b"x", "image/png")}),
        (DataContent(b"x", "image/jpg"), {"type": "image", "source": source(b"x", "image/jpeg")}),
        (
            DataContent(b"%PDF", "application/pdf", "a.pdf"),
            {"type": "document", "source": source(b"%PDF", "application/pdf"), "title": "a.pdf"},
        ),
        (
            DataContent("ä,b".encode(), "text/csv; charset=utf-8"),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "ä,b"},
            },
        ),
        (
            UriContent("https://example.com/a", "image/*"),
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a"}},
        ),
        (
            UriContent("https://example.com/a.pdf", "application/pdf"),
            {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        ),
        (
            UriContent("data:image/gif;base64,eA==", "image/*"),
            {"type": "image", "source": source(b"x", "image/gif")},
        ),
        (RefusalContent("no"), text("no")),
        (TextContent("yes"), text("yes")),
    ],
)
def test_user_content_becomes_a_block(content, block):
    assert turns(user(content)) == [("user", [block])]


@pytest.mark.parametrize(
    "content",
    [
        DataContent(b"", "audio/wav"),
        DataContent(b"", "image/tiff"),
        UriContent("https://example.com/a.mp3", "audio/mpeg"),
        UriContent("gs://bucket/a.png", "image/png"),
        UriContent("data:image/png,abc", "image/png"),
        UriContent("data:image/png;base64,%%%", "image/png"),
    ],
)
def test_content_that_the_api_lacks_is_refused_before_anything_is_sent(content):
    with pytest.raises(UnsupportedOptionError) as caught:
        write(user(content))

    assert caught.value.kind == "unsupported"


def test_bedrock_fetches_nothing():
    bedrock = Target("bedrock", "claude-haiku-4-5", "h")

    with pytest.raises(UnsupportedOptionError, match="send a DataContent"):
        write(user(UriContent("https://example.com/a.png", "image/png")), target=bedrock)


# -- answers that hold more than contents ----------------------------------------------------------

SEARCH: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    {"type": "text", "text": "found ", "citations": [{"url": "https://example.com"}]},
    {"type": "tool_use", "id": "call_1", "name": "look", "input": {}},
]


def searched(origin: str, said: str = "found ") -> ChatMessage:
    return ChatMessage("assistant", [said, call()], additional_properties=keep(SEARCH, origin))


def test_server_tools_are_replayed_block_for_block_to_their_issuer():
    said = write(user("q"), searched(TARGET.origin))

    assert said.messages[1]["content"] == SEARCH
    assert said.messages[2]["content"] == [not_answered()]


@pytest.mark.parametrize(
    "message", [searched(OTHER), searched(TARGET.origin, "edited")], ids=["foreign", "edited"]
)
def test_server_tools_are_dropped_elsewhere_and_after_an_edit(message):
    said = write(user("q"), message)

    assert said.messages[1]["content"] == [text(message.text), use()]


def test_paused_turn_goes_on_as_it_is():
    """A model without prefill still takes its own paused turn back."""
    target = Target("anthropic", "claude-sonnet-5", "h")
    message = ChatMessage(
        "assistant", "found ", additional_properties=keep(SEARCH[1:4], target.origin)
    )

    said = conversation((user("q"), message), target)

    assert said.messages[-1]["content"] == SEARCH[1:4]
    assert said.trimmed == ""


def test_plain_answer_is_not_kept_twice():
    assert (
        keep([SEARCH[0], SEARCH[4], {"type": "text", "text": "a", "citations": None}], "o") is None
    )
