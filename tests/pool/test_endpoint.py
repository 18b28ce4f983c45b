"""Endpoints: values that are checked when they are made, and secrets that stay secret."""

import copy
import pickle

import pytest

from chatrouting.errors import ConfigurationError
from chatrouting.pool import ApiKey, Endpoint, EndpointMode, Identity


def test_only_the_id_has_to_be_given():
    """[pools 1]"""
    endpoint = Endpoint("")
    assert (endpoint.priority, endpoint.mode, endpoint.region) == (1, EndpointMode.UNKNOWN, None)
    assert (endpoint.timeout, endpoint.max_retries, endpoint.max_concurrency) == (60.0, 3, None)


def test_a_mode_may_be_given_as_its_word_and_a_region_in_any_case():
    endpoint = Endpoint("a", mode="ptu", region="EastUS2")
    assert endpoint.mode is EndpointMode.PTU
    assert endpoint.region == "eastus2"


@pytest.mark.parametrize("priority", [0, -3, 7])
def test_any_whole_number_is_a_priority(priority):
    """[pools 28]"""
    assert Endpoint("a", priority=priority).priority == priority


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", "1"),
        ("priority", 1.5),
        ("priority", True),
        ("weight", 0),
        ("weight", -1.0),
        ("weight", float("inf")),
        ("tpm", 0),
        ("rpm", -1),
        ("capacity", 1.5),
        ("timeout", 0),
        ("timeout", float("nan")),
        ("max_concurrency", 0),
        ("max_retries", -1),
        ("max_retries", None),
        ("mode", "reserved"),
        ("provider", "ollama"),
        ("model", ""),
        ("deployment", 3),
        ("quota_group", ""),
        ("url", "my-host.openai.azure.com"),
        ("url", "ftp://host"),
        ("url", "https://"),
        ("url", 3),
    ],
)
def test_a_field_that_holds_what_it_cannot_is_refused_by_name(field, value):
    """[pools 28] [BR-63]"""
    with pytest.raises(ConfigurationError, match=rf"endpoint 'eu': {field} is {value!r}; expected"):
        Endpoint("eu", **{field: value})


def test_an_id_is_a_text():
    with pytest.raises(ConfigurationError, match="id is None; expected a text"):
        Endpoint(None)


def test_a_key_that_was_given_as_a_text_is_refused_without_being_shown():
    with pytest.raises(ConfigurationError) as refused:
        Endpoint("eu", auth="sk-secret")
    assert "auth is str; expected ApiKey(...) or Identity(...)" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("value", ["", "  ", None])
def test_an_empty_key_is_refused(value):
    with pytest.raises(ConfigurationError, match="holds nothing readable"):
        ApiKey(value)


def test_a_key_shows_in_no_text():
    """[pools 62]"""
    endpoint = Endpoint("a", auth=ApiKey("sk-secret"))
    assert "secret" not in f"{endpoint!r} {endpoint}"


def test_a_key_is_never_pickled():
    with pytest.raises(TypeError, match="the pickle would show the secret"):
        pickle.dumps(Endpoint("a", auth=ApiKey("sk-secret")))


def test_an_endpoint_without_a_key_is_pickled():
    endpoint = Endpoint("a", "https://host", auth=Identity())
    assert pickle.loads(pickle.dumps(endpoint)) == endpoint  # noqa: S301  # our own bytes


def test_a_copy_has_the_key():
    endpoint = Endpoint("a", auth=ApiKey("sk-secret"))
    assert copy.copy(endpoint) == copy.deepcopy(endpoint) == endpoint
    assert copy.copy(endpoint.auth) is endpoint.auth


def test_keys_are_equal_by_value():
    assert len({ApiKey("a"), ApiKey("a"), ApiKey("b")}) == 2
    assert ApiKey("a") != "a"
