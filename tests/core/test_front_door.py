"""`import happened`: what it offers, what it costs, and what it says when a package is missing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import happened
from happened.core.extras import EXTRA_OF, REQUIRED, how_to_install

SOURCES = str(Path(happened.__file__).parents[1])
OFFERED = {"Node", "Tracker", "__version__", "ask", "check", "create", "protocols", "read_trace"}


def python(code, *options):
    """What a fresh interpreter prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-I", *options, "-c", f"import sys; sys.path.insert(0, {SOURCES!r})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_names_people_come_for_are_offered_and_are_those_of_their_rooms():
    from happened.causality import check
    from happened.net import Node
    from happened.ordering import create, protocols
    from happened.trace import read
    from happened.tracking import Tracker

    assert set(happened.__all__) == OFFERED
    assert set(dir(happened)) >= OFFERED
    assert (happened.create, happened.protocols, happened.Tracker) == (create, protocols, Tracker)
    assert (happened.Node, happened.read_trace, happened.check) == (Node, read, check)
    assert happened.ask is sys.modules["happened.ask"]
    assert "create" in vars(happened)  # looked up once
    with pytest.raises(AttributeError, match=r"module 'happened' has no attribute 'reate'"):
        happened.reate  # noqa: B018


def test_importing_it_imports_nothing_else_and_takes_less_than_50_ms():
    code = """
from time import perf_counter
before, start = set(sys.modules), perf_counter()
import happened
took = perf_counter() - start
new = sorted(set(sys.modules) - before)
import json
print(json.dumps([new, took]))"""
    runs = [python(code) for _ in range(3)]
    assert [new for new, _ in runs] == [["happened"]] * 3
    assert min(took for _, took in runs) < 0.05


def test_protocols_trackers_and_nodes_need_the_standard_library_alone():
    code = """
from happened import Node, Tracker, create, protocols
from happened.net import Plaintext
create("ks", 0, 2)
Tracker("a", ["a", "b"]).relevant()
Node("a", peers={"b": "127.0.0.1:1"}, guard=Plaintext())
import json
foreign = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(json.dumps([len(protocols()), sorted(foreign)]))"""
    assert python(code, "-S") == [len(happened.protocols()), ["__main__", "happened"]]


@pytest.mark.parametrize("name, package", [("read_trace", "pyarrow"), ("check", "numba"), ("ask", "numba")])
def test_a_missing_package_is_named_with_what_installs_it(name, package):
    code = f"""
import json
sys.modules[{package!r}] = None
try:
    from happened import {name}
except ImportError as error:
    print(json.dumps([str(error), error.name]))"""
    assert python(code) == [
        f"happened.{name} cannot be used: {package} is not installed; "
        "install it with: pip install 'happened'",
        package,
    ]


def test_every_package_that_may_be_missing_is_one_the_project_declares():
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    import tomllib

    declared = tomllib.loads(project)["project"]
    extras = declared["optional-dependencies"]
    distributions = {
        "nats": "nats-py",
        "yaml": "pyyaml",
        "py4j": "pyspark",
        "grpc_status": "grpcio-status",
    }  # where they have another name
    for package, extra in EXTRA_OF.items():
        assert any(line.startswith(distributions.get(package, package)) for line in extras[extra])
    assert {line.partition(">")[0] for line in declared["dependencies"]} == REQUIRED


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'happened.nothing'", name="happened.nothing"),
        ImportError("cannot import name 'x' from 'numpy'", name="numpy"),
        ImportError("something else"),
    ],
    ids=["our own module", "a name that a package lacks", "no name"],
)
def test_other_import_errors_are_left_as_they_are(error):
    assert how_to_install(error) is None


def test_the_version_stands_in_one_place():
    import tomllib

    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "happened.__version__"}
    assert f"## {happened.__version__} " in (root / "CHANGELOG.md").read_text()
