"""`chatrouting pool`: what a pool is made of, and one call to each of its members."""

import io
import itertools
import os

import anyio
import anyio.lowlevel
import pytest

from chatrouting.cli import main
from chatrouting.cli.pool import show_pool
from chatrouting.cli.pool_check import asking, check_pool
from chatrouting.cli.terminal import Terminal
from chatrouting.errors import (
    AuthenticationError,
    ConfigurationError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
)
from chatrouting.pool import discover
from chatrouting.testing import ProviderServer

ROOT = "AZURE_OPENAI_ENDPOINT_GPT_4_O"
URL = (
    "https://{}.openai.azure.com/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21"
)
ENV = {
    f"{ROOT}_SWEDENCENTRAL": URL.format("sweden"),
    f"{ROOT}_EASTUS_PTU": URL.format("east"),
    f"{ROOT}_MINI_UK": URL.format("mini"),
    f"{ROOT}_UKSOUTH": "",
    f"{ROOT}_WESTUS": "https://west.openai.azure.com",
    "AZURE_OPENAI_API_KEY": "SECRET",
    "AZURE_OPENAI_API_KEY_GPT_4_O_EASTUS_PTU": "identity",
    "AZURE_OPENAI_MAX_TIMEOUT": "30000",
    "AZURE_OPENAI_POOL_GPT_4_O": '[{"suffix": "GPT_4_O_EASTUS_PTU", "tpm": 50000, "weight": 2}]',
}


def terminal(width=None):
    stream = io.StringIO()
    return Terminal(stream, width=width, has_colours=False, is_live=False), stream


def shown(env, name="GPT_4_O", *, width=None, **arguments):
    out, stream = terminal(width)
    is_well = show_pool(discover(name, env=env, **arguments), out)
    return is_well, stream.getvalue()


# Showing.

WIDE = """\
azure:GPT_4_O: 3 members in 2 tiers

tier  member                 mode  region         auth   address
   1  GPT_4_O_EASTUS_PTU     PTU   eastus         token  https://east.openai.azure.com
   2  GPT_4_O_SWEDENCENTRAL  PAYG  swedencentral  key    https://sweden.openai.azure.com
   2  GPT_4_O_WESTUS         PAYG  westus         key    https://west.openai.azure.com

Where values are from
  AZURE_OPENAI_ENDPOINT_GPT_4_O_EASTUS_PTU     address https://east.openai.azure.com, deployment gpt-4o, version 2024-10-21
  AZURE_OPENAI_API_KEY_GPT_4_O_EASTUS_PTU      a token
  AZURE_OPENAI_POOL_GPT_4_O                    weight 2.0, tokens a minute 50000 (for GPT_4_O_EASTUS_PTU)
  AZURE_OPENAI_MAX_TIMEOUT                     time limit 30 s (for all members)
  AZURE_OPENAI_ENDPOINT_GPT_4_O_SWEDENCENTRAL  address https://sweden.openai.azure.com, deployment gpt-4o, version 2024-10-21
  AZURE_OPENAI_API_KEY                         a key (for GPT_4_O_SWEDENCENTRAL, GPT_4_O_WESTUS)
  AZURE_OPENAI_ENDPOINT_GPT_4_O_WESTUS         address https://west.openai.azure.com
  not set                                      retries 3, any number at once (for all members)

Problems
  AZURE_OPENAI_ENDPOINT_GPT_4_O_UKSOUTH  it is empty

Good to know
  AZURE_OPENAI_ENDPOINT_GPT_4_O_WESTUS  it names no deployment; give deployment=
  AZURE_OPENAI_ENDPOINT_GPT_4_O_WESTUS  it names no api-version; give api_version=, or set OPENAI_API_VERSION

Passed over
  AZURE_OPENAI_ENDPOINT_GPT_4_O_MINI_UK  it belongs to another model, or ends in a region that is not known
"""  # noqa: E501  # as wide as in a pipe


def test_a_pool_is_shown_with_members_sources_and_what_was_passed_over():
    """[pools 62] And no key."""
    is_well, text = shown(ENV)
    assert not is_well
    assert text == WIDE


@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_line_is_wider_than_the_terminal(width):
    _, text = shown(ENV, width=width)
    # Names of variables are never cut: somebody will want to copy them.
    lines = [line for line in text.splitlines() if not line.startswith("  AZURE")]
    assert max(map(len, lines)) <= width
    assert all(name in text for name in ENV if name != "AZURE_OPENAI_API_KEY_GPT_4_O_WESTUS")
    assert "SECRET" not in text


def test_where_there_is_no_room_beside_a_name_the_value_stands_below_it():
    _, text = shown(ENV, width=70)
    lines = text.splitlines()
    at = lines.index(f"  {ROOT}_EASTUS_PTU")
    assert lines[at + 1] == "    address https://east.openai.azure.com, deployment gpt-4o, version"
    assert lines[at + 2] == "    2024-10-21"


def test_a_pool_of_one_without_a_name_is_all_well():
    env = {"AZURE_OPENAI_ENDPOINT": URL.format("x"), "AZURE_OPENAI_MAX_CONCURRENCY": "4"}
    is_well, text = shown(env, None)
    assert is_well
    assert text.splitlines()[2:4] == [
        "tier  member  mode  region  auth   address",
        "   1  -       -     -       token  https://x.openai.azure.com",
    ]
    assert "  AZURE_OPENAI_MAX_CONCURRENCY  4 at once\n" in text
    assert "  not set                       a token, time limit 60 s, retries 3\n" in text


def test_what_overrides_set_is_shown_with_their_variable():
    entry = '[{"suffix": "GPT_4_O_UK", "mode": "PTU", "priority": -1, "region": "ukwest"}]'
    env = {f"{ROOT}_UK": URL.format("x"), "AZURE_OPENAI_POOL_GPT_4_O": entry}
    _, text = shown(env, kind="chat")
    assert "AZURE_OPENAI_POOL_GPT_4_O         tier -1, mode PTU, region ukwest" in text


def test_a_pool_of_embeddings_has_no_time_limit():
    _, text = shown({"AZURE_OPENAI_ENDPOINT_EMBEDDING": "https://x"}, None, kind="embedding")
    assert text.startswith("azure:EMBEDDING: 1 member")
    assert "time limit none" in text


# Checking.


def fails_for(**errors):
    """Ask nobody; members whose last word is named fail."""

    def prepare(endpoint):
        async def ask():
            error = errors.get(endpoint.id.rpartition("_")[2].lower())
            if error is not None:
                raise error

        return ask

    return prepare


async def checked(prepare, *, env=ENV, width=None, time_limit=5.0):
    out, stream = terminal(width)
    ticks = itertools.count()
    found = discover("GPT_4_O", env=env)
    is_well = await check_pool(
        found, prepare, out, time_limit=time_limit, clock=lambda: next(ticks) / 10
    )
    return is_well, stream.getvalue().splitlines()


async def test_each_member_is_asked_once_and_its_time_is_shown(anyio_backend):
    asked = []

    def prepare(endpoint):
        async def ask():
            asked.append(endpoint.id)

        return ask

    is_well, lines = await checked(prepare, env={f"{ROOT}_UK": URL.format("x")})

    assert is_well
    assert asked == ["GPT_4_O_UK"]
    assert lines == [
        "azure:GPT_4_O: one call to each member",
        "",
        "tier  member      region  latency  result",
        "   2  GPT_4_O_UK  uk       100 ms  ok",
        "",
        "1 of 1 answered.",
    ]


async def test_who_fails_is_shown_with_the_kind_of_failure_and_where_to_look(anyio_backend):
    """The provider's words on a key are not shown, for they may hold parts of it."""
    ask = fails_for(
        ptu=PermissionDeniedError("token SECRET is bad", status_code=403),
        swedencentral=AuthenticationError("key SECRET is bad", status_code=401),
        westus=NotFoundError("no such deployment; SECRET?", status_code=404),
    )

    is_well, lines = await checked(ask)

    assert not is_well
    assert [line.split()[-2:] for line in lines[3:6]] == [
        ["permission", "(403)"],
        ["authentication", "(401)"],
        ["not_found", "(404)"],
    ]
    assert lines[7:] == [
        "0 of 3 answered.",
        "",
        "GPT_4_O_EASTUS_PTU",
        "The provider refused the key. Look at AZURE_OPENAI_API_KEY_GPT_4_O_EASTUS_PTU.",
        "",
        "GPT_4_O_SWEDENCENTRAL",
        "The provider refused the key. Look at AZURE_OPENAI_API_KEY.",
        "",
        "GPT_4_O_WESTUS",
        "no such deployment; ...?",
    ]
    assert "SECRET" not in "".join(lines)


async def test_a_token_that_nobody_could_give_is_told_in_our_own_words(anyio_backend):
    env = {f"{ROOT}_UK": URL.format("x")}
    _, lines = await checked(fails_for(uk=AuthenticationError("got no token")), env=env)
    assert lines[-1] == "got no token."
    _, lines = await checked(fails_for(uk=AuthenticationError("", status_code=401)), env=env)
    assert lines[-1] == "The provider refused the token."


async def test_one_that_fails_for_another_reason_is_quoted(anyio_backend):
    ask = fails_for(westus=OverloadedError("busy", status_code=529), swedencentral=KeyError())
    is_well, lines = await checked(ask)
    assert not is_well
    assert lines[7] == "1 of 3 answered."
    assert lines[-1] == "busy."
    assert "KeyError." in lines


async def test_one_that_no_client_can_be_made_for_is_not_asked(anyio_backend):
    env = {f"{ROOT}_UK": "https://x", f"{ROOT}_WESTUS": URL.format("x")}

    def prepare(endpoint):
        if endpoint.deployment is None:
            raise ConfigurationError("it has no deployment")
        return anyio.lowlevel.checkpoint

    _, lines = await checked(prepare, env=env)

    assert [line.split()[2:] for line in lines[3:5]] == [
        ["uk", "-", "configuration"],
        ["westus", "100", "ms", "ok"],
    ]
    assert lines[-1] == f"it has no deployment. Look at {ROOT}_UK."


@pytest.mark.virtual_time
async def test_one_that_does_not_answer_in_time_is_left(anyio_backend):
    def prepare(endpoint):
        return anyio.sleep_forever if endpoint.region == "westus" else anyio.lowlevel.checkpoint

    _, lines = await checked(prepare, time_limit=2.5)

    assert [line.split()[-1] for line in lines[3:6]] == ["ok", "ok", "timeout"]
    assert lines[-1] == "No answer within 2.5 s."


async def test_progress_is_shown_in_a_terminal_and_removed(anyio_backend):
    stream = io.StringIO()
    out = Terminal(stream, width=80, has_colours=False, is_live=True)
    found = discover("GPT_4_O", env=ENV)
    await check_pool(found, fails_for(), out, time_limit=1)
    assert "asking: 2 of 3 are back" in stream.getvalue()
    assert stream.getvalue().count("asking") == 4


@pytest.mark.parametrize("kind", ["chat", "embedding"])
async def test_members_are_asked_over_the_sdk(anyio_backend, kind, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    word = "EMBEDDING_" if kind == "embedding" else ""
    async with ProviderServer(api_key="right") as server:
        url = f"{server.url}/openai/deployments/d?api-version=2024-10-21"
        env = {
            f"AZURE_OPENAI_ENDPOINT_{word}X_UK": url,
            f"AZURE_OPENAI_ENDPOINT_{word}X_EASTUS": url,
            f"AZURE_OPENAI_API_KEY_{word}X": "right",
            f"AZURE_OPENAI_API_KEY_{word}X_EASTUS": "wrong",
        }
        out, stream = terminal()
        async with asking(kind) as prepare:
            found = discover("X", kind=kind, env=env)
            assert not await check_pool(found, prepare, out, time_limit=20)
        assert "1 of 2 answered." in stream.getvalue()
        assert f"Look at AZURE_OPENAI_API_KEY_{word}X_EASTUS." in stream.getvalue()


# The commands.


@pytest.fixture
def environment(monkeypatch):
    """Return a function that sets variables; those of this machine are gone."""
    for name in list(os.environ):
        if "OPENAI" in name:
            monkeypatch.delenv(name)

    def set_variables(env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)

    return set_variables


def test_show_is_done_if_all_is_well(environment, capsys):
    environment({f"{ROOT}_UK": URL.format("x")})
    assert main(["pool", "show", "gpt_4_o"]) == 0
    assert capsys.readouterr().out.startswith("azure:GPT_4_O: 1 member in 1 tier")


def test_show_fails_if_something_is_not_as_it_should_be(environment, capsys):
    environment(ENV)
    assert main(["pool", "show", "GPT_4_O"]) == 1
    out, notes = capsys.readouterr()
    assert "it is empty" in out
    assert notes == ""
    assert "SECRET" not in out


@pytest.mark.parametrize("command", ["show", "check"])
def test_a_pool_that_is_not_there_says_what_is(environment, capsys, command):
    environment({f"{ROOT}_UK": URL.format("x")})
    assert main(["pool", command, "gpt-4o"]) == 2
    out, notes = capsys.readouterr()
    assert out == ""
    assert "By env_name('gpt-4o') it would be found" in notes


def test_options_say_which_pool_and_what_addresses_do_not(environment, capsys):
    environment({"OPENAI_ENDPOINT": "https://o/v1", "OPENAI_API_KEY": "k"})
    environment({"AZURE_OPENAI_ENDPOINT_SORA_2": "https://x"})
    assert main(["pool", "show", "--provider", "openai"]) == 0
    assert main(["pool", "show", "--kind", "video", "--deployment", "sora"]) == 0
    assert "names no deployment" not in capsys.readouterr().out


def test_check_fails_if_a_member_does_not_answer(environment, capsys):
    environment({"OPENAI_ENDPOINT": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "SECRET"})
    environment({"OPENAI_MODEL": "m", "NO_PROXY": "127.0.0.1"})
    assert main(["pool", "check", "openai", "--time-limit", "20"]) == 1
    out = capsys.readouterr().out
    assert "0 of 1 answered." in out
    assert "connection" in out
    assert "Look at OPENAI_ENDPOINT." in " ".join(out.split())


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "soon"])
def test_a_time_limit_is_a_number_of_seconds(text, capsys):
    with pytest.raises(SystemExit):
        main(["pool", "check", "X", "--time-limit", text])
    assert "--time-limit" in capsys.readouterr().err


def test_pictures_are_not_checked(capsys):
    with pytest.raises(SystemExit):
        main(["pool", "check", "--kind", "image"])
    assert "invalid choice: 'image'" in capsys.readouterr().err
