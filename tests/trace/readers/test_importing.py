"""From files to a trace on disk: all of it or nothing, whatever the files are like."""

import gzip
import json
import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from happened import causality, trace
from happened.core.errors import TraceFormatError
from happened.trace import importing
from happened.trace.importing import import_files
from happened.trace.readers import FORMATS, QUARANTINE, Options, open_source
from happened.trace.readers.detection import detect
from happened.trace.readers.source import lines_begun, open_piece

FIXTURES = Path(__file__).parents[2] / "fixtures"
FORMAT_OF = {
    "greeting.log": "shiviz",
    "tokens.log": "tokens",
    "ring.trace": "peterson",
    "raft.ndjson": "etcd-raft",
    "linked.otlp.json": "otlp",
    "follows.jaeger.json": "jaeger",
    "halves.zipkin.json": "zipkin",
    "pods.csv": "nezha",
    "console.otel.json": "otel-sdk",
    "segments.xray.json": "xray",
    "spans.datadog.json": "datadog",
    "flows.chrome.json": "chrome",
    "fork.awdit.txt": "awdit",
    "appends.jepsen.json": "jepsen",
    "commits.jsonl": "dag",
    "blocks.json": "dag",
    "editing.json": "dag",
    "events.jsonl": "jsonl",
    "events.perfetto.json": "perfetto",
    "events.csv": "csv",
}


TESTS_OF = {"map": "test_mapped.py"}
"""Tests of a format that are not in test_FORMAT.py."""


def test_every_format_has_a_fixture_or_tests_of_its_own():
    files = {name: TESTS_OF.get(name, f"test_{name.replace('-', '_')}.py") for name in FORMATS}
    tested = {name for name, file in files.items() if (Path(__file__).parent / file).exists()}
    assert {*FORMAT_OF.values()} | tested == FORMATS.keys()


@pytest.mark.parametrize("name", FORMAT_OF)
def test_every_format_is_recognised_and_becomes_a_trace(name, tmp_path):
    done = import_files([FIXTURES / name], tmp_path / "out")
    assert done.summary["format"] == FORMAT_OF[name]
    assert done.summary == json.loads((tmp_path / "out" / "import.json").read_text())
    table = trace.read(tmp_path / "out")
    events_of_a_record = 2 if FORMATS[done.summary["format"]].joins_computations else 1  # of a span: two
    assert table.num_rows == done.summary["events"] > 0
    assert done.summary["events"] == events_of_a_record * done.summary["files"][0]["records"]
    assert done.summary["quarantined"] == 0
    assert pq.read_schema(tmp_path / "out" / "quarantine" / "part-000000.parquet").equals(QUARANTINE)
    assert sum(c.events for c in causality.encode(table)) == table.num_rows
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


@pytest.mark.parametrize("name", FORMAT_OF)
def test_a_compressed_file_is_the_same(name, tmp_path):
    data = (FIXTURES / name).read_bytes()
    import_files([FIXTURES / name], tmp_path / "plain")
    for form, compressed in {
        "gzip": gzip.compress(data),
        "zstd": pa.compress(data, codec="zstd", asbytes=True),
    }.items():
        (tmp_path / form).mkdir()
        packed = tmp_path / form / name  # computations are named after files
        packed.write_bytes(compressed)
        import_files([packed], tmp_path / form / "out")
        assert trace.read(tmp_path / form / "out") == trace.read(tmp_path / "plain")


@pytest.mark.parametrize("name", FORMAT_OF)
def test_a_file_cut_anywhere_crashes_nothing(name, tmp_path):
    whole = (FIXTURES / name).read_bytes()
    for cut in range(0, len(whole), max(1, len(whole) // 25)):
        path = tmp_path / f"{cut}-{name}"
        path.write_bytes(whole[:cut])
        out = tmp_path / str(cut)
        try:
            done = import_files([path], out, format=FORMAT_OF[name])
        except TraceFormatError:
            assert not out.exists()
            continue
        table = trace.read(out)
        causality.encode(table)
        assert done.summary["quarantined"] or table.num_rows


def test_what_was_not_understood_is_in_the_quarantine(tmp_path):
    path = tmp_path / "ring.trace"
    path.write_text((FIXTURES / "ring.trace").read_text() + "what is this\n")
    done = import_files([path], tmp_path / "out")
    assert done.summary["quarantined"] == 1
    assert pq.read_table(tmp_path / "out" / "quarantine").to_pylist() == [
        {
            "file": str(path),
            "line": 8,
            "field": None,
            "reason": "is not `node v0,v1,… event args`",
            "text": "what is this",
            "imported": False,
        }
    ]


def test_strict_refuses_what_is_not_understood_and_writes_nothing(tmp_path):
    path = tmp_path / "ring.trace"
    path.write_text("0 1 active\nwhat is this\n")
    with pytest.raises(TraceFormatError, match=f"{path}:2: is not `node"):
        import_files([path], tmp_path / "out", format="peterson", strict=True)
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_is_named(tmp_path):
    path = tmp_path / "empty.log"
    path.touch()
    with pytest.raises(TraceFormatError, match=f"no events were found: {path}: is empty"):
        import_files([path], tmp_path / "out", format="tokens")
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_archive_is_read_as_far_as_it_goes(tmp_path):
    lines = b"".join(b"0 %d active\n" % n for n in range(1, 5001))
    path = tmp_path / "ring.gz"
    path.write_bytes(gzip.compress(lines)[:-2000])
    done = import_files([path], tmp_path / "out", format="peterson")
    assert 0 < done.summary["events"] < 5000
    assert any("the compressed file is cut or damaged" in str(each) for each in done.quarantined)


def test_a_line_that_a_damaged_archive_was_cut_in_is_left_out(tmp_path):
    """What is left of it may look like a line: here like one with a smaller clock."""
    lines = [f"0 {n} active {Random(n).getrandbits(200):x}" for n in range(1, 201)]
    path = tmp_path / "ring.gz"
    whole = gzip.compress("\n".join([*lines, ""]).encode())
    for size in range(len(whole) - 200, len(whole) - 100):
        path.write_bytes(whole[:size])
        source = open_source(path)
        read = [text for _, text in source.lines()]
        assert read == lines[: len(read)] and 100 < len(read) < 200
        assert [fault.line for fault in source.faults] == [len(read)]


def test_bytes_that_are_not_utf8_are_replaced_and_named(tmp_path):
    path = tmp_path / "ring.trace"
    path.write_bytes(b"0 1 active caf\xe9\n")
    done = import_files([path], tmp_path / "out")
    assert trace.read(tmp_path / "out")["label"].to_pylist() == ["active caf\N{REPLACEMENT CHARACTER}"]
    assert "is not UTF-8" in str(done.quarantined[0])
    assert done.quarantined[0].imported


def test_files_are_computations_of_their_own_unless_taken_together(tmp_path):
    one, other = tmp_path / "p.log", tmp_path / "q.log"
    one.write_text('p {"p":1}\nasks\n')
    other.write_text('q {"p":1, "q":1}\nanswers\n')
    apart = import_files([one, other], tmp_path / "apart")
    assert (apart.summary["computations"], apart.summary["quarantined"]) == (2, 1)
    whole = import_files([one, other], tmp_path / "whole", options=Options(together=True))
    assert (whole.summary["computations"], whole.summary["quarantined"]) == (1, 0)
    assert causality.stamp(trace.read(tmp_path / "whole")).ordered_pairs == 1


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    paths = [tmp_path / folder / "ring.trace" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        shutil.copy(FIXTURES / "ring.trace", path)
    import_files(paths, tmp_path / "out")
    assert set(trace.read(tmp_path / "out")["computation"].to_pylist()) == set(map(str, paths))


def test_an_existing_output_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(TraceFormatError, match="is already there"):
        import_files([FIXTURES / "ring.trace"], tmp_path / "out")


def test_a_failure_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(importing, "table_of", fail)
    with pytest.raises(OSError, match="disk full"):
        import_files([FIXTURES / "ring.trace"], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TraceFormatError, match="no such file"):
        import_files([tmp_path / "nowhere"], tmp_path / "out", format="dag")


@pytest.mark.parametrize(
    "text",
    ["hello world\n", '{"colour": "red"}\n', "[]", 'asks\np {"p":1}\n'],
    ids=["prose", "unknown fields", "an empty list", "clock after its event"],
)
def test_a_format_is_not_guessed(tmp_path, text):
    path = tmp_path / "log"
    path.write_text(text)
    assert detect(path) is None
    with pytest.raises(TraceFormatError, match=r"cannot be told .* say --format"):
        import_files([path], tmp_path / "out")


def test_files_of_different_formats_are_imported_apart(tmp_path):
    with pytest.raises(TraceFormatError, match=r"ring\.trace is peterson, pods\.csv is nezha"):
        import_files([FIXTURES / "ring.trace", FIXTURES / "pods.csv"], tmp_path / "out")


def test_a_long_document_is_recognised_by_its_beginning(tmp_path):
    path = tmp_path / "trace.json"
    span = json.loads((FIXTURES / "halves.zipkin.json").read_text())[0]
    path.write_text(json.dumps([span | {"id": str(n)} for n in range(2000)], indent=1))
    assert path.stat().st_size > 1 << 16
    assert detect(path) == "zipkin"


def test_expressions_may_come_from_a_file(tmp_path):
    parsers = tmp_path / "parsers.json"
    parsers.write_text(
        json.dumps(
            [
                {
                    "log": "two-runs.log",
                    "parser": r"\S+ (?<event>.*)\n(?<host>\w+) (?<clock>.*)",
                    "delimiter": "^=== (?<trace>.*) ===$",
                }
            ]
        )
    )
    done = import_files([FIXTURES / "two-runs.log"], tmp_path / "out", options=Options(parsers=str(parsers)))
    assert (done.summary["computations"], done.summary["events"], done.summary["quarantined"]) == (2, 3, 0)
    parsers.write_text("{}[")
    with pytest.raises(TraceFormatError, match="cannot be read as parsers"):
        import_files([FIXTURES / "two-runs.log"], tmp_path / "b", options=Options(parsers=str(parsers)))


@given(text=st.text(alphabet="ab\n\r", max_size=60), size=st.integers(1, 20))
def test_pieces_of_a_file_are_its_lines_with_their_numbers(text, size, tmp_path_factory):
    path = tmp_path_factory.mktemp("pieces") / "log"
    path.write_bytes(text.encode())
    first_line, found = 1, []
    for begin in range(0, len(text), size):
        end = min(begin + size, len(text))
        found += open_piece(path, begin, end, first_line).numbered
        first_line += lines_begun(path, begin, end)
    assert found == list(open_source(path).numbered)


def test_an_event_in_two_files_is_imported_once_and_named_with_both(tmp_path):
    """On the same line of each, as when a file is given twice under two names."""
    row = {"process": "p", "seq": 1, "kind": "internal"}
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    import_files([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "out")
    assert trace.read(tmp_path / "out").num_rows == 1
    (reason,) = json.loads((tmp_path / "out" / "import.json").read_text())["quarantine_examples"]
    assert reason.startswith(f"{tmp_path / 'b.jsonl'}:1") and f"line 1 of {tmp_path / 'a.jsonl'}" in reason


@pytest.mark.parametrize("name", FORMAT_OF)
def test_an_import_larger_than_memory_is_the_same(name, tmp_path, monkeypatch):
    """Drafts go to disk by twos, computations are assembled bucket by bucket; linked traces come together."""
    whole = import_files([FIXTURES / name], tmp_path / "whole")
    monkeypatch.setattr(importing, "BUCKET_BYTES", 100)
    monkeypatch.setattr(importing, "MOST_HELD", 2)
    parts = import_files([FIXTURES / name], tmp_path / "parts")
    assert parts.summary == whole.summary
    rows = [
        sorted(
            trace.read(tmp_path / out).to_pylist(),
            key=lambda row: (row["computation"], row["process"], row["seq"]),
        )
        for out in ("whole", "parts")
    ]
    assert rows[0] == rows[1]


def test_many_quarantined_records_are_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "BATCH_ROWS", 10)
    sound = '{"process": "p", "kind": "internal"}\n'
    (tmp_path / "log.jsonl").write_text(sound + "broken\n" * 35)
    done = import_files([tmp_path / "log.jsonl"], tmp_path / "out")
    left_out = pq.read_table(tmp_path / "out" / "quarantine").to_pylist()
    assert [row["line"] for row in left_out] == list(range(2, 37))
    assert (done.summary["quarantined"], len(done.summary["quarantine_examples"])) == (35, 5)
    assert len(list((tmp_path / "out" / "quarantine").iterdir())) == 4
