"""Total order and lost causes of one computation cut into epochs: the rows that the kernels find."""

import pyarrow.parquet as pq

from causality import traces
from causality.test_total_cycles import deliver, send
from happened.causality.analysis import analyse
from happened.spark.pipeline import analyze_path
from spark.test_analyze import batched, write

RING = 5


def rings(count):
    """Rings of three to five processes, no two of which disagree; and two processes that do."""
    chains = {"s": []}
    for ring in range(count):
        size = 3 + ring % (RING - 2)
        names = [f"m{ring}.{k}" for k in range(size)]
        for k, name in enumerate(names):
            chains["s"].append(send(name, f"p{ring}.{k}", f"p{ring}.{(k + 1) % size}"))
            chains[f"p{ring}.{k}"] = [{"kind": "internal"}, deliver(names[k - 1]), deliver(name)]
    chains["s"] += [send("a", "x", "y"), send("b", "x", "y")]
    chains |= {"x": [deliver("a"), deliver("b")], "y": [deliver("b"), deliver("a")]}
    return chains


def legs_of(row):
    last = ((row["early"], row["early_seq"]), (row["overtaken"], row["overtaken_seq"]))
    path = [(step["message"], step["seq"]) for step in row["path"]]
    return frozenset([*batched(path, 2), last])


def test_cycles_of_many_processes_across_epochs(spark, tmp_path):
    table = write(traces.number(rings(7)), tmp_path / "trace")
    options = {"questions": ["order"], "whole_events": 1, "epoch_events": 12}
    summary = analyze_path(spark, tmp_path / "trace", tmp_path / "out", **options)
    expected = analyse(table)
    assert summary["total_violations"] == expected.totals["total_violations"] == 7 + 1
    found, kernel = (
        [row for row in rows.to_pylist() if row["order_name"] == "total"]
        for rows in (pq.read_table(tmp_path / "out" / "violations"), expected.table("violations"))
    )
    assert {legs_of(row) for row in found} == {legs_of(row) for row in kernel}
    assert sorted(len(legs_of(row)) for row in found) == [2, 3, 3, 3, 4, 4, 5, 5]


def test_a_lost_cause_that_shows_many_epochs_later(spark, tmp_path):
    """Every later delivery shows it again: the first one counts, and the path leads across epochs."""
    pause = [{"kind": "internal"}] * 30
    later = [f"n{k}" for k in range(20)]
    chains = {
        "p": [send("m", "z"), send("a", "q"), *pause],
        "q": [*pause, deliver("a"), *pause, *(send(name, "z") for name in later)],
        "z": [*pause, *pause, *(deliver(name) for name in later)],
    }
    table = write(traces.number(chains), tmp_path / "trace")
    options = {"questions": ["order"], "whole_events": 1, "epoch_events": 15}
    summary = analyze_path(spark, tmp_path / "trace", tmp_path / "out", **options)
    rows = pq.read_table(tmp_path / "out" / "lost_causes").to_pylist()
    assert rows == analyse(table).table("lost_causes").to_pylist()
    (row,) = rows
    assert (row["order_name"], row["lost"], row["delivered"], row["delivered_seq"]) == (
        "causal",
        "m",
        "n0",
        61,
    )
    assert [step["message"] for step in row["path"]] == ["m", "a", "a", "n0"]
    assert (summary["lost_causes"], summary["fifo_lost_causes"], summary["lost"]) == (1, 0, 1)
