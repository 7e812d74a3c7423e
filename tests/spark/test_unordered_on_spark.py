"""Messages sent unordered have the same fates, and judge no order, in computations taken whole or cut."""

import pyarrow.parquet as pq

from causality import traces
from causality.test_unordered import mark
from happened.causality.analysis import analyse
from happened.spark.pipeline import analyze_path

COMPARED = ("violations", "lost_causes", "messages", "stamps")
TOTALS = (
    "messages", "causal_violations", "fifo_violations", "lost", "duplicated", "misdelivered", "never_sent",
    "deliveries_judged", "lost_causes", "fifo_lost_causes",
)  # fmt: skip


def test_whole_and_cut_agree_with_one_machine(spark, dice, tmp_path):
    given = [row for name in "abcdefghijkl" for row in mark(traces.busy(dice, name), dice)[0]]
    alone = analyse(traces.table(given))
    (tmp_path / "trace").mkdir()
    for part in range(3):  # several splits: messages cross them
        rows = [row for i, row in enumerate(given) if i % 3 == part]
        pq.write_table(traces.table(rows), tmp_path / "trace" / f"part-{part}.parquet")
    assert alone.totals["lost"] and alone.totals["causal_violations"]
    ways = {"whole": {}, "cut": {"whole_events": 1, "epoch_events": 8}}
    for way, options in ways.items():
        summary = analyze_path(spark, tmp_path / "trace", tmp_path / way, **options)
        assert {name: summary[name] for name in TOTALS} == {name: alone.totals[name] for name in TOTALS}, way
        for name in COMPARED:
            found = pq.read_table(tmp_path / way / name)
            assert traces.rows_of(found, name) == traces.rows_of(alone.table(name), name), (way, name)
    assert max(pq.read_table(tmp_path / "cut" / "epochs")["epoch"].to_pylist()) >= 1
