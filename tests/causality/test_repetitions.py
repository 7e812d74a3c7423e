"""Rows that repeat others exactly change no answer; rows that differ anywhere are two events of one name."""

from random import Random

import pyarrow.parquet as pq
import pytest

from causality.traces import rows_of, table, wild
from effort import samples
from happened.causality.analysis import TABLES, analyse
from happened.causality.judgement import check_path
from happened.trace import SCHEMA
from happened.trace.repetitions import without_repetitions
from trace_columns import others

FULL = {
    "computation": "c",
    "process": "p",
    "seq": 1,
    "kind": "send",
    "message": "m",
    "to": ["q", "r"],
    "time": 5,
    "relevant": True,
    "causes": [{"process": "p", "seq": 2}],
    "clock": [("p", 1), ("q", 0)],
    "label": "said",
    "attributes": [("a", "1"), ("b", None)],
    "control_entries": 1,
    "control_bytes": 2,
}
OTHER = {
    "kind": "unordered",
    "message": "n",
    "to": ["q"],
    "time": 6,
    "relevant": False,
    "causes": [{"process": "p", "seq": 3}],
    "clock": [("p", 1)],
    "label": "",
    "attributes": [("a", "1"), ("b", "")],
    "control_entries": 2,
    "control_bytes": None,
}
NAMED = {*FULL}
FULL |= others(SCHEMA, NAMED)
OTHER |= others(SCHEMA, NAMED, 2)


def repeated(rows, random):
    more = [dict(random.choice(rows)) for _ in range(random.randint(1, 8))] if rows else []
    for row in more:
        if row.get("attributes"):
            row["attributes"] = row["attributes"][::-1]
    mixed = [*rows, *more]
    random.shuffle(mixed)
    return mixed, len(more)


@pytest.mark.sampled
def test_repetitions_leave_every_table_as_it_is(seed):
    random = Random(seed)
    for _ in range(samples(160)):
        rows = [row for i in range(3) for row in wild(random, f"c{i}")]
        for row in rows:
            row["attributes"] = [("x", str(random.random())), ("y", "2")]
            row["time"] = random.randint(0, 9)
        mixed, count = repeated(rows, random)
        expected, analysis = analyse(table(rows)), analyse(table(mixed))
        assert analysis.totals["duplicate_rows"] == count and analysis.totals["quarantined"] == 0
        for name in TABLES:
            assert rows_of(analysis.table(name), name) == rows_of(expected.table(name), name), name


@pytest.mark.parametrize(
    "column", [name for name in SCHEMA.names if name not in ("computation", "process", "seq")]
)
def test_rows_that_differ_in_one_column_are_different_also_from_null(column):
    assert OTHER.keys() == {*SCHEMA.names} - {"computation", "process", "seq"}
    for other in (OTHER[column], None):
        if other is None and not SCHEMA.field(column).nullable:
            continue
        rows = [FULL, FULL | {column: other}, FULL]
        left, dropped = without_repetitions(table(rows))
        assert dropped == 1 and left.num_rows == 2


@pytest.mark.parametrize("column", ["to", "causes", "clock", "attributes"])
def test_an_empty_list_or_map_is_not_null_and_order_counts_in_lists_alone(column):
    left, dropped = without_repetitions(table([FULL | {column: []}, FULL | {column: None}]))
    assert dropped == 0 and left.num_rows == 2
    values = {"to": ["q", "r"], "causes": [{"process": "p", "seq": n} for n in (1, 2)]}.get(column)
    values = values or [("a", "1"), ("b", "2")] if column == "attributes" else values or [("a", 1), ("b", 2)]
    _, dropped = without_repetitions(table([FULL | {column: values}, FULL | {column: values[::-1]}]))
    assert dropped == (column in ("clock", "attributes"))


def test_two_different_rows_of_one_event_quarantine_their_computation_and_no_other():
    event = {"process": "p", "seq": 1, "kind": "internal"}
    rows = [
        {"computation": "a"} | event,
        {"computation": "a"} | event,
        {"computation": "b"} | event,
        {"computation": "b"} | event | {"label": "another"},
        {"computation": "b"} | event,
    ]
    analysis = analyse(table(rows))
    assert (analysis.totals["duplicate_rows"], analysis.totals["quarantined"]) == (2, 2)
    (reason,) = analysis.table("quarantine").to_pylist()
    assert reason["computation"] == "b" and "names an event twice" in reason["reason"]
    assert analysis.totals["events"] == 1


def test_the_judgement_says_how_many_rows_were_dropped_and_is_the_same_otherwise(tmp_path):
    rows = [
        {"process": "p", "seq": 1, "kind": "send", "message": "a", "to": ["q"]},
        {"process": "q", "seq": 1, "kind": "deliver", "message": "a"},
    ]
    pq.write_table(table(rows * 2), tmp_path / "twice.parquet")
    checked = check_path(tmp_path / "twice.parquet")
    assert checked.judgement.holds and checked.totals["duplicate_rows"] == 2
    assert checked.judgement.sentence.endswith("(2 rows that repeat others exactly were dropped)")
