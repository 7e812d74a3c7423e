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
    "ask": {"core", "trace", "causality"},
    "sim": {"core", "ordering", "tracking", "wire", "trace"},
    "net": {"core", "ordering", "tracking", "wire", "trace", "topology"},
    "testing": {"core", "net"},
    "spark": {"core", "trace", "causality", "ask", "report"},
    "report": {"core", "trace", "causality", "view"},
    "receiving": {"core", "trace", "causality", "ask", "report"},
    "view": {"core", "trace", "causality"},
    "streaming": {"core", "ordering", "wire", "spark"},
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


SAME_MEANING = {
    "errors": "what a room raises",
    "registry": "the protocols of a room by name",
    "membership": "who belongs to a system: the members of a node, and what nodes tell each other of them",
    "node": "a node, and the command that runs one",
    "advise": "a study, and the command that prints it",
    "compare": "a study, and the command that prints it",
    "explore": "the explorer, and the command that runs it",
}
"""Names of modules that stand in two rooms and mean the same in both."""


def test_a_name_of_a_module_means_one_thing():
    """A codec is named after its protocol, a question after the kernel that answers it."""
    names = {}
    for path in ROOT.rglob("*.py"):
        where = path.relative_to(ROOT).parent.as_posix()
        if path.stem not in ("__init__", "__main__") and where not in ("wire", "causality/questions"):
            names.setdefault(path.stem, []).append(where)
    assert {name for name, places in names.items() if len(places) > 1} == SAME_MEANING.keys() - {"membership"}
    codecs = {path.stem for path in (ROOT / "wire").glob("*.py")} & names.keys()
    told = {place for name in codecs - SAME_MEANING.keys() for place in names[name]}
    assert told <= {"ordering/causal", "ordering/total"}
    questions = {path.stem for path in (ROOT / "causality" / "questions").glob("*.py")} & names.keys()
    assert {place for name in questions - {"__init__"} for place in names[name]} == {"causality"}
