"""Traces of version 0.1.0 are still read, and judged and analysed as they were.

Later versions may say more: columns, tables, totals and kinds of violation that were not there are left out
of the comparison; whatever was there must have the same value, but for

- where epochs end: cuts may fall elsewhere, so of `epochs` only the last cut is compared
- regressions of logged clocks at a process that the trace does not have: version 0.1.0 found them in
  computations that were cut and not in whole ones; they are impossible entries, and that alone
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from golden import access
from happened.causality.analysis import clock_maps

TRACES, TABLES = access.HERE / "traces", access.HERE / "tables"
RECORDED_TABLES = {
    name: sorted(path.stem for path in (TABLES / name).glob("*.jsonl")) for name in access.ANALYSES
}


def recorded_rows(name, table):
    lines = (TABLES / name / f"{table}.jsonl").read_text(encoding="utf-8").splitlines()
    return list(map(json.loads, lines))


def part(document, recorded):
    """Of a document, what was recorded: the same keys at every depth."""
    if isinstance(document, dict) and isinstance(recorded, dict):
        return {key: part(document[key], value) for key, value in recorded.items() if key in document}
    if isinstance(document, list) and isinstance(recorded, list) and len(document) == len(recorded):
        return [part(*pair) for pair in zip(document, recorded, strict=True)]
    return document


def as_recorded(folder, table):
    """A table made now, with the columns that version 0.1.0 had under other names or as other types."""
    found = pq.read_table(folder / table)
    if table == "stamps":
        clocks = clock_maps(found, pq.read_table(folder / "processes"))
        clocks = clocks.cast(pa.map_(pa.string(), pa.field("clock", pa.int64())))
        return found.set_column(found.column_names.index("clock"), "clock", clocks)
    renamed = {"order_name": "order", "clock_offset": "offset", "clock_time": "time"}
    return found.rename_columns([renamed.get(column, column) for column in found.column_names])


def test_a_trace_has_the_recorded_columns():
    now = access.trace_schema()
    recorded = access.load(TABLES / "trace_schema.json")
    assert {name: now.get(name) for name in recorded} == recorded


def test_a_recorded_parquet_trace_is_read():
    table = access.read_trace(TRACES / "epochs.parquet")
    assert table.num_rows == 142
    assert set(table["kind"].to_pylist()) == {"send", "receive", "deliver", "internal"}


def test_json_lines_are_read_as_the_same_rows_as_parquet():
    lines = access.read_trace(TRACES / "wild.jsonl")
    whole = access.shown_rows(
        pq.read_table(TRACES / "whole.parquet"), access.load(TABLES / "trace_schema.json")
    )
    wild = [row for row in whole if row["computation"].startswith("wild")]
    assert access.shown_rows(lines, access.load(TABLES / "trace_schema.json")) == wild
    used = {name for row in wild for name, value in row.items() if value is not None}
    assert used == set(wild[0])


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_a_recorded_run_is_judged_as_it_was(order, capsys):
    recorded = access.load(TABLES / "verdicts.json")[order]
    code = access.command(["check", str(TRACES / "simulated"), "--order", order, "--necessary", "--json"])
    document = json.loads(capsys.readouterr().out) | {"path": None}
    assert code == recorded["exit"]
    assert part(document, recorded["document"]) == recorded["document"]


@pytest.fixture(scope="module")
def analysed(spark, tmp_path_factory):
    """The tables of every recorded trace, made now; and the summaries."""
    folder = tmp_path_factory.mktemp("golden")
    return folder, {name: access.analyze(spark, name, folder / name) for name in access.ANALYSES}


@pytest.mark.parametrize("name", access.ANALYSES)
def test_the_totals_are_as_they_were(analysed, name):
    _, summaries = analysed
    recorded = access.load(TABLES / name / "summary.json")
    assert recorded["causal_violations"] > 0 and recorded["lost"] > 0 and recorded["clock_mismatches"] > 0
    if name == "epochs":
        assert recorded["clock_regressions"] == 7 <= recorded["clock_impossible"]
        recorded["clock_regressions"] = 0
    assert part(summaries[name], recorded) == recorded


def comparable(table, rows):
    """Of a computation that was cut, what is not about where, and what was right."""
    if table == "epochs":
        last = max(row["epoch"] for row in rows)
        rows = [row for row in rows if row["epoch"] == last]
    if table == "clocks":
        rows = [row for row in rows if row["fault"] != "regression"]
    return [{name: value for name, value in row.items() if name != "epoch"} for row in rows]


@pytest.mark.parametrize(
    ("name", "table"), [(name, table) for name, tables in RECORDED_TABLES.items() for table in tables]
)
def test_a_table_has_the_recorded_columns_and_rows(analysed, name, table):
    folder, _ = analysed
    found = as_recorded(folder / name, table)
    columns = access.load(TABLES / name / "schemas.json")[table]
    now = access.shown_schema(found.schema)
    for column, kind in columns.items():  # a column may come to promise that nothing in it is null
        assert now[column] in (kind, f"{kind} not null"), column
    recorded = recorded_rows(name, table)
    rows = access.shown_rows(found, columns)
    if name == "epochs":
        rows, recorded = (comparable(table, each) for each in (rows, recorded))
    if table == "violations":
        orders = {row["order"] for row in recorded}
        rows = [row for row in rows if row["order"] in orders]
    assert rows == recorded


def test_every_table_says_something():
    """An empty fixture would compare equal to nothing at all."""
    assert RECORDED_TABLES["whole"] == RECORDED_TABLES["epochs"]
    for table in RECORDED_TABLES["whole"]:
        assert any(recorded_rows(name, table) for name in access.ANALYSES), table
