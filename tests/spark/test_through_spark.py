"""Spark reads, shuffles and writes (io="spark"): the same tables as where tasks use files."""

import json
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import happened.spark as hs
from causality import traces
from happened.causality.analysis import TABLES
from happened.spark.pipeline import analyze_path
from happened.trace.jsonl import write_jsonl
from spark.test_analyze import wild_rows, write

BY_PATHS = {"violations": "path", "lost_causes": "path"}
"""Of several causal paths any is a witness: only whether there is one is compared."""


def tables(folder):
    found = {}
    for name in TABLES:
        table = pq.read_table(folder / name)
        if name in BY_PATHS:
            table = table.drop_columns([BY_PATHS[name]])
        found[name] = sorted(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())
    return found


@pytest.mark.parametrize(
    "whole_events, epoch_events", [(200_000, None), pytest.param(30, 40, marks=pytest.mark.slow)]
)
def test_the_same_tables_as_by_files(spark, tmp_path, seed, whole_events, epoch_events):
    """Of computations that tasks take whole, and of some that are cut into epochs inside a task."""
    dice = random.Random(seed)
    rows = [row for i in range(6) for row in wild_rows(dice.randrange(1 << 30), 12, prefix=f"w{i}", skew=20)]
    dice.shuffle(rows)
    write(rows, tmp_path / "trace")
    options = {"whole_events": whole_events, "epoch_events": epoch_events}
    summaries = [
        analyze_path(spark, tmp_path / "trace", tmp_path / io, io=io, **options) for io in ("direct", "spark")
    ]
    assert summaries[0] == summaries[1]
    assert summaries[0]["events"] > 200
    direct, through = tables(tmp_path / "direct"), tables(tmp_path / "spark")
    assert direct.keys() == through.keys()
    for name in direct:
        if name != "epochs" or epoch_events is None:  # cuts may lie elsewhere; each is consistent
            assert direct[name] == through[name], name


def test_lines_that_are_no_events_are_quarantined_as_by_files(spark, tmp_path, seed):
    rows = traces.wild(random.Random(seed))
    write_jsonl(traces.table(rows), tmp_path / "t.jsonl")
    with (tmp_path / "t.jsonl").open("ab") as file:
        file.write(b'{"process": "p", "seq": 0, "kind": "internal"}\n\nno json \xff\n{"process": "p"')
    for io in ("direct", "spark"):
        analyze_path(spark, tmp_path / "t.jsonl", tmp_path / io, io=io)
    direct, through = tables(tmp_path / "direct"), tables(tmp_path / "spark")
    assert direct == through
    assert len(direct["quarantine"]) == 3


def test_a_command_on_this_machine_takes_files_and_can_be_told_not_to(command, tmp_path, capsys):
    write(traces.wild(random.Random(1)), tmp_path / "trace")
    code = command(
        [
            "analyze",
            str(tmp_path / "trace"),
            "--only",
            "stamp",
            "--out",
            str(tmp_path / "out"),
            "--io",
            "spark",
        ]
    )
    assert code in (0, 2)
    assert pq.read_table(tmp_path / "out" / "stamps").num_rows
    given = ["--io", "spark", "--resume"]
    assert (
        command(
            ["analyze", str(tmp_path / "trace"), "--only", "stamp", "--out", str(tmp_path / "again"), *given]
        )
        == 2
    )
    assert "--io direct" in capsys.readouterr().err


def test_columns_that_a_trace_lacks_do_not_travel(spark, tmp_path):
    """Of a trace with the columns that are needed and no others, a frame has those, and is answered."""
    table = pa.table({"process": ["p", "p"], "seq": [1, 2], "kind": ["internal", "internal"]})
    pq.write_table(table, tmp_path / "t.parquet")
    events = hs.read_trace(spark, tmp_path / "t.parquet")
    assert events.columns == table.column_names
    assert hs.stamp(events).count() == 2


@pytest.mark.parametrize("io", ["direct", "spark"])
def test_exact_repetitions_are_dropped_and_counted_in_computations_cut_into_epochs(spark, tmp_path, seed, io):
    dice = random.Random(seed)
    rows = wild_rows(seed, 12, prefix="w", skew=20)
    repeated = [*rows, *dice.sample(rows, 40)]
    dice.shuffle(repeated)
    write(rows, tmp_path / "once")
    write(repeated, tmp_path / "repeated")
    options = {"whole_events": 1, "epoch_events": 40, "split_rows": 30, "io": io}
    once, again = (
        analyze_path(spark, tmp_path / name, tmp_path / f"{name}-out", **options)
        for name in ("once", "repeated")
    )
    assert again.pop("duplicate_rows") == 40 and once.pop("duplicate_rows") == 0
    assert once == again
    found, expected = tables(tmp_path / "repeated-out"), tables(tmp_path / "once-out")
    for name in expected.keys() - {"epochs", "stamps"}:
        assert found[name] == expected[name], name


@pytest.mark.parametrize("io", ["direct", "spark"])
def test_two_different_rows_of_one_event_quarantine_a_computation_cut_into_epochs(spark, tmp_path, seed, io):
    rows = wild_rows(seed, 12, prefix="w", skew=20)
    computation = rows[0]["computation"]
    write([*rows, {**rows[0], "label": "another"}], tmp_path / "trace")
    options = {"whole_events": 1, "epoch_events": 40, "split_rows": 30, "io": io}
    summary = analyze_path(spark, tmp_path / "trace", tmp_path / "out", **options)
    (row,) = pq.read_table(tmp_path / "out" / "quarantine").to_pylist()
    assert row["computation"] == computation
    assert re.search("two different rows share one seq|has been sent 2 times", row["reason"])
    assert summary["quarantined"] == 1 + sum(row["computation"] == computation for row in rows)


def records_of(spark):
    """Records that all stages so far have read from files and written to them."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    quantiles = context._gateway.new_array(context._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, quantiles, None)
    every = [stages.apply(i) for i in range(stages.length())]
    return sum(stage.inputRecords() for stage in every), sum(stage.outputRecords() for stage in every)


def test_sparks_metrics_account_for_what_is_read_and_written(spark, tmp_path, seed):
    rows = wild_rows(seed, 12, computation="c")
    write(rows, tmp_path / "trace")
    before = records_of(spark)
    with hs.analyze(hs.read_trace(spark, tmp_path / "trace"), questions=["stamp", "order"]) as analysis:
        analysis.write(f"{tmp_path}/tables")
    read, written = (after - earlier for after, earlier in zip(records_of(spark), before, strict=True))
    assert read >= len(rows)
    assert written == sum(pq.read_table(folder).num_rows for folder in (tmp_path / "tables").iterdir())
