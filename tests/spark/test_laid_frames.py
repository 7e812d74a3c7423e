"""Laying a frame down keeps every row, and keeps computations whole; the files of answers are Parquet."""

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from happened.causality import written
from happened.spark import frame_answers, laid_frames
from happened.spark.laid_frames import LARGE, NO_EVENTS, ROWS, SENT, SLOT

SLOTS = 5
MOST = 40


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(laid_frames, "EVENTS_PER_BATCH", MOST)
    monkeypatch.setattr(written, "EVENTS_PER_BATCH", MOST)
    monkeypatch.setattr(laid_frames, "NAMED_ROWS", 8)


def random_rows(dice):
    """Rows of computations of very different sizes, in any order; some cannot be events."""
    rows = []
    for number in range(dice.randint(1, 12)):
        size = dice.choice((1, 3, 9, 20, MOST, MOST + 1, 5 * MOST))
        slot = dice.randrange(SLOTS)
        rows += [(f"c{number}", "p", seq, "internal", slot) for seq in range(1, size + 1)]
    rows += [("c0", None, dice.randint(1, 9), "internal", 0) for _ in range(dice.randint(0, 3))]
    if dice.random() < 0.7:
        dice.shuffle(rows)
    return rows


def batch_of(rows):
    names = ["computation", "process", "seq", "kind", SLOT]
    types = [pa.string(), pa.string(), pa.int64(), pa.string(), pa.int32()]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names)


def laid_by_tasks(rows, dice):
    """What some tasks send and others gather, as (kind, computation, table), task by task."""
    cuts = sorted(dice.sample(range(1, len(rows)), min(dice.randint(0, 4), len(rows) - 1)))
    pieces = [rows[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    sent = [batch for piece in pieces for batch in laid_frames._send(iter([batch_of(piece)]))]
    table = pa.Table.from_batches(sent, SENT)
    tasks = []
    for task in range(2):
        mine = table.filter(pa.array([slot % 2 == task for slot in table["slot"].to_pylist()], pa.bool_()))
        names = [
            (slot, name or "") for slot, name in zip(*mine.select([0, 1]).to_pydict().values(), strict=True)
        ]
        mine = mine.take(pa.array(sorted(range(len(names)), key=names.__getitem__), pa.int64()))
        tasks.append(list(laid_frames.gather(iter(mine.to_batches(max_chunksize=3)))))
    return tasks


@pytest.mark.parametrize("case", range(60))
def test_every_row_is_laid_down_once_and_computations_stay_whole(case, dice):
    rows = random_rows(dice)
    laid = [each for task in laid_by_tasks(rows, dice) for each in task]
    events = [(*row.values(),) for kind, _, table in laid if kind != NO_EVENTS for row in table.to_pylist()]
    assert sorted(events) == sorted(row[:4] for row in rows if row[1] is not None)
    left_out = sum(table.num_rows for kind, _, table in laid if kind == NO_EVENTS)
    assert left_out == sum(row[1] is None for row in rows)
    places = {}
    for number, (kind, name, table) in enumerate(laid):
        found = set(table["computation"].to_pylist()) if kind != NO_EVENTS else set()
        if kind == LARGE:
            assert found == {name}
        for each in found:
            places.setdefault(each, []).append((kind, number))
    for name, where in places.items():
        kinds = {kind for kind, _ in where}
        assert kinds == {LARGE} or (kinds == {ROWS} and len(where) == 1), (name, where)


def test_a_computation_with_blobs_of_its_own_is_large_only_if_it_is_too_large(dice):
    rows = [("big", "p", seq, "internal", 1) for seq in range(1, 5 * MOST)]
    rows += [("small", "p", seq, "internal", 1) for seq in range(1, 20)]
    _, laid = laid_by_tasks(rows, dice)
    kinds = {name: kind for kind, _, table in laid for name in table["computation"].to_pylist()}
    assert kinds == {"big": LARGE, "small": ROWS}


def test_spark_writes_the_files_of_answers_as_they_are(spark, tmp_path):
    tables = {
        "edges": [pa.table({"n": list(range(at, at + 7))}) for at in (0, 7)],
        "order": [pa.table({"x": ["PAR1\nPAR1", None, "é\0"]})],
    }
    blobs = []
    for name, parts in tables.items():
        for part in parts:
            sink = pa.BufferOutputStream()
            pq.write_table(part, sink)
            blobs.append((name, part.num_rows, sink.getvalue().to_pybytes()))
    blobs.append((frame_answers.TOTALS, 0, b"{}"))
    packed = spark.createDataFrame(blobs, "table string, rows bigint, blob binary").coalesce(1)
    frame_answers.write_files(packed, str(tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out").glob("table=*")} == {"table=edges", "table=order"}
    for name, parts in tables.items():
        files = sorted((tmp_path / "out" / f"table={name}").glob("*.txt"))
        assert len(files) == len(parts)
        found = pa.concat_tables(ds.dataset(file, format="parquet").to_table() for file in files)
        assert found.sort_by(found.column_names[0]) == pa.concat_tables(parts).sort_by(found.column_names[0])
