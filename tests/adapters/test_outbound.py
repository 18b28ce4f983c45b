"""Further fields of a request body: one rule for the three APIs."""

import pytest

from chatrouting.adapters import dialects
from chatrouting.adapters._anthropic.models import Target
from chatrouting.adapters._anthropic.options import request
from chatrouting.adapters._openai_chat.options import request_body as chat_body
from chatrouting.adapters._openai_responses.options import request_body as responses_body
from chatrouting.adapters._outbound import merge_extras
from chatrouting.errors import ConfigurationError
from chatrouting.messages import as_messages
from chatrouting.options import ChatOptions, JsonSchemaFormat, Tool

SCHEMA = JsonSchemaFormat("answer", {"type": "object", "properties": {}})


def chat(options):
    messages = [{"role": "user", "content": "hi"}]
    return chat_body(options, dialects.OPENAI, model="gpt-x", messages=messages, is_streaming=False)


def responses(options):
    items = [{"type": "message", "role": "user", "content": []}]
    return responses_body(options, provider="openai", model="gpt-x", items=items)


def anthropic(options):
    target = Target("anthropic", "claude-haiku-4-5", "https://api.anthropic.com")
    return request(as_messages("hi"), options, target).body


@pytest.fixture(params=[chat, responses, anthropic], ids=["chat", "responses", "anthropic"])
def write(request):
    return request.param


@pytest.mark.parametrize(
    ("ours", "theirs", "merged"),
    [
        pytest.param({}, {"a": 1}, {"a": 1}, id="a new field"),
        pytest.param({"a": 1}, {"a": 2}, {"a": 2}, id="replaced"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="left out"),
        pytest.param({}, {"a": None}, {}, id="left out, and never there"),
        pytest.param(
            {"a": {"x": 1, "y": 1}}, {"a": {"y": 2, "z": 2}}, {"a": {"x": 1, "y": 2, "z": 2}},
            id="objects key by key",
        ),
        pytest.param(
            {"a": {"x": {"y": 1}}}, {"a": {"x": {"z": 2}}}, {"a": {"x": {"z": 2}}},
            id="one level deep",
        ),
        pytest.param({"a": {"x": 1}}, {"a": "b"}, {"a": "b"}, id="an object by something else"),
        pytest.param({"a": [1]}, {"a": [2]}, {"a": [2]}, id="lists replace"),
        pytest.param({"tools": [1]}, {"tools": (2,)}, {"tools": [1, 2]}, id="tools are appended"),
        pytest.param({}, {"tools": [2]}, {"tools": [2]}, id="tools alone"),
        pytest.param(
            {"include": ["x"]}, {"include": ["x", "y"]}, {"include": ["x", "y"]},
            id="what is included once is not included twice",
        ),
        pytest.param({"tools": [1]}, {"tools": None}, {}, id="no tools after all"),
    ],
)  # fmt: skip
def test_the_callers_own_fields_have_the_last_word(ours, theirs, merged):
    merge_extras(ours, theirs)
    assert ours == merged


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("model", "ChatOptions.model"),
        ("messages", "messages to the call"),
        ("input", "messages to the call"),
        ("stream", "get_streaming_response"),
    ],
)
def test_what_the_client_fills_in_cannot_be_said_there(write, name, advice):
    with pytest.raises(ConfigurationError, match=rf"'{name}'.*{advice}"):
        write(ChatOptions(additional_properties={name: "x"}))


#: Where each API has what is merged: an object, and a list that is replaced.
MERGED = {
    chat: ("response_format", "stop"),
    responses: ("text", "modalities"),
    anthropic: ("output_config", "stop_sequences"),
}


def test_the_rule_is_the_same_for_all(write):
    """Merged, appended, replaced and left out, whatever the API."""
    of_object, of_list = MERGED[write]
    extra = {
        "tools": [{"type": "theirs"}],
        of_object: {"more": 1},
        of_list: ["b"],
        "temperature": 0.7,
        "top_p": None,
        "new": {"x": 1},
    }
    options = ChatOptions(
        temperature=0.5,
        tools=[Tool("mine")],
        response_format=SCHEMA,
        stop_sequences=None if write is responses else ["a"],
        additional_properties=extra,
    )
    without, sent = write(options.replace(additional_properties=None)), write(options)

    assert len(without["tools"]) == 1
    assert sent["tools"] == [*without["tools"], {"type": "theirs"}]
    assert sent[of_object] == {**without[of_object], "more": 1}
    assert sent[of_list] == ["b"]
    assert (sent["temperature"], sent["new"]) == (0.7, {"x": 1})
    assert "top_p" not in sent


def test_the_callers_own_fields_stay_as_they_are(write):
    """[BR-76]"""
    extra = {"tools": [{"type": "theirs"}], "metadata": {"user_id": "u"}}
    options = ChatOptions(tools=[Tool("mine")], metadata={"a": "b"}, additional_properties=extra)
    sent = write(options)
    sent["tools"].append("changed")
    sent["metadata"]["changed"] = True

    assert extra == {"tools": [{"type": "theirs"}], "metadata": {"user_id": "u"}}
    assert options.metadata == {"a": "b"}
