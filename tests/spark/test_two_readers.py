"""One trace, two readers: in one process and on Spark they find the same events, or both refuse."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causality import traces
from happened.core.errors import TraceFormatError
from happened.spark.event_rows import read_events
from happened.spark.pipeline import analyze_path
from happened.trace import SCHEMA, read
from happened.trace.validation import faults

ROWS = traces.number(
    {
        "p": [{"kind": "send", "message": "m", "to": ["q"], "time": 1_000}, {"kind": "internal"}],
        "q": [{"kind": "deliver", "message": "m", "label": "ünïcode"}],
    },
    "run",
)
OTHERS = traces.number({"x": [{"kind": "internal"}]}, "other")


def parts(folder, rows=ROWS):
    folder.mkdir(parents=True)
    table = traces.table(rows)
    for number in range(2):
        pq.write_table(table.slice(number, 1 if number == 0 else None), folder / f"part-{number}.parquet")
    return folder


def a_run(folder):
    parts(folder / "trace")
    return folder


def a_run_and_parts_beside_it(folder):
    """Today's readers each take another one of the two."""
    parts(folder, OTHERS)
    parts(folder / "trace")
    return folder


def partitioned(folder):
    for row in ROWS:
        place = folder / f"computation={row['computation']}" / f"kind={row['kind']}"
        place.mkdir(parents=True, exist_ok=True)
        table = traces.table([row]).drop_columns(["computation", "kind"])
        pq.write_table(table, place / f"{row['process']}{row['seq']}.parquet")
    return folder


def in_plain_folders(folder):
    parts(folder / "monday")
    return folder


def hidden(folder):
    parts(folder / "_temporary")
    return folder


def another_suffix(folder):
    folder.mkdir()
    pq.write_table(traces.table(ROWS), folder / "trace.pq")
    return folder / "trace.pq"


def lines(folder, rows=ROWS):
    folder.mkdir()
    path = folder / "trace.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return path


def packed_lines(folder):
    path = lines(folder)
    packed = folder / "trace.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return packed


def lines_with_an_unknown_field(folder):
    return lines(folder, [ROWS[0] | {"colour": "red"}, *ROWS[1:]])


def lines_with_a_number_for_a_name(folder):
    return lines(folder, [*ROWS[:2], ROWS[2] | {"label": 7}])


def times_in_microseconds(folder):
    folder.mkdir()
    table = traces.table(ROWS)
    at = SCHEMA.get_field_index("time")
    pq.write_table(table.set_column(at, "time", table["time"].cast(pa.timestamp("us"))), folder / "t.parquet")
    return folder


def without_seq(folder):
    folder.mkdir()
    pq.write_table(traces.table(ROWS).drop_columns(["seq"]), folder / "t.parquet")
    return folder


READ = [a_run, partitioned, lines, packed_lines]
REFUSED = [
    a_run_and_parts_beside_it,
    in_plain_folders,
    hidden,
    another_suffix,
    times_in_microseconds,
    without_seq,
]
NO_EVENT = [lines_with_an_unknown_field, lines_with_a_number_for_a_name]
"""One process refuses the file; Spark quarantines the line."""


def rows_of(table):
    return sorted(
        (json.dumps(row, sort_keys=True, default=str) for row in table.to_pylist()),
    )


@pytest.mark.parametrize("make", READ, ids=lambda make: make.__name__)
def test_both_read_the_same_events(spark, tmp_path, make):
    path = make(tmp_path / "given")
    alone = read(path)
    assert alone.num_rows == len(ROWS)
    rows = read_events(spark, path)
    on_spark = rows.select(*SCHEMA.names).toArrow().cast(SCHEMA)
    assert faults(on_spark).null_count == alone.num_rows
    assert rows_of(on_spark) == rows_of(alone)


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_both_refuse_in_the_same_words(spark, tmp_path, make):
    path = make(tmp_path / "given")
    said = []
    for reader in (read, lambda path: read_events(spark, path)):
        with pytest.raises(TraceFormatError) as error:
            reader(path)
        said.append(str(error.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("make", NO_EVENT, ids=lambda make: make.__name__)
def test_a_line_that_one_refuses_the_other_quarantines(spark, tmp_path, make):
    path = make(tmp_path / "given")
    with pytest.raises(TraceFormatError) as error:
        read(path)
    summary = analyze_path(spark, path, tmp_path / "out", questions=["stamp"])
    assert summary["quarantined"] > 0
    reasons = [row["reason"] for row in pq.read_table(tmp_path / "out" / "quarantine").to_pylist()]
    assert any(error.value.reason in reason for reason in reasons), reasons
