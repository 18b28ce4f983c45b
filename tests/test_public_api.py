"""The public names and signatures, against `public_api.txt`.

A changed line there is a change that users see: it belongs into the changelog, and mostly into
the docs. Write the file anew with `.venv/bin/python tests/test_public_api.py`.

Read from the syntax tree, so that annotations stand here as they stand in the source, whatever the
Python version.
"""

import ast
import difflib
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SNAPSHOT = Path(__file__).parent / "public_api.txt"

#: Where users import from, besides the adapters' and policies' own modules.
PUBLIC = [
    "chatrouting",
    "chatrouting.admission",
    "chatrouting.errors",
    "chatrouting.pool",
    "chatrouting.quota",
    "chatrouting.semantic",
    "chatrouting.simulation",
    "chatrouting.stream",
    "chatrouting.sync",
    "chatrouting.testing",
]
ROOMS_OF_MODULES = ["adapters", "policies"]

#: What Python calls, not users.
HIDDEN_METHODS = {
    "__copy__",
    "__deepcopy__",
    "__del__",
    "__getstate__",
    "__post_init__",
    "__reduce__",
    "__repr__",
}


def public_modules() -> list[str]:
    rooms = [ROOT / "chatrouting" / room for room in ROOMS_OF_MODULES]
    files = [path for room in rooms for path in room.glob("[a-z]*.py")]
    return sorted([*PUBLIC, *(f"chatrouting.{path.parent.name}.{path.stem}" for path in files)])


@cache
def tree_of(module: str) -> ast.Module:
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def exported(module: str) -> list[str]:
    """Return the names that a module gives out."""
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return sorted((name for name in _definitions(module) if name[0] != "_"), key=order)


def order(name: str) -> tuple[bool, bool, str]:
    """Sort constants first, then classes, then the rest."""
    return not name.isupper(), not name[0].isupper(), name


def _definitions(module: str) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in tree_of(module).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found[node.name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node
    return found


def find(module: str, name: str) -> tuple[str, ast.stmt] | None:
    """Return where a name is defined in the package, following imports."""
    if name in _definitions(module):
        return module, _definitions(module)[name]
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("chatrouting"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find(str(node.module), alias.name)
    return None


# Writing it down.


def snapshot() -> str:
    shown: dict[tuple[str, str], str] = {}
    lines = (line for module in public_modules() for line in _module(module, shown))
    return "\n".join(lines)


def _module(module: str, shown: dict[tuple[str, str], str]) -> Iterator[str]:
    """Give the lines of a module; `shown` says where a definition has been written down before."""
    yield f"# {module}"
    yield ""
    for name in exported(module):
        found = find(module, name)
        assert found is not None, f"{module}.{name} is not defined in the package"
        home, node = found
        is_at_home = home in public_modules() and name in exported(home)
        place = home if is_at_home else shown.setdefault((home, name), module)
        if place != module:
            yield f"{name}: see {place}"
        elif isinstance(node, ast.ClassDef):
            yield from _class(home, node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _function(node)
        else:
            yield ast.unparse(node)
    yield ""


def _class(home: str, node: ast.ClassDef) -> Iterator[str]:
    yield from (f"@{ast.unparse(each)}" for each in node.decorator_list)
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    yield f"class {node.name}({bases})" if bases else f"class {node.name}"
    yield from (f"    {line}" for line in _members(home, node).values())


def _members(home: str, node: ast.ClassDef) -> dict[str, str]:
    """Return the lines of a class, by name, with those of bases that users never see."""
    members: dict[str, str] = {}
    for base in reversed([ast.unparse(base) for base in node.bases]):
        found = find(home, base)
        if found is not None and isinstance(found[1], ast.ClassDef) and base not in all_names():
            members |= _members(found[0], found[1])
    for statement in node.body:
        for name, line in _own_members(statement):
            is_method = name.startswith("__") and name not in HIDDEN_METHODS
            is_known = line.startswith("self.") and name in members
            if (is_method or not name.startswith("_")) and not is_known:
                members[name] = line
    return members


@cache
def all_names() -> set[str]:
    return {name for module in public_modules() for name in exported(module)}


def _own_members(node: ast.stmt) -> Iterator[tuple[str, str]]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            if node.name == "__init__":
                yield from _attributes(node)
            line = _function(node)
            yield (f"{node.name}.setter" if ".setter " in line else node.name), line
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            if name != "__slots__":
                yield name, ast.unparse(node)


def _attributes(init: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
    for node in ast.walk(init):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr, f"self.{target.attr}"


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    decorators = "".join(
        f"@{ast.unparse(each)} " for each in node.decorator_list if ast.unparse(each) != "override"
    )
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{decorators}{keyword} {node.name}({ast.unparse(node.args)}){returns}"


# The tests.


def test_the_public_api_is_the_one_that_was_written_down() -> None:
    written = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    changes = list(difflib.unified_diff(written, snapshot().splitlines(), "written", "now", n=1))
    assert changes == [], "see the module's docstring for how to write it anew"


@pytest.mark.parametrize("module", public_modules())
def test_a_public_module_gives_out_what_it_says(module: str) -> None:
    """Every name in `__all__` exists, and the list is sorted: constants, classes, the rest."""
    names = exported(module)
    imported = importlib.import_module(module)
    assert [name for name in names if not hasattr(imported, name)] == []
    assert names == sorted(set(names), key=order)


@pytest.mark.parametrize("module", public_modules())
def test_a_public_module_gives_out_each_class_and_function_that_it_defines(module: str) -> None:
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    definitions = _definitions(module).items()
    defined = {name for name, node in definitions if name[0] != "_" and isinstance(node, kinds)}
    assert defined - set(exported(module)) == set()


def test_the_package_can_be_listed_and_refuses_unknown_names() -> None:
    package = importlib.import_module("chatrouting")
    assert dir(package) == sorted(package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'ChatKlient'"):
        _ = package.ChatKlient


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")
