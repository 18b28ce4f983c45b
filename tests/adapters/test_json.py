"""Decoding the JSON of events."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.adapters._json import loads, loads_bytes

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
GAPS = st.sampled_from(["", " ", "\n", "\r\n\t"])


@given(VALUES, GAPS, GAPS)
def test_what_is_json_is_read_as_the_standard_library_reads_it(value, before, after):
    assert loads(before + json.dumps(value) + after) == value


@pytest.mark.parametrize("text", ["", "{", '{"a"', "{} {}", "{}x", '\ufeff{"a": 1}', "data"])
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"char|BOM"):
        loads(text)


@given(VALUES, GAPS, GAPS, st.sampled_from(["utf-8", "utf-8-sig", "utf-16-le", "utf-16", "utf-32"]))
def test_bytes_are_read_in_whatever_encoding_they_are(value, before, after, encoding):
    content = (before + json.dumps(value, ensure_ascii=False) + after).encode(encoding)
    assert loads_bytes(content) == json.loads(content)


@pytest.mark.parametrize("content", [b"", b"{", b"{}x", b"<html>", b'{"a": \xff}', b"\xff\xfe{"])
def test_bytes_that_are_no_json_are_a_value_error(content):
    with pytest.raises(ValueError, match=r"char|codec|truncated"):
        loads_bytes(content)
