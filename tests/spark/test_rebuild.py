"""Timestamps stored in less say what full vectors say."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causality import traces
from happened.causality import encode, stamp
from happened.causality.analysis import STAMPS, analyse, clock_maps
from happened.core.errors import TraceFormatError
from happened.spark.rebuild import rebuild


def orderly(seed, count):
    """Random computations in which every event is relevant."""
    dice = random.Random(seed)
    tables = []
    while len(tables) < count:
        rows = traces.wild(dice, f"c{len(tables)}")
        if rows:
            try:
                encode(traces.table(rows))
            except TraceFormatError:
                continue
            tables.append(traces.table(rows))
    return pa.concat_tables(tables)


def write(table, path):
    path.mkdir()
    half = table.num_rows // 2
    pq.write_table(table.slice(0, half), path / "a.parquet")
    pq.write_table(table.slice(half), path / "b.parquet")


def write_answers(analysis, folder):
    folder.mkdir()
    for name in ("stamps", "processes"):
        write(analysis.table(name), folder / name)


def by_name(stamps, processes):
    """Clocks as maps, by event."""
    clocks = clock_maps(stamps, processes).to_pylist()
    names = (stamps[name].to_pylist() for name in ("computation", "process", "seq"))
    return {
        event: dict(clock) for *event, clock in zip(*names, clocks, strict=True) for event in [tuple(event)]
    }


def read(folder, name):
    return pq.read_table(folder / name)


@pytest.mark.parametrize(
    "timestamps",
    [pytest.param(each, marks=pytest.mark.slow) for each in ("full", "sparse")] + ["predecessors"],
)
@pytest.mark.parametrize("whole_events", [10_000, 1], ids=["whole", "by epochs"])
def test_compact_timestamps_are_rebuilt(spark, tmp_path, seed, timestamps, whole_events):
    table = orderly(seed, 200 if whole_events > 1 else 8)
    write_answers(analyse(table, timestamps=timestamps), tmp_path / "answers")
    summary = rebuild(
        spark, tmp_path / "answers", tmp_path / "out", whole_events=whole_events, epoch_events=20
    )
    expected = analyse(table)
    for name in ("stamps", "processes"):
        assert traces.rows_of(read(tmp_path / "out", name), name) == traces.rows_of(
            expected.table(name), name
        )
    assert 0 in expected.table("processes")["events"].to_pylist()
    assert summary["ordered_pairs"] == expected.totals["ordered_pairs"]


def test_dependency_vectors_become_vector_clocks(spark, tmp_path, seed):
    """A dependency vector names only what its event was told directly."""
    table = orderly(seed, 100)
    full = analyse(table)
    numbers = {(row["computation"], row["process"]): row["p"] for row in full.table("processes").to_pylist()}
    direct = []
    for c in encode(table):
        for e in range(c.events):
            causes = [c.source[e], *c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]]]
            clock = {c.process_names[c.process[e]]: int(c.seq[e])}
            for cause in causes:
                if cause >= 0 and c.process[cause] != c.process[e]:
                    name = c.process_names[c.process[cause]]
                    clock[name] = max(clock.get(name, 0), int(c.seq[cause]))
            event = c.event(e)
            direct.append(
                {
                    "computation": event.computation,
                    "process": event.process,
                    "seq": event.seq,
                    "event": f"{event.process}#{event.seq}",
                    "epoch": 0,
                    "entries": [
                        {"p": numbers[event.computation, name], "seq": seq} for name, seq in clock.items()
                    ],
                }
            )
    write(pa.Table.from_pylist(direct, schema=STAMPS), tmp_path / "stamps")
    write(full.table("processes"), tmp_path / "processes")
    rebuild(spark, tmp_path / "stamps", tmp_path / "out")
    found = by_name(read(tmp_path / "out", "stamps"), read(tmp_path / "out", "processes"))
    assert found == by_name(full.table("stamps"), full.table("processes"))


def test_clocks_of_relevant_events_alone_name_the_newest_of_those(spark, tmp_path, seed):
    table = orderly(seed, 50)
    dice = random.Random(seed)
    relevant = pa.array([dice.random() < 0.5 for _ in range(table.num_rows)])
    at = table.schema.get_field_index("relevant")
    table = table.set_column(at, table.schema.field(at), relevant)
    answers = analyse(table, timestamps="predecessors")
    stored = answers.table("stamps")
    write_answers(answers, tmp_path / "answers")
    rebuild(spark, tmp_path / "answers" / "stamps", tmp_path / "out")
    chosen = {(row["computation"], row["process"], row["seq"]) for row in stored.to_pylist()}
    stamps = stamp(table)
    found = by_name(read(tmp_path / "out", "stamps"), read(tmp_path / "out", "processes"))
    assert len(found) == len(chosen)
    for (name, process, seq), clock in found.items():
        past = stamps.vector(process, seq, name)
        expected = {}
        for other, count in past.items():
            newest = max((s for c, p, s in chosen if (c, p) == (name, other) and s <= count), default=0)
            if newest:
                expected[other] = newest
        assert clock == expected


def test_stamps_without_the_numbers_of_their_processes_are_refused(spark, tmp_path, seed):
    write(analyse(orderly(seed, 1), timestamps="sparse").table("stamps"), tmp_path / "stamps")
    with pytest.raises(TraceFormatError, match="no table `processes` beside"):
        rebuild(spark, tmp_path / "stamps", tmp_path / "out")


def test_what_holds_no_stamps_is_refused(spark, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceFormatError, match="no stamps here"):
        rebuild(spark, tmp_path / "empty", tmp_path / "out")
