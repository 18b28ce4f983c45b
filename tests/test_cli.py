"""The command line, run as a person runs it."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from chatrouting.attempt import RoutingAttempt
from chatrouting.cli import main
from chatrouting.cli.chat import attempt_cells, chat, shown_text
from chatrouting.cli.routes import (
    ANTHROPIC_MODEL,
    OPENAI_MODEL,
    WHAT_TO_SET,
    Route,
    RouteError,
    find_routes,
)
from chatrouting.cli.terminal import Terminal
from chatrouting.contents import ReasoningContent, RefusalContent, TextContent
from chatrouting.errors import OverloadedError
from chatrouting.failure import Failure, FailureKind
from chatrouting.responses import ChatResponseUpdate
from chatrouting.testing.provider_server import Gate, ProviderServer, Reply

OPENAI = {"OPENAI_API_KEY": "k"}
ANTHROPIC = {"ANTHROPIC_API_KEY": "k"}
AZURE = {
    "AZURE_OPENAI_ENDPOINT": "https://example.invalid",
    "AZURE_OPENAI_API_KEY": "k",
    "OPENAI_API_VERSION": "2024-10-21",
}
LOCAL = {"OPENAI_BASE_URL": "http://localhost:11434/v1"}


# Routes.


def names(wanted: list[str], environment: Mapping[str, str]) -> list[str]:
    routes, left_out = find_routes(wanted, environment)
    assert left_out == []
    return [route.name for route in routes]


@pytest.mark.parametrize(
    ("wanted", "environment", "expected"),
    [
        ([], OPENAI, [f"openai/{OPENAI_MODEL}"]),
        ([], ANTHROPIC | OPENAI, [f"openai/{OPENAI_MODEL}", f"anthropic/{ANTHROPIC_MODEL}"]),
        ([], OPENAI | {"OPENAI_MODEL": "m"}, ["openai/m"]),
        ([], ANTHROPIC | {"ANTHROPIC_MODEL": "m"}, ["anthropic/m"]),
        ([], AZURE | {"AZURE_OPENAI_DEPLOYMENT": "d"}, ["azure/d"]),
        ([], LOCAL | {"OPENAI_MODEL": "llama"}, ["openai/llama"]),
        (["openai/meta/llama:8b"], LOCAL, ["openai/meta/llama:8b"]),
        (
            ["anthropic", "openai/m"],
            ANTHROPIC | OPENAI,
            [f"anthropic/{ANTHROPIC_MODEL}", "openai/m"],
        ),
        (["openai/a", "openai/b"], OPENAI, ["openai/a", "openai/b"]),
        (["azure/d"], AZURE, ["azure/d"]),
        (
            ["openai"],
            OPENAI | {"OPENAI_BASE_URL": "https://eu.api.openai.com/v1"},
            [f"openai/{OPENAI_MODEL}"],
        ),
    ],
)
def test_routes_come_from_what_is_written_and_what_is_set(wanted, environment, expected):
    assert names(wanted, environment) == expected


@pytest.mark.parametrize(
    ("wanted", "environment", "message"),
    [
        ([], {}, WHAT_TO_SET),
        ([], {"OPENAI_API_KEY": ""}, WHAT_TO_SET),
        (
            [],
            LOCAL,
            "Route 'openai' needs a model: use --route openai/MODEL or set OPENAI_MODEL.",
        ),
        (
            ["azure/d"],
            {"AZURE_OPENAI_ENDPOINT": "x"},
            "Route 'azure/d': azure also needs AZURE_OPENAI_API_KEY, OPENAI_API_VERSION.",
        ),
        (
            ["azure"],
            AZURE,
            "Route 'azure' needs a model: use --route azure/MODEL or set AZURE_OPENAI_DEPLOYMENT.",
        ),
        (
            ["gemini/x"],
            OPENAI,
            "Route 'gemini/x': expected openai, azure or anthropic, alone or with /MODEL.",
        ),
        (
            ["anthropic"],
            OPENAI,
            "Route 'anthropic': anthropic is not configured. Set ANTHROPIC_API_KEY.",
        ),
        (
            ["openai/m", "openai/m"],
            OPENAI,
            "Route 'openai/m' is given twice; every route is asked once.",
        ),
    ],
)
def test_a_route_that_cannot_be_taken_says_what_to_do(wanted, environment, message):
    with pytest.raises(RouteError) as caught:
        find_routes(wanted, environment)
    assert str(caught.value) == message


def test_a_provider_set_in_part_is_left_out_where_another_is_ready():
    routes, left_out = find_routes([], OPENAI | {"AZURE_OPENAI_ENDPOINT": "x"})
    assert [route.name for route in routes] == [f"openai/{OPENAI_MODEL}"]
    assert left_out == ["Route 'azure': azure also needs AZURE_OPENAI_API_KEY, OPENAI_API_VERSION."]


# Chatting.


class Console:
    """Runs `chat` and keeps what it writes."""

    def __init__(self) -> None:
        self.answer = io.StringIO()
        self.notes = io.StringIO()

    async def chat(self, routes: list[Route]) -> int:
        terminal = Terminal(self.notes, width=None, has_colours=False, is_live=False)
        return await chat("Hi", routes, answer=self.answer, notes=terminal)

    def attempts(self) -> list[list[str]]:
        """Give the words of each attempt's line, without its time."""
        lines = self.notes.getvalue().splitlines()
        assert lines[0].split() == ["attempt", "route", "outcome", "kind", "time"]
        return [line.split()[:-2] for line in lines[1:] if line.endswith(("ms", " s"))]


@pytest.fixture
def console() -> Console:
    return Console()


def routes_to(openai: ProviderServer, anthropic: ProviderServer | None = None) -> list[Route]:
    environment = {"OPENAI_BASE_URL": openai.openai_base_url, "OPENAI_MODEL": "m"}
    if anthropic is not None:
        environment |= ANTHROPIC | {"ANTHROPIC_BASE_URL": anthropic.url, "ANTHROPIC_MODEL": "c"}
    return find_routes([], environment)[0]


async def test_the_first_route_answers(anyio_backend, console):
    async with ProviderServer(Reply("All is well.")) as server:
        assert await console.chat(routes_to(server)) == 0
    assert console.answer.getvalue() == "All is well.\n"
    assert console.attempts() == [["1", "openai/m", "completed"]]
    assert server.requests[0].stream


async def test_the_next_route_answers_where_the_first_fails(anyio_backend, console):
    async with ProviderServer(Reply.error(429)) as first, ProviderServer(Reply("Yes.")) as second:
        assert await console.chat(routes_to(first, second)) == 0
    assert console.answer.getvalue() == "Yes.\n"
    assert console.attempts() == [
        ["1", "openai/m", "failed", "rate_limited"],
        ["2", "anthropic/c", "completed"],
    ]


async def test_a_request_that_fails_everywhere_ends_with_its_error(anyio_backend, console):
    failing = Reply.error(500, message="Broken.")
    async with ProviderServer(failing) as first, ProviderServer(failing) as second:
        assert await console.chat(routes_to(first, second)) == 1
    assert console.answer.getvalue() == ""
    assert [words[1:] for words in console.attempts()] == [
        ["openai/m", "failed", "server_error"],
        ["anthropic/c", "failed", "server_error"],
    ]
    last = console.notes.getvalue().splitlines()[-1]
    assert last == "error: anthropic model 'c' answered 500 (api_error): Broken."


async def test_an_answer_that_breaks_off_stays_with_its_error(anyio_backend, console):
    async with ProviderServer(Reply("one two three", drop_at=3)) as server:
        assert await console.chat(routes_to(server)) == 1
    assert console.answer.getvalue() == "one two\n"
    assert console.attempts() == [["1", "openai/m", "failed", "connection"]]


async def test_an_answer_cut_at_its_limit_is_noted(anyio_backend, console):
    async with ProviderServer(Reply("one", finish_reason="length")) as server:
        assert await console.chat(routes_to(server)) == 0
    assert console.notes.getvalue().endswith("note: the answer may not be complete (length).\n")


async def test_azure_is_asked_by_its_deployment(anyio_backend, console):
    async with ProviderServer(Reply("Yes.\n")) as server:
        environment = AZURE | {"AZURE_OPENAI_ENDPOINT": server.url}
        assert await console.chat(find_routes(["azure/d"], environment)[0]) == 0
    assert console.answer.getvalue() == "Yes.\n"
    assert server.requests[0].path == "/openai/deployments/d/chat/completions"
    assert server.requests[0].query == {"api-version": "2024-10-21"}


async def test_a_server_of_ones_own_needs_no_key(anyio_backend, console):
    """It gets one that means nothing, and no option that it may not know."""
    async with ProviderServer() as server:
        assert await console.chat(routes_to(server)) == 0
    assert server.requests[0].headers["authorization"] == "Bearer unused"
    assert set(server.requests[0].body) == {"messages", "model", "stream"}


def test_reasoning_is_not_shown_and_a_refusal_is():
    update = ChatResponseUpdate(
        [ReasoningContent("hm"), TextContent("yes, "), RefusalContent("but no")]
    )
    assert shown_text(update) == "yes, but no"


def test_an_attempt_is_shown_with_its_kind():
    failure = Failure.of(FailureKind.OVERLOADED)
    attempt = RoutingAttempt(exception=OverloadedError("x"), failure=failure, duration=0.5)
    assert [cell.text for cell in attempt_cells(attempt)] == [
        "1",
        "route-1",
        "failed",
        "overloaded",
        "500 ms",
    ]


# The program.

#: Of the machine's own, without what would configure a provider.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("OPENAI_", "ANTHROPIC_", "AZURE_OPENAI_"))
}


@pytest.fixture
def unconfigured(monkeypatch):
    for name in os.environ.keys() - ENVIRONMENT.keys():
        monkeypatch.delenv(name)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "chatrouting", *arguments]


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["chat", "--help"]])
def test_help_fits_a_narrow_terminal(arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"chatrouting {version('chatrouting')}\n"


@pytest.mark.parametrize(
    "arguments",
    [[], ["fly"], ["chat"], ["demo", "--requests", "0"], ["demo", "--requests", "many"]],
)
def test_a_command_that_cannot_be_read_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: chatrouting" in capsys.readouterr().err


@pytest.mark.usefixtures("unconfigured")
def test_without_configuration_chat_says_what_to_set(capsys):
    assert main(["chat", "Hi"]) == 2
    assert capsys.readouterr() == ("", f"{WHAT_TO_SET}\n")


@pytest.mark.usefixtures("unconfigured")
def test_chat_notes_what_it_leaves_out(capsys, monkeypatch):
    """The closed port makes the request fail: that is no traceback but a line."""
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_MODEL", "m")
    assert main(["chat", "Hi"]) == 1
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == (
        "Left out: Route 'azure': azure also needs AZURE_OPENAI_ENDPOINT, OPENAI_API_VERSION."
    )
    assert lines[-1].startswith("error: openai model 'm' could not be reached")


@pytest.mark.timeout(60)
def test_the_demo_prints_json_and_nothing_else():
    done = subprocess.run(  # our own interpreter and text
        command("demo", "--requests", "4", "--json"),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=True,
    )
    assert done.stderr == ""
    numbers = json.loads(done.stdout)
    assert [path["requests"] for path in numbers["paths"]] == [4, 4, 4, 4]


@pytest.mark.timeout(60)
def test_the_demo_in_a_pipe_is_plain_text_also_where_its_reader_leaves():
    with subprocess.Popen(  # our own interpreter and text
        command("demo", "--requests", "2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "chatrouting demo\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.skipif(sys.platform == "win32", reason="interrupts are sent another way there")
@pytest.mark.timeout(60)
async def test_an_interrupted_chat_tells_of_its_attempt_and_leaves(anyio_backend):
    """The answer stops half-way until the user gives up."""
    async with ProviderServer(Reply("one two three", gates={3: Gate()})) as server:
        settings = {"OPENAI_BASE_URL": server.openai_base_url, "OPENAI_MODEL": "m"}
        process = await anyio.open_process(
            command("chat", "Hi"), env=ENVIRONMENT | settings, stdin=subprocess.DEVNULL
        )
        async with process:
            assert process.stdout is not None
            assert process.stderr is not None
            answer = TextReceiveStream(process.stdout)
            shown = ""
            while shown != "one two":
                shown += await answer.receive()
            process.send_signal(signal.SIGINT)
            notes = "".join([text async for text in TextReceiveStream(process.stderr)])
            assert await process.wait() == 130
    assert notes.splitlines()[1].split()[:4] == ["1", "openai/m", "cancelled", "cancelled"]
    assert "Traceback" not in notes
