"""CONTRIBUTING lists the files that a new protocol, a new reader and a new column touch. Here each is added
to a copy of the repository by touching those files and no other, and the copy is used with it."""

import os
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

    def run(self, *arguments, path=""):
        environment = {"PYTHONPATH": str(self.root / "src"), "PATH": path}
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
from .draft import Draft


def parse(source, options):
    for number, text in source.lines():
        record = json.loads(text)
        problem = clock_problem(record["who"], record["saw"])
        if problem is not None:
            yield source.quarantined(number, text, "saw", problem)
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
    entry = '    "seen": _of("who saw what", seen, line_by_line=True),\n'
    copy.insert(f"{readers}/__init__.py", r'    "shiviz": _of', entry)
    copy.insert(f"{readers}/detection.py", r'    \(\{"txns"', '    ({"who", "saw"}, "seen"),\n')
    copy.write("tests/trace/readers/test_seen.py", READER_TEST.lstrip())
    assert copy.touched == listed("Adding a reader", NAME="seen")
    assert len(copy.touched) <= 4
    copy.test("tests/trace/readers/test_seen.py")
    assert "seen" in copy.run("-c", "from happened.cli import main; main(['import', '--help'])")


COLUMNS = """\
    Column("host", pa.string()),
    Column("retries", pa.int32()),
    Column("zones", pa.list_(pa.string())),
"""

LINE = "| host, retries, zones | | carried along, not looked at |\n"

ADDED = """
import csv, json, sys
from pathlib import Path

from happened import trace
from happened.causality import encode
from happened.cli import main
from happened.trace.importing import import_files
from happened.trace.readers import Options
from happened.spark.storage import spark_schema
from happened.view.prepared import Prepared
from happened.view.query import matching
from happened.view.scene import scene

sys.path.append("tests")
from view.unpacking import Unpacked

there = Path(sys.argv[1])
LISTED = {"host": "h1", "retries": 7, "zones": ["eu", "us"]}
BOTH = [
    {"process": "a", "seq": 1, "kind": "send", "message": "m", "to": ["b"], **LISTED},
    {"process": "b", "seq": 1, "kind": "deliver", "message": "m"},
]


def has_both(path):
    rows = trace.read(path).sort_by("process").to_pylist()
    assert [[row[name] for name in LISTED] for row in rows] == [["h1", 7, ["eu", "us"]], [None, None, None]]


def has_imported(name, **options):
    import_files([there / name], there / f"{name}.trace", **options)
    has_both(there / f"{name}.trace")


def written(name, rows):
    (there / name).write_text("".join(json.dumps(row) + "\\n" for row in rows))


with trace.TraceWriter(there / "written") as writer:
    for row in BOTH:
        writer.append(row)
has_both(there / "written")
written("lines.jsonl", BOTH)
has_both(there / "lines.jsonl")
has_imported("lines.jsonl")

mapping = "process=who,kind=what,message=m,to=to,host=machine,retries=again,zones=regions"
names = dict(pair.split("=")[::-1] for pair in mapping.split(","))
foreign = [{theirs: row[ours] for theirs, ours in names.items() if ours in row} for row in BOTH]
written("foreign.json", foreign)
has_imported("foreign.json", format="map", options=Options(map=mapping))
with (there / "foreign.csv").open("w") as file:
    table = csv.DictWriter(file, [*names])
    table.writeheader()
    for row in foreign:
        table.writerow(row | {"to": "b", "regions": json.dumps(row["regions"]) if "regions" in row else ""})
has_imported("foreign.csv", format="map", options=Options(map=mapping))
written("wrong.json", [foreign[0] | {"again": "often"}, foreign[1]])
done = import_files([there / "wrong.json"], there / "wrong", format="map", options=Options(map=mapping))
assert [each.reason for each in done.quarantined] == ["again is 'often', not an integer"]
written("bad.jsonl", [BOTH[0] | {"retries": "often"}, BOTH[1]])
done = import_files([there / "bad.jsonl"], there / "bad")
assert (done.quarantined[0].field, done.quarantined[0].reason) == ("retries", "is 'often', not an integer")

for format in ("jsonl", "csv", "perfetto"):
    name = f"exported.{format}"
    assert main(["export", str(there / "written"), "--to", format, "--out", str(there / name)]) == 0
    has_imported(name)

types = {field.name: field.dataType.simpleString() for field in spark_schema(trace.SCHEMA)}
assert [types[name] for name in LISTED] == ["string", "int", "array<string>"]

table = trace.read(there / "written")
(c,) = encode(table)
shown = Unpacked(scene(Prepared(c, table)))
first = shown.events.index(("a", 1))
listed = shown.header["texts"][shown.arrays["attributes"][first]]
pairs = dict(zip(listed[::2], listed[1::2]))
assert pairs == {"to": "b", "host": "h1", "retries": "7", "zones": "eu, us"}
for query in ("host=h1", "retries=7", "zones=us"):
    assert matching(Prepared(c, table), query).tolist() == [name == "a" for name in c.process_names], query
"""

ON_SPARK = """
import sys

from happened import spark as hs
from happened.spark.session import session

COLUMNS = "process", "seq", "kind", "message", "to", "host", "retries", "zones"
ROWS = [("a", 1, "send", "m", ["b"], "h1", 7, ["eu", "us"]), ("b", 1, "deliver", "m", None, None, None, None)]
TYPES = "process string, seq long, kind string, message string, to array<string>, host string"


def told(frame):
    return [tuple(row) for row in frame.select("host", "retries", "zones").sort("process").collect()]


expected = [("h1", 7, ["eu", "us"]), (None, None, None)]
with session(master="local[1]") as spark:
    frame = spark.createDataFrame(ROWS, f"{TYPES}, retries int, zones array<string>")
    frame.write.parquet(f"{sys.argv[1]}/fitting")
    assert told(hs.read_trace(spark, f"{sys.argv[1]}/fitting")) == expected
    assert hs.stamp(frame).count() == 2
    wider = frame.withColumn("retries", frame.retries.cast("long"))
    wider.write.parquet(f"{sys.argv[1]}/wider")  # nobody looks at it, so that it is left out
    assert {*hs.read_trace(spark, f"{sys.argv[1]}/wider").columns} == {*COLUMNS} - {"retries"}
    renamed = frame.select("*", frame.seq.alias("position"), frame.host.alias("machine")).drop("seq", "host")
    assert told(hs.log(renamed, {"host": "machine"})) == expected
"""


@pytest.fixture
def with_columns(copy):
    copy.insert("src/happened/trace/schema.py", r'    Column\("control_entries"', COLUMNS)
    copy.insert(
        "docs/pipeline.md", r"\| label, attributes, control", "| host, retries, zones | | carried along |\n"
    )
    assert copy.touched == listed("Adding a column")
    assert len(copy.touched) <= 2
    return copy


@pytest.mark.long
def test_a_column_is_added_by_touching_two_files(with_columns, tmp_path):
    with_columns.run("-c", ADDED, str(tmp_path))


@pytest.mark.slow  # a second JVM
def test_an_added_column_passes_through_spark(with_columns, tmp_path):
    with_columns.run("-c", ON_SPARK, str(tmp_path), path=os.environ["PATH"])
