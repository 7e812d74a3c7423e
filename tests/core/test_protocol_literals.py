"""What a protocol is, it says in its own file: no other place in the package names one in a literal.

A list of names in a driver is how a protocol is forgotten there. Comments, docstrings and texts for people
may speak of protocols by name.
"""

import ast
import inspect
from pathlib import Path

import pytest

import happened
from happened.ordering import create, protocols

ROOT = Path(happened.__file__).parent
# (file, word) -> why this word is not the name of a protocol there.
ALLOWED = {
    ("cli/node.py", "acknowledged"): "the answer to `ack`: which delivery",
    ("cli/topology.py", "histories"): "a column of the study: the size of histories",
    ("core/orders.py", "causal-total"): "the order that several protocols promise",
    ("net/link.py", "acknowledged"): "a field of an outbox: how far its peer has it",
    ("net/observation.py", "acknowledged"): "the same field in a node's statistics",
}


def own_file(name):
    return Path(inspect.getfile(type(create(name, 0, 3)))).relative_to(ROOT)


def literals(source):
    """Every string of a module that is no docstring or comment, with its line."""
    nodes = list(ast.walk(ast.parse(source)))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


def named(source, names):
    """(line, name) of each literal that is a protocol's name, or a list of names in one string."""
    for line, text in literals(source):
        words = [word.strip() for word in text.split(",")]
        if names.issuperset(words):
            yield from ((line, name) for name in words)


def test_no_file_but_its_own_names_a_protocol():
    names, files = set(protocols()), sorted(ROOT.rglob("*.py"))
    assert len(files) > 100 and len(names) > 20
    homes = {name: own_file(name) for name in names}
    found = {
        (str(path.relative_to(ROOT)), name): line
        for path in files
        for line, name in named(path.read_text(), names)
        if path.relative_to(ROOT) != homes[name]
    }
    assert {place: line for place, line in found.items() if place not in ALLOWED} == {}
    assert ALLOWED.keys() <= found.keys(), "a reason outlived its literal"


@pytest.mark.parametrize(
    "source",
    [
        'RELAYING = {"flooding", "sequencer"}',
        'if protocol == "rst": pass',
        'match protocol:\n    case "rst": pass',
        'parser.add_argument("--protocols", default="ks,rst")',
        'def f(protocol="rst"): pass',
        'LOCAL = {61: "rst"}',
    ],
)
def test_a_literal_is_found_wherever_it_stands(source):
    assert list(named(source, {"ks", "rst", "flooding", "sequencer"}))


@pytest.mark.parametrize(
    "source", ['"""The rst of us: rst."""', "# rst", 'x = "first rst"', "def rst():\n    'rst'", "rst = 1"]
)
def test_prose_and_identifiers_are_not(source):
    assert not list(named(source, {"rst"}))
