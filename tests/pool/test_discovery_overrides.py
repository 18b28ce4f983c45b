"""`AZURE_OPENAI_POOL_<MODEL>`: what a JSON array changes of members, and what it cannot."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.errors import PoolConfigError
from chatrouting.pool import EndpointMode, discover

PTU, PAYG, UNKNOWN = EndpointMode.PTU, EndpointMode.PAYG, EndpointMode.UNKNOWN
ROOT = "AZURE_OPENAI_ENDPOINT"
POOL = "AZURE_OPENAI_POOL_GPT_4_O"
SUFFIXES = ["GPT_4_O_EASTUS_PTU", "GPT_4_O_SWEDENCENTRAL", "GPT_4_O_WESTUS"]
PLAIN = {f"{ROOT}_{suffix}": "https://x" for suffix in SUFFIXES}


def found(value, **arguments):
    text = value if isinstance(value, str) else json.dumps(value)
    return discover("GPT_4_O", env=PLAIN | {POOL: text}, **arguments)


def members(discovery):
    return {each.id: each for each in discovery.endpoints}


def reasons(discovery):
    """Give what is a problem; every one of these is of the override."""
    assert {each.variable for each in discovery.diagnostics.problems} <= {POOL}
    return [each.reason for each in discovery.diagnostics.problems]


def test_the_example_of_the_readme_says_what_discovery_says_already():
    """[pools 24, 32]"""
    entries = [
        {"suffix": "GPT_4_O_EASTUS_PTU", "priority": 1, "mode": "PTU", "tpm": 50000},
        {"suffix": "GPT_4_O_SWEDENCENTRAL", "priority": 2, "mode": "PAYG"},
        {"suffix": "GPT_4_O_WESTUS", "priority": 2, "mode": "PAYG"},
    ]
    discovery = found(entries, strict=True)
    shapes = [(each.id, each.priority, each.mode, each.tpm) for each in discovery.endpoints]
    assert shapes == [
        ("GPT_4_O_EASTUS_PTU", 1, PTU, 50000),
        ("GPT_4_O_SWEDENCENTRAL", 2, PAYG, None),
        ("GPT_4_O_WESTUS", 2, PAYG, None),
    ]


def test_what_is_set_replaces_what_was_detected():
    """[pools 24] And members are sorted by what holds then: [pools 60]."""
    discovery = found(
        [
            {"suffix": SUFFIXES[0], "priority": 3, "mode": "PAYG"},
            {"suffix": SUFFIXES[1], "priority": 1, "tpm": 30000, "region": None},
        ]
    )
    shapes = [(each.id, each.priority, each.mode, each.tpm) for each in discovery.endpoints]
    assert shapes == [
        (SUFFIXES[1], 1, PAYG, 30000),
        (SUFFIXES[2], 2, PAYG, None),
        (SUFFIXES[0], 3, PAYG, None),
    ]
    assert discovery.endpoints[0].region == "swedencentral"
    assert discovery.diagnostics.origins[SUFFIXES[1]]["tpm"] == POOL
    assert discovery.endpoints[0].source[-1] == POOL
    assert POOL in discovery.diagnostics.used


def test_null_is_absent():
    """[pools 24]"""
    entry = {"suffix": SUFFIXES[0], "priority": None, "mode": None, "tpm": None}
    assert found([entry], strict=True).endpoints == found([]).endpoints


def test_suffixes_are_compared_letter_by_letter():
    """[pools 24, 25] An entry makes no member, and is told of."""
    discovery = found([{"suffix": "gpt_4_o_westus", "priority": 7}, {"suffix": "GPT_4_O_MARS"}])
    assert list(members(discovery)) == SUFFIXES
    assert discovery.diagnostics.unmatched == ("gpt_4_o_westus", "GPT_4_O_MARS")
    assert reasons(discovery)[0].startswith("no member has the suffix 'gpt_4_o_westus'; expected ")


@pytest.mark.parametrize("entry", [{}, {"suffix": ""}, {"suffix": 7}, {"priority": 1}])
def test_an_entry_without_a_suffix_is_ignored(entry):
    """[pools 25]"""
    assert reasons(found([entry])) == ["entry 1 has no suffix"]


def test_items_that_are_no_objects_are_dropped():
    """[pools 25]"""
    discovery = found([1, None, "x", [], {"suffix": SUFFIXES[2], "priority": 1}])
    assert reasons(discovery) == ["items that are no objects are ignored"]
    assert members(discovery)[SUFFIXES[2]].priority == 1


def test_of_two_entries_for_one_member_the_later_holds():
    """[pools 25] As a whole: fields of the earlier one are gone."""
    discovery = found(
        [
            {"suffix": SUFFIXES[2], "priority": 9, "tpm": 5},
            {"suffix": SUFFIXES[2], "priority": 8},
        ]
    )
    west = members(discovery)[SUFFIXES[2]]
    assert (west.priority, west.tpm) == (8, None)


@pytest.mark.parametrize(
    "text",
    ["{not json", '{"suffix": "x"}', '"text"', "7", "null", "[" * 100_000, "[{'suffix': 'x'}]"],
)
def test_what_is_no_json_array_is_ignored_as_a_whole(text, caplog):
    """[pools 26, 29] Nearly JSON is not JSON."""
    discovery = found(text)
    assert discovery.endpoints == found([]).endpoints
    assert len(reasons(discovery)) == 1
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    with pytest.raises(PoolConfigError, match=POOL):
        found(text, strict=True)


def test_the_text_of_an_override_that_is_no_json_is_not_shown():
    assert "SECRET" not in str(reasons(found('[{"suffix": SECRET}]')))


def test_a_mode_alone_does_not_change_the_priority():
    """[pools 27]"""
    discovery = found(
        [{"suffix": SUFFIXES[0], "mode": "PAYG"}, {"suffix": SUFFIXES[2], "mode": "ptu"}]
    )
    east, west = members(discovery)[SUFFIXES[0]], members(discovery)[SUFFIXES[2]]
    assert (east.mode, east.priority) == (PAYG, 1)
    assert (west.mode, west.priority) == (PTU, 2)


@pytest.mark.parametrize("mode", ["unknown", "Unknown"])
def test_a_mode_that_nobody_knows_does_not_hide_what_the_name_says(mode):
    """[pools B19] Provisioning writes it for capacity of a data zone, which is paid by use."""
    discovery = found([{"suffix": each, "mode": mode} for each in SUFFIXES], strict=True)
    assert [each.mode for each in discovery.endpoints] == [PTU, PAYG, PAYG]


@pytest.mark.parametrize(
    ("given_priority", "priority"),
    [("1", 1), (1.0, 1), (0, 0), (-3, -3), ("-3", -3), (10**12, 10**12)],
)
def test_a_priority_is_any_whole_number_also_as_text(given_priority, priority):
    """[pools 28] A text is no tier of its own."""
    discovery = found([{"suffix": SUFFIXES[2], "priority": given_priority}], strict=True)
    assert members(discovery)[SUFFIXES[2]].priority == priority
    assert isinstance(members(discovery)[SUFFIXES[2]].priority, int)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", "first"),
        ("priority", 1.5),
        ("priority", True),
        ("priority", "1_0"),
        ("priority", [1]),
        ("priority", float("inf")),
        ("priority", float("nan")),
        ("mode", "PTUS"),
        ("mode", 1),
        ("tpm", 0),
        ("tpm", -1),
        ("tpm", "many"),
        ("rpm", 0.5),
        ("capacity", False),
        ("weight", 0),
        ("weight", "2"),
        ("weight", True),
        ("weight", float("inf")),
        ("weight", 10**400),
        ("region", "east us"),
        ("region", 7),
        ("wireApi", "messages"),
    ],
)
def test_a_field_that_cannot_be_used_is_ignored_alone(field, value):
    """[pools 28, 29]"""
    entry = {"suffix": SUFFIXES[2], "priority": 5, "tpm": 6, field: value}
    discovery = found([entry])
    west = members(discovery)[SUFFIXES[2]]
    assert west.priority == (2 if field == "priority" else 5)
    assert west.tpm == (None if field == "tpm" else 6)
    (reason,) = reasons(discovery)
    assert reason.startswith("entry 1")
    assert field in reason
    assert len(reason) < 160


def test_region_and_capacity_can_be_corrected_and_weights_be_given():
    """[pools 29, 31]"""
    entry = {"suffix": SUFFIXES[2], "region": "WestUS3", "capacity": 100, "rpm": 60, "weight": 2}
    west = members(found([entry], strict=True))[SUFFIXES[2]]
    assert (west.region, west.capacity, west.rpm, west.weight) == ("westus3", 100, 60, 2.0)


def test_there_is_no_override_for_a_pool_without_a_name():
    """[pools 30]"""
    env = {ROOT: "https://x", "AZURE_OPENAI_POOL_": "[", "AZURE_OPENAI_POOL": "["}
    assert discover(env=env).diagnostics.problems == ()


@pytest.mark.parametrize(
    "variable", ["AZURE_OPENAI_POOL_3_SMALL", "AZURE_OPENAI_POOL_EMBEDDING_3_SMALL"]
)
@pytest.mark.parametrize("suffix", ["3_SMALL_UK", "EMBEDDING_3_SMALL_UK"])
def test_embeddings_are_corrected_under_either_name(variable, suffix):
    """[pools 30] What TypeAgent's own tool writes is read as well."""
    env = {f"{ROOT}_EMBEDDING_3_SMALL_UK": "https://x"}
    env[variable] = json.dumps([{"suffix": suffix, "priority": 4}])
    discovery = discover("3_SMALL", kind="embedding", env=env, strict=True)
    assert discovery.endpoints[0].priority == 4


@pytest.mark.parametrize(
    ("kind", "word"), [("embedding", "EMBEDDING"), ("image", "GPT_IMAGE_1_5"), ("video", "SORA_2")]
)
def test_a_pool_without_a_name_is_corrected_by_its_kind(kind, word):
    """[pools 30]"""
    env = {f"{ROOT}_{word}": "https://x", f"{ROOT}_{word}_UK": "https://x"}
    entries = [
        {"suffix": word, "priority": 5},
        {"suffix": f"{word}_UK", "priority": 4},
        {"suffix": "UK", "tpm": 3},
    ]
    env[f"AZURE_OPENAI_POOL_{word}"] = json.dumps(entries)
    discovery = discover(kind=kind, env=env, strict=True)
    shapes = [(each.id, each.priority, each.tpm) for each in discovery.endpoints]
    assert shapes == [("UK", 2, 3), ("", 5, None)]


def test_the_variable_with_the_kind_goes_before_the_one_without():
    """[pools 30]"""
    env = {f"{ROOT}_EMBEDDING_3_SMALL": "https://x"}
    env["AZURE_OPENAI_POOL_EMBEDDING_3_SMALL"] = '[{"suffix": "3_SMALL", "priority": 4}]'
    env["AZURE_OPENAI_POOL_3_SMALL"] = '[{"suffix": "3_SMALL", "priority": 3}]'
    assert discover("3_SMALL", kind="embedding", env=env).endpoints[0].priority == 4


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
ENTRIES = st.dictionaries(
    st.sampled_from(["suffix", "priority", "mode", "tpm", "rpm", "weight", "capacity", "region"]),
    st.sampled_from(SUFFIXES) | JSON,
)


@given(st.lists(ENTRIES | JSON, max_size=5) | JSON)
def test_no_override_breaks_a_pool(value):
    """[pools 25, 26, 28] Whatever stands there, the members are the same and are sound."""
    discovery = found(json.dumps(value))
    assert sorted(members(discovery)) == SUFFIXES
    priorities = [each.priority for each in discovery.endpoints]
    assert priorities == sorted(priorities)
