"""Recorded traces are read, and judged and analysed as they were.

Later versions may say more: columns, tables, totals and kinds of violation that were not there are left out
of the comparison; whatever was there must have the same value. Where epochs end is left out too: cuts may
fall elsewhere, so of `epochs` only the last cut is compared.
"""

import json

import pyarrow.parquet as pq
import pytest

from golden import access
from happened import trace
from happened.cli import main

RECORDED = access.load("tables.json")
TABLES = [(name, table) for name in access.ANALYSES for table in RECORDED[name] if table != "summary"]


def part(document, recorded):
    """Of a document, what was recorded: the same keys at every depth."""
    if isinstance(document, dict) and isinstance(recorded, dict):
        return {key: part(document[key], value) for key, value in recorded.items() if key in document}
    if isinstance(document, list) and isinstance(recorded, list) and len(document) == len(recorded):
        return [part(*pair) for pair in zip(document, recorded, strict=True)]
    return document


def test_a_trace_has_the_recorded_columns():
    assert part(access.shown_schema(trace.SCHEMA), RECORDED["trace"]) == RECORDED["trace"]


def test_recorded_parquet_and_json_lines_are_read_as_the_same_rows():
    whole = pq.read_table(access.HERE / "whole.parquet")
    assert set(whole["kind"].to_pylist()) == {"send", "receive", "deliver", "internal"}
    wild = [row for row in access.shown_rows(whole) if row["computation"].startswith("wild")]
    lines = trace.read(access.HERE / "wild.jsonl").select(whole.column_names)  # later columns are empty
    assert access.shown_rows(lines) == wild
    used = {name for row in wild for name, value in row.items() if value is not None}
    assert used == set(wild[0])


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_a_recorded_run_is_judged_as_it_was(order, capsys):
    code, recorded = RECORDED["verdicts"][order]
    assert main(["check", str(access.HERE / "run"), "--order", order, "--necessary", "--json"]) == code
    document = json.loads(capsys.readouterr().out) | {"path": None}
    assert part(document, recorded) == recorded


@pytest.fixture(scope="module")
def analysed(spark, tmp_path_factory):
    """The tables of every recorded trace, made now; and the summaries."""
    folder = tmp_path_factory.mktemp("golden")
    return folder, {name: access.analyze(spark, name, folder / name) for name in access.ANALYSES}


@pytest.mark.parametrize("name", access.ANALYSES)
def test_the_totals_are_as_they_were(analysed, name):
    _, summaries = analysed
    recorded = RECORDED[name]["summary"]
    assert recorded["causal_violations"] > 0 and recorded["lost"] > 0 and recorded["clock_mismatches"] > 0
    assert part(summaries[name], recorded) == recorded


def comparable(table, rows):
    """Of a computation that was cut, what is not about where."""
    if table == "epochs":
        last = max(row["epoch"] for row in rows)
        rows = [row for row in rows if row["epoch"] == last]
    return [{name: value for name, value in row.items() if name != "epoch"} for row in rows]


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_a_table_has_the_recorded_columns_and_rows(analysed, name, table):
    folder, _ = analysed
    columns, recorded = RECORDED[name][table]
    recorded = [dict(zip(columns, row, strict=True)) for row in recorded]
    found = pq.read_table(folder / name / table)
    now = access.shown_schema(found.schema)
    for column, kind in columns.items():  # a column may come to promise that nothing in it is null
        assert now[column] in (kind, f"{kind} not null"), column
    rows = access.shown_rows(found.select(list(columns)))
    if name == "epochs":
        rows, recorded = (comparable(table, each) for each in (rows, recorded))
    if table == "violations":
        orders = {row["order_name"] for row in recorded}
        rows = [row for row in rows if row["order_name"] in orders]
    assert rows == recorded


def test_every_table_says_something():
    """An empty fixture would compare equal to nothing at all."""
    assert RECORDED["whole"].keys() == RECORDED["epochs"].keys()
    told = {table for name, table in TABLES if RECORDED[name][table][1]}
    assert RECORDED["whole"].keys() - told == {"summary", "dependencies", "trackers"}
