"""Frozen mappings and lists: plain to whoever reads them, closed to whoever would change them."""

import collections
import copy
import json
import pickle
import types

import pytest

from chatrouting import (
    ChatMessage,
    ChatOptions,
    JsonSchemaFormat,
    RoutingHints,
    Tool,
    ToolCallContent,
)
from chatrouting._frozen import FrozenDict, FrozenList, frozen
from chatrouting.messages import parse_arguments

PLAIN = {"name": "x", "list": [1, {"deep": [2.0, None, True]}], "dict": {"pair": ("a", ["b"])}}

HOLDERS = {
    "Tool.parameters": lambda value: Tool("f", parameters=value).parameters,
    "JsonSchemaFormat.schema": lambda value: JsonSchemaFormat("a", value).schema,
    "RoutingHints.tags": lambda value: RoutingHints(tags=value).tags,
    "ChatOptions.metadata": lambda value: ChatOptions(metadata=value).metadata,
    "ChatOptions.additional_properties": lambda value: (
        ChatOptions(additional_properties=value).additional_properties
    ),
    "ToolCallContent.arguments": lambda value: ToolCallContent("c", "f", value).arguments,
    "ToolCallContent.additional_properties": lambda value: (
        ToolCallContent("c", "f", {}, additional_properties=value).additional_properties
    ),
    "ChatMessage.additional_properties": lambda value: (
        ChatMessage("user", "Hi", additional_properties=value).additional_properties
    ),
}

MAPPING_CHANGES = {
    "set": lambda held: held.__setitem__("new", 1),
    "delete": lambda held: held.__delitem__("name"),
    "or": lambda held: held.__ior__({"new": 1}),
    "clear": lambda held: held.clear(),
    "pop": lambda held: held.pop("name"),
    "popitem": lambda held: held.popitem(),
    "setdefault": lambda held: held.setdefault("new", 1),
    "update": lambda held: held.update(new=1),
}

LIST_CHANGES = {
    "set": lambda held: held.__setitem__(0, 1),
    "delete": lambda held: held.__delitem__(0),
    "add": lambda held: held.__iadd__([1]),
    "multiply": lambda held: held.__imul__(2),
    "append": lambda held: held.append(1),
    "clear": lambda held: held.clear(),
    "extend": lambda held: held.extend([1]),
    "insert": lambda held: held.insert(0, 1),
    "pop": lambda held: held.pop(),
    "remove": lambda held: held.remove(1),
    "reverse": lambda held: held.reverse(),
    "sort": lambda held: held.sort(),
}


@pytest.fixture(params=list(HOLDERS))
def hold(request):
    return HOLDERS[request.param]


@pytest.mark.parametrize("change", MAPPING_CHANGES.values(), ids=MAPPING_CHANGES)
def test_a_mapping_of_a_request_refuses_every_change(hold, change):
    """[BR-76] What one client changes, the next would send."""
    held = hold(PLAIN)
    for mapping in (held, held["dict"], held["list"][1]):
        with pytest.raises(TypeError, match=r"is part of a request.*make a copy with dict\(\.\.\."):
            change(mapping)
    assert held == PLAIN


@pytest.mark.parametrize("change", LIST_CHANGES.values(), ids=LIST_CHANGES)
def test_a_list_of_a_request_refuses_every_change(hold, change):
    """[BR-76]"""
    held = hold(PLAIN)
    for items in (held["list"], held["list"][1]["deep"], held["dict"]["pair"][1]):
        with pytest.raises(TypeError, match=r"is part of a request.*make a copy with list\(\.\.\."):
            change(items)
    assert held == PLAIN


def test_the_refused_names_are_all_that_a_plain_one_has_to_change_itself():
    """A method that a later Python adds is looked at before it slips through."""
    assert set(dir(list)) - set(dir(tuple)) - {"__reversed__", "copy"} == {
        *("__delitem__", "__iadd__", "__imul__", "__setitem__"),
        *("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"),
    }
    assert set(dir(dict)) - set(dir(types.MappingProxyType)) == {
        *("__delitem__", "__setitem__"),
        *("clear", "fromkeys", "pop", "popitem", "setdefault", "update"),
    }


def test_what_is_held_reads_like_the_plain_value(hold):
    held = hold(PLAIN)
    assert held == PLAIN
    assert list(held) == list(PLAIN)
    assert repr(held) == repr(PLAIN)
    assert json.loads(json.dumps(held)) == json.loads(json.dumps(PLAIN))
    assert json.dumps(held, indent=1) == json.dumps(PLAIN, indent=1)
    assert {**held, "more": 1} == {**PLAIN, "more": 1}


def test_the_callers_own_value_stays_plain_and_is_not_shared(hold):
    given = copy.deepcopy(PLAIN)
    held = hold(given)
    given["list"].append("later")
    given["dict"]["pair"][1].append("later")
    assert held == PLAIN


@pytest.mark.parametrize(
    "plain",
    [
        dict,
        lambda held: held.copy(),
        lambda held: held | {},
        lambda held: list(held["list"]),
        lambda held: held["list"].copy(),
        lambda held: held["list"][:],
        lambda held: held["list"] + [],
    ],
    ids=["dict", "copy", "or", "list", "list-copy", "slice", "plus"],
)
def test_copies_can_be_changed(hold, plain):
    copied = plain(hold(PLAIN))
    assert type(copied) in (dict, list)
    copied.clear()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_of_what_cannot_change_is_itself(hold, copied):
    held = hold(PLAIN)
    assert copied(held) is held
    assert copied(held["list"]) is held["list"]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_keeps_it_frozen(hold, protocol):
    held = hold(PLAIN)
    restored = pickle.loads(pickle.dumps(held, protocol))  # noqa: S301  # our own bytes
    assert restored == held
    assert type(restored) is FrozenDict
    assert type(restored["list"]) is FrozenList
    assert type(restored["list"][1]) is FrozenDict


def test_what_is_frozen_already_is_passed_on_as_it_is(hold):
    """Options are replaced and calls are joined at no cost for what they hold."""
    held = frozen(PLAIN)
    assert hold(held) is held
    assert frozen({"inside": held})["inside"] is held
    assert frozen({"inside": held["list"]})["inside"] is held["list"]


def test_every_kind_of_mapping_is_read(hold):
    ordered = collections.OrderedDict(a=[1])
    assert hold(types.MappingProxyType({"a": ordered})) == {"a": {"a": [1]}}
    assert type(hold({"a": ordered})["a"]) is FrozenDict


def test_what_is_no_json_stays_as_it_is(hold):
    something = object()
    held = hold({"object": something, "set": {1}, "bytes": b"b"})
    assert held["object"] is something
    assert held["set"] == {1}


def test_no_mapping_is_no_mapping():
    assert frozen(None) is None
    with pytest.raises(TypeError, match="got list where a request holds a mapping"):
        ChatOptions(metadata=[("a", "b")])


def test_arguments_are_frozen_as_deep_as_they_can_be_read():
    raw = '{"a":' * 700 + "1" + "}" * 700
    assert parse_arguments(raw) == json.loads(raw)


def test_arguments_too_deep_for_the_interpreter_are_no_arguments():
    """A provider must not be able to break a request with brackets."""
    assert parse_arguments('{"a":' * 100_000 + "1" + "}" * 100_000) == {}


def test_options_can_be_hashed_where_what_they_hold_can():
    tool = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
    same = {"properties": {"a": {"type": "string"}}, "required": ["a"], "type": "object"}
    first, second = (ChatOptions(tools=[Tool("f", parameters=each)]) for each in (tool, same))
    assert first == second
    assert hash(first) == hash(second)
    assert len({first, second, ChatOptions()}) == 2


def test_what_holds_something_that_cannot_be_hashed_cannot_be_hashed():
    with pytest.raises(TypeError, match="unhashable type: 'set'"):
        hash(frozen({"a": [{1}]}))
