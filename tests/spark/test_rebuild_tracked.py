"""Dependency vectors that trackers recorded in a trace become vectors of the application's own events."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from happened import trace
from happened.causality.analysis import clock_maps
from happened.core.errors import TraceFormatError
from happened.sim.run import Parameters, simulate
from happened.sim.workload import Workload
from happened.spark.rebuild import rebuild
from happened.tracking import Timestamp, renumbered, vectors


def simulated(folder, seed, tracker):
    settings = {"processes": 4, "messages": 80, "workload": Workload("multicast"), "relevant": 0.3}
    simulate(Parameters(seed=seed, tracker=tracker, **settings), folder)
    return trace.read(folder / "trace").to_pylist()


def expected(rows, n=4):
    """By the tracking room's own reconstruction, on one machine."""
    stamps, seqs = [], {}
    for row in rows:
        told = dict(row["attributes"] or ())
        if "dependencies" in told:
            process = int(row["process"][1:])
            counts = dict(token.split(":") for token in told["dependencies"].split())
            vector = tuple(int(counts.get(f"p{k}", 0)) for k in range(n))
            stamp = Timestamp(process, int(told["relevant_seq"]), dependencies=vector, null="null" in told)
            stamps.append(stamp)
            if not stamp.null:
                seqs.setdefault(process, []).append(row["seq"])
    found = renumbered(stamps, vectors(stamps))
    assert any(stamp.null for stamp in stamps)
    return {
        (f"p{process}", seqs[process][number - 1]): {f"p{k}": c for k, c in enumerate(vector) if c}
        for (process, number), vector in found.items()
    }


@pytest.mark.parametrize("whole_events", [10_000, 1], ids=["whole", "by epochs"])
def test_vectors_are_rebuilt_from_a_trace_without_its_null_events(spark, tmp_path, seed, whole_events):
    rows = simulated(tmp_path / "run", seed, "p2:1")
    options = {"whole_events": whole_events, "epoch_events": 20}
    summary = rebuild(spark, tmp_path / "run", tmp_path / "out", **options)
    stamps, processes = (pq.read_table(tmp_path / "out" / name) for name in ("stamps", "processes"))
    clocks = clock_maps(stamps, processes).to_pylist()
    events = zip(stamps["process"].to_pylist(), stamps["seq"].to_pylist(), strict=True)
    found = {event: dict(clock) for event, clock in zip(events, clocks, strict=True)}
    wanted = expected(rows)
    assert found == wanted
    assert summary["events"] == len(wanted) == sum(row["relevant"] for row in rows)
    assert summary["ordered_pairs"] == sum(sum(clock.values()) - 1 for clock in wanted.values())


def test_a_trace_without_dependencies_is_refused(spark, tmp_path, seed):
    simulated(tmp_path / "run", seed, "p1")
    with pytest.raises(TraceFormatError, match="no event here has dependencies"):
        rebuild(spark, tmp_path / "run", tmp_path / "out")


def test_a_trace_that_lacks_a_null_event_is_refused(spark, tmp_path, seed):
    rows = simulated(tmp_path / "run", seed, "p2:1")
    row = next(row for row in rows if "null" in dict(row["attributes"] or ()))
    row["attributes"] = None
    (tmp_path / "lacking").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=trace.SCHEMA), tmp_path / "lacking" / "part.parquet")
    with pytest.raises(TraceFormatError, match="vectors need each of them once"):
        rebuild(spark, tmp_path / "lacking", tmp_path / "out")
