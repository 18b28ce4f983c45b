"""What a member is made of: keys, numbers, deployment and version, and where they come from."""

import logging
import pickle

import pytest

from chatrouting.errors import PoolConfigError
from chatrouting.pool import ApiKey, Identity, discover

HOST = "https://x.openai.azure.com"
URL = f"{HOST}/openai/deployments/d/chat/completions?api-version=2024-10-21"
NAME = "AZURE_OPENAI_ENDPOINT_GPT_4_O_EASTUS"


async def token():
    return "token"


def only(name="GPT_4_O", env=None, **arguments):
    (endpoint,) = discover(name, env=env, **arguments).endpoints
    return endpoint


# Keys.

LEVELS = [
    "AZURE_OPENAI_API_KEY_GPT_4_O_EASTUS",
    "AZURE_OPENAI_API_KEY_GPT_4_O",
    "AZURE_OPENAI_API_KEY",
]


@pytest.mark.parametrize("first", range(3))
def test_a_key_is_the_members_own_else_that_of_the_model_else_the_general_one(first):
    """[pools 19, B6]"""
    env = {NAME: URL} | {level: f"key in {level}" for level in LEVELS[first:]}

    found = discover("GPT_4_O", env=env)

    assert found.endpoints[0].auth == ApiKey(f"key in {LEVELS[first]}")
    assert found.endpoints[0].source == (NAME, LEVELS[first])
    assert found.diagnostics.used == (NAME, LEVELS[first])
    assert found.diagnostics.origins["GPT_4_O_EASTUS"]["auth"] == LEVELS[first]


def test_a_member_inherits_nothing_from_another_member():
    """[pools 19, B1] The key of EASTUS is not that of EASTUS_PTU."""
    ptu = f"{NAME}_PTU"
    env = {ptu: URL, LEVELS[0]: "of the other"}
    assert only(env=env).auth == Identity()


def test_a_key_for_embeddings_is_inherited_along_its_kind():
    """[pools 19]"""
    env = {
        "AZURE_OPENAI_ENDPOINT_EMBEDDING_3_SMALL_UK": HOST,
        "AZURE_OPENAI_API_KEY_3_SMALL_UK": "no key for embeddings",
        "AZURE_OPENAI_API_KEY": "general",
    }
    assert only("3_SMALL", env, kind="embedding").auth == ApiKey("general")
    for level in ("", "_3_SMALL", "_3_SMALL_UK"):
        env[f"AZURE_OPENAI_API_KEY_EMBEDDING{level}"] = f"key{level}"
        assert only("3_SMALL", env, kind="embedding").auth == ApiKey(f"key{level}")


def test_without_any_key_a_member_asks_for_a_token():
    """[pools 19] TypeAgent's test named "member without a usable key is skipped" is of this."""
    env = {NAME: URL, NAME.replace("EASTUS", "SWEDEN"): URL, LEVELS[0]: "k"}
    east, sweden = discover("GPT_4_O", env=env, credential=token).endpoints
    assert (east.auth, sweden.auth) == (ApiKey("k"), Identity(token))


@pytest.mark.parametrize("word", ["identity", "Identity", "IDENTITY", " identity "])
def test_the_word_identity_asks_for_a_token(word):
    """[pools 20] It stands for a key, so no other one is inherited."""
    env = {NAME: URL, LEVELS[0]: word, LEVELS[2]: "general"}
    assert only(env=env).auth == Identity()
    assert only(env=env, credential=token).auth == Identity(token)


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_key_is_not_set(blank):
    """[pools 20]"""
    assert only(env={NAME: URL, LEVELS[0]: blank}).auth == Identity()
    assert only(env={NAME: URL, LEVELS[0]: blank, LEVELS[2]: "general"}).auth == ApiKey("general")


@pytest.mark.parametrize("env", [{}, {"OPENAI_API_KEY": "identity"}])
def test_openai_needs_a_key_or_a_credential(env):
    """[pools 20] Tokens of Azure are not for others."""
    env = env | {"OPENAI_ENDPOINT": "https://o.example/v1"}
    with pytest.raises(PoolConfigError, match="OPENAI_API_KEY: there is no key"):
        discover(provider="openai", env=env)
    assert only(None, env, provider="openai", credential=token).auth == Identity(token)


def test_a_key_shows_nowhere(caplog):
    """[pools 62]"""
    caplog.set_level(logging.DEBUG)
    env = {NAME: URL, LEVELS[0]: "SECRET", "AZURE_OPENAI_MAX_TIMEOUT_GPT_4_O": "x"}
    with pytest.raises(PoolConfigError) as caught:
        discover("GPT_4_O", env=env)
    del env["AZURE_OPENAI_MAX_TIMEOUT_GPT_4_O"]
    found = discover("GPT_4_O", env=env)
    texts = [repr(found), str(found.diagnostics), str(caught.value), caplog.text]
    assert all("SECRET" not in text for text in texts)
    assert "pool.discovered pool=azure:GPT_4_O members=['GPT_4_O_EASTUS']" in caplog.text


# Numbers.

SETTINGS = [
    ("MAX_TIMEOUT", "timeout", "12345", 12.345),
    ("MAX_RETRYATTEMPTS", "max_retries", "7", 7),
    ("MAX_CONCURRENCY", "max_concurrency", "8", 8),
]


def test_numbers_have_defaults():
    """[pools 22] Seconds here, milliseconds in variables. Only chat has a limit of time."""
    endpoint = only(env={NAME: URL})
    assert (endpoint.timeout, endpoint.max_retries, endpoint.max_concurrency) == (60.0, 3, None)
    embedding = only(None, {"AZURE_OPENAI_ENDPOINT_EMBEDDING": HOST}, kind="embedding")
    assert (embedding.timeout, embedding.max_retries) == (None, 3)


@pytest.mark.parametrize(("setting", "field", "text", "value"), SETTINGS)
@pytest.mark.parametrize("level", ["", "_GPT_4_O", "_GPT_4_O_EASTUS"])
def test_numbers_are_inherited_downwards(setting, field, text, value, level):
    """[pools 22, 23, B6]"""
    variable = f"AZURE_OPENAI_{setting}{level}"
    found = discover("GPT_4_O", env={NAME: URL, variable: text})
    assert getattr(found.endpoints[0], field) == value
    assert found.diagnostics.origins["GPT_4_O_EASTUS"][field] == variable


@pytest.mark.parametrize(("setting", "field", "text", "value"), SETTINGS)
def test_what_is_nearest_to_the_member_counts(setting, field, text, value):
    """[pools 22] Also where something further away could not be used."""
    env = {
        NAME: URL,
        f"AZURE_OPENAI_{setting}": "nonsense",
        f"AZURE_OPENAI_{setting}_GPT_4_O": "99",
        f"AZURE_OPENAI_{setting}_GPT_4_O_EASTUS": text,
    }
    assert getattr(only(env=env), field) == value


def test_numbers_of_embeddings_and_openai_are_named_alike():
    """[pools 22]"""
    env = {"OPENAI_ENDPOINT_EMBEDDING_UK": "https://o/v1", "OPENAI_API_KEY": "k"}
    env["OPENAI_MAX_TIMEOUT_EMBEDDING"] = "500"
    assert only(None, env, kind="embedding", provider="openai").timeout == 0.5


@pytest.mark.parametrize(
    "text",
    ["0", "-5", "1.5", "1e3", "060", "+5", "1_000", "5 s", "five", "٣", "9" * 19, "9" * 5000],
)
@pytest.mark.parametrize("setting", [setting for setting, *_ in SETTINGS])
def test_a_number_prints_back_to_its_text_and_is_above_zero(setting, text):
    """[pools 22]"""
    variable = f"AZURE_OPENAI_{setting}_GPT_4_O"
    with pytest.raises(PoolConfigError, match=f"{variable}: invalid value ") as caught:
        discover("GPT_4_O", env={NAME: URL, variable: text})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("setting", ["MAX_CHARS", "RESPONSE_FORMAT", "ORGANIZATION"])
def test_settings_that_have_no_counterpart_are_told_of_once(setting):
    """[pools 20, 22, 61]"""
    variable = f"AZURE_OPENAI_{setting}"
    found = discover("GPT_4_O", env={NAME: URL, f"{NAME}_PTU": URL, variable: "1"}, strict=True)
    remarks = [(each.variable, each.reason) for each in found.diagnostics.remarks]
    assert remarks == [(variable, "it has no effect on a pool")]


# Deployment and version.


def test_the_url_is_taken_apart():
    found = discover("GPT_4_O", env={NAME: URL})
    (endpoint,) = found.endpoints
    assert (endpoint.url, endpoint.deployment, endpoint.api_version) == (HOST, "d", "2024-10-21")
    origins = found.diagnostics.origins["GPT_4_O_EASTUS"]
    assert origins == {"url": NAME, "deployment": NAME, "api_version": NAME}
    assert found.diagnostics.remarks == ()


def test_the_caller_may_give_what_the_url_does_not_say():
    found = discover("GPT_4_O", env={NAME: HOST}, deployment="mine", api_version="v")
    (endpoint,) = found.endpoints
    assert (endpoint.deployment, endpoint.api_version) == ("mine", "v")
    assert found.diagnostics.remarks == ()
    (endpoint,) = discover("GPT_4_O", env={NAME: URL}, deployment="x", api_version="v").endpoints
    assert (endpoint.deployment, endpoint.api_version) == ("d", "2024-10-21")


def test_nothing_is_guessed_from_the_name_of_the_variable():
    """It is said, with the variable; strict lets it be, for a request may name the model."""
    found = discover("GPT_4_O", env={NAME: HOST}, strict=True)
    assert (found.endpoints[0].deployment, found.endpoints[0].api_version) == (None, None)
    remarks = [(each.variable, each.reason.partition(";")[0]) for each in found.diagnostics.remarks]
    assert remarks == [(NAME, "it names no deployment"), (NAME, "it names no api-version")]


def test_the_version_may_come_from_the_variable_of_the_sdk():
    env = {NAME: HOST, "OPENAI_API_VERSION": "2025-01-01"}
    found = discover("GPT_4_O", env=env, deployment="d")
    assert found.endpoints[0].api_version == "2025-01-01"
    assert found.diagnostics.origins["GPT_4_O_EASTUS"]["api_version"] == "OPENAI_API_VERSION"
    assert only(env=env, api_version="mine").api_version == "mine"


def test_the_newer_form_of_azure_gets_no_version_from_elsewhere():
    env = {NAME: f"{HOST}/openai/v1", "OPENAI_API_VERSION": "2025-01-01"}
    endpoint = only(env=env, deployment="d", api_version="v")
    assert (endpoint.url, endpoint.api_version) == (f"{HOST}/openai/v1", None)


def test_doubts_about_a_url_are_problems_but_the_member_stays(caplog):
    found = discover("GPT_4_O", env={NAME: f"{HOST}/eu"}, deployment="d", api_version="v")
    assert [each.variable for each in found.diagnostics.problems] == [NAME]
    assert f"pool.variable_doubtful variable={NAME}" in caplog.text


# Strict.


def test_strict_raises_everything_at_once():
    """[pools 13, 14, 25, 26, 28]"""
    env = {
        NAME: URL,
        "AZURE_OPENAI_ENDPOINT_GPT_4_O_WESTUS": "",
        "AZURE_OPENAI_ENDPOINT_GPT_4_O_UKSOUTH": "no url",
        "AZURE_OPENAI_ENDPOINT_GPT_4_O_SWEDEN": URL,
        "AZURE_OPENAI_MAX_TIMEOUT_GPT_4_O_SWEDEN": "1.5",
        "AZURE_OPENAI_ENDPOINT_GPT_4_O_MINI": "",
        "AZURE_OPENAI_POOL_GPT_4_O": '[{"suffix": "GPT_4_O_EASTU", "priority": 1}]',
    }
    with pytest.raises(PoolConfigError) as caught:
        discover("GPT_4_O", env=env, strict=True)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "AZURE_OPENAI_ENDPOINT_GPT_4_O_WESTUS",
        "AZURE_OPENAI_ENDPOINT_GPT_4_O_UKSOUTH",
        "AZURE_OPENAI_ENDPOINT_GPT_4_O_SWEDEN",
        "AZURE_OPENAI_POOL_GPT_4_O",
    ]
    assert str(caught.value).startswith("pool azure:GPT_4_O is not as it should be:\n  AZURE")
    assert len(discover("GPT_4_O", env=env).endpoints) == 1


def test_what_was_found_can_be_compared_and_pickled_without_keys():
    found = discover("GPT_4_O", env={NAME: URL})
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301
    assert hash(found) == hash(discover("GPT_4_O", env={NAME: URL}))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(discover("GPT_4_O", env={NAME: URL, LEVELS[0]: "k"}))
