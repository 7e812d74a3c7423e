"""A trace of nothing but violations: naming them must not send them all to every task."""

import re

from causality import traces
from happened.causality.analysis import QUESTIONS, analyse
from happened.spark.by_epoch.epoch_layout import lay_out
from happened.spark.by_epoch.named_violations import name_violations
from happened.spark.by_epoch.stamping import stamp
from happened.spark.event_rows import read_events
from spark.test_analyze import write

THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"


def test_early_deliveries_are_broadcast_only_where_spark_finds_them_few(spark, tmp_path):
    """With its own estimates switched off, the joins with the sends are shuffled; only names and paths,
    which are few by definition, go to every task."""
    messages = [f"m{number}" for number in range(30)]
    chains = {
        "p": [{"kind": "send", "message": message, "to": ["q"]} for message in messages],
        "q": [{"kind": "deliver", "message": message} for message in reversed(messages)],
    }
    table = write(traces.number(chains), tmp_path / "trace")
    events = read_events(spark, tmp_path / "trace")
    layout = lay_out(spark, events, "", tmp_path / "store", per_epoch=20)
    stamp(spark, layout, tmp_path / "out", [QUESTIONS["order"]])
    threshold = spark.conf.get(THRESHOLD)
    spark.conf.set(THRESHOLD, "-1")
    try:
        found = name_violations(events, layout)
        plan = found._jdf.queryExecution().executedPlan().toString()
        rows = found.collect()
    finally:
        spark.conf.set(THRESHOLD, threshold)
    assert len(re.findall(r"\bSortMergeJoin\b|\bShuffledHashJoin\b", plan)) == 2, plan
    expected = [row for row in analyse(table).table("violations").to_pylist() if row["order"] != "total"]

    def key(row):
        return row["order"], row["process"], row["early"], row["overtaken"]

    assert sorted(map(key, rows)) == sorted(map(key, expected))
    assert len(rows) == 2 * 29
