"""Clocks that are decades apart, or once showed 1970: whole and cut say the same, and cuts stay even."""

import random
from collections import Counter

import pyarrow.parquet as pq
import pytest

from causality import traces
from happened.causality.analysis import analyse
from happened.spark.by_epoch.epoch_layout import MOST_UNEVEN
from happened.spark.pipeline import analyze_path
from spark.test_analyze import write

NOW = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def conversation(messages, time):
    """p and q answer one another; time(process, number) is what a clock shows at its number-th event."""
    chains = {"p": [], "q": []}
    for number in range(messages):
        sender, receiver = ("q", "p") if number % 2 else ("p", "q")
        for process, kind in ((sender, "send"), (receiver, "deliver")):
            event = {"kind": kind, "message": f"m{number}", "time": time(process, 2 * number)}
            chains[process].append(event | ({"to": [receiver]} if kind == "send" else {}))
    return traces.number(chains)


def test_clocks_decades_apart_have_one_skew_whole_and_cut(spark, tmp_path, seed):
    """q's began in 1970 and runs fast; no offset puts all right, so drifts are asked for."""
    dice = random.Random(seed)

    def time(process, number):
        real = number * SECOND + dice.randrange(SECOND // 10)
        return NOW + real if process == "p" else real + real // 1000

    table = write(conversation(400, time), tmp_path / "trace")
    expected = analyse(table)
    analyze_path(
        spark, tmp_path / "trace", tmp_path / "out", questions=["epochs"], whole_events=0, epoch_events=100
    )
    for name in ("skew", "times"):
        found = pq.read_table(tmp_path / "out" / name)
        assert traces.rows_of(found, name) == traces.rows_of(expected.table(name), name), name
    assert not any(expected.table("skew")["feasible"].to_pylist())


@pytest.mark.slow
def test_one_event_of_1970_leaves_the_cuts_even(spark, tmp_path):
    per_epoch, events = 100, 2000
    rows = conversation(events // 2, lambda process, number: NOW + number * 1000)
    rows[0]["time"] = 0
    write(rows, tmp_path / "trace")
    analyze_path(
        spark,
        tmp_path / "trace",
        tmp_path / "out",
        questions=["epochs"],
        whole_events=0,
        epoch_events=per_epoch,
    )
    ends = Counter()
    for row in pq.read_table(tmp_path / "out" / "epochs").to_pylist():
        ends[row["epoch"]] += row["last"]
    totals = [ends[epoch] for epoch in sorted(ends)]
    sizes = [end - begin for begin, end in zip([0, *totals], totals, strict=False)]
    assert sum(sizes) == events
    assert 10 <= len(sizes) <= 40
    assert max(sizes) <= MOST_UNEVEN * per_epoch
