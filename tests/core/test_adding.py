"""CONTRIBUTING lists the files that a new protocol and a new reader touch. Here each is added to a copy of
the repository by touching those files and no other, and the tests of the copy take it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
GUIDE = (REPOSITORY / "CONTRIBUTING.md").read_text()


class Copy:
    def __init__(self, root):
        self.root = root
        self.touched = set()
        ignored = shutil.ignore_patterns("fixtures")  # but not what is compiled already
        for folder in ("src", "tests", "docs"):
            shutil.copytree(REPOSITORY / folder, root / folder, ignore=ignored)
        for file in ("README.md", "CONTRIBUTING.md", "pyproject.toml"):
            shutil.copy(REPOSITORY / file, root / file)

    def write(self, path, text):
        self.touched.add(path)
        (self.root / path).write_text(text)

    def insert(self, path, before, line):
        """A line, before the first one that begins with these words; `before` may be a pattern."""
        text = (self.root / path).read_text()
        changed, count = re.subn(rf"^(?={before})", line, text, count=1, flags=re.M)
        assert count == 1, f"{path} has no line that begins with {before}"
        self.write(path, changed)

    def run(self, *arguments):
        environment = {"PYTHONPATH": str(self.root / "src"), "PATH": ""}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def test(self, *arguments):
        return self.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", *arguments)


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def listed(heading, **names):
    section = GUIDE.split(f"## {heading}\n")[1].split("\n## ")[0]
    files = re.findall(r"^\d\. `([^`]+)`", section, flags=re.M)
    for placeholder, name in names.items():
        files = [file.replace(placeholder, name) for file in files]
    return set(files)


def source_of(module):
    return (REPOSITORY / "tests" / "contract" / f"{module}.py").read_text()


STORY = """\
# whole-past: the second message carries the first, whoever has it.
protocol whole-past, processes alice bob
alice sends question to bob
alice sends more to bob
more arrives at bob
question arrives at bob
----
"""


@pytest.mark.long
def test_a_protocol_is_added_by_touching_five_files(copy):
    machine = source_of("toy").replace('name="toy"', 'name="whole-past"')
    machine = machine.replace(
        'WireFormat(128, "contract.toy_codec")', 'WireFormat(99, "happened.wire.whole_past")'
    )
    codec = source_of("toy_codec").replace("contract.toy", "happened.ordering.causal.whole_past")
    row = "| `whole-past` | the whole causal past | causal | – | 99 | none |\n"
    copy.write("src/happened/ordering/causal/whole_past.py", machine)
    copy.write("src/happened/wire/whole_past.py", codec)
    copy.insert("src/happened/ordering/registry.py", r"    zoned_ks,$", "    whole_past,\n")
    copy.insert("src/happened/ordering/registry.py", r"\)\n# Incomplete", "    whole_past.WholePast,\n")
    copy.write("tests/scenarios/everything_is_carried.txt", STORY)
    copy.insert("README.md", r"\n\[docs/ordering.md\]", row)
    assert copy.touched == listed("Adding a protocol", NAME="whole_past", STORY="everything_is_carried")
    assert len(copy.touched) <= 5

    copy.test("tests/scenarios", "--rewrite", "-k", "everything_is_carried")
    story = (copy.root / "tests/scenarios/everything_is_carried.txt").read_text()
    assert "bob holds more until question (alice,1)\nbob delivers question\nbob delivers more\n" in story
    whole = "test_protocol_table", "core/test_protocol_literals", "core/test_architecture"
    chosen = "everything_is_carried", "every_ordering_protocol", "(whole-past and keeps_the_contract)"
    told = copy.test(
        "-rp",  # all in one process, which takes a second to start
        *(f"tests/{file}.py" for file in (*whole, "contract/test_every_protocol")),
        "tests/scenarios",
        "-k",
        " or ".join((*(file.split("/")[-1] for file in whole), *chosen)),
    )
    passed = re.findall(r"^PASSED tests/(\S+)\.py::(.*)", told, flags=re.M)
    assert {file for file, _ in passed} == {
        *whole,
        "contract/test_every_protocol",
        "scenarios/test_scenarios",
    }
    assert sum("whole-past" in test for file, test in passed if file.startswith("contract")) >= 20
    assert sum(file.startswith("scenarios") for file, _ in passed) >= 2


READER = '''
"""A log of lines like {"who": "a", "saw": {"a": 1}}: a process, and its vector clock."""

import json

from .clocked import assemble_clocked, clock_problem
from .draft import Draft, Quarantined, excerpt


def parse(source, options):
    for number, text in source.lines():
        record = json.loads(text)
        problem = clock_problem(record["who"], record["saw"])
        if problem is not None:
            yield Quarantined(source.file, number, "saw", problem, excerpt(text))
            continue
        yield Draft(source.file, number, source.computation, record["who"], clock=record["saw"])


def assemble(drafts, options):
    return assemble_clocked(drafts, causes_from_clocks=True)


def counts(drafts):
    return {}
'''

READER_TEST = """
from happened import trace
from happened.trace.importing import import_files


def test_a_clock_is_a_cause_and_a_bad_one_is_quarantined(tmp_path):
    log = tmp_path / "some.log"
    log.write_text('{"who":"a","saw":{"a":1}}\\n{"who":"b","saw":{"a":1,"b":1}}\\n{"who":"c","saw":{}}\\n')
    done = import_files([log], tmp_path / "out")
    rows = trace.read(tmp_path / "out").to_pylist()
    assert [(row["process"], row["seq"]) for row in rows] == [("a", 1), ("b", 1)]
    assert rows[1]["causes"] == [{"process": "a", "seq": 1}]
"""


@pytest.mark.long
def test_a_reader_is_added_by_touching_four_files(copy):
    readers = "src/happened/trace/readers"
    copy.write(f"{readers}/seen.py", READER.lstrip())
    copy.insert(f"{readers}/__init__.py", r"from \.draft", "from . import seen\n")
    entry = '    "seen": Format("who saw what", seen.parse, seen.assemble, seen.counts, line_by_line=True),\n'
    copy.insert(f"{readers}/__init__.py", r'    "shiviz": Format', entry)
    copy.insert(f"{readers}/detection.py", r'    \(\{"txns"', '    ({"who", "saw"}, "seen"),\n')
    copy.write("tests/trace/readers/test_seen.py", READER_TEST.lstrip())
    assert copy.touched == listed("Adding a reader", NAME="seen")
    assert len(copy.touched) <= 4
    copy.test("tests/trace/readers/test_seen.py")
    assert "seen" in copy.run("-c", "from happened.cli import main; main(['import', '--help'])")
