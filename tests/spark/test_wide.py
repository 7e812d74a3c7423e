"""More processes than whole vectors are kept for: the same answers, and nothing as large as their square."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causality.dags import apart
from causality.traces import rows_of
from happened.causality.analysis import TABLES, analyse
from happened.causality.questions import QUESTIONS
from happened.core.errors import CausalityError
from happened.spark import pipeline
from happened.spark.by_epoch.epoch_layout import WIDE
from happened.spark.in_process import analyze_here
from happened.spark.rebuild import rebuild
from happened.trace import SCHEMA

PROCESSES, MESSAGES = WIDE + 76, 3000
MEGABYTE = 1 << 20


def unicasts(seed):
    """Some are delivered late, and so overtaken; some never. Clocks are apart, and one cannot be mended."""
    dice = np.random.default_rng(seed)
    sender = dice.integers(0, PROCESSES, MESSAGES)
    receiver = (sender + dice.integers(1, 40, MESSAGES)) % PROCESSES
    sent = np.arange(MESSAGES) * 100
    given = sent + dice.exponential(400_000, MESSAGES).astype(np.int64)
    rows = []
    seqs = np.zeros(PROCESSES, np.int64)
    happened = [(time, "send", m) for m, time in enumerate(sent)]
    happened += [(time, "deliver", m) for m, time in enumerate(given) if m % 10]
    for time, kind, m in sorted(happened):
        process = sender[m] if kind == "send" else receiver[m]
        seqs[process] += 1
        row = {
            "computation": "",
            "process": f"p{process:04d}",
            "seq": int(seqs[process]),
            "kind": kind,
            "message": f"m{m}",
            "to": [f"p{receiver[m]:04d}"] if kind == "send" else None,
            "time": int(time) + process % 7 * 1000 - (int(time) if process == 3 else 0),
            "relevant": False,
        }
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_a_computation_of_very_many_processes(spark, tmp_path, seed):
    table = unicasts(seed)
    (tmp_path / "trace").mkdir()
    pq.write_table(table, tmp_path / "trace" / "part.parquet")
    questions = [name for name in QUESTIONS if name != "necessary"]  # beyond its limit
    sizes = []

    def measure(*_):
        """How large the intermediates are, while they are there."""
        sizes.extend(path.stat().st_size for path in (tmp_path / "work").rglob("*") if path.is_file())

    summary = pipeline.analyze_path(
        spark,
        tmp_path / "trace",
        tmp_path / "out",
        questions=questions,
        whole_events=1000,
        work=tmp_path / "work",
        finish=measure,
    )
    assert sizes and max(sizes) < MEGABYTE < 4 * PROCESSES**2
    expected = analyse(table, timestamps="predecessors", questions=questions)
    for name in TABLES.keys() - {"necessary"}:
        found = pq.read_table(tmp_path / "out" / name)
        assert rows_of(found, name) == rows_of(expected.table(name), name), name
    assert summary["causal_violations"] == expected.totals["causal_violations"] > 10
    assert summary["lost_causes"] > 0
    assert summary["ordered_pairs"] == expected.totals["ordered_pairs"]
    with pytest.raises(CausalityError, match=rf"'' has 1,\d+ processes .* up to {WIDE:,} processes"):
        rebuild(spark, tmp_path / "out", tmp_path / "rebuilt", whole_events=1000)


def test_a_wide_dag_is_taken_whole(spark, tmp_path):
    """Without messages, a computation beyond MOST_CELLS has one epoch, beside one that is cut; in one process
    too."""
    trace = tmp_path / "trace"
    trace.mkdir()
    silent = apart(7100, "silent")
    pq.write_table(silent, trace / "part.parquet")
    expected = analyse(silent, timestamps="predecessors")
    pipeline.analyze_path(spark, trace, tmp_path / "alone")
    analyze_here(trace, tmp_path / "here")
    pq.write_table(apart(7100, "talking", message="m"), trace / "other.parquet")
    summary = pipeline.analyze_path(spark, trace, tmp_path / "both", questions=["predecessors", "epochs"])
    assert summary["reduction_edges"] == 7099 + 7099
    for name in TABLES:
        for folder in ("alone", "here"):
            found = pq.read_table(tmp_path / folder / name)
            assert rows_of(found, name) == rows_of(expected.table(name), name), (folder, name)
    assert pq.read_table(tmp_path / "alone" / "epochs")["epoch"].unique().to_pylist() == [0]
    for name in ("predecessors", "epochs"):
        mine = pq.read_table(tmp_path / "both" / name, filters=[("computation", "=", "silent")])
        assert rows_of(mine, name) == rows_of(expected.table(name), name)
    with pytest.raises(CausalityError, match="too large for one process"):
        analyze_here(trace, tmp_path / "refused")
