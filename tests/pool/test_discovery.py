"""Which variables make a pool, and what their names say."""

import itertools
import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chatrouting
from chatrouting.errors import ConfigurationError, PoolConfigError
from chatrouting.pool import (
    KNOWN_REGIONS,
    ApiKey,
    EndpointMode,
    discover,
    discover_models,
    env_name,
)
from chatrouting.pool._grammar import read_tail

PTU, PAYG, UNKNOWN = EndpointMode.PTU, EndpointMode.PAYG, EndpointMode.UNKNOWN
URL = "https://{}.openai.azure.com/openai/deployments/gpt-4o?api-version=2024-10-21"
OPENAI_KEY = {"OPENAI_API_KEY": "k"}


def azure(*suffixes, root="AZURE_OPENAI_ENDPOINT", **more):
    """Make variables of endpoints and keys; a suffix may be empty."""
    env = {}
    for suffix in suffixes:
        name = f"{root}_{suffix}" if suffix else root
        env[name] = URL.format(suffix.lower().replace("_", "-") or "bare")
        env[name.replace("ENDPOINT", "API_KEY")] = f"key-{suffix}"
    return env | more


def shape(found):
    return {each.id: (each.mode, each.priority, each.region) for each in found.endpoints}


def skipped(found):
    return {each.variable: each.reason for each in found.diagnostics.skipped}


# Chat.


def test_the_variables_without_a_name_make_a_pool_of_one():
    """[pools 1] Also with the URL of TypeAgent's own test, which is none of Azure's."""
    env = {"AZURE_OPENAI_ENDPOINT": "https://old.example/openai/chat", "AZURE_OPENAI_API_KEY": "k"}

    found = discover(env=env)

    (only,) = found.endpoints
    assert (only.id, only.priority, only.mode, only.region) == ("", 1, UNKNOWN, None)
    assert (only.url, only.auth) == ("https://old.example/openai/chat", ApiKey("k"))
    assert only.source == ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY")


def test_a_pool_of_chat_without_a_name_is_never_scanned_for():
    """[pools 2] Its root is the beginning of every model's variable."""
    env = azure("", "GPT_4_O_EASTUS", "EASTUS")
    assert shape(discover(env=env)) == {"": (UNKNOWN, 1, None)}


def test_the_variable_of_the_model_alone_makes_a_pool_of_one():
    """[pools 3]"""
    assert shape(discover("GPT_4_O", env=azure("GPT_4_O"))) == {"GPT_4_O": (UNKNOWN, 1, None)}


def test_each_region_is_a_member_and_reserved_throughput_goes_first():
    """[pools 4]"""
    env = azure("GPT_4_O_SWEDEN", "GPT_4_O_EASTUS_PTU", "GPT_4_O_WESTUS")

    found = discover("GPT_4_O", env=env)

    assert shape(found) == {
        "GPT_4_O_EASTUS_PTU": (PTU, 1, "eastus"),
        "GPT_4_O_SWEDEN": (PAYG, 2, "sweden"),
        "GPT_4_O_WESTUS": (PAYG, 2, "westus"),
    }
    assert found.diagnostics.problems == ()


def test_the_variable_of_the_model_is_a_member_beside_regions():
    """[pools 5, 32]"""
    found = discover("GPT_4_O", env=azure("GPT_4_O_EASTUS", "GPT_4_O", "GPT_4_O_UK_PTU"))
    assert shape(found) == {
        "GPT_4_O": (UNKNOWN, 1, None),
        "GPT_4_O_UK_PTU": (PTU, 1, "uk"),
        "GPT_4_O_EASTUS": (PAYG, 2, "eastus"),
    }


def test_members_come_by_tier_the_bare_one_first_then_as_in_the_environment():
    """[pools 60]"""
    suffixes = ["GPT_4_O_WESTUS", "GPT_4_O_UK_PTU", "GPT_4_O_EASTUS", "GPT_4_O"]
    found = discover("GPT_4_O", env=azure(*suffixes))
    assert [each.id for each in found.endpoints] == [
        "GPT_4_O",
        "GPT_4_O_UK_PTU",
        "GPT_4_O_WESTUS",
        "GPT_4_O_EASTUS",
    ]


def test_only_variables_of_endpoints_with_this_very_base_count():
    """[pools 6] Not a longer word, not another letter case, not a key alone."""
    env = azure("GPT_4_O", "GPT_4_OMNI_EASTUS", "gpt_4_o_WESTUS")
    env["AZURE_OPENAI_API_KEY_GPT_4_O_UKSOUTH"] = "a key without an endpoint"

    found = discover("GPT_4_O", env=env)

    assert list(shape(found)) == ["GPT_4_O"]
    assert skipped(found) == {}


@pytest.mark.parametrize(
    ("tail", "region", "mode"),
    [
        ("PTU", None, PTU),
        ("EASTUS2", "eastus2", PAYG),
        ("eastus_ptu", "eastus", PTU),
        ("NORTH_CENTRAL_US", "northcentralus", PAYG),
        ("GERMANY_WEST_CENTRAL_PTU", "germanywestcentral", PTU),
        ("Sweden_Central", "swedencentral", PAYG),
        ("_EASTUS", "eastus", PAYG),
        ("WEST__US_", "westus", PAYG),
        ("", None, PAYG),
    ],
)
def test_a_tail_is_a_region_in_up_to_three_pieces_and_perhaps_a_mode(tail, region, mode):
    """[pools 7] The member keeps the name as it is written."""
    id_ = f"GPT_4_O_{tail}"
    found = discover("GPT_4_O", env=azure(id_))
    assert shape(found) == {id_: (mode, 1 if mode is PTU else 2, region)}


@pytest.mark.parametrize("tail", ["MINI_EASTUS", "E_A_ST_US", "MARS", "EASTUS_SPARE", "PTU_EASTUS"])
def test_any_other_tail_belongs_to_another_model(tail, caplog):
    """[pools 7, 9] It is passed over quietly, also where everything has to be right."""
    caplog.set_level(logging.DEBUG, "chatrouting.pool")
    env = azure("GPT_4_O", f"GPT_4_O_{tail}")

    found = discover("GPT_4_O", env=env, strict=True)

    assert list(shape(found)) == ["GPT_4_O"]
    assert "another model" in skipped(found)[f"AZURE_OPENAI_ENDPOINT_GPT_4_O_{tail}"]
    skips = [each for each in caplog.records if "pool.variable_skipped" in each.message]
    assert [each.levelname for each in skips] == ["DEBUG"]


OF_TYPEAGENT = (
    "eastus eastus2 westus westus2 westus3 centralus northcentralus southcentralus westcentralus "
    "swedencentral francecentral germanywestcentral norwayeast northeurope westeurope uksouth "
    "ukwest switzerlandnorth japaneast japanwest australiaeast koreacentral southeastasia eastasia "
    "centralindia southindia brazilsouth canadacentral canadaeast "
    "sweden japan australia brazil canada korea uk"
)
ADDED = (
    "spaincentral italynorth polandcentral uaenorth qatarcentral southafricanorth mexicocentral "
    "israelcentral newzealandnorth westindia jioindiawest koreasouth francesouth germanynorth "
    "norwaywest switzerlandwest brazilsoutheast australiasoutheast"
)


@pytest.mark.parametrize("region", [*OF_TYPEAGENT.split(), *ADDED.split()])
def test_a_region_is_known(region):
    """[pools 8, B5] Those of TypeAgent, and those that it misses."""
    assert region in KNOWN_REGIONS
    found = discover("X", env=azure(f"X_{region.upper()}"))
    assert shape(found) == {f"X_{region.upper()}": (PAYG, 2, region)}


def test_the_caller_may_know_other_regions():
    """[pools 8, 10]"""
    env = azure("GPT_4_O_MOON_BASE", "GPT_4_O_EASTUS")
    assert list(shape(discover("GPT_4_O", env=env, regions=["MoonBase"]))) == ["GPT_4_O_MOON_BASE"]
    assert len(shape(discover("GPT_4_O", env=env, regions=KNOWN_REGIONS | {"moonbase"}))) == 2


@pytest.mark.parametrize("regions", ["eastus", ["east_us"], [""], [None]])
def test_regions_that_are_no_names_are_refused(regions):
    with pytest.raises(ConfigurationError, match="region"):
        discover("GPT_4_O", env=azure("GPT_4_O"), regions=regions)


def test_if_all_are_passed_over_the_error_says_which_and_why():
    """[pools 10] And no other model's endpoint answers in their place: [pools B4]."""
    env = azure("GPT_4_O_ATLANTIS", "GPT_5", "")
    with pytest.raises(PoolConfigError) as caught:
        discover("GPT_4_O", env=env, fallback_to_default=True)
    first, *others = str(caught.value).splitlines()
    assert first == (
        "no usable endpoints discovered for azure:GPT_4_O (root=AZURE_OPENAI_ENDPOINT):"
    )
    assert [each.strip() for each in others] == list(caught.value.problems)
    assert caught.value.problems[0].startswith("AZURE_OPENAI_ENDPOINT_GPT_4_O_ATLANTIS: it belongs")


def test_siblings_with_short_or_without_regions_do_not_vanish():
    """[pools B5]"""
    suffixes = ["GPT_4_O_EASTUS", "GPT_4_O_SWEDEN", "GPT_4_O_UK", "GPT_4_O_PTU", "GPT_4_O"]
    assert set(shape(discover("GPT_4_O", env=azure(*suffixes)))) == set(suffixes)


def test_the_same_region_reserved_and_by_use_is_two_endpoints():
    """[pools B1] Each has its own address and its own key."""
    found = discover("GPT_4_O", env=azure("GPT_4_O_EASTUS_PTU", "GPT_4_O_EASTUS"))
    ptu, payg = found.endpoints
    assert (ptu.url, payg.url) == (
        "https://gpt-4-o-eastus-ptu.openai.azure.com",
        "https://gpt-4-o-eastus.openai.azure.com",
    )
    assert (ptu.auth, payg.auth) == (
        ApiKey("key-GPT_4_O_EASTUS_PTU"),
        ApiKey("key-GPT_4_O_EASTUS"),
    )


# Nothing is set, or not for this model.


@pytest.mark.parametrize("name", [None, "", "GPT_4_O"])
def test_where_nothing_is_set_the_error_names_the_root(name):
    """[pools 12]"""
    with pytest.raises(ConfigurationError, match=r"^AZURE_OPENAI_ENDPOINT is not set") as caught:
        discover(name, env={"AZURE_OPENAI_API_KEY": "k"})
    assert not isinstance(caught.value, PoolConfigError)


def test_another_models_endpoint_is_not_taken_unless_the_caller_says_so():
    """[pools 11, B4]"""
    with pytest.raises(ConfigurationError, match="nor is AZURE_OPENAI_ENDPOINT_GPT_4_O or"):
        discover("GPT_4_O", env=azure("", "GPT_5"))


def test_the_endpoint_without_a_name_stands_in_together_with_its_key(caplog):
    """[pools 11] Both or neither: the model's own key would not fit."""
    env = azure("", AZURE_OPENAI_API_KEY_GPT_4_O="of another", AZURE_OPENAI_MAX_TIMEOUT="9000")

    found = discover("GPT_4_O", env=env, fallback_to_default=True)

    (only,) = found.endpoints
    assert (only.id, only.mode, only.priority, only.timeout) == ("GPT_4_O", UNKNOWN, 1, 9.0)
    assert (only.url, only.auth) == ("https://bare.openai.azure.com", ApiKey("key-"))
    assert [each.variable for each in found.diagnostics.remarks] == ["AZURE_OPENAI_ENDPOINT"]
    warnings = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert warnings == [
        (
            "pool.default_endpoint_used variable=AZURE_OPENAI_ENDPOINT "
            "instead_of=AZURE_OPENAI_ENDPOINT_GPT_4_O"
        )
    ]


def test_it_stands_in_without_a_key_if_it_has_none():
    """[pools 11]"""
    env = {"AZURE_OPENAI_ENDPOINT": "https://x", "AZURE_OPENAI_API_KEY_GPT_4_O": "of another"}
    (only,) = discover("GPT_4_O", env=env, fallback_to_default=True).endpoints
    assert not isinstance(only.auth, ApiKey)


def test_it_does_not_stand_in_if_it_cannot_be_used_itself():
    with pytest.raises(PoolConfigError, match="AZURE_OPENAI_ENDPOINT: it is no URL"):
        discover("GPT_4_O", env={"AZURE_OPENAI_ENDPOINT": "sk-123"}, fallback_to_default=True)


def test_an_endpoint_of_the_model_goes_before_the_one_without_a_name():
    found = discover("GPT_4_O", env=azure("", "GPT_4_O_UK"), fallback_to_default=True)
    assert list(shape(found)) == ["GPT_4_O_UK"]


@pytest.mark.parametrize("kind", ["embedding", "image", "video"])
def test_nothing_stands_in_for_a_model_whose_answers_cannot_be_told_apart(kind):
    """[pools 11]"""
    with pytest.raises(ConfigurationError, match="fallback_to_default is for chat"):
        discover(kind=kind, env=azure(""), fallback_to_default=True)


def test_the_error_says_what_is_there():
    env = azure("GPT_5_EASTUS", "GPT_5_UK", *(f"M{number}" for number in range(9)))
    with pytest.raises(ConfigurationError) as caught:
        discover("GPT_4_O", env=env)
    assert str(caught.value).endswith(
        "variables for: GPT_5, M0, M1, M2, M3, M4, M5, M6 and others."
    )


def test_the_error_says_how_the_model_is_called():
    with pytest.raises(ConfigurationError, match=r"By env_name\('gpt-4o'\) it would be found"):
        discover("gpt-4o", env=azure("GPT_4_O_UK"))


# Values that cannot be.


def test_a_blank_endpoint_is_no_member(caplog):
    """[pools 14] Only where it would be one: another model's is not looked at."""
    env = azure("GPT_4_O_EASTUS", AZURE_OPENAI_ENDPOINT_GPT_4_O_WESTUS=" ")
    env["AZURE_OPENAI_ENDPOINT_GPT_4_O_MINI"] = ""

    found = discover("GPT_4_O", env=env)

    assert list(shape(found)) == ["GPT_4_O_EASTUS"]
    assert skipped(found)["AZURE_OPENAI_ENDPOINT_GPT_4_O_WESTUS"] == "it is empty"
    problems = [each.variable for each in found.diagnostics.problems]
    assert problems == ["AZURE_OPENAI_ENDPOINT_GPT_4_O_WESTUS"]
    assert "pool.variable_skipped variable=AZURE_OPENAI_ENDPOINT_GPT_4_O_WESTUS" in caplog.text


def test_a_member_that_cannot_be_built_does_not_take_the_others_with_it(caplog):
    """[pools 13] And it does not vanish in silence."""
    env = azure("GPT_4_O_EASTUS", "GPT_4_O_WESTUS", AZURE_OPENAI_MAX_TIMEOUT_GPT_4_O_WESTUS="1m")

    found = discover("GPT_4_O", env=env)

    assert list(shape(found)) == ["GPT_4_O_EASTUS"]
    reason = skipped(found)["AZURE_OPENAI_ENDPOINT_GPT_4_O_WESTUS"]
    assert reason.startswith("AZURE_OPENAI_MAX_TIMEOUT_GPT_4_O_WESTUS: invalid value '1m'")
    assert [each.levelname for each in caplog.records] == ["WARNING"]


def test_if_no_member_can_be_built_the_error_says_why():
    """[pools 12, 13]"""
    env = azure("GPT_4_O_UK", AZURE_OPENAI_MAX_TIMEOUT="soon")
    with pytest.raises(PoolConfigError, match="AZURE_OPENAI_MAX_TIMEOUT: invalid value 'soon'"):
        discover("GPT_4_O", env=env)


def test_a_value_that_is_none_is_not_set():
    """As readers of `.env` files give them."""
    env = azure("GPT_4_O", AZURE_OPENAI_ENDPOINT_GPT_4_O_UK=None)
    found = discover("GPT_4_O", env=env)
    assert list(shape(found)) == ["GPT_4_O"]
    assert found.diagnostics.skipped == ()


# Embeddings, images, video.


def test_embeddings_without_a_name_are_scanned_for():
    """[pools 15, B2] And other models for embeddings are none of theirs: [pools 9]."""
    suffixes = ["", "EASTUS", "SWEDEN_PTU", "3_LARGE_EASTUS", "3_SMALL_SWEDENCENTRAL"]
    env = azure(*suffixes, "INDEXING_WESTUS", root="AZURE_OPENAI_ENDPOINT_EMBEDDING")

    found = discover(kind="embedding", env=env)

    assert shape(found) == {
        "": (UNKNOWN, 1, None),
        "SWEDEN_PTU": (PTU, 1, "sweden"),
        "EASTUS": (PAYG, 2, "eastus"),
    }
    assert [each.auth for each in found.endpoints] == [
        ApiKey("key-"),
        ApiKey("key-SWEDEN_PTU"),
        ApiKey("key-EASTUS"),
    ]
    assert len(skipped(found)) == 3


def test_a_named_model_for_embeddings_has_its_name_in_its_members():
    """[pools 15]"""
    env = azure("3_SMALL_EASTUS", "3_SMALL", root="AZURE_OPENAI_ENDPOINT_EMBEDDING")
    found = discover("3_SMALL", kind="embedding", env=env)
    assert shape(found) == {
        "3_SMALL": (UNKNOWN, 1, None),
        "3_SMALL_EASTUS": (PAYG, 2, "eastus"),
    }


def test_a_missing_model_for_embeddings_is_not_replaced_by_another():
    """[pools 11, B3] Vectors of another model are wrong, and nobody would see it."""
    env = azure("", root="AZURE_OPENAI_ENDPOINT_EMBEDDING")
    with pytest.raises(ConfigurationError, match="AZURE_OPENAI_ENDPOINT_EMBEDDING_3_SMALL"):
        discover("3_SMALL", kind="embedding", env=env)


def test_images_have_no_name_and_are_scanned_for():
    """[pools 16, B2]"""
    env = azure("", "EASTUS", "UK_PTU", root="AZURE_OPENAI_ENDPOINT_GPT_IMAGE_1_5")
    found = discover(kind="image", env=env)
    assert list(shape(found)) == ["", "UK_PTU", "EASTUS"]
    assert [each.timeout for each in found.endpoints] == [None, None, None]


def test_a_general_variable_for_images_alone_makes_a_pool_of_one():
    """[pools 16]"""
    found = discover(kind="image", env=azure("", root="AZURE_OPENAI_ENDPOINT_GPT_IMAGE"))
    assert shape(found) == {"": (UNKNOWN, 1, None)}
    assert found.endpoints[0].auth == ApiKey("key-")
    assert "stands in" in found.diagnostics.remarks[0].reason


def test_the_general_key_for_images_goes_before_that_of_the_version():
    """[pools 16] But not before the member's own."""
    root = "AZURE_OPENAI_ENDPOINT_GPT_IMAGE_1_5"
    env = azure("", "EASTUS", root=root, AZURE_OPENAI_API_KEY_GPT_IMAGE="general")
    del env["AZURE_OPENAI_API_KEY_GPT_IMAGE_1_5_EASTUS"]
    bare, east = discover(kind="image", env=env).endpoints
    assert (bare.auth, east.auth) == (ApiKey("key-"), ApiKey("general"))
    del env["AZURE_OPENAI_API_KEY_GPT_IMAGE"]
    assert discover(kind="image", env=env).endpoints[1].auth == ApiKey("key-")


def test_the_model_for_images_is_the_callers_to_choose():
    """[pools 16]"""
    env = azure("", "EASTUS", root="AZURE_OPENAI_ENDPOINT_DALLE_3", **azure("GPT_IMAGE"))
    assert len(discover(kind="image", env=env, image_model="dalle-3").endpoints) == 2
    with pytest.raises(ConfigurationError, match="AZURE_OPENAI_ENDPOINT_FLUX is not set"):
        discover(kind="image", env=env, image_model="flux")
    with pytest.raises(ConfigurationError, match="use image_model='GPT_IMAGE_2'"):
        discover("GPT_IMAGE_2", kind="image", env=env)


def test_video_goes_the_same_way():
    """[pools 16]"""
    env = azure("", "SWEDEN", root="AZURE_OPENAI_ENDPOINT_SORA_2")
    assert list(shape(discover(kind="video", env=env))) == ["", "SWEDEN"]


# OpenAI, and names that say the provider.


def test_openai_has_pools_too():
    """[pools 17]"""
    env = OPENAI_KEY | {
        "OPENAI_ENDPOINT_FOO_EASTUS": "https://e.example/v1/chat/completions",
        "OPENAI_ENDPOINT_FOO_WESTUS": "https://w.example/v1",
        "OPENAI_MODEL_FOO": "foo-1",
        "OPENAI_MODEL": "other",
    }
    found = discover("FOO", provider="openai", env=env)
    assert shape(found) == {"FOO_EASTUS": (PAYG, 2, "eastus"), "FOO_WESTUS": (PAYG, 2, "westus")}
    east, west = found.endpoints
    assert (east.url, west.url) == ("https://e.example/v1", "https://w.example/v1")
    assert east.auth == west.auth == ApiKey("k")
    assert (east.provider, east.model, west.model) == ("openai", "foo-1", "foo-1")
    assert found.diagnostics.origins["FOO_EASTUS"]["model"] == "OPENAI_MODEL_FOO"


@pytest.mark.parametrize(
    ("kind", "variable"), [("chat", "OPENAI_MODEL"), ("embedding", "OPENAI_MODEL_EMBEDDING")]
)
def test_a_member_of_openai_without_a_model_is_told_of(kind, variable):
    root = "OPENAI_ENDPOINT" + variable.removeprefix("OPENAI_MODEL")
    found = discover(kind=kind, provider="openai", env=OPENAI_KEY | {root: "https://o/v1"})
    assert [each.variable for each in found.diagnostics.remarks] == [variable]
    assert found.diagnostics.problems == ()


def test_embeddings_of_openai_have_a_root_of_their_own():
    """[pools 17] Their keys need not say what they are for."""
    env = {
        "OPENAI_ENDPOINT_EMBEDDING": "https://o.example/v1/embeddings",
        "OPENAI_ENDPOINT_EMBEDDING_EASTUS": "https://e.example/v1/embeddings",
        "OPENAI_API_KEY": "general",
        "OPENAI_API_KEY_EASTUS": "own",
        "OPENAI_MODEL_EMBEDDING": "text-embedding-3-small",
    }
    bare, east = discover(kind="embedding", provider="openai", env=env).endpoints
    assert (bare.auth, east.auth) == (ApiKey("general"), ApiKey("own"))
    assert bare.model == east.model == "text-embedding-3-small"


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        (None, [""]),
        ("azure", [""]),
        ("AZURE", [""]),
        ("azure:", [""]),
        ("azure:GPT_4_O", ["GPT_4_O"]),
        ("GPT_4_O", ["GPT_4_O"]),
        ("gpt_4.o", ["GPT_4_O"]),
        ("gpt-4-o", ["GPT_4_O"]),
        ("openai", [""]),
        ("openai:foo", ["FOO"]),
    ],
)
@pytest.mark.parametrize("provider", ["azure", "openai"])
def test_a_name_may_say_the_provider_which_is_otherwise_the_argument(name, ids, provider):
    """[pools 18] Nothing is guessed from what happens to be set."""
    env = azure("", "GPT_4_O") | OPENAI_KEY
    env |= {"OPENAI_ENDPOINT": "https://o/v1", "OPENAI_ENDPOINT_FOO": "https://f/v1"}
    env["OPENAI_ENDPOINT_GPT_4_O"] = "https://g/v1"

    found = discover(name, provider=provider, env=env)

    said = (name or "").lower().partition(":")[0]
    assert [each.id for each in found.endpoints] == ids
    assert found.endpoints[0].provider == (said if said in ("azure", "openai") else provider)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("gpt_4_o", "chat", "azure:GPT_4_O"),
        (None, "chat", "azure"),
        (None, "embedding", "azure:EMBEDDING"),
        ("openai:foo", "chat", "openai:FOO"),
    ],
)
def test_a_pool_is_named_as_its_variables_are(name, kind, expected):
    env = azure("", "GPT_4_O", "EMBEDDING") | OPENAI_KEY | {"OPENAI_ENDPOINT_FOO": "https://f/v1"}
    assert discover(name, kind=kind, env=env).name == expected


@pytest.mark.parametrize("name", ["ollama", "copilot", "ollama:llama", "OLLAMA:x"])
def test_providers_without_pools_are_refused(name):
    """[pools 17, 18]"""
    with pytest.raises(ConfigurationError, match=r"not applicable to (ollama|copilot)"):
        discover(name, env=azure(""))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"provider": "ollama"}, "not applicable to ollama"),
        ({"provider": "bedrock"}, "provider is 'bedrock'"),
        ({"name": "bedrock:x"}, "provider is 'bedrock'"),
        ({"kind": "audio"}, "kind is 'audio'; expected one of 'chat'"),
        ({"name": "gpt 4"}, "'gpt 4' is no name of a model"),
        ({"kind": "image", "image_model": "a/b"}, "'a/b' is no name of a model"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        discover(**arguments, env=azure(""))


# Looking anew.


def test_the_environment_of_the_process_is_read_at_each_call(monkeypatch):
    """[pools 44, B18] Nothing is kept: a changed key is seen by the next call."""
    for name, value in azure("TEST_POOL_UK").items():
        monkeypatch.setenv(name, value)
    before = discover("TEST_POOL")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY_TEST_POOL_UK", "rotated")
    after = discover("TEST_POOL")
    assert before.endpoints[0].auth == ApiKey("key-TEST_POOL_UK")
    assert after.endpoints[0].auth == ApiKey("rotated")
    assert discover_models()[-1] == "TEST_POOL"


def test_the_mapping_is_only_read():
    env = azure("GPT_4_O", "GPT_4_O_UK")
    before = dict(env)
    discover("GPT_4_O", env=env)
    assert env == before


def test_nothing_else_in_the_library_reads_the_environment():
    """Doors hand theirs on; what an SDK reads when it makes a client is the SDK's."""
    package = Path(chatrouting.__file__).parent
    readers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\bos\.environ|\bgetenv\(", path.read_text(encoding="utf-8"))
    }
    assert {each for each in readers if not each.startswith("cli/")} == {"pool/discovery.py"}


# Names of models.


def test_models_are_listed_without_their_variants():
    """[pools 65]"""
    names = ["", "GPT_4_O", "GPT_4_O_EASTUS", "GPT_4_O_UK_PTU", "GPT_4_O_MINI_NORTH_CENTRAL_US"]
    names += ["GPT_4_O_PTU", "GPT_5__WESTUS", "o3_mini_westus", "EASTUS", "PTU"]
    names += ["EMBEDDING", "EMBEDDING_3_SMALL", "GPT_IMAGE_1_5", "SORA_2", "DALLE"]
    env = azure(*names) | {"OPENAI_ENDPOINT": "x", "OPENAI_ENDPOINT_FOO_UK": "x"}
    env["AZURE_OPENAI_ENDPOINT_BLANK"] = ""
    assert discover_models(env) == (
        "GPT_4_O",
        "GPT_4_O_MINI",
        "GPT_5",
        "O3_MINI",
        "EASTUS",
        "PTU",
        "openai:FOO",
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("embedding", ("3_SMALL", "3_LARGE")),
        ("image", ("GPT_IMAGE_1_5", "GPT_IMAGE", "DALLE")),
        ("video", ("SORA_2",)),
    ],
)
def test_models_of_other_kinds_are_listed_by_kind(kind, expected):
    """[pools 65]"""
    env = azure("GPT_4_O", "EMBEDDING", "EMBEDDING_UK", "EMBEDDING_3_SMALL_UK", "EMBEDDING_3_LARGE")
    env |= azure("GPT_IMAGE_1_5_UK", "GPT_IMAGE", "DALLE", "SORA_2", "SORA_2_EASTUS_PTU")
    assert discover_models(env, kind=kind) == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4o", "GPT_4_O"),
        ("gpt-4o-mini", "GPT_4_O_MINI"),
        ("gpt-35-turbo-16k", "GPT_35_TURBO_16K"),
        ("GPT-5.4-pro", "GPT_5_4_PRO"),
        ("o3-mini", "O3_MINI"),
        ("gpt-image-1.5", "GPT_IMAGE_1_5"),
        ("text-embedding-3-small", "3_SMALL"),
        ("text-embedding-ada-002", ""),
        ("GPT_4_O", "GPT_4_O"),
    ],
)
def test_the_name_of_a_model_becomes_that_in_variables(model, expected):
    assert env_name(model) == expected


def test_what_is_no_name_of_a_model_has_none_in_variables():
    with pytest.raises(ConfigurationError, match="is no name of a model"):
        env_name("llama/3 70b")


MODELS = st.from_regex(r"[A-Z0-9]{1,6}(_[A-Z0-9]{1,4}){0,3}", fullmatch=True)
TAILS = st.builds(
    lambda region, mode: "_".join(filter(None, [region, mode])),
    st.sampled_from(["", *sorted(KNOWN_REGIONS)]).map(str.upper),
    st.sampled_from(["", "PTU", "ptu"]),
)


@given(model=MODELS, tails=st.sets(TAILS, min_size=1, max_size=4))
def test_every_variable_of_a_model_is_a_member_and_the_model_is_listed(model, tails):
    """[pools 6, 7, 65] Unless the model's own name looks like a kind's or like a variant."""
    suffixes = ["_".join(filter(None, [model, tail])) for tail in tails]
    found = discover(model, env=azure(*suffixes))
    assert sorted(each.id for each in found.endpoints) == sorted(suffixes)
    pieces = model.split("_")
    ends = ("_".join(pieces[count:]) for count in range(len(pieces)))
    is_variant = any(read_tail(end, KNOWN_REGIONS) for end in ends)
    if not is_variant and not model.startswith(("EMBEDDING", "GPT_IMAGE", "SORA", "DALLE")):
        assert discover_models(azure(*suffixes)) == (model,)


@given(st.text(st.sampled_from("AEU_PTSW12"), max_size=12))
def test_a_tail_is_read_as_the_rule_says(tail):
    """[pools 7] Against the rule in words."""
    pieces = [piece for piece in tail.split("_") if piece]
    mode = PTU if pieces[-1:] == ["PTU"] else PAYG
    rest = pieces[:-1] if mode is PTU else pieces
    regions = frozenset({"eastus", "westus2", "a"})
    read = read_tail(tail, regions)
    if not rest:
        assert (read.region, read.mode) == (None, mode)
    elif len(rest) <= 3 and "".join(rest).lower() in regions:
        assert (read.region, read.mode) == ("".join(rest).lower(), mode)
    else:
        assert read is None


def test_the_order_of_the_environment_does_not_change_who_is_a_member():
    env = azure("GPT_4_O_EASTUS", "GPT_4_O", "GPT_4_O_UK_PTU")
    shapes = [
        shape(discover("GPT_4_O", env=dict(order)))
        for order in itertools.islice(itertools.permutations(env.items()), 0, 720, 97)
    ]
    assert all(each == shapes[0] for each in shapes)
