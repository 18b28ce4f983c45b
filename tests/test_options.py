"""Options: values that nobody can change behind a router's back."""

import dataclasses
import math
import pickle

import pytest

from chatrouting import ChatOptions, JsonSchemaFormat, Principal, RoutingHints, Tool


def test_fresh_options_send_nothing():
    options = ChatOptions()
    values = [getattr(options, field.name) for field in dataclasses.fields(options)]
    assert values == [None] * len(values)


def test_options_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ChatOptions().model = "m"


def test_replace_makes_an_equal_copy_but_for_the_changes():
    options = ChatOptions(model="a", temperature=0.5)
    changed = options.replace(model="b")
    assert changed == ChatOptions(model="b", temperature=0.5)
    assert options == ChatOptions(model="a", temperature=0.5)


def test_replace_can_take_an_option_back():
    assert ChatOptions(model="a").replace(model=None) == ChatOptions()


def test_nothing_that_the_caller_changes_later_is_seen():
    """Containers are copied to their depths. [routing 5]"""
    schema = {"type": "object"}
    tools = [Tool("f", parameters=schema)]
    metadata = {"a": "b"}
    tags = {"t": "u"}
    extra = {"x": [1]}
    options = ChatOptions(
        tools=tools,
        metadata=metadata,
        additional_properties=extra,
        routing=RoutingHints(tags=tags),
    )
    tools.append(Tool("g"))
    metadata["c"] = "d"
    tags["v"] = "w"
    extra["y"] = [2]
    extra["x"].append(3)
    schema["title"] = "T"
    assert options == ChatOptions(
        tools=(Tool("f", parameters={"type": "object"}),),
        metadata={"a": "b"},
        additional_properties={"x": [1]},
        routing=RoutingHints(tags={"t": "u"}),
    )


@pytest.mark.parametrize(
    "given",
    ["END", ["END"], ("END",), iter(["END"])],
    ids=["text", "list", "tuple", "iterator"],
)
def test_stop_sequences_become_a_tuple(given):
    """One text is one sequence, not its letters."""
    assert ChatOptions(stop_sequences=given).stop_sequences == ("END",)
    assert ChatOptions().replace(stop_sequences=["END"]).stop_sequences == ("END",)


@pytest.mark.parametrize("limit", [0, -1])
def test_an_answer_has_room_for_one_token(limit):
    with pytest.raises(ValueError, match=f"max_output_tokens is {limit}; expected a whole number"):
        ChatOptions(max_output_tokens=limit)


@pytest.mark.parametrize("timeout", [0, -1.0, math.inf, math.nan])
def test_a_timeout_can_be_met_and_ends(timeout):
    with pytest.raises(ValueError, match=f"timeout is {timeout!r}; expected seconds"):
        RoutingHints(timeout=timeout)


def test_options_survive_a_pickle():
    options = ChatOptions(
        tools=(Tool("f"),),
        response_format=JsonSchemaFormat("answer", {"type": "object"}),
        routing=RoutingHints(principal=Principal(tenant="acme"), timeout=5),
    )
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301  # our own bytes
