"""Who may import whom: the map of the design, checked."""

import ast
import subprocess
import sys
from pathlib import Path

import happened

ROOT = Path(happened.__file__).parent
STDLIB_OUT_OF_BOUNDS = {"asyncio", "threading", "socket", "time", "random", "os", "logging"}
MAY_IMPORT = {
    "core": set(),
    "ordering": {"core"},
    "tracking": {"core"},
    "topology": {"core"},
    "wire": {"core", "ordering"},
    "trace": {"core"},
    "causality": {"core", "trace"},
    "sim": {"core", "ordering", "tracking", "wire", "trace"},
    "net": {"core", "ordering", "wire", "trace"},
    "spark": {"core", "trace", "causality"},
    "report": {"core", "trace", "causality"},
    "experiments": {"core", "ordering", "wire", "trace", "sim", "tracking", "causality", "spark", "topology"},
}
PURE = {"core", "ordering", "tracking", "wire"}


def imports(path):
    """Modules a file imports, absolute names, package's own included."""
    package = ("happened", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def rooms(path):
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "happened" and len(parts) > 1 and (ROOT / parts[1]).is_dir():
            yield parts[1]


def test_rooms_import_only_the_rooms_below_them():
    files = [(room, path) for room in MAY_IMPORT for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 20
    crossings = {
        (str(path.relative_to(ROOT)), other)
        for room, path in files
        for other in rooms(path)
        if other != room and other not in MAY_IMPORT[room]
    }
    assert not crossings


def test_pure_rooms_use_the_standard_library_without_clock_dice_or_sockets():
    for room in PURE:
        for path in (ROOT / room).rglob("*.py"):
            for name in imports(path):
                top = name.split(".")[0]
                assert top == "happened" or top in sys.stdlib_module_names, f"{path} imports {name}"
                assert top not in STDLIB_OUT_OF_BOUNDS, f"{path} imports {name}"
            calls = {
                node.func.id
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            assert not calls & {"print", "open", "input"}, path


def test_topology_uses_a_graph_library_and_a_file_format_beside_the_standard_library():
    for path in (ROOT / "topology").rglob("*.py"):
        for name in imports(path):
            top = name.split(".")[0]
            assert top in {"happened", "networkx", "yaml"} | sys.stdlib_module_names, f"{path} imports {name}"


def test_importing_happened_and_its_protocols_needs_no_installed_package():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import happened, happened.ordering, happened.tracking, happened.wire;"
        "happened.ordering.create('ks', 0, 2).multicast([1], b'');"
        "happened.tracking.create('p1', 0, 2).on_send(1)"
    )
    # -S: no site-packages, -I: nothing from the environment.
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(ROOT.parent)], check=True)
