"""What is accepted as a trace, and what is said about what is not."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from happened.core.errors import TraceFormatError
from happened.trace import SCHEMA, TraceWriter, read, write_jsonl

SEND = {"process": "p", "seq": 1, "kind": "send", "message": "m", "to": ["q"]}
DELIVER = {"process": "q", "seq": 1, "kind": "deliver", "message": "m", "clock": {"p": 1, "q": 1}}
INTERNAL = {"process": "q", "seq": 2, "kind": "internal", "causes": [{"process": "p", "seq": 1}]}
EVENTS = [SEND, DELIVER, INTERNAL]


@pytest.fixture
def parts(tmp_path):
    with TraceWriter(tmp_path / "run" / "trace", batch_rows=1) as writer:
        for event in EVENTS:
            writer.append(event)
    return tmp_path / "run" / "trace"


def lines(path, *rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def test_every_container_gives_the_same_table(parts, tmp_path):
    table = read(parts)
    assert table.num_rows == len(EVENTS)
    assert read(parts.parent) == table
    one = tmp_path / "one.parquet"
    pq.write_table(table, one)
    assert read(one) == table
    for suffix in ("jsonl", "ndjson", "json"):
        write_jsonl(table, tmp_path / f"t.{suffix}")
        assert read(tmp_path / f"t.{suffix}") == table
    assert read(lines(tmp_path / "hand.jsonl", *EVENTS)) == table


@pytest.mark.parametrize("indent", [None, 2])
def test_a_log_of_another_system_is_named_as_such(tmp_path, indent):
    (tmp_path / "spans.json").write_text(json.dumps({"resourceSpans": []}, indent=indent))
    said = r"spans.json: looks like .*\(otlp\).* `happened import .*spans.json"
    with pytest.raises(TraceFormatError, match=said):
        read(tmp_path / "spans.json")


def test_unfinished_parts_are_ignored(parts):
    (parts / ".part-000003.parquet.unfinished").write_bytes(b"PAR1")
    (parts / "_metadata.parquet").write_bytes(b"not for us")
    assert read(parts).num_rows == len(EVENTS)


def test_other_writers_types_are_cast(tmp_path):
    """As Spark or pandas might write it: dictionary strings, int32, other names inside lists, no extras."""
    table = pa.table(
        {
            "seq": pa.array([1], pa.int32()),
            "process": pa.array(["p"]).dictionary_encode(),
            "kind": pa.array(["send"], pa.large_string()),
            "message": ["m"],
            "to": pa.array([["q"]], pa.list_(pa.field("element", pa.string(), nullable=False))),
            "relevant": pa.array([None], pa.bool_()),
            "unheard_of": [1.5],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    found = read(tmp_path / "t.parquet")
    assert found.schema == SCHEMA
    (row,) = found.to_pylist()
    assert (row["process"], row["to"], row["relevant"], row["time"]) == ("p", ["q"], False, None)


@pytest.mark.parametrize(
    ("rows", "line", "field", "reason"),
    [
        ([SEND, '{"process": "q", "se'], 2, None, "the file ends inside it"),
        ([SEND, "[1, 2]\n"], 2, None, "each line holds one event"),
        ([SEND, b"\xff".decode("latin-1") + "\n"], 2, None, "not a JSON object"),
        ([SEND, "\n", SEND | {"seq": "2"}], 3, "seq", "not an integer"),
        ([SEND | {"seq": True}], 1, "seq", "not an integer"),
        ([SEND | {"seq": 2**63}], 1, "seq", "not an integer"),
        ([SEND | {"to": "q"}], 1, "to", "not a list of strings"),
        ([SEND | {"causes": [{"process": "p"}]}], 1, "causes", "not a list of"),
        ([SEND | {"colour": "red"}], 1, "colour", "put it in `attributes`"),
        ([{"process": "p", "kind": "internal"}], 1, "seq", "is missing"),
        ([SEND | {"kind": "departed"}], 1, "kind", "'departed' is none of send, receive"),
        ([SEND | {"message": None}], 1, "message", "is missing"),
        ([DELIVER | {"message": None}], 1, "message", "is missing"),
        ([DELIVER | {"message": None, "kind": "receive"}], 1, "message", "is missing"),
        ([SEND | {"to": None}], 1, "to", "lists its destinations"),
        ([SEND | {"seq": 0}], 1, "seq", "from 1"),
        ([SEND, DELIVER, DELIVER], 3, "seq", "names an event twice"),
        ([SEND, DELIVER, DELIVER | {"seq": 3}], 3, "seq", "3 follows 1: 2 is absent"),
        ([SEND, DELIVER | {"seq": 2}], 2, "seq", "2 follows nothing: 1 is absent"),
        ([SEND, SEND | {"process": "q"}], 2, "message", "has been sent before"),
    ],
)
def test_a_bad_line_is_named(tmp_path, rows, line, field, reason):
    path = lines(tmp_path / "t.jsonl", *rows)
    with pytest.raises(TraceFormatError, match=reason) as error:
        read(path)
    assert (error.value.file, error.value.line, error.value.field) == (str(path), line, field)


def test_the_same_names_in_another_computation_are_other_events(tmp_path):
    path = lines(tmp_path / "t.jsonl", *EVENTS, *(event | {"computation": "two"} for event in EVENTS))
    assert read(path).num_rows == 2 * len(EVENTS)


def test_a_bad_row_of_a_part_is_named(parts):
    with TraceWriter(parts, prefix="qart") as writer:
        writer.append(SEND | {"process": "r", "message": "n"})
        writer.append(SEND | {"process": "r", "seq": 3, "message": "o"})
    with pytest.raises(TraceFormatError, match="2 is absent") as error:
        read(parts)
    assert (error.value.file, error.value.line) == (str(parts / "qart-000000.parquet"), 2)


@pytest.mark.parametrize(
    ("column", "value"),
    [("to", [None]), ("causes", [{"process": None, "seq": 1}])],
    ids=["to nobody", "caused by no process"],
)
def test_a_null_in_a_list_is_refused(tmp_path, column, value):
    row = {"computation": "", "relevant": False} | SEND
    table = pa.Table.from_pylist([row | {column: value}], schema=SCHEMA)
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(TraceFormatError, match="null") as error:
        read(tmp_path / "t.parquet")
    assert error.value.field == column


def test_a_missing_or_misfit_column_is_named(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"process": ["p"], "kind": ["internal"]}), path)
    with pytest.raises(TraceFormatError, match="found process, kind") as error:
        read(path)
    assert error.value.field == "seq"
    pq.write_table(pa.table({"process": ["p"], "kind": ["internal"], "seq": ["first"]}), path)
    with pytest.raises(TraceFormatError, match="needs int64") as error:
        read(path)
    assert error.value.field == "seq"


def test_what_is_no_trace_says_what_would_be(tmp_path):
    (tmp_path / "t.csv").write_text("process,seq\n")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty").mkdir()
    for name, reason in (
        ("nowhere", "happened simulate"),
        ("nowhere.jsonl", "happened simulate"),
        ("t.csv", "JSON lines"),
        ("empty", "holds no .parquet"),
        ("bad.parquet", "not a readable Parquet file"),
    ):
        with pytest.raises(TraceFormatError, match=reason) as error:
            read(tmp_path / name)
        assert error.value.file == str(tmp_path / name)
