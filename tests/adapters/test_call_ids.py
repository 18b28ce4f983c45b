"""Ids of tool calls on their way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.adapters._call_ids import CallIds


def at_most(length: int) -> CallIds:
    return CallIds(lambda call_id: len(call_id) <= length)


def test_a_legal_id_is_sent_as_it_is():
    assert at_most(64).of_call("call_abc") == "call_abc"


@pytest.mark.parametrize("call_id", ["", "x" * 65, "\ud800" * 70], ids=["empty", "long", "odd"])
def test_an_illegal_id_becomes_a_legal_one_that_is_always_the_same(call_id):
    """[BR-84]."""
    sent = at_most(64).of_call(call_id)

    assert 0 < len(sent) <= 40
    assert sent.removeprefix("call_").isalnum()
    assert at_most(64).of_call(call_id) == sent


def test_two_long_ids_with_a_common_beginning_stay_apart():
    """[BR-84]."""
    ids = CallIds(lambda call_id: len(call_id) == 9)

    assert ids.of_call("call_12345678a") != ids.of_call("call_12345678b")


def test_a_result_gets_the_id_of_its_call():
    ids = at_most(8)
    sent = [ids.of_call("first-of-all"), ids.of_call("b")]

    assert [ids.of_result("first-of-all"), ids.of_result("b")] == sent


def test_calls_with_the_same_id_get_results_in_their_order():
    ids = at_most(64)

    calls = [ids.of_call("0"), ids.of_call("0")]
    results = [ids.of_result("0"), ids.of_result("0")]

    assert len(set(calls)) == 2
    assert results == calls


def test_a_second_result_for_one_call_keeps_its_id():
    ids = at_most(64)
    call = ids.of_call("a")

    assert [ids.of_result("a"), ids.of_result("a")] == [call, call]


def test_a_result_whose_call_is_elsewhere_keeps_a_legal_id():
    assert at_most(64).of_result("call_elsewhere") == "call_elsewhere"


@given(st.lists(st.text(max_size=80), max_size=12))
def test_ids_that_are_sent_are_distinct_and_legal(call_ids):
    ids = at_most(40)

    sent = [ids.of_call(call_id) for call_id in call_ids]

    assert len(set(sent)) == len(sent)
    assert all(0 < len(call_id) <= 40 for call_id in sent)
