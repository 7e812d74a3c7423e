"""No two modules of the package need each other, not even within a function."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import happened

ROOT = Path(happened.__file__).parent


def modules():
    """Every module's file by its name; a package is its __init__."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name, path, known):
    """The modules of the package that a file imports anywhere in it, but for its own parents."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(
                [*package[: len(package) - node.level + 1], *([node.module] if node.module else [])]
            )
            for alias in node.names:
                target = f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base
                if not f"{name}.".startswith(f"{target}."):
                    yield target


def first_cycle(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_imports_go_one_way():
    known = modules()
    assert first_cycle({name: set(imported(name, path, known)) for name, path in known.items()}) is None


def test_a_cycle_would_be_found(tmp_path):
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("from .second import b\n")
    second.write_text("def f():\n    from . import first\n")
    known = {"happened.net.first": first, "happened.net.second": second}
    graph = {name: set(imported(name, path, known)) for name, path in known.items()}
    assert set(first_cycle(graph)) == set(known)


@pytest.mark.parametrize("room", ["core", "ordering", "wire"])
def test_the_rooms_below_do_not_know_net(room):
    known = modules()
    for name, path in known.items():
        if name.startswith(f"happened.{room}"):
            assert not [target for target in imported(name, path, known) if ".net" in target], name
