"""URLs of endpoints, taken apart. [pools 22, B1] have their tests with discovery."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.errors import PoolConfigError
from chatrouting.pool import discover
from chatrouting.pool._urls import SplitURL, split_url

HOST = "https://x.openai.azure.com"
VERSION = "2024-10-21"


def azure(url, kind="chat"):
    return split_url(url, provider="azure", kind=kind)


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        ("chat", "/chat/completions"),
        ("chat", ""),
        ("chat", "/"),
        ("embedding", "/embeddings"),
        ("image", "/images/generations"),
        ("image", "/images/edits"),
        ("video", "/videos/generations/jobs"),
        ("chat", "/something/new"),
    ],
)
def test_the_url_of_a_request_has_all_parts(kind, operation):
    url = f"{HOST}/openai/deployments/gpt-4o{operation}?api-version={VERSION}"
    assert azure(url, kind) == SplitURL(HOST, "gpt-4o", VERSION, has_versions=True)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (HOST, HOST),
        (f"{HOST}/", HOST),
        (f"{HOST}/openai", HOST),
        (f"{HOST}/openai/", HOST),
        (f"{HOST}/openai/responses?api-version={VERSION}", HOST),
        ("http://127.0.0.1:8080/openai", "http://127.0.0.1:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("https://gateway.example/team/a/openai", "https://gateway.example/team/a"),
        ("HTTPS://gateway.example", "https://gateway.example"),
    ],
)
def test_what_the_url_does_not_say_is_left_open(url, expected):
    split = azure(url)
    assert (split.url, split.deployment, split.doubts) == (expected, None, ())
    assert split.has_versions


def test_a_gateway_may_stand_in_front_of_the_deployment():
    split = azure(
        f"https://gw.example/eu/openai/deployments/d/chat/completions?api-version={VERSION}"
    )
    assert split == SplitURL("https://gw.example/eu", "d", VERSION, has_versions=True)


@pytest.mark.parametrize("operation", ["", "/", "/chat/completions", "/responses"])
@pytest.mark.parametrize(("query", "version"), [("", None), ("?api-version=preview", "preview")])
def test_the_newer_form_of_azure_has_no_deployment_and_needs_no_version(operation, query, version):
    split = azure(f"{HOST}/openai/v1{operation}{query}")
    assert split == SplitURL(f"{HOST}/openai/v1", None, version)


@pytest.mark.parametrize(
    "path",
    ["/openai/chat", "/gpt-4o", "/eu/embed", "/v1/chat/completions", "/openai/deployment/d"],
)
def test_a_path_that_is_not_azures_is_kept_and_said(path):
    """As TypeAgent's own tests have them."""
    split = azure(f"{HOST}{path}")
    assert split.url == f"{HOST}{path}"
    assert "its path is not Azure's" in split.doubts[-1]


def test_the_url_for_another_kind_is_said():
    (doubt,) = azure(f"{HOST}/openai/deployments/ada/embeddings").doubts
    assert doubt == "its path ends in 'embeddings', which a pool of kind 'chat' does not ask"


def test_parameters_that_are_not_sent_are_named_without_their_values():
    split = azure(f"{HOST}/openai?api-version={VERSION}&subscription-key=SECRET&x=")
    assert split.api_version == VERSION
    assert split.doubts == (
        "its query parameter 'subscription-key' is not sent",
        "its query parameter 'x' is not sent",
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1/responses", "https://api.openai.com/v1"),
        ("http://localhost:11434/v1", "http://localhost:11434/v1"),
        ("https://any.example", "https://any.example"),
        ("https://any.example/mycompletions", "https://any.example/mycompletions"),
    ],
)
def test_the_base_of_openai_is_what_stands_before_the_operation(url, expected):
    split = split_url(url, provider="openai", kind="chat")
    assert split == SplitURL(expected)


def test_openai_takes_no_query_and_no_other_operation():
    split = split_url("https://o.example/v1/embeddings?a=SECRET", provider="openai", kind="chat")
    assert split.url == "https://o.example/v1"
    assert len(split.doubts) == 2
    assert "SECRET" not in str(split.doubts)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("sk-SECRET", "no URL"),
        ("x.openai.azure.com", "no URL"),
        ("ftp://x.example", "no URL"),
        ("https://", "no URL"),
        ("https:///openai", "no URL"),
        ("https://[::1", "no URL"),
        ("https://x:99999", "no URL"),
        ("https://x:port", "no URL"),
        ("https://ann:SECRET@x.example", "user name"),
        ("https://x.example/#SECRET", "fragment"),
        ("https://x.example /openai", "a space"),
        ("https://x.ex\nample", "a space or a control character"),
        ("https://x.example/openai/deployments", "no deployment follows"),
        ("https://x.example/openai/deployments/?api-version=1", "no deployment follows"),
    ],
)
@pytest.mark.parametrize("name", ["GPT_4_O", None])
def test_what_is_no_url_names_the_variable_and_does_not_show_it(url, reason, name):
    """A key may have come into the wrong variable."""
    variable = "AZURE_OPENAI_ENDPOINT" + (f"_{name}" if name else "")
    with pytest.raises(PoolConfigError, match=rf"{variable}: .*{reason}") as caught:
        discover(name, env={variable: url})
    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in repr(caught.value.problems)


@given(st.text(max_size=40), st.sampled_from(["azure", "openai"]))
def test_any_text_is_a_url_or_refused(text, provider):
    for url in (text, f"https://{text}", f"{HOST}/{text}"):
        try:
            split = split_url(url, provider=provider, kind="chat")
        except ValueError:
            continue
        assert split.url.startswith(("http://", "https://"))


NAMES = st.from_regex(r"[A-Za-z0-9._~-]{1,12}", fullmatch=True)


@given(NAMES, NAMES)
def test_parts_put_together_are_the_url_again(deployment, version):
    url = f"{HOST}/openai/deployments/{deployment}/chat/completions?api-version={version}"
    split = azure(url)
    assert (split.url, split.deployment, split.api_version) == (HOST, deployment, version)
    assert split.doubts == ()
